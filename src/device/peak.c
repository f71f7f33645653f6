/* Measures the peak: short pieces of a loop on all threads, of which the fastest of each thread counts (peak.h: why).
 */
#include "device/peak.h"

#include "base/clock.h"
#include "device/cpu/peak_loops.h"

#include <omp.h>
#include <stdlib.h>

struct ndp_peak {
    const ndp_peak_loop *loop;
    int threads;
    double last;   /* time of the last measurement */
    double best[]; /* of each thread, flop/s */
};

/* Flop/s of a piece, from the longer of two times. The thread's own clock is not enough: on a virtual machine, time
 * that the host takes is subtracted from it later, and a piece may look a fifth shorter than it was. */
static double piece(const ndp_peak_loop *loop) {
    double start = ndp_now(), own_start = ndp_thread_now();
    loop->run(loop->rounds);
    double own = ndp_thread_now() - own_start, wall = ndp_now() - start;
    return loop->flops * (double)loop->rounds / (own > wall ? own : wall);
}

/* Runs at least `least` pieces on each thread, and up to `most` within `seconds` of wall time. */
static void measure(ndp_peak *p, int least, int most, double seconds) {
    double end = ndp_now() + seconds;
#pragma omp parallel num_threads(p->threads)
    {
        double *best = &p->best[omp_get_thread_num()];
        for (int i = 0; i < most && (i < least || ndp_now() < end); i++) {
            double rate = piece(p->loop);
            *best = rate > *best ? rate : *best;
        }
    }
    p->last = ndp_now();
}

/* A short measurement, to choose a loop. */
static ndp_status try_loop(const ndp_peak_loop *loop, int threads, ndp_peak **out) {
    enum { LEAST = 5, MOST = 20 };
    const double seconds = 0.01;
    ndp_peak *p = calloc(1, sizeof *p + (size_t)threads * sizeof *p->best);
    NDP_CHECK_MEMORY(p, "for the peak of %d threads", threads);
    p->loop = loop;
    p->threads = threads;
    measure(p, LEAST, MOST, seconds);
    *out = p;
    return NDP_OK;
}

/* Replaces *best if the loop is faster. */
static ndp_status choose(const ndp_peak_loop *loop, ndp_peak **best) {
    ndp_peak *other = NULL;
    NDP_TRY(try_loop(loop, (*best)->threads, &other));
    bool faster = ndp_peak_rate(other) > ndp_peak_rate(*best);
    ndp_peak_destroy(faster ? *best : other);
    *best = faster ? other : *best;
    return NDP_OK;
}

ndp_status ndp_peak_create(bool bf16, int threads, ndp_peak **out) {
    enum { LEAST = 5, MOST = 250 };
    const double seconds = 0.04;
    int widest = 0;
    while (!ndp_cpu_supports(ndp_peak_fp32_loops[widest].needs))
        widest++;
    ndp_peak *best = NULL;
    NDP_TRY(try_loop(&ndp_peak_fp32_loops[widest], threads, &best));
    ndp_status st = NDP_OK;
    for (const ndp_peak_loop *loop = ndp_peak_bf16_loops; st == NDP_OK && bf16 && loop->run; loop++)
        if (ndp_cpu_supports(loop->needs))
            st = choose(loop, &best);
    if (st != NDP_OK) {
        ndp_peak_destroy(best);
        return st;
    }
    measure(best, LEAST, MOST, seconds);
    *out = best;
    return NDP_OK;
}

void ndp_peak_destroy(ndp_peak *p) { free(p); }

void ndp_peak_improve(ndp_peak *p) {
    enum { MOST = 20 };
    const double share = 0.005, piece_seconds = 1e-4;
    double pieces = (ndp_now() - p->last) * share / piece_seconds;
    if (pieces >= 1)
        measure(p, 1, pieces < MOST ? (int)pieces : MOST, MOST * piece_seconds);
}

double ndp_peak_rate(const ndp_peak *p) {
    double sum = 0;
    for (int i = 0; i < p->threads; i++)
        sum += p->best[i];
    return sum;
}
