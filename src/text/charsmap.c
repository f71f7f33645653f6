/* Looking up replacements in the trie of the table, which is read as it is stored: every offset in it is checked when
 * it is followed, since the file may be damaged. Called by normalize.c. */
#include "text/charsmap.h"

#include "base/utf8.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { SHORT_GRAPHEME = 6 };

struct ndp_charsmap {
    unsigned char *bytes;
    uint32_t *units; /* [n_units], in `bytes` */
    size_t n_units;
    const char *texts; /* [n_texts], each zero-terminated */
    size_t n_texts;
};

static int base64_digit(char c) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *hit = c ? strchr(digits, c) : NULL;
    return hit ? (int)(hit - digits) : -1;
}

/* Bytes written, or -1. */
static int64_t base64_decode(const char *text, unsigned char *out) {
    uint32_t bits = 0;
    int64_t n = 0;
    int filled = 0;
    size_t length = strcspn(text, "=");
    for (size_t i = 0; i < length; i++) {
        int digit = base64_digit(text[i]);
        if (digit < 0)
            return -1;
        bits = bits << 6 | (uint32_t)digit;
        filled += 6;
        if (filled >= 8) {
            filled -= 8;
            out[n++] = (unsigned char)(bits >> filled);
        }
    }
    return length % 4 == 1 || strspn(text + length, "=") != strlen(text + length) ? -1 : n;
}

static ndp_status read_table(ndp_charsmap *m, const char *base64, const char *what) {
    int64_t n = base64_decode(base64, m->bytes);
    uint32_t trie = 0;
    if (n >= 4)
        memcpy(&trie, m->bytes, 4);
    if (n < 4 || trie % 4 || (int64_t)trie > n - 4 || !trie)
        return NDP_FAIL(NDP_EFORMAT, "%s: precompiled_charsmap is damaged", what);
    m->units = (uint32_t *)(void *)(m->bytes + 4);
    m->n_units = trie / 4;
    m->texts = (const char *)m->bytes + 4 + trie;
    m->n_texts = (size_t)n - 4 - trie;
    if (ndp_utf8_valid_prefix(m->texts, m->n_texts) < m->n_texts)
        return NDP_FAIL(NDP_EFORMAT, "%s: the texts of precompiled_charsmap are not valid UTF-8", what);
    return NDP_OK;
}

ndp_status ndp_charsmap_create(const char *base64, const char *what, ndp_charsmap **out) {
    ndp_charsmap *m = calloc(1, sizeof *m);
    if (m)
        m->bytes = calloc(strlen(base64) + 8, 1);
    ndp_status st = m && m->bytes ? read_table(m, base64, what)
                                  : NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for precompiled_charsmap", what);
    if (st == NDP_OK)
        *out = m;
    else
        ndp_charsmap_destroy(m);
    return st;
}

void ndp_charsmap_destroy(ndp_charsmap *m) {
    if (m)
        free(m->bytes);
    free(m);
}

/* The replacement for the shortest entry that `text` starts with, or NULL. An offset outside the table (damage) ends
 * the search. */
static const char *find(const ndp_charsmap *m, const char *text, size_t n) {
    size_t at = 0;
    uint32_t unit = m->units[0];
    at ^= (unit >> 10) << ((unit & 512) >> 6);
    for (size_t i = 0; i < n && text[i]; i++) {
        at ^= (unsigned char)text[i];
        if (at >= m->n_units || (m->units[at] & 0x800000ff) != (unsigned char)text[i])
            return NULL;
        unit = m->units[at];
        at ^= (unit >> 10) << ((unit & 512) >> 6);
        if (unit >> 8 & 1) {
            size_t value = at < m->n_units ? m->units[at] & 0x7fffffff : SIZE_MAX;
            return value < m->n_texts && ((unsigned char)m->texts[value] & 0xc0) != 0x80 ? m->texts + value : NULL;
        }
    }
    return NULL;
}

static void apply_grapheme(const ndp_charsmap *m, const char *text, size_t n, ndp_str *out) {
    const char *whole = n < SHORT_GRAPHEME ? find(m, text, n) : NULL;
    if (whole) {
        ndp_str_add(out, whole);
        return;
    }
    for (size_t at = 0, length; at < n; at += length) {
        length = ndp_utf8_length((unsigned char)text[at]);
        const char *part = find(m, text + at, length);
        if (part)
            ndp_str_add(out, part);
        else
            ndp_str_add_bytes(out, text + at, length);
    }
}

ndp_status ndp_charsmap_apply(const ndp_charsmap *m, ndp_span text, ndp_str *out) {
    utf8proc_int32_t state = 0, before = 0;
    size_t begin = 0;
    for (size_t at = 0, length; at < text.n; at += length) {
        length = ndp_utf8_length((unsigned char)text.data[at]);
        utf8proc_int32_t c = (utf8proc_int32_t)ndp_utf8_decode(text.data + at, length);
        if (at && utf8proc_grapheme_break_stateful(before, c, &state)) {
            apply_grapheme(m, text.data + begin, at - begin, out);
            begin = at;
        }
        before = c;
    }
    if (begin < text.n)
        apply_grapheme(m, text.data + begin, text.n - begin, out);
    return NDP_MEMORY(!out->failed, "to normalize %zu bytes of text", text.n);
}
