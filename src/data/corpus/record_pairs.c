/* Preference data: a record becomes two documents, prompt and chosen answer, prompt and rejected answer, of which the
 * answers are trained on. The forms are those of TRL and of Axolotl's DPO strategies, found by the record's fields:
 *
 *   prompt            chosen, rejected
 *   a text `prompt`   texts                  texts: the prompt followed by the answer, as they are
 *   messages          messages, one, or text a conversation: the prompt's messages followed by those of the answer
 *   a question        texts                  a conversation of `system`, if there is one, the question and the answer
 *   none, or a text   messages               the prompt is what both lists begin with
 *   none              texts                  the prompt is what both texts begin with
 *
 * For a loss of single answers (ndp_record_format.single) a record may have one answer, `completion` or `response`, and
 * a `label`, true or false; or a list of messages that ends with the answer, and a `label`. It becomes one of the two
 * documents, the first if the label is true, and the other one has no text.
 *
 * A question is a text of another name, or `prompt` with a `system` or where data.prompt_field names it. Messages of
 * the prompt are context, even those of the assistant. */
#include "data/corpus/record_parts.h"

#include <stdlib.h>
#include <string.h>

typedef struct pair_reading {
    const ndp_record_input *r;
    int n;                           /* of answers: 2, or a single one, which is answers[0] */
    bool wanted;                     /* the single one is */
    const char *prompt, *answers[2]; /* fields; prompt NULL: none */
    struct json_object *question;    /* the value of `prompt` */
    struct json_object *given[2];    /* of the answers */
    ndp_span system;                 /* n 0: none */
    bool systematic;                 /* the record has a field `system` */
} pair_reading;

/* ---- fields ---- */

static bool is_text(struct json_object *o) { return json_object_is_type(o, json_type_string); }
static bool is_messages(struct json_object *o) {
    return json_object_is_type(o, json_type_object) ||
           (json_object_is_type(o, json_type_array) && json_object_array_length(o) > 0);
}

static const char *any_of(struct json_object *record, const char *const *names) {
    while (*names && !json_object_object_get(record, *names))
        names++;
    return *names;
}

static bool is_single(const ndp_record_input *r) {
    return r->format->single && !ndp_record_has(r->object, r->format->chosen ? r->format->chosen : "chosen") &&
           !ndp_record_has(r->object, "chosen_response");
}

/* The answer and whether it is wanted. A record with a list of messages alone has the answer at its end. */
static ndp_status find_single(pair_reading *p) {
    const ndp_record_format *f = p->r->format;
    const char *const names[] = {f->response ? f->response : "completion", "completion", "response",      "output",
                                 f->messages ? f->messages : "messages",   "messages",   "conversations", NULL};
    const char *field = any_of(p->r->object, names);
    struct json_object *label = json_object_object_get(p->r->object, "label");
    if (!field)
        return ndp_record_lacks(p->r, names[0], "data.response_field says which field has the answer");
    p->answers[0] = field, p->given[0] = json_object_object_get(p->r->object, field);
    if (!is_text(p->given[0]) && !is_messages(p->given[0]))
        return NDP_FAIL(NDP_EFORMAT, "%s: '%s' is neither a text nor a list of messages", p->r->where, field);
    if (!label)
        return ndp_record_lacks(p->r, "label", "loss.name kto needs true or false there: whether the answer is wanted");
    bool number = json_object_is_type(label, json_type_int) && (json_object_get_int64(label) | 1) == 1;
    if (!json_object_is_type(label, json_type_boolean) && !number)
        return NDP_FAIL(NDP_EFORMAT, "%s: 'label' is %.40s, expected true or false: whether the answer is wanted",
                        p->r->where, json_object_to_json_string(label));
    p->wanted = json_object_get_boolean(label);
    return NDP_OK;
}

static ndp_status find_answer(pair_reading *p, int which) {
    static const char *const usual[][3] = {{"chosen", "chosen_response", NULL},
                                           {"rejected", "rejected_response", NULL}};
    static const char *const hints[] = {"data.chosen_field says which field that is",
                                        "data.rejected_field says which field that is"};
    const ndp_record_format *f = p->r->format;
    const char *named = which ? f->rejected : f->chosen;
    const char *field = named ? named : any_of(p->r->object, usual[which]);
    struct json_object *o = field ? json_object_object_get(p->r->object, field) : NULL;
    if (!o)
        return ndp_record_lacks(p->r, named ? named : usual[which][0], hints[which]);
    if (!is_text(o) && !is_messages(o))
        return NDP_FAIL(NDP_EFORMAT, "%s: '%s' is neither a text nor a list of messages", p->r->where, field);
    p->answers[which] = field, p->given[which] = o;
    return NDP_OK;
}

/* The configured fields come first. */
static ndp_status find_prompt(pair_reading *p) {
    const ndp_record_format *f = p->r->format;
    const char *names[] = {ndp_prompt_field(f),
                           "prompt",
                           f->messages ? f->messages : "messages",
                           "messages",
                           "conversation",
                           "conversations",
                           "question",
                           "instruction",
                           "input",
                           NULL};
    p->prompt = any_of(p->r->object, names);
    if (p->n == 1 && p->prompt && strcmp(p->prompt, p->answers[0]) == 0)
        p->prompt = NULL; /* the messages that end with the answer */
    p->question = p->prompt ? json_object_object_get(p->r->object, p->prompt) : NULL;
    if (p->question && !is_text(p->question) && !is_messages(p->question))
        return NDP_FAIL(NDP_EFORMAT, "%s: '%s' is neither a text nor a list of messages", p->r->where, p->prompt);
    return NDP_OK;
}

static ndp_status find_fields(pair_reading *p) {
    p->n = is_single(p->r) ? 1 : 2;
    for (int i = 0; i < p->n; i++)
        NDP_TRY(p->n == 1 ? find_single(p) : find_answer(p, i));
    if (p->n == 2 && is_text(p->given[0]) != is_text(p->given[1]))
        return NDP_FAIL(NDP_EFORMAT, "%s: one of '%s' and '%s' is a text, the other are messages", p->r->where,
                        p->answers[0], p->answers[1]);
    NDP_TRY(find_prompt(p));
    if (p->n == 1 && !p->prompt && is_text(p->given[0]))
        return ndp_record_lacks(p->r, "prompt", "an answer is compared given its prompt");
    p->systematic = is_text(json_object_object_get(p->r->object, "system"));
    if (p->systematic)
        NDP_TRY(ndp_record_string(p->r->object, p->r->where, "system", &p->system));
    return NDP_OK;
}

static ndp_span span_of(struct json_object *text) {
    return (ndp_span){json_object_get_string(text), (size_t)json_object_get_string_len(text)};
}

/* ---- the two documents ---- */

static ndp_status check_different(const pair_reading *p, const ndp_rendering text[2]) {
    p->r->document->bad = NDP_BAD_EQUAL;
    if (text[0].text.length == text[1].text.length &&
        memcmp(text[0].text.data, text[1].text.data, text[0].text.length) == 0)
        return NDP_FAIL(NDP_EFORMAT,
                        "%s: '%s' and '%s' are equal, so there is nothing to prefer; correct the record, or leave such "
                        "records out with data.bad_records: skip",
                        p->r->where, p->answers[0], p->answers[1]);
    return NDP_OK;
}

/* Passes both to the visitor as one. */
static ndp_status pass(const pair_reading *p, const ndp_rendering text[2], bool rendered) {
    const ndp_record_input *r = p->r;
    ndp_document rejected = *r->document;
    if (p->n == 2)
        NDP_TRY(check_different(p, text));
    bool other = p->n == 1 && !p->wanted; /* the single answer is the rejected one */
    r->document->text = rejected.text = NULL;
    if (!other)
        ndp_record_set(r, &text[0], r->document);
    if (other || p->n == 2)
        ndp_record_set(r, &text[other ? 0 : 1], &rejected);
    r->document->rendered = rejected.rendered = rendered;
    r->document->rejected = &rejected;
    ndp_status st = ndp_record_pass(r);
    r->document->rejected = NULL;
    return st;
}

/* ---- texts ---- */

static ndp_status join(const pair_reading *p, ndp_span prompt, ndp_span answer, ndp_rendering *out) {
    ndp_str_add_bytes(&out->text, prompt.data, prompt.n);
    ndp_str_add_bytes(&out->text, answer.data, answer.n);
    if (out->text.failed)
        return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for the record", p->r->where);
    p->r->document->bad = NDP_BAD_EMPTY;
    if (answer.n == 0)
        return NDP_FAIL(NDP_EFORMAT, "%s: an answer is empty, so there is nothing to train on", p->r->where);
    NDP_TRY(ndp_array_reserve(&out->spans, &out->capacity, 1, sizeof *out->spans));
    out->spans[out->n++] = (ndp_range){prompt.n, out->text.length};
    return NDP_OK;
}

/* Bytes that both texts begin with: whole characters, without a space at their end, which belongs to the answers. */
static size_t common_bytes(ndp_span a, ndp_span b) {
    size_t n = 0, least = a.n < b.n ? a.n : b.n;
    while (n < least && a.data[n] == b.data[n])
        n++;
    while (n > 0 && n < least && ((a.data[n] & 0xc0) == 0x80 || (b.data[n] & 0xc0) == 0x80))
        n--;
    return n > 0 && n < least && a.data[n - 1] == ' ' ? n - 1 : n;
}

static ndp_status visit_texts(const pair_reading *p) {
    ndp_rendering text[2] = {{.n = 0}, {.n = 0}};
    ndp_span answers[2] = {span_of(p->given[0]), p->n == 2 ? span_of(p->given[1]) : (ndp_span){NULL, 0}};
    ndp_span prompt = p->prompt ? span_of(p->question) : (ndp_span){answers[0].data, 0};
    if (!p->prompt)
        prompt.n = common_bytes(answers[0], answers[1]);
    ndp_status st = NDP_OK;
    for (int i = 0; i < p->n && st == NDP_OK; i++) {
        size_t skip = p->prompt ? 0 : prompt.n;
        st = join(p, prompt, (ndp_span){answers[i].data + skip, answers[i].n - skip}, &text[i]);
    }
    if (st == NDP_OK)
        st = pass(p, text, false);
    ndp_rendering_release(&text[0]);
    ndp_rendering_release(&text[1]);
    return st;
}

/* ---- conversations ---- */

/* The messages of one document: those of the prompt, which are context, then the answer's. The field `system` is the
 * first message, unless the messages begin with one of the system's. */
static ndp_status render(const pair_reading *p, const ndp_message *prompt, int64_t n, const ndp_message *answer,
                         int64_t n_answer, ndp_rendering *out) {
    const ndp_message *first = n ? prompt : answer;
    ndp_message *all = calloc((size_t)(n + n_answer) + 1, sizeof *all);
    if (!all)
        return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for the record", p->r->where);
    int64_t at = 0;
    if (p->system.n && n + n_answer && first->role != NDP_ROLE_SYSTEM)
        all[at++] = (ndp_message){.role = NDP_ROLE_SYSTEM, .content = p->system, .untrained = true};
    for (int64_t i = 0; i < n; i++, at++) {
        all[at] = prompt[i];
        all[at].untrained = true;
    }
    for (int64_t i = 0; i < n_answer; i++)
        all[at++] = answer[i];
    ndp_status st = ndp_record_render(p->r, all, at, out);
    free(all);
    return st;
}

/* Both documents of a prompt and two lists of messages. */
static ndp_status visit_lists(const pair_reading *p, const ndp_message *prompt, int64_t n,
                              const ndp_message_list answers[2], int64_t from) {
    ndp_rendering text[2] = {{.n = 0}, {.n = 0}};
    ndp_status st = NDP_OK;
    for (int i = 0; i < p->n && st == NDP_OK; i++)
        st = render(p, prompt, n, answers[i].items + from, answers[i].n - from, &text[i]);
    if (st == NDP_OK)
        st = pass(p, text, true);
    ndp_rendering_release(&text[0]);
    ndp_rendering_release(&text[1]);
    return st;
}

/* Messages that both lists begin with; the last one of each is an answer. */
static int64_t common_messages(const pair_reading *p) {
    int64_t n = 0, least = INT64_MAX;
    for (int i = 0; i < p->n; i++) {
        bool many = json_object_is_type(p->given[i], json_type_array);
        int64_t length = many ? (int64_t)json_object_array_length(p->given[i]) : 0;
        least = length < least ? length : least;
    }
    if (p->n == 1)
        return p->prompt || least < 1 ? 0 : least - 1;
    while (n < least - 1 && json_object_equal(json_object_array_get_idx(p->given[0], (size_t)n),
                                              json_object_array_get_idx(p->given[1], (size_t)n)))
        n++;
    return n;
}

/* A text as a list of one message. */
static ndp_status text_message(const pair_reading *p, struct json_object *text, ndp_role role, ndp_message_list *out) {
    *out = (ndp_message_list){calloc(1, sizeof *out->items), NULL, 1};
    if (!out->items)
        return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for the record", p->r->where);
    out->items[0] = (ndp_message){.role = role, .content = span_of(text)};
    return NDP_OK;
}

/* A prompt that is one text. */
static ndp_status ask(const pair_reading *p, const ndp_message_list answers[2]) {
    ndp_message question = {.role = NDP_ROLE_USER, .content = span_of(p->question)};
    return visit_lists(p, &question, 1, answers, 0);
}

/* Whether both lists begin with the messages of the prompt too. */
static bool repeats_prompt(const pair_reading *p) {
    bool many = json_object_is_type(p->question, json_type_array);
    size_t n = many ? json_object_array_length(p->question) : 0;
    if (n == 0 || !is_messages(p->given[0]) || (int64_t)n > common_messages(p))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!json_object_equal(json_object_array_get_idx(p->question, i), json_object_array_get_idx(p->given[0], i)))
            return false;
    return true;
}

static ndp_status visit_messages(const pair_reading *p, const ndp_message_list answers[2]) {
    ndp_message_list prompt = {.n = 0};
    bool listed = p->question && is_messages(p->question) && !repeats_prompt(p);
    if (!listed) {
        int64_t common = is_messages(p->given[0]) ? common_messages(p) : 0;
        bool asks = p->question && common == 0;
        return asks ? ask(p, answers) : visit_lists(p, answers[0].items, common, answers, common);
    }
    ndp_status st = ndp_record_messages(p->r, p->question, p->prompt, &prompt);
    if (st == NDP_OK)
        st = visit_lists(p, prompt.items, prompt.n, answers, 0);
    ndp_message_list_release(&prompt);
    return st;
}

static ndp_status visit_conversations(const pair_reading *p) {
    ndp_message_list answers[2] = {{.n = 0}, {.n = 0}};
    ndp_status st = NDP_OK;
    for (int i = 0; i < p->n && st == NDP_OK; i++)
        st = is_text(p->given[i]) ? text_message(p, p->given[i], NDP_ROLE_ASSISTANT, &answers[i])
                                  : ndp_record_messages(p->r, p->given[i], p->answers[i], &answers[i]);
    if (st == NDP_OK)
        st = visit_messages(p, answers);
    ndp_message_list_release(&answers[0]);
    ndp_message_list_release(&answers[1]);
    return st;
}

ndp_status ndp_record_visit_preference(const ndp_record_input *r) {
    pair_reading p = {.r = r};
    NDP_TRY(find_fields(&p));
    bool texts = is_text(p.given[0]), asked = p.question && is_text(p.question);
    bool question = p.prompt && strcmp(p.prompt, ndp_prompt_field(r->format)) == 0;
    bool plain = texts && !p.systematic && (!p.prompt || (asked && !question && strcmp(p.prompt, "prompt") == 0));
    const char *read[] = {
        p.answers[0], p.n == 2 ? p.answers[1] : "label", "system", p.prompt ? p.prompt : "prompt", "prompt", NULL};
    NDP_TRY(ndp_record_note_unread(r, read));
    return plain ? visit_texts(&p) : visit_conversations(&p);
}
