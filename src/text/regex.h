/* Regular expressions as tokenizer.json means them: Oniguruma's, in Ruby's syntax, over UTF-8; run by PCRE2 with JIT.
 *
 * A pattern is rewritten (regex_translate.c) where the two differ: white space, word characters and \b by their Unicode
 * properties, \h as hexadecimal digits, scripts without their extensions, `{1,3}+` as a repeat of a repeat, nested
 * classes and `&&` in them, `(?i)` up to its group's end, "ss" that equals U+00DF without case. What neither rewriting
 * nor PCRE2 can do is refused by name.
 */
#ifndef NDP_TEXT_REGEX_H
#define NDP_TEXT_REGEX_H

#include "base/text.h"

typedef struct ndp_regex ndp_regex;

/* Most bytes of a pattern, and of what a stage puts in its place; real tokenizers have less than 1 KiB. */
#define NDP_PATTERN_BYTES ((size_t)32 << 10)

/* The pattern is UTF-8 with a zero behind it; `what` names the file in messages. NDP_EFORMAT: not a regular expression,
 * or longer than NDP_PATTERN_BYTES. NDP_ENOTSUP: one that would be misread. */
NDP_API ndp_status ndp_regex_create(ndp_span pattern, const char *what, ndp_regex **out);
/* Matches exactly this text, which is not empty. */
NDP_API ndp_status ndp_regex_create_literal(ndp_span text, const char *what, ndp_regex **out);
void ndp_regex_destroy(ndp_regex *r);

/* A pattern for PCRE2 (options UTF, UCP, MULTILINE, newline LF) that matches what `pattern` does. */
NDP_API ndp_status ndp_regex_translate(ndp_span pattern, const char *what, ndp_str *out);

/* What a thread needs to match, for any number of patterns; `{0}` at first. */
typedef struct ndp_regex_scratch {
    struct pcre2_real_match_data_8 *data;
    struct pcre2_real_match_context_8 *context;
    struct pcre2_real_jit_stack_8 *stack;
} ndp_regex_scratch;
void ndp_regex_scratch_release(ndp_regex_scratch *s);

/* The matches of a text from left to right, none overlapping; an empty one may not touch the end of the one before.
 * An empty text has none, as in the reference. The text is valid UTF-8. */
typedef struct ndp_regex_walk {
    const ndp_regex *regex;
    ndp_regex_scratch *scratch;
    ndp_span text;
    size_t at, last_end; /* where to look; where the last match ended, SIZE_MAX before the first */
    int searches;        /* since somebody looked at the clock */
    double began;        /* seconds of the thread's time; 0: not long ago */
} ndp_regex_walk;
ndp_regex_walk ndp_regex_walk_begin(const ndp_regex *r, ndp_regex_scratch *s, ndp_span text);
/* *found, and the match [*from, *to). NDP_EFORMAT when the pattern backtracks without end on this text,
 * or takes more than 2 s and 10 us a byte of it. */
NDP_API ndp_status ndp_regex_next(ndp_regex_walk *w, bool *found, size_t *from, size_t *to);

/* All matches replaced by `content`, as it is. Stops with NDP_EFORMAT when `out` grows beyond `limit` bytes. */
NDP_API ndp_status ndp_regex_replace(const ndp_regex *r, ndp_regex_scratch *s, ndp_span text, const char *content,
                                     size_t limit, ndp_str *out);
/* How long replacements may make a text: a few stages of "a" -> "aaaa..." would fill any memory, and no tokenizer
 * that people use makes one 64 times longer. */
static inline size_t ndp_growth_limit(size_t n) { return ((size_t)1 << 20) + 64 * n; }

#endif
