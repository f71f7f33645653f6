/* Facts of a device as a value that owns its texts. For this room, and measure/. */
#ifndef NDP_CLUSTER_BUILT_IN_H
#define NDP_CLUSTER_BUILT_IN_H

#include "cluster/cluster.h"

/* What `to` has is overwritten; {0}, if this fails. NDP_ENOMEM. */
NDP_API ndp_status ndp_device_facts_copy(const ndp_device_facts *from, ndp_device_facts *to);
/* Accepts {0}. */
void ndp_device_facts_release(ndp_device_facts *f);
/* The name of the nearest of the built-in devices and of `n` others; NULL: none is near. */
const char *ndp_nearest_device(const char *name, const char *const *others, int n);

#endif
