/* One rank of a job, set up to train or only to evaluate: its part of the job, its world, its memory and its data. */
#ifndef NDP_RANK_RANK_H
#define NDP_RANK_RANK_H

#include "base/log.h"
#include "batch/feed.h"
#include "job/job_data.h"
#include "plan/job_memory.h"
#include "weights/run_model.h"
#include "weights/weights.h"

typedef struct ndp_rank {
    ndp_job job;
    ndp_config chosen;          /* the job's, where its micro-batch was auto; else {0} */
    const ndp_train_opts *opts; /* of a whole run, borrowed; else NULL */
    bool forward_only;          /* only evaluates */
    bool no_data;               /* its caller loads the batches */
    int64_t own_reference;      /* as of the options */
    ndp_transport *transport;   /* borrowed */
    ndp_exec exec;              /* of all engines */
    ndp_comm *world;
    ndp_log log;
    ndp_job_data data;
    ndp_feed feed;
    /* Rank 0: of the weights that steps read and no checkpoint holds (unsaved.c); zeros: there are none, or they are
     * random. Of model.path, and of the adapter that the run began with, where that is a part of the reference. */
    ndp_hash128 base, began_with;
    ndp_mean_memory planned;   /* of this host's ranks */
    bool background;           /* there is memory for the copies of saves that are written while steps go on */
    int64_t planned_gpu;       /* of them, those on its GPU; 0: it works on the host's memory */
    bool apart;                /* this rank failed inside a step: the ranks can do nothing together any more */
    ndp_run_model *weights_of; /* of an evaluation: a checkpoint; NULL: the weights of model.path */
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

/* tokens.c: opens r->data, or only its held-out rows if r->forward_only, or nothing if r->no_data. Collective. */
NDP_API ndp_status ndp_rank_open_data(ndp_rank *r);

/* Proves the programs again where the engine had to plan them for fewer ranks that share memory than the world was
 * proven for when it opened. Collective. */
NDP_API ndp_status ndp_rank_prove_again(const ndp_rank *r, const ndp_engine *e);

/* rank_memory.c: NDP_EINVAL if this host has less memory than its ranks have planned. Collective, so that no rank
 * allocates while another one still measures. */
NDP_API ndp_status ndp_rank_check_memory(const ndp_rank *r);
/* rank.c: bytes of this host's ranks, and of this rank's GPU (0: it works on the host's memory), from programs that are
 * built for that and thrown away. */
ndp_status ndp_rank_plan_memory(const ndp_rank *r, const ndp_job *j, ndp_mean_memory *host, int64_t *gpu);
/* rank_memory.c: where the job's micro-batch is auto, takes the largest with which no rank has less memory than it
 * needs, by the comparison of ndp_rank_check_memory; *fits: there is one, or the micro-batch is a number. Collective.
 */
ndp_status ndp_rank_choose_rows(ndp_rank *r, bool *fits);

/* rank_memory.c: sets r->background, where the job may have it and this is a whole run. Collective. */
ndp_status ndp_rank_choose_saves(ndp_rank *r);

/* unsaved.c: sets r->base and r->began_with. Reads all of these weights; called on rank 0. NDP_EIO, and the errors of
 * an adapter's folder. */
NDP_API ndp_status ndp_rank_hash_unsaved(ndp_rank *r);

#endif
