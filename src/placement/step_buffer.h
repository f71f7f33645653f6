/* Inside the placement room: a flat buffer as the ranks of one program have it, and what else lanes with one program
 * share. Nothing here changes while programs are executed. */
#ifndef NDP_PLACEMENT_STEP_BUFFER_H
#define NDP_PLACEMENT_STEP_BUFFER_H

#include "placement/step_memory.h"

/* Elements of a buffer that a segment has. */
typedef struct ndp_stretch {
    int64_t first, end;
    int segment;
    bool directed; /* updated as a whole matrix, by directions */
} ndp_stretch;

/* A buffer on the ranks of one program. */
typedef struct ndp_step_buffer {
    const char *name;
    int whole;              /* its number in the whole model */
    ndp_shard shard;        /* as claimed; `index` proven */
    bool trainable, moves;  /* moves: as ndp_buffer */
    ndp_stretch *stretches; /* ascending; those of all slices */
    int n;
    int64_t *pieces; /* the table of this rank's slice: n_pieces rows of `columns` */
    int64_t n_pieces;
} ndp_step_buffer;

typedef struct ndp_step_program {
    const ndp_program *program;
    ndp_step_buffer *buffers;                     /* by buffer */
    int *local;                                   /* by buffer of the whole model; NDP_NONE: this rank has none of it */
    int columns;                                  /* of tables of pieces */
    uint64_t written[NDP_MAX_GRAPHS][NDP_PHASES]; /* bits of the bases that a list writes */
} ndp_step_program;

/* Takes what a program has, and proves what depends on it alone: slices, places in pinned memory, and the memory of
 * what takes turns in it. Memory is the arena's. */
ndp_status ndp_step_program_init(const ndp_lanes *l, const ndp_program *p, ndp_arena *arena, ndp_step_program *out);

/* Fills the stretches of a table. */
ndp_status ndp_step_stretches(const ndp_update_groups *g, const ndp_segments *s, ndp_arena *arena,
                              ndp_step_buffer *out);
/* Where the last tensor ends. */
static inline int64_t ndp_step_buffer_end(const ndp_step_buffer *b) {
    return b->n > 0 ? b->stretches[b->n - 1].end : 0;
}
/* The elements of the next stretch that are in [low, high): from *k on, which moves past it. False: there are none.
 */
bool ndp_step_next_stretch(const ndp_step_buffer *b, int *k, int64_t low, int64_t high, ndp_stretch *out);

/* Blocks of codes that the piece of a row is in. */
static inline int64_t ndp_step_blocks(const int64_t *row) {
    int64_t first = row[NDP_PIECE_FIRST], last = first + row[NDP_PIECE_COUNT] - 1;
    return last / NDP_CODE_BLOCK - first / NDP_CODE_BLOCK + 1;
}
/* The share of elements [first, first + count) of a segment's rectangle among those of its tensor's part. */
ndp_share ndp_step_measure(const ndp_segment *s, int whole, int segment, int64_t first, int64_t count);
/* Checks the places of communications. */
ndp_status ndp_step_pinned_check(const ndp_program *p, ndp_arena *arena);

#endif
