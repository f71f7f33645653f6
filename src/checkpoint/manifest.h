/* manifest.json: what a checkpoint is, which files make it whole, and the hash of every byte of them. It is written
 * last, so a folder with a readable one was saved to the end.
 *
 *   {
 *     "format": "ndparallel checkpoint",
 *     "version": 2,
 *     "step": 100, "samples": 800, "seed": 42,         a member a line
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
 * precedes it, and of the closing line. All members are required, and there are no others. Version 1 had neither
 * chunks nor a hash; it can be read, not verified. */
#ifndef NDP_CHECKPOINT_MANIFEST_H
#define NDP_CHECKPOINT_MANIFEST_H

#include "base/arena.h"
#include "base/json.h"
#include "base/text.h"
#include "checkpoint/hash.h"
#include "checkpoint/lock.h"

/* What the trainer keeps besides tensors. */
typedef struct ndp_checkpoint_info {
    int64_t step;    /* updates done */
    int64_t samples; /* the data cursor: samples drawn so far, of all ranks */
    int64_t seed;
    struct json_object *extra; /* an object of the caller's (a hash of the configuration, ...); NULL: none */
    const ndp_lock *lock;      /* not of the manifest: what a save holds on rank 0 (lock.h); NULL: no lock */
} ndp_checkpoint_info;

/* A contiguous range of a file: written and hashed by one rank, verified by one rank. */
typedef struct ndp_chunk {
    int64_t offset, bytes;
    ndp_hash128 hash;
} ndp_chunk;

typedef struct ndp_manifest_file {
    const char *name;
    int64_t bytes;
    const ndp_chunk *chunks; /* in order; they cover the file. None in version 1 */
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

/* NDP_EFORMAT: damaged, or not a manifest (NDP_ENOTSUP: one of a later version), naming `what`. */
NDP_API ndp_status ndp_manifest_parse(const char *text, size_t size, const char *what, ndp_manifest *out);
/* Reads FOLDER/manifest.json and checks that every file is there, as a regular file of its size, and no other weights.
 * NDP_EFORMAT: something of that is damaged. */
NDP_API ndp_status ndp_manifest_read(const char *folder, ndp_manifest *out);
void ndp_manifest_release(ndp_manifest *m);
/* FOLDER/NAME is a regular file, not a link, of `bytes` bytes (< 0: any). NDP_EFORMAT: it is not; NDP_EIO: cannot be
 * known. */
NDP_API ndp_status ndp_manifest_file_check(const char *folder, const char *name, int64_t bytes);

/* The text of a manifest, of version 2; freed by the caller. */
NDP_API ndp_status ndp_manifest_text(const ndp_checkpoint_info *info, const ndp_manifest_file *files, int n_files,
                                     char **out);
/* Ends a manifest's text, which has all members but the hash and no closing line yet. */
void ndp_manifest_seal(ndp_str *text);

#endif
