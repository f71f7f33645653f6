/* Inside the placement room: what a matrix holds, as tiles.
 *
 * A tile is a rectangle of the matrix whose element [r,c] is element [at_row + r, at_col + c] of one thing, or a
 * summand of it: `share` of the sum (share.h). Zig-zag rows are two tiles, fused projections one each, kv heads that
 * several ranks have the same tile on each of them. */
#ifndef NDP_PLACEMENT_CONTENT_H
#define NDP_PLACEMENT_CONTENT_H

#include "placement/items.h"
#include "placement/share.h"
#include "tensor/packed.h"
#include <stdbool.h>

/* What a matrix can hold a part of: X(NAME, of what, what messages have before its name, and after it). `id` of a thing
 * is a value of the whole graph, slot and segment (ndp_thing_segment), these and the part (ndp_thing_packed), an input
 * or a node. */
#define NDP_THINGS(X)                                                                                                  \
    X(NONE, NOTHING, "what nothing wrote", "")                                                                         \
    X(ZERO, NOTHING, "zeros", "") /* a product over no columns, on a rank that has none of them */                     \
    X(VALUE, A_VALUE, "", "")                                                                                          \
    X(GRADIENT, A_VALUE, "the gradient of ", "")    /* of the loss by a value */                                       \
    X(PARAM, A_SEGMENT, "", "")                     /* rows and columns of its part (segment.part) */                  \
    X(PACKED, A_PART, "a part of ", "")             /* of a packed matrix, as the rank has it */                       \
    X(PGRADIENT, A_SEGMENT, "the gradient of ", "") /* of a parameter */                                               \
    X(DATA, AN_INPUT, "the input ", "")                                                                                \
    X(PRODUCT, A_VALUE, "", " without its bias")                                                                       \
    X(KEYS, A_VALUE, "", " over some of the keys") /* attention or its log-sum-exp: only attention_merge adds these */ \
    X(LOGITS, A_NODE, "logits", "")                /* columns are the vocabulary */                                    \
    X(SLOPES, A_NODE, "slopes of logits", "")      /* the same */                                                      \
    X(STATS, A_NODE, "statistics of logits", "")   /* at_col: the first id of the slice, share: of the vocabulary */   \
    X(LOSSES, A_NODE, "losses of its router", "")  /* of rows */                                                       \
    X(SQUARES, A_NODE, "the mean of squares", "")  /* that it norms by */                                              \
    X(DSQUARES, A_NODE, "the gradient of the mean of squares", "")                                                     \
    /* Of a layer with a state, by value head: rows are D for each head, at_row D times the head. Of rows [from, to)   \
     * of the micro-batch (rules_pieces.c). */                                                                         \
    X(MAPS, A_NODE, "a map of the state", "")                                                                          \
    X(STATES, A_NODE, "a state", "") /* after rows [0, to) */                                                          \
    X(BACKS, A_NODE, "a map of the state's gradient", "")                                                              \
    X(DSTATES, A_NODE, "the gradient of a state", "") /* before rows from `from` on */

typedef enum ndp_thing_of {
    NDP_OF_NOTHING,
    NDP_OF_A_VALUE,
    NDP_OF_A_SEGMENT,
    NDP_OF_A_PART,
    NDP_OF_AN_INPUT,
    NDP_OF_A_NODE
} ndp_thing_of;
#define NDP_THING_ENUMERATOR(NAME, ...) NDP_THING_##NAME,
typedef enum ndp_thing_kind { NDP_THINGS(NDP_THING_ENUMERATOR) } ndp_thing_kind;

typedef struct ndp_thing {
    ndp_thing_kind kind;
    int id;
} ndp_thing;

static inline int ndp_thing_segment(int slot, int segment) { return slot * 64 + segment; }
static inline int ndp_thing_packed(int slot, int segment, int part) {
    return ndp_thing_segment(slot, segment) * NDP_PACKED_PARTS + part;
}
static inline bool ndp_thing_is(ndp_thing t, ndp_thing_kind kind, int id) { return t.kind == kind && t.id == id; }
static inline bool ndp_things_equal(ndp_thing a, ndp_thing b) { return a.kind == b.kind && a.id == b.id; }

typedef struct ndp_tile {
    int64_t row, rows, col, cols; /* in the matrix */
    int64_t at_row, at_col;       /* in the thing */
    int64_t from, to;             /* rows of the micro-batch that a map or a state is of; else 0 */
    uint64_t among;               /* not 0: the rows are in some order; of which set they are (rules_experts.c) */
    int fold;                     /* not 0: it stands for the rows of that fold (row_sets.h), the first is 1 */
    ndp_thing what;
    ndp_share share; /* 1: complete */
    int made;        /* the call that wrote it, for messages; NDP_NONE: none of this list */
} ndp_tile;

/* Tiles, disjoint, by row, then by column. Memory is the arena's. */
typedef struct ndp_content {
    int64_t rows, cols;
    ndp_tile *tiles;
    int n;
    int64_t capacity;
    ndp_arena *arena;
} ndp_content;

static inline ndp_content ndp_content_of(ndp_arena *a, int64_t rows, int64_t cols) {
    return (ndp_content){.rows = rows, .cols = cols, .arena = a};
}
/* Appends a tile; empty ones are left out. NDP_ENOMEM. */
ndp_status ndp_content_add(ndp_content *c, ndp_tile t);
/* Sorts, and joins tiles that continue each other. */
void ndp_content_join(ndp_content *c);
/* True if the tiles cover all of the matrix. */
bool ndp_content_full(const ndp_content *c);
/* True if both are the same part of the same things, of any matrix. */
bool ndp_contents_equal(const ndp_content *a, const ndp_content *b);
/* The part of tile `t` in a rectangle; false: none. Coordinates stay those of the matrix. */
bool ndp_tile_cut(const ndp_tile *t, int64_t row, int64_t rows, int64_t col, int64_t cols, ndp_tile *out);
/* Appends to `out` what `c` has in a rectangle, moved so that its corner is at [to_row, to_col]. */
ndp_status ndp_content_move(const ndp_content *c, int64_t row, int64_t rows, int64_t col, int64_t cols, int64_t to_row,
                            int64_t to_col, ndp_content *out);

/* ---- memory ---- */

/* The bytes of a base: contents by place. */
typedef struct ndp_mapped_tile {
    size_t at, ld; /* bytes: of its first element; between rows */
    size_t size;   /* of an element */
    ndp_tile tile; /* row and col are 0 */
} ndp_mapped_tile;
typedef struct ndp_tile_map {
    ndp_mapped_tile *items;
    int64_t n, capacity;
} ndp_tile_map;

/* A matrix in memory: rows x cols elements of `size` bytes at byte `at`, rows `ld` bytes apart. */
typedef struct ndp_matrix {
    size_t at, ld, size;
    int64_t rows, cols;
} ndp_matrix;

/* What is in the matrix's memory; what nothing wrote is missing. */
ndp_status ndp_tile_map_read(const ndp_tile_map *m, const ndp_matrix *x, ndp_content *out);
/* Writes the content; what was in the same bytes is gone. Memory is that of the content's arena. */
ndp_status ndp_tile_map_write(ndp_tile_map *m, const ndp_matrix *x, const ndp_content *c);

#endif
