/* Proof 3 over many ways of one subject; comparing and bounds are those of the library (verify/outcome.h). */
#ifndef TESTS_VERIFY_INVARIANCE_H
#define TESTS_VERIFY_INVARIANCE_H

#include "verify/runs.h"

/* ---- comparing ---- */

static inline ndp_difference compare(const outcome *a, const outcome *b, const ndp_bounds *bounds) {
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

enum { MOST_REFERENCES = 16 };

/* What can be chosen, where there is a choice. */
typedef enum choice {
    CHOICE_RING,
    CHOICE_ALL_GATHER,
    CHOICE_ZIGZAG,
    CHOICE_CONTIGUOUS,
    CHOICE_CUT_ROWS,
    CHOICE_WHOLE_ROWS,
    CHOICE_SLICED,
    CHOICE_ROUNDS,
    CHOICE_IN_PLACE,
    CHOICE_GATHERED,
    CHOICE_KEPT,
    CHOICE_SAVED,
    CHOICE_RECOMPUTE,
    CHOICE_ONE_MICRO_BATCH,
    CHOICE_ACCUMULATION,
    CHOICES
} choice;

/* Proof 3. */
typedef struct family {
    subject s;
    struct {
        int global;
        outcome one;
        ndp_bounds bounds;
    } references[MOST_REFERENCES];
    int n_references, tried, passed;
    int64_t routed, flips; /* choices of mixtures in all of them, and those that they would make otherwise */
    double apart;          /* the most that a probability of an expert differed by */
    int chosen[CHOICES];   /* runs with each */
    struct {
        ndp_spot spot;
        double part; /* of the bound */
        way way;
    } worst[NDP_MEASURES]; /* the nearest to the bound */
} family;

/* rounds: those of rows to experts. */
static inline void count_choices(family *f, const way *w, double rounds) {
    const bool cp = w->cp > 1, tp = w->tp > 1, shards = w->shard > 1 || cp || w->sp > 1;
    const bool is[CHOICES] = {[CHOICE_RING] = cp && !w->all_gather,
                              [CHOICE_ALL_GATHER] = cp && w->all_gather,
                              [CHOICE_ZIGZAG] = cp && !w->contiguous,
                              [CHOICE_CONTIGUOUS] = cp && w->contiguous,
                              [CHOICE_CUT_ROWS] = tp && !w->whole_rows,
                              [CHOICE_WHOLE_ROWS] = tp && w->whole_rows,
                              [CHOICE_SLICED] = tp && w->whole_rows && w->ep > 1,
                              [CHOICE_ROUNDS] = rounds > 1,
                              [CHOICE_IN_PLACE] = shards && !w->gathered,
                              [CHOICE_GATHERED] = shards && w->gathered && !w->keep,
                              [CHOICE_KEPT] = shards && w->gathered && w->keep,
                              [CHOICE_SAVED] = !w->recompute,
                              [CHOICE_RECOMPUTE] = w->recompute,
                              [CHOICE_ONE_MICRO_BATCH] = w->accumulation == 1,
                              [CHOICE_ACCUMULATION] = w->accumulation > 1};
    for (int i = 0; i < CHOICES; i++)
        f->chosen[i] += is[i];
}

static inline void measure_spread(const family *f, int global, const ndp_choices *given, ndp_bounds *bounds) {
    ndp_spread_run runs[NDP_SPREAD_RUNS];
    ndp_outcome outcomes[NDP_SPREAD_RUNS];
    int n = ndp_spread_runs(bounds, global, f->s.loss ? 2 : 1, runs);
    for (int i = 0; i < n; i++) {
        way w = one_rank(global, global / runs[i].micro_batch, 1);
        subject s = f->s;
        w.split_place = runs[i].split_place;
        if (runs[i].fp32)
            s.precision = "fp32";
        outcomes[i] = train_given(&s, &w, given).of;
    }
    CHECK_OK(ndp_bounds_measure(bounds, outcomes, n));
    for (int i = 0; i < n; i++)
        ndp_outcome_release(&outcomes[i]);
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
    f->references[i].bounds = bounds_of(&f->s, &w);
    if (f->references[i].bounds.spreads > 0)
        measure_spread(f, global, &f->references[i].one.of.routed, &f->references[i].bounds);
    return i;
}

/* Runs the subject this way; what is out of bounds, in words, or NULL. */
static inline const char *try_way(family *f, const way *w, char out[512]) {
    int at = reference(f, w->global);
    outcome o = train_given(&f->s, w, &f->references[at].one.of.routed);
    ndp_difference d = compare(&o, &f->references[at].one, &f->references[at].bounds);
    const char *bad = ndp_difference_words(&d, out, 512);
    ndp_bounds apart = {.of = {[NDP_MEASURE_FLIP_GAP] = f->apart}};
    ndp_flips_measure(&apart, 0.5, &o.of, &f->references[at].one.of);
    f->routed += d.choices, f->flips += d.flips, f->apart = apart.of[NDP_MEASURE_FLIP_GAP];
    count_choices(f, w, o.rounds);
    outcome_release(&o);
    for (int m = 0; m < NDP_MEASURES; m++) {
        ndp_spot spot = d.of[m].worst;
        double part = spot.off == 0 ? 0 : spot.off / spot.bound;
        if (part > f->worst[m].part)
            f->worst[m].spot = spot, f->worst[m].part = part, f->worst[m].way = *w;
    }
    f->tried++;
    f->passed += bad == NULL;
    return bad;
}

static inline void check_way(family *f, const way *w) {
    char text[WAY_TEXT], words[512];
    const char *bad = left_out() ? NULL : try_way(f, w, words);
    if (bad)
        fail_msg("%s, %s: %s", f->s.name, way_text(w, text), bad);
}

static inline void print_family(const family *f) {
    static const char *const names[CHOICES] = {
        "ring",     "all_gather", "zig-zag", "contiguous", "cut rows",  "whole rows",      "sliced", "several rounds",
        "in place", "gathered",   "kept",    "saved",      "recompute", "one micro-batch", "several"};
    char text[WAY_TEXT];
    printf("%s: %d ways tried, %d passed\n  ", f->s.name, f->tried, f->passed);
    for (int i = 0; i < CHOICES; i++)
        printf("%s %s %d", i ? "," : "", names[i], f->chosen[i]);
    printf("\n");
    if (f->routed)
        printf("  %lld choices of experts, %lld flips; probabilities within %.1e\n", (long long)f->routed,
               (long long)f->flips, f->apart);
    for (int m = 0; m < NDP_MEASURES; m++)
        if (f->worst[m].part > 0)
            printf("  %-24s %.1e, %5.1f%% of its bound: %s, %s\n", ndp_measure_name((ndp_measure)m),
                   f->worst[m].spot.off, 100 * f->worst[m].part, f->worst[m].spot.where,
                   way_text(&f->worst[m].way, text));
    fflush(stdout);
}

static inline void family_release(family *f) {
    for (int i = 0; i < f->n_references; i++)
        outcome_release(&f->references[i].one), ndp_bounds_release(&f->references[i].bounds);
    f->n_references = 0;
}

/* ---- all layouts ---- */

/* What the layout rules ask of a subject's model. */
static inline ndp_layout_facts facts_of(const subject *s) {
    way one = one_rank(1, 1, 1);
    ndp_config *c = configure(s, &one);
    ndp_job j;
    CHECK_OK(ndp_job_init(c, 1, &j));
    ndp_layout_facts facts = j.spec.layout;
    ndp_job_release(&j);
    ndp_config_destroy(c);
    return facts;
}

/* Appends the products of the axes from `axis` on that make `left` ranks, and that the rules of the mesh allow. */
static inline int add_layouts(ndp_layout *l, int axis, int left, int world, const ndp_layout_facts *facts,
                              ndp_layout *out, int n, int most) {
    if (axis == NDP_AXES) {
        ndp_layout whole = *l;
        for (int *ep = &whole.size[NDP_EP]; left == 1 && *ep <= (facts->experts ? facts->experts : 1); ++*ep)
            if (ndp_layout_resolve(&whole, world, facts) == NDP_OK) {
                assert_true(n < most);
                out[n++] = whole;
            }
        return n;
    }
    for (int size = 1; size <= left; size++)
        if (left % size == 0) {
            l->size[axis] = size;
            n = add_layouts(l, axis + 1, left / size, world, facts, out, n, most);
        }
    return n;
}

/* Every legal product of {dp_replicate, dp_shard, cp, sp, tp} for a world, with every ep; returns how many. */
static inline int legal_layouts(const ndp_layout_facts *facts, int world, ndp_layout *out, int most) {
    ndp_layout l = NDP_LAYOUT_ONE;
    return add_layouts(&l, NDP_DP_REPLICATE, world, world, facts, out, 0, most);
}

enum { LEAST = 4 /* samples of an update */ };

/* Choice number `which` for layout i: 0 .. n-1. */
static inline int draw(int i, int which, int n) {
    return (int)ndp_rng_below(17, (uint64_t)which, (uint64_t)i, (uint64_t)n);
}

/* How layout i is run. `global`: samples of an update; 0 for the fewest, but LEAST. */
static inline way way_of(const ndp_layout *l, int i, int global) {
    enum { ACCUMULATION, RECOMPUTE, HELD, RING, ZIGZAG, ROWS, ROOM };
    static const char *const capacities[] = {NULL, "1", "1.2", "full"};
    const int *size = l->size;
    int data = data_ranks_of(l), held = draw(i, HELD, 3);
    way w = {.pp = size[NDP_PP],
             .replicate = size[NDP_DP_REPLICATE],
             .shard = size[NDP_DP_SHARD],
             .cp = size[NDP_CP],
             .sp = size[NDP_SP],
             .tp = size[NDP_TP],
             .ep = size[NDP_EP],
             .threads = 1,
             .accumulation = data > 8 ? 1 : 1 + draw(i, ACCUMULATION, 2),
             .recompute = draw(i, RECOMPUTE, 2) ? 1 + i % 2 : 0,
             .gathered = held > 0,
             .keep = held > 1,
             .whole_rows = draw(i, ROWS, 2),
             .all_gather = draw(i, RING, 2),
             .contiguous = draw(i, ZIGZAG, 2),
             .capacity = size[NDP_EP] > 1 ? capacities[draw(i, ROOM, NDP_COUNT(capacities))] : NULL};
    if (global && global % (data * w.accumulation) != 0)
        w.accumulation = 1;
    int part = data * w.accumulation;
    w.global = global ? global : (LEAST + part - 1) / part * part;
    return w;
}

#endif
