/* The head over a slice of the vocabulary, in two ops with an exchange of the rows' statistics between them. */
#include "ops/cpu/rows.h"
#include "ops/shape.h"
#include "ops/xent.h"

#include <math.h>

enum { STATS = 3 }; /* columns */

/* xent_logits ---------------------------------------------------------------------------------------------------- */

static ndp_status logits_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    NDP_TRY(ndp_xent_check("xent_logits", attr, &in[0], &in[1], &in[2]));
    ndp_shape_set(&out[0], in[0].rows, in[1].rows, ndp_wide(in[0].dtype));
    ndp_shape_set(&out[1], in[0].rows, STATS, ndp_wide(in[0].dtype));
    return NDP_OK;
}

static ndp_xent_rows logits_rows(const ndp_op_call *c) {
    return (ndp_xent_rows){.x = c->in[0], .w = c->in[1], .labels = c->in[2], .logits = c->out[0]};
}

static void logits_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 3, 2, &c->out[0], 2 * (double)c->in[0].cols + 7, flops, bytes);
    *bytes += ndp_view_bytes(&c->out[0]);
}

static size_t logits_scratch(const ndp_op_call *c, ndp_backend backend) {
    ndp_xent_rows r = logits_rows(c);
    size_t bytes = 0;
    if (backend == NDP_BACKEND_REF)
        return ndp_xent_ref_scratch(c->in[0].rows, &c->in[1]);
    return ndp_xent_plan(c, &r, NDP_XENT_LOGITS, false, &bytes) == NDP_OK ? bytes : 0;
}

static ndp_status logits_prepare(ndp_op_call *c) {
    ndp_xent_rows r = logits_rows(c);
    size_t unused = 0;
    return ndp_xent_plan(c, &r, NDP_XENT_LOGITS, false, &unused);
}

static void logits_ref(const ndp_op_call *c) {
    ndp_xent_rows r = logits_rows(c);
    ndp_xent_clear(&c->out[1]);
    if (!ndp_xent_any_label(&r.labels))
        return;
    ndp_xent_multiply_ref(&r, NDP_XENT_LOGITS, false, c->scratch);
    for (int64_t t = 0; t < r.x.rows; t++) {
        if (ndp_view_get(&r.labels, t, 0) < 0)
            continue;
        ndp_xent_stats s = ndp_xent_stats_ref(c->attr, &r, t);
        ndp_view_set(&c->out[1], t, 0, s.max);
        ndp_view_set(&c->out[1], t, 1, s.sum);
        ndp_view_set(&c->out[1], t, 2, s.at_label);
    }
}

static void logits_cpu(const ndp_op_call *c) {
    ndp_xent_rows r = logits_rows(c);
    if (!ndp_xent_any_label(&r.labels)) {
        ndp_xent_clear(&c->out[1]);
        return;
    }
    ndp_xent_multiply(c, &r, NDP_XENT_LOGITS, false, c->scratch);
    ndp_op_call softmax = {.attr = c->attr, .in = {r.logits, r.labels}, .out = {c->out[1]}, .threads = c->threads};
    ndp_rows_run(&softmax, r.x.rows, ndp_rows_best()->softmax_stats);
}

const ndp_op ndp_op_xent_logits = {
    .name = "xent_logits",
    .n_in = 3,
    .n_out = 2,
    .alias = -1,
    .shape = logits_shape,
    .cost = logits_cost,
    .scratch = logits_scratch,
    .prepare = logits_prepare,
    .kernel = {logits_cpu, logits_ref},
};

/* xent_grad ------------------------------------------------------------------------------------------------------ */

enum { G_LOGITS, G_STATS, G_X, G_W, G_LABELS, G_SCALE };

static ndp_status grad_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    const ndp_view *x = &in[G_X], *w = &in[G_W];
    ndp_dtype wide = ndp_wide(x->dtype);
    NDP_TRY(ndp_xent_check("xent_grad", attr, x, w, &in[G_LABELS]));
    NDP_SHAPE_CHECK(in[G_LOGITS].rows == x->rows && in[G_LOGITS].cols == w->rows && in[G_LOGITS].dtype == wide,
                    "xent_grad: logits " NDP_SHAPE " of x " NDP_SHAPE " and w " NDP_SHAPE, NDP_SHAPE_ARGS(in[G_LOGITS]),
                    NDP_SHAPE_ARGS(*x), NDP_SHAPE_ARGS(*w));
    NDP_SHAPE_CHECK(attr->parts >= 1 && in[G_STATS].rows == attr->parts * x->rows && in[G_STATS].cols == STATS &&
                        in[G_STATS].dtype == wide && in[G_SCALE].dtype == NDP_F64,
                    "xent_grad: stats " NDP_SHAPE " of %d parts of %lld rows, scale " NDP_SHAPE,
                    NDP_SHAPE_ARGS(in[G_STATS]), attr->parts, (long long)x->rows, NDP_SHAPE_ARGS(in[G_SCALE]));
    ndp_shape_set(&out[0], x->rows, 1, wide);
    ndp_shape_set(&out[1], x->rows, x->cols, attr->wide_grad ? wide : x->dtype);
    ndp_shape_set(&out[2], w->rows, w->cols, ndp_wide(w->dtype));
    return NDP_OK;
}

static ndp_xent_rows grad_rows(const ndp_op_call *c, ndp_backend backend) {
    ndp_xent_rows r = {.x = c->in[G_X],
                       .w = c->in[G_W],
                       .labels = c->in[G_LABELS],
                       .logits = c->in[G_LOGITS],
                       .dlogits = c->in[G_LOGITS],
                       .nll = c->out[0]};
    if (backend == NDP_BACKEND_CPU)
        r.dlogits = ndp_xent_dlogits(&r.logits, r.x.dtype);
    if (c->attr->train) {
        r.dx = c->out[1];
        r.dw = c->out[2];
    }
    return r;
}

static void grad_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_xent_rows r = grad_rows(c, NDP_BACKEND_CPU);
    int products = (r.dx.rows > 0) + (r.dw.rows > 0);
    ndp_cost_stream(c, 5, 3, &r.logits, 2 * products * (double)r.x.cols + 7, flops, bytes);
    *bytes += products * ndp_view_bytes(&r.dlogits);
}

static ndp_status grad_plans(const ndp_op_call *c, size_t *scratch) {
    ndp_xent_rows r = grad_rows(c, NDP_BACKEND_CPU);
    *scratch = 0;
    NDP_TRY(ndp_xent_plan(c, &r, NDP_XENT_DX, false, scratch));
    return ndp_xent_plan(c, &r, NDP_XENT_DW, c->attr->accumulate, scratch);
}

static size_t grad_scratch(const ndp_op_call *c, ndp_backend backend) {
    size_t bytes;
    if (backend == NDP_BACKEND_REF)
        return ndp_xent_ref_scratch(c->in[G_X].rows, &c->in[G_W]);
    return grad_plans(c, &bytes) == NDP_OK ? bytes : 0; /* prepare tells the error */
}

static ndp_status grad_prepare(ndp_op_call *c) {
    size_t unused;
    return grad_plans(c, &unused);
}

/* Clears what no label leads to; false: there are labels. */
static bool ignored(const ndp_op_call *c, const ndp_xent_rows *r) {
    if (ndp_xent_any_label(&r->labels))
        return false;
    ndp_xent_clear(&r->nll);
    ndp_xent_clear(&r->dx);
    if (!c->attr->accumulate)
        ndp_xent_clear(&r->dw);
    return true;
}

/* Row t of all slices together. */
static ndp_xent_stats combined_ref(const ndp_op_call *c, int64_t t) {
    const ndp_view *stats = &c->in[G_STATS];
    int64_t rows = c->in[G_X].rows;
    ndp_xent_stats s = {.max = -INFINITY};
    for (int p = 0; p < c->attr->parts; p++)
        s.max = fmax(s.max, ndp_view_get(stats, p * rows + t, 0));
    for (int p = 0; p < c->attr->parts; p++) {
        s.sum += ndp_view_get(stats, p * rows + t, 1) * exp(ndp_view_get(stats, p * rows + t, 0) - s.max);
        s.at_label += ndp_view_get(stats, p * rows + t, 2);
    }
    return s;
}

static void grad_ref(const ndp_op_call *c) {
    ndp_xent_rows r = grad_rows(c, NDP_BACKEND_REF);
    if (ignored(c, &r))
        return;
    for (int64_t t = 0; t < r.x.rows; t++) {
        ndp_xent_stats s = combined_ref(c, t);
        ndp_xent_finish_ref(c->attr, &r, t, &s, *(const double *)c->in[G_SCALE].data);
    }
    ndp_xent_multiply_ref(&r, NDP_XENT_DX, false, c->scratch);
    ndp_xent_multiply_ref(&r, NDP_XENT_DW, c->attr->accumulate, c->scratch);
}

static void grad_cpu(const ndp_op_call *c) {
    ndp_xent_rows r = grad_rows(c, NDP_BACKEND_CPU);
    if (ignored(c, &r))
        return;
    ndp_op_call softmax = {.attr = c->attr,
                           .in = {r.logits, r.labels, c->in[G_SCALE], c->in[G_STATS]},
                           .out = {r.nll, r.dlogits},
                           .threads = c->threads};
    ndp_rows_run(&softmax, r.x.rows, ndp_rows_best()->softmax_grad);
    ndp_xent_multiply(c, &r, NDP_XENT_DX, false, c->scratch);
    ndp_xent_multiply(c, &r, NDP_XENT_DW, c->attr->accumulate, c->scratch);
}

const ndp_op ndp_op_xent_grad = {
    .name = "xent_grad",
    .n_in = 6,
    .n_out = 3,
    .alias = -1,
    .shape = grad_shape,
    .cost = grad_cost,
    .scratch = grad_scratch,
    .prepare = grad_prepare,
    .kernel = {grad_cpu, grad_ref},
};
