/* linear_stack and its gradients: the products of their groups, one after the other. */
#include "ops/linear_stack.h"
#include "ops/ref/ref_gemm.h"
#include "ops/ref/ref_kernels.h"

/* For a group that has all rows. */
static size_t product_scratch(const ndp_product *p, const ndp_op_call *c) {
    ndp_stack_part all = ndp_stack_rows(p, c, 0, 0, c->in[0].rows);
    return ndp_ref_gemm_scratch(&all.a, &all.b, &all.c);
}

static void put_rows(const ndp_view *from, const ndp_view *to) {
    for (int64_t t = 0; t < to->rows; t++)
        for (int64_t j = 0; j < to->cols; j++)
            ndp_view_set(to, t, j, ndp_present(from) ? ndp_view_get(from, t, j) : 0.0);
}

static ndp_status run_product(const ndp_product *p, const ndp_op_call *c) {
    int64_t groups = ndp_stack_groups(c);
    for (int64_t e = 0; e <= groups; e++) {
        ndp_stack_part g = ndp_stack_group(p, c, e);
        bool add = ndp_present(&g.added) || (p->trans_a && c->attr->accumulate);
        if (!p->trans_a && (e == groups || add))
            put_rows(&g.added, &g.c);
        if (e < groups)
            ndp_ref_gemm(&g.a, p->trans_a, &g.b, p->trans_b, &g.c, add, c->scratch);
    }
    return NDP_OK;
}

#define PRODUCT(op)                                                                                                    \
    static ndp_status run_##op(const ndp_op_call *c) { return run_product(&ndp_product_##op, c); }                     \
    static size_t scratch_##op(const ndp_op_call *c) { return product_scratch(&ndp_product_##op, c); }                 \
    const ndp_kernel ndp_ref_##op = {.run = run_##op, .scratch = scratch_##op};

PRODUCT(linear_stack)
PRODUCT(linear_stack_dx)
PRODUCT(linear_stack_dw)

static double stack_bias(const ndp_op_call *c, int64_t t, int64_t j) {
    int64_t e = 0, groups = c->in[1].rows;
    while (e < groups && ndp_ref_in(c, 2, e + 1, 0) <= (double)t)
        e++;
    return ndp_ref_in(c, 0, t, j) + (e < groups ? ndp_ref_in(c, 1, e, j) / c->attr->parts : 0);
}

NDP_REF_EACH(stack_bias)

static double stack_bias_db(const ndp_op_call *c, int64_t e, int64_t j) {
    double sum = 0;
    for (int64_t t = (int64_t)ndp_ref_in(c, 1, e, 0); t < (int64_t)ndp_ref_in(c, 1, e + 1, 0); t++)
        sum += ndp_ref_in(c, 0, t, j);
    return sum / c->attr->parts;
}

NDP_REF_EACH(stack_bias_db)
