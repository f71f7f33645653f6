/* route_order, take_rows, give_rows, give_rows_dw. */
#include "ops/ref/ref_kernels.h"

/* The expert of choice n, from attr.first on; -1: none of these. */
static int64_t expert_of(const ndp_op_call *c, int64_t n) {
    const ndp_view *choices = &c->in[0];
    int64_t k = choices->cols, e = ((const int32_t *)choices->data)[n / k * choices->ld + n % k] - c->attr->first;
    return e >= 0 && e < c->attr->experts ? e : -1;
}

/* A counting sort. While rows are placed, offsets[e + 1] is where the next row of expert e goes; then it is where that
 * of expert e + 1 begins. */
ndp_status ndp_ref_run_route_order(const ndp_op_call *c) {
    const ndp_view *order = &c->out[0], *places = &c->out[1], *offsets = &c->out[2];
    int64_t n = order->rows, k = places->cols, sum = 0;
    int32_t *to = order->data, *at = offsets->data;
    ndp_view_clear(offsets);
    for (int64_t i = 0; i < n; i++)
        if (expert_of(c, i) >= 0)
            at[(expert_of(c, i) + 1) * offsets->ld]++;
    for (int64_t e = 0; e < c->attr->experts; e++) {
        int32_t *next = &at[(e + 1) * offsets->ld], count = *next;
        *next = (int32_t)sum;
        sum += count;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t e = expert_of(c, i);
        int32_t place = e < 0 ? -1 : at[(e + 1) * offsets->ld]++;
        ((int32_t *)places->data)[i / k * places->ld + i % k] = place;
        if (place >= 0)
            to[place * order->ld] = (int32_t)i;
    }
    for (int64_t i = sum; i < n; i++)
        to[i * order->ld] = -1;
    return NDP_OK;
}

const ndp_kernel ndp_ref_route_order = {.run = ndp_ref_run_route_order};

static double take_rows(const ndp_op_call *c, int64_t n, int64_t col) {
    const ndp_view *weights = &c->in[3];
    int64_t from = ndp_int_at(&c->in[1], n), k = c->in[2].cols;
    double x = from < 0 ? 0 : ndp_ref_in(c, 0, from / k, col);
    return from >= 0 && ndp_present(weights) ? x * ndp_view_get(weights, from / k, from % k) : x;
}

NDP_REF_EACH(take_rows)

static double give_rows(const ndp_op_call *c, int64_t t, int64_t col) {
    const ndp_view *places = &c->in[2], *weights = &c->in[3], *acc = &c->in[4];
    double sum = 0;
    for (int64_t j = 0; j < places->cols; j++) {
        int64_t place = (int64_t)ndp_view_get(places, t, j);
        if (place >= 0)
            sum += ndp_ref_in(c, 0, place, col) * (ndp_present(weights) ? ndp_view_get(weights, t, j) : 1);
    }
    return ndp_present(acc) ? ndp_view_get(acc, t, col) + sum : sum;
}

NDP_REF_EACH(give_rows)

static double give_rows_dw(const ndp_op_call *c, int64_t t, int64_t j) {
    int64_t place = (int64_t)ndp_ref_in(c, 2, t, j);
    double sum = 0;
    for (int64_t col = 0; place >= 0 && col < c->in[0].cols; col++)
        sum += ndp_ref_in(c, 0, t, col) * ndp_ref_in(c, 1, place, col);
    return sum;
}

NDP_REF_EACH(give_rows_dw)
