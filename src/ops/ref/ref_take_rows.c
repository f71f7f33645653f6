/* route_order, route_exchange, take_rows, give_rows, weigh_rows, and gradients of weights. */
#include "ops/ref/ref_kernels.h"

#include "ops/route.h"
#include <string.h>

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
    int64_t k = places->cols, n = places->rows * k, sum = 0;
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
    for (int64_t i = sum; i < order->rows; i++)
        to[i * order->ld] = -1;
    return NDP_OK;
}

const ndp_kernel ndp_ref_route_order = {.run = ndp_ref_run_route_order};

/* ---- route_exchange ---- */

/* How many choices row t has of experts of the rank of its choice j, which is written to *rank; 0: choice j has none,
 * or that of an earlier one. */
static int64_t choices_of_rank(const ndp_op_call *c, int64_t t, int64_t j, int64_t *rank) {
    const ndp_view *choices = &c->in[0];
    const int32_t *row = (const int32_t *)choices->data + t * choices->ld;
    int64_t n = 0;
    *rank = row[j] < 0 ? -1 : ndp_expert_rank(c->attr->experts, row[j], c->attr->ranks);
    for (int64_t i = 0; i < choices->cols && *rank >= 0; i++) {
        bool same = row[i] >= 0 && ndp_expert_rank(c->attr->experts, row[i], c->attr->ranks) == *rank;
        if (same && i < j)
            return 0;
        n += same;
    }
    return n;
}

static int32_t *rows_at(const ndp_op_call *c, int64_t from, int64_t to) {
    const ndp_view *rows = &c->out[2];
    return (int32_t *)rows->data + from * rows->ld + to;
}

/* Row t comes here: it becomes row `at` of those. */
static void place_here(const ndp_op_call *c, int64_t t, int64_t at) {
    const ndp_view *choices = &c->in[0], *here = &c->out[3];
    int32_t *to = (int32_t *)here->data + at * here->ld;
    for (int64_t j = 0; j < choices->cols; j++) {
        int32_t e = ((const int32_t *)choices->data)[t * choices->ld + j];
        to[j] = e >= 0 && ndp_expert_rank(c->attr->experts, e, c->attr->ranks) == c->attr->first ? e : -1;
    }
}

static void clear_from(const ndp_view *v, int64_t row) {
    for (int64_t i = row * v->cols; i < v->rows * v->cols; i++)
        ((int32_t *)v->data)[i / v->cols * v->ld + i % v->cols] = -1;
}

/* Of this rank's rows, whose places are the ranks that they go to so far: where those for each rank begin is the sum of
 * the counts before. */
static void place_going(const ndp_op_call *c, int64_t rows) {
    const ndp_view *order = &c->out[0], *places = &c->out[1];
    int64_t *next = c->scratch, sum = 0;
    for (int64_t q = 0; q < c->attr->ranks; q++) {
        next[q] = sum;
        sum += *rows_at(c, c->attr->first, q);
    }
    clear_from(order, sum);
    for (int64_t i = 0; i < rows * places->cols; i++) {
        int32_t *place = (int32_t *)places->data + i / places->cols * places->ld + i % places->cols;
        if (*place < 0)
            continue;
        *place = (int32_t)next[*place]++;
        ((int32_t *)order->data)[*place * order->ld] = (int32_t)i;
    }
}

/* Counts the rows of the round, and places those that come. before[q]: the choices of rank q's experts so far. */
static void count_rows(const ndp_op_call *c, int64_t round, int64_t *before) {
    const ndp_view *places = &c->out[1];
    int64_t all = c->in[0].rows, k = c->in[0].cols, rows = all / c->attr->ranks, come = 0, q;
    for (int64_t t = 0; t < all; t++)
        for (int64_t j = 0, at = 0; j < k; j++) {
            int64_t n = choices_of_rank(c, t, j, &q), own = t - c->attr->first * rows;
            if (n == 0)
                continue;
            bool goes = before[q] / ndp_round_choices(c->attr, k) == round;
            before[q] += n;
            *rows_at(c, t / rows, q) += goes;
            if (goes && q == c->attr->first)
                place_here(c, t, come++);
            if (own >= 0 && own < rows)
                ((int32_t *)places->data)[own * places->ld + at++] = goes ? (int32_t)q : -1;
        }
    clear_from(&c->out[3], come);
}

size_t ndp_ref_exchange_scratch(const ndp_op_call *c) { return (size_t)c->attr->ranks * sizeof(int64_t); }

ndp_status ndp_ref_run_route_exchange(const ndp_op_call *c) {
    int64_t later = 0, *before = c->scratch;
    int64_t round = ndp_present(&c->in[1]) ? 1 + *(const int64_t *)c->in[1].data : 0;
    memset(before, 0, ndp_ref_exchange_scratch(c));
    ndp_view_clear(&c->out[2]);
    clear_from(&c->out[1], 0);
    count_rows(c, round, before);
    for (int64_t q = 0; q < c->attr->ranks; q++) {
        int64_t n = ndp_later_rounds(c->attr, c->in[0].cols, before[q]);
        later = n > later ? n : later;
    }
    *(int64_t *)c->out[4].data = later;
    place_going(c, c->in[0].rows / c->attr->ranks);
    return NDP_OK;
}

const ndp_kernel ndp_ref_route_exchange = {.run = ndp_ref_run_route_exchange, .scratch = ndp_ref_exchange_scratch};

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

static double weigh_rows(const ndp_op_call *c, int64_t n, int64_t col) {
    int64_t from = ndp_int_at(&c->in[1], n), k = c->in[2].cols;
    return from < 0 ? 0 : ndp_ref_in(c, 0, n, col) * ndp_ref_in(c, 3, from / k, from % k);
}

NDP_REF_EACH(weigh_rows)

static double weigh_rows_dw(const ndp_op_call *c, int64_t t, int64_t j) {
    int64_t place = (int64_t)ndp_ref_in(c, 2, t, j);
    double sum = 0, weight = ndp_ref_in(c, 3, t, j);
    for (int64_t col = 0; place >= 0 && weight != 0 && col < c->in[0].cols; col++)
        sum += ndp_ref_in(c, 0, place, col) * ndp_ref_in(c, 1, place, col);
    return sum == 0 ? 0 : sum / weight;
}

NDP_REF_EACH(weigh_rows_dw)
