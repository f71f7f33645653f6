/* Optimizers, and the learning rate's schedule.
 *
 * An optimizer is one const table in a file of its own (adamw.c) and a row of NDP_OPTIMIZERS. Everything that depends
 * on the choice is in its table: the options that it reads and their defaults, its state in memory and in checkpoints,
 * the op that makes the update, the bounds of `verify`. No other code compares names, so a new optimizer cannot be
 * taken for an existing one.
 *
 * Updates, the norm of the gradient and clipping are ops (ops/op.h, "Of a step"); devices have their kernels. */
#ifndef NDP_OPTIM_OPTIM_H
#define NDP_OPTIM_OPTIM_H

#include "ops/update.h"
#include "tensor/segments.h"

/* The list, X(NAME, name, ...): one optimizer for each update, and those that share one. */
#define NDP_OPTIMIZERS(X)                                                                                              \
    NDP_UPDATES(X)                                                                                                     \
    X(MUON_SPECTRAL, muon_spectral, 0, 0, NDP_UPDATE_OPERANDS) /* muon's */

#define NDP_OPTIMIZER_NAMED(NAME, ...) NDP_##NAME,
typedef enum ndp_optimizer_name { NDP_OPTIMIZERS(NDP_OPTIMIZER_NAMED) NDP_OPTIMIZER_COUNT } ndp_optimizer_name;
#undef NDP_OPTIMIZER_NAMED

enum { NDP_OPTIMIZER_OPTIONS = 3 }; /* at most */

/* The options of all optimizers; each reads some of them. */
typedef struct ndp_optimizer_opts {
    ndp_optimizer_name name;
    double betas[2], eps, weight_decay, momentum;
    double max_norm;                        /* of the whole gradient; 0: no clipping */
    const struct ndp_update_entry *entries; /* of optimizer.groups, n_entries of them; borrowed */
    int n_entries;
    uint32_t seed; /* of what is rounded at random (ops/rounding.h) */
} ndp_optimizer_opts;

/* An entry of optimizer.groups: how the tensors that it names (ndp_segment.named_by) are updated. */
typedef struct ndp_update_entry {
    ndp_optimizer_opts opts; /* less max_norm, entries and seed */
    double lr_scale;
    bool chosen; /* it says which optimizer: no other one updates what this one does not */
    bool decays; /* it says the weight decay, which vectors have too */
} ndp_update_entry;

/* How far fp32 runs of a layout may be from one rank (verify/outcome.h). If both are set, the gradients of step 1,
 * which no update precedes, have the fixed bounds, and all later numbers the larger of the two. */
typedef struct ndp_optimizer_bounds {
    double most_lr; /* > 0: the fixed bounds of proof 3, valid up to this learning rate */
    double spreads; /* > 0: this many times the spread of runs on one rank */
} ndp_optimizer_bounds;

/* A key of section `optimizer`, and its default as YAML; NULL: the default of the option table. */
typedef struct ndp_optimizer_option {
    const char *key, *value;
} ndp_optimizer_option;

/* Optimizers that update a matrix as a whole: `direction` makes, from the gradient and the states, a direction for each
 * owned element; these are gathered, `transform` changes the whole matrix (x [R,C] in place), and the optimizer's op
 * applies it where it has gradients otherwise. NULL: each element is updated by itself. */
typedef struct ndp_whole_update {
    const ndp_op *direction, *transform;
    bool spectral; /* ndp_op_attr.spectral of the transform */
} ndp_whole_update;

/* Sets of tensors: bit 4 coded + 2 projection + vector is that of tensors with these properties. */
enum { NDP_KINDS_VECTORS = 0xaa, NDP_KINDS_PROJECTIONS = 0xcc, NDP_KINDS_CODED = 0xf0, NDP_KINDS_ALL = 0xff };

typedef struct ndp_optimizer {
    const char *name;
    const ndp_op *op;          /* the update */
    unsigned kinds;            /* the set of tensors that it can update; 0: all */
    ndp_optimizer_name others; /* what updates the others in its place */
    ndp_whole_update whole;
    ndp_optimizer_option reads[NDP_OPTIMIZER_OPTIONS]; /* besides lr and weight_decay, which all read */
    const char *state[NDP_OPTIMIZER_STATES]; /* prefixes of the state's tensors in checkpoints; NULL: no more of them */
    const char *scales[NDP_OPTIMIZER_STATES]; /* of coded tensors: those of the scales of the blocks of their states */
    bool (*stateless)(const ndp_optimizer_opts *o); /* true: keeps no state with these options; NULL: never */
    /* The constants of update number `update` (from 0), in fp64, computed once per step; kernels round them to their
     * type. */
    void (*constants)(const ndp_optimizer_opts *o, double lr, int64_t update, double out[NDP_OPTIMIZER_CONSTANTS]);
    ndp_optimizer_bounds bounds;
} ndp_optimizer;

#define NDP_OPTIMIZER_DECLARE(NAME, name, ...) extern const ndp_optimizer ndp_optimizer_##name;
NDP_OPTIMIZERS(NDP_OPTIMIZER_DECLARE)
#undef NDP_OPTIMIZER_DECLARE
/* By ndp_optimizer_name. */
extern const ndp_optimizer *const ndp_optimizers[NDP_OPTIMIZER_COUNT];

/* The number of states with these options, of a tensor that the optimizer updates itself. */
int ndp_optimizer_states(const ndp_optimizer_opts *o);
/* True if they are codes and scales instead of numbers. */
static inline bool ndp_optimizer_codes(ndp_optimizer_name name) { return ndp_optimizers[name]->scales[0]; }
/* The entry of `key` in `reads`; NULL: the optimizer does not read it. */
const ndp_optimizer_option *ndp_optimizer_reads(const ndp_optimizer *o, const char *key);

/* The schedules, X(NAME, name): each is a function of lr_schedule.c. */
#define NDP_LR_SCHEDULES(X)                                                                                            \
    X(CONSTANT, constant)                                                                                              \
    X(LINEAR, linear)                                                                                                  \
    X(COSINE, cosine)                                                                                                  \
    X(WSD, wsd)                                                                                                        \
    X(INVERSE_SQRT, inverse_sqrt)                                                                                      \
    X(COSINE_RESTARTS, cosine_restarts)

#define NDP_LR_NAMED(NAME, name) NDP_LR_##NAME,
typedef enum ndp_lr_kind { NDP_LR_SCHEDULES(NDP_LR_NAMED) NDP_LR_KINDS } ndp_lr_kind;
#undef NDP_LR_NAMED

/* Whose way of counting a schedule has. */
typedef enum ndp_lr_like {
    NDP_LR_OWN,
    NDP_LR_LIKE_TRANSFORMERS,
    NDP_LR_LIKE_AXOLOTL,
    NDP_LR_LIKE_DEEPSPEED
} ndp_lr_like;

typedef struct ndp_lr_schedule {
    ndp_lr_kind kind;
    double lr, min_ratio; /* the last update of `steps` has lr x min_ratio, if the schedule has an end */
    int64_t warmup, steps;
    double decay_ratio; /* wsd: the share of the steps in which the rate falls */
    int cycles;         /* cosine_restarts: at least 1 */
    /* Not own: as in transformers, warm-up begins at 0, and the end is one update after the last. DEEPSPEED: the first
     * update has 0, too, and all but the fall of a cosine is one update later. */
    ndp_lr_like like;
} ndp_lr_schedule;
/* Learning rate of update u (0 the first): linear warm-up lr (u + 1) / warmup for u < warmup, where it is like
 * theirs lr u / warmup, then the schedule. A function of the update index alone. */
double ndp_lr_of(const ndp_lr_schedule *s, int64_t update);
/* True if the schedule falls to lr x min_ratio at the last update: it depends on the number of steps. */
bool ndp_lr_has_end(ndp_lr_kind kind);

#endif
