/* Tokens on disk: files are tokenized once, by several threads, into a cache that is keyed by content, and mapped from
 * then on. The threads share files at the borders of documents; their number changes nothing in the cache.
 *
 * A cache file is a header; the ids of all documents one behind the other (16 bits each where all fit, else 32), padded
 * to 8 bytes; the n_documents + 1 offsets of the documents, in tokens (64 bits); for every source the number of
 * documents up to its end (64 bits); and, where not all tokens are learned, a bit for each that says whether it is,
 * padded to 8 bytes. All little-endian. It is written beside, synced and renamed: several processes may prepare the
 * same one at the same time.
 */
#ifndef NDP_DATA_CACHE_H
#define NDP_DATA_CACHE_H

#include "data/record.h"

typedef struct ndp_dataset_options {
    const char *const *files; /* each a file, a folder or a pattern (files.h): a source */
    int n_files;
    ndp_record_format format; /* of JSON records */
    int bin_id_bytes;         /* of .bin files without a header: 2 or 4; 0: 2 */
    int64_t vocab;            /* ids in .bin files must be below; 0: the tokenizer's */
    const char *cache_dir;    /* NULL: $XDG_CACHE_HOME/ndparallel, else ~/.cache/ndparallel */
    const ndp_tokenizer *tokenizer;
    int threads;                                                             /* 0: all cores of this process */
    void (*progress)(void *user, uint64_t bytes_done, uint64_t bytes_total); /* while tokenizing; NULL is fine */
    void *progress_user;
    int64_t *left_out; /* becomes the number of files in folders that are of no kind that is read; NULL is fine */
} ndp_dataset_options;

/* Finds the cache of these files under this tokenizer and format, checks all of it, and builds it where it is missing
 * or damaged. *path names it; the caller frees. A text is what the tokenizer gives with its special tokens added: for a
 * model with a BOS that, then the text; a conversation is what its chat template gives (encode.h). One rank a node
 * calls this; the others wait, then open the same path. Where the nodes share no disk, one rank of each node prepares:
 * the name is the same, being made of contents alone. */
NDP_API ndp_status ndp_dataset_prepare(const ndp_dataset_options *o, char **path);

/* A mapped cache. */
typedef struct ndp_token_cache {
    ndp_mapped file;
    const void *ids; /* u16 or u32 */
    const uint64_t *offsets;
    const uint64_t *source_ends; /* [n_sources] */
    const uint8_t *learned;      /* bits; NULL: all are */
    int64_t n_documents, n_tokens;
    int n_sources, id_bytes;
    int32_t largest_id; /* must be below the model's vocabulary */
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
