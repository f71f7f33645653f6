/* The head over the whole vocabulary: logits, softmax and cross-entropy of a chunk of rows at a time, and with
 * attr.train their gradients, made while the chunk's logits are there. */
#include "ops/xent.h"
#include "ops/cpu/rows.h"
#include "ops/shape.h"

#include <math.h>

enum { REF_CHUNK_ROWS = 64 };

/* Every chunk reads w twice and reads and writes dw: the faster the products, the more rows it takes to outweigh that.
 */
static int64_t chunk_rows(const ndp_op_call *c) { return c->in[0].dtype == NDP_BF16 ? 512 : 256; }

static ndp_status shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    NDP_TRY(ndp_xent_check("xent", attr, &in[0], &in[1], &in[2]));
    NDP_SHAPE_CHECK(attr->vocab >= 1 && in[3].dtype == NDP_F64, "xent: %lld real columns, scale " NDP_SHAPE,
                    (long long)attr->vocab, NDP_SHAPE_ARGS(in[3]));
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
    part.rows = v->rows ? n : 0;
    return part;
}

/* Rows first .. first+n-1 of the call; gradients only with attr.train. */
static ndp_xent_rows chunk_of(const ndp_op_call *c, int64_t first, int64_t n, ndp_dtype logits_type) {
    int64_t v = c->in[1].rows;
    ndp_xent_rows r = {
        .x = rows_of(&c->in[0], first, n),
        .w = c->in[1],
        .labels = rows_of(&c->in[2], first, n),
        .logits = {c->scratch, logits_type, n, v, v},
        .nll = rows_of(&c->out[0], first, n),
    };
    r.dlogits = ndp_xent_dlogits(&r.logits, c->in[0].dtype);
    if (c->attr->train) {
        r.dx = rows_of(&c->out[1], first, n);
        r.dw = c->out[2];
    }
    return r;
}

/* One backend's way with a chunk that has labels; `accumulate`: whether dw is added to. */
typedef void (*chunk_kernel)(const ndp_op_call *c, const ndp_xent_rows *r, bool accumulate);

static void run_chunks(const ndp_op_call *c, int64_t rows, ndp_dtype logits_type, chunk_kernel kernel) {
    bool accumulate = c->attr->accumulate;
    for (int64_t first = 0; first < c->in[0].rows; first += rows) {
        int64_t n = c->in[0].rows - first < rows ? c->in[0].rows - first : rows;
        ndp_xent_rows r = chunk_of(c, first, n, logits_type);
        if (ndp_xent_any_label(&r.labels)) {
            kernel(c, &r, accumulate);
            accumulate = true;
            continue;
        }
        ndp_xent_clear(&r.nll);
        ndp_xent_clear(&r.dx);
    }
    if (c->attr->train && !accumulate)
        ndp_xent_clear(&c->out[2]);
}

/* cpu -------------------------------------------------------------------------------------------------------------- */

/* All plans that a call can ask for: whole chunks and the last one; `scratch` is the largest that one needs. */
static ndp_status make_plans(const ndp_op_call *c, size_t *scratch) {
    int64_t rows = c->in[0].rows, most = chunk_rows(c), sizes[] = {rows < most ? rows : most, rows % most};
    *scratch = 0;
    for (int i = 0; i < 2; i++) {
        if (sizes[i] == 0)
            continue;
        ndp_xent_rows r = chunk_of(c, 0, sizes[i], NDP_F32);
        NDP_TRY(ndp_xent_plan(c, &r, NDP_XENT_LOGITS, false, scratch));
        NDP_TRY(ndp_xent_plan(c, &r, NDP_XENT_DX, false, scratch));
        NDP_TRY(ndp_xent_plan(c, &r, NDP_XENT_DW, true, scratch));
        if (!c->attr->accumulate)
            NDP_TRY(ndp_xent_plan(c, &r, NDP_XENT_DW, false, scratch));
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

static void chunk_cpu(const ndp_op_call *c, const ndp_xent_rows *r, bool accumulate) {
    void *scratch = (char *)c->scratch + logits_bytes(c);
    ndp_xent_multiply(c, r, NDP_XENT_LOGITS, false, scratch);
    ndp_op_call softmax = {
        .attr = c->attr, .in = {r->logits, r->labels, c->in[3]}, .out = {r->nll, r->dlogits}, .threads = c->threads};
    ndp_rows_run(&softmax, r->x.rows, ndp_rows_best()->softmax_xent);
    ndp_xent_multiply(c, r, NDP_XENT_DX, false, scratch);
    ndp_xent_multiply(c, r, NDP_XENT_DW, accumulate, scratch);
}

static void kernel_cpu(const ndp_op_call *c) { run_chunks(c, chunk_rows(c), NDP_F32, chunk_cpu); }

/* ref -------------------------------------------------------------------------------------------------------------- */

static void chunk_ref(const ndp_op_call *c, const ndp_xent_rows *r, bool accumulate) {
    void *scratch = (double *)c->scratch + r->logits.rows * r->logits.cols;
    ndp_xent_multiply_ref(r, NDP_XENT_LOGITS, false, scratch);
    for (int64_t t = 0; t < r->x.rows; t++) {
        ndp_xent_stats stats = ndp_xent_stats_ref(c->attr, r, t);
        ndp_xent_finish_ref(c->attr, r, t, &stats, *(const double *)c->in[3].data);
    }
    ndp_xent_multiply_ref(r, NDP_XENT_DX, false, scratch);
    ndp_xent_multiply_ref(r, NDP_XENT_DW, accumulate, scratch);
}

static void kernel_ref(const ndp_op_call *c) { run_chunks(c, REF_CHUNK_ROWS, NDP_F64, chunk_ref); }

static size_t scratch(const ndp_op_call *c, ndp_backend backend) {
    size_t gemm;
    if (backend == NDP_BACKEND_REF) {
        int64_t rows = c->in[0].rows < REF_CHUNK_ROWS ? c->in[0].rows : REF_CHUNK_ROWS;
        return (size_t)(rows * c->in[1].rows) * sizeof(double) + ndp_xent_ref_scratch(rows, &c->in[1]);
    }
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
