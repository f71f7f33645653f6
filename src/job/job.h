/* A job: everything that follows from a configuration before data or weights are loaded: what config.json says of the
 * model, the layout, the batch, the shapes. Training, dry runs and plans begin here. It reads the model's config.json
 * and, only if that ties the head to the embedding, the weights, which may contain a different head
 * (job/folder_facts.h). */
#ifndef NDP_JOB_JOB_H
#define NDP_JOB_JOB_H

#include "base/text.h"
#include "config/config.h"
#include "model/architecture.h"
#include "step/engine.h"

/* What prices take into account and programs do not have. */
typedef struct ndp_planned {
    bool fp8;            /* matrix products of units, forward and backward; programs are those of bf16 */
    bool reduce_bf16;    /* gradients between ranks: programs have fp32 */
    bool tp_reduce_bf16; /* sums over tp and sp: the same */
} ndp_planned;

typedef struct ndp_job {
    const ndp_config *config;    /* borrowed */
    char model_folder[NDP_PATH]; /* model.path, or its snapshot in the Hub cache; "" without one */
    char facts_path[NDP_PATH];   /* the config.json */
    ndp_model_spec spec;
    bool borrows_spec; /* it is another job's, which is released later */
    ndp_layout layout;
    int world;
    ndp_pipeline pipeline, forward; /* of a step, of a pass over held-out rows; no ranks where pp is 1 */
    ndp_stages stages;
    int *first_unit; /* of the stages */
    ndp_ties ties;   /* tables that two ranks of the pipeline hold */
    ndp_batch_plan batch;
    ndp_model_opts model;
    struct ndp_job_groups *groups; /* NULL: there are none */
    ndp_planned planned;
    char chosen[160]; /* a line on the micro-batch that was chosen (batch.micro_batch_size auto); "": none was */
} ndp_job;

/* Checks the configuration, reads config.json, and resolves layout and batch for `world` ranks (0: as many as the
 * configuration needs). A micro-batch that is auto is the smallest (plan/micro_batch.h). NDP_EINVAL also if sequences
 * are longer than the model's, unless model.allow_longer. Borrows the configuration. */
NDP_API ndp_status ndp_job_init(const ndp_config *c, int world, ndp_job *out);
/* The same of a job that is planned, and so needs no data; for a cluster, it may have values that cannot run. */
NDP_API ndp_status ndp_job_init_planned(const ndp_config *c, int world, bool cluster, ndp_job *out);
/* The same of a configuration that differs from that of `of`, which was checked, in sizes of the layout, micro-batch,
 * recompute and pipeline alone: reads no file. `of` stays as long. */
NDP_API ndp_status ndp_job_init_like(const ndp_job *of, const ndp_config *c, int world, ndp_job *out);
/* Makes `j` the job of such a configuration, which takes the place of its own. */
ndp_status ndp_job_change(ndp_job *j, const ndp_config *c);
void ndp_job_release(ndp_job *j);
/* A part of ndp_job_init: finds the model's folder and its config.json. NDP_EINVAL: model.path is not a folder. */
ndp_status ndp_job_find_model(ndp_job *j);
/* A part of ndp_job_init: the options of the model, for j->batch.micro_batch. */
void ndp_job_choose_model(ndp_job *j);
/* A part of ndp_job_init: the pipeline's table and stages (job_stages.c). */
ndp_status ndp_job_cut(ndp_job *j);
/* A part of ndp_job_init: the groups of tensors, for the options of the model and of the optimizer (job_groups.c). */
ndp_status ndp_job_find_groups(ndp_job *j);
void ndp_job_release_groups(ndp_job *j);
/* How tensors are updated. Borrows the job. */
ndp_optimizer_opts ndp_job_optimizer(const ndp_job *j);
/* Appends a line for each group that optimizer.groups makes: which tensors, at which rate, with which decay, by which
 * optimizer. */
void ndp_job_describe_groups(const ndp_job *j, const ndp_model *m, ndp_str *out);

/* Threads of a rank, of `node_ranks` on its node: train.threads, or its part of the node's cores. */
int ndp_job_threads(const ndp_job *j, int node_ranks);

/* Whether the job's collectives of a device are staged (train.collectives). `auto`: threads need it where each
 * has a GPU of its own, whose memory the others cannot access; processes where NCCL cannot connect them, which are
 * those that share a GPU, and those on `sim`. */
bool ndp_job_stages(const ndp_job *j);

/* Engine options of one rank, which borrow `exec`. The caller sets model and transport. */
NDP_API ndp_status ndp_job_engine(const ndp_job *j, int rank, const ndp_exec *exec, ndp_engine_opts *out);

/* Builds a model for forward passes over held-out rows, which the caller releases, and the options of an engine that
 * reads the weights of `trained` (NULL: its own). The caller sets the transport. */
NDP_API ndp_status ndp_job_score(const ndp_job *j, int rank, const ndp_exec *exec, const ndp_engine *trained,
                                 ndp_model *m, ndp_engine_opts *out);

/* Whether the loss compares with a reference model, whose log-probabilities forward passes compute. */
static inline bool ndp_job_refers(const ndp_job *j) { return ndp_preference_table[j->model.preference.kind].reference; }

/* Whether steps read the weights that the run begins from and that no checkpoint holds: those beside which an adapter
 * is trained, or those of the reference. */
static inline bool ndp_job_reads_base(const ndp_job *j) { return j->model.adapter.r > 0 || ndp_job_refers(j); }

/* Appends a line "note: ..." if calls of the user's own have fewer micro-batches than the pipeline has ranks. */
void ndp_job_note_bubble(const ndp_job *j, ndp_str *out);
/* Appends lines "note: ..." on that, and on what differs from config.json; none for most jobs. */
void ndp_job_notes(const ndp_job *j, ndp_str *out);

/* Appends the lines on model, layout and batch: "global batch 16 samples = micro batch 2 x 4 data ranks x ..." */
void ndp_job_describe(const ndp_job *j, ndp_str *out);

#endif
