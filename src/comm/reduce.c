#include "comm/reduce.h"

#include <omp.h>
#include <string.h>

enum { BLOCK = 2048, PARALLEL_BYTES = 1 << 20 };

bool ndp_reduce_knows(ndp_dtype type) {
    return type == NDP_F32 || type == NDP_F64 || type == NDP_I64 || type == NDP_BF16;
}

/* acc = acc op x. NaN wins over every number in a maximum, so that no rank hides it. */
#define DEFINE_FOLD(NAME, T, LOAD_T, LOAD)                                                                             \
    static void NAME(T *restrict acc, const LOAD_T *restrict x, int64_t n, ndp_reduce op) {                            \
        if (op == NDP_SUM) {                                                                                           \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++) acc[i] += LOAD(x[i]);                                  \
        } else {                                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                T v = LOAD(x[i]);                                                                                      \
                acc[i] = acc[i] > v || acc[i] != acc[i] ? acc[i] : v;                                                  \
            }                                                                                                          \
        }                                                                                                              \
    }
DEFINE_FOLD(fold_f32, float, float, )
DEFINE_FOLD(fold_f64, double, double, )
DEFINE_FOLD(fold_i64, int64_t, int64_t, )
DEFINE_FOLD(fold_bf16, float, uint16_t, ndp_bf16_to_f32)

/* A block of at most BLOCK elements, small enough for the first-level cache. */
typedef union block {
    float f32[BLOCK];
    double f64[BLOCK];
    int64_t i64[BLOCK];
} block;

static void block_load(ndp_dtype type, block *acc, const void *x, int64_t n) {
    if (type == NDP_BF16)
        for (int64_t i = 0; i < n; i++)
            acc->f32[i] = ndp_bf16_to_f32(((const uint16_t *)x)[i]);
    else
        memcpy(acc, x, (size_t)n * ndp_dtype_size(type));
}

static void block_fold(ndp_dtype type, ndp_reduce op, block *acc, const void *x, int64_t n) {
    switch (type) {
    case NDP_F32:
        fold_f32(acc->f32, x, n, op);
        break;
    case NDP_F64:
        fold_f64(acc->f64, x, n, op);
        break;
    case NDP_I64:
        fold_i64(acc->i64, x, n, op);
        break;
    default:
        fold_bf16(acc->f32, x, n, op);
        break;
    }
}

/* The block in its storage type; `rounded` is room for it where that differs. */
static const void *block_store(ndp_dtype type, block *acc, int64_t n, uint16_t *rounded) {
    if (type != NDP_BF16)
        return acc;
    for (int64_t i = 0; i < n; i++)
        rounded[i] = ndp_f32_to_bf16(acc->f32[i]);
    return rounded;
}

static void reduce_block(ndp_dtype type, ndp_reduce op, void *const *in, int ranks, void *const *outs, int n_outs,
                         int64_t first, int64_t n, bool accumulate) {
    block acc;
    uint16_t rounded[BLOCK];
    size_t size = ndp_dtype_size(type), at = (size_t)first * size;
    block_load(type, &acc, (const char *)in[0] + at, n);
    for (int r = 1; r < ranks; r++)
        block_fold(type, op, &acc, (const char *)in[r] + at, n);
    if (accumulate)
        block_fold(type, op, &acc, (const char *)outs[0] + at, n);
    const void *result = block_store(type, &acc, n, rounded);
    for (int k = 0; k < n_outs; k++)
        memcpy((char *)outs[k] + at, result, (size_t)n * size);
}

static int64_t block_length(int64_t count, int64_t b) { return count - b * BLOCK < BLOCK ? count - b * BLOCK : BLOCK; }

void ndp_reduce_ranks(ndp_dtype type, ndp_reduce op, void *const *in, int ranks, void *const *outs, int n_outs,
                      int64_t count, bool accumulate) {
    int64_t blocks = (count + BLOCK - 1) / BLOCK;
    bool split = (size_t)count * ndp_dtype_size(type) >= PARALLEL_BYTES && omp_get_max_threads() > 1;
    if (!split) /* not a team of one: OpenMP makes a new team whenever the size changes */
        for (int64_t b = 0; b < blocks; b++)
            reduce_block(type, op, in, ranks, outs, n_outs, b * BLOCK, block_length(count, b), accumulate);
    else
#pragma omp parallel for schedule(static)
        for (int64_t b = 0; b < blocks; b++)
            reduce_block(type, op, in, ranks, outs, n_outs, b * BLOCK, block_length(count, b), accumulate);
}

void ndp_copy_large(void *to, const void *from, size_t bytes) {
    if (to == from || bytes == 0)
        return;
    enum { PIECE = 256 << 10 };
    int64_t pieces = (int64_t)((bytes + PIECE - 1) / PIECE);
    if (bytes < PARALLEL_BYTES || omp_get_max_threads() == 1) {
        memcpy(to, from, bytes);
        return;
    }
#pragma omp parallel for schedule(static)
    for (int64_t p = 0; p < pieces; p++) {
        size_t at = (size_t)p * PIECE, n = bytes - at < PIECE ? bytes - at : PIECE;
        memcpy((char *)to + at, (const char *)from + at, n);
    }
}
