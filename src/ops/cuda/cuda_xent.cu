/* xent, xent_logits, xent_grad: products (cuda_product.hpp), and the softmax of rows between them, a block for each
 * row. The host never looks at labels: rows without one are computed, and ignored by the softmax. */
#include "ops/cuda/cuda_kernel.cuh"
#include "ops/cuda/cuda_kernels.hpp"
#include "ops/cuda/cuda_product.hpp"

extern "C" {
#include "ops/xent_rows.h"
}

enum { THREADS = 512 };

/* ---- the softmax of a row ---- */

/* The operands of some rows; absent ones have no data. dlogits may be bf16 in the place of the fp32 logits, each row at
 * the start of its row. */
struct softmax_rows {
    ndp_view logits, labels, stats, nll, dlogits;
    ndp_view values;      /* absent: not wanted */
    ndp_view scale;       /* one for all rows, or one each */
    int64_t vocab, first; /* real columns, and the id of column 0 */
    float cap;
    int parts;   /* of the statistics; 0: they are made of the logits */
    bool wanted; /* values */
    int weight;  /* an ndp_token_weight, */
    int top;     /* made of so many largest logits; 0: of none */
    float alpha, by;
};

/* Of the real columns: the sum is of exp(logit - max); at_label is 0 when the label is in another slice, and of
 * NDP_LABEL_BEST the id with the largest logit. Where values are wanted: `mean`, of the logits by softmax, and `best`,
 * that id. `entropy`: of the largest logits, where a weight is made of it. */
struct row_stats {
    float max, sum, at_label, mean, best, entropy;
};

static __device__ __forceinline__ float capped(float x, float cap) { return cap > 0 ? cap * tanhf(x / cap) : x; }

/* The label's column; -1 when it is in another slice, or there is none. */
static __device__ __forceinline__ int64_t label_column(const softmax_rows &s, int label) {
    int64_t column = label - s.first;
    return label >= 0 && column >= 0 && column < s.vocab ? column : -1;
}

static __device__ __forceinline__ double scale_of(const softmax_rows &s, int64_t r) {
    return ((const double *)s.scale.data)[s.scale.rows > 1 ? r * s.scale.ld : 0];
}

/* The real columns. */
static __device__ __forceinline__ ndp_view real_of(const softmax_rows &s) {
    ndp_view v = s.logits;
    v.cols = s.vocab;
    return v;
}

/* All threads get the maximum over the block. `room`: NDP_WARP floats of shared memory, not used again before the block
 * meets; a block of one warp needs none. */
static __device__ __forceinline__ float block_max(float x, float *room) {
    int warps = blockDim.x / NDP_WARP, lane = threadIdx.x % NDP_WARP;
    x = ndp_warp_max(x);
    if (warps == 1)
        return x;
    if (lane == 0)
        room[threadIdx.x / NDP_WARP] = x;
    __syncthreads();
    return ndp_warp_max(lane < warps ? room[lane] : -INFINITY);
}
enum { ROOM = 2 * NDP_WARP };

/* Reads row r once: each thread keeps the maximum of what it has seen, and the sum to that. `store`: capped logits are
 * written back. */
static __device__ row_stats stats_of(const softmax_rows &s, int64_t r, int64_t column, bool store) {
    ndp_view real = real_of(s);
    float *room = (float *)ndp_shared_bytes, max = -INFINITY, sum = 0;
    float at_label = column >= 0 ? capped(ndp_get(real, r, column), s.cap) : 0;
    store = store && s.cap > 0;
    if (store)
        __syncthreads(); /* all have read it */
    for (int64_t c = threadIdx.x * NDP_LANES; c < s.vocab; c += blockDim.x * NDP_LANES) {
        ndp_lanes x = ndp_get8(real, r, c);
        float most = max, part = 0;
        for (int k = 0; k < NDP_LANES; k++) {
            x.x[k] = capped(x.x[k], s.cap);
            most = c + k < s.vocab ? fmaxf(most, x.x[k]) : most;
        }
        for (int k = 0; k < NDP_LANES; k++)
            part += c + k < s.vocab ? expf(x.x[k] - most) : 0;
        if (store)
            ndp_set8(real, r, c, x);
        sum = sum * expf(max - most) + part;
        max = most;
    }
    float most = block_max(max, room);
    sum = max == most ? sum : sum * expf(max - most);
    return {most, ndp_block_sum(sum, room + NDP_WARP), at_label, 0, 0, 0};
}

/* The id of the first column whose logit is the row's maximum; `raw`: the logits are not capped yet. */
static __device__ float best_id(const softmax_rows &s, int64_t r, float max, bool raw) {
    ndp_view real = real_of(s);
    float first = -INFINITY; /* minus the column */
    for (int64_t c = threadIdx.x * NDP_LANES; c < s.vocab; c += blockDim.x * NDP_LANES) {
        ndp_lanes x = ndp_get8(real, r, c);
        for (int k = 0; k < NDP_LANES; k++)
            if (c + k < s.vocab && (raw ? capped(x.x[k], s.cap) : x.x[k]) == max)
                first = fmaxf(first, -(float)(c + k));
    }
    __syncthreads(); /* the room is free */
    return s.first - block_max(first, (float *)ndp_shared_bytes);
}

/* The mean of the logits by softmax, 0 of no columns: the entropy is the nll of a label with that logit. */
static __device__ float mean_logit(const softmax_rows &s, int64_t r, const row_stats &all, bool raw) {
    ndp_view real = real_of(s);
    float total = 0;
    for (int64_t c = threadIdx.x * NDP_LANES; c < s.vocab; c += blockDim.x * NDP_LANES) {
        ndp_lanes x = ndp_get8(real, r, c);
        for (int k = 0; k < NDP_LANES; k++) {
            float l = raw ? capped(x.x[k], s.cap) : x.x[k];
            total += c + k < s.vocab ? expf(l - all.max) * l : 0;
        }
    }
    __syncthreads(); /* the room is free */
    total = ndp_block_sum(total, (float *)ndp_shared_bytes);
    return all.sum > 0 ? total / all.sum : 0;
}

/* What a label, or attr.values, asks for beside the label's logit. */
static __device__ void find_values(const softmax_rows &s, int64_t r, int label, bool raw, row_stats &all) {
    bool wanted = s.wanted && label >= 0;
    if (wanted || label == NDP_LABEL_BEST)
        all.best = best_id(s, r, all.max, raw);
    if (wanted)
        all.mean = mean_logit(s, r, all, raw);
    if (label == NDP_LABEL_BEST)
        all.at_label = all.best;
}

/* The entropy of softmax over the s.top largest of n numbers at(i); to.data: they are written behind row r's statistics
 * too, -inf where there are fewer. Each round finds the next largest number, and how often it is there. */
template <typename Number>
static __device__ float top_entropy(const softmax_rows &s, int64_t r, int64_t n, Number at, const ndp_view &to) {
    float *room = (float *)ndp_shared_bytes, before = INFINITY, first = 0, sum = 0, mean = 0;
    int taken = 0;
    __syncthreads(); /* the room is free, and capped logits are written */
    while (taken < s.top) {
        float most = -INFINITY, times = 0;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            float x = at(i);
            if (x < before && x >= most)
                times = x > most ? 1 : times + 1, most = x;
        }
        float next = block_max(most, room);
        float found = ndp_block_sum(most == next ? times : 0, room + NDP_WARP);
        if (next == -INFINITY)
            break;
        int many = found < (float)(s.top - taken) ? (int)found : s.top - taken;
        first = taken == 0 ? next : first;
        float e = (float)many * expf(next - first);
        sum += e, mean += e * (next - first);
        for (int i = threadIdx.x; to.data && i < many; i += blockDim.x)
            ndp_set(to, r, NDP_XENT_STATS + taken + i, next);
        taken += many;
        before = next;
    }
    for (int i = taken + threadIdx.x; to.data && i < s.top; i += blockDim.x)
        ndp_set(to, r, NDP_XENT_STATS + i, -INFINITY);
    return sum > 0 ? logf(sum) - mean / sum : 0;
}

/* Of the row's logits; `raw`: they are not capped yet. */
static __device__ float entropy_of(const softmax_rows &s, int64_t r, bool raw, const ndp_view &to) {
    ndp_view real = real_of(s);
    auto logit = [&](int64_t i) { return raw ? capped(ndp_get(real, r, i), s.cap) : ndp_get(real, r, i); };
    return top_entropy(s, r, s.vocab, logit, to);
}

/* Of the largest logits of all slices. */
static __device__ float entropy_of_slices(const softmax_rows &s, int64_t r) {
    int64_t rows = s.logits.rows;
    auto logit = [&](int64_t i) { return ndp_get(s.stats, i / s.top * rows + r, NDP_XENT_STATS + i % s.top); };
    return top_entropy(s, r, (int64_t)s.parts * s.top, logit, ndp_view{});
}

/* The weight of a row in the loss (ops/token_weight.h). */
static __device__ double weight_of(const softmax_rows &s, const row_stats &all) {
    double nll = log((double)all.sum) + (double)all.max - (double)all.at_label;
    return s.weight == NDP_TOKEN_WEIGHT_ENTROPY       ? pow((double)s.by * fmax((double)all.entropy, 0.0), (double)s.alpha)
           : s.weight == NDP_TOKEN_WEIGHT_PROBABILITY ? exp(-nll)
                                                      : 1;
}

/* Row r of all slices together. */
static __device__ row_stats combined(const softmax_rows &s, int64_t r, int label) {
    int64_t rows = s.logits.rows;
    bool found = false, best = label == NDP_LABEL_BEST;
    row_stats all = {-INFINITY, 0, 0, 0, 0, 0};
    for (int p = 0; p < s.parts; p++)
        all.max = fmaxf(all.max, ndp_get(s.stats, p * rows + r, 0));
    for (int p = 0; p < s.parts; p++) {
        float sum = ndp_get(s.stats, p * rows + r, 1) * expf(ndp_get(s.stats, p * rows + r, 0) - all.max);
        all.sum += sum;
        bool leads = ndp_get(s.stats, p * rows + r, 0) == all.max && !found;
        all.at_label += !best || leads ? ndp_get(s.stats, p * rows + r, 2) : 0;
        all.mean += s.wanted ? ndp_get(s.stats, p * rows + r, 3) * sum : 0;
        all.best += s.wanted && leads ? ndp_get(s.stats, p * rows + r, 4) : 0;
        found |= leads;
    }
    all.mean /= all.sum;
    return all;
}

/* Softmax times the slope of the cap, times the scale. In bf16 it takes the place of other columns' logits: all threads
 * have read a tile of columns before any of it is written, and it lies before what is not yet read. `raw`: the logits
 * are not capped yet. */
static __device__ void gradient(const softmax_rows &s, int64_t r, const row_stats &all, double scale, bool ignored,
                                bool raw) {
    ndp_view real = real_of(s);
    float factor = (float)(scale / all.sum), by = s.cap > 0 ? 1 / s.cap : 0;
    __syncthreads(); /* all threads have read the label's logit, which one of them overwrites */
    for (int64_t tile = 0; tile < s.dlogits.cols; tile += blockDim.x * NDP_LANES) {
        int64_t c = tile + threadIdx.x * NDP_LANES;
        ndp_lanes x = {};
        if (!ignored && c < s.vocab)
            x = ndp_get8(real, r, c);
        for (int k = 0; k < NDP_LANES; k++) {
            float l = raw ? capped(x.x[k], s.cap) : x.x[k], slope = 1 - l * by * (l * by);
            x.x[k] = !ignored && c + k < s.vocab ? expf(l - all.max) * slope * factor : 0;
        }
        if (s.dlogits.dtype == NDP_BF16)
            __syncthreads();
        if (c < s.dlogits.cols)
            ndp_store8<true>(s.dlogits, r, c, ndp_narrow(s.dlogits.dtype, x));
    }
}

/* The label's element: rounded once, since the difference cancels. */
static __device__ float gradient_at_label(const softmax_rows &s, const row_stats &all, double scale) {
    double p = exp((double)all.at_label - (double)all.max) / (double)all.sum,
           by = s.cap > 0 ? (double)all.at_label / (double)s.cap : 0;
    return (float)((p - 1) * (1 - by * by) * scale);
}

/* The loss of a row, and its gradient where dlogits are there. */
static __global__ void __launch_bounds__(THREADS, 2) ndp_loss_kernel(softmax_rows s) {
    int64_t r = blockIdx.x;
    int label = ndp_int(s.labels, r);
    int64_t column = label_column(s, label);
    bool best = label == NDP_LABEL_BEST;
    row_stats all = {0, 1, 0, 0, 0, 0};
    if (label >= 0)
        all = s.parts ? combined(s, r, label) : stats_of(s, r, column, false);
    if (s.parts == 0)
        find_values(s, r, label, true, all);
    if (s.top > 0 && label >= 0)
        all.entropy = s.parts ? entropy_of_slices(s, r) : entropy_of(s, r, true, ndp_view{});
    double weight = weight_of(s, all), scale = scale_of(s, r) * weight;
    if (s.dlogits.data)
        gradient(s, r, all, scale, label < 0, s.parts == 0);
    if (threadIdx.x == 0) {
        double whole = log((double)all.sum) + (double)all.max;
        bool none = label < 0 || label == NDP_LABEL_NONE;
        ndp_set(s.nll, r, 0, none ? 0 : best ? all.at_label : (float)((whole - (double)all.at_label) * weight));
        if (s.wanted) {
            ndp_set(s.values, r, 0, label < 0 ? 0 : (float)(whole - (double)all.mean));
            ndp_set(s.values, r, 1, label < 0 ? 0 : all.best);
        }
    }
    if (s.dlogits.data && column >= 0) {
        __syncthreads();
        if (threadIdx.x == 0)
            ndp_set(s.dlogits, r, column, gradient_at_label(s, all, scale));
    }
}

static __global__ void __launch_bounds__(THREADS, 2) ndp_stats_kernel(softmax_rows s) {
    int64_t r = blockIdx.x;
    int label = ndp_int(s.labels, r);
    row_stats all = {0, 0, 0, 0, 0, 0};
    if (label >= 0)
        all = stats_of(s, r, label_column(s, label), true);
    find_values(s, r, label, s.cap <= 0, all);
    if (s.top > 0 && label >= 0)
        entropy_of(s, r, s.cap <= 0, s.stats);
    for (int i = threadIdx.x; label < 0 && i < s.top; i += blockDim.x)
        ndp_set(s.stats, r, NDP_XENT_STATS + i, 0);
    if (threadIdx.x == 0) {
        ndp_set(s.stats, r, 0, all.max);
        ndp_set(s.stats, r, 1, all.sum);
        ndp_set(s.stats, r, 2, all.at_label);
        if (s.wanted)
            ndp_set(s.stats, r, 3, all.mean), ndp_set(s.stats, r, 4, all.best);
    }
}

static ndp_status softmax(const ndp_op_call *c, void (*kernel)(softmax_rows), softmax_rows s) {
    s.vocab = c->attr->vocab, s.first = c->attr->first, s.cap = (float)c->attr->cap, s.wanted = c->attr->values;
    s.weight = c->attr->loss, s.top = ndp_top_count(c->attr), s.alpha = (float)c->attr->gamma;
    s.by = (float)c->attr->scale;
    unsigned threads = ndp_block_of(ndp_ceil_div(s.logits.cols, NDP_LANES), THREADS);
    return ndp_launch(c, kernel, dim3((unsigned)s.logits.rows), dim3(threads), ROOM * sizeof(float), s);
}

/* ---- gradients ---- */

/* In the logits' place, of the operands' type. */
static ndp_view dlogits_of(const ndp_view &logits, ndp_dtype type) {
    ndp_view v = logits;
    v.dtype = type;
    v.ld = type == NDP_BF16 ? 2 * logits.ld : logits.ld;
    return v;
}

/* dx = dlogits w, dw (+)= dlogits^T x. */
static ndp_status multiply_gradients(const ndp_op_call *c, const ndp_view &dlogits, const ndp_view &x,
                                     const ndp_view &w, const ndp_view &dx, const ndp_view &dw, bool accumulate,
                                     void *scratch) {
    NDP_TRY(ndp_cuda_multiply(c, ndp_cuda_product_of(dlogits, false, w, false, dx), scratch));
    ndp_cuda_product p = ndp_cuda_product_of(dlogits, true, x, false, dw);
    return ndp_cuda_multiply(c, accumulate ? ndp_cuda_product_plus(p, dw) : p, scratch);
}

/* ---- xent: chunks of rows ---- */

static ndp_view rows_of(const ndp_view &v, int64_t first, int64_t n) {
    ndp_view part = v;
    if (v.data)
        part.data = (char *)v.data + (size_t)(first * v.ld) * (v.dtype == NDP_BF16 ? 2 : v.dtype == NDP_F64 ? 8 : 4);
    part.rows = v.rows ? n : 0;
    return part;
}

static ndp_view logits_chunk(const ndp_op_call *c, int64_t rows) {
    return {c->scratch, NDP_F32, rows, c->in[1].rows, ndp_xent_stride(c)};
}

static ndp_status run_chunk(const ndp_op_call *c, int64_t first, int64_t n, bool accumulate) {
    void *rest = (char *)c->scratch + ndp_xent_logits_bytes(c);
    ndp_view x = rows_of(c->in[0], first, n), logits = logits_chunk(c, n), dx = {}, dw = {};
    if (c->attr->train)
        dx = rows_of(c->out[1], first, n), dw = c->out[2];
    softmax_rows s = {};
    s.logits = logits, s.labels = rows_of(c->in[2], first, n), s.nll = rows_of(c->out[0], first, n);
    s.scale = c->in[3].rows > 1 ? rows_of(c->in[3], first, n) : c->in[3];
    if (c->attr->values)
        s.values = rows_of(c->out[3], first, n);
    if (dx.data || dw.data)
        s.dlogits = dlogits_of(logits, x.dtype);
    NDP_TRY(ndp_cuda_multiply(c, ndp_cuda_product_of(x, false, c->in[1], true, logits), rest));
    NDP_TRY(softmax(c, ndp_loss_kernel, s));
    return multiply_gradients(c, s.dlogits, x, c->in[1], dx, dw, accumulate, rest);
}

static ndp_status run_xent(const ndp_op_call *c) {
    int64_t rows = c->in[0].rows, step = ndp_cuda_xent_rows(c);
    for (int64_t first = 0; first < rows; first += step)
        NDP_TRY(run_chunk(c, first, rows - first < step ? rows - first : step, first > 0 || c->attr->accumulate));
    return NDP_OK;
}

NDP_CUDA_KERNEL_WITH_SCRATCH(xent)

/* ---- xent_logits, xent_grad ---- */

static ndp_status run_xent_logits(const ndp_op_call *c) {
    softmax_rows s = {};
    s.logits = c->out[0], s.labels = c->in[2], s.stats = c->out[1];
    NDP_TRY(ndp_cuda_multiply(c, ndp_cuda_product_of(c->in[0], false, c->in[1], true, c->out[0]), c->scratch));
    return softmax(c, ndp_stats_kernel, s);
}
NDP_CUDA_KERNEL_WITH_SCRATCH(xent_logits)

static ndp_status run_xent_grad(const ndp_op_call *c) {
    const ndp_view &x = c->in[NDP_XENT_G_X];
    ndp_view dx = {}, dw = {};
    if (c->attr->train)
        dx = c->out[1], dw = c->out[2];
    softmax_rows s = {};
    s.logits = c->in[NDP_XENT_G_LOGITS], s.labels = c->in[NDP_XENT_G_LABELS], s.stats = c->in[NDP_XENT_G_STATS];
    s.nll = c->out[0], s.values = c->out[3], s.parts = c->attr->parts;
    s.scale = c->in[NDP_XENT_G_SCALE];
    if (dx.data || dw.data)
        s.dlogits = dlogits_of(s.logits, x.dtype);
    NDP_TRY(softmax(c, ndp_loss_kernel, s));
    return multiply_gradients(c, s.dlogits, x, c->in[NDP_XENT_G_W], dx, dw, c->attr->accumulate, c->scratch);
}
NDP_CUDA_KERNEL_WITH_SCRATCH(xent_grad)
