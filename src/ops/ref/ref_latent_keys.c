/* latent_keys, latent_keys_bwd. */
#include "ops/ref/ref_kernels.h"

/* Columns of a head: of its own key, of the shared one, of its value. */
typedef struct widths {
    int64_t own, shared, value;
} widths;

static widths widths_of(const ndp_op_attr *a) { return (widths){a->head_dim - a->rotary_dim, a->rotary_dim, a->v_dim}; }

static void copy(const ndp_view *to, int64_t at, const ndp_view *from, int64_t col, int64_t n, int64_t t) {
    for (int64_t i = 0; i < n && to->data; i++)
        ndp_view_set(to, t, at + i, ndp_view_get(from, t, col + i));
}

static ndp_status run_latent_keys(const ndp_op_call *c) {
    const ndp_view *kv = &c->in[0], *shared = &c->in[1], *k = &c->out[0], *v = &c->out[1];
    widths w = widths_of(c->attr);
    for (int64_t t = 0; t < kv->rows; t++)
        for (int64_t h = 0; h < c->attr->heads; h++) {
            copy(k, h * (w.own + w.shared), kv, h * (w.own + w.value), w.own, t);
            copy(k, h * (w.own + w.shared) + w.own, shared, 0, w.shared, t);
            copy(v, h * w.value, kv, h * (w.own + w.value) + w.own, w.value, t);
        }
    return NDP_OK;
}

const ndp_kernel ndp_ref_latent_keys = {.run = run_latent_keys};

static ndp_status run_latent_keys_bwd(const ndp_op_call *c) {
    const ndp_view *dk = &c->in[0], *dv = &c->in[1], *dkv = &c->out[0], *dshared = &c->out[1];
    widths w = widths_of(c->attr);
    for (int64_t t = 0; t < dk->rows; t++) {
        for (int64_t h = 0; h < c->attr->heads; h++) {
            copy(dkv, h * (w.own + w.value), dk, h * (w.own + w.shared), w.own, t);
            copy(dkv, h * (w.own + w.value) + w.own, dv, h * w.value, w.value, t);
        }
        for (int64_t i = 0; i < w.shared && dshared->data; i++) {
            double sum = 0;
            for (int64_t h = 0; h < c->attr->heads; h++)
                sum += ndp_view_get(dk, t, h * (w.own + w.shared) + w.own + i);
            ndp_view_set(dshared, t, i, sum);
        }
    }
    return NDP_OK;
}

const ndp_kernel ndp_ref_latent_keys_bwd = {.run = run_latent_keys_bwd};
