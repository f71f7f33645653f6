/* Inside the data room: a chunk of a file and its token ids; the unit of work of a thread. */
#ifndef NDP_DATA_CACHE_FILE_SHARE_H
#define NDP_DATA_CACHE_FILE_SHARE_H

#include "data/cache/dataset_options.h"
#include "data/corpus/source.h"

typedef struct ndp_file_share {
    const ndp_dataset_options *o;    /* borrowed */
    const ndp_record_format *format; /* of its source; borrowed */
    ndp_source_chunk chunk;
    int64_t most; /* limit on documents; 0: none */
    ndp_ids ids;
    ndp_places ends;  /* of documents, counted in `ids` */
    ndp_places turns; /* ids [turns 0, turns 1), [turns 2, turns 3), ... are not trained on; the first one is, unless
                       * turns 0 is 0 */
    ndp_places questions; /* ids with which later questions begin (encode.h) */
    int64_t texts;        /* documents that are not conversations (encode.h) */
    ndp_tally tally;
    bool stopped; /* reached `most` */
    ndp_status status;
    char *message; /* of a failure: errors are per thread, and another thread reports this one */
} ndp_file_share;

/* Replaces ids, ends, turns, questions, texts and tally by those of the chunk. A failure is stored in `status` and
 * `message`, which names the file and the line. */
void ndp_file_share_encode(ndp_file_share *s);
/* Records the status of this thread, with its message. */
void ndp_file_share_end(ndp_file_share *s, ndp_status st);
/* The recorded failure as this thread's error; NDP_OK without one. */
ndp_status ndp_file_share_check(const ndp_file_share *s);
/* Appends this share's ends, turns and questions to those of a longer list of ids, in which its own ids start at
 * `first`.
 */
ndp_status ndp_file_share_append(const ndp_file_share *s, int64_t first, ndp_places *ends, ndp_places *turns,
                                 ndp_places *questions);
void ndp_file_share_release(ndp_file_share *s);

#endif
