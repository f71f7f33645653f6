/* Functions of packed matrices and of stacks of products. */
#include "placement/rule.h"

/* ---- packed matrices ---- */

/* Operand k is all of that part of the segment. */
static ndp_status expect_packed(ndp_rule *r, int k, int slot, int segment, const ndp_packed *p) {
    const ndp_view *must = &p->part[k], *is = &r->c->in[k].view;
    if (!ndp_rule_has(r, k))
        return must->rows == 0 ? NDP_OK : ndp_refuse(r, "it has no operand %d", k);
    bool all = r->in[k].n == 1 && is->rows == must->rows && is->cols == must->cols && is->dtype == must->dtype;
    const ndp_tile *t = r->in[k].n > 0 ? &r->in[k].tiles[0] : NULL;
    if (must->rows * must->cols == 0)
        return NDP_OK;
    if (!all || t->rows != must->rows || t->cols != must->cols ||
        !ndp_thing_is(t->what, NDP_THING_PACKED, ndp_thing_packed(slot, segment, k)))
        return ndp_refuse(r, "operand %d is %s, [%lld,%lld]; it must be part %d of %s, [%lld,%lld]", k,
                          t ? ndp_tile_text(r, t).s : "what nothing wrote", (long long)is->rows, (long long)is->cols, k,
                          r->g->slots[slot]->items[segment].name, (long long)must->rows, (long long)must->cols);
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

/* Of (codes, scales, nested?): the rows of the node's matrix that the segment, of a stack all its members, has on this
 * rank. */
ndp_status ndp_after_unpack(ndp_rule *r) {
    const ndp_value *param = &r->g->values[r->n->in[0]], *rows = &r->g->values[r->n->out[0]];
    const ndp_segments *table = &r->lane->tables[r->buffers[param->slot]];
    const ndp_segment *s = &table->items[param->segment];
    ndp_packed p = ndp_segment_packed(table, s);
    const ndp_view *w = &r->c->out[0].view;
    for (int k = 0; k < NDP_PACKED_PARTS; k++)
        NDP_TRY(expect_packed(r, k, param->slot, param->segment, &p));
    if (table->packing == NDP_PACKING_NF4)
        NDP_TRY(expect_blocks(r, s));
    int64_t must = ndp_segment_matrices(s) * s->rows;
    if (w->rows != must || w->cols != s->cols)
        return ndp_refuse(r, "it makes [%lld,%lld] of a matrix of [%lld,%lld]", (long long)w->rows, (long long)w->cols,
                          (long long)must, (long long)s->cols);
    for (int64_t i = 0; i < ndp_segment_tiles(s); i++) {
        ndp_tile t = ndp_segment_tile(s, i);
        t.at_row += rows->row, t.what = ndp_value_thing(r, rows->parent);
        NDP_TRY(ndp_result(r, 0, t));
    }
    return NDP_OK;
}

/* ---- stacks of products ---- */

/* Where the groups begin, operand k: the offsets of consecutive groups, which are all, or this rank's experts. */
static ndp_status expect_offsets(ndp_rule *r, int k) {
    ndp_stack *s = &r->stack;
    const ndp_value *v = &r->g->values[r->n->in[2]];
    const ndp_tile *first = r->in[k].n > 0 ? &r->in[k].tiles[0] : NULL;
    *s = (ndp_stack){.groups = r->in[k].rows - 1, .whole = v->view.rows - 1};
    s->rows = r->g->values[r->n->in[1]].view.rows / s->whole;
    s->first = first ? first->at_row - first->row : 0;
    if (s->groups < 1 || s->first + s->groups > s->whole)
        return ndp_refuse(r, "it has groups %lld to %lld of %lld", (long long)s->first,
                          (long long)(s->first + s->groups), (long long)s->whole);
    for (int i = 0; i < r->in[k].n; i++) {
        const ndp_tile *t = &r->in[k].tiles[i];
        if (t->at_row != t->row + s->first || t->among != first->among || t->share != first->share)
            return ndp_refuse(r, "its offsets are in another order");
        s->among = t->among;
    }
    return s->groups == s->whole || s->among
               ? NDP_OK
               : ndp_refuse(r, "it has %lld groups of rows, must have %lld", (long long)s->groups, (long long)s->whole);
}

/* The group of a row depends on its place: operand k has the rows that the offsets are of or, where these are of no
 * sorted rows, all rows of value `value` of the node, in their places. */
static ndp_status expect_places(const ndp_rule *r, int k, int value) {
    const ndp_stack *s = &r->stack;
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
static ndp_status matrix_of_stack(ndp_rule *r, int64_t e, ndp_content *out) {
    const ndp_stack *s = &r->stack;
    int64_t rows = r->in[1].rows / s->groups;
    *out = ndp_content_of(r->arena, rows, r->in[1].cols);
    NDP_TRY(ndp_content_move(&r->in[1], e * rows, rows, 0, r->in[1].cols, 0, 0, out));
    for (int i = 0; i < out->n; i++) {
        ndp_tile *t = &out->tiles[i];
        t->at_row -= (s->first + e) * s->rows;
        if (t->at_row < 0 || t->at_row + t->rows > s->rows)
            return ndp_refuse(r, "rows %lld to %lld of its weights are not those of matrix %lld",
                              (long long)(t->at_row + (s->first + e) * s->rows),
                              (long long)(t->at_row + t->rows + (s->first + e) * s->rows), (long long)(s->first + e));
    }
    ndp_content_join(out);
    return NDP_OK;
}

/* Of each matrix the same rows and columns. Operand 1 becomes the first of them: the sums are alike in all groups. */
static ndp_status expect_stack(ndp_rule *r) {
    const ndp_stack *s = &r->stack;
    ndp_content first, other;
    if (r->in[1].rows % s->groups != 0)
        return ndp_refuse(r, "it has %lld rows of weights for %lld groups", (long long)r->in[1].rows,
                          (long long)s->groups);
    NDP_TRY(matrix_of_stack(r, 0, &first));
    for (int64_t e = 1; e < s->groups; e++) {
        NDP_TRY(matrix_of_stack(r, e, &other));
        for (int i = 0; i < other.n && i < first.n; i++) /* glued segments are the same parameter */
            other.tiles[i].what = first.tiles[i].what;
        if (!ndp_contents_equal(&first, &other))
            return ndp_refuse(r, "of matrix %lld it has other rows or columns than of the first", (long long)e);
    }
    r->in[1] = first;
    return NDP_OK;
}

/* Of (x or dy, w or, for the gradient of w, x, offsets). */
ndp_status ndp_before_stack(ndp_rule *r) {
    const ndp_node *n = r->n;
    bool sums = r->c->op == &ndp_op_linear_stack_dw;
    NDP_TRY(expect_offsets(r, 2));
    NDP_TRY(expect_places(r, 0, r->c->op == n->op ? n->in[0] : n->out[0]));
    return sums ? expect_places(r, 1, n->in[0]) : expect_stack(r);
}

/* Of (y, bias, offsets), or (dy, offsets): a row's group says its bias. The sum over rows of a group is not one over
 * all: it counts what it has of the rows. */
ndp_status ndp_before_stack_bias(ndp_rule *r) {
    const ndp_node *n = r->n;
    bool sums = r->c->op != n->op;
    if (r->c->attr.parts < 1)
        return ndp_refuse(r, "it has a bias of %d ranks", r->c->attr.parts);
    NDP_TRY(expect_offsets(r, sums ? 1 : 2));
    NDP_TRY(expect_places(r, 0, sums ? n->out[0] : n->in[0]));
    for (int i = 0; !sums && i < r->in[1].n; i++)
        if (r->in[1].rows != r->stack.groups || r->in[1].tiles[i].at_row != r->in[1].tiles[i].row + r->stack.first)
            return ndp_refuse(r, "it adds the biases of groups from %lld on to rows of those from %lld on",
                              (long long)r->in[1].tiles[i].at_row, (long long)r->stack.first);
    r->stack.groups = r->stack.first = 0; /* the gradient of all groups is one tile */
    return NDP_OK;
}

/* The product and the bias are summands of their own, and count as two indices of a dimension: only where both are
 * complete is the sum. */
ndp_status ndp_after_stack_bias(ndp_rule *r) {
    ndp_share product = ndp_range_share(ndp_node_dim(r, '+'), 2, 0, 1);
    ndp_share bias = ndp_share_mul(ndp_share_sub(1, product), ndp_share_inverse(ndp_share_of(r->c->attr.parts)));
    for (int i = 0; i < r->out[0].n; i++)
        r->out[0].tiles[i].share = ndp_share_add(ndp_share_mul(r->out[0].tiles[i].share, product), bias);
    return NDP_OK;
}
