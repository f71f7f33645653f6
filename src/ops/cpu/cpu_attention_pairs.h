/* The forms in which bf16 matrices are multiplied, and packing into them. For cpu_attention_bf16.h.
 *
 * A product is C [rows][cols] fp32 (+)= A [rows][depth] x B [depth][cols] of bf16. A is stored by rows; B is "paired":
 * rows 2i and 2i+1 interleaved, so that its row i is [cols][2]: both tiles and dpbf16ps take two numbers of each at a
 * time. */
#ifndef NDP_OPS_CPU_CPU_ATTENTION_PAIRS_H
#define NDP_OPS_CPU_CPU_ATTENTION_PAIRS_H

#include "ops/cpu/cpu_attention_block.h"

enum { DEPTH = 32, STRIP = 32, STRIPS = ROWS / STRIP };

typedef uint16_t bf16;

/* A matrix in memory; ld in elements, from row to row (of pairs, where it is paired). */
typedef struct operand {
    const bf16 *data;
    int64_t ld;
} operand;

/* Sixteen columns of two rows, interleaved. */
INLINE vf pair(const bf16 *even, const bf16 *odd) {
    return (vf)((vu)vec_load_bf16(even) >> 16 | (vu)vec_load_bf16(odd));
}

/* Weights of sixteen rows for two keys, rounded and interleaved. */
INLINE void store_paired(bf16 *out, vf even, vf odd) {
    const __m512i zip = (__m512i)(vu){0x100000, 0x110001, 0x120002, 0x130003, 0x140004, 0x150005, 0x160006, 0x170007,
                                      0x180008, 0x190009, 0x1a000a, 0x1b000b, 0x1c000c, 0x1d000d, 0x1e000e, 0x1f000f};
    __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)odd, (__m512)even);
    _mm512_storeu_si512(out, _mm512_permutexvar_epi16(zip, both));
}

/* 32 consecutive numbers, rounded. */
INLINE void store_halves(bf16 *out, vf low, vf high) {
    _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low));
}

/* Rows [64][d] become paired: [32][d][2]. */
static void pair_rows(const bf16 *x, int64_t d, bf16 *out) {
    for (int64_t i = 0; i < ROWS; i += 2)
        for (int64_t c = 0; c < d; c += LANES)
            vec_store((float *)(out + i * d + 2 * c), pair(x + i * d + c, x + (i + 1) * d + c));
}

/* Rows [n][d] become paired columns in strips: [n / STRIP][d / 2][STRIP][2]. */
static void pair_columns(const bf16 *x, int64_t n, int64_t d, bf16 *out) {
    for (int64_t i = 0; i < n; i += LANES)
        for (int64_t c = 0; c < d; c += 2 * LANES) {
            bf16 *to = out + i / STRIP * STRIP * d + c * STRIP + i % STRIP * 2;
            vf r[LANES];
#pragma GCC unroll 16
            for (int k = 0; k < LANES; k++)
                r[k] = vec_load((const float *)(x + (i + k) * d + c));
            vec_transpose(r);
#pragma GCC unroll 16
            for (int k = 0; k < LANES; k++)
                vec_store((float *)(to + 2 * k * STRIP), r[k]);
        }
}

/* [KEYS][d] -> [d][KEYS] */
static void transpose_keys(const bf16 *x, int64_t d, bf16 *out) {
    for (int64_t k = 0; k < KEYS; k += 2 * LANES)
        for (int64_t c = 0; c < d; c += LANES) {
            vf r[LANES];
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                r[i] = pair(x + (k + 2 * i) * d + c, x + (k + 2 * i + 1) * d + c);
            vec_transpose(r);
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                vec_store((float *)(out + (c + i) * KEYS + k), r[i]);
        }
}

/* A strip's [d][STRIP] -> [STRIP][d] */
static void transpose_strip(const float *x, int64_t d, float *out) {
    for (int64_t i = 0; i < STRIP; i += LANES)
        for (int64_t c = 0; c < d; c += LANES) {
            vf r[LANES];
#pragma GCC unroll 16
            for (int k = 0; k < LANES; k++)
                r[k] = vec_load(x + (c + k) * STRIP + i);
            vec_transpose(r);
#pragma GCC unroll 16
            for (int k = 0; k < LANES; k++)
                vec_store(out + (i + k) * d + c, r[k]);
        }
}

#endif
