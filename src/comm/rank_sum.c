/* Reductions in rank order. A buffer is processed in blocks that fit the first-level cache: rank 0's block, plus rank
 * 1's, and so on, in a local accumulator, which is then written to every destination. The order of additions is that of
 * the ranks for each element, whatever the blocks and threads, so the bits are the same on every transport. */
#include "comm/rank_sum.h"
#include "comm/cpu/stream.h"

#include <omp.h>
#include <string.h>

enum { BLOCK = 2048, LARGE_BYTES = 1 << 20 };

bool ndp_reduce_knows(ndp_dtype type) {
    return type == NDP_F32 || type == NDP_F64 || type == NDP_I64 || type == NDP_BF16;
}

/* acc = a op x; `a` may be acc. The maximum with a NaN is NaN, so that no rank hides one. */
#define DEFINE_FOLD(NAME, T, LOAD_T, LOAD)                                                                             \
    static void NAME(T *acc, const T *a, const LOAD_T *x, int64_t n, ndp_reduce op) {                                  \
        if (op == NDP_SUM) {                                                                                           \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++) acc[i] = a[i] + LOAD(x[i]);                            \
        } else {                                                                                                       \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {                                                      \
                T v = LOAD(x[i]);                                                                                      \
                acc[i] = a[i] > v || a[i] != a[i] ? a[i] : v;                                                          \
            }                                                                                                          \
        }                                                                                                              \
    }
DEFINE_FOLD(fold_f32, float, float, )
DEFINE_FOLD(fold_f64, double, double, )
DEFINE_FOLD(fold_i64, int64_t, int64_t, )
DEFINE_FOLD(fold_bf16, float, uint16_t, ndp_bf16_to_f32)

/* A block of at most BLOCK elements, small enough for the first-level cache. */
typedef union sum_block {
    float f32[BLOCK];
    double f64[BLOCK];
    int64_t i64[BLOCK];
} sum_block;

static void widen(sum_block *acc, const uint16_t *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        acc->f32[i] = ndp_bf16_to_f32(x[i]);
}

/* acc = a op x; `a` is a block as acc is, in acc or elsewhere. */
static void block_fold(ndp_dtype type, ndp_reduce op, sum_block *acc, const void *a, const void *x, int64_t n) {
    switch (type) {
    case NDP_F32:
        fold_f32(acc->f32, a, x, n, op);
        break;
    case NDP_F64:
        fold_f64(acc->f64, a, x, n, op);
        break;
    case NDP_I64:
        fold_i64(acc->i64, a, x, n, op);
        break;
    default:
        fold_bf16(acc->f32, a, x, n, op);
        break;
    }
}

static void narrow(uint16_t *out, const sum_block *acc, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        out[i] = ndp_f32_to_bf16(acc->f32[i]);
}

typedef struct rank_sum_job {
    ndp_dtype type;
    ndp_reduce op;
    void *const *in, *const *outs;
    int ranks, n_outs;
    bool accumulate, streamed;
} rank_sum_job;

/* The n elements at byte `at`. The sum lies in rank 0's buffer until something is added to it, then in acc. */
static void reduce_block(const rank_sum_job *j, size_t at, int64_t n) {
    _Alignas(64) sum_block acc;
    _Alignas(64) uint16_t rounded[BLOCK];
    size_t bytes = (size_t)n * ndp_dtype_size(j->type);
    const void *sum = (const char *)j->in[0] + at;
    if (j->type == NDP_BF16) {
        widen(&acc, sum, n);
        sum = &acc;
    }
    for (int r = 1; r < j->ranks; r++, sum = &acc)
        block_fold(j->type, j->op, &acc, sum, (const char *)j->in[r] + at, n);
    if (j->accumulate) {
        block_fold(j->type, j->op, &acc, sum, (const char *)j->outs[0] + at, n);
        sum = &acc;
    }
    if (j->type == NDP_BF16) {
        narrow(rounded, &acc, n);
        sum = rounded;
    }
    for (int k = 0; k < j->n_outs; k++)
        if (j->streamed)
            ndp_stream_block((char *)j->outs[k] + at, sum, bytes);
        else
            memmove((char *)j->outs[k] + at, sum, bytes); /* with one rank the sum may be the buffer itself */
}

static void reduce_span(const rank_sum_job *j, int64_t first, int64_t last) {
    for (; first < last; first += BLOCK)
        reduce_block(j, (size_t)first * ndp_dtype_size(j->type), last - first < BLOCK ? last - first : BLOCK);
    if (j->streamed)
        ndp_stream_end();
}

/* Small work runs on one thread: OpenMP creates a team whenever its size changes, and nothing may allocate in a step.
 */
static bool wants_team(size_t bytes) { return bytes >= LARGE_BYTES && omp_get_max_threads() > 1; }

/* Where the piece of this thread of the team begins, in whole blocks of `unit`; of the next thread: thread + 1. */
static int64_t piece_start(int64_t count, int64_t unit, int thread) {
    int64_t units = (count + unit - 1) / unit, start = units * thread / omp_get_num_threads() * unit;
    return start < count ? start : count;
}

void ndp_reduce_ranks(ndp_dtype type, ndp_reduce op, void *const *in, int ranks, void *const *outs, int n_outs,
                      int64_t count, bool accumulate) {
    size_t bytes = (size_t)count * ndp_dtype_size(type);
    /* Not for results that overwrite what was just read: that is in the caches. */
    bool streamed = bytes >= LARGE_BYTES && in != outs && !accumulate;
    const rank_sum_job j = {type, op, in, outs, ranks, n_outs, accumulate, streamed};
    if (!wants_team(bytes)) {
        reduce_span(&j, 0, count);
        return;
    }
#pragma omp parallel
    {
        int thread = omp_get_thread_num();
        reduce_span(&j, piece_start(count, BLOCK, thread), piece_start(count, BLOCK, thread + 1));
    }
}

void ndp_copy_large(void *to, const void *from, size_t bytes) {
    if (to == from || bytes == 0)
        return;
    if (!wants_team(bytes)) {
        memcpy(to, from, bytes);
        return;
    }
#pragma omp parallel
    {
        int thread = omp_get_thread_num();
        int64_t first = piece_start((int64_t)bytes, 4096, thread), last = piece_start((int64_t)bytes, 4096, thread + 1);
        memcpy((char *)to + first, (const char *)from + first, (size_t)(last - first));
    }
}
