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
 * Members whose programs are not given count as ready.
 *
 * Where all programs repeat a range for the same micro-batches, more than its first two iterations show nothing new if
 * (3) all ranks can be at the start of the range together, run one iteration each, then another, and run on from there
 * to their ends without the other iterations that all have; and (4) the ranks of a group begin as many operations
 * before the range as each other, and in an iteration. By (3) an order exists in which any number of iterations runs,
 * one after the other. By (4) and 1, the k-th operations of a group's ranks are those of the same iteration. If (3) or
 * (4) fails, all iterations are replayed. */
#include "step/tracks.h"

#include <stdlib.h>

typedef struct replay {
    ndp_tracks tracks;
    int *at;     /* by track: its next event */
    int **begun; /* by a group's first track and the event of its begin: the members that have begun the collective */
} replay;

static int *count_of(const replay *r, int i, int begin) {
    const ndp_track *t = &r->tracks.items[i];
    int channel = ndp_comm_event_channel(&t->events[begin]), first = t->first[channel];
    return &r->begun[first][r->tracks.items[first].nth[channel][t->place[begin]]];
}

static bool all_begun(const replay *r, int i, int begin) {
    const ndp_track *t = &r->tracks.items[i];
    if (ndp_comm_event_is_message(&t->events[begin]))
        return t->other[begin] == NDP_NONE || r->at[t->other[begin]] > t->match[begin];
    return *count_of(r, i, begin) == t->members[ndp_comm_event_channel(&t->events[begin])];
}

/* Runs one rank until it blocks, or has run the part; true if it advanced. */
static bool advance(const replay *r, int i, int part) {
    const ndp_track *t = &r->tracks.items[i];
    int from = r->at[i], *at = &r->at[i];
    for (; *at < t->end[part]; ++*at) {
        const ndp_comm_event *e = &t->events[*at];
        if (!e->begin && !all_begun(r, i, t->begin[*at]))
            break;
        if (e->begin && !ndp_comm_event_is_message(e))
            ++*count_of(r, i, *at);
    }
    return *at > from;
}

/* The first rank that cannot run to the end of the part; NDP_NONE: all have. */
static int run_to(const replay *r, int part) {
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < r->tracks.n; i++)
            moved |= advance(r, i, part);
    }
    for (int i = 0; i < r->tracks.n; i++)
        if (r->at[i] < r->tracks.items[i].end[part])
            return i;
    return NDP_NONE;
}

static void replay_release(replay *r) {
    for (int i = 0; r->begun && i < r->tracks.n; i++)
        free(r->begun[i]);
    free(r->begun);
    free(r->at);
    ndp_tracks_release(&r->tracks);
}

/* Matches the programs. Release in any case. */
static ndp_status replay_init(const ndp_program *const *programs, int n, ndp_visits visits, replay *r) {
    *r = (replay){.at = calloc((size_t)n + 1, sizeof *r->at), .begun = calloc((size_t)n + 1, sizeof *r->begun)};
    bool ok = r->at && r->begun;
    if (ok)
        NDP_TRY(ndp_tracks_match(programs, n, visits, false, &r->tracks));
    for (int i = 0; ok && i < n; i++)
        ok = (r->begun[i] = calloc((size_t)r->tracks.items[i].n + 1, sizeof **r->begun)) != NULL;
    return NDP_MEMORY(ok, "to check %d programs", n);
}

/* ---- two iterations ---- */

/* The least number of iterations of any rank; 0: the ranks have no ranges for the same micro-batches. */
static int64_t common_iterations(const ndp_program *const *programs, int n) {
    int64_t least = INT64_MAX;
    for (int i = 0; i < n; i++) {
        const ndp_repeats *r = &programs[i]->repeats;
        if (r->n != 1 || r->items[0].micro_batches != programs[0]->repeats.items[0].micro_batches)
            return 0;
        least = r->items[0].times < least ? r->items[0].times : least;
    }
    return least;
}

/* (4) of the comment above. */
static bool same_counts(const ndp_tracks *ts) {
    for (int i = 0; i < ts->n; i++)
        for (int channel = 0; channel < NDP_CHANNELS; channel++) {
            const ndp_track *mine = &ts->items[i], *first = &ts->items[mine->first[channel]];
            bool messages = channel == NDP_CHANNEL_FORWARD || channel == NDP_CHANNEL_BACKWARD;
            for (int part = 0; !messages && part < 2; part++)
                if (mine->on[part][channel] != first->on[part][channel])
                    return false;
        }
    return true;
}

/* *proven: two iterations show that all is well. */
static ndp_status replay_two(const ndp_program *const *programs, int n, bool *proven) {
    replay r;
    int64_t common = common_iterations(programs, n);
    *proven = false;
    if (common <= 2)
        return NDP_OK;
    ndp_status st = replay_init(programs, n, (ndp_visits){2, common - 2, false}, &r);
    *proven = st == NDP_OK && same_counts(&r.tracks);
    for (int part = 0; *proven && part < NDP_TRACK_PARTS; part++)
        *proven = run_to(&r, part) == NDP_NONE;
    replay_release(&r);
    return st;
}

static ndp_status replay_all(const ndp_program *const *programs, int n) {
    replay r;
    ndp_status st = replay_init(programs, n, NDP_ALL_ITERATIONS, &r);
    int blocked = st == NDP_OK ? run_to(&r, NDP_TRACK_PARTS - 1) : NDP_NONE;
    if (blocked != NDP_NONE)
        st = ndp_track_deadlock(&r.tracks.items[blocked], r.at[blocked]);
    replay_release(&r);
    return st;
}

ndp_status ndp_program_check(const ndp_program *const *programs, int n) {
    bool proven;
    NDP_TRY(replay_two(programs, n, &proven));
    return proven ? NDP_OK : replay_all(programs, n);
}
