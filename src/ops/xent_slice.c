/* The head over a slice of the vocabulary, in two ops with an exchange of the rows' statistics between them. */
#include "ops/flow.h"
#include "ops/shape.h"
#include "ops/xent_rows.h"

/* xent_logits ---------------------------------------------------------------------------------------------------- */

static ndp_status logits_shape(ndp_op_call *c) {
    const ndp_view *x = &c->in[0], *w = &c->in[1];
    NDP_TRY(ndp_xent_check(c, x, w, &c->in[2]));
    ndp_shape_set(&c->out[0], x->rows, w->rows, ndp_wide(x->dtype));
    ndp_shape_set(&c->out[1], x->rows, ndp_xent_stats(c), ndp_wide(x->dtype));
    return NDP_OK;
}

static void logits_cost(const ndp_op_call *c, double *flops, double *bytes) {
    *flops = (2 * (double)c->in[0].cols + 7) * ndp_elements(&c->out[0]);
    *bytes += ndp_view_bytes(&c->out[0]);
}

const ndp_op ndp_op_xent_logits = {
    NDP_NAMED(xent_logits),
    .n_in = 3,
    .n_out = 2,
    .rows = NDP_ROWS_ALIKE,
    .shape = logits_shape,
    .cost = logits_cost,
    .reads = NDP_READS_vocab | NDP_READS_cap | NDP_READS_train | NDP_READS_first | NDP_READS_values | NDP_READS_WEIGHT,
    NDP_FLOWS({.node = &ndp_op_xent,
               .in = {NDP_IS(OPERAND, 0, "tC"), NDP_IS(OPERAND, 1, "vC"), NDP_IS(OPERAND, 2, "t1")},
               .out = {NDP_IS(LOGITS, 0, "tv"), NDP_IS(STATISTICS, 0, "t.")}}),
};

/* xent_grad ------------------------------------------------------------------------------------------------------ */

static ndp_status grad_shape(ndp_op_call *c) {
    const ndp_view *logits = &c->in[NDP_XENT_G_LOGITS], *stats = &c->in[NDP_XENT_G_STATS], *x = &c->in[NDP_XENT_G_X];
    const ndp_view *w = &c->in[NDP_XENT_G_W], *scale = &c->in[NDP_XENT_G_SCALE];
    ndp_dtype wide = ndp_wide(x->dtype);
    int parts = c->attr->parts;
    NDP_TRY(ndp_xent_check(c, x, w, &c->in[NDP_XENT_G_LABELS]));
    NDP_SHAPE_CHECK(logits->rows == x->rows && logits->cols == w->rows && logits->dtype == wide,
                    "xent_grad: logits " NDP_SHAPE " of x " NDP_SHAPE " and w " NDP_SHAPE, NDP_SHAPE_ARGS(*logits),
                    NDP_SHAPE_ARGS(*x), NDP_SHAPE_ARGS(*w));
    NDP_SHAPE_CHECK(parts >= 1 && stats->rows == parts * x->rows && stats->cols == ndp_xent_stats(c) &&
                        stats->dtype == wide && ndp_xent_scale_fits(scale, x),
                    "xent_grad: stats " NDP_SHAPE " of %d parts of %lld rows, scale " NDP_SHAPE, NDP_SHAPE_ARGS(*stats),
                    parts, (long long)x->rows, NDP_SHAPE_ARGS(*scale));
    ndp_shape_set(&c->out[0], x->rows, 1, wide);
    ndp_xent_shapes(c, x, w, c->attr->wide_grad ? wide : x->dtype);
    return NDP_OK;
}

static void grad_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_xent_rows r = ndp_xent_grad_rows(c, true);
    int products = (r.dx.rows > 0) + (r.dw.rows > 0);
    *flops = (2 * products * (double)r.x.cols + 7) * ndp_elements(&r.logits);
    *bytes += products * ndp_view_bytes(&r.dlogits);
}

const ndp_op ndp_op_xent_grad = {
    NDP_NAMED(xent_grad),
    .n_in = 6,
    .n_out = 4,
    .rows = NDP_ROWS_SUMMED,
    .shape = grad_shape,
    .cost = grad_cost,
    .reads = NDP_READS_vocab | NDP_READS_cap | NDP_READS_train | NDP_READS_first | NDP_READS_values | NDP_READS_WEIGHT |
             NDP_READS_parts | NDP_READS_wide_grad,
    NDP_FLOWS({.node = &ndp_op_xent,
               .in = {NDP_IS(LOGITS, 0, "tv"), NDP_IS(STATISTICS, 0, ".."), NDP_IS(OPERAND, 0, "tC"),
                      NDP_IS(OPERAND, 1, "vC"), NDP_IS(OPERAND, 2, "t1"), NDP_IS(OPERAND, 3, "t1")},
               .out = {NDP_IS(RESULT, 0, "t1", .times = NDP_TIMES_UNSUMMED), NDP_IS(D_OPERAND, 0, "tC"),
                       NDP_IS(D_OPERAND, 1, "vC"), NDP_IS(RESULT, 3, "t.", .times = NDP_TIMES_UNSUMMED)}}),
};
