/* A tiny Llama for tests of the step room: odd sizes, GQA, biases, tied or not. */
#ifndef TESTS_STEP_TINY_H
#define TESTS_STEP_TINY_H

#include "base/rng.h"
#include "model/decoder.h"
#include "step/engine.h"
#include "step/tiny_pairs.h"
#include <stdlib.h>
#include <string.h>

/* config.json of a tiny model of another family. */
#define TINY_OF(type, kv_heads, keys)                                                                                  \
    ("{\"model_type\": \"" type "\", \"vocab_size\": 37, \"num_hidden_layers\": 2, \"hidden_size\": 12, "              \
     "\"num_attention_heads\": 4, \"num_key_value_heads\": " kv_heads ", \"intermediate_size\": 17, "                  \
     "\"max_position_embeddings\": 64, \"rope_theta\": 100.0, " keys "}")
#define TINY(type, keys) TINY_OF(type, "2", keys)

#define TINY_GPT2                                                                                                      \
    ("{\"model_type\": \"gpt2\", \"vocab_size\": 37, \"n_layer\": 2, \"n_embd\": 12, \"n_head\": 4, \"n_inner\": 17, " \
     "\"n_positions\": 20}")

static inline ndp_facts tiny_facts(bool tied) {
    static const char config[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 37, \"num_hidden_layers\": 2, \"hidden_size\": 12, "
        "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 6, \"intermediate_size\": 17, "
        "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"initializer_range\": 0.3, \"rope_theta\": 100.0}";
    ndp_facts f;
    if (ndp_facts_parse_text(config, "tiny", &f) != NDP_OK)
        abort();
    f.tied = tied;
    f.qkv_bias = f.o_bias = f.mlp_bias = !tied;
    return f;
}

static inline ndp_model_opts tiny_opts(ndp_dtype compute, int64_t rows) {
    return (ndp_model_opts){.mode = NDP_MODEL_TRAIN,
                            .rows = rows,
                            .keys = rows,
                            .positions = rows,
                            .compute = compute,
                            .master = compute == NDP_F64 ? NDP_F64 : NDP_F32};
}

/* Tensors of that many elements that are no embedding count as large, for optimizers whose states are codes. */
static inline void tiny_code(ndp_model *m, int64_t least) {
    for (int i = 1; i < m->n_buffers; i++)
        for (int k = 0; k < m->buffers[i].segments.n; k++) {
            ndp_segment *s = &m->buffers[i].segments.items[k];
            s->coded = s->whole[0] * s->whole[1] >= least;
        }
}

/* Random master weights (norms and biases random too, so that no gradient is trivially symmetric). */
static inline void tiny_fill(ndp_engine *e) {
    const ndp_model *m = ndp_engine_model(e);
    for (int i = 0; i < m->n_buffers; i++) {
        const ndp_shard *s = ndp_engine_shard(e, i);
        ndp_run piece;
        for (int64_t at = 0; ndp_segments_run(&m->buffers[i].segments, s->shards, s->index, &at, &piece);) {
            float *values = malloc((size_t)piece.count * sizeof *values);
            char room[NDP_SEGMENT_NAME];
            const char *name = ndp_segment_tensor_name(piece.segment, piece.member, room);
            ndp_rng_normal(7, ndp_rng_stream(name), (uint64_t)piece.tensor_first, piece.count, 0.3, values);
            for (int64_t k = 0; k < piece.count; k++)
                values[k] += piece.segment->ndim == 1 && strstr(piece.segment->name, "norm") ? 1.0f : 0.0f;
            double *stored = malloc((size_t)piece.count * sizeof *stored);
            ndp_convert(values, NDP_F32, stored, ndp_engine_type(e, NDP_OWNED_MASTER, i), piece.count);
            CHECK_OK(ndp_engine_write(e, NDP_OWNED_MASTER, i, piece.slice_first, piece.count, piece.stride, stored));
            free(values);
            free(stored);
        }
    }
    CHECK_OK(ndp_engine_publish(e));
}

/* One micro-batch, whole: two documents, a few labels ignored, or pairs of documents. `global` is its number in the
 * update, on any layout. */
static inline void tiny_batch(ndp_engine *e, int micro_batch, int64_t global) {
    enum { MOST = 64 };
    int32_t tokens[MOST], labels[MOST], positions[MOST], starts[MOST], documents[MOST], keys[MOST];
    double reference[MOST];
    const ndp_model *m = ndp_engine_model(e);
    int64_t rows = m->opts.rows, cut = rows / 3;
    uint64_t vocab = (uint64_t)ndp_engine_whole(e)->buffers[0].segments.items[0].rows; /* of the embedding */
    for (int64_t t = 0; t < rows; t++) {
        tokens[t] = (int32_t)ndp_rng_below(11, 1, (uint64_t)(global * rows + t), vocab);
        labels[t] = t % 5 == 4 ? -1 : (int32_t)ndp_rng_below(11, 2, (uint64_t)(global * rows + t), vocab);
        starts[t] = (int32_t)(t < cut ? 0 : cut);
        positions[t] = (int32_t)(t - (t < cut ? 0 : cut));
        keys[t] = (int32_t)ndp_rng_below(11, 3, (uint64_t)(global * rows + t), INT32_MAX);
    }
    if (m->opts.preference.kind)
        tiny_pairs_fill(ndp_engine_whole(e), global, tokens, labels, positions, starts, documents, reference);
    CHECK_OK(ndp_engine_load(e, micro_batch,
                             &(ndp_micro_batch){.tokens = tokens,
                                                .labels = labels,
                                                .positions = positions,
                                                .starts = starts,
                                                .rows = rows,
                                                .keys = keys,
                                                .documents = documents,
                                                .reference = reference}));
}

#endif
