/* Bytes of tokens, by decoding a token alone and twice: the second one is in the middle of a text. Each token is
 * decoded when it is first needed. Called by infer/. */
#include "text/token_bytes.h"

#include <stdlib.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd"

ndp_status ndp_token_bytes_init(ndp_token_bytes *b, const ndp_tokenizer *t) {
    size_t n = (size_t)ndp_tokenizer_vocab_size(t);
    *b = (ndp_token_bytes){.tokenizer = t, .first = malloc((n + 1) * sizeof(int32_t)), .inside = malloc((n + 1) * 4)};
    if (!b->first || !b->inside) {
        ndp_token_bytes_release(b);
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the lengths of %zu tokens", n);
    }
    memset(b->inside, -1, n * sizeof *b->inside);
    return NDP_OK;
}

void ndp_token_bytes_release(ndp_token_bytes *b) {
    free(b->first);
    free(b->inside);
    ndp_str_release(&b->text);
    *b = (ndp_token_bytes){0};
}

/* The length of the text of a token, `times` times. */
static ndp_status decoded_length(ndp_token_bytes *b, int32_t id, int times, int32_t *n) {
    const int32_t ids[] = {id, id};
    b->text.length = 0;
    NDP_TRY(ndp_tokenizer_decode(b->tokenizer, ids, times, true, &b->text));
    NDP_CHECK_MEMORY(!b->text.failed, "to decode a token");
    *n = (int32_t)b->text.length;
    return NDP_OK;
}

/* The bytes of a token that is a part of a character, which decodes to U+FFFD; -1 for all others. The vocabulary spells
 * one byte as <0xE2>, or every byte as a character. */
static int32_t partial_length(const ndp_token_bytes *b, int32_t id) {
    ndp_span token = ndp_tokenizer_token(b->tokenizer, id);
    bool broken = b->text.length && memmem(b->text.data, b->text.length, REPLACEMENT, 3);
    if (!broken || !token.data || memmem(token.data, token.n, REPLACEMENT, 3))
        return -1;
    if (token.n == 6 && memcmp(token.data, "<0x", 3) == 0)
        return 1;
    int32_t characters = 0;
    for (size_t i = 0; i < token.n; i++)
        characters += ((unsigned char)token.data[i] & 0xc0) != 0x80;
    return characters;
}

static ndp_status measure(ndp_token_bytes *b, int32_t id) {
    int32_t twice = 0;
    NDP_TRY(decoded_length(b, id, 1, &b->first[id]));
    int32_t partial = partial_length(b, id);
    NDP_TRY(decoded_length(b, id, 2, &twice));
    b->inside[id] = partial >= 0 ? partial : twice - b->first[id];
    if (partial >= 0)
        b->first[id] = partial;
    return NDP_OK;
}

ndp_status ndp_token_bytes_of(ndp_token_bytes *b, int32_t id, bool first, int64_t *bytes) {
    NDP_CHECK(id >= 0 && id < ndp_tokenizer_vocab_size(b->tokenizer), "there is no token %d", id);
    if (b->inside[id] < 0)
        NDP_TRY(measure(b, id));
    *bytes = first ? b->first[id] : b->inside[id];
    return NDP_OK;
}
