/* The ops that a program's own model may have (ndparallel/model.h). Each is written as the decoder writes it (block.c):
 * products with their adapters and packed weights by ndp_unit_linear, and with the cuts that the tensor axis knows. */
#include "model/own_builder.h"

#include "model/activations.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The options of a call, with members that the program's version lacks as 0; NULL, and an error: there are none. */
static bool take(ndp_model_builder *b, const char *what, const void *opts, void *own, size_t size) {
    size_t given = 0;
    if (!b)
        return false;
    memset(own, 0, size);
    if (b->st == NDP_OK && !opts) {
        ndp_build_fail(b, "%s: o is NULL", what);
    } else if (b->st == NDP_OK) {
        memcpy(&given, opts, sizeof given);
        if (given < 2 * sizeof(size_t))
            ndp_build_fail(b, "%s: options of %zu bytes; set size to sizeof", what, given);
    }
    if (b->st == NDP_OK)
        memcpy(own, opts, given < size ? given : size);
    return b->st == NDP_OK;
}
#define TAKE(opts, own) take(b, __func__, (opts), &(own), sizeof(own))

static const ndp_view *shape(const ndp_model_builder *b, int value) { return &b->graph.values[value].view; }
static const ndp_own_value *known(const ndp_model_builder *b, int value) { return &b->values[value]; }

/* A value with whole columns. */
static int use_whole(ndp_model_builder *b, const char *what, int x) {
    int value = ndp_own_use(b, what, x);
    if (value != NDP_NONE && known(b, value)->dim != NDP_DIM_WHOLE) {
        ndp_build_fail(b, "%s: tensor parallelism cuts the columns of its operand; ndp_build_linear makes them whole",
                       what);
        return NDP_NONE;
    }
    return value;
}

/* A result whose columns are those of its operand. */
static int number_like(ndp_model_builder *b, int value, int operand) {
    const ndp_own_value like = *known(b, operand);
    return ndp_own_number(b, value, like.dim, like.grain);
}

/* ---- the first unit and the last ---- */

int ndp_build_embedding(ndp_model_builder *b, const ndp_embedding_opts *opts) {
    ndp_embedding_opts o;
    ndp_place at;
    if (!TAKE(opts, o) || !ndp_own_unit(b, __func__))
        return 0;
    if (b->m->n_units != 1 || b->graph.n_values > 0) {
        ndp_build_fail(b, "%s: it begins the first unit", __func__);
        return 0;
    }
    if (o.rows > NDP_MAX_VOCAB)
        ndp_build_fail(b, "%s: %lld rows; at most %d are supported", __func__, (long long)o.rows, NDP_MAX_VOCAB);
    ndp_own_tensor(b, o.name, ".weight", ndp_segment_whole(NULL, 2, o.rows, o.columns, NDP_DIM_VOCAB, NDP_DIM_WHOLE),
                   &at);
    if (b->st != NDP_OK)
        return 0;
    b->f->vocab = o.rows, b->f->hidden = (int)o.columns;
    int ins[] = {ndp_own_data(b, NDP_OWN_TOKENS), ndp_own_param(b, at)};
    return ndp_own_number(b, ndp_graph_op1(&b->graph, &ndp_op_embedding, NULL, "embedding", ins, 2), NDP_DIM_WHOLE, 1);
}

/* Where the matrix of the head is: the unit's own, or the table of the first unit. */
static ndp_place head_matrix(ndp_model_builder *b, const char *name, int64_t columns) {
    ndp_place at = {0, NDP_NONE};
    if (name) {
        ndp_segment s = ndp_segment_whole(NULL, 2, b->f->vocab, columns, NDP_DIM_VOCAB, NDP_DIM_WHOLE);
        s.coded = true;
        ndp_own_tensor(b, name, ".weight", s, &at);
        return at;
    }
    ndp_unit *u = &b->m->units[b->m->n_units - 1];
    for (int s = 0; s < NDP_SLOTS && at.segment == NDP_NONE; s++) {
        int buffer = b->m->units[0].buffers[s];
        if (buffer == NDP_NONE || b->m->buffers[buffer].segments.items[0].dim[0] != NDP_DIM_VOCAB)
            continue;
        u->buffers[NDP_SLOT_TIED] = buffer;
        b->graph.slots[NDP_SLOT_TIED] = &b->m->buffers[buffer].segments;
        b->graph.frozen[NDP_SLOT_TIED] = !b->m->buffers[buffer].trainable;
        at = (ndp_place){NDP_SLOT_TIED, 0};
    }
    return at;
}

void ndp_build_head(ndp_model_builder *b, int x, const ndp_head_opts *opts) {
    ndp_head_opts o;
    int value = TAKE(opts, o) ? use_whole(b, __func__, x) : NDP_NONE;
    if (value == NDP_NONE)
        return;
    if (!o.name && shape(b, value)->cols != b->f->hidden)
        ndp_build_fail(b, "%s: %lld columns, and the table that it is tied to has %d", __func__,
                       (long long)shape(b, value)->cols, b->f->hidden);
    ndp_place at = b->st == NDP_OK ? head_matrix(b, o.name, shape(b, value)->cols) : (ndp_place){0, NDP_NONE};
    if (b->st != NDP_OK)
        return;
    ndp_graph *g = &b->graph;
    ndp_head_loss(b->m, g, value, ndp_own_param(b, at),
                  &(ndp_op_attr){.vocab = b->f->vocab, .train = b->m->opts.mode == NDP_MODEL_TRAIN});
    b->ended = b->st == NDP_OK;
}

/* ---- products ---- */

/* Glued products of one operand: their matrices stand at NDP_P_Q and after it, their biases at NDP_B_Q. */
typedef struct own_product {
    const char *names[3];
    int64_t columns[3];
    ndp_dim dims[3]; /* of the columns of the results */
    int n;
    int64_t grain;
    bool bias;
} own_product;
_Static_assert((int)NDP_P_V == (int)NDP_P_Q + 2 && (int)NDP_B_V == (int)NDP_B_Q + 2, "three places in a row");

static void declare(ndp_model_builder *b, const own_product *p, const ndp_own_value *x, int64_t inputs,
                    ndp_param_places *places) {
    bool block = b->m->n_units > 1;
    for (int i = 0; i < p->n; i++) {
        ndp_segment s = ndp_segment_whole(NULL, 2, p->columns[i], inputs, p->dims[i], x->dim);
        s.grain[0] = p->dims[i] == NDP_DIM_WHOLE ? 1 : p->grain, s.grain[1] = x->grain;
        s.glued = i > 0, s.projection = block, s.coded = true;
        ndp_own_tensor(b, p->names[i], ".weight", s, &places->at[NDP_P_Q + i]);
    }
    for (int i = 0; i < p->n && p->bias; i++) {
        ndp_segment s = ndp_segment_whole(NULL, 1, 1, p->columns[i], NDP_DIM_WHOLE, p->dims[i]);
        s.grain[1] = p->dims[i] == NDP_DIM_WHOLE ? 1 : p->grain, s.glued = i > 0, s.coded = true;
        ndp_own_tensor(b, p->names[i], ".bias", s, &places->at[NDP_B_Q + i]);
    }
}

/* The value of the products side by side; NDP_NONE after an error. */
static int multiply(ndp_model_builder *b, const own_product *p, int x) {
    ndp_param_places places;
    ndp_places_clear(&places);
    const ndp_own_value of = *known(b, x);
    declare(b, p, &of, shape(b, x)->cols, &places);
    if (b->st == NDP_OK)
        ndp_own_factors(b, NDP_P_Q, p->n, &places);
    if (b->st != NDP_OK)
        return NDP_NONE;
    ndp_unit_builder u = {.m = b->m, .g = &b->graph, .places = &places, .dropouts = b->dropouts};
    int y = ndp_unit_linear(&u, p->names[0], x, NDP_P_Q, p->n, p->bias ? NDP_B_Q : NDP_NO_PARAM);
    b->dropouts = u.dropouts;
    return b->graph.status == NDP_OK ? y : NDP_NONE;
}

int ndp_build_linear(ndp_model_builder *b, int x, const ndp_linear_opts *opts) {
    ndp_linear_opts o;
    int value = TAKE(opts, o) ? ndp_own_use(b, __func__, x) : NDP_NONE;
    if (value == NDP_NONE)
        return 0;
    if (o.cut && known(b, value)->dim != NDP_DIM_WHOLE) {
        ndp_build_fail(b, "%s: %.60s has a cut, and its operand is cut already", __func__, o.name ? o.name : "it");
        return 0;
    }
    ndp_dim dim = o.cut ? NDP_DIM_FFN : NDP_DIM_WHOLE;
    const own_product p = {{o.name}, {o.columns}, {dim}, 1, 1, o.bias};
    return ndp_own_number(b, multiply(b, &p, value), dim, 1);
}

int ndp_build_gated(ndp_model_builder *b, int x, const ndp_gated_opts *opts) {
    ndp_gated_opts o;
    int value = TAKE(opts, o) ? use_whole(b, __func__, x) : NDP_NONE;
    if (value == NDP_NONE)
        return 0;
    const ndp_activation kind[] = {[NDP_GATED_SILU] = NDP_SILU, [NDP_GATED_GELU] = NDP_GELU_TANH};
    if ((unsigned)o.activation >= NDP_COUNT(kind)) {
        ndp_build_fail(b, "%s: there is no activation %d", __func__, (int)o.activation);
        return 0;
    }
    const own_product p = {{o.gate ? o.gate : "gate", o.up ? o.up : "up"},
                           {o.columns, o.columns},
                           {NDP_DIM_FFN, NDP_DIM_FFN},
                           2,
                           1,
                           o.bias};
    int both = multiply(b, &p, value);
    if (both == NDP_NONE)
        return ndp_own_number(b, both, NDP_DIM_FFN, 1);
    const ndp_op *op = ndp_activation_op(kind[o.activation], true);
    return ndp_own_number(b, ndp_graph_op1(&b->graph, op, NULL, "gated", &both, 1), NDP_DIM_FFN, 1);
}

/* ---- attention ---- */

static bool check_attention(ndp_model_builder *b, const ndp_attention_opts *o) {
    const ndp_layout_facts *l = &b->f->layout;
    if (o->heads < 1 || o->kv_heads < 1 || o->heads % o->kv_heads != 0 || o->head_dim < 1 || o->heads > 1 << 16 ||
        o->head_dim > 1 << 16)
        ndp_build_fail(b, "ndp_build_attention: %d heads of %d columns, and %d kv heads", o->heads, o->head_dim,
                       o->kv_heads);
    else if (l->heads && (l->heads != o->heads || l->kv_heads != o->kv_heads))
        ndp_build_fail(b,
                       "ndp_build_attention: %d heads (%d kv), where attention before has %d (%d kv); all of a model "
                       "has the same",
                       o->heads, o->kv_heads, l->heads, l->kv_heads);
    else if (o->window < 0 || !(o->scale >= 0) || !(o->rope_theta >= 0))
        ndp_build_fail(b, "ndp_build_attention: window %d, scale %g, rope_theta %g", o->window, o->scale,
                       o->rope_theta);
    else if (o->rope_theta > 0 && (o->rotary_dim < 2 || o->rotary_dim > o->head_dim || o->rotary_dim % 2))
        ndp_build_fail(b, "ndp_build_attention: %d columns of a head's %d turn; an even number does", o->rotary_dim,
                       o->head_dim);
    return b->st == NDP_OK;
}

static int attend(ndp_model_builder *b, const ndp_attention_opts *o, int qkv) {
    ndp_graph *g = &b->graph;
    int64_t d = o->head_dim, q = o->heads * d, kv = o->kv_heads * d;
    ndp_op_attr attr = {.heads = o->heads,
                        .kv_heads = o->kv_heads,
                        .head_dim = o->head_dim,
                        .rotary_dim = o->rotary_dim,
                        .window = b->m->opts.window > 0 ? b->m->opts.window : o->window,
                        .scale = o->scale > 0 ? o->scale : 1 / sqrt((double)d)};
    if (o->rope_theta > 0) {
        int turn[] = {qkv, ndp_own_data(b, NDP_OWN_POSITIONS), ndp_own_angles(b, o->rope_theta, o->rotary_dim)};
        if (b->st != NDP_OK)
            return NDP_NONE;
        qkv = ndp_graph_op1(g, &ndp_op_rope, &attr, "qkv", turn, 3);
    }
    int ins[] = {ndp_graph_columns(g, qkv, 0, q),       ndp_graph_columns(g, qkv, q, kv),
                 ndp_graph_columns(g, qkv, q + kv, kv), ndp_own_data(b, NDP_OWN_QUERIES),
                 ndp_own_data(b, NDP_OWN_LOWEST),       ndp_own_data(b, NDP_OWN_KEYS)};
    int outs[2] = {NDP_NONE, NDP_NONE};
    ndp_graph_op(g, &ndp_op_attention, &attr, "attention", ins, 6, outs, 2);
    return outs[0];
}

int ndp_build_attention(ndp_model_builder *b, int x, const ndp_attention_opts *opts) {
    ndp_attention_opts o;
    char names[3][80];
    int value = TAKE(opts, o) ? use_whole(b, __func__, x) : NDP_NONE;
    if (value == NDP_NONE)
        return 0;
    o.kv_heads = o.kv_heads ? o.kv_heads : o.heads;
    o.rotary_dim = o.rotary_dim ? o.rotary_dim : o.head_dim;
    if (!check_attention(b, &o))
        return 0;
    for (int i = 0; i < 3; i++)
        snprintf(names[i], sizeof names[i], "%.70s.%c", o.name ? o.name : "attention", "qkv"[i]);
    int64_t q = (int64_t)o.heads * o.head_dim, kv = (int64_t)o.kv_heads * o.head_dim;
    const own_product p = {{names[0], names[1], names[2]},
                           {q, kv, kv},
                           {NDP_DIM_HEADS, NDP_DIM_KV_HEADS, NDP_DIM_KV_HEADS},
                           3,
                           o.head_dim,
                           o.bias};
    int qkv = multiply(b, &p, value);
    b->f->layout.heads = o.heads, b->f->layout.kv_heads = o.kv_heads;
    return ndp_own_number(b, qkv == NDP_NONE ? qkv : attend(b, &o, qkv), NDP_DIM_HEADS, o.head_dim);
}

/* ---- what changes columns, rows and elements ---- */

int ndp_build_norm(ndp_model_builder *b, int x, const ndp_norm_opts *opts) {
    ndp_norm_opts o;
    ndp_place w, bias = {0, NDP_NONE};
    int value = TAKE(opts, o) ? use_whole(b, __func__, x) : NDP_NONE, outs[2] = {NDP_NONE, NDP_NONE};
    if (value == NDP_NONE)
        return 0;
    bool layer = o.kind == NDP_NORM_LAYER;
    if ((!layer && (o.kind != NDP_NORM_RMS || o.bias)) || !(o.eps >= 0))
        ndp_build_fail(b, "%s: %.60s is of kind %d with eps %g; an RMS norm has no bias", __func__,
                       o.name ? o.name : "it", (int)o.kind, o.eps);
    ndp_segment s = ndp_segment_whole(NULL, 1, 1, shape(b, value)->cols, NDP_DIM_WHOLE, NDP_DIM_WHOLE);
    s.coded = true;
    ndp_own_tensor(b, o.name, ".weight", s, &w);
    if (o.bias)
        ndp_own_tensor(b, o.name, ".bias", s, &bias);
    if (b->st != NDP_OK)
        return 0;
    ndp_op_attr attr = {.eps = o.eps > 0 ? o.eps : 1e-5};
    int ins[] = {value, ndp_own_param(b, w), o.bias ? ndp_own_param(b, bias) : NDP_NONE};
    ndp_graph_op(&b->graph, layer ? &ndp_op_layernorm : &ndp_op_rmsnorm, &attr, o.name, ins, layer ? 3 : 2, outs, 2);
    return ndp_own_number(b, outs[0], NDP_DIM_WHOLE, 1);
}

int ndp_build_causal_conv(ndp_model_builder *b, int x, const ndp_conv_opts *opts) {
    ndp_conv_opts o;
    ndp_place at;
    int value = TAKE(opts, o) ? ndp_own_use(b, __func__, x) : NDP_NONE;
    if (value == NDP_NONE)
        return 0;
    const ndp_own_value of = *known(b, value);
    ndp_segment s = ndp_segment_whole(NULL, 2, o.taps, shape(b, value)->cols, NDP_DIM_WHOLE, of.dim);
    s.grain[1] = of.grain, s.coded = true;
    ndp_own_tensor(b, o.name, ".weight", s, &at);
    if (b->st != NDP_OK)
        return 0;
    int ins[] = {value, ndp_own_param(b, at), ndp_own_data(b, NDP_OWN_STARTS)};
    return number_like(b, ndp_graph_op1(&b->graph, &ndp_op_causal_conv, NULL, o.name, ins, 3), value);
}

int ndp_build_gelu(ndp_model_builder *b, int x) {
    int value = b ? ndp_own_use(b, __func__, x) : NDP_NONE;
    return value == NDP_NONE ? 0
                             : number_like(b, ndp_graph_op1(&b->graph, &ndp_op_gelu, NULL, "gelu", &value, 1), value);
}

int ndp_build_add(ndp_model_builder *b, int x, int y) {
    int ins[2] = {b ? ndp_own_use(b, __func__, x) : NDP_NONE, b ? ndp_own_use(b, __func__, y) : NDP_NONE};
    if (ins[0] == NDP_NONE || ins[1] == NDP_NONE)
        return 0;
    const ndp_own_value *v = known(b, ins[0]), *w = known(b, ins[1]);
    int64_t n = shape(b, ins[0])->cols, k = shape(b, ins[1])->cols;
    if (n != k || v->dim != w->dim || v->grain != w->grain) {
        ndp_build_fail(b, "%s: %lld columns%s and %lld%s; both have as many, cut alike", __func__, (long long)n,
                       v->dim ? ", cut," : "", (long long)k, w->dim ? ", cut" : "");
        return 0;
    }
    return number_like(b, ndp_graph_op1(&b->graph, &ndp_op_add, NULL, "sum", ins, 2), ins[0]);
}

/* In place: x is gone. Attention's backward reads its result, and what a unit gets is not its own. */
int ndp_build_scale(ndp_model_builder *b, int x, double factor) {
    bool read = b && ndp_own_is_read(b, x);
    int value = b ? ndp_own_use(b, __func__, x) : NDP_NONE;
    if (value == NDP_NONE)
        return 0;
    if (read || value == b->graph.input || known(b, value)->dim == NDP_DIM_HEADS) {
        ndp_build_fail(b, "%s: %s; scale what a product made of it", __func__,
                       read                      ? "another op reads its operand, which it changes"
                       : value == b->graph.input ? "its operand is the unit's first value, which it would change"
                                                 : "its operand is attention's result, which it would change");
        return 0;
    }
    b->values[value].changed = true;
    int y = ndp_graph_op1(&b->graph, &ndp_op_scale, &(ndp_op_attr){.scale = factor}, "scaled", &value, 1);
    return number_like(b, y, value);
}
