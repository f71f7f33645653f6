/* From the whole model to what one rank computes of it.
 *
 * Tables first: each buffer's segments are cut over the tensor axis. Then each graph is written again, node by node, by
 * the rule of its op: a rule of tensor.c or context.c where the op reads parameters that are cut or sees other rows,
 * and ndp_pass_rowwise for ops whose rows are alike (ndp_op.rows). An op that mixes rows and has no rule here is
 * refused, with the axis named, where an axis cuts rows: on a part of them it would compute something else, silently.
 * The backward is derived from the rank's forward, and only then are gathers repeated in it (again.c) and attention
 * written as a ring (context.c).
 *
 * Invariant: no graph of a rank contains a size of another rank; ranks differ in sizes, offsets and the order of keys,
 * never in the order of their collectives. step/ calls this once for each engine. */
#include "parallel/apply.h"

#include "parallel/pass.h"
#include <stdlib.h>

/* ---- which rule writes a node ---- */

static const struct tensor_rule {
    const ndp_op *op;
    ndp_status (*write)(ndp_pass *p);
} rules[] = {{&ndp_op_embedding, ndp_tensor_embedding},
             {&ndp_op_linear, ndp_tensor_linear},
             {&ndp_op_xent, ndp_tensor_xent},
             {&ndp_op_rmsnorm, ndp_tensor_rmsnorm},
             {&ndp_op_attention, ndp_context_attention}};

/* The first axis that cuts the rows of what this node reads; NDP_AXES: none does. */
static ndp_axis axis_of_rows(ndp_pass *p) {
    if (p->rows.cp > 1 || p->rows.sp > 1)
        return p->rows.cp > 1 ? NDP_CP : NDP_SP;
    for (int i = 0; i < p->node->n_in; i++)
        if (ndp_pass_in(p, i) != NDP_NONE && p->images[p->node->in[i]].spread == NDP_SPREAD_ROWS)
            return NDP_TP;
    return NDP_AXES;
}

/* An op that mixes rows and has no rule above would compute something else on a part of the rows. */
static ndp_status check_mixed(ndp_pass *p) {
    ndp_axis axis = axis_of_rows(p);
    if (axis == NDP_AXES)
        return NDP_OK;
    const char *name = ndp_axis_name(axis);
    return NDP_FAIL(NDP_ENOTSUP,
                    "unit %s: op %s mixes rows, and %s_size %d cuts the rows: set %sparallelism.%s_size: 1",
                    p->from->name, p->node->op->name, name, p->mesh->layout.size[axis],
                    axis == NDP_TP ? "parallelism.tp_sequence_parallel: false, or " : "", name);
}

/* A sum over rows is right on a part of them where the step adds up what the ranks make: gradients, the loss. */
static ndp_status check_summed(const ndp_pass *p) {
    for (int i = 0; i < p->node->n_out; i++) {
        int out = p->node->out[i];
        if (out != NDP_NONE && p->from->values[out].kind == NDP_VALUE_ACT)
            return NDP_FAIL(NDP_EBUG, "graph %s: op %s makes %s, a sum over rows that no rank completes", p->from->name,
                            p->node->op->name, p->from->values[out].name);
    }
    return NDP_OK;
}

static ndp_status write_node(ndp_pass *p) {
    const ndp_op *op = p->node->op;
    for (int i = 0; i < NDP_COUNT(rules); i++)
        if (rules[i].op == op)
            return rules[i].write(p);
    NDP_TRY(op->rows == NDP_ROWS_MIXED    ? check_mixed(p)
            : op->rows == NDP_ROWS_SUMMED ? check_summed(p)
            : op->rows == NDP_ROWS_ALIKE  ? NDP_OK
                                          : NDP_FAIL(NDP_EBUG, "op %s has no rule for its rows", op->name));
    return ndp_pass_rowwise(p);
}

/* ---- a graph, a model ---- */

static ndp_status write_graph(ndp_pass *p) {
    const ndp_nodes *nodes = &p->from->nodes[NDP_NODES_FORWARD];
    p->images = calloc((size_t)p->from->n_values + 1, sizeof *p->images);
    if (!p->images)
        return NDP_FAIL(NDP_ENOMEM, "graph %s: no memory to write it for a rank", p->from->name);
    ndp_status st = NDP_OK;
    for (int i = 0; i < nodes->n && st == NDP_OK; i++) {
        p->node = &nodes->items[i];
        st = write_node(p);
        st = st == NDP_OK ? p->to->status : st;
    }
    if (st == NDP_OK && p->from->output != NDP_NONE)
        ndp_graph_output(p->to, ndp_pass_value(p, p->from->output));
    free(p->images);
    NDP_TRY(st);
    if (p->whole->opts.mode == NDP_MODEL_TRAIN)
        NDP_TRY(ndp_graph_derive(p->to));
    NDP_TRY(ndp_gather_again(p->to, NDP_NODES_WEIGHT_GRAD, NDP_GROUP_TP));
    NDP_TRY(ndp_gather_again(p->to, NDP_NODES_INPUT_GRAD, NDP_GROUP_CP));
    return p->rows.ring ? ndp_context_ring(p->to, &p->rows) : NDP_OK;
}

/* The inputs, with the rows of this rank. A cache is not cut. */
static ndp_status copy_inputs(const ndp_model *whole, const ndp_row_cut *rows, ndp_model *m) {
    ndp_inputs *in = m->inputs = ndp_arena_alloc(&m->arena, sizeof *in);
    if (!in)
        return NDP_FAIL(NDP_ENOMEM, "no memory for the inputs of the model");
    *in = *whole->inputs;
    in->rows[NDP_EXTENT_TOKENS] = rows->tokens;
    in->rows[NDP_EXTENT_QUERIES] = rows->queries;
    if (whole->opts.mode != NDP_MODEL_CACHED)
        in->rows[NDP_EXTENT_KEYS] = rows->keys;
    return NDP_OK;
}

static ndp_status copy_tables(const ndp_model *whole, const ndp_mesh *mesh, const ndp_parallel *how, ndp_model *m) {
    m->buffers = ndp_arena_alloc(&m->arena, (size_t)m->n_buffers * sizeof *m->buffers);
    m->units = ndp_arena_alloc(&m->arena, (size_t)m->n_units * sizeof *m->units);
    if (!m->buffers || !m->units)
        return NDP_FAIL(NDP_ENOMEM, "no memory for the tables of %d units", m->n_units);
    for (int i = 0; i < m->n_units; i++) {
        m->units[i] = whole->units[i];
        m->units[i].name = ndp_arena_strdup(&m->arena, whole->units[i].name);
    }
    for (int i = 0; i < m->n_buffers; i++) {
        const ndp_segments *from = &whole->buffers[i].segments;
        ndp_segments *to = &m->buffers[i].segments;
        m->buffers[i] = whole->buffers[i];
        m->buffers[i].name = ndp_arena_strdup(&m->arena, whole->buffers[i].name);
        to->items = ndp_arena_alloc(&m->arena, (size_t)from->n * sizeof *to->items);
        if (!to->items)
            return NDP_FAIL(NDP_ENOMEM, "no memory for the tables of %d units", m->n_units);
        for (int k = 0; k < from->n; k++) {
            to->items[k] = from->items[k];
            to->items[k].name = ndp_arena_strdup(&m->arena, from->items[k].name);
        }
        ndp_tensor_cut(&whole->facts, mesh, how, to);
        ndp_segments_layout(to);
    }
    return NDP_OK;
}

/* The buffer whose table a slot of a whole graph has. */
static const ndp_segments *table_of(const ndp_model *whole, const ndp_model *m, const ndp_segments *slot) {
    for (int i = 0; i < whole->n_buffers; i++)
        if (&whole->buffers[i].segments == slot)
            return &m->buffers[i].segments;
    return NULL;
}

static ndp_status write_graphs(ndp_pass *p) {
    for (int i = 0; i < p->whole->n_graphs; i++) {
        p->from = &p->whole->graphs[i];
        p->to = &p->local->graphs[i];
        ndp_graph_init(p->to, p->from->name, p->from->compute, p->from->grad);
        p->to->inputs = p->local->inputs;
        p->to->ends_backward = p->from->ends_backward;
        for (int s = 0; s < NDP_SLOTS; s++)
            p->to->slots[s] = table_of(p->whole, p->local, p->from->slots[s]), p->to->frozen[s] = p->from->frozen[s];
        NDP_TRY(write_graph(p));
    }
    return NDP_OK;
}

ndp_status ndp_parallel_apply(const ndp_model *whole, const ndp_mesh *mesh, const ndp_parallel *how, ndp_model *out) {
    ndp_model m = {.facts = whole->facts,
                   .opts = whole->opts,
                   .n_buffers = whole->n_buffers,
                   .n_units = whole->n_units,
                   .n_graphs = whole->n_graphs};
    NDP_TRY(ndp_tensor_check_mesh(whole, mesh));
    ndp_pass p = {.whole = whole, .local = &m, .mesh = mesh, .how = *how, .tp = mesh->layout.size[NDP_TP]};
    p.rows = ndp_cut_rows(whole->opts.rows, mesh, how);
    ndp_status st = copy_inputs(whole, &p.rows, &m);
    if (st == NDP_OK)
        st = copy_tables(whole, mesh, how, &m);
    if (st == NDP_OK)
        st = write_graphs(&p);
    if (st != NDP_OK) {
        ndp_trail_add(__FILE__, __LINE__);
        ndp_model_release(&m);
        return st;
    }
    *out = m;
    return NDP_OK;
}
