/* Inside the placement room: how many contributions a gradient has.
 *
 * The gradient of a value is a sum over its uses: the operands of forward nodes of the whole graph through which a
 * gradient flows back. Each use has a weight; the weights of all uses of an element sum to 1. */
#ifndef NDP_PLACEMENT_USES_H
#define NDP_PLACEMENT_USES_H

#include "graph/graph.h"
#include "placement/items.h"
#include "placement/share.h"

/* The operand number of add_rmsnorm's second reading of its sum. */
enum { NDP_USE_NORM = NDP_OP_MAX_IN - 1 };

typedef struct ndp_uses {
    const ndp_graph *graph; /* of the whole model, forward; borrowed */
    /* By forward node and operand; 0: no gradient flows back through it. Behind the last node: of the unit after this
     * one, as operand 0. */
    ndp_share (*of)[NDP_OP_MAX_IN];
} ndp_uses;

/* NDP_EBUG: two uses of a value overlap in some of their columns only. Memory is the arena's. */
ndp_status ndp_uses_init(const ndp_graph *g, ndp_arena *arena, ndp_uses *out);

/* The value that `value` is a view of columns of (itself, if it is not a view), and its first column there. */
int ndp_value_origin(const ndp_graph *g, int value, int64_t *col);

/* Rows (columns of a vector) of the segments of a parameter before segment `segment`, on all ranks together. */
int64_t ndp_param_before(const ndp_graph *g, int param, int segment);

#endif
