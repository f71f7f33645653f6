/* Tokens to text: decoders, one behind the other. */
#ifndef NDP_TEXT_DECODE_H
#define NDP_TEXT_DECODE_H

#include "text/regex.h"

typedef enum ndp_decoder_kind {
    NDP_DECODER_REPLACE,       /* matches in each token by content */
    NDP_DECODER_BYTE_FALLBACK, /* runs of "<0xE2>" to characters, U+FFFD for each byte of a run that is none */
    NDP_DECODER_BYTE_LEVEL,    /* GPT-2's characters to bytes, all tokens to one; U+FFFD for what is not UTF-8 */
    NDP_DECODER_METASPACE,     /* content by spaces, in the first token by nothing where `start` is not 0 */
    NDP_DECODER_FUSE,          /* all tokens to one */
    NDP_DECODER_STRIP          /* content off each token, up to `start` times in front and `stop` behind */
} ndp_decoder_kind;

typedef struct ndp_decoder {
    ndp_decoder_kind kind;
    ndp_regex *pattern;  /* owned */
    const char *content; /* in the tokenizer's arena */
    int start, stop;
} ndp_decoder;

typedef struct ndp_decoders {
    ndp_decoder *items;
    int64_t n, capacity;
} ndp_decoders;
void ndp_decoders_release(ndp_decoders *d);

/* Tokens on their way to being text: one behind the other, token i ends at ends[i]. */
typedef struct ndp_pieces {
    ndp_str text;
    int64_t *ends;
    int64_t n, capacity;
} ndp_pieces;
NDP_API ndp_status ndp_pieces_add(ndp_pieces *p, const char *text, size_t n);
void ndp_pieces_release(ndp_pieces *p);
/* Runs the decoders in place. */
NDP_API ndp_status ndp_decode_pieces(const ndp_decoders *d, ndp_regex_scratch *regex, ndp_pieces *p);

#endif
