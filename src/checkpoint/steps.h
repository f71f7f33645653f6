/* The names of checkpoint folders, and of what is written beside them. */
#ifndef NDP_CHECKPOINT_STEPS_H
#define NDP_CHECKPOINT_STEPS_H

#include "base/text.h"
#include "checkpoint/manifest.h"

/* FOLDER/step-00000100. */
NDP_API ndp_status ndp_step_path(char out[NDP_PATH], const char *folder, int64_t step);
/* While `name` is written or removed: FOLDER/.NAME.tmp, or from the second generation of the lock on
 * FOLDER/.NAME.2.tmp: no two writers have the same. */
NDP_API ndp_status ndp_beside_path(char out[NDP_PATH], const char *folder, const char *name, int64_t generation);
/* Whether it is such a name; `out` becomes NAME. */
NDP_API bool ndp_beside_of(const char *name, char out[64]);
/* "step-00000100" into `out`; returns `out`. */
char *ndp_step_name(int64_t step, char out[64]);
/* The step of such a name; -1: any other name. */
int64_t ndp_step_of_name(const char *name);
/* Renames FOLDER/step-00000100 to step-00000100.WHY, or .WHY-2 and so on; `name` becomes the new name. Durable. */
NDP_API ndp_status ndp_step_set_aside(const char *folder, int64_t step, const char *why, char name[64]);
/* Whether it is the name of a checkpoint that was set aside. */
bool ndp_step_is_aside(const char *name);
/* Renames a step to a temporary name and removes it. `name`: of a folder in `folder`. */
NDP_API ndp_status ndp_step_remove(const char *folder, const char *name);

/* The manifest of a step whose files all exist and whose number agrees with its folder's. */
NDP_API ndp_status ndp_step_manifest(const char *folder, int64_t step, ndp_manifest *out);

#endif
