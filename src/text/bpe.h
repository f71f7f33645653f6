/* Byte-pair encoding (Sennrich et al., 2016): starting from characters, the adjacent pair of lowest rank is merged
 * until no pair can be merged; of equal ranks the leftmost. bpe.c explains how this takes O(n log n). */
#ifndef NDP_TEXT_BPE_H
#define NDP_TEXT_BPE_H

#include "text/ids.h"
#include "text/vocab.h"

typedef struct ndp_bpe_merge {
    uint64_t pair; /* left << 32 | right; UINT64_MAX is free */
    uint32_t rank;
    int32_t product;
} ndp_bpe_merge;

typedef struct ndp_bpe {
    const ndp_vocab *vocab;
    ndp_bpe_merge *merges; /* open addressing */
    uint64_t mask;
    int32_t *char_ids;      /* [65536] ids of single characters of the basic plane; -1: none */
    uint64_t *joins;        /* bitmap over hashed (last, first) character pairs: some merge crosses such a border */
    uint32_t *first, *last; /* [vocab.n] characters of each token */
    int32_t byte_ids[256];  /* of "<0x00>".. ; all -1 without byte fallback */
    int32_t unknown;        /* id, or -1 */
    bool byte_fallback, fuse_unknown, ignore_merges;
} ndp_bpe;

/* Memory that one thread reuses from stretch to stretch; `{0}` at first. */
typedef struct ndp_bpe_scratch {
    struct ndp_bpe_symbol *symbols;
    uint64_t *heap; /* rank << 32 | position */
    int64_t n, capacity, heap_capacity;
} ndp_bpe_scratch;

/* Builds the tables, once `vocab` (borrowed) and the options are set. `pairs` are `n` merges (left, right), by rank. */
NDP_API ndp_status ndp_bpe_build(ndp_bpe *b, const char *what, const int32_t (*pairs)[2], int64_t n);
/* Appends the ids of valid UTF-8. NDP_EINVAL: a character has no token and there is no unknown token. */
NDP_API ndp_status ndp_bpe_encode(const ndp_bpe *b, const char *text, size_t n, ndp_bpe_scratch *s, ndp_ids *ids);
/* How many bytes at the start of a text can be encoded on their own: no merge and no run of unknown characters crosses
 * the end. Not for ignore_merges, which looks the whole text up. */
size_t ndp_bpe_stretch(const ndp_bpe *b, const char *text, size_t n);
void ndp_bpe_scratch_release(ndp_bpe_scratch *s);
void ndp_bpe_release(ndp_bpe *b);

#endif
