/* The peak that mfu is relative to: that of all cores of the run, all ranks together.
 *
 * Every rank measures its own threads, all at the same time. In short pieces each thread seems to have a core of its
 * own, however many share one. So a rank's measurement is scaled by its share of the cores: the number of cores that it
 * may use (affinity) over the threads of all ranks that may use the same ones. Ranks bound to different cores share
 * none. */
#include "base/cpu.h"
#include "checkpoint/agree.h"
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* How many ranks may use exactly the same cores as this one. */
static ndp_status count_sharers(const ndp_trainer *t, int *out) {
    int64_t mine = (int64_t)ndp_cpu_place(), *all = calloc((size_t)t->rank.job.world, sizeof *all);
    NDP_CHECK_MEMORY(all, "for the places of %d ranks", t->rank.job.world);
    ndp_work work;
    ndp_status st = ndp_all_gather_begin(t->rank.world, &mine, all, 1, NDP_I64, &work);
    if (st == NDP_OK)
        st = ndp_wait(&work);
    *out = 0;
    for (int r = 0; r < t->rank.job.world; r++)
        *out += all[r] == mine;
    free(all);
    return st;
}

/* Nothing where the kernels do not run on the host's processor. */
ndp_status ndp_trainer_measure_peak(ndp_trainer *t) {
    int sharers = 0;
    if (!t->rank.exec.device->host_memory)
        return NDP_OK;
    NDP_TRY(count_sharers(t, &sharers));
    double wanted = (double)sharers * t->rank.exec.threads, cores = ndp_cpu_cores();
    t->peak.share = cores < wanted ? cores / wanted : 1;
    NDP_TRY(ndp_peak_create(t->model.opts.compute == NDP_BF16, t->rank.exec.threads, &t->peak.own));
    double sums[] = {t->peak.share * ndp_peak_rate(t->peak.own), t->rank.exec.threads,
                     t->peak.share * t->rank.exec.threads};
    NDP_TRY(ndp_reduce_now(t->rank.world, sums, NDP_COUNT(sums), NDP_F64, NDP_SUM));
    t->peak.flops = t->peak.first = sums[0];
    t->peak.threads = (int)sums[1], t->peak.cores = (int)lround(sums[2]);
    return NDP_OK;
}

double ndp_trainer_own_peak(ndp_trainer *t) {
    if (!t->peak.own)
        return 0;
    ndp_peak_improve(t->peak.own);
    return t->peak.share * ndp_peak_rate(t->peak.own);
}

/* "peak: 401.3 GFLOP/s in fp32 on 8 threads of 2 cores, ...; 394.4 at the start" */
char *ndp_trainer_describe_peak(const ndp_trainer *t) {
    char of[32] = "", before[32] = "";
    if (!t->peak.own)
        return ndp_format("peak: that of the device %s is not known, so mfu is 0", t->rank.exec.device->name);
    int threads = t->peak.threads, cores = t->peak.cores;
    if (cores < threads)
        snprintf(of, sizeof of, " of %d core%s", cores, cores == 1 ? "" : "s");
    if (t->peak.flops > t->peak.first)
        snprintf(before, sizeof before, "; %.1f at the start", 1e-9 * t->peak.first);
    return ndp_format("peak: %.1f GFLOP/s in %s on %d thread%s%s, by multiply-adds in registers%s",
                      1e-9 * t->peak.flops, t->model.opts.compute == NDP_BF16 ? "bf16" : "fp32", threads,
                      threads == 1 ? "" : "s", of, before);
}
