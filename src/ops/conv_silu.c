/* silu of a causal depthwise convolution (causal_conv.c), with the taps as files have them: a row for each column, the
 * last number weighs the row itself; those of x begin at attr.first. u, which silu is of, is not kept: the backward
 * computes it again. Where axes cut the columns of x, they cut between attr.heads of attr.head_dim columns.
 *
 * The context axis cuts the rows in pieces (ops/row_pieces.h). What a row takes from before its piece is in `ends`: the
 * last rows of all pieces, at least as many as there are taps but one, or whole pieces. */
#include "ops/flow.h"
#include "ops/row_pieces.h"
#include "ops/shape.h"

/* Those of pieces, which a rank has its own of. */
enum { PIECES = NDP_READS_ranks | NDP_READS_parts | NDP_READS_place };

static ndp_status check_ends(const ndp_op_call *c, const ndp_view *x, const ndp_view *ends) {
    const ndp_op_attr *a = c->attr;
    NDP_SHAPE_CHECK(x->rows % ndp_row_pieces_here(a) == 0 && (ends->rows > 0) == (a->ranks > 0) &&
                        (ends->rows == 0 ||
                         (ends->rows % ndp_row_pieces(a) == 0 && ends->cols == x->cols && ends->dtype == x->dtype)),
                    "%s: x " NDP_SHAPE " in %lld pieces of %lld, ends " NDP_SHAPE, c->op->name, NDP_SHAPE_ARGS(*x),
                    (long long)ndp_row_pieces_here(a), (long long)ndp_row_pieces(a), NDP_SHAPE_ARGS(*ends));
    return NDP_OK;
}

/* Of two operands like x, the taps, and the starts, from operand `first` on: x is the last of the two. `ends`: the
 * operand. */
static ndp_status check(const ndp_op_call *c, int first, int ends) {
    const ndp_view *x = &c->in[first], *w = x + 1, *start = x + 2;
    NDP_SHAPE_SAME(c, c->in[0], *x);
    NDP_SHAPE_CHECK(
        w->cols >= 1 && w->cols <= NDP_MAX_TAPS && c->attr->first >= 0 && c->attr->first + x->cols <= w->rows &&
            w->dtype == x->dtype && start->rows == x->rows && start->cols == 1 && start->dtype == NDP_I32,
        "%s: x " NDP_SHAPE ", w " NDP_SHAPE ", start " NDP_SHAPE ", with at most %d taps, from %lld on", c->op->name,
        NDP_SHAPE_ARGS(*x), NDP_SHAPE_ARGS(*w), NDP_SHAPE_ARGS(*start), NDP_MAX_TAPS, (long long)c->attr->first);
    return check_ends(c, x, &c->in[ends]);
}

/* `per`: operations for an element and a tap, beside those of silu, or of its slope and what is left. */
static void count(const ndp_op_call *c, int w, double per, double *flops) {
    *flops = ndp_elements(&c->in[0]) * (per * (double)c->in[w].cols + 25);
}

static ndp_status shape(ndp_op_call *c) {
    NDP_TRY(check(c, 0, 3));
    ndp_shape_like(&c->out[0], &c->in[0]);
    return NDP_OK;
}

static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)bytes;
    count(c, 1, 2, flops);
}

static ndp_status backward(ndp_bwd *b) {
    int ins[] = {b->grad_out(b, 0), b->in[0], b->in[1], b->in[2], -1, b->in[3]};
    NDP_TRY(ndp_input_grad(b, &ndp_op_conv_silu_dx, b->attr, ins, 6, 4));
    ins[4] = b->in[3];
    if (ins[0] >= 0 && b->wants(b, 3))
        NDP_TRY(b->input_grad(b, &ndp_op_conv_silu_dends, b->attr, ins, 5, (int[]){3}, 1, -1, NULL));
    return ndp_weight_grad(b, 1, &ndp_op_conv_silu_dw, ins, 5);
}

const ndp_op ndp_op_conv_silu = {
    NDP_NAMED(conv_silu),
    .n_in = 4,
    .n_out = 1,
    .optional_in = 1u << 3,
    .rows = NDP_ROWS_MIXED,
    .shape = shape,
    .backward = backward,
    .cost = cost,
    .reads = NDP_READS_wide_grad | NDP_READS_first | NDP_READS_heads | NDP_READS_head_dim | PIECES,
    NDP_FLOWS(
        {.own = PIECES,
         .pieces = true,
         .in = {NDP_IS(OPERAND, 0, "tc"), NDP_IS(OPERAND, 1, "cK"), NDP_IS(OPERAND, 2, "t1"), NDP_IS(MAYBE, 0, "..")},
         .out = {NDP_IS(RESULT, 0, "tc")}}),
};

static ndp_status dx_shape(ndp_op_call *c) {
    const ndp_view *x = &c->in[1];
    NDP_TRY(check(c, 1, 5));
    ndp_shape_set(&c->out[0], x->rows, x->cols, c->attr->wide_grad ? ndp_wide(x->dtype) : x->dtype);
    return ndp_shape_acc(c, 4);
}

static void bwd_cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)bytes;
    count(c, 2, 4, flops);
}

const ndp_op ndp_op_conv_silu_dx = {
    NDP_NAMED(conv_silu_dx),
    .n_in = 6,
    .n_out = 1,
    .optional_in = 1u << 4 | 1u << 5,
    .rows = NDP_ROWS_MIXED,
    .shape = dx_shape,
    .cost = bwd_cost,
    .reads = NDP_READS_wide_grad | NDP_READS_first | PIECES,
    NDP_FLOWS({.node = &ndp_op_conv_silu,
               .own = PIECES,
               .pieces = true,
               .in = {NDP_IS(D_RESULT, 0, "tc"), NDP_IS(OPERAND, 0, "tc"), NDP_IS(OPERAND, 1, "cK"),
                      NDP_IS(OPERAND, 2, "t1"), NDP_IS(EARLIER, 0, ".."), NDP_IS(MAYBE, 0, "..")},
               .out = {NDP_IS(D_OPERAND, 0, "tc")}}),
};

static ndp_status dw_shape(ndp_op_call *c) {
    NDP_TRY(check(c, 1, 4));
    ndp_shape_set(&c->out[0], c->in[2].rows, c->in[2].cols, ndp_wide(c->in[2].dtype));
    return NDP_OK;
}

const ndp_op ndp_op_conv_silu_dw = {
    NDP_NAMED(conv_silu_dw),
    .n_in = 5,
    .n_out = 1,
    .optional_in = 1u << 4,
    .rows = NDP_ROWS_MIXED,
    .shape = dw_shape,
    .cost = bwd_cost,
    .reads = NDP_READS_first | PIECES,
    NDP_FLOWS({.node = &ndp_op_conv_silu,
               .own = PIECES,
               .pieces = true,
               .in = {NDP_IS(D_RESULT, 0, "tc"), NDP_IS(OPERAND, 0, "tc"), NDP_IS(OPERAND, 1, "cK"),
                      NDP_IS(OPERAND, 2, "t1"), NDP_IS(MAYBE, 0, "..")},
               .out = {NDP_IS(D_OPERAND, 1, "cK")}}),
};

/* ---- between pieces ---- */

static ndp_status dends_shape(ndp_op_call *c) {
    NDP_TRY(check(c, 1, 4));
    ndp_shape_set(&c->out[0], c->in[4].rows, c->in[4].cols, ndp_wide(c->in[4].dtype));
    return NDP_OK;
}

/* The first rows of each piece, again: those that have taps before it. */
static void dends_cost(const ndp_op_call *c, double *flops, double *bytes) {
    const ndp_view *dy = &c->in[0], *ends = &c->in[4];
    double taps = (double)c->in[2].cols, rows = (double)ndp_row_pieces_here(c->attr) * (taps - 1);
    *flops = rows * (double)dy->cols * (3 * taps + 25);
    *bytes = 2 * rows * (double)dy->cols * (double)ndp_dtype_size(dy->dtype) + ndp_view_bytes(ends) +
             ndp_view_bytes(&c->out[0]);
}

const ndp_op ndp_op_conv_silu_dends = {
    NDP_NAMED(conv_silu_dends),
    .n_in = 5,
    .n_out = 1,
    .rows = NDP_ROWS_MIXED,
    .shape = dends_shape,
    .cost = dends_cost,
    .reads = NDP_READS_first | PIECES,
    NDP_FLOWS({.node = &ndp_op_conv_silu,
               .own = PIECES,
               .pieces = true,
               .in = {NDP_IS(D_RESULT, 0, "tc"), NDP_IS(OPERAND, 0, "tc"), NDP_IS(OPERAND, 1, "cK"),
                      NDP_IS(OPERAND, 2, "t1"), NDP_IS(MAYBE, 0, "..")}}),
};

static ndp_status check_piece_ends(const ndp_op_call *c, const ndp_view *x) {
    const ndp_op_attr *a = c->attr;
    NDP_SHAPE_CHECK(a->parts > 0 && a->ends > 0 && x->rows % a->parts == 0 && x->rows / a->parts >= a->ends,
                    "%s: the last %d rows of %d pieces of " NDP_SHAPE, c->op->name, a->ends, a->parts,
                    NDP_SHAPE_ARGS(*x));
    return NDP_OK;
}

static ndp_status ends_shape(ndp_op_call *c) {
    NDP_TRY(check_piece_ends(c, &c->in[0]));
    ndp_shape_set(&c->out[0], (int64_t)c->attr->parts * c->attr->ends, c->in[0].cols, c->in[0].dtype);
    return NDP_OK;
}

static ndp_status ends_backward(ndp_bwd *b) {
    return ndp_input_grad(b, &ndp_op_piece_ends_dx, b->attr, (int[]){b->grad_out(b, 0), b->in[0], -1}, 3, 2);
}

/* Reads what it writes. */
static void ends_cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)flops;
    *bytes = 2 * ndp_view_bytes(&c->out[0]);
}

const ndp_op ndp_op_piece_ends = {
    NDP_NAMED(piece_ends),
    .n_in = 1,
    .n_out = 1,
    .rows = NDP_ROWS_MIXED,
    .shape = ends_shape,
    .backward = ends_backward,
    .cost = ends_cost,
    .reads = NDP_READS_parts | NDP_READS_ends | NDP_READS_wide_grad,
    NDP_FLOWS({.node = &ndp_op_conv_silu, .own = PIECES | NDP_READS_ends, .in = {NDP_IS(ANY, 0, "..")}}),
};

static ndp_status ends_dx_shape(ndp_op_call *c) {
    const ndp_view *dy = &c->in[0], *x = &c->in[1];
    NDP_TRY(check_piece_ends(c, x));
    NDP_SHAPE_CHECK(dy->rows == (int64_t)c->attr->parts * c->attr->ends && dy->cols == x->cols,
                    "piece_ends_dx: dy " NDP_SHAPE ", x " NDP_SHAPE, NDP_SHAPE_ARGS(*dy), NDP_SHAPE_ARGS(*x));
    ndp_shape_set(&c->out[0], x->rows, x->cols, c->attr->wide_grad ? ndp_wide(x->dtype) : x->dtype);
    return ndp_shape_acc(c, 2);
}

static void ends_dx_cost(const ndp_op_call *c, double *flops, double *bytes) {
    *flops = ndp_elements(&c->in[0]);
    *bytes -= ndp_view_bytes(&c->in[1]); /* says how many rows there are */
}

const ndp_op ndp_op_piece_ends_dx = {
    NDP_NAMED(piece_ends_dx),
    .n_in = 3,
    .n_out = 1,
    .optional_in = 1u << 2,
    .rows = NDP_ROWS_MIXED,
    .shape = ends_dx_shape,
    .cost = ends_dx_cost,
    .reads = NDP_READS_parts | NDP_READS_ends | NDP_READS_wide_grad,
    NDP_FLOWS({.node = &ndp_op_conv_silu,
               .own = PIECES | NDP_READS_ends,
               .in = {NDP_IS(ANY, 0, ".."), NDP_IS(ANY, 0, ".."), NDP_IS(ANY, 0, "..")}}),
};
