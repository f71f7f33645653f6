/* The checker: replays the communications of all ranks' programs against each other, without any data. A dry run,
 * `plan` and the tests call ndp_program_check with the programs of a whole world or of some of its ranks.
 *
 * 1. Operations of one channel are matched in order, so the k-th begin of every member must be the same operation: the
 *    same op, bytes, unit and name. list_events numbers the begins and waits of each rank, compare does the matching.
 *    Messages are matched apart: the k-th send from a rank to another with one tag is the k-th receive there.
 * 2. Then run_all executes the ranks: a begin always succeeds; a wait succeeds once all members of its group have begun
 *    the same operation, that of a message once its other side has begun: transports copy when the receiver waits.
 * Ranks block only in waits, and an operation that has begun stays begun. The order in which the ranks advance
 * therefore does not matter: if one order finishes, all do; if no rank can advance, it is a deadlock.
 *
 * Members whose programs are not given count as ready. */
#include "step/program.h"

#include <stdlib.h>
#include <string.h>

enum { CHANNELS = NDP_CHANNELS, MOST_PENDING = 8 };

/* The begin of a message. Sorted by the other side and tag, then by order, those that match have the same place. */
typedef struct message {
    int send, channel, peer, tag; /* peer: a rank of the group */
    int event;
} message;

/* The communications of one rank, and its position in the replay. */
typedef struct track {
    ndp_comm_event *events;
    int *number;  /* of a begin or wait on its channel, from 0; of a message's wait: the event of its begin */
    int *program; /* of a message's begin: the program of the other side, NDP_NONE if it is not given, */
    int *match;   /* and the event there */
    message *messages;
    int n, at, n_messages;
    int begun[CHANNELS]; /* so far in the replay */
    int total[CHANNELS];
    int **nth; /* by channel: the event that is its k-th begin */
} track;

typedef struct replay {
    const ndp_program *const *programs;
    int n;
    track *tracks;
} replay;

static int rank_of(const replay *r, int i) { return r->programs[i]->opts.mesh.rank; }

static bool is_member(const ndp_group *g, int rank) {
    int apart = rank - g->base;
    return apart >= 0 && apart % g->stride == 0 && apart / g->stride < g->count;
}

static bool same(const ndp_comm_event *a, const ndp_comm_event *b) {
    return a->call->op == b->call->op && a->bytes == b->bytes && strcmp(a->call->what, b->call->what) == 0 &&
           strcmp(a->unit, b->unit) == 0;
}

static ndp_status take_track(const ndp_program *p, track *t) {
    ndp_comm_event e;
    for (ndp_comm_event_cursor c = {0}; ndp_program_comm_event(p, &c, &e);)
        t->n++;
    size_t n = (size_t)t->n + 1;
    t->events = calloc(n, sizeof *t->events);
    t->number = calloc(n, sizeof *t->number);
    t->program = calloc(n, sizeof *t->program);
    t->match = calloc(n, sizeof *t->match);
    t->messages = calloc(n, sizeof *t->messages);
    t->nth = calloc(CHANNELS, sizeof *t->nth);
    bool ok = t->events && t->number && t->program && t->match && t->messages && t->nth;
    for (int k = 0; ok && k < CHANNELS; k++)
        ok = (t->nth[k] = calloc(n, sizeof **t->nth)) != NULL;
    return ok ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "no memory to check a program");
}

/* Notes event i, a message: its begin is matched later, its wait belongs to a begin shortly before. */
static void note_message(track *t, int i) {
    const ndp_comm_event *e = &t->events[i];
    const ndp_op_attr *a = &e->call->attr;
    if (e->begin) {
        t->messages[t->n_messages++] =
            (message){e->call->op->collective == NDP_SEND, ndp_comm_event_channel(e), a->peer, a->tag, i};
        return;
    }
    t->number[i] = i - 1;
    while (t->number[i] > 0 && t->events[t->number[i]].instr != e->call->partner)
        t->number[i]--;
}

/* Lists a rank's events. The waits of a channel's collectives have the order of its begins, and at most MOST_PENDING
 * begins are ahead of them. */
static ndp_status list_events(const ndp_program *p, int rank, track *t) {
    ndp_comm_event e;
    int waited[CHANNELS] = {0}, begun[CHANNELS] = {0};
    NDP_TRY(take_track(p, t));
    int i = 0;
    for (ndp_comm_event_cursor c = {0}; ndp_program_comm_event(p, &c, &e); i++) {
        int k = ndp_comm_event_channel(&e);
        bool is_message = ndp_comm_event_is_message(&e);
        char text[256];
        t->events[i] = e;
        t->number[i] = e.begin ? begun[k]++ : waited[k]++;
        if (e.begin)
            t->nth[k][t->number[i]] = i;
        if (begun[k] < waited[k] || begun[k] - waited[k] > MOST_PENDING)
            return NDP_FAIL(NDP_EBUG, "rank %d, %s: %d operations of %s are begun and %d waited for", rank,
                            ndp_comm_event_text(&e, text, sizeof text), begun[k],
                            ndp_group_name(ndp_comm_event_group(&e)), waited[k]);
        if (!is_message && !e.begin && !same(&e, &t->events[t->nth[k][t->number[i]]]))
            return NDP_FAIL(NDP_EBUG, "rank %d waits at %s out of the order of begins", rank,
                            ndp_comm_event_text(&e, text, sizeof text));
        if (is_message)
            note_message(t, i);
    }
    for (int k = 0; k < CHANNELS; k++) {
        t->total[k] = begun[k];
        if (begun[k] != waited[k])
            return NDP_FAIL(NDP_EBUG, "rank %d begins %d operations of %s and waits for %d", rank, begun[k],
                            ndp_group_name(ndp_channel_group(k)), waited[k]);
    }
    return NDP_OK;
}

/* ---- messages ---- */

static int by_message(const void *a, const void *b) {
    const message *x = a, *y = b;
    const int order[] = {x->send - y->send, x->channel - y->channel, x->peer - y->peer, x->tag - y->tag,
                         x->event - y->event};
    for (int k = 0; k < NDP_COUNT(order); k++)
        if (order[k] != 0)
            return order[k];
    return 0;
}

static bool alike(const message *a, const message *b) {
    return a->send == b->send && a->channel == b->channel && a->peer == b->peer && a->tag == b->tag;
}

static int program_of_rank(const replay *r, int rank) {
    for (int i = 0; i < r->n; i++)
        if (rank_of(r, i) == rank)
            return i;
    return NDP_NONE;
}

/* The other side's event for message k of rank i, of which `nth` before it are alike; NDP_NONE: there is none. */
static int find_match(const track *other, const message *m, int my_place, int nth) {
    message wanted = {!m->send, m->channel, my_place, m->tag, -1};
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

/* Finds the other side of each message of rank i. */
static ndp_status match_messages(replay *r, int i) {
    track *t = &r->tracks[i];
    ndp_group g = ndp_mesh_group(&r->programs[i]->opts.mesh, NDP_GROUP_PP);
    char a[256], b[256];
    for (int k = 0, nth = 0; k < t->n_messages; k++) {
        const message *m = &t->messages[k];
        const ndp_comm_event *mine = &t->events[m->event];
        int rank = g.base + m->peer * g.stride, j = program_of_rank(r, rank);
        nth = k > 0 && alike(m, m - 1) ? nth + 1 : 0;
        t->program[m->event] = j;
        if (j == NDP_NONE)
            continue;
        t->match[m->event] = find_match(&r->tracks[j], m, g.rank, nth);
        if (t->match[m->event] == NDP_NONE)
            return NDP_FAIL(NDP_EBUG, "rank %d begins %s, rank %d has no %s for it", rank_of(r, i),
                            ndp_comm_event_text(mine, a, sizeof a), rank, m->send ? "receive" : "send");
        const ndp_comm_event *theirs = &r->tracks[j].events[t->match[m->event]];
        if (mine->bytes != theirs->bytes || mine->micro_batch != theirs->micro_batch ||
            strcmp(mine->call->what, theirs->call->what) != 0)
            return NDP_FAIL(NDP_EBUG, "rank %d begins %s, rank %d %s", rank_of(r, i),
                            ndp_comm_event_text(mine, a, sizeof a), rank, ndp_comm_event_text(theirs, b, sizeof b));
    }
    return NDP_OK;
}

/* ---- collectives ---- */

/* Compares the begins of rank i with those of the first member of its group whose program is given. */
static ndp_status compare(const replay *r, int i, int channel) {
    ndp_group_kind kind = ndp_channel_group(channel);
    if (channel == NDP_CHANNEL_FORWARD || channel == NDP_CHANNEL_BACKWARD)
        return NDP_OK;
    ndp_group g = ndp_mesh_group(&r->programs[i]->opts.mesh, kind);
    int first = 0;
    while (!is_member(&g, rank_of(r, first)))
        first++;
    int rank = rank_of(r, i), other = rank_of(r, first);
    const track *mine = &r->tracks[i], *theirs = &r->tracks[first];
    char a[256], b[256];
    for (int k = 0; first != i && (k < mine->total[channel] || k < theirs->total[channel]); k++) {
        const ndp_comm_event *x = k < mine->total[channel] ? &mine->events[mine->nth[channel][k]] : NULL;
        const ndp_comm_event *y = k < theirs->total[channel] ? &theirs->events[theirs->nth[channel][k]] : NULL;
        if (!x || !y)
            return NDP_FAIL(NDP_EBUG, "over %s, rank %d begins %s, rank %d begins no such collective",
                            ndp_group_name(kind), x ? rank : other, ndp_comm_event_text(x ? x : y, a, sizeof a),
                            x ? other : rank);
        if (!same(x, y))
            return NDP_FAIL(NDP_EBUG, "over %s, rank %d is at %s, rank %d at %s", ndp_group_name(kind), rank,
                            ndp_comm_event_text(x, a, sizeof a), other, ndp_comm_event_text(y, b, sizeof b));
    }
    return NDP_OK;
}

static bool other_side_begun(const replay *r, const track *t, int begin) {
    return t->program[begin] == NDP_NONE || r->tracks[t->program[begin]].at > t->match[begin];
}

static bool all_begun(const replay *r, int i, const ndp_comm_event *wait, int number) {
    if (ndp_comm_event_is_message(wait))
        return other_side_begun(r, &r->tracks[i], number);
    ndp_group g = ndp_mesh_group(&r->programs[i]->opts.mesh, ndp_comm_event_group(wait));
    for (int k = 0; k < r->n; k++)
        if (is_member(&g, rank_of(r, k)) && r->tracks[k].begun[ndp_comm_event_channel(wait)] <= number)
            return false;
    return true;
}

/* Runs one rank until it blocks; true if it advanced. */
static bool advance(replay *r, int i) {
    track *t = &r->tracks[i];
    int from = t->at;
    for (; t->at < t->n; t->at++) {
        const ndp_comm_event *e = &t->events[t->at];
        if (e->begin)
            t->begun[ndp_comm_event_channel(e)]++;
        else if (!all_begun(r, i, e, t->number[t->at]))
            break;
    }
    return t->at > from;
}

static ndp_status run_all(replay *r) {
    char text[256];
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < r->n; i++)
            moved |= advance(r, i);
    }
    for (int i = 0; i < r->n; i++) {
        const track *t = &r->tracks[i];
        if (t->at < t->n)
            return NDP_FAIL(NDP_EBUG, "deadlock: rank %d is blocked at %s over %s", rank_of(r, i),
                            ndp_comm_event_text(&t->events[t->at], text, sizeof text),
                            ndp_group_name(ndp_comm_event_group(&t->events[t->at])));
    }
    return NDP_OK;
}

static ndp_status check_all(replay *r) {
    for (int i = 0; i < r->n; i++)
        NDP_TRY(list_events(r->programs[i], rank_of(r, i), &r->tracks[i]));
    for (int i = 0; i < r->n; i++)
        qsort(r->tracks[i].messages, (size_t)r->tracks[i].n_messages, sizeof(message), by_message);
    for (int i = 0; i < r->n; i++)
        NDP_TRY(match_messages(r, i));
    for (int i = 0; i < r->n; i++)
        for (int channel = 0; channel < CHANNELS; channel++)
            NDP_TRY(compare(r, i, channel));
    return run_all(r);
}

ndp_status ndp_program_check(const ndp_program *const *programs, int n) {
    replay r = {programs, n, calloc((size_t)n + 1, sizeof *r.tracks)};
    ndp_status st = r.tracks ? check_all(&r) : NDP_FAIL(NDP_ENOMEM, "no memory to check %d programs", n);
    for (int i = 0; r.tracks && i < n; i++) {
        track *t = &r.tracks[i];
        for (int k = 0; t->nth && k < CHANNELS; k++)
            free(t->nth[k]);
        free(t->nth);
        free(t->events);
        free(t->number);
        free(t->program);
        free(t->match);
        free(t->messages);
    }
    free(r.tracks);
    return st;
}
