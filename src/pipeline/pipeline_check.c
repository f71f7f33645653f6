/* The check of a table. For each stage and micro-batch it marks which of forward, input gradient and weight gradient
 * the rows have so far; a stage is on one rank, so the order in its row is the order in time. Then a replay finds
 * deadlocks.
 *
 * The marks need stages x micro-batches bytes. A file can claim any of both in one cell, so the forwards of each stage
 * are counted first: the marks are then as many as there are forwards in the table. */
#include "pipeline/pipeline.h"

#include <stdlib.h>
#include <string.h>

/* An error in the cell of an action; a format and its arguments follow. */
#define CELL_FAIL(s, rank, a, format, ...)                                                                             \
    NDP_FAIL(NDP_EINVAL, "%s: row %d, column %d, '%d%c%d': " format, (s)->name, (rank), (a)->column, (a)->stage,       \
             ndp_action_letter((a)->action), (a)->micro_batch, __VA_ARGS__)

enum { FORWARD = 1, INPUT = 2, WEIGHT = 4, BOTH = 8 /* by a backward */ };

static ndp_status check_place(const ndp_pipeline *s, int rank, const ndp_stage_action *a, int micro_batches) {
    NDP_CHECK(a->action < NDP_ACTIONS && a->stage >= 0 && a->stage < s->stages && a->micro_batch >= 0 &&
                  a->micro_batch < s->micro_batches,
              "%s: row %d, column %d: action %d of stage %d of %d for micro-batch %d of %d", s->name, rank, a->column,
              (int)a->action, a->stage, s->stages, a->micro_batch, s->micro_batches);
    if (micro_batches && a->micro_batch >= micro_batches)
        return CELL_FAIL(s, rank, a,
                         "the table has %d micro-batches, but a step has %d: make the accumulation %d, or the table "
                         "for %d",
                         s->micro_batches, micro_batches, s->micro_batches, micro_batches);
    if (s->rank_of[a->stage] != rank)
        return CELL_FAIL(s, rank, a, "stage %d is on rank %d: all its cells have to be in row %d", a->stage,
                         s->rank_of[a->stage], s->rank_of[a->stage]);
    return NDP_OK;
}

static ndp_status check_pair(const ndp_pipeline *s, int rank, int at) {
    const ndp_pipeline_row *row = &s->rows[rank];
    const ndp_stage_action *a = &row->actions[at], *b = a + 1;
    if (!a->paired)
        return NDP_OK;
    if (at + 1 == row->n || a->action != NDP_ACTION_FORWARD || b->paired ||
        (b->action != NDP_ACTION_BACKWARD && b->action != NDP_ACTION_INPUT_GRADIENT))
        return CELL_FAIL(s, rank, a, "a pair is a %s", "forward and a backward, such as (0F7;7B3)OVERLAP_F_B");
    if (a->micro_batch == b->micro_batch)
        return CELL_FAIL(s, rank, a, "a pair's halves overlap, but the backward of micro-batch %d needs this forward",
                         b->micro_batch);
    return NDP_OK;
}

/* Names what a stage with too few forwards lacks. `seen`: [micro_batches]. */
static ndp_status check_forwards(const ndp_pipeline *s, int stage, bool *seen) {
    NDP_CHECK(s->rank_of[stage] >= 0, "%s: no row has stage %d: stages are 0 to %d, without gaps", s->name, stage,
              s->stages - 1);
    const ndp_pipeline_row *row = &s->rows[s->rank_of[stage]];
    memset(seen, 0, (size_t)s->micro_batches * sizeof *seen);
    for (const ndp_stage_action *a = row->actions; a < row->actions + row->n; a++)
        if (a->stage == stage && a->action == NDP_ACTION_FORWARD)
            seen[a->micro_batch] = true;
    for (int mb = 0; mb < s->micro_batches; mb++)
        NDP_CHECK(seen[mb],
                  "%s: row %d lacks '%dF%d': the table has %d stages and %d micro-batches, and each stage runs each",
                  s->name, s->rank_of[stage], stage, mb, s->stages, s->micro_batches);
    return NDP_OK;
}

/* Places, pairs, and that each stage has a forward of every micro-batch. `counts`: [stages]. */
static ndp_status check_cells(const ndp_pipeline *s, int micro_batches, int *counts, bool *seen) {
    for (int rank = 0; rank < s->ranks; rank++)
        for (int i = 0; i < s->rows[rank].n; i++) {
            const ndp_stage_action *a = &s->rows[rank].actions[i];
            NDP_TRY(check_place(s, rank, a, micro_batches));
            NDP_TRY(check_pair(s, rank, i));
            counts[a->stage] += a->action == NDP_ACTION_FORWARD;
        }
    for (int stage = 0; stage < s->stages; stage++)
        if (counts[stage] < s->micro_batches)
            NDP_TRY(check_forwards(s, stage, seen));
    return NDP_OK;
}

static ndp_status check_action(const ndp_pipeline *s, int rank, const ndp_stage_action *a, unsigned char *done) {
    static const struct {
        unsigned char does, needs;
        const char *name;
    } rules[NDP_ACTIONS] = {[NDP_ACTION_FORWARD] = {FORWARD, 0, "forward"},
                            [NDP_ACTION_BACKWARD] = {INPUT | WEIGHT | BOTH, FORWARD, "backward"},
                            [NDP_ACTION_INPUT_GRADIENT] = {INPUT, FORWARD, "input gradient"},
                            [NDP_ACTION_WEIGHT_GRADIENT] = {WEIGHT, FORWARD | INPUT, "weight gradient"}};
    unsigned char does = rules[a->action].does, needs = rules[a->action].needs;
    const char *name = rules[a->action].name;
    if (does != FORWARD && *done & (INPUT | WEIGHT) && (*done ^ does) & BOTH)
        return CELL_FAIL(s, rank, a, "a B is both gradients, and the row has '%d%c%d' already", a->stage,
                         *done & BOTH ? 'B' : 'I', a->micro_batch);
    if ((*done & does) == does)
        return CELL_FAIL(s, rank, a, "the row has the %s of stage %d for micro-batch %d twice", name, a->stage,
                         a->micro_batch);
    if ((*done & needs) != needs)
        return CELL_FAIL(s, rank, a, "the %s is before its %s: '%d%c%d' has to be earlier in the row", name,
                         *done & FORWARD ? "input gradient" : "forward", a->stage, *done & FORWARD ? 'I' : 'F',
                         a->micro_batch);
    *done |= does;
    return NDP_OK;
}

static ndp_status check_order(const ndp_pipeline *s, unsigned char *done) {
    size_t m = (size_t)s->micro_batches;
    for (int rank = 0; rank < s->ranks; rank++)
        for (const ndp_stage_action *a = s->rows[rank].actions; a < s->rows[rank].actions + s->rows[rank].n; a++)
            NDP_TRY(check_action(s, rank, a, &done[(size_t)a->stage * m + (size_t)a->micro_batch]));
    for (int stage = 0; stage < s->stages; stage++)
        for (int mb = 0; mb < s->micro_batches; mb++) {
            unsigned char d = done[(size_t)stage * m + (size_t)mb];
            NDP_CHECK(d & INPUT && d & WEIGHT,
                      "%s: row %d lacks '%d%s%d': each micro-batch of a stage has a B, or an I and a W", s->name,
                      s->rank_of[stage], stage, d & INPUT ? "W" : "B", mb);
        }
    return NDP_OK;
}

static ndp_status check_deadlock(const ndp_pipeline *s) {
    double *ones = malloc((size_t)s->stages * sizeof *ones);
    NDP_CHECK_MEMORY(ones, "to check the schedule %s of %d stages", s->name, s->stages);
    for (int stage = 0; stage < s->stages; stage++)
        ones[stage] = 1;
    ndp_pipeline_times t = {0};
    ndp_status st = ndp_pipeline_replay(s, &(ndp_pipeline_costs){ones, ones, ones, 0}, &t);
    ndp_pipeline_times_release(&t);
    free(ones);
    return st;
}

ndp_status ndp_pipeline_check(const ndp_pipeline *s, int micro_batches) {
    int *counts = calloc((size_t)s->stages, sizeof *counts);
    bool *seen = malloc((size_t)s->micro_batches * sizeof *seen);
    unsigned char *done = NULL;
    ndp_status st = counts && seen ? check_cells(s, micro_batches, counts, seen)
                                   : NDP_FAIL(NDP_ENOMEM, "not enough memory to check the schedule %s", s->name);
    free(counts);
    free(seen);
    NDP_TRY(st);
    NDP_CHECK(!micro_batches || s->micro_batches == micro_batches,
              "%s: the table has %d micro-batches, but a step has %d: make the accumulation %d, or the table for %d",
              s->name, s->micro_batches, micro_batches, s->micro_batches, micro_batches);
    done = calloc((size_t)s->stages, (size_t)s->micro_batches);
    st = done ? check_order(s, done) : NDP_FAIL(NDP_ENOMEM, "not enough memory to check the schedule %s", s->name);
    free(done);
    NDP_TRY(st);
    return check_deadlock(s);
}
