/* Inside the checkpoint room: writing whole chunks into the files of a plan, which rank 0 has created. */
#ifndef NDP_CHECKPOINT_CHUNK_WRITER_H
#define NDP_CHECKPOINT_CHUNK_WRITER_H

#include "checkpoint/shards.h"

typedef struct ndp_chunk_writer {
    ndp_shards *s;
    const char *folder;
    ndp_safetensors_writer *open; /* of the file of the newest chunk; NULL: none is open */
    int file;
} ndp_chunk_writer;

/* Writes a part's elements, in its file's type. The file before, if it is another one, becomes durable. NDP_EIO. */
ndp_status ndp_chunk_write(ndp_chunk_writer *w, const ndp_shard_part *part, const void *data);
/* The newest file becomes durable, and is closed. After a failure destroy `open` instead. */
ndp_status ndp_chunk_writer_close(ndp_chunk_writer *w);

#endif
