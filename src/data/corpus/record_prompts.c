/* Records with a fixed text around their fields (alpaca), with their text in labelled pieces (input_output), or in two
 * fields (prompt_completion). The forms and the names of fields are Axolotl's and TRL's. */
#include "data/corpus/record_parts.h"

#include <stdlib.h>

/* The ranges are only trained on where training is on answers. */
static ndp_status visit_partly(const ndp_record_input *r, const ndp_rendering *text) {
    ndp_record_set(r, text, r->document);
    return ndp_record_pass(r);
}

static ndp_status finish(const ndp_record_input *r, ndp_status st, ndp_rendering *text) {
    if (st == NDP_OK && text->text.failed)
        st = NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for the record", r->where);
    if (st == NDP_OK)
        st = visit_partly(r, text);
    ndp_rendering_release(text);
    return st;
}

/* Bytes up to the end of the text are trained on. A range that follows another one continues it. */
static ndp_status learn_from(ndp_rendering *out, size_t begin) {
    if (begin == out->text.length)
        return NDP_OK;
    if (out->n && out->spans[out->n - 1].end == begin) {
        out->spans[out->n - 1].end = out->text.length;
        return NDP_OK;
    }
    NDP_TRY(ndp_array_reserve(&out->spans, &out->capacity, out->n + 1, sizeof *out->spans));
    out->spans[out->n++] = (ndp_range){begin, out->text.length};
    return NDP_OK;
}

/* ---- alpaca ---- */

/* What Axolotl's prompters write around the parts (prompters.py), by style: the task, the instruction, with and without
 * an input after it. */
static const struct {
    const char *system, *end, *user, *input, *with, *without;
} styles[] = {[NDP_RECORD_ALPACA] = {"", "\n\n", "### Instruction:\n", "\n\n### Input:\n", "\n\n### Response:\n",
                                     "\n\n### Response:\n"},
              [NDP_RECORD_ALPACA_CHAT] = {"SYSTEM: ", "\n", "USER: ", "\n", "\nASSISTANT:", "\nASSISTANT:"},
              [NDP_RECORD_ALPACA_CHATML] = {"<|im_start|>system\n", "<|im_end|>\n", "<|im_start|>user\n", "\n",
                                            "<|im_end|>\n<|im_start|>assistant\n",
                                            "<|im_end|>\n<|im_start|>assistant\n"},
              [NDP_RECORD_ALPACA_PHI] = {"<|system|>\n", "<|end|>\n", "<|user|>\n", "<|end|>", "<|assistant|>",
                                         "<|end|>\n<|assistant|>\n"},
              [NDP_RECORD_ALPACA_SYSTEM] = {"", "\n\n", "### Instruction:\n", "\n\n### Input:\n", "\n\n### Response:\n",
                                            "\n\n### Response:\n"},
              [NDP_RECORD_ALPACA_SYSTEM_CHAT] = {"SYSTEM: ", "\n", "USER: ", "\n", "\nASSISTANT:", "\nASSISTANT:"}};

static void add_task(ndp_str *text, ndp_record_kind style, const ndp_instruction *i) {
    if (ndp_record_has_system(style) && i->system.n == 0)
        return;
    ndp_str_add(text, styles[style].system);
    if (ndp_record_has_system(style))
        ndp_str_add_bytes(text, i->system.data, i->system.n);
    else
        ndp_str_addf(text,
                     "Below is an instruction that describes a task%s. Write a response that appropriately completes "
                     "the request.",
                     i->input.n ? ", paired with an input that provides further context" : "");
    ndp_str_add(text, styles[style].end);
}

static void add_prompt(ndp_str *text, ndp_record_kind style, const ndp_instruction *i) {
    add_task(text, style, i);
    ndp_str_add(text, styles[style].user);
    ndp_str_add_bytes(text, i->prompt.data, i->prompt.n);
    if (i->input.n) {
        ndp_str_add(text, styles[style].input);
        ndp_str_add_bytes(text, i->input.data, i->input.n);
    }
    ndp_str_add(text, i->input.n ? styles[style].with : styles[style].without);
}

/* `opening`: what every response begins with. */
static ndp_status visit_instruction(const ndp_record_input *r, ndp_record_kind style, const char *opening) {
    ndp_rendering text = {0};
    ndp_instruction i;
    NDP_TRY(ndp_record_instruction(r, &i));
    add_prompt(&text.text, style, &i);
    size_t begin = text.text.length;
    ndp_str_add(&text.text, opening);
    ndp_str_add_bytes(&text.text, i.response.data, i.response.n);
    return finish(r, learn_from(&text, begin), &text);
}

ndp_status ndp_record_visit_alpaca(const ndp_record_input *r) { return visit_instruction(r, r->format->kind, ""); }

ndp_status ndp_record_visit_jeopardy(const ndp_record_input *r) {
    ndp_record_format f = *r->format;
    ndp_record_input own = *r;
    f.prompt = "question", f.input = "category", f.response = "answer";
    own.format = &f;
    return visit_instruction(&own, NDP_RECORD_ALPACA, "what is ");
}

/* ---- prompt_completion ---- */

ndp_status ndp_record_visit_joined(const ndp_record_input *r, const char *first, const char *second) {
    ndp_rendering text = {0};
    ndp_span prompt, completion;
    NDP_TRY(ndp_record_string(r->object, r->where, first, &prompt));
    NDP_TRY(ndp_record_string(r->object, r->where, second, &completion));
    r->document->bad = NDP_BAD_EMPTY;
    if (completion.n == 0 && !r->format->train_all)
        return NDP_FAIL(NDP_EFORMAT, "%s: '%s' is empty, so there is nothing to train on", r->where, second);
    ndp_str_add_bytes(&text.text, prompt.data, prompt.n);
    ndp_str_add_bytes(&text.text, completion.data, completion.n);
    return finish(r, learn_from(&text, prompt.n), &text);
}

/* ---- input_output ---- */

static ndp_status add_segment(const ndp_record_input *r, struct json_object *segment, size_t k, ndp_rendering *out) {
    struct json_object *label = NULL, *text = NULL;
    if (json_object_is_type(segment, json_type_object)) {
        label = json_object_object_get(segment, "label");
        text = json_object_object_get(segment, "text");
    }
    if (!json_object_is_type(label, json_type_boolean) || !json_object_is_type(text, json_type_string))
        return NDP_FAIL(NDP_EFORMAT,
                        "%s: segment %zu is %.60s, expected {\"label\": true or false, \"text\": \"...\"}; the text of "
                        "segments with the label true is trained on",
                        r->where, k + 1, segment ? json_object_to_json_string(segment) : "null");
    size_t begin = out->text.length;
    ndp_str_add_bytes(&out->text, json_object_get_string(text), (size_t)json_object_get_string_len(text));
    return json_object_get_boolean(label) ? learn_from(out, begin) : NDP_OK;
}

ndp_status ndp_record_visit_segments(const ndp_record_input *r) {
    static const char field[] = "segments";
    struct json_object *list = json_object_object_get(r->object, field);
    if (!json_object_object_get_ex(r->object, field, NULL))
        return ndp_record_lacks(r, field, "data.format: input_output reads only this field");
    if (!json_object_is_type(list, json_type_array) || json_object_array_length(list) == 0)
        return NDP_FAIL(NDP_EFORMAT, "%s: '%s' is not a list of segments", r->where, field);
    ndp_rendering text = {0};
    ndp_status st = NDP_OK;
    ndp_str_add(&text.text, "");
    for (size_t k = 0; k < json_object_array_length(list) && st == NDP_OK; k++)
        st = add_segment(r, json_object_array_get_idx(list, k), k, &text);
    if (st == NDP_OK)
        st = ndp_record_note_unread(r, (const char *const[]){field, NULL});
    if (st == NDP_OK && !r->format->train_all && text.n == 0) {
        r->document->bad = NDP_BAD_EMPTY;
        st = NDP_FAIL(NDP_EFORMAT,
                      "%s: no segment has the label true and a text, so there is nothing to train on; data.train_on: "
                      "all trains on all segments",
                      r->where);
    }
    r->document->rendered = true; /* no tokens are added */
    return finish(r, st, &text);
}
