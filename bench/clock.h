/* What the benchmarks time by. */
#ifndef BENCH_CLOCK_H
#define BENCH_CLOCK_H

#include "base/clock.h"
#include "base/cpu.h"
#include "device/peak.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Seconds. One thread is timed by its own clock, which stands still while others have the core; several by the wall's.
 */
static inline double bench_now(int threads) { return threads > 1 ? ndp_now() : ndp_thread_now(); }

/* Flop/s of loops of nothing but multiply-adds. */
static inline double bench_peak(bool bf16, int threads) {
    ndp_peak *p;
    if (ndp_peak_create(bf16, threads, &p) != NDP_OK) {
        fprintf(stderr, "%s\n", ndp_error_message());
        exit(1);
    }
    double rate = ndp_peak_rate(p);
    ndp_peak_destroy(p);
    return rate;
}

/* The first call of a benchmark. Threads that wait spin no longer than those of `ndparallel` (cli/main.c): on a machine
 * that others use, a step takes four times as long otherwise. OpenMP reads this when it is loaded, so the program
 * executes itself again. Then the processor is named. */
static inline void bench_begin(char **argv) {
    if (!getenv("OMP_WAIT_POLICY") && !getenv("GOMP_SPINCOUNT") && setenv("GOMP_SPINCOUNT", "1000", 1) == 0)
        execv("/proc/self/exe", argv);
    char name[NDP_CPU_NAME];
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("%s; kernels: %s, bf16 %s\n", ndp_cpu_name(name), ndp_cpu_isa(), ndp_cpu_bf16_way_text());
}

#endif
