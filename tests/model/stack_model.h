/* An architecture whose blocks have stacks, as mixtures of experts have: gate, up and a plain up below each other, cut
 * in their rows by the tensor axis, and three matrices down, cut in their columns. Files hold a member as a tensor of
 * its own, or a stack as one; or the model has segments that are glued in place of stacks, which must compute the same.
 * No public function builds stacks, so this one is a table of functions, as the library's own are.
 *
 *   config.json: {"model_type": "stack", "vocab_size": 256, "hidden_size": 24, "width": 48, "blocks": 3,
 *                 "max_position_embeddings": 64, "stored": 1, 2 or 3 (stack_stored)}
 *
 *   x = table[token];  logits = norm(x) table^T
 *   mix(v) = silu(v_0) v_1 + gelu(v_2);  x += mix(down_i(mix(up_i(norm(x))))), i = 0, 1, 2 */
#ifndef TESTS_MODEL_STACK_MODEL_H
#define TESTS_MODEL_STACK_MODEL_H

#include "base/json.h"
#include "base/rng.h"
#include "check.h"
#include "model/architecture.h"

#include <string.h>

typedef enum stack_stored { STACK_APART = 1, STACK_PATTERN, STACK_TENSOR } stack_stored;

enum { STACK_MEMBERS = 3, STACK_MOST = 1 << 16 };

typedef struct stack_facts {
    int64_t vocab, hidden, width, blocks, positions, stored;
} stack_facts;

/* ---- config.json ---- */

static const struct {
    const char *key;
    size_t offset;
    bool shape;
} stack_keys[] = {{"vocab_size", offsetof(stack_facts, vocab), true},
                  {"hidden_size", offsetof(stack_facts, hidden), true},
                  {"width", offsetof(stack_facts, width), true},
                  {"blocks", offsetof(stack_facts, blocks), true},
                  {"max_position_embeddings", offsetof(stack_facts, positions), false}};

static inline bool stack_has(const char *model_type) { return strcmp(model_type, "stack") == 0; }

static inline ndp_status stack_read(struct json_object *config, const char *what, void *facts) {
    for (int i = 0; i < NDP_COUNT(stack_keys); i++) {
        int64_t *at = (int64_t *)((char *)facts + stack_keys[i].offset);
        NDP_TRY(ndp_json_int(config, what, stack_keys[i].key, 1, STACK_MOST, at));
        if (*at == 0)
            return NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is missing", what, stack_keys[i].key);
    }
    return ndp_json_int(config, what, "stored", STACK_APART, STACK_TENSOR, &((stack_facts *)facts)->stored);
}

static inline void stack_list(const void *facts, ndp_fact_visitor *visit, void *user) {
    for (int i = 0; i < NDP_COUNT(stack_keys); i++) {
        char value[24];
        snprintf(value, sizeof value, "%lld",
                 (long long)*(const int64_t *)((const char *)facts + stack_keys[i].offset));
        visit(user, &(ndp_fact){stack_keys[i].key, value, stack_keys[i].shape});
    }
}

static inline void stack_describe(const void *facts, ndp_model_spec *out) {
    const stack_facts *f = facts;
    int64_t stack = STACK_MEMBERS * f->width * f->hidden, table = f->vocab * f->hidden;
    strcpy(out->type, "stack");
    out->vocab = f->vocab;
    out->hidden = (int)f->hidden;
    out->layout.layers = (int)f->blocks;
    out->positions = f->positions;
    out->parameters = table + f->blocks * (f->hidden + 2 * stack) + f->hidden;
    out->largest = table > stack ? table : stack;
}

/* A table and products of small numbers, norms of 1. */
static inline void stack_random(const void *facts, uint64_t seed, const ndp_segment *s, int64_t first, int64_t count,
                                float *out) {
    (void)facts;
    ndp_rng_normal(seed, ndp_rng_stream(s->name), (uint64_t)first, count, s->ndim == 2 ? 0.15 : 0, out);
    for (int64_t i = 0; i < count && s->ndim == 1; i++)
        out[i] += 1;
}

/* ---- inputs ---- */

/* Places in the list of inputs. */
enum { STACK_TOKENS, STACK_LABELS, STACK_STARTS, STACK_LOSS_SCALE, STACK_LOSS };

static inline void stack_inputs(ndp_model *m) {
    static const ndp_input list[] = {
        [STACK_TOKENS] = {"tokens", NDP_INPUT_TOKENS, NDP_EXTENT_TOKENS, 1, NDP_I32, NULL, 0},
        [STACK_LABELS] = {"labels", NDP_INPUT_LABELS, NDP_EXTENT_TOKENS, 1, NDP_I32, NULL, 0},
        [STACK_STARTS] = {"start", NDP_INPUT_STARTS, NDP_EXTENT_TOKENS, 1, NDP_I32, NULL, 0},
        [STACK_LOSS_SCALE] = {"loss_scale", NDP_INPUT_LOSS_SCALE, NDP_EXTENT_ONE, 1, NDP_F64, NULL, 0},
        [STACK_LOSS] = {"loss", NDP_INPUT_LOSS, NDP_EXTENT_ONE, 1, NDP_F64, NULL, 0}};
    m->inputs = ndp_arena_alloc(&m->arena, sizeof *m->inputs);
    *m->inputs = (ndp_inputs){.rows = {[NDP_EXTENT_ONE] = 1, [NDP_EXTENT_TOKENS] = m->opts.rows}};
    for (int i = 0; i < NDP_COUNT(list); i++)
        ndp_inputs_add(m->inputs, list[i]);
}

/* ---- parameters ---- */

static inline void stack_buffer(ndp_model *m, int i, const char *name, int segments) {
    m->buffers[i] = (ndp_buffer){.name = ndp_arena_strdup(&m->arena, name),
                                 .segments.items = ndp_arena_alloc(&m->arena, (size_t)segments * sizeof(ndp_segment)),
                                 .storage = ndp_storage_of(&m->opts, true),
                                 .trainable = true,
                                 .owners = NDP_GROUP_SHARD};
}

static inline void stack_segment(ndp_model *m, int i, const char *name, int ndim, int64_t rows, int64_t cols,
                                 ndp_dim rows_are) {
    ndp_segments *s = &m->buffers[i].segments;
    const char *full = ndp_arena_format(&m->arena, "%s.%s", m->buffers[i].name, name);
    s->items[s->n] = ndp_segment_whole(full, ndim, rows, cols, rows_are, NDP_DIM_WHOLE);
    s->items[s->n++].projection = strcmp(name, "up") == 0 || strcmp(name, "down") == 0;
    ndp_segments_layout(s);
}

/* What a layer has from segment `at` on: a stack, or its members glued together. */
static inline void stack_segments(ndp_model *m, int buffer, stack_stored stored, const char *name, int64_t rows,
                                  int64_t cols, int axis) {
    ndp_segments *s = &m->buffers[buffer].segments;
    for (int i = 0; i < (stored == STACK_APART ? STACK_MEMBERS : 1); i++) {
        ndp_segment *one = &s->items[s->n++];
        const char *full =
            stored == STACK_APART
                ? ndp_arena_format(&m->arena, "%s.members.%d.%s.weight", m->buffers[buffer].name, i, name)
                : ndp_arena_format(&m->arena, "%s.members.%s%s.weight", m->buffers[buffer].name,
                                   stored == STACK_PATTERN ? "%d." : "", name);
        *one = ndp_segment_whole(full, 2, rows, cols, axis == 0 ? NDP_DIM_FFN : NDP_DIM_WHOLE,
                                 axis == 1 ? NDP_DIM_FFN : NDP_DIM_WHOLE);
        ndp_segment_pile(one, stored == STACK_APART ? 0 : STACK_MEMBERS, 1);
        one->projection = one->coded = true;
        one->glued = i > 0;
    }
    ndp_segments_layout(s);
}

static inline void stack_tables(ndp_model *m) {
    const stack_facts *n = m->facts;
    stack_stored stored = (stack_stored)n->stored;
    m->n_buffers = (int)n->blocks + 2;
    m->buffers = ndp_arena_alloc(&m->arena, (size_t)m->n_buffers * sizeof *m->buffers);
    stack_buffer(m, 0, "table", 1);
    stack_segment(m, 0, "weight", 2, n->vocab, n->hidden, NDP_DIM_VOCAB);
    for (int i = 1; i <= n->blocks; i++) {
        stack_buffer(m, i, ndp_arena_format(&m->arena, "blocks.%d", i - 1), 1 + 2 * STACK_MEMBERS);
        stack_segment(m, i, "norm", 1, 1, n->hidden, NDP_DIM_WHOLE);
        stack_segments(m, i, stored, "up", n->width, n->hidden, 0);
        stack_segments(m, i, stored, "down", n->hidden, n->width, 1);
    }
    stack_buffer(m, m->n_buffers - 1, "head", 1);
    stack_segment(m, m->n_buffers - 1, "norm", 1, 1, n->hidden, NDP_DIM_WHOLE);
}

static inline void stack_units(ndp_model *m) {
    m->n_units = m->n_buffers;
    m->units = ndp_arena_alloc(&m->arena, (size_t)m->n_units * sizeof *m->units);
    for (int i = 0; i < m->n_units; i++) {
        bool head = i == m->n_units - 1;
        m->units[i] = (ndp_unit){.name = m->buffers[i].name,
                                 .graph = i == 0 ? 0
                                          : head ? 2
                                                 : 1,
                                 .buffers = {i, head ? 0 : NDP_NONE, [2 ... NDP_SLOTS - 1] = NDP_NONE}};
    }
}

/* ---- graphs ---- */

static inline ndp_graph *stack_graph(ndp_model *m, const char *name, int buffer) {
    ndp_graph *g = &m->graphs[m->n_graphs++];
    ndp_graph_init(g, name, m->opts.compute, m->opts.master);
    g->inputs = m->inputs;
    g->slots[0] = &m->buffers[buffer].segments;
    return g;
}

static inline int stack_norm(ndp_graph *g, int x, int segment) {
    int outs[2] = {NDP_NONE, NDP_NONE};
    ndp_graph_op(g, &ndp_op_rmsnorm, &(ndp_op_attr){.eps = 1e-5}, "norm", (int[]){x, ndp_graph_param(g, 0, segment, 1)},
                 2, outs, 2);
    return outs[0];
}

static inline void stack_head(ndp_model *m) {
    const stack_facts *f = m->facts;
    bool train = m->opts.mode == NDP_MODEL_TRAIN;
    ndp_graph *g = stack_graph(m, "head", m->n_buffers - 1);
    g->slots[1] = &m->buffers[0].segments;
    int n = stack_norm(g, ndp_graph_input(g, m->opts.rows, f->hidden), 0), w = ndp_graph_param(g, 1, 0, 1);
    int ins[] = {n, w, ndp_graph_data(g, STACK_LABELS), ndp_graph_data(g, STACK_LOSS_SCALE)};
    int outs[3] = {NDP_NONE, NDP_NONE, train ? ndp_graph_param_grad(g, w) : NDP_NONE};
    int sum = ndp_graph_data(g, STACK_LOSS);
    ndp_graph_op(g, &ndp_op_xent, &(ndp_op_attr){.vocab = f->vocab, .train = train}, "nll", ins, 4, outs, 3);
    ndp_graph_op(g, &ndp_op_reduce_sum, &(ndp_op_attr){.accumulate = true}, "loss", outs, 1, &sum, 1);
}

static inline int stack_linear(ndp_graph *g, const char *name, int x, int segment, int segments) {
    return ndp_graph_op1(g, &ndp_op_linear, NULL, name, (int[]){x, ndp_graph_param(g, 0, segment, segments), NDP_NONE},
                         3);
}

/* Of the columns of three members, `width` each, adds the first two, gated, and the third to `to`; NDP_NONE: to
 * nothing. */
static inline int stack_mix(ndp_graph *g, int members, int64_t width, int to) {
    int both = ndp_graph_columns(g, members, 0, 2 * width), plain = ndp_graph_columns(g, members, 2 * width, width);
    int gated = ndp_graph_op1(g, &ndp_op_swiglu, NULL, "gated", &both, 1);
    int other = ndp_graph_op1(g, &ndp_op_gelu, NULL, "plain", &plain, 1);
    if (to != NDP_NONE)
        gated = ndp_graph_op1(g, &ndp_op_add, NULL, "y", (int[]){to, gated}, 2);
    return ndp_graph_op1(g, &ndp_op_add, NULL, "mixed", (int[]){gated, other}, 2);
}

static inline void stack_graphs(ndp_model *m) {
    const stack_facts *f = m->facts;
    int64_t hidden = f->hidden, width = f->width;
    int segments = f->stored == STACK_APART ? STACK_MEMBERS : 1;
    ndp_graph *g = stack_graph(m, "embedding", 0);
    int ids[] = {ndp_graph_data(g, STACK_TOKENS), ndp_graph_param(g, 0, 0, 1)};
    ndp_graph_output(g, ndp_graph_op1(g, &ndp_op_embedding, NULL, "x0", ids, 2));

    g = stack_graph(m, "block", 1);
    int x = ndp_graph_input(g, m->opts.rows, hidden);
    int up = stack_linear(g, "up", stack_norm(g, x, 0), 1, segments);
    int down = stack_linear(g, "down", stack_mix(g, up, width, NDP_NONE), 1 + segments, segments);
    ndp_graph_output(g, stack_mix(g, down, hidden, x));

    stack_head(m);
}

/* ---- the architecture ---- */

static const ndp_architecture_table stack_architecture;

static inline ndp_status stack_build(const void *facts, const ndp_model_opts *o, ndp_model *out) {
    ndp_model m;
    NDP_TRY(ndp_model_init(&stack_architecture, facts, o, &m));
    stack_inputs(&m);
    stack_tables(&m);
    stack_units(&m);
    stack_graphs(&m);
    ndp_status st = NDP_OK;
    for (int i = 0; i < m.n_graphs && st == NDP_OK; i++)
        st = m.graphs[i].status;
    if (st != NDP_OK)
        ndp_model_release(&m);
    else
        *out = m;
    return st;
}

static const ndp_architecture_table stack_architecture = {.name = "stack",
                                                          .facts_size = sizeof(stack_facts),
                                                          .has = stack_has,
                                                          .read = stack_read,
                                                          .describe = stack_describe,
                                                          .build = stack_build,
                                                          .random = stack_random,
                                                          .list = stack_list};

/* Odd sizes. */
static inline void stack_model(stack_stored stored, ndp_dtype compute, int64_t rows, ndp_model *m) {
    const stack_facts f = {.vocab = 37, .hidden = 12, .width = 17, .blocks = 2, .positions = 64, .stored = stored};
    const ndp_model_opts o = {
        .mode = NDP_MODEL_TRAIN, .rows = rows, .compute = compute, .master = compute == NDP_F64 ? NDP_F64 : NDP_F32};
    CHECK_OK(stack_build(&f, &o, m));
}

#endif
