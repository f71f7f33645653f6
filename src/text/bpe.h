/* Byte-pair encoding: starting from characters, the adjacent pair with the lowest rank is merged until none is left
 * (Sennrich et al., 2016; the leftmost of equals first).
 *
 * A text is first cut where no merge can ever reach across. Symbols are strings, and a merged symbol's first and last
 * characters are those of its parts; so between a symbol ending in x and one starting with y nothing can be merged
 * unless some merge joins "...x" and "y...". Pieces between such borders are merged on their own, in O(n log n) each.
 */
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
    int32_t *char_ids;      /* [65536] ids of the single characters of the basic plane, -1 where there is none */
    uint64_t *joins;        /* bitmap over hashed (last, first) pairs of characters: may this border be merged away? */
    uint32_t *first, *last; /* [vocab.n] characters of each token */
    int32_t byte_ids[256];  /* of "<0x00>".. ; all -1 without byte fallback */
    int32_t unknown;        /* id, or -1 */
    bool byte_fallback, fuse_unknown, ignore_merges;
} ndp_bpe;

/* Memory that one encoding call reuses from piece to piece; `{0}` at first. */
typedef struct ndp_bpe_scratch {
    struct ndp_bpe_symbol *symbols;
    uint64_t *heap; /* rank << 32 | position */
    int64_t n, capacity, heap_capacity;
} ndp_bpe_scratch;

/* Builds the tables once `vocab` and the options are set. `pairs` are `n` merges (left, right), in order of rank. The
 * vocabulary is borrowed. */
NDP_API ndp_status ndp_bpe_build(ndp_bpe *b, const char *what, const int32_t (*pairs)[2], int64_t n);
/* Appends the ids of valid UTF-8. NDP_EINVAL for a character that has no token where none stands for the unknown. */
NDP_API ndp_status ndp_bpe_encode(const ndp_bpe *b, const char *text, size_t n, ndp_bpe_scratch *s, ndp_ids *ids);
/* How many bytes at the begin of a text can be encoded on their own: no merge reaches beyond, and no run of unknown
 * characters. Not with ignore_merges, which looks for the whole of a text. */
size_t ndp_bpe_stretch(const ndp_bpe *b, const char *text, size_t n);
void ndp_bpe_scratch_release(ndp_bpe_scratch *s);
void ndp_bpe_release(ndp_bpe *b);

#endif
