/* Fields of records, their errors, and why a record is bad. */
#include "data/corpus/record_parts.h"

#include <stdio.h>
#include <string.h>

ndp_status ndp_record_fail(const ndp_record_input *r, const char *lacks, const char *hint) {
    ndp_str keys = {0};
    json_object_object_foreach(r->object, key, value) {
        (void)value;
        ndp_str_addf(&keys, "%s%s", keys.length ? ", " : "", key);
    }
    ndp_status st = NDP_FAIL(NDP_EFORMAT, "%s: the record has no %s; it has: %.400s. %s", r->where, lacks,
                             keys.data ? keys.data : "nothing", hint);
    ndp_str_release(&keys);
    return st;
}

ndp_status ndp_record_lacks(const ndp_record_input *r, const char *field, const char *hint) {
    char lacks[96];
    snprintf(lacks, sizeof lacks, "'%.80s'", field);
    return ndp_record_fail(r, lacks, hint);
}

ndp_status ndp_record_string(struct json_object *o, const char *where, const char *field, ndp_span *out) {
    struct json_object *text = json_object_object_get(o, field);
    if (!json_object_is_type(text, json_type_string))
        return NDP_FAIL(NDP_EFORMAT, "%s: '%s' is not a string", where, field);
    *out = (ndp_span){json_object_get_string(text), (size_t)json_object_get_string_len(text)};
    return NDP_OK;
}

/* Dolly's records have `context`. */
static const char *input_field_of(const ndp_record_input *r) {
    const char *field = r->format->input ? r->format->input : "input";
    bool usual = strcmp(field, "input") == 0 && !json_object_object_get(r->object, field);
    return usual ? "context" : field;
}

ndp_status ndp_record_instruction(const ndp_record_input *r, ndp_instruction *out) {
    const ndp_record_format *f = r->format;
    const char *input_field = input_field_of(r);
    const char *response_field = f->response                             ? f->response
                                 : ndp_record_has(r->object, "response") ? "response"
                                                                         : "output";
    if (!ndp_record_has(r->object, ndp_prompt_field(f)))
        return ndp_record_lacks(r, ndp_prompt_field(f), "data.prompt_field says which field that is");
    if (!ndp_record_has(r->object, response_field))
        return ndp_record_lacks(r, f->response ? f->response : "response' or 'output",
                                "data.response_field says which field that is");
    *out = (ndp_instruction){.input = {"", 0}, .system = {"", 0}};
    NDP_TRY(ndp_record_string(r->object, r->where, ndp_prompt_field(f), &out->prompt));
    NDP_TRY(ndp_record_string(r->object, r->where, response_field, &out->response));
    bool one = ndp_record_is_alpaca(f->kind) || f->kind == NDP_RECORD_JEOPARDY,
         own = ndp_record_has_system(f->kind); /* one text, without turns */
    NDP_TRY(ndp_record_note_unread(r, (const char *const[]){ndp_prompt_field(f), response_field, input_field,
                                                            one && !own ? input_field : "system",
                                                            one ? input_field : "history", NULL}));
    if (own && json_object_object_get(r->object, "system"))
        NDP_TRY(ndp_record_string(r->object, r->where, "system", &out->system));
    return json_object_object_get(r->object, input_field)
               ? ndp_record_string(r->object, r->where, input_field, &out->input)
               : NDP_OK;
}

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
