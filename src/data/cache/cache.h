/* Tokens on disk: files are tokenized once, by several ranks and threads, into a cache that is keyed by content, and
 * mapped from then on. The ranks and threads share files at the borders of documents; their numbers change nothing in
 * the cache.
 *
 * A cache file is a header; the ids of all documents one behind the other (16 bits each where all fit, else 32), padded
 * to 8 bytes; the n_documents + 1 offsets of the documents, in tokens (64 bits); for every source the number of
 * documents up to its end (64 bits); and, where not all tokens are learned, a bit for each that says whether it is,
 * padded to 8 bytes. All little-endian. It is written beside, synced and renamed: several runs may prepare the same one
 * at the same time.
 */
#ifndef NDP_DATA_CACHE_CACHE_H
#define NDP_DATA_CACHE_CACHE_H

#include "data/corpus/record.h"

/* Ranks that prepare a data set together. */
typedef struct ndp_team {
    int rank, size;
    /* Collective: NDP_OK when `mine` is that on all ranks, else the same failure on all. */
    ndp_status (*agree)(void *user, ndp_status mine);
    /* Collective: all[size x bytes] = every rank's `mine`. `bytes` is a multiple of 4. */
    ndp_status (*gather)(void *user, const void *mine, void *all, int64_t bytes);
    void *user;
} ndp_team;

typedef struct ndp_dataset_options {
    const char *const *files; /* each a file, a folder or a pattern (files.h): a source */
    int n_files;
    ndp_record_format format; /* of JSON records */
    int bin_id_bytes;         /* of .bin files without a header: 2 or 4; 0: 2 */
    int64_t vocab;            /* of the model: ids must be below; 0: the tokenizer's */
    const char *cache_dir;    /* NULL: $XDG_CACHE_HOME/ndparallel, else ~/.cache/ndparallel */
    const ndp_tokenizer *tokenizer;
    const int32_t *end_token; /* of texts (encode.h); NULL: none */
    int threads;              /* of this rank; 0: all cores of this process */
    const ndp_team *team;     /* NULL: this rank alone */
    /* While tokenizing, of all ranks; told on the first rank of those that see a cache folder. NULL is fine. */
    void (*progress)(void *user, uint64_t bytes_done, uint64_t bytes_total);
    void *progress_user;
    ndp_hash128 *content; /* becomes the hash of the files' contents and their order, on the rank that looks for them;
                           * NULL is fine */
    int64_t *left_out;    /* becomes the number of files in folders that are of no kind that is read, on the rank that
                           * looks for them; NULL is fine */
} ndp_dataset_options;

/* Finds the cache of these files under this tokenizer and format, checks all of it, and builds it where it is missing
 * or damaged. *path names it; the caller frees. A text is what the tokenizer gives with its special tokens added: for a
 * model with a BOS that, then the text; a conversation is what its chat template gives (encode.h).
 *
 * Collective over the team. Ranks that see the same cache folder look and build together (crew.h): where the nodes
 * share that folder, all ranks build one cache; where they do not, each node's ranks build one for themselves. The name
 * is the same, being made of contents alone. A rank that does not see the files as the others do takes no part in the
 * work. */
NDP_API ndp_status ndp_dataset_prepare(const ndp_dataset_options *o, char **path);

/* A mapped cache, or one in memory (sample.h). */
typedef struct ndp_token_cache {
    ndp_mapped file;
    void *memory;    /* else */
    bool head;       /* made of the heads of files: there is more */
    const void *ids; /* u16 or u32 */
    const uint64_t *offsets;
    const uint64_t *source_ends; /* [n_sources] */
    const uint8_t *learned;      /* bits; NULL: all are */
    int64_t n_documents, n_tokens;
    int64_t n_texts; /* documents that are no conversations: those that get an end token */
    int n_sources, id_bytes;
    int32_t largest_id;  /* must be below the model's vocabulary */
    ndp_hash128 payload; /* hash of all ids, offsets, sources and bits; 0 in memory */
} ndp_token_cache;

/* NDP_EFORMAT when the header is damaged or the file was cut. */
NDP_API ndp_status ndp_token_cache_open(const char *path, ndp_token_cache *out);
void ndp_token_cache_close(ndp_token_cache *c);

static inline int32_t ndp_token_cache_id(const ndp_token_cache *c, int64_t at) {
    return c->id_bytes == 2 ? ((const uint16_t *)c->ids)[at] : (int32_t)((const uint32_t *)c->ids)[at];
}

/* Is the token one that the model learns to give? */
static inline bool ndp_token_cache_learned(const ndp_token_cache *c, int64_t at) {
    return !c->learned || (c->learned[at >> 3] >> (at & 7) & 1);
}

#endif
