/* Loops of x86-64, of one instruction in assembly, so that no compiler changes them. Each has enough independent chains
 * to hide the latency of its instruction. */
#include "device/cpu/peak_loops.h"

/* ---- fp32, and pairs of bf16 ---- */

/* Chains of one instruction on three registers; the last two of those named, zeroed, are what it multiplies. */
#define CLOBBERS_OF_16                                                                                                 \
    "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",   \
        "xmm13", "xmm14", "xmm15"
#define LOOP_512(mnemonic)                                                                                             \
    __asm__ volatile("vpxord %%zmm16, %%zmm16, %%zmm16\n\tvpxord %%zmm17, %%zmm17, %%zmm17\n\t"                        \
                     "1:\n\t.irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n\t" mnemonic                                 \
                     " %%zmm16, %%zmm17, %%zmm\\n\n\t.endr\n\tdec %0\n\tjnz 1b"                                        \
                     : "+r"(rounds)::CLOBBERS_OF_16, "xmm16", "xmm17")

__attribute__((target("avx512f"))) static void fma_512(long rounds) { LOOP_512("vfmadd231ps"); }
__attribute__((target("avx512f"))) static void pairs_512(long rounds) { LOOP_512("vdpbf16ps"); }

__attribute__((target("avx2,fma"))) static void fma_256(long rounds) {
    __asm__ volatile("vpxor %%xmm14, %%xmm14, %%xmm14\n\tvpxor %%xmm15, %%xmm15, %%xmm15\n\t"
                     "1:\n\t.irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13\n\t"
                     "vfmadd231ps %%ymm14, %%ymm15, %%ymm\\n\n\t.endr\n\tdec %0\n\tjnz 1b\n\tvzeroupper"
                     : "+r"(rounds)::CLOBBERS_OF_16);
}

/* A multiplication and an addition, as the compiler writes them for any processor. */
typedef float four __attribute__((vector_size(16)));
enum { CHAINS = 12 };

static void any(long rounds) {
    four sum[CHAINS] = {{0}}, x = {0.5f, 0.5f, 0.5f, 0.5f}, y = {1, 1, 1, 1};
    for (long i = 0; i < rounds; i++)
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++)
            sum[c] = sum[c] * x + y;
    for (int c = 0; c < CHAINS; c++)
        __asm__ volatile("" : : "x"(sum[c])); /* keeps the result alive */
}

/* ---- tiles of bf16 ---- */

/* Four independent products of 16 x 16 x 32. Of real numbers: a core multiplies zeros a third faster. */
static void tiles(long rounds) {
    static const uint8_t config[64] = {
        1, [16] = 64, [18] = 64, [20] = 64, [22] = 64, [24] = 64, [26] = 64, [48] = 16, 16, 16, 16, 16, 16};
    static const int64_t row = 64;
    uint16_t tile[512];
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

/* ---- the tables ---- */

const ndp_peak_loop ndp_peak_bf16_loops[] = {
    {NDP_ISA_AMX_BF16, tiles, 4 * 2 * 16 * 16 * 32, 4000},
    {NDP_ISA_AVX512_BF16, pairs_512, 16 * 2 * 32, 16000},
    {.run = NULL},
};
const ndp_peak_loop ndp_peak_fp32_loops[] = {
    {NDP_ISA_AVX512, fma_512, 16 * 2 * 16, 32000},
    {NDP_ISA_AVX2, fma_256, 14 * 2 * 8, 36000},
    {NDP_ISA_GENERIC, any, CHAINS * 2 * 4, 25000},
    {.run = NULL},
};
