/* What a forward keeps beside its input for a recompute that makes only the rest again (train.recompute: selective), as
 * torchtitan's mode `op` does: the result of attention with what its backward reads of it, every second matrix product,
 * and sums over the tensor axis. A product of glued matrices is as many products as tensors. Inside graph. */
#ifndef NDP_GRAPH_KEPT_H
#define NDP_GRAPH_KEPT_H

#include "graph/graph.h"

/* A part of what a node makes: columns of a result. Of a product of glued matrices one tensor's, else a whole result.
 */
typedef struct ndp_kept_part {
    int out;
    int64_t col, cols;
} ndp_kept_part;
enum { NDP_MOST_PARTS = 32 };

/* Fills parts[NDP_MOST_PARTS]; returns how many there are. */
int ndp_kept_parts(const ndp_graph *g, const ndp_node *n, ndp_kept_part *parts);

/* kept[i]: the parts of forward node i that may be kept, a bit each. */
void ndp_kept_choose(const ndp_graph *g, uint32_t *kept);

#endif
