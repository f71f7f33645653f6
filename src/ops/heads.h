/* How heads_split and heads_merge cut: the heads of a row into runs of `width` columns, each of them for `repeats`
 * consecutive parts of attr.all_parts (0: of attr.parts); those from attr.first on are cut here. */
#ifndef NDP_OPS_HEADS_H
#define NDP_OPS_HEADS_H

#include "ops/op.h"

typedef struct ndp_heads {
    int64_t width, repeats, parts, first;
} ndp_heads;

static inline int ndp_heads_all_parts(const ndp_op_attr *a) { return a->all_parts ? a->all_parts : a->parts; }

static inline ndp_heads ndp_heads_of(const ndp_op_attr *a) {
    int64_t all = ndp_heads_all_parts(a), repeats = a->heads < all ? all / a->heads : 1;
    return (ndp_heads){(int64_t)a->heads * a->head_dim * repeats / all, repeats, a->parts, a->first};
}

/* The run of columns that part p has. */
static inline int64_t ndp_heads_run(const ndp_heads *h, int64_t p) { return (h->first + p) / h->repeats; }

/* The parts [*low, *high) that have run i: none when the run belongs to parts that others cut. */
static inline void ndp_heads_parts(const ndp_heads *h, int64_t i, int64_t *low, int64_t *high) {
    *low = i * h->repeats - h->first;
    *high = *low + h->repeats;
    *low = *low < 0 ? 0 : *low;
    *high = *high > h->parts ? h->parts : *high;
}

#endif
