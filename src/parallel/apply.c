/* From the whole model to what one rank computes of it.
 *
 * Tables first: each buffer's segments are cut over the tensor axis. Then each graph is written again, node by node, by
 * the rule of its op: a rule of tensor.c or context.c where the op reads parameters that are cut or sees other rows,
 * and ndp_pass_rowwise for ops whose rows are alike (ndp_op.rows). An op that mixes rows and has no rule here is
 * refused, with the axis named, where an axis cuts rows: on a part of them it would compute something else, silently.
 * The backward is derived from the rank's forward, and only then are gathers repeated in it (again.c) and attention
 * written as a ring (context.c). graph/passes.h lists these passes.
 *
 * Invariant: no graph of a rank contains a size of another rank; ranks differ in sizes, offsets and the order of keys,
 * never in the order of their collectives. step/ calls this once for each engine. */
#include "parallel/apply.h"

#include "parallel/held.h"
#include "parallel/pass.h"
#include <stdlib.h>

/* ---- which rule writes a node ---- */

static const struct tensor_rule {
    const ndp_op *op;
    ndp_status (*write)(ndp_pass *p);
} rules[] = {{&ndp_op_embedding, ndp_tensor_embedding},
             {&ndp_op_linear, ndp_tensor_linear},
             {&ndp_op_unpack, ndp_tensor_unpack},
             {&ndp_op_xent, ndp_tensor_xent},
             {&ndp_op_row_loss, ndp_tensor_row_loss},
             {&ndp_op_rmsnorm, ndp_tensor_rmsnorm},
             {&ndp_op_latent_keys, ndp_tensor_latent_keys},
             {&ndp_op_add_columns, ndp_tensor_add_columns},
             {&ndp_op_dropout, ndp_tensor_dropout},
             {&ndp_op_dora, ndp_tensor_dora},
             {&ndp_op_dora_squares, ndp_tensor_dora_squares},
             {&ndp_op_attention, ndp_context_attention},
             {&ndp_op_conv_silu, ndp_context_filter},
             {&ndp_op_delta_rule, ndp_context_delta},
             {&ndp_op_row_score, ndp_pairs_row_score},
             {&ndp_op_document_sums, ndp_pairs_document_sums},
             {&ndp_op_pair_loss, ndp_pass_rowwise}, /* of whole documents */
             {&ndp_op_pair_rows, ndp_pass_rowwise},
             {&ndp_op_route, ndp_experts_route},
             {&ndp_op_choice_counts, ndp_experts_counts},
             {&ndp_op_router_losses, ndp_experts_losses},
             {&ndp_op_route_order, ndp_experts_order},
             {&ndp_op_take_rows, ndp_experts_take},
             {&ndp_op_linear_stack, ndp_experts_stack},
             {&ndp_op_stack_bias, ndp_experts_bias},
             {&ndp_op_weigh_rows, ndp_experts_weigh},
             {&ndp_op_give_rows, ndp_experts_give}};

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

static ndp_status pass_forward(ndp_pass *p) {
    const ndp_nodes *nodes = &p->from->nodes[NDP_NODES_FORWARD];
    p->images = calloc((size_t)p->from->n_values + 1, sizeof *p->images);
    if (!p->images)
        return NDP_FAIL(NDP_ENOMEM, "graph %s: not enough memory to write it for a rank", p->from->name);
    ndp_status st = NDP_OK;
    for (int i = 0; i < nodes->n && st == NDP_OK; i++) {
        p->node = &nodes->items[i];
        p->to->writing = i;
        st = write_node(p);
        st = st == NDP_OK ? p->to->status : st;
    }
    if (st == NDP_OK && p->from->output != NDP_NONE)
        ndp_graph_output(p->to, ndp_pass_value(p, p->from->output));
    free(p->images);
    p->to->writing = NDP_NONE;
    return st;
}

static ndp_status pass_backward(ndp_pass *p) { return ndp_graph_derive(p->to); }

static ndp_status pass_take_again(ndp_pass *p) { return ndp_take_again(p->to, NDP_NODES_WEIGHT_GRAD); }

static ndp_status pass_gather_tp_again(ndp_pass *p) {
    return ndp_gather_again(p->to, NDP_NODES_WEIGHT_GRAD, NDP_GROUP_TP);
}

static ndp_status pass_gather_cp_again(ndp_pass *p) {
    return ndp_gather_again(p->to, NDP_NODES_INPUT_GRAD, NDP_GROUP_CP);
}

static ndp_status pass_states_again(ndp_pass *p) {
    NDP_TRY(ndp_states_again(p->to, NDP_NODES_INPUT_GRAD));
    return ndp_states_again(p->to, NDP_NODES_WEIGHT_GRAD);
}

static ndp_status pass_unpack_again(ndp_pass *p) {
    NDP_TRY(ndp_unpack_again(p->to, NDP_NODES_INPUT_GRAD));
    return ndp_unpack_again(p->to, NDP_NODES_WEIGHT_GRAD);
}

static ndp_status pass_ring(ndp_pass *p) { return ndp_context_ring(p->to, &p->rows); }

static ndp_status pass_maps(ndp_pass *p) { return ndp_context_maps(p->to); }

static ndp_status pass_rounds(ndp_pass *p) { return ndp_write_rounds(p->to); }

/* The inputs, with the rows of this rank. A cache is not cut. */
static ndp_status pass_rows(ndp_pass *p) {
    const ndp_model *whole = p->whole;
    const ndp_row_cut *rows = &p->rows;
    ndp_model *m = p->local;
    ndp_inputs *in = m->inputs = ndp_arena_alloc(&m->arena, sizeof *in);
    NDP_CHECK_MEMORY(in, "for the inputs of the model");
    *in = *whole->inputs;
    in->mixtures.n = 0; /* counted with the units */
    in->rows[NDP_EXTENT_TOKENS] = rows->tokens;
    in->rows[NDP_EXTENT_QUERIES] = rows->queries;
    if (whole->opts.mode != NDP_MODEL_CACHED)
        in->rows[NDP_EXTENT_KEYS] = rows->keys;
    return NDP_OK;
}

/* The units of this rank's stages, and p->buffers. */
static ndp_status pass_units(ndp_pass *p) {
    const ndp_model *whole = p->whole;
    ndp_model *m = p->local;
    int *local = p->buffers, pp = p->mesh->coord[NDP_PP];
    m->units = ndp_arena_alloc(&m->arena, (size_t)whole->n_units * sizeof *m->units);
    NDP_CHECK_MEMORY(m->units, "for the tables of %d units", whole->n_units);
    for (int i = 0; i < whole->n_buffers; i++)
        local[i] = NDP_NONE;
    for (int i = 0; i < whole->n_units; i++) {
        if (!ndp_stages_have(p->stages, pp, i))
            continue;
        ndp_unit *u = &m->units[m->n_units++];
        *u = whole->units[i];
        u->name = ndp_arena_strdup(&m->arena, whole->units[i].name);
        u->number = i;
        u->mixture = u->mixture == NDP_NONE ? NDP_NONE : m->inputs->mixtures.n++;
        u->stage = ndp_stage_of(p->stages, i);
        for (int s = 0; s < NDP_SLOTS; s++)
            if (u->buffers[s] != NDP_NONE)
                local[u->buffers[s]] = 0;
    }
    for (int i = 0; i < whole->n_buffers; i++)
        local[i] = local[i] == NDP_NONE ? NDP_NONE : m->n_buffers++;
    for (int i = 0; i < m->n_units; i++)
        for (int s = 0; s < NDP_SLOTS; s++)
            if (m->units[i].buffers[s] != NDP_NONE)
                m->units[i].buffers[s] = local[m->units[i].buffers[s]];
    return NDP_OK;
}

/* The group of the two ranks of the pipeline that hold a buffer of the whole model; NDP_GROUPS: this rank alone. */
static ndp_status find_tie(const ndp_pass *p, int buffer, ndp_group_kind *out) {
    int pair[2];
    bool more, tied = ndp_stages_pair(p->whole, p->stages, buffer, pair, &more);
    *out = tied && !more ? ndp_mesh_pair(p->mesh, pair) : NDP_GROUPS;
    if (tied && *out == NDP_GROUPS)
        return NDP_FAIL(NDP_EBUG, "the mesh has no group of the ranks of the pipeline that share %s",
                        p->whole->buffers[buffer].name);
    return NDP_OK;
}

ndp_status ndp_parallel_segments(const ndp_segments *whole, const ndp_mesh *mesh, const ndp_parallel *how,
                                 ndp_arena *arena, ndp_segments *out) {
    *out = *whole;
    out->items = ndp_arena_alloc(arena, (size_t)out->n * sizeof *out->items);
    NDP_CHECK_MEMORY(out->items, "for a table of %d tensors", out->n);
    for (int k = 0; k < out->n; k++) {
        out->items[k] = whole->items[k];
        out->items[k].name = ndp_arena_strdup(arena, whole->items[k].name);
    }
    for (int k = 0; k < out->n; k++)
        for (int kind = 0; kind < NDP_GROUPS; kind++)
            if (whole->items[k].sums & NDP_GROUP_BIT(kind))
                ndp_held_by(&out->items[k], mesh, (ndp_group_kind)kind, true);
    ndp_tensor_cut(mesh, how, out);
    out->align = whole->packing == NDP_PACKING_NONE ? how->align : 0;
    ndp_segments_layout(out);
    return NDP_OK;
}

static ndp_status copy_buffer(const ndp_pass *p, const ndp_buffer *whole, ndp_buffer *out) {
    ndp_segments *to = &out->segments;
    ndp_group_kind tie;
    *out = *whole;
    out->name = ndp_arena_strdup(&p->local->arena, whole->name);
    if (p->mesh->layout.size[NDP_EP] > 1 && whole->segments.n > 0 && ndp_segment_is_stack(&whole->segments.items[0]))
        out->owners = NDP_GROUP_EXPERT_SHARD;
    NDP_TRY(ndp_parallel_segments(&whole->segments, p->mesh, &p->how, &p->local->arena, to));
    NDP_TRY(find_tie(p, (int)(whole - p->whole->buffers), &tie));
    for (int k = 0; tie != NDP_GROUPS && k < to->n; k++)
        ndp_held_by(&to->items[k], p->mesh, tie, true);
    return NDP_OK;
}

static ndp_status pass_buffers(ndp_pass *p) {
    ndp_model *m = p->local;
    m->buffers = ndp_arena_alloc(&m->arena, (size_t)m->n_buffers * sizeof *m->buffers);
    NDP_CHECK_MEMORY(m->buffers, "for the tables of %d buffers", m->n_buffers);
    for (int i = 0; i < p->whole->n_buffers; i++)
        if (p->buffers[i] != NDP_NONE)
            NDP_TRY(copy_buffer(p, &p->whole->buffers[i], &m->buffers[p->buffers[i]]));
    return NDP_OK;
}

/* The first unit of this rank with that graph; NULL: there is none. Its tables stand for those of all alike. */
static const ndp_unit *unit_with(const ndp_model *m, int graph) {
    for (int i = 0; i < m->n_units; i++)
        if (m->units[i].graph == graph)
            return &m->units[i];
    return NULL;
}

/* ---- the passes, as graph/passes.h lists them ---- */

static bool when_always(const ndp_pass *p) {
    (void)p;
    return true;
}

static bool when_training(const ndp_pass *p) { return p->whole->opts.mode == NDP_MODEL_TRAIN; }

static bool when_experts(const ndp_pass *p) { return ndp_graph_has_op(p->to, &ndp_op_take_rows); }

/* Only ranks that exchange or gather rows over sp keep more of them otherwise. */
static bool when_states(const ndp_pass *p) { return p->rows.sp > 1 && ndp_graph_has_op(p->to, &ndp_op_conv_silu); }

static bool when_maps(const ndp_pass *p) { return p->rows.cp > 1 && ndp_graph_has_op(p->to, &ndp_op_delta_rule); }

static bool when_packed(const ndp_pass *p) {
    bool packed = false;
    for (int s = 0; s < NDP_SLOTS; s++)
        packed |= p->to->slots[s] && p->to->slots[s]->packing != NDP_PACKING_NONE;
    return packed;
}

static bool when_ring(const ndp_pass *p) { return p->rows.ring; }

typedef struct pass_row {
    bool (*when)(const ndp_pass *p);
    ndp_status (*run)(ndp_pass *p);
} pass_row;
#define ROW(name, when, writes, does) {when_##when, pass_##name},
static const pass_row model_passes[] = {NDP_MODEL_PASSES(ROW)}, graph_passes[] = {NDP_GRAPH_PASSES(ROW)};
#undef ROW

/* `first`: the number of the first of the n passes. */
static ndp_status run_passes(ndp_pass *p, const pass_row *rows, int n, int first) {
    for (int i = 0; i < n; i++) {
        if (!rows[i].when(p))
            continue;
        int64_t before = p->to ? ndp_graph_nodes(p->to) : 0;
        NDP_TRY(rows[i].run(p));
        ndp_pass_note(&p->local->passes, first + i, first, p->to ? ndp_graph_nodes(p->to) - before : 0);
    }
    return NDP_OK;
}

/* A graph that no unit of this rank has stays empty. */
static ndp_status write_graphs(ndp_pass *p) {
    for (int i = 0; i < p->whole->n_graphs; i++) {
        const ndp_unit *u = unit_with(p->local, i);
        p->from = &p->whole->graphs[i];
        p->to = &p->local->graphs[i];
        NDP_TRY(ndp_graph_init(p->to, p->from->name, p->from->compute, p->from->grad));
        if (!u)
            continue;
        p->to->inputs = p->local->inputs;
        p->to->ends_backward = p->from->ends_backward;
        for (int s = 0; s < NDP_SLOTS; s++) {
            p->to->slots[s] = u->buffers[s] == NDP_NONE ? NULL : &p->local->buffers[u->buffers[s]].segments;
            p->to->frozen[s] = p->from->frozen[s];
        }
        NDP_TRY(run_passes(p, graph_passes, NDP_COUNT(graph_passes), NDP_PASS_forward));
    }
    return NDP_OK;
}

static ndp_status write_model(ndp_pass *p) {
    p->buffers = malloc(((size_t)p->whole->n_buffers + 1) * sizeof *p->buffers);
    ndp_status st = NDP_MEMORY(p->buffers, "for the tables of a rank");
    if (st == NDP_OK)
        st = run_passes(p, model_passes, NDP_COUNT(model_passes), NDP_PASS_rows);
    if (st == NDP_OK)
        st = write_graphs(p);
    free(p->buffers);
    return st;
}

ndp_status ndp_parallel_apply(const ndp_model *whole, const ndp_mesh *mesh, const ndp_parallel *how,
                              const ndp_stages *stages, ndp_model *out) {
    ndp_model m;
    NDP_TRY(ndp_tensor_check_mesh(whole, mesh));
    for (int g = 0; g < whole->n_graphs; g++)
        if (whole->graphs[g].nodes[NDP_NODES_FORWARD].n_repeats > 0)
            return NDP_FAIL(NDP_ENOTSUP, "unit %s repeats nodes: a rank's part of such a graph is not supported",
                            whole->graphs[g].name);
    NDP_TRY(ndp_model_init(whole->architecture, whole->facts, &whole->opts, &m));
    m.n_graphs = whole->n_graphs;
    ndp_pass p = {
        .whole = whole, .local = &m, .mesh = mesh, .how = *how, .stages = stages, .tp = mesh->layout.size[NDP_TP]};
    p.rows = ndp_cut_rows(whole->opts.rows, mesh, how);
    ndp_status st = write_model(&p);
    if (st != NDP_OK) {
        ndp_trail_add(__FILE__, __LINE__);
        ndp_model_release(&m);
        return st;
    }
    *out = m;
    return NDP_OK;
}
