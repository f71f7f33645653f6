/* Architectures that a seed draws from what the public header has: blocks of attention, convolutions, gated and plain
 * MLPs, one after the other or side by side, with either norm, biases, scales, a tied head or its own. Blocks of one
 * model differ, but few do.
 *
 *   config.json: {"model_type": "drawn", "seed": 1, "convs": true, "vocab_size": 258, "hidden_size": 24, "width": 40,
 *                 "blocks": 4, "heads": 4, "kv_heads": 2, "max_position_embeddings": 64} */
#ifndef TESTS_MODEL_DRAWN_MODEL_H
#define TESTS_MODEL_DRAWN_MODEL_H

#include "base/rng.h"

#include <ndparallel/model.h>
#include <stdio.h>
#include <string.h>

typedef struct drawn_facts {
    int64_t seed, vocab, hidden, width, blocks, heads, kv_heads;
    bool convs;
    uint64_t at; /* draws so far */
} drawn_facts;

static inline void drawn_read(ndp_model_json *config, void *facts) {
    drawn_facts *f = facts;
    f->seed = ndp_model_json_int(config, "seed", 0, 1 << 30);
    f->vocab = ndp_model_json_int(config, "vocab_size", 1, 1 << 16);
    f->hidden = ndp_model_json_int(config, "hidden_size", 1, 1 << 16);
    f->width = ndp_model_json_int(config, "width", 1, 1 << 16);
    f->blocks = ndp_model_json_int(config, "blocks", 1, 64);
    f->heads = ndp_model_json_int(config, "heads", 1, 64);
    f->kv_heads = ndp_model_json_int(config, "kv_heads", 1, 64);
    f->convs = ndp_model_json_flag(config, "convs");
}

static inline int drawn_of(drawn_facts *f, int n) {
    return (int)ndp_rng_below((uint64_t)f->seed, 7, f->at++, (uint64_t)n);
}

static inline int drawn_norm(ndp_model_builder *b, drawn_facts *f, int x, const char *name) {
    bool layer = drawn_of(f, 2);
    return ndp_build_norm(b, x,
                          NDP_OPTS(ndp_norm_opts, .name = name, .kind = layer ? NDP_NORM_LAYER : NDP_NORM_RMS,
                                   .bias = layer && drawn_of(f, 2)));
}

static inline int drawn_linear(ndp_model_builder *b, drawn_facts *f, int x, const char *name, int64_t columns,
                               bool cut) {
    return ndp_build_linear(
        b, x, NDP_OPTS(ndp_linear_opts, .name = name, .columns = columns, .bias = drawn_of(f, 3) == 0, .cut = cut));
}

/* Products before a part's last one may be whole, but where that would cut rows that a convolution mixes. */
static inline int drawn_part(ndp_model_builder *b, drawn_facts *f, int kind, int x, const char *name) {
    char in[40], other[40], out[40];
    int y;
    snprintf(in, sizeof in, "%s.in", name), snprintf(other, sizeof other, "%s.up", name);
    snprintf(out, sizeof out, "%s.out", name);
    if (kind == 0) {
        y = ndp_build_attention(b, x,
                                NDP_OPTS(ndp_attention_opts, .name = name, .heads = (int)f->heads,
                                         .kv_heads = (int)f->kv_heads, .head_dim = 6, .window = 5 * drawn_of(f, 2),
                                         .rope_theta = 1e4 * drawn_of(f, 2), .rotary_dim = 2 + 2 * drawn_of(f, 3),
                                         .bias = drawn_of(f, 2)));
    } else if (kind == 1) {
        y = ndp_build_gated(b, x,
                            NDP_OPTS(ndp_gated_opts, .gate = in, .up = other, .columns = f->width,
                                     .activation = (ndp_gated_kind)drawn_of(f, 2), .bias = drawn_of(f, 2)));
    } else {
        y = drawn_linear(b, f, x, in, f->width, kind == 3 || drawn_of(f, 2));
        y = kind == 3 ? ndp_build_causal_conv(b, y, NDP_OPTS(ndp_conv_opts, .name = other, .taps = 3)) : y;
        y = ndp_build_gelu(b, y);
    }
    return drawn_linear(b, f, y, out, f->hidden, false);
}

static inline int drawn_block(ndp_model_builder *b, drawn_facts *f, int x) {
    int n = drawn_norm(b, f, x, "norm");
    bool beside = drawn_of(f, 2);
    int y = drawn_part(b, f, 0, n, "attention");
    if (f->convs)
        y = ndp_build_add(b, y, drawn_part(b, f, 3, n, "conv"));
    if (drawn_of(f, 2))
        y = ndp_build_scale(b, y, 0.7);
    y = ndp_build_add(b, x, y);
    return ndp_build_add(b, y,
                         drawn_part(b, f, 1 + drawn_of(f, 2), beside ? n : drawn_norm(b, f, y, "mlp_norm"), "mlp"));
}

static inline void drawn_build(const void *facts, ndp_model_builder *b) {
    drawn_facts own = *(const drawn_facts *)facts, *f = &own;
    bool tied = drawn_of(f, 2);
    uint64_t kinds[2] = {100, 200};
    ndp_build_unit(b, 0, "embed");
    int x =
        ndp_build_embedding(b, NDP_OPTS(ndp_embedding_opts, .name = "tokens", .rows = f->vocab, .columns = f->hidden));
    if (drawn_of(f, 2))
        x = ndp_build_scale(b, x, 1.5);
    for (int i = 0; i < f->blocks; i++) {
        f->at = kinds[i % 3 == 2];
        x = drawn_block(b, f, ndp_build_unit(b, x, "blocks.%d", i));
    }
    x = ndp_build_unit(b, x, "head");
    f->at = 300;
    ndp_build_head(b, drawn_norm(b, f, x, "norm"), NDP_OPTS(ndp_head_opts, .name = tied ? NULL : "logits"));
}

static inline void drawn_random(const void *facts, const ndp_drawn *d, float *out) {
    (void)facts;
    ndp_draw_normal(d, d->dimensions == 2 ? 0.2 : 0.05, out);
    for (int64_t i = 0; i < d->count && d->dimensions == 1 && strstr(d->name, "norm.weight"); i++)
        out[i] += 1;
}

static const ndp_architecture drawn_architecture = {
    sizeof drawn_architecture, "drawn", sizeof(drawn_facts), drawn_read, drawn_build, drawn_random};

#endif
