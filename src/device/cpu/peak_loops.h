/* The loops of device/peak.h. Each repeats one instruction on registers, in enough independent chains to hide
 * its latency; a file for each kind of processor. */
#ifndef NDP_DEVICE_CPU_PEAK_LOOPS_H
#define NDP_DEVICE_CPU_PEAK_LOOPS_H

#include "base/cpu.h"

typedef struct ndp_peak_loop {
    ndp_isa needs;
    void (*run)(long rounds); /* NULL: the end of the list */
    double flops;             /* a round */
    long rounds;              /* in about 0.1 ms */
} ndp_peak_loop;

/* The widest first. The last one of fp32 needs NDP_ISA_GENERIC. */
extern const ndp_peak_loop ndp_peak_bf16_loops[], ndp_peak_fp32_loops[];

#endif
