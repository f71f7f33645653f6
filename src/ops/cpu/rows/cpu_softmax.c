/* Softmax and cross-entropy of rows of logits: the pieces of xent, xent_logits and xent_grad. */
#include "ops/cpu/rows/range_kernel.h"
#include "ops/xent_rows.h"

#include <math.h>

/* Of the real columns: the sum is of exp(x - max). */
typedef struct row_stats {
    double sum;
    float max, at_label; /* 0: the label is in another slice; of NDP_LABEL_BEST: the id with the largest logit */
    float mean, best;    /* with attr.values: of the logits by softmax; that id */
    double entropy;      /* of the largest logits, where a weight is made of it */
} row_stats;

/* Of calls of softmax kernels: (logits, labels, ...). */
static int32_t label_of(const ndp_op_call *c, int64_t t) { return ((const int32_t *)c->in[1].data)[t * c->in[1].ld]; }

/* The label's column; -1 when it is in another slice. */
static int64_t label_column(const ndp_op_attr *a, int32_t label) {
    int64_t column = label - a->first;
    return column >= 0 && column < a->vocab ? column : -1;
}

static float row_max(int64_t n, const float *x) {
    float m = -INFINITY;
#pragma omp simd reduction(max : m)
    for (int64_t i = 0; i < n; i++)
        m = x[i] > m ? x[i] : m;
    return m;
}

/* The first column with that value, as an id. */
static float id_of(const ndp_op_attr *a, const float *x, float value) {
    int64_t i = 0;
    while (i + 1 < a->vocab && x[i] != value)
        i++;
    return (float)(a->first + i);
}

/* The sum of exp(x - m), in blocks: a vocabulary is long for one fp32 sum. */
NDP_INLINE double exp_sum(int64_t n, float *x, float m, bool store) {
    enum { BLOCK = 1024 };
    double total = 0;
    for (int64_t start = 0; start < n; start += BLOCK) {
        int64_t end = start + BLOCK < n ? start + BLOCK : n;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = start; i < end; i++) {
            float e = ndp_vexpf(x[i] - m);
            if (store)
                x[i] = e;
            sum += e;
        }
        total += sum;
    }
    return total;
}

/* The mean of the logits by softmax, 0 of no columns: the entropy is the nll of a label with that logit. */
static float mean_of(const ndp_op_attr *a, const float *x, const row_stats *s) {
    double total = 0;
    for (int64_t i = 0; i < a->vocab; i++)
        total += (double)ndp_vexpf(x[i] - s->max) * x[i];
    return s->sum > 0 ? (float)(total / s->sum) : 0;
}

/* With attr.cap logits x become c tanh(x / c). */
static void cap_logits(const ndp_op_attr *a, float *x) {
    float limit = (float)a->cap, by = 1.0f / limit;
    SIMD for (int64_t i = 0; i < a->vocab; i++) x[i] = limit * ndp_vtanhf(x[i] * by);
}

/* x = exp(x - max) times the slope of the cap at x, 1 - (x / c)^2. */
static void capped_exps(const ndp_op_attr *a, float *x, float max) {
    float by = 1.0f / (float)a->cap;
    SIMD for (int64_t i = 0; i < a->vocab; i++) x[i] = ndp_vexpf(x[i] - max) * (1.0f - x[i] * by * (x[i] * by));
}

/* With `store` x becomes exp(x - max). */
NDP_INLINE row_stats stats_of(const ndp_op_attr *a, float *x, int64_t label, bool store) {
    row_stats s = {.max = row_max(a->vocab, x), .at_label = label < 0 ? 0 : x[label]};
    s.sum = exp_sum(a->vocab, x, s.max, store);
    return s;
}

/* The gradient may be bf16 in the place of the fp32 logits: it goes through a buffer on the stack, and writes never
 * overtake reads. */
static void scale_row(int64_t n, const float *x, float factor, ndp_dtype type, void *out) {
    enum { BLOCK = 256 };
    uint16_t block[BLOCK];
    if (type == NDP_F32) {
        float *o = out;
        SIMD for (int64_t i = 0; i < n; i++) o[i] = x[i] * factor;
        return;
    }
    for (int64_t start = 0; start < n; start += BLOCK) {
        int64_t count = n - start < BLOCK ? n - start : BLOCK;
        SIMD for (int64_t i = 0; i < count; i++) block[i] = ndp_f32_to_bf16(x[start + i] * factor);
        memcpy((char *)out + start * 2, block, (size_t)count * 2);
    }
}

/* x = exp(x - max) of the real columns -> (softmax - 1 at the label) scale. */
static void gradient_row(const ndp_op_call *c, int64_t t, float *x, int64_t label, const row_stats *s, double weight) {
    const ndp_view *dlogits = &c->out[1];
    double scale = ndp_xent_scale_at(&c->in[2], t) * weight;
    void *out = ndp_at(dlogits, t, 0);
    /* softmax - 1 at the label, rounded once; columns of padding get nothing */
    double slope = c->attr->cap > 0 ? 1 - pow((double)s->at_label / c->attr->cap, 2) : 1;
    float d_label = (float)((exp((double)s->at_label - (double)s->max) / s->sum - 1.0) * slope * scale);
    memset(x + c->attr->vocab, 0, (size_t)(dlogits->cols - c->attr->vocab) * 4);
    scale_row(dlogits->cols, x, (float)(scale / s->sum), dlogits->dtype, out);
    if (label >= 0 && dlogits->dtype == NDP_F32)
        ndp_st(out, NDP_F32, label, d_label);
    else if (label >= 0)
        ndp_st(out, NDP_BF16, label, d_label);
}

/* The largest logits. */
static ndp_top top_of(const ndp_op_attr *a, const float *x) {
    ndp_top top = {.k = ndp_top_count(a)};
    for (int64_t i = 0; top.k > 0 && i < a->vocab; i++)
        if (top.n < top.k || x[i] > top.x[top.n - 1])
            ndp_top_add(&top, x[i]);
    return top;
}

static void find_values(const ndp_op_attr *a, const float *x, row_stats *s) {
    if (a->values)
        s->mean = mean_of(a, x, s), s->best = id_of(a, x, s->max);
}

/* The loss of a row, and with attr.train its gradient; `exps`: x already is exp(x - max). */
static void finish_row(const ndp_op_call *c, int64_t t, float *x, int64_t label, const row_stats *s, bool exps) {
    double whole = log(s->sum) + (double)s->max, nll = whole - (double)s->at_label;
    double weight = ndp_token_weight_of(c->attr, s->entropy, nll);
    *(float *)ndp_at(&c->out[0], t, 0) = label_of(c, t) == NDP_LABEL_NONE ? 0 : (float)(nll * weight);
    if (c->attr->values) {
        float *values = ndp_at(&c->out[2], t, 0);
        values[0] = (float)(whole - (double)s->mean), values[1] = s->best;
    }
    if (!c->attr->train)
        return;
    if (c->attr->cap > 0)
        capped_exps(c->attr, x, s->max);
    else if (!exps)
        exp_sum(c->attr->vocab, x, s->max, true);
    gradient_row(c, t, x, label, s, weight);
}

/* A row without a label: neither loss nor gradient. */
static void ignore_row(const ndp_op_call *c, int64_t t) {
    const ndp_view *dlogits = &c->out[1];
    *(float *)ndp_at(&c->out[0], t, 0) = 0;
    if (c->attr->values)
        memset(ndp_at(&c->out[2], t, 0), 0, NDP_XENT_VALUES * sizeof(float));
    if (c->attr->train)
        memset(ndp_at(dlogits, t, 0), 0, (size_t)dlogits->cols * ndp_dtype_size(dlogits->dtype));
}

void NDP_RANGE_KERNEL(softmax_xent)(const ndp_op_call *c, int64_t first, int64_t last) {
    for (int64_t t = first; t < last; t++) {
        int32_t label = label_of(c, t);
        float *x = ndp_at(&c->in[0], t, 0);
        if (label < 0) {
            ignore_row(c, t);
            continue;
        }
        int64_t column = label_column(c->attr, label);
        bool keep = c->attr->cap > 0 || c->attr->values || ndp_top_count(c->attr) > 0;
        if (c->attr->cap > 0)
            cap_logits(c->attr, x);
        if (label == NDP_LABEL_BEST) {
            *(float *)ndp_at(&c->out[0], t, 0) = id_of(c->attr, x, row_max(c->attr->vocab, x));
            continue;
        }
        row_stats s = keep ? stats_of(c->attr, x, column, false) : stats_of(c->attr, x, column, true);
        find_values(c->attr, x, &s);
        ndp_top top = {.k = 0};
        if (keep)
            top = top_of(c->attr, x);
        s.entropy = ndp_top_entropy(&top);
        finish_row(c, t, x, column, &s, !keep);
    }
}

void NDP_RANGE_KERNEL(softmax_stats)(const ndp_op_call *c, int64_t first, int64_t last) {
    for (int64_t t = first; t < last; t++) {
        int32_t label = label_of(c, t);
        row_stats s = {0};
        if (label >= 0 && c->attr->cap > 0)
            cap_logits(c->attr, ndp_at(&c->in[0], t, 0));
        if (label >= 0)
            s = stats_of(c->attr, ndp_at(&c->in[0], t, 0), label_column(c->attr, label), false);
        if (label == NDP_LABEL_BEST)
            s.at_label = id_of(c->attr, ndp_at(&c->in[0], t, 0), s.max);
        if (label >= 0)
            find_values(c->attr, ndp_at(&c->in[0], t, 0), &s);
        float *out = ndp_at(&c->out[0], t, 0);
        out[0] = s.max, out[1] = (float)s.sum, out[2] = s.at_label;
        if (c->attr->values)
            out[3] = s.mean, out[4] = s.best;
        ndp_top top = {.k = 0};
        if (label >= 0)
            top = top_of(c->attr, ndp_at(&c->in[0], t, 0));
        for (int i = 0; i < ndp_top_count(c->attr); i++)
            out[NDP_XENT_STATS + i] = label < 0 ? 0 : (float)ndp_top_at(&top, i);
    }
}

/* Row t of all slices together. */
static row_stats combine(const ndp_op_call *c, int64_t t, int32_t label) {
    const ndp_view *stats = &c->in[3];
    int64_t rows = c->in[0].rows;
    bool found = false, best = label == NDP_LABEL_BEST, values = c->attr->values;
    double total = 0;
    row_stats s = {.max = -INFINITY};
    ndp_top top = {.k = ndp_top_count(c->attr)};
    for (int p = 0; p < c->attr->parts; p++)
        s.max = fmaxf(s.max, *(const float *)ndp_at(stats, p * rows + t, 0));
    for (int p = 0; p < c->attr->parts; p++) {
        const float *part = ndp_at(stats, p * rows + t, 0);
        double sum = (double)part[1] * exp((double)part[0] - (double)s.max);
        s.sum += sum;
        bool leads = part[0] == s.max && !found;
        s.at_label += !best || leads ? part[2] : 0;
        total += values ? sum * (double)part[3] : 0;
        s.best += values && leads ? part[4] : 0;
        found |= leads;
        for (int i = 0; i < top.k; i++)
            ndp_top_add(&top, part[NDP_XENT_STATS + i]);
    }
    s.mean = (float)(total / s.sum);
    s.entropy = ndp_top_entropy(&top);
    return s;
}

void NDP_RANGE_KERNEL(softmax_grad)(const ndp_op_call *c, int64_t first, int64_t last) {
    for (int64_t t = first; t < last; t++) {
        int32_t label = label_of(c, t);
        if (label < 0) {
            ignore_row(c, t);
            continue;
        }
        row_stats s = combine(c, t, label);
        if (label == NDP_LABEL_BEST) {
            *(float *)ndp_at(&c->out[0], t, 0) = s.at_label;
            continue;
        }
        finish_row(c, t, ndp_at(&c->in[0], t, 0), label_column(c->attr, label), &s, false);
    }
}
