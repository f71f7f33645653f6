/* Rules of ops whose rows are alike: activations, sums, norms, rotations. Each works tile by tile: a result has the
 * rows and columns of its operands. */
#include "placement/rule.h"

/* ---- elements ---- */

ndp_status ndp_same_gradient(ndp_rule *r, int k) {
    for (int i = 0; i < r->in[k].n; i++) {
        ndp_tile t = r->in[k].tiles[i];
        NDP_TRY(ndp_result(r, 0, ndp_gradient_tile(r, r->n->in[0], t, ndp_share_mul(t.share, r->uses->of[r->of][0]))));
    }
    return NDP_OK;
}

/* y = f(x), not linear. */
ndp_status ndp_rule_elementwise(ndp_rule *r) {
    NDP_EXPECT_SAME(r, cap);
    NDP_TRY(ndp_expect_value(r, 0, r->n->in[0], true));
    return ndp_result_as(r, 0, r->n->out[0]);
}

/* dx = f'(x) dy, of (dy, x). */
ndp_status ndp_rule_elementwise_bwd(ndp_rule *r) {
    NDP_TRY(ndp_expect_gradient(r, 0, r->n->out[0]));
    NDP_TRY(ndp_expect_value(r, 1, r->n->in[0], true));
    NDP_TRY(ndp_expect_alike(r, 0, 1, false));
    return ndp_same_gradient(r, 0);
}

/* scale: of a value or, in the backward, of its gradient. */
ndp_status ndp_rule_linear_map(ndp_rule *r) {
    NDP_EXPECT_SAME(r, scale);
    if (ndp_is_gradient(r, 0, r->n->out[0])) {
        NDP_TRY(ndp_expect_gradient(r, 0, r->n->out[0]));
        return ndp_same_gradient(r, 0);
    }
    NDP_TRY(ndp_expect_value(r, 0, r->n->in[0], false));
    return ndp_result_as(r, 0, r->n->out[0]);
}

/* ---- sums and copies ---- */

/* True if operands 0 and 1 are gradients of the same value already. */
static bool same_gradients(const ndp_rule *r) {
    bool same = true;
    for (int o = 0; o < 2; o++)
        for (int i = 0; i < r->in[o].n; i++)
            same = same && ndp_things_equal(r->in[o].tiles[i].what, r->in[0].tiles[0].what);
    return same;
}

/* Operands 0 and 1 are contributions to one gradient: of a value, or of what the node reads. */
static ndp_status add_gradients(ndp_rule *r) {
    int value = NDP_NONE;
    for (int k = 0; k < r->n->n_in && value == NDP_NONE && !same_gradients(r); k++)
        if (ndp_is_gradient(r, 0, r->n->in[k]) && ndp_is_gradient(r, 1, r->n->in[k]))
            value = r->n->in[k];
    for (int o = 0; o < 2; o++) {
        if (value == NDP_NONE)
            continue;
        NDP_TRY(ndp_expect_gradient(r, o, value));
        for (int i = 0; i < r->in[o].n; i++)
            r->in[o].tiles[i] = ndp_gradient_tile(r, value, r->in[o].tiles[i], r->in[o].tiles[i].share);
    }
    return ndp_sum_contents(r, &r->in[0], &r->in[1], &r->out[0]);
}

ndp_status ndp_rule_add(ndp_rule *r) {
    if (r->in[0].n > 0 && r->in[0].tiles[0].what.kind == NDP_THING_GRADIENT)
        return add_gradients(r);
    if (r->n->op != &ndp_op_add)
        return ndp_refuse(r, "its node is a %s", r->n->op->name);
    bool swapped = ndp_is_value(r, 0, r->n->in[1]); /* the order does not matter */
    NDP_TRY(ndp_expect_value(r, 0, r->n->in[swapped], true));
    NDP_TRY(ndp_expect_value(r, 1, r->n->in[!swapped], true));
    NDP_TRY(ndp_expect_alike(r, 0, 1, false));
    return ndp_result_as(r, 0, r->n->out[0]);
}

/* A copy changes nothing; with a second operand it adds a gradient. A node `copy` makes another value. */
ndp_status ndp_rule_copy(ndp_rule *r) {
    if (ndp_rule_has(r, 1))
        return add_gradients(r);
    if (!ndp_content_full(&r->in[0]))
        return ndp_refuse(r, "its operand is not written before it is read");
    for (int i = 0; i < r->in[0].n; i++) {
        ndp_tile t = r->in[0].tiles[i];
        t.made = r->index;
        NDP_TRY(ndp_result(r, 0, t));
    }
    return NDP_OK;
}

/* The bias of a product whose ranks' parts were summed: once, to what is complete. */
ndp_status ndp_rule_add_bias(ndp_rule *r) {
    bool product = r->n->op == &ndp_op_linear;
    if (!product && r->n->op != &ndp_op_add_bias)
        return ndp_refuse(r, "its node is a %s", r->n->op->name);
    int out = r->n->out[0], bias = r->n->in[product ? 2 : 1];
    for (int i = 0; product && i < r->in[0].n; i++) { /* what lacks the bias becomes the value */
        ndp_tile *t = &r->in[0].tiles[i];
        char is[300];
        if (!ndp_thing_is(t->what, NDP_THING_PRODUCT, out) || t->share != 1)
            return ndp_refuse(r, "it adds a bias to %s", ndp_tile_text(r, t, is, sizeof is));
        t->what.kind = NDP_THING_VALUE;
    }
    NDP_TRY(ndp_expect_value(r, 0, product ? out : r->n->in[0], true));
    NDP_TRY(ndp_expect_param(r, 1, bias));
    for (int i = 0; i < r->in[0].n; i++) {
        ndp_tile t = r->in[0].tiles[i];
        for (int j = 0; j < r->in[1].n; j++) {
            ndp_tile b;
            if (ndp_tile_cut(&r->in[1].tiles[j], 0, 1, t.col, t.cols, &b) && b.at_col - b.col != t.at_col - t.col)
                return ndp_refuse(r, "its bias is of columns from %lld on, its operand of %lld", (long long)b.at_col,
                                  (long long)(t.at_col + b.col - t.col));
        }
        t.what = ndp_value_thing(r, out);
        NDP_TRY(ndp_result(r, 0, t));
    }
    return NDP_OK;
}

/* ---- gated activations: [T,2F], gate, then up ---- */

/* The tiles of gate and up that element columns [t.col, t.col + t.cols) need, with the same column of each half. */
static ndp_status expect_halves(ndp_rule *r, int k, int64_t half, int64_t whole) {
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
    return NDP_OK;
}

ndp_status ndp_rule_gated(ndp_rule *r) {
    int64_t half = r->in[0].cols / 2, whole = r->g->values[r->n->in[0]].view.cols / 2;
    NDP_TRY(ndp_expect_value(r, 0, r->n->in[0], true));
    NDP_TRY(expect_halves(r, 0, half, whole));
    for (int i = 0; i < r->in[0].n; i++) {
        ndp_tile t;
        if (ndp_tile_cut(&r->in[0].tiles[i], 0, r->in[0].rows, 0, half, &t)) {
            t.what = ndp_value_thing(r, r->n->out[0]);
            NDP_TRY(ndp_result(r, 0, t));
        }
    }
    return NDP_OK;
}

/* Of (da [T,F], gu [T,2F]). */
ndp_status ndp_rule_gated_bwd(ndp_rule *r) {
    int64_t half = r->in[0].cols, whole = r->g->values[r->n->in[0]].view.cols / 2;
    NDP_TRY(ndp_expect_gradient(r, 0, r->n->out[0]));
    NDP_TRY(ndp_expect_value(r, 1, r->n->in[0], true));
    NDP_TRY(expect_halves(r, 1, half, whole));
    NDP_TRY(ndp_expect_alike(r, 0, 1, false)); /* gate; what up is, expect_halves knows */
    for (int i = 0; i < r->in[0].n; i++)
        for (int up = 0; up < 2; up++) {
            ndp_tile t = r->in[0].tiles[i];
            ndp_share share = ndp_share_mul(t.share, r->uses->of[r->of][0]);
            t.col += up * half, t.at_col += up * whole;
            NDP_TRY(ndp_result(r, 0, ndp_gradient_tile(r, r->n->in[0], t, share)));
        }
    return NDP_OK;
}

/* ---- rope ---- */

/* Whole heads are turned, the same ones that the node turns: the first ones, of q and k. */
static ndp_status expect_heads(ndp_rule *r) {
    const ndp_op_attr *a = &r->c->attr, *w = &r->n->attr;
    int64_t d = w->head_dim, here = (int64_t)(a->heads + a->kv_heads) * d, all = (int64_t)(w->heads + w->kv_heads) * d;
    for (int i = 0; i < r->in[0].n; i++) {
        const ndp_tile *t = &r->in[0].tiles[i];
        bool turned = t->col < here, whole = t->at_col < all;
        int64_t end = turned ? here : r->in[0].cols, last = whole ? all : INT64_MAX;
        if (turned != whole || t->col + t->cols > end || t->at_col + t->cols > last ||
            (turned && (t->col % d != 0 || t->at_col % d != 0 || t->cols % d != 0)))
            return ndp_refuse(
                r, "it turns %d heads and %d kv heads; columns %lld to %lld here are %lld to %lld of the whole",
                a->heads, a->kv_heads, (long long)t->col, (long long)(t->col + t->cols), (long long)t->at_col,
                (long long)(t->at_col + t->cols));
    }
    return NDP_OK;
}

/* Splits tiles where the turned columns end, which joined them. */
static ndp_status split_at(ndp_rule *r, int64_t col) {
    ndp_content cut = ndp_content_of(r->arena, r->in[0].rows, r->in[0].cols);
    NDP_TRY(ndp_content_move(&r->in[0], 0, cut.rows, 0, col, 0, 0, &cut));
    NDP_TRY(ndp_content_move(&r->in[0], 0, cut.rows, col, cut.cols - col, 0, col, &cut));
    r->in[0] = cut;
    return NDP_OK;
}

ndp_status ndp_rule_rope(ndp_rule *r) {
    bool back = r->c->attr.inverse != r->n->attr.inverse;
    NDP_EXPECT_SAME(r, head_dim);
    NDP_EXPECT_SAME(r, rotary_dim);
    NDP_TRY(back ? ndp_expect_gradient(r, 0, r->n->out[0]) : ndp_expect_value(r, 0, r->n->in[0], false));
    NDP_TRY(split_at(r, (int64_t)(r->c->attr.heads + r->c->attr.kv_heads) * r->c->attr.head_dim));
    NDP_TRY(expect_heads(r));
    NDP_TRY(ndp_expect_rows(r, 1, r->n->in[1], 0));
    if (r->in[2].n != 1 || !ndp_thing_is(r->in[2].tiles[0].what, NDP_THING_DATA, r->g->values[r->n->in[2]].input))
        return ndp_refuse(r, "its table is not that of its node");
    return back ? ndp_same_gradient(r, 0) : ndp_result_as(r, 0, r->n->out[0]);
}
