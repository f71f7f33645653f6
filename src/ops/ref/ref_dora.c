/* dora_squares, dora and the gradient of its m. */
#include "ops/ref/ref_kernels.h"

#include <math.h>

static double dora_squares(const ndp_op_call *c, int64_t i, int64_t column) {
    double sum = 0;
    (void)column; /* there is one */
    for (int64_t k = 0; k < c->in[0].cols; k++) {
        double change = 0;
        for (int64_t j = 0; j < c->in[1].rows; j++)
            change += ndp_ref_in(c, 2, i, j) * ndp_ref_in(c, 1, j, k);
        sum += pow(ndp_ref_in(c, 0, i, k) + c->attr->scale * change, 2);
    }
    return sum;
}

NDP_REF_EACH(dora_squares)

static double dora(const ndp_op_call *c, int64_t t, int64_t j) {
    int64_t i = j - c->attr->first;
    double u = ndp_ref_in(c, 0, t, j);
    return i >= 0 && i < c->in[2].rows ? u * ndp_ref_in(c, 1, 0, i) / sqrt(ndp_ref_in(c, 2, i, 0)) : u;
}

NDP_REF_EACH(dora)

static double dora_dm(const ndp_op_call *c, int64_t row, int64_t i) {
    double sum = 0;
    (void)row; /* there is one */
    for (int64_t t = 0; t < c->in[0].rows; t++)
        sum += ndp_ref_in(c, 0, t, c->attr->first + i) * ndp_ref_in(c, 1, t, c->attr->first + i);
    return sum / sqrt(ndp_ref_in(c, 2, i, 0));
}

NDP_REF_EACH(dora_dm)
