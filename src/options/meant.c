/* What a wrong value probably meant: the names that other programs have for a value of ours, and values in another
 * spelling. */
#include "options/meant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool ndp_has_word(const char *words, const char *text) {
    for (size_t n; *words; words += n + (words[n] == ' ')) {
        n = strcspn(words, " ");
        if (words[n - 1] == '*' ? strncasecmp(words, text, n - 1) == 0
                                : strlen(text) == n && strncasecmp(words, text, n) == 0)
            return true;
    }
    return false;
}

static const ndp_foreign_value *find_foreign(const ndp_option *o, const char *text) {
    for (const ndp_foreign_value *f = o->foreign; f && f->theirs; f++)
        if (ndp_has_word(f->theirs, text))
            return f;
    return NULL;
}

/* One of the words in capitals, or else the nearest one. */
static const char *nearest_word(const ndp_option *o, const char *text) {
    int n = 0;
    for (; o->words && o->words[n]; n++)
        if (strcasecmp(o->words[n], text) == 0)
            return o->words[n];
    return o->words ? ndp_nearest(text, o->words, n) : NULL;
}

static const char *meant_bool(const char *text) {
    return ndp_has_word("true yes on 1", text) ? "true" : ndp_has_word("false no off 0", text) ? "false" : NULL;
}

/* A whole number written as 1e3, 1_000 or 1,000; or -1, which other programs write where we write auto. */
static void add_meant_integer(const ndp_option *o, const char *text, ndp_str *out) {
    char digits[32], *end = digits; /* not the end, unless strtod sets it */
    size_t n = 0;
    for (const char *c = text; *c && n + 1 < sizeof digits; c++)
        if (*c != '_' && *c != ',')
            digits[n++] = *c;
    digits[n] = '\0';
    double v = strspn(digits, "0123456789.eE+-") == n ? strtod(digits, &end) : NAN;
    if (o->open && strcmp(text, "-1") == 0)
        ndp_str_add(out, "; did you mean auto?");
    else if (n && !*end && v == floor(v) && v >= (double)o->low && v <= (double)o->high && fabs(v) < 0x1p53)
        ndp_str_addf(out, "; did you mean %lld?", (long long)v);
}

/* In quotes it is text, for a key that is not. */
static void add_without_quotes(const ndp_option *o, const char *text, ndp_str *out) {
    union {
        int whole;
        int64_t large;
        double number;
    } scratch;
    ndp_option alone = *o;
    alone.offset = 0;
    bool is_bool = strcmp(text, "true") == 0 || strcmp(text, "false") == 0;
    if (o->type == NDP_OPTION_BOOL ? is_bool : ndp_option_digits(&alone, text, &scratch))
        ndp_str_addf(out, "; remove the quotes: %s", text);
}

void ndp_meant_add(const ndp_option *o, const char *text, bool quoted, ndp_str *out) {
    bool whole = o->type == NDP_OPTION_INT || o->type == NDP_OPTION_INT64;
    const ndp_foreign_value *foreign = find_foreign(o, text);
    const char *word = foreign ? foreign->ours : o->type == NDP_OPTION_BOOL ? meant_bool(text) : nearest_word(o, text);
    if (quoted && (whole || o->type == NDP_OPTION_NUMBER || o->type == NDP_OPTION_BOOL))
        add_without_quotes(o, text, out);
    else if (word)
        ndp_str_addf(out, "; did you mean '%s'?", word);
    else if (whole)
        add_meant_integer(o, text, out);
    if (foreign && foreign->why)
        ndp_str_addf(out, " %s", foreign->why);
}
