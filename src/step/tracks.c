/* Matching the programs of several ranks: list_events numbers the begins and waits of each rank, match_messages finds
 * the other side of each message, compare checks the collectives of each channel. */
#include "step/tracks.h"

#include <stdlib.h>
#include <string.h>

static bool is_member(const ndp_group *g, int rank) {
    int apart = rank - g->base;
    return apart >= 0 && apart % g->stride == 0 && apart / g->stride < g->count;
}

static bool same(const ndp_comm_event *a, const ndp_comm_event *b) {
    return a->call->op == b->call->op && a->bytes == b->bytes && strcmp(a->call->what, b->call->what) == 0 &&
           strcmp(a->unit, b->unit) == 0;
}

static ndp_comm_event_cursor events_of(const ndp_track *t, ndp_visits visits) {
    ndp_comm_event_cursor c = NDP_COMM_EVENTS(visits);
    c.without = t->lone;
    return c;
}

static ndp_status take_track(const ndp_program *p, ndp_visits visits, ndp_track *t) {
    ndp_comm_event e;
    size_t on[NDP_CHANNELS] = {0}, messages = 1;
    for (ndp_comm_event_cursor c = events_of(t, visits); ndp_program_comm_event(p, &c, &e); t->n++) {
        on[ndp_comm_event_channel(&e)] += e.begin;
        messages += e.begin && ndp_comm_event_is_message(&e);
    }
    size_t n = (size_t)t->n + 1;
    t->events = calloc(n, sizeof *t->events);
    t->begin = calloc(n, sizeof *t->begin);
    t->place = calloc(n, sizeof *t->place);
    t->other = calloc(n, sizeof *t->other);
    t->match = calloc(n, sizeof *t->match);
    t->messages = calloc(messages, sizeof *t->messages);
    t->begun = calloc((size_t)p->n_works + 1, sizeof *t->begun);
    bool ok = t->events && t->begin && t->place && t->other && t->match && t->messages && t->begun;
    for (int k = 0; ok && k < NDP_CHANNELS; k++)
        ok = (t->nth[k] = calloc(on[k] + 1, sizeof *t->nth[k])) != NULL;
    return NDP_MEMORY(ok, "to match a program of %d communications", t->n);
}

/* ---- one rank ---- */

static ndp_status note_wait(ndp_track *t, int i, int waited) {
    const ndp_comm_event *e = &t->events[i];
    char text[256];
    t->begin[i] = ndp_comm_event_is_message(e) ? t->begun[e->work] : t->nth[ndp_comm_event_channel(e)][waited];
    if (!same(e, &t->events[t->begin[i]]))
        return NDP_FAIL(NDP_EBUG, "rank %d waits at %s out of the order of begins", t->rank,
                        ndp_comm_event_text(e, text, sizeof text));
    return NDP_OK;
}

static void note_begin(ndp_track *t, int i, int nth) {
    const ndp_comm_event *e = &t->events[i];
    int channel = ndp_comm_event_channel(e);
    t->begin[i] = i;
    t->place[i] = nth;
    t->nth[channel][nth] = i;
    if (!ndp_comm_event_is_message(e))
        return;
    t->begun[e->work] = i;
    t->messages[t->n_messages++] =
        (ndp_track_message){e->call->op->collective == NDP_SEND, channel, e->call->attr.peer, e->tag, i};
}

/* Counts event e among the collectives, sends and receives of its channel that are pending, and checks the limits. */
static ndp_status check_pending(const ndp_track *t, const ndp_comm_event *e, int pending[3]) {
    static const int most[] = {NDP_MOST_COLLECTIVES, NDP_MOST_SENDS, NDP_MOST_RECEIVES};
    ndp_collective c = ndp_comm_event_kind(e);
    int kind = c == NDP_SEND ? 1 : c == NDP_RECV ? 2 : 0;
    char text[256];
    pending[kind] += e->begin ? 1 : -1;
    if (pending[kind] < 0 || pending[kind] > most[kind])
        return NDP_FAIL(NDP_EBUG, "rank %d, %s: %d operations of %s are begun and not waited for; at most %d may be",
                        t->rank, ndp_comm_event_text(e, text, sizeof text), pending[kind],
                        ndp_group_name(ndp_comm_event_group(e)), most[kind]);
    return NDP_OK;
}

/* A program without a range is all prologue. */
static int part_of(const ndp_program *p, const ndp_walk *at) {
    const ndp_repeat *r = p->repeats.n ? &p->repeats.items[0] : NULL;
    bool inside = r && at->at < r->first + r->n;
    return !r || at->at < r->first ? 0 : inside && at->iteration < 2 ? 1 + (int)at->iteration : 3;
}

/* Lists a rank's events. The waits of a channel's collectives have the order of its begins. */
static ndp_status list_events(const ndp_program *p, ndp_visits visits, ndp_track *t) {
    ndp_comm_event e;
    int waited[NDP_CHANNELS] = {0}, pending[NDP_CHANNELS][3] = {0}, *begun = t->total;
    NDP_TRY(take_track(p, visits, t));
    int i = 0;
    for (ndp_comm_event_cursor c = events_of(t, visits); ndp_program_comm_event(p, &c, &e); i++) {
        int k = ndp_comm_event_channel(&e);
        t->events[i] = e;
        int part = part_of(p, &c.walk);
        t->on[part][k] += e.begin;
        for (int later = part; later < NDP_TRACK_PARTS; later++)
            t->end[later] = i + 1;
        begun[k] += e.begin;
        waited[k] += !e.begin;
        NDP_TRY(check_pending(t, &e, pending[k]));
        if (e.begin)
            note_begin(t, i, begun[k] - 1);
        else
            NDP_TRY(note_wait(t, i, waited[k] - 1));
    }
    for (int k = 0; k < NDP_CHANNELS; k++)
        if (begun[k] != waited[k])
            return NDP_FAIL(NDP_EBUG, "rank %d begins %d operations of %s and waits for %d", t->rank, begun[k],
                            ndp_group_name(ndp_channel_group(k)), waited[k]);
    return NDP_OK;
}

/* ---- messages ---- */

static int by_message(const void *a, const void *b) {
    const ndp_track_message *x = a, *y = b;
    const int order[] = {x->send - y->send, x->channel - y->channel, x->peer - y->peer, x->tag - y->tag,
                         x->event - y->event};
    for (int k = 0; k < NDP_COUNT(order); k++)
        if (order[k] != 0)
            return order[k];
    return 0;
}

static bool alike(const ndp_track_message *a, const ndp_track_message *b) {
    return a->send == b->send && a->channel == b->channel && a->peer == b->peer && a->tag == b->tag;
}

static int track_of_rank(const ndp_tracks *ts, int rank) {
    for (int i = 0; i < ts->n; i++)
        if (ts->items[i].rank == rank)
            return i;
    return NDP_NONE;
}

/* The other side's event for message m, of which `nth` before it are alike; NDP_NONE: there is none. */
static int find_match(const ndp_track *other, const ndp_track_message *m, int my_place, int nth) {
    ndp_track_message wanted = {!m->send, m->channel, my_place, m->tag, -1};
    int low = 0, high = other->n_messages;
    while (low < high) {
        int mid = (low + high) / 2;
        if (by_message(&other->messages[mid], &wanted) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    bool found = low + nth < other->n_messages && alike(&other->messages[low + nth], &wanted);
    return found ? other->messages[low + nth].event : NDP_NONE;
}

/* Finds the other side of each message of track i. */
static ndp_status match_messages(const ndp_tracks *ts, int i) {
    ndp_track *t = &ts->items[i];
    ndp_group g = ndp_mesh_group(&t->program->opts.step.mesh, NDP_GROUP_PP);
    char a[256], b[256];
    for (int k = 0, nth = 0; k < t->n_messages; k++) {
        const ndp_track_message *m = &t->messages[k];
        const ndp_comm_event *mine = &t->events[m->event];
        int rank = g.base + m->peer * g.stride, j = track_of_rank(ts, rank);
        nth = k > 0 && alike(m, m - 1) ? nth + 1 : 0;
        t->other[m->event] = j;
        if (j == NDP_NONE)
            continue;
        t->match[m->event] = find_match(&ts->items[j], m, g.rank, nth);
        if (t->match[m->event] == NDP_NONE)
            return NDP_FAIL(NDP_EBUG, "rank %d begins %s, rank %d has no %s for it", t->rank,
                            ndp_comm_event_text(mine, a, sizeof a), rank, m->send ? "receive" : "send");
        const ndp_comm_event *theirs = &ts->items[j].events[t->match[m->event]];
        if (mine->bytes != theirs->bytes || mine->micro_batch != theirs->micro_batch ||
            strcmp(mine->call->what, theirs->call->what) != 0)
            return NDP_FAIL(NDP_EBUG, "rank %d begins %s, rank %d %s", t->rank, ndp_comm_event_text(mine, a, sizeof a),
                            rank, ndp_comm_event_text(theirs, b, sizeof b));
    }
    return NDP_OK;
}

/* ---- collectives ---- */

static void find_members(const ndp_tracks *ts, int i, int channel) {
    ndp_track *t = &ts->items[i];
    ndp_group g = ndp_mesh_group(&t->program->opts.step.mesh, ndp_channel_group(channel));
    for (int k = ts->n - 1; k >= 0; k--)
        if (is_member(&g, ts->items[k].rank))
            t->first[channel] = k, t->members[channel]++;
}

/* Compares the begins of track i with those of the first member of its group whose program is given. */
static ndp_status compare(const ndp_tracks *ts, int i, int channel) {
    const ndp_track *mine = &ts->items[i], *theirs = &ts->items[mine->first[channel]];
    ndp_group_kind kind = ndp_channel_group(channel);
    if (channel == NDP_CHANNEL_FORWARD || channel == NDP_CHANNEL_BACKWARD)
        return NDP_OK;
    char a[256], b[256];
    for (int k = 0; theirs != mine && (k < mine->total[channel] || k < theirs->total[channel]); k++) {
        const ndp_comm_event *x = k < mine->total[channel] ? &mine->events[mine->nth[channel][k]] : NULL;
        const ndp_comm_event *y = k < theirs->total[channel] ? &theirs->events[theirs->nth[channel][k]] : NULL;
        if (!x || !y)
            return NDP_FAIL(NDP_EBUG, "over %s, rank %d begins %s, rank %d begins no such collective",
                            ndp_group_name(kind), x ? mine->rank : theirs->rank,
                            ndp_comm_event_text(x ? x : y, a, sizeof a), x ? theirs->rank : mine->rank);
        if (!same(x, y))
            return NDP_FAIL(NDP_EBUG, "over %s, rank %d is at %s, rank %d at %s", ndp_group_name(kind), mine->rank,
                            ndp_comm_event_text(x, a, sizeof a), theirs->rank, ndp_comm_event_text(y, b, sizeof b));
    }
    return NDP_OK;
}

/* Lists of the units that the program runs. */
static void find_lone(ndp_track *t) {
    const ndp_program *p = t->program;
    for (int i = 0; i < p->opts.model->n_graphs; i++)
        for (int phase = 0; phase < NDP_PHASES; phase++) {
            const ndp_list *l = &p->opts.units[i].lists[phase];
            bool lone = true;
            for (int k = 0; k < l->n; k++)
                lone = lone && (l->calls[k].kind == NDP_CALL_KERNEL || t->members[l->calls[k].channel] == 1);
            t->lone[i][phase] = lone;
        }
}

/* ---- all ---- */

ndp_status ndp_tracks_match(const ndp_program *const *programs, int n, ndp_visits visits, bool without_lone,
                            ndp_tracks *out) {
    *out = (ndp_tracks){calloc((size_t)n + 1, sizeof *out->items), n};
    NDP_CHECK_MEMORY(out->items, "to match %d programs", n);
    for (int i = 0; i < n; i++)
        out->items[i].program = programs[i], out->items[i].rank = programs[i]->opts.step.mesh.rank;
    for (int i = 0; i < n; i++)
        for (int channel = 0; channel < NDP_CHANNELS; channel++)
            find_members(out, i, channel);
    for (int i = 0; i < n && without_lone; i++)
        find_lone(&out->items[i]);
    for (int i = 0; i < n; i++)
        NDP_TRY(list_events(programs[i], visits, &out->items[i]));
    for (int i = 0; i < n; i++)
        qsort(out->items[i].messages, (size_t)out->items[i].n_messages, sizeof(ndp_track_message), by_message);
    for (int i = 0; i < n; i++)
        NDP_TRY(match_messages(out, i));
    for (int i = 0; i < n; i++)
        for (int channel = 0; channel < NDP_CHANNELS; channel++)
            NDP_TRY(compare(out, i, channel));
    return NDP_OK;
}

void ndp_tracks_release(ndp_tracks *ts) {
    for (int i = 0; ts->items && i < ts->n; i++) {
        ndp_track *t = &ts->items[i];
        for (int k = 0; k < NDP_CHANNELS; k++)
            free(t->nth[k]);
        free(t->events);
        free(t->begin);
        free(t->place);
        free(t->other);
        free(t->match);
        free(t->messages);
        free(t->begun);
    }
    free(ts->items);
    *ts = (ndp_tracks){0};
}

ndp_status ndp_track_deadlock(const ndp_track *t, int e) {
    char text[256];
    return NDP_FAIL(NDP_EBUG, "deadlock: rank %d is blocked at %s over %s", t->rank,
                    ndp_comm_event_text(&t->events[e], text, sizeof text),
                    ndp_group_name(ndp_comm_event_group(&t->events[e])));
}
