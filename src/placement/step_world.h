/* Inside the placement room: proving the step programs (step_*.c): all lanes while these are executed,
 * and what is between them: meetings, messages, sums over groups, and what ranks that are not lanes have.
 *
 * The programs of all lanes are executed together, on what memory holds in place of numbers: which weights, of which
 * version; the output of which unit, for which micro-batch; how much of which gradient. A lane runs until it waits for
 * another. Memory starts as a step leaves it, and at the end it must be so again, with every weight updated once.
 *
 * Of a long step two iterations of the repeated range are executed. Its micro-batches then are all that count.
 *
 * step_world.c   starts and ends: what memory holds before and after a step
 * step_walk.c    the order in which lanes run, and of writes into memory that other ranks read
 * step_meet.c    begins and waits
 * step_sums.c    what a collective makes of the ranks' operands
 * step_others.c  gradients in the slices of owners that are not lanes */
#ifndef NDP_PLACEMENT_STEP_WORLD_H
#define NDP_PLACEMENT_STEP_WORLD_H

#include "placement/step_lane.h"

/* `units`: proven before. NDP_EBUG names the rank, the instruction, what is wrong, and where it was made. NDP_ENOMEM.
 */
ndp_status ndp_steps_prove(const ndp_lanes *l, const ndp_units *u);

/* Proves the claims that need no program: segment tables, piece tables of all slices, samples and rows
 * (prove_claims.c). */
ndp_status ndp_claims_prove(const ndp_lanes *l);

typedef struct ndp_step_world {
    const ndp_lanes *lanes;
    const ndp_units *units;
    const ndp_model *whole;
    ndp_visits visits;
    int without; /* micro-batches that are not executed */
    int micro_batches;
    ndp_own data; /* data axes of more than one rank */
    ndp_step_lane *items;
    ndp_step_program *programs;
    int n_programs;
    ndp_meetings meetings;
    ndp_under_way *free;     /* to be used again */
    ndp_under_way **meeting; /* room for those of all lanes */
    ndp_arena arena;         /* of all of this */
} ndp_step_world;

/* Release in any case. */
ndp_status ndp_step_world_init(const ndp_lanes *l, const ndp_units *u, ndp_visits visits, ndp_step_world *out);
static inline void ndp_step_world_release(ndp_step_world *w) { ndp_arena_release(&w->arena); }
/* Tensors of trained buffers of the whole model before that buffer. */
int ndp_step_trained(const ndp_model *whole, int buffer);
/* What memory must hold after the last instruction. */
ndp_status ndp_step_end(const ndp_step_lane *l);

static inline const ndp_members *ndp_step_members(const ndp_step_lane *l, ndp_group_kind kind) {
    return ndp_lane_members(l->world->lanes, l->lane, kind);
}
/* Micro-batch m of those that count, among all of them. */
static inline ndp_share ndp_step_weight(const ndp_step_world *w, int m) {
    return ndp_range_share(ndp_dim_make(0, 'm'), w->micro_batches, m, m + 1);
}
/* Whose part of matrices it has of a buffer: its place on tp, or 0 where owners have them whole (experts with ep). */
static inline int ndp_step_cut_of(const ndp_step_lane *l, int buffer) {
    bool whole = l->program->opts.model->buffers[buffer].owners == NDP_GROUP_EXPERT_SHARD;
    return whole ? 0 : ndp_step_members(l, NDP_GROUP_TP)->me;
}
/* The table of a buffer on the lane. */
static inline const ndp_segments *ndp_step_table(const ndp_step_lane *l, int buffer) {
    return &l->world->lanes->items[l->lane].tables[buffer];
}

/* That of a buffer of the whole model; NULL: the lane has none of it. */
static inline const ndp_segments *ndp_step_table_of(const ndp_step_lane *l, int whole) {
    return ndp_step_local(l, whole) == NDP_NONE ? NULL : ndp_step_table(l, ndp_step_local(l, whole));
}

ndp_status ndp_step_begin(ndp_step_lane *l);
/* Sets l->again if another lane has to run first. */
ndp_status ndp_step_wait(ndp_step_lane *l);

/* What the group of an operation under way makes of its members' operands: spans, from byte 0 of the result (of all
 * parts, for a reduce_scatter). */
ndp_status ndp_step_reduce(ndp_step_lane *l, ndp_under_way **members, ndp_held_list *out);
ndp_status ndp_step_gather(ndp_step_lane *l, ndp_under_way **members, ndp_held_list *out);
/* The sum over a group of which the lanes' part is `s`, with the data axes of `own`. */
ndp_sum ndp_step_sum_over(const ndp_step_world *w, const ndp_sum *s, ndp_own own);
/* The group over which the lanes' parts of something are complete; NULL: none of `kinds`. */
typedef ndp_sum ndp_part_fn(const ndp_step_lane *l, const void *what);
const char *ndp_step_axis(const ndp_step_lane *l, const ndp_group_kind *kinds, int n, ndp_part_fn *part,
                          const void *what);
static inline bool ndp_sum_is_complete(const ndp_sum *s) {
    return s->by_own[0] == 1 && !s->by_own[1] && !s->by_own[2] && !s->by_own[3];
}

/* A unit that reads a buffer; an update that writes it. */
void ndp_step_reads(ndp_step_lane *l, int buffer);
void ndp_step_writes(ndp_step_lane *l, int buffer);

/* A reduce_scatter has made `sum`. Keeps it if it is that of a buffer's owners, of all slices. */
ndp_status ndp_step_scattered(ndp_step_lane *l, const ndp_under_way *u, const ndp_held_list *sum);
/* A copy has written to that block. */
void ndp_step_moved(ndp_step_lane *l, int block);
/* At the end of the step: gradients are complete in the slices of all owners. */
ndp_status ndp_step_others_check(const ndp_step_world *w);

#endif
