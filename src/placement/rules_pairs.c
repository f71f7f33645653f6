/* Rules of the loss of pairs of documents. Sums over some rows are summands, as long as a collective has not added up
 * those of all rows of the micro-batch; a pair's loss is not linear of them, so it needs complete ones. */
#include "placement/rule.h"

/* Result o, all of it, is the node's. */
static ndp_status make(ndp_rule *r, int o, ndp_share share) {
    const ndp_view *v = &r->c->out[o].view;
    ndp_tile t = {.rows = v->rows, .cols = v->cols, .what = ndp_value_thing(r, r->n->out[o]), .share = share};
    return ndp_result(r, o, t);
}

/* Of (nll, documents). */
ndp_status ndp_rule_document_sums(ndp_rule *r) {
    ndp_share sum = 0;
    NDP_EXPECT_SAME(r, parts);
    NDP_TRY(ndp_expect_value(r, 0, r->n->in[0], true));
    NDP_TRY(ndp_expect_rows(r, 1, r->n->in[1], 0));
    for (int i = 0; i < r->in[0].n; i++)
        sum = ndp_share_add(sum, ndp_rows_measure(r, r->in[0].tiles[i].at_row, r->in[0].tiles[i].rows));
    return make(r, 0, sum);
}

/* Of (sums, reference). */
ndp_status ndp_rule_pair_loss(ndp_rule *r) {
    NDP_EXPECT_SAME(r, loss);
    NDP_EXPECT_SAME(r, scale);
    NDP_EXPECT_SAME(r, gamma);
    NDP_EXPECT_SAME(r, label_smoothing);
    NDP_TRY(ndp_expect_value(r, 0, r->n->in[0], true));
    if (ndp_rule_has(r, 1) != (r->n->in[1] != NDP_NONE))
        return ndp_refuse(r, "it %s a reference, its node does not", ndp_rule_has(r, 1) ? "has" : "lacks");
    if (ndp_rule_has(r, 1))
        NDP_TRY(ndp_expect_input(r, 1, r->n->in[1]));
    NDP_TRY(make(r, 0, 1));
    return make(r, 1, 1);
}

/* Of (documents, nll, sums, slopes, pairs, scale, nll_scale). */
ndp_status ndp_rule_pair_rows(ndp_rule *r) {
    static const int whole[] = {NDP_PAIR_ROWS_SUMS, NDP_PAIR_ROWS_SLOPES, NDP_PAIR_ROWS_PAIRS};
    const int rows = NDP_PAIR_ROWS_NLL;
    NDP_EXPECT_SAME(r, scale);
    NDP_TRY(ndp_expect_value(r, rows, r->n->in[rows], true));
    NDP_TRY(ndp_expect_rows(r, NDP_PAIR_ROWS_DOCUMENTS, r->n->in[NDP_PAIR_ROWS_DOCUMENTS], rows));
    for (int i = 0; i < NDP_COUNT(whole); i++)
        NDP_TRY(ndp_expect_value(r, whole[i], r->n->in[whole[i]], true));
    for (int k = NDP_PAIR_ROWS_SCALE; k <= NDP_PAIR_ROWS_NLL_SCALE; k++)
        NDP_TRY(ndp_expect_input(r, k, r->n->in[k]));
    for (int o = 0; o < 2; o++)
        for (int i = 0; i < r->in[rows].n; i++) {
            ndp_tile t = r->in[rows].tiles[i];
            t.what = ndp_value_thing(r, r->n->out[o]);
            t.cols = r->c->out[o].view.cols;
            NDP_TRY(ndp_result(r, o, t));
        }
    return NDP_OK;
}
