/* latent_keys, latent_keys_bwd. */
#include "ops/cpu/rows/row_parts.h"

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

enum { BLOCK = 256 }; /* columns at a time */

/* Row t of the shared key's gradient: the sum over heads, in order, of the last columns of each. */
static void sum_heads(const ndp_op_call *c, int64_t t) {
    const ndp_view *dk = &c->in[0], *dshared = &c->out[1];
    int64_t d = c->attr->head_dim, shared = c->attr->rotary_dim;
    for (int64_t start = 0; start < shared; start += BLOCK) {
        const ndp_view sum = {(float[BLOCK]){0}, NDP_F32, 1, BLOCK, BLOCK};
        int64_t n = shared - start < BLOCK ? shared - start : BLOCK;
        for (int64_t h = 0; h < c->attr->heads; h++)
            NDP_BY_TYPES(dk->dtype, NDP_F32, add_to_row, n, ndp_at(dk, t, (h + 1) * d - shared + start), sum.data);
        copy_piece(&sum, 0, 0, dshared, t, start, n);
    }
}

void NDP_RANGE_KERNEL(latent_keys_bwd)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *dk = &c->in[0], *dv = &c->in[1], *dkv = &c->out[0];
    int64_t d = c->attr->head_dim, shared = c->attr->rotary_dim, own = d - shared, e = c->attr->v_dim;
    for (int64_t t = first; t < last; t++) {
        for (int64_t h = 0; h < c->attr->heads; h++) {
            copy(dkv, h * (own + e), dk, h * d, own, t);
            copy(dkv, h * (own + e) + own, dv, h * e, e, t);
        }
        if (c->out[1].data)
            sum_heads(c, t);
    }
}
