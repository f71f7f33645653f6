/* Writing one node of a rank's graph: the images of values, and the rule of ops whose rows are alike.
 *
 * An image is what became of a value of the whole graph on this rank. Those that nodes make get theirs when the node is
 * written; parameters, inputs and views when a node first reads them, with the sizes that the rank's tables say. The
 * rules of tensor.c and context.c build on this file; apply.c chooses the rule. */
#include "parallel/pass.h"

/* ---- values ---- */

ndp_spread ndp_pass_stream(const ndp_pass *p) {
    return p->tp > 1 && p->how.tp_sequence_parallel ? NDP_SPREAD_ROWS : NDP_SPREAD_SAME;
}

/* Columns [col, col + cols) of an image: where the tensor axis cuts them they are the rows of glued segments and of the
 * members of stacks, and those of whole ones. */
static int columns_of(ndp_pass *p, const ndp_value *v) {
    const ndp_image *of = &p->images[v->parent];
    int64_t begin = v->col - p->from->values[v->parent].col, end = begin + v->view.cols, whole = 0, here = 0,
            first = -1;
    if (p->tp == 1 || of->spread != NDP_SPREAD_COLS)
        return ndp_graph_columns(p->to, of->value, begin, v->view.cols);
    for (int i = 0; i < of->n; i++) {
        const ndp_segment *s = &p->to->slots[of->slot]->items[of->of + i];
        for (int64_t member = 0; member < ndp_segment_matrices(s); member++) {
            if (whole == begin)
                first = here;
            whole += s->part[0];
            here += s->rows;
            if (whole == end && first >= 0)
                return ndp_graph_columns(p->to, of->value, first, here - first);
        }
    }
    p->to->status = NDP_FAIL(NDP_EBUG, "graph %s: columns %lld to %lld of %s are not whole projections", p->from->name,
                             (long long)begin, (long long)end, p->from->values[v->parent].name);
    return 0;
}

static ndp_image make_image(ndp_pass *p, int value) {
    const ndp_value *v = &p->from->values[value];
    ndp_image image = {.spread = NDP_SPREAD_SAME, .entered = NDP_NONE, .own = NDP_NONE};
    if (v->parent != NDP_NONE) {
        ndp_pass_value(p, v->parent);
        image.spread = p->images[v->parent].spread;
        image.value = columns_of(p, v);
    } else if (v->kind == NDP_VALUE_PARAM) {
        image.value = ndp_graph_param(p->to, v->slot, v->segment, v->segments);
    } else if (v->kind == NDP_VALUE_PGRAD) {
        image.value = ndp_graph_param_grad(p->to, ndp_graph_param(p->to, v->slot, v->segment, v->segments));
    } else if (v->kind == NDP_VALUE_DATA) {
        image.value = ndp_graph_data(p->to, v->input);
    } else if (value == p->from->input) {
        image.spread = ndp_pass_stream(p);
        image.value = ndp_graph_input(p->to, p->rows.slice, v->view.cols);
    } else {
        p->to->status = NDP_FAIL(NDP_EBUG, "graph %s: %s is used before it is made", p->from->name, v->name);
    }
    return image;
}

int ndp_pass_value(ndp_pass *p, int value) {
    if (p->images[value].spread == NDP_SPREAD_NONE)
        p->images[value] = make_image(p, value);
    return p->images[value].value;
}

int ndp_pass_in(ndp_pass *p, int i) {
    return p->node->in[i] == NDP_NONE ? NDP_NONE : ndp_pass_value(p, p->node->in[i]);
}

void ndp_pass_out(ndp_pass *p, int i, int value, ndp_spread spread) {
    if (p->node->out[i] != NDP_NONE)
        p->images[p->node->out[i]] =
            (ndp_image){.value = value, .spread = spread, .entered = NDP_NONE, .own = NDP_NONE};
}

int ndp_pass_contiguous(ndp_pass *p, int value) {
    ndp_view v = p->to->values[value].view;
    return v.ld == v.cols
               ? value
               : ndp_graph_op1(p->to, &ndp_op_copy, &(ndp_op_attr){.type = v.dtype}, "contiguous", (int[]){value}, 1);
}

/* ---- ops that work row by row ---- */

/* Each row of the outputs is made of the same rows of the operands, which are spread alike. */
ndp_status ndp_pass_rowwise(ndp_pass *p) {
    const ndp_node *n = p->node;
    int ins[NDP_OP_MAX_IN], outs[NDP_OP_MAX_OUT], of = NDP_NONE;
    for (int i = 0; i < n->n_in; i++) {
        ins[i] = ndp_pass_in(p, i);
        if (ins[i] == NDP_NONE || p->from->values[n->in[i]].kind != NDP_VALUE_ACT)
            continue;
        if (of != NDP_NONE && p->images[of].spread != p->images[n->in[i]].spread)
            return NDP_FAIL(NDP_EBUG, "graph %s: the operands %s and %s of %s are spread differently", p->from->name,
                            p->from->values[of].name, p->from->values[n->in[i]].name, n->op->name);
        of = of == NDP_NONE ? n->in[i] : of;
    }
    for (int i = 0; i < n->n_out; i++) {
        bool made = n->out[i] != NDP_NONE && p->from->values[n->out[i]].kind == NDP_VALUE_ACT;
        outs[i] = made || n->out[i] == NDP_NONE ? NDP_NONE : ndp_pass_value(p, n->out[i]);
    }
    ndp_op_attr attr = ndp_local_attr(p->mesh, p->node->attr);
    const char *name = n->n_out && n->out[0] != NDP_NONE ? p->from->values[n->out[0]].name : n->op->name;
    ndp_graph_op(p->to, n->op, &attr, name, ins, n->n_in, outs, n->n_out);
    ndp_spread spread = of == NDP_NONE ? NDP_SPREAD_SAME : p->images[of].spread;
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i] != NDP_NONE && p->from->values[n->out[i]].kind == NDP_VALUE_ACT)
            ndp_pass_out(p, i, outs[i], spread);
    if (n->op->in_place && of != NDP_NONE) { /* changed in place: its columns are what they were */
        ndp_image *image = &p->images[n->out[0]], *was = &p->images[n->in[0]];
        image->slot = was->slot, image->of = was->of, image->n = was->n;
    }
    return p->to->status;
}
