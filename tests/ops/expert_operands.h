/* Operands of the ops that move rows to experts and back. */
#ifndef NDP_TESTS_EXPERT_OPERANDS_H
#define NDP_TESTS_EXPERT_OPERANDS_H

#include "op_test.h"

/* Rows to experts that differ with the row, or all rows to the same ones; every fifth row is padding. */
static inline ndp_view some_choices(int64_t rows, int64_t experts, int64_t k, bool same) {
    ndp_view v = matrix(NDP_I32, rows, k);
    for (int64_t t = 0; t < rows; t++)
        for (int64_t j = 0; j < k; j++)
            ndp_view_set(&v, t, j, t % 5 == 3 ? -1 : (double)(((same ? 1 : t * t + 3) + j) % experts));
    return v;
}

/* Rows of `n` samples, in runs; every fifth row is padding, as in some_choices. */
static inline ndp_view some_samples(int64_t rows, int64_t n) {
    ndp_view v = matrix(NDP_I32, rows, 1);
    for (int64_t t = 0; t < rows; t++)
        ndp_view_set(&v, t, 0, t % 5 == 3 ? -1 : (double)(t * n / rows));
    return v;
}

/* The permutation of some choices, as the reference makes it. */
typedef struct some_order {
    ndp_view order, places;
} some_order;

static inline some_order order_of(ndp_view choices, int64_t experts) {
    ndp_op_attr attr = {.experts = (int)experts};
    ndp_view in[] = {choices}, out[NDP_OP_MAX_OUT] = {{0}};
    make_outputs(&ndp_op_route_order, &attr, in, out, ~0u);
    run_op(&ndp_op_route_order, &attr, in, out, &ndp_device_ref, 1);
    free_matrices(&choices, 1);
    free_matrices(&out[2], 1);
    return (some_order){out[0], out[1]};
}

/* In steps of 1/4: some are equal. */
static inline ndp_view tied(int64_t rows, int64_t cols, uint64_t seed) {
    ndp_view v = random_matrix(NDP_F32, rows, cols, seed);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            ndp_view_set(&v, r, c, floor(4 * ndp_view_get(&v, r, c)) / 4);
    return v;
}

#endif
