/* One decoder, described by facts: embedding -> blocks -> norm and head.
 *
 * T rows, C hidden, H heads, KV kv heads, D head dim, F ffn, V vocabulary, M rows of the KV cache. What stands in
 * brackets some families have and others have not:
 *
 *   x [T,C] -> [norm] -> qkv [T,(H+2KV)D] -> [norms of q, k] -> [rope] -> attention -> o projection -> [norm] = h
 *   s = x + h
 *   s -> [norm] -> gate,up [T,2F] -> gated activation -> down projection -> [norm] = d     or up [T,F] -> activation
 *   y = s + d
 *
 * q, k, v are columns of one fused product, gate and up of another: their weights are glued in the buffer. */
#include "model/unit_builder.h"

#include "model/families.h"
#include <string.h>

/* ---- inputs ---- */

/* Places in model->inputs; TABLES of them follow, one a table of angles, then the cache's. */
enum { TOKENS, LABELS, POSITIONS, Q_POS, Q_LOW, K_POS, LOSS_SCALE, LOSS, TABLES };
enum { K_CACHE, V_CACHE }; /* from cache_inputs on */

static int cache_inputs(const ndp_model *m) { return TABLES + m->facts.n_ropes; }

static void fill_angles(const ndp_model *m, int table, void *out) {
    ndp_rope_table(&m->facts.ropes[table], m->opts.positions, m->inputs->items[TABLES + table].type, out);
}

static void add_cache_inputs(ndp_model *m) {
    int64_t columns = (int64_t)m->facts.kv_heads * m->facts.head_dim;
    const ndp_input inputs[] = {
        [K_CACHE] = {"k_cache", NDP_INPUT_LENT, NDP_EXTENT_KEYS, columns, m->opts.compute, NULL, 0},
        [V_CACHE] = {"v_cache", NDP_INPUT_LENT, NDP_EXTENT_KEYS, columns, m->opts.compute, NULL, 0}};
    for (int i = 0; i < NDP_COUNT(inputs); i++)
        ndp_inputs_add(m->inputs, inputs[i]);
}

ndp_status ndp_build_inputs(ndp_model *m) {
    static const ndp_input always[] = {
        [TOKENS] = {"tokens", NDP_INPUT_TOKENS, NDP_EXTENT_TOKENS, 1, NDP_I32, NULL, 0},
        [LABELS] = {"labels", NDP_INPUT_LABELS, NDP_EXTENT_TOKENS, 1, NDP_I32, NULL, 0},
        [POSITIONS] = {"rope_pos", NDP_INPUT_POSITIONS, NDP_EXTENT_TOKENS, 1, NDP_I32, NULL, 0},
        [Q_POS] = {"q_pos", NDP_INPUT_ROWS, NDP_EXTENT_QUERIES, 1, NDP_I32, NULL, 0},
        [Q_LOW] = {"q_low", NDP_INPUT_STARTS, NDP_EXTENT_QUERIES, 1, NDP_I32, NULL, 0},
        [K_POS] = {"k_pos", NDP_INPUT_ROWS, NDP_EXTENT_KEYS, 1, NDP_I32, NULL, 0},
        [LOSS_SCALE] = {"loss_scale", NDP_INPUT_LOSS_SCALE, NDP_EXTENT_ONE, 1, NDP_F64, NULL, 0},
        [LOSS] = {"loss", NDP_INPUT_LOSS, NDP_EXTENT_ONE, 1, NDP_F64, NULL, 0}};
    static const char *const tables[NDP_ROPES] = {"rope", "rope2"};
    const ndp_model_opts *o = &m->opts;
    bool cached = o->mode == NDP_MODEL_CACHED;
    ndp_inputs *in = m->inputs = ndp_arena_alloc(&m->arena, sizeof *in);
    if (!in)
        return NDP_FAIL(NDP_ENOMEM, "no memory for the inputs of the model");
    *in = (ndp_inputs){.rows = {[NDP_EXTENT_ONE] = 1,
                                [NDP_EXTENT_TOKENS] = o->rows,
                                [NDP_EXTENT_QUERIES] = o->rows,
                                [NDP_EXTENT_KEYS] = cached ? o->keys : o->rows,
                                [NDP_EXTENT_POSITIONS] = o->positions}};
    for (int i = 0; i < NDP_COUNT(always); i++)
        ndp_inputs_add(in, always[i]);
    for (int i = 0; i < m->facts.n_ropes; i++)
        ndp_inputs_add(in, (ndp_input){.name = tables[i],
                                       .kind = NDP_INPUT_TABLE,
                                       .extent = NDP_EXTENT_POSITIONS,
                                       .cols = m->facts.ropes[i].dim,
                                       .type = o->compute == NDP_F64 ? NDP_F64 : NDP_F32,
                                       .fill = fill_angles,
                                       .number = i});
    if (cached)
        add_cache_inputs(m);
    return NDP_OK;
}

/* ---- units ---- */

typedef struct builder {
    const ndp_model *m;
    const ndp_facts *f;
    ndp_graph *g;
    const int *at; /* places in the tables */
    int64_t t;     /* rows */
    ndp_layer_kind kind;
} builder;

static int param(builder *b, ndp_param place, int n) {
    return b->at[place] == NDP_NONE ? NDP_NONE : ndp_graph_param(b->g, 0, b->at[place], n);
}

static ndp_op_attr norm_attr(const builder *b) {
    return (ndp_op_attr){.eps = b->f->norm_eps, .unit_offset = b->f->unit_offset};
}

/* norm(x) by the weight at `place` and, in a LayerNorm, the bias after it; x itself if the family has no such norm. */
static int norm(builder *b, ndp_param place, int x) {
    ndp_op_attr attr = norm_attr(b);
    int outs[2] = {NDP_NONE, NDP_NONE}, w = param(b, place, 1);
    if (w == NDP_NONE)
        return x;
    if (b->f->layer_norm)
        ndp_graph_op(b->g, &ndp_op_layernorm, &attr, "norm", (int[]){x, w, param(b, place + 1, 1)}, 3, outs, 2);
    else
        ndp_graph_op(b->g, &ndp_op_rmsnorm, &attr, "norm", (int[]){x, w}, 2, outs, 2);
    return outs[0];
}

/* y = x w^T + bias over `n` glued projections from `place` on. */
static int linear(builder *b, const char *name, int x, ndp_param place, int n, ndp_param bias) {
    return ndp_graph_op1(b->g, &ndp_op_linear, NULL, name, (int[]){x, param(b, place, n), param(b, bias, n)}, 3);
}

static int add(builder *b, const char *name, int x, int y) {
    return ndp_graph_op1(b->g, &ndp_op_add, NULL, name, (int[]){x, y}, 2);
}

/* Turns the first `heads` + `kv_heads` heads of x, in place. */
static int rope(builder *b, int x, int heads, int kv_heads) {
    if (b->kind.rope == NDP_NO_ROPE)
        return x;
    int table = ndp_graph_data(b->g, TABLES + b->kind.rope), position = ndp_graph_data(b->g, POSITIONS);
    ndp_op_attr attr = {
        .heads = heads, .kv_heads = kv_heads, .head_dim = b->f->head_dim, .rotary_dim = b->f->ropes[b->kind.rope].dim};
    return ndp_graph_op1(b->g, &ndp_op_rope, &attr, "qkv", (int[]){x, position, table}, 3);
}

/* Appends new keys or values to their cache and returns the cache. */
static int cached(builder *b, int fresh, int which) {
    int cache = ndp_graph_data(b->g, cache_inputs(b->m) + which), row = ndp_graph_data(b->g, Q_POS);
    return ndp_graph_op1(b->g, &ndp_op_kv_append, NULL, "cache", (int[]){cache, fresh, row}, 3);
}

/* q, k and v, columns of qkv, as attention sees them. */
static void heads_of(builder *b, int qkv, int out[3]) {
    const ndp_facts *f = b->f;
    int64_t d = f->head_dim, nq = f->heads * d, nkv = f->kv_heads * d;
    bool norms = f->qk_norm != NDP_QK_NORM_NONE;
    if (!norms)
        qkv = rope(b, qkv, f->heads, f->kv_heads);
    out[0] = ndp_graph_columns(b->g, qkv, 0, nq);
    out[1] = ndp_graph_columns(b->g, qkv, nq, nkv);
    out[2] = ndp_graph_columns(b->g, qkv, nq + nkv, nkv);
    if (norms) {
        out[0] = rope(b, norm(b, NDP_P_Q_NORM, out[0]), f->heads, 0);
        out[1] = rope(b, norm(b, NDP_P_K_NORM, out[1]), 0, f->kv_heads);
    }
}

static int attention(builder *b, int qkv) {
    const ndp_facts *f = b->f;
    int ins[6], outs[2] = {NDP_NONE, NDP_NONE};
    heads_of(b, qkv, ins);
    if (b->m->opts.mode == NDP_MODEL_CACHED) {
        ins[1] = cached(b, ins[1], K_CACHE);
        ins[2] = cached(b, ins[2], V_CACHE);
    }
    ins[3] = ndp_graph_data(b->g, Q_POS);
    ins[4] = ndp_graph_data(b->g, Q_LOW);
    ins[5] = ndp_graph_data(b->g, K_POS);
    ndp_op_attr attr = {.heads = f->heads,
                        .kv_heads = f->kv_heads,
                        .head_dim = f->head_dim,
                        .window = b->kind.window,
                        .scale = f->attention_scale,
                        .cap = f->attention_cap};
    ndp_graph_op(b->g, &ndp_op_attention, &attr, "attention", ins, 6, outs, 2);
    return outs[0];
}

/* x + h and its norm: one op where it is an RMSNorm. */
static int add_norm(builder *b, int x, int h, int *normed) {
    ndp_op_attr attr = norm_attr(b);
    int outs[3] = {NDP_NONE, NDP_NONE, NDP_NONE};
    if (b->f->layer_norm || b->at[NDP_P_MLP_NORM] == NDP_NONE) {
        int s = add(b, "mid", x, h);
        *normed = norm(b, NDP_P_MLP_NORM, s);
        return s;
    }
    int ins[] = {x, h, param(b, NDP_P_MLP_NORM, 1)};
    ndp_graph_op(b->g, &ndp_op_add_rmsnorm, &attr, "mid", ins, 3, outs, 3);
    *normed = outs[1];
    return outs[0];
}

static int mlp(builder *b, int x) {
    bool gelu = b->f->activation == NDP_GELU_TANH;
    int act;
    if (b->f->plain_mlp) {
        int up = linear(b, "up", x, NDP_P_UP, 1, NDP_B_UP);
        act = ndp_graph_op1(b->g, &ndp_op_gelu, NULL, "act", &up, 1);
    } else {
        int gate_up = linear(b, "gate_up", x, NDP_P_GATE, 2, NDP_B_GATE);
        act = ndp_graph_op1(b->g, gelu ? &ndp_op_geglu : &ndp_op_swiglu, NULL, "act", &gate_up, 1);
    }
    return linear(b, "down", act, NDP_P_DOWN, 1, NDP_B_DOWN);
}

static void build_block(builder *b) {
    int x = ndp_graph_input(b->g, b->t, b->f->hidden), before = norm(b, NDP_P_INPUT_NORM, x), normed = before;
    int qkv = linear(b, "qkv", before, NDP_P_Q, 3, NDP_B_Q);
    int h = linear(b, "o", attention(b, qkv), NDP_P_O, 1, NDP_B_O);
    h = norm(b, NDP_P_ATTENTION_NORM, h);
    int s = b->f->parallel ? add(b, "mid", x, h) : add_norm(b, x, h, &normed);
    ndp_graph_output(b->g, add(b, "y", s, norm(b, NDP_P_MLP_OUT_NORM, mlp(b, normed))));
}

static void build_embedding(builder *b) {
    int ins[] = {ndp_graph_data(b->g, TOKENS), param(b, NDP_P_TOKENS, 1)};
    int x = ndp_graph_op1(b->g, &ndp_op_embedding, NULL, "x0", ins, 2);
    if (b->f->names->positions) {
        int where[] = {ndp_graph_data(b->g, POSITIONS), param(b, NDP_P_POSITIONS, 1)};
        x = add(b, "x0", x, ndp_graph_op1(b->g, &ndp_op_embedding, NULL, "positions", where, 2));
    }
    if (b->f->embedding_scale != 1) {
        ndp_op_attr attr = {.scale = b->f->embedding_scale};
        x = ndp_graph_op1(b->g, &ndp_op_scale, &attr, "x0", &x, 1);
    }
    ndp_graph_output(b->g, x);
}

static void build_head(builder *b) {
    const ndp_facts *f = b->f;
    int n = norm(b, NDP_P_FINAL_NORM, ndp_graph_input(b->g, b->t, f->hidden));
    int w = f->tied ? ndp_graph_param(b->g, 1, b->at[NDP_P_TOKENS], 1) : param(b, NDP_P_HEAD, 1);
    bool train = b->m->opts.mode == NDP_MODEL_TRAIN;
    ndp_op_attr attr = {.vocab = f->vocab, .train = train, .cap = f->logit_cap};
    if (b->m->opts.mode == NDP_MODEL_CACHED) {
        int logits = ndp_graph_op1(b->g, &ndp_op_linear, NULL, "logits", (int[]){n, w, NDP_NONE}, 3);
        ndp_graph_output(b->g,
                         f->logit_cap > 0 ? ndp_graph_op1(b->g, &ndp_op_cap, &attr, "logits", &logits, 1) : logits);
        return;
    }
    int ins[] = {n, w, ndp_graph_data(b->g, LABELS), ndp_graph_data(b->g, LOSS_SCALE)};
    bool trains = train && b->g->values[w].needs_grad;
    int outs[3] = {NDP_NONE, NDP_NONE, trains ? ndp_graph_param_grad(b->g, w) : NDP_NONE};
    ndp_graph_op(b->g, &ndp_op_xent, &attr, "nll", ins, 4, outs, train && !trains ? 2 : 3);
    int sum = ndp_graph_data(b->g, LOSS);
    ndp_graph_op(b->g, &ndp_op_reduce_sum, &(ndp_op_attr){.accumulate = true}, "loss", (int[]){outs[0]}, 1, &sum, 1);
}

/* ---- graphs ---- */

/* Which unit a graph is of, and what the backward leaves out. */
typedef struct variant {
    int kind; /* 0: the embedding, then kinds of layers, last the head */
    bool frozen[NDP_SLOTS], ends_backward;
} variant;

static bool same_variant(const variant *a, const variant *b) {
    return a->kind == b->kind && a->ends_backward == b->ends_backward &&
           memcmp(a->frozen, b->frozen, sizeof a->frozen) == 0;
}

static variant variant_of(const ndp_model *m, int unit) {
    bool head = unit == m->n_units - 1;
    variant v = {.kind = unit == 0 ? 0
                         : head    ? m->facts.n_kinds + 1
                                   : 1 + m->facts.kind_of[unit - 1],
                 .ends_backward = true};
    for (int s = 0; s < NDP_SLOTS; s++) {
        int buffer = m->units[unit].buffers[s];
        v.frozen[s] = buffer != NDP_NONE && !m->buffers[buffer].trainable;
    }
    for (int before = 0; before < unit; before++)
        v.ends_backward &= !m->buffers[m->units[before].buffers[0]].trainable;
    return v;
}

static ndp_status build_graph(ndp_model *m, const variant *v, const int at[NDP_PARAMS]) {
    ndp_graph *g = &m->graphs[m->n_graphs++];
    bool head = v->kind == m->facts.n_kinds + 1, block = v->kind > 0 && !head;
    ndp_graph_init(g, block ? "block" : head ? "head" : "embedding", m->opts.compute, m->opts.master);
    g->inputs = m->inputs;
    g->slots[0] = &m->buffers[block ? 1 : head ? m->n_buffers - 1 : 0].segments;
    g->slots[1] = head && m->facts.tied ? &m->buffers[0].segments : NULL;
    memcpy(g->frozen, v->frozen, sizeof g->frozen);
    g->ends_backward = v->ends_backward;
    builder b = {m, &m->facts, g, at, m->opts.rows, m->facts.kinds[block ? v->kind - 1 : 0]};
    (block ? build_block : head ? build_head : build_embedding)(&b);
    return g->status;
}

/* One graph for each variant that units have: kinds in order, so that the graphs of a model without frozen units are
 * the embedding's, one of each kind of layer, and the head's. */
ndp_status ndp_build_graphs(ndp_model *m, const int at[NDP_PARAMS]) {
    variant made[NDP_MAX_GRAPHS];
    for (int kind = 0; kind < m->facts.n_kinds + 2; kind++)
        for (int u = 0; u < m->n_units; u++) {
            variant v = variant_of(m, u);
            int g = 0;
            while (g < m->n_graphs && !same_variant(&made[g], &v))
                g++;
            if (v.kind != kind)
                continue;
            if (g == m->n_graphs) {
                made[g] = v;
                NDP_TRY(build_graph(m, &v, at));
            }
            m->units[u].graph = g;
        }
    return NDP_OK;
}
