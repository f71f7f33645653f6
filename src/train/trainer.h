/* Inside the train room: one rank of a run. */
#ifndef NDP_TRAIN_TRAINER_H
#define NDP_TRAIN_TRAINER_H

#include "checkpoint/lock.h"
#include "device/peak.h"
#include "train/job_data.h"
#include "train/weights.h"

struct ndp_trainer {
    ndp_job job;
    const ndp_train_opts *opts; /* of a whole run, borrowed; NULL */
    const ndp_lock *lock;       /* of a whole run, held by rank 0, borrowed; NULL */
    bool forward_only;          /* evaluates and never trains: `engine` is NULL, `score` has weights of its own */
    ndp_transport *transport;   /* borrowed */
    ndp_comm *world;
    ndp_log log;
    ndp_model model;
    ndp_engine *engine;
    ndp_job_data data;
    ndp_batch_shape shape;
    ndp_micro_batch whole; /* of one micro-batch, before it is cut */
    int64_t *rows;         /* of a micro-batch: room for their numbers */
    int threads;
    int64_t planned;              /* bytes of this rank's programs */
    int64_t updates, samples;     /* made; drawn: the cursor */
    struct json_object *accepted; /* rank 0: changes that resumed runs accepted (identity.h); NULL: none */
    ndp_save_cost saved;          /* of the last save */
    struct {
        ndp_peak *own;       /* of this rank's threads; NULL outside of a whole run, which alone reports mfu */
        double share;        /* of it that this rank's cores allow */
        double flops, first; /* of all ranks: after the last step (0: not measured), at the start */
        int threads, cores;  /* of all ranks */
    } peak;
    /* Evaluates held-out rows, forward only, on the weights of `engine`. NULL when nothing is held out. */
    ndp_model score_model;
    ndp_engine *score;
};

/* ndp_trainer_create: as part of a whole run, `o` (NULL: of none); with kernels that split their sums (ops/op.h), or
 * not.
 */
NDP_API ndp_status ndp_trainer_open(const ndp_config *c, ndp_world *w, const ndp_train_opts *o, int split_sums,
                                    ndp_trainer **out);
/* One that evaluates and never trains: it opens the held-out rows alone and takes memory for a forward pass. */
NDP_API ndp_status ndp_trainer_open_forward(const ndp_config *c, ndp_world *w, ndp_trainer **out);

/* A line that says which kernels this rank runs: other kernels, other bits. */
void ndp_trainer_describe_kernels(const ndp_trainer *t, ndp_str *out);

/* Learning rate of update `update`, 0 the first, in a run of configuration `c`. */
double ndp_trainer_lr(const ndp_config *c, int64_t update);
/* Numbers of the rows of micro-batch m that this rank reads in the next update; rows: t->shape.micro of them. */
void ndp_trainer_draw_rows(const ndp_trainer *t, int m, int64_t *rows);

/* Whether this host has the memory that its ranks have planned. Collective over t->world: no rank takes memory while
 * another one still looks. */
NDP_API ndp_status ndp_trainer_check_memory(const ndp_trainer *t);
/* data.c: opens t->data: all of it, or what is held out if t->forward_only. Collective over t->world. */
NDP_API ndp_status ndp_trainer_open_data(ndp_trainer *t);
/* Fills t->whole with a micro-batch of the data set's rows; rows[j] < 0 is one without a token to predict. */
NDP_API ndp_status ndp_trainer_load_rows(const ndp_trainer *t, const ndp_dataset *d, const int64_t *rows);

/* held_out.c: the engine that evaluates; after t->engine. */
NDP_API ndp_status ndp_trainer_build_score(ndp_trainer *t);

/* mfu.c: what mfu divides by, t->peak.flops. Collective over t->world. */
NDP_API ndp_status ndp_trainer_measure_peak(ndp_trainer *t);
/* A line for a person, the caller's; NULL without memory. */
char *ndp_trainer_describe_peak(const ndp_trainer *t);
/* This rank's part of t->peak.flops, measured a little more. */
double ndp_trainer_own_peak(ndp_trainer *t);

#endif
