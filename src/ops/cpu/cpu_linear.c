/* linear, linear_dx and linear_dw. The products are cpu_gemm.h's. An addend (a bias, an earlier gradient) is written to
 * the output first and the product accumulates, so that the sum is rounded once. */
#include "ops/cpu/cpu_gemm.h"
#include "ops/cpu/cpu_rows.h"
#include "ops/linear.h"
#include "ops/shape.h"

static ndp_gemm_shape shape_of(const ndp_product *p, const ndp_op_call *c) {
    bool accumulate = p->added < 0 ? c->attr->accumulate : c->in[p->added].rows > 0;
    return ndp_gemm_shape_of(&c->in[p->a], p->trans_a, &c->in[p->b], p->trans_b, &c->out[0], accumulate, c->exec);
}

static size_t product_scratch(const ndp_product *p, const ndp_op_call *c) {
    ndp_gemm_shape s = shape_of(p, c);
    const ndp_gemm *plan;
    return ndp_gemm_plan(&s, &plan) == NDP_OK ? ndp_gemm_scratch(plan) : 0; /* prepare returns the error */
}

static ndp_status prepare_product(const ndp_product *p, ndp_op_call *c) {
    ndp_gemm_shape s = shape_of(p, c);
    const ndp_gemm *plan;
    NDP_TRY(ndp_gemm_plan(&s, &plan));
    c->plan = (void *)plan;
    return NDP_OK;
}

/* Rows first .. last-1 of the addend; a bias has one row for all. Storage types may differ. */
static void put_addend(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *from = &c->in[2], *to = &c->out[0];
    for (int64_t t = first; t < last; t++)
        ndp_convert(
            (const char *)from->data + (size_t)(from->rows == 1 ? 0 : t * from->ld) * ndp_dtype_size(from->dtype),
            from->dtype, (char *)to->data + (size_t)(t * to->ld) * ndp_dtype_size(to->dtype), to->dtype, to->cols);
}

static ndp_status run_product(const ndp_product *p, const ndp_op_call *c) {
    if (p->added >= 0 && ndp_present(&c->in[p->added]) && c->in[p->added].data != c->out[0].data)
        ndp_rows_run(c, c->out[0].rows, put_addend);
    ndp_gemm_run(c->plan, c->in[p->a].data, c->in[p->b].data, c->out[0].data, c->scratch);
    return NDP_OK;
}

#define PRODUCT(op)                                                                                                    \
    static ndp_status run_##op(const ndp_op_call *c) { return run_product(&ndp_product_##op, c); }                     \
    static size_t scratch_##op(const ndp_op_call *c) { return product_scratch(&ndp_product_##op, c); }                 \
    static ndp_status prepare_##op(ndp_op_call *c) { return prepare_product(&ndp_product_##op, c); }                   \
    const ndp_kernel ndp_cpu_##op = {.run = run_##op, .scratch = scratch_##op, .prepare = prepare_##op};

PRODUCT(linear)
PRODUCT(linear_dx)
PRODUCT(linear_dw)
