/* dropout. */
#include "ops/dropout.h"
#include "ops/ref/ref_kernels.h"

static double dropout(const ndp_op_call *c, int64_t t, int64_t j) {
    int64_t column = c->attr->first + j;
    philox4x32_ctr_t words = ndp_dropout_words((uint32_t)(column / NDP_DROPOUT_GROUP), (uint32_t)c->attr->tag,
                                               (uint32_t)ndp_int_at(&c->in[2], 0), (uint32_t)ndp_int_at(&c->in[1], t));
    bool dropped = words.v[column % NDP_DROPOUT_GROUP] < ndp_dropout_bound(c->attr->drop);
    return dropped ? 0 : ndp_ref_in(c, 0, t, j) / (1 - c->attr->drop);
}

NDP_REF_EACH(dropout)
