/* The file of a token cache, and a cache mapped from one.
 *
 *   header     ndp_cache_header
 *   ids        of all documents, one after the other: 16 bits each where every id fits, else 32; padded to 8 bytes
 *   offsets    n_documents + 1 of them, in tokens (64 bits)
 *   sources    for each source, the number of documents up to its end (64 bits)
 *   trained    only where some tokens are not trained on: one bit per token, padded to 8 bytes
 *   questions  the tokens with which later questions of conversations begin (64 bits)
 *   tally      what reading met (tally.h): it names files as they were called then, so `payload` leaves it out
 *
 * All numbers are little-endian. */
#ifndef NDP_DATA_CACHE_CACHE_FILE_H
#define NDP_DATA_CACHE_CACHE_FILE_H

#include "base/hash128.h"
#include "base/text.h"
#include "data/corpus/tally.h"

/* ---- the file ---- */

enum { NDP_CACHE_VERSION = 7 };
#define NDP_CACHE_MAGIC "NDPTOKEN"

typedef struct ndp_cache_header {
    char magic[8];
    uint32_t version, id_bytes;
    ndp_hash128 key;     /* of what it was made from; also the cache's name */
    ndp_hash128 payload; /* ndp_hash_blocks of ids, offsets, sources and bits */
    uint64_t n_documents, n_tokens, n_texts, n_questions;
    uint64_t tally_bytes, more_hash; /* more_hash: of what follows the payload, the questions and the tally */
    uint32_t n_sources, partly;      /* partly: there are `trained` bits */
    int64_t largest_id;
    uint64_t hash; /* of the header up to here */
} ndp_cache_header;

uint64_t ndp_cache_header_hash(const ndp_cache_header *h);
/* Including their padding. */
static inline uint64_t ndp_cache_ids_bytes(const ndp_cache_header *h) {
    return (h->n_tokens * h->id_bytes + 7) / 8 * 8;
}
static inline uint64_t ndp_cache_bits_bytes(const ndp_cache_header *h) {
    return h->partly ? (h->n_tokens + 63) / 64 * 8 : 0;
}
/* All that a run's identity covers: what is predicted, of what. */
static inline uint64_t ndp_cache_payload_bytes(const ndp_cache_header *h) {
    return ndp_cache_ids_bytes(h) + 8 * (h->n_documents + 1 + h->n_sources) + ndp_cache_bits_bytes(h);
}

/* All that follows. */
static inline uint64_t ndp_cache_more_bytes(const ndp_cache_header *h) { return 8 * h->n_questions + h->tally_bytes; }

/* "cannot write the token cache ...": adds the name and the remedy to an error of writing, which knows neither. */
NDP_API ndp_status ndp_cache_fail_writing(const char *path, const char *cause);

/* ---- the cache, mapped ---- */

/* A cache, mapped from a file or in memory (sample.h). */
typedef struct ndp_token_cache {
    ndp_mapped file;
    void *memory;    /* of a cache in memory */
    bool head;       /* made from the heads of files: there is more data */
    const void *ids; /* u16 or u32 */
    const uint64_t *offsets;
    const uint64_t *source_ends; /* [n_sources] */
    const uint64_t *questions;   /* [n_questions] tokens with which later questions of conversations begin; sorted */
    const uint8_t *trained;      /* one bit per token; NULL: all are trained on */
    int64_t n_documents, n_tokens, n_questions;
    int64_t n_texts; /* documents that are not conversations: they get an end token */
    int n_sources, id_bytes;
    int32_t largest_id;  /* must be below the model's vocabulary */
    ndp_hash128 payload; /* hash of all ids, offsets, sources and bits; 0 in memory */
    ndp_tally tally;     /* owned */
} ndp_token_cache;

/* NDP_EFORMAT: the header is damaged, or the file was cut. */
NDP_API ndp_status ndp_token_cache_open(const char *path, ndp_token_cache *out);
void ndp_token_cache_close(ndp_token_cache *c);

static inline int32_t ndp_token_cache_id(const ndp_token_cache *c, int64_t at) {
    return c->id_bytes == 2 ? ((const uint16_t *)c->ids)[at] : (int32_t)((const uint32_t *)c->ids)[at];
}

/* ndp_token_cache_open for bytes that are already mapped; on success the cache takes ownership of them. */
ndp_status ndp_token_cache_read(const char *path, const ndp_mapped *file, ndp_token_cache *out);

/* Whether the model is trained to predict this token. */
static inline bool ndp_token_cache_trained(const ndp_token_cache *c, int64_t at) {
    return !c->trained || (c->trained[at >> 3] >> (at & 7) & 1);
}

#endif
