/* A cursor over a JSON text, and finding parts of the text by brackets and quotes alone, so that long lists are neither
 * parsed twice nor held as objects. What is skipped without being read is checked when a cursor reads it. */
#include "base/json_lists.h"

#include "base/utf8.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ndp_status fail_here(const ndp_json_cursor *c, const char *wanted) {
    char why[80];
    snprintf(why, sizeof why, "expected %s", wanted);
    return ndp_json_fail_at(c->text, c->end, c->at, c->what, why);
}

void ndp_json_cursor_release(ndp_json_cursor *c) { ndp_str_release(&c->string); }

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static void skip_blanks(ndp_json_cursor *c) {
    while (c->at < c->end && is_blank(c->text[c->at]))
        c->at++;
}

bool ndp_json_accept(ndp_json_cursor *c, char wanted) {
    skip_blanks(c);
    if (c->at == c->end || c->text[c->at] != wanted)
        return false;
    c->at++;
    return true;
}

ndp_status ndp_json_expect(ndp_json_cursor *c, char wanted) {
    return ndp_json_accept(c, wanted) ? NDP_OK : fail_here(c, (char[]){'\'', wanted, '\'', '\0'});
}

ndp_status ndp_json_next_entry(ndp_json_cursor *c, char close, bool first, bool *more) {
    *more = !ndp_json_accept(c, close);
    if (*more && !first)
        NDP_TRY(ndp_json_expect(c, ','));
    return NDP_OK;
}

ndp_status ndp_json_end(ndp_json_cursor *c) {
    skip_blanks(c);
    return c->at == c->end ? NDP_OK : fail_here(c, "the end of the text");
}

/* ---- strings ---- */

/* Four hexadecimal digits, or -1. */
static int32_t code_unit(ndp_json_cursor *c) {
    int32_t unit = c->end - c->at >= 4 ? ndp_hex_number(c->text + c->at, 4) : -1;
    c->at += unit >= 0 ? 4 : 0;
    return unit;
}

/* Reads what follows "\u": one code unit, or a surrogate pair. */
static ndp_status unicode_escape(ndp_json_cursor *c) {
    int32_t unit = code_unit(c), low = 0;
    bool high = unit >= 0xd800 && unit < 0xdc00;
    if (high && c->end - c->at >= 2 && c->text[c->at] == '\\' && c->text[c->at + 1] == 'u') {
        c->at += 2;
        low = code_unit(c);
    }
    if (unit < 0 || (high && (low < 0xdc00 || low > 0xdfff)) || (unit >= 0xdc00 && unit < 0xe000))
        return fail_here(c, "\\u with the number of a character");
    uint32_t x = high ? 0x10000u + ((uint32_t)(unit - 0xd800) << 10) + (uint32_t)(low - 0xdc00) : (uint32_t)unit;
    char bytes[4];
    ndp_str_add_bytes(&c->string, bytes, ndp_utf8_encode(x, bytes));
    return NDP_OK;
}

static ndp_status escape(ndp_json_cursor *c) {
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char letter = c->at < c->end ? c->text[c->at] : '\0';
    const char *hit = letter ? strchr(letters, letter) : NULL;
    if (!hit && letter != 'u')
        return fail_here(c, "a known escape");
    c->at++;
    if (!hit)
        return unicode_escape(c);
    ndp_str_add_bytes(&c->string, &values[hit - letters], 1);
    return NDP_OK;
}

/* Reads the characters up to the next quote or backslash. */
static size_t plain_length(const ndp_json_cursor *c) {
    size_t at = c->at;
    while (at < c->end && (unsigned char)c->text[at] >= 0x20 && c->text[at] != '"' && c->text[at] != '\\')
        at++;
    return at - c->at;
}

ndp_status ndp_json_next_string(ndp_json_cursor *c, const char **string, size_t *length) {
    if (!ndp_json_accept(c, '"'))
        return fail_here(c, "a string");
    size_t n = plain_length(c);
    *string = c->text + c->at;
    *length = n;
    c->at += n;
    if (c->at < c->end && c->text[c->at] == '"') { /* no escapes: borrowed from the text */
        c->at++;
        return NDP_OK;
    }
    c->string.length = 0;
    ndp_str_add_bytes(&c->string, *string, n);
    while (c->at < c->end && c->text[c->at] == '\\') {
        c->at++;
        NDP_TRY(escape(c));
        n = plain_length(c);
        ndp_str_add_bytes(&c->string, c->text + c->at, n);
        c->at += n;
    }
    if (c->at == c->end || c->text[c->at] != '"')
        return fail_here(c, "the end of a string");
    c->at++;
    *string = c->string.data;
    *length = c->string.length;
    return c->string.failed ? NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for a string", c->what) : NDP_OK;
}

/* ---- numbers ---- */

/* Skips digits, at least one; NULL: there is none. */
static const char *digits(const char *p) {
    size_t n = p ? strspn(p, "0123456789") : 0;
    return n ? p + n : NULL;
}

/* Whether it is a number in JSON's syntax. */
static bool is_number(const char *text, bool whole) {
    const char *first = text + (text[0] == '-'), *p = digits(first);
    if (!p || (first[0] == '0' && p > first + 1))
        return false;
    if (!whole && *p == '.')
        p = digits(p + 1);
    if (!whole && p && (*p == 'e' || *p == 'E'))
        p = digits(p + 1 + (p[1] == '-' || p[1] == '+'));
    return p && !*p;
}

/* Copies a number; `whole`: without a fraction or an exponent. */
static ndp_status number(ndp_json_cursor *c, bool whole, char out[64]) {
    size_t n = 0;
    skip_blanks(c);
    while (c->at + n < c->end && n < 63 && c->text[c->at + n] && strchr("+-.0123456789eE", c->text[c->at + n]))
        n++;
    memcpy(out, c->text + c->at, n);
    out[n] = '\0';
    if (n == 63 || !is_number(out, whole))
        return fail_here(c, whole ? "a whole number" : "a number");
    c->at += n;
    return NDP_OK;
}

ndp_status ndp_json_next_int(ndp_json_cursor *c, int64_t *out) {
    char text[64];
    NDP_TRY(number(c, true, text));
    errno = 0;
    long long value = strtoll(text, NULL, 10);
    if (errno)
        return fail_here(c, "a whole number of 64 bits");
    *out = value;
    return NDP_OK;
}

/* Appends a digit to a 64-bit number; false, without a change, if it does not fit. */
static bool add_digit(uint64_t *number, char digit) {
    uint64_t next;
    if (__builtin_mul_overflow(*number, 10, &next) || __builtin_add_overflow(next, (uint64_t)(digit - '0'), &next))
        return false;
    *number = next;
    return true;
}

/* 10^exponent for 0 <= exponent <= 308, rounded to nearest. */
static double power_of_ten(int64_t exponent) {
    char text[8];
    snprintf(text, sizeof text, "1e%d", (int)exponent);
    return strtod(text, NULL);
}

/* serde_json's f64_from_parts: significand x 10^exponent by one multiplication or division; infinite if too large. */
static double scale(uint64_t significand, int64_t exponent) {
    double value = (double)significand;
    for (; value != 0 && exponent < -308; exponent += 308)
        value /= 1e308;
    if (value == 0)
        return value;
    if (exponent > 308)
        return HUGE_VAL;
    return exponent < 0 ? value / power_of_ten(-exponent) : value * power_of_ten(exponent);
}

/* A JSON number, rounded as serde_json rounds it: digits that do not fit into 64 bits are dropped. */
static double round_as_serde(const char *text) {
    bool negative = text[0] == '-', fraction = false, full = false;
    uint64_t significand = 0;
    int64_t exponent = 0;
    const char *p = text + negative;
    for (; *p == '.' || (*p >= '0' && *p <= '9'); p++) {
        if (*p == '.') {
            fraction = true;
            full = false;
            continue;
        }
        full = full || !add_digit(&significand, *p);
        exponent += full ? !fraction : -fraction;
    }
    if (*p) {
        long long e = strtoll(p + 1, NULL, 10);
        exponent += e > 100000 ? 100000 : e < -100000 ? -100000 : e;
    }
    double value = scale(significand, exponent);
    return negative ? -value : value;
}

ndp_status ndp_json_next_double(ndp_json_cursor *c, double *out) {
    char text[64];
    NDP_TRY(number(c, false, text));
    double value = round_as_serde(text);
    if (!isfinite(value))
        return fail_here(c, "a number that a double can hold");
    *out = value;
    return NDP_OK;
}

/* ---- finding parts ---- */

/* Skips the string that starts at `at`; returns the text's end if it has no end. */
static size_t skip_string(const char *text, size_t size, size_t at) {
    for (at++; at < size && text[at] != '"'; at++)
        if (text[at] == '\\')
            at++;
    return at < size ? at + 1 : size;
}

/* Skips the object or array that starts at `at`. */
static size_t skip_list(const char *text, size_t size, size_t at) {
    int64_t depth = 0;
    while (at < size) {
        char c = text[at];
        if (c == '"') {
            at = skip_string(text, size, at);
            continue;
        }
        at++;
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        if (!depth)
            break;
    }
    return at;
}

/* Skips any value, looking only at brackets and strings. */
static size_t skip_value(const char *text, size_t size, size_t at) {
    if (text[at] == '"')
        return skip_string(text, size, at);
    if (text[at] == '{' || text[at] == '[')
        return skip_list(text, size, at);
    while (at < size && !strchr(",]}", text[at]))
        at++;
    return at;
}

ndp_status ndp_json_next_value(ndp_json_cursor *c, const char **value, size_t *length) {
    skip_blanks(c);
    size_t begin = c->at;
    if (begin < c->end)
        c->at = skip_value(c->text, c->end, begin);
    if (c->at == begin)
        return fail_here(c, "a value");
    *value = c->text + begin;
    *length = c->at - begin;
    return NDP_OK;
}

/* Records where the parts are that belong to the object at `at`; stops if there is no object. */
static void find_members(const char *text, size_t size, size_t at, ndp_json_part *parts, int n) {
    ndp_json_cursor c = {.text = text, .at = at, .end = size};
    if (!ndp_json_accept(&c, '{'))
        return;
    do {
        skip_blanks(&c);
        size_t name = c.at;
        if (name == size || text[name] != '"')
            return;
        size_t end = c.at = skip_string(text, size, name);
        if (!ndp_json_accept(&c, ':'))
            return;
        skip_blanks(&c);
        size_t value = c.at;
        if (value == size)
            return;
        c.at = skip_value(text, size, value);
        bool list = text[value] == '{' || text[value] == '[';
        for (int i = 0; i < n && list; i++)
            if (!parts[i].end && end - name - 2 == strlen(parts[i].key) &&
                !memcmp(text + name + 1, parts[i].key, end - name - 2)) {
                parts[i].begin = value;
                parts[i].end = c.at;
            }
    } while (ndp_json_accept(&c, ','));
}

static void find_parts(const char *text, size_t size, const char *object, ndp_json_part *parts, int n) {
    ndp_json_part whole = {.key = object};
    find_members(text, size, 0, &whole, 1);
    for (int i = 0; i < n; i++)
        parts[i].begin = parts[i].end = 0;
    if (whole.end)
        find_members(text, whole.end, whole.begin, parts, n);
}

/* The text without the contents of the parts, which are sorted. */
static void cut_out(const char *text, size_t size, const ndp_json_part *const *parts, int n, ndp_str *out) {
    size_t done = 0;
    for (int i = 0; i < n; i++)
        if (parts[i]->end) {
            ndp_str_add_bytes(out, text + done, parts[i]->begin + 1 - done);
            done = parts[i]->end - 1;
        }
    ndp_str_add_bytes(out, text + done, size - done);
}

static int in_order(const void *a, const void *b) {
    const ndp_json_part *x = *(const ndp_json_part *const *)a, *y = *(const ndp_json_part *const *)b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Reports an error in the shortened text with its position in the whole text. */
ndp_status ndp_json_parse_without(const char *text, size_t size, const char *what, const char *object,
                                  ndp_json_part *parts, int n, struct json_object **out) {
    const ndp_json_part *sorted[8];
    if (n > NDP_COUNT(sorted))
        return NDP_FAIL(NDP_EBUG, "%d parts of a JSON text", n);
    if (ndp_utf8_valid_prefix(text, size) < size)
        return ndp_json_parse(text, size, what, out);
    find_parts(text, size, object, parts, n);
    for (int i = 0; i < n; i++)
        sorted[i] = &parts[i];
    qsort(sorted, (size_t)n, sizeof *sorted, in_order);
    ndp_str rest = {0};
    cut_out(text, size, sorted, n, &rest);
    ndp_status st = rest.failed ? NDP_FAIL(NDP_ENOMEM, "%s: not enough memory to parse %zu bytes of JSON", what, size)
                                : ndp_json_parse(rest.data ? rest.data : "", rest.length, what, out);
    ndp_str_release(&rest);
    if (st != NDP_EFORMAT)
        return st;
    for (int i = 0; i < n; i++)
        parts[i].begin = parts[i].end = 0;
    return ndp_json_parse(text, size, what, out);
}
