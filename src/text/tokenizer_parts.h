/* What a tokenizer is made of; shared by the files that read it and that run it. */
#ifndef NDP_TEXT_TOKENIZER_PARTS_H
#define NDP_TEXT_TOKENIZER_PARTS_H

#include "base/hash128.h"
#include "text/added.h"
#include "text/decode.h"
#include "text/normalize.h"
#include "text/pretokenize.h"
#include "text/words.h"

/* Opaque outside the room (tokenizer.h). */
typedef struct ndp_tokenizer ndp_tokenizer;
struct ndp_tokenizer {
    bool bytes; /* the built-in one: nothing below but the ids is used */
    ndp_arena arena;
    ndp_added raw;                   /* added tokens found in the text as it came, */
    ndp_normalizers normalizers;     /* then each stretch between them is normalized, */
    ndp_added normalized;            /* those found in the normalized text are taken out, */
    ndp_pretokenizers pretokenizers; /* what is left is cut into words, */
    ndp_words words;                 /* and each word into tokens. Added tokens are in its vocabulary. */
    ndp_decoders decoders;
    bool join_by_space;     /* no decoder: tokens are joined by spaces, as in the reference */
    bool *special;          /* [vocab.n] */
    ndp_ids prefix, suffix; /* what the post-processor adds */
    int32_t bos, eos;
    ndp_hash128 fingerprint;
    struct ndp_workbenches *benches; /* memory for the threads that use it */
};

/* Fills an empty tokenizer from the text of a tokenizer.json. */
NDP_API ndp_status ndp_tokenizer_load(ndp_tokenizer *t, const char *text, size_t size, const char *what);
/* The same from the older pair of files vocab.json and merges.txt, with GPT-2's stages around them. */
NDP_API ndp_status ndp_tokenizer_load_pair(ndp_tokenizer *t, const char *vocab, size_t vocab_size, const char *merges,
                                           const char *folder);
/* bos and eos as tokenizer_config.json (`config`) names them, else as the post-processor does. A
 * special_tokens_map.json
 * (`special`) has the last word where the former has no added_tokens_decoder: the rule of transformers for older
 * folders. Either file may be missing. */
NDP_API ndp_status ndp_tokenizer_load_config(ndp_tokenizer *t, const char *config, const char *special);

#endif
