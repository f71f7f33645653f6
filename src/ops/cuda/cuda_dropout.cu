/* dropout. */
#include "ops/cuda/cuda_kernel.cuh"
#include "ops/cuda/cuda_kernels.hpp"
#include "ops/dropout.h"

struct dropout_each {
    ndp_view x, key, unit, y;
    int64_t first;
    unsigned tag, bound;
    float by;
    /* Columns c .. c + 7 lie in two groups of four, or in three. */
    __device__ void operator()(int64_t t, int64_t c) const {
        ndp_lanes v = ndp_get8(x, t, c);
        int64_t group = (first + c) / NDP_DROPOUT_GROUP;
        int skip = (int)(first + c - group * NDP_DROPOUT_GROUP);
        unsigned of_row = (unsigned)ndp_int(key, t), of_unit = (unsigned)ndp_int(unit, 0);
        for (int g = 0; g < (skip ? 3 : 2); g++) {
            philox4x32_ctr_t words = ndp_dropout_words((unsigned)group + g, tag, of_unit, of_row);
            for (int k = 0; k < NDP_LANES; k++) {
                int at = k + skip - g * NDP_DROPOUT_GROUP;
                unsigned word = at == 0 ? words.v[0] : at == 1 ? words.v[1] : at == 2 ? words.v[2] : words.v[3];
                if (at >= 0 && at < NDP_DROPOUT_GROUP)
                    v.x[k] = word < bound ? 0.0f : v.x[k] * by;
            }
        }
        ndp_set8(y, t, c, v);
    }
};
static ndp_status run_dropout(const ndp_op_call *c) {
    const ndp_op_attr *a = c->attr;
    return ndp_each8(c, &c->out[0],
                     dropout_each{c->in[0], c->in[1], c->in[2], c->out[0], a->first, (unsigned)a->tag,
                                  ndp_dropout_bound(a->drop), (float)(1 / (1 - a->drop))});
}
NDP_CUDA_KERNEL(dropout)
