/* The head over a slice of the vocabulary, in two ops with an exchange of the rows' statistics between them. */
#include "ops/shape.h"
#include "ops/xent_rows.h"

/* xent_logits ---------------------------------------------------------------------------------------------------- */

static ndp_status logits_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    NDP_TRY(ndp_xent_check("xent_logits", attr, &in[0], &in[1], &in[2]));
    ndp_shape_set(&out[0], in[0].rows, in[1].rows, ndp_wide(in[0].dtype));
    ndp_shape_set(&out[1], in[0].rows, NDP_XENT_STATS, ndp_wide(in[0].dtype));
    return NDP_OK;
}

static void logits_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 3, 2, &c->out[0], 2 * (double)c->in[0].cols + 7, flops, bytes);
    *bytes += ndp_view_bytes(&c->out[0]);
}

const ndp_op ndp_op_xent_logits = {
    .id = NDP_OP_xent_logits,
    .name = "xent_logits",
    .n_in = 3,
    .n_out = 2,
    .alias = -1,
    .rows = NDP_ROWS_ALIKE,
    .shape = logits_shape,
    .cost = logits_cost,
};

/* xent_grad ------------------------------------------------------------------------------------------------------ */

static ndp_status grad_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    const ndp_view *x = &in[NDP_XENT_G_X], *w = &in[NDP_XENT_G_W];
    ndp_dtype wide = ndp_wide(x->dtype);
    NDP_TRY(ndp_xent_check("xent_grad", attr, x, w, &in[NDP_XENT_G_LABELS]));
    NDP_SHAPE_CHECK(in[NDP_XENT_G_LOGITS].rows == x->rows && in[NDP_XENT_G_LOGITS].cols == w->rows &&
                        in[NDP_XENT_G_LOGITS].dtype == wide,
                    "xent_grad: logits " NDP_SHAPE " of x " NDP_SHAPE " and w " NDP_SHAPE,
                    NDP_SHAPE_ARGS(in[NDP_XENT_G_LOGITS]), NDP_SHAPE_ARGS(*x), NDP_SHAPE_ARGS(*w));
    NDP_SHAPE_CHECK(attr->parts >= 1 && in[NDP_XENT_G_STATS].rows == attr->parts * x->rows &&
                        in[NDP_XENT_G_STATS].cols == NDP_XENT_STATS && in[NDP_XENT_G_STATS].dtype == wide &&
                        in[NDP_XENT_G_SCALE].dtype == NDP_F64,
                    "xent_grad: stats " NDP_SHAPE " of %d parts of %lld rows, scale " NDP_SHAPE,
                    NDP_SHAPE_ARGS(in[NDP_XENT_G_STATS]), attr->parts, (long long)x->rows,
                    NDP_SHAPE_ARGS(in[NDP_XENT_G_SCALE]));
    ndp_shape_set(&out[0], x->rows, 1, wide);
    ndp_shape_set(&out[1], x->rows, x->cols, attr->wide_grad ? wide : x->dtype);
    ndp_shape_set(&out[2], w->rows, w->cols, ndp_wide(w->dtype));
    return NDP_OK;
}

static void grad_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_xent_rows r = ndp_xent_grad_rows(c, true);
    int products = (r.dx.rows > 0) + (r.dw.rows > 0);
    ndp_cost_stream(c, 5, 3, &r.logits, 2 * products * (double)r.x.cols + 7, flops, bytes);
    *bytes += products * ndp_view_bytes(&r.dlogits);
}

const ndp_op ndp_op_xent_grad = {
    .id = NDP_OP_xent_grad,
    .name = "xent_grad",
    .n_in = 6,
    .n_out = 3,
    .alias = -1,
    .rows = NDP_ROWS_SUMMED,
    .shape = grad_shape,
    .cost = grad_cost,
};
