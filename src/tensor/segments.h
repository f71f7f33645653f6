/* The table of a flat unit buffer: consecutive tensors, and how the buffer is cut into owned slices.
 *
 * A buffer holds the parameters of one unit, or the part of them that belongs to one rank of the tensor axis: a segment
 * is a rectangle of a whole tensor as stored in files. Segments start at multiples of 64 elements, except glued ones,
 * which follow the previous segment without a gap (fused projections, computed by one matrix product). A group of glued
 * segments occupies the room of the largest such group on the tensor axis, so that offsets and slices are the same on
 * all its ranks, however uneven the cut. The buffer is padded so that `shards` equal slices of a multiple of 64
 * elements cover it; gaps and padding are never read. An optimizer whose states are blocks of elements asks for a
 * larger multiple (`align`), so that no block of a tensor is in two slices.
 *
 * A segment may be a stack: equal matrices one after the other, as those of a layer's experts are, which the tensor
 * axis cuts alike; with expert parallelism a rank has some of them, uncut. Matrix i begins rows x cols x i elements
 * after the segment's offset. As a parameter of a graph a stack is one matrix, [stack x rows, cols]; files have a
 * tensor for each matrix, with its number in the name, or one tensor [stack, rows, cols], or what ndp_stack_form says.
 *
 * In a packed buffer (packed.h) segments are packed matrices, or stacks of them, and the buffer's elements are bytes:
 * offsets, lengths and slices count them. Its slices have no runs, since no byte is an element of a file's tensor.
 *
 * Words: a segment belongs to the buffer, a slice to a rank of the shard group; a piece is where a slice and a segment
 * overlap; a run is a stretch of a piece that is contiguous in the files' tensor. A member is a matrix of a stack; a
 * pattern is the name of one whose members are tensors of their own. */
#ifndef NDP_TENSOR_SEGMENTS_H
#define NDP_TENSOR_SEGMENTS_H

#include "base/arena.h"
#include "mesh/mesh.h"
#include "tensor/packed.h"

enum { NDP_SEGMENT_ALIGN = 64, NDP_MOST_SEGMENTS = 40 /* of a buffer */ };
/* Elements of a tensor, as files have it, from which on it counts as large. */
enum { NDP_LEAST_CODED = 4096 };
enum { NDP_SEGMENT_NAME = 512 }; /* bytes of the name of a tensor, its end included */

/* The meaning of a tensor's rows or columns, which decides how the tensor axis cuts them. */
typedef enum ndp_dim {
    NDP_DIM_WHOLE,
    NDP_DIM_HEADS,
    NDP_DIM_KV_HEADS,
    NDP_DIM_FFN,
    NDP_DIM_VOCAB,   /* rows of a table: tokens, positions */
    NDP_DIM_IN_HEAD, /* shared by all heads: never cut; each rank's gradient comes from its own heads */
    NDP_DIM_ADDED,   /* added to a sum over ranks, a part on each: never cut; each rank's gradient is such a part */
    NDP_DIM_EXPERTS, /* of a router: never cut; with ep each rank's gradient is of the rows that it routes */
    NDP_DIMS
} ndp_dim;

/* How one tensor of files holds a stack of G groups (stack_grain matrices each, one below the other), as PEFT has the
 * factors of experts. */
typedef enum ndp_stack_form {
    NDP_STACK_APART, /* [stack, rows, cols] */
    NDP_STACK_BELOW, /* a matrix: the same elements as [stack x rows, cols] */
    NDP_STACK_INNER  /* a matrix [stack_grain x rows, cols x G]: the number of the group is its innermost index */
} ndp_stack_form;

typedef struct ndp_segment {
    const char *name; /* global name, as in the model folder; a pattern has one %d, for the number of the member. Words
                       after it, {gate,up}, are taken in turn: members 2 i and 2 i + 1 have number i */
    int64_t stack;    /* members held here. All but `length` says what one of them is */
    int64_t stack_first, stack_whole; /* the first of them, of how many on all ranks; 0 and 1: it is no stack */
    int64_t stack_grain;              /* members that stay together on a rank: those of an expert */
    ndp_stack_form form;              /* of its tensor in files, where that is one */
    int64_t rows, cols;               /* in the buffer; a vector has one row */
    int ndim;                         /* as stored in files: 1 or 2; the tensor of a whole stack has one more */
    ndp_dim dim[2];                   /* of the rows, of the columns */
    int64_t whole[2];                 /* rows and columns of the whole tensor */
    int64_t base[2];                  /* first row and column of the part that this segment is on all ranks together */
    int64_t part[2];  /* rows and columns of that part: `whole`, unless files store several tensors fused */
    int64_t first[2]; /* first row and column held here, within the whole */
    int64_t grain[2]; /* rows and columns that stay together on a rank: those of a head */
    int64_t apart;   /* parts of the tensor take turns, a grain of each (of gpt_neox: q, k, v of a head): from the start
                        of one grain of this part to the next, in rows, of a vector in columns; 0: they do not */
    bool transposed; /* files store [columns, rows] */
    bool by_depth;   /* files store [rows, 1, columns]: the taps of a convolution of each row by itself */
    int64_t most[2]; /* its rows and columns on the rank of the tensor axis that has the most of them */
    int64_t offset;  /* in the buffer, elements */
    int64_t length;  /* elements of the buffer that it takes, of all members; of packed ones their bytes */
    bool glued;
    uint8_t named_by; /* the entry of optimizer.groups that names it, from 1 on; 0: none does */
    bool no_grad; /* it is never trained, and is fp32 also where the rest is bf16, in files too: a router's bias. All of
                     a buffer are so, or none */
    bool drawn;   /* files of the model lack it: it begins at random */
    bool projection; /* the matrix of a linear map inside a model: an optimizer may update it as a whole */
    bool coded;      /* of a large tensor, and no embedding: an optimizer may keep its states as codes of 8 bits */
    /* The groups whose ranks own the same elements and sum their gradients. The owners of the buffer's slices, among
     * which the gradient is summed before, are not one of them. */
    ndp_groups sums;
    /* These follow from `sums` and the mesh (parallel/held.h). */
    double
        copies;   /* ranks of a replica of the model with these elements: each weighs 1 / copies in the gradient norm */
    bool replica; /* another rank of the replica has them too and writes them to files */
} ndp_segment;

typedef struct ndp_segments {
    ndp_segment *items;
    int n;
    ndp_packing packing;              /* how matrices are stored; NONE: an element is one of a tensor */
    int64_t align;                    /* of groups and slices: a multiple of NDP_SEGMENT_ALIGN; 0: that */
    int64_t elements;                 /* used, before padding for shards */
    uint8_t order[NDP_MOST_SEGMENTS]; /* places in `items`, by offset */
} ndp_segments;

/* A whole tensor, uncut, with the dimensions `row_dim` and `col_dim`; the replicas of the model sum its gradient. */
ndp_segment ndp_segment_whole(const char *name, int ndim, int64_t rows, int64_t cols, ndp_dim row_dim, ndp_dim col_dim);
/* Turns a segment into the part of a fused tensor that starts at `base` of axis 0 or 1, where the tensor has `whole`.
 */
void ndp_segment_fuse(ndp_segment *s, int axis, int64_t base, int64_t whole);
/* True for a part of a fused tensor other than its first: the previous segment belongs to the same tensor. */
static inline bool ndp_segment_continues(const ndp_segment *s) { return s->base[0] > 0 || s->base[1] > 0; }
/* The same of parts that take turns: `base` is where its first grain starts, the next one is `apart` further. */
void ndp_segment_fuse_in_turn(ndp_segment *s, int axis, int64_t base, int64_t apart, int64_t whole);
/* The row (axis 0) or column (1) of the whole tensor that number `i` of those held here is; and which of them a row or
 * column of the whole tensor is: below 0 or beyond the last: it is not here. */
int64_t ndp_segment_at(const ndp_segment *s, int axis, int64_t i);
int64_t ndp_segment_find(const ndp_segment *s, int axis, int64_t at);
/* Keeps [first, first + count) of the segment's part along axis 0 (rows) or 1; `most`: the largest count on any rank of
 * the tensor axis. */
void ndp_segment_cut(ndp_segment *s, int axis, int64_t first, int64_t count, int64_t most);

/* ---- stacks ---- */

/* Makes a stack of `n` such matrices of the segment, all of them here; `grain` of them stay together. */
static inline void ndp_segment_pile(ndp_segment *s, int64_t n, int64_t grain) {
    s->stack = s->stack_whole = n, s->stack_grain = grain;
}
/* Keeps part `i` of `n` of a stack's members: of G grains those from G i / n to G (i + 1) / n. */
void ndp_segment_cut_stack(ndp_segment *s, int n, int i);
static inline bool ndp_segment_is_stack(const ndp_segment *s) { return s->stack_whole > 1; }
/* Matrices of the segment: its members here, or the one that it is. */
static inline int64_t ndp_segment_matrices(const ndp_segment *s) { return ndp_segment_is_stack(s) ? s->stack : 1; }
/* Elements that are held here, unpacked. */
static inline int64_t ndp_segment_elements(const ndp_segment *s) { return ndp_segment_matrices(s) * s->rows * s->cols; }
/* True if its elements are the columns of a parameter with one row. A stack of vectors is a matrix. */
static inline bool ndp_segment_is_vector(const ndp_segment *s) { return s->ndim == 1 && !ndp_segment_is_stack(s); }
/* Member `i` of those held here as a segment of its own that has the stack's name; an ordinary segment is its own
 * member 0. Where it begins is said of members that are not packed. */
ndp_segment ndp_segment_member(const ndp_segment *s, int64_t i);

/* The tensors of files that the segment is, or is a part of: as many as a pattern has members here, else 1; */
int64_t ndp_segment_tensors(const ndp_segment *s);
/* the elements of each, as files have it; */
int64_t ndp_segment_tensor_elements(const ndp_segment *s);
/* the name of the one that has member `i`: the segment's, or that member's, which is written to `room`; */
const char *ndp_segment_tensor_name(const ndp_segment *s, int64_t i, char room[NDP_SEGMENT_NAME]);
/* and whether one of them has that name. */
bool ndp_segment_is_named(const ndp_segment *s, const char *tensor);
/* The segment as a part of that one tensor: member `i` of a pattern, with its name in `room`; else what it is. */
ndp_segment ndp_segment_of_tensor(const ndp_segment *s, int64_t i, char room[NDP_SEGMENT_NAME]);

/* ---- layout ---- */

/* Sets offsets, lengths and their order from rows, cols, most, glued, sums and align. Segments with equal sums lie side
 * by side, so that they are summed at once; a group of glued ones stays together, where its last one belongs. */
void ndp_segments_layout(ndp_segments *s);
/* Where the parts of packed segment `s` are, from its offset on. */
ndp_packed ndp_segment_packed(const ndp_segments *of, const ndp_segment *s);
/* True if parts take turns, and a grain of each is whole blocks of nf4. */
bool ndp_segment_turns_in_blocks(const ndp_segment *s);
/* The number in the whole tensor of the block of a packed matrix that the segment begins with, and how many blocks a
 * row is from the next; 0: rows are whole. Where the above is true, a grain counts as one row, and has `row_group`
 * rows, which is 0 elsewhere. */
int64_t ndp_segment_first_block(const ndp_segment *s);
int64_t ndp_segment_row_blocks(const ndp_segment *s);
int64_t ndp_segment_row_group(const ndp_segment *s);
/* True if rows [first[0], + rows) and columns [first[1], + cols) of a tensor of whole[0] x whole[1] are whole blocks of
 * nf4. */
bool ndp_packed_in_blocks(const int64_t whole[2], const int64_t first[2], int64_t rows, int64_t cols);
/* Elements of one slice if `shards` ranks share the buffer. */
int64_t ndp_segments_slice(const ndp_segments *s, int shards);

/* The overlap of a slice and a segment. */
typedef struct ndp_piece {
    const ndp_segment *segment;
    int64_t slice_first; /* first element within the slice */
    int64_t count;
} ndp_piece;
/* Iterates over the pieces of slice `index` of `shards`: start with *cursor = 0; false at the end. */
bool ndp_segments_piece(const ndp_segments *s, int shards, int index, int *cursor, ndp_piece *out);

/* Elements of one member that are contiguous in the whole tensor as stored in files; in a slice they are `stride`
 * apart: 1, or the number of columns of a transposed segment. Of NDP_STACK_INNER they are one of each of some members,
 * of which `member` is the first. */
typedef struct ndp_run {
    const ndp_segment *segment;
    int64_t member;       /* of those of a stack that are held here; else 0 */
    int64_t tensor_first; /* first element within the whole tensor */
    int64_t slice_first;
    int64_t count;
    int64_t stride;
} ndp_run;
/* Iterates over the runs of a slice; *cursor counts the elements returned so far. Each element is in exactly one run.
 */
bool ndp_segments_run(const ndp_segments *s, int shards, int index, int64_t *cursor, ndp_run *out);

#endif
