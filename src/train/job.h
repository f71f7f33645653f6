/* A job: what follows from a configuration before any data or weights are loaded: the model's facts, the layout, the
 * batch, the shapes. Training, dry runs and plans begin here. Of the model config.json is read, and only where that
 * ties the head to the embedding also the files of weights, which may hold a head of their own (train/folder_facts.h).
 */
#ifndef NDP_TRAIN_JOB_H
#define NDP_TRAIN_JOB_H

#include "config/config.h"
#include "step/engine.h"

typedef struct ndp_job {
    const ndp_config *config; /* borrowed */
    char *facts_path;         /* the config.json */
    ndp_facts facts;
    ndp_layout layout;
    int world;
    ndp_batch_plan batch;
    ndp_model_opts model;
    int split_sums; /* of the kernels (ops/op.h); no configuration asks for it */
} ndp_job;

/* Checks the configuration, reads config.json, resolves layout and batch for `world` ranks (0: what the configuration
 * asks for). Sequence longer than the model's: NDP_EINVAL unless model.allow_longer. */
NDP_API ndp_status ndp_job_init(const ndp_config *c, int world, ndp_job *out);
void ndp_job_release(ndp_job *j);
/* NDP_EIO where weights are to be loaded and model.path has none. Comes before the tokenizer, which such a folder often
 * lacks too: the weights are the larger mistake. */
NDP_API ndp_status ndp_job_find_weights(const ndp_job *j);

/* The section optimizer of a configuration. */
ndp_optimizer_opts ndp_job_optimizer(const ndp_config *c);

/* Engine options of one rank; transport, device and threads are the caller's. */
NDP_API ndp_status ndp_job_engine(const ndp_job *j, int rank, ndp_engine_opts *out);

/* A model for forward passes over held-out rows, and options of an engine that reads the weights of `trained` (NULL:
 * has its own); transport, device and threads are the caller's, who releases the model. */
NDP_API ndp_status ndp_job_score(const ndp_job *j, int rank, const ndp_engine *trained, ndp_model *m,
                                 ndp_engine_opts *out);

/* Bytes of one rank's memory, of `node_ranks` on its node, from its programs (plan.c): training and what is held out,
 * or with `forward_only` the latter alone. Takes and opens nothing. */
NDP_API ndp_status ndp_job_rank_memory(const ndp_job *j, int rank, int node_ranks, bool forward_only, int64_t *bytes);
/* Bytes that all ranks take together on one node, from their programs (plan.c). Takes and opens nothing. */
NDP_API ndp_status ndp_job_memory(const ndp_job *j, int64_t *bytes);

/* Lines "note: ..." on what is done otherwise than config.json says; none in most jobs. */
void ndp_job_notes(const ndp_job *j, ndp_str *out);

/* "global batch 16 samples = micro batch 2 x 4 data ranks x accumulation 2" */
void ndp_job_describe(const ndp_job *j, ndp_str *out);

#endif
