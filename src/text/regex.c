/* Compiling patterns and walking their matches. A search looks at a short stretch at a time, so that its cost is
 * bounded between two looks at the clock. Called by normalize.c, pretokenize.c and decode.c. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include "base/clock.h"
#include "base/utf8.h"
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

enum {
    MATCH_LIMIT = 10 * 1000 * 1000, /* matcher calls for one match: about a second */
    STACK_BYTES = 64 << 20,         /* for the JIT: reserved, touched only when needed */
    HEAP_KIB = 256 << 10,           /* for the interpreter, where there is no JIT */
    STRETCH = 64,                   /* bytes in which one search looks for the start of a match */
    SHOWN = 120                     /* bytes of a pattern in a message */
};

struct ndp_regex {
    pcre2_code *code;
    bool jit;
    char *shown; /* the pattern for messages, cut */
};

static ndp_status fail_memory(const char *what) {
    return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for a regular expression", what);
}

static ndp_status compile(ndp_span source, uint32_t options, const char *what, ndp_span shown, ndp_regex **out) {
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    ndp_regex *r = calloc(1, sizeof *r);
    if (r)
        r->shown =
            ndp_format("%.*s%s", (int)(shown.n < SHOWN ? shown.n : SHOWN), shown.data, shown.n > SHOWN ? "..." : "");
    if (!context || !r || !r->shown) {
        pcre2_compile_context_free(context);
        ndp_regex_destroy(r);
        return fail_memory(what);
    }
    int error;
    size_t at;
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    r->code = pcre2_compile((PCRE2_SPTR)source.data, source.n, options | PCRE2_UTF | PCRE2_USE_OFFSET_LIMIT, &error,
                            &at, context);
    pcre2_compile_context_free(context);
    if (!r->code) {
        unsigned char why[256];
        pcre2_get_error_message(error, why, sizeof why);
        ndp_status st = NDP_FAIL(NDP_EFORMAT, "%s: the regular expression '%s': %s", what, r->shown, (char *)why);
        ndp_regex_destroy(r);
        return st;
    }
    r->jit = pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE) == 0;
    *out = r;
    return NDP_OK;
}

ndp_status ndp_regex_create(ndp_span pattern, const char *what, ndp_regex **out) {
    ndp_str translated = {0};
    ndp_status st = ndp_regex_translate(pattern, what, &translated);
    if (st == NDP_OK)
        st = translated.failed ? fail_memory(what)
                               : compile((ndp_span){translated.data ? translated.data : "", translated.length},
                                         PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, what, pattern, out);
    ndp_str_release(&translated);
    return st;
}

ndp_status ndp_regex_create_literal(ndp_span text, const char *what, ndp_regex **out) {
    if (text.n > NDP_PATTERN_BYTES)
        return NDP_FAIL(NDP_EFORMAT, "%s: a pattern of %zu bytes, '%.*s...', is longer than %zu bytes", what, text.n,
                        SHOWN / 4, text.data, NDP_PATTERN_BYTES);
    return compile(text, PCRE2_LITERAL, what, text, out);
}

void ndp_regex_destroy(ndp_regex *r) {
    if (!r)
        return;
    pcre2_code_free(r->code);
    free(r->shown);
    free(r);
}

/* ---- matching ---- */

static ndp_status prepare(ndp_regex_scratch *s) {
    s->data = pcre2_match_data_create(1, NULL); /* the whole match; groups are not needed */
    s->context = pcre2_match_context_create(NULL);
    s->stack = pcre2_jit_stack_create(64 << 10, STACK_BYTES, NULL);
    if (!s->data || !s->context) {
        ndp_regex_scratch_release(s);
        return NDP_FAIL(NDP_ENOMEM, "not enough memory to match regular expressions");
    }
    pcre2_set_match_limit(s->context, MATCH_LIMIT);
    pcre2_set_heap_limit(s->context, HEAP_KIB);
    if (s->stack)
        pcre2_jit_stack_assign(s->context, NULL, s->stack);
    return NDP_OK;
}

void ndp_regex_scratch_release(ndp_regex_scratch *s) {
    pcre2_match_data_free(s->data);
    pcre2_match_context_free(s->context);
    pcre2_jit_stack_free(s->stack);
    *s = (ndp_regex_scratch){0};
}

ndp_regex_walk ndp_regex_walk_begin(const ndp_regex *r, ndp_regex_scratch *s, ndp_span text) {
    return (ndp_regex_walk){.regex = r, .scratch = s, .text = text, .last_end = SIZE_MAX};
}

static ndp_status fail_match(const ndp_regex *r, int error, ndp_span text) {
    unsigned char why[256];
    pcre2_get_error_message(error, why, sizeof why);
    return NDP_FAIL(NDP_EFORMAT,
                    "the tokenizer's regular expression '%s' takes too long or too much memory on a text of %zu bytes "
                    "(%s); break the text into shorter ones, or fix the pattern",
                    r->shown, text.n, (char *)why);
}

/* PCRE2's match limit is per starting position; a pattern may be slow at each of them, and a megabyte then takes hours.
 * The clock is read rarely: a search that finds a word costs less than reading it. */
static ndp_status check_time(ndp_regex_walk *w, bool found) {
    const double seconds = 2 + 10e-6 * (double)w->text.n;
    w->searches += found ? 1 : 8;
    if (w->searches < 64)
        return NDP_OK;
    double now = ndp_thread_now();
    w->searches = 0;
    w->began = w->began > 0 ? w->began : now;
    return now - w->began < seconds
               ? NDP_OK
               : NDP_FAIL(NDP_EFORMAT,
                          "the tokenizer's regular expression '%s' took %.1f s for %zu of %zu bytes of a text; break "
                          "the text into shorter ones, or fix the pattern",
                          w->regex->shown, now - w->began, w->at, w->text.n);
}

/* The first match that starts in [w->at, last], as PCRE2's return code. */
static int search(const ndp_regex_walk *w, size_t last) {
    PCRE2_SPTR text = (PCRE2_SPTR)w->text.data;
    const ndp_regex_scratch *s = w->scratch;
    pcre2_set_offset_limit(s->context, last);
    return w->regex->jit
               ? pcre2_jit_match(w->regex->code, text, w->text.n, w->at, PCRE2_NO_UTF_CHECK, s->data, s->context)
               : pcre2_match(w->regex->code, text, w->text.n, w->at, PCRE2_NO_UTF_CHECK, s->data, s->context);
}

/* The start of the character at `at`, or of the next one. */
static size_t character_from(ndp_span text, size_t at) {
    while (at < text.n && ((unsigned char)text.data[at] & 0xc0) == 0x80)
        at++;
    return at;
}

ndp_status ndp_regex_next(ndp_regex_walk *w, bool *found, size_t *from, size_t *to) {
    *found = false;
    if (!w->scratch->data)
        NDP_TRY(prepare(w->scratch));
    while (w->text.n && w->at <= w->text.n) {
        size_t last = w->text.n - w->at > STRETCH ? w->at + STRETCH : w->text.n;
        int r = search(w, last);
        if (r < 0 && r != PCRE2_ERROR_NOMATCH)
            return fail_match(w->regex, r, w->text);
        NDP_TRY(check_time(w, r >= 0));
        if (r == PCRE2_ERROR_NOMATCH) {
            w->at = last < w->text.n ? character_from(w->text, last + 1) : w->text.n + 1;
            continue;
        }
        const size_t *match = pcre2_get_ovector_pointer(w->scratch->data);
        if (match[0] != match[1] || match[1] != w->last_end) {
            *found = true;
            *from = match[0];
            *to = w->at = w->last_end = match[1];
            return NDP_OK;
        }
        w->at += w->at < w->text.n ? ndp_utf8_length((unsigned char)w->text.data[w->at]) : 1;
    }
    return NDP_OK;
}

ndp_status ndp_regex_replace(const ndp_regex *r, ndp_regex_scratch *s, ndp_span text, const char *content, size_t limit,
                             ndp_str *out) {
    ndp_regex_walk w = ndp_regex_walk_begin(r, s, text);
    size_t done = 0, from = 0, to = 0, n = strlen(content);
    for (bool found = true; found; done = to) {
        NDP_TRY(ndp_regex_next(&w, &found, &from, &to));
        ndp_str_add_bytes(out, text.data + done, (found ? from : text.n) - done);
        if (found)
            ndp_str_add_bytes(out, content, n);
        if (out->length > limit)
            return NDP_FAIL(NDP_EFORMAT, "the tokenizer's replacements make a text longer than %zu bytes of it", limit);
    }
    return NDP_MEMORY(!out->failed, "to replace in %zu bytes of text", text.n);
}
