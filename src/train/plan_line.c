/* The line that compares a run with its plan (ndp_train_opts.cluster): rank 0 plans the step before the first one,
 * keeps the seconds of a few steps, and says both. With --profile or --trace the engine times its ops, so that the line
 * also names the part that differs most. */
#include "measure/median.h"
#include "ops/devices.h"
#include "plan/step_time.h"
#include "train/loop.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WARM_UP = 5 }; /* steps of a process that are not compared */

/* ---- before the steps ---- */

ndp_status ndp_loop_check_cluster(const ndp_training_loop *l, int world) {
    ndp_cluster k;
    ndp_rank_map map = {0};
    ndp_device d;
    if (!l->opts->cluster)
        return NDP_OK;
    const char *device = ndp_device_names[l->config->train.device];
    NDP_TRY(ndp_device_find_plan(device, &d));
    NDP_TRY(ndp_cluster_find(l->opts->cluster, &k));
    ndp_status st = ndp_rank_map_fill(&k, world, &map);
    if (st == NDP_OK && d.host_memory != ndp_cluster_of_hosts(&k))
        st = NDP_FAIL(NDP_EINVAL,
                      "the run is on device %s, and the devices of the cluster %s are %s: name one of its own", device,
                      l->opts->cluster, k.device);
    ndp_rank_map_release(&map);
    ndp_cluster_release(&k);
    return st;
}

/* The parts that a plan and a profile both have. */
static const char *const part_names[NDP_COMPARED_PARTS] = {"matmul", "attention", "memory_bound", "communication",
                                                           "other"};
enum { MATMUL, ATTENTION, MEMORY_BOUND, COMMUNICATION, OTHER };

/* An update is bound by memory, but for the products of muon, which are a part of the optimizer. Launches are no op's.
 */
static int part_of_time(int part) {
    switch (part) {
    case NDP_TIME_MATMUL:
        return MATMUL;
    case NDP_TIME_ATTENTION:
        return ATTENTION;
    case NDP_TIME_MEMORY_BOUND:
    case NDP_TIME_OPTIMIZER:
        return MEMORY_BOUND;
    case NDP_TIME_LAUNCH:
    case NDP_TIME_FIXED:
        return OTHER;
    default:
        return COMMUNICATION; /* and waiting for other stages */
    }
}

static int part_of_op(int op) {
    static const int of_kind[] = {
        [NDP_KERNEL_MATMUL] = MATMUL, [NDP_KERNEL_ATTENTION] = ATTENTION, [NDP_KERNEL_MEMORY] = MEMORY_BOUND};
    if (ndp_op_kinds[op] == NDP_KIND_COLLECTIVE)
        return COMMUNICATION;
    return op == NDP_OP_newton_schulz ? MEMORY_BOUND : of_kind[ndp_op_kernel_kind(op)];
}

ndp_status ndp_loop_plan_step(ndp_training_loop *l) {
    ndp_step_time t;
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    o.cluster = l->opts->cluster;
    if (!o.cluster)
        return NDP_OK;
    NDP_TRY(ndp_plan_step_time(&l->trainer->rank.job, &o, &t));
    l->planned.seconds = t.seconds;
    for (int k = 0; k < NDP_TIME_PARTS; k++)
        l->planned.part[part_of_time(k)] += t.parts[k];
    return NDP_OK;
}

/* ---- after a step ---- */

/* What this rank's ops took since the last call. The rest of its step is the last part. */
static void take_parts(ndp_training_loop *l, double step, int at) {
    const ndp_profile *p = ndp_engine_profile(l->trainer->engine);
    double sums[NDP_COMPARED_PARTS] = {0}, rest = step;
    for (int i = 0; i < NDP_OP_COUNT; i++)
        sums[part_of_op(i)] += p->op[i];
    for (int k = 0; k < OTHER; k++) {
        l->planned.parts[k][at] = sums[k] - l->planned.before[k];
        l->planned.before[k] = sums[k];
        rest -= l->planned.parts[k][at];
    }
    l->planned.parts[OTHER][at] = fmax(0, rest);
}

/* "; communication differs most, +0.031 s" */
static void name_part(ndp_training_loop *l, char *out, size_t size) {
    double differs[NDP_COMPARED_PARTS];
    int most = 0;
    for (int k = 0; k < NDP_COMPARED_PARTS; k++) {
        differs[k] = ndp_median(l->planned.parts[k], NDP_COMPARED_STEPS) - l->planned.part[k];
        most = fabs(differs[k]) > fabs(differs[most]) ? k : most;
    }
    snprintf(out, size, "; %s differs most, %+.3g s", part_names[most], differs[most]);
}

/* The steps before the first that is compared are taken too: their ops are in the sums. */
void ndp_loop_compare_plan(ndp_training_loop *l, const ndp_metrics *m) {
    int64_t n = l->part.steps;
    int at = n > WARM_UP ? (int)n - 1 - WARM_UP : 0;
    char part[64] = "";
    if (!l->opts->cluster || !isfinite(m->step_seconds) || n > WARM_UP + NDP_COMPARED_STEPS)
        return;
    l->planned.steps[at] = m->step_seconds;
    if (ndp_loop_times_ops(l))
        take_parts(l, m->step_seconds, at);
    if (at < NDP_COMPARED_STEPS - 1)
        return;
    if (ndp_loop_times_ops(l))
        name_part(l, part, sizeof part);
    ndp_say(l->say, l->opts->user, "plan: %.3g s, measured %.3g s%s", l->planned.seconds,
            ndp_median(l->planned.steps, NDP_COMPARED_STEPS), part);
}
