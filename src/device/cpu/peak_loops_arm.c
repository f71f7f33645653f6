/* Loops of aarch64, of one instruction in assembly: 24 independent chains, which hide a latency of six cycles where
 * four of it begin in each. */
#include "device/cpu/peak_loops.h"

#define CHAINS(instruction)                                                                                            \
    "1:\n\t.irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23\n\t" instruction "\n\t.endr\n\t"
#define CLOBBERS                                                                                                       \
    "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", \
        "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25"
/* Multiplies zeros, which are in the registers 24 and 25. */
#define LOOP_128(instruction)                                                                                          \
    __asm__ volatile(".arch armv8.2-a+bf16\n\tmovi v24.4s, #0\n\tmovi v25.4s, #0\n\t" CHAINS(                          \
                         instruction) "subs %0, %0, #1\n\tb.gt 1b"                                                     \
                     : "+r"(rounds)::CLOBBERS)

static void fma_128(long rounds) { LOOP_128("fmla v\\n\\().4s, v24.4s, v25.4s"); }
static void bf16_128(long rounds) { LOOP_128("bfmmla v\\n\\().4s, v24.8h, v25.8h"); }

/* Vectors have any multiple of 128 bits; one that has n times as many counts as n rounds. */
static void fma_sve(long rounds) {
    long of_vector;
    __asm__ volatile(
        ".arch armv8.2-a+sve\n\tcntw %1\n\tlsr %1, %1, #2\n\tptrue p0.s\n\t"
        "mov z24.s, #0\n\tmov z25.s, #0\n\t" CHAINS("fmla z\\n\\().s, p0/m, z24.s, z25.s") "subs %0, %0, %1\n\tb.gt 1b"
        : "+r"(rounds), "=&r"(of_vector)::CLOBBERS, "p0");
}

const ndp_peak_loop ndp_peak_bf16_loops[] = {
    {NDP_ISA_BFMMLA, bf16_128, 24 * 2 * 2 * 2 * 4, 20000},
    {.run = NULL},
};
const ndp_peak_loop ndp_peak_fp32_loops[] = {
    {NDP_ISA_SVE, fma_sve, 24 * 2 * 4, 20000},
    {NDP_ISA_GENERIC, fma_128, 24 * 2 * 4, 20000},
    {.run = NULL},
};
