/* Writing large results past the caches: they would be read into them first, and push out what is needed. */
#ifndef NDP_COMM_CPU_STREAM_H
#define NDP_COMM_CPU_STREAM_H

#include <stddef.h>

/* memcpy of a block that lies in a cache, 64-byte aligned, to memory that is not read again soon. */
void ndp_stream_block(void *to, const void *from, size_t bytes);
/* After the last block, before anybody is told that the data are there. */
void ndp_stream_end(void);

#endif
