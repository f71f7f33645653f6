/* xent, xent_logits, xent_grad: matrix products (cpu_gemm.h), with the softmax of rows between them (cpu_rows.h). */
#include "ops/cpu/cpu_gemm.h"
#include "ops/cpu/cpu_kernels.h"
#include "ops/cpu/cpu_rows.h"
#include "ops/shape.h"
#include "ops/xent_rows.h"

/* Products -------------------------------------------------------------------------------------------------------- */

static ndp_gemm_shape shape_of(const ndp_op_call *c, const ndp_xent_operands *o, bool accumulate) {
    return ndp_gemm_shape_of(o->a, o->trans_a, o->b, o->trans_b, o->to, accumulate, c->exec);
}

/* Makes the plan of a product of some rows of a call, and raises *scratch to what it needs. `accumulate`: for dw. */
static ndp_status plan(const ndp_op_call *c, const ndp_xent_rows *r, ndp_xent_product product, bool accumulate,
                       size_t *scratch) {
    ndp_xent_operands o = ndp_xent_operands_of(r, product);
    if (!o.to->rows)
        return NDP_OK;
    ndp_gemm_shape s = shape_of(c, &o, accumulate);
    const ndp_gemm *made;
    NDP_TRY(ndp_gemm_plan(&s, &made));
    *scratch = ndp_gemm_scratch(made) > *scratch ? ndp_gemm_scratch(made) : *scratch;
    return NDP_OK;
}

/* Multiplies by the plan that was made; nothing when the product's output is absent. */
static ndp_status multiply(const ndp_op_call *c, const ndp_xent_rows *r, ndp_xent_product product, bool accumulate,
                           void *scratch) {
    ndp_xent_operands o = ndp_xent_operands_of(r, product);
    if (!ndp_present(o.to))
        return NDP_OK;
    ndp_gemm_shape s = shape_of(c, &o, accumulate);
    const ndp_gemm *made;
    NDP_TRY(ndp_gemm_plan(&s, &made));
    ndp_gemm_run(made, o.a->data, o.b->data, o.to->data, scratch);
    return NDP_OK;
}

/* The call of a softmax kernel inside that of an op. */
static ndp_op_call softmax_call(const ndp_op_call *c) {
    return (ndp_op_call){.op = c->op, .attr = c->attr, .exec = c->exec, .queue = c->queue};
}

/* The kernel of an op from its run_ and its plan_, which makes the plans of all its products and raises *scratch. */
#define KERNEL(op)                                                                                                     \
    static size_t scratch_##op(const ndp_op_call *c) {                                                                 \
        size_t bytes = 0;                                                                                              \
        return plan_##op(c, &bytes) == NDP_OK ? bytes : 0; /* prepare returns the error */                             \
    }                                                                                                                  \
    static ndp_status prepare_##op(ndp_op_call *c) {                                                                   \
        size_t unused = 0;                                                                                             \
        return plan_##op(c, &unused);                                                                                  \
    }                                                                                                                  \
    const ndp_kernel ndp_cpu_##op = {.run = run_##op, .scratch = scratch_##op, .prepare = prepare_##op};

/* xent ------------------------------------------------------------------------------------------------------------ */

static size_t logits_bytes(const ndp_op_call *c) {
    int64_t most = ndp_xent_chunk_rows(c), rows = c->in[0].rows < most ? c->in[0].rows : most;
    return ((size_t)(rows * c->in[1].rows) * sizeof(float) + 63) / 64 * 64;
}

/* All plans that a call can ask for: whole chunks and the last one. */
static ndp_status plan_xent(const ndp_op_call *c, size_t *scratch) {
    int64_t rows = c->in[0].rows, most = ndp_xent_chunk_rows(c), sizes[] = {rows < most ? rows : most, rows % most};
    for (int i = 0; i < 2; i++) {
        if (sizes[i] == 0)
            continue;
        ndp_xent_rows r = ndp_xent_chunk(c, 0, sizes[i], NDP_F32);
        NDP_TRY(plan(c, &r, NDP_XENT_LOGITS, false, scratch));
        NDP_TRY(plan(c, &r, NDP_XENT_DX, false, scratch));
        NDP_TRY(plan(c, &r, NDP_XENT_DW, true, scratch));
        if (!c->attr->accumulate)
            NDP_TRY(plan(c, &r, NDP_XENT_DW, false, scratch));
    }
    *scratch += logits_bytes(c);
    return NDP_OK;
}

static ndp_status run_chunk(const ndp_op_call *c, const ndp_xent_rows *r, bool accumulate) {
    void *rest = (char *)c->scratch + logits_bytes(c);
    NDP_TRY(multiply(c, r, NDP_XENT_LOGITS, false, rest));
    ndp_op_call softmax = softmax_call(c);
    softmax.in[0] = r->logits, softmax.in[1] = r->labels, softmax.in[2] = r->scale;
    softmax.out[0] = r->nll, softmax.out[1] = r->dlogits, softmax.out[2] = r->values;
    NDP_TRY(ndp_rows_run(&softmax, r->x.rows, ndp_rows_best()->softmax_xent));
    NDP_TRY(multiply(c, r, NDP_XENT_DX, false, rest));
    return multiply(c, r, NDP_XENT_DW, accumulate, rest);
}

static ndp_status run_xent(const ndp_op_call *c) {
    return ndp_xent_run_chunks(c, ndp_xent_chunk_rows(c), NDP_F32, run_chunk);
}

KERNEL(xent)

/* xent_logits ----------------------------------------------------------------------------------------------------- */

static ndp_status plan_xent_logits(const ndp_op_call *c, size_t *scratch) {
    ndp_xent_rows r = ndp_xent_logits_rows(c);
    return plan(c, &r, NDP_XENT_LOGITS, false, scratch);
}

static ndp_status run_xent_logits(const ndp_op_call *c) {
    ndp_xent_rows r = ndp_xent_logits_rows(c);
    if (!ndp_xent_any_label(&r.labels)) {
        ndp_view_clear(&c->out[1]);
        return NDP_OK;
    }
    NDP_TRY(multiply(c, &r, NDP_XENT_LOGITS, false, c->scratch));
    ndp_op_call softmax = softmax_call(c);
    softmax.in[0] = r.logits, softmax.in[1] = r.labels, softmax.out[0] = c->out[1];
    return ndp_rows_run(&softmax, r.x.rows, ndp_rows_best()->softmax_stats);
}

KERNEL(xent_logits)

/* xent_grad ------------------------------------------------------------------------------------------------------- */

static ndp_status plan_xent_grad(const ndp_op_call *c, size_t *scratch) {
    ndp_xent_rows r = ndp_xent_grad_rows(c, true);
    NDP_TRY(plan(c, &r, NDP_XENT_DX, false, scratch));
    return plan(c, &r, NDP_XENT_DW, c->attr->accumulate, scratch);
}

static ndp_status run_xent_grad(const ndp_op_call *c) {
    ndp_xent_rows r = ndp_xent_grad_rows(c, true);
    if (ndp_xent_grad_ignored(c, &r))
        return NDP_OK;
    ndp_op_call softmax = softmax_call(c);
    softmax.in[0] = r.logits, softmax.in[1] = r.labels;
    softmax.in[2] = r.scale, softmax.in[3] = c->in[NDP_XENT_G_STATS];
    softmax.out[0] = r.nll, softmax.out[1] = r.dlogits, softmax.out[2] = r.values;
    NDP_TRY(ndp_rows_run(&softmax, r.x.rows, ndp_rows_best()->softmax_grad));
    NDP_TRY(multiply(c, &r, NDP_XENT_DX, false, c->scratch));
    return multiply(c, &r, NDP_XENT_DW, c->attr->accumulate, c->scratch);
}

KERNEL(xent_grad)
