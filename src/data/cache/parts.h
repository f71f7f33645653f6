/* Inside the data room: the parts of a corpus, the unit of work of a rank; each is tokenized into a file of its own.
 *
 * Parts are consecutive stretches of the data. They may end inside a file, at any byte: each record belongs to exactly
 * one part (ndp_source_cut). Archives and .json lists are not cut. The result does not depend on where parts end, so
 * their number is free. */
#ifndef NDP_DATA_CACHE_PARTS_H
#define NDP_DATA_CACHE_PARTS_H

#include "data/cache/corpus.h"
#include <stdio.h>

/* Where two parts meet: byte `at` of a file, as stored on disk. */
typedef struct ndp_cut {
    int64_t file;
    size_t at;
} ndp_cut;

typedef struct ndp_parts {
    ndp_cut *cuts; /* [n + 1]: part p goes from cut p to cut p + 1 */
    uint64_t *bytes;
    int64_t *source_ends; /* source i is parts [source_ends[i - 1], source_ends[i]) */
    int64_t n, capacity, bytes_capacity;
} ndp_parts;

/* Parts of about `want` bytes. */
ndp_status ndp_parts_plan(const ndp_corpus *c, uint64_t want, ndp_parts *out);
/* The source that part p is of. */
int ndp_parts_source(const ndp_parts *parts, int64_t p);
void ndp_parts_release(ndp_parts *p);

/* A part's file: this header; the ids, padded to 8 bytes; the ends of its documents (64 bits); the turns (64 bits); the
 * beginnings of later questions (64 bits); the tally (tally.h). All are counted in tokens of the part. Training on them
 * switches at each turn: tokens [0, turn 0) are trained on, [turn 0, turn 1) are not, [turn 1, turn 2) are, and so on.
 * A document that continues in the next part has its end there. */
typedef struct ndp_part_header {
    uint64_t n_tokens, n_documents, n_turns, n_questions, n_texts; /* n_texts: documents that are not conversations */
    uint64_t tally_bytes;
    int64_t largest_id;
} ndp_part_header;

typedef struct ndp_part_file {
    ndp_mapped file;
    ndp_part_header h;
    const void *ids;
    const uint64_t *ends, *turns, *questions;
    const char *tally;
} ndp_part_file;
ndp_status ndp_part_open(const char *path, int id_bytes, ndp_part_file *out);
/* Closes a part that was read with the status `st`: returns NDP_EIO if bytes of the file were lost, otherwise `st`. */
NDP_API ndp_status ndp_part_close(ndp_part_file *p, ndp_status st);

/* fwrite; the error does not name the file. */
NDP_API ndp_status ndp_part_put(FILE *f, const void *data, size_t n);

typedef struct ndp_part_watch {
    void (*done)(void *user, uint64_t bytes); /* of the part, so far */
    bool (*stopped)(void *user);              /* checked now and then: true ends the work */
    void *user;
} ndp_part_watch;
/* Tokenizes part p with all threads into the file `path`. Errors of writing do not name the file. */
ndp_status ndp_part_tokenize(const ndp_dataset_options *o, const ndp_corpus *c, const ndp_parts *parts, int64_t p,
                             const char *path, const ndp_part_watch *watch);

#endif
