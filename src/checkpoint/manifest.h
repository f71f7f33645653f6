/* manifest.json: what a checkpoint is, which files it consists of, and the hash of every byte of them. It is written
 * last, so a folder with a readable manifest was saved completely.
 *
 *   {
 *     "format": "ndparallel checkpoint",
 *     "version": 2,
 *     "step": 100, "samples": 800, "seed": 42,         one member per line
 *     "extra": {..},                                   the trainer's
 *     "files": [
 *       {"name": "model.safetensors", "bytes": 33554560, "chunks": [
 *         [0, 128, "5c0e.."],                          offset, bytes, XXH3-128; in order, without gaps or overlaps
 *         ..
 *       ]}
 *     ],
 *     "hash": "9a3f.."
 *   }
 *
 * The last member is the XXH3-128 of the file's own text without that member: of all bytes before the comma that
 * precedes it, and of the closing line. All members are required, and there are no others. Version 1 had neither chunks
 * nor a hash; it can be read but not verified. */
#ifndef NDP_CHECKPOINT_MANIFEST_H
#define NDP_CHECKPOINT_MANIFEST_H

#include "base/arena.h"
#include "base/json.h"
#include "base/text.h"
#include "checkpoint/hash.h"
#include "checkpoint/lock.h"

/* What the trainer saves besides tensors. */
typedef struct ndp_checkpoint_info {
    int64_t step;    /* updates done */
    int64_t samples; /* the data cursor: samples drawn so far by all ranks */
    int64_t seed;
    struct json_object *extra; /* borrowed; the run's identity and more; NULL: none */
    const ndp_lock *lock;      /* not in the manifest: the lock that rank 0 holds while saving; NULL: none */
} ndp_checkpoint_info;

/* A contiguous range of a file: written and hashed by one rank, verified by one rank. */
typedef struct ndp_chunk {
    int64_t offset, bytes;
    ndp_hash128 hash;
} ndp_chunk;

typedef struct ndp_manifest_file {
    const char *name;
    int64_t bytes;
    const ndp_chunk *chunks; /* sorted; they cover the file. Version 1: none */
    int64_t n_chunks;
} ndp_manifest_file;

typedef struct ndp_manifest {
    ndp_checkpoint_info info; /* extra lives as long as the manifest */
    int version;              /* 1: without hashes */
    ndp_hash128 hash;         /* of its text */
    ndp_manifest_file *files;
    int n_files;
    struct json_object *json;
    ndp_arena arena;
} ndp_manifest;

/* NDP_EFORMAT: damaged, or not a manifest; NDP_ENOTSUP: of a later version. Both name `what`. */
NDP_API ndp_status ndp_manifest_parse(const char *text, size_t size, const char *what, ndp_manifest *out);
/* Reads FOLDER/manifest.json and checks that every file is a regular file of its size, and that there are no other
 * weights. NDP_EFORMAT: any of this is damaged. */
NDP_API ndp_status ndp_manifest_read(const char *folder, ndp_manifest *out);
void ndp_manifest_release(ndp_manifest *m);
/* Checks that FOLDER/NAME is a regular file, not a link, of `bytes` bytes (< 0: any). NDP_EFORMAT: it is not; NDP_EIO:
 * that cannot be determined. */
NDP_API ndp_status ndp_manifest_file_check(const char *folder, const char *name, int64_t bytes);

/* The text of a manifest (version 2); freed by the caller. */
NDP_API ndp_status ndp_manifest_text(const ndp_checkpoint_info *info, const ndp_manifest_file *files, int n_files,
                                     char **out);
/* Completes a manifest's text, which so far lacks the hash and the closing line. */
void ndp_manifest_seal(ndp_str *text);

#endif
