/* A growing array of token ids; `{0}` is an empty one. */
#ifndef NDP_TEXT_IDS_H
#define NDP_TEXT_IDS_H

#include "base/arena.h"
#include <stdlib.h>

typedef struct ndp_ids {
    int32_t *items;
    int64_t n, capacity;
} ndp_ids;

static inline ndp_status ndp_ids_add(ndp_ids *ids, int32_t id) {
    if (ids->n == ids->capacity)
        NDP_TRY(ndp_array_reserve(&ids->items, &ids->capacity, ids->n + 1, sizeof *ids->items));
    ids->items[ids->n++] = id;
    return NDP_OK;
}

static inline void ndp_ids_release(ndp_ids *ids) {
    free(ids->items);
    *ids = (ndp_ids){0};
}

#endif
