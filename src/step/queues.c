/* Whether a GPU that runs few queues by themselves can run a world's programs.
 *
 * A GPU divides its queues among its connections to the host (CUDA_DEVICE_MAX_CONNECTIONS), and takes what is on one in
 * the order of submission: an operation that waits for a peer holds up all that was submitted after it, also on other
 * queues. With as many connections as queues none waits for another. With fewer, which queues share one is the driver's
 * choice, so the proof is the hardest case, one connection for all: every rank takes its operations one after the
 * other, as submitted, and an operation is over when all its members are at it. An order in which all end so is one for
 * every division, since those have only less to wait for. */
#include "comm/nccl/nccl_memory.h"
#include "step/tracks.h"

#include <stdlib.h>

enum { OWN_QUEUES = 2, /* of kernels, and of results (engine_host.c) */ MOST_CONNECTIONS = 32 };

/* Queues of the messages of a channel: one for each other rank and direction (comm/nccl/nccl_comm.c). */
static int message_queues(const ndp_program *p, int channel) {
    enum { DIRECTIONS = 2, MOST = 64 };
    int peers[MOST], n = 0;
    ndp_comm_event m;
    for (ndp_comm_event_cursor c = NDP_COMM_EVENTS(NDP_FIRST_ITERATIONS(1)); ndp_program_comm_event(p, &c, &m);) {
        if (!m.begin || ndp_comm_event_channel(&m) != channel)
            continue;
        int which = m.call->attr.peer * DIRECTIONS + (ndp_comm_event_kind(&m) == NDP_RECV), i = 0;
        while (i < n && peers[i] != which)
            i++;
        if (i == n && n < MOST)
            peers[n++] = which;
    }
    return n;
}

/* together[a][b]: an operation of channel a is under way at a begin on b, or the other way round. Two iterations of a
 * range have all that meet. */
static void find_together(const ndp_program *p, bool used[NDP_CHANNELS], bool together[NDP_CHANNELS][NDP_CHANNELS]) {
    int under_way[NDP_CHANNELS] = {0};
    ndp_comm_event m;
    for (ndp_comm_event_cursor c = NDP_COMM_EVENTS(NDP_FIRST_ITERATIONS(2)); ndp_program_comm_event(p, &c, &m);) {
        int channel = ndp_comm_event_channel(&m);
        if (ndp_mesh_group(&p->opts.step.mesh, ndp_comm_event_group(&m)).count == 1)
            continue;
        used[channel] = true;
        for (int other = 0; m.begin && other < NDP_CHANNELS; other++)
            if (under_way[other])
                together[channel][other] = together[other][channel] = true;
        under_way[channel] += m.begin ? 1 : -1;
    }
}

/* The first queue on which nothing is under way together with operations of the channel. */
static int queue_for(int channel, const int queue_of[NDP_CHANNELS], bool together[NDP_CHANNELS][NDP_CHANNELS]) {
    bool taken[NDP_CHANNELS] = {false};
    int queue = 0;
    for (int other = 0; other < channel; other++)
        if (queue_of[other] != NDP_NONE && together[channel][other])
            taken[queue_of[other]] = true;
    while (taken[queue])
        queue++;
    return queue;
}

int ndp_program_collective_queues(const ndp_program *p, int queue_of[NDP_CHANNELS]) {
    bool used[NDP_CHANNELS] = {false}, together[NDP_CHANNELS][NDP_CHANNELS] = {{false}};
    int n = 0;
    find_together(p, used, together);
    for (int channel = 0; channel < NDP_CHANNELS; channel++) {
        bool one = used[channel] && channel < NDP_CHANNEL_FORWARD;
        queue_of[channel] = one ? queue_for(channel, queue_of, together) : NDP_NONE;
        n = queue_of[channel] >= n ? queue_of[channel] + 1 : n;
    }
    return n;
}

int ndp_program_queues(const ndp_program *p) {
    int queue_of[NDP_CHANNELS], n = OWN_QUEUES + ndp_program_collective_queues(p, queue_of);
    for (int channel = NDP_CHANNEL_FORWARD; channel < NDP_CHANNELS; channel++)
        n += message_queues(p, channel);
    return n;
}

/* ---- NCCL's memory ---- */

typedef struct nccl_use {
    bool used[NDP_CHANNELS];
    int messages[NDP_CHANNELS];  /* neighbours and directions */
    int64_t added[NDP_CHANNELS]; /* bytes of the largest sum that is added to another */
} nccl_use;

static int members_of(const ndp_program *p, int channel) {
    return ndp_mesh_group(&p->opts.step.mesh, ndp_channel_group(channel)).count;
}

static nccl_use use_of(const ndp_program *p) {
    nccl_use u = {0};
    ndp_comm_event m;
    for (ndp_comm_event_cursor c = NDP_COMM_EVENTS(NDP_FIRST_ITERATIONS(1)); ndp_program_comm_event(p, &c, &m);) {
        int channel = ndp_comm_event_channel(&m), ranks = members_of(p, channel);
        bool adds = m.begin && ndp_comm_event_kind(&m) == NDP_REDUCE_SCATTER && m.call->attr.accumulate;
        u.used[channel] |= ranks > 1;
        if (adds && m.bytes / ranks > u.added[channel])
            u.added[channel] = m.bytes / ranks;
    }
    for (int channel = NDP_CHANNEL_FORWARD; channel < NDP_CHANNELS; channel++)
        u.messages[channel] = u.used[channel] ? message_queues(p, channel) : 0;
    return u;
}

int64_t ndp_program_nccl_bytes(const ndp_program *p, const ndp_program *beside) {
    nccl_use u = use_of(p), b = beside ? use_of(beside) : (nccl_use){0};
    int64_t bytes = 0;
    for (int channel = 0; channel < NDP_CHANNELS; channel++) {
        int more = u.messages[channel] - b.messages[channel];
        if (u.used[channel] && !b.used[channel])
            bytes += channel >= NDP_CHANNEL_FORWARD ? NDP_NCCL_OWN_BYTES /* those of messages are split from it */
                                                    : ndp_nccl_collectives_bytes(members_of(p, channel));
        bytes += u.added[channel] + (more > 0 ? more * ndp_nccl_messages_bytes() : 0);
    }
    return bytes;
}

/* ---- one connection for all ---- */

typedef struct one_line {
    ndp_tracks tracks;
    int *at;       /* by track: the event that it is at */
    bool *arrived; /* it is counted at that event */
    int **there;   /* by a group's first track and the event of its begin: the members that are at the collective */
} one_line;

/* False: a member is not at the operation yet. Where it is the last one, the others go on when they look again. */
static bool all_at(const one_line *l, int i) {
    const ndp_track *t = &l->tracks.items[i];
    const ndp_comm_event *e = &t->events[l->at[i]];
    int channel = ndp_comm_event_channel(e), first = t->first[channel];
    if (ndp_comm_event_is_message(e))
        return t->other[l->at[i]] == NDP_NONE || l->at[t->other[l->at[i]]] >= t->match[l->at[i]];
    int *there = &l->there[first][l->tracks.items[first].nth[channel][t->place[l->at[i]]]];
    *there += !l->arrived[i];
    l->arrived[i] = true;
    return *there == t->members[channel];
}

/* A wait takes no place of its own: what it waits for is before it in the line. */
static bool advance(const one_line *l, int i) {
    const ndp_track *t = &l->tracks.items[i];
    int from = l->at[i];
    for (; l->at[i] < t->n && (!t->events[l->at[i]].begin || all_at(l, i)); l->at[i]++)
        l->arrived[i] = false;
    return l->at[i] > from;
}

/* The first rank that does not come to its end; NDP_NONE: all do. */
static int run(const one_line *l) {
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < l->tracks.n; i++)
            moved |= advance(l, i);
    }
    for (int i = 0; i < l->tracks.n; i++)
        if (l->at[i] < l->tracks.items[i].n)
            return i;
    return NDP_NONE;
}

static void line_release(one_line *l) {
    for (int i = 0; l->there && i < l->tracks.n; i++)
        free(l->there[i]);
    free(l->there);
    free(l->arrived);
    free(l->at);
    ndp_tracks_release(&l->tracks);
}

/* Release in any case. */
static ndp_status line_up(const ndp_program *const *programs, int n, one_line *l) {
    size_t size = (size_t)n + 1;
    *l = (one_line){.at = calloc(size, sizeof *l->at),
                    .arrived = calloc(size, sizeof *l->arrived),
                    .there = calloc(size, sizeof *l->there)};
    bool ok = l->at && l->arrived && l->there;
    if (ok)
        NDP_TRY(ndp_tracks_match(programs, n, NDP_ALL_ITERATIONS, false, &l->tracks));
    for (int i = 0; ok && i < n; i++)
        ok = (l->there[i] = calloc((size_t)l->tracks.items[i].n + 1, sizeof **l->there)) != NULL;
    return NDP_MEMORY(ok, "to check the queues of %d programs", n);
}

/* CUDA's own number is 8; the device `cuda` asks for the most (device/cuda/cuda_start.cc). */
static int connections_of_gpus(void) {
    const char *set = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    int n = set ? atoi(set) : MOST_CONNECTIONS;
    return n < 1 ? 8 : n > MOST_CONNECTIONS ? MOST_CONNECTIONS : n;
}

ndp_status ndp_program_check_queues(const ndp_program *const *programs, int n) {
    int most = 0, rank = 0, connections = connections_of_gpus();
    for (int i = 0; i < n; i++) {
        int queues = ndp_program_queues(programs[i]);
        rank = queues > most ? i : rank;
        most = queues > most ? queues : most;
    }
    if (most <= connections)
        return NDP_OK;
    one_line l;
    ndp_status st = line_up(programs, n, &l);
    int blocked = st == NDP_OK ? run(&l) : NDP_NONE;
    if (blocked != NDP_NONE) {
        char text[256];
        const ndp_track *t = &l.tracks.items[blocked];
        st = NDP_FAIL(NDP_ENOTSUP,
                      "rank %d uses %d queues of its GPU, which runs %d of them by themselves "
                      "(CUDA_DEVICE_MAX_CONNECTIONS=%d): where two share a connection, ranks can wait for each other "
                      "forever, rank %d at %s: unset CUDA_DEVICE_MAX_CONNECTIONS (32 are used then), or set "
                      "train.collectives: staged",
                      l.tracks.items[rank].rank, most, connections, connections, t->rank,
                      ndp_comm_event_text(&t->events[l.at[blocked]], text, sizeof text));
    }
    line_release(&l);
    return st;
}
