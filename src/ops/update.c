/* The updates of optimizers: adamw, sgd, lion, muon. An update walks the pieces of a slice: arrays of as many elements
 * as the slice has; of a tensor it knows only whether its weights decay. muon_momentum is not an update, but has the
 * form of one: what it writes instead of weights is the direction that newton_schulz makes orthogonal and muon follows.
 */
#include "ops/update.h"

#include "ops/pieces.h"
#include "ops/shape.h"

/* `least`, `most`: states that the optimizer keeps. */
static ndp_status shape(const char *op, int least, int most, const ndp_view *in, ndp_view *out) {
    const ndp_view *w = &in[NDP_UPDATE_WEIGHT], *k = &in[NDP_UPDATE_CONSTANTS], *clip = &in[NDP_UPDATE_CLIP];
    NDP_SHAPE_CHECK(w->rows == 1 && (w->dtype == NDP_F32 || w->dtype == NDP_F64),
                    "%s: weights are a row of fp32 or fp64, not " NDP_SHAPE, op, NDP_SHAPE_ARGS(*w));
    for (int i = NDP_UPDATE_GRAD; i < NDP_UPDATE_OPERANDS; i++) {
        int state = i - NDP_UPDATE_STATE;
        bool like = i == NDP_UPDATE_GRAD || (state >= 0 && state < (in[i].rows ? most : least));
        bool fits = in[i].cols == w->cols || (state == 1 && in[i].cols < w->cols); /* without projections */
        NDP_SHAPE_CHECK(!like || (in[i].rows == 1 && fits && in[i].dtype == w->dtype),
                        "%s: operand %d is " NDP_SHAPE " against weights " NDP_SHAPE, op, i, NDP_SHAPE_ARGS(in[i]),
                        NDP_SHAPE_ARGS(*w));
        NDP_SHAPE_CHECK(state < most || in[i].rows == 0, "%s keeps %d states: operand %d is " NDP_SHAPE, op, most, i,
                        NDP_SHAPE_ARGS(in[i]));
    }
    NDP_TRY(ndp_pieces_check(op, &in[NDP_UPDATE_PIECES]));
    NDP_SHAPE_CHECK(k->rows == 1 && k->cols == NDP_OPTIMIZER_CONSTANTS && k->dtype == NDP_F64,
                    "%s: constants " NDP_SHAPE, op, NDP_SHAPE_ARGS(*k));
    NDP_SHAPE_CHECK(clip->rows == 0 || (clip->rows == 1 && clip->cols == 1 && clip->dtype == NDP_F64),
                    "%s: clip " NDP_SHAPE, op, NDP_SHAPE_ARGS(*clip));
    ndp_shape_set(&out[0], 1, w->cols, w->dtype);
    ndp_shape_set(&out[1], 1, w->cols, NDP_BF16);
    return NDP_OK;
}

static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)flops;
    for (int s = 0; s < NDP_OPTIMIZER_STATES; s++) /* also written */
        *bytes += ndp_view_bytes(&c->in[NDP_UPDATE_STATE + s]);
}

/* Bits of the states from `least` on: those that may be absent. */
#define OPTIONAL_STATES(least) ((1u << NDP_UPDATE_OPERANDS) - (1u << (NDP_UPDATE_STATE + (least))))

#define UPDATE(NAME, op, least, most)                                                                                  \
    static ndp_status op##_shape(ndp_op_call *c) { return shape(#op, least, most, c->in, c->out); }                    \
    const ndp_op ndp_op_##op = {                                                                                       \
        .id = NDP_OP_##op,                                                                                             \
        .name = #op,                                                                                                   \
        .n_in = NDP_UPDATE_OPERANDS,                                                                                   \
        .n_out = 2,                                                                                                    \
        .optional_in = 1u << NDP_UPDATE_PIECES | 1u << NDP_UPDATE_CLIP | OPTIONAL_STATES(least),                       \
        .in_place = true,                                                                                              \
        .rows = NDP_ROWS_MIXED,                                                                                        \
        .shape = op##_shape,                                                                                           \
        .flops = 12,                                                                                                   \
        .cost = cost,                                                                                                  \
    };

NDP_UPDATES(UPDATE)
UPDATE(MUON_MOMENTUM, muon_momentum, 1, 1)
