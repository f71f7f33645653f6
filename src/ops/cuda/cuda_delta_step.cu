/* conv_step, delta_step: a thread for each column, since rows follow each other. */
#include "ops/cuda/cuda_kernel.cuh"
#include "ops/cuda/cuda_kernels.hpp"

extern "C" {
#include "ops/delta_rule.h"
}

/* The text of row t, -1 of padding; *first: the row begins it. */
struct text_rows {
    ndp_view start, row;
    int64_t capacity;
    __device__ __forceinline__ int64_t operator()(int64_t t, bool *first) const {
        int64_t at = ndp_int(start, t);
        *first = at == ndp_int(row, t);
        return at % capacity == 0 ? at / capacity : -1;
    }
};

/* ---- conv_step ---- */

static __global__ void __launch_bounds__(256)
    ndp_conv_step_kernel(ndp_view tail, ndp_view x, ndp_view w, ndp_view y, text_rows rows) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (int64_t t = 0; i < x.cols && t < x.rows; t++) {
        bool first;
        int64_t text = rows(t, &first);
        float now = ndp_get(x, t, i), u = text >= 0 ? ndp_get(w, i, w.cols - 1) * now : 0.0f;
        for (int64_t j = 1; j < w.cols && text >= 0; j++) { /* the row j back, in whose place the one after it goes */
            float before = first ? 0.0f : ndp_get(tail, text, (j - 1) * x.cols + i);
            u += ndp_get(w, i, w.cols - 1 - j) * before;
            ndp_set(tail, text, (j - 1) * x.cols + i, now);
            now = before;
        }
        ndp_set(y, t, i, u / (1.0f + expf(-u)));
    }
}

static ndp_status run_conv_step(const ndp_op_call *c) {
    const text_rows rows = {c->in[3], c->in[4], c->attr->capacity};
    unsigned threads = ndp_block_of(c->in[1].cols, 256);
    return ndp_launch(c, ndp_conv_step_kernel, dim3((unsigned)ndp_ceil_div(c->in[1].cols, threads)), dim3(threads), 0,
                      c->in[0], c->in[1], c->in[2], c->out[1], rows);
}
NDP_CUDA_KERNEL(conv_step)

/* ---- delta_step ---- */

struct delta_step_call {
    ndp_view state, q, k, v, g, b, o;
    text_rows rows;
    int d, e, group;
};

static __device__ __forceinline__ float unit_of(const ndp_view &x, int64_t t, int64_t col, int d) {
    float sum = (float)NDP_DELTA_EPS;
    for (int i = 0; i < d; i++)
        sum += ndp_get(x, t, col + i) * ndp_get(x, t, col + i);
    return rsqrtf(sum);
}

/* Column j of the state of head h after row t. */
static __device__ __forceinline__ float step(const delta_step_call &c, int64_t t, int64_t text, bool first, int64_t h,
                                             int j) {
    int64_t key = h / c.group * c.d, at = h * c.d * c.e + j;
    float decay = expf(ndp_get(c.g, t, h)), beta = 1.0f / (1.0f + expf(-ndp_get(c.b, t, h))), read = 0.0f, o = 0.0f;
    float of_q = unit_of(c.q, t, key, c.d) * rsqrtf((float)c.d), of_k = unit_of(c.k, t, key, c.d);
    for (int i = 0; i < c.d && !first; i++)
        read += decay * ndp_get(c.state, text, at + (int64_t)i * c.e) * of_k * ndp_get(c.k, t, key + i);
    float missing = beta * (ndp_get(c.v, t, h * c.e + j) - read);
    for (int i = 0; i < c.d; i++) {
        float s = first ? 0.0f : decay * ndp_get(c.state, text, at + (int64_t)i * c.e);
        s += of_k * ndp_get(c.k, t, key + i) * missing;
        ndp_set(c.state, text, at + (int64_t)i * c.e, s);
        o += s * of_q * ndp_get(c.q, t, key + i);
    }
    return o;
}

static __global__ void __launch_bounds__(256) ndp_delta_step_kernel(delta_step_call c) {
    for (int64_t t = 0; t < c.q.rows; t++) {
        bool first;
        int64_t text = c.rows(t, &first);
        for (int j = (int)threadIdx.x; j < c.e; j += (int)blockDim.x)
            ndp_set(c.o, t, (int64_t)blockIdx.x * c.e + j, text < 0 ? 0.0f : step(c, t, text, first, blockIdx.x, j));
    }
}

static ndp_status run_delta_step(const ndp_op_call *c) {
    const ndp_view *in = c->in;
    const delta_step_call call = {in[0],
                                  in[1],
                                  in[2],
                                  in[3],
                                  in[4],
                                  in[5],
                                  c->out[1],
                                  {in[6], in[7], c->attr->capacity},
                                  c->attr->head_dim,
                                  ndp_v_dim(c->attr),
                                  ndp_delta_group(c->attr)};
    return ndp_launch(c, ndp_delta_step_kernel, dim3((unsigned)c->attr->heads), dim3(ndp_block_of(call.e, 256)), 0,
                      call);
}
NDP_CUDA_KERNEL(delta_step)
