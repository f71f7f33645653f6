/* Functions of a mixture of experts: rows that stand by expert.
 *
 * Which row stands where depends on the data, so sorted rows are known as a set: `among` of a tile (content.h), made of
 * the router's order and of the rows that a rank has, in its own order. In a tile they count as if they stood by their
 * number: choice j of row t is row t K + j. What keeps rows apart, or adds equal rows, is right for any order. Before
 * rows go back, the set is made again from `places`: what was cut, gathered, or sorted with other rows has another one.
 *
 * With ep the order is that of the rows' choices of this rank's experts. Its results are a summand, whose share is the
 * measure of these experts: so is what a row gets back of them, and the gradients of the row and of its weights. What
 * is made of the rows in between is complete.
 *
 * On the way to experts of other ranks rows stand by rank, in sets of their own: those that a rank hands over, each as
 * often as it can go, and those that come to it, which count as all rows of all ranks of ep, however few a round takes
 * (row_sets.h). A rank's rows and what is known of them stay together in either; where they come back, the
 * shares of all ranks are summed.
 *
 * Which rows go in which round is data too. So where rounds leave a sum behind - rows that are back, gradients of
 * experts - those of the first round are a random share of it, and those of all later ones together the rest. */
#include "ops/route.h"
#include "placement/rule.h"

/* Sets of the rows that go to other ranks, in the first round or a later one. */
typedef enum exchanged { GOING = 1, COMING, COUNTED } exchanged;

/* The value of the whole graph that orders the choices of the call's node. */
static int order_of(const ndp_rule *r) { return r->n->op == &ndp_op_route_order ? r->n->out[0] : r->n->in[1]; }

/* That of a rank of the world; of what is counted alike on all ranks, -1. */
static uint64_t exchange_set(const ndp_rule *r, exchanged what, bool later, int rank) {
    return ndp_dim_make(ndp_dim_make(NDP_DIM_ROWS, (uint64_t)order_of(r) << 8 | (uint64_t)later << 4 | what),
                        (uint64_t)(rank + 1));
}
static uint64_t own_set(const ndp_rule *r, exchanged what, bool later) {
    return exchange_set(r, what, later, r->lane->mesh.rank);
}

/* Operand k is of the rows that this rank's set of a later round has. */
static bool is_later(const ndp_rule *r, int k, exchanged what) {
    return r->in[k].n > 0 &&
           r->in[k].tiles[0].among == (what == COUNTED ? exchange_set(r, what, true, -1) : own_set(r, what, true));
}

static ndp_status note_set(ndp_rule *r, ndp_row_set set) {
    bool same;
    NDP_TRY(ndp_row_set_note(r->sets, r->arena, set, &same));
    return same ? NDP_OK : ndp_refuse(r, "its rounds take other numbers of rows than those of another rank");
}

static ndp_share weight_of(const ndp_rule *r, uint64_t set) {
    const ndp_row_set *s = ndp_row_set_find(r->sets, set);
    return s ? s->weight : 1;
}

/* The set of the rows of operand k, sorted by the value `order`, whose share operand k has. `among`: the set of which
 * they are. */
static uint64_t set_of(const ndp_rule *r, int order, int k, ndp_share share, uint64_t among) {
    ndp_dim_key set = ndp_dim_make(ndp_dim_make(NDP_DIM_ROWS, (uint64_t)order), share);
    set = among ? ndp_dim_make(set, among) : set;
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
    uint64_t among = r->in[0].n > 0 ? r->in[0].tiles[0].among : 0, set = set_of(r, r->n->out[0], 0, share, among);
    for (int i = 0; i < r->in[0].n; i++)
        if (r->in[0].tiles[i].among != among || (among && among != own_set(r, COMING, is_later(r, 0, COMING))))
            return ndp_refuse(r, "it orders rows that stand in some order, and not those that have come to this rank");
    const ndp_row_set *counted = ndp_row_set_find(r->sets, exchange_set(r, COUNTED, is_later(r, 0, COMING), -1));
    if ((among && counted ? counted->rows : 0) != a->capacity)
        return ndp_refuse(r, "it takes %lld choices, the exchange of rows %lld", (long long)a->capacity,
                          (long long)(counted ? counted->rows : 0));
    if (among)
        NDP_TRY(note_set(r, (ndp_row_set){.id = set,
                                          .rows = r->in[0].rows,
                                          .weight = weight_of(r, among),
                                          .folded = true,
                                          .later = is_later(r, 0, COMING)}));
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
            if (t.row >= rows.row + rows.rows || t.row + t.rows <= rows.row ||
                !ndp_tile_cut(&t, rows.row, rows.rows, 0, 1, &part))
                continue;
            if (t.among != set || part.at_row - part.row != rows.at_row - rows.row || t.row % choices != 0 ||
                t.rows % choices != 0)
                return ndp_refuse(r, "operand %d stands in another order than operand %d says", k, places);
        }
    return NDP_OK;
}

/* Operand `places` is the node's, of the rows that it was made of. *set: those; *among: the set of which they are. */
static ndp_status expect_places(ndp_rule *r, int places, uint64_t *set, uint64_t *among) {
    const ndp_content *c = &r->in[places];
    ndp_share share = c->n > 0 ? c->tiles[0].share : 1;
    *among = 0, *set = set_of(r, r->n->in[1], places, share, 0);
    for (int later = 0; later < 2 && c->n > 0 && c->tiles[0].among != *set; later++)
        *among = own_set(r, COMING, later), *set = set_of(r, r->n->in[1], places, share, *among);
    for (int i = 0; i < c->n; i++) {
        ndp_tile *t = &c->tiles[i];
        if (t->among != *set)
            return ndp_refuse(r, "operand %d has places of other rows than those from %lld on", places,
                              (long long)t->at_row);
        t->among = *among; /* its own rows stand as they are */
    }
    return NDP_OK;
}

/* ---- rows on the way to other ranks and back ---- */

static bool is_exchanged(const ndp_rule *r) { return r->n->op == &ndp_op_route_order; }

/* All of operand k, written for the node that orders, is result `value` of it, of the set. */
static ndp_status expect_of_exchange(const ndp_rule *r, int k, int value, uint64_t set) {
    NDP_TRY(ndp_expect_all(r, k));
    for (int i = 0; i < r->in[k].n; i++) {
        const ndp_tile *t = &r->in[k].tiles[i];
        if (!ndp_thing_is(t->what, NDP_THING_VALUE, r->n->out[value]) || t->among != set)
            return ndp_refuse(r, "operand %d is %s; it must be %s of the rows that go from this rank", k,
                              ndp_tile_text(r, t).s, r->g->values[r->n->out[value]].name);
    }
    return NDP_OK;
}

/* The sets of a round, whose capacity all ranks have alike. */
static ndp_status note_round(ndp_rule *r, int64_t rows, bool later) {
    int64_t capacity = r->c->attr.capacity;
    ndp_share first = ndp_share_random(ndp_node_dim(r, 'r'));
    ndp_share weight = capacity == 0 ? 1 : later ? ndp_share_sub(1, first) : first;
    if (later && capacity == 0)
        return ndp_refuse(r, "it is of a later round, and the first one has all rows");
    NDP_TRY(note_set(r, (ndp_row_set){exchange_set(r, COUNTED, later, -1), capacity, 1, false, true, later}));
    NDP_TRY(note_set(r, (ndp_row_set){own_set(r, GOING, later), rows, weight, false, false, later}));
    return note_set(r, (ndp_row_set){own_set(r, COMING, later), r->in[0].rows, weight, true, false, later});
}

/* Of (choices of the rows of all ranks). */
ndp_status ndp_after_route_exchange(ndp_rule *r) {
    const ndp_op_attr *a = &r->c->attr;
    ndp_group g = ndp_mesh_group(&r->lane->mesh, NDP_GROUP_EP);
    int64_t rows = r->in[0].rows / g.count, most = r->out[1].cols, first, n;
    bool later = ndp_rule_has(r, 1);
    uint64_t going = own_set(r, GOING, later);
    experts_of(r, &first, &n);
    NDP_TRY(note_round(r, rows, later));
    if (a->ranks != g.count || (!r->lane->stands_in && a->first != g.rank) ||
        first != ndp_expert_first(a->experts, g.rank, g.count) ||
        first + n != ndp_expert_first(a->experts, g.rank + 1, g.count))
        return ndp_refuse(r, "it is of place %lld of %d ranks; this is rank %d of %d, with %lld experts from %lld on",
                          (long long)a->first, a->ranks, g.rank, g.count, (long long)n, (long long)first);
    for (int i = 0; i < r->in[0].n; i++) {
        ndp_tile t = r->in[0].tiles[i], own;
        if (t.among)
            return ndp_refuse(r, "the rows of its choices stand in some order");
        t.among = own_set(r, COMING, later);
        NDP_TRY(ndp_result(r, 3, t));
        if (!ndp_tile_cut(&r->in[0].tiles[i], rows * g.rank, rows, 0, 1, &own))
            continue;
        own.row -= rows * g.rank, own.at_col = 0;
        own.what = ndp_value_thing(r, r->n->out[0]);
        NDP_TRY(ndp_result(r, 0, sorted_tile(own, most, going)));
        own.what = ndp_value_thing(r, r->n->out[1]), own.cols = most, own.among = going;
        NDP_TRY(ndp_result(r, 1, own));
    }
    ndp_tile counts = {.rows = g.count, .cols = g.count, .what = ndp_value_thing(r, r->n->out[2]), .share = 1};
    counts.among = exchange_set(r, COUNTED, later, -1);
    NDP_TRY(ndp_result(r, 2, counts));
    counts.rows = counts.cols = 1;
    return ndp_result(r, 4, counts);
}

/* Tile t of one row for each, and the places' rows: row by row the same. */
static ndp_status expect_rows_of_places(const ndp_rule *r, int k, ndp_tile t) {
    for (int i = 0; i < r->in[2].n; i++) {
        const ndp_tile *places = &r->in[2].tiles[i];
        ndp_tile part;
        if (ndp_tile_cut(&t, places->row, places->rows, 0, t.col + t.cols, &part) &&
            part.at_row - part.row != places->at_row - places->row)
            return ndp_refuse(r, "operand %d has row %lld where the places are of row %lld", k, (long long)part.at_row,
                              (long long)(places->at_row - places->row + part.row));
    }
    return NDP_OK;
}

/* Of (x, order, places): a rank's rows, each as often as it may go. */
static ndp_status hand_over(ndp_rule *r) {
    int64_t most = r->in[2].cols;
    uint64_t set = own_set(r, GOING, is_later(r, 1, GOING));
    NDP_TRY(expect_of_exchange(r, 1, 0, set));
    NDP_TRY(expect_of_exchange(r, 2, 1, set));
    NDP_TRY(ndp_expect_all(r, 0));
    for (int i = 0; i < r->in[0].n; i++) {
        NDP_TRY(expect_rows_of_places(r, 0, r->in[0].tiles[i]));
        if (r->in[0].tiles[i].among)
            return ndp_refuse(r, "its rows stand in some order");
        NDP_TRY(ndp_result(r, 0, sorted_tile(r->in[0].tiles[i], most, set)));
    }
    return NDP_OK;
}

/* Of (y, order, places, -, acc): what came back of them, and the rest of the sum so far: of earlier rounds, or an
 * earlier part of the gradient that they are. */
static ndp_status take_back(ndp_rule *r) {
    int64_t most = r->in[2].cols;
    ndp_content rows = ndp_content_of(r->arena, r->out[0].rows, r->out[0].cols);
    uint64_t set = own_set(r, GOING, is_later(r, 1, GOING));
    NDP_TRY(expect_of_exchange(r, 1, 0, set));
    NDP_TRY(expect_of_exchange(r, 2, 1, set));
    NDP_TRY(ndp_expect_all(r, 0));
    for (int i = 0; i < r->in[0].n; i++) {
        ndp_tile t = r->in[0].tiles[i];
        if (t.among != set || t.row % most || t.rows % most || t.at_row % most)
            return ndp_refuse(r, "operand 0 has not come back by the places of operand 2");
        t.row /= most, t.rows /= most, t.at_row /= most, t.among = 0, t.made = r->index;
        t.share = ndp_share_mul(t.share, weight_of(r, set));
        NDP_TRY(expect_rows_of_places(r, 0, t));
        NDP_TRY(ndp_content_add(&rows, t));
    }
    if (!ndp_rule_has(r, 4)) {
        r->out[0] = rows;
        return NDP_OK;
    }
    ndp_thing of = rows.n > 0 ? rows.tiles[0].what : (ndp_thing){0};
    NDP_TRY(ndp_expect(r, 4, of.kind, of.id, false));
    return ndp_sum_contents(r, &rows, &r->in[4], &r->out[0]);
}

/* Member i of ep hands over rows of its own set. */
static ndp_status expect_own_set(const ndp_rule *r, const ndp_content *handed, int i, exchanged what, bool later) {
    ndp_group g = ndp_mesh_group(&r->lane->mesh, ndp_channel_group(r->c->channel));
    for (int k = 0; k < handed->n; k++)
        if (handed->tiles[k].among != exchange_set(r, what, later, g.base + i * g.stride))
            return ndp_refuse(r, "member %d hands over rows that are not those that %s", i,
                              what == COMING ? "came to it" : "go from it");
    return NDP_OK;
}

/* All rows of all members come, of each as many as of this rank. */
static ndp_status come_forth(ndp_rule *r, const ndp_content *const *handed, int n, bool later) {
    const ndp_row_set *going = ndp_row_set_find(r->sets, own_set(r, GOING, later));
    for (int i = 0; i < n; i++) {
        int64_t rows = going ? going->rows : handed[i]->rows, most = handed[i]->rows / rows;
        NDP_TRY(expect_own_set(r, handed[i], i, GOING, later));
        for (int k = 0; k < handed[i]->n; k++) {
            ndp_tile t = handed[i]->tiles[k];
            if (t.row % most || t.rows % most || t.at_row % most)
                return ndp_refuse(r, "member %d hands over parts of what a row may be sent as", i);
            t.row = t.row / most + i * rows, t.rows /= most, t.at_row /= most, t.among = own_set(r, COMING, later);
            NDP_TRY(ndp_result(r, 0, t));
        }
    }
    return NDP_OK;
}

/* This rank's rows come, from each member the share that its experts have: added up where the rank's places say. */
static ndp_status come_back(ndp_rule *r, const ndp_content *const *handed, int n, int me, bool later) {
    int64_t rows = handed[me]->rows / n, most = r->out[0].rows / rows;
    for (int i = 0; i < n; i++) {
        ndp_content part = ndp_content_of(r->arena, rows * most, handed[i]->cols), sum = part;
        NDP_TRY(expect_own_set(r, handed[i], i, COMING, later));
        for (int k = 0; k < handed[i]->n; k++) {
            ndp_tile t = handed[i]->tiles[k];
            if (t.row >= (me + 1) * rows || t.row + t.rows <= me * rows || /* of many, most */
                !ndp_tile_cut(&handed[i]->tiles[k], me * rows, rows, 0, handed[i]->cols, &t))
                continue;
            t.row -= me * rows, t.made = r->index;
            NDP_TRY(ndp_content_add(&part, sorted_tile(t, most, own_set(r, GOING, later))));
        }
        NDP_TRY(i > 0 ? ndp_sum_contents(r, &r->out[0], &part, &sum) : NDP_OK);
        r->out[0] = i > 0 ? sum : part;
    }
    return NDP_OK;
}

ndp_status ndp_rule_exchange(ndp_rule *r, const ndp_content *const *handed, int n, int me) {
    if (!is_exchanged(r))
        return ndp_refuse(r, "it was written for a node that orders no rows");
    bool later = is_later(r, 1, COUNTED);
    NDP_TRY(expect_of_exchange(r, 1, 2, exchange_set(r, COUNTED, later, -1)));
    NDP_TRY(r->c->attr.inverse ? come_back(r, handed, n, me, later) : come_forth(r, handed, n, later));
    ndp_content_join(&r->out[0]);
    return NDP_OK;
}

/* ---- rows of one rank's experts ---- */

/* Of (x, order, places, weights). */
ndp_status ndp_before_take_rows(ndp_rule *r) {
    uint64_t among;
    if (is_exchanged(r))
        return NDP_OK;
    NDP_TRY(expect_places(r, 2, &r->stack.among, &among));
    NDP_TRY(expect_sorted(r, 1, 2, r->stack.among));
    for (int i = 0; i < r->in[2].n; i++) /* each row that is taken is complete */
        r->in[2].tiles[i].share = 1;
    return NDP_OK;
}

ndp_status ndp_after_take_rows(ndp_rule *r) {
    if (is_exchanged(r))
        return hand_over(r);
    for (int i = 0; i < r->out[0].n; i++)
        r->out[0].tiles[i] = sorted_tile(r->out[0].tiles[i], r->in[2].cols, r->stack.among);
    return NDP_OK;
}

/* Operand y, sorted, has the choices of a row as this one again. */
static ndp_status by_row(ndp_rule *r, int y, uint64_t set, uint64_t among) {
    int64_t choices = r->in[2].cols;
    NDP_TRY(expect_sorted(r, y, 2, set));
    for (int i = 0; i < r->in[y].n; i++) {
        ndp_tile *t = &r->in[y].tiles[i];
        t->row /= choices, t->rows /= choices, t->at_row /= choices;
        t->among = among;
    }
    return NDP_OK;
}

/* Of (y, order, places, weights, acc), or (dx, y, places). */
ndp_status ndp_before_give_rows(ndp_rule *r) {
    int y = r->c->op == &ndp_op_give_rows_dw;
    uint64_t set, among;
    if (is_exchanged(r))
        return NDP_OK;
    NDP_TRY(expect_places(r, 2, &set, &among));
    NDP_TRY(y ? NDP_OK : expect_sorted(r, 1, 2, set));
    return by_row(r, y, set, among);
}

ndp_status ndp_after_give_rows(ndp_rule *r) { return is_exchanged(r) ? take_back(r) : NDP_OK; }

/* Of (x, order, places, weights), or (dy, y, places, weights), where rows of both are sorted. */
ndp_status ndp_before_weigh_rows(ndp_rule *r) {
    bool sums = r->c->op == &ndp_op_weigh_rows_dw;
    uint64_t among;
    NDP_TRY(expect_places(r, 2, &r->stack.among, &among));
    NDP_TRY(sums ? by_row(r, 1, r->stack.among, among) : expect_sorted(r, 1, 2, r->stack.among));
    for (int i = 0; i < r->in[2].n && !sums; i++) /* each row is complete */
        r->in[2].tiles[i].share = 1;
    return by_row(r, 0, r->stack.among, among);
}

ndp_status ndp_after_weigh_rows(ndp_rule *r) {
    for (int i = 0; i < r->out[0].n; i++)
        r->out[0].tiles[i] = sorted_tile(r->out[0].tiles[i], r->in[2].cols, r->stack.among);
    return NDP_OK;
}
