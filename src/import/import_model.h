/* Whether an imported job's model is of a family that loads. Inside this room only. */
#ifndef NDP_IMPORT_IMPORT_MODEL_H
#define NDP_IMPORT_IMPORT_MODEL_H

#include "config/config.h"

typedef enum import_loads { LOADS_UNKNOWN, LOADS_YES, LOADS_NO } import_loads;

/* `path`: model.path; `folder`: where it is on this machine, or NULL. LOADS_NO: `why` has the reason. LOADS_YES:
 * *mixture, whether it has experts. */
NDP_API import_loads ndp_import_model_loads(const char *path, const char *folder, char *why, size_t size,
                                            bool *mixture);

#endif
