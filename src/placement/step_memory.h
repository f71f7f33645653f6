/* Inside the placement room: what the bytes of a rank hold while its step program is executed.
 *
 * The bytes of a region hold spans, whichever blocks the memory plan has given them to: a write through one block takes
 * what was written through another. Nothing is read but through a block of the same bytes. */
#ifndef NDP_PLACEMENT_STEP_MEMORY_H
#define NDP_PLACEMENT_STEP_MEMORY_H

#include "placement/lanes.h"
#include "placement/share.h"

/* What bytes can hold: X(NAME, "as messages say it"). */
#define NDP_HELD_LIST(X)                                                                                               \
    X(NOTHING, "nothing that was written in this step") /* that may be read */                                         \
    X(INPUTS, "inputs")                                 /* of the micro-batches, and tables: what the host wrote */    \
    X(CONSTANTS, "the constants of the update")                                                                        \
    X(PIECES, "a table of pieces")    /* of a buffer */                                                                \
    X(SCALAR, "a number of the step") /* of: which (ndp_step_scalar) */                                                \
    X(BOUNDARY, "the output")         /* of: the number of the unit whose output it is; at: the micro-batch */         \
    X(BOUNDARY_GRAD, "the gradient of the output")                                                                     \
    X(SAVED, "saved values") /* of: the unit's number; at: the micro-batch */                                          \
    X(SAVED_INPUT, "saved values for the input gradient")                                                              \
    X(KEPT, "values kept for the recompute")                                                                           \
    X(BETWEEN, "values between the gradients") /* of these, share: bits of the phases that changed them in place */    \
    /* Elements of a flat buffer from `first` on; of: the buffer's number in the whole model. */                       \
    X(PARAM, "weights")                           /* at: the version, 0 as the step before left it */                  \
    X(STATE0, "the first state of the optimizer") /* by place in the state; at: the version */                         \
    X(STATE1, "the second state of the optimizer")                                                                     \
    X(CODES0, "codes of the first state of the optimizer") /* the same, by place in the slice, */                      \
    X(CODES1, "codes of the second state of the optimizer")                                                            \
    X(SCALES0, "scales of the first state of the optimizer") /* and by block */                                        \
    X(SCALES1, "scales of the second state of the optimizer")                                                          \
    X(GRAD, "the gradient")                 /* share, own */                                                           \
    X(DIRECTION, "directions")              /* at: the place on tp whose elements they are */                          \
    X(ORTHOGONAL, "transformed directions") /* a direction after its matrix was transformed */                         \
    X(ZERO, "zeros")                        /* a gradient without a contribution, of any buffer */                     \
    X(MATRIX, "parts of a matrix") /* of: the buffer; at: segment and member (ndp_held_matrix); share: of elements */  \
    X(ORTHOGONAL_MATRIX, "a transformed matrix")

#define NDP_HELD_ENUMERATOR(NAME, text) NDP_HELD_##NAME,
typedef enum ndp_held_kind { NDP_HELD_LIST(NDP_HELD_ENUMERATOR) } ndp_held_kind;

typedef struct ndp_held {
    size_t start, end; /* bytes in the block; in ndp_memory: in the region */
    int64_t first;     /* element at `start`; in bytes where a kind has no elements */
    ndp_share share;
    ndp_held_kind kind;
    ndp_dtype type;
    ndp_own own;
    int of, at;
    int made;  /* the instruction; NDP_NONE: it was there before the step */
    int block; /* in ndp_memory: through which it was written */
} ndp_held;

/* Member `member` of a segment; the segment is `at` % NDP_MOST_SEGMENTS. */
static inline int ndp_held_matrix(int segment, int64_t member) { return segment + NDP_MOST_SEGMENTS * (int)member; }
/* Those of state k of the optimizer: first, of `kind`, that of state 0. */
static inline ndp_held_kind ndp_held_of_state(ndp_held_kind first, int k) { return (ndp_held_kind)((int)first + k); }

static inline bool ndp_held_is_flat(ndp_held_kind k) { return k >= NDP_HELD_PARAM && k <= NDP_HELD_ORTHOGONAL; }
/* Bytes from one `first` to the next. */
static inline size_t ndp_held_unit(const ndp_held *s) {
    return ndp_held_is_flat(s->kind) ? ndp_dtype_size(s->type) : 1;
}

/* ---- memory ---- */

/* A list of spans that grows. */
typedef struct ndp_held_list {
    ndp_held *items;
    int n, near; /* near: the one that was found last */
    int64_t capacity;
} ndp_held_list;

typedef struct ndp_memory {
    const ndp_block *blocks;
    ndp_held_list of[NDP_REGIONS]; /* ascending, disjoint */
    ndp_arena *arena;
} ndp_memory;

/* Bytes of a block. */
typedef struct ndp_bytes {
    int block;
    size_t start, end;
} ndp_bytes;

/* The bytes hold `s`, whose start and end are set. */
ndp_status ndp_memory_write(ndp_memory *m, ndp_bytes b, ndp_held s);
/* Nothing is left of what those bytes held. */
static inline ndp_status ndp_memory_clear(ndp_memory *m, ndp_bytes b) {
    return ndp_memory_write(m, b, (ndp_held){.made = NDP_NONE});
}
/* Writes spans that begin at byte 0 of `b`, made by instruction `made`. */
ndp_status ndp_memory_put(ndp_memory *m, ndp_bytes b, const ndp_held_list *s, int made);
/* The next part of bytes [*at, end) of a block that one span holds, or (kind NDP_HELD_NOTHING) none; false at the end.
 * *at: where the part after it starts. */
bool ndp_memory_next(const ndp_memory *m, int block, size_t *at, size_t end, ndp_held *out);
/* The span that holds all of those bytes, as far as it is in the block; kind NDP_HELD_NOTHING: no single span does. */
ndp_held ndp_memory_find(const ndp_memory *m, ndp_bytes b);
/* A share more in bytes that spans of gradients hold; they are cut where these bytes begin and end. */
ndp_status ndp_memory_add(ndp_memory *m, ndp_bytes b, ndp_share share, int made);

/* The first part of those bytes, which may be nothing: for messages. */
ndp_held ndp_memory_first(const ndp_memory *m, ndp_bytes b);

/* Bytes [start, end) of a span, as it would be alone. */
ndp_held ndp_held_cut(const ndp_held *s, size_t start, size_t end);

/* The span of a list that has byte `at`; NULL: none has. *end becomes where it ends, or the next one starts, if that is
 * before. */
const ndp_held *ndp_held_at(ndp_held_list *s, size_t at, size_t *end);
/* Appends, and joins with the last one what continues it. */
ndp_status ndp_held_add(ndp_arena *arena, ndp_held_list *s, ndp_held span);
/* Appends all of a list. */
ndp_status ndp_held_append(ndp_arena *arena, ndp_held_list *s, const ndp_held_list *more);
/* What those bytes hold, from byte 0 on; gaps are left out. */
ndp_status ndp_memory_read(const ndp_memory *m, ndp_bytes b, ndp_held_list *out);

#endif
