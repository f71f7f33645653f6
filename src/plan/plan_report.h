/* A plan in its two forms, written side by side: text for people, one object for programs (plan_json.c). Inside plan.
 */
#ifndef NDP_PLAN_PLAN_REPORT_H
#define NDP_PLAN_PLAN_REPORT_H

#include "base/json_write.h"
#include "job/job_data.h"
#include "plan/plan_parts.h"

/* What the data say of the whole run; without data nothing. */
typedef struct ndp_plan_rows {
    int steps;         /* 0: not known */
    int64_t passes;    /* that an evaluation takes (score/held_out.c); 0: not known */
    int micro_batches; /* of a pass: as many as it is planned with, or fewer where no source has the rows */
} ndp_plan_rows;

typedef struct ndp_plan_report {
    ndp_str text;
    ndp_json_out json; /* the members of an object */
    ndp_plan_rows rows;
    double save; /* seconds of one, once it is written */
} ndp_plan_report;

/* Where a plan goes: both forms, and the entries of "results". */
typedef struct ndp_plan_output {
    ndp_plan_report report;
    ndp_json_out results;
    int n;                                                /* of them */
    double first_seconds;                                 /* a step of the first */
    double scale;                                         /* of all times, by the anchor; 1 without one */
    int considered, priced, by_memory, by_rule, by_bound; /* candidates of a search */
    ndp_json_out search;                                  /* members that only a search has, of the next result */
    bool filled;                                          /* report.json has the members of a layout */
    const struct ndp_cluster_plan *links; /* the cluster, which is open already; NULL: the options name it */
} ndp_plan_output;
void ndp_plan_report_release(ndp_plan_report *r);

/* Fills all of it with one job (plan.c). */
ndp_status ndp_plan_report_job(const ndp_job *j, const ndp_plan_opts *o, ndp_plan_output *out);

/* Changes a job to one that the cluster of the options runs: on its kind of device, and as many ranks as it has, where
 * nothing says otherwise. NDP_EINVAL: there is no such cluster. */
ndp_status ndp_plan_take_cluster(const ndp_plan_opts *o, ndp_config *c);
/* The fastest layouts of a job on the clusters of the options, in each of their sizes (search_machines.c). NDP_EINVAL:
 * none fits. */
ndp_status ndp_plan_search(const ndp_config *c, const ndp_plan_opts *o, ndp_plan_output *out);

/* Seconds of a save of so many bytes, of all ranks, if the disk takes NDP_SAVE_RATE from each node. */
#define NDP_SAVE_RATE 1e9
static inline double ndp_plan_save_seconds(const ndp_dry_run *d, int64_t bytes) {
    int world = d->job->world;
    return (double)bytes * (d->per_node < world ? d->per_node : world) / world / NDP_SAVE_RATE;
}

/* "model", "layout", "batch" */
void ndp_plan_put_job(ndp_json_out *o, const ndp_job *j);
/* "data", its lines and its rows, of the head of the data (plan_data.c). */
ndp_status ndp_plan_data(const ndp_job *j, ndp_plan_report *out);
/* The sizes of the layout, members of an object. */
void ndp_plan_put_sizes(ndp_json_out *o, const ndp_job *j);
/* "rows" */
void ndp_plan_put_cut(ndp_json_out *o, const ndp_row_cut *r);
/* Bytes by class, members of an object; returns their sum. */
size_t ndp_plan_put_classes(ndp_json_out *o, const ndp_budget *b);
/* "memory", bytes of the rank that is shown */
void ndp_plan_put_memory(ndp_json_out *o, const ndp_budget *b, const ndp_engine_memory *score,
                         const ndp_engine_memory *texts, int64_t nccl);
/* "holds": what ndp_holding_read finds. */
NDP_API ndp_status ndp_plan_put_holding(ndp_json_out *o, const ndp_dry_run *d, const ndp_model *whole, int rank);
/* "pipeline": the first rank of each place on pp, of these programs. */
void ndp_plan_put_pipeline(ndp_json_out *o, const ndp_job *j, const ndp_program *const *programs, int n);

/* Builds the programs of the ranks that stand for all, checks them against each other, proves their sums complete
 * (placement/placement.h), and appends what the stages of a pipeline have and need, and what was checked. NDP_EBUG,
 * NDP_EINVAL, NDP_ENOMEM, NDP_EIO. */
NDP_API ndp_status ndp_plan_check(const ndp_dry_run *d, const ndp_model *m, const ndp_plan_extras *extras,
                                  ndp_plan_report *out);

#endif
