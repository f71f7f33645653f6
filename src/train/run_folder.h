/* Inside the train room: the run folder (train.output_dir): its lock, the leftovers of killed runs, and whether it can
 * be written. */
#ifndef NDP_TRAIN_RUN_FOLDER_H
#define NDP_TRAIN_RUN_FOLDER_H

#include "checkpoint/lock.h"
#include "comm/comm.h"
#include "config/config.h"

/* Collective over `world`: rank 0 takes the lock of the run folder, which the caller destroys; *lock is NULL on the
 * other ranks. With o->await all ranks wait for it together; NDP_EINTR: *o->stop was set meanwhile. All ranks return
 * the same status. */
NDP_API ndp_status ndp_run_folder_take(const ndp_config *c, const ndp_train_opts *o, ndp_comm *world, ndp_lock **lock);

/* Removes what killed runs left: temporary files and folders (TEXT.tmp-*, .export.tmp), checkpoints that were not
 * committed, late claims to the lock. For rank 0, while it holds the lock. */
NDP_API ndp_status ndp_run_folder_clean(const char *folder);

/* Whether files can be created in a folder of the run, such as RUN/checkpoints; it may be missing, since RUN is
 * writable. NDP_EIO names the path and the cause. */
NDP_API ndp_status ndp_run_folder_try(const char *path);

#endif
