/* The engine: one rank's program with its memory, communicators and kernels, ready to run. */
#ifndef NDP_STEP_ENGINE_H
#define NDP_STEP_ENGINE_H

#include "base/log.h"
#include "device/device.h"
#include "parallel/apply.h"
#include "step/program.h"

typedef struct ndp_engine ndp_engine;

typedef struct ndp_engine_opts {
    ndp_step_opts step;
    const ndp_model *model;       /* the whole one; borrowed */
    ndp_transport *transport;     /* borrowed; NULL: plan only */
    const ndp_pipeline *pipeline; /* borrowed; this rank's part of it is the schedule. NULL: step.schedule */
    /* Use the weights of this engine in place. It has the same facts, types, mesh and choices of the axes, and has
     * published its weights; the new engine's mode is SCORE or CACHED, and steps of the two do not overlap. Borrowed;
     * NULL: own weights. */
    const struct ndp_engine *weights_of;
} ndp_engine_opts;

/* Collective over the world. Lowers the units, builds the program, and maps the memory (on `null`: none). */
NDP_API ndp_status ndp_engine_create(const ndp_engine_opts *opts, ndp_engine **out);
/* One more user of an engine that only plans: each destroys it. Returns it. */
ndp_engine *ndp_engine_share(ndp_engine *e);
/* Collective over the world, except after an error. */
void ndp_engine_destroy(ndp_engine *e);

const ndp_program *ndp_engine_program(const ndp_engine *e);
/* The model as this rank computes it: its buffers and graphs. Lives as long as the engine. */
const ndp_model *ndp_engine_model(const ndp_engine *e);
/* What the passes did that made its program: those of its model, of each unit's lists, of the step. */
void ndp_engine_passes(const ndp_engine *e, ndp_pass_trace *out);
/* The whole model, as no rank may hold it. Borrowed from the options. */
const ndp_model *ndp_engine_whole(const ndp_engine *e);

/* ---- weights, gradients, optimizer state: this rank's pieces ---- */

typedef enum ndp_owned_kind {
    NDP_OWNED_MASTER,
    NDP_OWNED_GRAD,
    NDP_OWNED_STATE0,
    NDP_OWNED_STATE1,
    NDP_OWNED_CODES0, /* of coded states, an element for each of the tensor; */
    NDP_OWNED_CODES1,
    NDP_OWNED_SCALES0, /* and one for each block */
    NDP_OWNED_SCALES1,
    NDP_OWNED_KINDS
} ndp_owned_kind;
/* True if this rank keeps that kind of data for the buffer. */
bool ndp_engine_has(const ndp_engine *e, ndp_owned_kind kind, int buffer);
/* True if that kind of data exists for a tensor, on this rank or others: its optimizer may keep fewer states, and codes
 * instead of numbers. */
bool ndp_engine_keeps(const ndp_engine *e, ndp_owned_kind kind, const ndp_segment *s);
/* What checkpoints have before the tensor's name: "optimizer.m." of a state; "" of weights and gradients. */
const char *ndp_engine_prefix(const ndp_engine *e, ndp_owned_kind kind, const ndp_segment *s);
/* Its storage type. */
ndp_dtype ndp_engine_type(const ndp_engine *e, ndp_owned_kind kind, int buffer);
const ndp_shard *ndp_engine_shard(const ndp_engine *e, int buffer);
/* Copies n elements of this rank's slice (element `first`, then every `stride`-th) to or from contiguous memory of the
 * host; scales by their places among the slice's. Waits for all submitted steps. */
NDP_API ndp_status ndp_engine_read(const ndp_engine *e, ndp_owned_kind kind, int buffer, int64_t first, int64_t n,
                                   int64_t stride, void *host);
NDP_API ndp_status ndp_engine_write(ndp_engine *e, ndp_owned_kind kind, int buffer, int64_t first, int64_t n,
                                    int64_t stride, const void *host);
/* Makes the copies that ops read; call it after writing master weights. A step reads these copies of other ranks: its
 * gathers are also the synchronization. */
NDP_API ndp_status ndp_engine_publish(ndp_engine *e);

/* ---- batches ---- */

/* A whole micro-batch, the same on all ranks that share its samples. Arrays have `rows` entries, at most opts.rows; the
 * other rows are padding. */
typedef struct ndp_micro_batch {
    const int32_t *tokens;
    const int32_t *labels;    /* NULL: none */
    const int32_t *positions; /* in the document; NULL: first_row, first_row + 1, ... */
    const int32_t *starts;    /* the first row that one may see; NULL: 0 */
    bool one_state;           /* layers with a state go on over documents: a mistake, to compare with */
    int64_t rows;             /* 0: opts.rows */
    int64_t first_row;        /* number of row 0; with a kv cache: its place there */
    const int32_t *places;    /* of every row in the kv cache; NULL: first_row, first_row + 1, ... */
    const int32_t *samples;   /* of every row: below opts.samples, or -1: padding; NULL: 0 */
    const int32_t *keys;      /* of dropout: a random word for each row of the update; NULL: 0 */
    const int32_t *documents; /* of pairs (ops/preference.h): documents with marks */
    /* Of each mixture of the whole model, then of each row, the experts that it goes to: all of different numbers, or
     * all -1, for nowhere. Of models that take them (NDP_ROUTES_GIVEN); NULL: no row goes anywhere. */
    const int32_t *choices;
    const double *weights, *scales; /* of rows of the user's own (ndp_model_opts.own_rows); NULL: 0 */
    const double *reference; /* [opts.documents], of pairs: log-probabilities under the reference model; NULL: 0 */
} ndp_micro_batch;
/* From contiguous arrays of `rows` entries: tokens, labels, positions, starts. */
static inline ndp_micro_batch ndp_micro_batch_of(const int32_t *arrays, int64_t rows) {
    return (ndp_micro_batch){.tokens = arrays,
                             .labels = arrays + rows,
                             .positions = arrays + 2 * rows,
                             .starts = arrays + 3 * rows,
                             .rows = rows};
}
/* Uploads this rank's part of `whole`; a micro-batch keeps its inputs until the next load. Padding rows, from here or
 * from the layout, have no loss and attend to themselves only. */
NDP_API ndp_status ndp_engine_load(ndp_engine *e, int micro_batch, const ndp_micro_batch *whole);
/* Copies an input of a micro-batch, by its name in the model's list, as the next step will read it, or as the last one
 * left it. NDP_EINVAL: there is no input of that name. */
NDP_API ndp_status ndp_engine_input(ndp_engine *e, int micro_batch, const char *name, void *out);

/* Writes what this rank has of a column of an input of numbers of rows, by its name, to the places of the rows in
 * `out`, [rows of the micro-batch]; leaves the others. NDP_EINVAL: there is no input of that name. */
NDP_API ndp_status ndp_engine_rows(ndp_engine *e, int micro_batch, const char *name, int column, double *out);

/* Visits what a mixture of the whole model has of an input of that kind: each row that this rank has and that is no
 * padding, by its number in the micro-batch, with its columns as they are stored. No row, if the mixture is another
 * rank's. */
typedef void ndp_row_visitor(void *user, int64_t row, const void *columns);
NDP_API ndp_status ndp_engine_mixture(const ndp_engine *e, int micro_batch, ndp_input_kind kind, int mixture,
                                      ndp_row_visitor *visit, void *user);

/* ---- running ---- */

typedef struct ndp_step_result {
    double loss; /* mean over all valid tokens of the update; or over its pairs, and sft_weight times the mean nll */
    double grad_norm; /* before clipping */
    int64_t tokens;   /* valid, of all ranks */
    double sum;       /* of the losses of all rows, each times its weight, before it is divided */
    /* Where rows are pairs: how many, tokens that count in the nll, and the sums (ops/preference.h). */
    int64_t pairs, nll_tokens;
    double sums[NDP_PAIR_SUMS];
    /* Of routers that have losses of their own, the means over layers and over all rows that are not padding, without
     * coefficients; 0: there is no such loss. */
    double balance, z_loss;
    /* How often each expert of each mixture of the whole model was chosen, over the whole update and all ranks; lasts
     * until the next step is submitted. NULL: there are no mixtures. */
    const double *loads;
    /* By mixture of the whole model, of this rank's micro-batches together: rounds after the first one in which rows
     * went to experts of other ranks; lasts as long. NULL: no round is planned to follow the first. */
    const int64_t *later;
} ndp_step_result;
/* The loss of the counted pairs and tokens. */
static inline double ndp_step_result_loss(const ndp_step_result *r, const ndp_preference *p) {
    double pairs = r->pairs > 0 ? r->sums[NDP_PAIR_LOSS] / (double)r->pairs : 0;
    double nll = r->nll_tokens > 0 ? r->sums[NDP_PAIR_NLL] / (double)r->nll_tokens : 0;
    return pairs + p->sft_weight * nll;
}

/* Where the time of steps went, in seconds, summed since the last reset. `op` is by the device's clock, and complete
 * when no step is pending; all else by the host's, which on a device with queues only submits. */
typedef struct ndp_profile {
    double phase[NDP_PHASES]; /* of units, including their communication */
    double begin, wait;       /* in begins and waits of all collectives */
    double in_units;          /* the part of `wait` that is inside units, and so in `phase` */
    double under_way;         /* sum over all collectives: from the begin to the end of the wait */
    double own;               /* kernels of the program itself: loss scale, norm, clipping, update */
    double total;
    double op[NDP_OP_COUNT];     /* by ndp_op_id; of a collective, in its begins and waits */
    double flight[NDP_OP_COUNT]; /* `under_way` by the collective's ndp_op_id */
    int64_t steps;
} ndp_profile;

/* Rows of a micro-batch that have labels, with all their logits: what a loss that is a function of logits is of
 * (ndp_model_opts.row_loss). It writes the losses, and their derivatives by logits to `slopes`; both are zeroed. */
typedef struct ndp_loss_rows {
    int micro_batch;
    int64_t n, vocab;
    ndp_dtype type;        /* of logits and slopes: fp32, or fp64 of models in fp64 */
    const int64_t *places; /* [n] the row of the micro-batch */
    const int32_t *labels; /* [n] */
    const void *logits;    /* [n, vocab] */
    void *slopes;          /* [n, vocab] */
    double *losses;        /* [n] */
} ndp_loss_rows;
typedef struct ndp_loss_function {
    void (*run)(void *user, const ndp_loss_rows *rows); /* NULL: cross-entropy */
    void *user;
} ndp_loss_function;

/* An update may be made of several calls, each a whole schedule: all but the first add to its gradients (`adds`), and
 * all but the last leave it open. A call that leaves it open ends after its loss: replicas have not summed their
 * gradients, nothing is sent beyond the call's own, and there is no norm. ndp_engine_norm does what is missing. */
typedef struct ndp_step_input {
    double lr;
    int64_t update;      /* counts from 0 */
    bool update_weights; /* false: the program ends before the updates */
    bool adds, open;     /* `open`: update_weights is not read */
    bool own_norm;       /* the two numbers below, in place of those of the program: */
    double max_norm;     /* of the gradient; 0: no clipping */
    double scale;        /* what the gradient is multiplied by, before its norm */
    /* Called on each rank that has rows of the head, ranks of the tensor axis with the same; by the thread that submits
     * the step. Of models with row_loss. */
    ndp_loss_function loss;
} ndp_step_input;
enum { NDP_STEPS_PENDING = 2 };
/* Submits one step. Collective over the world. At most NDP_STEPS_PENDING steps may have untaken results. Gradients
 * (sums before clipping) can be read until the next step. */
NDP_API ndp_status ndp_engine_submit(ndp_engine *e, const ndp_step_input *in);
/* Waits for the oldest step whose result is untaken, and takes it. The caller may submit the next step first, so that a
 * device with a queue of its own never idles while the host writes a log line. */
NDP_API ndp_status ndp_engine_result(ndp_engine *e, ndp_step_result *out);
/* The rest of an update whose calls all left it open: sums over replicas, the norm, and the factor of clipping.
 * *norm: after `in->scale`. No step is pending. Collective over the world. */
NDP_API ndp_status ndp_engine_norm(ndp_engine *e, const ndp_step_input *in, double *norm);
/* The updates of the newest step, whose result was taken and which was submitted without them; `in` as then. Collective
 * over the world. */
NDP_API ndp_status ndp_engine_update(ndp_engine *e, const ndp_step_input *in);
/* Submits a step and takes its result. */
NDP_API ndp_status ndp_engine_step(ndp_engine *e, double lr, int64_t update, bool update_weights, ndp_step_result *out);

const ndp_profile *ndp_engine_profile(const ndp_engine *e);
/* `by_op`: also times each op of steps that are submitted from now on; allocates, as steps do not. No step with timed
 * ops is pending. NDP_ENOMEM. */
NDP_API ndp_status ndp_engine_profile_reset(ndp_engine *e, bool by_op);

/* Records when each instruction of the newest step runs, from the next step on. Allocates; steps do not. NDP_ENOMEM. */
NDP_API ndp_status ndp_engine_record(ndp_engine *e);
/* The same of each of the updates `first` to `last`, counted from 0, and of no others. last < 0: of the newest step. */
NDP_API ndp_status ndp_engine_record_updates(ndp_engine *e, int64_t first, int64_t last);
/* The times of the newest recorded step's first *n instructions, in the order of execution. *n 0: no step was recorded.
 * Borrowed. */
const ndp_instr_time *ndp_engine_recorded(const ndp_engine *e, int64_t *n);
/* Those of one of the updates of ndp_engine_record_updates. *n 0: it was not recorded. Borrowed. */
const ndp_instr_time *ndp_engine_recorded_update(const ndp_engine *e, int64_t update, int64_t *n);

/* What its device says that it is (device/device.h). */
void ndp_engine_device_name(const ndp_engine *e, char text[NDP_DEVICE_NAME]);
/* Joules that its device has drawn since the first call (device/energy.h). */
double ndp_engine_energy(ndp_engine *e);

/* ---- inference (one rank, modes SCORE and CACHED) ---- */

/* Zeroed memory of the device that lives as long as the engine. */
NDP_API ndp_status ndp_engine_map(ndp_engine *e, size_t bytes, void **out);
/* Makes memory of the device the input of that name of one unit (an index among all units). Borrowed. */
NDP_API ndp_status ndp_engine_lend(ndp_engine *e, int unit, const char *name, void *memory);
/* Copies row `row` of the last step's logits [T,V], in compute storage (mode CACHED). */
NDP_API ndp_status ndp_engine_logits(const ndp_engine *e, int64_t row, void *host);

#endif
