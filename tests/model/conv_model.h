/* An architecture that is not the library's, on the public header alone: a language model of causal convolutions, with
 * a tied table.
 *
 *   config.json: {"model_type": "conv", "vocab_size": 256, "hidden_size": 24, "width": 48, "blocks": 3,
 *                 "max_position_embeddings": 64}
 *
 *   x = table[token];  each block: x += down(gelu(conv(up(norm(x)))));  logits = norm(x) table^T
 *
 * conv filters each column over the rows of the document before it: the blocks mix rows. No product is cut, so that the
 * model trains on the data-parallel axes and is refused where an axis cuts rows. */
#ifndef TESTS_MODEL_CONV_MODEL_H
#define TESTS_MODEL_CONV_MODEL_H

#include "base/json.h"
#include "check.h"
#include "model/architecture.h"

#include <ndparallel/model.h>
#include <string.h>

enum { CONV_TAPS = 4, CONV_BLOCKS = 3, CONV_MOST = 1 << 16 };

typedef struct conv_facts {
    int64_t vocab, hidden, width, blocks;
} conv_facts;

static inline void conv_read(ndp_model_json *config, void *facts) {
    conv_facts *f = facts;
    f->vocab = ndp_model_json_int(config, "vocab_size", 1, CONV_MOST);
    f->hidden = ndp_model_json_int(config, "hidden_size", 1, CONV_MOST);
    f->width = ndp_model_json_int(config, "width", 1, CONV_MOST);
    f->blocks = ndp_model_json_int(config, "blocks", 1, CONV_MOST);
}

static inline int conv_norm(ndp_model_builder *b, int x) {
    return ndp_build_norm(b, x, NDP_OPTS(ndp_norm_opts, .name = "norm"));
}

static inline int conv_linear(ndp_model_builder *b, int x, const char *name, int64_t columns) {
    return ndp_build_linear(b, x, NDP_OPTS(ndp_linear_opts, .name = name, .columns = columns));
}

static inline void conv_build(const void *facts, ndp_model_builder *b) {
    const conv_facts *f = facts;
    ndp_build_unit(b, 0, "table");
    int x =
        ndp_build_embedding(b, NDP_OPTS(ndp_embedding_opts, .name = "tokens", .rows = f->vocab, .columns = f->hidden));
    for (int i = 0; i < f->blocks; i++) {
        x = ndp_build_unit(b, x, "blocks.%d", i);
        int up = conv_linear(b, conv_norm(b, x), "up", f->width);
        int mixed = ndp_build_causal_conv(b, up, NDP_OPTS(ndp_conv_opts, .name = "filter", .taps = CONV_TAPS));
        x = ndp_build_add(b, x, conv_linear(b, ndp_build_gelu(b, mixed), "down", f->hidden));
    }
    x = ndp_build_unit(b, x, "head");
    ndp_build_head(b, conv_norm(b, x), NDP_OPTS(ndp_head_opts, .name = NULL));
}

/* A table and products of small numbers, norms of 1. */
static inline void conv_random(const void *facts, const ndp_drawn *d, float *out) {
    (void)facts;
    ndp_draw_normal(d, d->dimensions == 2 ? 0.15 : 0, out);
    for (int64_t i = 0; i < d->count && d->dimensions == 1; i++)
        out[i] += 1;
}

static const ndp_architecture conv_architecture = {
    sizeof conv_architecture, "conv", sizeof(conv_facts), conv_read, conv_build, conv_random};

/* A model of an architecture, as a job would build it from the text of its config.json. */
static inline void own_model(const ndp_architecture *a, const char *config, const ndp_model_opts *o, ndp_model *m) {
    struct json_object *parsed;
    ndp_own_list list = {0};
    ndp_model_spec spec;
    CHECK_OK(ndp_own_add(&list, a));
    CHECK_OK(ndp_json_parse(config, strlen(config), "config.json", &parsed));
    CHECK_OK(ndp_model_spec_parse(parsed, "config.json", &list, &spec));
    CHECK_OK(ndp_model_build(&spec, o, m));
    ndp_model_spec_release(&spec);
    json_object_put(parsed);
}

/* Of bytes, for training on micro-batches of `rows` of them. */
static inline void conv_model(ndp_dtype compute, int64_t rows, ndp_model *m) {
    static const char config[] = "{\"model_type\": \"conv\", \"vocab_size\": 256, \"hidden_size\": 24, \"width\": 48, "
                                 "\"blocks\": 3, \"max_position_embeddings\": 64}";
    const ndp_model_opts o = {
        .mode = NDP_MODEL_TRAIN, .rows = rows, .compute = compute, .master = compute == NDP_F64 ? NDP_F64 : NDP_F32};
    own_model(&conv_architecture, config, &o, m);
}

#endif
