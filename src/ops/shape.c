/* Rules that several ops have. The graph room calls an op's shape rule when a node is added, and its backward rule when
 * a gradient arrives at the node. */
#include "ops/shape.h"

ndp_status ndp_shape_alike(ndp_op_call *c) {
    for (int i = 1; i < c->op->n_in; i++)
        NDP_SHAPE_SAME(c, c->in[0], c->in[i]);
    ndp_shape_like(&c->out[0], &c->in[0]);
    return NDP_OK;
}

ndp_status ndp_shape_acc(const ndp_op_call *c, int acc) {
    if (c->in[acc].rows)
        NDP_SHAPE_SAME(c, c->in[acc], c->out[0]);
    return NDP_OK;
}

/* Where a gradient arrives at output 0, and in[i] wants one. */
static bool flows(ndp_bwd *b, int i) { return b->grad_out(b, 0) >= 0 && b->wants(b, i); }

ndp_status ndp_input_grad(ndp_bwd *b, const ndp_op *op, const ndp_op_attr *attr, int *ins, int n_in, int acc) {
    return flows(b, 0) ? b->input_grad(b, op, attr, ins, n_in, (int[]){0}, 1, acc, NULL) : NDP_OK;
}

ndp_status ndp_pass_grad(ndp_bwd *b, int i) { return flows(b, i) ? b->pass_grad(b, i, b->grad_out(b, 0)) : NDP_OK; }

ndp_status ndp_weight_grad(ndp_bwd *b, int i, const ndp_op *op, const int *ins, int n_in) {
    return flows(b, i) ? b->weight_grad(b, op, b->attr, ins, n_in, i) : NDP_OK;
}
