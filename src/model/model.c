/* What all models have in common: how they begin and end, and frozen units. */
#include "model/architecture.h"
#include "model/tables.h"
#include "model/tensors.h"

#include <fnmatch.h>
#include <string.h>

ndp_status ndp_model_init(const ndp_architecture_table *a, const void *facts, const ndp_model_opts *opts,
                          ndp_model *out) {
    *out = (ndp_model){.architecture = a, .opts = *opts};
    void *own = ndp_arena_alloc(&out->arena, a->facts_size);
    NDP_CHECK_MEMORY(own, "for the facts of a model");
    memcpy(own, facts, a->facts_size);
    out->facts = own;
    return NDP_OK;
}

int ndp_model_kv_heads(const ndp_model *m) {
    int64_t least = 0;
    for (ndp_segment_walk w = {.model = m}; ndp_segment_next(&w);)
        for (int axis = 0; axis < 2; axis++)
            if (w.segment->dim[axis] == NDP_DIM_KV_HEADS) {
                int64_t heads = w.segment->part[axis] / w.segment->grain[axis];
                least = least == 0 || heads < least ? heads : least;
            }
    return (int)least;
}

int ndp_model_router_losses(const ndp_model *m) {
    int n = 0;
    for (int u = 0; u < m->n_units; u++) {
        const ndp_graph *g = &m->graphs[m->units[u].graph];
        for (int i = 0; i < g->nodes[NDP_NODES_FORWARD].n; i++) {
            const ndp_node *node = &g->nodes[NDP_NODES_FORWARD].items[i];
            n += node->op == &ndp_op_router_losses && g->values[node->in[0]].needs_grad;
        }
    }
    return n;
}

/* ---- frozen units ---- */

bool ndp_model_is_frozen(const ndp_model_opts *o, const char *unit) {
    for (int i = 0; i < o->n_frozen; i++)
        if (fnmatch(o->frozen[i], unit, 0) == 0)
            return true;
    return false;
}

/* A pattern that freezes nothing is a mistake. */
static ndp_status check_pattern(const ndp_model *m, const char *pattern) {
    for (int u = 0; u < m->n_units; u++)
        if (fnmatch(pattern, m->units[u].name, 0) == 0)
            return NDP_OK;
    return NDP_FAIL(NDP_EINVAL, "model.frozen: there is no unit %s; units are %s, %s to %s, %s", pattern,
                    m->units[0].name, m->units[1].name, m->units[m->n_units - 2].name, m->units[m->n_units - 1].name);
}

static bool has_no_grad(const ndp_buffer *b) { return b->segments.n > 0 && b->segments.items[0].no_grad; }

/* How a buffer is stored; what is packed is not trained. */
static ndp_status choose_storage(const ndp_model *m, ndp_buffer *b) {
    bool packed = ndp_buffer_is_packed(b);
    b->storage = ndp_storage_of(&m->opts, b->trainable);
    if (has_no_grad(b))
        b->storage.compute = b->storage.kept = b->storage.master = ndp_wide(m->opts.compute);
    if (packed)
        b->storage.kept = b->storage.master = NDP_U8;
    NDP_CHECK(!packed || !b->trainable,
              "the projections of %s are stored as %s, and cannot be trained so; freeze all layers "
              "(model.frozen: [layers.*])",
              b->name, ndp_packing_name(b->segments.packing));
    return NDP_OK;
}

ndp_status ndp_model_freeze(ndp_model *m) {
    int trainable = 0, packed = 0;
    for (int u = m->n_units; u-- > 0;) /* the first of the units that use a buffer decides, so it comes last */
        for (int s = 0; s < NDP_SLOTS; s++)
            if (m->units[u].buffers[s] != NDP_NONE) {
                ndp_buffer *b = &m->buffers[m->units[u].buffers[s]];
                bool changes = !b->base && ndp_unit_trains(&m->opts, m->units[u].name, s);
                b->trainable = changes && !has_no_grad(b);
                b->moves = changes && has_no_grad(b) && m->opts.router.bias_rate > 0;
            }
    for (int b = 0; b < m->n_buffers; b++) {
        trainable += m->buffers[b].trainable;
        packed += ndp_buffer_is_packed(&m->buffers[b]);
        NDP_TRY(choose_storage(m, &m->buffers[b]));
    }
    if (m->opts.base != NDP_PACKING_NONE && packed == 0)
        return NDP_FAIL(NDP_ENOTSUP, "a model of architecture %s has no projections that could be stored as %s",
                        m->architecture->name, ndp_packing_name(m->opts.base));
    for (int k = 0; k < m->opts.n_frozen; k++)
        NDP_TRY(check_pattern(m, m->opts.frozen[k]));
    NDP_CHECK(m->opts.n_trained == 0 || m->opts.router.bias_rate == 0,
              "moe.bias_rate changes biases of routers, and model.trained names what is trained: set one of them");
    NDP_CHECK(trainable > 0 || m->opts.n_trained > 0, "model.frozen names all %d units: nothing is left to train",
              m->n_units);
    return NDP_OK;
}

void ndp_model_release(ndp_model *m) {
    for (int i = 0; i < m->n_graphs; i++)
        ndp_graph_release(&m->graphs[i]);
    ndp_arena_release(&m->arena);
    *m = (ndp_model){0};
}
