/* Inside the placement room: a lane while its step program is executed: what it holds, what it has begun, and what its
 * instructions need of memory. What is between lanes is in step_world.h.
 *
 * step_lane.c    operands, messages about errors
 * step_run.c     RUN: the contract of a unit's list
 * step_scalars.c tokens, loss, norm
 * step_owners.c  updates
 * step_whole.c   updates of whole matrices */
#ifndef NDP_PLACEMENT_STEP_LANE_H
#define NDP_PLACEMENT_STEP_LANE_H

#include "placement/step_buffer.h"
#include "placement/unit.h"

/* The numbers of a step: X(NAME, "as messages say it", where it is in ndp_all_scalars, its type, the input of units
 * that it is; TOKENS: none). */
#define NDP_STEP_SCALARS_LIST(X)                                                                                       \
    X(VALID, "valid tokens", step.valid, I64, TOKENS)                                                                  \
    X(LOSS, "loss", step.loss, F64, LOSS)                                                                              \
    X(SQUARES, "sum of squares", step.squares, F64, TOKENS)                                                            \
    X(SCALE, "loss scale", step.scale, F64, LOSS_SCALE)                                                                \
    X(NORM, "norm", step.norm, F64, TOKENS)                                                                            \
    X(CLIP, "clipping factor", step.clip, F64, TOKENS)                                                                 \
    X(PAIRS, "pairs", pair.pairs, I64, TOKENS) /* these three where rows are pairs */                                  \
    X(NLL_TOKENS, "tokens of the nll", pair.nll_tokens, I64, TOKENS)                                                   \
    X(NLL_SCALE, "scale of the nll", pair.nll_scale, F64, NLL_SCALE)                                                   \
    X(ROUTED, "routed rows", router.rows, I64, TOKENS) /* the rest where routers have losses */                        \
    X(ROUTER_SCALE, "scale of the router losses", router.scale, F64, ROUTER_SCALE)                                     \
    X(ROUTERS, "router losses", router.sums, F64, ROUTER_SUMS)                                                         \
    X(LOADS, "loads of experts", step.loss, F64, LOADS) /* behind all others, where there are mixtures */

#define NDP_STEP_SCALAR_ENUMERATOR(NAME, ...) NDP_STEP_##NAME,
typedef enum ndp_step_scalar { NDP_STEP_SCALARS_LIST(NDP_STEP_SCALAR_ENUMERATOR) NDP_STEP_SCALARS } ndp_step_scalar;

/* Of a sum, what is own on which data axes. */
typedef struct ndp_sum {
    ndp_share by_own[NDP_OWN_BOTH + 1];
} ndp_sum;
static inline void ndp_sum_add(ndp_sum *sum, const ndp_sum *more) {
    for (int own = 0; own <= NDP_OWN_BOTH; own++)
        sum->by_own[own] = ndp_share_add(sum->by_own[own], more->by_own[own]);
}

/* A communication that a lane has begun. */
typedef struct ndp_under_way {
    const ndp_instr *instr;
    int lane, at, channel, work, peer, tag;
    const ndp_members *group;   /* of a collective */
    int64_t number;             /* of its meeting; in the mailbox of a message */
    int of;                     /* buffer of the whole model; NDP_NONE */
    size_t bytes;               /* of the operand */
    ndp_held_list spans, added; /* the operand, from byte 0; what the sum is added to */
    bool is_part;               /* of an all_gather: the operand is a part of the sum `added` (ndp_scattered) */
    int scalar;                 /* NDP_NONE: no scalar */
    ndp_sum sum;
    /* Of the first member of a group: what the group makes, for all of them. */
    bool made;
    ndp_held_list result;
    int left;                   /* members that have not waited yet */
    struct ndp_under_way *next; /* of those that are free */
} ndp_under_way;

/* The part of a sum that a reduce_scatter left, and the sum: a gather of such parts gives it back. */
typedef struct ndp_scattered {
    ndp_group_kind group;
    ndp_bytes bytes; /* block NDP_NONE: there was none */
    int made;        /* the instruction */
    ndp_held_list sum;
} ndp_scattered;

/* What reduce_scatters left in the slices of all owners: items add up where they have the same elements. */
typedef struct ndp_reduced {
    int64_t first, end; /* elements of the buffer */
    ndp_own own;
    ndp_share share;
} ndp_reduced;
typedef struct ndp_step_others {
    ndp_reduced *items;
    int64_t n, capacity;
    bool known, moved; /* moved: the slice is also written in another way, so the items do not say all */
} ndp_step_others;

/* What a lane has done with a buffer. */
typedef struct ndp_step_use {
    ndp_step_others others;
    int64_t read; /* when a unit last read it; NDP_NONE */
    /* The lane's write into a window that other ranks read. */
    bool wrote;
    int at;
    int64_t waited[NDP_CHANNELS]; /* the last meeting before it */
} ndp_step_use;

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
    int n_under_way;
    ndp_under_way **sent; /* messages that are not received yet */
    int64_t n_sent, sent_capacity;
    int64_t waited[NDP_CHANNELS], *begun[NDP_CHANNELS], capacity[NDP_CHANNELS];
    ndp_scattered part; /* the last one */
    ndp_step_use *uses; /* by buffer */
} ndp_step_lane;

/* ---- step_lane.c ---- */

/* NDP_EBUG with the lane's rank and instruction. */
#define ndp_step_refuse(l, ...) ndp_step_refused(l, NDP_FAIL(NDP_EBUG, __VA_ARGS__))
ndp_status ndp_step_refused(const ndp_step_lane *l, ndp_status st);
/* "the output of model.layers.0, micro-batch 2, made by #11 forward model.layers.0": what a span holds; NULL:
 * nothing. */
ndp_text ndp_held_text(const ndp_step_lane *l, const ndp_held *s);

/* The buffer of the whole model on a lane; NDP_NONE: it has none of it. */
static inline int ndp_step_local(const ndp_step_lane *l, int whole) {
    return whole == NDP_NONE ? NDP_NONE : l->shared->local[whole];
}
/* The numbers that depend on a rank's place in a group are those of the rank whose program it is. */
static inline int ndp_step_place(const ndp_step_lane *l, ndp_group_kind kind) {
    return ndp_mesh_group(&l->program->opts.step.mesh, kind).rank;
}
/* True if a state of `n` elements has room for some pieces only, which have places of their own in it. */
static inline bool ndp_step_state_is_short(const ndp_step_lane *l, const ndp_step_buffer *b, int64_t n) {
    return l->shared->columns > NDP_PIECE_PLACE && n < b->shard.slice;
}
/* The operand's bytes. */
static inline ndp_bytes ndp_step_bytes(const ndp_operand *o) {
    size_t bytes = (size_t)(o->view.rows * o->view.cols) * ndp_dtype_size(o->view.dtype);
    return (ndp_bytes){o->base, o->offset, o->offset + bytes};
}
static inline bool ndp_step_is_absent(const ndp_operand *o) { return o->base == NDP_NONE || o->view.rows == 0; }

/* Refuses where elements [first, first + count) of the buffer are not all held by `kind`, from byte `at` of a block on.
 * `version`: what `at` of the spans is to be. Gradients must be complete. */
ndp_status ndp_step_needs(const ndp_step_lane *l, int block, size_t at, ndp_held_kind kind, const ndp_step_buffer *b,
                          int64_t first, int64_t count, ndp_dtype type, int version);
/* Adds to what those bytes hold: a part of the gradient of the same elements, of the same ranks' samples. `more` begins
 * at its first byte. */
ndp_status ndp_step_add(ndp_step_lane *l, ndp_bytes at, const ndp_held *more, const char *of);

/* ---- instructions ---- */

ndp_status ndp_step_run(ndp_step_lane *l);
/* A kernel of the program. */
ndp_status ndp_step_kernel(ndp_step_lane *l);
ndp_status ndp_step_update(ndp_step_lane *l);
ndp_status ndp_step_copy(ndp_step_lane *l);
ndp_status ndp_step_transform(ndp_step_lane *l);
ndp_status ndp_step_move(ndp_step_lane *l);

/* ---- step_scalars.c ---- */

/* The scalar at those bytes; NDP_NONE: none is. */
int ndp_step_scalar_at(const ndp_step_lane *l, ndp_bytes b);
/* True if its bytes hold it, as this step wrote it. */
bool ndp_step_scalar_is_written(const ndp_step_lane *l, int scalar);
ndp_status ndp_step_scalar_write(ndp_step_lane *l, int scalar, ndp_sum value);
/* Refuses what is not complete. */
ndp_status ndp_step_scalar_needs(const ndp_step_lane *l, int scalar);
const char *ndp_step_scalar_name(int scalar);
/* The scalar that is an input of units; NDP_NONE: none. */
int ndp_step_scalar_of(ndp_input_kind kind);
ndp_address ndp_step_scalar_address(const ndp_program *p, int scalar);

/* ---- step_owners.c ---- */

/* The rows of the table of pieces that an operand has. */
typedef struct ndp_piece_rows {
    const ndp_step_buffer *buffer;
    int number; /* of it */
    const int64_t *rows;
    int64_t n, first; /* first: the number of the first row */
} ndp_piece_rows;
/* Refuses an operand that is not rows of a table. For an absent operand, out->n is 0. */
ndp_status ndp_step_pieces(const ndp_step_lane *l, const ndp_operand *o, ndp_piece_rows *out);

#endif
