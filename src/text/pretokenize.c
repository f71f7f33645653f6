/* Pre-tokenizers in sequence, depth first: each piece that a stage makes goes through all later stages before the
 * next one is made, so only one text per stage is kept. Called by tokenizer.c. */
#include "text/pretokenize.h"

#include "text/bytelevel.h"
#include <string.h>

typedef struct walk {
    const ndp_pretokenizers *p;
    ndp_pretokenize_scratch *scratch;
    ndp_regex_scratch *regex;
    ndp_word_visitor *visit;
    void *user;
} walk;

void ndp_pretokenizers_release(ndp_pretokenizers *p) {
    for (int i = 0; i < p->n; i++)
        ndp_regex_destroy(p->items[i].pattern);
    p->n = 0;
}

void ndp_pretokenize_scratch_release(ndp_pretokenize_scratch *s) {
    for (int i = 0; i < NDP_PRETOKENIZERS; i++)
        ndp_str_release(&s->texts[i]);
}

void ndp_bytes_to_characters(ndp_span bytes, ndp_str *out) {
    for (size_t i = 0; i < bytes.n; i++) {
        char text[4];
        ndp_str_add_bytes(out, text, ndp_utf8_encode(ndp_byte_character((unsigned char)bytes.data[i]), text));
    }
}

static ndp_status run(const walk *w, int stage, ndp_span text, size_t first);

/* ---- splitting ---- */

/* A text consists of matches and the stretches between them. JOINS says whether a match or stretch is joined to the one
 * before it: by behavior, whether the one before is a match, and whether this one is. */
static const bool JOINS[NDP_SPLIT_BEHAVIORS][2][2] = {
    [NDP_SPLIT_MERGED_WITH_PREVIOUS] = {{false, true}, {false, false}},
    [NDP_SPLIT_MERGED_WITH_NEXT] = {{false, false}, {true, false}},
    [NDP_SPLIT_CONTIGUOUS] = {{true, false}, {false, true}},
};

typedef struct splitter {
    const walk *w;
    int stage;
    ndp_span text;
    size_t first;    /* leading bytes that stem from the user's first character */
    size_t from, to; /* the pending match or stretch, which the next one may join */
    bool matched;    /* whether its last part is a match */
} splitter;

static ndp_status flush(const splitter *s) {
    const ndp_pretokenizer *p = &s->w->p->items[s->stage];
    if (s->from == s->to || (p->behavior == NDP_SPLIT_REMOVED && s->matched))
        return NDP_OK;
    return run(s->w, s->stage + 1, (ndp_span){s->text.data + s->from, s->to - s->from},
               s->first > s->from ? s->first - s->from : 0);
}

static ndp_status put(splitter *s, size_t from, size_t to, bool match) {
    const ndp_pretokenizer *p = &s->w->p->items[s->stage];
    match ^= p->invert;
    bool joins = from > 0 && JOINS[p->behavior][s->matched][match];
    if (!joins) {
        NDP_TRY(flush(s));
        s->from = from;
    }
    s->to = to;
    s->matched = match;
    return NDP_OK;
}

static ndp_status split(const walk *w, int stage, ndp_span text, size_t first) {
    splitter s = {.w = w, .stage = stage, .text = text, .first = first};
    ndp_regex_walk matches = ndp_regex_walk_begin(w->p->items[stage].pattern, w->regex, text);
    size_t done = 0, from, to;
    for (;;) {
        bool found;
        NDP_TRY(ndp_regex_next(&matches, &found, &from, &to));
        if (!found)
            break;
        if (from > done)
            NDP_TRY(put(&s, done, from, false));
        NDP_TRY(put(&s, from, to, true));
        done = to;
    }
    if (done < text.n)
        NDP_TRY(put(&s, done, text.n, false));
    return flush(&s);
}

/* ---- stages ---- */

/* Stages that change the text write to their own string. */
static ndp_status rewrite(const walk *w, int stage, ndp_span text, ndp_str *to) {
    const ndp_pretokenizer *p = &w->p->items[stage];
    to->length = 0;
    if (p->kind == NDP_PRETOKENIZER_REPLACE) {
        NDP_TRY(ndp_regex_replace(p->pattern, w->regex, text, p->content, ndp_growth_limit(text.n), to));
    } else if (p->kind == NDP_PRETOKENIZER_BYTES) {
        ndp_bytes_to_characters(text, to);
    } else {
        ndp_str_add(to, p->content);
        ndp_str_add_bytes(to, text.data, text.n);
    }
    return NDP_MEMORY(!to->failed, "to cut %zu bytes of text into words", text.n);
}

static bool begins_with(ndp_span text, const char *content) {
    size_t n = strlen(content);
    return text.n >= n && !memcmp(text.data, content, n);
}

static ndp_status run(const walk *w, int stage, ndp_span text, size_t first) {
    if (!text.n)
        return NDP_OK;
    if (stage == w->p->n)
        return w->visit(w->user, text);
    const ndp_pretokenizer *p = &w->p->items[stage];
    if (p->kind == NDP_PRETOKENIZER_SPLIT)
        return split(w, stage, text, first);
    if (p->kind == NDP_PRETOKENIZER_PREPEND && (begins_with(text, p->content) || (p->first_only && !first)))
        return run(w, stage + 1, text, first);
    ndp_str *to = &w->scratch->texts[stage];
    if (first) {
        NDP_TRY(rewrite(w, stage, (ndp_span){text.data, first < text.n ? first : text.n}, to));
        first = to->length;
    }
    NDP_TRY(rewrite(w, stage, text, to));
    return run(w, stage + 1, (ndp_span){to->data, to->length}, first);
}

ndp_status ndp_pretokenize(const ndp_pretokenizers *p, ndp_pretokenize_scratch *s, ndp_regex_scratch *regex,
                           ndp_span text, size_t first, ndp_word_visitor *visit, void *user) {
    walk w = {p, s, regex, visit, user};
    return run(&w, 0, text, first);
}
