/* Records to documents: the kind of a record is found by its fields, conversations are rendered (chat.c), and the
 * document is passed to the visitor before what it borrows is released. Called by source.c. */
#include "data/corpus/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *text_field(const ndp_record_format *f) { return f->text ? f->text : "text"; }
static const char *messages_field(const ndp_record_format *f) { return f->messages ? f->messages : "messages"; }
static const char *prompt_field(const ndp_record_format *f) { return f->prompt ? f->prompt : "instruction"; }

static bool has(struct json_object *record, const char *field) {
    return json_object_object_get_ex(record, field, NULL);
}

/* "the record has no 'text'; it has: a, b. HINT" */
static ndp_status fail_fields(struct json_object *record, const char *where, const char *lacks, const char *hint) {
    ndp_str keys = {0};
    json_object_object_foreach(record, key, value) {
        (void)value;
        ndp_str_addf(&keys, "%s%s", keys.length ? ", " : "", key);
    }
    ndp_status st = NDP_FAIL(NDP_EFORMAT, "%s: the record has no %s; it has: %.400s. %s", where, lacks,
                             keys.data ? keys.data : "nothing", hint);
    ndp_str_release(&keys);
    return st;
}

static ndp_status fail_field(struct json_object *record, const char *where, const char *field, const char *hint) {
    char lacks[96];
    snprintf(lacks, sizeof lacks, "'%.80s'", field);
    return fail_fields(record, where, lacks, hint);
}

/* A string member, borrowed from the record. */
static ndp_status get_text(struct json_object *o, const char *where, const char *field, ndp_span *out) {
    struct json_object *text = json_object_object_get(o, field);
    if (!json_object_is_type(text, json_type_string))
        return NDP_FAIL(NDP_EFORMAT, "%s: '%s' is not a string", where, field);
    *out = (ndp_span){json_object_get_string(text), (size_t)json_object_get_string_len(text)};
    return NDP_OK;
}

static ndp_status visit_text(struct json_object *record, const char *where, const ndp_record_format *f, ndp_document *d,
                             ndp_document_visitor *visit, void *user) {
    ndp_span text = {NULL, 0};
    if (!has(record, text_field(f)))
        return fail_field(record, where, text_field(f),
                          f->chat                   ? "data.text_field says which field that is"
                          : has(record, "messages") ? "Conversations are read for a job, with its chat template"
                                                    : "--text-field names the field of a text");
    NDP_TRY(get_text(record, where, text_field(f), &text));
    d->text = text.data;
    d->n = text.n;
    return visit(user, d);
}

/* ---- conversations ---- */

static ndp_status visit_rendering(const char *where, const ndp_record_format *f, const ndp_rendering *r,
                                  ndp_document *d, ndp_document_visitor *visit, void *user) {
    if (!f->learn_all && r->unsure.length)
        return NDP_FAIL(
            NDP_ENOTSUP,
            "%s: it is not certain what the assistant wrote in the text that the chat template gives (%s); "
            "mark it in the template by {%% generation %%} and {%% endgeneration %%}, or learn all of it, with "
            "data.train_on: all",
            where, r->unsure.data);
    if (!f->learn_all && r->n == 0)
        return NDP_FAIL(NDP_EFORMAT,
                        "%s: the conversation has no message of the assistant, so there is nothing to learn from it; "
                        "data.train_on: all learns all messages",
                        where);
    d->text = r->text.data;
    d->n = r->text.length;
    d->rendered = true;
    d->partly = !f->learn_all;
    d->spans = r->spans;
    d->n_spans = r->n;
    return visit(user, d);
}

static ndp_status render_and_visit(const ndp_conversation *c, const char *where, const ndp_record_format *f,
                                   ndp_document *d, ndp_document_visitor *visit, void *user) {
    ndp_rendering r = {0};
    if (!f->chat)
        return NDP_FAIL(NDP_ENOTSUP, "%s: the record is a conversation, but this command reads only texts", where);
    ndp_status st = ndp_chat_render(f->chat, c, false, &r);
    st = st == NDP_OK ? visit_rendering(where, f, &r, d, visit, user)
                      : NDP_FAIL(st, "%s: %s", where, ndp_error_message()); /* rendering does not know the place */
    ndp_rendering_release(&r);
    return st;
}

/* Appends to `joined` the texts of a list of content parts, which must all be texts. */
static ndp_status join_parts(struct json_object *parts, const char *where, const char *what, ndp_str *joined) {
    for (size_t k = 0; k < json_object_array_length(parts); k++) {
        struct json_object *part = json_object_array_get_idx(parts, k), *type = NULL;
        bool object = json_object_is_type(part, json_type_object);
        if (object)
            type = json_object_object_get(part, "type");
        if (!object || (type && strcmp(json_object_get_string(type), "text") != 0))
            return NDP_FAIL(NDP_ENOTSUP,
                            "%s: part %zu of the content of %s is %s%.40s%s; only parts of the type 'text' are read",
                            where, k + 1, what, object ? "of the type '" : "no object",
                            object ? json_object_get_string(type) : "", object ? "'" : "");
        ndp_span text = {NULL, 0};
        NDP_TRY(get_text(part, where, "text", &text));
        ndp_str_add_bytes(joined, text.data, text.n);
    }
    return NDP_OK;
}

/* A text, or a list of content parts, which is joined in `joined`. */
static ndp_status read_content(struct json_object *o, const char *key, const char *where, const char *what,
                               ndp_str *joined, ndp_span *out) {
    struct json_object *content = json_object_object_get(o, key);
    if (json_object_is_type(content, json_type_array) && json_object_array_length(content) > 0) {
        NDP_TRY(join_parts(content, where, what, joined));
        if (joined->failed)
            return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for %s", where, what);
        *out = (ndp_span){joined->data ? joined->data : "", joined->length};
        return NDP_OK;
    }
    if (!json_object_is_type(content, json_type_string))
        return NDP_FAIL(NDP_EFORMAT, "%s: %s has no '%s' that is a string or a list of texts", where, what, key);
    return get_text(o, where, key, out);
}

static bool is_empty_list(struct json_object *o) {
    return json_object_is_type(o, json_type_array) && json_object_array_length(o) == 0;
}

/* `joined`: receives the text of content parts; to be released after the message's last use. */
static ndp_status read_message(struct json_object *o, const char *where, size_t i, ndp_str *joined, ndp_message *out) {
    char what[64];
    ndp_span role = {NULL, 0}, content = role, reasoning = role;
    snprintf(what, sizeof what, "message %zu", i + 1);
    if (!json_object_is_type(o, json_type_object))
        return NDP_FAIL(NDP_EFORMAT, "%s: %s is not an object with 'role' and 'content'", where, what);
    bool sharegpt = !json_object_object_get(o, "role") && json_object_object_get(o, "from");
    const char *role_key = sharegpt ? "from" : "role", *content_key = sharegpt ? "value" : "content";
    if (!json_object_is_type(json_object_object_get(o, role_key), json_type_string))
        return NDP_FAIL(NDP_EFORMAT, "%s: %s has no '%s' that is a string", where, what, role_key);
    NDP_TRY(get_text(o, where, role_key, &role));
    if (!ndp_role_of(role.data, &out->role) || strlen(role.data) != role.n)
        return NDP_FAIL(NDP_EFORMAT,
                        "%s: %s has the role '%.40s'; roles are system, user or human, assistant or gpt, and tool",
                        where, what, role.data);
    struct json_object *calls = json_object_object_get(o, "tool_calls");
    out->json = !sharegpt && !strcmp(role.data, ndp_role_name(out->role)) ? o : NULL;
    if (!calls || is_empty_list(calls) || json_object_object_get(o, content_key))
        NDP_TRY(read_content(o, content_key, where, what, joined, &content));
    if (json_object_object_get(o, "reasoning_content"))
        NDP_TRY(get_text(o, where, "reasoning_content", &reasoning));
    out->content = content;
    out->reasoning = reasoning;
    return NDP_OK;
}

static ndp_status visit_messages(struct json_object *record, const char *where, const ndp_record_format *f,
                                 ndp_document *d, ndp_document_visitor *visit, void *user) {
    const char *field = messages_field(f);
    struct json_object *list = json_object_object_get(record, field);
    if (!has(record, field))
        return fail_field(record, where, field, "data.messages_field says which field that is");
    if (!json_object_is_type(list, json_type_array) || json_object_array_length(list) == 0)
        return NDP_FAIL(NDP_EFORMAT, "%s: '%s' is not a list of messages", where, field);
    size_t n = json_object_array_length(list);
    ndp_message *m = calloc(n, sizeof *m);
    ndp_str *joined = calloc(n, sizeof *joined);
    ndp_status st = m && joined ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for %zu messages", where, n);
    for (size_t i = 0; i < n && st == NDP_OK; i++)
        st = read_message(json_object_array_get_idx(list, i), where, i, &joined[i], &m[i]);
    if (st == NDP_OK)
        st = render_and_visit(&(ndp_conversation){m, (int64_t)n, json_object_object_get(record, "tools")}, where, f, d,
                              visit, user);
    for (size_t i = 0; joined && i < n; i++)
        ndp_str_release(&joined[i]);
    free(joined);
    free(m);
    return st;
}

static ndp_status visit_instruction(struct json_object *record, const char *where, const ndp_record_format *f,
                                    ndp_document *d, ndp_document_visitor *visit, void *user) {
    const char *input_field = f->input ? f->input : "input";
    const char *response_field = f->response ? f->response : has(record, "response") ? "response" : "output";
    ndp_span prompt = {NULL, 0}, input = {"", 0}, response = {NULL, 0};
    if (!has(record, prompt_field(f)))
        return fail_field(record, where, prompt_field(f), "data.prompt_field says which field that is");
    if (!has(record, response_field))
        return fail_field(record, where, f->response ? f->response : "response' or 'output",
                          "data.response_field says which field that is");
    NDP_TRY(get_text(record, where, prompt_field(f), &prompt));
    NDP_TRY(get_text(record, where, response_field, &response));
    if (json_object_object_get(record, input_field))
        NDP_TRY(get_text(record, where, input_field, &input));
    ndp_str question = {0};
    ndp_str_add_bytes(&question, prompt.data, prompt.n);
    if (input.n) {
        ndp_str_add(&question, "\n\n");
        ndp_str_add_bytes(&question, input.data, input.n);
    }
    const ndp_message m[2] = {{.role = NDP_ROLE_USER, .content = {question.data, question.length}},
                              {.role = NDP_ROLE_ASSISTANT, .content = response}};
    ndp_status st = question.failed ? NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for the record", where)
                                    : render_and_visit(&(ndp_conversation){m, 2, NULL}, where, f, d, visit, user);
    ndp_str_release(&question);
    return st;
}

ndp_status ndp_record_visit(struct json_object *record, const char *where, const ndp_record_format *f, ndp_document *d,
                            ndp_document_visitor *visit, void *user) {
    if (!json_object_is_type(record, json_type_object))
        return NDP_FAIL(NDP_EFORMAT, "%s: the record is not an object", where);
    ndp_record_kind kind = f->kind != NDP_RECORD_AUTO       ? f->kind
                           : has(record, text_field(f))     ? NDP_RECORD_TEXT
                           : has(record, messages_field(f)) ? NDP_RECORD_MESSAGES
                           : has(record, prompt_field(f))   ? NDP_RECORD_INSTRUCTION
                                                            : NDP_RECORD_AUTO;
    d->rendered = d->partly = false;
    if (kind == NDP_RECORD_TEXT)
        return visit_text(record, where, f, d, visit, user);
    if (kind == NDP_RECORD_MESSAGES)
        return visit_messages(record, where, f, d, visit, user);
    if (kind == NDP_RECORD_INSTRUCTION)
        return visit_instruction(record, where, f, d, visit, user);
    char lacks[256];
    snprintf(lacks, sizeof lacks, "'%.60s', '%.60s' or '%.60s'", text_field(f), messages_field(f), prompt_field(f));
    return fail_fields(record, where, lacks, "data.text_field, messages_field and prompt_field say what is read");
}
