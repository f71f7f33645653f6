/* y = x w^T + b, and its gradients. The products go to ops/gemm.h; what is added to a product (bias, an earlier
 * gradient) is put into its output first, so that it is rounded once. */
#include "ops/cpu/rows.h"
#include "ops/gemm.h"
#include "ops/ref.h"
#include "ops/shape.h"

/* Which operands are multiplied, and which one, if any, is added. */
typedef struct product {
    int a, b;
    bool trans_a, trans_b;
    int added; /* -1: none */
} product;

static const product forward = {.a = 0, .b = 1, .trans_b = true, .added = 2};
static const product dx = {.a = 0, .b = 1, .added = 2};
static const product dw = {.a = 0, .b = 1, .trans_a = true, .added = -1};

static ndp_gemm_shape shape_of(const product *p, const ndp_op_call *c) {
    bool accumulate = p->added < 0 ? c->attr->accumulate : c->in[p->added].rows > 0;
    ndp_gemm_shape s =
        ndp_gemm_shape_of(&c->in[p->a], p->trans_a, &c->in[p->b], p->trans_b, &c->out[0], accumulate, c->threads);
    s.split = c->split_sums;
    return s;
}

static size_t product_scratch(const product *p, const ndp_op_call *c, ndp_backend backend) {
    if (backend == NDP_BACKEND_REF)
        return ndp_ref_gemm_scratch(&c->in[p->a], &c->in[p->b], &c->out[0]);
    ndp_gemm_shape s = shape_of(p, c);
    const ndp_gemm *plan;
    return ndp_gemm_plan(&s, &plan) == NDP_OK ? ndp_gemm_scratch(plan) : 0; /* prepare tells the error */
}

static ndp_status product_prepare(const product *p, ndp_op_call *c) {
    ndp_gemm_shape s = shape_of(p, c);
    const ndp_gemm *plan;
    NDP_TRY(ndp_gemm_plan(&s, &plan));
    c->plan = (void *)plan;
    return NDP_OK;
}

/* Row t of the addend: a bias has one row for all. Storage types may differ. */
static void put_addend(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *from = &c->in[2], *to = &c->out[0];
    for (int64_t t = first; t < last; t++)
        ndp_convert(
            (const char *)from->data + (size_t)(from->rows == 1 ? 0 : t * from->ld) * ndp_dtype_size(from->dtype),
            from->dtype, (char *)to->data + (size_t)(t * to->ld) * ndp_dtype_size(to->dtype), to->dtype, to->cols);
}

static void product_cpu(const product *p, const ndp_op_call *c) {
    if (p->added >= 0 && ndp_present(&c->in[p->added]) && c->in[p->added].data != c->out[0].data)
        ndp_rows_run(c, c->out[0].rows, put_addend);
    ndp_gemm_run(c->plan, c->in[p->a].data, c->in[p->b].data, c->out[0].data, c->scratch);
}

static void product_ref(const product *p, const ndp_op_call *c) {
    const ndp_view *added = p->added < 0 ? NULL : &c->in[p->added], *out = &c->out[0];
    bool add = added && ndp_present(added);
    for (int64_t t = 0; add && t < out->rows; t++)
        for (int64_t j = 0; j < out->cols; j++)
            ndp_view_set(out, t, j, ndp_view_get(added, added->rows == 1 ? 0 : t, j));
    ndp_ref_gemm(&c->in[p->a], p->trans_a, &c->in[p->b], p->trans_b, out, add || (!added && c->attr->accumulate),
                 c->scratch);
}

static void product_cost(const ndp_op_call *c, int64_t k, int n_in, double *flops, double *bytes) {
    ndp_cost_stream(c, n_in, 1, &c->out[0], 2.0 * (double)k, flops, bytes);
}

#define PRODUCT_FUNCTIONS(p)                                                                                           \
    static size_t p##_scratch(const ndp_op_call *c, ndp_backend backend) { return product_scratch(&p, c, backend); }   \
    static ndp_status p##_prepare(ndp_op_call *c) { return product_prepare(&p, c); }                                   \
    static void p##_cpu(const ndp_op_call *c) { product_cpu(&p, c); }                                                  \
    static void p##_ref(const ndp_op_call *c) { product_ref(&p, c); }

PRODUCT_FUNCTIONS(forward)
PRODUCT_FUNCTIONS(dx)
PRODUCT_FUNCTIONS(dw)

static ndp_status forward_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_CHECK(in[0].cols == in[1].cols && in[0].dtype == in[1].dtype, "linear: x " NDP_SHAPE ", w " NDP_SHAPE,
                    NDP_SHAPE_ARGS(in[0]), NDP_SHAPE_ARGS(in[1]));
    NDP_SHAPE_CHECK(!in[2].rows || (in[2].rows == 1 && in[2].cols == in[1].rows && in[2].dtype == in[0].dtype),
                    "linear: bias " NDP_SHAPE " for w " NDP_SHAPE, NDP_SHAPE_ARGS(in[2]), NDP_SHAPE_ARGS(in[1]));
    ndp_shape_set(&out[0], in[0].rows, in[1].rows, in[0].dtype);
    return NDP_OK;
}

static ndp_status backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0), made;
    if (g < 0)
        return NDP_OK;
    if (b->wants(b, 0))
        NDP_TRY(b->input_grad(b, &ndp_op_linear_dx, b->attr, (int[]){g, b->in[1], -1}, 3, (int[]){0}, 1, 2, &made));
    if (b->wants(b, 1))
        NDP_TRY(b->weight_grad(b, &ndp_op_linear_dw, b->attr, (int[]){g, b->in[0]}, 2, 1));
    if (b->in[2] >= 0 && b->wants(b, 2))
        NDP_TRY(b->weight_grad(b, &ndp_op_linear_db, b->attr, (int[]){g}, 1, 2));
    return NDP_OK;
}

static void forward_cost(const ndp_op_call *c, double *flops, double *bytes) {
    product_cost(c, c->in[0].cols, 3, flops, bytes);
}

const ndp_op ndp_op_linear = {
    .name = "linear",
    .n_in = 3,
    .n_out = 1,
    .optional_in = 1u << 2,
    .alias = -1,
    .shape = forward_shape,
    .backward = backward,
    .cost = forward_cost,
    .scratch = forward_scratch,
    .prepare = forward_prepare,
    .kernel = {forward_cpu, forward_ref},
};

static ndp_status dx_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    NDP_SHAPE_CHECK(in[0].cols == in[1].rows && in[0].dtype == in[1].dtype, "linear_dx: dy " NDP_SHAPE ", w " NDP_SHAPE,
                    NDP_SHAPE_ARGS(in[0]), NDP_SHAPE_ARGS(in[1]));
    ndp_shape_set(&out[0], in[0].rows, in[1].cols, attr->wide_grad ? ndp_wide(in[0].dtype) : in[0].dtype);
    if (in[2].rows)
        NDP_SHAPE_SAME("linear_dx", in[2], out[0]);
    return NDP_OK;
}

static void dx_cost(const ndp_op_call *c, double *flops, double *bytes) {
    product_cost(c, c->in[0].cols, 3, flops, bytes);
}

const ndp_op ndp_op_linear_dx = {
    .name = "linear_dx",
    .n_in = 3,
    .n_out = 1,
    .optional_in = 1u << 2,
    .alias = -1,
    .shape = dx_shape,
    .cost = dx_cost,
    .scratch = dx_scratch,
    .prepare = dx_prepare,
    .kernel = {dx_cpu, dx_ref},
};

static ndp_status dw_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    NDP_SHAPE_CHECK(in[0].rows == in[1].rows && in[0].dtype == in[1].dtype, "linear_dw: dy " NDP_SHAPE ", x " NDP_SHAPE,
                    NDP_SHAPE_ARGS(in[0]), NDP_SHAPE_ARGS(in[1]));
    ndp_shape_set(&out[0], in[0].cols, in[1].cols, ndp_wide(in[0].dtype));
    return NDP_OK;
}

static void dw_cost(const ndp_op_call *c, double *flops, double *bytes) {
    product_cost(c, c->in[0].rows, 2, flops, bytes);
}

const ndp_op ndp_op_linear_dw = {
    .name = "linear_dw",
    .n_in = 2,
    .n_out = 1,
    .alias = -1,
    .shape = dw_shape,
    .cost = dw_cost,
    .scratch = dw_scratch,
    .prepare = dw_prepare,
    .kernel = {dw_cpu, dw_ref},
};

static ndp_status db_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    (void)attr;
    ndp_shape_set(&out[0], 1, in[0].cols, ndp_wide(in[0].dtype));
    return NDP_OK;
}

static void db_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, 1, 1, &c->in[0], 1, flops, bytes);
}

static void db_ref(const ndp_op_call *c) {
    for (int64_t j = 0; j < c->in[0].cols; j++) {
        double sum = 0;
        for (int64_t t = 0; t < c->in[0].rows; t++)
            sum += ndp_view_get(&c->in[0], t, j);
        ndp_ref_give(&c->out[0], 0, j, sum, c->attr->accumulate);
    }
}

static void db_cpu(const ndp_op_call *c) {
    ndp_rows_run(c, ndp_column_blocks(c->out[0].cols), ndp_rows_best()->linear_db);
}

const ndp_op ndp_op_linear_db = {
    .name = "linear_db",
    .n_in = 1,
    .n_out = 1,
    .alias = -1,
    .shape = db_shape,
    .cost = db_cost,
    .kernel = {db_cpu, db_ref},
};
