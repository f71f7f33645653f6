/* Attention tasks in bf16 by dpbf16ps: sixteen times two multiply-adds, on Zen 4 and 5 at twice the rate of fp32's. */
#include "ops/cpu/cpu_attention_lanes16.h"

#include "ops/cpu/cpu_attention_pairs.h"

static void products_begin(void) {}
static void products_end(void) {}

enum { TILE_ROWS = 8, TILE_VECS = 2 }; /* sums in registers */

/* Two numbers as one of 32 bits. */
INLINE float pair_at(const bf16 *p) {
    float x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* C [TILE_ROWS][TILE_VECS LANES] (+)= A x B */
INLINE void tile_product(int64_t depth, operand a, operand b, float *c, int64_t ldc, bool add) {
    __m512 acc[TILE_ROWS][TILE_VECS];
#pragma GCC unroll 8
    for (int i = 0; i < TILE_ROWS; i++)
#pragma GCC unroll 2
        for (int j = 0; j < TILE_VECS; j++)
            acc[i][j] = add ? _mm512_loadu_ps(c + i * ldc + j * LANES) : _mm512_setzero_ps();
    for (int64_t k = 0; k < depth; k += 2) {
        __m512bh y[TILE_VECS];
#pragma GCC unroll 2
        for (int j = 0; j < TILE_VECS; j++)
            y[j] = (__m512bh)_mm512_loadu_si512(b.data + k / 2 * b.ld + j * 2 * LANES);
#pragma GCC unroll 8
        for (int i = 0; i < TILE_ROWS; i++) {
            __m512bh x = (__m512bh)_mm512_set1_ps(pair_at(a.data + i * a.ld + k));
#pragma GCC unroll 2
            for (int j = 0; j < TILE_VECS; j++)
                acc[i][j] = _mm512_dpbf16_ps(acc[i][j], x, y[j]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < TILE_ROWS; i++)
#pragma GCC unroll 2
        for (int j = 0; j < TILE_VECS; j++)
            _mm512_storeu_ps(c + i * ldc + j * LANES, acc[i][j]);
}

/* C [rows][cols] (+)= A [rows][depth] x B [depth][cols], paired. */
static void product(int64_t rows, int64_t cols, int64_t depth, operand a, operand b, float *c, int64_t ldc, bool add) {
    for (int64_t j = 0; j < cols; j += TILE_VECS * LANES)
        for (int64_t i = 0; i < rows; i += TILE_ROWS)
            tile_product(depth, (operand){a.data + i * a.ld, a.ld}, (operand){b.data + 2 * j, b.ld}, c + i * ldc + j,
                         ldc, add);
}

#define KERNELS ndp_att_avx512bf16
#include "ops/cpu/cpu_attention_bf16.h"
