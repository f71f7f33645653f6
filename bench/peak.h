/* The machine's floor: loops of nothing but multiply-adds in registers. */
#ifndef NDP_BENCH_PEAK_H
#define NDP_BENCH_PEAK_H

#include "base/clock.h"
#include "base/cpu.h"
#include "tensor/dtype.h"

#include <omp.h>
#include <time.h>

enum { PEAK_ROUNDS = 400000, PEAK_FMA_CHAINS = 16, PEAK_TILE_CHAINS = 4 };

/* Seconds. One thread is timed by its own clock, which stands still while others have the core. */
static double peak_clock(int threads) {
    struct timespec t;
    if (threads > 1)
        return ndp_now();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Sixteen chains of 16 lanes, of one instruction on three registers; zmm16 and zmm17 are what it multiplies. */
#define PEAK_LOOP(mnemonic)                                                                                            \
    long rounds = PEAK_ROUNDS;                                                                                         \
    __asm__ volatile("vpxord %%zmm16, %%zmm16, %%zmm16\n\tvpxord %%zmm17, %%zmm17, %%zmm17\n\t"                        \
                     "1:\n\t.irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n\t" mnemonic                                 \
                     " %%zmm16, %%zmm17, %%zmm\\n\n\t.endr\n\tdec %0\n\tjnz 1b"                                        \
                     : "+r"(rounds)::"cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",     \
                       "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17")

/* Independent fp32 multiply-adds. */
__attribute__((target("avx512f"))) static void peak_fma_loop(void) { PEAK_LOOP("vfmadd231ps"); }

/* The same of pairs of bf16. */
__attribute__((target("avx512f"))) static void peak_pair_loop(void) { PEAK_LOOP("vdpbf16ps"); }

/* Independent products of bf16 tiles: 16 x 16 x 32. Of real numbers: a core multiplies zeros a third faster. */
static void peak_tile_loop(void) {
    static const uint8_t config[64] = {
        1, [16] = 64, [18] = 64, [20] = 64, [22] = 64, [24] = 64, [26] = 64, [48] = 16, 16, 16, 16, 16, 16};
    static const int64_t row = 64;
    uint16_t tile[512];
    long rounds = PEAK_ROUNDS / 4;
    for (int i = 0; i < NDP_COUNT(tile); i++)
        tile[i] = (uint16_t)(0x3c00 + i * 77 % 512);
    __asm__ volatile("ldtilecfg %1\n\ttileloadd (%2,%3,1), %%tmm4\n\ttileloadd (%2,%3,1), %%tmm5\n\t"
                     "1:\n\ttdpbf16ps %%tmm5, %%tmm4, %%tmm0\n\ttdpbf16ps %%tmm5, %%tmm4, %%tmm1\n\t"
                     "tdpbf16ps %%tmm5, %%tmm4, %%tmm2\n\ttdpbf16ps %%tmm5, %%tmm4, %%tmm3\n\t"
                     "dec %0\n\tjnz 1b\n\ttilerelease"
                     : "+r"(rounds)
                     : "m"(config), "r"(tile), "r"(row)
                     : "cc", "memory");
}

/* Flop/s of `threads` threads by one of the loops, best of `runs`. */
static double peak_of(void (*loop)(void), double flops, int threads, int runs) {
    double best = 0;
    for (int i = 0; i < runs; i++) {
        double start = peak_clock(threads);
#pragma omp parallel num_threads(threads)
        loop();
        double rate = flops * threads / (peak_clock(threads) - start);
        best = rate > best ? rate : best;
    }
    return best;
}

/* Flop/s of `threads` threads in products of a type: in bf16 by AMX tiles where there are any, else by dpbf16ps or fp32
 * multiply-adds, whichever is faster. 0 without AVX-512. */
static double peak_rate(ndp_dtype type, int threads, int runs) {
    const double fma = 2.0 * 16 * PEAK_FMA_CHAINS * PEAK_ROUNDS;
    if (!ndp_cpu_has_avx512())
        return 0;
    if (type == NDP_BF16 && ndp_cpu_has_amx_bf16())
        return peak_of(peak_tile_loop, 2.0 * 16 * 16 * 32 * PEAK_TILE_CHAINS * (PEAK_ROUNDS / 4), threads, runs);
    double pairs = type == NDP_BF16 && ndp_cpu_has_avx512_bf16() ? peak_of(peak_pair_loop, 2 * fma, threads, runs) : 0;
    double single = peak_of(peak_fma_loop, fma, threads, runs);
    return pairs > single ? pairs : single;
}

#endif
