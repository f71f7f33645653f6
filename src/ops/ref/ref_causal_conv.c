/* causal_conv and its gradients. */
#include "ops/ref/ref_kernels.h"

static bool sees(const ndp_view *start, int64_t t, int64_t row) { return row >= 0 && row >= ndp_int_at(start, t); }

static ndp_status run_causal_conv(const ndp_op_call *c) {
    const ndp_view *x = &c->in[0], *w = &c->in[1];
    for (int64_t t = 0; t < x->rows; t++)
        for (int64_t i = 0; i < x->cols; i++) {
            double sum = 0;
            for (int64_t j = 0; j < w->rows && sees(&c->in[2], t, t - j); j++)
                sum += ndp_view_get(w, j, i) * ndp_view_get(x, t - j, i);
            ndp_view_set(&c->out[0], t, i, sum);
        }
    return NDP_OK;
}

const ndp_kernel ndp_ref_causal_conv = {.run = run_causal_conv};

/* Row s gives to the rows t = s + j that see it. */
static ndp_status run_causal_conv_dx(const ndp_op_call *c) {
    const ndp_view *dy = &c->in[0], *w = &c->in[1], *acc = &c->in[3];
    for (int64_t s = 0; s < dy->rows; s++)
        for (int64_t i = 0; i < dy->cols; i++) {
            double sum = ndp_present(acc) ? ndp_view_get(acc, s, i) : 0;
            for (int64_t j = 0; j < w->rows && s + j < dy->rows; j++)
                if (sees(&c->in[2], s + j, s))
                    sum += ndp_view_get(w, j, i) * ndp_view_get(dy, s + j, i);
            ndp_view_set(&c->out[0], s, i, sum);
        }
    return NDP_OK;
}

const ndp_kernel ndp_ref_causal_conv_dx = {.run = run_causal_conv_dx};

static ndp_status run_causal_conv_dw(const ndp_op_call *c) {
    const ndp_view *dy = &c->in[0], *x = &c->in[1], *dw = &c->out[0];
    for (int64_t j = 0; j < dw->rows; j++)
        for (int64_t i = 0; i < dw->cols; i++) {
            double sum = 0;
            for (int64_t t = j; t < dy->rows; t++)
                if (sees(&c->in[2], t, t - j))
                    sum += ndp_view_get(dy, t, i) * ndp_view_get(x, t - j, i);
            ndp_ref_give(dw, j, i, sum, c->attr->accumulate);
        }
    return NDP_OK;
}

const ndp_kernel ndp_ref_causal_conv_dw = {.run = run_causal_conv_dw};
