/* Compressed files (.gz, .zst, .xz), read by libarchive. */
#ifndef NDP_DATA_CORPUS_UNPACK_H
#define NDP_DATA_CORPUS_UNPACK_H

#include "base/status.h"

/* The length of the path without the ending of a compressed file; all of it for others. */
size_t ndp_unpacked_name(const char *path);
static inline bool ndp_is_packed(const char *path) { return path[ndp_unpacked_name(path)] != '\0'; }

/* A compressed file may hold this many bytes, and in addition this many times its own size. */
#define NDP_UNPACK_ALLOWANCE ((size_t)64 << 20)
#define NDP_UNPACK_RATIO ((size_t)100)

/* What a compressed file holds, into memory of its own; the caller frees. NDP_EFORMAT: it is damaged, cut short, not
 * compressed that way, something else follows, or it expands beyond the limit above. NDP_ENOMEM: it holds more than
 * half of this machine's memory. */
NDP_API ndp_status ndp_unpack(const char *path, const void *contents, size_t size, char **out, size_t *n);
/* The first `most` bytes of what it holds, or all if that is less (*n < most). Damage after them goes unseen. */
ndp_status ndp_unpack_head(const char *path, const void *contents, size_t size, size_t most, char **out, size_t *n);

#endif
