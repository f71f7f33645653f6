/* Slices of splits (slice.h): datasets' ReadInstruction with its rounding `closest`. */
#include "data/corpus/slice.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* "-10%", or nothing. Underscores between digits are allowed, as in Python. */
static bool take_end(const char **text, bool *has, bool *percent, int64_t *out) {
    const char *at = *text;
    bool minus = *at == '-';
    int64_t n = 0;
    int digits = 0;
    at += minus;
    for (; (*at >= '0' && *at <= '9') || (*at == '_' && digits); at++)
        if (*at != '_') {
            if (++digits > 18)
                return false;
            n = 10 * n + (*at - '0');
        }
    *has = digits > 0;
    if (!*has && minus)
        return false;
    if (*has && *at == '%') {
        *percent = true;
        at++;
    }
    *out = minus ? -n : n;
    *text = at;
    return true;
}

bool ndp_slice_cut(const char *text, size_t *length, ndp_slice *out) {
    const char *open = *length && text[*length - 1] == ']' ? memchr(text, '[', *length) : NULL, *at = open;
    ndp_slice s = {.given = true};
    *out = (ndp_slice){0};
    if (!open)
        return true;
    at++;
    if (!take_end(&at, &s.has_from, &s.percent, &s.from) || *at++ != ':' ||
        !take_end(&at, &s.has_to, &s.percent, &s.to) || at != text + *length - 1)
        return false;
    if (s.percent && (llabs(s.from) > 100 || llabs(s.to) > 100))
        return false;
    *length = (size_t)(open - text);
    *out = s;
    return true;
}

static int64_t record_of(const ndp_slice *s, int64_t end, int64_t n) {
    int64_t at = s->percent ? (int64_t)rint((double)(end * n) / 100.0) : end;
    at = at < 0 ? at + n : at;
    return at < 0 ? 0 : at > n ? n : at;
}

void ndp_slice_bounds(const ndp_slice *s, int64_t n, int64_t *first, int64_t *end) {
    *first = s->has_from ? record_of(s, s->from, n) : 0;
    *end = s->has_to ? record_of(s, s->to, n) : n;
}
