/* How heads_split and heads_merge cut: the heads of a row into runs of `width` columns, each of them for `repeats`
 * consecutive parts. */
#ifndef NDP_OPS_HEADS_H
#define NDP_OPS_HEADS_H

#include "ops/op.h"

typedef struct ndp_heads {
    int64_t width, repeats;
} ndp_heads;

static inline ndp_heads ndp_heads_of(const ndp_op_attr *a) {
    int64_t repeats = a->heads < a->parts ? a->parts / a->heads : 1;
    return (ndp_heads){(int64_t)a->heads * a->head_dim * repeats / a->parts, repeats};
}

#endif
