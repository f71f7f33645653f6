/* A layout on a cluster: what it is, and whether its fullest rank fits a device; the entries of "results" in a plan's
 * JSON. Inside plan. */
#ifndef NDP_PLAN_RESULT_H
#define NDP_PLAN_RESULT_H

#include "plan/cluster_plan.h"
#include "plan/plan_report.h"

/* What a rank has of a device. */
typedef struct ndp_plan_capacity {
    int64_t bytes;   /* 0: not known */
    int64_t runtime; /* of them, what the runtime takes */
} ndp_plan_capacity;
/* train.gpu_memory, or what the cluster's device has; of a host that its ranks share, a rank's part. Programs for
 * processors on a cluster of GPUs: not known. */
ndp_plan_capacity ndp_plan_capacity_of(const ndp_dry_run *d, const ndp_cluster *c);
static inline bool ndp_plan_fits(const ndp_plan_capacity *c, const ndp_plan_need *n) {
    return c->bytes == 0 || n->peak + c->runtime <= c->bytes;
}

/* Nodes that have a rank, or are before one that has. */
int ndp_plan_nodes(const ndp_rank_map *m);

/* Of a run of so many steps: how many saves it makes. */
static inline int ndp_plan_saves(const ndp_config *c, int steps) {
    return 1 + (c->checkpoint.every ? steps / c->checkpoint.every : 0);
}

/* Appends a block of text and an entry to the list; where it does not fit, the nearest changes that do (nearest.c). */
ndp_status ndp_plan_put_result(const ndp_dry_run *d, const ndp_model *m, ndp_cluster_plan *links,
                               const ndp_plan_need *need, ndp_plan_output *out);

/* Tries changes of a job that does not fit, each by building the programs that would run, and appends those that do:
 * less kept for the backward, smaller micro-batches, smaller states, adapters, more nodes, shorter rows. */
ndp_status ndp_plan_put_nearest(const ndp_dry_run *d, const ndp_cluster_plan *links, ndp_str *out, ndp_json_out *json);

#endif
