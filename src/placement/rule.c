/* What all rules use: what operands must be, and messages. */
#include "placement/rule.h"

/* ---- messages ---- */

static const struct {
    ndp_thing_of of;
    const char *before, *after;
} things[] = {
#define ROW(NAME, of, before, after) {NDP_OF_##of, before, after},
    NDP_THINGS(ROW)
#undef ROW
};

const char *ndp_thing_name(const ndp_graph *g, ndp_thing t) {
    ndp_thing_of of = things[t.kind].of;
    int segment = of == NDP_OF_A_PART ? t.id / NDP_PACKED_PARTS : t.id;
    return of == NDP_OF_A_VALUE                            ? g->values[t.id].name
           : of == NDP_OF_A_SEGMENT || of == NDP_OF_A_PART ? g->slots[segment / 64]->items[segment % 64].name
           : of == NDP_OF_AN_INPUT                         ? g->inputs->items[t.id].name
                                                           : "";
}

static ndp_text thing_text(const ndp_rule *r, ndp_thing t) {
    ndp_text out = {""};
    ndp_text_add(&out, "%s%s%s", things[t.kind].before, ndp_thing_name(r->g, t), things[t.kind].after);
    return out;
}

ndp_text ndp_tile_text(const ndp_rule *r, const ndp_tile *t) {
    ndp_text out = thing_text(r, t->what);
    if (t->share != 1)
        ndp_text_add(&out, ", %s", ndp_share_text(t->share).s);
    if (t->made != NDP_NONE)
        ndp_text_add(&out, ", made by #%d", t->made);
    return out;
}

ndp_status ndp_refused(const ndp_rule *r, ndp_status st) {
    int value = r->c->n_out > 0 ? r->c->out[0].value : NDP_NONE;
    const char *name = r->c->what ? r->c->what
                       : value != NDP_NONE && r->n && r->n->n_out > 0 && r->n->out[0] != NDP_NONE
                           ? r->g->values[r->n->out[0]].name
                           : "";
    return NDP_FAIL(st, "placement: %s #%d %s %s: %s", r->where, r->index, r->c->op->name, name, ndp_error_message());
}

/* ---- operands ---- */

ndp_status ndp_expect_all(const ndp_rule *r, int k) {
    const ndp_view *v = &r->c->in[k].view;
    return ndp_content_full(&r->in[k]) ? NDP_OK
                                       : ndp_refuse(r, "operand %d, [%lld,%lld], is not written before it is read", k,
                                                    (long long)v->rows, (long long)v->cols);
}

static ndp_status refuse_thing(const ndp_rule *r, int k, const ndp_tile *t, ndp_thing must) {
    return ndp_refuse(r, "operand %d is %s; it must be %s", k, ndp_tile_text(r, t).s, thing_text(r, must).s);
}

/* An op that hands the gradient of its first result, or columns of it, to operand k as it stands. */
static bool passes(const ndp_node *n, int k) {
    bool both = n->op == &ndp_op_add || n->op == &ndp_op_add_rmsnorm || n->op == &ndp_op_add_columns;
    if (n->op == &ndp_op_give_rows)
        return k == 4;
    return k == 0 ? both || n->op == &ndp_op_add_bias || n->op == &ndp_op_stack_bias : k == 1 && both;
}

/* The share that a gradient of value `made` is of that of `value`, to which nodes pass it; 0: of nothing. *first: the
 * column of `made` that is column 0 of `value`. */
static ndp_share passed(const ndp_rule *r, int value, int made, int64_t *first) {
    const ndp_nodes *nodes = &r->g->nodes[NDP_NODES_FORWARD];
    ndp_share sum = value == made;
    int64_t col;
    *first = 0;
    for (int i = 0; i < nodes->n && value != made; i++)
        for (int k = 0; k < nodes->items[i].n_in; k++)
            if (r->uses->of[i][k] != 0 && passes(&nodes->items[i], k) && nodes->items[i].in[k] == value) {
                bool columns = nodes->items[i].op == &ndp_op_add_columns && k == 1;
                ndp_share next = passed(r, ndp_value_origin(r->g, nodes->items[i].out[0], &col), made, &col);
                col += columns ? nodes->items[i].attr.first : 0;
                if (next != 0 && sum != 0 && col != *first)
                    return 0; /* other columns by each way: no part of one gradient */
                *first = next != 0 ? col : *first;
                sum = ndp_share_add(sum, ndp_share_mul(r->uses->of[i][k], next));
            }
    return sum;
}

/* The share that a thing is of another one, and the column of it that is column 0 of that; 0: it is no part of it. */
static ndp_share share_in(const ndp_rule *r, ndp_thing is, ndp_thing of, int64_t *first) {
    *first = 0;
    return is.kind != of.kind ? 0 : is.kind == NDP_THING_GRADIENT ? passed(r, of.id, is.id, first) : is.id == of.id;
}

/* What the call's node, or a value of it, is of that kind; *col: its first column there. Id NDP_NONE: there is none. */
static ndp_thing thing_of(const ndp_rule *r, ndp_thing_kind kind, int value, int64_t *col) {
    *col = 0;
    if (things[kind].of == NDP_OF_A_NODE)
        return (ndp_thing){kind, r->of};
    if (value == NDP_NONE || kind == NDP_THING_DATA)
        return (ndp_thing){kind, value == NDP_NONE ? NDP_NONE : r->g->values[value].input};
    return (ndp_thing){kind, ndp_value_origin(r->g, value, col)};
}

ndp_status ndp_expect(ndp_rule *r, int k, ndp_thing_kind kind, int value, bool complete) {
    int64_t col, first;
    ndp_thing must = thing_of(r, kind, value, &col);
    if (must.id == NDP_NONE)
        return ndp_refuse(r, "its node has no operand %d", k);
    NDP_TRY(ndp_expect_all(r, k));
    for (int i = 0; i < r->in[k].n; i++) {
        ndp_tile *t = &r->in[k].tiles[i];
        ndp_share share = share_in(r, t->what, must, &first);
        if (share == 0)
            return refuse_thing(r, k, t, must);
        if (complete && t->share != 1)
            return ndp_refuse(r, "operand %d is %s; it must be complete", k, ndp_tile_text(r, t).s);
        t->what = must;
        t->share = ndp_share_mul(t->share, share);
        t->at_col -= col + first;
        if (value != NDP_NONE && (t->at_col < 0 || t->at_col + t->cols > r->g->values[value].view.cols))
            return ndp_refuse(r, "operand %d has columns %lld to %lld of %s, which are not those of its node", k,
                              (long long)(t->at_col + col), (long long)(t->at_col + col + t->cols),
                              thing_text(r, must).s);
    }
    return NDP_OK;
}

bool ndp_is(const ndp_rule *r, int k, ndp_thing_kind kind, int value) {
    int64_t col, first;
    ndp_thing must = thing_of(r, kind, value, &col);
    bool is = must.id != NDP_NONE && r->in[k].n > 0;
    for (int i = 0; is && i < r->in[k].n; i++)
        is = share_in(r, r->in[k].tiles[i].what, must, &first) != 0;
    return is;
}

ndp_tile ndp_gradient_tile(const ndp_rule *r, int value, ndp_tile t, ndp_share share) {
    int64_t col;
    t.what = (ndp_thing){NDP_THING_GRADIENT, ndp_value_origin(r->g, value, &col)};
    t.at_col += col;
    t.share = share;
    return t;
}

ndp_status ndp_expect_param(ndp_rule *r, int k, int param) {
    if (param == NDP_NONE)
        return ndp_refuse(r, "its node has no operand %d", k);
    const ndp_value *v = &r->g->values[param];
    NDP_TRY(ndp_expect_all(r, k));
    for (int i = 0; i < r->in[k].n; i++) {
        ndp_tile *t = &r->in[k].tiles[i];
        int segment = t->what.id % 64, slot = t->what.id / 64;
        if (t->what.kind != NDP_THING_PARAM || slot != v->slot || segment < v->segment ||
            segment >= v->segment + v->segments)
            return refuse_thing(r, k, t, (ndp_thing){NDP_THING_PARAM, ndp_thing_segment(v->slot, v->segment)});
        int64_t before = ndp_param_before(r->g, param, segment);
        if (ndp_segment_is_vector(&r->g->slots[slot]->items[segment]))
            t->at_col += before;
        else
            t->at_row += before;
    }
    return NDP_OK;
}

/* ---- results ---- */

ndp_status ndp_result(ndp_rule *r, int o, ndp_tile t) {
    t.made = r->index;
    return ndp_rule_wants(r, o) ? ndp_content_add(&r->out[o], t) : NDP_OK;
}

ndp_status ndp_result_zero(ndp_rule *r, int o) {
    return ndp_result(r, o, (ndp_tile){.rows = r->out[o].rows, .cols = r->out[o].cols, .what = {NDP_THING_ZERO, 0}});
}

ndp_status ndp_result_add(ndp_rule *r, int o, ndp_tile t) {
    for (int i = 0; i < r->out[o].n; i++) {
        ndp_tile *x = &r->out[o].tiles[i], part;
        if (!ndp_tile_cut(x, t.row, t.rows, t.col, t.cols, &part))
            continue;
        if (x->row != t.row || x->rows != t.rows || x->col != t.col || x->cols != t.cols || x->at_row != t.at_row ||
            x->at_col != t.at_col || x->among != t.among || !ndp_things_equal(x->what, t.what))
            return ndp_refuse(r, "it sums over rows that have other columns than each other");
        x->share = ndp_share_add(x->share, t.share);
        return NDP_OK;
    }
    return ndp_result(r, o, t);
}

ndp_status ndp_param_gradient(ndp_rule *r, int o, int param, ndp_tile t) {
    const ndp_value *v = &r->g->values[param];
    const ndp_segments *s = r->g->slots[v->slot];
    bool vector = ndp_segment_is_vector(&s->items[v->segment]);
    for (int k = v->segment; k < v->segment + v->segments; k++) {
        int64_t before = ndp_param_before(r->g, param, k);
        int64_t n = ndp_segment_matrices(&s->items[k]) * s->items[k].part[vector];
        int64_t col = t.col + before - t.at_col, row = t.row + before - t.at_row; /* of the call's, where it begins */
        ndp_tile part;
        if (!ndp_tile_cut(&t, vector ? t.row : row, vector ? t.rows : n, vector ? col : t.col, vector ? n : t.cols,
                          &part))
            continue;
        part.what = (ndp_thing){NDP_THING_PGRADIENT, ndp_thing_segment(v->slot, k)};
        part.at_row = vector ? 0 : part.at_row - before;
        part.at_col -= vector ? before : 0;
        part.among = 0;
        NDP_TRY(ndp_result_add(r, o, part));
    }
    return NDP_OK;
}

/* ---- sums ---- */

/* Things of which summands may be added. */
static bool sums(ndp_thing_kind k) {
    return k == NDP_THING_VALUE || k == NDP_THING_PRODUCT || k == NDP_THING_GRADIENT || k == NDP_THING_PGRADIENT ||
           k == NDP_THING_SQUARES || k == NDP_THING_DSQUARES;
}

ndp_status ndp_sum_contents(ndp_rule *r, const ndp_content *a, const ndp_content *b, ndp_content *out) {
    for (int i = 0; i < a->n; i++)
        for (int j = 0; j < b->n; j++) {
            ndp_tile x, y;
            if (!ndp_tile_cut(&a->tiles[i], b->tiles[j].row, b->tiles[j].rows, b->tiles[j].col, b->tiles[j].cols, &x) ||
                !ndp_tile_cut(&b->tiles[j], x.row, x.rows, x.col, x.cols, &y))
                continue;
            if (x.what.kind == NDP_THING_ZERO || y.what.kind == NDP_THING_ZERO) {
                NDP_TRY(ndp_content_add(out, x.what.kind == NDP_THING_ZERO ? y : x));
                continue;
            }
            if (!ndp_things_equal(x.what, y.what) || !sums(x.what.kind) || x.at_row != y.at_row ||
                x.at_col != y.at_col || x.among != y.among)
                return ndp_refuse(r,
                                  "it adds %s, rows from %lld and columns from %lld on, and %s, rows from %lld and "
                                  "columns from %lld on",
                                  ndp_tile_text(r, &x).s, (long long)x.at_row, (long long)x.at_col,
                                  ndp_tile_text(r, &y).s, (long long)y.at_row, (long long)y.at_col);
            x.share = ndp_share_add(x.share, y.share);
            x.made = r->index;
            NDP_TRY(ndp_content_add(out, x));
        }
    ndp_content_join(out);
    return NDP_OK;
}
