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

/* Whether a resumed run cuts documents as its job.yaml says (data.overlong: cut, once the default), since neither the
 * job nor o->accept says data.overlong: its rows stay those of its checkpoints. */
NDP_API bool ndp_run_folder_cuts(const ndp_config *c, const ndp_train_opts *o);

/* The micro-batch of a resumed run where the job says auto: the number in its job.yaml. 0: the job says a number, the
 * run has none, or on `world` ranks the job cannot have it. */
NDP_API int ndp_run_folder_rows(const ndp_config *c, const ndp_train_opts *o, int world);

/* Rank 0: writes job.yaml. After a resume, so that a refused one keeps the job.yaml of its run. */
NDP_API ndp_status ndp_run_folder_write_job(const ndp_trainer *t);

/* Checks that this rank sees what rank 0 wrote: "job.yaml", or "" for the folder. The first checkpoint would fail on a
 * folder that is not shared, but only hours later. */
NDP_API ndp_status ndp_run_folder_shared(const ndp_config *c, const char *name);

#endif
