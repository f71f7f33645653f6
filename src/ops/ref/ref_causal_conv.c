/* causal_conv, conv_silu and their gradients. */
#include "ops/ref/ref_kernels.h"
#include "ops/row_pieces.h"

#include <math.h>

static bool sees(const ndp_op_call *c, int64_t t, int64_t row) { return row >= 0 && row >= ndp_int_at(&c->in[2], t); }

static double causal_conv(const ndp_op_call *c, int64_t t, int64_t i) {
    double sum = 0;
    for (int64_t j = 0; j < c->in[1].rows && sees(c, t, t - j); j++)
        sum += ndp_ref_in(c, 1, j, i) * ndp_ref_in(c, 0, t - j, i);
    return sum;
}

NDP_REF_EACH(causal_conv)

/* Row s gives to the rows t = s + j that see it. */
static double causal_conv_dx(const ndp_op_call *c, int64_t s, int64_t i) {
    double sum = ndp_present(&c->in[3]) ? ndp_ref_in(c, 3, s, i) : 0;
    for (int64_t j = 0; j < c->in[1].rows && s + j < c->in[0].rows; j++)
        if (sees(c, s + j, s))
            sum += ndp_ref_in(c, 1, j, i) * ndp_ref_in(c, 0, s + j, i);
    return sum;
}

NDP_REF_EACH(causal_conv_dx)

static double causal_conv_dw(const ndp_op_call *c, int64_t j, int64_t i) {
    double sum = 0;
    for (int64_t t = j; t < c->in[0].rows; t++)
        if (sees(c, t, t - j))
            sum += ndp_ref_in(c, 0, t, i) * ndp_ref_in(c, 1, t - j, i);
    return sum;
}

NDP_REF_EACH(causal_conv_dw)

/* What weighs the row j rows back, operand i being the taps, from attr.first on, and the starts the next one. */
static double tap(const ndp_op_call *c, int i, int64_t column, int64_t j) {
    return ndp_ref_in(c, i, c->attr->first + column, c->in[i].cols - 1 - j);
}
static bool reaches(const ndp_op_call *c, int w, int64_t t, int64_t row) {
    return (row >= 0 || c->attr->ranks > 0) && row >= ndp_int_at(&c->in[w + 1], t);
}

/* The first row of the piece that row t of x is in. */
static int64_t piece_first(const ndp_op_call *c, int w, int64_t t) {
    int64_t piece = c->in[w - 1].rows / ndp_row_pieces_here(c->attr);
    return t / piece * piece;
}

/* What x has j rows before row t, or the rows at the ends of pieces have. */
static double row_back(const ndp_op_call *c, int w, int ends, int64_t t, int64_t j, int64_t column) {
    int64_t first = piece_first(c, w, t), piece = c->in[w - 1].rows / ndp_row_pieces_here(c->attr);
    return t - j >= first
               ? ndp_ref_in(c, w - 1, t - j, column)
               : ndp_ref_in(c, ends, ndp_row_before_piece(c->attr, c->in[ends].rows, t / piece, first - (t - j)),
                            column);
}

/* What silu is of; x is the operand before the taps. */
static double before_silu(const ndp_op_call *c, int w, int ends, int64_t t, int64_t column) {
    double sum = 0;
    for (int64_t j = 0; j < c->in[w].cols && reaches(c, w, t, t - j); j++)
        sum += tap(c, w, column, j) * row_back(c, w, ends, t, j, column);
    return sum;
}

static double conv_silu(const ndp_op_call *c, int64_t t, int64_t i) {
    double u = before_silu(c, 1, 3, t, i);
    return u / (1 + exp(-u));
}

NDP_REF_EACH(conv_silu)

/* The gradient of what silu is of. */
static double conv_silu_du(const ndp_op_call *c, int ends, int64_t t, int64_t i) {
    double u = before_silu(c, 2, ends, t, i), s = 1 / (1 + exp(-u));
    return ndp_ref_in(c, 0, t, i) * s * (1 + u * (1 - s));
}

static double conv_silu_dx(const ndp_op_call *c, int64_t s, int64_t i) {
    double sum = ndp_present(&c->in[4]) ? ndp_ref_in(c, 4, s, i) : 0;
    for (int64_t j = 0; j < c->in[2].cols && s + j < c->in[0].rows; j++)
        if (piece_first(c, 2, s + j) <= s && reaches(c, 2, s + j, s))
            sum += tap(c, 2, i, j) * conv_silu_du(c, 5, s + j, i);
    return sum;
}

NDP_REF_EACH(conv_silu_dx)

static double conv_silu_dw(const ndp_op_call *c, int64_t i, int64_t last) {
    int64_t j = c->in[2].cols - 1 - last, column = i - c->attr->first;
    double sum = 0;
    for (int64_t t = 0; t < c->in[0].rows && column >= 0 && column < c->in[0].cols; t++)
        if (reaches(c, 2, t, t - j))
            sum += conv_silu_du(c, 4, t, column) * row_back(c, 2, 4, t, j, column);
    return sum;
}

NDP_REF_EACH(conv_silu_dw)

/* Row `end` of the ends gives to the first rows of pieces of which it is one of the rows before. */
static double conv_silu_dends(const ndp_op_call *c, int64_t end, int64_t i) {
    int64_t piece = c->in[1].rows / ndp_row_pieces_here(c->attr), each = c->in[4].rows / ndp_row_pieces(c->attr);
    double sum = 0;
    for (int64_t b = 0; b < ndp_row_pieces_here(c->attr); b++)
        for (int64_t back = 1; back < c->in[2].cols && back <= ndp_row_piece_number(c->attr, b) * each; back++)
            for (int64_t t = 0;
                 ndp_row_before_piece(c->attr, c->in[4].rows, b, back) == end && t < piece && t + back < c->in[2].cols;
                 t++)
                if (reaches(c, 2, b * piece + t, b * piece - back))
                    sum += tap(c, 2, i, t + back) * conv_silu_du(c, 4, b * piece + t, i);
    return sum;
}

NDP_REF_EACH(conv_silu_dends)

static double piece_ends(const ndp_op_call *c, int64_t r, int64_t i) {
    const ndp_op_attr *a = c->attr;
    int64_t piece = c->in[0].rows / a->parts;
    return ndp_ref_in(c, 0, r / a->ends * piece + piece - a->ends + r % a->ends, i);
}

NDP_REF_EACH(piece_ends)

static double piece_ends_dx(const ndp_op_call *c, int64_t t, int64_t i) {
    const ndp_op_attr *a = c->attr;
    int64_t piece = c->in[1].rows / a->parts, at = t % piece - piece + a->ends;
    double earlier = ndp_present(&c->in[2]) ? ndp_ref_in(c, 2, t, i) : 0;
    return at < 0 ? earlier : earlier + ndp_ref_in(c, 0, t / piece * a->ends + at, i);
}

NDP_REF_EACH(piece_ends_dx)
