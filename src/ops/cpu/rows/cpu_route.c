/* route, route_dx. Weights are fp32. What is made of the few chosen experts is computed in fp64; only sums over all
 * experts are fp32, in blocks. */
#include "ops/cpu/rows/range_kernel.h"
#include "ops/route.h"

/* Experts at a time. */
enum { BLOCK = 256 };

/* What the experts of a row are chosen by. */
typedef struct row_keys {
    const void *logits;
    const float *bias; /* NULL: none */
    bool sigmoid;
    uint64_t open; /* groups, of `each` experts */
    int64_t each;
} row_keys;

/* What expert e is chosen by. */
NDP_INLINE double key_of(ndp_dtype type, const row_keys *k, int64_t e) {
    double x = (double)ndp_ld(k->logits, type, e);
    if (k->open != NDP_ALL_GROUPS && !(k->open >> (e / k->each) & 1))
        return -INFINITY;
    if (k->sigmoid)
        x = ndp_route_score(x) + (k->bias ? (double)k->bias[e] : 0);
    return isnan(x) ? -INFINITY : x;
}

NDP_INLINE row_keys keys_of(ndp_dtype type, const ndp_op_call *c, int64_t t) {
    ndp_route_best of[NDP_MOST_GROUPS];
    const ndp_op_attr *a = c->attr;
    row_keys k = {ndp_at(&c->in[0], t, 0), c->in[3].data, a->sigmoid, NDP_ALL_GROUPS, c->in[0].cols};
    if (!ndp_route_closes(a))
        return k;
    k.each = c->in[0].cols / a->groups;
    for (int g = 0; g < a->groups; g++) {
        of[g] = (ndp_route_best){-INFINITY, -INFINITY};
        for (int64_t e = g * k.each; e < (g + 1) * k.each; e++)
            ndp_route_best_add(&of[g], key_of(type, &k, e));
    }
    k.open = ndp_route_open(a, of);
    return k;
}

/* A list of the first ones, which each expert enters before all with smaller keys, so that equal ones keep their
 * order. Most experts are compared with the last of the list alone. */
NDP_INLINE void choose(ndp_dtype type, int64_t experts, const row_keys *keys, int64_t k, int32_t *choices) {
    int64_t n = 0;
    double last = -INFINITY;
    for (int64_t e = 0; e < experts; e++) {
        double key = key_of(type, keys, e);
        int64_t at = n;
        if (n == k && !(key > last))
            continue;
        for (at = n < k ? n++ : k - 1; at > 0 && key > key_of(type, keys, choices[at - 1]); at--)
            choices[at] = choices[at - 1];
        choices[at] = (int32_t)e;
        last = key_of(type, keys, choices[n - 1]);
    }
}

NDP_INLINE double score_of(ndp_dtype type, const void *logits, int64_t e) {
    return ndp_route_score((double)ndp_ld(logits, type, e));
}

/* The sum of the sigmoids of a row's choices, or 1. */
NDP_INLINE double score_sum(ndp_dtype type, bool renormalise, const void *logits, int64_t k, const int32_t *choices) {
    double sum = NDP_ROUTE_LEAST;
    for (int64_t j = 0; renormalise && j < k; j++)
        sum += score_of(type, logits, choices[j]);
    return renormalise ? sum : 1;
}

/* The largest logit that is a number: of the row's choices alone, or of all. */
NDP_INLINE float maximum(ndp_dtype type, int64_t experts, const void *logits, int64_t k, const int32_t *choices,
                         bool chosen) {
    float max = -INFINITY;
    for (int64_t j = 0, n = chosen ? k : experts; j < n; j++) {
        float x = ndp_ld(logits, type, chosen ? choices[j] : j);
        max = x > max ? x : max;
    }
    return max;
}

/* The sum of exp(logit - max) over all experts: NaN where a logit is. */
NDP_INLINE double exp_sum(ndp_dtype type, int64_t experts, const void *logits, float max) {
    double total = 0;
    for (int64_t start = 0; start < experts; start += BLOCK) {
        int64_t end = start + BLOCK < experts ? start + BLOCK : experts;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t e = start; e < end; e++)
            sum += ndp_vexpf(ndp_ld(logits, type, e) - max);
        total += sum;
    }
    return total;
}

/* exp(logit - max) of one expert. */
NDP_INLINE double exp_of(ndp_dtype type, const void *logits, int64_t e, float max) {
    return exp((double)ndp_ld(logits, type, e) - (double)max);
}

NDP_INLINE void weigh(ndp_dtype type, const ndp_op_call *c, int64_t t, float max) {
    int64_t k = c->out[0].cols, experts = c->in[0].cols;
    const void *logits = ndp_at(&c->in[0], t, 0);
    const int32_t *choices = ndp_at(&c->out[0], t, 0);
    float *weights = ndp_at(&c->out[1], t, 0);
    double all = exp_sum(type, experts, logits, max), sum = 0;
    for (int64_t j = 0; j < k; j++)
        sum += exp_of(type, logits, choices[j], max);
    sum = c->attr->renormalise && !isnan(all) ? sum : all;
    for (int64_t j = 0; j < k; j++)
        weights[j] = (float)(ndp_route_scale(c->attr) * exp_of(type, logits, choices[j], max) / sum);
}

NDP_INLINE void weigh_scores(ndp_dtype type, const ndp_op_call *c, int64_t t) {
    const void *logits = ndp_at(&c->in[0], t, 0);
    const int32_t *choices = ndp_at(&c->out[0], t, 0);
    float *weights = ndp_at(&c->out[1], t, 0);
    double sum = score_sum(type, c->attr->renormalise, logits, c->out[0].cols, choices);
    for (int64_t j = 0; j < c->out[0].cols; j++)
        weights[j] = (float)(ndp_route_scale(c->attr) * score_of(type, logits, choices[j]) / sum);
}

NDP_INLINE void route_row(ndp_dtype type, const ndp_op_call *c, int64_t t, const row_keys *keys) {
    int64_t k = c->out[0].cols, experts = c->in[0].cols;
    bool given = c->in[2].data != NULL, scores = c->attr->sigmoid;
    int32_t *choices = ndp_at(&c->out[0], t, 0);
    if (given)
        memcpy(choices, ndp_at(&c->in[2], t, 0), (size_t)k * sizeof *choices);
    else
        choose(type, experts, keys, k, choices);
    if (scores)
        weigh_scores(type, c, t);
    else
        weigh(type, c, t,
              given ? maximum(type, experts, keys->logits, k, choices, c->attr->renormalise)
                    : ndp_ld(keys->logits, type, choices[0]));
}

/* The logits, or the keys of all groups. */
NDP_INLINE void write_seen(ndp_dtype type, const ndp_op_call *c, int64_t t, row_keys keys) {
    void *seen = ndp_at(&c->out[2], t, 0);
    keys.open = NDP_ALL_GROUPS;
    for (int64_t e = 0; e < c->in[0].cols; e++)
        ndp_st(seen, type, e, keys.sigmoid ? (float)key_of(type, &keys, e) : ndp_ld(keys.logits, type, e));
}

/* Padding, or a row that is given to no expert. */
NDP_INLINE bool goes_nowhere(const ndp_op_call *c, int64_t t) {
    const ndp_view *samples = &c->in[1], *given = &c->in[2];
    return (samples->data && ((const int32_t *)samples->data)[t * samples->ld] < 0) ||
           (given->data && *(const int32_t *)ndp_at(given, t, 0) < 0);
}

NDP_INLINE void route_or_not(ndp_dtype type, const ndp_op_call *c, int64_t t) {
    row_keys keys = keys_of(type, c, t);
    if (c->out[2].data)
        write_seen(type, c, t, keys);
    if (goes_nowhere(c, t)) {
        memset(ndp_at(&c->out[0], t, 0), 0xff, (size_t)c->out[0].cols * sizeof(int32_t)); /* -1 */
        memset(ndp_at(&c->out[1], t, 0), 0, (size_t)c->out[1].cols * sizeof(float));
    } else {
        route_row(type, c, t, &keys);
    }
}

void NDP_RANGE_KERNEL(route)(const ndp_op_call *c, int64_t first, int64_t last) {
    for (int64_t t = first; t < last; t++)
        NDP_BY_TYPE(c->in[0].dtype, route_or_not, c, t);
}

/* What a row's gradient is made of: dlogits[e] = p[e] (dweights of e - along), p[e] = exp(logit - max) / sum. */
typedef struct softmax_row {
    const void *logits;
    const float *dw;
    const int32_t *choices;
    float max;
    double sum, along;
} softmax_row;

NDP_INLINE softmax_row softmax_of(ndp_dtype type, const ndp_op_call *c, int64_t t) {
    softmax_row s = {ndp_at(&c->in[1], t, 0), ndp_at(&c->in[0], t, 0), ndp_at(&c->in[2], t, 0), -INFINITY, 0, 0};
    s.max = maximum(type, c->in[1].cols, s.logits, c->in[2].cols, s.choices, c->attr->renormalise);
    for (int64_t j = 0; j < c->in[2].cols; j++) {
        double x = exp_of(type, s.logits, s.choices[j], s.max);
        s.sum += x;
        s.along += x * (double)s.dw[j];
    }
    s.sum = c->attr->renormalise ? s.sum : exp_sum(type, c->in[1].cols, s.logits, s.max);
    s.along /= s.sum;
    return s;
}

/* Of experts start .. start + n - 1. d may be acc. */
NDP_INLINE void dx_block(ndp_dtype type, const ndp_op_call *c, const softmax_row *s, int64_t start, int64_t n,
                         const void *acc, void *d) {
    float by[BLOCK], part = (float)(ndp_route_scale(c->attr) / s->sum),
                     others = c->attr->renormalise ? 0 : (float)-s->along, max = s->max;
    const void *logits = s->logits;
    for (int64_t e = 0; e < n; e++)
        by[e] = others;
    for (int64_t j = 0; j < c->in[2].cols; j++)
        if (s->choices[j] >= start && s->choices[j] < start + n)
            by[s->choices[j] - start] = (float)((double)s->dw[j] - s->along);
    SIMD for (int64_t e = 0; e < n; e++) {
        float over = ndp_ld(logits, type, start + e) - max; /* above 0: of an expert that does not count */
        float x = ndp_vexpf(over > 0 ? 0 : over) * part * by[e];
        ndp_st(d, type, start + e, acc ? ndp_ld(acc, type, start + e) + x : x);
    }
}

/* What is added to the gradient of logits by sigmoids: s (1 - s) (dweights - along) / sum, of the chosen ones alone. */
NDP_INLINE void scores_dx(ndp_dtype type, const ndp_op_call *c, int64_t t, void *d) {
    const void *logits = ndp_at(&c->in[1], t, 0);
    const float *dw = ndp_at(&c->in[0], t, 0);
    const int32_t *choices = ndp_at(&c->in[2], t, 0);
    int64_t k = c->in[2].cols;
    double sum = score_sum(type, c->attr->renormalise, logits, k, choices), along = 0;
    for (int64_t j = 0; c->attr->renormalise && j < k; j++)
        along += (double)dw[j] * score_of(type, logits, choices[j]) / sum;
    for (int64_t j = 0; j < k; j++) {
        double s = score_of(type, logits, choices[j]);
        double x = ndp_route_scale(c->attr) * s * (1 - s) * ((double)dw[j] - along) / sum;
        ndp_st(d, type, choices[j], ndp_ld(d, type, choices[j]) + (float)x);
    }
}

/* Padding has no gradient, whatever its logits are. */
NDP_INLINE void dx_row(ndp_dtype type, const ndp_op_call *c, int64_t t) {
    int64_t experts = c->out[0].cols;
    const void *acc = c->in[3].data ? ndp_at(&c->in[3], t, 0) : NULL;
    void *d = ndp_at(&c->out[0], t, 0);
    bool padding = *(const int32_t *)ndp_at(&c->in[2], t, 0) < 0;
    for (int64_t e = 0; (padding || c->attr->sigmoid) && e < experts; e++)
        ndp_st(d, type, e, acc ? ndp_ld(acc, type, e) : 0);
    if (padding)
        return;
    if (c->attr->sigmoid) {
        scores_dx(type, c, t, d);
        return;
    }
    softmax_row s = softmax_of(type, c, t);
    for (int64_t start = 0; start < experts; start += BLOCK)
        dx_block(type, c, &s, start, experts - start < BLOCK ? experts - start : BLOCK, acc, d);
}

void NDP_RANGE_KERNEL(route_dx)(const ndp_op_call *c, int64_t first, int64_t last) {
    for (int64_t t = first; t < last; t++)
        NDP_BY_TYPE(c->in[1].dtype, dx_row, c, t);
}
