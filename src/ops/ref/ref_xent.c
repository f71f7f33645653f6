/* xent, xent_logits, xent_grad: the products of ref_gemm.h, and the softmax of one row at a time between them. */
#include "ops/ref/ref_gemm.h"
#include "ops/ref/ref_kernels.h"
#include "ops/xent_rows.h"

#include <math.h>

enum { CHUNK_ROWS = 64 };

static void multiply(const ndp_xent_rows *r, ndp_xent_product product, bool accumulate, void *scratch) {
    ndp_xent_operands o = ndp_xent_operands_of(r, product);
    if (ndp_present(o.to))
        ndp_ref_gemm(o.a, o.trans_a, o.b, o.trans_b, o.to, accumulate, scratch);
}

/* Of the widest of the three products of some rows: all have two of x, w and logits as operands. */
static size_t product_scratch(int64_t rows, const ndp_view *w) {
    int64_t v = w->rows, h = w->cols;
    return (size_t)(rows * v + rows * h + v * h + v + h) * sizeof(double);
}

/* Softmax of a row ------------------------------------------------------------------------------------------------ */

/* Of a row's real columns: the sum is of exp(logit - max); at_label is 0 when the label is in another slice, and the id
 * with the largest logit where the label asks for that. With attr.values: `mean`, of the logits by softmax, and `best`,
 * that id. top: what a weight by entropy is made of. */
typedef struct ref_stats {
    double max, sum, at_label, mean, best;
    ndp_top top;
} ref_stats;

/* The label's column; -1 when it is in another slice, or there is none. */
static int64_t label_column(const ndp_op_attr *attr, const ndp_view *labels, int64_t t) {
    int64_t label = ndp_int_at(labels, t), column = label - attr->first;
    return label >= 0 && column >= 0 && column < attr->vocab ? column : -1;
}

/* Caps the row's logits first, where attr->cap says so. */
static ref_stats stats_of(const ndp_op_attr *attr, const ndp_xent_rows *r, int64_t t) {
    ref_stats s = {.max = -INFINITY, .top.k = ndp_top_count(attr)};
    for (int64_t j = 0; attr->cap > 0 && j < attr->vocab; j++)
        ndp_view_set(&r->logits, t, j, attr->cap * tanh(ndp_view_get(&r->logits, t, j) / attr->cap));
    int64_t column = label_column(attr, &r->labels, t);
    for (int64_t j = 0; j < attr->vocab; j++)
        s.max = fmax(s.max, ndp_view_get(&r->logits, t, j));
    for (int64_t j = 0; j < attr->vocab; j++)
        s.sum += exp(ndp_view_get(&r->logits, t, j) - s.max);
    for (int64_t j = 0; s.top.k > 0 && j < attr->vocab; j++)
        ndp_top_add(&s.top, ndp_view_get(&r->logits, t, j));
    if (column >= 0)
        s.at_label = ndp_view_get(&r->logits, t, column);
    bool best = ndp_int_at(&r->labels, t) == NDP_LABEL_BEST;
    for (int64_t j = attr->vocab - 1; (best || attr->values) && j >= 0; j--) {
        s.mean += exp(ndp_view_get(&r->logits, t, j) - s.max) / s.sum * ndp_view_get(&r->logits, t, j);
        s.best = ndp_view_get(&r->logits, t, j) == s.max ? (double)(attr->first + j) : s.best;
    }
    if (best)
        s.at_label = s.best;
    return s;
}

/* nll, and with attr->train dlogits, of row t by the stats of the whole vocabulary. */
static void finish_row(const ndp_op_attr *attr, const ndp_xent_rows *r, int64_t t, const ref_stats *stats,
                       double scale) {
    int64_t label = ndp_int_at(&r->labels, t);
    bool ignored = label < 0, best = label == NDP_LABEL_BEST;
    int64_t column = label_column(attr, &r->labels, t);
    double nll = log(stats->sum) + stats->max - stats->at_label;
    double weight = ignored ? 0 : ndp_token_weight_of(attr, ndp_top_entropy(&stats->top), nll);
    ndp_view_set(&r->nll, t, 0, ignored || label == NDP_LABEL_NONE ? 0.0 : best ? stats->at_label : nll * weight);
    if (attr->values) {
        ndp_view_set(&r->values, t, 0, ignored ? 0.0 : log(stats->sum) + stats->max - stats->mean);
        ndp_view_set(&r->values, t, 1, ignored ? 0.0 : stats->best);
    }
    for (int64_t j = 0; attr->train && j < r->logits.cols; j++) {
        double x = ndp_view_get(&r->logits, t, j), slope = attr->cap > 0 ? 1 - pow(x / attr->cap, 2) : 1;
        double p = j < attr->vocab && !ignored ? exp(x - stats->max) / stats->sum : 0.0;
        ndp_view_set(&r->dlogits, t, j, (p - (j == column)) * slope * scale * weight);
    }
}

/* xent ------------------------------------------------------------------------------------------------------------ */

static ndp_status run_chunk(const ndp_op_call *c, const ndp_xent_rows *r, bool accumulate) {
    void *rest = (double *)c->scratch + r->logits.rows * r->logits.cols;
    multiply(r, NDP_XENT_LOGITS, false, rest);
    for (int64_t t = 0; t < r->x.rows; t++) {
        ref_stats stats = stats_of(c->attr, r, t);
        finish_row(c->attr, r, t, &stats, ndp_xent_scale_at(&r->scale, t));
    }
    multiply(r, NDP_XENT_DX, false, rest);
    multiply(r, NDP_XENT_DW, accumulate, rest);
    return NDP_OK;
}

static ndp_status run_xent(const ndp_op_call *c) { return ndp_xent_run_chunks(c, CHUNK_ROWS, NDP_F64, run_chunk); }

static size_t xent_scratch(const ndp_op_call *c) {
    int64_t rows = c->in[0].rows < CHUNK_ROWS ? c->in[0].rows : CHUNK_ROWS;
    return (size_t)(rows * c->in[1].rows) * sizeof(double) + product_scratch(rows, &c->in[1]);
}

const ndp_kernel ndp_ref_xent = {.run = run_xent, .scratch = xent_scratch};

/* xent_logits, xent_grad ------------------------------------------------------------------------------------------ */

static ndp_status run_logits(const ndp_op_call *c) {
    ndp_xent_rows r = ndp_xent_logits_rows(c);
    ndp_view_clear(&c->out[1]);
    if (!ndp_xent_any_label(&r.labels))
        return NDP_OK;
    multiply(&r, NDP_XENT_LOGITS, false, c->scratch);
    for (int64_t t = 0; t < r.x.rows; t++) {
        if (ndp_int_at(&r.labels, t) < 0)
            continue;
        ref_stats s = stats_of(c->attr, &r, t);
        ndp_view_set(&c->out[1], t, 0, s.max);
        ndp_view_set(&c->out[1], t, 1, s.sum);
        ndp_view_set(&c->out[1], t, 2, s.at_label);
        if (c->attr->values)
            ndp_view_set(&c->out[1], t, 3, s.mean), ndp_view_set(&c->out[1], t, 4, s.best);
        for (int i = 0; i < s.top.k; i++)
            ndp_view_set(&c->out[1], t, NDP_XENT_STATS + i, ndp_top_at(&s.top, i));
    }
    return NDP_OK;
}

static size_t logits_scratch(const ndp_op_call *c) { return product_scratch(c->in[0].rows, &c->in[1]); }

const ndp_kernel ndp_ref_xent_logits = {.run = run_logits, .scratch = logits_scratch};

/* Row t of all slices together. */
static ref_stats combined(const ndp_op_call *c, int64_t t) {
    const ndp_view *stats = &c->in[NDP_XENT_G_STATS];
    int64_t rows = c->in[NDP_XENT_G_X].rows;
    int64_t label = ndp_int_at(&c->in[NDP_XENT_G_LABELS], t);
    bool best = label == NDP_LABEL_BEST, values = c->attr->values;
    ref_stats s = {.max = -INFINITY, .top.k = ndp_top_count(c->attr)};
    for (int p = 0; p < c->attr->parts; p++)
        s.max = fmax(s.max, ndp_view_get(stats, p * rows + t, 0));
    for (int p = 0, found = 0; p < c->attr->parts; p++) {
        double max = ndp_view_get(stats, p * rows + t, 0);
        double sum = ndp_view_get(stats, p * rows + t, 1) * exp(max - s.max);
        s.sum += sum;
        bool first = max == s.max && !found++;
        s.at_label += !best || first ? ndp_view_get(stats, p * rows + t, 2) : 0;
        s.mean += values ? ndp_view_get(stats, p * rows + t, 3) * sum : 0;
        s.best += values && first ? ndp_view_get(stats, p * rows + t, 4) : 0;
        for (int i = 0; i < s.top.k; i++)
            ndp_top_add(&s.top, ndp_view_get(stats, p * rows + t, NDP_XENT_STATS + i));
    }
    s.mean /= s.sum;
    return s;
}

static ndp_status run_grad(const ndp_op_call *c) {
    ndp_xent_rows r = ndp_xent_grad_rows(c, false);
    if (ndp_xent_grad_ignored(c, &r))
        return NDP_OK;
    for (int64_t t = 0; t < r.x.rows; t++) {
        ref_stats s = combined(c, t);
        finish_row(c->attr, &r, t, &s, ndp_xent_scale_at(&r.scale, t));
    }
    multiply(&r, NDP_XENT_DX, false, c->scratch);
    multiply(&r, NDP_XENT_DW, c->attr->accumulate, c->scratch);
    return NDP_OK;
}

static size_t grad_scratch(const ndp_op_call *c) {
    return product_scratch(c->in[NDP_XENT_G_X].rows, &c->in[NDP_XENT_G_W]);
}

const ndp_kernel ndp_ref_xent_grad = {.run = run_grad, .scratch = grad_scratch};
