/* Growing strings, suggestions by edit distance, and checking UTF-8. A string always has room for its terminator. */
#include "base/text.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static bool str_reserve(ndp_str *s, size_t more) {
    if (s->failed)
        return false;
    if (more < s->capacity - s->length)
        return true;
    size_t capacity = s->capacity ? s->capacity : 64;
    while (capacity <= s->length + more && capacity <= SIZE_MAX / 2)
        capacity *= 2;
    char *data = more < SIZE_MAX / 2 ? realloc(s->data, capacity) : NULL;
    if (!data) {
        s->failed = true;
        ndp_memory_lacked(capacity);
        return false;
    }
    s->data = data;
    s->capacity = capacity;
    return true;
}

void ndp_str_add_bytes(ndp_str *s, const void *bytes, size_t n) {
    if (!str_reserve(s, n))
        return;
    if (n)
        memcpy(s->data + s->length, bytes, n);
    s->length += n;
    s->data[s->length] = '\0';
}

void ndp_str_add(ndp_str *s, const char *text) { ndp_str_add_bytes(s, text, strlen(text)); }

__attribute__((format(printf, 2, 0))) static void str_addv(ndp_str *s, const char *fmt, va_list args) {
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    if (n < 0)
        s->failed = true;
    else if (str_reserve(s, (size_t)n)) {
        vsnprintf(s->data + s->length, (size_t)n + 1, fmt, args);
        s->length += (size_t)n;
    }
}

void ndp_str_add_choice(ndp_str *s, int i, int n, const char *word) {
    ndp_str_add(s, i == 0 ? "" : i == n - 1 ? " or " : ", ");
    ndp_str_add(s, word);
}

void ndp_str_addf(ndp_str *s, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    str_addv(s, fmt, args);
    va_end(args);
}

void ndp_str_add_number(ndp_str *s, double v) {
    char text[32];
    bool whole = fabs(v) < 1e15 && v == floor(v);
    snprintf(text, sizeof text, "%.0f", v);
    for (int digits = 1; digits <= 17 && !whole; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    ndp_str_add(s, text);
}

void ndp_str_release(ndp_str *s) {
    free(s->data);
    *s = (ndp_str){0};
}

char *ndp_str_detach(ndp_str *s) {
    ndp_str_add_bytes(s, "", 0); /* allocates even for an empty string */
    char *data = s->failed ? NULL : s->data;
    if (s->failed)
        free(s->data);
    *s = (ndp_str){0};
    return data;
}

char *ndp_vformat(const char *fmt, va_list args) {
    ndp_str s = {0};
    str_addv(&s, fmt, args);
    return ndp_str_detach(&s);
}

char *ndp_format(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    char *text = ndp_vformat(fmt, args);
    va_end(args);
    return text;
}

ndp_status ndp_strings_add(ndp_strings *list, const char *text) {
    char **items = realloc(list->items, ((size_t)list->n + 1) * sizeof *items), *copy = strdup(text);
    if (items)
        list->items = items;
    if (!items || !copy) {
        free(copy);
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for a list of %d texts", list->n + 1);
    }
    items[list->n++] = copy;
    return NDP_OK;
}

void ndp_strings_release(ndp_strings *list) {
    for (int i = 0; i < list->n; i++)
        free(list->items[i]);
    free(list->items);
    *list = (ndp_strings){0};
}

bool ndp_ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

char *ndp_human_bytes(double bytes, char out[16]) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    int unit = 0;
    while (bytes >= 1023.95 && unit < NDP_COUNT(units) - 1) { /* 1023.95 would print as 1024.0 */
        bytes /= 1024;
        unit++;
    }
    snprintf(out, 16, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
    return out;
}

enum { LONGEST_WORD = 63 };

/* The letters of a word, a bit each. */
static uint32_t letters_of(const char *word) {
    uint32_t set = 0;
    for (; *word; word++)
        set |= 1U << (*word & 31);
    return set;
}

/* Restricted Damerau-Levenshtein distance: inserts, deletes, replacements and swaps of neighbours cost 1; case is
 * ignored. `limit` if it is at least that, which lengths, letters and rows tell early. */
static int edit_distance(const char *a, const char *b, int limit) {
    int n = (int)strlen(a), m = (int)strlen(b), d[3][LONGEST_WORD + 1], before = 0;
    uint32_t in_a = letters_of(a), in_b = letters_of(b);
    if (abs(n - m) >= limit || __builtin_popcount(in_a & ~in_b) >= limit || __builtin_popcount(in_b & ~in_a) >= limit)
        return limit;
    for (int j = 0; j <= m; j++)
        d[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *row = d[i % 3], *above = d[(i + 2) % 3], *above2 = d[(i + 1) % 3], least = i;
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            int best = above[j - 1] + (x != y);
            best = above[j] + 1 < best ? above[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            bool swap =
                i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) && y == tolower((unsigned char)a[i - 2]);
            row[j] = swap && above2[j - 2] + 1 < best ? above2[j - 2] + 1 : best;
            least = row[j] < least ? row[j] : least;
        }
        if (least >= limit && before >= limit) /* a swap looks at two rows */
            return limit;
        before = least;
    }
    return d[n % 3][m] < limit ? d[n % 3][m] : limit;
}

const char *ndp_nearest(const char *word, const char *const *candidates, int n) {
    size_t length = word && candidates ? strlen(word) : 0;
    if (length == 0 || length > LONGEST_WORD)
        return NULL;
    int best = 2 + (int)length / 4; /* at most one typo per four letters, plus one */
    const char *nearest = NULL;
    for (int i = 0; i < n; i++) {
        if (strlen(candidates[i]) > LONGEST_WORD)
            continue;
        int distance = edit_distance(word, candidates[i], best);
        if (distance < best && distance < (int)length) {
            best = distance;
            nearest = candidates[i];
        }
    }
    return nearest;
}

static bool is_among(const char *name, const char *const *names, int n) {
    for (int i = 0; i < n; i++)
        if (names[i] == name)
            return true;
    return false;
}

int ndp_nearest_names(const char *word, const char *const *candidates, int n, int most, const char **out) {
    char start[LONGEST_WORD + 1];
    int found = 0;
    if (!word || !candidates || !out)
        return 0;
    snprintf(start, sizeof start, "%s", word);
    for (; found < most && found < n; found++) {
        int least = INT_MAX;
        for (int i = 0; i < n; i++) {
            int distance = strlen(candidates[i]) > LONGEST_WORD ? LONGEST_WORD
                                                                : edit_distance(start, candidates[i], LONGEST_WORD + 1);
            if (distance < least && !is_among(candidates[i], out, found)) {
                least = distance;
                out[found] = candidates[i];
            }
        }
    }
    return found;
}

bool ndp_pattern_repeats(const char *pattern) {
    int depth = 0, within = 0; /* brackets that are open; the first that repeats, from 1 */
    for (const char *at = pattern; *at; at++) {
        bool group = at[1] == '(' && strchr("?*+@!", *at), repeats = *at == '*' || (*at == '+' && group);
        if (repeats && within)
            return true;
        if (*at == '(')
            depth++;
        else if (*at == ')' && depth-- == within)
            within = 0;
        if (group && repeats)
            within = depth + 1;
        at += *at == '\\' && at[1];
    }
    return false;
}

int32_t ndp_hex_number(const char *digits, int n) {
    int32_t value = 0;
    for (int i = 0; i < n; i++) {
        char c = digits[i];
        if (!isxdigit((unsigned char)c))
            return -1;
        value = value << 4 | (isdigit((unsigned char)c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return value;
}

/* Length of the common characters of two and three bytes; 0 for others, which need a closer look. */
static size_t plain_character(const unsigned char *p, size_t n) {
    if (n >= 2 && p[0] >= 0xc2 && p[0] < 0xe0 && (p[1] & 0xc0) == 0x80)
        return 2;
    if (n >= 3 && p[0] > 0xe0 && p[0] < 0xf0 && p[0] != 0xed && (p[1] & 0xc0) == 0x80 && (p[2] & 0xc0) == 0x80)
        return 3;
    return 0;
}

size_t ndp_utf8_valid_prefix(const char *text, size_t n) {
    size_t at = 0;
    while (at < n) {
        uint64_t eight;
        if (n - at >= 8 && (memcpy(&eight, text + at, 8), (eight & 0x8080808080808080u) == 0)) {
            at += 8;
            continue;
        }
        const unsigned char *p = (const unsigned char *)text + at;
        size_t used = *p < 0x80 ? 1 : plain_character(p, n - at);
        if (!used) {
            utf8proc_int32_t codepoint;
            utf8proc_ssize_t length = utf8proc_iterate(p, (utf8proc_ssize_t)(n - at < 4 ? n - at : 4), &codepoint);
            if (length <= 0)
                return at;
            used = (size_t)length;
        }
        at += used;
    }
    return n;
}
