/* DoRA (Liu et al., "DoRA: Weight-Decomposed Low-Rank Adaptation", 2024): the weight W + s B A of a projection with
 * each row scaled to the length m[i] that is trained. The product comes first, u = x (W + s B A)^T, and its columns are
 * scaled after it: y = u m / |row|. The lengths |row| = sqrt(sq) are constants of the backward, as in the paper (4.3),
 * so dora_squares has none.
 *
 * Where ranks have some columns of W and A each, sq is the sum of what they make. */
#include "ops/flow.h"
#include "ops/shape.h"

/* dora_squares --------------------------------------------------------------------------------------------------- */

static ndp_status squares_shape(ndp_op_call *c) {
    const ndp_view *w = &c->in[0], *a = &c->in[1], *b = &c->in[2];
    NDP_SHAPE_CHECK(a->cols == w->cols && b->rows == w->rows && b->cols == a->rows && a->dtype == w->dtype &&
                        b->dtype == w->dtype,
                    "dora_squares: w " NDP_SHAPE ", a " NDP_SHAPE ", b " NDP_SHAPE, NDP_SHAPE_ARGS(*w),
                    NDP_SHAPE_ARGS(*a), NDP_SHAPE_ARGS(*b));
    ndp_shape_set(&c->out[0], w->rows, 1, ndp_wide(w->dtype));
    return NDP_OK;
}

static void squares_cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)bytes;
    *flops = 2 * ndp_elements(&c->in[0]) * ((double)c->in[1].rows + 1);
}

const ndp_op ndp_op_dora_squares = {
    NDP_NAMED(dora_squares),
    .n_in = 3,
    .n_out = 1,
    .constant = true,
    .rows = NDP_ROWS_ALIKE,
    .shape = squares_shape,
    .cost = squares_cost,
    .reads = NDP_READS_scale,
    NDP_FLOWS({.in = {NDP_IS(OPERAND, 0, "nk"), NDP_IS(OPERAND, 1, "Rk"), NDP_IS(OPERAND, 2, "nR")},
               .out = {NDP_IS(RESULT, 0, "n1")}}),
};

/* dora ----------------------------------------------------------------------------------------------------------- */

/* n columns of u, from attr.first on, with their squares. */
static ndp_status columns_fit(const ndp_op_call *c, const ndp_view *u, const ndp_view *sq) {
    int64_t first = c->attr->first;
    NDP_SHAPE_CHECK(sq->cols == 1 && sq->dtype == ndp_wide(u->dtype) && first >= 0 && first + sq->rows <= u->cols,
                    "%s: squares " NDP_SHAPE " from column %lld of u " NDP_SHAPE, c->op->name, NDP_SHAPE_ARGS(*sq),
                    (long long)first, NDP_SHAPE_ARGS(*u));
    return NDP_OK;
}

static ndp_status shape(ndp_op_call *c) {
    const ndp_view *u = &c->in[0], *m = &c->in[1], *sq = &c->in[2];
    NDP_TRY(columns_fit(c, u, sq));
    NDP_SHAPE_CHECK(m->rows == 1 && m->cols == sq->rows && m->dtype == u->dtype,
                    "dora: u " NDP_SHAPE ", m " NDP_SHAPE ", squares " NDP_SHAPE, NDP_SHAPE_ARGS(*u),
                    NDP_SHAPE_ARGS(*m), NDP_SHAPE_ARGS(*sq));
    ndp_shape_like(&c->out[0], u);
    return NDP_OK;
}

static ndp_status backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0);
    NDP_TRY(ndp_input_grad(b, &ndp_op_dora, b->attr, (int[]){g, b->in[1], b->in[2]}, 3, -1));
    return ndp_weight_grad(b, 1, &ndp_op_dora_dm, (int[]){g, b->in[0], b->in[2]}, 3);
}

const ndp_op ndp_op_dora = {
    NDP_NAMED(dora),
    .n_in = 3,
    .n_out = 1,
    .rows = NDP_ROWS_ALIKE,
    .shape = shape,
    .backward = backward,
    .flops = 1,
    .reads = NDP_READS_first,
    NDP_FLOWS({.in = {NDP_IS(EITHER, 0, "tc"), NDP_IS(OPERAND, 1, ".."), NDP_IS(OPERAND, 2, "..")},
               .out = {NDP_IS(EITHER, 0, "tc")}}),
};

/* dora_dm -------------------------------------------------------------------------------------------------------- */

static ndp_status dm_shape(ndp_op_call *c) {
    NDP_SHAPE_SAME(c, c->in[0], c->in[1]);
    NDP_TRY(columns_fit(c, &c->in[1], &c->in[2]));
    ndp_shape_set(&c->out[0], 1, c->in[2].rows, c->in[2].dtype);
    return NDP_OK;
}

/* Only these columns are read. */
static void dm_cost(const ndp_op_call *c, double *flops, double *bytes) {
    double read = (double)c->in[0].rows * (double)c->in[2].rows;
    *flops = 2 * read;
    *bytes = 2 * read * (double)ndp_dtype_size(c->in[0].dtype) + ndp_view_bytes(&c->in[2]) + ndp_view_bytes(&c->out[0]);
}

const ndp_op ndp_op_dora_dm = {
    NDP_NAMED(dora_dm),
    .n_in = 3,
    .n_out = 1,
    .rows = NDP_ROWS_SUMMED,
    .shape = dm_shape,
    .cost = dm_cost,
    .reads = NDP_READS_first,
    NDP_FLOWS({.node = &ndp_op_dora,
               .in = {NDP_IS(D_RESULT, 0, "tc"), NDP_IS(OPERAND, 0, "tc"), NDP_IS(OPERAND, 2, "..")},
               .out = {NDP_IS(D_OPERAND, 1, "1c")}}),
};
