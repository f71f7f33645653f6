/* Tokenized files (.bin): ids one behind the other, 16 or 32 bits each, little-endian.
 *
 * Before them there may be llm.c's header of 256 32-bit words: magic, version, number of tokens; 20240520 and 1 are
 * 16-bit ids, 20240801 and 7 are 32-bit ids. Where such a file has none (nanoGPT), the width has to be told; 32-bit ids
 * that are told to be 16-bit ones are noticed.
 *
 * Documents: where the first id is the begin token, each begin token begins one; else each end token ends one. Where
 * the tokenizer has neither, the file is one document.
 */
#ifndef NDP_DATA_CORPUS_BIN_H
#define NDP_DATA_CORPUS_BIN_H

#include "text/ids.h"

typedef struct ndp_bin {
    const char *path;          /* borrowed */
    const unsigned char *data; /* of the file */
    size_t header;             /* bytes before the ids */
    int id_bytes;
    int64_t n;
} ndp_bin;

/* Checks the header and the size. `id_bytes`: 2 or 4, of a file without a header. NDP_EFORMAT: ids that are cut,
 * another number of them than the header says, another version. */
NDP_API ndp_status ndp_bin_open(const char *path, const void *contents, size_t size, int id_bytes, ndp_bin *out);

typedef struct ndp_bin_rule {
    int32_t bos, eos; /* -1: none */
    int64_t vocab;    /* ids must be below */
} ndp_bin_rule;

/* A growing list of places; `{0}` is an empty one. */
typedef struct ndp_places {
    int64_t *items;
    int64_t n, capacity;
} ndp_places;
NDP_API ndp_status ndp_places_add(ndp_places *p, int64_t at);

/* Appends the ids [first, end), and to `ends` where documents end in them, counted in `ids`; a document that goes on
 * behind `end` has no end yet. NDP_EFORMAT names an id that is not below `vocab`, and its byte in the file. */
NDP_API ndp_status ndp_bin_read(const ndp_bin *b, int64_t first, int64_t end, const ndp_bin_rule *rule, ndp_ids *ids,
                                ndp_places *ends);

#endif
