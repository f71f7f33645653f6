/* Tokenized files (.bin): consecutive ids of 16 or 32 bits each, little-endian.
 *
 * They may start with llm.c's header of 256 32-bit words: magic, version, number of tokens; 20240520 and 1 mean 16-bit
 * ids, 20240801 and 7 mean 32-bit ids. Files without one (nanoGPT) need the width as an option; 32-bit ids read as
 * 16-bit ones are detected.
 *
 * Documents: if the first id is the begin token, each begin token starts one; otherwise each end token ends one. If the
 * tokenizer has neither, the file is one document.
 */
#ifndef NDP_DATA_CORPUS_BIN_H
#define NDP_DATA_CORPUS_BIN_H

#include "text/ids.h"

typedef struct ndp_bin {
    const char *path;          /* borrowed */
    const unsigned char *data; /* the file's bytes */
    size_t header;             /* bytes before the ids */
    int id_bytes;
    int64_t n;
} ndp_bin;

/* Checks header and size. `id_bytes`: 2 or 4, for a file without a header. NDP_EFORMAT: an incomplete id, another
 * number of ids than the header says, or another version. */
NDP_API ndp_status ndp_bin_open(const char *path, const void *contents, size_t size, int id_bytes, ndp_bin *out);

typedef struct ndp_bin_rule {
    int32_t bos, eos; /* -1: none */
    int64_t vocab;    /* ids must be below it */
} ndp_bin_rule;

/* A growing list of positions; `{0}` is an empty one. */
typedef struct ndp_places {
    int64_t *items;
    int64_t n, capacity;
} ndp_places;
NDP_API ndp_status ndp_places_add(ndp_places *p, int64_t at);

/* Appends the ids [first, end), and to `ends` the ends of documents in them, as positions in `ids`; a document that
 * continues after `end` has no end yet. NDP_EFORMAT names an id not below `vocab`, and its byte in the file. */
NDP_API ndp_status ndp_bin_read(const ndp_bin *b, int64_t first, int64_t end, const ndp_bin_rule *rule, ndp_ids *ids,
                                ndp_places *ends);

#endif
