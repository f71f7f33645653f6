/* The graphs and the sizes of a cache of keys and values (text_cache.h). */
#include "model/text_cache.h"

enum { STRIDE_UNIT = 64 };

/* A padded chunk may start at the last token. */
int64_t ndp_text_cache_stride(const ndp_text_cache *c) {
    return (c->longest + c->chunk - 1 + STRIDE_UNIT - 1) / STRIDE_UNIT * STRIDE_UNIT;
}

int64_t ndp_text_cache_part(const ndp_text_cache *c, const ndp_facts *f, const ndp_mixer_cache *kept) {
    int64_t rows = kept->extent == NDP_EXTENT_TEXTS ? 1 : ndp_text_cache_stride(c);
    return rows * kept->cols(f) * (int64_t)sizeof(float);
}

int64_t ndp_text_cache_bytes(const ndp_text_cache *c, const ndp_facts *f) {
    int64_t bytes = 0;
    for (int layer = 0; layer < f->layers; layer++)
        for (const ndp_mixer_cache *kept = ndp_decoder_cache(f, layer); kept->name; kept++)
            bytes += ndp_text_cache_part(c, f, kept);
    return c->texts * bytes;
}

/* longrope chooses its angles by `longest`, not by the padded length of the cache. */
static void choose_factors(ndp_facts *facts, int64_t longest) {
    for (int i = 0; i < facts->n_ropes; i++) {
        ndp_rope *r = &facts->ropes[i];
        if (r->scaling == NDP_ROPE_LONG)
            r->original_positions = longest > r->original_positions ? 0 : INT64_MAX;
    }
}

ndp_status ndp_text_cache_build(const ndp_text_cache *c, const ndp_facts *facts, const ndp_adapter *adapter,
                                int64_t rows, ndp_model *out) {
    ndp_model_opts opts = {.mode = NDP_MODEL_CACHED,
                           .rows = rows,
                           .keys = c->texts * ndp_text_cache_stride(c),
                           .positions = ndp_text_cache_stride(c),
                           .texts = c->texts,
                           .compute = NDP_F32,
                           .master = NDP_F32,
                           .adapter = *adapter};
    ndp_facts chosen = *facts;
    choose_factors(&chosen, c->longest);
    return ndp_decoder_build(&chosen, &opts, out);
}
