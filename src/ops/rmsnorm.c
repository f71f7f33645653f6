/* y = x rstd w with rstd = (mean(x^2) + eps)^-1/2, alone or with the residual sum before it, and the gradients. Rows of
 * G times as many columns as w has are G runs, each normed by itself: heads, say. */
#include "ops/flow.h"
#include "ops/shape.h"

/* Of x and w; output `y`, and rstd after it. */
static ndp_status norm_shape(ndp_op_call *c, const ndp_view *x, const ndp_view *w, ndp_view *y) {
    NDP_SHAPE_CHECK(w->rows == 1 && x->cols % w->cols == 0 && w->dtype == x->dtype, "%s: x " NDP_SHAPE ", w " NDP_SHAPE,
                    c->op->name, NDP_SHAPE_ARGS(*x), NDP_SHAPE_ARGS(*w));
    ndp_shape_like(&y[0], x);
    ndp_shape_set(&y[1], x->rows, x->cols / w->cols, ndp_wide(x->dtype));
    return NDP_OK;
}

static ndp_status shape(ndp_op_call *c) { return norm_shape(c, &c->in[0], &c->in[1], &c->out[0]); }

static ndp_status backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0);
    NDP_TRY(ndp_input_grad(b, &ndp_op_rmsnorm_dx, b->attr, (int[]){g, b->in[0], b->in[1], b->out[1], -1}, 5, 4));
    return ndp_weight_grad(b, 1, &ndp_op_rmsnorm_dw, (int[]){g, b->in[0], b->out[1]}, 3);
}

const ndp_op ndp_op_rmsnorm = {
    NDP_NAMED(rmsnorm),
    .n_in = 2,
    .n_out = 2,
    .rows = NDP_ROWS_ALIKE,
    .shape = shape,
    .backward = backward,
    .flops = 4,
    .reads = NDP_READS_eps | NDP_READS_unit_offset,
    NDP_FLOWS({.in = {NDP_IS(OPERAND, 0, "tg", .each = 1), NDP_IS(OPERAND, 1, "1C")},
               .out = {NDP_IS(RESULT, 0, "tg", .each = 1), NDP_IS(RESULT, 1, "tg")}}),
};

static ndp_status dx_shape(ndp_op_call *c) {
    const ndp_view *dy = &c->in[0], *w = &c->in[2], *rstd = &c->in[3];
    NDP_SHAPE_SAME(c, *dy, c->in[1]);
    NDP_SHAPE_CHECK(w->cols * rstd->cols == dy->cols && w->dtype == dy->dtype && rstd->rows == dy->rows,
                    "rmsnorm_dx: dy " NDP_SHAPE ", w " NDP_SHAPE ", rstd " NDP_SHAPE, NDP_SHAPE_ARGS(*dy),
                    NDP_SHAPE_ARGS(*w), NDP_SHAPE_ARGS(*rstd));
    ndp_shape_like(&c->out[0], dy);
    return ndp_shape_acc(c, 4);
}

const ndp_op ndp_op_rmsnorm_dx = {
    NDP_NAMED(rmsnorm_dx),
    .n_in = 5,
    .n_out = 1,
    .optional_in = 1u << 4,
    .rows = NDP_ROWS_ALIKE,
    .shape = dx_shape,
    .flops = 9,
    .reads = NDP_READS_unit_offset,
    NDP_FLOWS({.node = &ndp_op_rmsnorm,
               .in = {NDP_IS(D_RESULT, 0, "tg", .each = 1), NDP_IS(OPERAND, 0, "tg", .each = 1),
                      NDP_IS(OPERAND, 1, "1C"), NDP_IS(RESULT, 1, "tg"), NDP_IS(EARLIER, 0, "..")},
               .out = {NDP_IS(D_OPERAND, 0, "tg", .each = 1)}},
              {.node = &ndp_op_add_rmsnorm,
               .in = {NDP_IS(D_RESULT, 1, "tg", .each = 2), NDP_IS(RESULT, 0, "tg", .each = 2),
                      NDP_IS(OPERAND, 2, "1C"), NDP_IS(RESULT, 2, "tg"), NDP_IS(EARLIER, 0, "..")},
               .out = {NDP_IS(D_SUM, 0, "tg", .each = 2)}}),
};

static ndp_status dw_shape(ndp_op_call *c) {
    NDP_SHAPE_SAME(c, c->in[0], c->in[1]);
    ndp_shape_set(&c->out[0], 1, c->in[0].cols / c->in[2].cols, ndp_wide(c->in[0].dtype));
    return NDP_OK;
}

const ndp_op ndp_op_rmsnorm_dw = {
    NDP_NAMED(rmsnorm_dw),
    .n_in = 3,
    .n_out = 1,
    .rows = NDP_ROWS_SUMMED,
    .shape = dw_shape,
    .flops = 3,
    NDP_FLOWS(
        {.node = &ndp_op_rmsnorm,
         .runs = NDP_RUNS_ONE,
         .in = {NDP_IS(D_RESULT, 0, "tc"), NDP_IS(OPERAND, 0, "tc"), NDP_IS(RESULT, 1, "t1")},
         .out = {NDP_IS(D_OPERAND, 1, "1c")}},
        {.node = &ndp_op_rmsnorm,
         .runs = NDP_RUNS_SEVERAL,
         .in = {NDP_IS(D_RESULT, 0, "tg", .each = 1), NDP_IS(OPERAND, 0, "tg", .each = 1), NDP_IS(RESULT, 1, "tg")},
         .out = {NDP_IS(D_OPERAND, 1, "1C")}},
        {.node = &ndp_op_add_rmsnorm,
         .in = {NDP_IS(D_RESULT, 1, "tC"), NDP_IS(RESULT, 0, "tC"), NDP_IS(RESULT, 2, "t1")},
         .out = {NDP_IS(D_OPERAND, 2, "1C")}}),
};

/* s = x + h, y = norm(s) ------------------------------------------------------------------------------------------- */

static ndp_status add_shape(ndp_op_call *c) {
    NDP_SHAPE_SAME(c, c->in[0], c->in[1]);
    ndp_shape_like(&c->out[0], &c->in[0]);
    return norm_shape(c, &c->in[0], &c->in[2], &c->out[1]);
}

/* Both summands have the gradient of the sum; a gradient that arrives at s itself is added inside rmsnorm_dx. */
static ndp_status add_backward(ndp_bwd *b) {
    int at_s = b->grad_out(b, 0), at_y = b->grad_out(b, 1), given = -1;
    if (at_y < 0) {
        NDP_TRY(ndp_pass_grad(b, 0));
        return ndp_pass_grad(b, 1);
    }
    int first = b->wants(b, 0) ? 0 : b->wants(b, 1) ? 1 : -1;
    if (first >= 0) {
        int ins[] = {at_y, b->out[0], b->in[2], b->out[2], at_s};
        NDP_TRY(b->input_grad(b, &ndp_op_rmsnorm_dx, b->attr, ins, 5, &first, 1, -1, &given));
    }
    if (first == 0 && b->wants(b, 1))
        NDP_TRY(b->pass_grad(b, 1, given));
    if (!b->wants(b, 2))
        return NDP_OK;
    return b->weight_grad(b, &ndp_op_rmsnorm_dw, b->attr, (int[]){at_y, b->out[0], b->out[2]}, 3, 2);
}

const ndp_op ndp_op_add_rmsnorm = {
    NDP_NAMED(add_rmsnorm),
    .n_in = 3,
    .n_out = 3,
    .rows = NDP_ROWS_ALIKE,
    .shape = add_shape,
    .backward = add_backward,
    .flops = 5,
    .reads = NDP_READS_eps | NDP_READS_unit_offset,
    NDP_FLOWS(
        {.in = {NDP_IS(OPERAND, 0, "tg", .each = 2), NDP_IS(OPERAND, 1, "tg", .each = 2), NDP_IS(OPERAND, 2, "1C")},
         .out = {NDP_IS(RESULT, 0, "tg", .each = 2), NDP_IS(RESULT, 1, "tg", .each = 2), NDP_IS(RESULT, 2, "tg")}}),
};
