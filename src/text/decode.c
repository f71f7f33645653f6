/* Tokens to text, decoder by decoder: each reads all pieces and writes new ones, so a decoder may join or split
 * them. Called by tokenizer.c. */
#include "text/decode.h"

#include "base/arena.h"
#include "text/bytelevel.h"
#include <stdlib.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd"

/* ---- pieces ---- */

ndp_status ndp_pieces_add(ndp_pieces *p, const char *text, size_t n) {
    NDP_TRY(ndp_array_reserve(&p->ends, &p->capacity, p->n + 1, sizeof *p->ends));
    ndp_str_add_bytes(&p->text, text, n);
    NDP_CHECK_MEMORY(!p->text.failed, "to decode %lld tokens", (long long)p->n);
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

/* ---- byte tokens ---- */

/* The byte that "<0xE2>" stands for, or -1. */
static int byte_of(ndp_span token) {
    bool form = token.n == 6 && !memcmp(token.data, "<0x", 3) && token.data[5] == '>';
    return form ? ndp_hex_number(token.data + 3, 2) : -1;
}

static ndp_status end_of_bytes(ndp_str *bytes, ndp_pieces *to) {
    size_t n = bytes->length;
    NDP_CHECK_MEMORY(!bytes->failed, "to decode bytes");
    bytes->length = 0;
    if (n && ndp_utf8_valid_prefix(bytes->data, n) == n)
        return ndp_pieces_add(to, bytes->data, n);
    for (size_t i = 0; i < n; i++)
        NDP_TRY(ndp_pieces_add(to, REPLACEMENT, 3));
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

/* ---- bytes as characters ---- */

/* The bytes of a token. A token with a character that stands for no byte is taken literally. */
static void token_bytes(ndp_span token, ndp_str *out) {
    size_t before = out->length;
    for (size_t at = 0, length; at < token.n; at += length) {
        length = ndp_utf8_length((unsigned char)token.data[at]);
        int byte = ndp_character_byte(ndp_utf8_decode(token.data + at, length));
        if (byte < 0) {
            out->length = before;
            ndp_str_add_bytes(out, token.data, token.n);
            return;
        }
        char c = (char)byte;
        ndp_str_add_bytes(out, &c, 1);
    }
}

/* How many bytes at `text` form the start of a truncated or invalid character: one U+FFFD replaces them (Unicode's
 * "maximal subpart"). */
static size_t broken_length(const unsigned char *text, size_t n) {
    unsigned char lead = text[0];
    size_t length = lead >= 0xc2 && lead < 0xe0   ? 2
                    : lead >= 0xe0 && lead < 0xf0 ? 3
                    : lead >= 0xf0 && lead < 0xf5 ? 4
                                                  : 1;
    unsigned char low = lead == 0xe0   ? 0xa0
                        : lead == 0xf0 ? 0x90
                                       : 0x80,
                  high = lead == 0xed   ? 0x9f
                         : lead == 0xf4 ? 0x8f
                                        : 0xbf;
    size_t at = 1;
    for (; at < length && at < n && text[at] >= low && text[at] <= high; at++)
        low = 0x80, high = 0xbf;
    return at;
}

static ndp_status byte_level(const ndp_pieces *from, ndp_str *bytes, ndp_pieces *to) {
    for (int64_t i = 0; i < from->n; i++)
        token_bytes(piece(from, i), bytes);
    ndp_str text = {0};
    for (size_t at = 0; at < bytes->length;) {
        size_t valid = ndp_utf8_valid_prefix(bytes->data + at, bytes->length - at);
        ndp_str_add_bytes(&text, bytes->data + at, valid);
        at += valid;
        if (at == bytes->length)
            break;
        ndp_str_add(&text, REPLACEMENT);
        at += broken_length((const unsigned char *)bytes->data + at, bytes->length - at);
    }
    ndp_status st = bytes->failed || text.failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory to decode bytes")
                                                 : ndp_pieces_add(to, text.length ? text.data : "", text.length);
    ndp_str_release(&text);
    return st;
}

/* ---- decoders of single tokens ---- */

static ndp_span strip(const ndp_text_step *d, ndp_span token) {
    size_t n = strlen(d->content);
    for (int i = 0; i < d->start && token.n >= n && !memcmp(token.data, d->content, n); i++)
        token = (ndp_span){token.data + n, token.n - n};
    for (int i = 0; i < d->stop && token.n >= n && !memcmp(token.data + token.n - n, d->content, n); i++)
        token.n -= n;
    return token;
}

static ndp_status each(const ndp_text_step *d, const ndp_pieces *from, size_t limit, ndp_regex_scratch *regex,
                       ndp_str *scratch, ndp_pieces *to) {
    for (int64_t i = 0; i < from->n; i++) {
        ndp_span token = piece(from, i);
        if (d->kind == NDP_DECODER_STRIP) {
            token = strip(d, token);
        } else {
            const char *content = d->kind == NDP_DECODER_REPLACE ? d->content : d->start && i == 0 ? "" : " ";
            scratch->length = 0;
            NDP_TRY(ndp_regex_replace(d->pattern, regex, token, content, limit - to->text.length, scratch));
            token = (ndp_span){scratch->length ? scratch->data : "", scratch->length};
        }
        NDP_TRY(ndp_pieces_add(to, token.data, token.n));
    }
    return NDP_OK;
}

static ndp_status run(const ndp_text_step *d, const ndp_pieces *from, size_t limit, ndp_regex_scratch *regex,
                      ndp_str *scratch, ndp_pieces *to) {
    switch (d->kind) {
    case NDP_DECODER_FUSE:
        return ndp_pieces_add(to, from->n ? from->text.data : "", from->text.length);
    case NDP_DECODER_BYTE_FALLBACK:
        return byte_fallback(from, scratch, to);
    case NDP_DECODER_BYTE_LEVEL:
        return byte_level(from, scratch, to);
    default:
        return each(d, from, limit, regex, scratch, to);
    }
}

ndp_status ndp_decode_pieces(const ndp_text_steps *d, ndp_regex_scratch *regex, ndp_pieces *p) {
    size_t limit = ndp_growth_limit(p->text.length);
    for (int64_t i = 0; i < d->n; i++) {
        ndp_pieces next = {0};
        ndp_str scratch = {0};
        ndp_status st = run(&d->items[i], p, limit, regex, &scratch, &next);
        ndp_str_release(&scratch);
        ndp_pieces_release(st == NDP_OK ? p : &next);
        NDP_TRY(st);
        *p = next;
    }
    return NDP_OK;
}
