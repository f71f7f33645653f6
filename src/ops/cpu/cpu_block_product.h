/* Products of blocks that lie in a kernel's buffers in fp32, and transposes of them: sums stay in registers, nothing is
 * packed. Needs TILE_VECS and TILE_ROWS, and the vectors of cpu_attention_vector.h. */
#ifndef NDP_OPS_CPU_CPU_BLOCK_PRODUCT_H
#define NDP_OPS_CPU_CPU_BLOCK_PRODUCT_H

#include "ops/cpu/cpu_block_rows.h"

typedef struct factor {
    const float *data;
    int64_t row, col; /* strides */
} factor;

/* C [rows x vecs] (+)= A [rows x depth] B [depth x vecs]; rows and vecs are constants where it is inlined. */
INLINE void tile_product(const int rows, const int vecs, int64_t depth, factor a, const float *b, int64_t ldb, float *c,
                         int64_t ldc, bool add) {
    vf acc[8][TILE_VECS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vecs; j++)
            acc[i][j] = add ? vec_load(c + i * ldc + j * LANES) : vec_set(0);
    for (int64_t k = 0; k < depth; k++) {
        vf x[TILE_VECS];
#pragma GCC unroll 4
        for (int j = 0; j < vecs; j++)
            x[j] = vec_load(b + k * ldb + j * LANES);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            vf y = vec_set(a.data[i * a.row + k * a.col]);
#pragma GCC unroll 4
            for (int j = 0; j < vecs; j++)
                acc[i][j] += y * x[j];
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vecs; j++)
            vec_store(c + i * ldc + j * LANES, acc[i][j]);
}

#define COLUMN_OF_TILES(n)                                                                                             \
    for (int64_t i = 0; i < rows; i += TILE_ROWS(n)) {                                                                 \
        factor from = {a.data + i * a.row, a.row, a.col};                                                              \
        tile_product(TILE_ROWS(n), n, depth, from, b, ldb, c + i * ldc, ldc, add);                                     \
    }

/* C [rows x vecs LANES] (+)= A [rows x depth] B [depth x vecs LANES]. Rows are rounded up to the tile: C has room for
 * that and A something to read. */
static void block_product(int64_t rows, int64_t vecs, int64_t depth, factor a, const float *b, int64_t ldb, float *c,
                          int64_t ldc, bool add) {
    for (int64_t left = vecs, n; left > 0; left -= n, b += n * LANES, c += n * LANES) {
        int64_t columns = (left + TILE_VECS - 1) / TILE_VECS;
        n = (left + columns - 1) / columns;
        switch (n) {
        case 1:
            COLUMN_OF_TILES(1) break;
        case 2:
            COLUMN_OF_TILES(2) break;
#if TILE_VECS > 2
        case 3:
            COLUMN_OF_TILES(3) break;
        case 4:
            COLUMN_OF_TILES(4) break;
#endif
        default:
            __builtin_unreachable();
        }
    }
}

/* out [columns][rows] = x [rows][columns] times `by`; rows and columns are multiples of LANES. */
static void transpose(const float *x, int64_t ld, int64_t rows, int64_t columns, float by, float *out, int64_t ldo) {
    for (int64_t i = 0; i < rows; i += LANES)
        for (int64_t j = 0; j < columns; j += LANES) {
            vf r[LANES];
#pragma GCC unroll 16
            for (int k = 0; k < LANES; k++)
                r[k] = vec_load(x + (i + k) * ld + j) * by;
            vec_transpose(r);
#pragma GCC unroll 16
            for (int k = 0; k < LANES; k++)
                vec_store(out + (j + k) * ldo + i, r[k]);
        }
}

#endif
