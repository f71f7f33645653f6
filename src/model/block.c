/* A decoder block: attention and an MLP around the residual stream, and the products and norms that all units use.
 *
 * q, k, v are columns of one fused product, gate and up of another: their weights are glued in the buffer. */
#include "model/block.h"

#include "model/activations.h"

/* ---- inputs and parameters ---- */

enum { ROWS_OF_QUERIES, ROWS_OF_KEYS };

/* Picks one of several inputs of a kind: tables of angles by number; of row numbers the queries', then the keys'. */
static int nth_data(const ndp_unit_builder *b, ndp_input_kind kind, int n) {
    int input = ndp_inputs_find_nth(b->m->inputs, kind, n);
    return input < 0 ? NDP_NONE : ndp_graph_data(b->g, input);
}

int ndp_unit_rows(const ndp_unit_builder *b) { return nth_data(b, NDP_INPUT_ROWS, ROWS_OF_QUERIES); }

int ndp_unit_data(const ndp_unit_builder *b, ndp_input_kind kind) { return nth_data(b, kind, 0); }

int ndp_unit_kept(const ndp_unit_builder *b, int row) {
    return ndp_graph_data(b->g, ndp_inputs_named(b->m->inputs, b->layer.mixer->cache[row].name));
}

int ndp_unit_param(ndp_unit_builder *b, ndp_param place, int n) {
    ndp_place at = place == NDP_NO_PARAM ? (ndp_place){0, NDP_NONE} : b->places->at[place];
    return at.segment == NDP_NONE ? NDP_NONE : ndp_graph_param(b->g, at.slot, at.segment, n);
}

int ndp_unit_weight(ndp_unit_builder *b, ndp_param place, int n) {
    ndp_place at = b->places->at[place];
    if (at.segment == NDP_NONE || b->g->slots[at.slot]->packing == NDP_PACKING_NONE)
        return ndp_unit_param(b, place, n);
    int w = ndp_graph_unpacked(b->g, at.slot, at.segment, n);
    for (int k = 0; k < n; k++)
        ndp_graph_unpack(b->g, NDP_NODES_FORWARD, w, k);
    return w;
}

static bool has(const ndp_unit_builder *b, ndp_param place) { return b->places->at[place].segment != NDP_NONE; }

/* ---- norms and products ---- */

const ndp_norm ndp_norm_rms = {&ndp_op_rmsnorm, &ndp_op_add_rmsnorm, false, false};
const ndp_norm ndp_norm_rms_offset = {&ndp_op_rmsnorm, &ndp_op_add_rmsnorm, false, true};
const ndp_norm ndp_norm_layer = {&ndp_op_layernorm, NULL, true, false};

static ndp_op_attr norm_attr(const ndp_unit_builder *b) {
    return (ndp_op_attr){.eps = b->f->norm_eps, .unit_offset = b->f->norm.offset};
}

int ndp_unit_norm(ndp_unit_builder *b, ndp_param place, ndp_param bias, int x) {
    const ndp_norm *norm = &b->f->norm;
    ndp_op_attr attr = norm_attr(b);
    int outs[2] = {NDP_NONE, NDP_NONE}, w = ndp_unit_param(b, place, 1);
    if (w == NDP_NONE)
        return x;
    int ins[] = {x, w, norm->bias ? ndp_unit_param(b, bias, 1) : NDP_NONE};
    ndp_graph_op(b->g, norm->op, &attr, "norm", ins, norm->bias ? 3 : 2, outs, 2);
    return outs[0];
}

int ndp_unit_linear(ndp_unit_builder *b, const char *name, int x, ndp_param place, int n, ndp_param bias) {
    bool adapted = ndp_unit_has_adapter(b, place, n);
    int ins[] = {x, ndp_unit_weight(b, place, n), adapted ? NDP_NONE : ndp_unit_param(b, bias, n)};
    int y = ndp_graph_op1(b->g, &ndp_op_linear, NULL, name, ins, 3);
    return adapted ? ndp_unit_adapters(b, name, x, y, place, n, bias) : y;
}

int ndp_unit_scale(ndp_unit_builder *b, const char *name, int x, double factor) {
    return factor == 1 ? x : ndp_graph_op1(b->g, &ndp_op_scale, &(ndp_op_attr){.scale = factor}, name, &x, 1);
}

int ndp_unit_add(ndp_unit_builder *b, const char *name, int x, int y) {
    return ndp_graph_op1(b->g, &ndp_op_add, NULL, name, (int[]){x, y}, 2);
}

/* ---- attention ---- */

/* Turns the first `heads` + `kv_heads` heads of x, in place. */
static int rope(ndp_unit_builder *b, int x, int heads, int kv_heads) {
    if (b->layer.rope == NDP_NO_ROPE)
        return x;
    int which = kv_heads == 0 && b->f->query_rope ? b->f->query_rope : b->layer.rope;
    int table = nth_data(b, NDP_INPUT_TABLE, which), position = ndp_unit_data(b, NDP_INPUT_POSITIONS);
    ndp_op_attr attr = {.heads = heads,
                        .kv_heads = kv_heads,
                        .head_dim = ndp_kind_heads(b->f, &b->layer).dim,
                        .rotary_dim = b->f->ropes[b->layer.rope].dim,
                        .skipped = b->f->nope_dim,
                        .neighbours = b->f->neighbours};
    return ndp_graph_op1(b->g, &ndp_op_rope, &attr, "qkv", (int[]){x, position, table}, 3);
}

/* Appends new keys or values to their cache and returns the cache. */
static int cached(ndp_unit_builder *b, int fresh, int which) {
    int cache = ndp_unit_kept(b, which), row = nth_data(b, NDP_INPUT_ROWS, ROWS_OF_QUERIES);
    return ndp_graph_op1(b->g, &ndp_op_kv_append, NULL, "cache", (int[]){cache, fresh, row}, 3);
}

/* Heads of `d` columns, each normed: a norm whose weights are ones. */
static int value_norm(ndp_unit_builder *b, int x, int64_t d) {
    int ones = ndp_graph_columns(b->g, nth_data(b, NDP_INPUT_TABLE, b->f->n_ropes), 0, d);
    int outs[2] = {NDP_NONE, NDP_NONE};
    ndp_graph_op(b->g, &ndp_op_rmsnorm, &(ndp_op_attr){.eps = b->f->norm_eps}, "v", (int[]){x, ones}, 2, outs, 2);
    return outs[0];
}

/* q, k and v, columns of qkv, as attention sees them; `between`: columns behind those of q. */
static void heads_of(ndp_unit_builder *b, int qkv, int64_t between, int out[3]) {
    const ndp_facts *f = b->f;
    const ndp_head_sizes h = ndp_kind_heads(f, &b->layer);
    int64_t d = h.dim, nq = f->heads * d, nkv = h.kv * d, k = nq + between;
    bool norms = f->qk_norm != NDP_QK_NORM_NONE;
    if (!norms && !f->query_rope)
        qkv = rope(b, qkv, f->heads, h.kv);
    out[0] = ndp_graph_columns(b->g, qkv, 0, nq);
    out[1] = ndp_graph_columns(b->g, qkv, k, nkv);
    out[2] = h.v_is_k ? out[1] : ndp_graph_columns(b->g, qkv, k + nkv, nkv);
    if (f->v_norm)
        out[2] = value_norm(b, out[2], d);
    if (norms) {
        out[0] = rope(b, ndp_unit_norm(b, NDP_P_Q_NORM, NDP_NO_PARAM, out[0]), f->heads, 0);
        out[1] = rope(b, ndp_unit_norm(b, NDP_P_K_NORM, NDP_NO_PARAM, out[1]), 0, h.kv);
    } else if (f->query_rope) {
        out[0] = rope(b, out[0], f->heads, 0);
        out[1] = rope(b, out[1], 0, h.kv);
    }
}

enum { KEYS, VALUES }; /* rows of what attention keeps */

/* What attention makes of q, k and v. */
static int attend(ndp_unit_builder *b, const int qkv[3]) {
    const ndp_facts *f = b->f;
    const ndp_head_sizes h = ndp_kind_heads(f, &b->layer);
    int ins[7] = {qkv[0], qkv[1], qkv[2]}, outs[2] = {NDP_NONE, NDP_NONE};
    if (b->m->opts.mode == NDP_MODEL_CACHED) {
        ins[1] = cached(b, ins[1], KEYS);
        ins[2] = cached(b, ins[2], VALUES);
    }
    ins[3] = nth_data(b, NDP_INPUT_ROWS, ROWS_OF_QUERIES);
    ins[4] = ndp_unit_data(b, NDP_INPUT_STARTS);
    ins[5] = nth_data(b, NDP_INPUT_ROWS, ROWS_OF_KEYS);
    ins[6] = ndp_unit_param(b, NDP_P_SINKS, 1);
    ndp_op_attr attr = {.heads = f->heads,
                        .kv_heads = h.kv,
                        .head_dim = h.dim,
                        .v_dim = f->v_dim,
                        .window = b->layer.window,
                        .scale = f->attention_scale,
                        .cap = f->attention_cap};
    ndp_graph_op(b->g, &ndp_op_attention, &attr, "attention", ins, ins[6] == NDP_NONE ? 6 : 7, outs, 2);
    return outs[0];
}

static int product_with_o(ndp_unit_builder *b, int o) { return ndp_unit_linear(b, "o", o, NDP_P_O, 1, NDP_B_O); }

static int attention(ndp_unit_builder *b, int x) {
    int qkv[3], products = ndp_kind_heads(b->f, &b->layer).v_is_k ? 2 : 3;
    heads_of(b, ndp_unit_linear(b, "qkv", x, NDP_P_Q, products, NDP_B_Q), 0, qkv);
    return product_with_o(b, attend(b, qkv));
}

int ndp_unit_gate(ndp_unit_builder *b, int x, int gate, bool sigmoid) {
    return ndp_graph_op1(b->g, &ndp_op_gate_by, &(ndp_op_attr){.sigmoid = sigmoid}, "gated", (int[]){x, gate}, 2);
}

/* Each column of the result is multiplied by the sigmoid of one of the product. */
static int gated_attention(ndp_unit_builder *b, int x) {
    int qkv[3], product = ndp_unit_linear(b, "qkv", x, NDP_P_GATED_Q, 4, NDP_B_GATED_Q);
    int64_t queries = (int64_t)b->f->heads * b->f->head_dim;
    heads_of(b, product, queries, qkv);
    int gate = ndp_graph_columns(b->g, product, queries, queries);
    return product_with_o(b, ndp_unit_gate(b, attend(b, qkv), gate, true));
}

static int64_t key_columns(const ndp_facts *f) { return (int64_t)f->kv_heads * f->head_dim; }

static int64_t value_columns(const ndp_facts *f) {
    return (int64_t)f->kv_heads * (f->v_dim > 0 ? f->v_dim : f->head_dim);
}

static int64_t full_columns(const ndp_facts *f) { return (int64_t)f->full.kv * f->full.dim; }

const ndp_mixer ndp_mixer_attention = {NDP_PART_ATTENTION,
                                       attention,
                                       false,
                                       {[KEYS] = {"k_cache", key_columns, NDP_EXTENT_KEYS, false},
                                        [VALUES] = {"v_cache", value_columns, NDP_EXTENT_KEYS, false}}};

const ndp_mixer ndp_mixer_full = {NDP_PART_ATTENTION,
                                  attention,
                                  true,
                                  {[KEYS] = {"k_cache_full", full_columns, NDP_EXTENT_KEYS, false},
                                   [VALUES] = {"v_cache_full", full_columns, NDP_EXTENT_KEYS, false}}};

const ndp_mixer ndp_mixer_gated = {NDP_PART_GATED,
                                   gated_attention,
                                   false,
                                   {[KEYS] = {"k_cache", key_columns, NDP_EXTENT_KEYS, false},
                                    [VALUES] = {"v_cache", value_columns, NDP_EXTENT_KEYS, false}}};

ndp_head_sizes ndp_kind_heads(const ndp_facts *f, const ndp_layer_kind *k) {
    return k->mixer->full ? f->full : (ndp_head_sizes){f->head_dim, f->kv_heads, false};
}

/* ---- latent attention (arXiv:2405.04434) ----
 *
 *   x [T,C] -> q_a [T,Rq], normed -> q_b [T,H(N+R)]                or one product, without q_a
 *   x [T,C] -> kv_a [T,Rkv + R]: Rkv columns, normed -> kv_b [T,H(N+E)], by heads: N of a key, E of a value
 *   the R columns behind are the end of every head's key; RoPE turns these and the last R of each head of q */

/* Its norms have an epsilon of their own, in all families. */
static int latent_norm(ndp_unit_builder *b, ndp_param place, int x) {
    int outs[2] = {NDP_NONE, NDP_NONE};
    ndp_graph_op(b->g, &ndp_op_rmsnorm, &(ndp_op_attr){.eps = 1e-6}, "norm", (int[]){x, ndp_unit_param(b, place, 1)}, 2,
                 outs, 2);
    return outs[0];
}

static int latent_queries(ndp_unit_builder *b, int x) {
    if (b->f->q_rank == 0)
        return ndp_unit_linear(b, "q", x, NDP_P_DIRECT_Q, 1, NDP_NO_PARAM);
    x = latent_norm(b, NDP_P_Q_A_NORM, ndp_unit_linear(b, "q_a", x, NDP_P_Q_A, 1, NDP_B_Q_A));
    return ndp_unit_linear(b, "q", x, NDP_P_Q_B, 1, NDP_NO_PARAM);
}

static int latent_attention(ndp_unit_builder *b, int x) {
    const ndp_facts *f = b->f;
    const ndp_op_attr attr = {
        .heads = f->heads, .head_dim = f->head_dim, .rotary_dim = f->head_dim - f->nope_dim, .v_dim = f->v_dim};
    int kv_a = ndp_unit_linear(b, "kv_a", x, NDP_P_KV_A, 1, NDP_B_KV_A);
    int own = latent_norm(b, NDP_P_KV_A_NORM, ndp_graph_columns(b->g, kv_a, 0, f->kv_rank));
    int ins[] = {ndp_unit_linear(b, "kv", own, NDP_P_KV_B, 1, NDP_NO_PARAM),
                 ndp_graph_columns(b->g, kv_a, f->kv_rank, attr.rotary_dim)},
        kv[2] = {NDP_NONE, NDP_NONE};
    ndp_graph_op(b->g, &ndp_op_latent_keys, &attr, "keys", ins, 2, kv, 2);
    int q = rope(b, latent_queries(b, x), f->heads, 0), k = rope(b, kv[0], 0, f->heads);
    return product_with_o(b, attend(b, (int[]){q, k, kv[1]}));
}

const ndp_mixer ndp_mixer_latent = {NDP_PART_LATENT,
                                    latent_attention,
                                    false,
                                    {[KEYS] = {"k_cache", key_columns, NDP_EXTENT_KEYS, false},
                                     [VALUES] = {"v_cache", value_columns, NDP_EXTENT_KEYS, false}}};

/* ---- MLPs ---- */

int ndp_unit_gated_mlp(ndp_unit_builder *b, int x, ndp_param gate, ndp_param gate_bias, ndp_param down,
                       ndp_param down_bias) {
    int gate_up = ndp_unit_linear(b, "gate_up", x, gate, 2, gate_bias);
    int act = ndp_graph_op1(b->g, ndp_activations[b->f->activation].gated, NULL, "act", &gate_up, 1);
    return ndp_unit_linear(b, "down", act, down, 1, down_bias);
}

static int gated_mlp(ndp_unit_builder *b, int x) {
    return ndp_unit_gated_mlp(b, x, NDP_P_GATE, NDP_B_GATE, NDP_P_DOWN, NDP_B_DOWN);
}

static int plain_mlp(ndp_unit_builder *b, int x) {
    int up = ndp_unit_linear(b, "up", x, NDP_P_UP, 1, NDP_B_UP);
    int act = ndp_graph_op1(b->g, ndp_activations[b->f->activation].plain, NULL, "act", &up, 1);
    return ndp_unit_linear(b, "down", act, NDP_P_DOWN, 1, NDP_B_DOWN);
}

const ndp_mlp ndp_mlp_gated = {NDP_PART_GATED_MLP, true, gated_mlp};
const ndp_mlp ndp_mlp_plain = {NDP_PART_PLAIN_MLP, false, plain_mlp};

/* ---- the block ---- */

/* x + h and its norm: one op where there is one. */
static int add_norm(ndp_unit_builder *b, int x, int h, int *normed) {
    ndp_op_attr attr = norm_attr(b);
    int outs[3] = {NDP_NONE, NDP_NONE, NDP_NONE};
    if (!b->f->norm.after_add || !has(b, NDP_P_MLP_NORM)) {
        int s = ndp_unit_add(b, "mid", x, h);
        *normed = ndp_unit_norm(b, NDP_P_MLP_NORM, NDP_B_MLP_NORM, s);
        return s;
    }
    int ins[] = {x, h, ndp_unit_param(b, NDP_P_MLP_NORM, 1)};
    ndp_graph_op(b->g, b->f->norm.after_add, &attr, "mid", ins, 3, outs, 3);
    *normed = outs[1];
    return outs[0];
}

/* y times the layer's number, in place. */
static int scaled_by_layer(ndp_unit_builder *b, int y) {
    int by = ndp_unit_param(b, NDP_P_LAYER_SCALAR, 1);
    return by == NDP_NONE ? y : ndp_graph_op1(b->g, &ndp_op_scale_by, NULL, "y", (int[]){y, by}, 2);
}

void ndp_unit_block(ndp_unit_builder *b) {
    int x = ndp_graph_input(b->g, b->m->opts.rows, b->f->hidden);
    int before = ndp_unit_norm(b, NDP_P_INPUT_NORM, NDP_B_INPUT_NORM, x), normed = before;
    int h = ndp_unit_norm(b, NDP_P_ATTENTION_NORM, NDP_NO_PARAM, b->layer.mixer->write(b, before));
    h = ndp_unit_scale(b, "scaled", h, b->f->residual_scale);
    if (b->f->parallel && b->f->two_norms)
        normed = ndp_unit_norm(b, NDP_P_MLP_NORM, NDP_B_MLP_NORM, x);
    int s = b->f->parallel ? ndp_unit_add(b, "mid", x, h) : add_norm(b, x, h, &normed);
    int d = ndp_unit_norm(b, NDP_P_MLP_OUT_NORM, NDP_NO_PARAM, b->layer.mlp->write(b, normed));
    d = ndp_unit_scale(b, "scaled", d, b->f->residual_scale);
    ndp_graph_output(b->g, scaled_by_layer(b, ndp_unit_add(b, "y", s, d)));
}
