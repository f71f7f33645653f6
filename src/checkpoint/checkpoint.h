/* Checkpoints: folders CHECKPOINTS/step-00000100/ that any layout of ranks can write and any other can read. They hold
 * ordinary safetensors of whole, globally named tensors: the weights (model.safetensors, names as in Hugging Face), the
 * optimizer's state (optimizer.safetensors, "optimizer.m.NAME", ...) and manifest.json. Larger ones are sharded as
 * exports are.
 *
 *   OPEN       .step-00000100.tmp/ is made, its files created at full size     a crash leaves the folder, removed by
 * clean WRITTEN    every rank has written its pieces                               same SYNCED     and made them
 * durable; then the manifest, then the folder       same COMMITTED  renamed to step-00000100/, the parent made durable
 * from here on it is the newest
 *
 * Older checkpoints are removed only in COMMITTED; up to there a failure on any rank fails the save on all, removes the
 * .tmp folder and leaves what was committed untouched. */
#ifndef NDP_CHECKPOINT_CHECKPOINT_H
#define NDP_CHECKPOINT_CHECKPOINT_H

#include "base/text.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"

/* Collective over `world` (NULL: one rank). `folder` is CHECKPOINTS, made if need be. Tensors whose names begin with
 * "optimizer." go into the optimizer's files. The pieces of all ranks hold every element exactly once. info->extra
 * matters on rank 0. A checkpoint of the same step is replaced, at once. Then only the `keep` newest stay, and the one
 * just written (keep <= 0: all). All ranks return alike. Where info->lock is no longer held, nothing is committed and
 * nothing is removed, not even what was begun: another run writes there. */
NDP_API ndp_status ndp_checkpoint_save(ndp_comm *world, const char *folder, const ndp_checkpoint_info *info,
                                       const ndp_tensor_spec *specs, int n, const ndp_file_piece *pieces, int n_pieces,
                                       int keep);
/* The same with files of at most `max_shard_bytes`, for tests. */
NDP_API ndp_status ndp_checkpoint_save_sharded(ndp_comm *world, const char *folder, const ndp_checkpoint_info *info,
                                               const ndp_tensor_spec *specs, int n, const ndp_file_piece *pieces,
                                               int n_pieces, int keep, int64_t max_shard_bytes);

/* Removes what killed runs left half-written. Rank 0, at a start. A missing folder is fine. */
NDP_API ndp_status ndp_checkpoint_clean(const char *folder);

/* Steps of the whole checkpoints in `folder`, newest first (a missing folder has none); the caller frees *steps. A
 * damaged one is passed over, with a line that says why in `warnings` (may be NULL). */
NDP_API ndp_status ndp_checkpoint_list(const char *folder, int64_t **steps, int *n, ndp_str *warnings);
/* Collective: the newest of them as rank 0 sees it; -1 when there is none. Only rank 0 gets warnings. */
NDP_API ndp_status ndp_checkpoint_latest(ndp_comm *world, const char *folder, int64_t *step, ndp_str *warnings);

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
