/* Records with token ids, as data sets that transformers' programs have tokenized: `input_ids`, of which those with a
 * label are trained on, and a mask whose zeros are padding. */
#include "data/corpus/record_parts.h"
#include "text/ids.h"

#include <stdlib.h>
#include <string.h>

enum { NO_LABEL = -100 };

typedef struct id_record {
    const ndp_record_input *r;
    struct json_object *ids, *labels, *mask; /* lists of one length; the last two may be missing */
    ndp_ids kept;
    ndp_rendering trained; /* the ranges alone */
} id_record;

/* Sets *out to the list `field`, n numbers (0: any); leaves it NULL where the record lacks the field. */
static ndp_status find_list(const ndp_record_input *r, const char *field, size_t n, struct json_object **out) {
    struct json_object *list = json_object_object_get(r->object, field);
    if (!list)
        return NDP_OK;
    if (!json_object_is_type(list, json_type_array))
        return NDP_FAIL(NDP_EFORMAT, "%s: '%s' is not a list of numbers", r->where, field);
    if (n && json_object_array_length(list) != n)
        return NDP_FAIL(NDP_EFORMAT, "%s: '%s' has %zu numbers for %zu ids", r->where, field,
                        json_object_array_length(list), n);
    *out = list;
    return NDP_OK;
}

static ndp_status number(const id_record *d, struct json_object *list, const char *field, size_t i, int64_t *out) {
    struct json_object *item = json_object_array_get_idx(list, i);
    if (!json_object_is_type(item, json_type_int))
        return NDP_FAIL(NDP_EFORMAT, "%s: item %zu of '%s' is %.40s, expected a whole number", d->r->where, i + 1,
                        field, item ? json_object_to_json_string(item) : "null");
    *out = json_object_get_int64(item);
    return NDP_OK;
}

static ndp_status add_trained(ndp_rendering *t, size_t at) {
    if (t->n && t->spans[t->n - 1].end == at) {
        t->spans[t->n - 1].end++;
        return NDP_OK;
    }
    NDP_TRY(ndp_array_reserve(&t->spans, &t->capacity, t->n + 1, sizeof *t->spans));
    t->spans[t->n++] = (ndp_range){at, at + 1};
    return NDP_OK;
}

static ndp_status add_id(id_record *d, size_t i) {
    int64_t id = 0, label, mask = 1;
    NDP_TRY(number(d, d->ids, "input_ids", i, &id));
    if (id < 0 || id > INT32_MAX)
        return NDP_FAIL(NDP_EFORMAT, "%s: item %zu of 'input_ids' is %lld, which is not an id", d->r->where, i + 1,
                        (long long)id);
    label = id;
    if (d->labels)
        NDP_TRY(number(d, d->labels, "labels", i, &label));
    if (label != id && label != NO_LABEL)
        return NDP_FAIL(NDP_EFORMAT,
                        "%s: item %zu of 'labels' is %lld where 'input_ids' has %lld; a label is its own id, or %d for "
                        "a token that is not trained on",
                        d->r->where, i + 1, (long long)label, (long long)id, NO_LABEL);
    if (d->mask)
        NDP_TRY(number(d, d->mask, "attention_mask", i, &mask));
    if (mask == 0 && (!d->labels || label == NO_LABEL))
        return NDP_OK; /* padding */
    if (mask != 1)
        return NDP_FAIL(NDP_EFORMAT, "%s: item %zu of 'attention_mask' is %lld, expected 1, or 0 for padding",
                        d->r->where, i + 1, (long long)mask);
    if (label == id)
        NDP_TRY(add_trained(&d->trained, (size_t)d->kept.n));
    return ndp_ids_add(&d->kept, (int32_t)id);
}

static ndp_status visit(id_record *d) {
    ndp_document *out = d->r->document;
    for (size_t i = 0; i < json_object_array_length(d->ids); i++)
        NDP_TRY(add_id(d, i));
    out->bad = NDP_BAD_EMPTY;
    if (d->labels && !d->r->format->train_all && d->trained.n == 0)
        return NDP_FAIL(NDP_EFORMAT, "%s: all 'labels' are %d, so there is nothing to train on", d->r->where, NO_LABEL);
    ndp_record_set(d->r, &d->trained, out);
    out->text = "";
    out->ids = d->kept.items;
    out->n_ids = d->kept.n;
    out->partly &= d->labels != NULL;
    out->rendered = true; /* no tokens are added */
    return ndp_record_pass(d->r);
}

ndp_status ndp_record_visit_ids(const ndp_record_input *r) {
    static const char field[] = "input_ids";
    id_record d = {.r = r};
    if (!ndp_record_has(r->object, field))
        return ndp_record_lacks(r, field, "data.format: token_ids reads 'input_ids', 'labels' and 'attention_mask'");
    NDP_TRY(find_list(r, field, 0, &d.ids));
    size_t n = d.ids ? json_object_array_length(d.ids) : 0;
    if (n == 0)
        return NDP_FAIL(NDP_EFORMAT, "%s: '%s' is empty", r->where, field);
    NDP_TRY(find_list(r, "labels", n, &d.labels));
    NDP_TRY(find_list(r, "attention_mask", n, &d.mask));
    NDP_TRY(ndp_record_note_unread(r, (const char *const[]){field, "labels", "attention_mask", NULL}));
    ndp_status st = visit(&d);
    ndp_ids_release(&d.kept);
    ndp_rendering_release(&d.trained);
    return st;
}
