/* A mixture of experts on one rank's rows and ffn. The context and sequence axes cut rows: each rank routes its own,
 * and its experts see those alone. Without ep, the tensor axis cuts every expert's ffn, as a dense MLP's:
 *
 *   logits [T/tp,E] --all_gather--> route, order on every rank
 *   x [T/tp,C] --all_gather--> rows in order [N,C] --stack, rows cut--> [N,2F/tp] ... --stack, columns cut--> part
 * [N,C]
 *     --weighted sums--> part [T,C] --reduce_scatter--> [T/tp,C]
 *
 * The sums over a row's experts come before those over ranks, which so move T rows, not N. The gradient of the weights,
 * and so that of the logits, is a part on every rank; the gathering's conjugate sums them.
 *
 * With ep, an expert is whole on its owner, and each rank routes its own t rows, a slice of the residual stream. The
 * ranks of ep see the rows of all of them, with their choices and weights, and order those of their own experts:
 *
 *   x [t,C], choices [t,K], weights [t,K] --all_gather--> [ep t,..] --order, take--> [ep N,C] --own experts--> [ep N,C]
 *     --weighted sums--> part [ep t,C] --reduce_scatter--> [t,C]
 *
 * Gradients of rows and of weights are parts likewise, a part of a router's sum for each expert of the row. */
#include "parallel/pass.h"

static int ep_of(const ndp_pass *p) { return p->mesh->layout.size[NDP_EP]; }

/* True if this rank's mixtures see a slice of its rows. */
static bool sliced(const ndp_pass *p) { return ep_of(p) > 1 && ndp_pass_stream(p) == NDP_SPREAD_ROWS; }

/* Of an input by row, the rows that the mixtures see. */
static int own_rows(ndp_pass *p, int value) {
    int64_t n = p->rows.slice;
    return sliced(p) && value != NDP_NONE ? ndp_graph_rows(p->to, value, p->mesh->coord[NDP_TP] * n, n) : value;
}

/* What input i is on all ranks of ep, gathered once for all its readers; its gradient is summed over them. */
static int of_all_ranks(ndp_pass *p, int i) {
    int x = ndp_pass_in(p, i);
    ndp_image *image = &p->images[p->node->in[i]];
    const ndp_value *v = &p->to->values[x];
    ndp_op_attr attr = {.group = NDP_GROUP_EP, .ranks = ep_of(p), .type = v->view.dtype};
    attr.wide_grad = v->view.dtype == p->to->compute && p->to->compute != ndp_wide(p->to->compute);
    if (image->exchanged == 0)
        image->exchanged =
            1 + ndp_graph_op1(p->to, &ndp_op_all_gather, &attr, v->name, (int[]){ndp_pass_contiguous(p, x)}, 1);
    return image->exchanged - 1;
}

ndp_status ndp_experts_route(ndp_pass *p) {
    if (p->tp == 1)
        return ndp_pass_rowwise(p);
    int n_in = p->node->n_in, n_out = p->node->n_out, ins[4], outs[3] = {NDP_NONE, NDP_NONE, NDP_NONE};
    bool own = ep_of(p) > 1;
    ins[0] = own ? ndp_pass_in(p, 0) : ndp_pass_enter(p, 0);
    for (int i = 1; i < n_in; i++)
        ins[i] = i < 3 ? own_rows(p, ndp_pass_in(p, i)) : ndp_pass_in(p, i);
    if (n_out > 2)
        outs[2] = own_rows(p, ndp_pass_value(p, p->node->out[2]));
    ndp_graph_op(p->to, &ndp_op_route, &p->node->attr, "choices", ins, n_in, outs, n_out);
    for (int i = 0; i < 2; i++)
        ndp_pass_out(p, i, outs[i], own ? ndp_pass_stream(p) : NDP_SPREAD_SAME);
    return p->to->status;
}

ndp_status ndp_experts_order(ndp_pass *p) {
    ndp_op_attr attr = p->node->attr;
    int choices = ep_of(p) > 1 ? of_all_ranks(p, 0) : ndp_pass_in(p, 0), outs[3] = {NDP_NONE, NDP_NONE, NDP_NONE};
    int64_t all = attr.experts, rank = ndp_mesh_group(p->mesh, NDP_GROUP_EP).rank;
    attr.first = all * rank / ep_of(p);
    attr.experts = (int)(all * (rank + 1) / ep_of(p) - attr.first);
    ndp_graph_op(p->to, &ndp_op_route_order, &attr, "order", &choices, 1, outs, 3);
    for (int i = 0; i < 3; i++)
        ndp_pass_out(p, i, outs[i], NDP_SPREAD_SAME);
    return p->to->status;
}

/* Of all rows of a micro-batch: those of the tensor axis are here, or cut as well, the others have theirs. */
ndp_status ndp_experts_counts(ndp_pass *p) {
    int ins[] = {ndp_pass_in(p, 0), own_rows(p, ndp_pass_in(p, 1))};
    ndp_op_attr over = {.group = NDP_GROUP_TP, .ranks = p->tp};
    int counts = ndp_graph_op1(p->to, &ndp_op_choice_counts, &p->node->attr, "counts", ins, 2);
    if (sliced(p))
        counts = ndp_graph_op1(p->to, &ndp_op_all_reduce, &over, "counts", &counts, 1);
    ndp_pass_out(p, 0, ndp_pass_sum_rows(p, counts, "counts"), NDP_SPREAD_SAME);
    return p->to->status;
}

/* Every rank of the tensor axis has all rows, and makes the same losses and the same gradient. The losses are not
 * summed over this axis; the gradient is, so each makes a part of it. */
ndp_status ndp_experts_losses(ndp_pass *p) {
    ndp_op_attr attr = p->node->attr;
    attr.parts = p->tp;
    int ins[4] = {ndp_pass_enter(p, 0), ndp_pass_in(p, 1), ndp_pass_in(p, 2), ndp_pass_in(p, 3)};
    int sums = ndp_pass_value(p, p->node->out[0]);
    ndp_graph_op(p->to, &ndp_op_router_losses, &attr, "losses", ins, 4, &sums, 1);
    return p->to->status;
}

ndp_status ndp_experts_take(ndp_pass *p) {
    bool exchanged = ep_of(p) > 1;
    if (p->tp == 1 && !exchanged)
        return ndp_pass_rowwise(p);
    ndp_op_attr attr = p->node->attr;
    attr.wide_grad = ndp_pass_over_tp(p).wide_grad;
    int ins[4] = {exchanged ? of_all_ranks(p, 0) : ndp_pass_enter(p, 0), ndp_pass_in(p, 1), ndp_pass_in(p, 2),
                  NDP_NONE};
    ndp_pass_out(p, 0, ndp_graph_op1(p->to, &ndp_op_take_rows, &attr, "taken", ins, 4), NDP_SPREAD_SAME);
    return p->to->status;
}

ndp_status ndp_experts_stack(ndp_pass *p) {
    bool all = p->tp == 1 || ep_of(p) > 1; /* of an expert */
    bool wide = p->from->values[p->node->out[0]].view.dtype != p->to->compute;
    if (p->tp == 1 && ep_of(p) == 1 && !wide)
        return ndp_pass_rowwise(p);
    const ndp_value *whole = &p->from->values[p->node->in[1]];
    int ins[3] = {ndp_pass_in(p, 0), ndp_pass_in(p, 1), ndp_pass_in(p, 2)}, y = NDP_NONE;
    const char *name = p->from->values[p->node->out[0]].name;
    bool columns = !all && ndp_pass_segment(p, ins[1])->dim[0] != NDP_DIM_WHOLE;
    ndp_spread part = all ? p->images[p->node->in[0]].spread : NDP_SPREAD_PART;
    ndp_op_attr attr = p->node->attr;
    attr.wide_grad = columns && ndp_pass_over_tp(p).wide_grad;
    attr.parts = ep_of(p) > 1 ? ep_of(p) : 0;
    if (!columns && (wide || !all))
        y = ndp_graph_value(p->to, name, p->to->values[ins[0]].view.rows, p->from->values[p->node->out[0]].view.cols,
                            ndp_wide(p->to->compute));
    ndp_graph_op(p->to, &ndp_op_linear_stack, &attr, name, ins, 3, &y, 1);
    ndp_pass_out(p, 0, y, columns ? NDP_SPREAD_COLS : part);
    ndp_image *image = &p->images[p->node->out[0]];
    image->slot = whole->slot, image->of = whole->segment, image->n = columns ? whole->segments : 0;
    return p->to->status;
}

/* Each rank adds a part of the bias to its part of a sum, so that choices weigh both alike. */
ndp_status ndp_experts_bias(ndp_pass *p) {
    ndp_image *image = &p->images[p->node->out[0]];
    int ins[3] = {ndp_pass_in(p, 0), ndp_pass_in(p, 1), ndp_pass_in(p, 2)};
    ndp_op_attr attr = p->node->attr;
    const ndp_image from = p->images[p->node->in[0]];
    attr.parts = from.spread == NDP_SPREAD_PART ? p->tp : 1;
    int y = ndp_graph_op1(p->to, &ndp_op_stack_bias, &attr, p->from->values[p->node->out[0]].name, ins, 3);
    ndp_pass_out(p, 0, y, from.spread);
    image->slot = from.slot, image->of = from.of, image->n = from.n;
    return p->to->status;
}

/* What this rank's experts made of the rows of all ranks of ep: summed, each rank gets its own rows. */
static ndp_status give_to_all_ranks(ndp_pass *p) {
    const char *name = p->from->values[p->node->out[0]].name;
    int ins[4] = {ndp_pass_in(p, 0), ndp_pass_in(p, 1), ndp_pass_in(p, 2), of_all_ranks(p, 3)};
    ndp_op_attr over = {.group = NDP_GROUP_EP, .ranks = ep_of(p), .type = p->to->compute};
    int x = ndp_graph_value(p->to, name, p->rows.slice * over.ranks, p->to->values[ins[0]].view.cols,
                            ndp_wide(p->to->compute));
    ndp_graph_op(p->to, &ndp_op_give_rows, &p->node->attr, name, ins, 4, &x, 1);
    x = ndp_graph_op1(p->to, &ndp_op_reduce_scatter, &over, name, &x, 1);
    if (p->to->values[x].view.dtype != p->to->compute)
        x = ndp_graph_op1(p->to, &ndp_op_copy, &over, name, &x, 1);
    ndp_pass_out(p, 0, x, ndp_pass_stream(p));
    return p->to->status;
}

ndp_status ndp_experts_give(ndp_pass *p) {
    const ndp_spread spread = p->images[p->node->in[0]].spread;
    if (ep_of(p) > 1)
        return give_to_all_ranks(p);
    if (p->tp == 1 && p->to->values[ndp_pass_in(p, 0)].view.dtype == p->to->compute)
        return ndp_pass_rowwise(p);
    if (p->tp > 1 && spread != NDP_SPREAD_PART)
        return NDP_FAIL(NDP_EBUG, "graph %s: what give_rows sums is no part of a product over the tensor axis",
                        p->from->name);
    const char *name = p->from->values[p->node->out[0]].name;
    int ins[5] = {NDP_NONE, NDP_NONE, NDP_NONE, NDP_NONE, NDP_NONE};
    for (int i = 0; i < p->node->n_in; i++)
        ins[i] = ndp_pass_in(p, i);
    int x = ndp_graph_value(p->to, name, p->rows.tokens, p->to->values[ins[0]].view.cols,
                            p->tp > 1 ? ndp_wide(p->to->compute) : p->to->compute);
    ndp_graph_op(p->to, &ndp_op_give_rows, &p->node->attr, name, ins, p->node->n_in, &x, 1);
    ndp_pass_out(p, 0, p->tp > 1 ? ndp_pass_leave(p, x, NDP_NONE, name) : x, p->tp > 1 ? ndp_pass_stream(p) : spread);
    return p->to->status;
}
