/* How many bytes of UTF-8 a token adds to a text. Their sum over the tokens of a text is the length of the text that
 * these tokens decode to. Tokens of a part of a character count their own bytes; special tokens have none. */
#ifndef NDP_TEXT_TOKEN_BYTES_H
#define NDP_TEXT_TOKEN_BYTES_H

#include "text/tokenizer.h"

typedef struct ndp_token_bytes {
    const ndp_tokenizer *tokenizer; /* borrowed */
    int32_t *first, *inside;        /* of each id: at the beginning of a text, and in it; -1: not known yet */
    ndp_str text;
} ndp_token_bytes;

NDP_API ndp_status ndp_token_bytes_init(ndp_token_bytes *b, const ndp_tokenizer *t);
void ndp_token_bytes_release(ndp_token_bytes *b);
/* `first`: the token begins a text, where some tokenizers add a space to it that the text does not have. */
NDP_API ndp_status ndp_token_bytes_of(ndp_token_bytes *b, int32_t id, bool first, int64_t *bytes);

#endif
