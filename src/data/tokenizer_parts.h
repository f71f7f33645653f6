/* What a tokenizer is made of; shared by the files that read it and that run it. */
#ifndef NDP_DATA_TOKENIZER_PARTS_H
#define NDP_DATA_TOKENIZER_PARTS_H

#include "data/bpe.h"
#include "data/stages.h"
#include "data/tokenizer.h"

struct ndp_tokenizer {
    bool bytes; /* the built-in one: nothing below but the ids is used */
    ndp_arena arena;
    ndp_matcher raw;        /* added tokens found in the text as it came, */
    ndp_stages normalizers; /* then each stretch between them is normalized, */
    ndp_matcher normalized; /* and those found in the normalized text are taken out, */
    ndp_bpe bpe;            /* and the model does the rest. Added tokens are in its vocabulary. */
    ndp_stages decoders;
    bool join_by_space;     /* no decoder: tokens are joined by spaces, as in the reference */
    bool *special;          /* [vocab.n] */
    ndp_ids prefix, suffix; /* what the post-processor adds */
    int32_t bos, eos;
    ndp_hash128 fingerprint;
};

/* Fills an empty tokenizer from the text of a tokenizer.json. */
NDP_API ndp_status ndp_tokenizer_load(ndp_tokenizer *t, const char *text, size_t size, const char *what);
/* bos and eos from a tokenizer_config.json, where the post-processor did not name them. */
NDP_API ndp_status ndp_tokenizer_load_config(ndp_tokenizer *t, const char *path);

#endif
