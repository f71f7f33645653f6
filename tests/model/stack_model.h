/* An architecture whose blocks have stacks, as mixtures of experts have: gate, up and a plain up below each other, cut
 * in their rows by the tensor axis, and three matrices down, cut in their columns. The table, the head and the inputs
 * are those of conv_model.h. Files hold a member as a tensor of its own, or a stack as one; or the model has segments
 * that are glued in place of stacks, which must compute the same.
 *
 *   config.json: that of conv_model.h, with "model_type": "stack" and "stored": 1, 2 or 3 (stack_stored)
 *
 *   mix(v) = silu(v_0) v_1 + gelu(v_2);  x += mix(down_i(mix(up_i(norm(x))))), i = 0, 1, 2 */
#ifndef TESTS_MODEL_STACK_MODEL_H
#define TESTS_MODEL_STACK_MODEL_H

#include "model/conv_model.h"

typedef enum stack_stored { STACK_APART = 1, STACK_PATTERN, STACK_TENSOR } stack_stored;

enum { STACK_MEMBERS = 3 };

typedef struct stack_facts {
    conv_facts sizes;
    int64_t stored;
} stack_facts;

static inline bool stack_has(const char *model_type) { return strcmp(model_type, "stack") == 0; }

static inline ndp_status stack_read(struct json_object *config, const char *what, void *facts) {
    stack_facts *f = facts;
    NDP_TRY(conv_read(config, what, &f->sizes));
    return ndp_json_int(config, what, "stored", STACK_APART, STACK_TENSOR, &f->stored);
}

static inline void stack_describe(const void *facts, ndp_model_spec *out) {
    const conv_facts *f = facts;
    int64_t stack = STACK_MEMBERS * f->width * f->hidden;
    conv_describe(facts, out);
    strcpy(out->type, "stack");
    out->parameters = f->vocab * f->hidden + f->blocks * (f->hidden + 2 * stack) + f->hidden;
    out->largest = f->vocab * f->hidden > stack ? f->vocab * f->hidden : stack;
}

/* ---- parameters ---- */

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
        one->stack = stored == STACK_APART ? 0 : STACK_MEMBERS;
        one->projection = one->coded = true;
        one->glued = i > 0;
    }
    ndp_segments_layout(s);
}

static inline void stack_tables(ndp_model *m) {
    const stack_facts *f = m->facts;
    const conv_facts *n = &f->sizes;
    stack_stored stored = (stack_stored)f->stored;
    m->n_buffers = (int)n->blocks + 2;
    m->buffers = ndp_arena_alloc(&m->arena, (size_t)m->n_buffers * sizeof *m->buffers);
    conv_buffer(m, 0, "table", 1);
    conv_segment(m, 0, "weight", 2, n->vocab, n->hidden, NDP_DIM_VOCAB);
    for (int i = 1; i <= n->blocks; i++) {
        conv_buffer(m, i, ndp_arena_format(&m->arena, "blocks.%d", i - 1), 1 + 2 * STACK_MEMBERS);
        conv_segment(m, i, "norm", 1, 1, n->hidden, NDP_DIM_WHOLE);
        stack_segments(m, i, stored, "up", n->width, n->hidden, 0);
        stack_segments(m, i, stored, "down", n->hidden, n->width, 1);
    }
    conv_buffer(m, m->n_buffers - 1, "head", 1);
    conv_segment(m, m->n_buffers - 1, "norm", 1, 1, n->hidden, NDP_DIM_WHOLE);
}

/* ---- graphs ---- */

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
    int64_t hidden = f->sizes.hidden, width = f->sizes.width;
    int segments = f->stored == STACK_APART ? STACK_MEMBERS : 1;
    ndp_graph *g = conv_graph(m, "embedding", 0);
    int ids[] = {ndp_graph_data(g, CONV_TOKENS), ndp_graph_param(g, 0, 0, 1)};
    ndp_graph_output(g, ndp_graph_op1(g, &ndp_op_embedding, NULL, "x0", ids, 2));

    g = conv_graph(m, "block", 1);
    int x = ndp_graph_input(g, m->opts.rows, hidden);
    int up = stack_linear(g, "up", conv_norm(g, x, 0), 1, segments);
    int down = stack_linear(g, "down", stack_mix(g, up, width, NDP_NONE), 1 + segments, segments);
    ndp_graph_output(g, stack_mix(g, down, hidden, x));

    conv_head(m);
}

/* ---- the architecture ---- */

static const ndp_architecture stack_architecture;

static inline ndp_status stack_build(const void *facts, const ndp_model_opts *o, ndp_model *out) {
    ndp_model m;
    NDP_TRY(ndp_model_init(&stack_architecture, facts, o, &m));
    conv_inputs(&m);
    stack_tables(&m);
    conv_units(&m);
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

static const ndp_architecture stack_architecture = {.name = "stack",
                                                    .facts_size = sizeof(stack_facts),
                                                    .has = stack_has,
                                                    .read = stack_read,
                                                    .describe = stack_describe,
                                                    .build = stack_build,
                                                    .random = conv_random,
                                                    .list = conv_list};

/* Odd sizes. */
static inline void stack_model(stack_stored stored, ndp_dtype compute, int64_t rows, ndp_model *m) {
    const stack_facts f = {{.vocab = 37, .hidden = 12, .width = 17, .blocks = 2, .positions = 64}, stored};
    const ndp_model_opts o = {
        .mode = NDP_MODEL_TRAIN, .rows = rows, .compute = compute, .master = compute == NDP_F64 ? NDP_F64 : NDP_F32};
    CHECK_OK(stack_build(&f, &o, m));
}

#endif
