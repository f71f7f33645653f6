/* The rules of newton_schulz (newton_schulz.h). */
#include "ops/newton_schulz.h"

static ndp_status shape(ndp_op_call *c) {
    const ndp_view *x = &c->in[0];
    NDP_SHAPE_CHECK((x->dtype == NDP_F32 || x->dtype == NDP_F64) && x->ld == x->cols,
                    "newton_schulz: a contiguous matrix of fp32 or fp64, not " NDP_SHAPE, NDP_SHAPE_ARGS(*x));
    ndp_shape_like(&c->out[0], x);
    return NDP_OK;
}

/* Three products a step. */
static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    const ndp_view *x = &c->in[0];
    double small = (double)ndp_newton_schulz_smaller(x), size = (double)x->rows * (double)x->cols;
    *flops = NDP_NEWTON_SCHULZ_STEPS * (4 * small * size + 2 * small * small * small);
    *bytes = (2 + 3 * NDP_NEWTON_SCHULZ_STEPS) * ndp_view_bytes(x);
}

const ndp_op ndp_op_newton_schulz = {
    NDP_NAMED(newton_schulz), .reads = NDP_READS_spectral, .n_in = 1,      .n_out = 1,
    .in_place = true,         .rows = NDP_ROWS_MIXED,      .shape = shape, .cost = cost,
};
