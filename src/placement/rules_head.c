/* Functions of the loss: the head over the whole vocabulary, or over slices of it with an exchange of statistics. */
#include "placement/rule.h"

/* Statistics, operand 1 of xent_grad, are of the rows of operand 2, once for each slice of the vocabulary. */
static ndp_status expect_statistics(ndp_rule *r) {
    int64_t rows = r->in[2].rows;
    for (int i = 0; i < r->in[2].n; i++) {
        const ndp_tile *x = &r->in[2].tiles[i];
        ndp_share sum = 0;
        for (int64_t p = 0; p < r->c->attr.parts; p++)
            for (int j = 0; j < r->in[1].n; j++) {
                ndp_tile s;
                if (!ndp_tile_cut(&r->in[1].tiles[j], p * rows + x->row, x->rows, 0, 1, &s))
                    continue;
                if (s.at_row != x->at_row + s.row - p * rows - x->row || s.rows != x->rows)
                    return ndp_refuse(r, "its statistics are of row %lld, its rows start at %lld", (long long)s.at_row,
                                      (long long)x->at_row);
                sum = ndp_share_add(sum, s.share);
            }
        if (sum != 1)
            return ndp_refuse(r, "its statistics are of %s of the vocabulary, must be of all", ndp_share_text(sum).s);
    }
    return NDP_OK;
}

/* A slice says which ids it has. */
ndp_status ndp_before_xent(ndp_rule *r) {
    bool whole = r->c->op == &ndp_op_xent, last = r->c->op == &ndp_op_xent_grad;
    const ndp_op_attr *is = &r->c->attr;
    int64_t vocab = whole ? r->n->attr.vocab : r->in[last ? 3 : 1].rows;
    if (is->vocab != vocab || (whole && is->first != r->n->attr.first))
        return ndp_refuse(r, "it takes its table as ids %lld to %lld, the table has %lld", (long long)is->first,
                          (long long)(is->first + is->vocab), (long long)vocab);
    return last ? expect_statistics(r) : NDP_OK;
}

/* Its operand 1 has, in the first columns of rows p R + t, slice p of the logits of row t; without it, operand 0 has
 * all. */
ndp_status ndp_before_row_slopes(ndp_rule *r) {
    const ndp_op_attr *is = &r->c->attr;
    int64_t parts = is->parts, rows = r->in[0].rows, vocab = r->n->attr.vocab, found = 0;
    bool gathered = ndp_rule_has(r, 1);
    if (is->vocab != vocab || (!gathered && parts != 1))
        return ndp_refuse(r, "it takes its logits as %lld ids in %lld slices, its node has %lld", (long long)is->vocab,
                          (long long)parts, (long long)vocab);
    const ndp_content *all = &r->in[gathered];
    for (int i = 0; i < r->in[0].n; i++) {
        const ndp_tile *x = &r->in[0].tiles[i];
        for (int64_t p = 0; p < parts && x->col == 0; p++)
            for (int j = 0; j < all->n; j++) {
                ndp_tile s;
                int64_t first = vocab * p / parts, end = vocab * (p + 1) / parts;
                if (!ndp_tile_cut(&all->tiles[j], p * rows + x->row, x->rows, 0, end - first, &s))
                    continue;
                if (!ndp_thing_is(s.what, NDP_THING_LOGITS, r->of) || s.share != 1 || s.at_col != first + s.col ||
                    s.at_row != x->at_row + s.row - p * rows - x->row)
                    return ndp_refuse(r, "operand %d has %s from row %lld, id %lld on where row %lld, id %lld must be",
                                      gathered, ndp_tile_text(r, &s).s, (long long)s.at_row, (long long)s.at_col,
                                      (long long)(x->at_row + s.row - p * rows - x->row), (long long)(first + s.col));
                found += s.rows * s.cols;
            }
    }
    return found == rows * vocab ? NDP_OK
                                 : ndp_refuse(r, "it has %lld of the %lld logits of its %lld rows", (long long)found,
                                              (long long)(rows * vocab), (long long)rows);
}

/* What is between the logits of slices that are shorter than others. */
ndp_status ndp_after_zero(ndp_rule *r) { return ndp_result_zero(r, 0); }
