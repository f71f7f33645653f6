/* An architecture that is not the decoder's: a language model of causal convolutions, with a tied table. All of it is
 * here: other rooms know it by its row of functions, and by its inputs, buffers, units and graphs.
 *
 *   config.json: {"model_type": "conv", "vocab_size": 256, "hidden_size": 24, "width": 48, "blocks": 3,
 *                 "max_position_embeddings": 64}
 *
 *   x = table[token];  each block: x += down(gelu(conv(up(norm(x)))));  logits = norm(x) table^T
 *
 * conv filters each column over the rows of the document before it: the blocks mix rows, so the model trains on the
 * data-parallel axes and is refused where an axis cuts rows. */
#ifndef TESTS_MODEL_CONV_MODEL_H
#define TESTS_MODEL_CONV_MODEL_H

#include "base/json.h"
#include "base/rng.h"
#include "check.h"
#include "model/architecture.h"

#include <string.h>

enum { CONV_TAPS = 4, CONV_BLOCKS = 3, CONV_MOST = 1 << 16 };

typedef struct conv_facts {
    int64_t vocab, hidden, width, blocks, positions;
} conv_facts;

static const conv_facts conv_bytes = {.vocab = 256, .hidden = 24, .width = 48, .blocks = CONV_BLOCKS, .positions = 64};

/* ---- config.json ---- */

static const struct {
    const char *key;
    size_t offset;
    bool shape;
} conv_keys[] = {{"vocab_size", offsetof(conv_facts, vocab), true},
                 {"hidden_size", offsetof(conv_facts, hidden), true},
                 {"width", offsetof(conv_facts, width), true},
                 {"blocks", offsetof(conv_facts, blocks), true},
                 {"max_position_embeddings", offsetof(conv_facts, positions), false}};

static inline bool conv_has(const char *model_type) { return strcmp(model_type, "conv") == 0; }

static inline ndp_status conv_read(struct json_object *config, const char *what, void *facts) {
    for (int i = 0; i < NDP_COUNT(conv_keys); i++) {
        int64_t *at = (int64_t *)((char *)facts + conv_keys[i].offset);
        NDP_TRY(ndp_json_int(config, what, conv_keys[i].key, 1, CONV_MOST, at));
        if (*at == 0)
            return NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is missing", what, conv_keys[i].key);
    }
    return NDP_OK;
}

static inline void conv_list(const void *facts, ndp_fact_visitor *visit, void *user) {
    for (int i = 0; i < NDP_COUNT(conv_keys); i++) {
        char value[24];
        snprintf(value, sizeof value, "%lld", (long long)*(const int64_t *)((const char *)facts + conv_keys[i].offset));
        visit(user, &(ndp_fact){conv_keys[i].key, value, conv_keys[i].shape});
    }
}

static inline void conv_describe(const void *facts, ndp_model_spec *out) {
    const conv_facts *f = facts;
    int64_t block = f->hidden + 2 * f->width * f->hidden + CONV_TAPS * f->width;
    strcpy(out->type, "conv");
    out->vocab = f->vocab;
    out->hidden = (int)f->hidden;
    out->layout.layers = (int)f->blocks;
    out->positions = f->positions;
    out->parameters = f->vocab * f->hidden + f->blocks * block + f->hidden;
    out->largest = (f->vocab > f->width ? f->vocab : f->width) * f->hidden;
}

/* A table and products of small numbers, norms of 1. */
static inline void conv_random(const void *facts, uint64_t seed, const ndp_segment *s, int64_t first, int64_t count,
                               float *out) {
    (void)facts;
    ndp_rng_normal(seed, ndp_rng_stream(s->name), (uint64_t)first, count, s->ndim == 2 ? 0.15 : 0, out);
    for (int64_t i = 0; i < count && s->ndim == 1; i++)
        out[i] += 1;
}

/* ---- inputs ---- */

/* Places in the list of inputs. */
enum { CONV_TOKENS, CONV_LABELS, CONV_START, CONV_LOSS_SCALE, CONV_LOSS };

static inline void conv_inputs(ndp_model *m) {
    static const ndp_input list[] = {
        [CONV_TOKENS] = {"tokens", NDP_INPUT_TOKENS, NDP_EXTENT_TOKENS, 1, NDP_I32, NULL, 0},
        [CONV_LABELS] = {"labels", NDP_INPUT_LABELS, NDP_EXTENT_TOKENS, 1, NDP_I32, NULL, 0},
        [CONV_START] = {"start", NDP_INPUT_STARTS, NDP_EXTENT_TOKENS, 1, NDP_I32, NULL, 0},
        [CONV_LOSS_SCALE] = {"loss_scale", NDP_INPUT_LOSS_SCALE, NDP_EXTENT_ONE, 1, NDP_F64, NULL, 0},
        [CONV_LOSS] = {"loss", NDP_INPUT_LOSS, NDP_EXTENT_ONE, 1, NDP_F64, NULL, 0}};
    m->inputs = ndp_arena_alloc(&m->arena, sizeof *m->inputs);
    *m->inputs = (ndp_inputs){.rows = {[NDP_EXTENT_ONE] = 1, [NDP_EXTENT_TOKENS] = m->opts.rows}};
    for (int i = 0; i < NDP_COUNT(list); i++)
        ndp_inputs_add(m->inputs, list[i]);
}

/* ---- parameters ---- */

/* Segments of a block. */
enum { CONV_NORM, CONV_UP, CONV_FILTER, CONV_DOWN, CONV_SEGMENTS };

static inline void conv_buffer(ndp_model *m, int i, const char *name, int segments) {
    m->buffers[i] = (ndp_buffer){.name = ndp_arena_strdup(&m->arena, name),
                                 .segments.items = ndp_arena_alloc(&m->arena, (size_t)segments * sizeof(ndp_segment)),
                                 .storage = ndp_storage_of(&m->opts, true),
                                 .trainable = true,
                                 .owners = NDP_GROUP_SHARD};
}

static inline void conv_segment(ndp_model *m, int i, const char *name, int ndim, int64_t rows, int64_t cols,
                                ndp_dim rows_are) {
    ndp_segments *s = &m->buffers[i].segments;
    const char *full = ndp_arena_format(&m->arena, "%s.%s", m->buffers[i].name, name);
    s->items[s->n] = ndp_segment_whole(full, ndim, rows, cols, rows_are, NDP_DIM_WHOLE);
    s->items[s->n++].projection = strcmp(name, "up") == 0 || strcmp(name, "down") == 0;
    ndp_segments_layout(s);
}

static inline void conv_tables(ndp_model *m) {
    const conv_facts *f = m->facts;
    m->n_buffers = (int)f->blocks + 2;
    m->buffers = ndp_arena_alloc(&m->arena, (size_t)m->n_buffers * sizeof *m->buffers);
    conv_buffer(m, 0, "table", 1);
    conv_segment(m, 0, "weight", 2, f->vocab, f->hidden, NDP_DIM_VOCAB);
    for (int i = 1; i <= f->blocks; i++) {
        conv_buffer(m, i, ndp_arena_format(&m->arena, "blocks.%d", i - 1), CONV_SEGMENTS);
        conv_segment(m, i, "norm", 1, 1, f->hidden, NDP_DIM_WHOLE);
        conv_segment(m, i, "up", 2, f->width, f->hidden, NDP_DIM_WHOLE);
        conv_segment(m, i, "filter", 2, CONV_TAPS, f->width, NDP_DIM_WHOLE);
        conv_segment(m, i, "down", 2, f->hidden, f->width, NDP_DIM_WHOLE);
    }
    conv_buffer(m, m->n_buffers - 1, "head", 1);
    conv_segment(m, m->n_buffers - 1, "norm", 1, 1, f->hidden, NDP_DIM_WHOLE);
}

static inline void conv_units(ndp_model *m) {
    m->n_units = m->n_buffers;
    m->units = ndp_arena_alloc(&m->arena, (size_t)m->n_units * sizeof *m->units);
    for (int i = 0; i < m->n_units; i++) {
        bool head = i == m->n_units - 1;
        m->units[i] = (ndp_unit){.name = m->buffers[i].name,
                                 .graph = i == 0 ? 0
                                          : head ? 2
                                                 : 1,
                                 .buffers = {i, head ? 0 : NDP_NONE, NDP_NONE, NDP_NONE}};
    }
}

/* ---- graphs ---- */

static inline ndp_graph *conv_graph(ndp_model *m, const char *name, int buffer) {
    ndp_graph *g = &m->graphs[m->n_graphs++];
    ndp_graph_init(g, name, m->opts.compute, m->opts.master);
    g->inputs = m->inputs;
    g->slots[0] = &m->buffers[buffer].segments;
    return g;
}

static inline int conv_norm(ndp_graph *g, int x, int segment) {
    int outs[2] = {NDP_NONE, NDP_NONE};
    ndp_graph_op(g, &ndp_op_rmsnorm, &(ndp_op_attr){.eps = 1e-5}, "norm", (int[]){x, ndp_graph_param(g, 0, segment, 1)},
                 2, outs, 2);
    return outs[0];
}

static inline int conv_linear(ndp_graph *g, const char *name, int x, int segment) {
    return ndp_graph_op1(g, &ndp_op_linear, NULL, name, (int[]){x, ndp_graph_param(g, 0, segment, 1), NDP_NONE}, 3);
}

static inline void conv_head(ndp_model *m) {
    const conv_facts *f = m->facts;
    bool train = m->opts.mode == NDP_MODEL_TRAIN;
    ndp_graph *g = conv_graph(m, "head", m->n_buffers - 1);
    g->slots[1] = &m->buffers[0].segments;
    int n = conv_norm(g, ndp_graph_input(g, m->opts.rows, f->hidden), 0), w = ndp_graph_param(g, 1, 0, 1);
    int ins[] = {n, w, ndp_graph_data(g, CONV_LABELS), ndp_graph_data(g, CONV_LOSS_SCALE)};
    int outs[3] = {NDP_NONE, NDP_NONE, train ? ndp_graph_param_grad(g, w) : NDP_NONE};
    int sum = ndp_graph_data(g, CONV_LOSS);
    ndp_graph_op(g, &ndp_op_xent, &(ndp_op_attr){.vocab = f->vocab, .train = train}, "nll", ins, 4, outs, 3);
    ndp_graph_op(g, &ndp_op_reduce_sum, &(ndp_op_attr){.accumulate = true}, "loss", outs, 1, &sum, 1);
}

static inline void conv_graphs(ndp_model *m) {
    const conv_facts *f = m->facts;
    ndp_graph *g = conv_graph(m, "embedding", 0);
    int ids[] = {ndp_graph_data(g, CONV_TOKENS), ndp_graph_param(g, 0, 0, 1)};
    ndp_graph_output(g, ndp_graph_op1(g, &ndp_op_embedding, NULL, "x0", ids, 2));

    g = conv_graph(m, "block", 1);
    int x = ndp_graph_input(g, m->opts.rows, f->hidden), up = conv_linear(g, "up", conv_norm(g, x, CONV_NORM), CONV_UP);
    int taps[] = {up, ndp_graph_param(g, 0, CONV_FILTER, 1), ndp_graph_data(g, CONV_START)};
    int mixed = ndp_graph_op1(g, &ndp_op_causal_conv, NULL, "mixed", taps, 3);
    int act = ndp_graph_op1(g, &ndp_op_gelu, NULL, "act", &mixed, 1);
    ndp_graph_output(g,
                     ndp_graph_op1(g, &ndp_op_add, NULL, "y", (int[]){x, conv_linear(g, "down", act, CONV_DOWN)}, 2));

    conv_head(m);
}

/* ---- the architecture ---- */

static const ndp_architecture conv_architecture;

static inline ndp_status conv_build(const void *facts, const ndp_model_opts *o, ndp_model *out) {
    ndp_model m;
    ndp_status st;
    NDP_TRY_GOTO(ndp_model_init(&conv_architecture, facts, o, &m), fail);
    if (o->mode == NDP_MODEL_CACHED || o->window > 0 || o->n_frozen > 0 || o->preference.kind) {
        st = NDP_FAIL(NDP_ENOTSUP, "conv: %s is not supported",
                      o->window > 0        ? "model.sliding_window"
                      : o->n_frozen > 0    ? "model.frozen"
                      : o->preference.kind ? "a loss of pairs"
                                           : "generation");
        goto fail;
    }
    conv_inputs(&m);
    conv_tables(&m);
    conv_units(&m);
    conv_graphs(&m);
    for (int i = 0; i < m.n_graphs; i++)
        NDP_TRY_GOTO(m.graphs[i].status, fail);
    *out = m;
    return NDP_OK;
fail:
    ndp_model_release(&m);
    return st;
}

static const ndp_architecture conv_architecture = {.name = "conv",
                                                   .facts_size = sizeof(conv_facts),
                                                   .has = conv_has,
                                                   .read = conv_read,
                                                   .describe = conv_describe,
                                                   .build = conv_build,
                                                   .random = conv_random,
                                                   .list = conv_list};

/* Of bytes, for training on micro-batches of `rows` of them. */
static inline void conv_model(ndp_dtype compute, int64_t rows, ndp_model *m) {
    const ndp_model_opts o = {
        .mode = NDP_MODEL_TRAIN, .rows = rows, .compute = compute, .master = compute == NDP_F64 ? NDP_F64 : NDP_F32};
    CHECK_OK(conv_build(&conv_bytes, &o, m));
}

#endif
