/* Attention tasks in bf16 by AMX tiles (Sapphire Rapids and later).
 *
 * A tile product is C [16][16] fp32 += A [16][32] x B [32][16] of bf16, at about eight times the rate of fp32
 * multiply-adds. */
#include "ops/cpu/cpu_attention_lanes16.h"

#include "ops/cpu/cpu_attention_pairs.h"

enum { TILE = 16 };

/* The configuration is a thread's own, and the matrix library uses another: set at the start of each task, released at
 * its end. */
static void products_begin(void) {
    static const struct {
        uint8_t palette, start, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&config);
}

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

static void products_end(void) { _tile_release(); }

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

#define KERNELS ndp_att_amx
#include "ops/cpu/cpu_attention_bf16.h"
