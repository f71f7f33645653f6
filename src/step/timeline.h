/* Timelines: what each rank did when in one step, as events that a person can read: the actions of the schedule, the
 * waits, the kernels of the update. Simulated (simulate.h) and measured (engine.h) steps become the same events.
 *
 * The bubble of a rank is the part of the step that it spends in waits for messages of other stages. */
#ifndef NDP_STEP_TIMELINE_H
#define NDP_STEP_TIMELINE_H

#include "step/program.h"

/* X(KIND, name in files, colour in pictures) */
#define NDP_EVENT_KINDS_LIST(X)                                                                                        \
    X(FORWARD, "forward", "#4e79a7")                                                                                   \
    X(BACKWARD, "backward", "#59a14f")                                                                                 \
    X(INPUT_GRADIENT, "input gradient", "#76b7b2")                                                                     \
    X(WEIGHT_GRADIENT, "weight gradient", "#f1ce63")                                                                   \
    X(RECEIVE, "receive", "#e8e8e8")                                                                                   \
    X(SEND, "send", "#d37295")                                                                                         \
    X(COLLECTIVE, "collective", "#e15759")                                                                             \
    X(UPDATE, "update", "#9c755f")

#define NDP_EVENT_ENUMERATOR(KIND, ...) NDP_EVENT_##KIND,
/* RECEIVE, SEND, COLLECTIVE: waits. */
typedef enum ndp_event_kind { NDP_EVENT_KINDS_LIST(NDP_EVENT_ENUMERATOR) NDP_EVENT_KINDS } ndp_event_kind;

typedef struct ndp_timeline_event {
    ndp_event_kind kind;
    int rank;
    int stage, micro_batch; /* NDP_NONE: none */
    double start, end;      /* seconds */
    char name[80];          /* "stage 2 forward mb 3" */
} ndp_timeline_event;

typedef struct ndp_timeline {
    ndp_timeline_event *events; /* of one rank after the other, each in order of their starts */
    int64_t capacity;
    int n;
} ndp_timeline;

/* Adds the events of one rank, whose program's first n instructions ran at `times`. All runs of a schedule's entry are
 * one event; waits inside it are events of their own. NDP_ENOMEM. */
NDP_API ndp_status ndp_timeline_add(ndp_timeline *t, const ndp_program *p, const ndp_instr_time *times, int n);
/* Replaces the events of each rank of `c` by those of all. Collective over it. Ranks of one node share a clock; those
 * of other nodes are aligned by a barrier, to some 0.1 ms. NDP_ENOMEM. */
NDP_API ndp_status ndp_timeline_gather(ndp_timeline *t, ndp_comm *c, bool one_clock);
void ndp_timeline_release(ndp_timeline *t);

/* The share of one rank in the step. */
typedef struct ndp_rank_time {
    int rank;
    double step;                     /* seconds, of all ranks: from the first start to the last end */
    double seconds[NDP_EVENT_KINDS]; /* actions without the waits inside them */
    double bubble;                   /* seconds[RECEIVE] / step */
} ndp_rank_time;
/* Iterates over the ranks: start with *cursor = 0; false at the end. */
bool ndp_timeline_rank(const ndp_timeline *t, int *cursor, ndp_rank_time *out);

/* Adds a line for the step and one for each rank: computing, bubble, other waits. */
void ndp_timeline_print(const ndp_timeline *t, ndp_str *out);

/* NDP_EINVAL if a timeline cannot be written to a file of that name: it ends neither in .json nor in .svg. */
NDP_API ndp_status ndp_timeline_check_path(const char *path);
/* Writes the file: Chrome trace events (chrome://tracing, ui.perfetto.dev) where pid is the rank, or a picture with a
 * row for each rank. NDP_EINVAL, NDP_EIO, NDP_ENOMEM. */
NDP_API ndp_status ndp_timeline_write(const ndp_timeline *t, const char *path);

#endif
