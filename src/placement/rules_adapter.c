/* Rules of adapters: columns of a projection inside a fused result, dropout by the whole column, lengths of rows. Their
 * products are products as any. */
#include "placement/rule.h"

/* Operand k is all of the input `value`'s rows, or some. */
static ndp_status expect_unit(ndp_rule *r, int k, int value) {
    int input = r->g->values[value].input;
    for (int i = 0; i < r->in[k].n; i++)
        if (!ndp_thing_is(r->in[k].tiles[i].what, NDP_THING_DATA, input))
            return ndp_refuse(r, "operand %d must be the input %s", k, r->g->inputs->items[input].name);
    return NDP_OK;
}

/* ---- columns ---- */

/* The columns [c.first, c.first + n) of operand 0 here are some of [n.first, n.first + whole) of its value, and no
 * others of them are elsewhere. */
static ndp_status expect_columns(ndp_rule *r, int64_t n, int64_t whole) {
    int64_t here = r->c->attr.first, first = r->n->attr.first;
    int64_t ends[] = {0, here, here + n, r->in[0].cols};
    for (int i = 0; i < r->in[0].n; i++)
        for (int part = 0; part < 3; part++) {
            ndp_tile t;
            if (ends[part] >= ends[part + 1] ||
                !ndp_tile_cut(&r->in[0].tiles[i], 0, r->in[0].rows, ends[part], ends[part + 1] - ends[part], &t))
                continue;
            bool inside = t.at_col >= first && t.at_col + t.cols <= first + whole;
            bool outside = t.at_col + t.cols <= first || t.at_col >= first + whole;
            if (part == 1 ? !inside : !outside)
                return ndp_refuse(r,
                                  "it takes columns %lld to %lld for those from %lld on; columns %lld to %lld here "
                                  "are from %lld on of the whole",
                                  (long long)here, (long long)(here + n), (long long)first, (long long)t.col,
                                  (long long)(t.col + t.cols), (long long)t.at_col);
        }
    return NDP_OK;
}

/* Column (or, with `rows`, row) c of operand k belongs to column first + c of operand 0. */
static ndp_status expect_beside(ndp_rule *r, int k, bool rows) {
    int64_t shift = r->c->attr.first, whole = r->n->attr.first;
    for (int i = 0; i < r->in[0].n; i++)
        for (int j = 0; j < r->in[k].n; j++) {
            ndp_tile b = r->in[k].tiles[j], t;
            int64_t at = rows ? b.row : b.col, n = rows ? b.rows : b.cols, is = rows ? b.at_row : b.at_col;
            if (!ndp_tile_cut(&r->in[0].tiles[i], 0, r->in[0].rows, at + shift, n, &t))
                continue;
            if (t.at_col - whole != is + t.col - shift - at)
                return ndp_refuse(r, "operand %d is of column %lld, x of %lld", k, (long long)(is + t.col - shift - at),
                                  (long long)(t.at_col - whole));
        }
    return NDP_OK;
}

/* y, z -> y with z added to some columns. */
ndp_status ndp_rule_add_columns(ndp_rule *r) {
    int64_t whole = r->g->values[r->n->in[1]].view.cols, shift = r->c->attr.first;
    NDP_TRY(ndp_expect_value(r, 0, r->n->in[0], true));
    NDP_TRY(ndp_expect_value(r, 1, r->n->in[1], true));
    NDP_TRY(expect_columns(r, r->in[1].cols, whole));
    NDP_TRY(expect_beside(r, 1, false));
    for (int i = 0; i < r->in[0].n; i++)
        for (int j = 0; j < r->in[1].n; j++) {
            ndp_tile z = r->in[1].tiles[j], t;
            if (ndp_tile_cut(&r->in[0].tiles[i], z.row, z.rows, z.col + shift, z.cols, &t) &&
                t.at_row - t.row != z.at_row - z.row)
                return ndp_refuse(r, "row %lld meets row %lld", (long long)t.at_row,
                                  (long long)(z.at_row + t.row - z.row));
        }
    return ndp_result_as(r, 0, r->n->out[0]);
}

/* ---- dropout ---- */

ndp_status ndp_rule_dropout(ndp_rule *r) {
    bool back = ndp_is_gradient(r, 0, r->n->out[0]);
    NDP_EXPECT_SAME(r, drop);
    NDP_EXPECT_SAME(r, tag);
    NDP_TRY(back ? ndp_expect_gradient(r, 0, r->n->out[0]) : ndp_expect_value(r, 0, r->n->in[0], true));
    if (!r->lane->stands_in)
        NDP_TRY(ndp_expect_rows(r, 1, r->n->in[1], 0));
    NDP_TRY(expect_unit(r, 2, r->n->in[2]));
    for (int i = 0; i < r->in[0].n; i++) {
        const ndp_tile *t = &r->in[0].tiles[i];
        if (!r->lane->stands_in && r->c->attr.first + t->col != r->n->attr.first + t->at_col)
            return ndp_refuse(r, "it drops by column %lld where column %lld is", (long long)(r->c->attr.first + t->col),
                              (long long)(r->n->attr.first + t->at_col));
    }
    return back ? ndp_same_gradient(r, 0) : ndp_result_as(r, 0, r->n->out[0]);
}

/* ---- DoRA ---- */

/* Operand k, a factor, has all of axis `rows`. */
static ndp_status expect_whole(ndp_rule *r, int k, bool rows) {
    const ndp_view *v = &r->g->values[r->n->in[k]].view;
    int64_t here = rows ? r->in[k].rows : r->in[k].cols, whole = rows ? v->rows : v->cols;
    return here == whole ? NDP_OK
                         : ndp_refuse(r, "operand %d has %lld of %lld %s", k, (long long)here, (long long)whole,
                                      rows ? "rows" : "columns");
}

/* Of (w, a, b): a part of the sum over the columns of w. */
ndp_status ndp_rule_dora_squares(ndp_rule *r) {
    int64_t columns = r->g->values[r->n->in[0]].view.cols;
    NDP_EXPECT_SAME(r, scale);
    NDP_TRY(ndp_expect_weight(r, 0, r->n->in[0]));
    for (int k = 1; k < 3; k++)
        NDP_TRY(ndp_expect_param(r, k, r->n->in[k]));
    NDP_TRY(expect_whole(r, 1, true));
    NDP_TRY(expect_whole(r, 2, false));
    if (r->in[0].cols == 0)
        return ndp_result_zero(r);
    for (int i = 0; i < r->in[0].n; i++) {
        ndp_tile t = r->in[0].tiles[i], part;
        for (int j = 0; j < r->in[1].n; j++)
            if (ndp_tile_cut(&r->in[1].tiles[j], 0, r->in[1].rows, t.col, t.cols, &part) &&
                part.at_col - part.col != t.at_col - t.col)
                return ndp_refuse(r, "column %lld of w meets column %lld of a", (long long)t.at_col,
                                  (long long)(part.at_col - part.col + t.col));
        for (int j = 0; j < r->in[2].n; j++)
            if (ndp_tile_cut(&r->in[2].tiles[j], t.row, t.rows, 0, r->in[2].cols, &part) &&
                part.at_row - part.row != t.at_row - t.row)
                return ndp_refuse(r, "row %lld of w meets row %lld of b", (long long)t.at_row,
                                  (long long)(part.at_row - part.row + t.row));
        t.share = ndp_range_share(ndp_node_dim(r, 1), columns, t.at_col, t.at_col + t.cols);
        t.col = t.at_col = 0, t.cols = 1;
        t.what = ndp_value_thing(r, r->n->out[0]);
        NDP_TRY(ndp_result_add(r, 0, t));
    }
    return NDP_OK;
}

/* Of (u, m, squares), or in the backward of the gradient in place of u. */
ndp_status ndp_rule_dora(ndp_rule *r) {
    bool back = ndp_is_gradient(r, 0, r->n->out[0]);
    NDP_TRY(back ? ndp_expect_gradient(r, 0, r->n->out[0]) : ndp_expect_value(r, 0, r->n->in[0], true));
    NDP_TRY(ndp_expect_param(r, 1, r->n->in[1]));
    NDP_TRY(ndp_expect_value(r, 2, r->n->in[2], true));
    NDP_TRY(expect_columns(r, r->in[1].cols, r->g->values[r->n->in[1]].view.cols));
    NDP_TRY(expect_beside(r, 1, false));
    NDP_TRY(expect_beside(r, 2, true));
    return back ? ndp_same_gradient(r, 0) : ndp_result_as(r, 0, r->n->out[0]);
}

/* Of (dy, u, squares): the gradient of the lengths, a sum over rows. */
ndp_status ndp_rule_dora_dm(ndp_rule *r) {
    int64_t whole = r->g->values[r->n->in[1]].view.cols, n = r->c->out[0].view.cols;
    NDP_TRY(ndp_expect_gradient(r, 0, r->n->out[0]));
    NDP_TRY(ndp_expect_value(r, 1, r->n->in[0], true));
    NDP_TRY(ndp_expect_value(r, 2, r->n->in[2], true));
    NDP_TRY(ndp_expect_alike(r, 0, 1, false));
    NDP_TRY(expect_columns(r, n, whole));
    NDP_TRY(expect_beside(r, 2, true));
    for (int i = 0; i < r->in[0].n; i++) {
        ndp_tile t;
        if (!ndp_tile_cut(&r->in[0].tiles[i], 0, r->in[0].rows, r->c->attr.first, n, &t))
            continue;
        ndp_share share = ndp_share_mul(t.share, ndp_rows_measure(r, t.at_row, t.rows));
        t.share = ndp_share_mul(share, r->uses->of[r->of][1]);
        t.row = 0, t.rows = 1, t.at_row = 0;
        t.col -= r->c->attr.first, t.at_col -= r->n->attr.first;
        NDP_TRY(ndp_param_gradient(r, 0, r->n->in[1], t));
    }
    return NDP_OK;
}
