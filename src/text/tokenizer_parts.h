/* The parts of a tokenizer, for the files that load it and that run it. */
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
    bool bytes;         /* the built-in one; of the members below it uses only the ids */
    int32_t ids;        /* of a vocabulary of ids without texts (ndp_tokenizer_of_ids), their number; else 0 */
    char *why_no_texts; /* of one of those; else NULL */
    ndp_arena arena;
    ndp_added raw;                   /* added tokens, found in the raw text; */
    ndp_text_steps normalizers;      /* the stretches between them are normalized; */
    ndp_added normalized;            /* added tokens, found in the normalized text; */
    ndp_added rendered;              /* the same, and special ones as templates write them */
    ndp_pretokenizers pretokenizers; /* the rest is split into words, */
    ndp_words words;                 /* and words into tokens; the vocabulary includes the added tokens */
    ndp_text_steps decoders;
    bool join_by_space;     /* without decoders the reference joins tokens by spaces */
    bool *special;          /* [vocab.n] */
    ndp_ids prefix, suffix; /* ids that the post-processor adds */
    int32_t bos, eos;
    ndp_hash128 fingerprint;
    struct ndp_workbenches *benches; /* working memory of the threads that use it */
};

/* Fills an empty tokenizer from the text of a tokenizer.json. */
NDP_API ndp_status ndp_tokenizer_load(ndp_tokenizer *t, const char *text, size_t size, const char *what);
/* Sets bos and eos to the tokens named in tokenizer_config.json (`config`); tokens not named keep the post-processor's.
 * If that file has no added_tokens_decoder, special_tokens_map.json (`special`) overrides it: the rule of transformers
 * for older folders. Either file may be missing. */
NDP_API ndp_status ndp_tokenizer_load_config(ndp_tokenizer *t, const char *config, const char *special);

#endif
