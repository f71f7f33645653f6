/* Tokens to text: decoders, applied in sequence. */
#ifndef NDP_TEXT_DECODE_H
#define NDP_TEXT_DECODE_H

#include "text/text_steps.h"

typedef enum ndp_decoder_kind {
    NDP_DECODER_REPLACE,       /* replaces matches within each token by `content` */
    NDP_DECODER_BYTE_FALLBACK, /* runs of "<0xE2>" become characters; each byte of an invalid run becomes U+FFFD */
    NDP_DECODER_BYTE_LEVEL,    /* joins all tokens, GPT-2's characters become bytes; invalid UTF-8 becomes U+FFFD */
    NDP_DECODER_METASPACE,     /* `content` becomes a space; in the first token it is removed if `start` is not 0 */
    NDP_DECODER_FUSE,          /* joins all tokens */
    NDP_DECODER_STRIP /* removes `content` from each token, up to `start` times at its front, `stop` at its end */
} ndp_decoder_kind;

/* Tokens on their way to text, one after the other; token i ends at ends[i]. */
typedef struct ndp_pieces {
    ndp_str text;
    int64_t *ends;
    int64_t n, capacity;
} ndp_pieces;
NDP_API ndp_status ndp_pieces_add(ndp_pieces *p, const char *text, size_t n);
void ndp_pieces_release(ndp_pieces *p);
/* Runs the decoders in place. */
NDP_API ndp_status ndp_decode_pieces(const ndp_text_steps *d, ndp_regex_scratch *regex, ndp_pieces *p);

#endif
