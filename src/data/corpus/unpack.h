/* Compressed files (.gz, .zst, .xz), read by libarchive. */
#ifndef NDP_DATA_CORPUS_UNPACK_H
#define NDP_DATA_CORPUS_UNPACK_H

#include "base/status.h"

/* Length of the path without the suffix of a compressed file; of the whole path for other files. */
size_t ndp_unpacked_name(const char *path);
static inline bool ndp_is_packed(const char *path) { return path[ndp_unpacked_name(path)] != '\0'; }

/* A compressed file may unpack to this many bytes, plus this many times its own size. */
#define NDP_UNPACK_ALLOWANCE ((size_t)64 << 20)
#define NDP_UNPACK_RATIO ((size_t)100)

/* Unpacks a compressed file into new memory; the caller frees. NDP_EFORMAT: it is damaged, truncated, not compressed
 * that way, followed by other data, or expands beyond the limit above. NDP_ENOMEM: its contents exceed the available
 * memory. */
NDP_API ndp_status ndp_unpack(const char *path, const void *contents, size_t size, char **out, size_t *n);
/* Unpacks the first `most` bytes, or all if there are fewer (*n < most). Damage after them is not detected. */
ndp_status ndp_unpack_head(const char *path, const void *contents, size_t size, size_t most, char **out, size_t *n);

#endif
