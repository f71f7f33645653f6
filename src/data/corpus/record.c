/* Records to documents: the kind of a record is found by its fields, conversations are rendered (chat.c), and the
 * document is passed to the visitor before what it borrows is released. Called by source.c. */
#include "data/corpus/record_known.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *text_field(const ndp_record_format *f) { return f->text ? f->text : "text"; }
static const char *messages_field(const ndp_record_format *f) { return f->messages ? f->messages : "messages"; }

ndp_status ndp_record_visit_text(const ndp_record_input *r) {
    const char *field = text_field(r->format);
    ndp_span text = {NULL, 0};
    if (!ndp_record_has(r->object, field))
        return ndp_record_lacks(r, field,
                                r->format->chat ? "data.text_field says which field that is"
                                : ndp_record_has(r->object, "messages")
                                    ? "Conversations are read for a job, with its chat template"
                                    : "--text-field names the field of a text");
    NDP_TRY(ndp_record_string(r->object, r->where, field, &text));
    r->document->text = text.data;
    r->document->n = text.n;
    NDP_TRY(ndp_record_note_unread(r, (const char *const[]){field, NULL}));
    return ndp_record_pass(r);
}

/* ---- conversations ---- */

/* There is something to train on, and it is known what. */
static ndp_status check_rendering(const ndp_record_input *r, const ndp_rendering *text) {
    r->document->bad = text->unsure.length ? NDP_BAD_UNSURE : NDP_BAD_EMPTY;
    if (!r->format->train_all && text->unsure.length)
        return NDP_FAIL(NDP_EFORMAT,
                        "%s: it is not certain what the assistant wrote in the text that the chat template gives (%s); "
                        "mark it in the template by {%% generation %%} and {%% endgeneration %%}, or train on all of "
                        "it, with data.train_on: all",
                        r->where, text->unsure.data);
    if (!r->format->train_all && text->n == 0)
        return NDP_FAIL(NDP_EFORMAT,
                        "%s: the conversation has no message of the assistant, so there is nothing to train on; "
                        "data.train_on: all trains on all messages",
                        r->where);
    return NDP_OK;
}

/* A question begins where an answer ends that a message of the user follows before the next answer. Where ranges are
 * more or fewer than answers, at the end of each range. */
static ndp_status find_questions(const ndp_conversation *c, ndp_rendering *out) {
    int64_t answers = 0, k = 0;
    for (int64_t i = 0; i < c->n; i++)
        answers += c->messages[i].role == NDP_ROLE_ASSISTANT;
    bool asked = true;
    for (int64_t i = 0; i < (answers == out->n ? c->n : out->n); i++) {
        ndp_role role = answers == out->n ? c->messages[i].role : NDP_ROLE_ASSISTANT;
        asked |= role == NDP_ROLE_USER || answers != out->n;
        if (role != NDP_ROLE_ASSISTANT)
            continue;
        if (asked && k > 0) {
            NDP_TRY(ndp_array_reserve(&out->questions, &out->question_capacity, out->n_questions + 1,
                                      sizeof *out->questions));
            out->questions[out->n_questions++] = out->spans[k - 1].end;
        }
        asked = false;
        k++;
    }
    return NDP_OK;
}

/* Line breaks behind an answer become part of it. */
static void take_line_breaks(ndp_rendering *out) {
    for (int64_t i = 0; i < out->n; i++) {
        size_t end = i + 1 < out->n ? out->spans[i + 1].begin : out->text.length;
        while (out->spans[i].end < end && out->text.data[out->spans[i].end] == '\n')
            out->spans[i].end++;
    }
}

ndp_status ndp_record_render(const ndp_record_input *r, const ndp_message *messages, int64_t n, ndp_rendering *out) {
    bool drop = r->format->drop_system && n > 0 && messages[0].role == NDP_ROLE_SYSTEM;
    messages += drop, n -= drop;
    const ndp_conversation c = {messages, n, json_object_object_get(r->object, "tools"),
                                json_object_object_get(r->object, "documents"),
                                json_object_object_get(r->object, "chat_template_kwargs")};
    if (!r->format->chat)
        return NDP_FAIL(NDP_ENOTSUP, "%s: the record is a conversation, but this command reads only texts", r->where);
    ndp_status st = ndp_chat_render(r->format->chat, &c, r->format->open, out);
    r->document->bad = st == NDP_EFORMAT ? NDP_BAD_RENDERING : st == NDP_OK ? NDP_BAD_UNSURE : NDP_BAD_NONE;
    if (st != NDP_OK)
        return NDP_FAIL(st, "%s: %s", r->where, ndp_error_message()); /* rendering does not know the place */
    if (r->format->train_turn)
        take_line_breaks(out);
    if (!r->format->open)
        NDP_TRY(find_questions(&c, out));
    if (!r->format->open)
        NDP_TRY(ndp_record_drop_untrained(r, &c, out));
    return check_rendering(r, out);
}

void ndp_record_set(const ndp_record_input *r, const ndp_rendering *text, ndp_document *d) {
    d->text = text->text.data;
    d->n = text->text.length;
    d->partly = !r->format->train_all;
    d->spans = text->spans;
    d->n_spans = text->n;
    d->questions = text->questions;
    d->n_questions = text->n_questions;
}

static ndp_status render_and_visit(const ndp_record_input *r, const ndp_message *messages, int64_t n) {
    ndp_rendering text = {0};
    ndp_status st = ndp_record_render(r, messages, n, &text);
    if (st == NDP_OK) {
        ndp_record_set(r, &text, r->document);
        r->document->rendered = true;
        st = ndp_record_pass(r);
    }
    ndp_rendering_release(&text);
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
                            where, k + 1, what, object ? "of the type '" : "not an object",
                            object ? json_object_get_string(type) : "", object ? "'" : "");
        ndp_span text = {NULL, 0};
        NDP_TRY(ndp_record_check_part(part, where, k, what));
        bool value = !json_object_object_get(part, "text") && json_object_object_get(part, "value");
        NDP_TRY(ndp_record_string(part, where, value ? "value" : "text", &text));
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
    return ndp_record_string(o, where, key, out);
}

/* By data.roles, then by the usual names. */
static bool role_of(const ndp_record_format *f, ndp_span name, ndp_role *out) {
    for (int i = 0; f->roles && i < f->roles->n; i++) {
        const char *item = f->roles->items[i];
        if (strncmp(item, name.data, name.n) == 0 && strncmp(item + name.n, ": ", 2) == 0)
            return ndp_role_of(item + name.n + 2, out);
    }
    return strlen(name.data) == name.n && ndp_role_of(name.data, out);
}

/* Sets out->role, and out->json if the message has the name that templates have for it. */
static ndp_status read_role(const ndp_record_format *f, struct json_object *o, const char *key, const char *where,
                            const char *what, ndp_message *out) {
    ndp_span role = {NULL, 0};
    if (!json_object_is_type(json_object_object_get(o, key), json_type_string))
        return NDP_FAIL(NDP_EFORMAT, "%s: %s has no '%s' that is a string%s", where, what, key,
                        f->role ? "" : "; data.role_field says which field holds the role");
    NDP_TRY(ndp_record_string(o, where, key, &role));
    if (!role_of(f, role, &out->role))
        return NDP_FAIL(NDP_EFORMAT,
                        "%s: %s has the role '%.40s'; roles are system, user or human, assistant or gpt, and tool; "
                        "data.roles: {NAME: ROLE} says what another name means",
                        where, what, role.data);
    out->json = strcmp(key, "role") == 0 && strcmp(role.data, ndp_role_name(out->role)) == 0 ? o : NULL;
    return NDP_OK;
}

/* By its name, or one of its older names, as transformers gives it to templates. */
static ndp_status read_reasoning(struct json_object *o, const char *where, ndp_message *out) {
    static const char *const older[] = {"thinking", "reasoning"};
    if (json_object_object_get(o, "reasoning_content"))
        return ndp_record_string(o, where, "reasoning_content", &out->reasoning);
    for (int i = 0; i < NDP_COUNT(older); i++)
        if (json_object_is_type(json_object_object_get(o, older[i]), json_type_string))
            return ndp_record_string(o, where, older[i], &out->reasoning);
    return NDP_OK;
}

/* `joined`: receives the text of content parts; to be released after the message's last use. */
static ndp_status read_message(const ndp_record_input *r, struct json_object *o, const char *what, ndp_str *joined,
                               ndp_message *out) {
    const ndp_record_format *f = r->format;
    const char *where = r->where;
    if (!json_object_is_type(o, json_type_object))
        return NDP_FAIL(NDP_EFORMAT, "%s: %s is not an object with 'role' and 'content'", where, what);
    NDP_TRY(ndp_message_check_known(r, o, what));
    *out = (ndp_message){0};
    const char *role = f->role ? f->role : !ndp_record_has(o, "role") && ndp_record_has(o, "from") ? "from" : "role";
    const char *content = f->content ? f->content : strcmp(role, "from") == 0 ? "value" : "content";
    NDP_TRY(read_role(f, o, role, where, what, out));
    if (strcmp(content, "content") != 0)
        out->json = NULL;
    NDP_TRY(ndp_record_trained(r, o, what, out));
    bool calling = json_object_object_get(o, "tool_calls");
    if (calling && !out->json)
        return NDP_FAIL(NDP_ENOTSUP,
                        "%s: %s has 'tool_calls', which are read only with the fields and roles of chat templates: "
                        "'role' is assistant, and the text is in 'content'",
                        where, what);
    if (!calling || json_object_object_get(o, content))
        NDP_TRY(read_content(o, content, where, what, joined, &out->content));
    NDP_TRY(ndp_message_check_text(r, out, what));
    NDP_TRY(read_reasoning(o, where, out));
    return ndp_message_note_unread(r, o);
}

ndp_status ndp_record_messages(const ndp_record_input *r, struct json_object *list, const char *field,
                               ndp_message_list *out) {
    bool many = json_object_is_type(list, json_type_array);
    size_t n = many ? json_object_array_length(list) : 1;
    char what[96] = "";
    *out = (ndp_message_list){calloc(n + 1, sizeof *out->items), calloc(n + 1, sizeof *out->joined), (int64_t)n};
    if (!out->items || !out->joined)
        return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for %zu messages", r->where, n);
    for (size_t i = 0; i < n; i++) {
        struct json_object *message = many ? json_object_array_get_idx(list, i) : list;
        snprintf(what, sizeof what, field ? "message %zu of '%.40s'" : "message %zu", i + 1, field);
        NDP_TRY(read_message(r, message, what, &out->joined[i], &out->items[i]));
    }
    return NDP_OK;
}

void ndp_message_list_release(ndp_message_list *l) {
    for (int64_t i = 0; l->joined && i < l->n; i++)
        ndp_str_release(&l->joined[i]);
    free(l->joined);
    free(l->items);
    *l = (ndp_message_list){0};
}

/* ShareGPT's records have `conversations`. */
static const char *messages_field_of(const ndp_record_input *r) {
    const char *field = messages_field(r->format);
    bool usual =
        r->format->kind != NDP_RECORD_MESSAGES && strcmp(field, "messages") == 0 && !ndp_record_has(r->object, field);
    return usual ? "conversations" : field;
}

/* A text `system` of the record comes before messages that do not begin with one. `room`: one more than there are. */
static ndp_status add_system(const ndp_record_input *r, ndp_message *room, int64_t *n) {
    ndp_span system = {NULL, 0};
    if (json_object_is_type(json_object_object_get(r->object, "system"), json_type_string))
        NDP_TRY(ndp_record_string(r->object, r->where, "system", &system));
    if (system.n == 0 || (*n > 0 && room[0].role == NDP_ROLE_SYSTEM))
        return NDP_OK;
    memmove(room + 1, room, (size_t)*n * sizeof *room);
    room[0] = (ndp_message){.role = NDP_ROLE_SYSTEM, .content = system, .untrained = true};
    ++*n;
    return NDP_OK;
}

ndp_status ndp_record_visit_messages(const ndp_record_input *r) {
    const char *field = messages_field_of(r), *where = r->where;
    struct json_object *list = json_object_object_get(r->object, field);
    if (!ndp_record_has(r->object, field))
        return ndp_record_lacks(r, field, "data.messages_field says which field that is");
    if (!json_object_is_type(list, json_type_array) || json_object_array_length(list) == 0)
        return NDP_FAIL(NDP_EFORMAT, "%s: '%s' is not a list of messages", where, field);
    ndp_message_list m;
    ndp_status st = ndp_record_messages(r, list, NULL, &m);
    if (st == NDP_OK)
        st = ndp_record_trained_each(r, &m);
    if (st == NDP_OK)
        st = ndp_record_note_unread(r, (const char *const[]){field, "system", NULL});
    int64_t n = m.n; /* the list has room for one more */
    if (st == NDP_OK)
        st = add_system(r, m.items, &n);
    if (st == NDP_OK)
        st = render_and_visit(r, m.items, n);
    ndp_message_list_release(&m);
    return st;
}

/* ---- instructions ---- */

/* Two texts or lists of messages; see record_prompts.c for texts. */
ndp_status ndp_record_visit_completion(const ndp_record_input *r) {
    static const char *const fields[] = {"prompt", "completion"};
    ndp_message_list part[2] = {{.n = 0}, {.n = 0}};
    ndp_message *all = NULL;
    NDP_TRY(ndp_record_note_unread(r, (const char *const[]){fields[0], fields[1], NULL}));
    for (int i = 0; i < 2; i++)
        if (!ndp_record_has(r->object, fields[i]))
            return ndp_record_lacks(r, fields[i], "data.format: prompt_completion reads 'prompt' and 'completion'");
    if (json_object_is_type(json_object_object_get(r->object, fields[0]), json_type_string))
        return ndp_record_visit_joined(r, fields[0], fields[1]);
    ndp_status st = NDP_OK;
    for (int i = 0; i < 2 && st == NDP_OK; i++)
        st = ndp_record_messages(r, json_object_object_get(r->object, fields[i]), fields[i], &part[i]);
    if (st == NDP_OK && !(all = calloc((size_t)(part[0].n + part[1].n) + 1, sizeof *all)))
        st = NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for the record", r->where);
    for (int64_t i = 0; st == NDP_OK && i < part[0].n + part[1].n; i++) {
        all[i] = i < part[0].n ? part[0].items[i] : part[1].items[i - part[0].n];
        all[i].untrained |= i < part[0].n;
    }
    if (st == NDP_OK)
        st = render_and_visit(r, all, part[0].n + part[1].n);
    free(all);
    ndp_message_list_release(&part[0]);
    ndp_message_list_release(&part[1]);
    return st;
}

/* Earlier turns of a conversation, LLaMA-Factory's `history`: [[question, answer], ...]. *n: messages. */
static ndp_status read_history(const ndp_record_input *r, struct json_object *history, ndp_message *out, int64_t *n) {
    for (size_t k = 0; history && k < json_object_array_length(history); k++) {
        struct json_object *turn = json_object_array_get_idx(history, k);
        bool pair = json_object_is_type(turn, json_type_array) && json_object_array_length(turn) == 2;
        for (size_t i = 0; i < 2; i++) {
            struct json_object *text = pair ? json_object_array_get_idx(turn, i) : NULL;
            if (!json_object_is_type(text, json_type_string))
                return NDP_FAIL(NDP_EFORMAT, "%s: turn %zu of 'history' is %.60s, expected [\"question\", \"answer\"]",
                                r->where, k + 1, turn ? json_object_to_json_string(turn) : "null");
            out[(*n)++] =
                (ndp_message){.role = i ? NDP_ROLE_ASSISTANT : NDP_ROLE_USER,
                              .content = {json_object_get_string(text), (size_t)json_object_get_string_len(text)}};
        }
    }
    return NDP_OK;
}

ndp_status ndp_record_visit_instruction(const ndp_record_input *r) {
    ndp_instruction i;
    ndp_str question = {0};
    struct json_object *history = json_object_object_get(r->object, "history");
    bool turns = json_object_is_type(history, json_type_array);
    int64_t n = 0;
    NDP_TRY(ndp_record_instruction(r, &i));
    if (history && !turns)
        return NDP_FAIL(NDP_EFORMAT, "%s: 'history' is not a list of earlier turns", r->where);
    ndp_message *m = calloc(turns ? 2 * json_object_array_length(history) + 3 : 3, sizeof *m);
    ndp_str_add_bytes(&question, i.prompt.data, i.prompt.n);
    if (i.input.n) {
        ndp_str_add(&question, r->format->separator ? r->format->separator : "\n\n");
        ndp_str_add_bytes(&question, i.input.data, i.input.n);
    }
    ndp_status st = !m || question.failed ? NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for the record", r->where)
                                          : read_history(r, turns ? history : NULL, m, &n);
    if (st == NDP_OK) {
        m[n++] = (ndp_message){.role = NDP_ROLE_USER, .content = {question.data, question.length}};
        m[n++] = (ndp_message){.role = NDP_ROLE_ASSISTANT, .content = i.response};
        st = add_system(r, m, &n);
    }
    if (st == NDP_OK)
        st = render_and_visit(r, m, n);
    free(m);
    ndp_str_release(&question);
    return st;
}

/* ---- kinds ---- */

bool ndp_record_has_conversations(ndp_record_kind kind) {
#define HAS(NAME, word, CONVERSATIONS, reader) CONVERSATIONS,
    static const bool has[NDP_RECORD_KINDS] = {NDP_RECORDS(HAS)};
    return has[kind];
}

static ndp_record_kind kind_of(const ndp_record_input *r) {
    const ndp_record_format *f = r->format;
    struct json_object *o = r->object;
    bool pair = ndp_record_has(o, "chosen") && ndp_record_has(o, "rejected");
    return f->kind != NDP_RECORD_AUTO                                       ? f->kind
           : ndp_record_has(o, text_field(f))                               ? NDP_RECORD_TEXT
           : ndp_record_has(o, messages_field(f))                           ? NDP_RECORD_MESSAGES
           : ndp_record_has(o, ndp_prompt_field(f))                         ? NDP_RECORD_INSTRUCTION
           : ndp_record_has(o, "prompt") && ndp_record_has(o, "completion") ? NDP_RECORD_PROMPT_COMPLETION
           : ndp_record_has(o, "conversations") && !pair                    ? NDP_RECORD_SHAREGPT
           : ndp_record_has(o, "input_ids")                                 ? NDP_RECORD_TOKEN_IDS
                                                                            : NDP_RECORD_AUTO;
}

/* Fields of usual data sets, and how they are read. */
static const struct {
    const char *field, *hint;
} usual[] = {
    {"chosen", "data.format: preference, with a loss of pairs such as loss.name: dpo, reads 'chosen' and 'rejected'"},
    {"segments", "data.format: input_output reads 'segments'"},
    {"prompt", "data.prompt_field: prompt reads 'prompt', and data.response_field names its answer"},
    {"question", "data.prompt_field: question reads 'question', and data.response_field names its answer"}};

/* The only field that holds a string, which is probably the text; NULL: there are none or several. */
static const char *only_text(struct json_object *object) {
    const char *found = NULL;
    int n = 0;
    json_object_object_foreach(object, key, value) {
        if (json_object_is_type(value, json_type_string)) {
            found = key;
            n++;
        }
    }
    return n == 1 ? found : NULL;
}

ndp_status ndp_record_visit_unknown(const ndp_record_input *r) {
    const ndp_record_format *f = r->format;
    const char *hint = "data.text_field, messages_field and prompt_field say what is read",
               *text = only_text(r->object);
    char lacks[256], only[256];
    if (text) {
        snprintf(only, sizeof only, "data.text_field: %.60s reads '%.60s'", text, text);
        hint = only;
    }
    snprintf(lacks, sizeof lacks, "'%.60s', '%.60s' or '%.60s'", text_field(f), messages_field(f), ndp_prompt_field(f));
    for (int i = NDP_COUNT(usual) - 1; i >= 0; i--)
        hint = ndp_record_has(r->object, usual[i].field) ? usual[i].hint : hint;
    return ndp_record_fail(r, lacks, hint);
}

#define READER(NAME, word, CONVERSATIONS, reader) ndp_record_visit_##reader,
static ndp_status (*const readers[NDP_RECORD_KINDS])(const ndp_record_input *r) = {NDP_RECORDS(READER)};

ndp_status ndp_record_visit(struct json_object *record, const char *where, const ndp_record_format *f, ndp_document *d,
                            ndp_document_visitor *visit, void *user) {
    size_t values = 0;
    const ndp_record_input r = {record, where, f, d, visit, user, &values};
    d->bad = NDP_BAD_FIELDS;
    if (!json_object_is_type(record, json_type_object))
        return NDP_FAIL(NDP_EFORMAT, "%s: the record is not an object", where);
    d->rendered = d->partly = false;
    d->rejected = NULL;
    d->ids = NULL;
    d->questions = NULL;
    d->n_questions = 0;
    ndp_record_kind kind = kind_of(&r);
    if (kind != NDP_RECORD_AUTO)
        NDP_TRY(ndp_record_has_conversations(kind)
                    ? ndp_record_check_known(&r, kind == NDP_RECORD_MESSAGES || kind == NDP_RECORD_SHAREGPT)
                    : ndp_record_note_known(&r));
    return readers[kind](&r);
}
