/* Functions of ops that move columns or add them up: sums of gradients, copies, halves of gates, heads that are turned,
 * and columns of a projection inside a fused result, as adapters and dropout know them. */
#include "placement/rule.h"

/* ---- sums and copies ---- */

/* True if operands 0 and 1 are gradients of the same value already. */
static bool same_gradients(const ndp_rule *r) {
    bool same = true;
    for (int o = 0; o < 2; o++)
        for (int i = 0; i < r->in[o].n; i++)
            same = same && ndp_things_equal(r->in[o].tiles[i].what, r->in[0].tiles[0].what);
    return same;
}

/* Contributions to one gradient: of a value, or of what the node reads. */
ndp_status ndp_add_gradients(ndp_rule *r) {
    int value = NDP_NONE;
    for (int k = 0; k < r->n->n_in && value == NDP_NONE && !same_gradients(r); k++)
        if (ndp_is(r, 0, NDP_THING_GRADIENT, r->n->in[k]) && ndp_is(r, 1, NDP_THING_GRADIENT, r->n->in[k]))
            value = r->n->in[k];
    for (int o = 0; o < 2; o++) {
        if (value == NDP_NONE)
            continue;
        NDP_TRY(ndp_expect(r, o, NDP_THING_GRADIENT, value, false));
        for (int i = 0; i < r->in[o].n; i++)
            r->in[o].tiles[i] = ndp_gradient_tile(r, value, r->in[o].tiles[i], r->in[o].tiles[i].share);
    }
    return ndp_sum_contents(r, &r->in[0], &r->in[1], &r->out[0]);
}

/* A copy changes nothing. A node `copy` makes another value. */
ndp_status ndp_after_copy(ndp_rule *r) {
    if (ndp_rule_has(r, 1))
        return ndp_refuse(r, "it adds values, and a copy adds gradients alone");
    NDP_TRY(ndp_expect_all(r, 0));
    for (int i = 0; i < r->in[0].n; i++)
        NDP_TRY(ndp_result(r, 0, r->in[0].tiles[i]));
    return NDP_OK;
}

/* Operand k has the columns [first, first + n) of what it had. */
static ndp_status take_columns(ndp_rule *r, int k, int64_t first, int64_t n) {
    ndp_content cut = ndp_content_of(r->arena, r->in[k].rows, n);
    NDP_TRY(ndp_content_move(&r->in[k], 0, cut.rows, first, n, 0, 0, &cut));
    r->in[k] = cut;
    return NDP_OK;
}

/* ---- gated activations: [T,2F], gate, then up ---- */

/* The last operand: each column of gate has the same column of up beside it. What is left of it is gate. */
ndp_status ndp_before_gated(ndp_rule *r) {
    int k = r->c->n_in - 1;
    int64_t half = r->in[k].cols / 2, whole = r->g->values[r->n->in[0]].view.cols / 2;
    for (int i = 0; i < r->in[k].n; i++)
        for (int j = 0; j < r->in[k].n; j++) {
            ndp_tile gate, up;
            if (!ndp_tile_cut(&r->in[k].tiles[i], 0, r->in[k].rows, 0, half, &gate) ||
                !ndp_tile_cut(&r->in[k].tiles[j], gate.row, gate.rows, gate.col + half, gate.cols, &up))
                continue;
            if (up.at_col - up.col + half != gate.at_col - gate.col + whole ||
                up.at_row - up.row != gate.at_row - gate.row)
                return ndp_refuse(r, "column %lld of gate meets column %lld of up", (long long)gate.at_col,
                                  (long long)(up.at_col - whole));
        }
    return take_columns(r, k, 0, half);
}

/* The gradient of up has the same columns as that of gate. */
ndp_status ndp_after_gated_bwd(ndp_rule *r) {
    int64_t half = r->out[0].cols / 2, whole = r->g->values[r->n->in[0]].view.cols / 2;
    for (int i = 0, n = r->out[0].n; i < n; i++) {
        ndp_tile t = r->out[0].tiles[i];
        t.col += half, t.at_col += whole;
        NDP_TRY(ndp_result(r, 0, t));
    }
    return NDP_OK;
}

/* ---- rope ---- */

/* Whole heads are turned, the same ones that the node turns: the first ones, of q and k. Tiles end where they do. */
ndp_status ndp_before_rope(ndp_rule *r) {
    const ndp_op_attr *a = &r->c->attr, *w = &r->n->attr;
    int64_t d = w->head_dim, here = (int64_t)(a->heads + a->kv_heads) * d, all = (int64_t)(w->heads + w->kv_heads) * d;
    if ((a->inverse != w->inverse) != r->back)
        return ndp_refuse(r, "it turns %s the wrong way", r->back ? "a gradient" : "a value");
    ndp_content cut = ndp_content_of(r->arena, r->in[0].rows, r->in[0].cols);
    NDP_TRY(ndp_content_move(&r->in[0], 0, cut.rows, 0, here, 0, 0, &cut));
    NDP_TRY(ndp_content_move(&r->in[0], 0, cut.rows, here, cut.cols - here, 0, here, &cut));
    for (int i = 0; i < cut.n; i++) {
        const ndp_tile *t = &cut.tiles[i];
        bool turned = t->col < here, whole = t->at_col < all;
        int64_t last = whole ? all : INT64_MAX;
        if (turned != whole || t->at_col + t->cols > last ||
            (turned && (t->col % d != 0 || t->at_col % d != 0 || t->cols % d != 0)))
            return ndp_refuse(
                r, "it turns %d heads and %d kv heads; columns %lld to %lld here are %lld to %lld of the whole",
                a->heads, a->kv_heads, (long long)t->col, (long long)(t->col + t->cols), (long long)t->at_col,
                (long long)(t->at_col + t->cols));
    }
    r->in[0] = cut;
    return NDP_OK;
}

/* ---- columns inside of others ---- */

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

/* What is added is a summand of its own, as a bias of experts is (rules_product.c): only where both are complete is the
 * sum. A part is of all columns. */
static ndp_status add_shares(ndp_rule *r, int64_t n) {
    ndp_share first = ndp_range_share(ndp_node_dim(r, '+'), 2, 0, 1), second = ndp_share_sub(1, first);
    ndp_share z = r->in[1].n > 0 ? r->in[1].tiles[0].share : 1;
    for (int i = 0; i < r->in[1].n; i++) {
        if (r->in[1].tiles[i].share != z || (z != 1 && n != r->in[0].cols))
            return ndp_refuse(r, "it adds %s to some columns", ndp_tile_text(r, &r->in[1].tiles[i]).s);
        r->in[1].tiles[i].share = 1;
    }
    for (int i = 0; i < r->in[0].n; i++) {
        ndp_share *y = &r->in[0].tiles[i].share;
        if (n != r->in[0].cols && *y != 1)
            return ndp_refuse(r, "it adds columns to %s", ndp_tile_text(r, &r->in[0].tiles[i]).s);
        *y = ndp_share_add(ndp_share_mul(*y, first), ndp_share_mul(z, second));
    }
    return NDP_OK;
}

/* add_columns (y, z), dora (u, m, squares), dora_dm (dy, u, squares): the columns from attr.first on are those of the
 * other operands. Of the two of dora_dm nothing else is left. */
ndp_status ndp_before_columns(ndp_rule *r) {
    bool sums = r->c->op == &ndp_op_dora_dm;
    int64_t n = sums ? r->c->out[0].view.cols : r->in[1].cols, first = r->c->attr.first;
    NDP_TRY(expect_columns(r, n, r->g->values[r->n->in[1]].view.cols));
    NDP_TRY(sums ? NDP_OK : expect_beside(r, 1, false));
    NDP_TRY(r->c->op == &ndp_op_add_columns ? add_shares(r, n) : NDP_OK);
    NDP_TRY(r->c->n_in > 2 ? expect_beside(r, 2, true) : NDP_OK);
    for (int k = 0; k < 2 && sums; k++) {
        NDP_TRY(take_columns(r, k, first, n));
        for (int i = 0; i < r->in[k].n; i++)
            r->in[k].tiles[i].at_col -= r->n->attr.first;
    }
    return NDP_OK;
}

/* An element is dropped by its column of the whole. */
ndp_status ndp_before_dropout(ndp_rule *r) {
    for (int i = 0; i < r->in[0].n && !r->lane->stands_in; i++) {
        const ndp_tile *t = &r->in[0].tiles[i];
        if (r->c->attr.first + t->col != r->n->attr.first + t->at_col)
            return ndp_refuse(r, "it drops by column %lld where column %lld is", (long long)(r->c->attr.first + t->col),
                              (long long)(r->n->attr.first + t->at_col));
    }
    return NDP_OK;
}

/* ---- taps of some columns ---- */

/* The row of the taps here that weighs the first column of x here. */
static int64_t first_tap(const ndp_rule *r, int x) {
    const ndp_tile *t = &r->in[x].tiles[0];
    return r->in[x].n == 0 ? r->c->attr.first
                           : t->at_col - t->col - ndp_first_of_param(r, &r->g->values[r->n->in[1]], 0);
}

static int x_of(const ndp_rule *r) { return r->c->op == &ndp_op_conv_silu ? 0 : 1; }

/* Taps behind x: those of its columns are left. */
ndp_status ndp_before_taps(ndp_rule *r) {
    int x = x_of(r), w = x + 1;
    int64_t first = first_tap(r, x);
    if (r->c->attr.first != first && !r->lane->stands_in)
        return ndp_refuse(r, "its taps begin at row %lld, must begin at %lld", (long long)r->c->attr.first,
                          (long long)first);
    NDP_TRY(ndp_expect_ends(r, x, r->c->op == &ndp_op_conv_silu ? 3 : r->c->op == &ndp_op_conv_silu_dx ? 5 : 4));
    ndp_content cut = ndp_content_of(r->arena, r->in[x].cols, r->in[w].cols);
    NDP_TRY(ndp_content_move(&r->in[w], first, cut.rows, 0, cut.cols, 0, 0, &cut));
    r->in[w] = cut;
    return NDP_OK;
}

/* Of their gradient: the taps of columns that are not here get 0 of it, in parts as other ranks have them. */
ndp_status ndp_after_taps(ndp_rule *r) {
    int64_t first = first_tap(r, x_of(r)), at = ndp_first_of_param(r, &r->g->values[r->n->in[1]], 0);
    int64_t n = r->in[x_of(r)].cols, rows = r->out[0].rows;
    for (int i = 0; i < r->out[0].n; i++)
        r->out[0].tiles[i].row += first;
    for (int64_t row = first % n - n; row < rows; row += n) {
        int64_t low = row < 0 ? 0 : row, high = row + n < rows ? row + n : rows;
        if (row != first && high > low)
            NDP_TRY(ndp_param_gradient(
                r, 0, r->n->in[1],
                (ndp_tile){.row = low, .rows = high - low, .cols = r->out[0].cols, .at_row = at + low}));
    }
    return NDP_OK;
}
