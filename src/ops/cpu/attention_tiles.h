/* Products of bf16 matrices by AMX tiles, and the forms that they take their operands in. For attention_amx.c.
 *
 * A tile product is C [16][16] fp32 += A [16][32] x B [32][16] of bf16, at about eight times the rate of fp32
 * multiply-adds. A lies in rows; B is "paired": rows 2i and 2i+1 interleaved, so that its row i is [16][2]. */
#ifndef NDP_OPS_CPU_ATTENTION_TILES_H
#define NDP_OPS_CPU_ATTENTION_TILES_H

#include "ops/cpu/attention_block.h"

enum { TILE = 16, DEPTH = 32, STRIP = 32, STRIPS = ROWS / STRIP };

typedef uint16_t bf16;

/* --- products --- */

/* The configuration is a thread's own, and the matrix library uses another: set at the start of each task, released at
 * its end. */
static void tiles_begin(void) {
    static const struct {
        uint8_t palette, start, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&config);
}

/* A matrix in memory; ld in elements, from row to row (of pairs, where it is paired). */
typedef struct operand {
    const bf16 *data;
    int64_t ld;
} operand;

/* C [16 rows][16 cols] (+)= A x B, rows and cols in tiles: 1 or 2, constants where it is inlined. */
INLINE void tile_product(const int rows, const int cols, int64_t depth, operand a, operand b, float *c, int64_t ldc,
                         bool add) {
    const int64_t c_bytes = ldc * 4, a_bytes = a.ld * 2, b_bytes = b.ld * 2;
    if (add) {
        _tile_loadd(0, c, c_bytes);
        if (cols == 2)
            _tile_loadd(1, c + TILE, c_bytes);
        if (rows == 2)
            _tile_loadd(2, c + TILE * ldc, c_bytes);
        if (rows == 2 && cols == 2)
            _tile_loadd(3, c + TILE * ldc + TILE, c_bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t k = 0; k < depth; k += DEPTH) {
        const bf16 *x = a.data + k, *y = b.data + k / 2 * b.ld;
        _tile_loadd(4, x, a_bytes);
        _tile_loadd(6, y, b_bytes);
        _tile_dpbf16ps(0, 4, 6);
        if (cols == 2) {
            _tile_loadd(7, y + 2 * TILE, b_bytes);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (rows == 2) {
            _tile_loadd(5, x + TILE * a.ld, a_bytes);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (rows == 2 && cols == 2)
            _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, c_bytes);
    if (cols == 2)
        _tile_stored(1, c + TILE, c_bytes);
    if (rows == 2)
        _tile_stored(2, c + TILE * ldc, c_bytes);
    if (rows == 2 && cols == 2)
        _tile_stored(3, c + TILE * ldc + TILE, c_bytes);
}

/* C [rows][cols] (+)= A [rows][depth] x B [depth][cols], paired; rows and cols in multiples of 16, depth of 32. */
static void product(int64_t rows, int64_t cols, int64_t depth, operand a, operand b, float *c, int64_t ldc, bool add) {
    __asm__ volatile("" ::: "memory"); /* gcc does not know that tile loads read memory */
    for (int64_t j = 0; j < cols; j += 2 * TILE)
        for (int64_t i = 0; i < rows; i += 2 * TILE) {
            operand x = {a.data + i * a.ld, a.ld}, y = {b.data + 2 * j, b.ld};
            float *z = c + i * ldc + j;
            bool two_rows = rows - i > TILE, two_cols = cols - j > TILE;
            if (two_rows && two_cols)
                tile_product(2, 2, depth, x, y, z, ldc, add);
            else if (two_rows)
                tile_product(2, 1, depth, x, y, z, ldc, add);
            else if (two_cols)
                tile_product(1, 2, depth, x, y, z, ldc, add);
            else
                tile_product(1, 1, depth, x, y, z, ldc, add);
        }
}

/* --- packing --- */

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
