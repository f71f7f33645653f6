/* Inside the placement room: arrays in an arena, which one release frees, with one message where memory ends; and texts
 * for messages, which live as long as the expression that they are made in. */
#ifndef NDP_PLACEMENT_ITEMS_H
#define NDP_PLACEMENT_ITEMS_H

#include "base/arena.h"
#include "base/status.h"

/* `*items`, a pointer of any type, becomes `n` zeroed items of `size` bytes. NDP_ENOMEM. */
ndp_status ndp_items_new(ndp_arena *a, int64_t n, size_t size, void *items_address);
/* Grows an array `*items` of `n` items to room for one more. */
ndp_status ndp_items_grow(ndp_arena *a, int64_t n, int64_t *capacity, size_t size, void *items_address);

typedef struct ndp_text {
    char s[320];
} ndp_text;
/* Appends; what has no room is left out. */
void ndp_text_add(ndp_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define NDP_NEW(arena, n, items) ndp_items_new((arena), (int64_t)(n), sizeof *(items), &(items))
#define NDP_GROW(arena, n, capacity, items) ndp_items_grow((arena), (n), (capacity), sizeof *(items), &(items))

#endif
