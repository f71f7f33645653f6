#include "ops/ref.h"
#include "ops/shape.h"
#include "ops/xent.h"

#include <math.h>

ndp_status ndp_xent_check(const char *op, const ndp_op_attr *attr, const ndp_view *x, const ndp_view *w,
                          const ndp_view *labels) {
    NDP_SHAPE_CHECK(x->cols == w->cols && x->dtype == w->dtype, "%s: x " NDP_SHAPE ", w " NDP_SHAPE, op,
                    NDP_SHAPE_ARGS(*x), NDP_SHAPE_ARGS(*w));
    NDP_SHAPE_CHECK(labels->dtype == NDP_I32 && labels->rows == x->rows, "%s: labels " NDP_SHAPE " for x " NDP_SHAPE,
                    op, NDP_SHAPE_ARGS(*labels), NDP_SHAPE_ARGS(*x));
    NDP_SHAPE_CHECK(attr->vocab >= 0 && attr->vocab <= w->rows, "%s: %lld of the columns of w " NDP_SHAPE " are real",
                    op, (long long)attr->vocab, NDP_SHAPE_ARGS(*w));
    return NDP_OK;
}

ndp_view ndp_xent_dlogits(const ndp_view *logits, ndp_dtype x_type) {
    ndp_view v = *logits;
    if (x_type == NDP_BF16 && logits->dtype == NDP_F32) {
        v.dtype = NDP_BF16;
        v.ld = 2 * logits->ld;
    }
    return v;
}

bool ndp_xent_any_label(const ndp_view *labels) {
    for (int64_t t = 0; t < labels->rows; t++)
        if (ndp_ref_int(labels, t) >= 0)
            return true;
    return false;
}

void ndp_xent_clear(const ndp_view *v) {
    for (int64_t r = 0; v->data && r < v->rows; r++)
        memset((char *)v->data + (size_t)(r * v->ld) * ndp_dtype_size(v->dtype), 0,
               (size_t)v->cols * ndp_dtype_size(v->dtype));
}

/* to = a b, or their transposes --------------------------------------------------------------------------------- */

typedef struct operands {
    const ndp_view *a, *b, *to;
    bool trans_a, trans_b;
} operands;

static operands operands_of(const ndp_xent_rows *r, ndp_xent_product product) {
    switch (product) {
    case NDP_XENT_LOGITS:
        return (operands){&r->x, &r->w, &r->logits, false, true};
    case NDP_XENT_DX:
        return (operands){&r->dlogits, &r->w, &r->dx, false, false};
    default:
        return (operands){&r->dlogits, &r->x, &r->dw, true, false};
    }
}

static ndp_gemm_shape shape_of(const ndp_op_call *c, const operands *o, bool accumulate) {
    ndp_gemm_shape s = ndp_gemm_shape_of(o->a, o->trans_a, o->b, o->trans_b, o->to, accumulate, c->threads);
    s.split = c->split_sums;
    return s;
}

ndp_status ndp_xent_plan(const ndp_op_call *c, const ndp_xent_rows *r, ndp_xent_product product, bool accumulate,
                         size_t *scratch) {
    operands o = operands_of(r, product);
    if (!o.to->rows)
        return NDP_OK;
    ndp_gemm_shape s = shape_of(c, &o, accumulate);
    const ndp_gemm *plan;
    NDP_TRY(ndp_gemm_plan(&s, &plan));
    *scratch = ndp_gemm_scratch(plan) > *scratch ? ndp_gemm_scratch(plan) : *scratch;
    return NDP_OK;
}

void ndp_xent_multiply(const ndp_op_call *c, const ndp_xent_rows *r, ndp_xent_product product, bool accumulate,
                       void *scratch) {
    operands o = operands_of(r, product);
    if (!ndp_present(o.to))
        return;
    ndp_gemm_shape s = shape_of(c, &o, accumulate);
    const ndp_gemm *plan;
    if (ndp_gemm_plan(&s, &plan) == NDP_OK)
        ndp_gemm_run(plan, o.a->data, o.b->data, o.to->data, scratch);
}

void ndp_xent_multiply_ref(const ndp_xent_rows *r, ndp_xent_product product, bool accumulate, void *scratch) {
    operands o = operands_of(r, product);
    if (ndp_present(o.to))
        ndp_ref_gemm(o.a, o.trans_a, o.b, o.trans_b, o.to, accumulate, scratch);
}

/* All have two of x, w and logits as operands. */
size_t ndp_xent_ref_scratch(int64_t rows, const ndp_view *w) {
    int64_t v = w->rows, h = w->cols;
    return (size_t)(rows * v + rows * h + v * h + v + h) * sizeof(double);
}

/* Softmax on ref ------------------------------------------------------------------------------------------------ */

/* The label's column; -1 when it is in another slice, or there is none. */
static int64_t label_column(const ndp_op_attr *attr, const ndp_view *labels, int64_t t) {
    int64_t label = ndp_ref_int(labels, t), column = label - attr->first;
    return label >= 0 && column >= 0 && column < attr->vocab ? column : -1;
}

ndp_xent_stats ndp_xent_stats_ref(const ndp_op_attr *attr, const ndp_xent_rows *r, int64_t t) {
    ndp_xent_stats s = {.max = -INFINITY};
    for (int64_t j = 0; attr->cap > 0 && j < attr->vocab; j++)
        ndp_view_set(&r->logits, t, j, attr->cap * tanh(ndp_view_get(&r->logits, t, j) / attr->cap));
    int64_t column = label_column(attr, &r->labels, t);
    for (int64_t j = 0; j < attr->vocab; j++)
        s.max = fmax(s.max, ndp_view_get(&r->logits, t, j));
    for (int64_t j = 0; j < attr->vocab; j++)
        s.sum += exp(ndp_view_get(&r->logits, t, j) - s.max);
    if (column >= 0)
        s.at_label = ndp_view_get(&r->logits, t, column);
    return s;
}

void ndp_xent_finish_ref(const ndp_op_attr *attr, const ndp_xent_rows *r, int64_t t, const ndp_xent_stats *stats,
                         double scale) {
    bool ignored = ndp_ref_int(&r->labels, t) < 0;
    int64_t column = label_column(attr, &r->labels, t);
    ndp_view_set(&r->nll, t, 0, ignored ? 0.0 : log(stats->sum) + stats->max - stats->at_label);
    for (int64_t j = 0; attr->train && j < r->logits.cols; j++) {
        double x = ndp_view_get(&r->logits, t, j), slope = attr->cap > 0 ? 1 - pow(x / attr->cap, 2) : 1;
        double p = j < attr->vocab && !ignored ? exp(x - stats->max) / stats->sum : 0.0;
        ndp_view_set(&r->dlogits, t, j, (p - (j == column)) * slope * scale);
    }
}
