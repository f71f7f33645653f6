/* Functions of a mixture of experts: rows that stand by expert.
 *
 * Which row stands where depends on the data, so sorted rows are known as a set: `among` of a tile (content.h), made of
 * the router's order and of the rows that a rank has, in its own order. In a tile they count as if they stood by their
 * number: choice j of row t is row t K + j. What keeps rows apart, or adds equal rows, is right for any order. Before
 * rows go back, the set is made again from `places`: what was cut, gathered, or sorted with other rows has another one.
 *
 * With ep the order is that of the rows' choices of this rank's experts. Its results are a summand, whose share is the
 * measure of these experts: so is what a row gets back of them, and the gradients of the row and of its weights. What
 * is made of the rows in between is complete. */
#include "placement/rule.h"

/* The set of the rows of operand k, sorted by the value `order`, whose share operand k has. */
static uint64_t set_of(const ndp_rule *r, int order, int k, ndp_share share) {
    ndp_dim_key set = ndp_dim_make(ndp_dim_make(NDP_DIM_ROWS, (uint64_t)order), share);
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

/* The experts of the unit that this rank has: [*first, *first + *n). */
static void experts_of(const ndp_rule *r, int64_t *first, int64_t *n) {
    *first = 0, *n = r->n->attr.experts;
    for (int slot = 0; slot < NDP_SLOTS; slot++) {
        const ndp_segments *t = r->buffers[slot] == NDP_NONE ? NULL : &r->lane->tables[r->buffers[slot]];
        const ndp_segment *s = t && t->n > 0 ? &t->items[0] : NULL;
        if (s && ndp_segment_is_stack(s))
            *first = s->stack_first / s->stack_grain, *n = s->stack / s->stack_grain;
    }
}

/* Of (choices): a permutation of the rows of this rank. */
ndp_status ndp_after_route_order(ndp_rule *r) {
    const ndp_op_attr *a = &r->c->attr;
    int64_t first, n;
    experts_of(r, &first, &n);
    if (a->experts != n || (!r->lane->stands_in && a->first != first))
        return ndp_refuse(r, "it orders by %d experts from %lld on; the rank has %lld from %lld on", a->experts,
                          (long long)a->first, (long long)n, (long long)first);
    ndp_share share = ndp_range_share(ndp_node_dim(r, 'e'), r->n->attr.experts, first, first + n);
    uint64_t set = set_of(r, r->n->out[0], 0, share);
    for (int o = 0; o < 3; o++)
        for (int i = 0; i < r->out[o].n; i++) {
            ndp_tile *t = &r->out[o].tiles[i];
            *t = sorted_tile(*t, o == 0 ? r->in[0].cols : 1, set);
            t->at_row += o == 2 ? first : 0;
            t->share = share;
        }
    return NDP_OK;
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
    *set = set_of(r, r->n->in[1], places, r->in[places].n > 0 ? r->in[places].tiles[0].share : 1);
    for (int i = 0; i < r->in[places].n; i++) {
        ndp_tile *t = &r->in[places].tiles[i];
        if (t->among != *set)
            return ndp_refuse(r, "operand %d has places of other rows than those from %lld on", places,
                              (long long)t->at_row);
        t->among = 0; /* its own rows stand as they are */
    }
    return NDP_OK;
}

/* Of (x, order, places, weights). */
ndp_status ndp_before_take_rows(ndp_rule *r) {
    NDP_TRY(expect_places(r, 2, &r->stack.among));
    NDP_TRY(expect_sorted(r, 1, 2, r->stack.among));
    for (int i = 0; i < r->in[2].n; i++) /* each row that is taken is complete */
        r->in[2].tiles[i].share = 1;
    return NDP_OK;
}

ndp_status ndp_after_take_rows(ndp_rule *r) {
    for (int i = 0; i < r->out[0].n; i++)
        r->out[0].tiles[i] = sorted_tile(r->out[0].tiles[i], r->in[2].cols, r->stack.among);
    return NDP_OK;
}

/* Of (y, order, places, weights, acc), or (dx, y, places): y has the choices of a row as this one again. */
ndp_status ndp_before_give_rows(ndp_rule *r) {
    int y = r->c->op == &ndp_op_give_rows_dw;
    int64_t choices = r->in[2].cols;
    uint64_t set;
    NDP_TRY(expect_places(r, 2, &set));
    NDP_TRY(y ? NDP_OK : expect_sorted(r, 1, 2, set));
    NDP_TRY(expect_sorted(r, y, 2, set));
    for (int i = 0; i < r->in[y].n; i++) {
        ndp_tile *t = &r->in[y].tiles[i];
        t->row /= choices, t->rows /= choices, t->at_row /= choices;
        t->among = 0;
    }
    return NDP_OK;
}
