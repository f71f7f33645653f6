/* Checkpoints: folders CHECKPOINTS/step-00000100/ that any layout of ranks can write and any other can read. They hold
 * ordinary safetensors of whole, globally named tensors: the weights (model.safetensors, names as in Hugging Face), the
 * optimizer's state (optimizer.safetensors, "optimizer.m.NAME", ...) and manifest.json, with the hash of every byte.
 * Larger ones are sharded as exports are.
 *
 *   OPEN       .step-00000100.tmp/ is made, its files created at full size     a crash leaves the folder, which `clean`
 *   WRITTEN    every rank has written and hashed its chunks                    removes
 *   SYNCED     and made them durable; then the manifest, then the folder       same
 *   COMMITTED  renamed to step-00000100/, the parent made durable              from here on it is the newest
 *
 * Older checkpoints are removed only in COMMITTED; up to there a failure on any rank fails the save on all, removes the
 * .tmp folder and leaves what was committed untouched.
 *
 * One function decides what is whole: ndp_checkpoint_examine. A damaged checkpoint is renamed aside by the resume that
 * found it, to step-00000100.damaged, and newer ones than the one that a run goes back to, to step-00000100.superseded
 * (.damaged-2 and so on where the name is taken). Nothing overwrites, counts or removes those but their owner. */
#ifndef NDP_CHECKPOINT_CHECKPOINT_H
#define NDP_CHECKPOINT_CHECKPOINT_H

#include "base/text.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"

/* What a save took. */
typedef struct ndp_save_cost {
    int64_t bytes;           /* of its files, without the manifest */
    double seconds, hashing; /* from begin to end; of that, on the rank that hashed longest */
} ndp_save_cost;

/* Collective over `world` (NULL: one rank). `folder` is CHECKPOINTS, made if need be. Tensors whose names begin with
 * "optimizer." go into the optimizer's files. The pieces of all ranks hold every element exactly once. info->extra
 * matters on rank 0. A checkpoint of the same step is replaced, at once. Then only the `keep` newest stay, and the one
 * just written (keep <= 0: all). That one is the newest verified one: its hashes are of what was written, its files
 * have their sizes and are durable. Of older ones the manifests and the sizes are looked at again, the data is not:
 * what is seen to be damaged is neither counted nor removed. `cost` may be NULL. All ranks return alike. Where
 * info->lock is no longer held, nothing is committed and nothing is removed, not even what was begun: another run
 * writes there. */
NDP_API ndp_status ndp_checkpoint_save(ndp_comm *world, const char *folder, const ndp_checkpoint_info *info,
                                       const ndp_tensor_spec *specs, int n, const ndp_file_piece *pieces, int n_pieces,
                                       int keep, ndp_save_cost *cost);
/* The same with files of at most `max_shard_bytes`, for tests. */
NDP_API ndp_status ndp_checkpoint_save_sharded(ndp_comm *world, const char *folder, const ndp_checkpoint_info *info,
                                               const ndp_tensor_spec *specs, int n, const ndp_file_piece *pieces,
                                               int n_pieces, int keep, int64_t max_shard_bytes, ndp_save_cost *cost);

/* Removes what killed runs left half-written. Rank 0, at a start. A missing folder is fine. */
NDP_API ndp_status ndp_checkpoint_clean(const char *folder);

/* ---- what is whole ---- */

typedef struct ndp_examined {
    ndp_checkpoint_state state; /* any but NDP_CHECKPOINT_ASIDE */
    int64_t bytes;              /* of its files; 0 where the manifest is damaged */
    char words[768];            /* what is damaged: files, tensors, bytes; "" when nothing is */
} ndp_examined;

/* Collective over `world` (NULL: one rank). Examines the checkpoint of one step; with `data` reads all of it: every
 * chunk by one rank, by `threads` threads each, at the speed of the disk. Fails where that cannot be known (memory,
 * permissions, a later version's manifest); damage is no failure. All ranks return alike. */
NDP_API ndp_status ndp_checkpoint_examine(ndp_comm *world, const char *folder, int64_t step, bool data, int threads,
                                          ndp_examined *out);

/* Steps of all checkpoints in `folder`, whole or not, newest first (a missing folder has none); the caller frees
 * *steps. */
NDP_API ndp_status ndp_checkpoint_steps(const char *folder, int64_t **steps, int *n);

/* ---- where a run goes on ---- */

typedef struct ndp_resume {
    int64_t step;      /* to load; -1: there is no checkpoint, and never was one */
    bool unverifiable; /* it has no hashes */
    int64_t *aside;    /* steps of checkpoints to set aside once it is loaded, newest first */
    bool *damaged;     /* each of them: damaged, or superseded */
    int n_aside;
    char words[768]; /* what is damaged in the first of them */
} ndp_resume;

/* Collective. Chooses the checkpoint to go on from and verifies it: the newest one, or if that is damaged the one saved
 * before it. NDP_EINVAL if that one is damaged too, or if there are only damaged ones: the message says which steps
 * verify. `wanted` >= 0: exactly that step; newer ones are to be set aside. Changes nothing on disk. The caller
 * releases *out. */
NDP_API ndp_status ndp_resume_choose(ndp_comm *world, const char *folder, int64_t wanted, int threads, ndp_resume *out);
/* Collective. Renames what is to be set aside. The names that they have now, in words, go to `said` on rank 0. */
NDP_API ndp_status ndp_resume_settle(ndp_comm *world, const char *folder, const ndp_resume *r, ndp_str *said);
void ndp_resume_release(ndp_resume *r);

/* ---- reading ---- */

typedef struct ndp_checkpoint ndp_checkpoint;

/* Opens and checks one step; not collective: every rank opens for itself and reads what it owns. */
NDP_API ndp_status ndp_checkpoint_open(const char *folder, int64_t step, ndp_checkpoint **out);
void ndp_checkpoint_close(ndp_checkpoint *c);
/* Borrowed, with its extra. */
const ndp_checkpoint_info *ndp_checkpoint_get_info(const ndp_checkpoint *c);
/* NULL when there is none of that name. */
const ndp_tensor_entry *ndp_checkpoint_find(const ndp_checkpoint *c, const char *name);
/* NDP_EFORMAT lists what is missing, extra or of another shape (see ndp_weights_check). */
NDP_API ndp_status ndp_checkpoint_check(const ndp_checkpoint *c, const ndp_tensor_spec *expected, int n);
/* Elements [first, first + count) of tensor `name` as `type`. */
NDP_API ndp_status ndp_checkpoint_read(const ndp_checkpoint *c, const char *name, int64_t first, int64_t count,
                                       void *dest, ndp_dtype type);
/* NDP_EIO names a file that lost bytes since the checkpoint was opened: after reading, before the use. */
NDP_API ndp_status ndp_checkpoint_intact(const ndp_checkpoint *c);

#endif
