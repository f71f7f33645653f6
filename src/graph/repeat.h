/* Repetition: a range of a list that is executed several times. Unit lists (lower.h) and the step program
 * (step/program.h) say it in the same way, and everything that reads a list walks it with ndp_walk_next.
 *
 * What differs between iterations of a program's range is its micro-batch, and with it the inputs and message tags:
 * `micro_batches` says how far apart they are. Blocks and messages may rotate (ndp_ring). Everything else is the same.
 *
 * Two iterations show all that any number of them does: the state at the end of one is that at its start. Checks visit
 * two. */
#ifndef NDP_GRAPH_REPEAT_H
#define NDP_GRAPH_REPEAT_H

#include "base/status.h"

typedef struct ndp_repeat {
    int first, n;      /* entries of the list */
    int64_t times;     /* >= 0; where the data decide (ndp_graph_repeat), the most */
    int micro_batches; /* from an iteration to the next; 0 in a unit's list */
    bool counted;      /* the data decide */
} ndp_repeat;

/* The repeated ranges of a list, ascending and apart. */
typedef struct ndp_repeats {
    ndp_repeat *items;
    int n;
} ndp_repeats;

/* Which iterations of each range a walk visits: the first ones, and those after the next `without`. Micro-batches after
 * these have their numbers; those before are numbered as if they came next to them. A walk visits a range whose count
 * the data decide twice at most; with `usual`, as in costs, it skips that range. */
typedef struct ndp_visits {
    int64_t first, without;
    bool usual;
} ndp_visits;
#define NDP_ALL_ITERATIONS ((ndp_visits){INT64_MAX, 0, false})
#define NDP_FIRST_ITERATIONS(n) ((ndp_visits){(n), INT64_MAX, false})
#define NDP_USUAL_ITERATIONS ((ndp_visits){INT64_MAX, 0, true})
#define NDP_FIRST_USUAL ((ndp_visits){1, INT64_MAX, true})

/* A place in the execution of a list. */
typedef struct ndp_walk {
    int at;              /* the entry */
    int range;           /* the first one that is not over */
    int64_t executed;    /* entries before it in this walk */
    int64_t iteration;   /* of the range that `at` is in, 0 outside */
    int64_t micro_batch; /* add it to that of the entry */
    int64_t turn;        /* add it to places of a rotation */
    int64_t after;       /* `micro_batch` outside of ranges */
} ndp_walk;
#define NDP_WALK_START ((ndp_walk){.at = -1, .executed = -1})

/* The next entry to execute of a list of n; false at the end. */
NDP_API bool ndp_walk_next(const ndp_repeats *r, int n, ndp_visits visits, ndp_walk *w);

/* A rotation: numbers `first` to `first` + n - 1. An entry in a range names one for the first iteration, and means the
 * k-th after it in iteration k. Entries outside of the range mean what they name. */
typedef struct ndp_ring {
    int first, n; /* n 1: it does not rotate */
} ndp_ring;

static inline int ndp_ring_at(ndp_ring r, int number, int64_t turn) {
    return r.n > 1 ? r.first + (int)((number - r.first + turn) % r.n) : number;
}

/* How many entries a walk over the usual iterations of the first n entries visits. */
int64_t ndp_repeats_executed(const ndp_repeats *r, int n);

/* How often entry i is executed, for costs: where the data decide, not at all. Such ranges are for the unusual. */
int64_t ndp_repeats_times(const ndp_repeats *r, int i);

#endif
