/* Rules of norms: a row needs all columns of its group, on one rank, or a mean of squares that ranks have summed. */
#include "placement/rule.h"

#include <math.h>

/* ---- norms ---- */

/* A norm's weight, with all its columns. */
static ndp_status expect_weight(ndp_rule *r, int k, int param) {
    NDP_TRY(ndp_expect_param(r, k, param));
    if (r->in[k].n != 1 || r->in[k].tiles[0].at_col != 0 || r->in[k].cols != r->g->values[param].view.cols)
        return ndp_refuse(r, "operand %d is a part of the columns that it norms", k);
    return NDP_OK;
}

/* Calls `each` for every run of rows and every group of `width` columns of operand k, which must be one tile: whole
 * groups of the whole value, of one share. */
static ndp_status for_groups(ndp_rule *r, int k, int64_t width,
                             ndp_status (*each)(ndp_rule *r, const ndp_tile *group, int64_t place)) {
    ndp_tile part;
    for (int i = 0; i < r->in[k].n; i++)
        for (int64_t col = 0; col < r->in[k].cols; col += width) {
            if (!ndp_tile_cut(&r->in[k].tiles[i], 0, r->in[k].rows, col, width, &part))
                continue;
            if (part.cols != width || part.at_col % width != 0)
                return ndp_refuse(r, "operand %d has %lld of the %lld columns that it norms, from %lld on", k,
                                  (long long)part.cols, (long long)width, (long long)part.at_col);
            NDP_TRY(each(r, &part, col / width));
        }
    return NDP_OK;
}

/* Statistics of group `place`: columns [place * s, ...) of result o are columns [group * s, ...) of the value. */
static ndp_status add_statistics(ndp_rule *r, int o, int value, const ndp_tile *group, int64_t place) {
    int64_t per = r->n->op == &ndp_op_layernorm ? 2 : 1;
    ndp_tile t = *group;
    t.what = ndp_value_thing(r, value);
    t.at_col = group->at_col / group->cols * per, t.col = place * per, t.cols = per;
    return ndp_result(r, o, t);
}

static ndp_status norm_group(ndp_rule *r, const ndp_tile *group, int64_t place) {
    ndp_tile t = *group;
    bool adds = r->n->op == &ndp_op_add_rmsnorm;
    t.what = ndp_value_thing(r, r->n->out[adds]);
    NDP_TRY(ndp_result(r, adds, t));
    return add_statistics(r, adds + 1, r->n->out[adds + 1], group, place);
}

static ndp_status norm(ndp_rule *r, int weight) {
    NDP_EXPECT_SAME(r, eps);
    NDP_EXPECT_SAME(r, unit_offset);
    NDP_TRY(expect_weight(r, weight, r->n->in[weight]));
    return for_groups(r, 0, r->in[weight].cols, norm_group);
}

ndp_status ndp_rule_rmsnorm(ndp_rule *r) {
    NDP_TRY(ndp_expect_value(r, 0, r->n->in[0], true));
    return norm(r, 1);
}

ndp_status ndp_rule_layernorm(ndp_rule *r) {
    NDP_TRY(ndp_expect_value(r, 0, r->n->in[0], true));
    if (ndp_rule_has(r, 2) != (r->n->in[2] != NDP_NONE))
        return ndp_refuse(r, "its bias is missing");
    if (ndp_rule_has(r, 2))
        NDP_TRY(expect_weight(r, 2, r->n->in[2]));
    return norm(r, 1);
}

ndp_status ndp_rule_add_rmsnorm(ndp_rule *r) {
    NDP_TRY(ndp_expect_value(r, 0, r->n->in[0], true));
    NDP_TRY(ndp_expect_value(r, 1, r->n->in[1], true));
    NDP_TRY(ndp_expect_alike(r, 0, 1, false));
    NDP_TRY(ndp_result_as(r, 0, r->n->out[0]));
    return norm(r, 2);
}

/* Where a norm's operands are among those of its node. */
typedef struct norm_node {
    int x, w, y, statistics; /* values */
    ndp_share use;           /* of x */
    int weight;              /* the node's operand that is w */
} norm_node;

static norm_node norm_of(const ndp_rule *r) {
    const ndp_node *n = r->n;
    if (n->op == &ndp_op_add_rmsnorm)
        return (norm_node){n->out[0], n->in[2], n->out[1], n->out[2], r->uses->of[r->of][NDP_USE_NORM], 2};
    return (norm_node){n->in[0], n->in[1], n->out[0], n->out[1], r->uses->of[r->of][0], 1};
}

static ndp_status is_norm(const ndp_rule *r) {
    const ndp_op *op = r->n->op;
    return op == &ndp_op_add_rmsnorm || op == &ndp_op_rmsnorm || op == &ndp_op_layernorm
               ? NDP_OK
               : ndp_refuse(r, "its node is a %s", op->name);
}

/* Statistics, operand k, are those of the groups of operand x. */
static ndp_status expect_statistics(ndp_rule *r, int k, int value, int x, int64_t width) {
    NDP_TRY(ndp_expect_value(r, k, value, true));
    int64_t per = r->n->op == &ndp_op_layernorm ? 2 : 1;
    for (int i = 0; i < r->in[x].n; i++)
        for (int j = 0; j < r->in[k].n; j++) {
            ndp_tile t = r->in[x].tiles[i], s = r->in[k].tiles[j], part;
            t.col = t.col / width * per, t.cols = (t.cols + width - 1) / width * per, t.at_col = t.at_col / width * per;
            if (ndp_tile_cut(&s, t.row, t.rows, t.col, t.cols, &part) &&
                (part.at_row - part.row != t.at_row - t.row || part.at_col - part.col != t.at_col - t.col))
                return ndp_refuse(r, "its statistics are of other rows or groups");
        }
    return NDP_OK;
}

static ndp_status dx_group(ndp_rule *r, const ndp_tile *group, int64_t place) {
    (void)place;
    norm_node n = norm_of(r);
    return ndp_result(r, 0, ndp_gradient_tile(r, n.x, *group, ndp_share_mul(group->share, n.use)));
}

/* Of (dy, x, w, statistics, acc?). */
ndp_status ndp_rule_norm_dx(ndp_rule *r) {
    NDP_TRY(is_norm(r));
    norm_node n = norm_of(r);
    NDP_EXPECT_SAME(r, unit_offset);
    NDP_TRY(ndp_expect_gradient(r, 0, n.y));
    NDP_TRY(ndp_expect_value(r, 1, n.x, true));
    NDP_TRY(expect_weight(r, 2, n.w));
    NDP_TRY(ndp_expect_alike(r, 0, 1, false));
    NDP_TRY(expect_statistics(r, 3, n.statistics, 1, r->in[2].cols));
    NDP_TRY(for_groups(r, 0, r->in[2].cols, dx_group));
    return ndp_add_earlier(r, 4, n.x);
}

/* Of (dy, x, statistics): a sum over rows and groups. `cut`: columns of one group. */
ndp_status ndp_rule_norm_dw(ndp_rule *r) {
    NDP_TRY(is_norm(r));
    norm_node n = norm_of(r);
    int64_t per = n.statistics != NDP_NONE && r->n->op == &ndp_op_layernorm ? 2 : 1;
    int64_t here = r->in[0].cols / (r->in[2].cols / per), whole = r->g->values[n.w].view.cols;
    int64_t groups = r->g->values[n.x].view.cols / whole;
    NDP_TRY(ndp_expect_gradient(r, 0, n.y));
    NDP_TRY(ndp_expect_value(r, 1, n.x, true));
    NDP_TRY(ndp_expect_alike(r, 0, 1, false));
    NDP_TRY(expect_statistics(r, 2, n.statistics, 1, r->in[2].cols > per ? here : whole));
    for (int i = 0; i < r->in[0].n; i++)
        for (int64_t col = 0; col < r->in[0].cols; col += here) {
            ndp_tile t;
            if (!ndp_tile_cut(&r->in[0].tiles[i], 0, r->in[0].rows, col, here, &t))
                continue;
            int64_t group = t.at_col / whole;
            ndp_share share = ndp_share_mul(t.share, ndp_rows_measure(r, t.at_row, t.rows));
            share = ndp_share_mul(share, ndp_range_share(ndp_node_dim(r, 1), groups, group, group + 1));
            t.share = ndp_share_mul(share, r->uses->of[r->of][n.weight]);
            t.row = 0, t.rows = 1, t.at_row = 0;
            t.col -= col, t.at_col -= group * whole;
            NDP_TRY(ndp_param_gradient(r, 0, n.w, t));
        }
    return NDP_OK;
}

/* ---- norms over columns of several ranks ---- */

/* How many ranks count each column: attr.scale is 1 / (columns x copies). 0: it is not such a number. */
static int64_t copies_of(const ndp_rule *r) {
    double copies = 1 / (r->c->attr.scale * (double)r->g->values[r->n->in[0]].view.cols);
    return copies >= 0.5 && fabs(copies - rint(copies)) < 1e-6 ? (int64_t)rint(copies) : 0;
}

static ndp_status expect_cut_norm(ndp_rule *r) {
    if (r->n->op != &ndp_op_rmsnorm)
        return ndp_refuse(r, "its node is a %s", r->n->op->name);
    if (r->g->values[r->n->in[1]].view.cols != r->g->values[r->n->in[0]].view.cols)
        return ndp_refuse(r, "its node norms groups of columns");
    return NDP_OK;
}

ndp_status ndp_rule_mean_squares(ndp_rule *r) {
    int64_t columns = r->g->values[r->n->in[0]].view.cols;
    NDP_TRY(expect_cut_norm(r));
    NDP_TRY(ndp_expect_value(r, 0, r->n->in[0], true));
    if (copies_of(r) == 0)
        return ndp_refuse(r, "its scale is %g, must be 1 / (%lld columns x the ranks that have each)", r->c->attr.scale,
                          (long long)columns);
    for (int i = 0; i < r->in[0].n; i++) {
        ndp_tile t = r->in[0].tiles[i];
        t.share = ndp_share_mul(ndp_range_share(ndp_node_dim(r, 2), columns, t.at_col, t.at_col + t.cols),
                                ndp_share_inverse(ndp_share_of(copies_of(r))));
        t.what = (ndp_thing){NDP_THING_SQUARES, r->of};
        t.col = t.at_col = 0, t.cols = 1;
        NDP_TRY(ndp_result_add(r, 0, t));
    }
    return NDP_OK;
}

/* Operand k is the (gradient of the) complete mean of squares of the rows of operand x. */
static ndp_status expect_squares(ndp_rule *r, int k, ndp_thing_kind kind, int x) {
    char is[300];
    for (int i = 0; i < r->in[k].n; i++)
        if (!ndp_thing_is(r->in[k].tiles[i].what, kind, r->of) || r->in[k].tiles[i].share != 1)
            return ndp_refuse(r, "operand %d is %s; it must be the complete mean of squares%s", k,
                              ndp_tile_text(r, &r->in[k].tiles[i], is, sizeof is),
                              kind == NDP_THING_DSQUARES ? "'s gradient" : "");
    if (!ndp_content_full(&r->in[k]))
        return ndp_refuse(r, "operand %d is not written before it is read", k);
    return ndp_expect_alike(r, k, x, true);
}

/* Operand k is the part of the norm's weight that belongs to the columns of operand x. */
static ndp_status expect_columns(ndp_rule *r, int k, int param, int x) {
    NDP_TRY(ndp_expect_param(r, k, param));
    for (int i = 0; i < r->in[x].n; i++)
        for (int j = 0; j < r->in[k].n; j++) {
            ndp_tile part, t = r->in[x].tiles[i];
            if (ndp_tile_cut(&r->in[k].tiles[j], 0, 1, t.col, t.cols, &part) &&
                part.at_col - part.col != t.at_col - t.col)
                return ndp_refuse(r, "operand %d is of columns from %lld on, x of %lld", k, (long long)part.at_col,
                                  (long long)(t.at_col + part.col - t.col));
        }
    return NDP_OK;
}

ndp_status ndp_rule_norm_by(ndp_rule *r) {
    NDP_TRY(expect_cut_norm(r));
    NDP_EXPECT_SAME(r, eps);
    NDP_EXPECT_SAME(r, unit_offset);
    NDP_TRY(ndp_expect_value(r, 0, r->n->in[0], true));
    NDP_TRY(expect_columns(r, 1, r->n->in[1], 0));
    NDP_TRY(expect_squares(r, 2, NDP_THING_SQUARES, 0));
    NDP_TRY(ndp_result_as(r, 0, r->n->out[0]));
    for (int i = 0; i < r->in[2].n; i++) {
        ndp_tile t = r->in[2].tiles[i];
        t.what = ndp_value_thing(r, r->n->out[1]);
        NDP_TRY(ndp_result(r, 1, t));
    }
    return NDP_OK;
}

/* The gradient of x has two parts: through its own column, for a given mean of squares, and through the mean. */
static ndp_share direct_weight(const ndp_rule *r) { return ndp_share_random(ndp_node_dim(r, 3)); }

/* Of (dy, x, w, rstd) -> dx? for a given mean, dm?. */
ndp_status ndp_rule_norm_by_dx(ndp_rule *r) {
    int64_t columns = r->g->values[r->n->in[0]].view.cols;
    NDP_TRY(expect_cut_norm(r));
    NDP_EXPECT_SAME(r, unit_offset);
    NDP_TRY(ndp_expect_gradient(r, 0, r->n->out[0]));
    NDP_TRY(ndp_expect_value(r, 1, r->n->in[0], true));
    NDP_TRY(ndp_expect_alike(r, 0, 1, false));
    NDP_TRY(expect_columns(r, 2, r->n->in[1], 1));
    NDP_TRY(ndp_expect_value(r, 3, r->n->out[1], true));
    NDP_TRY(ndp_expect_alike(r, 3, 0, true));
    for (int i = 0; i < r->in[0].n; i++) {
        ndp_tile t = r->in[0].tiles[i], m = t;
        ndp_share direct = ndp_share_mul(t.share, ndp_share_mul(r->uses->of[r->of][0], direct_weight(r)));
        NDP_TRY(ndp_result(r, 0, ndp_gradient_tile(r, r->n->in[0], t, direct)));
        m.share = ndp_share_mul(t.share, ndp_range_share(ndp_node_dim(r, 4), columns, t.at_col, t.at_col + t.cols));
        m.what = (ndp_thing){NDP_THING_DSQUARES, r->of};
        m.col = m.at_col = 0, m.cols = 1;
        if (ndp_rule_wants(r, 1))
            NDP_TRY(ndp_result_add(r, 1, m));
    }
    return NDP_OK;
}

/* Of (dm, x, acc?): each copy of a column gets 1 / copies of the gradient; their sum is complete. */
ndp_status ndp_rule_mean_squares_dx(ndp_rule *r) {
    NDP_TRY(expect_cut_norm(r));
    NDP_TRY(ndp_expect_value(r, 1, r->n->in[0], true));
    NDP_TRY(expect_squares(r, 0, NDP_THING_DSQUARES, 1));
    if (copies_of(r) == 0)
        return ndp_refuse(r, "its scale is %g, must be 1 / (columns x the ranks that have each)", r->c->attr.scale);
    ndp_share share = ndp_share_mul(r->uses->of[r->of][0], ndp_share_sub(1, direct_weight(r)));
    share = ndp_share_mul(share, ndp_share_inverse(ndp_share_of(copies_of(r))));
    for (int i = 0; i < r->in[1].n; i++)
        NDP_TRY(ndp_result(r, 0, ndp_gradient_tile(r, r->n->in[0], r->in[1].tiles[i], share)));
    return ndp_add_earlier(r, 2, r->n->in[0]);
}
