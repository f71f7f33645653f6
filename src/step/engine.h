/* The engine: one rank's program with its memory, communicators and kernels, ready to run. */
#ifndef NDP_STEP_ENGINE_H
#define NDP_STEP_ENGINE_H

#include "base/log.h"
#include "device/device.h"
#include "parallel/apply.h"
#include "step/program.h"

typedef struct ndp_engine ndp_engine;

typedef struct ndp_engine_opts {
    const ndp_model *model; /* the whole one; borrowed */
    ndp_mesh mesh;
    ndp_parallel parallel;
    ndp_transport *transport; /* borrowed; NULL: plan only */
    const ndp_device *device;
    int node_ranks; /* 0: what the transport says */
    int threads;
    int split_sums; /* of the kernels (ops/op.h) */
    int accumulation;
    bool reshard, recompute;
    const ndp_schedule *schedule; /* borrowed; NULL: one stage, micro-batches in order */
    ndp_optimizer_opts optimizer;
    /* Reads the weights of that engine where they lie instead of having its own: same facts, types, mesh and ways of
     * the axes; this one's mode is SCORE or CACHED. The other one's are published, and its steps and this one's do not
     * overlap. Borrowed; NULL: own weights. */
    const struct ndp_engine *weights_of;
} ndp_engine_opts;

/* Collective over the world. Lowers the units, builds the program, takes the memory (none on `null`). */
NDP_API ndp_status ndp_engine_create(const ndp_engine_opts *opts, ndp_engine **out);
/* Collective over the world when all is well. */
void ndp_engine_destroy(ndp_engine *e);

const ndp_program *ndp_engine_program(const ndp_engine *e);
/* What this rank computes: its tables and graphs. Lives as long as the engine. */
const ndp_model *ndp_engine_model(const ndp_engine *e);
/* The whole model, as no rank may hold it. Borrowed from the options. */
const ndp_model *ndp_engine_whole(const ndp_engine *e);

/* ---- weights, gradients, optimizer state: this rank's pieces ---- */

typedef enum ndp_owned_kind { NDP_OWNED_MASTER, NDP_OWNED_GRAD, NDP_OWNED_STATE0, NDP_OWNED_STATE1 } ndp_owned_kind;
/* True when this rank keeps something of that kind for a buffer. */
bool ndp_engine_has(const ndp_engine *e, ndp_owned_kind kind, int buffer);
/* Its storage type. */
ndp_dtype ndp_engine_type(const ndp_engine *e, ndp_owned_kind kind, int buffer);
const ndp_shard *ndp_engine_shard(const ndp_engine *e, int buffer);
/* Copies n elements of this rank's slice, `stride` apart from element `first` on, to the host's memory, where they
 * follow each other, or from there. Waits for the steps that were submitted. */
NDP_API ndp_status ndp_engine_read(const ndp_engine *e, ndp_owned_kind kind, int buffer, int64_t first, int64_t n,
                                   int64_t stride, void *host);
NDP_API ndp_status ndp_engine_write(ndp_engine *e, ndp_owned_kind kind, int buffer, int64_t first, int64_t n,
                                    int64_t stride, const void *host);
/* After the master weights were written: makes the copies that ops read. Every rank must have called it before any
 * steps (the next step's gathers see to that). */
NDP_API ndp_status ndp_engine_publish(ndp_engine *e);

/* ---- batches ---- */

/* A micro-batch, whole, as all ranks with the same samples read it: `rows` entries each, at most opts.rows; the rest is
 * padding. */
typedef struct ndp_micro_batch {
    const int32_t *tokens;
    const int32_t *labels;    /* NULL: none */
    const int32_t *positions; /* in the document; NULL: first_row on */
    const int32_t *starts;    /* the first row that one may see; NULL: 0 */
    int64_t rows;             /* 0: opts.rows */
    int64_t first_row;        /* the number of its row 0: with a cache, how many rows that holds */
} ndp_micro_batch;
/* Of four arrays, one after the other: tokens, labels, positions, starts, `rows` entries each. */
static inline ndp_micro_batch ndp_micro_batch_of(const int32_t *arrays, int64_t rows) {
    return (ndp_micro_batch){arrays, arrays + rows, arrays + 2 * rows, arrays + 3 * rows, rows, 0};
}
/* Writes the inputs of a micro-batch, which keeps them from step to step: this rank's part of `whole`. What is padded,
 * here or by the layout, is ignored by the loss, and sees itself alone. */
NDP_API ndp_status ndp_engine_load(ndp_engine *e, int micro_batch, const ndp_micro_batch *whole);
/* Copies an input of a micro-batch, by its name in the model's list, as the next step will see it. NDP_EINVAL: the
 * model has no such. */
NDP_API ndp_status ndp_engine_input(ndp_engine *e, int micro_batch, const char *name, int32_t *out);

/* ---- running ---- */

typedef struct ndp_step_result {
    double loss;      /* mean over all valid tokens of the update */
    double grad_norm; /* before clipping */
    int64_t tokens;   /* valid, of all ranks */
} ndp_step_result;

/* Where the time of steps went, in seconds, summed since the last reset. */
typedef struct ndp_profile {
    double phase[NDP_PHASES]; /* of units, with the communication inside them */
    double begin, wait;       /* of all collectives: beginning them, waiting for them */
    double in_units;          /* of `wait`, that inside units, which is in `phase` too */
    double under_way;         /* all collectives, each from its begin to the end of its wait */
    double own;               /* kernels of the program itself: the loss's scale, the norm, the update */
    double total;
    double op[NDP_OP_COUNT]; /* by ndp_op_id */
    int64_t steps;
} ndp_profile;

typedef struct ndp_step_input {
    double lr;
    int64_t update;      /* counts from 0 */
    bool update_weights; /* false: weights and optimizer state stay as they are */
} ndp_step_input;
enum { NDP_STEPS_PENDING = 2 };
/* Submits one update. Collective over the world. At most NDP_STEPS_PENDING may wait to have their results taken. After
 * it, gradients (unclipped sums) can still be read. */
NDP_API ndp_status ndp_engine_submit(ndp_engine *e, const ndp_step_input *in);
/* Waits for the oldest update whose result was not taken yet, and takes it: the caller may submit the next one first.
 */
NDP_API ndp_status ndp_engine_result(ndp_engine *e, ndp_step_result *out);
/* The two in one. */
NDP_API ndp_status ndp_engine_step(ndp_engine *e, double lr, int64_t update, bool update_weights, ndp_step_result *out);

const ndp_profile *ndp_engine_profile(const ndp_engine *e);
void ndp_engine_profile_reset(ndp_engine *e, bool by_op);

/* ---- inference (one rank, modes SCORE and CACHED) ---- */

/* Zeroed memory of the device that lives as long as the engine. */
NDP_API ndp_status ndp_engine_map(ndp_engine *e, size_t bytes, void **out);
/* Lends memory of the device to a unit (counted among all units) as the input of that name. Borrowed. */
NDP_API ndp_status ndp_engine_lend(ndp_engine *e, int unit, const char *name, void *memory);
/* Copies a row of the last run's logits [T,V], in compute storage (CACHED). Runs are ndp_engine_step. */
NDP_API ndp_status ndp_engine_logits(const ndp_engine *e, int64_t row, void *host);

#endif
