/* Inside the placement room: the lanes while their step programs are executed, and what the files of this level share.
 *
 * step_lanes.c   starts and ends: what memory holds before and after a step
 * step_text.c    messages about errors
 * step_walk.c    the order in which lanes run
 * step_run.c     RUN: the contract of a unit's list
 * step_meet.c    begins and waits
 * step_pinned.c  places in pinned memory
 * step_rings.c   what takes turns in memory
 * step_windows.c writes into memory that other ranks read
 * step_sums.c    what a collective makes of the ranks' operands
 * step_scalars.c tokens, loss, norm
 * step_owners.c  updates
 * step_whole.c   updates of whole matrices
 * step_others.c  gradients in the slices of owners that are not lanes */
#ifndef NDP_PLACEMENT_STEP_LANES_H
#define NDP_PLACEMENT_STEP_LANES_H

#include "placement/step.h"
#include "placement/step_memory.h"

/* Elements of a buffer that a segment has. */
typedef struct ndp_stretch {
    int64_t first, end;
    int segment;
    bool projection;
} ndp_stretch;

/* A buffer on the ranks of one program. */
typedef struct ndp_step_buffer {
    const char *name;
    int whole;       /* its number in the whole model */
    ndp_shard shard; /* as claimed; `index` proven */
    bool trainable;
    ndp_stretch *stretches; /* ascending; those of all slices */
    int n;
    int64_t *pieces; /* the table of this rank's slice: n_pieces rows of `columns` */
    int64_t n_pieces;
} ndp_step_buffer;

/* What lanes with one program share. */
typedef struct ndp_step_program {
    const ndp_program *program;
    ndp_step_places places;
    ndp_step_buffer *buffers;                     /* by buffer */
    int *local;                                   /* by buffer of the whole model; NDP_NONE: this rank has none of it */
    ndp_apart apart;                              /* of the optimizer */
    int columns;                                  /* of tables of pieces */
    uint64_t written[NDP_MAX_GRAPHS][NDP_PHASES]; /* bits of the bases that a list writes */
    size_t pinned[NDP_MAX_GRAPHS][NDP_PHASES];    /* where the places of a list's collectives end */
} ndp_step_program;

typedef enum ndp_step_scalar {
    NDP_STEP_VALID,
    NDP_STEP_LOSS,
    NDP_STEP_SQUARES,
    NDP_STEP_SCALE,
    NDP_STEP_NORM,
    NDP_STEP_CLIP,
    NDP_STEP_PAIRS, /* these three where rows are pairs */
    NDP_STEP_NLL_TOKENS,
    NDP_STEP_NLL_SCALE,
    NDP_STEP_ROUTED, /* the rest where routers have losses */
    NDP_STEP_ROUTER_SCALE,
    NDP_STEP_ROUTERS,
    NDP_STEP_SCALARS
} ndp_step_scalar;

/* Of a sum, what is own on which data axes. */
typedef struct ndp_sum {
    ndp_share by_own[NDP_OWN_BOTH + 1];
} ndp_sum;

/* A communication that a lane has begun. */
typedef struct ndp_under_way {
    const ndp_instr *instr;
    int lane, at, channel, work, peer, tag;
    int listed;                 /* its place in ndp_step_lane.list */
    int64_t number;             /* of its meeting; in the mailbox of a message */
    int of;                     /* buffer of the whole model; NDP_NONE */
    size_t bytes;               /* of the operand */
    ndp_held_list spans, added; /* the operand, from byte 0; what the sum is added to */
    bool is_part;               /* of an all_gather: the operand is a part of the sum `added` (ndp_scattered) */
    int scalar;                 /* NDP_NONE: no scalar */
    ndp_sum sum;
    size_t place, place_end; /* in pinned memory */
    /* Of the first member of a group: what the group makes, for all of them. */
    bool made;
    ndp_held_list result;
    int left;                           /* members that have not waited yet */
    struct ndp_under_way *next, *other; /* of those that are free; of all */
} ndp_under_way;

/* The part of a sum that a reduce_scatter left, and the sum: a gather of such parts gives it back. */
typedef struct ndp_scattered {
    ndp_group_kind group;
    ndp_bytes bytes; /* block NDP_NONE: there was none */
    int made;        /* the instruction */
    ndp_held_list sum;
} ndp_scattered;

/* What reduce_scatters left in the slices of all owners: elements [first, end) of the buffer. */
typedef struct ndp_reduced {
    int64_t first, end;
    ndp_sum sum;
} ndp_reduced;
typedef struct ndp_step_others {
    ndp_reduced *items;
    int64_t n, capacity;
    bool known, moved; /* moved: the slice is also written in another way, so the items do not say all */
} ndp_step_others;

/* A lane's write into a window that other ranks read. */
typedef struct ndp_window_write {
    bool any;
    int at;
    int64_t waited[NDP_CHANNELS]; /* the last meeting before it */
} ndp_window_write;

typedef struct ndp_step_lane {
    struct ndp_step_world *world;
    int lane;
    const ndp_program *program;
    const ndp_step_program *shared;
    ndp_memory memory;
    ndp_sum scalars[NDP_STEP_SCALARS];
    ndp_walk walk;
    const ndp_instr *instr;
    bool over, again;          /* again: the instruction waits for another lane */
    ndp_under_way **under_way; /* by number of the communication (ndp_work_at) */
    ndp_under_way **list;      /* the same without gaps */
    int n_under_way;
    int64_t waited[NDP_CHANNELS], *begun[NDP_CHANNELS], n_begun[NDP_CHANNELS], capacity[NDP_CHANNELS];
    ndp_scattered part;      /* the last one */
    ndp_step_others *others; /* by buffer */
    int64_t *read;           /* by buffer: when a unit last read it */
    ndp_window_write *wrote; /* by buffer */
} ndp_step_lane;

/* Messages from one lane to another in one direction that are not received yet. */
typedef struct ndp_mail {
    ndp_under_way **items;
    int64_t n, capacity;
} ndp_mail;

typedef struct ndp_step_world {
    const ndp_lanes *lanes;
    const ndp_units *units;
    const ndp_model *whole;
    ndp_visits visits;
    int without; /* micro-batches that are not executed */
    int micro_batches;
    ndp_share *weights; /* by micro-batch: of all that count */
    ndp_own data;       /* data axes of more than one rank */
    ndp_step_lane *items;
    ndp_step_program *programs;
    int n_programs;
    ndp_members (*members)[NDP_GROUPS]; /* by lane */
    ndp_meetings meetings;
    ndp_mail *mail;            /* to lane, from place on pp, direction */
    ndp_under_way *free, *all; /* all: for the release */
    ndp_share norm;            /* of all trained elements, once */
} ndp_step_world;

/* ---- step_lanes.c ---- */

ndp_status ndp_step_world_init(const ndp_lanes *l, const ndp_units *u, ndp_visits visits, ndp_step_world *out);
void ndp_step_world_release(ndp_step_world *w);
/* What memory must hold after the last instruction. */
ndp_status ndp_step_end(const ndp_step_lane *l);

/* NDP_EBUG with the lane's rank and instruction. */
ndp_status ndp_step_refuse(const ndp_step_lane *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "the output of model.layers.0, micro-batch 2, made by #11 forward model.layers.0": what a span holds. */
const char *ndp_held_text(const ndp_step_lane *l, const ndp_held *s, char *out, size_t size);
enum { NDP_HELD_TEXT = 320 };

/* The numbers that depend on a rank's place in a group are those of the rank whose program it is. */
static inline int ndp_step_place(const ndp_step_lane *l, ndp_group_kind kind) {
    return ndp_mesh_group(&l->program->opts.step.mesh, kind).rank;
}
/* Its place on tp. */
static inline int ndp_step_tp(const ndp_step_lane *l) { return l->world->members[l->lane][NDP_GROUP_TP].me; }
/* True if a state of `n` elements has none for what is updated apart: pieces have places of their own in it. */
static inline bool ndp_step_state_is_short(const ndp_step_lane *l, const ndp_step_buffer *b, int64_t n) {
    return l->shared->apart != NDP_APART_NONE && n < b->shard.slice;
}
/* Blocks of codes that the piece of a row is in. */
static inline int64_t ndp_step_blocks(const int64_t *row) {
    int64_t first = row[NDP_PIECE_FIRST], last = first + row[NDP_PIECE_COUNT] - 1;
    return last / NDP_CODE_BLOCK - first / NDP_CODE_BLOCK + 1;
}
/* The table of a buffer on the lane. */
static inline const ndp_segments *ndp_step_table(const ndp_step_lane *l, int buffer) {
    return &l->world->lanes->items[l->lane].tables[buffer];
}
/* The bytes of an operand of the lane's instruction, of `bytes` bytes. */
static inline ndp_bytes ndp_step_bytes(const ndp_step_lane *l, const ndp_operand *o, size_t bytes) {
    int block = ndp_block_at(l->program->blocks, o->base, &l->walk);
    return (ndp_bytes){block, o->offset, o->offset + bytes};
}
static inline size_t ndp_step_operand_bytes(const ndp_operand *o) {
    return (size_t)(o->view.rows * o->view.cols) * ndp_dtype_size(o->view.dtype);
}
static inline bool ndp_step_is_absent(const ndp_operand *o) { return o->base == NDP_NONE || o->view.rows == 0; }

/* ---- step_run.c, step_meet.c, step_scalars.c, step_owners.c, step_whole.c ---- */

ndp_status ndp_step_run(ndp_step_lane *l);
ndp_status ndp_step_begin(ndp_step_lane *l);
/* Sets l->again if another lane has to run first. */
ndp_status ndp_step_wait(ndp_step_lane *l);
/* Every owner's write into a window comes after the last read of its group (step_windows.c). */
ndp_status ndp_step_windows(const ndp_step_world *w);
/* A unit that reads a buffer. */
void ndp_step_reads(ndp_step_lane *l, int buffer);
void ndp_step_writes(ndp_step_lane *l, int buffer);

/* The scalar at those bytes; NDP_NONE: none is. */
int ndp_step_scalar_at(const ndp_step_lane *l, ndp_bytes b);
/* True if its bytes hold it, as this step wrote it. */
bool ndp_step_scalar_is_written(const ndp_step_lane *l, int scalar);
ndp_status ndp_step_scalar_write(ndp_step_lane *l, int scalar, ndp_sum value);
/* Refuses what is not complete. */
ndp_status ndp_step_scalar_needs(const ndp_step_lane *l, int scalar);
const char *ndp_step_scalar_name(int scalar);
/* The sum over a group of which this rank's part is `s`: `members` lanes are summed already. */
ndp_sum ndp_step_sum_over(const ndp_step_world *w, const ndp_sum *s, ndp_own own);
/* A kernel of the program. */
ndp_status ndp_step_kernel(ndp_step_lane *l);
ndp_status ndp_step_norm(const ndp_step_world *w, ndp_share *out);
ndp_status ndp_step_square_sum(ndp_step_lane *l);
ndp_status ndp_step_update(ndp_step_lane *l);
ndp_status ndp_step_copy(ndp_step_lane *l);
ndp_status ndp_step_transform(ndp_step_lane *l);

/* The rows of the table of pieces that an operand has. */
typedef struct ndp_piece_rows {
    const ndp_step_buffer *buffer;
    int number; /* of it */
    const int64_t *rows;
    int64_t n, first; /* first: the number of the first row */
} ndp_piece_rows;
/* Refuses an operand that is not rows of a table. For an absent operand, out->n is 0. */
ndp_status ndp_step_pieces(const ndp_step_lane *l, const ndp_operand *o, ndp_piece_rows *out);
/* Refuses where elements [first, first + count) of the buffer are not all held by `kind`, from byte `at` of a block on.
 * `version`: what `at` of the spans is to be. Gradients must be complete. */
ndp_status ndp_step_needs(const ndp_step_lane *l, int block, size_t at, ndp_held_kind kind, const ndp_step_buffer *b,
                          int64_t first, int64_t count, ndp_dtype type, int version);
/* The share of elements [first, first + count) of a segment's rectangle among those of its tensor's part. */
ndp_share ndp_step_measure(const ndp_segment *s, int whole, int segment, int64_t first, int64_t count);

/* ---- step_others.c ---- */

ndp_status ndp_step_others_init(ndp_step_lane *l);
void ndp_step_others_release(ndp_step_lane *l);
/* A reduce_scatter has made `sum`. Keeps it if it is that of a buffer's owners, of all slices. */
ndp_status ndp_step_scattered(ndp_step_lane *l, const ndp_under_way *u, const ndp_held_list *sum);
/* A copy has written to that block. */
void ndp_step_moved(ndp_step_lane *l, int block);
/* At the end of the step: gradients are complete in the slices of all owners. */
ndp_status ndp_step_others_check(const ndp_step_world *w);

/* ---- step_sums.c ---- */

/* What the group of an operation under way makes of its members' operands: spans, from byte 0 of the result (of all
 * parts, for a reduce_scatter). */
ndp_status ndp_step_reduce(ndp_step_lane *l, const ndp_members *m, ndp_under_way **members, ndp_held_list *out);
ndp_status ndp_step_gather(ndp_step_lane *l, const ndp_members *m, ndp_under_way **members, ndp_held_list *out);

/* ---- step_pinned.c ---- */

/* Bytes of a collective's place: its result, and what is handed in where that is apart. */
size_t ndp_step_pinned_bytes(const ndp_call *c);
/* Checks the places of the lists' collectives. */
ndp_status ndp_step_pinned_init(ndp_step_program *s);
/* Gives a collective of the program that begins its place, which no other under way may have. */
ndp_status ndp_step_pin(const ndp_step_lane *l, ndp_under_way *u);
/* Before a RUN. */
ndp_status ndp_step_pinned_run(const ndp_step_lane *l);

/* ---- step_rings.c ---- */

/* Checks the memory of what takes turns in it. */
ndp_status ndp_step_rings_check(const ndp_program *p);

#endif
