/* Character classes, from Oniguruma's syntax to PCRE2's, which has no sets of sets. A nested class becomes items of the
 * outer class where possible, otherwise an alternative to it; `&&` becomes lookaheads:
 *
 *   [a[b-d]]        [ab-d]
 *   [a[^b]]         (?:[a]|[^b])
 *   [\p{P}&&[^a]]   (?:(?=[\p{P}])[^a])
 *
 * Entry points are in regex_class.h; regex_translate.c calls them. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex_class.h"

#include "base/utf8.h"
#include <ctype.h>
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

#define ANY "(?s:.)"

ndp_status ndp_pattern_fail(const ndp_pattern *p, ndp_status st, const char *why) {
    return NDP_FAIL(st, "%s: the regular expression '%.120s%s', at byte %td: %s", p->what, p->begin,
                    p->end - p->begin > 120 ? "..." : "", p->p - p->begin, why);
}

bool ndp_pattern_accept(ndp_pattern *p, const char *text) {
    size_t n = strlen(text);
    if ((size_t)(p->end - p->p) < n || memcmp(p->p, text, n) != 0)
        return false;
    p->p += n;
    return true;
}

uint32_t ndp_pattern_character(ndp_pattern *p) {
    size_t n = ndp_utf8_length((unsigned char)*p->p);
    p->p += n;
    return ndp_utf8_decode(p->p - n, n);
}

/* ---- named sets ---- */

typedef struct named_set {
    const char *name, *items;
} named_set;

/* POSIX brackets, and properties with the same names. */
static const named_set POSIX[] = {
    {"alnum", "\\p{Alphabetic}\\p{Nd}"}, {"alpha", "\\p{Alphabetic}"},   {"ascii", "\\x{0}-\\x{7f}"},
    {"blank", "\\x{9}\\p{Zs}"},          {"cntrl", "\\p{Cc}"},           {"digit", "\\p{Nd}"},
    {"lower", "\\p{Lowercase}"},         {"punct", "\\p{P}$+<=>\\^`|~"}, {"space", NDP_CLASS_SPACE},
    {"upper", "\\p{Uppercase}"},         {"word", NDP_CLASS_WORD},       {"xdigit", NDP_CLASS_HEX},
};

/* Categories that PCRE2 knows only by their short names, after the "=". */
static const char CATEGORIES[] =
    " other=C control=Cc format=Cf unassigned=Cn privateuse=Co surrogate=Cs letter=L casedletter=L& lc=L& "
    "lowercaseletter=Ll modifierletter=Lm otherletter=Lo titlecaseletter=Lt uppercaseletter=Lu mark=M "
    "combiningmark=M spacingmark=Mc enclosingmark=Me nonspacingmark=Mn number=N decimalnumber=Nd "
    "letternumber=Nl othernumber=No punctuation=P connectorpunctuation=Pc dashpunctuation=Pd "
    "closepunctuation=Pe finalpunctuation=Pf initialpunctuation=Pi otherpunctuation=Po openpunctuation=Ps "
    "symbol=S currencysymbol=Sc modifiersymbol=Sk mathsymbol=Sm othersymbol=So separator=Z "
    "lineseparator=Zl paragraphseparator=Zp spaceseparator=Zs ";

static const char *named_items(const named_set *sets, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (!strcmp(sets[i].name, name))
            return sets[i].items;
    return NULL;
}

/* The short name of a category, and its length; NULL: no such category. */
static const char *category_of(const char *name, int *length) {
    char key[80];
    snprintf(key, sizeof key, " %s=", name);
    const char *hit = strstr(CATEGORIES, key);
    if (!hit)
        return NULL;
    hit += strlen(key);
    *length = (int)strcspn(hit, " ");
    return hit;
}

bool ndp_class_shorthand(char letter, const char **items, bool *negated) {
    static const named_set shorthands[] = {
        {"s", NDP_CLASS_SPACE}, {"w", NDP_CLASS_WORD}, {"d", "\\p{Nd}"}, {"h", NDP_CLASS_HEX}};
    *items = named_items(shorthands, NDP_COUNT(shorthands), (char[]){(char)tolower((unsigned char)letter), '\0'});
    *negated = isupper((unsigned char)letter);
    return *items != NULL;
}

static bool compiles(const char *pattern) {
    int error;
    size_t at;
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &error, &at, NULL);
    pcre2_code_free(code);
    return code != NULL;
}

ndp_status ndp_class_property(ndp_pattern *p, bool negated, char items[160], bool *out_negated) {
    char name[64];
    size_t n = 0;
    bool open = ndp_pattern_accept(p, "{");
    *out_negated = negated != ndp_pattern_accept(p, "^");
    for (; p->p < p->end && *p->p != '}' && n + 1 < sizeof name; p->p++)
        if (!strchr(" -_", *p->p))
            name[n++] = (char)tolower((unsigned char)*p->p);
    name[n] = '\0';
    if (!open || !n || !ndp_pattern_accept(p, "}"))
        return ndp_pattern_fail(p, NDP_EFORMAT, "\\p wants the name of a property in braces");
    int length = 0;
    const char *known = named_items(POSIX, NDP_COUNT(POSIX), strcmp(name, "whitespace") ? name : "space"),
               *category = category_of(name, &length);
    if (known)
        snprintf(items, 160, "%s", known);
    else if (category)
        snprintf(items, 160, "\\p{%.*s}", length, category);
    if (known || category)
        return NDP_OK;
    /* PCRE2 takes a bare script name, \p{Han}, to include the script's extensions. */
    snprintf(items, 160, "\\p{sc:%s}", name);
    if (compiles(items))
        return NDP_OK;
    snprintf(items, 160, "\\p{%s}", name);
    return compiles(items) ? NDP_OK : ndp_pattern_fail(p, NDP_ENOTSUP, "a property that is not known");
}

/* ---- single characters ---- */

/* Reads `least` to `most` hexadecimal digits. */
static ndp_status hexadecimal(ndp_pattern *p, int least, int most, uint32_t *out) {
    uint32_t value = 0;
    int n = 0;
    for (; n < most && p->p < p->end && isxdigit((unsigned char)*p->p); n++, p->p++)
        value = value << 4 | (uint32_t)(isdigit((unsigned char)*p->p) ? *p->p - '0' : (*p->p | 0x20) - 'a' + 10);
    if (n < least || value > 0x10ffff || (value & ~0x7ffu) == 0xd800)
        return ndp_pattern_fail(p, NDP_EFORMAT, "not the number of a character");
    *out = value;
    return NDP_OK;
}

ndp_status ndp_class_escape(ndp_pattern *p, uint32_t *character) {
    static const char letters[] = "tnrfvae", values[] = "\t\n\r\f\v\a\x1b";
    const char *hit = *p->p ? strchr(letters, *p->p) : NULL;
    if (p->p == p->end)
        return ndp_pattern_fail(p, NDP_EFORMAT, "a backslash at the end");
    if (hit) {
        p->p++;
        *character = (uint32_t)values[hit - letters];
        return NDP_OK;
    }
    if (ndp_pattern_accept(p, "x{")) {
        NDP_TRY(hexadecimal(p, 1, 8, character));
        return ndp_pattern_accept(p, "}") ? NDP_OK : ndp_pattern_fail(p, NDP_EFORMAT, "\\x{ without its end");
    }
    if (ndp_pattern_accept(p, "u"))
        return hexadecimal(p, 4, 4, character);
    if (ndp_pattern_accept(p, "x")) {
        NDP_TRY(hexadecimal(p, 1, 2, character));
        return *character < 0x80 ? NDP_OK : ndp_pattern_fail(p, NDP_ENOTSUP, "\\x with a byte that is not a character");
    }
    if (isalnum((unsigned char)*p->p))
        return ndp_pattern_fail(p, NDP_ENOTSUP, "an escape that is not supported");
    *character = ndp_pattern_character(p);
    return NDP_OK;
}

/* ---- classes ---- */

/* A union: the items of one PCRE2 class, and alternatives to it that match one character each. */
typedef struct set {
    ndp_str items, others;
    int n_others;
} set;

static void release(set *s) {
    ndp_str_release(&s->items);
    ndp_str_release(&s->others);
    s->n_others = 0;
}

static void add_others(set *s, const char *text, int n) {
    ndp_str_add(&s->others, s->n_others ? "|" : "");
    ndp_str_add(&s->others, text);
    s->n_others += n;
}

static void add_items(set *s, const char *items, bool negated) {
    if (negated) {
        add_others(s, "[^", 1);
        ndp_str_add(&s->others, items);
        ndp_str_add(&s->others, "]");
    } else {
        ndp_str_add(&s->items, items);
    }
}

/* Writes the union, or its complement, as a pattern for one character. */
static void write_set(const set *s, bool negated, ndp_str *out) {
    const char *items = s->items.length ? s->items.data : "", *others = s->others.length ? s->others.data : "";
    if (!s->n_others)
        ndp_str_addf(out, "[%s%s]", negated ? "^" : "", items);
    else if (negated)
        ndp_str_addf(out, s->items.length ? "(?:(?!%s|[%s])" ANY ")" : "(?:(?!%s%s)" ANY ")", others, items);
    else if (s->n_others == 1 && !s->items.length)
        ndp_str_add(out, others);
    else
        ndp_str_addf(out, s->items.length ? "(?:%s|[%s])" : "(?:%s%s)", others, items);
}

static ndp_status read_class(ndp_pattern *p, set *outer);

/* [:alpha:] or [:^alpha:], after the "[:". */
static bool posix_bracket(ndp_pattern *p, set *s) {
    for (int i = 0; i < NDP_COUNT(POSIX); i++)
        for (int negated = 0; negated < 2; negated++) {
            char text[16];
            snprintf(text, sizeof text, "[:%s%s:]", negated ? "^" : "", POSIX[i].name);
            if (ndp_pattern_accept(p, text)) {
                add_items(s, POSIX[i].items, negated);
                return true;
            }
        }
    return false;
}

/* A set after a backslash; *is_set: whether there was one. */
static ndp_status escaped_set(ndp_pattern *p, set *s, bool *is_set) {
    const char *items;
    bool negated;
    char letter = p->end - p->p >= 2 && p->p[0] == '\\' ? p->p[1] : '\0';
    *is_set = true;
    if (letter && ndp_class_shorthand(letter, &items, &negated)) {
        p->p += 2;
        add_items(s, items, negated);
    } else if (letter == 'p' || letter == 'P') {
        char property[160];
        p->p += 2;
        NDP_TRY(ndp_class_property(p, letter == 'P', property, &negated));
        add_items(s, property, negated);
    } else {
        *is_set = false;
    }
    return NDP_OK;
}

static ndp_status single(ndp_pattern *p, uint32_t *character) {
    if (p->p == p->end)
        return ndp_pattern_fail(p, NDP_EFORMAT, "a class without its end");
    if (ndp_pattern_accept(p, "\\b")) {
        *character = '\b';
        return NDP_OK;
    }
    if (ndp_pattern_accept(p, "\\"))
        return ndp_class_escape(p, character);
    *character = ndp_pattern_character(p);
    return NDP_OK;
}

/* A character or a range. A "-" before "]", "&&" or a set stands for itself. */
static ndp_status range(ndp_pattern *p, set *s) {
    uint32_t low, high;
    NDP_TRY(single(p, &low));
    high = low;
    const char *dash = p->p;
    if (ndp_pattern_accept(p, "-")) {
        const char *items;
        bool negated, plain = p->p < p->end && *p->p != ']' && *p->p != '[' && strncmp(p->p, "&&", 2) != 0;
        if (plain && *p->p == '\\' && p->end - p->p >= 2)
            plain = !strchr("pP", p->p[1]) && !ndp_class_shorthand(p->p[1], &items, &negated);
        if (plain)
            NDP_TRY(single(p, &high));
        else
            p->p = dash;
        if (high < low)
            return ndp_pattern_fail(p, NDP_EFORMAT, "a range that ends before it begins");
    }
    ndp_str_addf(&s->items, high > low ? "\\x{%x}-\\x{%x}" : "\\x{%x}", low, high);
    return NDP_OK;
}

static ndp_status read_item(ndp_pattern *p, set *s) {
    bool is_set;
    NDP_TRY(escaped_set(p, s, &is_set));
    if (is_set || posix_bracket(p, s))
        return NDP_OK;
    if (!strncmp(p->p, "[:", 2) && !strncmp(p->p + 2 + strspn(p->p + 2, "^abcdefghijklmnopqrstuvwxyz"), ":]", 2))
        return ndp_pattern_fail(p, NDP_ENOTSUP, "a POSIX bracket that is not supported");
    return ndp_pattern_accept(p, "[") ? read_class(p, s) : range(p, s);
}

/* One side of "&&", or a whole class without it. */
static ndp_status read_union(ndp_pattern *p, set *s, bool first) {
    if (first && p->p < p->end && *p->p == ']' && memchr(p->p + 1, ']', (size_t)(p->end - p->p - 1)))
        NDP_TRY(range(p, s)); /* []abc] contains the bracket */
    while (p->p < p->end && *p->p != ']' && strncmp(p->p, "&&", 2) != 0)
        NDP_TRY(read_item(p, s));
    if (p->p == p->end)
        return ndp_pattern_fail(p, NDP_EFORMAT, "a class without its end");
    return s->items.length || s->n_others ? NDP_OK : ndp_pattern_fail(p, NDP_EFORMAT, "an empty class");
}

/* Reads a whole class: all sides of its "&&" but the last into `sides`, as lookaheads, and the last one into `last`. */
static ndp_status read_sides(ndp_pattern *p, ndp_str *sides, set *last) {
    NDP_TRY(read_union(p, last, true));
    while (ndp_pattern_accept(p, "&&")) {
        ndp_str_add(sides, "(?=");
        write_set(last, false, sides);
        ndp_str_add(sides, ")");
        release(last);
        NDP_TRY(read_union(p, last, false));
    }
    p->p++; /* the "]" */
    return NDP_OK;
}

/* Adds a class (after its "[") to the enclosing union. */
static ndp_status read_class(ndp_pattern *p, set *outer) {
    if (++p->depth > NDP_PATTERN_DEPTH)
        return ndp_pattern_fail(p, NDP_EFORMAT, "nested too deeply");
    bool negated = ndp_pattern_accept(p, "^");
    ndp_str sides = {0}, text = {0};
    set last = {0};
    ndp_status st = read_sides(p, &sides, &last);
    if (st == NDP_OK && !sides.length && !negated) {
        if (last.items.length)
            ndp_str_add(&outer->items, last.items.data);
        if (last.n_others)
            add_others(outer, last.others.data, last.n_others);
    } else if (st == NDP_OK) {
        if (sides.length)
            ndp_str_add(&text, negated ? "(?:(?!" : "(?:");
        ndp_str_add(&text, sides.length ? sides.data : "");
        write_set(&last, negated && !sides.length, &text);
        if (sides.length)
            ndp_str_add(&text, negated ? ")" ANY ")" : ")");
        add_others(outer, text.data ? text.data : "", 1);
    }
    bool failed = sides.failed || text.failed || last.items.failed || last.others.failed;
    ndp_str_release(&sides);
    ndp_str_release(&text);
    release(&last);
    p->depth--;
    return st == NDP_OK && failed ? NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for a regular expression", p->what)
                                  : st;
}

ndp_status ndp_class_translate(ndp_pattern *p, ndp_str *out) {
    set outer = {0};
    ndp_status st = read_class(p, &outer);
    if (st == NDP_OK && (outer.items.failed || outer.others.failed))
        st = NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for a regular expression", p->what);
    if (st == NDP_OK)
        write_set(&outer, false, out);
    release(&outer);
    return st;
}
