#include "data/stages.h"

#include "data/utf8.h"
#include <string.h>

/* ---- text ---- */

/* A few stages of "a" -> "aaaa..." would fill any memory; no tokenizer that people use makes a text 64 times longer. */
static size_t growth_limit(size_t n) { return ((size_t)1 << 20) + 64 * n; }

static ndp_status fail_growth(size_t limit) {
    return NDP_FAIL(NDP_EFORMAT, "the tokenizer's replacements make a text longer than %zu bytes of it", limit);
}

/* Stops once `out` is longer than `limit`. */
static void replace(ndp_span text, const char *pattern, const char *content, size_t limit, ndp_str *out) {
    size_t n = strlen(pattern), m = strlen(content), from = 0;
    const char *hit;
    while (out->length <= limit && !out->failed && (hit = memmem(text.data + from, text.n - from, pattern, n))) {
        size_t at = (size_t)(hit - text.data);
        ndp_str_add_bytes(out, text.data + from, at - from);
        ndp_str_add_bytes(out, content, m);
        from = at + n;
    }
    ndp_str_add_bytes(out, text.data + from, text.n - from);
}

ndp_status ndp_normalize(const ndp_stages *stages, ndp_span text, ndp_str *a, ndp_str *b, ndp_span *out) {
    size_t limit = growth_limit(text.n);
    for (int64_t i = 0; i < stages->n && text.n; i++) {
        const ndp_stage *s = &stages->items[i];
        ndp_str *to = i % 2 ? b : a; /* the other one holds `text` */
        to->length = 0;
        if (s->kind == NDP_STAGE_PREPEND) {
            ndp_str_add(to, s->content);
            ndp_str_add_bytes(to, text.data, text.n);
        } else if (s->kind == NDP_STAGE_REPLACE) {
            replace(text, s->pattern, s->content, limit, to);
        } else {
            return NDP_FAIL(NDP_EBUG, "stage %d is no normalizer", (int)s->kind);
        }
        if (to->failed)
            return NDP_FAIL(NDP_ENOMEM, "not enough memory to normalize %zu bytes of text", text.n);
        if (to->length > limit)
            return fail_growth(limit);
        text = (ndp_span){to->data, to->length};
    }
    *out = text;
    return NDP_OK;
}

/* ---- tokens to text ---- */

ndp_status ndp_pieces_add(ndp_pieces *p, const char *text, size_t n) {
    NDP_TRY(ndp_array_reserve(&p->ends, &p->capacity, p->n + 1, sizeof *p->ends));
    ndp_str_add_bytes(&p->text, text, n);
    if (p->text.failed)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory to decode %lld tokens", (long long)p->n);
    p->ends[p->n++] = (int64_t)p->text.length;
    return NDP_OK;
}

void ndp_pieces_release(ndp_pieces *p) {
    ndp_str_release(&p->text);
    free(p->ends);
    *p = (ndp_pieces){0};
}

static ndp_span piece(const ndp_pieces *p, int64_t i) {
    int64_t from = i ? p->ends[i - 1] : 0;
    return (ndp_span){p->text.data + from, (size_t)(p->ends[i] - from)};
}

/* The byte that "<0xE2>" stands for, or -1. */
static int byte_of(ndp_span token) {
    if (token.n != 6 || memcmp(token.data, "<0x", 3) || token.data[5] != '>')
        return -1;
    int value = 0;
    for (int i = 3; i < 5; i++) {
        char c = token.data[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        value = 16 * value + digit;
    }
    return value;
}

static ndp_status end_of_bytes(ndp_str *bytes, ndp_pieces *to) {
    size_t n = bytes->length;
    if (bytes->failed)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory to decode bytes");
    bytes->length = 0;
    if (n && ndp_utf8_valid_prefix(bytes->data, n) == n)
        return ndp_pieces_add(to, bytes->data, n);
    for (size_t i = 0; i < n; i++)
        NDP_TRY(ndp_pieces_add(to, "\xef\xbf\xbd", 3));
    return NDP_OK;
}

static ndp_status byte_fallback(const ndp_pieces *from, ndp_str *bytes, ndp_pieces *to) {
    for (int64_t i = 0; i < from->n; i++) {
        ndp_span token = piece(from, i);
        int byte = byte_of(token);
        if (byte >= 0) {
            char c = (char)byte;
            ndp_str_add_bytes(bytes, &c, 1);
            continue;
        }
        NDP_TRY(end_of_bytes(bytes, to));
        NDP_TRY(ndp_pieces_add(to, token.data, token.n));
    }
    return end_of_bytes(bytes, to);
}

static ndp_span strip(const ndp_stage *s, ndp_span token) {
    size_t n = strlen(s->content);
    for (int i = 0; i < s->start && token.n >= n && !memcmp(token.data, s->content, n); i++)
        token = (ndp_span){token.data + n, token.n - n};
    for (int i = 0; i < s->stop && token.n >= n && !memcmp(token.data + token.n - n, s->content, n); i++)
        token.n -= n;
    return token;
}

static ndp_status decode_stage(const ndp_stage *s, const ndp_pieces *from, size_t limit, ndp_pieces *to) {
    ndp_str scratch = {0};
    ndp_status st = NDP_OK;
    if (s->kind == NDP_STAGE_FUSE)
        st = ndp_pieces_add(to, from->text.data, from->text.length);
    else if (s->kind == NDP_STAGE_BYTE_FALLBACK)
        st = byte_fallback(from, &scratch, to);
    else
        for (int64_t i = 0; i < from->n && st == NDP_OK; i++) {
            ndp_span token = piece(from, i);
            if (s->kind == NDP_STAGE_STRIP) {
                token = strip(s, token);
            } else {
                scratch.length = 0;
                replace(token, s->pattern, s->content, limit, &scratch);
                token = (ndp_span){scratch.data, scratch.length};
            }
            st = to->text.length + token.n > limit ? fail_growth(limit)
                 : scratch.failed                  ? NDP_FAIL(NDP_ENOMEM, "not enough memory to decode")
                                                   : ndp_pieces_add(to, token.data, token.n);
        }
    ndp_str_release(&scratch);
    return st;
}

ndp_status ndp_decode_pieces(const ndp_stages *stages, ndp_pieces *p) {
    size_t limit = growth_limit(p->text.length);
    for (int64_t i = 0; i < stages->n; i++) {
        ndp_pieces next = {0};
        ndp_status st = decode_stage(&stages->items[i], p, limit, &next);
        ndp_pieces_release(st == NDP_OK ? p : &next);
        NDP_TRY(st);
        *p = next;
    }
    return NDP_OK;
}

/* ---- added tokens ---- */

ndp_status ndp_matcher_add(ndp_matcher *m, ndp_added_token token) {
    NDP_TRY(ndp_array_reserve(&m->tokens, &m->capacity, m->n + 1, sizeof *m->tokens));
    m->tokens[m->n++] = token;
    return NDP_OK;
}

static int by_first_byte_then_length(const void *a, const void *b) {
    const ndp_added_token *x = a, *y = b;
    int first = (unsigned char)x->text[0] - (unsigned char)y->text[0];
    if (first)
        return first;
    return x->length != y->length ? (x->length < y->length ? 1 : -1) : x->id - y->id;
}

void ndp_matcher_build(ndp_matcher *m) {
    if (m->n)
        qsort(m->tokens, (size_t)m->n, sizeof *m->tokens, by_first_byte_then_length);
    int32_t i = 0;
    for (int c = 0; c < 257; c++) {
        m->first[c] = i;
        while (c < 256 && i < m->n && (unsigned char)m->tokens[i].text[0] == c)
            i++;
    }
}

const ndp_added_token *ndp_matcher_find(const ndp_matcher *m, ndp_span text, size_t from, size_t *at) {
    for (size_t i = from; m->n && i < text.n; i++) {
        unsigned char c = (unsigned char)text.data[i];
        for (int32_t k = m->first[c]; k < m->first[c + 1]; k++) {
            const ndp_added_token *t = &m->tokens[k];
            if (t->length <= text.n - i && !memcmp(text.data + i, t->text, t->length)) {
                *at = i;
                return t;
            }
        }
    }
    return NULL;
}
