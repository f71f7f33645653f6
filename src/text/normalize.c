/* Normalizers in sequence, between two scratch strings: each reads the result of the one before. Unicode's forms are
 * computed only for stretches that may change, and characters newer than the reference's tables stay as they are.
 * Called by tokenizer.c and load_added.c. */
#include "text/normalize.h"

#include "base/arena.h"
#include "base/utf8.h"
#include "text/charsmap.h"
#include "text/newer.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

void ndp_normalize_scratch_release(ndp_normalize_scratch *s) {
    ndp_str_release(&s->a);
    ndp_str_release(&s->b);
    free(s->characters);
    free(s->sorted);
    *s = (ndp_normalize_scratch){0};
}

/* ---- Unicode's normalization forms ---- */

typedef struct form {
    utf8proc_option_t options;
    unsigned char first; /* characters with a smaller first byte never change and start a new stretch */
} form;

static const form FORMS[] = {
    [NDP_NORMALIZER_NFC] = {UTF8PROC_STABLE | UTF8PROC_COMPOSE, 0xcc}, /* U+0300 */
    [NDP_NORMALIZER_NFD] = {UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, 0x80},
    [NDP_NORMALIZER_NFKC] = {UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT, 0x80},
    [NDP_NORMALIZER_NFKD] = {UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, 0x80},
};

static int class_of(int32_t c) { return utf8proc_get_property(c)->combining_class; }

/* Sorts marks by combining class, stably. A counting sort, since utf8proc's own sort is quadratic in the run's length.
 */
static ndp_status order_run(ndp_normalize_scratch *s, int32_t *run, int64_t n) {
    int64_t at[257] = {0};
    bool ordered = true;
    for (int64_t i = 1; i < n && ordered; i++)
        ordered = class_of(run[i - 1]) <= class_of(run[i]);
    if (ordered)
        return NDP_OK;
    NDP_TRY(ndp_array_reserve(&s->sorted, &s->sorted_capacity, n, sizeof *s->sorted));
    for (int64_t i = 0; i < n; i++)
        at[class_of(run[i]) + 1]++;
    for (int c = 0; c < 256; c++)
        at[c + 1] += at[c];
    for (int64_t i = 0; i < n; i++)
        s->sorted[at[class_of(run[i])]++] = run[i];
    memcpy(run, s->sorted, (size_t)n * sizeof *run);
    return NDP_OK;
}

static ndp_status order(ndp_normalize_scratch *s, int64_t n) {
    for (int64_t i = 0, begin; i < n; i++) {
        for (begin = i; i < n && class_of(s->characters[i]); i++)
            ;
        if (i - begin > 1)
            NDP_TRY(order_run(s, s->characters + begin, i - begin));
    }
    return NDP_OK;
}

/* Sorts and composes the first `n` characters of the scratch, and appends them. */
static ndp_status end_stretch(const form *f, ndp_normalize_scratch *s, int64_t n, ndp_str *out) {
    NDP_TRY(order(s, n));
    if (f->options & UTF8PROC_COMPOSE)
        n = utf8proc_normalize_utf32(s->characters, n, f->options);
    for (int64_t i = 0; i < n; i++) {
        char bytes[4];
        ndp_str_add_bytes(out, bytes, ndp_utf8_encode((uint32_t)s->characters[i], bytes));
    }
    return NDP_OK;
}

/* A stretch whose result does not depend on the text around it. */
static ndp_status normalize_stretch(const form *f, ndp_span text, ndp_normalize_scratch *s, ndp_str *out) {
    int64_t n = 0;
    for (size_t at = 0, length; at < text.n; at += length) {
        int unused = UTF8PROC_BOUNDCLASS_START;
        length = ndp_utf8_length((unsigned char)text.data[at]);
        uint32_t c = ndp_utf8_decode(text.data + at, length);
        if (ndp_newer_than_unicode_9(c)) {
            NDP_TRY(end_stretch(f, s, n, out));
            ndp_str_add_bytes(out, text.data + at, length);
            n = 0;
            continue;
        }
        NDP_TRY(ndp_array_reserve(&s->characters, &s->capacity, n + 32, sizeof *s->characters)); /* 18 at most */
        utf8proc_ssize_t more =
            utf8proc_decompose_char((utf8proc_int32_t)c, s->characters + n, 32, f->options, &unused);
        if (more < 0 || more > 32)
            return NDP_FAIL(NDP_EBUG, "utf8proc gives %lld characters for one", (long long)more);
        n += more;
    }
    return end_stretch(f, s, n, out);
}

static size_t find_from(ndp_span text, size_t at, unsigned char first) {
    while (at < text.n && (unsigned char)text.data[at] < first)
        at++;
    return at;
}

/* End of the stretch that starts at `at`: the next character that starts a new one. */
static size_t find_end(ndp_span text, size_t at, unsigned char first) {
    while (at < text.n && ((unsigned char)text.data[at] >= first || ((unsigned char)text.data[at] & 0xc0) == 0x80))
        at++;
    return at;
}

static ndp_status normalize_form(const form *f, ndp_span text, ndp_normalize_scratch *s, ndp_str *out, bool *changed) {
    size_t done = 0, at = find_from(text, 0, f->first);
    if (at == text.n) {
        *changed = false;
        return NDP_OK;
    }
    for (; at < text.n; at = find_from(text, at, f->first)) {
        size_t begin = at > done ? ndp_utf8_before(text.data, at) : at; /* the character that marks may combine with */
        ndp_str_add_bytes(out, text.data + done, begin - done);
        done = at = find_end(text, at, f->first);
        NDP_TRY(normalize_stretch(f, (ndp_span){text.data + begin, at - begin}, s, out));
    }
    ndp_str_add_bytes(out, text.data + done, text.n - done);
    return NDP_OK;
}

/* ---- characters ---- */

static void lowercase(ndp_span text, ndp_str *out) {
    for (size_t at = 0, length; at < text.n; at += length) {
        length = ndp_utf8_length((unsigned char)text.data[at]);
        uint32_t c = ndp_utf8_decode(text.data + at, length);
        char bytes[4];
        if (c == 0x130) /* the only character whose lower case is two characters */
            ndp_str_add(out, "i\xcc\x87");
        else
            ndp_str_add_bytes(out, bytes, ndp_utf8_encode((uint32_t)utf8proc_tolower((utf8proc_int32_t)c), bytes));
    }
}

static bool is_mark(uint32_t c) {
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    bool mark =
        category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME;
    return (mark && !ndp_newer_than_unicode_9(c)) || c == 0x1cf2 || c == 0x1cf3; /* these two were marks in Unicode 9 */
}

static void strip_accents(ndp_span text, ndp_str *out) {
    for (size_t at = 0, length; at < text.n; at += length) {
        length = ndp_utf8_length((unsigned char)text.data[at]);
        if (!is_mark(ndp_utf8_decode(text.data + at, length)))
            ndp_str_add_bytes(out, text.data + at, length);
    }
}

static ndp_span strip(const ndp_text_step *s, ndp_span text) {
    while (s->start && text.n) {
        size_t n = ndp_utf8_length((unsigned char)text.data[0]);
        if (!ndp_is_space(ndp_utf8_decode(text.data, n)))
            break;
        text = (ndp_span){text.data + n, text.n - n};
    }
    while (s->stop && text.n) {
        size_t last = ndp_utf8_before(text.data, text.n);
        if (!ndp_is_space(ndp_utf8_decode(text.data + last, text.n - last)))
            break;
        text.n = last;
    }
    return text;
}

/* ---- all ---- */

/* Writes the result to `to`, or sets *changed to false and writes nothing. */
static ndp_status run(const ndp_text_step *s, ndp_span text, size_t limit, ndp_normalize_scratch *scratch,
                      ndp_regex_scratch *regex, ndp_str *to, bool *changed) {
    switch (s->kind) {
    case NDP_NORMALIZER_PREPEND:
        ndp_str_add(to, s->content);
        ndp_str_add_bytes(to, text.data, text.n);
        return NDP_OK;
    case NDP_NORMALIZER_REPLACE:
        return ndp_regex_replace(s->pattern, regex, text, s->content, limit, to);
    case NDP_NORMALIZER_LOWERCASE:
        lowercase(text, to);
        return NDP_OK;
    case NDP_NORMALIZER_STRIP_ACCENTS:
        strip_accents(text, to);
        return NDP_OK;
    case NDP_NORMALIZER_PRECOMPILED:
        return ndp_charsmap_apply(s->charsmap, text, to);
    default:
        return normalize_form(&FORMS[s->kind], text, scratch, to, changed);
    }
}

/* ---- following the first character ---- */

/* The replacement of a match is attributed to the last byte of the match. */
static ndp_status follow_replace(const ndp_text_step *s, ndp_span text, ndp_regex_scratch *regex, size_t *first) {
    ndp_regex_walk matches = ndp_regex_walk_begin(s->pattern, regex, text);
    size_t had = *first, after = 0, done = 0, from = 0, to = 0;
    bool found;
    do {
        NDP_TRY(ndp_regex_next(&matches, &found, &from, &to));
        found = found && from <= had;
        size_t kept = found ? from : had;
        after += kept > done ? kept - done : 0;
        after += found && to <= had ? strlen(s->content) : 0;
        done = found ? to : done;
    } while (found && done <= had);
    *first = after;
    return NDP_OK;
}

/* Updates *first: how many bytes this stage makes of the first character's. Uses `to` as scratch. */
static ndp_status follow(const ndp_text_step *s, ndp_span text, size_t limit, ndp_normalize_scratch *scratch,
                         ndp_regex_scratch *regex, ndp_str *to, size_t *first) {
    bool changed = true;
    if (!*first)
        return NDP_OK;
    if (s->kind == NDP_NORMALIZER_REPLACE)
        return follow_replace(s, text, regex, first);
    to->length = 0;
    NDP_TRY(run(s, (ndp_span){text.data, *first}, limit, scratch, regex, to, &changed));
    if (changed)
        *first = to->length;
    if (s->kind == NDP_NORMALIZER_PRECOMPILED && !*first)
        *first = 1; /* the next character takes its place */
    return NDP_OK;
}

ndp_status ndp_normalize(const ndp_text_steps *n, ndp_span text, ndp_normalize_scratch *s, ndp_regex_scratch *regex,
                         size_t *first, ndp_span *out) {
    size_t limit = ndp_growth_limit(text.n);
    ndp_str *to = &s->a; /* the other scratch string holds `text` */
    for (int64_t i = 0; i < n->n && text.n; i++) {
        if (n->items[i].kind == NDP_NORMALIZER_STRIP) {
            ndp_span rest = strip(&n->items[i], text);
            size_t gone = (size_t)(rest.data - text.data);
            *first = *first > gone ? *first - gone : 0;
            text = rest;
            continue;
        }
        bool changed = true;
        NDP_TRY(follow(&n->items[i], text, limit, s, regex, to, first));
        to->length = 0;
        NDP_TRY(run(&n->items[i], text, limit, s, regex, to, &changed));
        NDP_CHECK_MEMORY(!to->failed, "to normalize %zu bytes of text", text.n);
        if (to->length > limit)
            return NDP_FAIL(NDP_EFORMAT, "the tokenizer's normalizers make a text longer than %zu bytes of it", limit);
        if (!changed)
            continue;
        text = (ndp_span){to->length ? to->data : "", to->length};
        while (*first && *first < text.n && ((unsigned char)text.data[*first] & 0xc0) == 0x80)
            ++*first; /* composed with what follows */
        to = to == &s->a ? &s->b : &s->a;
    }
    *out = text;
    return NDP_OK;
}
