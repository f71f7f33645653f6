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

/* xent ------------------------------------------------------------------------------------------------------------ */

/* All plans that a call can ask for: whole chunks and the last one; `scratch`: the most that one needs. */
static ndp_status make_plans(const ndp_op_call *c, size_t *scratch) {
    int64_t rows = c->in[0].rows, most = ndp_xent_chunk_rows(c), sizes[] = {rows < most ? rows : most, rows % most};
    *scratch = 0;
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
    return NDP_OK;
}

static ndp_status prepare(ndp_op_call *c) {
    size_t unused;
    return make_plans(c, &unused);
}

static size_t logits_bytes(const ndp_op_call *c) {
    int64_t most = ndp_xent_chunk_rows(c), rows = c->in[0].rows < most ? c->in[0].rows : most;
    return ((size_t)(rows * c->in[1].rows) * sizeof(float) + 63) / 64 * 64;
}

static size_t scratch(const ndp_op_call *c) {
    size_t gemm;
    return make_plans(c, &gemm) == NDP_OK ? logits_bytes(c) + gemm : 0; /* prepare returns the error */
}

static ndp_status run_chunk(const ndp_op_call *c, const ndp_xent_rows *r, bool accumulate) {
    void *rest = (char *)c->scratch + logits_bytes(c);
    NDP_TRY(multiply(c, r, NDP_XENT_LOGITS, false, rest));
    ndp_op_call softmax = softmax_call(c);
    softmax.in[0] = r->logits, softmax.in[1] = r->labels, softmax.in[2] = c->in[3];
    softmax.out[0] = r->nll, softmax.out[1] = r->dlogits;
    NDP_TRY(ndp_rows_run(&softmax, r->x.rows, ndp_rows_best()->softmax_xent));
    NDP_TRY(multiply(c, r, NDP_XENT_DX, false, rest));
    return multiply(c, r, NDP_XENT_DW, accumulate, rest);
}

static ndp_status run(const ndp_op_call *c) {
    return ndp_xent_run_chunks(c, ndp_xent_chunk_rows(c), NDP_F32, run_chunk);
}

const ndp_kernel ndp_cpu_xent = {.run = run, .scratch = scratch, .prepare = prepare};

/* xent_logits ----------------------------------------------------------------------------------------------------- */

static ndp_status plan_logits(const ndp_op_call *c, size_t *scratch_bytes) {
    ndp_xent_rows r = ndp_xent_logits_rows(c);
    *scratch_bytes = 0;
    return plan(c, &r, NDP_XENT_LOGITS, false, scratch_bytes);
}

static size_t scratch_logits(const ndp_op_call *c) {
    size_t bytes;
    return plan_logits(c, &bytes) == NDP_OK ? bytes : 0; /* prepare returns the error */
}

static ndp_status prepare_logits(ndp_op_call *c) {
    size_t unused;
    return plan_logits(c, &unused);
}

static ndp_status run_logits(const ndp_op_call *c) {
    ndp_xent_rows r = ndp_xent_logits_rows(c);
    if (!ndp_xent_any_label(&r.labels)) {
        ndp_xent_clear(&c->out[1]);
        return NDP_OK;
    }
    NDP_TRY(multiply(c, &r, NDP_XENT_LOGITS, false, c->scratch));
    ndp_op_call softmax = softmax_call(c);
    softmax.in[0] = r.logits, softmax.in[1] = r.labels, softmax.out[0] = c->out[1];
    return ndp_rows_run(&softmax, r.x.rows, ndp_rows_best()->softmax_stats);
}

const ndp_kernel ndp_cpu_xent_logits = {.run = run_logits, .scratch = scratch_logits, .prepare = prepare_logits};

/* xent_grad ------------------------------------------------------------------------------------------------------- */

static ndp_status plan_grad(const ndp_op_call *c, size_t *scratch_bytes) {
    ndp_xent_rows r = ndp_xent_grad_rows(c, true);
    *scratch_bytes = 0;
    NDP_TRY(plan(c, &r, NDP_XENT_DX, false, scratch_bytes));
    return plan(c, &r, NDP_XENT_DW, c->attr->accumulate, scratch_bytes);
}

static size_t scratch_grad(const ndp_op_call *c) {
    size_t bytes;
    return plan_grad(c, &bytes) == NDP_OK ? bytes : 0; /* prepare returns the error */
}

static ndp_status prepare_grad(ndp_op_call *c) {
    size_t unused;
    return plan_grad(c, &unused);
}

static ndp_status run_grad(const ndp_op_call *c) {
    ndp_xent_rows r = ndp_xent_grad_rows(c, true);
    if (ndp_xent_grad_ignored(c, &r))
        return NDP_OK;
    ndp_op_call softmax = softmax_call(c);
    softmax.in[0] = r.logits, softmax.in[1] = r.labels;
    softmax.in[2] = c->in[NDP_XENT_G_SCALE], softmax.in[3] = c->in[NDP_XENT_G_STATS];
    softmax.out[0] = r.nll, softmax.out[1] = r.dlogits;
    NDP_TRY(ndp_rows_run(&softmax, r.x.rows, ndp_rows_best()->softmax_grad));
    NDP_TRY(multiply(c, &r, NDP_XENT_DX, false, c->scratch));
    return multiply(c, &r, NDP_XENT_DW, c->attr->accumulate, c->scratch);
}

const ndp_kernel ndp_cpu_xent_grad = {.run = run_grad, .scratch = scratch_grad, .prepare = prepare_grad};
