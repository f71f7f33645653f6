/* route_order, route_exchange, take_rows, give_rows, give_rows_dw. */
#include "ops/ref/ref_kernels.h"

#include "ops/route.h"

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

/* ---- route_exchange ---- */

/* The rank that choice j of row t is of; -1: none, or that of an earlier choice of the row. */
static int64_t new_rank_of(const ndp_op_call *c, int64_t t, int64_t j) {
    const ndp_view *choices = &c->in[0];
    const int32_t *row = (const int32_t *)choices->data + t * choices->ld;
    int64_t rank = row[j] < 0 ? -1 : ndp_expert_rank(c->attr->experts, row[j], c->attr->ranks);
    for (int64_t i = 0; i < j && rank >= 0; i++)
        if (row[i] >= 0 && ndp_expert_rank(c->attr->experts, row[i], c->attr->ranks) == rank)
            return -1;
    return rank;
}

static int32_t *rows_at(const ndp_op_call *c, int64_t from, int64_t to) {
    const ndp_view *rows = &c->out[2];
    return (int32_t *)rows->data + from * rows->ld + to;
}

/* Row t, if it comes here, becomes row `at` of those. True if it does. */
static bool place_here(const ndp_op_call *c, int64_t t, int64_t at) {
    const ndp_view *choices = &c->in[0], *here = &c->out[3];
    int32_t *to = (int32_t *)here->data + at * here->ld;
    bool any = false;
    for (int64_t j = 0; j < choices->cols; j++) {
        int32_t e = ((const int32_t *)choices->data)[t * choices->ld + j];
        bool own = e >= 0 && ndp_expert_rank(c->attr->experts, e, c->attr->ranks) == c->attr->first;
        to[j] = own ? e : -1;
        any |= own;
    }
    return any;
}

static void clear_from(const ndp_view *v, int64_t row) {
    for (int64_t i = row * v->cols; i < v->rows * v->cols; i++)
        ((int32_t *)v->data)[i / v->cols * v->ld + i % v->cols] = -1;
}

/* Of this rank's rows: where those for each rank begin is the sum of the counts before. `rows` of this rank counts them
 * once more meanwhile. */
static void place_going(const ndp_op_call *c, int64_t rows) {
    const ndp_view *order = &c->out[0], *places = &c->out[1];
    int64_t me = c->attr->first, ranks = c->attr->ranks, first = me * rows;
    int32_t sum = 0;
    for (int64_t q = 0; q < ranks; q++) {
        int32_t n = *rows_at(c, me, q);
        *rows_at(c, me, q) = sum;
        sum += n;
    }
    clear_from(order, sum);
    clear_from(places, 0);
    for (int64_t t = 0; t < rows; t++)
        for (int64_t j = 0, k = 0; j < c->in[0].cols; j++) {
            int64_t q = new_rank_of(c, first + t, j), place = q < 0 ? 0 : (*rows_at(c, me, q))++;
            if (q < 0)
                continue;
            ((int32_t *)places->data)[t * places->ld + k] = (int32_t)place;
            ((int32_t *)order->data)[place * order->ld] = (int32_t)(t * places->cols + k++);
        }
    for (int64_t q = ranks - 1; q > 0; q--)
        *rows_at(c, me, q) -= *rows_at(c, me, q - 1);
}

ndp_status ndp_ref_run_route_exchange(const ndp_op_call *c) {
    int64_t all = c->in[0].rows, rows = all / c->attr->ranks, come = 0;
    ndp_view_clear(&c->out[2]);
    for (int64_t t = 0; t < all; t++) {
        for (int64_t j = 0; j < c->in[0].cols; j++) {
            int64_t q = new_rank_of(c, t, j);
            if (q >= 0)
                ++*rows_at(c, t / rows, q);
        }
        come += place_here(c, t, come);
    }
    clear_from(&c->out[3], come);
    place_going(c, rows);
    return NDP_OK;
}

const ndp_kernel ndp_ref_route_exchange = {.run = ndp_ref_run_route_exchange};

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
