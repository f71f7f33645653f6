/* The updates of optimizers: adamw, adamw8bit, sgd, lion, muon. An update walks the pieces of a slice: arrays of as
 * many elements as the slice has; of a tensor it knows only its row of constants. muon_momentum is not an update,
 * but has the form of one: what it writes instead of weights is the direction that newton_schulz makes orthogonal and
 * muon follows. */
#include "ops/update.h"

#include "ops/pieces.h"
#include "ops/shape.h"

/* The type that numbers of an update have in full. */
static ndp_dtype wide(const ndp_view *in) { return ndp_wide(in[NDP_UPDATE_WEIGHT].dtype); }

static ndp_status check_weights(const char *op, const ndp_view *in) {
    const ndp_view *w = &in[NDP_UPDATE_WEIGHT], *g = &in[NDP_UPDATE_GRAD];
    bool fits = w->dtype == NDP_F32 || w->dtype == NDP_F64 || w->dtype == NDP_BF16 || w->dtype == NDP_SPLIT_REST;
    NDP_SHAPE_CHECK(w->rows == 1 && fits,
                    "%s: weights are a row of fp32, fp64 or bf16, or the rest of fp32, not " NDP_SHAPE, op,
                    NDP_SHAPE_ARGS(*w));
    NDP_SHAPE_CHECK(g->rows == 1 && g->cols == w->cols && g->dtype == wide(in),
                    "%s: operand %d is " NDP_SHAPE " against weights " NDP_SHAPE, op, NDP_UPDATE_GRAD,
                    NDP_SHAPE_ARGS(*g), NDP_SHAPE_ARGS(*w));
    return NDP_OK;
}

static ndp_status check_numbers(const char *op, const ndp_view *in) {
    const ndp_view *k = &in[NDP_UPDATE_CONSTANTS], *clip = &in[NDP_UPDATE_CLIP];
    NDP_TRY(ndp_pieces_check(op, &in[NDP_UPDATE_PIECES]));
    NDP_SHAPE_CHECK(k->rows > 0 && k->cols == NDP_OPTIMIZER_CONSTANTS && k->ld == k->cols && k->dtype == NDP_F64,
                    "%s: constants " NDP_SHAPE, op, NDP_SHAPE_ARGS(*k));
    NDP_SHAPE_CHECK(clip->rows == 0 || (clip->rows == 1 && clip->cols == 1 && clip->dtype == NDP_F64),
                    "%s: clip " NDP_SHAPE, op, NDP_SHAPE_ARGS(*clip));
    return NDP_OK;
}

/* `least`, `most`: states that the optimizer keeps. A state without the elements of projections, or of tensors whose
 * states are codes, is shorter than the weights; then the table says where pieces begin in it. */
static ndp_status check_states(const char *op, int least, int most, const ndp_view *in) {
    const ndp_view *w = &in[NDP_UPDATE_WEIGHT];
    bool places = in[NDP_UPDATE_PIECES].cols > NDP_PIECE_PLACE;
    for (int i = NDP_UPDATE_STATE; i < NDP_UPDATE_OPERANDS; i++) {
        int state = i - NDP_UPDATE_STATE;
        bool kept = state < (in[i].rows ? most : least), fits = places ? in[i].cols <= w->cols : in[i].cols == w->cols;
        bool type = in[i].dtype == wide(in) || in[i].dtype == NDP_BF16;
        NDP_SHAPE_CHECK(!kept || (in[i].rows == 1 && fits && type),
                        "%s: operand %d is " NDP_SHAPE " against weights " NDP_SHAPE, op, i, NDP_SHAPE_ARGS(in[i]),
                        NDP_SHAPE_ARGS(*w));
        NDP_SHAPE_CHECK(state < most || in[i].rows == 0, "%s keeps %d states: operand %d is " NDP_SHAPE, op, most, i,
                        NDP_SHAPE_ARGS(in[i]));
    }
    return NDP_OK;
}

/* Codes of all elements, and scales of some blocks. */
static ndp_status check_codes(const char *op, const ndp_view *in) {
    const ndp_view *w = &in[NDP_UPDATE_WEIGHT], *pieces = &in[NDP_UPDATE_PIECES];
    for (int s = 0; s < NDP_OPTIMIZER_STATES; s++) {
        const ndp_view *codes = &in[NDP_UPDATE_STATE + s], *scales = &in[NDP_UPDATE_SCALES + s];
        NDP_SHAPE_CHECK(codes->rows == 1 && codes->cols == w->cols && codes->dtype == NDP_U8,
                        "%s: operand %d is " NDP_SHAPE " against weights " NDP_SHAPE ", must be their codes", op,
                        NDP_UPDATE_STATE + s, NDP_SHAPE_ARGS(*codes), NDP_SHAPE_ARGS(*w));
        NDP_SHAPE_CHECK(scales->rows == 1 && scales->dtype == wide(in),
                        "%s: operand %d is " NDP_SHAPE ", must be a row of scales", op, NDP_UPDATE_SCALES + s,
                        NDP_SHAPE_ARGS(*scales));
    }
    NDP_SHAPE_CHECK(pieces->rows == 0 || pieces->cols >= NDP_PIECE_COLUMNS_PLACED,
                    "%s: the table " NDP_SHAPE " does not say where scales begin", op, NDP_SHAPE_ARGS(*pieces));
    return NDP_OK;
}

/* What is rounded at random needs tables that say where. */
static ndp_status check_rounding(const char *op, const ndp_view *in) {
    const ndp_view *pieces = &in[NDP_UPDATE_PIECES];
    bool rounds = in[NDP_UPDATE_WEIGHT].dtype == NDP_BF16;
    for (int i = NDP_UPDATE_STATE; i < NDP_UPDATE_OPERANDS; i++)
        rounds |= in[i].rows > 0 && in[i].dtype == NDP_BF16;
    NDP_SHAPE_CHECK(!rounds || pieces->rows == 0 || pieces->cols == NDP_PIECE_COLUMNS_ROUNDED,
                    "%s: rounds to bf16 by a table " NDP_SHAPE " that does not say where pieces are", op,
                    NDP_SHAPE_ARGS(*pieces));
    return NDP_OK;
}

/* How many operands an update has says whether its states are codes. */
static ndp_status shape(ndp_op_call *c, const char *op, int least, int most) {
    const ndp_view *w = &c->in[NDP_UPDATE_WEIGHT];
    NDP_TRY(check_weights(op, c->in));
    NDP_TRY(check_numbers(op, c->in));
    NDP_TRY(c->op->n_in > NDP_UPDATE_OPERANDS ? check_codes(op, c->in) : check_states(op, least, most, c->in));
    NDP_TRY(check_rounding(op, c->in));
    ndp_shape_set(&c->out[0], 1, w->cols, w->dtype);
    ndp_shape_set(&c->out[1], 1, w->cols, NDP_BF16);
    return NDP_OK;
}

static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)flops;
    for (int i = NDP_UPDATE_STATE; i < c->op->n_in; i++) /* also written */
        *bytes += ndp_view_bytes(&c->in[i]);
    if (c->in[NDP_UPDATE_WEIGHT].dtype == NDP_SPLIT_REST) /* the copy is read, too */
        *bytes += ndp_view_bytes(&c->out[1]);
}

/* Bits of the states from `least` on: those that may be absent. */
#define OPTIONAL_STATES(least) ((1u << NDP_UPDATE_OPERANDS) - (1u << (NDP_UPDATE_STATE + (least))))
/* Each of two codes is looked for in eight steps. */
#define FLOPS(operands) ((operands) > NDP_UPDATE_OPERANDS ? 50 : 12)

#define UPDATE(NAME, op, least, most, operands)                                                                        \
    static ndp_status op##_shape(ndp_op_call *c) { return shape(c, #op, least, most); }                                \
    const ndp_op ndp_op_##op = {                                                                                       \
        NDP_NAMED(op),       .n_in = operands,                                                                         \
        .n_out = 2,          .optional_in = 1u << NDP_UPDATE_PIECES | 1u << NDP_UPDATE_CLIP | OPTIONAL_STATES(least),  \
        .in_place = true,    .rows = NDP_ROWS_MIXED,                                                                   \
        .shape = op##_shape, .flops = FLOPS(operands),                                                                 \
        .cost = cost,                                                                                                  \
    };

NDP_UPDATES(UPDATE)
UPDATE(MUON_MOMENTUM, muon_momentum, 1, 1, NDP_UPDATE_OPERANDS)
