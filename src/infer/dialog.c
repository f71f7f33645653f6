/* A conversation: each turn renders all messages by the chat template and encodes them. The cache keeps the tokens that
 * the last turn and this one begin with, so usually only the new message is computed. A template may change earlier
 * messages (it may drop their reasoning); then the rest is computed again from the first token that differs. */
#include "infer/generator.h"

#include "text/chat/chat.h"
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_CONTEXT = 8192 };

struct ndp_dialog {
    ndp_generate_opts opts;
    ndp_generator generator;
    ndp_chat chat;
    ndp_cached model;
    ndp_message *messages;     /* their contents are owned */
    int64_t n, capacity, kept; /* kept: of the system, by a reset */
    ndp_ids prompt;            /* the conversation, as the model reads it next */
    ndp_ids cached;            /* what the cache has */
};

/* ---- messages ---- */

static ndp_status add_message(ndp_dialog *d, ndp_role role, const char *text) {
    size_t length = strlen(text);
    char *copy = strdup(text);
    NDP_TRY(copy ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for a message of %zu bytes", length));
    ndp_status st = ndp_array_reserve(&d->messages, &d->capacity, d->n + 1, sizeof *d->messages);
    if (st != NDP_OK)
        free(copy);
    else
        d->messages[d->n++] = (ndp_message){.role = role, .content = {copy, length}};
    return st;
}

static void drop_messages(ndp_dialog *d, int64_t keep) {
    while (d->n > keep)
        free((char *)d->messages[--d->n].content.data);
}

static ndp_status render(ndp_dialog *d) {
    ndp_rendering r = {0};
    ndp_status st = ndp_chat_render(&d->chat, &(ndp_conversation){.messages = d->messages, .n = d->n}, true, &r);
    d->prompt.n = 0;
    if (st == NDP_OK)
        st = ndp_infer_encode(&d->generator.infer, r.text.data, r.text.length, false, &d->prompt);
    ndp_rendering_release(&r);
    return st;
}

/* ---- opening ---- */

/* A first message shows whether the template can be used at all. */
static ndp_status try_template(ndp_dialog *d) {
    NDP_TRY(add_message(d, NDP_ROLE_USER, "Hello"));
    ndp_status st = render(d);
    drop_messages(d, d->kept);
    return st == NDP_OK ? NDP_OK
                        : NDP_FAIL(st == NDP_ENOTSUP ? NDP_EINVAL : st,
                                   "%s (here: option --chat-template; a base model continues texts: --prompt)",
                                   ndp_error_message());
}

static ndp_status open_dialog(ndp_dialog *d, const char *system, int context) {
    const ndp_infer *f = &d->generator.infer;
    int64_t most = f->facts->max_positions, longest = context ? context : DEFAULT_CONTEXT;
    NDP_CHECK(context <= most, "a context of %d tokens, the model's longest text max_position_embeddings is %lld",
              context, (long long)most);
    NDP_TRY(ndp_infer_chat(f, d->opts.chat_template, &d->chat));
    if (system)
        NDP_TRY(add_message(d, NDP_ROLE_SYSTEM, system));
    d->kept = d->n;
    NDP_TRY(try_template(d));
    return ndp_cached_init(&d->model, f, 1, longest < most ? longest : most, NDP_CHUNK_ROWS,
                           "Use a smaller model, or lower --context");
}

ndp_status ndp_dialog_create(const ndp_generate_opts *o, const char *system, int context, ndp_dialog **out) {
    NDP_NOT_NULL(o, out);
    NDP_CHECK(context >= 0, "a context of %d tokens; give 1 or more", context);
    ndp_dialog *d = calloc(1, sizeof *d);
    NDP_TRY(d ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for a conversation"));
    d->opts = *o;
    ndp_status st = ndp_generator_init(&d->generator, &d->opts);
    if (st == NDP_OK)
        st = open_dialog(d, system, context);
    if (st != NDP_OK)
        ndp_dialog_destroy(d);
    else
        *out = d;
    return st;
}

void ndp_dialog_destroy(ndp_dialog *d) {
    if (!d)
        return;
    drop_messages(d, 0);
    free(d->messages);
    ndp_ids_release(&d->prompt);
    ndp_ids_release(&d->cached);
    ndp_cached_release(&d->model);
    ndp_chat_release(&d->chat);
    ndp_generator_release(&d->generator);
    free(d);
}

void ndp_dialog_reset(ndp_dialog *d) {
    if (d)
        drop_messages(d, d->kept);
}

/* ---- a turn ---- */

static ndp_status check_length(const ndp_dialog *d) {
    NDP_CHECK(d->prompt.n < d->model.longest,
              "the conversation has %lld tokens with this message, and the context %lld: nothing was dropped, and the "
              "message is not part of the conversation. Start a new one (/reset), shorten the message, or use a longer "
              "context (--context, up to the model's %lld)",
              (long long)d->prompt.n, (long long)d->model.longest, (long long)d->generator.infer.facts->max_positions);
    return NDP_OK;
}

/* Computes what the cache lacks, at least the last token, whose logits are needed. */
static ndp_status feed_prompt(ndp_dialog *d, ndp_reply *out) {
    int64_t same = 0, most = d->cached.n < d->prompt.n - 1 ? d->cached.n : d->prompt.n - 1;
    while (same < most && d->cached.items[same] == d->prompt.items[same])
        same++;
    *out = (ndp_reply){.reused = same, .computed = d->prompt.n - same};
    d->model.used[0] = d->cached.n = same;
    NDP_TRY(ndp_cached_feed(&d->model, 0, d->prompt.items + same, d->prompt.n - same, NULL, NULL));
    for (int64_t i = same; i < d->prompt.n; i++)
        NDP_TRY(ndp_ids_add(&d->cached, d->prompt.items[i]));
    return NDP_OK;
}

/* Generates the answer and collects its text. */
static ndp_status answer_prompt(ndp_dialog *d, ndp_answer *a, bool (*emit)(void *, int32_t, const char *), void *user,
                                ndp_str *text, ndp_finish *finish) {
    for (;;) {
        int32_t id;
        NDP_TRY(ndp_answer_next(a, &d->generator, d->model.logits, d->model.used[0], &id));
        ndp_str_add(text, a->text.data);
        bool on = emit(user, id, a->text.data);
        *finish = on || a->ended ? a->finish : NDP_FINISH_CANCELLED;
        if (!on || a->ended)
            return NDP_MEMORY(!text->failed, "for an answer");
        NDP_TRY(ndp_cached_next(&d->model, &id));
        NDP_TRY(ndp_ids_add(&d->cached, id));
        NDP_TRY(ndp_cached_logits(&d->model, 0, d->model.logits));
    }
}

static ndp_status answer_turn(ndp_dialog *d, bool (*emit)(void *, int32_t, const char *), void *user, ndp_reply *out) {
    ndp_str text = {0};
    ndp_answer a;
    NDP_TRY(render(d));
    NDP_TRY(check_length(d));
    int64_t most = d->model.longest - d->prompt.n;
    NDP_TRY(feed_prompt(d, out));
    NDP_TRY(ndp_answer_init(&a, &d->generator, &d->prompt, 0, d->opts.max_tokens < most ? d->opts.max_tokens : most));
    ndp_status st = answer_prompt(d, &a, emit, user, &text, &out->finish);
    out->tokens = a.tokens;
    out->room = d->model.longest - d->prompt.n - a.tokens;
    if (st == NDP_OK)
        st = add_message(d, NDP_ROLE_ASSISTANT, text.data ? text.data : "");
    ndp_answer_release(&a);
    ndp_str_release(&text);
    return st;
}

ndp_status ndp_dialog_ask(ndp_dialog *d, const char *message, bool (*emit)(void *user, int32_t id, const char *text),
                          void *user, ndp_reply *out) {
    NDP_NOT_NULL(d, message, emit, out);
    int64_t before = d->n;
    NDP_CHECK(ndp_utf8_valid_prefix(message, strlen(message)) == strlen(message), "the message is not UTF-8");
    NDP_TRY(add_message(d, NDP_ROLE_USER, message));
    ndp_status st = answer_turn(d, emit, user, out);
    if (st != NDP_OK)
        drop_messages(d, before);
    return st;
}
