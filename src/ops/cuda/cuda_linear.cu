/* linear, linear_dx and linear_dw: products (cuda_product.hpp), to which the library adds a bias or an earlier
 * gradient. */
#include "ops/cuda/cuda_kernels.hpp"
#include "ops/cuda/cuda_product.hpp"

extern "C" {
#include "ops/linear.h"
}

static ndp_cuda_product product_of(const ndp_product *p, const ndp_op_call *c) {
    return ndp_cuda_product_of(c->in[p->a], p->trans_a, c->in[p->b], p->trans_b, c->out[0]);
}

static ndp_status run_linear(const ndp_op_call *c) {
    ndp_cuda_product p = product_of(&ndp_product_linear, c);
    p.bias = c->in[ndp_product_linear.added];
    return ndp_cuda_multiply(c, p, c->scratch);
}

static ndp_status run_linear_dx(const ndp_op_call *c) {
    ndp_cuda_product p = product_of(&ndp_product_linear_dx, c);
    const ndp_view &earlier = c->in[ndp_product_linear_dx.added];
    return ndp_cuda_multiply(c, earlier.data ? ndp_cuda_product_plus(p, earlier) : p, c->scratch);
}

static ndp_status run_linear_dw(const ndp_op_call *c) {
    ndp_cuda_product p = product_of(&ndp_product_linear_dw, c);
    return ndp_cuda_multiply(c, c->attr->accumulate ? ndp_cuda_product_plus(p, p.to) : p, c->scratch);
}

NDP_CUDA_KERNEL_WITH_SCRATCH(linear)
NDP_CUDA_KERNEL_WITH_SCRATCH(linear_dx)
NDP_CUDA_KERNEL_WITH_SCRATCH(linear_dw)
