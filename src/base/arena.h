/* Small host objects with a common lifetime (graphs, programs, tables): carved from chunks, released at once. */
#ifndef NDP_BASE_ARENA_H
#define NDP_BASE_ARENA_H

#include "base/status.h"

typedef struct ndp_arena {
    struct ndp_arena_chunk *chunks;
    size_t total; /* bytes handed out */
} ndp_arena;

/* Zeroed memory, aligned to 16 bytes; NULL: out of memory. `{0}` is an empty arena. */
void *ndp_arena_alloc(ndp_arena *a, size_t bytes);
char *ndp_arena_strdup(ndp_arena *a, const char *text);
char *ndp_arena_format(ndp_arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ndp_arena_release(ndp_arena *a);

/* Grows a malloc'ed array `*items` of `size`-byte items (by doubling) to hold at least `need` of them. NDP_ENOMEM. */
ndp_status ndp_array_reserve(void *items_address, int64_t *capacity, int64_t need, size_t size);

#endif
