/* y = (x - mean) rstd w + b with rstd = (var(x) + eps)^-1/2, and the gradients (arXiv:1607.06450). */
#include "ops/flow.h"
#include "ops/shape.h"

enum { STATS = 2 }; /* columns: mean, rstd */

static bool is_row_of(const ndp_view *v, const ndp_view *x) {
    return v->rows == 1 && v->cols == x->cols && v->dtype == x->dtype;
}

static ndp_status shape(ndp_op_call *c) {
    const ndp_view *x = &c->in[0], *w = &c->in[1], *b = &c->in[2];
    NDP_SHAPE_CHECK(is_row_of(w, x) && (!b->rows || is_row_of(b, x)),
                    "layernorm: x " NDP_SHAPE ", w " NDP_SHAPE ", b " NDP_SHAPE, NDP_SHAPE_ARGS(*x), NDP_SHAPE_ARGS(*w),
                    NDP_SHAPE_ARGS(*b));
    ndp_shape_like(&c->out[0], x);
    ndp_shape_set(&c->out[1], x->rows, STATS, ndp_wide(x->dtype));
    return NDP_OK;
}

static ndp_status backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0);
    NDP_TRY(ndp_input_grad(b, &ndp_op_layernorm_dx, b->attr, (int[]){g, b->in[0], b->in[1], b->out[1], -1}, 5, 4));
    NDP_TRY(ndp_weight_grad(b, 1, &ndp_op_layernorm_dw, (int[]){g, b->in[0], b->out[1]}, 3));
    return ndp_weight_grad(b, 2, &ndp_op_linear_db, (int[]){g}, 1);
}

const ndp_op ndp_op_layernorm = {
    NDP_NAMED(layernorm),
    .n_in = 3,
    .n_out = 2,
    .optional_in = 1u << 2,
    .rows = NDP_ROWS_ALIKE,
    .shape = shape,
    .backward = backward,
    .flops = 7,
    .reads = NDP_READS_eps,
    NDP_FLOWS({.in = {NDP_IS(OPERAND, 0, "tg", .each = 1), NDP_IS(OPERAND, 1, "1C"), NDP_IS(OPERAND, 2, "1C")},
               .out = {NDP_IS(RESULT, 0, "tg", .each = 1), NDP_IS(RESULT, 1, "tg", .each = -2)}}),
};

static ndp_status dx_shape(ndp_op_call *c) {
    const ndp_view *dy = &c->in[0], *w = &c->in[2], *stats = &c->in[3];
    NDP_SHAPE_SAME(c, *dy, c->in[1]);
    NDP_SHAPE_CHECK(is_row_of(w, dy) && stats->rows == dy->rows && stats->cols == STATS,
                    "layernorm_dx: dy " NDP_SHAPE ", w " NDP_SHAPE ", stats " NDP_SHAPE, NDP_SHAPE_ARGS(*dy),
                    NDP_SHAPE_ARGS(*w), NDP_SHAPE_ARGS(*stats));
    ndp_shape_like(&c->out[0], dy);
    return ndp_shape_acc(c, 4);
}

const ndp_op ndp_op_layernorm_dx = {
    NDP_NAMED(layernorm_dx),
    .n_in = 5,
    .n_out = 1,
    .optional_in = 1u << 4,
    .rows = NDP_ROWS_ALIKE,
    .shape = dx_shape,
    .flops = 12,
    NDP_FLOWS({.node = &ndp_op_layernorm,
               .in = {NDP_IS(D_RESULT, 0, "tC"), NDP_IS(OPERAND, 0, "tC"), NDP_IS(OPERAND, 1, "1C"),
                      NDP_IS(RESULT, 1, "tS"), NDP_IS(EARLIER, 0, "..")},
               .out = {NDP_IS(D_OPERAND, 0, "tC")}}),
};

static ndp_status dw_shape(ndp_op_call *c) {
    const ndp_view *dy = &c->in[0], *stats = &c->in[2];
    NDP_SHAPE_SAME(c, *dy, c->in[1]);
    NDP_SHAPE_CHECK(stats->rows == dy->rows && stats->cols == STATS, "layernorm_dw: stats " NDP_SHAPE,
                    NDP_SHAPE_ARGS(*stats));
    ndp_shape_set(&c->out[0], 1, dy->cols, ndp_wide(dy->dtype));
    return NDP_OK;
}

const ndp_op ndp_op_layernorm_dw = {
    NDP_NAMED(layernorm_dw),
    .n_in = 3,
    .n_out = 1,
    .rows = NDP_ROWS_SUMMED,
    .shape = dw_shape,
    .flops = 4,
    NDP_FLOWS({.node = &ndp_op_layernorm,
               .in = {NDP_IS(D_RESULT, 0, "tC"), NDP_IS(OPERAND, 0, "tC"), NDP_IS(RESULT, 1, "tS")},
               .out = {NDP_IS(D_OPERAND, 1, "1C")}}),
};
