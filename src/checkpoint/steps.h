/* The names of checkpoint folders. Internal to the room. */
#ifndef NDP_CHECKPOINT_STEPS_H
#define NDP_CHECKPOINT_STEPS_H

#include "checkpoint/manifest.h"

/* FOLDER/step-00000100, or where it is made, FOLDER/.step-00000100.tmp. Owned by the caller; NULL: no memory. */
char *ndp_step_path(const char *folder, int64_t step, bool beside);
/* The step that a name of either kind stands for; -1 for any other name. */
int64_t ndp_step_of_name(const char *name, bool beside);
/* The manifest of a step whose files are all there and whose number is that of its folder. */
NDP_API ndp_status ndp_step_manifest(const char *folder, int64_t step, ndp_manifest *out);

#endif
