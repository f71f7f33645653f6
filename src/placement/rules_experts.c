/* Rules of a mixture of experts: the router, rows that stand by expert, and the gate of a shared expert.
 *
 * Which row stands where depends on the data, so sorted rows are known as a set: `among` of a tile (content.h), made of
 * the router's order and of the rows that a rank has, in its own order. In a tile they count as if they stood by their
 * number: choice j of row t is row t K + j. What keeps rows apart, or adds equal rows, is right for any order. Before
 * rows go back, the set is made again from `places`: what was cut, gathered, or sorted with other rows has another one.
 */
#include "placement/rule.h"

/* Operand k, a tile for each run of rows, has all columns of the node's value. */
static ndp_status expect_whole_rows(ndp_rule *r, int k, int64_t cols) {
    for (int i = 0; i < r->in[k].n; i++) {
        const ndp_tile *t = &r->in[k].tiles[i];
        if (t->col != 0 || t->at_col != 0 || t->cols != cols || r->in[k].cols != cols)
            return ndp_refuse(r, "operand %d has columns %lld to %lld of %lld; it must have all, of one sum", k,
                              (long long)t->at_col, (long long)(t->at_col + t->cols), (long long)cols);
    }
    return NDP_OK;
}

static int64_t cols_of(const ndp_rule *r, int value) { return r->g->values[value].view.cols; }

/* Result o: tile t, of all `cols` columns of the node's. */
static ndp_status make_rows(ndp_rule *r, int o, ndp_tile t) {
    t.col = t.at_col = 0, t.cols = r->c->out[o].view.cols;
    t.what = ndp_value_thing(r, r->n->out[o]);
    return ndp_result(r, o, t);
}

/* ---- route ---- */

/* Of (logits, samples, given): choices, weights and, where they are recorded, the logits again. */
ndp_status ndp_rule_route(ndp_rule *r) {
    NDP_EXPECT_SAME(r, choices);
    NDP_EXPECT_SAME(r, renormalise);
    NDP_TRY(ndp_expect_value(r, 0, r->n->in[0], true));
    NDP_TRY(expect_whole_rows(r, 0, cols_of(r, r->n->in[0])));
    bool samples = r->n->n_in > 1 && r->n->in[1] != NDP_NONE;
    if (ndp_rule_has(r, 1) != samples)
        return ndp_refuse(r, "it %s what says which rows are padding, its node does not", samples ? "lacks" : "has");
    if (samples)
        NDP_TRY(ndp_expect_rows(r, 1, r->n->in[1], 0));
    bool given = r->n->n_in > 2 && r->n->in[2] != NDP_NONE;
    if (ndp_rule_has(r, 2) != given)
        return ndp_refuse(r, "it %s given choices, its node does not", given ? "lacks" : "has");
    if (given)
        NDP_TRY(ndp_expect_rows(r, 2, r->n->in[2], 0));
    for (int o = 0; o < r->n->n_out; o++)
        for (int i = 0; i < r->in[0].n; i++)
            NDP_TRY(make_rows(r, o, r->in[0].tiles[i]));
    return NDP_OK;
}

/* Of (dweights, logits, choices, acc): linear of dweights. */
ndp_status ndp_rule_route_dx(ndp_rule *r) {
    int logits = r->n->in[0];
    NDP_EXPECT_SAME(r, renormalise);
    NDP_TRY(ndp_expect_gradient(r, 0, r->n->out[1]));
    NDP_TRY(ndp_expect_value(r, 1, logits, true));
    NDP_TRY(ndp_expect_value(r, 2, r->n->out[0], true));
    for (int k = 0; k < 3; k++)
        NDP_TRY(expect_whole_rows(r, k, k == 1 ? cols_of(r, logits) : r->n->attr.choices));
    NDP_TRY(ndp_expect_alike(r, 0, 1, true));
    NDP_TRY(ndp_expect_alike(r, 0, 2, true));
    for (int i = 0; i < r->in[0].n; i++) {
        ndp_tile t = r->in[0].tiles[i];
        t.cols = cols_of(r, logits);
        ndp_share share = ndp_share_mul(t.share, r->uses->of[r->of][0]);
        NDP_TRY(ndp_result(r, 0, ndp_gradient_tile(r, logits, t, share)));
    }
    return ndp_add_earlier(r, 3, logits);
}

/* ---- losses of the router ---- */

/* Of (choices, samples): a summand until the counts of all rows of the micro-batch are added. */
ndp_status ndp_rule_choice_counts(ndp_rule *r) {
    const ndp_view *v = &r->c->out[0].view;
    ndp_share sum = 0;
    NDP_EXPECT_SAME(r, parts);
    NDP_EXPECT_SAME(r, experts);
    NDP_TRY(ndp_expect_value(r, 0, r->n->in[0], true));
    NDP_TRY(expect_whole_rows(r, 0, cols_of(r, r->n->in[0])));
    NDP_TRY(ndp_expect_rows(r, 1, r->n->in[1], 0));
    for (int i = 0; i < r->in[0].n; i++)
        sum = ndp_share_add(sum, ndp_rows_measure(r, r->in[0].tiles[i].at_row, r->in[0].tiles[i].rows));
    return ndp_result(
        r, 0, (ndp_tile){.rows = v->rows, .cols = v->cols, .what = ndp_value_thing(r, r->n->out[0]), .share = sum});
}

/* Of (logits, counts, samples, scale, acc): the gradient begins here, and is one part of attr.parts. */
ndp_status ndp_rule_router_losses_dx(ndp_rule *r) {
    const ndp_node *n = r->n;
    bool counts = n->in[1] != NDP_NONE;
    ndp_share share = ndp_share_mul(r->uses->of[r->of][0], ndp_share_inverse(ndp_share_of(r->c->attr.parts)));
    NDP_EXPECT_SAME(r, balance);
    NDP_EXPECT_SAME(r, z_loss);
    NDP_TRY(ndp_expect_value(r, 0, n->in[0], true));
    NDP_TRY(expect_whole_rows(r, 0, cols_of(r, n->in[0])));
    if (ndp_rule_has(r, 1) != counts)
        return ndp_refuse(r, "it %s counts of choices, its node does not", counts ? "lacks" : "has");
    if (counts)
        NDP_TRY(ndp_expect_value(r, 1, n->in[1], true));
    NDP_TRY(ndp_expect_rows(r, 2, n->in[2], 0));
    NDP_TRY(ndp_expect_input(r, 3, n->in[3]));
    for (int i = 0; i < r->in[0].n; i++) {
        ndp_tile t = r->in[0].tiles[i];
        NDP_TRY(ndp_result(r, 0, ndp_gradient_tile(r, n->in[0], t, share)));
        t.cols = r->c->out[1].view.cols, t.what = (ndp_thing){NDP_THING_LOSSES, r->of};
        NDP_TRY(ndp_result(r, 1, t));
    }
    return ndp_add_earlier(r, 4, n->in[0]);
}

/* ---- sorted rows ---- */

/* The set of the rows of operand k, sorted by the value `order`. */
static uint64_t set_of(const ndp_rule *r, int order, int k) {
    ndp_dim_key set = ndp_dim_make(NDP_DIM_ROWS, (uint64_t)order);
    for (int i = 0; i < r->in[k].n; i++) {
        set = ndp_dim_make(set, (uint64_t)r->in[k].tiles[i].at_row);
        set = ndp_dim_make(set, (uint64_t)r->in[k].tiles[i].rows);
    }
    return set ? set : 1;
}

/* `choices` sorted rows for each row of the tile. */
static ndp_tile sorted_tile(ndp_tile t, int64_t choices, uint64_t set) {
    t.row *= choices, t.rows *= choices, t.at_row *= choices;
    t.among = set;
    return t;
}

/* Of (choices): a permutation of the rows of this rank. */
ndp_status ndp_rule_route_order(ndp_rule *r) {
    int64_t k = r->c->in[0].view.cols;
    NDP_EXPECT_SAME(r, experts);
    NDP_TRY(ndp_expect_value(r, 0, r->n->in[0], true));
    NDP_TRY(expect_whole_rows(r, 0, cols_of(r, r->n->in[0])));
    uint64_t set = set_of(r, r->n->out[0], 0);
    for (int i = 0; i < r->in[0].n; i++) {
        ndp_tile t = r->in[0].tiles[i];
        NDP_TRY(make_rows(r, 0, sorted_tile(t, k, set)));
        t.among = set;
        NDP_TRY(make_rows(r, 1, t));
    }
    return make_rows(r, 2, (ndp_tile){.rows = r->c->out[2].view.rows, .share = 1, .among = set});
}

/* Operand k has the rows of the set, by number as operand `places` says. */
static ndp_status expect_sorted(ndp_rule *r, int k, int places, uint64_t set) {
    int64_t choices = r->in[places].cols;
    for (int i = 0; i < r->in[k].n; i++)
        for (int j = 0; j < r->in[places].n; j++) {
            ndp_tile rows = sorted_tile(r->in[places].tiles[j], choices, set), t = r->in[k].tiles[i], part;
            t.col = 0, t.cols = 1;
            if (!ndp_tile_cut(&t, rows.row, rows.rows, 0, 1, &part))
                continue;
            if (t.among != set || part.at_row - part.row != rows.at_row - rows.row || t.row % choices != 0 ||
                t.rows % choices != 0)
                return ndp_refuse(r, "operand %d stands in another order than operand %d says", k, places);
        }
    return NDP_OK;
}

/* Operand `places` is the node's, of the rows that it was made of. *set: those. */
static ndp_status expect_places(ndp_rule *r, int places, uint64_t *set) {
    NDP_TRY(ndp_expect_value(r, places, r->n->in[2], true));
    NDP_TRY(expect_whole_rows(r, places, cols_of(r, r->n->in[2])));
    *set = set_of(r, r->n->in[1], places);
    for (int i = 0; i < r->in[places].n; i++) {
        ndp_tile *t = &r->in[places].tiles[i];
        if (t->among != *set)
            return ndp_refuse(r, "operand %d has places of other rows than those from %lld on", places,
                              (long long)t->at_row);
        t->among = 0; /* its own rows stand as they are */
    }
    return NDP_OK;
}

/* Operands 1 to 3 are the node's order, places and weights. */
static ndp_status expect_order(ndp_rule *r, uint64_t *set) {
    bool weights = r->n->in[3] != NDP_NONE;
    NDP_TRY(ndp_expect_value(r, 1, r->n->in[1], true));
    NDP_TRY(expect_places(r, 2, set));
    NDP_TRY(expect_sorted(r, 1, 2, *set));
    if (ndp_rule_has(r, 3) != weights)
        return ndp_refuse(r, "it %s weights, its node does not", weights ? "lacks" : "has");
    if (!weights)
        return NDP_OK;
    NDP_TRY(ndp_expect_value(r, 3, r->n->in[3], true));
    NDP_TRY(expect_whole_rows(r, 3, cols_of(r, r->n->in[3])));
    return ndp_expect_alike(r, 2, 3, true);
}

/* Result 0 has tile t: of the node's result or, in the backward of the other op, of the gradient of its operand. */
static ndp_status make_moved(ndp_rule *r, ndp_tile t, bool back) {
    if (back)
        t = ndp_gradient_tile(r, r->n->in[0], t, ndp_share_mul(t.share, r->uses->of[r->of][0]));
    else
        t.what = ndp_value_thing(r, r->n->out[0]);
    return ndp_result(r, 0, t);
}

/* Of (x, order, places, weights): linear of x. */
ndp_status ndp_rule_take_rows(ndp_rule *r) {
    bool back = r->n->op == &ndp_op_give_rows;
    uint64_t set;
    NDP_TRY(back ? ndp_expect_gradient(r, 0, r->n->out[0]) : ndp_expect_value(r, 0, r->n->in[0], false));
    NDP_TRY(expect_order(r, &set));
    NDP_TRY(ndp_expect_alike(r, 0, 2, true));
    for (int i = 0; i < r->in[0].n; i++)
        NDP_TRY(make_moved(r, sorted_tile(r->in[0].tiles[i], r->in[2].cols, set), back));
    return NDP_OK;
}

/* What rows are added to is a value like them, and complete as they are: a part of a sum would get it on each rank. */
static ndp_status expect_added(ndp_rule *r) {
    char is[300];
    NDP_TRY(ndp_expect_value(r, 4, r->n->in[4], true));
    NDP_TRY(ndp_expect_alike(r, 4, 2, true));
    NDP_TRY(ndp_expect_alike(r, 4, 0, false));
    for (int i = 0; i < r->out[0].n; i++)
        if (r->out[0].tiles[i].share != 1)
            return ndp_refuse(r, "it adds operand 4 to %s", ndp_tile_text(r, &r->out[0].tiles[i], is, sizeof is));
    return NDP_OK;
}

/* Of (y, order, places, weights, acc): linear of y. */
ndp_status ndp_rule_give_rows(ndp_rule *r) {
    bool back = r->n->op == &ndp_op_take_rows, added = !back && r->n->in[4] != NDP_NONE;
    uint64_t set;
    NDP_TRY(back ? ndp_expect_gradient(r, 0, r->n->out[0]) : ndp_expect_value(r, 0, r->n->in[0], false));
    NDP_TRY(expect_order(r, &set));
    NDP_TRY(expect_sorted(r, 0, 2, set));
    for (int i = 0; i < r->in[0].n; i++) {
        ndp_tile *t = &r->in[0].tiles[i];
        t->row /= r->in[2].cols, t->rows /= r->in[2].cols, t->at_row /= r->in[2].cols;
        t->among = 0;
        NDP_TRY(make_moved(r, *t, back));
    }
    if (back)
        return ndp_add_earlier(r, 4, r->n->in[0]);
    if (ndp_rule_has(r, 4) != added)
        return ndp_refuse(r, "it %s what it adds to, its node does not", added ? "lacks" : "has");
    return added ? expect_added(r) : NDP_OK;
}

/* Of (dx, y, places), one of the two the gradient of the node's result, the other its operand: bilinear. */
ndp_status ndp_rule_give_rows_dw(ndp_rule *r) {
    bool taken = r->n->op == &ndp_op_take_rows;
    int weights = r->n->in[3];
    uint64_t set;
    NDP_TRY(ndp_expect_gradient(r, taken, r->n->out[0]));
    NDP_TRY(ndp_expect_value(r, !taken, r->n->in[0], false));
    for (int k = 0; k < 2; k++)
        NDP_TRY(expect_whole_rows(r, k, cols_of(r, r->n->in[0])));
    NDP_TRY(expect_places(r, 2, &set));
    NDP_TRY(ndp_expect_alike(r, 0, 2, true));
    NDP_TRY(expect_sorted(r, 1, 2, set));
    for (int i = 0; i < r->in[0].n; i++)
        for (int j = 0; j < r->in[1].n; j++) {
            ndp_tile t = r->in[0].tiles[i], y = sorted_tile(t, r->in[2].cols, set), part;
            if (!ndp_tile_cut(&r->in[1].tiles[j], y.row, y.rows, 0, 1, &part))
                continue;
            if (part.row != y.row || part.rows != y.rows)
                return ndp_refuse(r, "the rows from %lld on have choices of several sums", (long long)t.at_row);
            ndp_share share = ndp_share_mul(ndp_share_mul(t.share, part.share), r->uses->of[r->of][3]);
            t.cols = r->c->out[0].view.cols;
            NDP_TRY(ndp_result(r, 0, ndp_gradient_tile(r, weights, t, share)));
        }
    return NDP_OK;
}

/* ---- gates of rows ---- */

/* Operand `gate` is the node's, of the rows of operand 0: no summand, as its sigmoid is not linear. */
static ndp_status expect_gate(ndp_rule *r, int gate) {
    NDP_TRY(ndp_expect_value(r, gate, r->n->in[1], true));
    return ndp_expect_alike(r, 0, gate, true);
}

/* Of (x, gate), or in the backward of the gradient in place of x: linear of it. */
ndp_status ndp_rule_gate_rows(ndp_rule *r) {
    bool back = ndp_is_gradient(r, 0, r->n->out[0]);
    NDP_TRY(back ? ndp_expect_gradient(r, 0, r->n->out[0]) : ndp_expect_value(r, 0, r->n->in[0], false));
    NDP_TRY(expect_gate(r, 1));
    return back ? ndp_same_gradient(r, 0) : ndp_result_as(r, 0, r->n->out[0]);
}

/* Of (dy, x, gate): bilinear of rows that have all columns. */
ndp_status ndp_rule_gate_rows_dg(ndp_rule *r) {
    int gate = r->n->in[1];
    NDP_TRY(ndp_expect_gradient(r, 0, r->n->out[0]));
    NDP_TRY(ndp_expect_value(r, 1, r->n->in[0], true));
    for (int k = 0; k < 2; k++)
        NDP_TRY(expect_whole_rows(r, k, cols_of(r, r->n->in[0])));
    NDP_TRY(ndp_expect_alike(r, 0, 1, false));
    NDP_TRY(expect_gate(r, 2));
    for (int i = 0; i < r->in[0].n; i++) {
        ndp_tile t = r->in[0].tiles[i];
        ndp_share share = ndp_share_mul(t.share, r->uses->of[r->of][1]);
        t.cols = 1;
        NDP_TRY(ndp_result(r, 0, ndp_gradient_tile(r, gate, t, share)));
    }
    return NDP_OK;
}
