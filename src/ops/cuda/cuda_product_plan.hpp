/* One product of cuBLASLt, whose matrices are stored by columns. */
#ifndef NDP_OPS_CUDA_CUDA_PRODUCT_PLAN_HPP
#define NDP_OPS_CUDA_CUDA_PRODUCT_PLAN_HPP

#include "device/cuda/cuda_queue.hpp"

extern "C" {
#include "tensor/dtype.h"
}

/* d [m,n] = alpha op(a) op(b) + beta c + bias in every column; op transposes what is stored as [k,m], [n,k]. c may be
 * d, or absent with beta 0; bias may be absent. All leading dimensions are in elements. */
struct ndp_matmul {
    int64_t m, n, k;
    bool trans_a, trans_b;
    bool tf32;               /* operands in fp32 may be rounded to 10 bits */
    ndp_dtype type, to_type; /* of a and b; of c, d and bias. fp32 or bf16, bf16 only from bf16 */
    const void *a, *b, *c, *bias;
    void *d;
    int64_t lda, ldb, ldc, ldd;
    float alpha, beta;
    void *workspace; /* aligned to 16 bytes */
    size_t workspace_bytes;
};

/* A product of that shape, and how cuBLASLt computes it. Owned by the context. */
struct ndp_matmul_plan;

/* Finds the plan, or makes it: by the library's heuristic, the first algorithm that the workspace suffices for and
 * whose partial sums are fp32, so that equal calls give equal bits. *out: NULL when the library has none. NDP_ENOTSUP:
 * there is no cuBLASLt. */
NDP_API ndp_status ndp_matmul_find(ndp_queue *q, const ndp_matmul *m, const ndp_matmul_plan **out);
/* Submits the product by its plan. NDP_EIO: the library refused it. */
NDP_API ndp_status ndp_matmul_run(ndp_queue *q, const ndp_matmul *m, const ndp_matmul_plan *plan);

#endif
