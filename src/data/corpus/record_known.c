/* The known fields of records beside their texts: the type that each has before a chat template sees it, and the rule
 * for it. What is in the table is obeyed, refused by its name, or counted as unread; nothing is trained on silently.
 *
 * Data sets in tables hold lists and objects as texts of JSON, so such a text is parsed, in place. A value that is
 * empty (null, "", [], {}) is an absent one. */
#include "data/corpus/record_known.h"

#include "data/corpus/source.h"

#include <stdio.h>
#include <string.h>

typedef enum known_place { RECORD, MESSAGE, TOOL, SCHEMA, CALL, CALLED, NOTHING } known_place;

typedef enum known_rule {
    LIST,    /* of objects, each of them an `of` */
    OBJECT,  /* an `of` */
    MAPPING, /* the same; an empty one stays: {} */
    PASSED,  /* the same; a text stays one, since some templates want that (jinja.py) */
    MARKS,   /* a list with one for each message (ndp_record_masks) */
    FLAG,    /* whether a message is; true on an answer alone */
    WEIGHT,  /* likewise, 0 or 1; 1 on other messages says nothing */
    LABEL,   /* false: an answer that is not wanted */
    REFUSED, /* with `words` */
} known_rule;

static const char media[] = "images, videos and sound are not supported; leave such records out",
                  unclear[] =
                      "in some data it marks what is trained on, in other what is not; write 'weight': 0 in the "
                      "messages that are not trained on, or set data.train_field to the field that marks what is";

static const char marks_of_messages[] = "loss_mask";

static const struct {
    const char *name;
    uint8_t in, rule, of;
    const char *words;
} known[] = {
    {"tools", RECORD, LIST, TOOL, NULL},
    {"documents", RECORD, LIST, NOTHING, NULL},
    {"chat_template_kwargs", RECORD, OBJECT, NOTHING, NULL},
    {marks_of_messages, RECORD, MARKS, NOTHING, NULL},
    {"label", RECORD, LABEL, NOTHING, NULL},
    {"mask", RECORD, REFUSED, NOTHING, unclear},
    {"functions", RECORD, REFUSED, NOTHING, "write them as 'tools': [{\"type\": \"function\", \"function\": ...}]"},
    {"image", RECORD, REFUSED, NOTHING, media},
    {"images", RECORD, REFUSED, NOTHING, media},
    {"video", RECORD, REFUSED, NOTHING, media},
    {"videos", RECORD, REFUSED, NOTHING, media},
    {"audio", RECORD, REFUSED, NOTHING, media},
    {"audios", RECORD, REFUSED, NOTHING, media},
    {"tool_calls", MESSAGE, LIST, CALL, NULL},
    {"train", MESSAGE, FLAG, NOTHING, NULL},
    {"training", MESSAGE, FLAG, NOTHING, NULL},
    {"trainable", MESSAGE, FLAG, NOTHING, NULL},
    {"loss", MESSAGE, FLAG, NOTHING, NULL},
    {"weight", MESSAGE, WEIGHT, NOTHING, NULL},
    {"loss_weight", MESSAGE, WEIGHT, NOTHING, NULL},
    {"loss_mask", MESSAGE, WEIGHT, NOTHING, NULL},
    {"mask", MESSAGE, REFUSED, NOTHING, unclear},
    {"function_call", MESSAGE, REFUSED, NOTHING,
     "write it as 'tool_calls': [{\"type\": \"function\", \"function\": ...}]"},
    {"images", MESSAGE, REFUSED, NOTHING, media},
    {"function", TOOL, OBJECT, SCHEMA, NULL},
    {"parameters", TOOL, MAPPING, NOTHING, NULL},
    {"parameters", SCHEMA, MAPPING, NOTHING, NULL},
    {"function", CALL, OBJECT, CALLED, NULL},
    {"arguments", CALL, PASSED, NOTHING, NULL},
    {"arguments", CALLED, PASSED, NOTHING, NULL},
};

/* Null, "", [] and {} say nothing. */
static bool is_empty(struct json_object *o) {
    return !o || (json_object_is_type(o, json_type_string) && json_object_get_string_len(o) == 0) ||
           (json_object_is_type(o, json_type_array) && json_object_array_length(o) == 0) ||
           (json_object_is_type(o, json_type_object) && json_object_object_length(o) == 0);
}

/* ---- types ---- */

/* `what` names a value of the record: "'function' of item 1 of 'tools'". */
static ndp_status type_fields(const ndp_record_input *r, struct json_object *o, known_place in, const char *what);

/* A text of JSON becomes what it says; other values stay. The result is the caller's. */
static ndp_status parse_text(const ndp_record_input *r, struct json_object *value, const char *what,
                             struct json_object **out) {
    if (!json_object_is_type(value, json_type_string) || is_empty(value)) {
        *out = json_object_get(value);
        return NDP_OK;
    }
    const char *text = json_object_get_string(value);
    size_t n = (size_t)json_object_get_string_len(value);
    *r->values += ndp_record_values(text, n);
    if (*r->values > NDP_RECORD_VALUES)
        return NDP_FAIL(NDP_EFORMAT, "%s: more than %zu values in texts of JSON, up to %s", r->where, NDP_RECORD_VALUES,
                        what);
    if (ndp_json_parse(text, n, what, out) == NDP_OK)
        return NDP_OK;
    return NDP_FAIL(NDP_EFORMAT, "%s: %s is the text '%.40s', which is not JSON", r->where, what, text);
}

static ndp_status fail_type(const ndp_record_input *r, const char *what, struct json_object *o, const char *expected) {
    static const char *const kinds[] = {"null", "a boolean", "a number", "a number", "an object", "a list", "a text"};
    return NDP_FAIL(NDP_EFORMAT, "%s: %s is %s, expected %s", r->where, what, kinds[json_object_get_type(o)], expected);
}

static bool has_name(struct json_object *o) {
    return json_object_is_type(o, json_type_object) &&
           json_object_is_type(json_object_object_get(o, "name"), json_type_string);
}

/* A tool is a schema with a name, or one of a type that needs none. */
static ndp_status check_item(const ndp_record_input *r, struct json_object *item, known_place of, const char *what) {
    struct json_object *function = json_object_object_get(item, "function");
    const char *type = ndp_json_text(json_object_object_get(item, "type"));
    if (of == TOOL && !has_name(item) && !has_name(function) && (!type || strcmp(type, "function") == 0))
        return NDP_FAIL(NDP_EFORMAT, "%s: %s has no 'function' with a 'name', so it is not the schema of a tool",
                        r->where, what);
    return NDP_OK;
}

static ndp_status type_list(const ndp_record_input *r, struct json_object *list, known_place of, const char *what) {
    char one[160];
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        struct json_object *item = NULL;
        snprintf(one, sizeof one, "item %zu of %.120s", i + 1, what);
        NDP_TRY(parse_text(r, json_object_array_get_idx(list, i), one, &item));
        json_object_array_put_idx(list, i, item);
        if (!json_object_is_type(item, json_type_object))
            return fail_type(r, one, item, "an object");
        NDP_TRY(type_fields(r, item, of, one));
        NDP_TRY(check_item(r, item, of, one));
    }
    return NDP_OK;
}

/* A field whose rule is one of the first four. */
static ndp_status type_field(const ndp_record_input *r, struct json_object *o, int row, const char *what) {
    struct json_object *given = json_object_object_get(o, known[row].name), *value = NULL;
    bool list = known[row].rule == LIST;
    NDP_TRY(parse_text(r, given, what, &value));
    if (is_empty(value)) {
        json_object_put(value);
        if (known[row].rule == MAPPING || known[row].rule == PASSED)
            json_object_object_add(o, known[row].name, json_object_new_object());
        else
            json_object_object_del(o, known[row].name);
        return NDP_OK;
    }
    if (!json_object_is_type(value, list ? json_type_array : json_type_object)) {
        ndp_status st = fail_type(r, what, value, list ? "a list" : "an object");
        json_object_put(value);
        return st;
    }
    if (known[row].rule == PASSED && json_object_is_type(given, json_type_string)) {
        json_object_put(value);
        return NDP_OK;
    }
    json_object_object_add(o, known[row].name, value); /* takes it */
    return list ? type_list(r, value, known[row].of, what) : type_fields(r, value, known[row].of, what);
}

static ndp_status type_fields(const ndp_record_input *r, struct json_object *o, known_place in, const char *what) {
    char field[192];
    for (int i = 0; i < NDP_COUNT(known); i++)
        if (known[i].in == in && known[i].rule <= PASSED && ndp_record_has(o, known[i].name)) {
            snprintf(field, sizeof field, "'%s'%s%.150s", known[i].name, in == RECORD ? "" : " of ", what);
            NDP_TRY(type_field(r, o, i, field));
        }
    return NDP_OK;
}

/* ---- refusals ---- */

static bool says_no(struct json_object *o) {
    return json_object_is_type(o, json_type_boolean) && !json_object_get_boolean(o);
}

static ndp_status refuse_fields(const ndp_record_input *r, struct json_object *o, known_place in, const char *what) {
    for (int i = 0; i < NDP_COUNT(known); i++) {
        struct json_object *value = known[i].in == in ? json_object_object_get(o, known[i].name) : NULL;
        bool own = r->format->train && strcmp(known[i].name, r->format->train) == 0;
        if (known[i].rule == REFUSED && !is_empty(value) && !own)
            return NDP_FAIL(NDP_EFORMAT, "%s: %s has '%s', which is not read: %s", r->where, what, known[i].name,
                            known[i].words);
        if (known[i].rule == LABEL && says_no(value) && !r->format->single)
            return NDP_FAIL(
                NDP_EFORMAT,
                "%s: %s has '%s': false, an answer that is not wanted (as in data for KTO), which would be "
                "trained on; leave such records out, or train on them with data.format: preference and loss.name: kto",
                r->where, what, known[i].name);
    }
    return NDP_OK;
}

ndp_status ndp_record_check_known(const ndp_record_input *r, bool messages) {
    static const char *const taken[] = {"messages", "tools", "documents", "add_generation_prompt"};
    NDP_TRY(refuse_fields(r, r->object, RECORD, "the record"));
    if (!messages && !is_empty(json_object_object_get(r->object, marks_of_messages)))
        return NDP_FAIL(NDP_EFORMAT, "%s: '%s' is read where a record has a list of messages", r->where,
                        marks_of_messages);
    NDP_TRY(type_fields(r, r->object, RECORD, ""));
    struct json_object *variables = json_object_object_get(r->object, "chat_template_kwargs");
    for (int i = 0; variables && i < NDP_COUNT(taken); i++)
        if (ndp_record_has(variables, taken[i]))
            return NDP_FAIL(NDP_EFORMAT, "%s: 'chat_template_kwargs' has '%s', which is the program's to set", r->where,
                            taken[i]);
    return NDP_OK;
}

ndp_status ndp_message_check_known(const ndp_record_input *r, struct json_object *message, const char *what) {
    NDP_TRY(refuse_fields(r, message, MESSAGE, what));
    return type_fields(r, message, MESSAGE, what);
}

ndp_status ndp_message_check_text(const ndp_record_input *r, const ndp_message *m, const char *what) {
    static const char *const placeholders[] = {"<image>", "<video>", "<audio>"};
    ndp_span s = m->content;
    for (; s.n && strchr(" \n", s.data[0]); s.data++, s.n--)
        ;
    for (; s.n && strchr(" \n", s.data[s.n - 1]); s.n--)
        ;
    for (int i = 0; i < NDP_COUNT(placeholders) && m->role == NDP_ROLE_USER; i++) {
        size_t n = strlen(placeholders[i]);
        if (s.n >= n && (memcmp(s.data, placeholders[i], n) == 0 || memcmp(s.data + s.n - n, placeholders[i], n) == 0))
            return NDP_FAIL(NDP_EFORMAT, "%s: the text of %s begins or ends with the placeholder %s: %s", r->where,
                            what, placeholders[i], media);
    }
    return NDP_OK;
}

/* ---- marks ---- */

bool ndp_known_mark(int i, const char **name, bool *weight) {
    int at = 0;
    while (at < NDP_COUNT(known) &&
           !(known[at].in == MESSAGE && (known[at].rule == FLAG || known[at].rule == WEIGHT) && i-- == 0))
        at++;
    if (at == NDP_COUNT(known))
        return false;
    *name = known[at].name;
    *weight = known[at].rule == WEIGHT;
    return true;
}

ndp_status ndp_record_masks(const ndp_record_input *r, struct json_object **out) {
    struct json_object *marks = json_object_object_get(r->object, marks_of_messages);
    *out = NULL;
    if (is_empty(marks))
        return NDP_OK;
    NDP_TRY(parse_text(r, marks, marks_of_messages, &marks));
    json_object_object_add(r->object, marks_of_messages, marks); /* takes it */
    if (!json_object_is_type(marks, json_type_array))
        return fail_type(r, marks_of_messages, marks, "a list with 0 or 1 for each message");
    *out = marks;
    return NDP_OK;
}

/* ---- unread fields ---- */

static bool is_any(const char *name, const char *const *names) {
    for (; *names; names++)
        if (strcmp(name, *names) == 0)
            return true;
    return false;
}

static ndp_status note(const ndp_record_input *r, struct json_object *o, const char *name, const char *of) {
    char what[64];
    if (!r->format->tally || is_empty(json_object_object_get(o, name)))
        return NDP_OK;
    snprintf(what, sizeof what, "%.40s%s", name, of);
    return ndp_tally_add(r->format->tally, NDP_TALLY_UNREAD, what, NULL);
}

/* Names under which data sets hold what a model is trained on. */
ndp_status ndp_record_note_unread(const ndp_record_input *r, const char *const *read) {
    static const char *const texts[] = {"text",        "messages",     "conversations",   "segments",
                                        "instruction", "input",        "context",         "response",
                                        "output",      "prompt",       "question",        "answer",
                                        "system",      "history",      "chosen",          "completion",
                                        "rejected",    "conversation", "chosen_response", "rejected_response"};
    for (int i = 0; i < NDP_COUNT(texts); i++)
        if (!is_any(texts[i], read))
            NDP_TRY(note(r, r->object, texts[i], ""));
    return NDP_OK;
}

ndp_status ndp_record_note_known(const ndp_record_input *r) {
    for (int i = 0; i < NDP_COUNT(known); i++)
        if (known[i].in == RECORD && known[i].rule != LABEL)
            NDP_TRY(note(r, r->object, known[i].name, ""));
    return NDP_OK;
}

ndp_status ndp_message_note_unread(const ndp_record_input *r, struct json_object *o) {
    const char *own = r->format->train, *name;
    bool weight;
    for (int i = 0; own && ndp_known_mark(i, &name, &weight); i++)
        if (strcmp(name, own) != 0)
            NDP_TRY(note(r, o, name, " of a message"));
    return NDP_OK;
}
