/* route, route_dx. */
#include "ops/ref/ref_kernels.h"
#include "ops/route.h"

/* What expert e of row t is chosen by, if its group is open. */
static double open_key(const ndp_op_call *c, int64_t t, int64_t e) {
    double x = ndp_ref_in(c, 0, t, e);
    if (c->attr->sigmoid)
        x = ndp_route_score(x) + (ndp_present(&c->in[3]) ? ndp_ref_in(c, 3, 0, e) : 0);
    return isnan(x) ? -INFINITY : x;
}

static uint64_t open_groups(const ndp_op_call *c, int64_t t) {
    ndp_route_best of[NDP_MOST_GROUPS];
    int64_t each = ndp_route_closes(c->attr) ? c->in[0].cols / c->attr->groups : 0;
    for (int g = 0; each > 0 && g < c->attr->groups; g++) {
        of[g] = (ndp_route_best){-INFINITY, -INFINITY};
        for (int64_t e = g * each; e < (g + 1) * each; e++)
            ndp_route_best_add(&of[g], open_key(c, t, e));
    }
    return each > 0 ? ndp_route_open(c->attr, of) : NDP_ALL_GROUPS;
}

/* What expert e of row t is chosen by. */
static double key_of(const ndp_op_call *c, int64_t t, int64_t e, uint64_t open) {
    bool is_open = open == NDP_ALL_GROUPS || open >> (e / (c->in[0].cols / c->attr->groups)) & 1;
    return is_open ? open_key(c, t, e) : -INFINITY;
}

/* True if expert a of row t comes before b: by its key, then by its number. */
static bool before(const ndp_op_call *c, int64_t t, int64_t a, int64_t b, uint64_t open) {
    double x = key_of(c, t, a, open), y = key_of(c, t, b, open);
    return x > y || (x == y && a < b);
}

/* The largest logit that is a number: of the row's choices alone, or of all. */
static double maximum(const ndp_view *logits, int64_t t, const ndp_view *choices, bool chosen) {
    double max = -INFINITY;
    for (int64_t j = 0; chosen && j < choices->cols; j++)
        max = fmax(max, ndp_view_get(logits, t, (int64_t)ndp_view_get(choices, t, j)));
    for (int64_t e = 0; !chosen && e < logits->cols; e++)
        max = fmax(max, ndp_view_get(logits, t, e));
    return max;
}

/* The sum of exp(logit - max) over all experts. */
static double exp_sum(const ndp_view *logits, int64_t t, double max) {
    double sum = 0;
    for (int64_t e = 0; e < logits->cols; e++)
        sum += exp(ndp_view_get(logits, t, e) - max);
    return sum;
}

/* An expert's place in the row is the number of those before it. */
static void choose(const ndp_op_call *c, int64_t t, uint64_t open) {
    const ndp_view *logits = &c->in[0], *choices = &c->out[0];
    for (int64_t e = 0; e < logits->cols; e++) {
        int64_t place = 0;
        for (int64_t other = 0; other < logits->cols; other++)
            place += before(c, t, other, e, open);
        if (place < choices->cols)
            ndp_view_set(choices, t, place, (double)e);
    }
}

/* The sum of the sigmoids of a row's choices, or 1. */
static double score_sum(const ndp_op_attr *a, const ndp_view *logits, int64_t t, const ndp_view *choices) {
    double sum = NDP_ROUTE_LEAST;
    for (int64_t j = 0; j < choices->cols; j++)
        sum += ndp_route_score(ndp_view_get(logits, t, (int64_t)ndp_view_get(choices, t, j)));
    return a->renormalise ? sum : 1;
}

static void weigh_scores(const ndp_op_call *c, int64_t t) {
    const ndp_view *logits = &c->in[0], *choices = &c->out[0];
    double by = ndp_route_scale(c->attr) / score_sum(c->attr, logits, t, choices);
    for (int64_t j = 0; j < choices->cols; j++)
        ndp_view_set(&c->out[1], t, j,
                     by * ndp_route_score(ndp_view_get(logits, t, (int64_t)ndp_view_get(choices, t, j))));
}

static void weigh(const ndp_op_call *c, int64_t t) {
    const ndp_view *logits = &c->in[0], *choices = &c->out[0], *weights = &c->out[1];
    double max = maximum(logits, t, choices, c->attr->renormalise), all = exp_sum(logits, t, max), sum = 0;
    if (c->attr->renormalise && all > (double)logits->cols)
        all = 1; /* given choices, below logits that do not count: only a NaN is to be seen in the weights */
    for (int64_t j = 0; j < choices->cols; j++) {
        double p = exp(ndp_view_get(logits, t, (int64_t)ndp_view_get(choices, t, j)) - max) / all;
        ndp_view_set(weights, t, j, p);
        sum += p;
    }
    sum = c->attr->renormalise ? sum : 1;
    for (int64_t j = 0; j < choices->cols; j++)
        ndp_view_set(weights, t, j, ndp_route_scale(c->attr) * ndp_view_get(weights, t, j) / sum);
}

static ndp_status run_route(const ndp_op_call *c) {
    const ndp_view *samples = &c->in[1], *given = &c->in[2], *choices = &c->out[0];
    for (int64_t t = 0; t < choices->rows; t++) {
        bool padding = (ndp_present(samples) && ndp_int_at(samples, t) < 0) ||
                       (ndp_present(given) && ndp_view_get(given, t, 0) < 0);
        uint64_t open = open_groups(c, t);
        for (int64_t e = 0; ndp_present(&c->out[2]) && e < c->in[0].cols; e++)
            ndp_view_set(&c->out[2], t, e, c->attr->sigmoid ? open_key(c, t, e) : ndp_ref_in(c, 0, t, e));
        for (int64_t j = 0; padding && j < choices->cols; j++) {
            ndp_view_set(choices, t, j, -1);
            ndp_view_set(&c->out[1], t, j, 0);
        }
        if (padding)
            continue;
        for (int64_t j = 0; ndp_present(given) && j < choices->cols; j++)
            ndp_view_set(choices, t, j, ndp_view_get(given, t, j));
        if (!ndp_present(given))
            choose(c, t, open);
        (c->attr->sigmoid ? weigh_scores : weigh)(c, t);
    }
    return NDP_OK;
}

const ndp_kernel ndp_ref_route = {.run = run_route};

/* With s the sigmoids: scale s[e] (1 - s[e]) (dw[e] - what the sum takes of it) / sum, of the chosen ones. */
static double scores_dx(const ndp_op_call *c, int64_t t, int64_t e) {
    const ndp_view *logits = &c->in[1], *choices = &c->in[2];
    double sum = score_sum(c->attr, logits, t, choices), along = 0, d = 0,
           s = ndp_route_score(ndp_view_get(logits, t, e));
    for (int64_t j = 0; c->attr->renormalise && j < choices->cols; j++)
        along += ndp_ref_in(c, 0, t, j) *
                 ndp_route_score(ndp_view_get(logits, t, (int64_t)ndp_view_get(choices, t, j))) / sum;
    for (int64_t j = 0; j < choices->cols; j++)
        if ((int64_t)ndp_view_get(choices, t, j) == e)
            d = ndp_route_scale(c->attr) * s * (1 - s) * (ndp_ref_in(c, 0, t, j) - along) / sum;
    return d;
}

/* With p the softmax over all experts, or over those that are chosen: p[e] (dw[e] - sum of p dw), where dw is 0 for
 * experts that are not chosen. */
static double route_dx(const ndp_op_call *c, int64_t t, int64_t e) {
    const ndp_view *logits = &c->in[1], *choices = &c->in[2], *acc = &c->in[3];
    double earlier = ndp_present(acc) ? ndp_view_get(acc, t, e) : 0, sum = 0, along = 0, by = 0;
    bool chosen = false;
    if (ndp_view_get(choices, t, 0) < 0)
        return earlier;
    if (c->attr->sigmoid)
        return earlier + scores_dx(c, t, e);
    double max = maximum(logits, t, choices, c->attr->renormalise);
    for (int64_t j = 0; j < choices->cols; j++) {
        int64_t other = (int64_t)ndp_view_get(choices, t, j);
        double x = exp(ndp_view_get(logits, t, other) - max), dw = ndp_ref_in(c, 0, t, j);
        sum += x;
        along += x * dw;
        chosen |= other == e;
        by += other == e ? dw : 0;
    }
    sum = c->attr->renormalise ? sum : exp_sum(logits, t, max);
    by = c->attr->renormalise && !chosen ? 0 : by - along / sum;
    double over = ndp_view_get(logits, t, e) - max; /* above 0: of an expert that does not count */
    return earlier + ndp_route_scale(c->attr) * exp(over > 0 ? 0 : over) / sum * by;
}

NDP_REF_EACH(route_dx)
