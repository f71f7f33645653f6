/* From Oniguruma's Ruby syntax to PCRE2's; character classes are in regex_class.c.
 *
 * One pass of recursive descent: body > element > quantifier, group, escape, literal. It writes while it reads, and
 * `atom` remembers where the last repeatable element begins in the output. What differs between the engines:
 *
 *   white space, \w, \b     sets by Unicode properties instead of PCRE2's shorthands
 *   \h                      hexadecimal digits
 *   \p{Han}                 the script without its extensions
 *   `{1,3}+` and `{2}?`     a quantifier of a quantifier: the inner one is wrapped in (?:...)
 *   (?i), (?m)              up to the end of the enclosing group; Ruby's m is PCRE2's s
 *   "ss" under (?i)         also matches U+00DF, by full case folding; likewise the ligatures
 *   [a[b]&&c]               sets of sets
 *
 * Called by regex.c when a tokenizer is loaded. */
#include "text/regex.h"
#include "text/regex_class.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Word characters of a bare \w and \b: below U+0100 they follow a table of ISO 8859-1, which includes superscripts and
 * fractions. */
#define BARE_WORD "[" NDP_CLASS_WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}]"
#define NOT_BARE_WORD "[^" NDP_CLASS_WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}]"

enum { TOO_OFTEN = 65536 }; /* more repeats than PCRE2 accepts */

typedef struct translator {
    ndp_pattern in;
    ndp_str *out;
    size_t atom;      /* start in `out` of what a quantifier would repeat; NONE: nothing */
    bool is_repeated; /* it already has a quantifier */
} translator;

static const size_t NONE = SIZE_MAX;

static ndp_status fail(const translator *t, ndp_status st, const char *why) {
    return ndp_pattern_fail(&t->in, st, why);
}

static void begin_atom(translator *t) {
    t->atom = t->out->length;
    t->is_repeated = false;
}

/* ---- quantifiers ---- */

static void number(const char **at, int *out) {
    if (!isdigit((unsigned char)**at))
        return;
    char *end;
    long value = strtol(*at, &end, 10);
    *out = value < TOO_OFTEN ? (int)value : TOO_OFTEN;
    *at = end;
}

/* {n}, {n,}, {,m} or {n,m}; does not advance at anything else. `fixed`: it is {n}. */
static bool interval(ndp_pattern *p, char text[32], bool *fixed) {
    const char *at = p->p + 1;
    int low = -1, high = -1;
    number(&at, &low);
    *fixed = *at != ',';
    if (!*fixed) {
        at++;
        number(&at, &high);
    }
    if (*at != '}' || (low < 0 && high < 0))
        return false;
    p->p = at + 1;
    int n = snprintf(text, 32, "{%d%s", low < 0 ? 0 : low, *fixed ? "" : ",");
    if (high >= 0)
        n += snprintf(text + n, (size_t)(32 - n), "%d", high);
    strcpy(text + n, "}");
    return true;
}

/* Wraps an element that is already repeated in a group: in Ruby `{2}+` and `{2}?` are two quantifiers. */
static void wrap_atom(translator *t) {
    size_t n = t->out->length - t->atom;
    ndp_str_add(t->out, "(?:)");
    if (t->out->failed)
        return;
    char *at = t->out->data + t->atom;
    memmove(at + 3, at, n);
    memcpy(at, "(?:", 3);
    at[3 + n] = ')';
}

/* Reads a quantifier; *was is false for a brace that begins no quantifier. */
static ndp_status quantifier(translator *t, bool *was) {
    ndp_pattern *p = &t->in;
    char text[32] = {*p->p, '\0'};
    bool fixed = false, braces = *p->p == '{';
    *was = !braces || interval(p, text, &fixed);
    if (!*was)
        return NDP_OK;
    if (!braces)
        p->p++;
    if (t->atom == NONE)
        return fail(t, NDP_EFORMAT, "a quantifier with nothing to repeat");
    if (t->is_repeated)
        wrap_atom(t);
    ndp_str_add(t->out, text);
    if (!fixed && ndp_pattern_accept(p, "?"))
        ndp_str_add(t->out, "?");
    else if (!braces && ndp_pattern_accept(p, "+"))
        ndp_str_add(t->out, "+");
    t->is_repeated = true;
    return NDP_OK;
}

/* ---- letters ---- */

/* Under (?i), letters equal to more or less than one character (Unicode's full case folding): ligatures and the sharp
 * s. Longer ones first. */
static const struct fold {
    const char *letters, *pattern;
} FOLDS[] = {
    {"ffi", "(?:ffi|\\x{fb03}|\\x{fb00}i|f\\x{fb01})"},
    {"ffl", "(?:ffl|\\x{fb04}|\\x{fb00}l|f\\x{fb02})"},
    {"ff", "(?:ff|\\x{fb00})"},
    {"fi", "(?:fi|\\x{fb01})"},
    {"fl", "(?:fl|\\x{fb02})"},
    {"ss", "(?:ss|[\\x{df}\\x{1e9e}])"},
    {"st", "(?:st|[\\x{fb05}\\x{fb06}])"},
    {"\xc3\x9f", "(?:ss|[\\x{df}\\x{1e9e}])"},
    {"\xe1\xba\x9e", "(?:ss|[\\x{df}\\x{1e9e}])"},
};

/* Reads letters that fold together, unless a quantifier applies to the last of them. */
static bool folded(translator *t) {
    ndp_pattern *p = &t->in;
    for (int i = 0; i < NDP_COUNT(FOLDS); i++) {
        size_t n = strlen(FOLDS[i].letters);
        if (strncasecmp(p->p, FOLDS[i].letters, n) != 0)
            continue;
        if (isalpha((unsigned char)p->p[0]) && p->p[n] && strchr("*+?{", p->p[n]))
            continue;
        begin_atom(t);
        ndp_str_add(t->out, FOLDS[i].pattern);
        p->p += n;
        return true;
    }
    return false;
}

static void literal(translator *t, uint32_t character) {
    begin_atom(t);
    if (character < 0x80 && isalnum((int)character))
        ndp_str_addf(t->out, "%c", (char)character);
    else
        ndp_str_addf(t->out, "\\x{%x}", character);
}

static ndp_status named_reference(translator *t) {
    const char *end = memchr(t->in.p, '>', (size_t)(t->in.end - t->in.p));
    if (*t->in.p != '<' || !end)
        return fail(t, NDP_EFORMAT, "\\k wants the name of a group in angle brackets");
    ndp_str_add(t->out, "\\k");
    ndp_str_add_bytes(t->out, t->in.p, (size_t)(end + 1 - t->in.p));
    t->in.p = end + 1;
    return NDP_OK;
}

/* Reads an escape, after its backslash. */
static ndp_status escape(translator *t) {
    static const struct {
        char letter;
        const char *pattern;
        bool is_anchor;
    } simple[] = {
        {'A', "\\A", true},
        {'G', "\\G", true},
        {'Z', "\\Z", true},
        {'z', "\\z", true},
        {'b', "(?:(?<=" BARE_WORD ")(?!" BARE_WORD ")|(?<!" BARE_WORD ")(?=" BARE_WORD "))", true},
        {'B', "(?:(?<=" BARE_WORD ")(?=" BARE_WORD ")|(?<!" BARE_WORD ")(?!" BARE_WORD "))", true},
        {'w', BARE_WORD, false},
        {'W', NOT_BARE_WORD, false},
        {'R', "\\R", false},
        {'X', "\\X", false},
    };
    ndp_pattern *p = &t->in;
    const char *items;
    bool negated;
    begin_atom(t);
    for (int i = 0; i < NDP_COUNT(simple); i++)
        if (*p->p == simple[i].letter) {
            p->p++;
            ndp_str_add(t->out, simple[i].pattern);
            if (simple[i].is_anchor)
                t->atom = NONE;
            return NDP_OK;
        }
    if (ndp_class_shorthand(*p->p, &items, &negated)) {
        p->p++;
        ndp_str_addf(t->out, "[%s%s]", negated ? "^" : "", items);
        return NDP_OK;
    }
    if (*p->p == 'p' || *p->p == 'P') {
        char property[160];
        NDP_TRY(ndp_class_property(p, *p->p++ == 'P', property, &negated));
        if (!strcmp(property, NDP_CLASS_WORD))
            ndp_str_add(t->out, negated ? NOT_BARE_WORD : BARE_WORD);
        else
            ndp_str_addf(t->out, "[%s%s]", negated ? "^" : "", property);
        return NDP_OK;
    }
    if (*p->p >= '1' && *p->p <= '9' && !isdigit((unsigned char)p->p[1])) {
        ndp_str_addf(t->out, "(?:\\%c)", *p->p++);
        return NDP_OK;
    }
    if (ndp_pattern_accept(p, "k"))
        return named_reference(t);
    uint32_t character;
    NDP_TRY(ndp_class_escape(p, &character));
    literal(t, character);
    return NDP_OK;
}

/* ---- groups ---- */

static ndp_status body(translator *t, bool caseless);

/* Reads the letters of "(?i-m", up to ":" or ")". Ruby's m is PCRE2's s. */
static ndp_status options(translator *t, char text[16], bool *caseless) {
    bool on = true;
    int n = 0;
    for (; t->in.p < t->in.end && *t->in.p != ':' && *t->in.p != ')' && n < 15; t->in.p++) {
        char c = *t->in.p;
        if (c == '-')
            on = false;
        else if (c == 'i')
            *caseless = on;
        else if (c != 'm')
            return fail(t, NDP_ENOTSUP, "a kind of group that is not supported");
        text[n++] = c == 'm' ? 's' : c;
    }
    text[n] = '\0';
    return t->in.p < t->in.end && n < 15 ? NDP_OK : fail(t, NDP_EFORMAT, "a group without its end");
}

/* Reads up to and including the group's ")". */
static ndp_status group_body(translator *t, size_t atom, bool caseless, bool repeatable) {
    if (++t->in.depth > NDP_PATTERN_DEPTH)
        return fail(t, NDP_EFORMAT, "nested too deeply");
    NDP_TRY(body(t, caseless));
    if (!ndp_pattern_accept(&t->in, ")"))
        return fail(t, NDP_EFORMAT, "a group without its end");
    ndp_str_add(t->out, ")");
    t->in.depth--;
    t->atom = repeatable ? atom : NONE;
    t->is_repeated = false;
    return NDP_OK;
}

/* Options of a group, "(?i:", or of the rest of the enclosing group, "(?i)". */
static ndp_status option_group(translator *t, size_t atom, bool caseless) {
    char text[16];
    NDP_TRY(options(t, text, &caseless));
    ndp_str_addf(t->out, "(?%s:", text);
    if (ndp_pattern_accept(&t->in, ":"))
        return group_body(t, atom, caseless, true);
    t->in.p++;
    if (++t->in.depth > NDP_PATTERN_DEPTH)
        return fail(t, NDP_EFORMAT, "nested too deeply");
    NDP_TRY(body(t, caseless));
    t->in.depth--;
    ndp_str_add(t->out, ")");
    return NDP_OK;
}

/* Reads a group, after its "(". */
static ndp_status group(translator *t, bool caseless) {
    static const char *const kinds[] = {"?:", "?>", "?=", "?!", "?<=", "?<!"};
    ndp_pattern *p = &t->in;
    size_t atom = t->out->length;
    for (int i = 0; i < NDP_COUNT(kinds); i++)
        if (ndp_pattern_accept(p, kinds[i])) {
            ndp_str_addf(t->out, "(%s", kinds[i]);
            return group_body(t, atom, caseless, i < 2);
        }
    if (ndp_pattern_accept(p, "?#")) {
        const char *end = memchr(p->p, ')', (size_t)(p->end - p->p));
        p->p = end ? end + 1 : p->end;
        return end ? NDP_OK : fail(t, NDP_EFORMAT, "a group without its end");
    }
    ndp_str_add(t->out, "(");
    if (ndp_pattern_accept(p, "?<")) {
        size_t n = strcspn(p->p, ">");
        ndp_str_add(t->out, "?<");
        ndp_str_add_bytes(t->out, p->p, n);
        p->p += n;
        if (!ndp_pattern_accept(p, ">"))
            return fail(t, NDP_EFORMAT, "a group without the end of its name");
        ndp_str_add(t->out, ">");
    } else if (ndp_pattern_accept(p, "?")) {
        t->out->length--; /* option_group writes the "(" with the options */
        return option_group(t, atom, caseless);
    }
    return group_body(t, atom, caseless, true);
}

/* ---- all of it ---- */

static ndp_status element(translator *t, bool caseless) {
    ndp_pattern *p = &t->in;
    char c = *p->p;
    if (c && strchr("*+?{", c)) {
        bool was;
        NDP_TRY(quantifier(t, &was));
        if (was)
            return NDP_OK;
    } else if (c && strchr("^$|.", c)) {
        begin_atom(t);
        ndp_str_addf(t->out, "%c", c);
        p->p++;
        if (c != '.')
            t->atom = NONE;
        return NDP_OK;
    } else if (ndp_pattern_accept(p, "(")) {
        return group(t, caseless);
    } else if (ndp_pattern_accept(p, "[")) {
        begin_atom(t);
        return ndp_class_translate(p, t->out);
    } else if (ndp_pattern_accept(p, "\\")) {
        return escape(t);
    } else if (caseless && folded(t)) {
        return NDP_OK;
    }
    literal(t, ndp_pattern_character(p));
    return NDP_OK;
}

/* Reads up to, not including, the ")" of the enclosing group, or to the end. */
static ndp_status body(translator *t, bool caseless) {
    t->atom = NONE;
    while (t->in.p < t->in.end && *t->in.p != ')')
        NDP_TRY(element(t, caseless));
    return NDP_OK;
}

ndp_status ndp_regex_translate(ndp_span pattern, const char *what, ndp_str *out) {
    translator t = {.in = {what, pattern.data, pattern.data, pattern.data + pattern.n, 0}, .out = out, .atom = NONE};
    if (pattern.n > NDP_PATTERN_BYTES)
        return fail(&t, NDP_EFORMAT, "longer than 32768 bytes");
    NDP_TRY(body(&t, false));
    return t.in.p == t.in.end ? NDP_OK : fail(&t, NDP_EFORMAT, "a ) without its group");
}
