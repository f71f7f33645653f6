/* Scalars as Axolotl reads them. PyYAML resolves those without quotes by YAML 1.1: 500_000, 0x10, 010 (octal), 1:30
 * (90), on and off. Pydantic casts what remains a string, such as 1e-5, to the type of the key. */
#include "import/import_scalar.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A spelling of numbers. Base 60: digits separated by colons; 0: with a fraction or an exponent. `plain`: without
 * quotes. */
typedef struct number_form {
    const char *pattern;
    int base;
    bool plain;
} number_form;

static const number_form forms[] = {
    {"^[-+]?0b[01_]+$", 2, true},
    {"^[-+]?0[0-7_]+$", 8, true},
    {"^[-+]?0x[0-9a-fA-F_]+$", 16, true},
    {"^[-+]?(0|[1-9][0-9_]*)$", 10, true},
    {"^[-+]?([1-9][0-9_]*(:[0-5]?[0-9])+|[0-9][0-9_]*(:[0-5]?[0-9])+\\.[0-9_]*)$", 60, true},
    {"^[-+]?([0-9][0-9_]*\\.[0-9_]*|\\.[0-9][0-9_]*)([eE][-+][0-9]+)?$", 0, true},
    /* the others are Python's: int("08"), float("1e-5") */
    {"^[-+]?[0-9]+(_[0-9]+)*$", 10, false},
    {"^[-+]?([0-9]+(_[0-9]+)*(\\.([0-9]+(_[0-9]+)*)?)?|\\.[0-9]+(_[0-9]+)*)([eE][-+]?[0-9]+(_[0-9]+)*)?$", 0, false},
};

/* Compiled once: that takes longer than the rest of an import. */
static regex_t compiled[NDP_COUNT(forms)];
static pthread_once_t forms_compiled = PTHREAD_ONCE_INIT;
static bool uncompiled;

static void compile_forms(void) {
    for (int i = 0; i < NDP_COUNT(forms); i++)
        uncompiled |= regcomp(&compiled[i], forms[i].pattern, REG_EXTENDED | REG_NOSUB) != 0;
}

static double sexagesimal(const char *digits) {
    bool minus = *digits == '-';
    double v = 0;
    for (char *end; *digits; digits = *end == ':' ? end + 1 : end)
        v = 60 * v + fabs(strtod(digits, &end));
    return minus ? -v : v;
}

/* strtoll of digits with a sign and, for bases 2 and 16, the prefix 0b or 0x. */
static bool whole_number(const char *digits, int base, char *out, size_t size) {
    bool minus = *digits == '-';
    digits += minus || *digits == '+';
    if (base == 2 || base == 16)
        digits += 2;
    char *end;
    errno = 0;
    long long v = strtoll(digits, &end, base);
    snprintf(out, size, "%lld", minus ? -v : v);
    return !errno && end != digits && !*end;
}

/* Copies the text without underscores; false if it does not fit. */
static bool without_underscores(const char *text, char *out, size_t size) {
    size_t n = 0;
    for (; *text; text++) {
        if (n + 1 >= size)
            return false;
        if (*text != '_')
            out[n++] = *text;
    }
    out[n] = '\0';
    return true;
}

/* Most numbers are decimal, for which no expression is compiled; text that does not begin like a number is not one. */
static const number_form *form_of(const char *text, bool plain) {
    static const char digits[] = "0123456789";
    if (!strchr("+-.0123456789", *text))
        return NULL;
    if (*text > '0' && !text[strspn(text, digits)])
        return &forms[plain ? 3 : 6];
    pthread_once(&forms_compiled, compile_forms);
    for (int i = 0; i < NDP_COUNT(forms) && !uncompiled; i++)
        if ((plain || !forms[i].plain) && regexec(&compiled[i], text, 0, NULL, 0) == 0)
            return &forms[i];
    return NULL;
}

bool ndp_import_digits(struct fy_node *node, bool whole, char out[NDP_IMPORT_DIGITS]) {
    const char *text = ndp_yaml_text(node);
    char digits[NDP_IMPORT_DIGITS];
    bool plain = ndp_yaml_is_plain(node), truth;
    if (!text || !without_underscores(text, digits, sizeof digits))
        return false;
    if (plain && ndp_import_truth(node, &truth) && strlen(text) > 1) { /* pydantic: true is 1 */
        snprintf(out, NDP_IMPORT_DIGITS, "%d", truth);
        return true;
    }
    const number_form *f = form_of(text, plain);
    if (!f)
        return false;
    if (f->base != 0 && f->base != 60)
        return whole_number(digits, f->base, out, NDP_IMPORT_DIGITS);
    double v = f->base == 60 ? sexagesimal(digits) : strtod(digits, NULL);
    bool rounded = whole && v == floor(v) && fabs(v) < 0x1p53;
    if (rounded || f->base == 60)
        snprintf(out, NDP_IMPORT_DIGITS, rounded ? "%.0f" : "%.17g", v);
    else
        snprintf(out, NDP_IMPORT_DIGITS, "%s", digits);
    return !whole || (rounded && (f->plain || !strpbrk(digits, "eE"))); /* int("1e5") fails, int(1.0e+5) does not */
}

bool ndp_import_truth(struct fy_node *node, bool *out) {
    static const char *const words[][2] = {{"true", "false"}, {"yes", "no"}, {"on", "off"},
                                           {"t", "f"},        {"y", "n"},    {"1", "0"}};
    const char *text = ndp_yaml_text(node);
    for (int i = 0; text && i < NDP_COUNT(words); i++)
        for (int k = 0; k < 2; k++)
            if (strcasecmp(text, words[i][k]) == 0) {
                *out = k == 0;
                return true;
            }
    return false;
}

bool ndp_import_is_null(struct fy_node *node) {
    const char *text = ndp_yaml_text(node);
    return ndp_yaml_is_null(node) ||
           (text && ndp_yaml_is_plain(node) && (strcmp(text, "Null") == 0 || strcmp(text, "NULL") == 0));
}
