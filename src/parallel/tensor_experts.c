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
 * With ep, an expert is whole on its owner, and each rank routes its own t rows, a slice of the residual stream. Where
 * all ranks of tp have all rows, each takes its slice, and what comes back is gathered: a row is routed, and sent,
 * once. All ranks of ep know each other's choices, and so how many rows go from each of them to each other one. A row
 * goes once to a rank, with its weights, however many experts it has there; the sum of what they made comes back:
 *
 *   choices [t,K] --all_gather--> [ep t,K] --route_exchange--> which rows go where, the choices of those that come
 *   x [t,C], weights [t,K] --take--> by rank [t J,..] --all_to_all_rows--> [R,..] --order, take--> [N,C]
 *     --own experts--> [N,C] --weighted sums--> [R,C] --all_to_all_rows--> [t J,C] --sums--> [t,C]
 *
 * J is the most ranks that a row goes to. A round takes N choices of this rank's experts, and so R = min(N,
 * ep t) rows: capacity_factor times the t K that even routers send. What is beyond it comes in later rounds
 * (rounds.c); what does not come has no choice here.
 *
 * Factors of an adapter are stacks too, on the owners of their experts. Where tp cuts the ffn, B of gate and up and A
 * of down are cut with it. The other two are whole, and what they read, or its gradient, is a part of a sum, so that
 * their own gradients are parts. */
#include "ops/route.h"
#include "parallel/pass.h"

#include <math.h>

static int ep_of(const ndp_pass *p) { return p->mesh->layout.size[NDP_EP]; }

static bool sliced(const ndp_pass *p) { return ndp_mixtures_are_sliced(p->mesh); }

/* Of an input by row, the rows that the mixtures see. */
static int own_rows(ndp_pass *p, int value) {
    int64_t n = p->rows.routed;
    return sliced(p) && value != NDP_NONE ? ndp_graph_rows(p->to, value, p->mesh->coord[NDP_TP] * n, n) : value;
}

/* Attributes of a collective over the tensor axis of rows of which ranks have the same gradient. */
static ndp_op_attr over_slices(const ndp_pass *p) {
    int64_t first = p->mesh->coord[NDP_TP] * p->rows.routed;
    return (ndp_op_attr){.group = NDP_GROUP_TP, .ranks = p->tp, .first = first, .alike = true};
}

/* One slice for all its readers, whose gradients are gathered once. */
int ndp_pass_own(ndp_pass *p, int i) {
    int value = ndp_pass_in(p, i);
    ndp_image *image = &p->images[p->node->in[i]];
    ndp_op_attr attr = over_slices(p);
    if (!sliced(p) || image->spread != NDP_SPREAD_SAME)
        return value;
    if (image->own == NDP_NONE)
        image->own = ndp_graph_op1(p->to, &ndp_op_own_rows, &attr, p->from->values[p->node->in[i]].name, &value, 1);
    return image->own;
}

/* How many rows a rank hands over where all experts are as likely. */
static int64_t mean_rows(const ndp_pass *p, int64_t choices) {
    int64_t experts = p->exchange.experts, others = experts - experts / ep_of(p);
    double none = 1; /* of a row's choices is on a rank */
    for (int64_t i = 0; i < choices; i++)
        none *= others > i ? (double)(others - i) / (double)(experts - i) : 0;
    return (int64_t)((double)(p->rows.routed * ep_of(p)) * (1 - none) + 0.5);
}

static int all_to_all(const ndp_pass *p, int x, const char *name, bool back) {
    const ndp_exchange *e = &p->exchange;
    int64_t going = p->to->values[e->order].view.rows, coming = p->to->values[e->here].view.rows;
    ndp_op_attr attr = {.group = NDP_GROUP_EP,
                        .ranks = ep_of(p),
                        .inverse = back,
                        .go = back ? coming : going,
                        .come = back ? going : coming,
                        .mean = mean_rows(p, p->to->values[e->here].view.cols)};
    return ndp_graph_op1(p->to, &ndp_op_all_to_all_rows, &attr, name, (int[]){x, e->rows}, 2);
}

/* Sums of such values are made in a wider type, and rounded once. */
static bool is_narrow(const ndp_pass *p, ndp_dtype type) { return type == p->to->compute && ndp_wide(type) != type; }

/* Rows of `value`, which come of the ranks of ep; they are moved for the node that orders them. */
static int coming(ndp_pass *p, int value) {
    int writing = p->to->writing, ins[] = {value, p->exchange.order, p->exchange.places, NDP_NONE};
    const char *name = p->to->values[value].name;
    const ndp_op_attr attr = {.wide_grad = true, .type = p->to->compute};
    p->to->writing = p->exchange.of;
    int y = ndp_graph_op1(p->to, &ndp_op_take_rows, is_narrow(p, p->to->values[value].view.dtype) ? &attr : NULL, name,
                          ins, 4);
    y = all_to_all(p, y, name, false);
    p->to->writing = writing;
    return y;
}

/* And back: the sum of what a row's ranks made. */
static int going_back(ndp_pass *p, int value, const char *name) {
    int writing = p->to->writing;
    p->to->writing = p->exchange.of;
    int ins[] = {all_to_all(p, value, name, true), p->exchange.order, p->exchange.places, NDP_NONE, NDP_NONE};
    const ndp_op_attr wide = {.wide_grad = true}, rounded = {.type = p->to->compute};
    bool late = p->exchange.capacity > 0 && is_narrow(p, p->to->compute); /* after the last round */
    int x = ndp_graph_value(p->to, name, p->rows.routed, p->to->values[value].view.cols,
                            late ? ndp_wide(p->to->compute) : p->to->compute);
    ndp_graph_op(p->to, &ndp_op_give_rows, late ? &wide : NULL, name, ins, 5, &x, 1);
    x = late ? ndp_graph_op1(p->to, &ndp_op_copy, &rounded, name, (int[]){x, NDP_NONE}, 2) : x;
    p->to->writing = writing;
    ndp_op_attr attr = over_slices(p);
    return p->rows.routed < p->rows.slice ? ndp_graph_op1(p->to, &ndp_op_all_gather, &attr, name, &x, 1) : x;
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
        ndp_pass_out(p, i, outs[i], own ? NDP_SPREAD_ROWS : NDP_SPREAD_SAME);
    return p->to->status;
}

/* How many of the choices of all ranks' rows a round takes; 0: all. */
static int64_t capacity_of(const ndp_pass *p, int64_t choices) {
    int64_t own = p->rows.routed * choices;
    double capacity = ceil(p->how.capacity_factor * (double)own);
    if (capacity <= 0 || capacity >= (double)(own * ep_of(p)))
        return 0;
    return capacity > (double)choices ? (int64_t)capacity : choices;
}

/* Which rows go where, in the first round (rounds.c). Returns the choices of those that come. */
static int exchange_choices(ndp_pass *p, int choices, int64_t rank) {
    int outs[5] = {NDP_NONE, NDP_NONE, NDP_NONE, NDP_NONE, NDP_NONE};
    ndp_op_attr over = {.group = NDP_GROUP_EP, .ranks = ep_of(p), .type = NDP_I32};
    ndp_op_attr attr = {.experts = p->node->attr.experts,
                        .ranks = ep_of(p),
                        .first = rank,
                        .capacity = capacity_of(p, p->to->values[choices].view.cols)};
    int all = ndp_graph_op1(p->to, &ndp_op_all_gather, &over, "choices", &choices, 1);
    ndp_graph_op(p->to, &ndp_op_route_exchange, &attr, "exchange", (int[]){all, NDP_NONE}, 2, outs, 5);
    p->exchange = (ndp_exchange){p->to->writing, attr.experts, outs[0], outs[1], outs[2], outs[3], attr.capacity};
    return outs[3];
}

ndp_status ndp_experts_order(ndp_pass *p) {
    ndp_op_attr attr = p->node->attr;
    int choices = ndp_pass_in(p, 0), outs[3] = {NDP_NONE, NDP_NONE, NDP_NONE};
    int64_t all = attr.experts, rank = ndp_mesh_group(p->mesh, NDP_GROUP_EP).rank;
    if (ep_of(p) > 1)
        choices = exchange_choices(p, choices, rank);
    attr.first = ndp_expert_first(all, rank, ep_of(p));
    attr.experts = (int)(ndp_expert_first(all, rank + 1, ep_of(p)) - attr.first);
    attr.capacity = ep_of(p) > 1 ? p->exchange.capacity : 0;
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
    if (attr.wide_grad)
        attr.type = ndp_wide(p->to->compute); /* of a part of a sum, which is rounded later */
    int ins[4] = {exchanged ? coming(p, ndp_pass_own(p, 0)) : ndp_pass_enter(p, 0), ndp_pass_in(p, 1),
                  ndp_pass_in(p, 2), NDP_NONE};
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
    const ndp_segment *s = ndp_pass_segment(p, ins[1]);
    ndp_factor factor = ndp_factor_of(s->name);
    bool columns = !all && s->dim[0] == NDP_DIM_FFN, sums = !all && s->dim[1] == NDP_DIM_FFN;
    ndp_spread part = sums ? NDP_SPREAD_PART : p->images[p->node->in[0]].spread;
    ndp_op_attr attr = p->node->attr;
    attr.mean = ep_of(p) > 1 ? p->rows.routed * p->to->values[p->exchange.here].view.cols : 0;
    if (wide || (part == NDP_SPREAD_PART && factor != NDP_FACTOR_A))
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

/* Columns of the rows that are here. */
ndp_status ndp_experts_weigh(ndp_pass *p) {
    const ndp_image from = p->images[p->node->in[0]];
    int ins[4] = {ndp_pass_in(p, 0), ndp_pass_in(p, 1), ndp_pass_in(p, 2), ndp_pass_in(p, 3)};
    ins[3] = ep_of(p) > 1 ? coming(p, ins[3]) : ins[3];
    ndp_pass_out(p, 0, ndp_graph_op1(p->to, p->node->op, &p->node->attr, "weighted", ins, 4), from.spread);
    return p->to->status;
}

/* What this rank's experts made of the rows that came goes back. */
static ndp_status give_back(ndp_pass *p) {
    const char *name = p->from->values[p->node->out[0]].name;
    int ins[4] = {ndp_pass_in(p, 0), ndp_pass_in(p, 1), ndp_pass_in(p, 2), ndp_pass_in(p, 3)};
    ins[3] = ins[3] == NDP_NONE ? NDP_NONE : coming(p, ins[3]);
    const ndp_view *y = &p->to->values[ins[0]].view; /* wide where one rank's is: then parts are rounded once, summed */
    int x = ndp_graph_value(p->to, name, p->to->values[p->exchange.here].view.rows, y->cols, y->dtype);
    ndp_graph_op(p->to, &ndp_op_give_rows, &p->node->attr, name, ins, 4, &x, 1);
    ndp_pass_out(p, 0, going_back(p, x, name), ndp_pass_stream(p));
    return p->to->status;
}

ndp_status ndp_experts_give(ndp_pass *p) {
    const ndp_spread spread = p->images[p->node->in[0]].spread;
    if (ep_of(p) > 1)
        return give_back(p);
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
