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

/* a, b, trans_a, trans_b, added */
static const ndp_product ndp_product_linear = {0, 1, false, true, 2};
static const ndp_product ndp_product_linear_dx = {0, 1, false, false, 2};
static const ndp_product ndp_product_linear_dw = {0, 1, true, false, -1};

#endif
