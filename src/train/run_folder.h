/* Inside the train room: the run folder (train.output_dir): its lock, its job.yaml, the leftovers of killed runs,
 * and whether it can be written. */
#ifndef NDP_TRAIN_RUN_FOLDER_H
#define NDP_TRAIN_RUN_FOLDER_H

#include "checkpoint/lock.h"
#include "comm/comm.h"
#include "config/config.h"

/* Collective over `world`: rank 0 takes the lock of the run folder, which the caller destroys; *lock is NULL on the
 * other ranks. With o->await all ranks wait for it together; NDP_EINTR: *o->stop was set meanwhile. All ranks return
 * the same status. */
NDP_API ndp_status ndp_run_folder_take(const ndp_config *c, const ndp_train_opts *o, ndp_comm *world, ndp_lock **lock);

/* For rank 0, while it holds the lock. Refuses the folder of another run, unless o->resume. Removes what killed runs
 * left: temporary files and folders (TEXT.tmp-*, .export.tmp), checkpoints that were not committed, late claims to the
 * lock. Tries every place that the run will write to, and o->trace: a path that cannot be written must not be found
 * after the last step. */
NDP_API ndp_status ndp_run_folder_prepare(const ndp_config *c, const ndp_train_opts *o);

/* Collective. What a resumed run keeps of its job.yaml, in a copy of the configuration, the caller's; NULL: nothing. It
 * cuts documents as that says (data.overlong: cut, once the default), if neither the job nor o->accept says
 * data.overlong: its rows stay those of its checkpoints. Where the job says auto, it keeps the number of rows of a
 * micro-batch, if the job can have it on these ranks. Rank 0 says so. */
ndp_status ndp_run_folder_keep(const ndp_config *c, const ndp_train_opts *o, ndp_comm *world, ndp_config **kept);

/* Rank 0: writes job.yaml. After a resume, so that a refused one keeps the job.yaml of its run. */
NDP_API ndp_status ndp_run_folder_write_job(const ndp_trainer *t);

/* Checks that this rank sees what rank 0 wrote: "job.yaml", or "" for the folder. The first checkpoint would fail on a
 * folder that is not shared, but only hours later. */
NDP_API ndp_status ndp_run_folder_shared(const ndp_config *c, const char *name);

#endif
