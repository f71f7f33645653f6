/* One decoder, described by facts: embedding -> blocks -> norm and head.
 *
 * T rows, C hidden, H heads, KV kv heads, D head dim, F ffn, V vocabulary, M rows of the KV cache:
 *
 *   block: x [T,C] -> norm -> qkv [T,(H+2KV)D] -> rope on q and k -> attention -> o projection -> s = x + h, norm
 *            -> gate,up [T,2F] -> swiglu -> down projection -> y = s + d
 *
 * q, k, v are columns of one fused product, gate and up of another: their weights are glued in the buffer. */
#include "model/build.h"

#include <math.h>

typedef struct builder {
    const ndp_model *m;
    ndp_graph *g;
    int64_t t; /* rows */
} builder;

static int norm(builder *b, int slot, int segment, int x, int *rstd) {
    ndp_op_attr attr = {.eps = b->m->facts.norm_eps};
    int w = ndp_graph_param(b->g, slot, segment, 1);
    int outs[2] = {NDP_NONE, NDP_NONE};
    ndp_graph_op(b->g, &ndp_op_rmsnorm, &attr, "norm", (int[]){x, w}, 2, outs, 2);
    *rstd = outs[1];
    return outs[0];
}

/* y = x w^T + bias over `n` glued projections; bias: place of the first bias, NDP_NONE without. */
static int linear(builder *b, const char *name, int x, int segment, int n, int bias) {
    int w = ndp_graph_param(b->g, 0, segment, n);
    int v = bias == NDP_NONE ? NDP_NONE : ndp_graph_param(b->g, 0, bias, n);
    return ndp_graph_op1(b->g, &ndp_op_linear, NULL, name, (int[]){x, w, v}, 3);
}

static int data(builder *b, ndp_data_id id, int64_t rows) { return ndp_graph_data(b->g, id, rows, 1, NDP_I32); }

static int rope(builder *b, int qkv) {
    const ndp_facts *f = &b->m->facts;
    ndp_dtype type = b->m->opts.compute == NDP_F64 ? NDP_F64 : NDP_F32;
    int table = ndp_graph_data(b->g, NDP_DATA_ROPE_TABLE, b->m->opts.positions, f->head_dim, type);
    ndp_op_attr attr = {.heads = f->heads, .kv_heads = f->kv_heads, .head_dim = f->head_dim};
    return ndp_graph_op1(b->g, &ndp_op_rope, &attr, "qkv", (int[]){qkv, data(b, NDP_DATA_ROPE_POS, b->t), table}, 3);
}

/* Appends new keys or values to their cache and returns the cache. */
static int cached(builder *b, int fresh, ndp_data_id cache_id) {
    const ndp_facts *f = &b->m->facts;
    int cache = ndp_graph_data(b->g, cache_id, b->m->opts.keys, (int64_t)f->kv_heads * f->head_dim, b->m->opts.compute);
    return ndp_graph_op1(b->g, &ndp_op_kv_append, NULL, "cache", (int[]){fresh, data(b, NDP_DATA_CACHE_ROW, 1), cache},
                         3);
}

static int attention(builder *b, int qkv) {
    const ndp_facts *f = &b->m->facts;
    int64_t d = f->head_dim, nq = f->heads * d, nkv = f->kv_heads * d;
    int q = ndp_graph_columns(b->g, qkv, 0, nq);
    int k = ndp_graph_columns(b->g, qkv, nq, nkv);
    int v = ndp_graph_columns(b->g, qkv, nq + nkv, nkv);
    bool cache = b->m->opts.mode == NDP_MODEL_CACHED;
    if (cache) {
        k = cached(b, k, NDP_DATA_K_CACHE);
        v = cached(b, v, NDP_DATA_V_CACHE);
    }
    ndp_op_attr attr = {.heads = f->heads,
                        .kv_heads = f->kv_heads,
                        .head_dim = f->head_dim,
                        .window = f->window,
                        .scale = 1.0 / sqrt((double)d)};
    int ins[] = {q,
                 k,
                 v,
                 data(b, NDP_DATA_Q_POS, b->t),
                 data(b, NDP_DATA_Q_LOW, b->t),
                 data(b, NDP_DATA_K_POS, cache ? b->m->opts.keys : b->t)};
    int outs[2] = {NDP_NONE, NDP_NONE};
    ndp_graph_op(b->g, &ndp_op_attention, &attr, "attention", ins, 6, outs, 2);
    return outs[0];
}

static void build_block(builder *b) {
    const ndp_facts *f = &b->m->facts;
    int bias_qkv = f->attention_bias ? NDP_SEG_BIASES : NDP_NONE;
    int bias_o = f->attention_bias ? NDP_SEG_BIASES + 3 : NDP_NONE;
    int mlp = NDP_SEG_BIASES + (f->attention_bias ? 4 : 0);
    int x = ndp_graph_input(b->g, b->t, f->hidden), rstd;
    int n1 = norm(b, 0, NDP_SEG_INPUT_NORM, x, &rstd);
    int qkv = rope(b, linear(b, "qkv", n1, NDP_SEG_Q, 3, bias_qkv));
    int h = linear(b, "o", attention(b, qkv), NDP_SEG_O, 1, bias_o);
    int outs[3] = {NDP_NONE, NDP_NONE, NDP_NONE};
    int w = ndp_graph_param(b->g, 0, NDP_SEG_POST_NORM, 1);
    ndp_graph_op(b->g, &ndp_op_add_rmsnorm, &(ndp_op_attr){.eps = f->norm_eps}, "mid", (int[]){x, h, w}, 3, outs, 3);
    int gate_up = linear(b, "gate_up", outs[1], NDP_SEG_GATE, 2, f->mlp_bias ? mlp : NDP_NONE);
    int act = ndp_graph_op1(b->g, &ndp_op_swiglu, NULL, "act", (int[]){gate_up}, 1);
    int down = linear(b, "down", act, NDP_SEG_DOWN, 1, f->mlp_bias ? mlp + 2 : NDP_NONE);
    ndp_graph_output(b->g, ndp_graph_op1(b->g, &ndp_op_add, NULL, "y", (int[]){outs[0], down}, 2));
}

static void build_embedding(builder *b) {
    int table = ndp_graph_param(b->g, 0, 0, 1);
    int tokens = data(b, NDP_DATA_TOKENS, b->t);
    ndp_graph_output(b->g, ndp_graph_op1(b->g, &ndp_op_embedding, NULL, "x0", (int[]){tokens, table}, 2));
}

static void build_head(builder *b) {
    const ndp_facts *f = &b->m->facts;
    int x = ndp_graph_input(b->g, b->t, f->hidden), rstd;
    int n = norm(b, 0, 0, x, &rstd);
    int w = f->tied ? ndp_graph_param(b->g, 1, 0, 1) : ndp_graph_param(b->g, 0, 1, 1);
    if (b->m->opts.mode == NDP_MODEL_CACHED) {
        ndp_graph_output(b->g, ndp_graph_op1(b->g, &ndp_op_linear, NULL, "logits", (int[]){n, w, NDP_NONE}, 3));
        return;
    }
    bool train = b->m->opts.mode == NDP_MODEL_TRAIN;
    ndp_op_attr attr = {.vocab = f->vocab, .train = train};
    int ins[] = {n, w, data(b, NDP_DATA_LABELS, b->t), ndp_graph_data(b->g, NDP_DATA_LOSS_SCALE, 1, 1, NDP_F64)};
    int outs[3] = {NDP_NONE, NDP_NONE, train ? ndp_graph_param_grad(b->g, w) : NDP_NONE};
    ndp_graph_op(b->g, &ndp_op_xent, &attr, "nll", ins, 4, outs, 3);
    int sum = ndp_graph_data(b->g, NDP_DATA_LOSS, 1, 1, NDP_F64);
    ndp_graph_op(b->g, &ndp_op_reduce_sum, &(ndp_op_attr){.accumulate = true}, "loss", (int[]){outs[0]}, 1, &sum, 1);
}

ndp_status ndp_build_graphs(ndp_model *m) {
    static void (*const build[3])(builder *) = {build_embedding, build_block, build_head};
    static const char *const names[3] = {"embedding", "block", "head"};
    for (int i = 0; i < 3; i++) {
        ndp_graph *g = &m->graphs[i];
        ndp_graph_init(g, names[i], m->opts.compute, m->opts.master);
        int last = m->n_buffers - 1;
        g->slots[0] = &m->buffers[i == 0 ? 0 : i == 1 ? 1 : last].segments;
        g->slots[1] = i == 2 && m->facts.tied ? &m->buffers[0].segments : NULL;
        builder b = {m, g, m->opts.rows};
        build[i](&b);
        NDP_TRY(g->status);
    }
    return NDP_OK;
}
