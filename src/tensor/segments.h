/* The table of a flat unit buffer: whole tensors one behind the other, and how it is cut into owned slices.
 *
 * A buffer holds the parameters of one unit. Tensors start at multiples of 64 elements, except glued ones, which lie
 * directly behind the one before (fused projections: one matrix product serves them all). The buffer is padded so that
 * `shards` equal slices of a multiple of 64 elements cover it; gaps and padding are never read. */
#ifndef NDP_TENSOR_SEGMENTS_H
#define NDP_TENSOR_SEGMENTS_H

#include "base/arena.h"

enum { NDP_SEGMENT_ALIGN = 64 };

typedef struct ndp_segment {
    const char *name; /* global name, as in the model folder */
    int64_t rows, cols; /* a vector has one row */
    int ndim;           /* as stored in files: 1 or 2 */
    int64_t offset;     /* in the buffer, elements */
    bool glued, decay;
    double copies;      /* ranks that hold a replica of these elements: each weighs 1 / copies in the gradient norm */
} ndp_segment;

typedef struct ndp_segments {
    ndp_segment *items;
    int n;
    int64_t elements; /* used, before padding for shards */
} ndp_segments;

/* Sets the offsets from rows, cols and glued. */
void ndp_segments_layout(ndp_segments *s);
/* Elements of one slice when `shards` ranks cut the buffer. */
int64_t ndp_segments_slice(const ndp_segments *s, int shards);

/* A maximal run of elements that one slice holds of one tensor. */
typedef struct ndp_piece {
    const ndp_segment *segment;
    int64_t tensor_first;  /* first element within the tensor */
    int64_t slice_first;   /* first element within the slice */
    int64_t count;
} ndp_piece;
/* Iterates the pieces of slice `index` of `shards`: start with *cursor = 0; false at the end. */
bool ndp_segments_piece(const ndp_segments *s, int shards, int index, int *cursor, ndp_piece *out);

#endif
