/* One rank of a job, set up to train or only to evaluate: its part of the job, its world, its memory and its data, and
 * the engine that evaluates held-out rows. */
#ifndef NDP_RANK_RANK_H
#define NDP_RANK_RANK_H

#include "base/log.h"
#include "job/job_data.h"
#include "rank/choices.h"
#include "weights/run_model.h"
#include "weights/weights.h"

typedef struct ndp_rank {
    ndp_job job;
    const ndp_train_opts *opts; /* of a whole run, borrowed; else NULL */
    bool forward_only;          /* only evaluates */
    bool no_data;               /* its caller loads the batches */
    int64_t own_reference;      /* as of the options */
    ndp_transport *transport;   /* borrowed */
    ndp_exec exec;              /* of all engines */
    ndp_comm *world;
    ndp_log log;
    ndp_job_data data;
    ndp_batch_shape shape;
    int32_t *arrays;       /* of a micro-batch before the axes cut it: tokens, labels, positions, starts, samples,
                            * and of pairs documents */
    int32_t *keys;         /* of dropout, a row each; NULL: there is none */
    ndp_micro_batch whole; /* borrows them */
    /* Of mixtures that are given their choices; NULL: they choose. */
    const ndp_choices *given;
    ndp_choices of_file; /* of moe.routes */
    int32_t *choices;    /* of a micro-batch: [mixtures][rows][choices] */
    /* Rank 0: of the weights that steps read and no checkpoint holds (unsaved.c); zeros: there are none, or they are
     * random. Of model.path, and of the adapter that the run began with, where that is a part of the reference. */
    ndp_hash128 base, began_with;
    /* Of pairs (reference.c); NULL: the loss has no reference. */
    double *reference;     /* of the documents of a micro-batch */
    double *references[2]; /* of all documents of data.tokens, of data.held_tokens */
    double *scores;        /* room for those of a micro-batch */
    int64_t *rows;         /* row numbers of a micro-batch */
    int64_t planned;       /* bytes of this rank's programs */
    int64_t planned_gpu;   /* of them, those on its GPU; 0: it works on the host's memory */
    bool apart;            /* this rank failed inside a step: the ranks can do nothing together any more */
    /* Evaluates held-out rows, forward only. NULL: not built, or the job holds nothing out. */
    ndp_model score_model;
    ndp_engine *score;
    ndp_run_model *weights_of; /* has its weights; NULL: those of the engine that trains, or of model.path */
} ndp_rank;

typedef struct ndp_rank_opts {
    const ndp_train_opts *run; /* of the whole run that it is part of; NULL: none. Borrowed */
    bool forward_only;         /* only evaluates: opens only the held-out rows, in the memory of a forward pass */
    bool no_data;              /* opens no data: the caller loads the batches of a trainer (ndp_engine_load) */
    const ndp_device *device;  /* NULL: that of the configuration. Borrowed */
    int split_place;           /* of sums (device/device.h); 0: fast ones */
    /* Above 0: scores the answers of so many first samples, and of so many held-out rows of each source, itself; no
     * file of a reference is read or written. */
    int64_t own_reference;
    const ndp_choices *given; /* of mixtures of experts; NULL: those of moe.routes, or their own. Borrowed */
    bool record;              /* mixtures record what they choose by (ndp_trainer_read_router) */
    const char *weights_of;   /* forward_only: a run folder, whose checkpoint of `step` has the weights, hash-checked;
                               * NULL: those of model.path */
    int64_t step;             /* 0: the newest whole one */
} ndp_rank_opts;

/* Reads the job, compares the memory that its programs need with what this host has, and opens the data; no engine
 * yet. Collective over the world. The caller closes it, unless this fails. */
NDP_API ndp_status ndp_rank_open(const ndp_config *c, ndp_world *w, const ndp_rank_opts *o, ndp_rank *out);
/* Accepts {0}. */
void ndp_rank_close(ndp_rank *r);

/* rows.c: opens r->data, or only its held-out rows if r->forward_only, or nothing if r->no_data. Collective. */
NDP_API ndp_status ndp_rank_open_data(ndp_rank *r);
/* Fills r->whole with a micro-batch of rows of the data set; rows[j] < 0 stands for an empty row, nothing to predict.
 */
NDP_API ndp_status ndp_rank_load_rows(const ndp_rank *r, const ndp_dataset *d, const int64_t *rows);

/* Sets the keys of dropout of sample j of the micro-batch, the run's sample number `sample`: words of (seed, sample,
 * position), the same on every layout and after a resume. Does nothing without dropout. */
void ndp_rank_draw_keys(const ndp_rank *r, int64_t j, int64_t sample);

/* choices.c: reads moe.routes, and takes room for the choices of a micro-batch, where the model is given them. */
NDP_API ndp_status ndp_rank_open_choices(ndp_rank *r, const ndp_model *m);
/* Sets the choices of sample j of the micro-batch: those of sample `sample` of the update. Does nothing where mixtures
 * choose by themselves. */
void ndp_rank_draw_choices(const ndp_rank *r, int64_t j, int64_t update, int64_t sample);

/* Proves the programs again where the engine had to plan them for fewer ranks that share memory than the world was
 * proven for when it opened. Collective. */
NDP_API ndp_status ndp_rank_prove_again(const ndp_rank *r, const ndp_engine *e);

/* rank_memory.c: NDP_EINVAL if this host has less memory than its ranks have planned. Collective, so that no rank
 * allocates while another one still measures. */
NDP_API ndp_status ndp_rank_check_memory(const ndp_rank *r);

/* held_out.c: builds r->score. It reads the weights of `trained` in place, or loads its own if that is NULL. Does
 * nothing if the job holds nothing out. */
NDP_API ndp_status ndp_rank_build_score(ndp_rank *r, const ndp_engine *trained);
/* Destroys r->score, which must happen before `trained` is destroyed. */
void ndp_rank_destroy_score(ndp_rank *r);
/* Adds to *sums what the held-out rows of one source have, or the `most` first ones (0: all): tokens and the sum of
 * their nll, or pairs and their sums. Collective; all ranks return the same status if one cannot read its rows. */
NDP_API ndp_status ndp_rank_score(ndp_rank *r, int source, int64_t most, ndp_step_result *sums);
/* The mean loss of what was counted. */
double ndp_rank_loss_of(const ndp_rank *r, const ndp_step_result *sums);
/* One pass of an engine over rows [at, end) of a data set, as many as it takes. Collective. */
ndp_status ndp_rank_score_pass(ndp_rank *r, ndp_engine *e, const ndp_dataset *d, int64_t at, int64_t end,
                               ndp_step_result *out);

/* unsaved.c: sets r->base and r->began_with. Reads all of these weights; called on rank 0. NDP_EIO, and the errors of
 * an adapter's folder. */
NDP_API ndp_status ndp_rank_hash_unsaved(ndp_rank *r);

/* reference.c: where the loss has a reference model, finds or computes the log-probabilities of all documents under it,
 * once. Call it while the engine that trains has its initial weights, and rank 0 their hashes. Collective. */
NDP_API ndp_status ndp_rank_find_references(ndp_rank *r);
/* Whether this rank has the scores of its micro-batches' answers: it has the head. */
bool ndp_rank_has_scores(const ndp_engine *e);

#endif
