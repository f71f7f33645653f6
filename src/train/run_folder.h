/* The run folder (train.output_dir) of one run: locked, and free of what killed runs left there. Internal to the room.
 */
#ifndef NDP_TRAIN_RUN_FOLDER_H
#define NDP_TRAIN_RUN_FOLDER_H

#include "checkpoint/lock.h"
#include "comm/comm.h"
#include "config/config.h"

/* Collective over `world`: rank 0 takes the lock of the run folder; *lock is NULL elsewhere, and the caller destroys
 * it. Where o->await says so, all ranks wait together; NDP_EINTR: *o->stop was set meanwhile. All ranks return alike.
 */
NDP_API ndp_status ndp_run_folder_take(const ndp_config *c, const ndp_train_opts *o, ndp_comm *world, ndp_lock **lock);

/* Removes temporary files and folders that killed runs left: TEXT.tmp-*, .export.tmp, checkpoints that were not
 * committed, late claims to the lock. Rank 0, which holds the lock. */
NDP_API ndp_status ndp_run_folder_clean(const char *folder);

#endif
