/* Continues a prompt, token by token, over a cache of keys and values. */
#include "base/json.h"
#include "infer/cached.h"
#include "infer/choose.h"
#include "infer/text_stream.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_ROWS = 64 }; /* tokens of the prompt per chunk */

typedef bool emitter(void *user, int32_t id, const char *text);

typedef struct generation {
    const ndp_generate_opts *opts;
    ndp_infer infer;
    ndp_ids prompt;
    ndp_ids ends;    /* tokens that end a text */
    int64_t longest; /* tokens of prompt and continuation, at most */
    ndp_cached model;
    ndp_candidate *room;
    ndp_text_stream stream;
    ndp_str text; /* of the latest token */
} generation;

/* ---- what ends a text ---- */

/* Adds "eos_token_id" of a file in the model folder: a number, or a list of numbers. */
static ndp_status read_ends(generation *g, const char *name) {
    struct json_object *root = NULL, *eos = NULL;
    char path[NDP_PATH];
    ndp_status st = NDP_OK;
    NDP_TRY(ndp_path_join(path, g->infer.folder, name));
    if (ndp_path_exists(path))
        NDP_TRY(ndp_json_read(path, &root));
    if (json_object_is_type(root, json_type_object))
        json_object_object_get_ex(root, "eos_token_id", &eos);
    bool list = json_object_is_type(eos, json_type_array);
    for (size_t i = 0; st == NDP_OK && i < (list ? json_object_array_length(eos) : eos != NULL); i++) {
        struct json_object *id = list ? json_object_array_get_idx(eos, i) : eos;
        st = json_object_is_type(id, json_type_int)
                 ? ndp_ids_add(&g->ends, json_object_get_int(id))
                 : NDP_FAIL(NDP_EFORMAT, "%s: \"eos_token_id\" is neither a token id nor a list of them", path);
    }
    json_object_put(root);
    return st;
}

/* A begin token ends a text, too, since it starts the next one. */
static ndp_status find_ends(generation *g) {
    NDP_TRY(read_ends(g, "config.json"));
    NDP_TRY(read_ends(g, "generation_config.json"));
    NDP_TRY(ndp_ids_add(&g->ends, ndp_tokenizer_eos(g->infer.tokenizer)));
    return ndp_ids_add(&g->ends, ndp_tokenizer_bos(g->infer.tokenizer));
}

static bool ends_text(const generation *g, int32_t id) {
    for (int64_t i = 0; i < g->ends.n; i++)
        if (g->ends.items[i] == id)
            return true;
    return false;
}

/* ---- the prompt ---- */

static ndp_status read_prompt(generation *g) {
    const char *prompt = g->opts->prompt ? g->opts->prompt : "";
    int64_t most = g->infer.facts.max_positions;
    NDP_TRY(ndp_infer_encode(&g->infer, prompt, strlen(prompt), &g->prompt));
    int64_t bos = ndp_tokenizer_bos(g->infer.tokenizer);
    bos = bos < 0 ? g->infer.facts.bos : bos;
    if (g->prompt.n == 0 && bos >= 0 && bos < g->infer.facts.vocab)
        NDP_TRY(ndp_ids_add(&g->prompt, (int32_t)bos));
    NDP_CHECK(g->prompt.n > 0, "the prompt is empty and the model in %s has no begin token: give a prompt",
              g->infer.folder);
    NDP_CHECK(g->prompt.n < most,
              "the prompt has %lld tokens, the model's longest text max_position_embeddings %lld (%s): shorten it",
              (long long)g->prompt.n, (long long)most, g->infer.folder);
    g->longest = g->opts->max_tokens < most - g->prompt.n ? g->prompt.n + g->opts->max_tokens : most;
    return NDP_OK;
}

static ndp_status begin_stream(generation *g) {
    ndp_str text = {0};
    ndp_status st = ndp_tokenizer_decode(g->infer.tokenizer, g->prompt.items, g->prompt.n, true, &text);
    if (st == NDP_OK)
        st = ndp_text_stream_init(&g->stream, g->infer.tokenizer, text.length > 0);
    ndp_str_release(&text);
    return st;
}

/* ---- the continuation ---- */

/* Chooses the token at `position` and decodes its text. */
static ndp_status next_token(generation *g, int64_t position, int32_t *id, bool *last) {
    const ndp_choice choice = {g->opts->temperature, g->opts->top_p, (uint64_t)g->opts->seed};
    NDP_TRY(ndp_choose(&choice, g->model.logits, g->infer.facts.vocab, position, g->room, id));
    bool end = ends_text(g, *id);
    *last = end || position == g->longest - 1;
    g->text.length = 0;
    ndp_str_add(&g->text, "");
    if (!end)
        NDP_TRY(ndp_text_stream_add(&g->stream, *id, &g->text));
    if (*last)
        NDP_TRY(ndp_text_stream_end(&g->stream, &g->text));
    return g->text.failed ? NDP_FAIL(NDP_ENOMEM, "no memory for text") : NDP_OK;
}

static ndp_status generate_tokens(generation *g, emitter *emit, void *user) {
    NDP_TRY(ndp_cached_feed(&g->model, g->prompt.items, g->prompt.n, NULL, NULL));
    for (int64_t position = g->prompt.n;; position++) {
        int32_t id;
        bool last;
        NDP_TRY(next_token(g, position, &id, &last));
        if (!emit(user, id, g->text.data) || last)
            return NDP_OK;
        NDP_TRY(ndp_cached_feed(&g->model, &id, 1, NULL, NULL));
    }
}

static ndp_status prepare_generation(generation *g) {
    NDP_TRY(find_ends(g));
    NDP_TRY(read_prompt(g));
    NDP_TRY(begin_stream(g));
    g->room = g->opts->temperature > 0 ? malloc((size_t)g->infer.facts.vocab * sizeof *g->room) : NULL;
    if (g->opts->temperature > 0 && !g->room)
        return NDP_FAIL(NDP_ENOMEM, "no memory to choose among %lld tokens", (long long)g->infer.facts.vocab);
    return ndp_cached_init(&g->model, &g->infer, g->longest, g->prompt.n < CHUNK_ROWS ? g->prompt.n : CHUNK_ROWS);
}

static void release_generation(generation *g) {
    ndp_cached_release(&g->model);
    ndp_text_stream_release(&g->stream);
    ndp_str_release(&g->text);
    ndp_ids_release(&g->prompt);
    ndp_ids_release(&g->ends);
    free(g->room);
    ndp_infer_release(&g->infer);
}

ndp_status ndp_generate(const ndp_generate_opts *o, emitter *emit, void *user) {
    NDP_CHECK(o->max_tokens >= 1, "max_tokens is %d; give 1 or more", o->max_tokens);
    NDP_CHECK(isfinite(o->temperature) && o->temperature >= 0, "the temperature is %g; give 0 (the best token) or more",
              o->temperature);
    NDP_CHECK(o->top_p > 0 && o->top_p <= 1, "top_p is %g; it is a probability above 0, 1 for all tokens", o->top_p);
    generation g = {.opts = o};
    NDP_TRY(ndp_infer_init(&g.infer, o->model, o->device, o->threads));
    g.infer.force_memory = o->force_memory;
    ndp_status st = prepare_generation(&g);
    if (st == NDP_OK)
        st = generate_tokens(&g, emit, user);
    release_generation(&g);
    return st;
}
