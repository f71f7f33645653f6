/* Products without a plan: by one of our own kernels, which take any sizes, or by oneDNN's sgemm. Operands in bf16 are
 * widened for that, a block of k at a time, so that the memory for them does not grow with k. With NDP_SUMS_SPLIT a
 * product is two, of parts of k, in fp32, which are added. The kernels of stacks (cpu_linear_stack.c) call it, from all
 * of their threads. */
#include "ops/cpu/cpu_gemm_kernel.h"

#include <oneapi/dnnl/dnnl.h>

enum { WIDE_BLOCK = 512 };

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* An operand from its number l of k on. `first`: k counts its rows. */
static const char *from_k(const void *x, ndp_dtype type, int64_t ld, bool first, int64_t l) {
    return (const char *)x + (size_t)(l * (first ? ld : 1)) * ndp_dtype_size(type);
}
static const char *a_from(const ndp_gemm_shape *s, const void *a, int64_t l) {
    return from_k(a, s->a, s->lda, s->trans_a, l);
}
static const char *b_from(const ndp_gemm_shape *s, const void *b, int64_t l) {
    return from_k(b, s->b, s->ldb, !s->trans_b, l);
}

/* ---- scratch memory ---- */

static size_t whole_floats(const ndp_gemm_shape *s) {
    const ndp_gemm_kernel *kernel = ndp_gemm_kernel_for(s->a);
    int64_t k = smaller(s->k, WIDE_BLOCK);
    if (kernel)
        return (kernel->most(s) + 63) / 64 * 16;
    return s->a == NDP_F32 ? 0 : ndp_gemm_floats(s->m, k) + ndp_gemm_floats(k, s->n) + ndp_gemm_floats(s->m, s->n);
}

/* A product of one k is not split. */
size_t ndp_gemm_tile_scratch(const ndp_gemm_shape *most) {
    ndp_gemm_shape part = *most;
    part.c = NDP_F32;
    size_t whole = whole_floats(most), split = 2 * ndp_gemm_floats(most->m, most->n) + whole_floats(&part);
    return (most->split && split > whole ? split : whole) * sizeof(float);
}

/* ---- products ---- */

static void run_library(const ndp_gemm_shape *s, const void *a, const void *b, void *c) {
    dnnl_sgemm(s->trans_a ? 'T' : 'N', s->trans_b ? 'T' : 'N', s->m, s->n, s->k, 1, a, s->lda, b, s->ldb,
               s->accumulate ? 1 : 0, c, s->ldc);
}

static void convert_rows(const void *from, ndp_dtype type, int64_t ld, void *to, ndp_dtype to_type, int64_t to_ld,
                         int64_t rows, int64_t cols) {
    for (int64_t i = 0; i < rows; i++)
        ndp_convert((const char *)from + (size_t)(i * ld) * ndp_dtype_size(type), type,
                    (char *)to + (size_t)(i * to_ld) * ndp_dtype_size(to_type), to_type, cols);
}

/* The sums are in C, or, when that is bf16, in scratch memory until the end. */
static void run_widened(const ndp_gemm_shape *s, const void *a, const void *b, void *c, float *scratch) {
    int64_t most = smaller(s->k, WIDE_BLOCK);
    float *wide_a = scratch, *wide_b = wide_a + ndp_gemm_floats(s->m, most);
    float *sums = s->c == NDP_F32 ? c : wide_b + ndp_gemm_floats(most, s->n);
    ndp_gemm_shape wide = *s;
    wide.a = wide.b = wide.c = NDP_F32, wide.ldc = s->c == NDP_F32 ? s->ldc : s->n;
    if (s->accumulate && s->c != NDP_F32)
        convert_rows(c, s->c, s->ldc, sums, NDP_F32, s->n, s->m, s->n);
    for (int64_t l = 0; l < s->k; l += most) {
        int64_t k = smaller(most, s->k - l);
        wide.k = k, wide.lda = s->trans_a ? s->m : k, wide.ldb = s->trans_b ? k : s->n;
        wide.accumulate = s->accumulate || l > 0;
        convert_rows(a_from(s, a, l), s->a, s->lda, wide_a, NDP_F32, wide.lda, s->trans_a ? k : s->m, wide.lda);
        convert_rows(b_from(s, b, l), s->b, s->ldb, wide_b, NDP_F32, wide.ldb, s->trans_b ? s->n : k, wide.ldb);
        run_library(&wide, wide_a, wide_b, sums);
    }
    if (s->c != NDP_F32)
        convert_rows(sums, NDP_F32, s->n, c, s->c, s->ldc, s->m, s->n);
}

static void run_whole(const ndp_gemm_shape *s, const void *a, const void *b, void *c, void *scratch) {
    const ndp_gemm_kernel *kernel = ndp_gemm_kernel_for(s->a);
    if (kernel) {
        kernel->run(s, a, b, c, scratch);
        return;
    }
    ndp_gemm_set_threads(1);
    if (s->a == NDP_BF16)
        run_widened(s, a, b, c, scratch);
    else
        run_library(s, a, b, c);
}

static void run_parts(const ndp_gemm_shape *s, const void *a, const void *b, void *c, float *scratch) {
    ndp_gemm_shape part = *s;
    int64_t at = ndp_split_at(s->k, s->split);
    float *x = scratch, *y = x + ndp_gemm_floats(s->m, s->n), *rest = y + ndp_gemm_floats(s->m, s->n);
    part.c = NDP_F32, part.ldc = s->n, part.accumulate = false;
    part.k = at;
    run_whole(&part, a, b, x, rest);
    part.k = s->k - at;
    run_whole(&part, a_from(s, a, at), b_from(s, b, at), y, rest);
    ndp_gemm_add_parts(s, x, y, c);
}

void ndp_gemm_tile(const ndp_gemm_shape *s, const void *a, const void *b, void *c, void *scratch) {
    ndp_gemm_announce(s, a, b, c);
    if (s->split && s->k > 1)
        run_parts(s, a, b, c, scratch);
    else
        run_whole(s, a, b, c, scratch);
}
