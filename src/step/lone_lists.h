/* Unit lists by themselves: those of a rank none of whose communications has another member that is simulated. What
 * such a list does depends on this rank alone, so it is run at once, call after call. */
#ifndef NDP_STEP_LONE_LISTS_H
#define NDP_STEP_LONE_LISTS_H

#include "step/program.h"

enum { NDP_BUSY_LINKS = 8 };

/* What a rank and its links are at. */
typedef struct ndp_streams {
    double now, moves;           /* until `moves`, something that it has begun moves */
    double free[NDP_BUSY_LINKS]; /* when its links have passed what was begun */
    double over[NDP_CHANNELS];   /* the end of the channel's last collective */
} ndp_streams;

/* When a kernel of that cost ends, which takes (1 + beside) times as long while something moves. */
static inline double ndp_kernel_end(const ndp_streams *t, double seconds, double beside) {
    double slower = 1 + beside, moving = t->moves > t->now ? t->moves - t->now : 0;
    return seconds * slower <= moving ? t->now + seconds * slower : t->now + seconds + moving * (1 - 1 / slower);
}

typedef struct ndp_lone_call {
    const ndp_call *call;
    double seconds, spent; /* its cost; in all runs together */
    double ends;           /* of a begin: in the run under way */
    int begin;             /* of a wait: the place of its begin; of a begin: its place in `busy` */
} ndp_lone_call;

typedef struct ndp_lone_list {
    ndp_lone_call *calls; /* in the order of execution */
    double (*busy)[NDP_BUSY_LINKS];
    int n;
    double beside;
    int64_t times; /* it was run */
} ndp_lone_list;

/* What its calls cost, as in simulate.h; `links` NULL: they use none. */
typedef struct ndp_lone_costs {
    double (*seconds)(const void *user, const ndp_call *call);
    void (*links)(const void *user, const ndp_call *call, double busy[NDP_BUSY_LINKS]);
    const void *user;
    double beside;
} ndp_lone_costs;

/* Release in any case. NDP_ENOMEM; NDP_EBUG: it waits for more or less than it begins. */
ndp_status ndp_lone_list_make(const ndp_list *list, const ndp_lone_costs *costs, ndp_lone_list *out);
void ndp_lone_list_release(ndp_lone_list *l);

/* Runs the calls from `at` on that start before `until`, or then if `then`; returns the next. `told`: notes the time
 * that they take. */
int ndp_lone_list_run(ndp_lone_list *l, int at, double until, bool then, bool told, ndp_streams *t);

#endif
