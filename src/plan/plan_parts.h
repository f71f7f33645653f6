/* Inside plan: programs of ranks that do not run (dry_run.c), and the check of a whole world (plan_check.c). */
#ifndef NDP_PLAN_PLAN_PARTS_H
#define NDP_PLAN_PLAN_PARTS_H

#include "graph/price.h"
#include "plan/job_memory.h"

/* How the programs of a job's ranks are built: for its device, which executes nothing. Stays where it was initialised:
 * `exec` has the address of `device`. */
typedef struct ndp_dry_run {
    const ndp_job *job;
    int per_node; /* ranks */
    ndp_device device;
    ndp_exec exec;
    /* Other than 0, of trials alone: ALWAYS is faster, and may say some parts in a thousand more memory than a run has.
     */
    ndp_folding_rule fold;
    size_t enough;     /* of ndp_plan_fullest: bytes of a rank that needs no more are not planned any better */
    bool only_fullest; /* nor those of a rank that is not the fullest, which rank `likely` may be */
    int likely;
    int64_t most;      /* bytes of a rank that needs more end the search for the fullest; at most 0: none do */
    bool unplaced;     /* of trials of time alone: memory is the least that a plan needs (ndp_step_opts) */
    ndp_engine **kept; /* by place on pp, of its first rank, for the model `of`; NULL: none are kept */
    const ndp_model *of;
} ndp_dry_run;

/* NDP_EINVAL: there is no such device. */
ndp_status ndp_dry_run_init(ndp_dry_run *d, const ndp_job *j, int per_node, int split_place);
ndp_status ndp_dry_run_at(ndp_dry_run *d, const ndp_job *j, const ndp_program_place *at);

/* Ranks of a node where no cluster says so: as stated, or one node for up to 8 ranks, else 8. */
static inline int ndp_plan_per_node(const ndp_job *j, const ndp_plan_opts *o) {
    return o->ranks_per_node ? o->ranks_per_node : j->world <= 8 ? j->world : 8;
}

/* Builds the program of one rank. */
ndp_status ndp_plan_engine(const ndp_dry_run *d, const ndp_model *m, int rank, ndp_engine **out);
/* The same; its memory is not planned any better than to need `enough` bytes. */
ndp_status ndp_plan_engine_in(const ndp_dry_run *d, const ndp_model *m, int rank, size_t enough, ndp_engine **out);
/* From now on ndp_plan_engine builds the programs of the first ranks of stages once, until the release, which comes
 * before that of the model. NDP_ENOMEM. */
ndp_status ndp_dry_run_keep(ndp_dry_run *d, const ndp_model *m);
void ndp_dry_run_release(ndp_dry_run *d);

/* The engine of a rank for forward passes over held-out rows, with the weights of `trained` (NULL: its own), and its
 * model, both the caller's; *out NULL: the job holds nothing out. ndp_plan_score: what it needs beside `trained`. */
ndp_status ndp_plan_score_engine(const ndp_dry_run *d, int rank, const ndp_engine *trained, ndp_model *m,
                                 ndp_engine **out);
ndp_status ndp_plan_score(const ndp_dry_run *d, int rank, const ndp_engine *trained, ndp_engine_memory *out);
/* What NCCL takes of the GPU for an engine (comm/nccl/nccl_memory.h), where it moves the tensors; the engines that
 * score use the communicators of the one that trains. */
int64_t ndp_plan_nccl(const ndp_dry_run *d, const ndp_engine *e);
/* Whether a rank has nothing but its training program, in memory of its own. */
bool ndp_plan_trains_alone(const ndp_dry_run *d);
/* What the first rank of each data rank needs for train.own_generate. NDP_ENOTSUP: the model is no decoder. */
ndp_status ndp_plan_texts(const ndp_dry_run *d, ndp_engine_memory *out);

/* One simulated step of the ranks that stand for all. */
typedef struct ndp_plan_trial {
    double seconds;         /* at the price that was given */
    double waits, bubble;   /* the mean share of it that a rank waits: for anything, for other stages of the pipeline */
    int64_t device, pinned; /* bytes of the rank that needs the most */
} ndp_plan_trial;
/* Builds the programs of one rank of each stage and size of parts, fewer than a check does, and proves nothing. */
ndp_status ndp_plan_try(const ndp_dry_run *d, const ndp_model *m, const ndp_price *price, ndp_plan_trial *out);

/* What a job needs, by its own programs, as ndp_propose_layouts has it (propose.c). */
ndp_status ndp_propose_job(const ndp_job *j, const ndp_propose_opts *o, ndp_proposal *out);

/* What the fullest of a job's ranks needs. */
typedef struct ndp_plan_need {
    int rank, stage; /* `stage`: the first of those that it holds */
    int64_t peak;    /* bytes of its device: with those for held-out rows, and to continue texts; on a device that works
                        on the host's memory also what ranks communicate through */
    int64_t nccl;    /* what NCCL takes of its GPU besides (ndp_plan_nccl) */
    ndp_budget budget;
} ndp_plan_need;
/* Of one rank of each stage and size of parts, whose programs are built and not proven. */
ndp_status ndp_plan_fullest(const ndp_dry_run *d, const ndp_model *m, ndp_plan_need *out);

/* What a check of a world also writes. */
typedef struct ndp_plan_extras {
    const char *timeline;                 /* a path: a simulated step; NULL: no */
    const char *placements;               /* a unit, "all": what ranks have of its values; NULL: no */
    const struct ndp_device_price *price; /* of the timeline's calls; NULL: constants that stand for a machine */
    bool prices;                          /* a large world is not proven, and its first ranks stand for all */
} ndp_plan_extras;

#endif
