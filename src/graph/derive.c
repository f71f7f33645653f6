/* Deriving the backward of a unit's graph.
 *
 * ndp_graph_derive walks the forward nodes backwards and calls the backward rule of each op. A rule asks for the
 * gradient that arrives at an output, and adds nodes: to the list of input gradients, or, for a parameter's gradient,
 * to the list of weight gradients. d->grad[v] is the gradient of forward value v so far; a second consumer of v adds to
 * it (an `add` node, or the op's own operand for it). Invariants:
 *   - a gradient is complete once all consumers of v were visited, which come after v's own node in the forward;
 *   - the input gradients never read what only the weight gradients make, so a schedule may run that list first;
 *   - values share gradients (an `add` passes one to both summands, `add_columns` some of its columns), so an op in
 * place changes a copy where another reader is still to come;
 *   - values without needs_grad (inputs, frozen parameters, and what is made of them alone) get no gradient. */
#include "graph/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct derivation {
    ndp_bwd bwd; /* first: rules get &bwd */
    ndp_graph *g;
    const ndp_node *node;
    int at;    /* its place in the forward */
    int *grad; /* by forward value: its gradient so far, NDP_NONE */
    int n_forward;
} derivation;

/* The gradient of a value. One written through views of its columns is whole once all views are written. */
static int rule_grad_out(ndp_bwd *b, int i) {
    const derivation *d = (const derivation *)b;
    int v = d->node->out[i];
    return v == NDP_NONE ? NDP_NONE : d->grad[v];
}

static bool rule_wants(ndp_bwd *b, int i) {
    const derivation *d = (const derivation *)b;
    int v = i < d->node->n_in ? d->node->in[i] : NDP_NONE;
    return v != NDP_NONE && d->g->values[v].needs_grad;
}

static int gradient_storage(derivation *d, int v) {
    const ndp_view view = d->g->values[v].view;
    char name[160];
    snprintf(name, sizeof name, "d %s", d->g->values[v].name);
    return ndp_graph_value(d->g, name, view.rows, view.cols, view.dtype);
}

/* Where an op writes the gradient of a view: the same part of the parent's gradient. Views of columns cover all of it;
 * rows that no view has get 0. */
static int view_gradient(derivation *d, int v) {
    int parent = d->g->values[v].parent;
    const bool rows = d->g->values[v].view.rows < d->g->values[parent].view.rows;
    if (d->grad[parent] == NDP_NONE) {
        int to = d->grad[parent] = gradient_storage(d, parent);
        if (rows)
            ndp_graph_append(d->g, NDP_NODES_INPUT_GRAD, &ndp_op_zero, NULL, "d rows", &to, 1, &to, 1);
    }
    const ndp_value view = d->g->values[v], of = d->g->values[parent];
    return rows ? ndp_graph_rows(d->g, d->grad[parent], view.row - of.row, view.view.rows)
                : ndp_graph_columns(d->g, d->grad[parent], view.col - of.col, view.view.cols);
}

static ndp_status check_first_through_view(const derivation *d, int v) {
    return d->grad[v] == NDP_NONE
               ? NDP_OK
               : NDP_FAIL(NDP_EBUG, "graph %s: %s has two consumers through a view", d->g->name, d->g->values[v].name);
}

static ndp_status accumulate(derivation *d, int v, int made) {
    ndp_graph *g = d->g;
    if (d->grad[v] == NDP_NONE) {
        d->grad[v] = made;
        return NDP_OK;
    }
    int ins[2] = {d->grad[v], made}, out = NDP_NONE;
    ndp_graph_append(g, NDP_NODES_INPUT_GRAD, &ndp_op_add, NULL, "d sum", ins, 2, &out, 1);
    d->grad[v] = out;
    return g->status;
}

/* Whether something that runs later reads storage: a gradient that is part of a forward value not reached yet, or a
 * node of the list of weight gradients. `node` is the forward node of which the backward is written now: what stands
 * before it is still to be visited, and what it made itself is done. */
static bool read_later(const derivation *d, int root) {
    const ndp_graph *g = d->g;
    const ndp_nodes *forward = &g->nodes[NDP_NODES_FORWARD], *weights = &g->nodes[NDP_NODES_WEIGHT_GRAD];
    for (int i = 0; i < weights->n; i++)
        for (int k = 0; k < weights->items[i].n_in; k++)
            if (weights->items[i].in[k] != NDP_NONE && g->values[weights->items[i].in[k]].root == root)
                return true;
    if (g->input != NDP_NONE && d->grad[g->input] != NDP_NONE && g->values[d->grad[g->input]].root == root)
        return true;
    for (int i = 0; i < d->at; i++)
        for (int k = 0; k < forward->items[i].n_out; k++) {
            int v = forward->items[i].out[k];
            if (v != NDP_NONE && d->grad[v] != NDP_NONE && g->values[d->grad[v]].root == root)
                return true;
        }
    return false;
}

/* An op in place changes a gradient that others may still read, or that is to go elsewhere: then it changes a copy.
 * `to`: where its result goes, NDP_NONE: anywhere. */
static ndp_status own_operand(derivation *d, const ndp_op *op, int *operand, int *to) {
    ndp_graph *g = d->g;
    bool changes = op->in_place && ndp_op_kinds[op->id] != NDP_KIND_MARK;
    if (!changes || (*to == NDP_NONE && !read_later(d, g->values[*operand].root)))
        return NDP_OK;
    int from = *operand;
    ndp_graph_append(g, NDP_NODES_INPUT_GRAD, &ndp_op_copy, &(ndp_op_attr){.type = g->values[from].view.dtype},
                     "d copy", &from, 1, to, 1);
    *operand = *to;
    *to = NDP_NONE;
    return g->status;
}

static ndp_status rule_pass_grad(ndp_bwd *b, int i, int value) {
    derivation *d = (derivation *)b;
    int v = d->node->in[i];
    if (value == NDP_NONE || v == NDP_NONE || !d->g->values[v].needs_grad)
        return NDP_OK;
    if (d->g->values[v].parent == NDP_NONE)
        return accumulate(d, v, value);
    NDP_TRY(check_first_through_view(d, v));
    int to = d->grad[v] = view_gradient(d, v);
    ndp_graph_append(d->g, NDP_NODES_INPUT_GRAD, &ndp_op_copy, &(ndp_op_attr){.type = d->g->values[to].view.dtype},
                     "d view", (int[]){value}, 1, &to, 1);
    return d->g->status;
}

static ndp_status rule_intermediate(ndp_bwd *b, const ndp_op *op, const ndp_op_attr *attr, const int *ins, int n_in,
                                    int *made) {
    derivation *d = (derivation *)b;
    int own[NDP_OP_MAX_IN];
    memcpy(own, ins, (size_t)n_in * sizeof *own);
    *made = NDP_NONE;
    NDP_TRY(own_operand(d, op, own, made));
    ndp_graph_append(d->g, NDP_NODES_INPUT_GRAD, op, attr, op->name, own, n_in, made, 1);
    return d->g->status;
}

static ndp_status rule_input_grad(ndp_bwd *b, const ndp_op *op, const ndp_op_attr *attr, int *ins, int n_in,
                                  const int *outs, int n_out, int acc_slot, int *made) {
    derivation *d = (derivation *)b;
    ndp_graph *g = d->g;
    int target[NDP_OP_MAX_OUT], earlier = NDP_NONE;
    if (acc_slot >= 0) {
        earlier = d->grad[d->node->in[outs[0]]];
        ins[acc_slot] = earlier;
    }
    for (int k = 0; k < n_out; k++) {
        target[k] = NDP_NONE;
        int v = outs[k] < 0 ? NDP_NONE : d->node->in[outs[k]];
        if (v != NDP_NONE && g->values[v].parent != NDP_NONE) {
            bool adds = k == 0 && earlier != NDP_NONE; /* to what is there, element by element */
            NDP_TRY(adds ? NDP_OK : check_first_through_view(d, v));
            d->grad[v] = target[k] = adds ? earlier : view_gradient(d, v);
        }
    }
    NDP_TRY(own_operand(d, op, ins, target));
    char name[160];
    snprintf(name, sizeof name, "d %s", outs[0] < 0 ? op->name : g->values[d->node->in[outs[0]]].name);
    ndp_graph_append(g, NDP_NODES_INPUT_GRAD, op, attr, name, ins, n_in, target, n_out);
    for (int k = 0; k < n_out && g->status == NDP_OK; k++) {
        if (made)
            made[k] = target[k];
        int v = outs[k] < 0 ? NDP_NONE : d->node->in[outs[k]];
        if (v == NDP_NONE || g->values[v].parent != NDP_NONE)
            continue;
        if (k == 0 && earlier != NDP_NONE)
            d->grad[v] = target[k];
        else
            NDP_TRY(accumulate(d, v, target[k]));
    }
    return g->status;
}

static int rule_columns(ndp_bwd *b, int value, int64_t col, int i) {
    const derivation *d = (const derivation *)b;
    return ndp_graph_columns(d->g, value, col, d->g->values[d->node->in[i]].view.cols);
}

static ndp_status rule_weight_grad(ndp_bwd *b, const ndp_op *op, const ndp_op_attr *attr, const int *ins, int n_in,
                                   int i) {
    derivation *d = (derivation *)b;
    int out = ndp_graph_param_grad(d->g, d->node->in[i]);
    ndp_graph_append(d->g, NDP_NODES_WEIGHT_GRAD, op, attr, "dw", ins, n_in, &out, 1);
    return d->g->status;
}

static ndp_status rule_add_up(ndp_bwd *b, int value, int i) {
    derivation *d = (derivation *)b;
    int sum = d->node->out[i];
    ndp_graph_append(d->g, NDP_NODES_INPUT_GRAD, &ndp_op_reduce_sum, &(ndp_op_attr){.accumulate = true}, "losses",
                     &value, 1, &sum, 1);
    return d->g->status;
}

static bool has_gradient(const derivation *d, const ndp_node *n) {
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i] != NDP_NONE && n->out[i] < d->n_forward && d->grad[n->out[i]] != NDP_NONE)
            return true;
    return n->attr.train && n->op->backward; /* the loss starts the backward itself */
}

static ndp_status derive_nodes(derivation *d) {
    ndp_graph *g = d->g;
    for (int i = g->nodes[NDP_NODES_FORWARD].n - 1; i >= 0; i--) {
        /* A copy: the value and node arrays may move while rules add to them. */
        ndp_node node = g->nodes[NDP_NODES_FORWARD].items[i];
        if (!has_gradient(d, &node))
            continue;
        if (!node.op->backward)
            return NDP_FAIL(NDP_EBUG, "graph %s: op %s has no backward rule", g->name, node.op->name);
        d->node = &node;
        d->at = i;
        g->writing = node.of;
        d->bwd.attr = &node.attr, d->bwd.in = node.in, d->bwd.out = node.out;
        NDP_TRY(node.op->backward(&d->bwd));
        NDP_TRY(g->status);
    }
    return NDP_OK;
}

/* The gradient of the input leaves the unit as a block of its own: as rows of its columns alone, and not in the block
 * of the gradient that came in. */
static ndp_status finish_grad_input(derivation *d) {
    ndp_graph *g = d->g;
    int made = g->grad_input = d->grad[g->input];
    if (made == NDP_NONE)
        return NDP_OK;
    const ndp_value *v = &g->values[made];
    bool own = v->view.ld == v->view.cols && v->view.rows == g->values[v->root].view.rows;
    if (own && (g->grad_output == NDP_NONE || v->root != g->values[g->grad_output].root))
        return NDP_OK;
    int copy = NDP_NONE;
    ndp_graph_append(g, NDP_NODES_INPUT_GRAD, &ndp_op_copy, &(ndp_op_attr){.type = v->view.dtype}, "d x", &made, 1,
                     &copy, 1);
    g->grad_input = copy;
    return g->status;
}

ndp_status ndp_graph_derive(ndp_graph *g) {
    NDP_TRY(g->status);
    if (g->nodes[NDP_NODES_FORWARD].n_repeats > 0)
        return NDP_FAIL(NDP_EBUG, "graph %s: there is no rule for the backward of nodes that repeat", g->name);
    derivation d = {.bwd = {.grad_out = rule_grad_out,
                            .wants = rule_wants,
                            .input_grad = rule_input_grad,
                            .intermediate = rule_intermediate,
                            .pass_grad = rule_pass_grad,
                            .columns = rule_columns,
                            .weight_grad = rule_weight_grad,
                            .add_up = rule_add_up},
                    .g = g,
                    .n_forward = g->n_values};
    d.grad = malloc(((size_t)g->n_values + 1) * sizeof *d.grad);
    if (!d.grad)
        return NDP_FAIL(NDP_ENOMEM, "graph %s: not enough memory to derive its backward", g->name);
    for (int i = 0; i < g->n_values; i++)
        d.grad[i] = NDP_NONE;
    if (g->output != NDP_NONE && g->values[g->output].needs_grad) {
        g->grad_output = gradient_storage(&d, g->output);
        if (g->status == NDP_OK)
            d.grad[g->output] = g->grad_output;
    }
    ndp_status st = g->status == NDP_OK ? derive_nodes(&d) : g->status;
    g->writing = NDP_NONE;
    if (st == NDP_OK && g->input != NDP_NONE)
        st = finish_grad_input(&d);
    free(d.grad);
    return st;
}
