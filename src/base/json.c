/* json-c is never strict here: its strict mode accepts control characters, quotes, equal keys and zeros in keys, and
 * since version 0.18 refuses every string with a byte above 0x7f. The text is scanned before json-c parses it, some
 * pairs of surrogates that json-c gets wrong are rewritten, and the members are counted after: every version accepts
 * the same. */
#include "base/json.h"

#include "base/text.h"
#include "base/utf8.h"
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 128 };

ndp_status ndp_json_fail_at(const char *text, size_t size, size_t at, const char *what, const char *why) {
    int line = 1;
    size_t start = 0;
    for (size_t i = 0; i < at; i++)
        if (text[i] == '\n') {
            line++;
            start = i + 1;
        }
    bool lines = line > 1 || (at < size && memchr(text + at, '\n', size - at));
    char place[24] = "";
    if (lines)
        snprintf(place, sizeof place, ":%d", line);
    return NDP_FAIL(NDP_EFORMAT, "%s%s: %s, at byte %zu%s", what, place, why, at - start + 1,
                    lines ? " of the line" : "");
}

/* The code unit of "\\uD83D", or -1. */
static int32_t escaped_unit(const char *text, size_t n) {
    return n >= 6 && text[0] == '\\' && text[1] == 'u' ? ndp_hex_number(text + 2, 4) : -1;
}

enum { PAIR = 12 }; /* bytes of an escaped pair of surrogates */

/* Escaped surrogate pairs of characters whose last 16 bits look like a surrogate (U+1D800, U+2D800, ...): json-c turns
 * them into U+FFFD. The character, or 0 if the text does not start with such a pair. */
static uint32_t misread_pair(const char *text, size_t n) {
    int32_t high = escaped_unit(text, n), low = n >= PAIR ? escaped_unit(text + PAIR / 2, n - PAIR / 2) : -1;
    if (high < 0xd800 || high > 0xdbff || low < 0xdc00 || low > 0xdfff)
        return 0;
    uint32_t c = 0x10000u + ((uint32_t)(high - 0xd800) << 10) + (uint32_t)(low - 0xdc00);
    return (c & 0xf800) == 0xd800 ? c : 0;
}

/* The text, with such pairs replaced by their characters. */
static void write_pairs_out(const char *text, size_t size, ndp_str *out) {
    size_t done = 0;
    for (size_t i = 0; i < size; i++) {
        uint32_t c = text[i] == '\\' ? misread_pair(text + i, size - i) : 0;
        if (c) {
            char bytes[4];
            ndp_str_add_bytes(out, text + done, i - done);
            ndp_str_add_bytes(out, bytes, ndp_utf8_encode(c, bytes));
            done = i + PAIR;
        }
        i += c ? PAIR - 1 : text[i] == '\\';
    }
    ndp_str_add_bytes(out, text + done, size - done);
}

/* What a scan finds and does not reject. */
typedef struct findings {
    int64_t colons;  /* outside of strings: every member has one */
    bool misread;    /* there are surrogate pairs that json-c gets wrong */
    const char *lax; /* why the text is not JSON although json-c parses it; NULL: it is JSON if json-c does */
    size_t lax_at;   /* the first such place */
} findings;

/* Letters alone differ by 0x20 from those of the other case; the locale has no part in it. */
static bool same_letters(const char *a, const char *b, size_t n) {
    while (n > 0 && (a[n - 1] | 0x20) == (b[n - 1] | 0x20))
        n--;
    return n == 0;
}

static bool in_token(char c) { return isalnum((unsigned char)c) || c == '+' || c == '-' || c == '.'; }

/* Why a word or number that json-c accepts is not JSON, or NULL. 00, -01 and 01.5 are accepted, as in json-c's strict
 * mode. */
static const char *lax_token(const char *text, size_t n) {
    static const char *const words[] = {"true", "false", "null", "NaN", "Infinity", "-Infinity"};
    bool number = isdigit((unsigned char)text[0]);
    for (int i = 0; i < NDP_COUNT(words) && !number; i++)
        if (strlen(words[i]) == n && same_letters(text, words[i], n))
            return memcmp(text, words[i], n) == 0 ? NULL
                                                  : "upper and lower case matter: true, false, null, NaN, Infinity";
    if ((number || text[0] == '-') && n > 1 && strchr("eE+-", text[n - 1]))
        return "a number ends in e, E, + or -";
    size_t zeros = 0, digits;
    while (zeros < n && text[zeros] == '0')
        zeros++;
    for (digits = zeros; zeros > 0 && digits < n && isdigit((unsigned char)text[digits]);)
        digits++;
    return zeros < n && digits == n ? "a number begins with a zero" : NULL;
}

/* Looks for what only json-c takes in the token at `at`, outside of strings. Returns the bytes of the token. */
static size_t scan_token(const char *text, size_t size, size_t at, findings *f) {
    const char *why = text[at] == '/' ? "JSON has no comments" : NULL;
    size_t end = at + 1, place = at;
    if (text[at] == ',') {
        for (place = end; place < size && isspace((unsigned char)text[place]);)
            place++;
        why = place < size && (text[place] == ']' || text[place] == '}') ? "nothing follows the comma" : NULL;
    } else if (in_token(text[at])) {
        while (end < size && in_token(text[end]))
            end++;
        why = lax_token(text + at, end - at);
    }
    if (why && !f->lax)
        f->lax = why, f->lax_at = place;
    return end - at;
}

/* Rejects what also json-c's strict mode accepts: control characters, keys in single quotes, and keys with a zero,
 * where it would end them. */
static ndp_status scan(const char *text, size_t size, const char *what, findings *f) {
    bool quoted = false;
    size_t zero = SIZE_MAX; /* position of one in the last string */
    *f = (findings){0};
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 && (quoted || (c != '\t' && c != '\n' && c != '\r')))
            return ndp_json_fail_at(text, size, i, what, "a control character in JSON text");
        if (c == '"') {
            quoted = !quoted;
            zero = quoted ? SIZE_MAX : zero;
        } else if (quoted && c == '\\') {
            zero = size - i >= 6 && !memcmp(text + i, "\\u0000", 6) ? i : zero;
            f->misread |= misread_pair(text + i, size - i) != 0;
            i++;
        } else if (!quoted && c == '\'') {
            return ndp_json_fail_at(text, size, i, what, "JSON strings need double quotes");
        } else if (!quoted && c == ':') {
            if (zero != SIZE_MAX)
                return ndp_json_fail_at(text, size, zero, what, "a key with a zero character");
            f->colons++;
        } else if (!quoted) {
            i += scan_token(text, size, i, f) - 1;
        }
    }
    return NDP_OK;
}

static int64_t count_members(struct json_object *o) {
    int64_t n = 0;
    if (json_object_is_type(o, json_type_object)) {
        json_object_object_foreach(o, key, value) {
            (void)key;
            n += 1 + count_members(value);
        }
    } else if (json_object_is_type(o, json_type_array)) {
        for (size_t i = 0; i < json_object_array_length(o); i++)
            n += count_members(json_object_array_get_idx(o, i));
    }
    return n;
}

/* Why json-c stopped at `end`, or NULL. The first thing that is wrong is reported. */
static const char *why_not(enum json_tokener_error error, size_t size, size_t *end, const findings *f) {
    if (error == json_tokener_continue || error == json_tokener_error_parse_eof)
        *end = size;
    if (f->lax && f->lax_at <= *end) {
        *end = f->lax_at;
        return f->lax;
    }
    switch (error) {
    case json_tokener_success:
        return *end < size ? "text follows the JSON value" : NULL;
    case json_tokener_continue:
    case json_tokener_error_parse_eof:
        return "the JSON text ends before its value does";
    case json_tokener_error_depth:
        return "nested deeper than 128 levels";
    default:
        return json_tokener_error_desc(error);
    }
}

static ndp_status parse_value(struct json_tokener *tok, const char *text, size_t size, const char *what,
                              const findings *f, struct json_object **out) {
    struct json_object *o = json_tokener_parse_ex(tok, text, (int)size);
    size_t end = json_tokener_get_parse_end(tok);
    if (json_tokener_get_error(tok) == json_tokener_continue) {
        o = json_tokener_parse_ex(tok, "", 1); /* completes a bare number; anything else is truncated */
        end = size;
    }
    const char *why = why_not(json_tokener_get_error(tok), size, &end, f);
    ndp_status st = why ? ndp_json_fail_at(text, size, end, what, why) : NDP_OK;
    if (!why && count_members(o) != f->colons) /* json-c silently keeps the last of two equal keys */
        st = NDP_FAIL(NDP_EFORMAT, "%s: an object has the same key twice", what);
    if (st == NDP_OK)
        *out = o;
    else
        json_object_put(o);
    return st;
}

static ndp_status parse_text(const char *text, size_t size, const char *what, const findings *f,
                             struct json_object **out) {
    struct json_tokener *tok = json_tokener_new_ex(DEPTH);
    if (!tok)
        return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory to parse %zu bytes of JSON", what, size);
    ndp_status st = parse_value(tok, text, size, what, f, out);
    json_tokener_free(tok);
    return st;
}

ndp_status ndp_json_parse(const char *text, size_t size, const char *what, struct json_object **out) {
    if (size >= INT_MAX)
        return NDP_FAIL(NDP_EFORMAT, "%s: %zu bytes of JSON; at most 2 GiB can be read", what, size);
    size_t valid = ndp_utf8_valid_prefix(text, size);
    if (valid < size)
        return ndp_json_fail_at(text, size, valid, what, "not valid UTF-8");
    findings f;
    ndp_str mended = {0};
    ndp_status st = scan(text, size, what, &f);
    if (st == NDP_OK && f.misread) {
        write_pairs_out(text, size, &mended);
        text = mended.data, size = mended.length;
        st = mended.failed ? NDP_FAIL(NDP_ENOMEM, "%s: not enough memory to parse %zu bytes of JSON", what, size)
                           : scan(text, size, what, &f);
    }
    if (st == NDP_OK)
        st = parse_text(text, size, what, &f, out);
    ndp_str_release(&mended);
    return st;
}

ndp_status ndp_json_read(const char *path, struct json_object **out) {
    return NDP_FILE_PARSE(NDP_FILE_CONFIG, path, text, size, ndp_json_parse(text, size, path, out));
}

static ndp_status fail_type(const char *what, const char *key, struct json_object *found, const char *expected) {
    const char *text = json_object_to_json_string_ext(found, JSON_C_TO_STRING_PLAIN);
    return NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is %.60s%s, expected %s", what, key, text ? text : "?",
                    text && strlen(text) > 60 ? "..." : "", expected);
}

ndp_status ndp_json_int(struct json_object *o, const char *what, const char *key, int64_t low, int64_t high,
                        int64_t *out) {
    struct json_object *value = json_object_object_get(o, key);
    if (!value)
        return NDP_OK;
    if (!json_object_is_type(value, json_type_int))
        return fail_type(what, key, value, "a whole number");
    int64_t v = json_object_get_int64(value);
    bool huge = v == INT64_MAX && json_object_get_uint64(value) != INT64_MAX;
    if (huge || v < low || v > high) {
        char range[64];
        snprintf(range, sizeof range, "a whole number from %lld to %lld", (long long)low, (long long)high);
        return fail_type(what, key, value, range);
    }
    *out = v;
    return NDP_OK;
}

ndp_status ndp_json_double(struct json_object *o, const char *what, const char *key, double *out) {
    struct json_object *value = json_object_object_get(o, key);
    if (!value)
        return NDP_OK;
    if (!json_object_is_type(value, json_type_int) && !json_object_is_type(value, json_type_double))
        return fail_type(what, key, value, "a number");
    *out = json_object_get_double(value);
    return NDP_OK;
}

ndp_status ndp_json_bool(struct json_object *o, const char *what, const char *key, bool *out) {
    struct json_object *value = json_object_object_get(o, key);
    if (!value)
        return NDP_OK;
    if (!json_object_is_type(value, json_type_boolean))
        return fail_type(what, key, value, "true or false");
    *out = json_object_get_boolean(value);
    return NDP_OK;
}

ndp_status ndp_json_string(struct json_object *o, const char *what, const char *key, const char **out) {
    struct json_object *value = json_object_object_get(o, key);
    if (!value)
        return NDP_OK;
    const char *text = ndp_json_text(value);
    if (!text)
        return fail_type(what, key, value, "a string without zero characters");
    *out = text;
    return NDP_OK;
}

const char *ndp_json_text(struct json_object *value) {
    if (!json_object_is_type(value, json_type_string))
        return NULL;
    const char *text = json_object_get_string(value);
    return strlen(text) == (size_t)json_object_get_string_len(value) ? text : NULL;
}
