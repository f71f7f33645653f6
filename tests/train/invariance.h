/* Comparing outcomes: how far they lie apart, and the bounds of proof 3. */
#ifndef TESTS_TRAIN_INVARIANCE_H
#define TESTS_TRAIN_INVARIANCE_H

#include "train/runs.h"

/* ---- comparing ---- */

/* Measures of how far two outcomes lie apart, and bounds of them. */
typedef enum measure { FIRST_GRADIENT, NORM, LAST_GRADIENT, LOSS, WEIGHTS, MEASURES } measure;
static const char *const measure_names[MEASURES] = {"gradient of step 1", "grad_norm", "gradient of the last step",
                                                    "loss", "weights"};

typedef struct difference {
    double of[MEASURES];
    char where[MEASURES][96]; /* the worst place: tensor or step */
} difference;

/* Distance of each tensor by its norm: the largest. */
static inline void compare_tensors(const outcome *a, const outcome *b, const double *x, const double *y, measure m,
                                   difference *d) {
    for (int i = 0; i < b->n; i++) {
        double distance = 0, norm = 0;
        for (int64_t k = b->first[i]; k < b->first[i + 1]; k++)
            distance += (x[k] - y[k]) * (x[k] - y[k]), norm += y[k] * y[k];
        double off = distance == 0 ? 0 : sqrt(distance / norm);
        if (off > d->of[m] || isnan(off)) {
            d->of[m] = off;
            snprintf(d->where[m], sizeof d->where[m], "%s", a->names[i]);
        }
    }
}

static inline void compare_numbers(int steps, const double *x, const double *y, measure m, difference *d) {
    for (int s = 0; s < steps; s++) {
        double off = fabs(x[s] / y[s] - 1);
        if (off > d->of[m] || isnan(off)) {
            d->of[m] = off;
            snprintf(d->where[m], sizeof d->where[m], "step %d", s + 1);
        }
    }
}

static inline difference compare(const outcome *a, const outcome *b) {
    difference d = {0};
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->steps, b->steps);
    assert_memory_equal(a->tokens, b->tokens, sizeof a->tokens);
    compare_tensors(a, b, a->grads[0], b->grads[0], FIRST_GRADIENT, &d);
    compare_tensors(a, b, a->grads[1], b->grads[1], LAST_GRADIENT, &d);
    compare_tensors(a, b, a->weights, b->weights, WEIGHTS, &d);
    compare_numbers(a->steps, a->norm, b->norm, NORM, &d);
    compare_numbers(a->steps, a->loss, b->loss, LOSS, &d);
    return d;
}

/* What is out of bounds, in words; NULL when nothing is. */
static inline const char *exceeds(const difference *d, const double bounds[MEASURES], char out[256]) {
    for (int m = 0; m < MEASURES; m++)
        if (!(d->of[m] <= bounds[m])) {
            snprintf(out, 256, "%s, %s: off by %.3g, bound %.3g", measure_names[m], d->where[m], d->of[m], bounds[m]);
            return out;
        }
    return NULL;
}

/* Keeps the larger of each measure. */
static inline void widen(difference *worst, const difference *d) {
    for (int m = 0; m < MEASURES; m++)
        if (d->of[m] > worst->of[m]) {
            worst->of[m] = d->of[m];
            memcpy(worst->where[m], d->where[m], sizeof worst->where[m]);
        }
}

/* The same to the last bit. */
static inline bool same_bits(const outcome *a, const outcome *b) {
    size_t bytes = (size_t)b->first[b->n] * sizeof(double);
    return a->steps == b->steps && memcmp(a->loss, b->loss, sizeof a->loss) == 0 &&
           memcmp(a->norm, b->norm, sizeof a->norm) == 0 && memcmp(a->grads[1], b->grads[1], bytes) == 0 &&
           memcmp(a->weights, b->weights, bytes) == 0;
}

/* ---- many ways of one subject ---- */

enum { ONE_RANK_RUNS = 7, MOST_REFERENCES = 16 };

/* Proof 3. Bounds are numbers, or so many times the spread of one-rank runs, which are cut into micro-batches in up to
 * six ways (other matrices, so that every sum is split otherwise) and run once more on two threads. */
typedef struct family {
    subject s;
    double bounds[MEASURES]; /* of fp32 and fp64 */
    double spreads;          /* > 0: bounds are this often the spread */
    struct {
        int global;
        outcome one;
        double bounds[MEASURES];
    } references[MOST_REFERENCES];
    int n_references, tried, passed;
    difference worst;
    double worst_part[MEASURES]; /* of the bound */
} family;

#define FP32_BOUNDS                                                                                                    \
    { [FIRST_GRADIENT] = 2e-5, [LAST_GRADIENT] = 1e-4, [NORM] = 3e-5, [LOSS] = 2e-6, [WEIGHTS] = INFINITY }
#define FP64_BOUNDS                                                                                                    \
    { [FIRST_GRADIENT] = 1e-9, [LAST_GRADIENT] = 1e-9, [NORM] = 1e-9, [LOSS] = 1e-11, [WEIGHTS] = INFINITY }

static inline void measure_spread(const family *f, int global, double bounds[MEASURES]) {
    outcome runs[ONE_RANK_RUNS];
    difference spread = {0};
    int n = 0;
    for (int k = 0; n < ONE_RANK_RUNS - 1 && divisor(global, k); k++) {
        way w = one_rank(global, divisor(global, k), 1);
        runs[n++] = train(&f->s, &w);
    }
    way threads = one_rank(global, 1, 2);
    runs[n++] = train(&f->s, &threads);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++) {
            difference d = compare(&runs[i], &runs[k]);
            widen(&spread, &d);
        }
    for (int m = 0; m < MEASURES; m++)
        bounds[m] = f->spreads * spread.of[m];
    for (int i = 0; i < n; i++)
        outcome_release(&runs[i]);
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
    if (f->spreads > 0)
        measure_spread(f, global, f->references[i].bounds);
    else
        memcpy(f->references[i].bounds, f->bounds, sizeof f->bounds);
    return i;
}

/* Runs the subject this way; what is out of bounds, in words, or NULL. */
static inline const char *try_way(family *f, const way *w, char out[256]) {
    int at = reference(f, w->global);
    outcome o = train(&f->s, w);
    difference d = compare(&o, &f->references[at].one);
    const char *bad = exceeds(&d, f->references[at].bounds, out);
    outcome_release(&o);
    widen(&f->worst, &d);
    for (int m = 0; m < MEASURES; m++)
        f->worst_part[m] = fmax(f->worst_part[m], d.of[m] / f->references[at].bounds[m]);
    f->tried++;
    f->passed += bad == NULL;
    return bad;
}

static inline void check_way(family *f, const way *w) {
    char text[160], words[256];
    const char *bad = try_way(f, w, words);
    if (bad)
        fail_msg("%s, %s: %s", f->s.name, way_text(w, text), bad);
}

static inline void print_family(const family *f) {
    printf("%-22s %4d tried %4d passed;", f->s.name, f->tried, f->passed);
    for (int m = 0; m < MEASURES; m++)
        if (f->worst_part[m] > 0)
            printf(" %s %.1e (%.0f%% of its bound; %s)%s", measure_names[m], f->worst.of[m], 100 * f->worst_part[m],
                   f->worst.where[m], m < MEASURES - 1 ? "," : "");
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
