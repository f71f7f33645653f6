/* Rules of products with parameters. A product over some of the columns is a summand of the product over all: its share
 * is the measure of these columns. So is a product with some rows of a table by token. */
#include "placement/rule.h"

/* ---- embedding ---- */

static ndp_status expect_first(ndp_rule *r, int64_t first) {
    return r->lane->stands_in || r->c->attr.first == first
               ? NDP_OK
               : ndp_refuse(r, "its first id is %lld, must be %lld", (long long)r->c->attr.first, (long long)first);
}

/* Ids are data, one tile a run of rows. */
static ndp_status expect_ids(ndp_rule *r, int k, int value) {
    char is[300];
    for (int i = 0; i < r->in[k].n; i++)
        if (!ndp_thing_is(r->in[k].tiles[i].what, NDP_THING_DATA, r->g->values[value].input))
            return ndp_refuse(r, "operand %d is %s; it must be the input %s", k,
                              ndp_tile_text(r, &r->in[k].tiles[i], is, sizeof is),
                              r->g->inputs->items[r->g->values[value].input].name);
    return NDP_OK;
}

ndp_status ndp_rule_embedding(ndp_rule *r) {
    NDP_TRY(expect_ids(r, 0, r->n->in[0]));
    NDP_TRY(ndp_expect_param(r, 1, r->n->in[1]));
    const ndp_tile *table = &r->in[1].tiles[0];
    if (r->in[1].n == 0)
        return ndp_result_zero(r);
    if (r->in[1].n != 1)
        return ndp_refuse(r, "its table is in %d parts", r->in[1].n);
    NDP_TRY(expect_first(r, table->at_row));
    ndp_share share = ndp_range_share(ndp_node_dim(r, 1), r->g->values[r->n->in[1]].view.rows, table->at_row,
                                      table->at_row + table->rows);
    for (int i = 0; i < r->in[0].n; i++) {
        ndp_tile t = r->in[0].tiles[i];
        t.cols = table->cols, t.at_col = table->at_col;
        t.what = ndp_value_thing(r, r->n->out[0]);
        t.share = share;
        NDP_TRY(ndp_result(r, 0, t));
    }
    return NDP_OK;
}

/* Of (ids, dx): the rows of the table that this rank has. */
ndp_status ndp_rule_embedding_dw(ndp_rule *r) {
    int param = r->n->in[1];
    NDP_TRY(expect_ids(r, 0, r->n->in[0]));
    NDP_TRY(ndp_expect_gradient(r, 1, r->n->out[0]));
    NDP_TRY(ndp_expect_alike(r, 0, 1, true));
    const ndp_value *v = &r->g->values[param];
    const ndp_segment *s = ndp_rule_segment(r, v->slot, v->segment);
    NDP_TRY(expect_first(r, s->first[0] - s->base[0]));
    for (int i = 0; i < r->in[1].n; i++) {
        ndp_tile t = r->in[1].tiles[i];
        ndp_share share = ndp_share_mul(t.share, ndp_rows_measure(r, t.at_row, t.rows));
        t.share = ndp_share_mul(share, r->uses->of[r->of][1]);
        t.row = 0, t.rows = r->c->out[0].view.rows, t.at_row = s->first[0] - s->base[0];
        NDP_TRY(ndp_param_gradient(r, 0, param, t));
    }
    return NDP_OK;
}

/* ---- packed matrices ---- */

/* Operand k is all of that part of the segment. */
static ndp_status expect_packed(ndp_rule *r, int k, int slot, int segment, const ndp_packed *p) {
    const ndp_view *must = &p->part[k], *is = &r->c->in[k].view;
    char text[300];
    if (!ndp_rule_has(r, k))
        return must->rows == 0 ? NDP_OK : ndp_refuse(r, "it has no operand %d", k);
    bool all = r->in[k].n == 1 && is->rows == must->rows && is->cols == must->cols && is->dtype == must->dtype;
    const ndp_tile *t = r->in[k].n > 0 ? &r->in[k].tiles[0] : NULL;
    if (must->rows * must->cols == 0)
        return NDP_OK;
    if (!all || t->rows != must->rows || t->cols != must->cols ||
        !ndp_thing_is(t->what, NDP_THING_PACKED, ndp_thing_packed(slot, segment, k)))
        return ndp_refuse(r, "operand %d is %s, [%lld,%lld]; it must be part %d of %s, [%lld,%lld]", k,
                          t ? ndp_tile_text(r, t, text, sizeof text) : "what nothing wrote", (long long)is->rows,
                          (long long)is->cols, k, r->g->slots[slot]->items[segment].name, (long long)must->rows,
                          (long long)must->cols);
    return NDP_OK;
}

/* The blocks are numbered as in the whole tensor, or they get other scales. */
static ndp_status expect_blocks(ndp_rule *r, const ndp_segment *s) {
    int64_t first = ndp_segment_first_block(s), row = ndp_segment_row_blocks(s);
    if (!r->lane->stands_in && r->c->attr.first != first)
        return ndp_refuse(r, "its first block is %lld, must be %lld", (long long)r->c->attr.first, (long long)first);
    if (s->rows > 1 && r->c->attr.row_blocks != row)
        return ndp_refuse(r, "its rows are %lld blocks apart, must be %lld", (long long)r->c->attr.row_blocks,
                          (long long)row);
    return NDP_OK;
}

/* Of (codes, scales, nested?): the rows of the node's matrix that the segment has on this rank. */
ndp_status ndp_rule_unpack(ndp_rule *r) {
    const ndp_value *param = &r->g->values[r->n->in[0]], *rows = &r->g->values[r->n->out[0]];
    const ndp_segments *table = &r->lane->tables[r->buffers[param->slot]];
    const ndp_segment *s = &table->items[param->segment];
    ndp_packed p = ndp_segment_packed(table, s);
    const ndp_view *w = &r->c->out[0].view;
    for (int k = 0; k < NDP_PACKED_PARTS; k++)
        NDP_TRY(expect_packed(r, k, param->slot, param->segment, &p));
    if (table->packing == NDP_PACKING_NF4)
        NDP_TRY(expect_blocks(r, s));
    if (w->rows != s->rows || w->cols != s->cols)
        return ndp_refuse(r, "it makes [%lld,%lld] of a matrix of [%lld,%lld]", (long long)w->rows, (long long)w->cols,
                          (long long)s->rows, (long long)s->cols);
    return ndp_result(r, 0,
                      (ndp_tile){.rows = s->rows,
                                 .cols = s->cols,
                                 .at_row = rows->row + s->first[0] - s->base[0],
                                 .at_col = s->first[1] - s->base[1],
                                 .what = ndp_value_thing(r, rows->parent),
                                 .share = 1});
}

/* ---- linear ---- */

/* The share of the sum over columns of x that row run `x` (a tile of one) and row run `w` make together: both must be
 * of the same columns. Tiles of other rows are left out. */
typedef struct contraction {
    int64_t row, w_row; /* a row of each operand */
    int64_t columns;    /* of the whole x */
    ndp_share share;
} contraction;

static ndp_status contract(ndp_rule *r, int x, int w, contraction *c) {
    c->share = 0;
    for (int i = 0; i < r->in[x].n; i++)
        for (int j = 0; j < r->in[w].n; j++) {
            ndp_tile a, b;
            if (!ndp_tile_cut(&r->in[x].tiles[i], c->row, 1, 0, r->in[x].cols, &a) ||
                !ndp_tile_cut(&r->in[w].tiles[j], c->w_row, 1, a.col, a.cols, &b))
                continue;
            int64_t first = a.at_col + b.col - a.col;
            if (b.at_col != first)
                return ndp_refuse(r, "column %lld of x meets column %lld of w", (long long)first, (long long)b.at_col);
            ndp_share piece =
                ndp_share_mul(a.share, ndp_range_share(ndp_node_dim(r, 1), c->columns, first, first + b.cols));
            c->share = ndp_share_add(c->share, piece);
        }
    return NDP_OK;
}

/* Row runs of operand w become columns of the result. */
static ndp_status product_rows(ndp_rule *r, int64_t row, int64_t rows, const ndp_tile *of, ndp_thing_kind kind) {
    for (int j = 0; j < r->in[1].n; j++) {
        const ndp_tile *w = &r->in[1].tiles[j];
        contraction c = {row, w->row, r->g->values[r->n->in[0]].view.cols, 0};
        if (w->col > 0)
            continue; /* of the same rows as one at column 0 */
        NDP_TRY(contract(r, 0, 1, &c));
        ndp_tile t = {.row = row, .rows = rows, .at_row = of->at_row, .among = of->among};
        t.col = w->row, t.cols = w->rows, t.at_col = w->at_row;
        t.what = (ndp_thing){kind, ndp_value_thing(r, r->n->out[0]).id};
        t.share = c.share;
        NDP_TRY(ndp_result(r, 0, t));
    }
    return NDP_OK;
}

/* Operand 0 times the rows of operand 1. */
static ndp_status product(ndp_rule *r, ndp_thing_kind kind) {
    if (r->in[0].cols == 0)
        return ndp_result_zero(r);
    int64_t *rows = ndp_arena_alloc(r->arena, (2 * (size_t)r->in[0].n + 2) * sizeof *rows);
    if (!rows)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory to check placements");
    for (int n = ndp_content_rows(&r->in[0], rows), i = 0; i + 1 < n; i++) {
        ndp_tile first = {0}, part;
        for (int k = 0; k < r->in[0].n; k++)
            if (ndp_tile_cut(&r->in[0].tiles[k], rows[i], 1, 0, 1, &part))
                first = part;
        NDP_TRY(product_rows(r, rows[i], rows[i + 1] - rows[i], &first, kind));
    }
    return NDP_OK;
}

/* The bias of the same columns as the result, added once: to a complete product. */
static ndp_status expect_bias(ndp_rule *r) {
    NDP_TRY(ndp_expect_param(r, 2, r->n->in[2]));
    for (int i = 0; i < r->out[0].n; i++) {
        const ndp_tile *y = &r->out[0].tiles[i];
        char is[300];
        if (y->share != 1)
            return ndp_refuse(r, "it adds a bias to %s", ndp_tile_text(r, y, is, sizeof is));
        for (int j = 0; j < r->in[2].n; j++) {
            ndp_tile b;
            if (ndp_tile_cut(&r->in[2].tiles[j], 0, 1, y->col, y->cols, &b) && b.at_col - b.col != y->at_col - y->col)
                return ndp_refuse(r, "its bias is of columns from %lld on, its product of %lld", (long long)b.at_col,
                                  (long long)(y->at_col + b.col - y->col));
        }
    }
    return NDP_OK;
}

ndp_status ndp_rule_linear(ndp_rule *r) {
    bool bias = ndp_rule_has(r, 2), wanted = r->n->n_in > 2 && r->n->in[2] != NDP_NONE;
    if (r->n->op != &ndp_op_linear)
        return ndp_refuse(r, "its node is a %s", r->n->op->name);
    if (bias && !wanted)
        return ndp_refuse(r, "its node has no bias");
    NDP_TRY(ndp_expect_value(r, 0, r->n->in[0], false));
    NDP_TRY(ndp_expect_weight(r, 1, r->n->in[1]));
    NDP_TRY(product(r, wanted && !bias ? NDP_THING_PRODUCT : NDP_THING_VALUE));
    return bias && r->in[0].cols > 0 ? expect_bias(r) : NDP_OK;
}

/* A sum over the columns of dy, operand 0, which are rows of w, operand 1. */
static ndp_status product_dx(ndp_rule *r) {
    int64_t columns = r->g->values[r->n->out[0]].view.cols;
    if (r->in[0].cols == 0)
        NDP_TRY(ndp_result_zero(r));
    for (int i = 0; i < r->in[0].n; i++)
        for (int j = 0; j < r->in[1].n; j++) {
            const ndp_tile *w = &r->in[1].tiles[j];
            ndp_tile dy, t;
            if (!ndp_tile_cut(&r->in[0].tiles[i], 0, r->in[0].rows, w->row, w->rows, &dy))
                continue;
            int64_t row = w->at_row + dy.col - w->row;
            if (row != dy.at_col)
                return ndp_refuse(r, "column %lld of dy meets row %lld of w", (long long)dy.at_col, (long long)row);
            t = dy;
            t.col = w->col, t.cols = w->cols, t.at_col = w->at_col;
            ndp_share share = ndp_range_share(ndp_node_dim(r, 5), columns, dy.at_col, dy.at_col + dy.cols);
            share = ndp_share_mul(ndp_share_mul(share, dy.share), r->uses->of[r->of][0]);
            NDP_TRY(ndp_result_add(r, 0, ndp_gradient_tile(r, r->n->in[0], t, share)));
        }
    return NDP_OK;
}

/* Of (dy, w, acc?). */
ndp_status ndp_rule_linear_dx(ndp_rule *r) {
    NDP_TRY(ndp_expect_gradient(r, 0, r->n->out[0]));
    NDP_TRY(ndp_expect_weight(r, 1, r->n->in[1]));
    NDP_TRY(product_dx(r));
    return ndp_add_earlier(r, 2, r->n->in[0]);
}

/* Of (dy, x): a sum over rows. */
ndp_status ndp_rule_linear_dw(ndp_rule *r) {
    NDP_TRY(ndp_expect_gradient(r, 0, r->n->out[0]));
    NDP_TRY(ndp_expect_value(r, 1, r->n->in[0], true));
    NDP_TRY(ndp_expect_alike(r, 0, 1, true));
    for (int i = 0; i < r->in[0].n; i++)
        for (int j = 0; j < r->in[1].n; j++) {
            const ndp_tile *dy = &r->in[0].tiles[i];
            ndp_tile x, t = *dy;
            if (!ndp_tile_cut(&r->in[1].tiles[j], dy->row, dy->rows, 0, r->in[1].cols, &x))
                continue;
            int64_t first = dy->at_row + x.row - dy->row;
            ndp_share share = ndp_share_mul(dy->share, ndp_rows_measure(r, first, x.rows));
            t.share = ndp_share_mul(share, r->uses->of[r->of][1]);
            t.row = dy->col, t.rows = dy->cols, t.at_row = dy->at_col;
            t.col = x.col, t.cols = x.cols, t.at_col = x.at_col;
            NDP_TRY(ndp_param_gradient(r, 0, r->n->in[1], t));
        }
    return NDP_OK;
}

/* Of (dy): the gradient of a bias, operand 2 of a linear or layernorm, 1 of add_bias. */
ndp_status ndp_rule_linear_db(ndp_rule *r) {
    int bias = r->n->op == &ndp_op_add_bias ? 1 : 2;
    NDP_TRY(ndp_expect_gradient(r, 0, r->n->out[0]));
    if (bias >= r->n->n_in || r->n->in[bias] == NDP_NONE || r->g->values[r->n->in[bias]].kind != NDP_VALUE_PARAM)
        return ndp_refuse(r, "its node has no bias");
    for (int i = 0; i < r->in[0].n; i++) {
        ndp_tile t = r->in[0].tiles[i];
        ndp_share share = ndp_share_mul(t.share, ndp_rows_measure(r, t.at_row, t.rows));
        t.share = ndp_share_mul(share, r->uses->of[r->of][bias]);
        t.row = 0, t.rows = 1, t.at_row = 0;
        NDP_TRY(ndp_param_gradient(r, 0, r->n->in[bias], t));
    }
    return NDP_OK;
}

/* ---- linear_stack ---- */

/* The whole stack: its matrices, and the rows of each; which set of sorted rows the offsets are of, 0: rows stand as in
 * the node's operands (rules_experts.c). */
typedef struct stack_of_node {
    int64_t groups, rows;
    uint64_t among;
} stack_of_node;

/* Where the groups begin: all of the node's offsets. Sums over groups of ranks are not known here. */
static ndp_status expect_offsets(ndp_rule *r, stack_of_node *s) {
    if (r->n->op != &ndp_op_linear_stack)
        return ndp_refuse(r, "its node is a %s", r->n->op->name);
    const ndp_value *v = &r->g->values[r->n->in[2]];
    *s = (stack_of_node){.groups = v->view.rows - 1};
    s->rows = r->g->values[r->n->in[1]].view.rows / s->groups;
    if (r->in[2].rows != v->view.rows)
        return ndp_refuse(r, "it has %lld groups of rows, must have %lld", (long long)r->in[2].rows - 1,
                          (long long)s->groups);
    if (v->kind == NDP_VALUE_DATA)
        return ndp_expect_input(r, 2, r->n->in[2]);
    NDP_TRY(ndp_expect_value(r, 2, r->n->in[2], true));
    for (int i = 0; i < r->in[2].n; i++) {
        if (r->in[2].tiles[i].at_row != r->in[2].tiles[i].row || r->in[2].tiles[i].among != r->in[2].tiles[0].among)
            return ndp_refuse(r, "its offsets are in another order");
        s->among = r->in[2].tiles[i].among;
    }
    return NDP_OK;
}

/* The group of a row depends on its place: operand k has the rows that the offsets are of or, where these are of no
 * sorted rows, all rows of value `value` of the node, in their places. */
static ndp_status expect_places(ndp_rule *r, int k, int value, const stack_of_node *s) {
    if (!s->among && r->in[k].rows != r->g->values[value].view.rows)
        return ndp_refuse(r, "operand %d has %lld rows, must have all %lld, since their places say their groups", k,
                          (long long)r->in[k].rows, (long long)r->g->values[value].view.rows);
    for (int i = 0; i < r->in[k].n; i++) {
        const ndp_tile *t = &r->in[k].tiles[i];
        if (t->among != s->among)
            return ndp_refuse(r, "row %lld of operand %d is not among the rows that the offsets were made for",
                              (long long)t->row, k);
        if (!s->among && t->at_row != t->row)
            return ndp_refuse(r, "row %lld of operand %d is row %lld of the whole, which may be of another group",
                              (long long)t->row, k, (long long)t->at_row);
    }
    return NDP_OK;
}

/* Matrix e of operand 1, as rows of a matrix alone. */
static ndp_status matrix_of_stack(ndp_rule *r, const stack_of_node *s, int64_t e, ndp_content *out) {
    int64_t rows = r->in[1].rows / s->groups;
    *out = ndp_content_of(r->arena, rows, r->in[1].cols);
    NDP_TRY(ndp_content_move(&r->in[1], e * rows, rows, 0, r->in[1].cols, 0, 0, out));
    for (int i = 0; i < out->n; i++) {
        ndp_tile *t = &out->tiles[i];
        t->at_row -= e * s->rows;
        if (t->at_row < 0 || t->at_row + t->rows > s->rows)
            return ndp_refuse(r, "rows %lld to %lld of its weights are not those of matrix %lld",
                              (long long)(t->at_row + e * s->rows), (long long)(t->at_row + t->rows + e * s->rows),
                              (long long)e);
    }
    ndp_content_join(out);
    return NDP_OK;
}

/* Of each matrix the same rows and columns. Operand 1 becomes the first of them: the sums are alike in all groups. */
static ndp_status expect_stack(ndp_rule *r, const stack_of_node *s) {
    ndp_content first, other;
    NDP_TRY(ndp_expect_weight(r, 1, r->n->in[1]));
    if (r->in[1].rows % s->groups != 0)
        return ndp_refuse(r, "it has %lld rows of weights for %lld groups", (long long)r->in[1].rows,
                          (long long)s->groups);
    NDP_TRY(matrix_of_stack(r, s, 0, &first));
    for (int64_t e = 1; e < s->groups; e++) {
        NDP_TRY(matrix_of_stack(r, s, e, &other));
        for (int i = 0; i < other.n && i < first.n; i++) /* glued segments are the same parameter */
            other.tiles[i].what = first.tiles[i].what;
        if (!ndp_contents_equal(&first, &other))
            return ndp_refuse(r, "of matrix %lld it has other rows or columns than of the first", (long long)e);
    }
    r->in[1] = first;
    return NDP_OK;
}

/* Of (x, w, offsets). */
ndp_status ndp_rule_linear_stack(ndp_rule *r) {
    stack_of_node s;
    NDP_TRY(expect_offsets(r, &s));
    NDP_TRY(ndp_expect_value(r, 0, r->n->in[0], false));
    NDP_TRY(expect_places(r, 0, r->n->in[0], &s));
    NDP_TRY(expect_stack(r, &s));
    return product(r, NDP_THING_VALUE);
}

/* Of (dy, w, offsets, acc?). */
ndp_status ndp_rule_linear_stack_dx(ndp_rule *r) {
    stack_of_node s;
    NDP_TRY(expect_offsets(r, &s));
    NDP_TRY(ndp_expect_gradient(r, 0, r->n->out[0]));
    NDP_TRY(expect_places(r, 0, r->n->out[0], &s));
    NDP_TRY(expect_stack(r, &s));
    NDP_TRY(product_dx(r));
    return ndp_add_earlier(r, 3, r->n->in[0]);
}

/* What rows of x are of all rows: sorted ones count by the rows that they are choices of. */
static ndp_share measure_of(const ndp_rule *r, const stack_of_node *s, const ndp_tile *x) {
    int64_t n = r->g->values[r->n->in[0]].view.rows, choices = n / r->g->inputs->rows[NDP_EXTENT_TOKENS];
    return s->among ? ndp_rows_measure(r, x->at_row / choices, x->rows / choices)
                    : ndp_range_share(ndp_node_dim(r, 6), n, x->row, x->row + x->rows);
}

/* Columns of dy and columns of x, of the rows in both: these rows and columns of the gradient of every matrix. */
static ndp_status stack_gradient(ndp_rule *r, const stack_of_node *s, const ndp_tile *dy, const ndp_tile *x) {
    int64_t rows = r->in[0].cols;
    ndp_share share = ndp_share_mul(dy->share, measure_of(r, s, x));
    for (int64_t e = 0; e < s->groups; e++) {
        ndp_tile t = *x;
        t.share = ndp_share_mul(share, r->uses->of[r->of][1]);
        t.row = e * rows + dy->col, t.rows = dy->cols, t.at_row = e * s->rows + dy->at_col;
        NDP_TRY(ndp_param_gradient(r, 0, r->n->in[1], t));
    }
    return NDP_OK;
}

/* Of (dy, x, offsets): a sum over the rows of each group; a part of the rows makes a part of each. */
ndp_status ndp_rule_linear_stack_dw(ndp_rule *r) {
    stack_of_node s;
    NDP_TRY(expect_offsets(r, &s));
    NDP_TRY(ndp_expect_gradient(r, 0, r->n->out[0]));
    NDP_TRY(ndp_expect_value(r, 1, r->n->in[0], true));
    NDP_TRY(expect_places(r, 0, r->n->out[0], &s));
    NDP_TRY(expect_places(r, 1, r->n->in[0], &s));
    for (int i = 0; i < r->in[0].n; i++)
        for (int j = 0; j < r->in[1].n; j++) {
            const ndp_tile *dy = &r->in[0].tiles[i];
            ndp_tile x;
            if (ndp_tile_cut(&r->in[1].tiles[j], dy->row, dy->rows, 0, r->in[1].cols, &x))
                NDP_TRY(stack_gradient(r, &s, dy, &x));
        }
    return NDP_OK;
}
