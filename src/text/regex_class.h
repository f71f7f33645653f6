/* Parsing shared by the two files that rewrite regular expressions. */
#ifndef NDP_TEXT_REGEX_CLASS_H
#define NDP_TEXT_REGEX_CLASS_H

#include "base/text.h"

/* A position in a pattern. */
typedef struct ndp_pattern {
    const char *what;            /* for messages */
    const char *begin, *p, *end; /* zero-terminated */
    int depth;                   /* of groups and classes */
} ndp_pattern;

enum { NDP_PATTERN_DEPTH = 100 };

/* Sets of characters, as items of a PCRE2 class. */
#define NDP_CLASS_SPACE                                                                                                \
    "\\x{9}-\\x{d} \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define NDP_CLASS_WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define NDP_CLASS_HEX "0-9A-Fa-f"

ndp_status ndp_pattern_fail(const ndp_pattern *p, ndp_status st, const char *why);
/* If the pattern continues with `text`: advances past it and returns true. */
bool ndp_pattern_accept(ndp_pattern *p, const char *text);

/* Reads one character. */
uint32_t ndp_pattern_character(ndp_pattern *p);

/* The class items of the shorthand \s, \w, \d or \h (upper case: negated); false: another letter. */
bool ndp_class_shorthand(char letter, const char **items, bool *negated);
/* Reads what follows "\p" or "\P": {L}, {^L}, {Han}, {Alnum}, ... */
NDP_API ndp_status ndp_class_property(ndp_pattern *p, bool negated, char items[160], bool *out_negated);
/* Reads the single character that an escape stands for; the backslash is already read. */
NDP_API ndp_status ndp_class_escape(ndp_pattern *p, uint32_t *character);
/* Reads a class up to and including its "]" (the "[" is already read); writes a pattern that matches one character. */
NDP_API ndp_status ndp_class_translate(ndp_pattern *p, ndp_str *out);

#endif
