/* Generation keeps the keys and values of all tokens so far, so each new token costs one row; a batch of texts reads
 * the weights once for a token of each. */
#include "infer/cached.h"

#include <stdlib.h>

/* Zeroed, since masked keys are still multiplied, by 0, and must not be NaN. */
static ndp_status take_cache(ndp_cached *c, int64_t bytes) {
    const ndp_facts *f = ndp_decoder_facts(&c->chunk_model);
    void *cache;
    c->logits = malloc((size_t)f->vocab * sizeof *c->logits);
    c->used = calloc((size_t)c->texts, sizeof *c->used);
    c->inputs = calloc((size_t)(c->texts + c->chunk_model.opts.rows), 3 * sizeof *c->inputs);
    NDP_CHECK_MEMORY(c->logits && c->used && c->inputs, "for the logits of %lld tokens", (long long)f->vocab);
    if (ndp_engine_map(c->chunk, (size_t)bytes, &cache) != NDP_OK)
        return NDP_FAIL(NDP_ENOMEM,
                        "not enough memory for the keys and values of %lld texts of %lld tokens in %d layers",
                        (long long)c->texts, (long long)c->longest, f->layers);
    char *at = cache;
    const ndp_text_cache shape = {c->texts, c->longest, c->chunk_model.opts.rows};
    for (int layer = 0; layer < f->layers; layer++) /* unit 0 is the embedding */
        for (const ndp_mixer_cache *kept = ndp_decoder_cache(f, layer); kept->name; kept++) {
            NDP_TRY(ndp_engine_lend(c->chunk, layer + 1, kept->name, at));
            NDP_TRY(ndp_engine_lend(c->next, layer + 1, kept->name, at));
            at += c->texts * ndp_text_cache_part(&shape, f, kept);
        }
    return NDP_OK;
}

ndp_status ndp_cached_init(ndp_cached *c, const ndp_infer *f, int64_t texts, int64_t longest, int64_t rows,
                           const char *less) {
    const ndp_text_cache shape = {texts, longest, rows};
    *c = (ndp_cached){.longest = longest, .texts = texts, .stride = ndp_text_cache_stride(&shape)};
    const ndp_model *const models[] = {&c->chunk_model, &c->next_model};
    int64_t bytes = ndp_text_cache_bytes(&shape, f->facts);
    ndp_status st = ndp_text_cache_build(&shape, f->facts, &f->adapter, rows, &c->chunk_model);
    if (st == NDP_OK)
        st = ndp_text_cache_build(&shape, f->facts, &f->adapter, texts, &c->next_model);
    if (st == NDP_OK)
        st = ndp_infer_check_memory(f, models, NDP_COUNT(models), bytes, less);
    if (st == NDP_OK)
        st = ndp_infer_engine(f, &c->chunk_model, NULL, &c->chunk);
    if (st == NDP_OK)
        st = ndp_infer_engine(f, &c->next_model, c->chunk, &c->next);
    if (st == NDP_OK)
        st = take_cache(c, bytes);
    if (st != NDP_OK)
        ndp_cached_release(c);
    return st;
}

void ndp_cached_release(ndp_cached *c) {
    ndp_engine_destroy(c->next);
    ndp_engine_destroy(c->chunk);
    ndp_model_release(&c->next_model);
    ndp_model_release(&c->chunk_model);
    free(c->logits);
    free(c->used);
    free(c->inputs);
    *c = (ndp_cached){0};
}

/* Runs `n` tokens of a text; the graph pads them to its rows. */
static ndp_status run_chunk(ndp_cached *c, int64_t text, const int32_t *ids, int64_t n) {
    ndp_step_result unused;
    int64_t first = text * c->stride, used = c->used[text];
    int32_t *positions = c->inputs, *starts = positions + n;
    for (int64_t t = 0; t < n; t++) {
        positions[t] = (int32_t)(used + t);
        starts[t] = (int32_t)first;
    }
    ndp_micro_batch b = {.tokens = ids, .positions = positions, .starts = starts, .rows = n, .first_row = first + used};
    NDP_TRY(ndp_engine_load(c->chunk, 0, &b));
    return ndp_engine_step(c->chunk, 0, 0, false, &unused);
}

ndp_status ndp_cached_feed(ndp_cached *c, int64_t text, const int32_t *ids, int64_t n, ndp_logits_visitor *visit,
                           void *user) {
    int64_t most = c->chunk_model.opts.rows;
    while (n > 0) {
        int64_t now = n < most ? n : most;
        NDP_TRY(run_chunk(c, text, ids, now));
        for (int64_t t = visit ? 0 : now - 1; t < now; t++) {
            NDP_TRY(ndp_engine_logits(c->chunk, t, c->logits));
            if (visit)
                visit(user, c->used[text] + t, c->logits);
        }
        c->used[text] += now, ids += now, n -= now;
    }
    return NDP_OK;
}

ndp_status ndp_cached_next(ndp_cached *c, const int32_t *ids) {
    ndp_step_result unused;
    int32_t *positions = c->inputs, *starts = positions + c->texts, *places = starts + c->texts;
    for (int64_t i = 0; i < c->texts; i++) {
        int64_t at = c->used[i] < c->longest ? c->used[i] : c->longest - 1;
        positions[i] = (int32_t)at;
        starts[i] = (int32_t)(i * c->stride);
        places[i] = (int32_t)(i * c->stride + at);
    }
    ndp_micro_batch b = {.tokens = ids, .positions = positions, .starts = starts, .places = places, .rows = c->texts};
    NDP_TRY(ndp_engine_load(c->next, 0, &b));
    NDP_TRY(ndp_engine_step(c->next, 0, 0, false, &unused));
    for (int64_t i = 0; i < c->texts; i++)
        c->used[i] += c->used[i] < c->longest;
    return NDP_OK;
}

ndp_status ndp_cached_logits(const ndp_cached *c, int64_t text, float *logits) {
    return ndp_engine_logits(c->next, text, logits);
}
