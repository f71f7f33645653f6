/* Rounds of rows to experts of other ranks. A rank plans memory for some of the rows that may come to it
 * (ndp_parallel.capacity_factor); the others come in later rounds, as many as the choices of all ranks ask for.
 *
 * The rank's graph has the first round, and its backward. Here each of its lists gets a range of copies, which is
 * executed once for each later round: what moves in a round, and what is made of it, is made again, and the sums that
 * leave it (a row's result, gradients of rows, of their weights and of the experts) are added to those of the first
 * round. A backward list makes the forward of a later round again, so that only the first one's is kept. The gradients
 * of the experts have a range of their own: so the list of input gradients writes none, and of balanced choices, one
 * round, nothing is made twice. */
#include "ops/route.h"
#include "parallel/pass.h"

#include <stdlib.h>

typedef struct rounds {
    ndp_graph *g;
    int n_values;      /* as it was */
    ndp_node exchange; /* of the first round */
    ndp_nodes old[NDP_NODE_LISTS];
    bool *moves;  /* by value: by root, it is of a round */
    bool *wanted; /* the same: a copy of it is needed */
    int *copies;  /* by value; NDP_NONE: none yet */
    ndp_node_list list;
    int index;
} rounds;

static int root_of(const rounds *r, int value) { return r->g->values[value].root; }

static bool moves(const rounds *r, const ndp_node *n) {
    bool any = n->op == &ndp_op_route_exchange;
    for (int k = 0; k < n->n_in; k++)
        any |= n->in[k] != NDP_NONE && r->moves[root_of(r, n->in[k])];
    return any;
}

/* What it makes is a sum over all rounds: rows where this rank has them, or the gradient of a parameter. */
static bool is_sum(const rounds *r, const ndp_node *n) {
    return (n->op == &ndp_op_give_rows && n->in[2] == r->exchange.out[1]) ||
           r->g->values[n->out[0]].kind == NDP_VALUE_PGRAD;
}

static void mark_moves(rounds *r) {
    for (int list = 0; list < NDP_NODE_LISTS; list++)
        for (int i = 0; i < r->old[list].n; i++) {
            const ndp_node *n = &r->old[list].items[i];
            for (int k = 0; k < n->n_out && moves(r, n) && !is_sum(r, n); k++)
                if (n->out[k] != NDP_NONE)
                    r->moves[root_of(r, n->out[k])] = true;
        }
}

/* ---- copies ---- */

static bool is_wanted(const rounds *r, const ndp_node *n) {
    bool any = false;
    for (int k = 0; k < n->n_out; k++)
        any |= n->out[k] != NDP_NONE && r->wanted[root_of(r, n->out[k])];
    return any;
}

/* Whether the range of this list copies node i of list `from`: if it makes a sum there, or what one needs. */
static bool *choose_nodes(rounds *r, int n_nodes) {
    bool *chosen = calloc((size_t)n_nodes + 1, sizeof *chosen);
    int at = n_nodes;
    for (int v = 0; v < r->n_values; v++)
        r->wanted[v] = false;
    for (int from = (int)r->list; chosen && from >= 0; from--)
        for (int i = r->old[from].n - 1; i >= 0; i--) {
            const ndp_node *n = &r->old[from].items[i];
            chosen[--at] = (from == (int)r->list && moves(r, n) && is_sum(r, n)) || is_wanted(r, n);
            for (int k = 0; chosen[at] && k < n->n_in; k++)
                if (n->in[k] != NDP_NONE && r->moves[root_of(r, n->in[k])])
                    r->wanted[root_of(r, n->in[k])] = true;
        }
    return chosen;
}

/* The value's copy; what does not move is itself. */
static int copy_of(rounds *r, int value) {
    if (value == NDP_NONE || !r->moves[root_of(r, value)])
        return value;
    if (r->copies[value] != NDP_NONE)
        return r->copies[value];
    ndp_value v = r->g->values[value]; /* values may move */
    int made;
    if (v.parent == NDP_NONE) {
        made = ndp_graph_value(r->g, v.name, v.view.rows, v.view.cols, v.view.dtype);
    } else {
        int parent = copy_of(r, v.parent);
        const ndp_value *of = &r->g->values[v.parent];
        made = v.view.cols < of->view.cols ? ndp_graph_columns(r->g, parent, v.col - of->col, v.view.cols)
                                           : ndp_graph_rows(r->g, parent, v.row - of->row, v.view.rows);
    }
    return r->copies[value] = made;
}

/* A result in place has the storage of its operand: the graph makes it so. */
static int copy_of_out(rounds *r, const ndp_node *n, int k) {
    const ndp_value *v = n->out[k] == NDP_NONE ? NULL : &r->g->values[n->out[k]];
    bool in_place = v && v->root != n->out[k] && v->parent == NDP_NONE;
    return in_place && r->copies[n->out[k]] == NDP_NONE ? NDP_NONE : copy_of(r, n->out[k]);
}

static void append(const rounds *r, ndp_node *n) {
    r->g->writing = n->of;
    ndp_graph_append(r->g, r->list, n->op, &n->attr, n->op->name, n->in, n->n_in, n->out, n->n_out);
}

static void copy_node(rounds *r, const ndp_node *from) {
    ndp_node n = *from;
    for (int k = 0; k < n.n_in; k++)
        n.in[k] = copy_of(r, from->in[k]);
    for (int k = 0; k < n.n_out; k++)
        n.out[k] = copy_of_out(r, from, k);
    if (n.op == &ndp_op_route_exchange)
        n.in[1] = r->index;
    if (is_sum(r, from) && n.op == &ndp_op_give_rows)
        n.in[4] = n.out[0];
    append(r, &n);
    for (int k = 0; k < n.n_out; k++)
        if (from->out[k] != NDP_NONE && r->moves[root_of(r, from->out[k])])
            r->copies[from->out[k]] = n.out[k];
}

/* Copies of all that the sums of this list need, in the order in which it was made. */
static void write_range(rounds *r) {
    ndp_graph *g = r->g;
    const ndp_view choices = g->values[r->exchange.in[0]].view;
    int n_nodes = 0, first = g->nodes[r->list].n, at = 0;
    for (int from = 0; from <= (int)r->list; from++)
        n_nodes += r->old[from].n;
    bool *chosen = choose_nodes(r, n_nodes);
    g->status = g->status == NDP_OK ? NDP_MEMORY(chosen, "to write graph %s for a rank", g->name) : g->status;
    for (int v = 0; v < r->n_values; v++)
        r->copies[v] = NDP_NONE;
    r->index = ndp_graph_value(g, "round", 1, 1, NDP_I64);
    for (int from = 0; from <= (int)r->list; from++)
        for (int i = 0; i < r->old[from].n && g->status == NDP_OK; i++)
            if (chosen[at++])
                copy_node(r, &r->old[from].items[i]);
    free(chosen);
    if (g->nodes[r->list].n > first)
        ndp_graph_repeat(g, r->list, first,
                         ndp_later_rounds(&r->exchange.attr, choices.cols, choices.rows * choices.cols),
                         r->exchange.out[4], r->index);
}

/* ---- lists ---- */

/* The last node of the list that moves; NDP_NONE: none does. Until then nothing else touches the sums. */
static int last_moving(rounds *r) {
    const ndp_nodes *nodes = &r->old[r->list];
    int last = NDP_NONE;
    for (int i = 0; i < nodes->n; i++)
        last = moves(r, &nodes->items[i]) ? i : last;
    for (int i = 0; i < last; i++) {
        const ndp_node *sum = &nodes->items[i];
        for (int j = i + 1; j < last && moves(r, sum) && is_sum(r, sum); j++)
            for (int k = 0; k < nodes->items[j].n_in + nodes->items[j].n_out; k++) {
                const ndp_node *n = &nodes->items[j];
                int value = k < n->n_in ? n->in[k] : n->out[k - n->n_in];
                if (value != NDP_NONE && root_of(r, value) == root_of(r, sum->out[0]))
                    r->g->status = NDP_FAIL(NDP_EBUG, "graph %s: %s is read before it has all rounds", r->g->name,
                                            r->g->values[sum->out[0]].name);
            }
    }
    return last;
}

static void write_list(rounds *r) {
    int last = last_moving(r);
    for (int i = 0; i < r->old[r->list].n && r->g->status == NDP_OK; i++) {
        append(r, &r->old[r->list].items[i]);
        if (i == last)
            write_range(r);
    }
}

static ndp_status write_all(rounds *r) {
    ndp_graph *g = r->g;
    for (int list = 0; list < NDP_NODE_LISTS; list++) {
        if (g->nodes[list].n_repeats > 0)
            return NDP_FAIL(NDP_EBUG, "graph %s repeats nodes before its rounds are written", g->name);
        r->old[list] = g->nodes[list];
        g->nodes[list] = (ndp_nodes){0};
    }
    mark_moves(r);
    for (int list = 0; list < NDP_NODE_LISTS; list++) {
        r->list = (ndp_node_list)list;
        write_list(r);
    }
    g->writing = NDP_NONE;
    return g->status;
}

ndp_status ndp_write_rounds(ndp_graph *g) {
    rounds r = {.g = g, .n_values = g->n_values};
    size_t n = (size_t)g->n_values + 1;
    int found = 0;
    for (int i = 0; i < g->nodes[NDP_NODES_FORWARD].n; i++) {
        const ndp_node *node = &g->nodes[NDP_NODES_FORWARD].items[i];
        if (node->op != &ndp_op_route_exchange || node->attr.capacity == 0)
            continue;
        r.exchange = *node;
        found++;
    }
    if (found == 0)
        return NDP_OK;
    if (found > 1)
        return NDP_FAIL(NDP_ENOTSUP,
                        "unit %s has %d mixtures; rounds of rows over ep are for one: set "
                        "moe.capacity_factor: 0",
                        g->name, found);
    r.moves = calloc(n, sizeof *r.moves), r.wanted = calloc(n, sizeof *r.wanted),
    r.copies = calloc(n, sizeof *r.copies);
    ndp_status st = NDP_MEMORY(r.moves && r.wanted && r.copies, "to write graph %s for a rank", g->name);
    if (st == NDP_OK)
        st = write_all(&r);
    free(r.moves);
    free(r.wanted);
    free(r.copies);
    for (int list = 0; list < NDP_NODE_LISTS; list++)
        free(r.old[list].items);
    return st;
}
