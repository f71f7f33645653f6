/* For node_tree.c: which NIC is nearest to each GPU. */
#ifndef NDP_MEASURE_NODE_NEAR_H
#define NDP_MEASURE_NODE_NEAR_H

#include "measure/node_tree.h"
#include <hwloc.h>

/* Sets `nic` and `path` of all GPUs. `gpus` and `nics`: hwloc's objects, in the order of those of the tree. */
void ndp_node_choose_nics(ndp_node_tree *t, const hwloc_obj_t *gpus, const hwloc_obj_t *nics);

#endif
