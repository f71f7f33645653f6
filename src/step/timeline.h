/* Timelines: what each rank did when in one step, as events that a person can read: the actions of the schedule, the
 * waits, the kernels of the update. Simulated (simulate.h) and measured (engine.h) steps become the same events, and
 * the same parts (step_parts.h).
 *
 * The bubble of a rank is the part of the step that it spends in waits for messages of other stages. */
#ifndef NDP_STEP_TIMELINE_H
#define NDP_STEP_TIMELINE_H

#include "step/step_parts.h"

/* X(KIND, name, colour in pictures). Events are of the kind of a part, or BACKWARD: an action with both gradients. */
#define NDP_EVENT_KINDS_LIST(X) NDP_PARTS_LIST(X) X(BACKWARD, "backward", "#59a14f")
enum { NDP_EVENT_BACKWARD = NDP_PARTS, NDP_EVENT_KINDS };

typedef struct ndp_timeline_event {
    int kind; /* an ndp_step_part, or NDP_EVENT_BACKWARD */
    int rank;
    int stage, micro_batch; /* NDP_NONE: none */
    int64_t step;           /* of a run, counted from 1; 0: of none */
    double start, end;      /* seconds */
    char name[80];          /* "stage 2 forward mb 3" */
} ndp_timeline_event;

/* The share of one rank in the step. */
typedef struct ndp_rank_time {
    double first, last;        /* its own start and end */
    double step;               /* seconds, of all ranks: from the first start to the last end */
    double seconds[NDP_PARTS]; /* they sum to `step` */
    int64_t rank;
} ndp_rank_time;

typedef struct ndp_timeline {
    ndp_timeline_event *events; /* of one rank after the other, each in order of their starts */
    ndp_rank_time *ranks;       /* `step` and the part IDLE are what ndp_timeline_rank says */
    int64_t capacity, rank_capacity;
    int n, n_ranks, n_steps; /* all ranks have so many steps */
} ndp_timeline;

/* Adds one rank, of whose program the first n instructions ran at `times`. All runs of a schedule's entry are one
 * event; program's waits inside it are events of their own, those inside units are not. NDP_ENOMEM. */
NDP_API ndp_status ndp_timeline_add(ndp_timeline *t, const ndp_program *p, const ndp_instr_time *times, int64_t n);
/* Adds step `step` of the one rank that the timeline has, or gets with its first step; what is between two steps is
 * idle. All else that is said of a step is then of all of them. NDP_ENOMEM. */
NDP_API ndp_status ndp_timeline_add_step(ndp_timeline *t, const ndp_program *p, const ndp_instr_time *times, int64_t n,
                                         int64_t step);
/* Replaces the events of each rank of `c` by those of all. Collective over it. Ranks of one node share a clock; those
 * of other nodes are aligned by a barrier, to some 0.1 ms. NDP_ENOMEM. */
NDP_API ndp_status ndp_timeline_gather(ndp_timeline *t, ndp_comm *c, bool one_clock);
void ndp_timeline_release(ndp_timeline *t);

/* The i-th rank. */
ndp_rank_time ndp_timeline_rank(const ndp_timeline *t, int i);

/* Adds a line for the step, and a table of its parts with a row for each rank. */
void ndp_timeline_print(const ndp_timeline *t, ndp_str *out);

/* NDP_EINVAL if a timeline cannot be written to a file of that name: it ends neither in .json nor in .svg. */
NDP_API ndp_status ndp_timeline_check_path(const char *path);
/* Writes the file: Chrome trace events (chrome://tracing, ui.perfetto.dev) where pid is the rank, or a picture with a
 * row for each rank. NDP_EINVAL, NDP_EIO, NDP_ENOMEM. */
NDP_API ndp_status ndp_timeline_write(const ndp_timeline *t, const char *path);

#endif
