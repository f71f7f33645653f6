/* The unigram model (Kudo, 2018): of all ways to split a text into tokens, the one with the highest sum of scores. A
 * character that no token covers costs 10 less than the lowest score. unigram.c has the algorithm. */
#ifndef NDP_TEXT_UNIGRAM_H
#define NDP_TEXT_UNIGRAM_H

#include "base/text.h"
#include "text/ids.h"
#include "text/prefixes.h"
#include "text/vocab.h"

typedef struct ndp_unigram {
    const ndp_vocab *vocab;
    double *scores; /* [pieces]; owned */
    int64_t pieces; /* ids below are the model's, the others are added tokens */
    ndp_prefixes index;
    double unknown_score;
    int32_t unknown;       /* id, or -1 */
    int32_t byte_ids[256]; /* of "<0x00>".. ; all -1 without byte fallback */
} ndp_unigram;

typedef struct ndp_unigram_scratch {
    struct ndp_unigram_node *nodes;
    int32_t *path;
    int64_t capacity, path_capacity;
} ndp_unigram_scratch;

/* Takes ownership of `scores`, one for each id that the vocabulary has now. */
void ndp_unigram_init(ndp_unigram *u, const ndp_vocab *vocab, double *scores, int32_t unknown, bool byte_fallback);
/* Builds the index, which borrows the vocabulary's strings: after the last token was added, before encoding. */
NDP_API ndp_status ndp_unigram_build(ndp_unigram *u);
void ndp_unigram_release(ndp_unigram *u);
void ndp_unigram_scratch_release(ndp_unigram_scratch *s);
/* Appends the ids of valid UTF-8. NDP_EINVAL: a character has no token and there is no unknown token. */
NDP_API ndp_status ndp_unigram_encode(const ndp_unigram *u, ndp_span text, ndp_unigram_scratch *s, ndp_ids *ids);

#endif
