/* The products of a mixture of experts: those of linear for groups of rows, each with a matrix of its own, and with a
 * bias of its own. Their costs are those of all N rows, whatever the groups are. */
#include "ops/flow.h"
#include "ops/shape.h"

/* As linear.c's: every element of in[0] meets each column of the result, of one matrix. Where ranks have different
 * experts, attr.mean rows have one here, if experts are even. */
static void product_cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)bytes;
    double rows = (double)(c->attr->mean > 0 && c->attr->mean < c->in[0].rows ? c->attr->mean : c->in[0].rows);
    *flops = 2 * rows * (double)c->in[0].cols * (double)c->out[0].cols;
}

static ndp_status check_offsets(const ndp_op_call *c) {
    const ndp_view *offsets = &c->in[c->op == &ndp_op_stack_bias_db ? 1 : 2];
    NDP_SHAPE_CHECK(offsets->rows > 1 && offsets->cols == 1 && offsets->dtype == NDP_I32, "%s: offsets " NDP_SHAPE,
                    c->op->name, NDP_SHAPE_ARGS(*offsets));
    return NDP_OK;
}

/* Also that w is a matrix for each group. */
static ndp_status check_stack(const ndp_op_call *c, int64_t *groups) {
    const ndp_view *w = &c->in[1];
    NDP_TRY(check_offsets(c));
    *groups = c->in[2].rows - 1;
    NDP_SHAPE_CHECK(w->rows % *groups == 0, "%s: w " NDP_SHAPE " for %lld groups", c->op->name, NDP_SHAPE_ARGS(*w),
                    (long long)*groups);
    return NDP_OK;
}

static ndp_status forward_shape(ndp_op_call *c) {
    const ndp_view *x = &c->in[0], *w = &c->in[1];
    int64_t groups;
    NDP_TRY(check_stack(c, &groups));
    NDP_SHAPE_CHECK(x->cols == w->cols && x->dtype == w->dtype, "linear_stack: x " NDP_SHAPE ", w " NDP_SHAPE,
                    NDP_SHAPE_ARGS(*x), NDP_SHAPE_ARGS(*w));
    ndp_shape_set(&c->out[0], x->rows, w->rows / groups, x->dtype);
    return NDP_OK;
}

static ndp_status backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0);
    NDP_TRY(ndp_input_grad(b, &ndp_op_linear_stack_dx, b->attr, (int[]){g, b->in[1], b->in[2], -1}, 4, 3));
    return ndp_weight_grad(b, 1, &ndp_op_linear_stack_dw, (int[]){g, b->in[0], b->in[2]}, 3);
}

const ndp_op ndp_op_linear_stack = {
    NDP_NAMED(linear_stack),
    .n_in = 3,
    .n_out = 1,
    .rows = NDP_ROWS_MIXED,
    .shape = forward_shape,
    .backward = backward,
    .cost = product_cost,
    .reads = NDP_READS_wide_grad | NDP_READS_mean,
    NDP_FLOWS({.own = NDP_READS_mean,
               .in = {NDP_IS(PART, 0, "rk"), NDP_IS(OPERAND, 1, "nk"), NDP_IS(PART, 2, "..")},
               .out = {NDP_IS(RESULT, 0, "rn")}}),
};

static ndp_status dx_shape(ndp_op_call *c) {
    const ndp_view *dy = &c->in[0], *w = &c->in[1];
    int64_t groups;
    NDP_TRY(check_stack(c, &groups));
    NDP_SHAPE_CHECK(dy->cols == w->rows / groups && dy->dtype == w->dtype,
                    "linear_stack_dx: dy " NDP_SHAPE ", w " NDP_SHAPE " for %lld groups", NDP_SHAPE_ARGS(*dy),
                    NDP_SHAPE_ARGS(*w), (long long)groups);
    ndp_shape_set(&c->out[0], dy->rows, w->cols, c->attr->wide_grad ? ndp_wide(dy->dtype) : dy->dtype);
    return ndp_shape_acc(c, 3);
}

const ndp_op ndp_op_linear_stack_dx = {
    NDP_NAMED(linear_stack_dx),
    .n_in = 4,
    .n_out = 1,
    .optional_in = 1u << 3,
    .rows = NDP_ROWS_MIXED,
    .shape = dx_shape,
    .cost = product_cost,
    .reads = NDP_READS_wide_grad | NDP_READS_mean,
    NDP_FLOWS(
        {.node = &ndp_op_linear_stack,
         .own = NDP_READS_mean,
         .in = {NDP_IS(D_RESULT, 0, "rn"), NDP_IS(OPERAND, 1, "nk"), NDP_IS(PART, 2, ".."), NDP_IS(EARLIER, 0, "..")},
         .out = {NDP_IS(D_OPERAND, 0, "rk")}}),
};

static ndp_status dw_shape(ndp_op_call *c) {
    const ndp_view *dy = &c->in[0], *x = &c->in[1];
    NDP_TRY(check_offsets(c));
    NDP_SHAPE_CHECK(dy->rows == x->rows && dy->dtype == x->dtype, "linear_stack_dw: dy " NDP_SHAPE ", x " NDP_SHAPE,
                    NDP_SHAPE_ARGS(*dy), NDP_SHAPE_ARGS(*x));
    ndp_shape_set(&c->out[0], (c->in[2].rows - 1) * dy->cols, x->cols, ndp_wide(dy->dtype));
    return NDP_OK;
}

const ndp_op ndp_op_linear_stack_dw = {
    NDP_NAMED(linear_stack_dw),
    .n_in = 3,
    .n_out = 1,
    .rows = NDP_ROWS_SUMMED,
    .shape = dw_shape,
    .cost = product_cost,
    .reads = NDP_READS_mean,
    NDP_FLOWS({.node = &ndp_op_linear_stack,
               .own = NDP_READS_mean,
               .in = {NDP_IS(D_RESULT, 0, "rn"), NDP_IS(PART, 0, "rk"), NDP_IS(PART, 2, "..")},
               .out = {NDP_IS(D_OPERAND, 1, "nk")}}),
};

/* stack_bias ------------------------------------------------------------------------------------------------------ */

static ndp_status bias_shape(ndp_op_call *c) {
    const ndp_view *y = &c->in[0], *b = &c->in[1];
    NDP_TRY(check_offsets(c));
    NDP_SHAPE_CHECK(b->rows == c->in[2].rows - 1 && b->cols == y->cols && ndp_wide(b->dtype) == ndp_wide(y->dtype) &&
                        c->attr->parts > 0,
                    "stack_bias: y " NDP_SHAPE ", b " NDP_SHAPE " for %lld groups, in %d parts", NDP_SHAPE_ARGS(*y),
                    NDP_SHAPE_ARGS(*b), (long long)c->in[2].rows - 1, c->attr->parts);
    ndp_shape_like(&c->out[0], y);
    return NDP_OK;
}

static ndp_status bias_backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0);
    NDP_TRY(ndp_pass_grad(b, 0));
    return g >= 0 && b->wants(b, 1) ? b->weight_grad(b, &ndp_op_stack_bias_db, b->attr, (int[]){g, b->in[2]}, 2, 1)
                                    : NDP_OK;
}

const ndp_op ndp_op_stack_bias = {
    NDP_NAMED(stack_bias),
    .n_in = 3,
    .n_out = 1,
    .in_place = true,
    .rows = NDP_ROWS_MIXED,
    .shape = bias_shape,
    .backward = bias_backward,
    .flops = 1,
    .reads = NDP_READS_parts,
    NDP_FLOWS({.own = NDP_READS_parts,
               .in = {NDP_IS(PART, 0, "rn"), NDP_IS(OPERAND, 1, ".n"), NDP_IS(PART, 2, "..")},
               .out = {NDP_IS(RESULT, 0, "rn")}}),
};

static ndp_status db_shape(ndp_op_call *c) {
    NDP_TRY(check_offsets(c));
    NDP_SHAPE_CHECK(c->attr->parts > 0, "stack_bias_db: %d parts", c->attr->parts);
    ndp_shape_set(&c->out[0], c->in[1].rows - 1, c->in[0].cols, ndp_wide(c->in[0].dtype));
    return NDP_OK;
}

const ndp_op ndp_op_stack_bias_db = {
    NDP_NAMED(stack_bias_db),
    .n_in = 2,
    .n_out = 1,
    .rows = NDP_ROWS_SUMMED,
    .shape = db_shape,
    .flops = 1,
    .reads = NDP_READS_parts,
    NDP_FLOWS({.node = &ndp_op_stack_bias,
               .own = NDP_READS_parts,
               .in = {NDP_IS(D_RESULT, 0, "rn"), NDP_IS(PART, 2, "..")},
               .out = {NDP_IS(D_OPERAND, 1, "en", .times = NDP_TIMES_PARTS)}}),
};
