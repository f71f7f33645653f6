/* Arrays in an arena, and texts. An array that grows leaves what it had before to the arena: in all at most as much
 * again. */
#include "placement/items.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

ndp_status ndp_items_new(ndp_arena *a, int64_t n, size_t size, void *items_address) {
    void *items = ndp_arena_alloc(a, (size_t)(n > 0 ? n : 1) * size);
    memcpy(items_address, &items, sizeof items); /* a T ** for any T */
    return NDP_MEMORY(items, "to check placements");
}

ndp_status ndp_items_grow(ndp_arena *a, int64_t n, int64_t *capacity, size_t size, void *items_address) {
    void *old, *items;
    if (n < *capacity)
        return NDP_OK;
    memcpy(&old, items_address, sizeof old);
    NDP_TRY(ndp_items_new(a, n > 0 ? 2 * n : 4, size, items_address));
    memcpy(&items, items_address, sizeof items);
    if (n > 0)
        memcpy(items, old, (size_t)n * size);
    *capacity = n > 0 ? 2 * n : 4;
    return NDP_OK;
}

void ndp_text_add(ndp_text *t, const char *fmt, ...) {
    size_t n = strlen(t->s);
    va_list args;
    va_start(args, fmt);
    vsnprintf(t->s + n, sizeof t->s - n, fmt, args);
    va_end(args);
}
