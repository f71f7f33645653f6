/* The peak of the processor: how many floating point operations a second its threads make in loops of nothing but
 * multiply-adds in registers. Training (mfu) and the benchmarks are measured against it.
 *
 * It is an upper bound, so no kernel reaches it: a thread's rate is its best in many pieces of 0.1 ms, and the peak is
 * the sum over the threads. A piece is timed by the thread's CPU clock and by the wall's, and the longer time counts:
 * one in which another process got the core shows a lower rate and is never the best. Most pieces are over before that
 * happens, so busy neighbours do not lower the peak. The processor's frequency does: it depends on what all cores do,
 * and changes within milliseconds to minutes. So a run measures after every step.
 *
 * A hyperthread counts as a core. Two measured threads that share a core share its units, and their sum is right. A
 * thread whose sibling idles during a piece shows the rate of the whole core, and the sum is then up to twice too high.
 *
 * The peak is the machine's: NDP_ISA lowers what the kernels use and leaves it as it is. */
#ifndef NDP_DEVICE_PEAK_H
#define NDP_DEVICE_PEAK_H

#include "base/status.h"

typedef struct ndp_peak ndp_peak;

/* Measures `threads` threads of the calling one: fp32 multiply-adds or, with `bf16`, the fastest of AMX tiles, dpbf16ps
 * and fp32 multiply-adds that the processor has. Takes about 30 ms, on a busy machine up to 100. NDP_ENOMEM. */
NDP_API ndp_status ndp_peak_create(bool bf16, int threads, ndp_peak **out);
/* NULL is fine. */
void ndp_peak_destroy(ndp_peak *p);
/* Measures again, for 0.5% of the time since the last measurement and at most 2 ms. Allocates nothing. */
void ndp_peak_improve(ndp_peak *p);
/* Flop/s of all threads together. Threads that outnumber the cores show more than the machine has; the caller limits
 * the value. */
double ndp_peak_rate(const ndp_peak *p);

#endif
