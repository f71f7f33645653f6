/* Proof 3 over many ways of one subject; comparing and bounds are those of the library (train/outcome.h). */
#ifndef TESTS_TRAIN_INVARIANCE_H
#define TESTS_TRAIN_INVARIANCE_H

#include "train/runs.h"

/* ---- comparing ---- */

static inline ndp_difference compare(const outcome *a, const outcome *b, const double bounds[NDP_MEASURES]) {
    ndp_difference d;
    CHECK_OK(ndp_outcome_compare(&a->of, &b->of, bounds, &d));
    return d;
}

/* The bounds of a subject that are numbers. */
static inline ndp_bounds bounds_of(const subject *s, const way *w) {
    ndp_config *c = configure(s, w);
    ndp_bounds b = ndp_bounds_of(c);
    ndp_config_destroy(c);
    return b;
}

/* The same to the last bit. */
static inline bool same_bits(const outcome *a, const outcome *b) {
    size_t bytes = (size_t)b->of.first[b->of.n] * ndp_dtype_size(b->of.type);
    bool same = a->of.steps == b->of.steps && memcmp(a->of.loss, b->of.loss, sizeof a->of.loss) == 0 &&
                memcmp(a->of.norm, b->of.norm, sizeof a->of.norm) == 0;
    for (int k = NDP_KEPT_LAST_GRADIENT; k < NDP_KEPT; k++)
        same = same && memcmp(a->of.kept[k], b->of.kept[k], bytes) == 0;
    return same;
}

/* ---- many ways of one subject ---- */

enum { ONE_RANK_RUNS = NDP_SPREAD_CUTS + 1, MOST_REFERENCES = 16 };

/* Proof 3. Where bounds are so many times the spread of one-rank runs, these are cut into micro-batches in up to
 * NDP_SPREAD_CUTS ways (other matrices, so that every sum is split otherwise) and run once more on two threads. */
typedef struct family {
    subject s;
    struct {
        int global;
        outcome one;
        double bounds[NDP_MEASURES];
    } references[MOST_REFERENCES];
    int n_references, tried, passed;
    ndp_spot worst[NDP_MEASURES];
    double worst_part[NDP_MEASURES]; /* of the bound */
} family;

static inline void measure_spread(const family *f, int global, double spreads, double bounds[NDP_MEASURES]) {
    ndp_outcome runs[ONE_RANK_RUNS];
    int cuts[NDP_SPREAD_CUTS], n = ndp_spread_cuts(global, cuts);
    for (int i = 0; i <= n; i++) {
        way w = i < n ? one_rank(global, global / cuts[i], 1) : one_rank(global, 1, 2);
        runs[i] = train(&f->s, &w).of;
    }
    CHECK_OK(ndp_spread_bounds(runs, n + 1, spreads, bounds));
    for (int i = 0; i <= n; i++)
        ndp_outcome_release(&runs[i]);
}

/* The place of the one-rank run with this global batch, which is one micro-batch of it. */
static inline int reference(family *f, int global) {
    int i = 0;
    while (i < f->n_references && f->references[i].global != global)
        i++;
    if (i < f->n_references)
        return i;
    assert_true(i < MOST_REFERENCES);
    way w = one_rank(global, 1, 1);
    f->n_references++;
    f->references[i].global = global;
    f->references[i].one = train(&f->s, &w);
    ndp_bounds b = bounds_of(&f->s, &w);
    if (b.spreads > 0)
        measure_spread(f, global, b.spreads, f->references[i].bounds);
    else
        memcpy(f->references[i].bounds, b.of, sizeof b.of);
    return i;
}

/* Runs the subject this way; what is out of bounds, in words, or NULL. */
static inline const char *try_way(family *f, const way *w, char out[512]) {
    int at = reference(f, w->global);
    outcome o = train(&f->s, w);
    ndp_difference d = compare(&o, &f->references[at].one, f->references[at].bounds);
    const char *bad = ndp_difference_words(&d, out, 512);
    outcome_release(&o);
    for (int m = 0; m < NDP_MEASURES; m++) {
        const ndp_deviation *v = &d.of[m];
        if (v->worst.off > f->worst[m].off)
            f->worst[m] = v->worst;
        f->worst_part[m] = fmax(f->worst_part[m], v->worst.off == 0 ? 0 : v->worst.off / v->bound);
    }
    f->tried++;
    f->passed += bad == NULL;
    return bad;
}

static inline void check_way(family *f, const way *w) {
    char text[160], words[512];
    const char *bad = try_way(f, w, words);
    if (bad)
        fail_msg("%s, %s: %s", f->s.name, way_text(w, text), bad);
}

static inline void print_family(const family *f) {
    printf("%-22s %4d tried %4d passed;", f->s.name, f->tried, f->passed);
    for (int m = 0; m < NDP_MEASURES; m++)
        if (f->worst_part[m] > 0)
            printf(" %s %.1e (%.0f%% of its bound; %s)%s", ndp_measure_name((ndp_measure)m), f->worst[m].off,
                   100 * f->worst_part[m], f->worst[m].where, m < NDP_MEASURES - 1 ? "," : "");
    printf("\n");
}

static inline void family_release(family *f) {
    for (int i = 0; i < f->n_references; i++)
        outcome_release(&f->references[i].one);
    f->n_references = 0;
}

/* The layouts of the proof: dp_replicate x dp_shard. */
static const int layouts[][2] = {{1, 2}, {2, 1}, {2, 2}, {1, 3}, {1, 4}, {4, 1},
                                 {2, 4}, {4, 2}, {1, 8}, {8, 1}, {4, 4}, {1, 16}};

#endif
