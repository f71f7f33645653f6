/* The architecture of decoders: ndp_facts says what one is (facts.h), decoder.c builds it. */
#ifndef NDP_MODEL_DECODER_H
#define NDP_MODEL_DECODER_H

#include "model/architecture.h"
#include "model/facts.h"

extern const ndp_architecture_table ndp_decoder;

/* Its facts. NDP_ENOTSUP: a model of another architecture; `use` is what needs a decoder, for the message. */
NDP_API ndp_status ndp_spec_decoder(const ndp_model_spec *s, const char *use, const ndp_facts **out);
/* The facts of a built decoder. */
static inline const ndp_facts *ndp_decoder_facts(const ndp_model *m) { return m->facts; }

/* ndp_decoder's functions, for callers that have facts. */
NDP_API ndp_status ndp_decoder_build(const ndp_facts *facts, const ndp_model_opts *opts, ndp_model *out);
/* As transformers' _init_weights has it for these families. Matrices: normal with the configuration's
 * initializer_range (GPT-2's c_proj: divided by sqrt(2 layers)); norms multiply by 1; biases are 0. The row of a pad
 * token is like any other, where transformers makes it 0: here it is a token like any other. */
void ndp_decoder_random(const ndp_facts *f, uint64_t seed, const ndp_segment *s, int64_t first, int64_t count,
                        float *out);
/* An input that a mixer keeps from call to call of a model with a cache, a row of each token (NDP_EXTENT_KEYS) or of
 * each text (NDP_EXTENT_TEXTS): memory of the engine's user (ndp_engine_lend). */
typedef struct ndp_mixer_cache {
    const char *name; /* NULL ends a list */
    int64_t (*cols)(const ndp_facts *f);
    ndp_extent extent;
    bool wide; /* fp32 where activations are bf16 */
} ndp_mixer_cache;
/* What the mixer of a layer keeps. */
NDP_API const ndp_mixer_cache *ndp_decoder_cache(const ndp_facts *f, int layer);
/* All facts that decide what a decoder computes. */
void ndp_decoder_list(const ndp_facts *f, ndp_fact_visitor *visit, void *user);

#endif
