/* The outcome of a run, and the distance between two outcomes: the comparison and the bounds of proof 3
 * (docs/proofs.md), for `verify` and for the tests of layouts. */
#ifndef NDP_VERIFY_OUTCOME_H
#define NDP_VERIFY_OUTCOME_H

#include "base/arena.h"
#include "train/trainer.h"

/* ---- outcomes ---- */

typedef enum ndp_kept { NDP_KEPT_FIRST_GRADIENT, NDP_KEPT_LAST_GRADIENT, NDP_KEPT_WEIGHTS, NDP_KEPT } ndp_kept;

typedef struct ndp_outcome {
    int steps, n; /* steps of the run; number of tensors */
    ndp_dtype type;
    ndp_arena arena; /* names and tables */
    const char **names, **units;
    int64_t *first; /* tensor i is elements first[i] .. first[i + 1] of the arrays below */
    double loss[NDP_VERIFY_STEPS], norm[NDP_VERIFY_STEPS];
    int64_t tokens[NDP_VERIFY_STEPS];
    double eval_loss;      /* after the last step; NaN: nothing is held out */
    ndp_choices routed;    /* what mixtures would choose in each step; on ranks that keep it, if they record it */
    const char **mixtures; /* the units that have them */
    void *kept[NDP_KEPT];  /* whole tensors in the master type; NULL on ranks that keep none */
} ndp_outcome;

/* Lists the tensors of a trainer's model for a run of `steps` updates; with `keep` allocates memory for them. */
NDP_API ndp_status ndp_outcome_init(ndp_outcome *o, const ndp_trainer *t, int steps, bool keep);
/* Accepts NULL arrays and {0}. */
void ndp_outcome_release(ndp_outcome *o);

/* Runs the trainer's next update and records it: loss, norm and tokens of every step, gradients of the first and the
 * last, weights after the last, and their loss on held-out rows, at most as many as the steps had. Collective over the
 * world, including ranks that keep nothing. */
NDP_API ndp_status ndp_outcome_step(ndp_outcome *o, ndp_trainer *t);

/* Bytes that an outcome keeps for a model with this many parameters, without choices (ndp_choices_bytes). */
static inline int64_t ndp_outcome_bytes(int64_t parameters, ndp_dtype master) {
    return NDP_KEPT * parameters * (int64_t)ndp_dtype_size(master);
}

/* ---- bounds ---- */

typedef struct ndp_bounds {
    double of[NDP_MEASURES]; /* numbers known before any run; 0: none */
    double spreads;          /* > 0: ndp_bounds_measure raises them to so many times the spread of runs on one rank */
    double roundings;        /* > 0: and at least so many times their distance from a run in fp32 */
    double *tensors;         /* then: of gradients, [2][tensors], each tensor's own instead of of[]; else NULL */
} ndp_bounds;

/* What the optimizers of a job allow together. */
typedef struct ndp_updates_bounds {
    double most_lr; /* the largest optimizer.lr at which the fixed bounds hold; INFINITY: any */
    double spreads; /* the most of ndp_optimizer_bounds */
    bool fixed;     /* all have fixed bounds */
    bool codes;     /* some state is codes */
} ndp_updates_bounds;
ndp_updates_bounds ndp_updates_bounds_of(const ndp_config *c);
/* The bounds for the configuration's precision and optimizers. */
ndp_bounds ndp_bounds_of(const ndp_config *c);

/* A run on one rank: samples per micro-batch, where the kernels split their sums (ops/op.h), and whether it computes in
 * fp32 instead of bf16. */
typedef struct ndp_spread_run {
    int micro_batch;
    int split_place;
    bool fp32;
} ndp_spread_run;

/* The sizes of micro-batches, multiples of `together`, that divide the global batch, smallest first, at most
 * NDP_SPREAD_CUTS. Returns how many. */
enum { NDP_SPREAD_CUTS = 6 };
int ndp_spread_cuts(int global_batch, int together, int sizes[NDP_SPREAD_CUTS]);

/* The runs on one rank that ndp_bounds_measure needs: one for each size of micro-batches; one for each place to split
 * sums, cycling through those sizes; if b->roundings is set, one in fp32 at the end. Returns how many. */
enum { NDP_SPREAD_RUNS = NDP_SPREAD_CUTS + NDP_SPLITS + 1 };
int ndp_spread_runs(const ndp_bounds *b, int global_batch, int together, ndp_spread_run runs[NDP_SPREAD_RUNS]);

/* Raises the bounds, but those of the gradients of step 1 that have a number: no update came before them. To the larger
 * of b->spreads times the largest difference between any two of the runs, and b->roundings times the largest difference
 * of any of them from the last, which is in fp32. Two runs whose roundings are independent differ by sqrt(2) times what
 * bf16 is off by; two that round differently in one row of a hundred, by an eighth of it. Where it is that few, the
 * spread of a few runs is a matter of luck, and the distance from fp32 is not. Gradients have one bound for each tensor
 * of a layer (the largest of all layers): where they nearly cancel they are far noisier than others, for which that
 * bound would be blind. Weights are compared all together: AdamW makes a whole step of a gradient near 0, of either
 * sign, and in a tensor that starts as zeros (a norm's offset, a bias) a few such elements would decide. */
NDP_API ndp_status ndp_bounds_measure(ndp_bounds *b, const ndp_outcome *runs, int n);
/* Whether the names of two tensors are equal except for numbers: of the same tensor in all layers. */
bool ndp_names_of_one_kind(const char *a, const char *b);
/* Frees the measured bounds. Accepts {0}. */
void ndp_bounds_release(ndp_bounds *b);

/* ---- distances ---- */

typedef struct ndp_difference {
    ndp_deviation of[NDP_MEASURES];
    int64_t choices, flips;
    ndp_flip listed[NDP_FLIPS_LISTED]; /* those with the largest gaps, the largest first */
    int n_listed;
} ndp_difference;

/* Adds the distance at one place; places come in order. NaN ranks worst. */
void ndp_deviation_note(ndp_deviation *d, double off, double bound, const char *where, const char *unit);

/* ---- flips.c: what mixtures choose ---- */

/* Room for what the mixtures of a trainer's model would choose in each step; nothing where they do not record it. */
ndp_status ndp_routed_init(ndp_outcome *o, const ndp_trainer *t, bool keep);
/* Records the last step's. Collective over the world. */
ndp_status ndp_routed_read(ndp_outcome *o, ndp_trainer *t, int64_t step);
/* Finds what `a` would choose otherwise than `b` did. Nothing if one of them recorded nothing. */
void ndp_flips_compare(const ndp_outcome *a, const ndp_outcome *b, const ndp_bounds *bounds, ndp_difference *d);
/* Raises the bounds of flips to what two runs differ by, times `times`. */
void ndp_flips_measure(ndp_bounds *b, double times, const ndp_outcome *x, const ndp_outcome *y);

/* Compares `a` with the reference `b`. NDP_EBUG: they have different models or numbers of steps. Weights and gradients
 * are compared only if both outcomes keep them. */
NDP_API ndp_status ndp_outcome_compare(const ndp_outcome *a, const ndp_outcome *b, const ndp_bounds *bounds,
                                       ndp_difference *d);

/* Describes the first measure that is out of bounds, in `out`; NULL if none is:
 * "gradient of step 1, model.norm.weight (head): off by 1, bound 2e-05" */
const char *ndp_difference_words(const ndp_difference *d, char *out, size_t size);

#endif
