/* latent_keys, latent_keys_bwd. */
#include "ops/cpu/rows/range_kernel.h"

/* n columns of row t, of one type. */
static void copy(const ndp_view *to, int64_t at, const ndp_view *from, int64_t col, int64_t n, int64_t t) {
    if (to->data)
        memcpy(ndp_at(to, t, at), ndp_at(from, t, col), (size_t)n * ndp_dtype_size(to->dtype));
}

void NDP_RANGE_KERNEL(latent_keys)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *kv = &c->in[0], *k = &c->out[0], *v = &c->out[1];
    int64_t d = c->attr->head_dim, shared = c->attr->rotary_dim, own = d - shared, e = c->attr->v_dim;
    for (int64_t t = first; t < last; t++)
        for (int64_t h = 0; h < c->attr->heads; h++) {
            copy(k, h * d, kv, h * (own + e), own, t);
            copy(k, h * d + own, &c->in[1], 0, shared, t);
            copy(v, h * e, kv, h * (own + e) + own, e, t);
        }
}

/* out[i] = the sum of x[h d + i] over heads h. */
NDP_INLINE void sum_heads(ndp_dtype from, ndp_dtype to, int64_t n, int64_t heads, int64_t d, const void *x, void *out) {
    SIMD for (int64_t i = 0; i < n; i++) {
        float sum = 0;
        for (int64_t h = 0; h < heads; h++)
            sum += ndp_ld(x, from, h * d + i);
        ndp_st(out, to, i, sum);
    }
}

void NDP_RANGE_KERNEL(latent_keys_bwd)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *dk = &c->in[0], *dv = &c->in[1], *dkv = &c->out[0], *dshared = &c->out[1];
    int64_t d = c->attr->head_dim, shared = c->attr->rotary_dim, own = d - shared, e = c->attr->v_dim;
    for (int64_t t = first; t < last; t++) {
        for (int64_t h = 0; h < c->attr->heads; h++) {
            copy(dkv, h * (own + e), dk, h * d, own, t);
            copy(dkv, h * (own + e) + own, dv, h * e, e, t);
        }
        if (dshared->data)
            NDP_BY_TYPES(dk->dtype, dshared->dtype, sum_heads, shared, c->attr->heads, d, ndp_at(dk, t, own),
                         ndp_at(dshared, t, 0));
    }
}
