/* The head: logits, softmax and cross-entropy of a chunk of rows at a time, and with attr.train their gradients, made
 * while the chunk's logits are there: x -> logits [R,V] -> nll, dlogits (in their place) -> dx, dw. */
#include "ops/cpu/rows.h"
#include "ops/gemm.h"
#include "ops/ref.h"
#include "ops/shape.h"

#include <math.h>

enum { REF_CHUNK_ROWS = 64 };

/* Every chunk reads w twice and reads and writes dw: the faster the products, the more rows it takes to outweigh that.
 */
static int64_t chunk_rows(const ndp_op_call *c) { return c->in[0].dtype == NDP_BF16 ? 512 : 256; }

static ndp_status shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    NDP_SHAPE_CHECK(in[0].cols == in[1].cols && in[0].dtype == in[1].dtype, "xent: x " NDP_SHAPE ", w " NDP_SHAPE,
                    NDP_SHAPE_ARGS(in[0]), NDP_SHAPE_ARGS(in[1]));
    NDP_SHAPE_CHECK(in[2].dtype == NDP_I32 && in[2].rows == in[0].rows && in[3].dtype == NDP_F64,
                    "xent: labels " NDP_SHAPE ", scale " NDP_SHAPE, NDP_SHAPE_ARGS(in[2]), NDP_SHAPE_ARGS(in[3]));
    NDP_SHAPE_CHECK(attr->vocab >= 1 && attr->vocab <= in[1].rows, "xent: %lld of %lld columns are real",
                    (long long)attr->vocab, (long long)in[1].rows);
    ndp_shape_set(&out[0], in[0].rows, 1, ndp_wide(in[0].dtype));
    ndp_shape_set(&out[1], in[0].rows, in[0].cols, in[0].dtype);
    ndp_shape_set(&out[2], in[1].rows, in[1].cols, ndp_wide(in[1].dtype));
    return NDP_OK;
}

/* The forward made both gradients; dw went where it belongs. */
static ndp_status backward(ndp_bwd *b) { return b->wants(b, 0) ? b->pass_grad(b, 0, b->out[1]) : NDP_OK; }

static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    double rows = (double)c->in[0].rows, vocab = (double)c->in[1].rows, chunks = ceil(rows / (double)chunk_rows(c));
    double products = 1 + (c->attr->train && c->out[1].rows) + (c->attr->train && c->out[2].rows);
    *flops = rows * vocab * (2 * products * (double)c->in[0].cols + 14);
    *bytes = chunks * products * ndp_view_bytes(&c->in[1]) + rows * vocab * 4 * (2 + products) +
             2 * ndp_view_bytes(&c->in[0]);
}

static ndp_view rows_of(const ndp_view *v, int64_t first, int64_t n) {
    ndp_view part = *v;
    if (part.data)
        part.data = (char *)part.data + (size_t)(first * v->ld) * ndp_dtype_size(v->dtype);
    part.rows = n;
    return part;
}

/* Rows first .. first+n-1 of the call. dlogits of bf16 lie in the fp32 logits, each row at the start of its row. */
typedef struct chunk {
    ndp_view x, w, labels, nll, dx, dw, logits, dlogits;
} chunk;

static chunk chunk_of(const ndp_op_call *c, int64_t first, int64_t n, ndp_dtype logits_type) {
    int64_t v = c->in[1].rows;
    chunk k = {
        .x = rows_of(&c->in[0], first, n),
        .w = c->in[1],
        .labels = rows_of(&c->in[2], first, n),
        .nll = rows_of(&c->out[0], first, n),
        .dx = rows_of(&c->out[1], first, n),
        .dw = c->out[2],
        .logits = {c->scratch, logits_type, n, v, v},
    };
    k.dlogits = k.logits;
    if (c->in[0].dtype == NDP_BF16 && logits_type == NDP_F32) {
        k.dlogits.dtype = NDP_BF16;
        k.dlogits.ld = 2 * v;
    }
    return k;
}

static bool any_label(const ndp_view *labels) {
    for (int64_t t = 0; t < labels->rows; t++)
        if (ndp_ref_int(labels, t) >= 0)
            return true;
    return false;
}

static void clear_rows(const ndp_view *v) {
    for (int64_t r = 0; v->data && r < v->rows; r++)
        memset((char *)v->data + (size_t)(r * v->ld) * ndp_dtype_size(v->dtype), 0,
               (size_t)v->cols * ndp_dtype_size(v->dtype));
}

/* One backend's way with a chunk that has labels; `accumulate`: whether dw is added to. */
typedef void (*chunk_kernel)(const ndp_op_call *c, const chunk *k, bool accumulate);

/* A chunk without labels costs nothing. */
static void run_chunks(const ndp_op_call *c, int64_t rows, ndp_dtype logits_type, chunk_kernel kernel) {
    bool accumulate = c->attr->accumulate;
    for (int64_t first = 0; first < c->in[0].rows; first += rows) {
        int64_t n = c->in[0].rows - first < rows ? c->in[0].rows - first : rows;
        chunk k = chunk_of(c, first, n, logits_type);
        if (any_label(&k.labels)) {
            kernel(c, &k, accumulate);
            accumulate = true;
            continue;
        }
        clear_rows(&k.nll);
        if (c->attr->train)
            clear_rows(&k.dx);
    }
    if (c->attr->train && !accumulate)
        clear_rows(&c->out[2]);
}

/* cpu -------------------------------------------------------------------------------------------------------------- */

static ndp_gemm_shape logits_product(const ndp_op_call *c, const chunk *k) {
    return ndp_gemm_shape_of(&k->x, false, &k->w, true, &k->logits, false, c->threads);
}

static ndp_gemm_shape dx_product(const ndp_op_call *c, const chunk *k) {
    return ndp_gemm_shape_of(&k->dlogits, false, &k->w, false, &k->dx, false, c->threads);
}

static ndp_gemm_shape dw_product(const ndp_op_call *c, const chunk *k, bool accumulate) {
    return ndp_gemm_shape_of(&k->dlogits, true, &k->x, false, &k->dw, accumulate, c->threads);
}

static ndp_status add_plan(const ndp_gemm_shape *s, size_t *scratch) {
    const ndp_gemm *plan;
    NDP_TRY(ndp_gemm_plan(s, &plan));
    *scratch = ndp_gemm_scratch(plan) > *scratch ? ndp_gemm_scratch(plan) : *scratch;
    return NDP_OK;
}

/* All plans that a call can ask for: whole chunks and the last one; `scratch` is the largest that one needs. */
static ndp_status make_plans(const ndp_op_call *c, size_t *scratch) {
    int64_t rows = c->in[0].rows, most = chunk_rows(c), sizes[] = {rows < most ? rows : most, rows % most};
    *scratch = 0;
    for (int i = 0; i < 2; i++) {
        if (sizes[i] == 0)
            continue;
        chunk k = chunk_of(c, 0, sizes[i], NDP_F32);
        ndp_gemm_shape products[] = {logits_product(c, &k), dx_product(c, &k), dw_product(c, &k, true),
                                     dw_product(c, &k, false)};
        bool wanted[] = {true, c->attr->train && c->out[1].rows, c->attr->train && c->out[2].rows,
                         c->attr->train && c->out[2].rows && !c->attr->accumulate};
        for (int p = 0; p < NDP_COUNT(products); p++)
            if (wanted[p])
                NDP_TRY(add_plan(&products[p], scratch));
    }
    return NDP_OK;
}

static ndp_status prepare(ndp_op_call *c) {
    size_t unused;
    return make_plans(c, &unused);
}

static size_t logits_bytes(const ndp_op_call *c) {
    int64_t most = chunk_rows(c), rows = c->in[0].rows < most ? c->in[0].rows : most;
    return ((size_t)(rows * c->in[1].rows) * sizeof(float) + 63) / 64 * 64;
}

/* Finds the plan that prepare made. */
static void multiply(const ndp_op_call *c, ndp_gemm_shape s, const ndp_view *a, const ndp_view *b, const ndp_view *to) {
    const ndp_gemm *plan;
    if (ndp_gemm_plan(&s, &plan) == NDP_OK)
        ndp_gemm_run(plan, a->data, b->data, to->data, (char *)c->scratch + logits_bytes(c));
}

static void chunk_cpu(const ndp_op_call *c, const chunk *k, bool accumulate) {
    multiply(c, logits_product(c, k), &k->x, &k->w, &k->logits);
    ndp_op_call softmax = {
        .attr = c->attr, .in = {k->logits, k->labels, c->in[3]}, .out = {k->nll, k->dlogits}, .threads = c->threads};
    ndp_rows_run(&softmax, k->x.rows, ndp_rows_best()->softmax_xent);
    if (c->attr->train && ndp_present(&k->dx))
        multiply(c, dx_product(c, k), &k->dlogits, &k->w, &k->dx);
    if (c->attr->train && ndp_present(&k->dw))
        multiply(c, dw_product(c, k, accumulate), &k->dlogits, &k->x, &k->dw);
}

static void kernel_cpu(const ndp_op_call *c) { run_chunks(c, chunk_rows(c), NDP_F32, chunk_cpu); }

/* ref -------------------------------------------------------------------------------------------------------------- */

static void softmax_ref(const ndp_op_call *c, const chunk *k) {
    const ndp_view *l = &k->logits;
    for (int64_t t = 0; t < l->rows; t++) {
        int64_t label = ndp_ref_int(&k->labels, t);
        double max = -INFINITY, sum = 0, scale = *(const double *)c->in[3].data;
        for (int64_t j = 0; j < c->attr->vocab; j++)
            max = fmax(max, ndp_view_get(l, t, j));
        for (int64_t j = 0; j < c->attr->vocab; j++)
            sum += exp(ndp_view_get(l, t, j) - max);
        ndp_view_set(&k->nll, t, 0, label < 0 ? 0.0 : log(sum) + max - ndp_view_get(l, t, label));
        for (int64_t j = 0; j < l->cols; j++) {
            double p = j < c->attr->vocab && label >= 0 ? exp(ndp_view_get(l, t, j) - max) / sum : 0.0;
            ndp_view_set(l, t, j, (p - (j == label)) * scale);
        }
    }
}

static void chunk_ref(const ndp_op_call *c, const chunk *k, bool accumulate) {
    void *scratch = (double *)c->scratch + k->logits.rows * k->logits.cols;
    ndp_ref_gemm(&k->x, false, &k->w, true, &k->logits, false, scratch);
    softmax_ref(c, k);
    if (c->attr->train && ndp_present(&k->dx))
        ndp_ref_gemm(&k->logits, false, &k->w, false, &k->dx, false, scratch);
    if (c->attr->train && ndp_present(&k->dw))
        ndp_ref_gemm(&k->logits, true, &k->x, false, &k->dw, accumulate, scratch);
}

static void kernel_ref(const ndp_op_call *c) { run_chunks(c, REF_CHUNK_ROWS, NDP_F64, chunk_ref); }

/* The widest of the three products of a chunk: all have two of x, w and logits as operands. */
static size_t ref_scratch(const ndp_op_call *c) {
    int64_t rows = c->in[0].rows < REF_CHUNK_ROWS ? c->in[0].rows : REF_CHUNK_ROWS;
    int64_t v = c->in[1].rows, h = c->in[1].cols;
    return (size_t)(2 * rows * v + rows * h + v * h + v + h) * sizeof(double);
}

static size_t scratch(const ndp_op_call *c, ndp_backend backend) {
    size_t gemm;
    if (backend == NDP_BACKEND_REF)
        return ref_scratch(c);
    return make_plans(c, &gemm) == NDP_OK ? logits_bytes(c) + gemm : 0; /* prepare tells the error */
}

const ndp_op ndp_op_xent = {
    .name = "xent",
    .n_in = 4,
    .n_out = 3,
    .alias = -1,
    .shape = shape,
    .backward = backward,
    .cost = cost,
    .scratch = scratch,
    .prepare = prepare,
    .kernel = {kernel_cpu, kernel_ref},
};
