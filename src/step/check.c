/* The checker: replays the communications of all ranks' programs against each other, without any data. A dry run,
 * `plan` and the tests call ndp_program_check with the programs of a whole world or of some of its ranks.
 *
 * 1. The programs are matched (tracks.h), so the k-th begin of every member is the same operation: the same op, bytes,
 *    unit and name.
 * 2. Then the ranks run: a begin always succeeds; a wait succeeds once all members of its group have begun the same
 *    operation, that of a message once its other side has begun: transports copy when the receiver waits.
 * Ranks block only in waits, and an operation that has begun stays begun. The order in which the ranks advance
 * therefore does not matter: if one order finishes, all do; if no rank can advance, it is a deadlock.
 *
 * Members whose programs are not given count as ready. */
#include "step/tracks.h"

#include <stdlib.h>

typedef struct replay {
    ndp_tracks tracks;
    int *at; /* by track: its next event */
} replay;

static bool all_begun(const replay *r, int i, int begin) {
    for (int k = 0; k < r->tracks.n; k++) {
        int theirs = k == i ? NDP_NONE : ndp_tracks_begin(&r->tracks, i, begin, k);
        if (theirs != NDP_NONE && r->at[k] <= theirs)
            return false;
    }
    return true;
}

/* Runs one rank until it blocks; true if it advanced. */
static bool advance(const replay *r, int i) {
    const ndp_track *t = &r->tracks.items[i];
    int from = r->at[i], *at = &r->at[i];
    while (*at < t->n && (t->events[*at].begin || all_begun(r, i, t->begin[*at])))
        ++*at;
    return *at > from;
}

static ndp_status run_all(const replay *r) {
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < r->tracks.n; i++)
            moved |= advance(r, i);
    }
    for (int i = 0; i < r->tracks.n; i++)
        if (r->at[i] < r->tracks.items[i].n)
            return ndp_track_deadlock(&r->tracks.items[i], r->at[i]);
    return NDP_OK;
}

ndp_status ndp_program_check(const ndp_program *const *programs, int n) {
    replay r = {.at = calloc((size_t)n + 1, sizeof *r.at)};
    ndp_status st =
        r.at ? ndp_tracks_match(programs, n, &r.tracks) : NDP_FAIL(NDP_ENOMEM, "no memory to check %d programs", n);
    if (st == NDP_OK)
        st = run_all(&r);
    ndp_tracks_release(&r.tracks);
    free(r.at);
    return st;
}
