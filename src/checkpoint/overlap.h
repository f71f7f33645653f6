/* What a rank gives of a part of a file, for exchange.c. A *part* is the elements of one tensor in one chunk; a *piece*
 * is what a rank holds of a tensor in memory. */
#ifndef NDP_CHECKPOINT_OVERLAP_H
#define NDP_CHECKPOINT_OVERLAP_H

#include "checkpoint/shards.h"

typedef struct ndp_held_pieces {
    const ndp_shards *s;
    const ndp_file_piece *pieces; /* borrowed */
    int *sorted, n;               /* indices of the non-empty ones, in the order of the files */
} ndp_held_pieces;

/* NDP_ENOMEM. */
ndp_status ndp_held_pieces_sort(const ndp_shards *s, const ndp_file_piece *pieces, int n, ndp_arena *arena,
                                ndp_held_pieces *out);

/* The elements of a piece that lie in a part. */
typedef struct ndp_overlap {
    const ndp_file_piece *piece;
    int64_t skip, at, count; /* first element, within the piece and within the part */
} ndp_overlap;

/* The first piece that can overlap the part: the last one that starts at or before its start. */
int ndp_overlap_first(const ndp_held_pieces *g, const ndp_shard_part *part);
/* Advances *cursor, which is that at first. False at the end. */
bool ndp_overlap_next(const ndp_held_pieces *g, const ndp_shard_part *part, int *cursor, ndp_overlap *o);
/* The elements of an overlap, converted to the file's type. Errors of a piece's source. */
ndp_status ndp_overlap_convert(const ndp_overlap *o, void *to, ndp_dtype stored);

#endif
