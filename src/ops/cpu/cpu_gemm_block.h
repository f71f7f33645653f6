/* What our matrix products share: dividing C among threads, the steps of packing, rows of sums. Only the files
 * cpu_*gemm_*.c include it. */
#ifndef NDP_OPS_CPU_CPU_GEMM_BLOCK_H
#define NDP_OPS_CPU_CPU_GEMM_BLOCK_H

#include "ops/cpu/cpu_gemm.h"

#include <immintrin.h>

enum { LANES = 16 };

/* k is cut into equal blocks of at most `limit`. */
static inline int64_t equal_block(int64_t k, int64_t limit) {
    int64_t blocks = (k + limit - 1) / limit;
    return (k + blocks - 1) / blocks;
}

static inline int64_t round_up(int64_t size, int64_t unit) { return (size + unit - 1) / unit * unit; }

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

typedef struct range {
    int64_t first, last;
} range;

/* Part i of n of `size`, cut at multiples of `unit`. */
static inline range part(int64_t size, int64_t unit, int64_t i, int64_t n) {
    int64_t units = (size + unit - 1) / unit, first = units * i / n * unit, last = units * (i + 1) / n * unit;
    return (range){first, smaller(last, size)};
}

/* Of the ways to arrange `threads` as rows x columns, the one that packs least: A once for each column of threads, B
 * once for each row of them. */
static inline int thread_rows(const ndp_gemm_shape *s, int threads) {
    int best = 1;
    for (int r = 2; r <= threads; r++)
        if (threads % r == 0 && s->m * (threads / r) + s->n * r < s->m * (threads / best) + s->n * best)
            best = r;
    return best;
}

static inline __mmask16 lanes(int64_t n) { return (__mmask16)(n >= LANES ? 0xffff : n > 0 ? (1u << n) - 1 : 0); }

static inline __mmask32 halves(int64_t n) { return n >= 2 * LANES ? ~0u : n > 0 ? (1u << n) - 1 : 0; }

/* Sixteen bf16 as fp32, 0 where not kept. */
static inline __m512 widened(const uint16_t *from, __mmask16 kept) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(kept, from)), 16));
}

/* Sixteen columns of two rows of bf16, interleaved. */
static inline __m512 load_paired(const uint16_t *even, __mmask16 kept, const uint16_t *odd, __mmask16 kept_odd) {
    __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(kept, even));
    return _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(widened(odd, kept_odd)), low));
}

/* A row of sums, two vectors wide, from and to an fp32 C; of a bf16 C. */
typedef struct row_sums {
    __m512 left, right;
} row_sums;

static inline row_sums get_fp32(const float *c, __mmask16 left, __mmask16 right) {
    return (row_sums){_mm512_maskz_loadu_ps(left, c), _mm512_maskz_loadu_ps(right, c + LANES)};
}

static inline void put_fp32(float *c, __mmask16 left, __mmask16 right, row_sums x) {
    _mm512_mask_storeu_ps(c, left, x.left);
    _mm512_mask_storeu_ps(c + LANES, right, x.right);
}

static inline row_sums get_bf16(const uint16_t *c, __mmask16 left, __mmask16 right) {
    return (row_sums){widened(c, left), widened(c + LANES, right)};
}

/* The 16 x 16 matrix in r becomes its transpose. */
static inline __attribute__((always_inline)) void transpose(__m512 r[LANES]) {
    __m512 t[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i += 2) { /* pairs of rows: 2 x 2 blocks */
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i += 4) /* 4 x 4 blocks */
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            __m512d low = _mm512_castps_pd(t[i + j]), high = _mm512_castps_pd(t[i + j + 2]);
            r[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            r[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) /* quarters of registers: 8 x 8 blocks */
#pragma GCC unroll 2
        for (int j = 0; j < LANES; j += 8) {
            t[i + j] = _mm512_shuffle_f32x4(r[i + j], r[i + j + 4], 0x88);
            t[i + j + 4] = _mm512_shuffle_f32x4(r[i + j], r[i + j + 4], 0xdd);
        }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
    }
}

#endif
