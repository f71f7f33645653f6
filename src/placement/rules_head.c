/* Rules of the loss: the head over the whole vocabulary, or over slices of it with an exchange of statistics. */
#include "placement/rule.h"

ndp_status ndp_expect_input(ndp_rule *r, int k, int value) {
    char is[300];
    int input = r->g->values[value].input;
    if (r->in[k].n == 0 || !ndp_content_full(&r->in[k]) || !ndp_thing_is(r->in[k].tiles[0].what, NDP_THING_DATA, input))
        return ndp_refuse(r, "operand %d is %s; it must be the input %s", k,
                          r->in[k].n ? ndp_tile_text(r, &r->in[k].tiles[0], is, sizeof is) : "not written",
                          r->g->inputs->items[input].name);
    return NDP_OK;
}

/* Operand k scales the gradients of the rows of operand x: the loss scale, or a number for each row. */
static ndp_status expect_scale(ndp_rule *r, int k, int x) {
    if (r->g->values[r->n->in[3]].kind == NDP_VALUE_DATA)
        return ndp_expect_input(r, k, r->n->in[3]);
    NDP_TRY(ndp_expect_value(r, k, r->n->in[3], true));
    return ndp_expect_alike(r, k, x, true);
}

/* The rows of the table that are here. A slice says which ids they are. */
static ndp_status expect_table(ndp_rule *r, int k, bool slice, ndp_tile *table) {
    NDP_TRY(ndp_expect_param(r, k, r->n->in[1]));
    *table = r->in[k].n > 0 ? r->in[k].tiles[0]
                            : (ndp_tile){.at_row = r->c->attr.first, .cols = r->g->values[r->n->in[1]].view.cols};
    const ndp_view *whole = &r->g->values[r->n->in[1]].view;
    if (r->in[k].n > 1 || table->at_col != 0 || table->cols != whole->cols)
        return ndp_refuse(r, "operand %d is a part of the columns of the table", k);
    if (!slice)
        NDP_EXPECT_SAME(r, first);
    if (!slice && (table->at_row != 0 || table->rows != whole->rows || r->c->attr.vocab != r->n->attr.vocab))
        return ndp_refuse(r, "its table has %lld rows from %lld on, of %lld", (long long)table->rows,
                          (long long)table->at_row, (long long)whole->rows);
    if (slice && (r->c->attr.vocab != table->rows || (!r->lane->stands_in && r->c->attr.first != table->at_row)))
        return ndp_refuse(r, "it takes its table as ids %lld to %lld, the table has %lld to %lld",
                          (long long)r->c->attr.first, (long long)(r->c->attr.first + r->c->attr.vocab),
                          (long long)table->at_row, (long long)(table->at_row + table->rows));
    return NDP_OK;
}

static ndp_status expect_head(ndp_rule *r) {
    if (r->n->op != &ndp_op_xent)
        return ndp_refuse(r, "its node is a %s", r->n->op->name);
    NDP_EXPECT_SAME(r, cap);
    NDP_EXPECT_SAME(r, train);
    return NDP_OK;
}

/* nll, and the gradients of x and of the table's rows that are here, of which x gets `slice`. */
static ndp_status results(ndp_rule *r, int x, const ndp_tile *table, ndp_share slice) {
    for (int i = 0; i < r->in[x].n; i++) {
        ndp_tile t = r->in[x].tiles[i], nll = t, dw = t;
        nll.what = ndp_value_thing(r, r->n->out[0]);
        nll.col = nll.at_col = 0, nll.cols = 1;
        if (t.col == 0)
            NDP_TRY(ndp_result(r, 0, nll));
        NDP_TRY(ndp_result(r, 1, ndp_gradient_tile(r, r->n->in[0], t, ndp_share_mul(slice, r->uses->of[r->of][0]))));
        if (!ndp_rule_wants(r, 2))
            continue;
        dw.row = 0, dw.rows = table->rows, dw.at_row = table->at_row;
        dw.share = ndp_share_mul(ndp_rows_measure(r, t.at_row, t.rows), r->uses->of[r->of][1]);
        NDP_TRY(ndp_param_gradient(r, 2, r->n->in[1], dw));
    }
    return NDP_OK;
}

/* Of (x, w, labels, scale). */
ndp_status ndp_rule_xent(ndp_rule *r) {
    ndp_tile table;
    NDP_TRY(expect_head(r));
    NDP_TRY(ndp_expect_value(r, 0, r->n->in[0], true));
    NDP_TRY(expect_table(r, 1, false, &table));
    NDP_TRY(ndp_expect_rows(r, 2, r->n->in[2], 0));
    NDP_TRY(expect_scale(r, 3, 0));
    return results(r, 0, &table, 1);
}

/* Of (x, w, labels): logits of a slice of the vocabulary, and their statistics. */
ndp_status ndp_rule_xent_logits(ndp_rule *r) {
    ndp_tile table;
    NDP_TRY(expect_head(r));
    NDP_TRY(ndp_expect_value(r, 0, r->n->in[0], true));
    NDP_TRY(expect_table(r, 1, true, &table));
    NDP_TRY(ndp_expect_rows(r, 2, r->n->in[2], 0));
    for (int i = 0; i < r->in[0].n; i++) {
        ndp_tile t = r->in[0].tiles[i], s = t;
        if (t.col > 0)
            continue;
        t.what = (ndp_thing){NDP_THING_LOGITS, r->of};
        t.cols = table.rows, t.at_col = table.at_row;
        NDP_TRY(ndp_result(r, 0, t));
        s.what = (ndp_thing){NDP_THING_STATS, r->of};
        s.cols = r->c->out[1].view.cols, s.at_col = table.at_row;
        s.share = ndp_range_share(ndp_node_dim(r, 1), r->g->values[r->n->in[1]].view.rows, table.at_row,
                                  table.at_row + table.rows);
        NDP_TRY(ndp_result(r, 1, s));
    }
    return NDP_OK;
}

/* Statistics, operand 1, are of the rows of operand 2, once for each slice of the vocabulary. */
static ndp_status expect_statistics(ndp_rule *r) {
    int64_t rows = r->in[2].rows;
    char is[300], share[64];
    for (int i = 0; i < r->in[2].n; i++) {
        const ndp_tile *x = &r->in[2].tiles[i];
        ndp_share sum = 0;
        for (int64_t p = 0; p < r->c->attr.parts && x->col == 0; p++)
            for (int j = 0; j < r->in[1].n; j++) {
                ndp_tile s;
                if (!ndp_tile_cut(&r->in[1].tiles[j], p * rows + x->row, x->rows, 0, 1, &s))
                    continue;
                if (!ndp_thing_is(s.what, NDP_THING_STATS, r->of))
                    return ndp_refuse(r, "operand 1 is %s; it must be statistics of logits",
                                      ndp_tile_text(r, &s, is, sizeof is));
                if (s.at_row != x->at_row + s.row - p * rows - x->row || s.rows != x->rows)
                    return ndp_refuse(r, "its statistics are of row %lld, its rows start at %lld", (long long)s.at_row,
                                      (long long)x->at_row);
                sum = ndp_share_add(sum, s.share);
            }
        if (x->col == 0 && sum != 1)
            return ndp_refuse(r, "its statistics are of %s of the vocabulary, must be of all",
                              ndp_share_text(sum, share, sizeof share));
    }
    return NDP_OK;
}

/* Of (logits, stats, x, w, labels, scale). */
ndp_status ndp_rule_xent_grad(ndp_rule *r) {
    ndp_tile table;
    NDP_TRY(expect_head(r));
    NDP_TRY(ndp_expect_value(r, 2, r->n->in[0], true));
    NDP_TRY(expect_table(r, 3, true, &table));
    NDP_TRY(ndp_expect_rows(r, 4, r->n->in[2], 2));
    NDP_TRY(expect_scale(r, 5, 2));
    for (int i = 0; i < r->in[0].n; i++)
        if (!ndp_thing_is(r->in[0].tiles[i].what, NDP_THING_LOGITS, r->of) || r->in[0].tiles[i].at_col != table.at_row)
            return ndp_refuse(r, "operand 0 is not the logits of its slice of the vocabulary");
    if (!ndp_content_full(&r->in[0]) || !ndp_content_full(&r->in[1]))
        return ndp_refuse(r, "its logits or statistics are not written before they are read");
    NDP_TRY(ndp_expect_alike(r, 0, 2, true));
    NDP_TRY(expect_statistics(r));
    return results(r, 2, &table,
                   ndp_range_share(ndp_node_dim(r, 1), r->g->values[r->n->in[1]].view.rows, table.at_row,
                                   table.at_row + table.rows));
}

static ndp_status expect_router_losses(ndp_rule *r) {
    char is[300];
    for (int i = 0; i < r->in[0].n; i++)
        if (!ndp_thing_is(r->in[0].tiles[i].what, NDP_THING_LOSSES, r->of) || !ndp_content_full(&r->in[0]))
            return ndp_refuse(r, "operand 0 is %s, must be losses of its router",
                              ndp_tile_text(r, &r->in[0].tiles[i], is, sizeof is));
    return NDP_OK;
}

/* Of (x): the sum of its rows. */
ndp_status ndp_rule_reduce_sum(ndp_rule *r) {
    ndp_share sum = 0;
    NDP_TRY(r->n->op == &ndp_op_router_losses ? expect_router_losses(r) : ndp_expect_value(r, 0, r->n->in[0], true));
    for (int i = 0; i < r->in[0].n; i++)
        sum = ndp_share_add(sum, ndp_rows_measure(r, r->in[0].tiles[i].at_row, r->in[0].tiles[i].rows));
    ndp_tile t = {.rows = 1,
                  .cols = r->c->out[0].view.cols,
                  .what = {NDP_THING_DATA, r->g->values[r->n->out[0]].input},
                  .share = sum};
    return ndp_result(r, 0, t);
}
