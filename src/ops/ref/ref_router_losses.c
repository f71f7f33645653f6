/* choice_counts, choice_loads, router_losses_dx, router_bias_step. */
#include "ops/ref/ref_kernels.h"

#include <math.h>

ndp_status ndp_ref_run_choice_counts(const ndp_op_call *c) {
    const ndp_view *choices = &c->in[0], *counts = &c->out[0];
    bool all = c->op == &ndp_op_choice_loads; /* of one sample */
    if (!c->attr->accumulate)
        ndp_view_clear(counts);
    for (int64_t t = 0; t < choices->rows; t++) {
        int64_t sample = all ? 0 : ndp_int_at(&c->in[1], t);
        for (int64_t j = 0; sample >= 0 && sample < counts->rows && j < choices->cols; j++) {
            int64_t expert = ((const int32_t *)choices->data)[t * choices->ld + j];
            if (expert >= 0)
                ((double *)counts->data)[sample * counts->ld + expert] += 1;
        }
    }
    return NDP_OK;
}

const ndp_kernel ndp_ref_choice_counts = {.run = ndp_ref_run_choice_counts};
const ndp_kernel ndp_ref_choice_loads = {.run = ndp_ref_run_choice_counts};

/* What a sample's counts say of expert e: 1 where all experts got as many rows. */
static double load(const ndp_view *counts, int64_t sample, int64_t e) {
    double sum = 0;
    if (!ndp_present(counts))
        return 0;
    for (int64_t i = 0; i < counts->cols; i++)
        sum += ndp_view_get(counts, sample, i);
    return sum > 0 ? (double)counts->cols * ndp_view_get(counts, sample, e) / sum : 0;
}

static ndp_status run_router_losses_dx(const ndp_op_call *c) {
    const ndp_view *logits = &c->in[0], *acc = &c->in[4];
    double scale = *(const double *)c->in[3].data / c->attr->parts;
    for (int64_t t = 0; t < logits->rows; t++) {
        int64_t sample = ndp_int_at(&c->in[2], t);
        double max = -INFINITY, sum = 0, balance = 0;
        for (int64_t e = 0; e < logits->cols; e++)
            max = fmax(max, ndp_view_get(logits, t, e));
        for (int64_t e = 0; e < logits->cols; e++)
            sum += exp(ndp_view_get(logits, t, e) - max);
        for (int64_t e = 0; sample >= 0 && e < logits->cols; e++)
            balance += load(&c->in[1], sample, e) * exp(ndp_view_get(logits, t, e) - max) / sum;
        double z = max + log(sum);
        for (int64_t e = 0; e < logits->cols; e++) {
            double p = exp(ndp_view_get(logits, t, e) - max) / sum,
                   earlier = ndp_present(acc) ? ndp_ref_in(c, 4, t, e) : 0;
            double by =
                sample < 0 ? 0 : c->attr->balance * (load(&c->in[1], sample, e) - balance) + c->attr->z_loss * 2 * z;
            ndp_view_set(&c->out[0], t, e, sample < 0 ? earlier : earlier + scale * p * by);
        }
        ndp_view_set(&c->out[1], t, 0, balance);
        ndp_view_set(&c->out[1], t, 1, sample < 0 ? 0 : z * z);
    }
    return NDP_OK;
}

const ndp_kernel ndp_ref_router_losses_dx = {.run = run_router_losses_dx};

ndp_status ndp_ref_run_router_bias_step(const ndp_op_call *c) {
    const ndp_view *bias = &c->out[0], *loads = &c->in[1];
    double sum = 0;
    if (ndp_present(&c->in[2]) && isnan(*(const double *)c->in[2].data))
        return NDP_OK;
    for (int64_t e = 0; e < loads->cols; e++)
        sum += ndp_view_get(loads, 0, e);
    for (int64_t i = 0; i < bias->cols && c->attr->first + i < loads->cols; i++) {
        double all = (double)loads->cols * ndp_view_get(loads, 0, c->attr->first + i);
        ndp_view_set(bias, 0, i, ndp_view_get(bias, 0, i) + c->attr->scale * ((sum > all) - (sum < all)));
    }
    return NDP_OK;
}

const ndp_kernel ndp_ref_router_bias_step = {.run = ndp_ref_run_router_bias_step};
