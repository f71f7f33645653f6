/* Chunks of at least 64 KiB, newest first; objects are carved from the first one and never move, so pointers to them
 * stay valid until the release. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ndp_arena_chunk {
    struct ndp_arena_chunk *next;
    size_t used, capacity;
    _Alignas(16) unsigned char bytes[];
};

enum { CHUNK_BYTES = 64 << 10 };

static struct ndp_arena_chunk *add_chunk(ndp_arena *a, size_t bytes) {
    size_t capacity = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
    struct ndp_arena_chunk *chunk = calloc(1, sizeof *chunk + capacity);
    if (!chunk) {
        ndp_memory_lacked(sizeof *chunk + capacity);
        return NULL;
    }
    chunk->capacity = capacity;
    /* A large object gets a chunk of its own; small ones continue in the current chunk. */
    if (bytes > CHUNK_BYTES && a->chunks) {
        chunk->next = a->chunks->next;
        a->chunks->next = chunk;
    } else {
        chunk->next = a->chunks;
        a->chunks = chunk;
    }
    return chunk;
}

void *ndp_arena_alloc(ndp_arena *a, size_t bytes) {
    if (bytes > PTRDIFF_MAX - 64)
        return NULL;
    bytes = (bytes + 15) & ~(size_t)15;
    struct ndp_arena_chunk *chunk = a->chunks;
    if (!chunk || chunk->capacity - chunk->used < bytes)
        chunk = add_chunk(a, bytes);
    if (!chunk)
        return NULL;
    void *p = chunk->bytes + chunk->used;
    chunk->used += bytes;
    a->total += bytes;
    return p;
}

char *ndp_arena_strdup(ndp_arena *a, const char *text) {
    size_t n = strlen(text) + 1;
    char *copy = ndp_arena_alloc(a, n);
    return copy ? memcpy(copy, text, n) : NULL;
}

char *ndp_arena_format(ndp_arena *a, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = n < 0 ? NULL : ndp_arena_alloc(a, (size_t)n + 1);
    if (!text)
        return NULL;
    va_start(args, fmt);
    vsnprintf(text, (size_t)n + 1, fmt, args);
    va_end(args);
    return text;
}

void ndp_arena_release(ndp_arena *a) {
    for (struct ndp_arena_chunk *chunk = a->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    *a = (ndp_arena){0};
}

ndp_status ndp_array_reserve(void *items_address, int64_t *capacity, int64_t need, size_t size) {
    if (need <= *capacity)
        return NDP_OK;
    int64_t grown = *capacity < 8 ? 8 : *capacity;
    while (grown < need && grown <= INT64_MAX / 2)
        grown *= 2;
    size_t bytes = 0;
    void *items;
    memcpy(&items, items_address, sizeof items); /* a T ** for any T */
    bool fits = grown >= need && !__builtin_mul_overflow((size_t)grown, size, &bytes) && bytes <= PTRDIFF_MAX;
    if (!fits || !(items = realloc(items, bytes)))
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for %lld items of %zu bytes", (long long)need, size);
    memcpy(items_address, &items, sizeof items);
    *capacity = grown;
    return NDP_OK;
}
