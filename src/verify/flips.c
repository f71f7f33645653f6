/* Choices of mixtures of experts that a layout would make otherwise than one rank did.
 *
 * The runs that are compared go where one rank's choices say, so they are alike but for rounding in every step; what
 * each would have chosen itself follows from the logits of its routers. Such a flip needs two experts whose
 * probabilities, or keys, lie within rounding; or, where a router chooses groups first, two groups that do so. A run
 * that chose by itself would be the same to the last bit up to its first flip; after that its rows go to other experts,
 * which is no longer rounding (docs/proofs.md). */
#include "verify/outcome.h"

#include "ops/route.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- recording ---- */

static bool records(const ndp_trainer *t) {
    const ndp_inputs *inputs = t->model.inputs;
    return inputs->mixtures.n > 0 && ndp_inputs_find(inputs, NDP_INPUT_ROUTER) >= 0;
}

static int64_t rows_of(const ndp_trainer *t) {
    return t->rank.feed.shape.global * t->rank.job.config->data.sequence_length;
}

ndp_status ndp_routed_init(ndp_outcome *o, const ndp_trainer *t, bool keep) {
    const ndp_mixtures *m = &t->model.inputs->mixtures;
    if (!records(t) || !keep)
        return NDP_OK;
    o->mixtures = ndp_arena_alloc(&o->arena, (size_t)m->n * sizeof *o->mixtures);
    for (int u = 0; u < t->model.n_units && o->mixtures; u++)
        if (t->model.units[u].mixture != NDP_NONE)
            o->mixtures[t->model.units[u].mixture] = ndp_arena_strdup(&o->arena, t->model.units[u].name);
    for (int i = 0; i < m->n; i++)
        NDP_CHECK_MEMORY(o->mixtures && o->mixtures[i], "for the names of %d mixtures", m->n);
    return ndp_choices_init(&o->routed, o->steps, m, rows_of(t), true);
}

/* How many of its keys a group counts. */
static int counted_of(const ndp_mixtures *m) { return m->sigmoid ? NDP_MOST_BEST : 1; }

/* What the groups of a row count, by its keys; the ones that are open. */
static uint64_t groups_of(const ndp_mixtures *m, const float *keys, double counts[NDP_MOST_GROUPS]) {
    const ndp_op_attr a = {.groups = m->groups, .open_groups = m->open_groups, .group_best = counted_of(m)};
    ndp_route_best of[NDP_MOST_GROUPS];
    if (!ndp_route_closes(&a))
        return NDP_ALL_GROUPS;
    for (int g = 0, each = m->experts / m->groups; g < m->groups; g++) {
        of[g] = (ndp_route_best){-INFINITY, -INFINITY};
        for (int e = g * each; e < (g + 1) * each; e++)
            ndp_route_best_add(&of[g], (double)keys[e]);
        counts[g] = of[g].first + (a.group_best > 1 ? of[g].second : 0);
    }
    return ndp_route_open(&a, of);
}

static bool is_open(const ndp_mixtures *m, uint64_t open, int expert) {
    return open == NDP_ALL_GROUPS || open >> (expert / (m->experts / m->groups)) & 1;
}

/* The experts with the largest logits, or keys, as the op route chooses them (ops/route.c). */
static void choose(const double *logits, const ndp_mixtures *m, uint64_t open, int32_t *chosen) {
    int n = 0;
    for (int e = 0; e < m->experts; e++) {
        if (!is_open(m, open, e))
            continue;
        int at = n < m->choices ? n++ : m->choices;
        for (; at > 0 && logits[e] > logits[chosen[at - 1]]; at--)
            if (at < m->choices)
                chosen[at] = chosen[at - 1];
        if (at < m->choices)
            chosen[at] = e;
    }
}

static void softmax(const double *logits, int experts, float *out) {
    double max = -INFINITY, sum = 0;
    for (int e = 0; e < experts; e++)
        max = fmax(max, logits[e]);
    for (int e = 0; e < experts; e++)
        sum += exp(logits[e] - max);
    for (int e = 0; e < experts; e++)
        out[e] = (float)(exp(logits[e] - max) / sum);
}

static void keep_router(ndp_choices *c, int64_t step, int mixture, const double *logits) {
    const ndp_mixtures *m = &c->mixtures;
    int64_t first = ndp_choices_row(c, step, mixture, 0);
    for (int64_t row = 0; row < c->rows; row++) {
        const double *of_row = logits + row * m->experts;
        float *p = c->probabilities + (first + row) * m->experts;
        double counts[NDP_MOST_GROUPS];
        for (int e = 0; m->sigmoid && e < m->experts; e++)
            p[e] = (float)of_row[e];
        if (!m->sigmoid)
            softmax(of_row, m->experts, p);
        choose(of_row, m, groups_of(m, p, counts), c->chosen + (first + row) * m->choices);
    }
}

ndp_status ndp_routed_read(ndp_outcome *o, ndp_trainer *t, int64_t step) {
    const ndp_mixtures *m = &t->model.inputs->mixtures;
    if (!records(t))
        return NDP_OK;
    double *logits = malloc((size_t)(rows_of(t) * m->experts) * sizeof *logits);
    NDP_CHECK_MEMORY(logits, "for the logits of a router, %lld rows of %d experts", (long long)rows_of(t), m->experts);
    ndp_status st = NDP_OK;
    for (int i = 0; i < m->n && st == NDP_OK; i++) {
        st = ndp_trainer_read_router(t, i, logits);
        if (st == NDP_OK && o->routed.chosen)
            keep_router(&o->routed, step, i, logits);
    }
    free(logits);
    return st;
}

/* ---- comparing ---- */

static bool has(const int32_t *chosen, int n, int expert) {
    for (int j = 0; j < n; j++)
        if (chosen[j] == expert)
            return true;
    return false;
}

static bool both_record(const ndp_outcome *a, const ndp_outcome *b) {
    return a->routed.chosen && b->routed.chosen && a->routed.rows == b->routed.rows;
}

/* What separates, in row `at` of a, the groups that are open there and those that b opens instead: the difference for
 * each key that a group counts. -1: both open the same. */
static double group_gap(const ndp_outcome *a, const ndp_outcome *b, int64_t at) {
    const ndp_mixtures *m = &a->routed.mixtures;
    double counts[NDP_MOST_GROUPS], others[NDP_MOST_GROUPS], most = -INFINITY, least = INFINITY;
    uint64_t open = groups_of(m, a->routed.probabilities + at * m->experts, counts),
             there = groups_of(m, b->routed.probabilities + at * m->experts, others);
    for (int g = 0; open != there && g < m->groups; g++) {
        bool mine = open >> g & 1, theirs = there >> g & 1;
        most = mine && !theirs ? fmax(most, counts[g]) : most;
        least = theirs && !mine ? fmin(least, counts[g]) : least;
    }
    return open == there ? -1 : (most - least) / counted_of(m);
}

typedef void flip_visitor(void *user, const ndp_flip *f);

/* The experts that a row of `a` chooses and `b` does not, each beside one that `b` alone has: the first of the former,
 * which a prefers most, with the last of the latter. */
static void visit_row(const ndp_outcome *a, const ndp_outcome *b, ndp_flip f, flip_visitor *visit, void *user) {
    const ndp_choices *c = &a->routed;
    int k = c->mixtures.choices, other = k;
    int64_t at = ndp_choices_row(c, f.step - 1, f.mixture, f.row);
    const int32_t *mine = c->chosen + at * k, *given = b->routed.chosen + at * k;
    const float *p = c->probabilities + at * c->mixtures.experts;
    double groups = group_gap(a, b, at);
    for (int j = 0; j < k; j++) {
        if (has(given, k, mine[j]))
            continue;
        do
            other--;
        while (has(mine, k, given[other]));
        f.chosen = mine[j], f.instead_of = given[other];
        f.gap = groups < 0 ? (double)p[f.chosen] - (double)p[f.instead_of] : groups;
        snprintf(f.unit, sizeof f.unit, "%s", a->mixtures[f.mixture]);
        visit(user, &f);
    }
}

/* In order of steps, mixtures and rows. */
static void visit_flips(const ndp_outcome *a, const ndp_outcome *b, flip_visitor *visit, void *user) {
    for (int s = 0; s < a->steps; s++)
        for (int i = 0; i < a->routed.mixtures.n; i++)
            for (int64_t row = 0; row < a->routed.rows; row++)
                visit_row(a, b, (ndp_flip){.step = s + 1, .mixture = i, .row = row}, visit, user);
}

static int64_t choices_of(const ndp_outcome *o) {
    return (int64_t)o->steps * o->routed.mixtures.n * o->routed.rows * o->routed.mixtures.choices;
}

typedef struct flip_finding {
    const ndp_bounds *bounds;
    ndp_difference *d;
} flip_finding;

/* Keeps the list in order of gaps, the earlier of equal ones first. */
static void list_flip(ndp_difference *d, const ndp_flip *f) {
    int at = d->n_listed;
    while (at > 0 && f->gap > d->listed[at - 1].gap)
        at--;
    if (at == NDP_FLIPS_LISTED)
        return;
    d->n_listed += d->n_listed < NDP_FLIPS_LISTED;
    memmove(&d->listed[at + 1], &d->listed[at], (size_t)(d->n_listed - at - 1) * sizeof *f);
    d->listed[at] = *f;
}

static void note_flip(void *user, const ndp_flip *f) {
    const flip_finding *x = user;
    char where[96];
    snprintf(where, sizeof where, "step %d, row %lld, expert %d instead of %d", f->step, (long long)f->row, f->chosen,
             f->instead_of);
    ndp_deviation_note(&x->d->of[NDP_MEASURE_FLIP_GAP], f->gap, x->bounds->of[NDP_MEASURE_FLIP_GAP], where, f->unit);
    x->d->flips++;
    list_flip(x->d, f);
}

/* Where choices are few, a single flip is allowed: its gap says whether it is one. */
void ndp_flips_compare(const ndp_outcome *a, const ndp_outcome *b, const ndp_bounds *bounds, ndp_difference *d) {
    if (!both_record(a, b))
        return;
    d->choices = choices_of(a);
    visit_flips(a, b, note_flip, &(flip_finding){bounds, d});
    double one = 1 / (double)d->choices, bound = fmax(bounds->of[NDP_MEASURE_FLIPS], one);
    ndp_deviation_note(&d->of[NDP_MEASURE_FLIPS], (double)d->flips * one, bound, "all steps", "");
}

static void count_flip(void *user, const ndp_flip *f) {
    (void)f;
    ++*(int64_t *)user;
}

/* A flip needs two probabilities that differ between the runs by half the gap each. */
void ndp_flips_measure(ndp_bounds *b, double times, const ndp_outcome *x, const ndp_outcome *y) {
    double apart = 0;
    int64_t flips = 0;
    if (!both_record(x, y))
        return;
    for (int64_t i = 0, n = choices_of(x) / x->routed.mixtures.choices * x->routed.mixtures.experts; i < n; i++)
        apart = fmax(apart, fabs((double)x->routed.probabilities[i] - (double)y->routed.probabilities[i]));
    visit_flips(x, y, count_flip, &flips);
    b->of[NDP_MEASURE_FLIP_GAP] = fmax(b->of[NDP_MEASURE_FLIP_GAP], 2 * times * apart);
    b->of[NDP_MEASURE_FLIPS] = fmax(b->of[NDP_MEASURE_FLIPS], times * (double)flips / (double)choices_of(x));
}
