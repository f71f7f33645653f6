#include "model/model.h"

#include "base/rng.h"
#include "model/build.h"
#include <stdio.h>
#include <string.h>

/* ---- parameter tables: names and shapes as in a Hugging Face Llama folder ---- */

typedef struct table {
    ndp_arena *arena;
    ndp_segments *segments;
    const char *prefix; /* "model.layers.3." */
} table;

/* The length of a dimension, and what it is. */
typedef struct extent {
    int64_t n;
    ndp_dim dim;
} extent;

static void add(table *t, const char *name, int ndim, extent rows, extent cols, bool glued) {
    ndp_segment *s = &t->segments->items[t->segments->n++];
    *s = ndp_segment_whole(ndp_arena_format(t->arena, "%s%s", t->prefix, name), ndim, rows.n, cols.n, rows.dim,
                           cols.dim);
    s->glued = glued;
    s->decay = ndim == 2;
}

static void add_matrix(table *t, const char *name, extent rows, extent cols, bool glued) {
    add(t, name, 2, rows, cols, glued);
}

static void add_vector(table *t, const char *name, extent n, bool glued) {
    add(t, name, 1, (extent){1, NDP_DIM_WHOLE}, n, glued);
}

/* The order is fixed by enum ndp_block_segment (build.h). */
static void block_table(table *t, const ndp_facts *f) {
    extent hidden = {f->hidden, NDP_DIM_WHOLE}, ffn = {f->ffn, NDP_DIM_FFN};
    extent q = {(int64_t)f->heads * f->head_dim, NDP_DIM_HEADS};
    extent kv = {(int64_t)f->kv_heads * f->head_dim, NDP_DIM_KV_HEADS};
    add_vector(t, "input_layernorm.weight", hidden, false);
    add_matrix(t, "self_attn.q_proj.weight", q, hidden, false);
    add_matrix(t, "self_attn.k_proj.weight", kv, hidden, true);
    add_matrix(t, "self_attn.v_proj.weight", kv, hidden, true);
    add_matrix(t, "self_attn.o_proj.weight", hidden, q, false);
    add_vector(t, "post_attention_layernorm.weight", hidden, false);
    add_matrix(t, "mlp.gate_proj.weight", ffn, hidden, false);
    add_matrix(t, "mlp.up_proj.weight", ffn, hidden, true);
    add_matrix(t, "mlp.down_proj.weight", hidden, ffn, false);
    if (f->attention_bias) {
        add_vector(t, "self_attn.q_proj.bias", q, false);
        add_vector(t, "self_attn.k_proj.bias", kv, true);
        add_vector(t, "self_attn.v_proj.bias", kv, true);
        add_vector(t, "self_attn.o_proj.bias", hidden, false);
    }
    if (f->mlp_bias) {
        add_vector(t, "mlp.gate_proj.bias", ffn, false);
        add_vector(t, "mlp.up_proj.bias", ffn, true);
        add_vector(t, "mlp.down_proj.bias", hidden, false);
    }
}

static ndp_status init_buffer(ndp_model *m, int i, const char *name, const char *prefix, table *t) {
    enum { MOST = 24 };
    m->buffers[i].name = name;
    m->buffers[i].segments.items = ndp_arena_alloc(&m->arena, MOST * sizeof(ndp_segment));
    *t = (table){&m->arena, &m->buffers[i].segments, prefix};
    return name && prefix && m->buffers[i].segments.items ? NDP_OK
                                                          : NDP_FAIL(NDP_ENOMEM, "no memory for the model's tables");
}

static ndp_status build_tables(ndp_model *m) {
    const ndp_facts *f = &m->facts;
    extent vocab = {f->vocab, NDP_DIM_VOCAB}, hidden = {f->hidden, NDP_DIM_WHOLE};
    m->n_buffers = f->layers + 2;
    m->buffers = ndp_arena_alloc(&m->arena, (size_t)m->n_buffers * sizeof *m->buffers);
    if (!m->buffers)
        return NDP_FAIL(NDP_ENOMEM, "no memory for the tables of %d layers", f->layers);
    table t;
    NDP_TRY(init_buffer(m, 0, "embed", "", &t));
    add_matrix(&t, "model.embed_tokens.weight", vocab, hidden, false);
    for (int i = 0; i < f->layers; i++) {
        NDP_TRY(init_buffer(m, i + 1, ndp_arena_format(&m->arena, "layers.%d", i),
                            ndp_arena_format(&m->arena, "model.layers.%d.", i), &t));
        block_table(&t, f);
    }
    NDP_TRY(init_buffer(m, f->layers + 1, "head", "", &t));
    add_vector(&t, "model.norm.weight", hidden, false);
    if (!f->tied)
        add_matrix(&t, "lm_head.weight", vocab, hidden, false);
    for (int i = 0; i < m->n_buffers; i++)
        ndp_segments_layout(&m->buffers[i].segments);
    return NDP_OK;
}

static ndp_status build_units(ndp_model *m) {
    m->n_units = m->facts.layers + 2;
    m->units = ndp_arena_alloc(&m->arena, (size_t)m->n_units * sizeof *m->units);
    if (!m->units)
        return NDP_FAIL(NDP_ENOMEM, "no memory for %d units", m->n_units);
    for (int i = 0; i < m->n_units; i++) {
        bool last = i == m->n_units - 1;
        m->units[i] = (ndp_unit){.name = m->buffers[i].name,
                                 .graph = i == 0 ? 0
                                          : last ? 2
                                                 : 1,
                                 .buffers = {i, last && m->facts.tied ? 0 : NDP_NONE}};
    }
    return NDP_OK;
}

ndp_status ndp_model_build(const ndp_facts *facts, const ndp_model_opts *opts, ndp_model *out) {
    ndp_model m = {.facts = *facts, .opts = *opts, .n_graphs = 3, .tokens = opts->rows, .queries = opts->rows};
    m.keys = opts->mode == NDP_MODEL_CACHED ? opts->keys : opts->rows;
    if (opts->window > 0)
        m.facts.window = opts->window;
    ndp_status st;
    NDP_TRY_GOTO(build_tables(&m), fail);
    NDP_TRY_GOTO(build_units(&m), fail);
    NDP_TRY_GOTO(ndp_build_graphs(&m), fail);
    *out = m;
    return NDP_OK;
fail:
    ndp_model_release(&m);
    return st;
}

void ndp_model_release(ndp_model *m) {
    for (int i = 0; i < m->n_graphs; i++)
        ndp_graph_release(&m->graphs[i]);
    ndp_arena_release(&m->arena);
    *m = (ndp_model){0};
}

void ndp_model_random(const ndp_facts *f, uint64_t seed, const ndp_segment *s, int64_t first, int64_t count,
                      float *out) {
    size_t n = strlen(s->name);
    bool bias = n >= 5 && strcmp(s->name + n - 5, ".bias") == 0;
    if (s->ndim == 2) {
        ndp_rng_normal(seed, ndp_rng_stream(s->name), (uint64_t)first, count, f->init_std, out);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        out[i] = bias ? 0.0f : 1.0f;
}
