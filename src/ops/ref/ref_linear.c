/* linear and its gradients. */
#include "ops/linear.h"
#include "ops/ref/ref_gemm.h"
#include "ops/ref/ref_kernels.h"

static size_t product_scratch(const ndp_product *p, const ndp_op_call *c) {
    return ndp_ref_gemm_scratch(&c->in[p->a], &c->in[p->b], &c->out[0]);
}

static ndp_status run_product(const ndp_product *p, const ndp_op_call *c) {
    const ndp_view *added = p->added < 0 ? NULL : &c->in[p->added], *out = &c->out[0];
    bool add = added && ndp_present(added);
    for (int64_t t = 0; add && t < out->rows; t++)
        for (int64_t j = 0; j < out->cols; j++)
            ndp_view_set(out, t, j, ndp_view_get(added, added->rows == 1 ? 0 : t, j));
    ndp_ref_gemm(&c->in[p->a], p->trans_a, &c->in[p->b], p->trans_b, out, add || (!added && c->attr->accumulate),
                 c->scratch);
    return NDP_OK;
}

#define PRODUCT(op)                                                                                                    \
    static ndp_status run_##op(const ndp_op_call *c) { return run_product(&ndp_product_##op, c); }                     \
    static size_t scratch_##op(const ndp_op_call *c) { return product_scratch(&ndp_product_##op, c); }                 \
    const ndp_kernel ndp_ref_##op = {.run = run_##op, .scratch = scratch_##op};

PRODUCT(linear)
PRODUCT(linear_dx)
PRODUCT(linear_dw)

static double linear_db(const ndp_op_call *c, int64_t row, int64_t j) {
    double sum = 0;
    (void)row; /* there is one */
    for (int64_t t = 0; t < c->in[0].rows; t++)
        sum += ndp_ref_in(c, 0, t, j);
    return sum;
}

NDP_REF_EACH(linear_db)
