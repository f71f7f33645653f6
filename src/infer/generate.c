/* Continues a prompt, token by token, over a cache of keys and values. */
#include "infer/generator.h"

#include <string.h>

typedef bool emitter(void *user, int32_t id, const char *text);

typedef struct generation {
    ndp_generator generator;
    ndp_ids prompt;
    ndp_cached model;
    ndp_answer answer;
} generation;

static ndp_status read_prompt(generation *g) {
    const ndp_infer *f = &g->generator.infer;
    const char *prompt = g->generator.opts->prompt ? g->generator.opts->prompt : "";
    NDP_TRY(ndp_infer_encode(f, prompt, strlen(prompt), true, &g->prompt));
    NDP_TRY(ndp_infer_begin(f, &g->prompt));
    NDP_CHECK(g->prompt.n < f->facts->max_positions,
              "the prompt has %lld tokens, the model's longest text max_position_embeddings %lld (%s): shorten it",
              (long long)g->prompt.n, (long long)f->facts->max_positions, f->folder);
    return NDP_OK;
}

static ndp_status prepare_generation(generation *g) {
    NDP_TRY(read_prompt(g));
    int64_t n = g->prompt.n, free_rows = g->generator.infer.facts->max_positions - n;
    int64_t most = g->generator.opts->max_tokens < free_rows ? g->generator.opts->max_tokens : free_rows;
    NDP_TRY(ndp_answer_init(&g->answer, &g->generator, &g->prompt, 0, most));
    return ndp_cached_init(
        &g->model, &g->generator.infer, 1, n + most, n < NDP_CHUNK_ROWS ? n : NDP_CHUNK_ROWS,
        "Use a smaller model, or lower --max-tokens, which determines the memory for keys and values");
}

static ndp_status generate_tokens(generation *g, emitter *emit, void *user) {
    ndp_cached *m = &g->model;
    NDP_TRY(ndp_cached_feed(m, 0, g->prompt.items, g->prompt.n, NULL, NULL));
    for (;;) {
        int32_t id;
        NDP_TRY(ndp_answer_next(&g->answer, &g->generator, m->logits, m->used[0], &id));
        if (!emit(user, id, g->answer.text.data) || g->answer.ended)
            return NDP_OK;
        NDP_TRY(ndp_cached_next(m, &id));
        NDP_TRY(ndp_cached_logits(m, 0, m->logits));
    }
}

ndp_status ndp_generate(const ndp_generate_opts *o, emitter *emit, void *user) {
    NDP_NOT_NULL(o, emit);
    generation g = {0};
    NDP_TRY(ndp_generator_init(&g.generator, o));
    ndp_status st = prepare_generation(&g);
    if (st == NDP_OK)
        st = generate_tokens(&g, emit, user);
    if (st == NDP_OK && o->finish)
        *o->finish = g.answer.ended ? g.answer.finish : NDP_FINISH_CANCELLED;
    ndp_cached_release(&g.model);
    ndp_answer_release(&g.answer);
    ndp_ids_release(&g.prompt);
    ndp_generator_release(&g.generator);
    return st;
}
