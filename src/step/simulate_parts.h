/* Inside simulate.c and simulate_operations.c: a simulation while it runs. `i` and `k` are ranks, by their tracks. */
#ifndef NDP_STEP_SIMULATE_PARTS_H
#define NDP_STEP_SIMULATE_PARTS_H

#include "step/simulate.h"
#include "step/tracks.h"

/* The number of a rank, + 1, that others follow by rank.next; 0: none. A rank is in at most one list. */
typedef int rank_list;

/* A collective or message, in one place for all its members: by the event of its begin on the first of them, or of the
 * send. */
typedef struct simulated_operation {
    int begun;         /* members that have begun it, of those whose programs are given */
    rank_list blocked; /* in their waits for it, until all have begun it */
    double start;      /* the latest begin; once all have begun, when it starts */
    double seconds;
} simulated_operation;

typedef struct simulated_rank {
    ndp_walk at;
    const ndp_instr *in; /* the instruction that it executes; NULL: it has executed all */
    ndp_walk call;       /* of the instruction's, the one to execute */
    int event;           /* its next event; while it is blocked, that of its wait */
    ndp_streams t;
    double due;        /* when it is ready: its time, or the end of a list that is put off */
    double copied;     /* when the send in whose wait it is blocked is copied, if that was found; else negative */
    rank_list senders; /* blocked in the waits for sends that this rank copies */
    int next;          /* in a list of ranks */
    int pending;       /* operations that it has begun and others have not */
    int place;         /* in the list alone that it runs */
    bool put_off;
} simulated_rank;

typedef struct simulation {
    ndp_tracks tracks;
    const ndp_step_costs *costs;
    ndp_instr_time **times;
    simulated_rank *ranks;
    simulated_operation **operations;
    ndp_lone_list **lone;    /* by track, by graph and phase: lists that are run at once; NULL: none are */
    ndp_instr_time **events; /* by track, by event: when it happened; NULL with `background` */
    int *ready, n_ready;     /* a heap of the ranks that are not blocked, the earliest first */
} simulation;

static inline const ndp_track *track(const simulation *s, int i) { return &s->tracks.items[i]; }

/* ---- ranks (simulate.c) ---- */

/* Rank i, which is not in the heap, enters it with what is `due`. */
void ndp_simulated_add_ready(simulation *s, int i);
/* Runs what rank k does of a list that it has put off before rank i begins an operation, which changes the rest. */
void ndp_simulated_take_up(simulation *s, int k, int i);

/* ---- what they do together (simulate_operations.c) ---- */

/* Rank i, whose next event it is, begins an operation. */
void ndp_simulated_begin(simulation *s, int i, const ndp_call *call);
/* The end of the wait that is the next event of rank i. False: it is not known yet, and the rank is blocked. */
bool ndp_simulated_wait_ends(simulation *s, int i, double *end);
/* Blocked ranks advance again. */
void ndp_simulated_wake(simulation *s, rank_list *list);
/* Finds the earliest copy in a wait that is not over, once all ranks are blocked or ended. False: none is left. */
bool ndp_simulated_copy_earliest(simulation *s);

#endif
