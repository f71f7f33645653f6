/* The peak that everything is measured against (device/peak.h): ten measurements in fp32 and in bf16, and how far apart
 * they are; then what a run makes of it in two seconds, while it measures. Busy processes beside it change
 * neither; the processor's frequency, which follows what all its cores do, changes the first. Usage: bench_peak
 * [threads] */
#include "base/cpu.h"
#include "clock.h"
#include "result.h"

enum { TIMES = 10 };

static void repeat(bool bf16, int threads) {
    double least = 1e30, most = 0, start = ndp_now();
    printf("%s, %d threads:", bf16 ? "bf16" : "fp32", threads);
    for (int i = 0; i < TIMES; i++) {
        double rate = bench_peak(bf16, threads);
        printf(" %.1f", 1e-9 * rate);
        least = rate < least ? rate : least;
        most = rate > most ? rate : most;
    }
    printf(" GFLOP/s; spread %.1f%%, %.0f ms each\n", 100 * (most / least - 1), 1e3 * (ndp_now() - start) / TIMES);
    char what[64];
    snprintf(what, sizeof what, "peak %s, %d threads", bf16 ? "bf16" : "fp32", threads);
    bench_result(what, 1e-9 * most, "GFLOP/s", 0);
}

static void go_on(bool bf16, int threads) {
    const double seconds = 2;
    ndp_peak *p;
    if (ndp_peak_create(bf16, threads, &p) != NDP_OK)
        return;
    double first = ndp_peak_rate(p);
    for (double start = ndp_now(); ndp_now() - start < seconds;)
        ndp_peak_improve(p);
    printf("  %.1f, after %.0f s %.1f\n", 1e-9 * first, seconds, 1e-9 * ndp_peak_rate(p));
    ndp_peak_destroy(p);
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : ndp_cpu_cores();
    bench_begin(argv);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        repeat(bf16, threads);
        go_on(bf16, threads);
    }
    return 0;
}
