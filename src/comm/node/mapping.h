/* Large memory: whole 2 MiB pages at a 2 MiB boundary, huge pages advised, zeroed by the system. */
#ifndef NDP_COMM_NODE_MAPPING_H
#define NDP_COMM_NODE_MAPPING_H

#include "base/status.h"

/* Private memory of at least `bytes`. fd >= 0: that file's pages from `offset` on, shared with all that map them. */
NDP_API ndp_status ndp_memory_map(int fd, int64_t offset, size_t bytes, void **out);
void ndp_memory_unmap(void *data, size_t bytes);
/* Takes the pages of data[0 .. bytes) now instead of at their first use. NDP_ENOMEM if none are left. */
NDP_API ndp_status ndp_memory_touch(void *data, size_t bytes);
/* The same for part number `part` of `parts` equal ones: each rank takes its own, so that they are on its NUMA node. */
NDP_API ndp_status ndp_memory_touch_part(void *data, size_t bytes, int part, int parts);
/* Bytes that are mapped for this size. */
size_t ndp_memory_round(size_t bytes);

#endif
