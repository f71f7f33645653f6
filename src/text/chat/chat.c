/* Choosing a chat template: a built-in one (chat_table.h) by name, or by the text of the tokenizer's own (chat_own.h);
 * or one that Jinja renders (jinja.h). */
#include "text/chat/chat_own.h"
#include "text/chat/chat_table.h"
#include "text/chat/jinja.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static ndp_status no_memory(void) { return NDP_FAIL(NDP_ENOMEM, "not enough memory for a chat template"); }

/* ---- choosing ---- */

static ndp_status fail_name(const char *name, const char *source) {
    ndp_str names = {0};
    ndp_chat_template_names(&names);
    ndp_status st = NDP_FAIL(NDP_EINVAL,
                             "data.chat_template: '%s' is neither a template of the tokenizer %s nor built in; the "
                             "built-in templates are %s; a file of a template is named *.jinja",
                             name, source, names.data ? names.data : "");
    ndp_str_release(&names);
    return st;
}

/* Ignores white space at the end of a template: editors add and remove it. */
static void find_text(ndp_chat *c, const char *text, size_t n) {
    while (n && (text[n - 1] == ' ' || text[n - 1] == '\n' || text[n - 1] == '\r' || text[n - 1] == '\t'))
        n--;
    c->template = ndp_chat_template_of(XXH3_64bits(text, n));
    if (!c->template)
        ndp_chat_template_find_text(c, (ndp_span){text, n});
}

static ndp_status use_jinja(ndp_chat *c, const char *what, ndp_span text, const char *folder) {
    struct json_object *variables = NULL, *special = NULL;
    NDP_TRY(ndp_chat_own_variables(folder, c, &variables));
    ndp_status st = ndp_chat_own_special(c->tokenizer, &special);
    if (st == NDP_OK)
        st = ndp_jinja_create(what, text, variables, special, c->date ? c->date : NDP_CHAT_DATE, &c->jinja);
    json_object_put(special);
    json_object_put(variables);
    NDP_TRY(st);
    ndp_hash128 h = ndp_jinja_hash(c->jinja);
    c->name = ndp_format("jinja %016llx%016llx", (unsigned long long)h.high, (unsigned long long)h.low);
    return c->name ? NDP_OK : no_memory();
}

/* The file of a template. */
static ndp_status choose_file(ndp_chat *c, const char *folder, const char *path) {
    char *contents = NULL;
    size_t size;
    NDP_TRY(ndp_file_read_as(NDP_FILE_TEMPLATE, path, &contents, &size));
    char *what = ndp_format("the chat template %s", path);
    ndp_status st = what ? use_jinja(c, what, (ndp_span){contents, size}, folder) : no_memory();
    free(what);
    free(contents);
    return st;
}

/* Nothing can be rendered, which is an error only then. */
static ndp_status record_why(ndp_chat *c, const char *source) {
    ndp_str why = {0};
    ndp_str_addf(&why, "the tokenizer %s has no chat template; data.chat_template chooses a built-in one: ", source);
    ndp_chat_template_names(&why);
    c->why = ndp_str_detach(&why);
    return NDP_OK;
}

/* The tokenizer's own template: NULL, or "jinja", the one for conversations. */
static ndp_status choose_own(ndp_chat *c, const char *source, const char *folder, const char *name) {
    ndp_str text = {0};
    bool by_jinja = name && strcmp(name, "jinja") == 0;
    ndp_status st = folder ? ndp_chat_own_text(folder, by_jinja ? NULL : name, &text) : NDP_OK;
    if (st == NDP_OK && text.length && !name)
        find_text(c, text.data, text.length);
    if (st == NDP_OK && text.length && !c->template) {
        char *what = ndp_format("the chat template %s%sof %s", name && !by_jinja ? name : "",
                                name && !by_jinja ? " " : "", source);
        st = what ? use_jinja(c, what, (ndp_span){text.data, text.length}, folder) : no_memory();
        free(what);
    } else if (st == NDP_OK && !text.length)
        st = name && !by_jinja ? fail_name(name, source) : record_why(c, source);
    ndp_str_release(&text);
    return st;
}

static ndp_status choose(ndp_chat *c, const char *source, const char *folder, const char *name) {
    size_t n = name ? strlen(name) : 0;
    c->template = name ? ndp_chat_template_named(name) : NULL;
    if (c->template)
        return NDP_OK;
    return n > 6 && strcmp(name + n - 6, ".jinja") == 0 ? choose_file(c, folder, name)
                                                        : choose_own(c, source, folder, name);
}

ndp_status ndp_chat_init(ndp_chat *c, const ndp_tokenizer *t, const char *source, const char *name, const char *date) {
    ndp_chat chat = {.tokenizer = t,
                     .bos = ndp_tokenizer_token(t, ndp_tokenizer_bos(t)),
                     .eos = ndp_tokenizer_token(t, ndp_tokenizer_eos(t)),
                     .chosen = name && strcmp(name, "jinja") != 0,
                     .date = date};
    ndp_ids empty = {0};
    ndp_status st = ndp_tokenizer_encode(t, "", 0, true, &empty);
    chat.adds_bos = st == NDP_OK && empty.n && empty.items[0] == ndp_tokenizer_bos(t);
    ndp_ids_release(&empty);
    NDP_TRY(st);
    bool files = *source && strcmp(source, "bytes") != 0;
    char *folder = files ? ndp_tokenizer_folder(source) : NULL;
    st = files && !folder ? no_memory() : choose(&chat, source, folder, name);
    free(folder);
    if (st == NDP_OK)
        *c = chat;
    else
        ndp_chat_release(&chat);
    return st;
}

void ndp_chat_release(ndp_chat *c) {
    ndp_jinja_destroy(c->jinja);
    free(c->why);
    free(c->name);
    free(c->own_date);
    *c = (ndp_chat){0};
}

/* ---- using it ---- */

const char *ndp_chat_name(const ndp_chat *c) { return c->template ? c->template->name : c->name ? c->name : "none"; }

void ndp_chat_add_text(const ndp_chat *c, ndp_str *out) {
    if (c->template)
        ndp_chat_template_text(c, out);
    else if (c->jinja)
        ndp_str_add_bytes(out, ndp_jinja_template(c->jinja).data, ndp_jinja_template(c->jinja).n);
}

ndp_status ndp_chat_add_other_text(const ndp_chat *c, const ndp_tokenizer *t, const char *source, ndp_str *out) {
    bool dated = c->date && c->template && c->template->dated;
    ndp_chat own;
    if (!c->chosen && !dated)
        return NDP_OK;
    NDP_TRY(ndp_chat_init(&own, t, source, NULL, NULL));
    if (dated || strcmp(ndp_chat_name(c), ndp_chat_name(&own)) != 0)
        ndp_chat_add_text(c, out);
    ndp_chat_release(&own);
    return out->failed ? no_memory() : NDP_OK;
}

void ndp_chat_describe(const ndp_chat *c, ndp_str *out) {
    if (c->jinja)
        ndp_jinja_describe(c->jinja, out);
    else
        ndp_str_addf(out, "the built-in chat template %s", ndp_chat_name(c));
    if (c->template && c->template->dated)
        ndp_str_addf(out, ", which writes %s as today", c->date ? c->date : NDP_CHAT_DATE);
}

ndp_status ndp_chat_add_key(const ndp_chat *c, ndp_str *out) {
    ndp_status st = c->jinja ? ndp_jinja_add_key(c->jinja, out) : NDP_EINVAL;
    if (st != NDP_EINVAL && st != NDP_EFORMAT)
        return st;
    ndp_str_add(out, ndp_chat_name(c));
    ndp_str_add(out, c->bare ? " bare" : "");
    if (c->template && c->template->dated)
        ndp_str_addf(out, " %s", c->date ? c->date : NDP_CHAT_DATE);
    return NDP_OK;
}

static bool is_in_text(const void *text, const char *token) {
    const ndp_span *s = text;
    return memmem(s->data, s->n, token, strlen(token));
}

/* A built-in template that knows what the assistant wrote in this conversation. */
static void name_fitting(const ndp_chat *c, const ndp_conversation *conversation, ndp_str *out) {
    ndp_span text = ndp_jinja_template(c->jinja);
    ndp_chat other = *c;
    ndp_rendering r = {0};
    other.template = ndp_chat_template_fitting(is_in_text, &text);
    if (other.template && ndp_chat_template_render(&other, conversation, false, &r) == NDP_OK && r.n)
        ndp_str_addf(out, "; data.chat_template: %s is built in, knows it, and writes tokens of this template",
                     other.template->name);
    ndp_rendering_release(&r);
}

ndp_status ndp_chat_render(const ndp_chat *c, const ndp_conversation *conversation, bool generation_prompt,
                           ndp_rendering *out) {
    out->text.length = out->unsure.length = 0;
    out->n = out->n_questions = 0;
    if (c->template)
        return ndp_chat_template_render(c, conversation, generation_prompt, out);
    if (c->jinja) {
        NDP_TRY(ndp_jinja_render(c->jinja, conversation, generation_prompt, out));
        if (out->unsure.length)
            name_fitting(c, conversation, &out->unsure);
        return NDP_MEMORY(!out->unsure.failed, "for a conversation");
    }
    return NDP_FAIL(NDP_ENOTSUP, "%s", c->why ? c->why : "the tokenizer has no chat template");
}

void ndp_rendering_release(ndp_rendering *r) {
    ndp_str_release(&r->text);
    ndp_str_release(&r->unsure);
    free(r->spans);
    free(r->questions);
    *r = (ndp_rendering){0};
}
