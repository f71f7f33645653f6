/* The table of a flat unit buffer: tensors one behind the other, and how it is cut into owned slices.
 *
 * A buffer holds the parameters of one unit, or what one rank of the tensor axis has of them: a segment is a rectangle
 * of a whole tensor, as it stands in files. Segments start at multiples of 64 elements, except glued ones, which lie
 * directly behind the one before (fused projections: one matrix product serves them all). A group of glued segments
 * takes the room of the largest such group on the tensor axis, so that offsets and slices are alike on all its ranks,
 * however uneven the cut. The buffer is padded so that `shards` equal slices of a multiple of 64 elements cover it;
 * gaps and padding are never read. */
#ifndef NDP_TENSOR_SEGMENTS_H
#define NDP_TENSOR_SEGMENTS_H

#include "base/arena.h"

enum { NDP_SEGMENT_ALIGN = 64, NDP_MOST_SEGMENTS = 32 /* of a buffer */ };

/* What the rows or columns of a tensor count: dimensions that the tensor axis may cut. */
typedef enum ndp_dim {
    NDP_DIM_WHOLE,
    NDP_DIM_HEADS,
    NDP_DIM_KV_HEADS,
    NDP_DIM_FFN,
    NDP_DIM_VOCAB,   /* rows of a table: tokens, positions */
    NDP_DIM_IN_HEAD, /* one for all heads: never cut, and each rank's gradient is that of its own heads */
    NDP_DIMS
} ndp_dim;

/* What the gradient of a tensor that several ranks hold is on each of them. */
typedef enum ndp_gradient_sum {
    NDP_GRADIENT_WHOLE,   /* all of it: nothing to add */
    NDP_GRADIENT_OVER_TP, /* a part: summed over the tensor axis */
    NDP_GRADIENT_OVER_KV  /* a part: summed over the ranks of the tensor axis that hold the same kv head */
} ndp_gradient_sum;

typedef struct ndp_segment {
    const char *name;   /* global name, as in the model folder */
    int64_t rows, cols; /* in the buffer; a vector has one row */
    int ndim;           /* as stored in files: 1 or 2 */
    ndp_dim dim[2];     /* of rows, of columns */
    int64_t whole[2];   /* rows, columns of the whole tensor */
    int64_t base[2];    /* where the part begins that all ranks together have as this segment; others have the rest */
    int64_t part[2];    /* rows, columns of that part: `whole`, save for parts of a tensor that files hold fused */
    int64_t first[2];   /* first row and column held here, within the whole */
    bool transposed;    /* files hold [columns, rows] */
    int64_t room;       /* elements that it takes on the rank of the tensor axis that has the most of it */
    int64_t offset;     /* in the buffer, elements */
    bool glued, decay;
    double copies; /* ranks of the tensor axis that hold these elements: each weighs 1 / copies in the gradient norm */
    bool replica;  /* another rank of the tensor axis holds them too and is the one that writes them to files */
    ndp_gradient_sum sum;
} ndp_segment;

typedef struct ndp_segments {
    ndp_segment *items;
    int n;
    int64_t elements; /* used, before padding for shards */
} ndp_segments;

/* A whole tensor: rows and cols of `dim`s, nothing cut. */
ndp_segment ndp_segment_whole(const char *name, int ndim, int64_t rows, int64_t cols, ndp_dim row_dim, ndp_dim col_dim);
/* Makes of a segment the part of a fused tensor that begins at `base` of axis 0 or 1, `whole` long there. */
void ndp_segment_fuse(ndp_segment *s, int axis, int64_t base, int64_t whole);
/* True for a part of a fused tensor that is not its first: the segment before it is of the same tensor. */
static inline bool ndp_segment_continues(const ndp_segment *s) { return s->base[0] > 0 || s->base[1] > 0; }
/* Keeps [first, first + count) of its part of axis 0 (rows) or 1; `most`: the largest count on any rank of the tensor
 * axis. */
void ndp_segment_cut(ndp_segment *s, int axis, int64_t first, int64_t count, int64_t most);

/* Sets the offsets from rows, cols, room and glued. */
void ndp_segments_layout(ndp_segments *s);
/* Elements of one slice when `shards` ranks cut the buffer. */
int64_t ndp_segments_slice(const ndp_segments *s, int shards);

/* What one slice holds of one segment. */
typedef struct ndp_piece {
    const ndp_segment *segment;
    int64_t slice_first; /* first element within the slice */
    int64_t count;
} ndp_piece;
/* Iterates the pieces of slice `index` of `shards`: start with *cursor = 0; false at the end. */
bool ndp_segments_piece(const ndp_segments *s, int shards, int index, int *cursor, ndp_piece *out);

/* A run of elements that follow each other in the whole tensor, as files hold it, and in a slice are `stride` apart: 1,
 * or the columns of a transposed segment. */
typedef struct ndp_run {
    const ndp_segment *segment;
    int64_t tensor_first; /* first element within the whole tensor */
    int64_t slice_first;
    int64_t count;
    int64_t stride;
} ndp_run;
/* The same, run by run: *cursor counts elements given. Each element comes once. */
bool ndp_segments_run(const ndp_segments *s, int shards, int index, int64_t *cursor, ndp_run *out);

#endif
