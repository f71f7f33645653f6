/* Incremental decoding. The waiting tokens are decoded after a fixed anchor token, whose text is then removed, since a
 * decoder may drop a space at the start of a text. Text is emitted when it does not end in a replacement character. */
#include "infer/text_stream.h"

#include <string.h>

static const char REPLACEMENT[] = "\xef\xbf\xbd";
enum { REPLACEMENT_LENGTH = 3, LONGEST_CHARACTER = 4 };

ndp_status ndp_text_stream_init(ndp_text_stream *s, const ndp_tokenizer *t, bool begun) {
    *s = (ndp_text_stream){.tokenizer = t, .begun = begun};
    if (ndp_tokenizer_why_no_texts(t))
        return NDP_OK;
    ndp_status st = ndp_tokenizer_encode(t, "a", 1, false, &s->window);
    s->anchor = s->window.n;
    if (st == NDP_OK)
        st = ndp_tokenizer_decode(t, s->window.items, s->anchor, true, &s->anchor_text);
    if (st != NDP_OK)
        ndp_text_stream_release(s);
    return st;
}

void ndp_text_stream_release(ndp_text_stream *s) {
    ndp_ids_release(&s->window);
    ndp_str_release(&s->anchor_text);
    *s = (ndp_text_stream){0};
}

/* The text of the first n waiting tokens, as it reads after other text if `begun`. *whole: it ends with a complete
 * character. */
static ndp_status text_of(const ndp_text_stream *s, bool begun, int64_t n, ndp_str *text, bool *whole) {
    int64_t from = begun ? 0 : s->anchor;
    size_t skip = begun ? s->anchor_text.length : 0;
    text->length = 0;
    NDP_TRY(ndp_tokenizer_decode(s->tokenizer, s->window.items + from, s->anchor + n - from, true, text));
    if (text->length < skip || (skip && memcmp(text->data, s->anchor_text.data, skip) != 0)) {
        /* a run of byte tokens is invalid as a whole, including the byte of the anchor */
        text->length = 0;
        ndp_str_add(text, REPLACEMENT);
    } else if (skip) {
        text->length -= skip;
        memmove(text->data, text->data + skip, text->length + 1);
    }
    *whole = text->length < REPLACEMENT_LENGTH ||
             memcmp(text->data + text->length - REPLACEMENT_LENGTH, REPLACEMENT, REPLACEMENT_LENGTH) != 0;
    return NDP_MEMORY(!text->failed, "to decode");
}

/* Emits the text of the first n waiting tokens. At the start of a text they may decode to nothing, but to a space after
 * other text; then the text has also begun. */
static ndp_status give_out(ndp_text_stream *s, int64_t n, ndp_str *text, ndp_str *out) {
    bool unused;
    ndp_str_add_bytes(out, text->data, text->length);
    if (!s->begun)
        NDP_TRY(text_of(s, true, n, text, &unused));
    s->begun |= text->length > 0;
    int32_t *waiting = s->window.items + s->anchor;
    s->window.n -= n;
    memmove(waiting, waiting + n, (size_t)(s->window.n - s->anchor) * sizeof *waiting);
    return NDP_OK;
}

/* Emits waiting tokens until at most `hold` are left. If more are waiting and the text is still incomplete, the first
 * token does not start a character, and is emitted by itself. */
static ndp_status flush(ndp_text_stream *s, int64_t hold, ndp_str *out) {
    ndp_str text = {0};
    ndp_status st = NDP_OK;
    while (st == NDP_OK && s->window.n > s->anchor) {
        int64_t waiting = s->window.n - s->anchor;
        bool whole;
        st = text_of(s, s->begun, waiting, &text, &whole);
        if (st == NDP_OK && !whole && waiting <= hold)
            break;
        if (st == NDP_OK && !whole)
            st = text_of(s, s->begun, waiting = 1, &text, &whole);
        if (st == NDP_OK)
            st = give_out(s, waiting, &text, out);
    }
    ndp_str_release(&text);
    return st == NDP_OK && out->failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory for text") : st;
}

ndp_status ndp_text_stream_add(ndp_text_stream *s, int32_t id, ndp_str *out) {
    if (ndp_tokenizer_why_no_texts(s->tokenizer))
        return NDP_OK;
    NDP_TRY(ndp_ids_add(&s->window, id));
    return flush(s, LONGEST_CHARACTER - 1, out);
}

ndp_status ndp_text_stream_end(ndp_text_stream *s, ndp_str *out) { return flush(s, 0, out); }
