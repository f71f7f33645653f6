/* Checkpoints: folders CHECKPOINTS/step-00000100/ that any layout of ranks can write and any other can read. They
 * contain ordinary safetensors of whole, globally named tensors: the weights (model.safetensors, names as in Hugging
 * Face), the optimizer's state (optimizer.safetensors, "optimizer.m.NAME", ...), and manifest.json with the hash of
 * every byte. Large files are sharded as in exports.
 *
 *   state      reached when                                                    after a crash in this state
 *   OPEN       .step-00000100.tmp/ exists, its files created at full size      ndp_checkpoint_clean removes it
 *   WRITTEN    every rank has written and hashed its chunks                    the same
 *   SYNCED     all files are durable, then the manifest, then the folder       the same
 *   COMMITTED  the folder is renamed to step-00000100/, its parent durable     it is the newest checkpoint
 *
 * A *background save* first copies what each rank writes, and then goes through the same states while its caller does
 * something else: a thread of each rank to WRITTEN, one of rank 0 to COMMITTED.
 *
 * Older checkpoints are removed only in COMMITTED. Before that, a failure on any rank fails the save on all ranks and
 * removes the .tmp folder; committed checkpoints stay untouched.
 *
 * ndp_checkpoint_examine alone decides which checkpoints are whole. A resume that finds a damaged checkpoint renames it
 * to step-00000100.damaged; it renames checkpoints newer than the one it returns to, to step-00000100.superseded
 * (.damaged-2 and so on if the name is taken). Only their owner counts, overwrites or removes those. */
#ifndef NDP_CHECKPOINT_CHECKPOINT_H
#define NDP_CHECKPOINT_CHECKPOINT_H

#include "base/text.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"

/* What a save cost. */
typedef struct ndp_save_cost {
    bool committed;          /* the checkpoint has its name: also if the save failed after that */
    int64_t bytes;           /* of its files, without the manifest */
    double seconds, hashing; /* in total; hashing, on the rank that hashed longest */
    double processor;        /* seconds of the threads of a background save, of all ranks; else 0 */
} ndp_save_cost;

/* Collective over `world` (NULL: one rank). `folder` is CHECKPOINTS, created if missing. Tensors whose names start with
 * "optimizer." go into the optimizer's files. The pieces of all ranks together hold every element exactly once.
 * Files have at most `max_shard_bytes` of data. info->extra matters on rank 0. An existing checkpoint of the same step
 * is replaced atomically.
 *
 * Then all but the `keep` newest checkpoints are removed (keep <= 0: none). The one just written counts as verified:
 * its hashes are of what was written, its files have their sizes and are durable. Of older ones, manifests and sizes
 * are checked again, the data is not; a checkpoint that is visibly damaged is neither counted nor removed.
 *
 * `cost` may be NULL; it is set in any case. All ranks return the same status. If info->lock is no longer held, nothing
 * is committed or removed, not even the files of this save: another run is writing there. */
NDP_API ndp_status ndp_checkpoint_save(ndp_comm *world, const char *folder, const ndp_checkpoint_info *info,
                                       const ndp_tensor_spec *specs, int n, const ndp_file_piece *pieces, int n_pieces,
                                       int keep, int64_t max_shard_bytes, ndp_save_cost *cost);

/* ---- in the background ---- */

/* The arguments of ndp_checkpoint_save; `specs` with their names, info.extra and info.lock are borrowed until the save
 * has ended, the pieces and `folder` only by the call. */
typedef struct ndp_save_request {
    const char *folder;
    ndp_checkpoint_info info;
    const ndp_tensor_spec *specs;
    const ndp_file_piece *pieces;
    int n, n_pieces, keep;
    int64_t max_shard_bytes;
} ndp_save_request;

typedef struct ndp_background_save ndp_background_save;

/* Collective: the bytes that the copy of this rank takes, a function of the list and of which rank has which pieces. */
NDP_API ndp_status ndp_background_save_bytes(ndp_comm *world, const ndp_save_request *r, int64_t *bytes);
/* Collective: copies what the pieces hold, which may change as soon as this returns, and has threads write it. `space`
 * is borrowed until the end. A failure is that of ndp_checkpoint_save: nothing is under way then. */
NDP_API ndp_status ndp_background_save_begin(ndp_comm *world, const ndp_save_request *r, void *space, int64_t bytes,
                                             ndp_background_save **out);
/* Whether this rank's thread still works. Not collective. */
NDP_API bool ndp_background_save_works(const ndp_background_save *b);
/* Collective, to be called once no rank's thread works; else it waits. First all ranks agree that the files are
 * written, and the thread of rank 0 commits them. Then *ended: the status is that of ndp_checkpoint_save, `cost` is
 * set, and `b` is destroyed. An error has ended it too. */
NDP_API ndp_status ndp_background_save_go_on(ndp_background_save *b, bool *ended, ndp_save_cost *cost);
/* Where the ranks no longer agree on anything: waits for this rank's thread, and destroys it. What is not committed
 * then is lost, and rank 0 removes it. NULL is fine. Returns whether rank 0 has committed it. */
NDP_API bool ndp_background_save_drop(ndp_background_save *b);

/* Removes what killed runs left half-written. To be called by rank 0 at the start of a run. A missing folder is fine.
 */
NDP_API ndp_status ndp_checkpoint_clean(const char *folder);

/* ---- examining ---- */

typedef struct ndp_examined {
    ndp_checkpoint_state state; /* any but NDP_CHECKPOINT_ASIDE */
    bool no_folder;             /* damaged, and no loss: a file, a pipe or a link to nothing has its name */
    int64_t bytes;              /* of its files; 0 if the manifest is damaged */
    char words[768];            /* the damage: files, tensors, bytes; "" if there is none */
} ndp_examined;

/* Collective over `world` (NULL: one rank). Examines the checkpoint of one step. With `data`, all of it is read: each
 * chunk by one rank, with `threads` threads per rank, at the speed of the disk. Damage is a result, not a failure; it
 * fails if the state cannot be determined (memory, permissions, the manifest of a later version). All ranks return the
 * same. */
NDP_API ndp_status ndp_checkpoint_examine(ndp_comm *world, const char *folder, int64_t step, bool data, int threads,
                                          ndp_examined *out);

/* The step of a line of metrics.jsonl of n bytes; -1: it has none. *eval_loss: NaN without a number; *evaluated: it has
 * that key. */
int64_t ndp_line_step(const char *line, size_t n, bool *evaluated, double *eval_loss);

/* Steps of all checkpoints in `folder`, whole or not, newest first (a missing folder has none). The caller frees
 * *steps. */
NDP_API ndp_status ndp_checkpoint_steps(const char *folder, int64_t **steps, int *n);

/* ---- resuming ---- */

typedef struct ndp_resume {
    int64_t step;      /* to load; -1: there is no checkpoint and never was one */
    bool unverifiable; /* it has no hashes */
    int64_t *aside;    /* steps of checkpoints to set aside after loading, newest first */
    bool *damaged;     /* for each of them: damaged, otherwise superseded */
    int n_aside;
    char words[768]; /* the damage of the first of them */
} ndp_resume;

/* Collective. Chooses the checkpoint to resume from and verifies it: the newest one or, if that is damaged, the one
 * before it. Names that are not folders never held saved work: they are set aside as damaged, and not counted.
 * NDP_EINVAL if both are damaged, or there are only damaged ones; the message lists the steps that verify. `wanted` >=
 * 0: exactly that step; newer ones are to be set aside. Changes nothing on disk. The caller releases *out.
 */
NDP_API ndp_status ndp_resume_choose(ndp_comm *world, const char *folder, int64_t wanted, int threads, ndp_resume *out);
/* Collective. Renames the checkpoints to be set aside. Appends their new names, as text, to `said` on rank 0. */
NDP_API ndp_status ndp_resume_settle(ndp_comm *world, const char *folder, const ndp_resume *r, ndp_str *said);
void ndp_resume_release(ndp_resume *r);

/* ---- reading ---- */

typedef struct ndp_checkpoint ndp_checkpoint;

/* Opens and checks one step. Not collective: every rank opens it and reads what it owns. */
NDP_API ndp_status ndp_checkpoint_open(const char *folder, int64_t step, ndp_checkpoint **out);
void ndp_checkpoint_close(ndp_checkpoint *c);
/* Borrowed, including its extra. */
const ndp_checkpoint_info *ndp_checkpoint_get_info(const ndp_checkpoint *c);
/* The model's tensors, without the optimizer's; borrowed. */
ndp_weights *ndp_checkpoint_weights(const ndp_checkpoint *c);
/* NULL: there is no tensor of that name. */
const ndp_tensor_entry *ndp_checkpoint_find(const ndp_checkpoint *c, const char *name);
/* NDP_EFORMAT lists the tensors that are missing, unexpected or of another shape (see ndp_weights_check). */
NDP_API ndp_status ndp_checkpoint_check(const ndp_checkpoint *c, const ndp_tensor_spec *expected, int n);
/* Elements [first, first + count) of tensor `name` as `type`. */
NDP_API ndp_status ndp_checkpoint_read(const ndp_checkpoint *c, const char *name, int64_t first, int64_t count,
                                       void *dest, ndp_dtype type);
/* NDP_EIO names a file that lost bytes since the checkpoint was opened. Call it after reading, before use. */
NDP_API ndp_status ndp_checkpoint_intact(const ndp_checkpoint *c);

#endif
