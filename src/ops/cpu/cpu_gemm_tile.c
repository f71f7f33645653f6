/* Products without a plan: by one of our own kernels, which take any sizes, or by oneDNN's sgemm. That gets blocks of
 * the operands, copied to dense fp32, where they are bf16, or where k counts rows of B: it is half as fast on such rows
 * when they are far apart. The memory for blocks does not grow with k. The product of each block of k but the first is
 * computed apart and added (LONGEST_SUM in cpu_gemm.c says why). With NDP_SUMS_SPLIT a product is two, of parts
 * of k, in fp32, which are added. The kernels of stacks (cpu_linear_stack.c) call it, from all of their threads. */
#include "ops/cpu/cpu_gemm_kernel.h"

#include <oneapi/dnnl/dnnl.h>

/* Of B, 256 KiB; it stays in the L2 cache. */
enum { BLOCK_K = 512, BLOCK_N = 128 };

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- scratch memory ---- */

/* The product of a block of k, a block of A, one of B, and the sums of a C in bf16. */
static size_t library_floats(const ndp_gemm_shape *s) {
    int64_t k = smaller(s->k, BLOCK_K);
    return ndp_gemm_floats(s->m, s->n) + ndp_gemm_floats(s->m, k) + ndp_gemm_floats(k, smaller(s->n, BLOCK_N)) +
           (s->c == NDP_F32 ? 0 : ndp_gemm_floats(s->m, s->n));
}

static size_t whole_floats(const ndp_gemm_shape *s) {
    const ndp_gemm_kernel *kernel = ndp_gemm_kernel_for(s->a);
    return kernel ? (kernel->most(s) + 63) / 64 * 16 : library_floats(s);
}

/* A product of one k is not split. */
size_t ndp_gemm_tile_scratch(const ndp_gemm_shape *most) {
    ndp_gemm_shape part = *most;
    part.c = NDP_F32;
    size_t whole = whole_floats(most), split = 2 * ndp_gemm_floats(most->m, most->n) + whole_floats(&part);
    return (most->split && split > whole ? split : whole) * sizeof(float);
}

/* ---- products ---- */

static void convert_rows(const void *from, ndp_dtype type, int64_t ld, void *to, ndp_dtype to_type, int64_t to_ld,
                         int64_t rows, int64_t cols) {
    for (int64_t i = 0; i < rows; i++)
        ndp_convert((const char *)from + (size_t)(i * ld) * ndp_dtype_size(type), type,
                    (char *)to + (size_t)(i * to_ld) * ndp_dtype_size(to_type), to_type, cols);
}

/* A block of an operand, dense in fp32: vectorised, without ndp_convert's way by a block on the stack. */
static void copy_dense(const char *from, ndp_dtype type, int64_t ld, float *restrict to, int64_t rows, int64_t cols) {
    for (int64_t i = 0; i < rows; i++, to += cols) {
        const uint16_t *narrow = (const uint16_t *)(const void *)from + i * ld;
        if (type == NDP_F32)
            memcpy(to, from + (size_t)(i * ld) * sizeof(float), (size_t)cols * sizeof(float));
        else
            for (int64_t j = 0; j < cols; j++)
                to[j] = ndp_bf16_to_f32(narrow[j]);
    }
}

/* Columns col .. col+n-1 of B and k's l .. l+k-1, dense, as stored. */
static void copy_b(const ndp_gemm_shape *s, const void *b, int64_t l, int64_t k, int64_t col, int64_t n, float *to) {
    const char *from = ndp_gemm_b_from(s, b, l) + (size_t)(col * (s->trans_b ? s->ldb : 1)) * ndp_dtype_size(s->b);
    if (s->trans_b)
        copy_dense(from, s->b, s->ldb, to, n, k);
    else
        copy_dense(from, s->b, s->ldb, to, k, n);
}

/* Blocks of A and B in fp32, as stored: all rows of A, n columns of B, k of both. */
typedef struct blocks {
    const float *a, *b;
    int64_t lda, ldb, n, k;
    bool first; /* of k */
} blocks;

/* The first product goes to C, or is added to it; each other one is computed in `apart`, and added. */
static void multiply(const ndp_gemm_shape *s, const blocks *x, float *apart, float *c, int64_t ldc) {
    dnnl_sgemm(s->trans_a ? 'T' : 'N', s->trans_b ? 'T' : 'N', s->m, x->n, x->k, 1, x->a, x->lda, x->b, x->ldb,
               x->first && s->accumulate ? 1 : 0, x->first ? c : apart, x->first ? ldc : x->n);
    if (!x->first)
        ndp_gemm_add(s->m, x->n, apart, c, ldc);
}

/* `c`: C, or, when that is bf16, sums in scratch memory. */
static void run_block(const ndp_gemm_shape *s, const float *a, const void *b, int64_t l, int64_t k, float *dense_b,
                      float *apart, float *c, int64_t ldc) {
    for (int64_t col = 0; col < s->n; col += BLOCK_N) {
        int64_t n = smaller(BLOCK_N, s->n - col);
        copy_b(s, b, l, k, col, n, dense_b);
        multiply(s, &(blocks){a, dense_b, s->trans_a ? s->m : k, s->trans_b ? k : n, n, k, l == 0}, apart, c + col,
                 ldc);
    }
}

static void run_dense(const ndp_gemm_shape *s, const void *a, const void *b, void *c, float *apart) {
    int64_t most = smaller(s->k, BLOCK_K), ld = s->c == NDP_F32 ? s->ldc : s->n;
    float *dense_a = apart + ndp_gemm_floats(s->m, s->n), *dense_b = dense_a + ndp_gemm_floats(s->m, most);
    float *sums = s->c == NDP_F32 ? c : dense_b + ndp_gemm_floats(most, smaller(s->n, BLOCK_N));
    if (s->accumulate && s->c != NDP_F32)
        convert_rows(c, s->c, s->ldc, sums, NDP_F32, s->n, s->m, s->n);
    for (int64_t l = 0; l < s->k; l += most) {
        int64_t k = smaller(most, s->k - l), rows = s->trans_a ? k : s->m, cols = s->trans_a ? s->m : k;
        copy_dense(ndp_gemm_a_from(s, a, l), s->a, s->lda, dense_a, rows, cols);
        run_block(s, dense_a, b, l, k, dense_b, apart, sums, ld);
    }
    if (s->c != NDP_F32)
        convert_rows(sums, NDP_F32, s->n, c, s->c, s->ldc, s->m, s->n);
}

static void run_library(const ndp_gemm_shape *s, const void *a, const void *b, void *c, float *scratch) {
    ndp_gemm_set_threads(1);
    if (s->a != NDP_F32 || !s->trans_b) {
        run_dense(s, a, b, c, scratch);
        return;
    }
    for (int64_t l = 0; l < s->k; l += BLOCK_K) {
        const void *from_a = ndp_gemm_a_from(s, a, l), *from_b = ndp_gemm_b_from(s, b, l);
        multiply(s, &(blocks){from_a, from_b, s->lda, s->ldb, s->n, smaller(BLOCK_K, s->k - l), l == 0}, scratch, c,
                 s->ldc);
    }
}

static void run_whole(const ndp_gemm_shape *s, const void *a, const void *b, void *c, void *scratch) {
    const ndp_gemm_kernel *kernel = ndp_gemm_kernel_for(s->a);
    if (kernel)
        kernel->run(s, a, b, c, scratch);
    else
        run_library(s, a, b, c, scratch);
}

static void run_parts(const ndp_gemm_shape *s, const void *a, const void *b, void *c, float *scratch) {
    ndp_gemm_shape part = *s;
    int64_t at = ndp_split_at(s->k, s->split);
    float *x = scratch, *y = x + ndp_gemm_floats(s->m, s->n), *rest = y + ndp_gemm_floats(s->m, s->n);
    part.c = NDP_F32, part.ldc = s->n, part.accumulate = false;
    part.k = at;
    run_whole(&part, a, b, x, rest);
    part.k = s->k - at;
    run_whole(&part, ndp_gemm_a_from(s, a, at), ndp_gemm_b_from(s, b, at), y, rest);
    ndp_gemm_add_parts(s, x, y, c);
}

void ndp_gemm_tile(const ndp_gemm_shape *s, const void *a, const void *b, void *c, void *scratch) {
    ndp_gemm_announce(s, a, b, c);
    if (s->split && s->k > 1)
        run_parts(s, a, b, c, scratch);
    else
        run_whole(s, a, b, c, scratch);
}
