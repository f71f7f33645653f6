/* The checker: replays the communications of all ranks' programs against each other.
 *
 * Operations of one communicator meet in order: the k-th begin of every member must be the same operation. That is
 * compared first; then the ranks are run: a wait passes once all members of its group have begun the same operation. A
 * state in which nobody can go on is a deadlock under some timing, since waits are the only places where a rank stops.
 */
#include "step/program.h"

#include <stdlib.h>
#include <string.h>

enum { CHANNELS = NDP_EVENT_CHANNELS, MOST_UNDER_WAY = 8 };

/* The events of one rank. */
typedef struct track {
    ndp_event *events;
    int *number; /* of a begin or wait on its channel, from 0 */
    int n, at;
    int begun[CHANNELS]; /* so far in the replay */
    int total[CHANNELS];
    int **nth; /* by channel: the event that is its k-th begin */
} track;

typedef struct replay {
    const ndp_program *const *programs;
    int world;
    track *tracks;
} replay;

static bool same(const ndp_event *a, const ndp_event *b) {
    return a->kind == b->kind && a->bytes == b->bytes && strcmp(a->what, b->what) == 0 && strcmp(a->unit, b->unit) == 0;
}

/* Lists a rank's events; waits come in the order of their channel's begins, which no more than eight are ahead. */
static ndp_status list_events(const ndp_program *p, int rank, track *t) {
    ndp_event e;
    int waited[CHANNELS] = {0}, begun[CHANNELS] = {0};
    for (ndp_event_cursor c = {0}; ndp_program_event(p, &c, &e);)
        t->n++;
    t->events = calloc((size_t)t->n + 1, sizeof *t->events);
    t->number = calloc((size_t)t->n + 1, sizeof *t->number);
    t->nth = calloc(CHANNELS, sizeof *t->nth);
    for (int k = 0; t->nth && k < CHANNELS; k++)
        if (!(t->nth[k] = calloc((size_t)t->n + 1, sizeof **t->nth)))
            return NDP_FAIL(NDP_ENOMEM, "no memory to check a program");
    if (!t->events || !t->number || !t->nth)
        return NDP_FAIL(NDP_ENOMEM, "no memory to check a program");
    int i = 0;
    for (ndp_event_cursor c = {0}; ndp_program_event(p, &c, &e); i++) {
        int k = ndp_event_channel(&e);
        char text[256];
        t->events[i] = e;
        t->number[i] = e.begin ? begun[k]++ : waited[k]++;
        if (e.begin)
            t->nth[k][t->number[i]] = i;
        if (begun[k] < waited[k] || begun[k] - waited[k] > MOST_UNDER_WAY)
            return NDP_FAIL(NDP_EBUG, "rank %d, %s: %d operations of %s are begun and %d waited for", rank,
                            ndp_event_text(&e, text, sizeof text), begun[k], ndp_group_name(e.group), waited[k]);
        if (!e.begin && !same(&e, &t->events[t->nth[k][t->number[i]]]))
            return NDP_FAIL(NDP_EBUG, "rank %d waits at %s out of the order of begins", rank,
                            ndp_event_text(&e, text, sizeof text));
    }
    for (int k = 0; k < CHANNELS; k++) {
        t->total[k] = begun[k];
        if (begun[k] != waited[k])
            return NDP_FAIL(NDP_EBUG, "rank %d begins %d operations of %s and waits for %d", rank, begun[k],
                            ndp_group_name(ndp_channel_group(k)), waited[k]);
    }
    return NDP_OK;
}

/* All members of a rank's group begin the same operations: compared with the group's first member. */
static ndp_status compare(const replay *r, int rank, int channel) {
    ndp_group_kind kind = ndp_channel_group(channel);
    ndp_group g = ndp_mesh_group(&r->programs[rank]->opts.mesh, kind);
    const track *mine = &r->tracks[rank], *theirs = &r->tracks[g.base];
    char a[256], b[256];
    for (int k = 0; g.rank > 0 && (k < mine->total[channel] || k < theirs->total[channel]); k++) {
        const ndp_event *x = k < mine->total[channel] ? &mine->events[mine->nth[channel][k]] : NULL;
        const ndp_event *y = k < theirs->total[channel] ? &theirs->events[theirs->nth[channel][k]] : NULL;
        if (!x || !y)
            return NDP_FAIL(NDP_EBUG, "over %s, rank %d begins %s, rank %d begins no such collective",
                            ndp_group_name(kind), x ? rank : g.base, ndp_event_text(x ? x : y, a, sizeof a),
                            x ? g.base : rank);
        if (!same(x, y))
            return NDP_FAIL(NDP_EBUG, "over %s, rank %d is at %s, rank %d at %s", ndp_group_name(kind), rank,
                            ndp_event_text(x, a, sizeof a), g.base, ndp_event_text(y, b, sizeof b));
    }
    return NDP_OK;
}

static bool all_begun(const replay *r, int rank, const ndp_event *wait, int number) {
    ndp_group g = ndp_mesh_group(&r->programs[rank]->opts.mesh, wait->group);
    for (int k = 0; k < g.count; k++)
        if (r->tracks[g.base + k * g.stride].begun[ndp_event_channel(wait)] <= number)
            return false;
    return true;
}

/* Runs one rank until it must wait; true when it moved. */
static bool advance(replay *r, int rank) {
    track *t = &r->tracks[rank];
    int from = t->at;
    for (; t->at < t->n; t->at++) {
        const ndp_event *e = &t->events[t->at];
        if (e->begin)
            t->begun[ndp_event_channel(e)]++;
        else if (!all_begun(r, rank, e, t->number[t->at]))
            break;
    }
    return t->at > from;
}

static ndp_status run_all(replay *r) {
    char text[256];
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < r->world; rank++)
            moved |= advance(r, rank);
    }
    for (int rank = 0; rank < r->world; rank++) {
        const track *t = &r->tracks[rank];
        if (t->at < t->n)
            return NDP_FAIL(NDP_EBUG, "deadlock: rank %d waits for ever at %s over %s", rank,
                            ndp_event_text(&t->events[t->at], text, sizeof text),
                            ndp_group_name(t->events[t->at].group));
    }
    return NDP_OK;
}

static ndp_status check_all(replay *r) {
    for (int rank = 0; rank < r->world; rank++)
        NDP_TRY(list_events(r->programs[rank], rank, &r->tracks[rank]));
    for (int rank = 0; rank < r->world; rank++)
        for (int channel = 0; channel < CHANNELS; channel++)
            NDP_TRY(compare(r, rank, channel));
    return run_all(r);
}

ndp_status ndp_program_check(const ndp_program *const *programs, int world) {
    replay r = {programs, world, calloc((size_t)world + 1, sizeof *r.tracks)};
    ndp_status st = r.tracks ? check_all(&r) : NDP_FAIL(NDP_ENOMEM, "no memory to check %d programs", world);
    for (int rank = 0; r.tracks && rank < world; rank++) {
        track *t = &r.tracks[rank];
        for (int k = 0; t->nth && k < CHANNELS; k++)
            free(t->nth[k]);
        free(t->nth);
        free(t->events);
        free(t->number);
    }
    free(r.tracks);
    return st;
}
