/* Finding added tokens: at each position the longest one wins, by walking the sorted texts (prefixes.h); then its
 * options decide whether it counts and how much white space it takes. Called by tokenizer.c, before and after the
 * normalizers. */
#include "text/added.h"

#include "base/arena.h"
#include "base/utf8.h"
#include <stdlib.h>
#include <utf8proc.h>

ndp_status ndp_added_add(ndp_added *a, ndp_added_token token) {
    NDP_TRY(ndp_array_reserve(&a->tokens, &a->capacity, a->n + 1, sizeof *a->tokens));
    a->tokens[a->n++] = token;
    return NDP_OK;
}

ndp_status ndp_added_build(ndp_added *a) {
    for (int64_t i = 0; i < a->n; i++)
        NDP_TRY(ndp_prefixes_add(&a->index, a->tokens[i].text, a->tokens[i].length, (int32_t)i));
    ndp_prefixes_build(&a->index);
    return NDP_OK;
}

void ndp_added_release(ndp_added *a) {
    free(a->tokens);
    ndp_prefixes_release(&a->index);
    *a = (ndp_added){0};
}

/* The longest token that begins at `at`, or NULL. */
static const ndp_added_token *longest(const ndp_added *a, ndp_span text, size_t at) {
    ndp_prefix_walk w = ndp_prefix_begin(&a->index, (unsigned char)text.data[at]);
    const ndp_prefix *best = NULL, *here;
    bool more = w.low < w.high;
    while (more) {
        if ((here = ndp_prefix_here(&a->index, &w)))
            best = here;
        more = ++at < text.n && ndp_prefix_step(&a->index, &w, (unsigned char)text.data[at]);
    }
    return best ? &a->tokens[best->id] : NULL;
}

/* A word character of Unicode's regular expressions: alphabetic, mark, digit, connector or joiner. Of the symbols, only
 * the circled letters are alphabetic. */
static bool is_word(uint32_t c) {
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
               (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
    }
}

static uint32_t character_at(ndp_span text, size_t at) {
    return ndp_utf8_decode(text.data + at, ndp_utf8_length((unsigned char)text.data[at]));
}

static bool stands_alone(ndp_span text, size_t from, size_t to) {
    return (from == 0 || !is_word(character_at(text, ndp_utf8_before(text.data, from)))) &&
           (to == text.n || !is_word(character_at(text, to)));
}

const ndp_added_token *ndp_added_next(ndp_added_walk *w, size_t *from, size_t *to) {
    ndp_span text = w->text;
    while (w->added->n && w->at < text.n) {
        size_t begin = w->at++;
        const ndp_added_token *t = longest(w->added, text, begin);
        if (!t)
            continue;
        size_t end = w->at = begin + t->length;
        if (t->single_word && !stands_alone(text, begin, end))
            continue;
        for (size_t before; t->lstrip && begin > w->done; begin = before) {
            before = ndp_utf8_before(text.data, begin);
            if (!ndp_is_space(character_at(text, before)))
                break;
        }
        while (t->rstrip && end < text.n && ndp_is_space(character_at(text, end)))
            end += ndp_utf8_length((unsigned char)text.data[end]);
        if (t->lstrip && end <= w->done) /* only white space, which the previous token took */
            continue;
        *from = begin > w->done ? begin : w->done; /* may start with white space that the previous token took */
        *to = w->done = end;                       /* the text after this token is searched next */
        return t;
    }
    return NULL;
}
