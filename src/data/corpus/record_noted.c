/* What is said of records besides their text: why one is bad, and which of its known fields are not read. */
#include "data/corpus/record_parts.h"

#include <stdio.h>
#include <string.h>

const char *ndp_bad_record_text(ndp_bad_record b) {
    static const char *const texts[NDP_BAD_RECORDS] = {
        [NDP_BAD_NONE] = "sound",
        [NDP_BAD_JSON] = "not JSON",
        [NDP_BAD_SIZE] = "too large",
        [NDP_BAD_FIELDS] = "with a missing or mistyped field",
        [NDP_BAD_RENDERING] = "refused by the chat template",
        [NDP_BAD_UNSURE] = "whose answers are not certain",
        [NDP_BAD_EMPTY] = "with nothing to train on",
        [NDP_BAD_EQUAL] = "with two equal answers",
        [NDP_BAD_CUT] = "whose answer is beyond the row",
    };
    return texts[b];
}

ndp_status ndp_record_pass(const ndp_record_input *r) {
    r->document->bad = NDP_BAD_NONE;
    r->document->fault = &r->document->bad;
    return r->visit(r->user, r->document);
}

/* Null, "", [] and {} say nothing. */
static bool says_something(struct json_object *value) {
    return (json_object_is_type(value, json_type_string) && json_object_get_string_len(value) > 0) ||
           (json_object_is_type(value, json_type_array) && json_object_array_length(value) > 0) ||
           (json_object_is_type(value, json_type_object) && json_object_object_length(value) > 0) ||
           json_object_is_type(value, json_type_boolean) || json_object_is_type(value, json_type_int) ||
           json_object_is_type(value, json_type_double);
}

static bool is_any(const char *name, const char *const *names) {
    for (; *names; names++)
        if (strcmp(name, *names) == 0)
            return true;
    return false;
}

static ndp_status note(const ndp_record_input *r, struct json_object *o, const char *const *known,
                       const char *const *read, const char *where) {
    for (; r->format->tally && *known; known++)
        if (!is_any(*known, read) && says_something(json_object_object_get(o, *known))) {
            char what[64];
            snprintf(what, sizeof what, "%s%s", *known, where);
            NDP_TRY(ndp_tally_add(r->format->tally, NDP_TALLY_UNREAD, what, NULL));
        }
    return NDP_OK;
}

/* Names under which data sets hold what a model is trained on. */
ndp_status ndp_record_note_unread(const ndp_record_input *r, const char *const *read) {
    static const char *const known[] = {
        "text",     "messages", "conversations", "segments",   "instruction",  "input",           "context",
        "response", "output",   "prompt",        "completion", "question",     "answer",          "system",
        "history",  "tools",    "chosen",        "rejected",   "conversation", "chosen_response", "rejected_response",
        NULL};
    return note(r, r->object, known, read, "");
}

ndp_status ndp_message_note_unread(const ndp_record_input *r, struct json_object *o) {
    static const char *const known[] = {"training", "trainable", "loss", "loss_mask", "train", "weight", NULL};
    const char *const own[] = {r->format->train ? r->format->train : "train", NULL}, *const usual[] = {"train",
                                                                                                       "weight", NULL};
    return note(r, o, known, r->format->train ? own : usual, " of a message");
}
