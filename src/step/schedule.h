/* Schedules: what a rank computes in one update, and in which order, as a list that a generator writes.
 *
 * An entry is an action on a range of units for one micro-batch. The builder (program_parts.h) turns the list into runs
 * of units and adds the communication. Each pair of unit and micro-batch has a slot for its blocks, and the first and
 * last write of a gradient are found over the whole list, so micro-batches may interleave. */
#ifndef NDP_STEP_SCHEDULE_H
#define NDP_STEP_SCHEDULE_H

#include "model/model.h"
#include "pipeline/pipeline.h"

typedef struct ndp_planned_run {
    int first_unit, end_unit; /* forwards run them in order, gradients in the opposite order */
    int micro_batch;
    ndp_action action;
    int taken; /* the first later entry at which another rank receives what this one makes for it; 0: not known */
} ndp_planned_run;

typedef struct ndp_schedule {
    ndp_planned_run *runs;
    int n;
    /* Of a row of a pipeline's table, by its replay: when each entry starts, and from when to when every stage is
     * between its first and its last weight gradient. starts NULL: another schedule. */
    double *starts, from, to;
} ndp_schedule;

/* The middle of a long schedule: a range of entries that comes again and again, each time for later micro-batches. */
typedef struct ndp_schedule_body {
    int first, n;      /* entries of one body */
    int times;         /* bodies, one after the other; 0: there is no such range */
    int micro_batches; /* from one body to the next */
} ndp_schedule_body;

/* Finds the range, of at least three bodies. It begins after the first weight gradient of every unit and ends before
 * the last one, since those write a gradient in another way; the runs beside it are like those inside, as far as the
 * builder looks ahead. Ranks of a pipeline begin it at one time of the replay, so that all can be at its start together
 * (check.c). */
ndp_schedule_body ndp_schedule_find_body(const ndp_schedule *s, const ndp_model *m);

/* A copy with `kept` of the bodies, whose micro-batches are numbered without gaps. NDP_ENOMEM. */
ndp_status ndp_schedule_shorten(const ndp_schedule *s, const ndp_schedule_body *body, int kept, ndp_schedule *out);

/* One stage: each micro-batch forward and back, one after the other; forward alone where the model does not train.
 * NDP_ENOMEM. */
NDP_API ndp_status ndp_schedule_in_order(const ndp_model *m, int accumulation, ndp_schedule *out);
/* The row of rank `rank` of the pp axis, whose model is `m`: a stage becomes the units of `m` that belong to it.
 * NDP_ENOMEM; NDP_EINVAL: the table deadlocks; NDP_EBUG: the model lacks a stage of the row. */
NDP_API ndp_status ndp_schedule_of_rank(const ndp_pipeline *p, int rank, const ndp_model *m, ndp_schedule *out);
void ndp_schedule_release(ndp_schedule *s);

/* Checks that every unit has, for every micro-batch, one forward and, if the model trains, after it one input gradient
 * and then one weight gradient. NDP_EINVAL names the entry that is wrong. */
NDP_API ndp_status ndp_schedule_check(const ndp_schedule *s, const ndp_model *m, int accumulation);

#endif
