/* What the readers of records share: fields and their errors. Inside this room only. */
#ifndef NDP_DATA_CORPUS_RECORD_PARTS_H
#define NDP_DATA_CORPUS_RECORD_PARTS_H

#include "data/corpus/record.h"

typedef struct ndp_record_input {
    struct json_object *object;
    const char *where; /* names it in messages */
    const ndp_record_format *format;
    ndp_document *document; /* has its location; the rest is set before the visit */
    ndp_document_visitor *visit;
    void *user;
    size_t *values; /* in texts of JSON so far (record_known.c) */
} ndp_record_input;

/* An instruction, borrowed from the record. */
typedef struct ndp_instruction {
    ndp_span prompt, input, response, system; /* input and system may be empty */
} ndp_instruction;

static inline bool ndp_record_has(struct json_object *record, const char *field) {
    return json_object_object_get_ex(record, field, NULL);
}

/* The field of an instruction's question. */
static inline const char *ndp_prompt_field(const ndp_record_format *f) { return f->prompt ? f->prompt : "instruction"; }

/* NDP_EFORMAT: "the record has no LACKS; it has: a, b. HINT". */
ndp_status ndp_record_fail(const ndp_record_input *r, const char *lacks, const char *hint);
/* The same for one field, in quotes. */
ndp_status ndp_record_lacks(const ndp_record_input *r, const char *field, const char *hint);
/* A string member of an object of the record, borrowed. */
NDP_API ndp_status ndp_record_string(struct json_object *o, const char *where, const char *field, ndp_span *out);
NDP_API ndp_status ndp_record_instruction(const ndp_record_input *r, ndp_instruction *out);

/* Messages of a record; `joined` has the texts of content parts. */
typedef struct ndp_message_list {
    ndp_message *items;
    ndp_str *joined;
    int64_t n;
} ndp_message_list;
/* Reads a list of messages, or one message; `field` names the list in messages (NULL: there is only one). The caller
 * releases it, even if this fails. */
ndp_status ndp_record_messages(const ndp_record_input *r, struct json_object *list, const char *field,
                               ndp_message_list *out);
void ndp_message_list_release(ndp_message_list *l);
/* Visits a text made of two fields, of which the second is trained on. */
ndp_status ndp_record_visit_joined(const ndp_record_input *r, const char *first, const char *second);
/* Renders messages with the tools, documents and variables of the record. NDP_EFORMAT: also where there is nothing to
 * train on, or it is not certain what. The caller releases `out`, even if this fails. */
ndp_status ndp_record_render(const ndp_record_input *r, const ndp_message *messages, int64_t n, ndp_rendering *out);
/* Gives a document that text, which it borrows. */
void ndp_record_set(const ndp_record_input *r, const ndp_rendering *text, ndp_document *d);

/* Reads whether the message `what` is trained on (record.h), into out->untrained; out->role is set. NDP_EFORMAT: a
 * value that is neither, or one that contradicts what is trained on. */
NDP_API ndp_status ndp_record_trained(const ndp_record_input *r, struct json_object *message, const char *what,
                                      ndp_message *out);
/* The same, by the record's list of marks. */
ndp_status ndp_record_trained_each(const ndp_record_input *r, ndp_message_list *messages);
/* NDP_EFORMAT: part k of a message's content is not trained on: only whole messages may be left out. */
ndp_status ndp_record_check_part(struct json_object *part, const char *where, size_t k, const char *what);
/* Drops the ranges of messages that are not trained on. NDP_EFORMAT: it is not certain which ranges these are, or no
 * range is left. */
NDP_API ndp_status ndp_record_drop_untrained(const ndp_record_input *r, const ndp_conversation *c, ndp_rendering *text);

/* Passes the finished document to the visitor. From then on a failure is not the record's. */
ndp_status ndp_record_pass(const ndp_record_input *r);
/* Counts the known fields of a record, or of a message of one, that have a value and are not read. `read`: those that
 * are, ends with NULL. */
ndp_status ndp_record_note_unread(const ndp_record_input *r, const char *const *read);
ndp_status ndp_message_note_unread(const ndp_record_input *r, struct json_object *message);

/* Visits a record (record.h): one for each reader of the list. `unknown` reports what the record lacks. */
#define NDP_RECORD_VISIT(NAME, word, CONVERSATIONS, reader)                                                            \
    NDP_API ndp_status ndp_record_visit_##reader(const ndp_record_input *r);
NDP_RECORDS(NDP_RECORD_VISIT)
#undef NDP_RECORD_VISIT

#endif
