/* Matrix products of the devices `cuda` and `sim`: by cuBLASLt, in fp32 (tf32 only where exec->tf32 allows it) from
 * fp32 or bf16 operands. Those that it has no algorithm for are computed by a kernel of our own. */
#ifndef NDP_OPS_CUDA_CUDA_PRODUCT_HPP
#define NDP_OPS_CUDA_CUDA_PRODUCT_HPP

extern "C" {
#include "ops/cuda/cuda_scratch.h"
}

/* to [m,n] = alpha op(a) op(b) + beta added + bias in every row. Absent operands have no data. */
struct ndp_cuda_product {
    ndp_view a, b, to;     /* fp32, bf16, or one of each; `to` of a type of theirs, or fp32 */
    bool trans_a, trans_b; /* stored as [k,m], [n,k] */
    float alpha, beta;
    ndp_view added; /* [m,n], of the type of `to`; may be `to` */
    ndp_view bias;  /* [1,n] */
};

static inline ndp_cuda_product ndp_cuda_product_of(const ndp_view &a, bool trans_a, const ndp_view &b, bool trans_b,
                                                   const ndp_view &to) {
    return {a, b, to, trans_a, trans_b, 1, 0, {}, {}};
}
/* The same, added to `added`. */
static inline ndp_cuda_product ndp_cuda_product_plus(ndp_cuda_product p, const ndp_view &added) {
    p.added = added, p.beta = 1;
    return p;
}

/* Submits the product to the call's queue; with NDP_SUMS_SPLIT as two products of parts of k. An absent result is not
 * computed. `scratch`: as many bytes as ndp_cuda_product_scratch says, and ndp_cuda_mixed_scratch of operands of two
 * types, aligned to 64 bytes. */
NDP_API ndp_status ndp_cuda_multiply(const ndp_op_call *c, const ndp_cuda_product &p, void *scratch);
/* The same by the kernel of our own, never split. The result is there. */
ndp_status ndp_cuda_multiply_plain(const ndp_op_call *c, const ndp_cuda_product &p);
/* How many of those this process has submitted (ndp_device.plain_products). */
long ndp_cuda_plain_products(char *first, size_t room);

#endif
