/* The unigram model: of all ways to cut a text into tokens the one with the highest sum of scores (Kudo, 2018), found
 * by Viterbi's algorithm with the reference's order of sums and ties. A character that no token covers costs 10 less
 * than the lowest score.
 *
 * A text is first cut where no token reaches across: all ways meet there, and memory is that of one stretch. */
#ifndef NDP_TEXT_UNIGRAM_H
#define NDP_TEXT_UNIGRAM_H

#include "base/text.h"
#include "text/ids.h"
#include "text/prefixes.h"
#include "text/vocab.h"

typedef struct ndp_unigram {
    const ndp_vocab *vocab;
    double *scores; /* [pieces]; owned */
    int64_t pieces; /* ids below are the model's, those from here on are added tokens */
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

/* Takes `scores`, one for each of the ids that the vocabulary has now. */
void ndp_unigram_init(ndp_unigram *u, const ndp_vocab *vocab, double *scores, int32_t unknown, bool byte_fallback);
/* Once no more is added to the vocabulary, whose strings the index borrows; before anything is encoded. */
NDP_API ndp_status ndp_unigram_build(ndp_unigram *u);
void ndp_unigram_release(ndp_unigram *u);
void ndp_unigram_scratch_release(ndp_unigram_scratch *s);
/* Appends the ids of valid UTF-8. NDP_EINVAL for a character that has no token where none stands for the unknown. */
NDP_API ndp_status ndp_unigram_encode(const ndp_unigram *u, ndp_span text, ndp_unigram_scratch *s, ndp_ids *ids);

#endif
