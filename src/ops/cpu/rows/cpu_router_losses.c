/* router_losses_dx. Probabilities are fp32; sums over experts are fp64. */
#include "ops/cpu/rows/range_kernel.h"
#include "ops/router_losses.h"

#include <math.h>

/* Experts at a time. */
enum { BLOCK = 256 };

static double *losses_of(const ndp_op_call *c, int64_t t) { return (double *)c->out[1].data + t * c->out[1].ld; }

/* Of one row: p[e] = exp(logit - max) / sum; the load of expert e is counts[e] times `even`. */
typedef struct loss_row {
    const void *logits;
    const double *counts; /* NULL: none */
    float max;
    double sum, even, balance, z;
} loss_row;

/* The largest logit, the sum of exponentials, and their sum weighted by the experts' loads. */
NDP_INLINE loss_row read_row(ndp_dtype type, const ndp_op_call *c, int64_t t, int64_t sample) {
    const ndp_view *counts = &c->in[1];
    int64_t experts = c->in[0].cols;
    loss_row r = {.logits = ndp_at(&c->in[0], t, 0), .max = -INFINITY};
    double of_all = 0, loaded = 0;
    r.counts = counts->data ? (const double *)counts->data + sample * counts->ld : NULL;
    for (int64_t e = 0; e < experts; e++)
        r.max = ndp_ld(r.logits, type, e) > r.max ? ndp_ld(r.logits, type, e) : r.max;
    for (int64_t start = 0; start < experts; start += BLOCK) {
        int64_t n = experts - start < BLOCK ? experts - start : BLOCK;
        float x[BLOCK];
        SIMD for (int64_t e = 0; e < n; e++) x[e] = ndp_vexpf(ndp_ld(r.logits, type, start + e) - r.max);
        for (int64_t e = 0; e < n; e++)
            r.sum += (double)x[e];
        for (int64_t e = 0; r.counts && e < n; e++)
            of_all += r.counts[start + e], loaded += r.counts[start + e] * (double)x[e];
    }
    r.even = of_all > 0 ? (double)experts / of_all : 0;
    r.balance = r.even * loaded / r.sum;
    r.z = (double)r.max + log(r.sum);
    return r;
}

NDP_INLINE void loss_dx(ndp_dtype type, const ndp_op_call *c, int64_t t, int64_t sample) {
    loss_row r = read_row(type, c, t, sample);
    double scale = *(const double *)c->in[3].data / c->attr->parts / r.sum;
    double balance = scale * c->attr->balance, z = scale * 2 * c->attr->z_loss * r.z;
    const void *acc = c->in[4].data ? ndp_at(&c->in[4], t, 0) : NULL;
    void *d = ndp_at(&c->out[0], t, 0);
    double *losses = losses_of(c, t);
    SIMD for (int64_t e = 0; e < c->out[0].cols; e++) {
        float by = (float)(r.counts ? balance * (r.even * r.counts[e] - r.balance) + z : z);
        float x = ndp_vexpf(ndp_ld(r.logits, type, e) - r.max) * by;
        ndp_st(d, type, e, acc ? ndp_ld(acc, type, e) + x : x);
    }
    losses[NDP_ROUTER_BALANCE] = r.balance, losses[NDP_ROUTER_Z] = r.z * r.z;
}

/* Padding has no losses, whatever its logits are. */
NDP_INLINE void dx_row(ndp_dtype type, const ndp_op_call *c, int64_t t) {
    const ndp_view *samples = &c->in[2];
    int64_t sample = ((const int32_t *)samples->data)[t * samples->ld];
    const void *acc = c->in[4].data ? ndp_at(&c->in[4], t, 0) : NULL;
    void *d = ndp_at(&c->out[0], t, 0);
    if (sample >= 0) {
        loss_dx(type, c, t, sample);
        return;
    }
    for (int64_t e = 0; e < c->out[0].cols; e++)
        ndp_st(d, type, e, acc ? ndp_ld(acc, type, e) : 0);
    memset(losses_of(c, t), 0, NDP_ROUTER_LOSSES * sizeof(double));
}

void NDP_RANGE_KERNEL(router_losses_dx)(const ndp_op_call *c, int64_t first, int64_t last) {
    for (int64_t t = first; t < last; t++)
        NDP_BY_TYPE(c->in[0].dtype, dx_row, c, t);
}
