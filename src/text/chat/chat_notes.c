/* Notes about what a chat template makes of a question and an answer. */
#include "text/chat/chat_notes.h"

#include "text/chat/chat_own.h"
#include "text/chat/chat_table.h"
#include <stdlib.h>
#include <string.h>

static const char QUESTION[] = "question", ANSWER[] = "answer";

typedef struct probe {
    const ndp_chat *chat;
    const ndp_tokenizer *tokenizer;
    const char *source;
    ndp_rendering text;
} probe;

static bool is_token(const void *tokenizer, const char *text) { return ndp_tokenizer_id(tokenizer, text) >= 0; }

/* Another built-in template than the chosen one, whose tokens the tokenizer has; NULL if none fits. */
static const char *fitting(const probe *p) {
    const ndp_chat_template *t = ndp_chat_template_fitting(is_token, p->tokenizer);
    return t && t != p->chat->template ? t->name : NULL;
}

static bool has_own_template(const probe *p) {
    char *folder = ndp_tokenizer_folder(p->source);
    ndp_str text = {0};
    bool has = *p->source && folder && ndp_chat_own_text(folder, NULL, &text) == NDP_OK && text.length;
    ndp_str_release(&text);
    free(folder);
    return has;
}

/* ---- tokens ---- */

/* Finds the next <...> without white space, from *at on, and moves *at past it; n = 0 at the end. */
static ndp_span next_tag(const ndp_str *text, size_t *at) {
    for (size_t i = *at, open = SIZE_MAX; i < text->length; i++) {
        char c = text->data[i];
        if (c == '<')
            open = i;
        else if (c == ' ' || c == '\n' || c == '\t')
            open = SIZE_MAX;
        else if (c == '>' && open != SIZE_MAX && i > open + 1) {
            *at = i + 1;
            return (ndp_span){text->data + open, i + 1 - open};
        }
    }
    return (ndp_span){NULL, 0};
}

/* Models that reason also write <think> as a text. */
static bool is_missing(const probe *p, ndp_span tag, const ndp_str *listed) {
    char *text = strndup(tag.data, tag.n);
    bool missing = text && !strstr(text, "think>") && !is_token(p->tokenizer, text) &&
                   !(listed->length && strstr(listed->data, text));
    free(text);
    return missing;
}

void ndp_chat_add_split_tokens(const ndp_chat *c, const ndp_tokenizer *t, ndp_str *out) {
    static const ndp_message talk[] = {{.role = NDP_ROLE_USER, .content = {QUESTION, sizeof QUESTION - 1}},
                                       {.role = NDP_ROLE_ASSISTANT, .content = {ANSWER, sizeof ANSWER - 1}}};
    probe p = {.chat = c, .tokenizer = t};
    ndp_str listed = {0};
    size_t at = 0;
    if (ndp_chat_render(c, &(ndp_conversation){.messages = talk, .n = 2}, false, &p.text) == NDP_OK)
        for (ndp_span tag; (tag = next_tag(&p.text.text, &at)).n;) {
            ndp_ids ids = {0};
            if (is_missing(&p, tag, &listed) && ndp_tokenizer_encode_rendered(t, tag.data, tag.n, &ids) == NDP_OK)
                ndp_str_addf(&listed, "%s%.*s (%lld tokens)", listed.length ? ", " : "", (int)tag.n, tag.data,
                             (long long)ids.n);
            ndp_ids_release(&ids);
        }
    if (listed.length && !listed.failed)
        ndp_str_addf(out, "special tokens of the chat template that are not one token here: %s\n", listed.data);
    ndp_str_release(&listed);
    ndp_rendering_release(&p.text);
}

static void note_tokens(const probe *p, ndp_str *out) {
    ndp_str missing = {0};
    size_t at = 0;
    for (ndp_span tag; (tag = next_tag(&p->text.text, &at)).n;)
        if (is_missing(p, tag, &missing))
            ndp_str_addf(&missing, "%s%.*s", missing.length ? ", " : "", (int)tag.n, tag.data);
    if (missing.length && !missing.failed) {
        const char *name = fitting(p);
        ndp_str_addf(
            out,
            "note: the tokenizer %s does not have the tokens %s, which the chat template %s writes, so they are "
            "trained on as plain text; ",
            p->source, missing.data, p->chat->template ? p->chat->template->name : "of data.chat_template");
        if (has_own_template(p))
            ndp_str_add(out, "without data.chat_template, the tokenizer's own template is used\n");
        else if (name)
            ndp_str_addf(out, "data.chat_template: %s writes tokens that it has\n", name);
        else
            ndp_str_add(out, p->chat->eos.n ? "data.chat_template: plain writes none of them\n"
                                            : "set data.tokenizer to one that has them\n");
    }
    ndp_str_release(&missing);
}

/* ---- answers ---- */

/* The text after the answer in the ranges that are trained on, up to a gap; data NULL: the answer is in none. */
static ndp_span after_answer(const ndp_rendering *r) {
    for (int64_t i = 0; i < r->n; i++) {
        const char *text = r->text.data + r->spans[i].begin;
        size_t end = r->spans[i].end;
        const char *hit = memmem(text, end - r->spans[i].begin, ANSWER, strlen(ANSWER));
        for (int64_t k = i + 1; k < r->n && r->spans[k].begin == end; k++)
            end = r->spans[k].end;
        if (!hit)
            continue;
        for (hit += strlen(ANSWER); hit < r->text.data + end && strchr(" \n\t", *hit);)
            hit++;
        return (ndp_span){hit, (size_t)(r->text.data + end - hit)};
    }
    return (ndp_span){NULL, 0};
}

static void note_end(const probe *p, ndp_str *out) {
    ndp_span end = after_answer(&p->text), eos = p->chat->eos;
    const char *name = fitting(p);
    if (!end.data)
        ndp_str_add(out,
                    "note: the {% generation %} blocks of the chat template leave out the content of an answer, so "
                    "it is not trained on\n");
    else if (end.n == 0) {
        ndp_str_add(
            out, "note: the chat template writes no end token after an answer, so the model is not trained to stop; ");
        if (name)
            ndp_str_addf(out, "data.chat_template: %s does\n", name);
        else
            ndp_str_addf(
                out,
                "set data.chat_template to a file PATH.jinja, a copy of the template with {{ eos_token }}%s%.*s%s "
                "after the content of the assistant\n",
                eos.n ? " (" : "", (int)eos.n, eos.n ? eos.data : "", eos.n ? ")" : "");
    }
}

void ndp_chat_add_notes(const ndp_chat *c, const ndp_tokenizer *t, const char *source, ndp_str *out) {
    const ndp_message talk[] = {{.role = NDP_ROLE_USER, .content = {QUESTION, strlen(QUESTION)}},
                                {.role = NDP_ROLE_ASSISTANT, .content = {ANSWER, strlen(ANSWER)}}};
    probe p = {.chat = c, .tokenizer = t, .source = source};
    if (ndp_chat_render(c, &(ndp_conversation){.messages = talk, .n = 2}, false, &p.text) == NDP_OK) {
        if (c->chosen)
            note_tokens(&p, out);
        if (p.text.n)
            note_end(&p, out);
    }
    ndp_rendering_release(&p.text);
}
