/* Inside the infer room: tokens to text as they come. A character may take several tokens: text is given out only once
 * it is whole UTF-8, in the words that a decode of the whole text has there. */
#ifndef NDP_INFER_TEXT_STREAM_H
#define NDP_INFER_TEXT_STREAM_H

#include "text/tokenizer.h"

typedef struct ndp_text_stream {
    const ndp_tokenizer *tokenizer;
    ndp_ids window; /* the anchor, then tokens not yet given out */
    int64_t anchor; /* tokens that stand for the text before: decoders treat the beginning of a text differently */
    ndp_str anchor_text;
    bool begun; /* some text comes before */
} ndp_text_stream;

NDP_API ndp_status ndp_text_stream_init(ndp_text_stream *s, const ndp_tokenizer *t, bool begun);
void ndp_text_stream_release(ndp_text_stream *s);
/* Appends to `out` what the token makes whole, often its own text, at times nothing. Bytes that can no longer become a
 * character are U+FFFD. */
NDP_API ndp_status ndp_text_stream_add(ndp_text_stream *s, int32_t id, ndp_str *out);
/* What is left when no token follows. */
NDP_API ndp_status ndp_text_stream_end(ndp_text_stream *s, ndp_str *out);

#endif
