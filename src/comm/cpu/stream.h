/* Writes that bypass the caches, for large results: these would be read into the caches first and evict data in use. */
#ifndef NDP_COMM_CPU_STREAM_H
#define NDP_COMM_CPU_STREAM_H

#include <stddef.h>

/* memcpy of a block in the cache, 64-byte aligned, to memory that is not read again soon. */
void ndp_stream_block(void *to, const void *from, size_t bytes);
/* After the last block, before other ranks may read the data. */
void ndp_stream_end(void);

#endif
