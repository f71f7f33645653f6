/* Ops between ranks. They have no kernels: the executor begins and waits for them. Each is the conjugate of its
 * backward (Megatron-LM's f and g, arXiv:1909.08053; sequence parallelism's pair, arXiv:2205.05198; Ulysses' pair,
 * arXiv:2309.14509): all_gather <-> reduce_scatter, enter <-> all_reduce, all_to_all <-> all_to_all. What all ranks
 * have alike is cut and gathered without a sum: own_rows <-> all_gather. */
#include "ops/shape.h"

static ndp_status check_ranks(const ndp_op_call *c) {
    NDP_SHAPE_CHECK(c->attr->ranks >= 2, "%s over %d ranks", c->op->name, c->attr->ranks);
    return NDP_OK;
}

static ndp_status gather_shape(ndp_op_call *c) {
    NDP_TRY(check_ranks(c));
    ndp_shape_set(&c->out[0], c->in[0].rows * c->attr->ranks, c->in[0].cols, c->in[0].dtype);
    return NDP_OK;
}

static ndp_status scatter_shape(ndp_op_call *c) {
    const ndp_view *x = &c->in[0];
    int ranks = c->attr->ranks;
    NDP_TRY(check_ranks(c));
    NDP_SHAPE_CHECK(x->rows % ranks == 0, "reduce_scatter: %lld rows over %d ranks", (long long)x->rows, ranks);
    ndp_shape_set(&c->out[0], x->rows / ranks, x->cols, x->dtype);
    return NDP_OK;
}

static ndp_status same_shape(ndp_op_call *c) {
    NDP_TRY(check_ranks(c));
    return ndp_shape_alike(c);
}

/* What this rank hands over: all but its own part. */
static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)flops;
    *bytes = ndp_view_bytes(&c->in[0]);
}

/* Sums of wide parts are rounded to attr.type once, with the gradient that was there before. */
static ndp_status by(ndp_bwd *b, const ndp_op *conjugate) {
    int g = b->grad_out(b, 0);
    if (g < 0 || !b->wants(b, 0) || !b->attr->wide_grad)
        return ndp_input_grad(b, conjugate, b->attr, (int[]){g}, 1, -1);
    NDP_TRY(b->intermediate(b, conjugate, b->attr, (int[]){g}, 1, &g));
    return ndp_input_grad(b, &ndp_op_copy, b->attr, (int[]){g, -1}, 2, 1);
}

static ndp_status gather_backward(ndp_bwd *b) {
    return b->attr->alike ? ndp_input_grad(b, &ndp_op_own_rows, b->attr, (int[]){b->grad_out(b, 0)}, 1, -1)
                          : by(b, &ndp_op_reduce_scatter);
}
static ndp_status scatter_backward(ndp_bwd *b) { return by(b, &ndp_op_all_gather); }
static ndp_status all_to_all_backward(ndp_bwd *b) { return by(b, &ndp_op_all_to_all); }
static ndp_status enter_backward(ndp_bwd *b) { return by(b, &ndp_op_all_reduce); }
static ndp_status own_rows_backward(ndp_bwd *b) { return by(b, &ndp_op_all_gather); }

static ndp_status own_rows_shape(ndp_op_call *c) {
    const ndp_view *x = &c->in[0];
    int64_t rows = x->rows / c->attr->ranks, first = c->attr->first;
    NDP_TRY(check_ranks(c));
    NDP_SHAPE_CHECK(x->rows % c->attr->ranks == 0 && first >= 0 && first + rows <= x->rows,
                    "own_rows: %lld rows over %d ranks, from row %lld on", (long long)x->rows, c->attr->ranks,
                    (long long)first);
    ndp_shape_set(&c->out[0], rows, x->cols, x->dtype);
    return NDP_OK;
}

/* How many rows a rank hands over is data; the plan has room for attr.go of them and attr.come that it gets. */
static ndp_status rows_shape(ndp_op_call *c) {
    const ndp_view *x = &c->in[0], *rows = &c->in[1];
    NDP_TRY(check_ranks(c));
    NDP_SHAPE_CHECK(x->rows == c->attr->go && rows->dtype == NDP_I32 && rows->rows == c->attr->ranks &&
                        rows->cols == c->attr->ranks,
                    "all_to_all_rows: " NDP_SHAPE " of at most %lld rows, counts " NDP_SHAPE, NDP_SHAPE_ARGS(*x),
                    (long long)c->attr->go, NDP_SHAPE_ARGS(*rows));
    ndp_shape_set(&c->out[0], c->attr->come, x->cols, x->dtype);
    return NDP_OK;
}

static void rows_cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)flops;
    *bytes = (double)(c->attr->mean * c->in[0].cols) * (double)ndp_dtype_size(c->in[0].dtype);
}

/* Rows go back where they came from. */
static ndp_status rows_backward(ndp_bwd *b) {
    ndp_op_attr back = *b->attr;
    back.inverse = !b->attr->inverse, back.go = b->attr->come, back.come = b->attr->go;
    return ndp_input_grad(b, &ndp_op_all_to_all_rows, &back, (int[]){b->grad_out(b, 0), b->in[1]}, 2, -1);
}

const ndp_op ndp_op_all_to_all_rows = {
    .id = NDP_OP_all_to_all_rows,
    .name = "all_to_all_rows",
    .n_in = 2,
    .n_out = 1,
    .rows = NDP_ROWS_MIXED,
    .shape = rows_shape,
    .backward = rows_backward,
    .cost = rows_cost,
    .collective = NDP_ALL_TO_ALL,
    .reads = NDP_READS_group | NDP_READS_ranks | NDP_READS_inverse | NDP_READS_go | NDP_READS_come | NDP_READS_mean,
};

/* The sum of parts hands its gradient to each part as it stands. */
static ndp_status all_reduce_backward(ndp_bwd *b) { return ndp_pass_grad(b, 0); }

/* What is read besides the group: of a message; of others, how the gradient is summed. */
enum { MESSAGE = NDP_READS_peer | NDP_READS_tag, SUMMED = NDP_READS_wide_grad | NDP_READS_type };

#define COLLECTIVE(op, what, rows_rule, shape_rule, rule, changed, attrs)                                              \
    const ndp_op ndp_op_##op = {                                                                                       \
        NDP_NAMED(op),      .n_in = 1,                                                                                 \
        .n_out = 1,         .in_place = changed,                                                                       \
        .rows = rows_rule,  .shape = shape_rule,                                                                       \
        .backward = rule,   .cost = cost,                                                                              \
        .collective = what, .reads = NDP_READS_group | NDP_READS_ranks | (attrs),                                      \
    };

COLLECTIVE(all_gather, NDP_ALL_GATHER, NDP_ROWS_MIXED, gather_shape, gather_backward, false,
           SUMMED | NDP_READS_alike | NDP_READS_first)
COLLECTIVE(reduce_scatter, NDP_REDUCE_SCATTER, NDP_ROWS_MIXED, scatter_shape, scatter_backward, false, SUMMED)
COLLECTIVE(all_reduce, NDP_ALL_REDUCE, NDP_ROWS_ALIKE, same_shape, all_reduce_backward, true, SUMMED)
COLLECTIVE(all_to_all, NDP_ALL_TO_ALL, NDP_ROWS_MIXED, same_shape, all_to_all_backward, false, SUMMED)
COLLECTIVE(shift, NDP_SHIFT, NDP_ROWS_MIXED, same_shape, NULL, false, SUMMED)
COLLECTIVE(send, NDP_SEND, NDP_ROWS_MIXED, same_shape, NULL, true, MESSAGE)
COLLECTIVE(recv, NDP_RECV, NDP_ROWS_MIXED, same_shape, NULL, true, MESSAGE)
COLLECTIVE(enter, NDP_LOCAL, NDP_ROWS_ALIKE, same_shape, enter_backward, true, SUMMED)
COLLECTIVE(own_rows, NDP_LOCAL, NDP_ROWS_MIXED, own_rows_shape, own_rows_backward, true, NDP_READS_first)

static ndp_status given_shape(ndp_op_call *c) {
    const ndp_view *x = &c->in[0], *dx = &c->in[1];
    NDP_SHAPE_CHECK(x->rows == dx->rows && x->cols == dx->cols, "given_gradient: x " NDP_SHAPE ", dx " NDP_SHAPE,
                    NDP_SHAPE_ARGS(*x), NDP_SHAPE_ARGS(*dx));
    return NDP_OK;
}

static ndp_status given_backward(ndp_bwd *b) { return b->wants(b, 0) ? b->pass_grad(b, 0, b->in[1]) : NDP_OK; }

const ndp_op ndp_op_given_gradient = {
    NDP_NAMED(given_gradient),
    .n_in = 2,
    .n_out = 0,
    .rows = NDP_ROWS_ALIKE,
    .shape = given_shape,
    .backward = given_backward,
    .reads = NDP_READS_train, /* by the graph: the backward starts here */
};
