/* The tensor axis in adapters. Their products are linear ops as any (tensor.c): beside a projection whose rows are cut,
 * A is whole and works on this rank's slice of the rows, h is gathered, and B is cut as the projection is; beside one
 * whose columns are cut, A is cut and h is a sum over the ranks, on which the whole B works. Here is what knows
 * columns: where a projection's begin in a fused result, which ones dropout sees, and the lengths of rows for DoRA,
 * which are sums over the ranks where columns are cut.
 *
 * placement/rules_columns.c says what the pieces are. */
#include "parallel/pass.h"

/* Where column `first` of the whole value, at which a projection begins, is on this rank. */
static int64_t column_here(ndp_pass *p, int value, int64_t first) {
    const ndp_image *image = &p->images[value];
    int64_t whole = 0, here = 0;
    if (image->spread != NDP_SPREAD_COLS)
        return first;
    for (int i = 0; i < image->n && whole < first; i++) {
        const ndp_segment *s = &p->to->slots[image->slot]->items[image->of + i];
        for (int64_t member = 0; member < ndp_segment_matrices(s) && whole < first; member++)
            whole += s->part[0], here += s->rows; /* columns of a stack are the rows of an expert's members */
    }
    if (whole != first)
        p->to->status = NDP_FAIL(NDP_EBUG, "graph %s: no projection of %s begins at column %lld", p->from->name,
                                 p->from->values[value].name, (long long)first);
    return here;
}

/* The result has the columns of operand 0. */
static ndp_status out_like(ndp_pass *p, int value) {
    ndp_image was = p->images[p->node->in[0]], *image = &p->images[p->node->out[0]];
    ndp_pass_out(p, 0, value, was.spread);
    image->slot = was.slot, image->of = was.of, image->n = was.n;
    return p->to->status;
}

static const char *name_of(const ndp_pass *p) { return p->from->values[p->node->out[0]].name; }

ndp_status ndp_tensor_add_columns(ndp_pass *p) {
    int ins[2] = {ndp_pass_in(p, 0), ndp_pass_in(p, 1)};
    ndp_op_attr attr = p->node->attr;
    if (p->images[p->node->in[0]].spread != p->images[p->node->in[1]].spread)
        return NDP_FAIL(NDP_EBUG, "graph %s: %s and what is added to it are spread differently", p->from->name,
                        name_of(p));
    attr.first = column_here(p, p->node->in[0], attr.first);
    return out_like(p, ndp_graph_op1(p->to, &ndp_op_add_columns, &attr, name_of(p), ins, 2));
}

/* The first column of x on this rank: that of the product which reads what is kept of it. */
static int64_t first_column(const ndp_pass *p) {
    const ndp_nodes *nodes = &p->from->nodes[NDP_NODES_FORWARD];
    for (int i = 0; i < nodes->n; i++)
        if (nodes->items[i].op == &ndp_op_linear && nodes->items[i].in[0] == p->node->out[0]) {
            const ndp_value *w = &p->from->values[nodes->items[i].in[1]];
            const ndp_segment *s = &p->to->slots[w->slot]->items[w->segment];
            return s->first[1] - s->base[1];
        }
    return 0;
}

/* Keys are those of the rows that x has. */
ndp_status ndp_tensor_dropout(ndp_pass *p) {
    int ins[3] = {ndp_pass_in(p, 0), ndp_pass_in(p, 1), ndp_pass_in(p, 2)};
    ndp_spread spread = p->images[p->node->in[0]].spread;
    ndp_op_attr attr = p->node->attr;
    if (spread == NDP_SPREAD_ROWS)
        ins[1] = ndp_graph_rows(p->to, ins[1], p->mesh->coord[NDP_TP] * p->rows.slice, p->rows.slice);
    if (spread == NDP_SPREAD_COLS)
        attr.first = first_column(p);
    return out_like(p, ndp_graph_op1(p->to, &ndp_op_dropout, &attr, name_of(p), ins, 3));
}

ndp_status ndp_tensor_dora(ndp_pass *p) {
    int ins[3] = {ndp_pass_in(p, 0), ndp_pass_in(p, 1), ndp_pass_in(p, 2)};
    ndp_op_attr attr = p->node->attr;
    attr.first = column_here(p, p->node->in[0], attr.first);
    return out_like(p, ndp_graph_op1(p->to, &ndp_op_dora, &attr, name_of(p), ins, 3));
}

/* Rows of the weight, so that no axis of tokens cuts them. */
ndp_status ndp_tensor_dora_squares(ndp_pass *p) {
    int ins[3] = {ndp_pass_in(p, 0), ndp_pass_in(p, 1), ndp_pass_in(p, 2)};
    const ndp_segment *s = ndp_pass_segment(p, ins[0]);
    ndp_op_attr over = {.group = NDP_GROUP_TP, .ranks = p->tp};
    int squares = ndp_graph_op1(p->to, &ndp_op_dora_squares, &p->node->attr, name_of(p), ins, 3);
    if (p->tp > 1 && s->dim[0] == NDP_DIM_WHOLE && s->dim[1] != NDP_DIM_WHOLE)
        squares = ndp_graph_op1(p->to, &ndp_op_all_reduce, &over, name_of(p), &squares, 1);
    ndp_pass_out(p, 0, squares, NDP_SPREAD_SAME);
    return p->to->status;
}
