/* Generation keeps the keys and values of all tokens so far, so each new token costs one row. */
#include "infer/cached.h"

#include <stdlib.h>

/* longrope chooses its angles by `longest`, not by the padded length of the cache. */
static void choose_factors(ndp_facts *facts, int64_t longest) {
    for (int i = 0; i < facts->n_ropes; i++) {
        ndp_rope *r = &facts->ropes[i];
        if (r->scaling == NDP_ROPE_LONG)
            r->original_positions = longest > r->original_positions ? 0 : INT64_MAX;
    }
}

static ndp_status build_model(const ndp_cached *c, const ndp_infer *f, int64_t rows, ndp_model *m) {
    int64_t keys = c->longest + c->chunk_model.opts.rows - 1; /* a padded chunk may start at the last token */
    ndp_model_opts opts = {
        .mode = NDP_MODEL_CACHED, .rows = rows, .keys = keys, .positions = keys, .compute = NDP_F32, .master = NDP_F32};
    NDP_TRY(ndp_model_build(&f->facts, &opts, m));
    choose_factors(&m->facts, c->longest);
    return NDP_OK;
}

/* Elements of one layer's keys, or of its values. */
static int64_t cache_block(const ndp_cached *c) {
    const ndp_facts *f = &c->chunk_model.facts;
    return c->chunk_model.opts.keys * f->kv_heads * f->head_dim;
}

static ndp_status check_memory(const ndp_cached *c, const ndp_infer *f) {
    const ndp_model *const models[] = {&c->chunk_model, &c->one_model};
    int64_t cache = 2 * f->facts.layers * cache_block(c) * (int64_t)sizeof(float);
    return ndp_infer_check_memory(
        f, models, NDP_COUNT(models), cache,
        "Use a smaller model, or lower --max-tokens, which determines the memory for keys and values");
}

/* Zeroed, since masked keys are still multiplied, by 0, and must not be NaN. */
static ndp_status take_cache(ndp_cached *c) {
    const ndp_facts *f = &c->chunk_model.facts;
    int64_t keys = c->chunk_model.opts.keys, block = cache_block(c);
    c->logits = malloc((size_t)f->vocab * sizeof *c->logits);
    void *cache;
    if (!c->logits)
        return NDP_FAIL(NDP_ENOMEM, "no memory for the logits of %lld tokens", (long long)f->vocab);
    if (ndp_engine_map(c->chunk, (size_t)(2 * f->layers * block) * sizeof(float), &cache) != NDP_OK)
        return NDP_FAIL(NDP_ENOMEM, "no memory for the keys and values of %lld tokens in %d layers", (long long)keys,
                        f->layers);
    for (int i = 0; i < 2 * f->layers; i++) { /* keys and values in turn; unit 0 is the embedding */
        float *part = (float *)cache + i * block;
        const char *name = i % 2 ? "v_cache" : "k_cache";
        NDP_TRY(ndp_engine_lend(c->chunk, i / 2 + 1, name, part));
        NDP_TRY(ndp_engine_lend(c->one, i / 2 + 1, name, part));
    }
    return NDP_OK;
}

ndp_status ndp_cached_init(ndp_cached *c, const ndp_infer *f, int64_t longest, int64_t rows) {
    *c = (ndp_cached){.longest = longest, .chunk_model.opts.rows = rows};
    ndp_status st = build_model(c, f, rows, &c->chunk_model);
    if (st == NDP_OK)
        st = build_model(c, f, 1, &c->one_model);
    if (st == NDP_OK)
        st = check_memory(c, f);
    if (st == NDP_OK)
        st = ndp_infer_engine(f, &c->chunk_model, NULL, &c->chunk);
    if (st == NDP_OK)
        st = ndp_infer_engine(f, &c->one_model, c->chunk, &c->one);
    if (st == NDP_OK)
        st = take_cache(c);
    if (st != NDP_OK)
        ndp_cached_release(c);
    return st;
}

void ndp_cached_release(ndp_cached *c) {
    ndp_engine_destroy(c->one);
    ndp_engine_destroy(c->chunk);
    ndp_model_release(&c->one_model);
    ndp_model_release(&c->chunk_model);
    free(c->logits);
    *c = (ndp_cached){0};
}

/* Runs `n` tokens; the graph pads them to its rows. */
static ndp_status run_padded(ndp_cached *c, ndp_engine *e, const int32_t *ids, int64_t n) {
    ndp_step_result unused;
    NDP_TRY(ndp_engine_load(e, 0, &(ndp_micro_batch){.tokens = ids, .rows = n, .first_row = c->used}));
    return ndp_engine_step(e, 0, 0, false, &unused);
}

ndp_status ndp_cached_feed(ndp_cached *c, const int32_t *ids, int64_t n, ndp_logits_visitor *visit, void *user) {
    int64_t most = c->chunk_model.opts.rows;
    while (n > 0) {
        int64_t now = n < most ? n : most;
        ndp_engine *e = now == 1 ? c->one : c->chunk;
        NDP_TRY(run_padded(c, e, ids, now));
        for (int64_t t = visit ? 0 : now - 1; t < now; t++) {
            NDP_TRY(ndp_engine_logits(e, t, c->logits));
            if (visit)
                visit(user, c->used + t, c->logits);
        }
        c->used += now, ids += now, n -= now;
    }
    return NDP_OK;
}
