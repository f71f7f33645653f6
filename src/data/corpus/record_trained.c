/* Messages that are not trained on: `weight` 0, `train` false and other marks, as other programs write them. A mark is
 * read with the message; after the text is rendered, the ranges of such messages are dropped. */
#include "data/corpus/record_known.h"

#include <stdio.h>
#include <string.h>

/* ---- reading ---- */

static const char two_values[] =
    "a message is trained on (1 or true) or not (0 or false); other weights are not supported";

/* True and false, or 1 and 0. */
static bool read_flag(struct json_object *value, bool *out) {
    if (json_object_is_type(value, json_type_boolean))
        *out = json_object_get_boolean(value);
    else if (json_object_is_type(value, json_type_int) || json_object_is_type(value, json_type_double)) {
        double v = json_object_get_double(value);
        *out = v == 1;
        return v == 0 || v == 1;
    } else
        return false;
    return true;
}

static ndp_status fail_role(const ndp_record_input *r, const char *what, const char *field, const ndp_message *m) {
    return NDP_FAIL(NDP_EFORMAT,
                    "%s: %s is of the role %s and has '%s': true, but training is on what the assistant wrote; "
                    "data.train_on: all trains on everything",
                    r->where, what, ndp_role_name(m->role), field);
}

/* `weight`: the mark has a meaning for answers alone. */
static ndp_status read_mark(const ndp_record_input *r, struct json_object *value, const char *what, const char *field,
                            bool weight, ndp_message *out) {
    bool trained = true;
    if (!value)
        return NDP_OK;
    if (!read_flag(value, &trained))
        return NDP_FAIL(NDP_EFORMAT, "%s: %s has '%s': %.40s; %s", r->where, what, field,
                        json_object_to_json_string(value), two_values);
    out->untrained |= !trained;
    if (trained && !weight && out->role != NDP_ROLE_ASSISTANT && !r->format->train_all)
        return fail_role(r, what, field, out);
    if (!trained && r->format->train_all)
        return NDP_FAIL(NDP_EFORMAT,
                        "%s: %s has '%s': %.40s, but data.train_on: all trains on everything; set data.train_on: "
                        "assistant, or remove the field",
                        r->where, what, field, json_object_to_json_string(value));
    return NDP_OK;
}

ndp_status ndp_record_trained(const ndp_record_input *r, struct json_object *o, const char *what, ndp_message *out) {
    const char *own = r->format->train, *name;
    bool weight;
    if (own && strcmp(own, "weight") != 0)
        return read_mark(r, json_object_object_get(o, own), what, own, false, out);
    for (int i = 0; ndp_known_mark(i, &name, &weight); i++)
        if (!own || strcmp(name, own) == 0)
            NDP_TRY(read_mark(r, json_object_object_get(o, name), what, name, weight, out));
    return NDP_OK;
}

ndp_status ndp_record_trained_each(const ndp_record_input *r, ndp_message_list *m) {
    static const char field[] = "loss_mask";
    struct json_object *marks;
    char what[32];
    NDP_TRY(ndp_record_masks(r, &marks));
    if (!marks)
        return NDP_OK;
    if ((int64_t)json_object_array_length(marks) != m->n)
        return NDP_FAIL(NDP_EFORMAT, "%s: '%s' has %zu items for %lld messages", r->where, field,
                        json_object_array_length(marks), (long long)m->n);
    for (int64_t i = 0; i < m->n; i++) {
        struct json_object *mark = json_object_array_get_idx(marks, (size_t)i);
        snprintf(what, sizeof what, "message %lld", (long long)i + 1);
        NDP_TRY(read_mark(r, mark, what, field, true, &m->items[i]));
    }
    return NDP_OK;
}

ndp_status ndp_record_check_part(struct json_object *part, const char *where, size_t k, const char *what) {
    const char *name;
    bool weight;
    for (int i = 0; ndp_known_mark(i, &name, &weight); i++) {
        struct json_object *value = json_object_object_get(part, name);
        bool trained = true;
        if (value && (!read_flag(value, &trained) || !trained))
            return NDP_FAIL(NDP_EFORMAT,
                            "%s: part %zu of the content of %s has '%s': %.40s; only whole messages are left out",
                            where, k + 1, what, name, json_object_to_json_string(value));
    }
    return NDP_OK;
}

/* ---- dropping ---- */

/* The end of a content is what every template keeps of it, without white space around. */
static ndp_span kept_of(ndp_span s) {
    static const char end[] = "</think>";
    for (const char *hit; s.n && (hit = memmem(s.data, s.n, end, sizeof end - 1));)
        s = (ndp_span){hit + sizeof end - 1, s.n - (size_t)(hit + sizeof end - 1 - s.data)};
    for (; s.n && strchr(" \t\r\n", s.data[0]) && s.data[0]; s.data++, s.n--)
        ;
    for (; s.n && strchr(" \t\r\n", s.data[s.n - 1]) && s.data[s.n - 1]; s.n--)
        ;
    return s;
}

/* Whether range i of the text is what the next message of the assistant, from message *m on, gave. */
static bool belongs(const ndp_conversation *c, const ndp_rendering *text, int64_t i, int64_t *m) {
    while (*m < c->n && c->messages[*m].role != NDP_ROLE_ASSISTANT)
        ++*m;
    if (*m == c->n)
        return false;
    ndp_span kept = kept_of(c->messages[*m].content);
    const ndp_range *s = &text->spans[i];
    return kept.n == 0 || memmem(text->text.data + s->begin, s->end - s->begin, kept.data, kept.n);
}

static int64_t answers_of(const ndp_conversation *c) {
    int64_t n = 0;
    for (int64_t i = 0; i < c->n; i++)
        n += c->messages[i].role == NDP_ROLE_ASSISTANT;
    return n;
}

static bool is_any_untrained(const ndp_conversation *c) {
    for (int64_t i = 0; i < c->n; i++)
        if (c->messages[i].untrained && c->messages[i].role == NDP_ROLE_ASSISTANT)
            return true;
    return false;
}

/* The ranges are in the order of the answers, one for each. */
ndp_status ndp_record_drop_untrained(const ndp_record_input *r, const ndp_conversation *c, ndp_rendering *text) {
    if (!is_any_untrained(c) || text->unsure.length)
        return NDP_OK;
    int64_t kept = 0, m = 0;
    bool sure = text->n == answers_of(c);
    for (int64_t i = 0; i < text->n && sure; i++, m++) {
        sure = belongs(c, text, i, &m);
        if (sure && !c->messages[m].untrained)
            text->spans[kept++] = text->spans[i];
    }
    if (!sure)
        return NDP_FAIL(NDP_EFORMAT,
                        "%s: it is not certain which message each part of the text is from that the chat template "
                        "gives, so the messages that are marked as not trained on cannot be left out",
                        r->where);
    text->n = kept;
    r->document->bad = NDP_BAD_EMPTY;
    return kept ? NDP_OK
                : NDP_FAIL(
                      NDP_EFORMAT,
                      "%s: all messages of the assistant are marked as not trained on, so there is nothing to train on",
                      r->where);
}
