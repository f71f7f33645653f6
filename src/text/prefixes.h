/* Sorted strings: a walk down a text, byte by byte, finds all strings that the text starts with. A trie without nodes:
 * the strings with the prefix read so far form a range, and each byte narrows it. */
#ifndef NDP_TEXT_PREFIXES_H
#define NDP_TEXT_PREFIXES_H

#include "base/status.h"

typedef struct ndp_prefix {
    const char *text; /* borrowed, not terminated */
    uint32_t length;
    int32_t id;
} ndp_prefix;

typedef struct ndp_prefixes {
    ndp_prefix *items;
    int64_t n, capacity;
    int64_t first[257]; /* strings that begin with byte c: [first[c], first[c + 1]) */
} ndp_prefixes;

/* `text` is not empty. */
NDP_API ndp_status ndp_prefixes_add(ndp_prefixes *p, const char *text, size_t length, int32_t id);
/* After the last add. Of equal strings, the one with the lowest id is found. */
void ndp_prefixes_build(ndp_prefixes *p);
void ndp_prefixes_release(ndp_prefixes *p);

typedef struct ndp_prefix_walk {
    int64_t low, high; /* range of strings with the prefix read so far, shorter ones first */
    uint32_t depth;
} ndp_prefix_walk;

/* The first byte; the range may be empty. */
static inline ndp_prefix_walk ndp_prefix_begin(const ndp_prefixes *p, unsigned char byte) {
    return (ndp_prefix_walk){p->first[byte], p->first[byte + 1], 1};
}

/* The string that ends here, or NULL. The range must not be empty. */
static inline const ndp_prefix *ndp_prefix_here(const ndp_prefixes *p, const ndp_prefix_walk *w) {
    return p->items[w->low].length == w->depth ? &p->items[w->low] : NULL;
}

/* Reads the next byte; false if no string continues with it. */
bool ndp_prefix_step(const ndp_prefixes *p, ndp_prefix_walk *w, unsigned char byte);

#endif
