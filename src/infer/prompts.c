/* Prompts: records with a "prompt", which is continued, or "messages", rendered up to where the assistant answers. */
#include "infer/prompts.h"

#include "data/corpus/record.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    ndp_prompts *prompts;
    const ndp_infer *infer;
    const char *path;
    ndp_chat chat;
    char where[NDP_PATH + 32];
} reader;

static ndp_status fail_at(const reader *r, ndp_status st) {
    return NDP_FAIL(st, "%s: %s", r->where, ndp_error_message());
}

/* A rendered conversation contains its special tokens; a prompt gets those of the tokenizer. */
static ndp_status encode_document(void *user, const ndp_document *d) {
    const reader *r = user;
    const ndp_infer *f = r->infer;
    ndp_ids *ids = &r->prompts->items[r->prompts->n - 1].ids;
    ndp_status st = ndp_infer_encode(f, d->text, d->n, !d->rendered, ids);
    if (st == NDP_OK)
        st = ndp_infer_begin(f, ids);
    if (st != NDP_OK)
        return fail_at(r, st);
    if (ids->n >= f->facts->max_positions)
        return NDP_FAIL(NDP_EINVAL, "%s: the prompt has %lld tokens, the model's longest text %lld: shorten it",
                        r->where, (long long)ids->n, (long long)f->facts->max_positions);
    return NDP_OK;
}

static ndp_status add_prompt(reader *r, struct json_object *record) {
    ndp_prompts *p = r->prompts;
    NDP_TRY(ndp_array_reserve(&p->items, &p->capacity, p->n + 1, sizeof *p->items));
    p->items[p->n++] = (ndp_prompt){0};
    struct json_object *id = NULL;
    if (json_object_is_type(record, json_type_object) && json_object_object_get_ex(record, "id", &id)) {
        p->items[p->n - 1].id = strdup(json_object_to_json_string_ext(id, JSON_C_TO_STRING_PLAIN));
        if (!p->items[p->n - 1].id)
            return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for a record", r->where);
    }
    return NDP_OK;
}

/* The assistant's own turn may not be the last: it would have nothing to answer. */
static ndp_status check_messages(const reader *r, struct json_object *messages) {
    size_t n = json_object_is_type(messages, json_type_array) ? json_object_array_length(messages) : 0;
    struct json_object *last = n ? json_object_array_get_idx(messages, n - 1) : NULL, *role = NULL;
    if (json_object_is_type(last, json_type_object))
        json_object_object_get_ex(last, "role", &role);
    const char *name = ndp_json_text(role);
    if (name && strcmp(name, "assistant") == 0)
        return NDP_FAIL(NDP_EFORMAT, "%s: the last message is the assistant's; give the messages before its answer",
                        r->where);
    return NDP_OK;
}

static ndp_status read_record(reader *r, struct json_object *record) {
    ndp_record_format format = {.kind = NDP_RECORD_TEXT, .text = "prompt", .chat = &r->chat};
    struct json_object *messages = NULL;
    ndp_document d = {.path = r->path};
    if (json_object_is_type(record, json_type_object) && json_object_object_get_ex(record, "messages", &messages)) {
        format.kind = NDP_RECORD_MESSAGES;
        format.train_all = format.open = true;
        NDP_TRY(check_messages(r, messages));
    } else if (json_object_is_type(record, json_type_object) && !json_object_object_get_ex(record, "prompt", NULL))
        return NDP_FAIL(NDP_EFORMAT, "%s: the record has neither 'prompt' nor 'messages'", r->where);
    NDP_TRY(add_prompt(r, record));
    ndp_status st = ndp_record_visit(record, r->where, &format, &d, encode_document, r);
    return st == NDP_ENOTSUP ? NDP_FAIL(NDP_EINVAL, "%s (here: option --chat-template)", ndp_error_message()) : st;
}

static ndp_status read_line(reader *r, const char *line, size_t n) {
    struct json_object *record = NULL;
    if (n == 0 || strspn(line, " \t\r") >= n)
        return NDP_OK;
    NDP_TRY(ndp_json_parse(line, n, r->where, &record));
    ndp_status st = read_record(r, record);
    json_object_put(record);
    return st;
}

static ndp_status read_lines(reader *r, const char *text, size_t size) {
    int64_t number = 1;
    for (const char *end = text + size; text < end; number++) {
        const char *line_end = memchr(text, '\n', (size_t)(end - text));
        line_end = line_end ? line_end : end;
        snprintf(r->where, sizeof r->where, "%s:%lld", r->path, (long long)number);
        NDP_TRY(read_line(r, text, (size_t)(line_end - text)));
        text = line_end + 1;
    }
    NDP_CHECK(r->prompts->n > 0, "%s: there are no records in it", r->path);
    return NDP_OK;
}

ndp_status ndp_prompts_read(ndp_prompts *p, const ndp_infer *f, const char *chat_template, const char *path) {
    reader r = {.prompts = p, .infer = f, .path = path};
    char *text = NULL;
    size_t size;
    *p = (ndp_prompts){0};
    NDP_TRY(ndp_infer_chat(f, chat_template, &r.chat));
    ndp_status st = ndp_file_read(path, &text, &size);
    if (st == NDP_OK)
        st = read_lines(&r, text, size);
    free(text);
    ndp_chat_release(&r.chat);
    if (st != NDP_OK)
        ndp_prompts_release(p);
    return st;
}

void ndp_prompts_release(ndp_prompts *p) {
    for (int64_t i = 0; i < p->n; i++) {
        ndp_ids_release(&p->items[i].ids);
        free(p->items[i].id);
    }
    free(p->items);
    *p = (ndp_prompts){0};
}
