/* The loops of device/peak.h. Each repeats one instruction on registers, in enough independent chains to hide
 * its latency. */
#ifndef NDP_DEVICE_CPU_PEAK_LOOPS_H
#define NDP_DEVICE_CPU_PEAK_LOOPS_H

#include "base/status.h"

typedef struct ndp_peak_loop {
    bool (*supported)(void);
    void (*run)(long rounds); /* on a processor that supports it */
    double flops;             /* a round */
    long rounds;              /* in about 0.1 ms */
} ndp_peak_loop;

/* The widest first. */
enum { NDP_PEAK_BF16_LOOPS = 2, NDP_PEAK_FP32_LOOPS = 3 };
extern const ndp_peak_loop ndp_peak_bf16_loops[NDP_PEAK_BF16_LOOPS], ndp_peak_fp32_loops[NDP_PEAK_FP32_LOOPS];

#endif
