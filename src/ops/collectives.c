/* Ops between ranks. They have no kernels: the executor begins and waits for them. Each is the conjugate of its
 * backward (Megatron-LM's f and g, arXiv:1909.08053; sequence parallelism's pair, arXiv:2205.05198; Ulysses' pair,
 * arXiv:2309.14509): all_gather <-> reduce_scatter, enter <-> all_reduce, all_to_all <-> all_to_all. */
#include "ops/shape.h"

const char *ndp_collective_name(ndp_collective c) {
    static const char *const names[NDP_COLLECTIVES] = {"local",      "all_gather", "reduce_scatter", "all_reduce",
                                                       "all_to_all", "shift",      "send",           "recv"};
    return names[c];
}

static ndp_status check_ranks(const ndp_op_attr *attr, const char *op) {
    NDP_SHAPE_CHECK(attr->ranks >= 2, "%s over %d ranks", op, attr->ranks);
    return NDP_OK;
}

static ndp_status gather_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    NDP_TRY(check_ranks(attr, "all_gather"));
    ndp_shape_set(&out[0], in[0].rows * attr->ranks, in[0].cols, in[0].dtype);
    return NDP_OK;
}

static ndp_status scatter_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    NDP_TRY(check_ranks(attr, "reduce_scatter"));
    NDP_SHAPE_CHECK(in[0].rows % attr->ranks == 0, "reduce_scatter: %lld rows over %d ranks", (long long)in[0].rows,
                    attr->ranks);
    ndp_shape_set(&out[0], in[0].rows / attr->ranks, in[0].cols, in[0].dtype);
    return NDP_OK;
}

static ndp_status same_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    NDP_TRY(check_ranks(attr, "a collective"));
    ndp_shape_set(&out[0], in[0].rows, in[0].cols, in[0].dtype);
    return NDP_OK;
}

/* What this rank hands over: all but its own part. */
static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    *flops = 0;
    *bytes = ndp_view_bytes(&c->in[0]);
}

/* Sums of wide parts are rounded to attr.type once, with the gradient that was there before. */
static ndp_status by(ndp_bwd *b, const ndp_op *conjugate) {
    int g = b->grad_out(b, 0), made;
    if (g < 0 || !b->wants(b, 0))
        return NDP_OK;
    if (!b->attr->wide_grad)
        return b->input_grad(b, conjugate, b->attr, (int[]){g}, 1, (int[]){0}, 1, -1, &made);
    NDP_TRY(b->intermediate(b, conjugate, b->attr, (int[]){g}, 1, &g));
    return b->input_grad(b, &ndp_op_copy, b->attr, (int[]){g, -1}, 2, (int[]){0}, 1, 1, &made);
}

static ndp_status gather_backward(ndp_bwd *b) { return by(b, &ndp_op_reduce_scatter); }
static ndp_status scatter_backward(ndp_bwd *b) { return by(b, &ndp_op_all_gather); }
static ndp_status all_to_all_backward(ndp_bwd *b) { return by(b, &ndp_op_all_to_all); }
static ndp_status enter_backward(ndp_bwd *b) { return by(b, &ndp_op_all_reduce); }

/* The sum of parts hands its gradient to each part as it stands. */
static ndp_status all_reduce_backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0);
    return g < 0 || !b->wants(b, 0) ? NDP_OK : b->pass_grad(b, 0, g);
}

#define COLLECTIVE(op, what, rows_rule, shape_rule, rule, in_place)                                                    \
    const ndp_op ndp_op_##op = {.id = NDP_OP_##op,                                                                     \
                                .name = #op,                                                                           \
                                .n_in = 1,                                                                             \
                                .n_out = 1,                                                                            \
                                .alias = in_place,                                                                     \
                                .rows = rows_rule,                                                                     \
                                .shape = shape_rule,                                                                   \
                                .backward = rule,                                                                      \
                                .cost = cost,                                                                          \
                                .collective = what};

COLLECTIVE(all_gather, NDP_ALL_GATHER, NDP_ROWS_MIXED, gather_shape, gather_backward, -1)
COLLECTIVE(reduce_scatter, NDP_REDUCE_SCATTER, NDP_ROWS_MIXED, scatter_shape, scatter_backward, -1)
COLLECTIVE(all_reduce, NDP_ALL_REDUCE, NDP_ROWS_ALIKE, same_shape, all_reduce_backward, 0)
COLLECTIVE(all_to_all, NDP_ALL_TO_ALL, NDP_ROWS_MIXED, same_shape, all_to_all_backward, -1)
COLLECTIVE(shift, NDP_SHIFT, NDP_ROWS_MIXED, same_shape, NULL, -1)
COLLECTIVE(send, NDP_SEND, NDP_ROWS_MIXED, same_shape, NULL, 0)
COLLECTIVE(recv, NDP_RECV, NDP_ROWS_MIXED, same_shape, NULL, 0)
COLLECTIVE(enter, NDP_LOCAL, NDP_ROWS_ALIKE, same_shape, enter_backward, 0)

static ndp_status given_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr, (void)out;
    NDP_SHAPE_CHECK(in[0].rows == in[1].rows && in[0].cols == in[1].cols,
                    "given_gradient: x " NDP_SHAPE ", dx " NDP_SHAPE, NDP_SHAPE_ARGS(in[0]), NDP_SHAPE_ARGS(in[1]));
    return NDP_OK;
}

static ndp_status given_backward(ndp_bwd *b) { return b->wants(b, 0) ? b->pass_grad(b, 0, b->in[1]) : NDP_OK; }

const ndp_op ndp_op_given_gradient = {
    .id = NDP_OP_given_gradient,
    .name = "given_gradient",
    .n_in = 2,
    .n_out = 0,
    .alias = -1,
    .rows = NDP_ROWS_ALIKE,
    .shape = given_shape,
    .backward = given_backward,
};
