/* All matrix products of the device `cpu` go through here: to our own kernels where the processor has AVX-512 (fp32),
 * and tiles or dpbf16ps (bf16), else to oneDNN. Plans are cached by (shape, layouts, types, beta, threads, split), made
 * in the build phase and shared by the ranks of a process; memories, streams and scratchpads are not. Our own kernels
 * allocate nothing, and their bits do not depend on the number of threads. */
#ifndef NDP_OPS_CPU_CPU_GEMM_H
#define NDP_OPS_CPU_CPU_GEMM_H

#include "ops/op.h"

typedef struct ndp_gemm_shape {
    int64_t m, n, k;       /* C [m,n] (+)= A [m,k] B [k,n] */
    int64_t lda, ldb, ldc; /* row strides as stored */
    bool trans_a, trans_b; /* stored as [k,m], [n,k] */
    ndp_dtype a, b, c;     /* fp32 or bf16; c is bf16 where a or b is */
    bool accumulate;       /* C += */
    int threads;
    int split;    /* > 0: two products, of parts of k, in fp32; they are added, and the sum is rounded (ops/op.h) */
    bool library; /* oneDNN's product, also where there is one of our own: to compare with */
} ndp_gemm_shape;

typedef struct ndp_gemm ndp_gemm;

/* C (+)= A B for three views, where A is `a` or its transpose, and B likewise. */
static inline ndp_gemm_shape ndp_gemm_shape_of(const ndp_view *a, bool trans_a, const ndp_view *b, bool trans_b,
                                               const ndp_view *c, bool accumulate, const ndp_exec *exec) {
    return (ndp_gemm_shape){
        .m = c->rows,
        .n = c->cols,
        .k = trans_a ? a->rows : a->cols,
        .lda = a->ld,
        .ldb = b->ld,
        .ldc = c->ld,
        .trans_a = trans_a,
        .trans_b = trans_b,
        .a = a->dtype,
        .b = b->dtype,
        .c = c->dtype,
        .accumulate = accumulate,
        .threads = exec->threads,
        .split = ndp_split_place(exec),
    };
}

/* Finds or makes the plan; owned by the process-wide cache. */
ndp_status ndp_gemm_plan(const ndp_gemm_shape *shape, const ndp_gemm **out);
size_t ndp_gemm_scratch(const ndp_gemm *plan);
/* `scratch`: at least ndp_gemm_scratch bytes, 64-byte aligned. Allocates nothing that outlives the call. */
void ndp_gemm_run(const ndp_gemm *plan, const void *a, const void *b, void *c, void *scratch);

/* Products without a plan (cpu_gemm_tile.c): their sizes are known only when they run, and each is computed by the
 * thread that calls. A kernel of many products shares such tiles among its threads. By the same kernels as products
 * with a plan, or by oneDNN's sgemm. `s->threads` is 1, `s->library` false; `s->split` counts. */

/* Once before the first of them. */
ndp_status ndp_gemm_ready(void);
/* Bytes of scratch memory for every product that is like `most` and no larger; a multiple of 64. */
size_t ndp_gemm_tile_scratch(const ndp_gemm_shape *most);
/* k >= 1. `scratch` is 64-byte aligned. Our own kernels give each element the bits that it has in a whole product. */
void ndp_gemm_tile(const ndp_gemm_shape *s, const void *a, const void *b, void *c, void *scratch);

#endif
