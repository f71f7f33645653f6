/* Inside the infer room: decoding tokens one at a time. A character may take several tokens, so text is emitted only
 * once it is complete UTF-8. The concatenated output equals the decoded whole text. */
#ifndef NDP_INFER_TEXT_STREAM_H
#define NDP_INFER_TEXT_STREAM_H

#include "text/tokenizer.h"

typedef struct ndp_text_stream {
    const ndp_tokenizer *tokenizer;
    ndp_ids window; /* the anchor, then tokens not yet emitted */
    int64_t anchor; /* tokens that stand in for the text so far: decoders treat the start of a text differently */
    ndp_str anchor_text;
    bool begun; /* some text was emitted, or came before the stream */
} ndp_text_stream;

NDP_API ndp_status ndp_text_stream_init(ndp_text_stream *s, const ndp_tokenizer *t, bool begun);
void ndp_text_stream_release(ndp_text_stream *s);
/* Appends the text that the token completes to `out`: often its own text, sometimes nothing. Bytes that cannot become a
 * character any more become U+FFFD. */
NDP_API ndp_status ndp_text_stream_add(ndp_text_stream *s, int32_t id, ndp_str *out);
/* Appends the rest, when no token follows. */
NDP_API ndp_status ndp_text_stream_end(ndp_text_stream *s, ndp_str *out);

#endif
