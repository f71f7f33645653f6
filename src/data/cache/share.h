/* Inside the data room: a stretch of a file as token ids, the unit of work of one thread. */
#ifndef NDP_DATA_CACHE_SHARE_H
#define NDP_DATA_CACHE_SHARE_H

#include "data/cache/dataset_options.h"
#include "data/corpus/source.h"

typedef struct ndp_share {
    const ndp_dataset_options *o; /* borrowed */
    ndp_source_chunk chunk;
    int64_t most; /* documents; the rest of the chunk is not read. 0: all */
    ndp_ids ids;
    ndp_places ends;  /* of documents, counted in `ids` */
    ndp_places turns; /* ids [turns 0, turns 1), [turns 2, turns 3), ... are not learned; the first id is learned unless
                       * turns 0 is 0 */
    int64_t texts;    /* documents that are no conversations (encode.h) */
    bool stopped;     /* at `most` */
    ndp_status status;
    char *message; /* of a failure: a thread's error is its own, and another thread reports it */
} ndp_share;

/* Replaces ids, ends, turns and texts by those of the chunk. A failure is left in `status` and `message`, which names
 * the file and the line. */
void ndp_share_encode(ndp_share *s);
/* The failure of ndp_share_encode as this thread's error; NDP_OK without one. */
ndp_status ndp_share_check(const ndp_share *s);
/* Appends its ends and turns to those of a list of ids in which its own begin at `first`. */
ndp_status ndp_share_append(const ndp_share *s, int64_t first, ndp_places *ends, ndp_places *turns);
void ndp_share_release(ndp_share *s);

#endif
