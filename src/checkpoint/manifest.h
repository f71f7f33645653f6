/* manifest.json: what a checkpoint is and which files make it whole. It is written last, so a folder with a readable
 * one, whose files have the sizes it says, was saved to the end. */
#ifndef NDP_CHECKPOINT_MANIFEST_H
#define NDP_CHECKPOINT_MANIFEST_H

#include "base/arena.h"
#include "base/json.h"
#include "checkpoint/lock.h"

/* What the trainer keeps besides tensors. */
typedef struct ndp_checkpoint_info {
    int64_t step;    /* updates done */
    int64_t samples; /* the data cursor: samples drawn so far, of all ranks */
    int64_t seed;
    struct json_object *extra; /* an object of the caller's (a hash of the configuration, ...); NULL: none */
    const ndp_lock *lock;      /* not of the manifest: what a save holds on rank 0 (lock.h); NULL: no lock */
} ndp_checkpoint_info;

typedef struct ndp_manifest_file {
    const char *name;
    int64_t bytes;
} ndp_manifest_file;

typedef struct ndp_manifest {
    ndp_checkpoint_info info; /* extra lives as long as the manifest */
    ndp_manifest_file *files;
    int n_files;
    struct json_object *json;
    ndp_arena arena;
} ndp_manifest;

/* NDP_EFORMAT for anything but a manifest of version 1 (NDP_ENOTSUP: of a later one), naming `what`. */
NDP_API ndp_status ndp_manifest_parse(const char *text, size_t size, const char *what, ndp_manifest *out);
/* Reads FOLDER/manifest.json and checks that every file is there with its size. */
NDP_API ndp_status ndp_manifest_read(const char *folder, ndp_manifest *out);
void ndp_manifest_release(ndp_manifest *m);

/* The text of a manifest; freed by the caller. */
NDP_API ndp_status ndp_manifest_text(const ndp_checkpoint_info *info, const ndp_manifest_file *files, int n_files,
                                     char **out);

#endif
