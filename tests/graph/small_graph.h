/* Small graphs for tests of derivation and lowering. */
#ifndef TESTS_GRAPH_SMALL_GRAPH_H
#define TESTS_GRAPH_SMALL_GRAPH_H

#include "golden_text.h"
#include "graph/lower.h"

enum { T = 4, C = 6 };

/* One slot: a norm, two glued projections with biases, one back. */
enum { NORM, LEFT, RIGHT, LEFT_BIAS, RIGHT_BIAS, BACK, SEGMENTS };

typedef struct small_graph {
    ndp_graph g;
    ndp_segment items[SEGMENTS];
    ndp_segments slot;
    ndp_inputs inputs; /* tokens alone */
} small_graph;

static inline void small_begin(small_graph *s, const char *name) {
    static const struct {
        const char *name;
        int ndim;
        int64_t rows, cols;
        bool glued;
    } table[SEGMENTS] = {{"norm.w", 1, 1, C, false}, {"left.w", 2, C, C, false}, {"right.w", 2, C, C, true},
                         {"left.b", 1, 1, C, false}, {"right.b", 1, 1, C, true}, {"back.w", 2, C, C, false}};
    *s = (small_graph){.slot = {.items = s->items, .n = SEGMENTS}, .inputs.rows = {[NDP_EXTENT_TOKENS] = T}};
    ndp_inputs_add(&s->inputs, (ndp_input){"tokens", NDP_INPUT_TOKENS, NDP_EXTENT_TOKENS, 1, NDP_I32, NULL, 0});
    for (int i = 0; i < SEGMENTS; i++) {
        s->items[i] =
            ndp_segment_whole(table[i].name, table[i].ndim, table[i].rows, table[i].cols, NDP_DIM_WHOLE, NDP_DIM_WHOLE);
        s->items[i].glued = table[i].glued;
    }
    ndp_segments_layout(&s->slot);
    ndp_graph_init(&s->g, name, NDP_BF16, NDP_F32);
    s->g.slots[0] = &s->slot;
    s->g.inputs = &s->inputs;
}

static inline int small_op(small_graph *s, const ndp_op *op, const ndp_op_attr *attr, const char *name, int a, int b,
                           int c) {
    return ndp_graph_op1(&s->g, op, attr, name, (int[]){a, b, c}, op->n_in);
}

static inline int small_param(small_graph *s, int segment, int segments) {
    return ndp_graph_param(&s->g, 0, segment, segments);
}

/* y = x + back(gelu(left(n)) + right(n)), n = norm(x): x has two consumers, left and right are columns of one product.
 */
static inline void small_block(small_graph *s) {
    small_begin(s, "small");
    int x = ndp_graph_input(&s->g, T, C), n[2] = {NDP_NONE, NDP_NONE};
    ndp_graph_op(&s->g, &ndp_op_rmsnorm, &(ndp_op_attr){.eps = 1e-6}, "n", (int[]){x, small_param(s, NORM, 1)}, 2, n,
                 2);
    int bias = small_param(s, LEFT_BIAS, 2), weight = small_param(s, LEFT, 2);
    int both = small_op(s, &ndp_op_linear, NULL, "both", n[0], weight, bias);
    int left = ndp_graph_columns(&s->g, both, 0, C), right = ndp_graph_columns(&s->g, both, C, C);
    int act = small_op(s, &ndp_op_gelu, NULL, "act", left, NDP_NONE, NDP_NONE);
    int sum = small_op(s, &ndp_op_add, NULL, "sum", act, right, NDP_NONE);
    int back = small_op(s, &ndp_op_linear, NULL, "back", sum, small_param(s, BACK, 1), NDP_NONE);
    ndp_graph_output(&s->g, small_op(s, &ndp_op_add, NULL, "y", x, back, NDP_NONE));
}

#endif
