/* From a member of ndp_import to the keys of ours that follow from it. Inside this room only. */
#ifndef NDP_CONFIG_IMPORT_TARGETS_H
#define NDP_CONFIG_IMPORT_TARGETS_H

#include "import/import_parts.h"

typedef struct import_target {
    size_t offset;    /* in ndp_import */
    const char *ours; /* keys, separated by ", " */
    const char *how;  /* what else to know; NULL: nothing */
} import_target;

/* The target of a member; `name` is memory for its key. False: nothing follows from the member. */
bool ndp_import_target(size_t offset, import_target *out, char name[NDP_KEY_NAME]);

#endif
