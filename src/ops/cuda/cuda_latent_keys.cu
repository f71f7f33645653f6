/* latent_keys, latent_keys_bwd. */
#include "ops/cuda/cuda_kernel.cuh"
#include "ops/cuda/cuda_kernels.hpp"

/* Columns c .. c + 7 of head r % heads of row r / heads: of its own key, of the shared one, of its value. */
struct latent_keys_each {
    ndp_view kv, shared, k, v;
    int heads;
    int64_t own, n, e;
    static __device__ void copy(const ndp_view &to, int64_t at, const ndp_view &from, int64_t col, int64_t n, int64_t t,
                                int64_t c) {
        if (to.data && c < n)
            ndp_store8(ndp_cut(to, at, n), t, c, ndp_load8(ndp_cut(from, col, n), t, c));
    }
    __device__ void operator()(int64_t r, int64_t c) const {
        int64_t t = ndp_div(r, heads), h = r - t * heads, d = own + n;
        copy(k, h * d, kv, h * (own + e), own, t, c);
        copy(k, h * d + own, shared, 0, n, t, c);
        copy(v, h * e, kv, h * (own + e) + own, e, t, c);
    }
};
static ndp_status run_latent_keys(const ndp_op_call *c) {
    int64_t n = c->attr->rotary_dim, own = c->attr->head_dim - n, e = c->attr->v_dim, most = own > n ? own : n;
    return ndp_each8(c, c->in[0].rows * c->attr->heads, most > e ? most : e,
                     latent_keys_each{c->in[0], c->in[1], c->out[0], c->out[1], c->attr->heads, own, n, e});
}
NDP_CUDA_KERNEL(latent_keys)

/* The first head's thread sums the shared columns of all. */
struct latent_keys_bwd_each {
    ndp_view dk, dv, dkv, dshared;
    int heads;
    int64_t own, n, e;
    __device__ void operator()(int64_t r, int64_t c) const {
        int64_t t = ndp_div(r, heads), h = r - t * heads, d = own + n;
        latent_keys_each::copy(dkv, h * (own + e), dk, h * d, own, t, c);
        latent_keys_each::copy(dkv, h * (own + e) + own, dv, h * e, e, t, c);
        if (h > 0 || c >= n || !dshared.data)
            return;
        ndp_lanes sum = {};
        for (int other = 0; other < heads; other++) {
            ndp_lanes x = ndp_get8(ndp_cut(dk, other * d + own, n), t, c);
            for (int k = 0; k < NDP_LANES; k++)
                sum.x[k] += x.x[k];
        }
        ndp_set8(dshared, t, c, sum);
    }
};
static ndp_status run_latent_keys_bwd(const ndp_op_call *c) {
    int64_t n = c->attr->rotary_dim, own = c->attr->head_dim - n, e = c->attr->v_dim, most = own > n ? own : n;
    return ndp_each8(c, c->in[0].rows * c->attr->heads, most > e ? most : e,
                     latent_keys_bwd_each{c->in[0], c->in[1], c->out[0], c->out[1], c->attr->heads, own, n, e});
}
NDP_CUDA_KERNEL(latent_keys_bwd)
