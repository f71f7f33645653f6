/* linear, linear_dx and linear_dw as matrix products. */
#ifndef NDP_OPS_LINEAR_H
#define NDP_OPS_LINEAR_H

#include "ops/op.h"

/* Which operands are multiplied, and which one, if any, is added. */
typedef struct ndp_product {
    int a, b;
    bool trans_a, trans_b;
    int added; /* -1: none */
} ndp_product;

static const ndp_product ndp_product_linear = {.a = 0, .b = 1, .trans_b = true, .added = 2};
static const ndp_product ndp_product_linear_dx = {.a = 0, .b = 1, .added = 2};
static const ndp_product ndp_product_linear_dw = {.a = 0, .b = 1, .trans_a = true, .added = -1};

#endif
