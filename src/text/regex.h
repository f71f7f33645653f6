/* Regular expressions as tokenizer.json means them: Oniguruma with Ruby syntax, over UTF-8; run by PCRE2 with JIT.
 *
 * Where the two engines differ, the pattern is rewritten (regex_translate.c). A pattern that neither the rewriting nor
 * PCRE2 can handle is rejected by name. */
#ifndef NDP_TEXT_REGEX_H
#define NDP_TEXT_REGEX_H

#include "base/text.h"

typedef struct ndp_regex ndp_regex;

/* Size limit for a pattern, and for the text that a stage inserts; real tokenizers have less than 1 KiB. */
#define NDP_PATTERN_BYTES ((size_t)32 << 10)

/* The pattern is zero-terminated UTF-8; `what` names the file in messages. NDP_EFORMAT: not a regular expression, or
 * longer than NDP_PATTERN_BYTES. NDP_ENOTSUP: it would be misread. */
NDP_API ndp_status ndp_regex_create(ndp_span pattern, const char *what, ndp_regex **out);
/* Matches exactly this text, which is not empty. */
NDP_API ndp_status ndp_regex_create_literal(ndp_span text, const char *what, ndp_regex **out);
void ndp_regex_destroy(ndp_regex *r);

/* A pattern for PCRE2 (options UTF, UCP, MULTILINE, newline LF) that matches what `pattern` matches in Oniguruma. */
NDP_API ndp_status ndp_regex_translate(ndp_span pattern, const char *what, ndp_str *out);

/* What a thread needs to match, for any number of patterns; `{0}` at first. */
typedef struct ndp_regex_scratch {
    struct pcre2_real_match_data_8 *data;
    struct pcre2_real_match_context_8 *context;
    struct pcre2_real_jit_stack_8 *stack;
} ndp_regex_scratch;
void ndp_regex_scratch_release(ndp_regex_scratch *s);

/* The matches of a text from left to right. They do not overlap, and an empty match may not touch the end of the
 * previous one. An empty text has none, as in the reference. The text is valid UTF-8. */
typedef struct ndp_regex_walk {
    const ndp_regex *regex;
    ndp_regex_scratch *scratch;
    ndp_span text;
    size_t at, last_end; /* where to look next; end of the last match, SIZE_MAX before the first */
    int searches;        /* since the clock was last read */
    double began;        /* thread time in seconds at the walk's first reading; 0: not read yet */
} ndp_regex_walk;
ndp_regex_walk ndp_regex_walk_begin(const ndp_regex *r, ndp_regex_scratch *s, ndp_span text);
/* *found, and the match [*from, *to). NDP_EFORMAT: the pattern exceeds the backtracking limit on this text, or takes
 * more than 2 s plus 10 us per byte of it. */
NDP_API ndp_status ndp_regex_next(ndp_regex_walk *w, bool *found, size_t *from, size_t *to);

/* Replaces all matches by `content`, taken literally. NDP_EFORMAT: `out` would grow beyond `limit` bytes. */
NDP_API ndp_status ndp_regex_replace(const ndp_regex *r, ndp_regex_scratch *s, ndp_span text, const char *content,
                                     size_t limit, ndp_str *out);
/* How long replacements may make a text of n bytes. A few stages of "a" -> "aaaa..." would fill any memory; no real
 * tokenizer makes a text 64 times longer. */
static inline size_t ndp_growth_limit(size_t n) { return ((size_t)1 << 20) + 64 * n; }

#endif
