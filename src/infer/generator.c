/* What ends a text, and the next token of a text: chosen, decoded, and searched for stop strings. */
#include "infer/generator.h"

#include "base/json.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what ends a text ---- */

/* Adds "eos_token_id" of a file of the model, if it exists: a number, or a list of numbers. */
static ndp_status read_ends(ndp_generator *g, const char *path) {
    struct json_object *root = NULL, *eos = NULL;
    ndp_status st = NDP_OK;
    if (*path && ndp_path_exists(path))
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

/* A stop string that is a special token leaves no text to search for. */
static ndp_status add_stop_tokens(ndp_generator *g) {
    ndp_str text = {0};
    ndp_status st = NDP_OK;
    for (int i = 0; st == NDP_OK && i < g->opts->stop_count; i++) {
        int32_t id = ndp_tokenizer_id(g->infer.tokenizer, g->opts->stop[i]);
        text.length = 0;
        if (id >= 0)
            st = ndp_tokenizer_decode(g->infer.tokenizer, &id, 1, true, &text);
        if (st == NDP_OK && id >= 0 && text.length == 0)
            st = ndp_ids_add(&g->ends, id);
    }
    ndp_str_release(&text);
    return st;
}

/* A begin token also ends a text, since it starts the next one. */
static ndp_status find_ends(ndp_generator *g) {
    NDP_TRY(read_ends(g, g->infer.config));
    NDP_TRY(read_ends(g, g->infer.generation));
    NDP_TRY(ndp_ids_add(&g->ends, ndp_tokenizer_eos(g->infer.tokenizer)));
    NDP_TRY(ndp_ids_add(&g->ends, ndp_tokenizer_bos(g->infer.tokenizer)));
    return add_stop_tokens(g);
}

static bool ends_text(const ndp_generator *g, int32_t id) {
    for (int64_t i = 0; i < g->ends.n; i++)
        if (g->ends.items[i] == id)
            return true;
    return false;
}

/* ---- the generator ---- */

ndp_status ndp_generator_check(const ndp_generate_opts *o) {
    NDP_CHECK(o->max_tokens >= 1, "max_tokens is %d; give 1 or more", o->max_tokens);
    NDP_CHECK(isfinite(o->temperature) && o->temperature >= 0, "the temperature is %g; give 0 (the best token) or more",
              o->temperature);
    NDP_CHECK(o->top_p > 0 && o->top_p <= 1, "top_p is %g; it is a probability above 0, 1 for all tokens", o->top_p);
    ndp_stops stops;
    NDP_TRY(ndp_stops_init(&stops, o->stop, o->stop_count));
    ndp_stops_release(&stops);
    return NDP_OK;
}

static ndp_status take_room(ndp_generator *g) {
    int64_t vocab = g->infer.facts->vocab;
    if (g->opts->temperature == 0)
        return NDP_OK;
    g->room = malloc((size_t)vocab * sizeof *g->room);
    return NDP_MEMORY(g->room, "to choose among %lld tokens", (long long)vocab);
}

static ndp_status check_texts(const ndp_generator *g) {
    const char *why = ndp_tokenizer_why_no_texts(g->infer.tokenizer);
    if (why && (!g->opts->ids || g->opts->stop_count))
        return NDP_FAIL(NDP_EINVAL, "%s; without a prompt, --ids continues the begin token", why);
    return NDP_OK;
}

ndp_status ndp_generator_prepare(ndp_generator *g) {
    ndp_status st = check_texts(g);
    if (st == NDP_OK)
        st = find_ends(g);
    if (st == NDP_OK)
        st = take_room(g);
    if (st != NDP_OK)
        ndp_generator_release(g);
    return st;
}

ndp_status ndp_generator_init(ndp_generator *g, const ndp_generate_opts *o) {
    *g = (ndp_generator){.opts = o};
    NDP_TRY(ndp_generator_check(o));
    NDP_TRY(ndp_infer_open(&g->infer, o->model, o->adapter, o->step, o->device, o->threads));
    g->infer.force_memory = o->force_memory;
    return ndp_generator_prepare(g);
}

void ndp_generator_release(ndp_generator *g) {
    ndp_ids_release(&g->ends);
    free(g->room);
    if (g->infer.tokenizer)
        ndp_infer_release(&g->infer);
    *g = (ndp_generator){0};
}

/* ---- an answer ---- */

ndp_status ndp_answer_init(ndp_answer *a, const ndp_generator *g, const ndp_ids *prompt, uint64_t number,
                           int64_t most) {
    ndp_str text = {0};
    *a = (ndp_answer){.number = number, .most = most};
    ndp_status st = ndp_tokenizer_why_no_texts(g->infer.tokenizer)
                        ? NDP_OK
                        : ndp_tokenizer_decode(g->infer.tokenizer, prompt->items, prompt->n, true, &text);
    if (st == NDP_OK)
        st = ndp_text_stream_init(&a->stream, g->infer.tokenizer, text.length > 0);
    if (st == NDP_OK)
        st = ndp_stops_init(&a->stops, g->opts->stop, g->opts->stop_count);
    ndp_str_release(&text);
    if (st != NDP_OK)
        ndp_answer_release(a);
    return st;
}

void ndp_answer_release(ndp_answer *a) {
    ndp_text_stream_release(&a->stream);
    ndp_stops_release(&a->stops);
    ndp_str_release(&a->text);
    *a = (ndp_answer){0};
}

ndp_status ndp_answer_next(ndp_answer *a, const ndp_generator *g, const float *logits, int64_t position, int32_t *id) {
    const ndp_choice choice = {g->opts->temperature, g->opts->top_p, (uint64_t)g->opts->seed, a->number};
    bool stopped;
    NDP_TRY(ndp_choose(&choice, logits, g->infer.facts->vocab, position, g->room, id));
    bool end = ends_text(g, *id);
    a->tokens++;
    a->ended = end || a->tokens == a->most;
    a->text.length = 0;
    ndp_str_add(&a->text, "");
    if (!end)
        NDP_TRY(ndp_text_stream_add(&a->stream, *id, &a->text));
    if (a->ended)
        NDP_TRY(ndp_text_stream_end(&a->stream, &a->text));
    NDP_TRY(a->text.failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory for text") : NDP_OK);
    NDP_TRY(ndp_stops_pass(&a->stops, &a->text, a->ended, &stopped));
    a->ended |= stopped;
    a->finish = end || stopped ? NDP_FINISH_STOP : NDP_FINISH_LENGTH;
    return NDP_OK;
}
