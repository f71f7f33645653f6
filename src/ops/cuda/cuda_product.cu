/* Products of views. Rows of ours are columns of cuBLASLt's, so to^T = op(b)^T op(a)^T: it gets the operands exchanged.
 *
 * A split product (ops/op.h) is two of parts of k; the second is added to the first. A result in bf16 is summed in fp32
 * first, so that it is rounded once, as a whole one is.
 *
 * A product of fp32 and bf16 is two of bf16, with the fp32 operand as the sum of two of 8 bits each: what they leave
 * out of an element x is below 2^-16 |x|. */
#include "ops/cuda/cuda_kernel.cuh"
#include "ops/cuda/cuda_product.hpp"
#include "ops/cuda/cuda_product_plan.hpp"

#include <cstdint>

static const ndp_view none = {};

/* ---- passes over elements ---- */

/* to = bias in every row. */
struct bias_each {
    ndp_view bias, to;
    __device__ void operator()(int64_t r, int64_t c) const { ndp_set8(to, r, c, ndp_get8(bias, 0, c)); }
};

/* to = sums + beta added + bias. */
struct finish_each {
    ndp_view sums, added, bias, to;
    float beta;
    __device__ void operator()(int64_t r, int64_t c) const {
        ndp_lanes x = ndp_get8(sums, r, c);
        if (added.data) {
            ndp_lanes y = ndp_get8(added, r, c);
            for (int k = 0; k < NDP_LANES; k++)
                x.x[k] += beta * y.x[k];
        }
        if (bias.data) {
            ndp_lanes y = ndp_get8(bias, 0, c);
            for (int k = 0; k < NDP_LANES; k++)
                x.x[k] += y.x[k];
        }
        ndp_set8(to, r, c, x);
    }
};

/* The sum of the parts, one below the other, is x: each has 8 bits of its 24. Of what is not finite, or rounds to
 * infinity, the first has all. */
struct cut_each {
    ndp_view x, parts;
    __device__ void operator()(int64_t r, int64_t c) const {
        ndp_lanes rest = ndp_get8(x, r, c);
        for (int i = 0; i < NDP_F32_PARTS; i++) {
            ndp_raw part = ndp_narrow(NDP_BF16, rest);
            ndp_lanes taken = ndp_widen(NDP_BF16, part);
            ndp_store8(parts, i * x.rows + r, c, part);
            for (int k = 0; k < NDP_LANES; k++)
                rest.x[k] = fabsf(taken.x[k]) < INFINITY ? rest.x[k] - taken.x[k] : 0;
        }
    }
};

/* ---- one product ---- */

static int64_t depth_of(const ndp_cuda_product &p) { return p.trans_a ? p.a.rows : p.a.cols; }

static ndp_matmul matmul_of(const ndp_op_call *c, const ndp_cuda_product &p, void *workspace) {
    ndp_matmul m = {};
    m.m = p.to.cols, m.n = p.to.rows, m.k = depth_of(p);
    m.trans_a = p.trans_b, m.trans_b = p.trans_a;
    m.tf32 = c->exec->tf32 && p.a.dtype == NDP_F32;
    m.type = p.a.dtype, m.to_type = p.to.dtype;
    m.a = p.b.data, m.b = p.a.data, m.d = p.to.data;
    m.lda = p.b.ld, m.ldb = p.a.ld, m.ldd = p.to.ld;
    m.alpha = p.alpha;
    if (p.added.data)
        m.c = p.added.data, m.ldc = p.added.ld, m.beta = p.beta;
    m.bias = p.bias.data;
    m.workspace = workspace, m.workspace_bytes = ndp_cuda_workspace(&p.to);
    return m;
}

/* For messages. */
#define SHAPE "[%lld,%lld] %s"
#define SHAPE_ARGS(v)                                                                                                  \
    (long long)(v).rows, (long long)(v).cols, (v).dtype == NDP_F32 ? "fp32" : (v).dtype == NDP_BF16 ? "bf16" : "?"

static ndp_status check(const ndp_cuda_product &p) {
    int64_t m = p.to.rows, n = p.to.cols, k = depth_of(p);
    bool fits = (p.trans_a ? p.a.cols : p.a.rows) == m && (p.trans_b ? p.b.rows : p.b.cols) == n &&
                (p.trans_b ? p.b.cols : p.b.rows) == k;
    bool narrow = p.a.dtype == NDP_BF16 || p.b.dtype == NDP_BF16;
    bool typed = (p.a.dtype == NDP_F32 || p.a.dtype == NDP_BF16) && (p.b.dtype == NDP_F32 || p.b.dtype == NDP_BF16) &&
                 (p.to.dtype == NDP_F32 || narrow) && (!p.added.data || p.added.dtype == p.to.dtype);
    if (!fits || !typed || m > INT32_MAX || n > INT32_MAX || k > INT32_MAX)
        return NDP_FAIL(NDP_EBUG, "product: a " SHAPE ", b " SHAPE ", result " SHAPE, SHAPE_ARGS(p.a), SHAPE_ARGS(p.b),
                        SHAPE_ARGS(p.to));
    return NDP_OK;
}

/* The library adds a bias of the result's type in most products. Otherwise it is written first, and added to. What the
 * library has no algorithm for a kernel of our own computes. */
static ndp_status multiply_whole(const ndp_op_call *c, const ndp_cuda_product &p, void *workspace) {
    const ndp_matmul_plan *plan = nullptr;
    ndp_matmul m = matmul_of(c, p, workspace);
    if (!p.bias.data || p.bias.dtype == p.to.dtype)
        NDP_TRY(ndp_matmul_find(c->queue, &m, &plan));
    if (!plan && p.bias.data && !p.added.data) {
        ndp_cuda_product unbiased = ndp_cuda_product_plus(p, p.to);
        unbiased.bias = none;
        m = matmul_of(c, unbiased, workspace);
        NDP_TRY(ndp_matmul_find(c->queue, &m, &plan));
        if (plan)
            NDP_TRY(ndp_each8(c, &p.to, bias_each{p.bias, p.to}));
    }
    return plan ? ndp_matmul_run(c->queue, &m, plan) : ndp_cuda_multiply_plain(c, p);
}

/* ---- split products ---- */

/* Columns (or rows, where it is transposed) first .. first+n-1 of an operand. */
static ndp_view part_of(const ndp_view &v, bool of_rows, int64_t first, int64_t n) {
    ndp_view part = v;
    (of_rows ? part.rows : part.cols) = n;
    part.data = (char *)v.data + (size_t)(first * (of_rows ? v.ld : 1)) * (v.dtype == NDP_BF16 ? 2 : 4);
    return part;
}

static ndp_cuda_product part_of(const ndp_cuda_product &p, int64_t first, int64_t n) {
    ndp_cuda_product part = p;
    part.a = part_of(p.a, p.trans_a, first, n);
    part.b = part_of(p.b, !p.trans_b, first, n);
    return part;
}

static ndp_status multiply_parts(const ndp_op_call *c, const ndp_cuda_product &p, int64_t at, void *scratch) {
    ndp_cuda_product first = part_of(p, 0, at), second = part_of(p, at, depth_of(p) - at);
    bool narrow = p.to.dtype == NDP_BF16;
    if (narrow) {
        first.added = first.bias = none, first.beta = 0;
        first.to = {(char *)scratch + ndp_cuda_workspace(&p.to), NDP_F32, p.to.rows, p.to.cols, p.to.cols};
    }
    second.bias = none;
    second.to = first.to;
    NDP_TRY(multiply_whole(c, first, scratch));
    NDP_TRY(multiply_whole(c, ndp_cuda_product_plus(second, first.to), scratch));
    return narrow ? ndp_each8(c, &p.to, finish_each{first.to, p.added, p.bias, p.to, p.beta}) : NDP_OK;
}

static ndp_status multiply(const ndp_op_call *c, const ndp_cuda_product &p, void *scratch) {
    int64_t k = depth_of(p), at = k > 1 ? ndp_split_at(k, ndp_split_place(c->exec)) : k;
    return at < k ? multiply_parts(c, p, at, scratch) : multiply_whole(c, p, scratch);
}

/* ---- products of two types ---- */

static ndp_status multiply_mixed(const ndp_op_call *c, const ndp_cuda_product &p, void *scratch) {
    bool narrow = p.to.dtype == NDP_BF16, a_is_wide = p.a.dtype == NDP_F32;
    const ndp_view &wide = a_is_wide ? p.a : p.b;
    char *rest = (char *)scratch + ndp_cuda_workspace(&p.to);
    ndp_view parts = {rest + ndp_mixed_sums(&p.to), NDP_BF16, NDP_F32_PARTS * wide.rows, wide.cols,
                      ndp_parts_stride(&wide)};
    ndp_cuda_product part = p;
    if (narrow) {
        part.to = {rest, NDP_F32, p.to.rows, p.to.cols, p.to.cols};
        part.added = part.bias = none, part.beta = 0;
    }
    NDP_TRY(ndp_each8(c, &wide, cut_each{wide, parts}));
    for (int i = 0; i < NDP_F32_PARTS; i++) {
        ndp_view of = parts;
        of.rows = wide.rows, of.data = (__nv_bfloat16 *)parts.data + i * wide.rows * parts.ld;
        (a_is_wide ? part.a : part.b) = of;
        NDP_TRY(multiply(c, part, scratch));
        part = ndp_cuda_product_plus(part, part.to);
        part.bias = none;
    }
    return narrow ? ndp_each8(c, &p.to, finish_each{part.to, p.added, p.bias, p.to, p.beta}) : NDP_OK;
}

ndp_status ndp_cuda_multiply(const ndp_op_call *c, const ndp_cuda_product &p, void *scratch) {
    if (!p.to.data)
        return NDP_OK;
    NDP_TRY(check(p));
    return p.a.dtype == p.b.dtype ? multiply(c, p, scratch) : multiply_mixed(c, p, scratch);
}
