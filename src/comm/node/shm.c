/* Collectives in shared memory.
 *
 *   ndp_shm_begin   publish: this rank's operation (kind, count, where its buffers are) goes into slot
 *      |            sequence % NDP_SHM_SLOTS; then gate `arrived` = sequence. Only small data is copied.
 *      v
 *   all `arrived` gates reached   (ndp_shm_wait, or make_progress during any other wait of this rank)
 *      |  execute_next: compares what all ranks have begun, does this rank's share directly on the peers' memory, then
 *      v  gate `finished` = sequence
 *   all `finished` gates of ranks that access this rank's buffers reached   (wait_for_peers)
 *      v
 *   ndp_shm_wait returns: the buffers are the caller's
 *
 * The shares:
 *   small (at most NDP_SHM_INLINE bytes)   the data is in the slot, every rank computes everything; no `finished` wait
 *   all_gather in a shared window, all parts in place   nothing moves; no `finished` wait
 *   all_reduce   rank r reduces part r of all buffers and writes it to all of them (no other rank touches part r)
 *   all others   each rank reads from its peers what it needs
 *
 * On a device the shares are submitted to queues, and marks order them (lane.h); gates then only say what is submitted.
 *
 * If peers cannot access a large buffer, its rank copies it into memory that they can (stage), and after an all_reduce
 * copies the result back.
 *
 * Invariants: executed <= begun, and operations are executed and waited for in the order of their begins. At most
 * NDP_SHM_OUTSTANDING = 8 are outstanding, and there are twice as many slots: a rank that begins operation s has waited
 * for s - 8, which all ranks had then begun; so they had all waited for s - 16, and its slot is free. */
#include "comm/node/shm.h"
#include "comm/node/lane.h"
#include "comm/watch/health.h"

#include <stdlib.h>
#include <string.h>

static ndp_shm_slot *slot_of(const ndp_shm *s, int member, uint32_t sequence) {
    return &s->block[member].slot[sequence % NDP_SHM_SLOTS];
}

/* ---- begin ---- */

/* Bytes of this rank's `in` that peers read. */
static size_t bytes_exposed(const ndp_work *w) {
    const ndp_group *g = &w->comm->group;
    size_t part = ndp_work_bytes(w);
    switch (w->kind) {
    case NDP_WORK_BARRIER:
        return 0;
    case NDP_WORK_REDUCE_SCATTER:
        return part * (size_t)g->count;
    case NDP_WORK_ALL_TO_ALL:
        return ndp_work_handed(w, g->rank, g->count);
    default:
        return part;
    }
}

/* The same on all ranks, since counts and types are. The host cannot read a device's data. */
static bool is_small(const ndp_work *w) {
    return !ndp_lane_of(w->comm) && !w->rows && bytes_exposed(w) <= NDP_SHM_INLINE;
}

/* Where peers find `in`: in a copy if they cannot access it. */
static ndp_status expose(const ndp_shm *s, const void *in, size_t bytes, ndp_ref *out, void **staged) {
    *out = s->space->locate(s->space->context, in, bytes);
    if (out->segment >= 0)
        return NDP_OK;
    NDP_TRY(s->space->stage(s->space->context, bytes, out, staged));
    ndp_copy_large(*staged, in, bytes);
    return NDP_OK;
}

static ndp_status publish(ndp_shm *s, const ndp_work *w, ndp_shm_slot *slot, void **staged) {
    const ndp_group *g = &s->comm->group;
    const ndp_ref none = {.segment = -1};
    size_t part = ndp_work_bytes(w), exposed = bytes_exposed(w);
    slot->operation = *ndp_journal_record(&s->comm->transport->journals[s->comm->transport->rank], w);
    slot->in = slot->out = none;
    NDP_TRY(ndp_lane_ready(s->comm, w->queue, &slot->ready));
    slot->in_place = w->kind == NDP_WORK_ALL_GATHER && w->in == (char *)w->out + (size_t)g->rank * part;
    if (w->kind == NDP_WORK_ALL_GATHER)
        slot->out = s->space->locate(s->space->context, w->out, part * (size_t)g->count);
    bool is_read = w->kind != NDP_WORK_BROADCAST || w->peer == g->rank;
    if (!is_read || exposed == 0)
        return NDP_OK;
    if (is_small(w)) {
        memcpy(slot->data, w->in, exposed);
        return NDP_OK;
    }
    return expose(s, w->in, exposed, &slot->in, staged);
}

ndp_status ndp_shm_begin(ndp_shm *s, ndp_work *w) {
    void *staged = NULL;
    w->sequence = s->begun + 1;
    NDP_TRY(publish(s, w, slot_of(s, s->comm->group.rank, w->sequence), &staged));
    s->pending[w->sequence % NDP_SHM_OUTSTANDING] = (ndp_shm_pending){.work = *w, .staged = staged};
    s->begun++;
    s->comm->transport->pending_shares++;
    ndp_gate_set(&s->block[s->comm->group.rank].arrived, w->sequence);
    return NDP_OK;
}

/* ---- once all ranks have arrived ---- */

static ndp_status compare(const ndp_shm *s, const ndp_work *w, int member) {
    const ndp_record *first = &slot_of(s, 0, w->sequence)->operation;
    const ndp_record *other = &slot_of(s, member, w->sequence)->operation;
    if (ndp_record_matches(first, other))
        return NDP_OK;
    return ndp_record_mismatch(s->comm, ndp_comm_world_rank(s->comm, member), other, ndp_comm_world_rank(s->comm, 0),
                               first);
}

/* True for an all_gather whose `out` is one and the same memory on all ranks. */
static bool is_shared(const ndp_shm *s, const ndp_work *w) {
    ndp_ref first = slot_of(s, 0, w->sequence)->out;
    bool same = first.segment >= 0;
    for (int p = 1; p < s->comm->group.count; p++) {
        ndp_ref out = slot_of(s, p, w->sequence)->out;
        same &= out.segment == first.segment && out.offset == first.offset;
    }
    return same;
}

static bool all_arrived(const ndp_shm *s, uint32_t sequence) {
    for (int p = 0; p < s->comm->group.count; p++)
        if (!ndp_gate_reached(&s->block[p].arrived, sequence))
            return false;
    return true;
}

/* s->in[p]: where this rank reads the buffer of rank p. */
static ndp_status find_peers(ndp_shm *s, const ndp_work *w) {
    bool small = is_small(w);
    for (int p = 0; p < s->comm->group.count; p++) {
        ndp_shm_slot *slot = slot_of(s, p, w->sequence);
        s->in[p] = slot->data;
        if (!small && slot->in.segment >= 0)
            NDP_TRY(s->space->resolve(s->space->context, slot->in, &s->in[p]));
    }
    return NDP_OK;
}

static void advance(void **buffers, int n, size_t bytes) {
    for (int p = 0; p < n; p++)
        buffers[p] = (char *)buffers[p] + bytes;
}

/* ---- this rank's share; *shared: ranks access each other's buffers, so that all wait for their peers' shares ---- */

static ndp_status all_reduce(ndp_shm *s, const ndp_work *w, bool *shared) {
    int n = s->comm->group.count, rank = s->comm->group.rank;
    *shared = !is_small(w);
    if (!*shared)
        return ndp_lane_sum(s->comm, w, s->in, &(void *){w->out}, 1, w->count);
    /* Parts are whole cache lines, so that no two ranks write to one. */
    int64_t part = ((w->count + n - 1) / n + 63) / 64 * 64, first = part * rank;
    int64_t count = first + part <= w->count ? part : first < w->count ? w->count - first : 0;
    if (count <= 0)
        return NDP_OK;
    advance(s->in, n, (size_t)first * ndp_dtype_size((ndp_dtype)w->type));
    return ndp_lane_sum(s->comm, w, s->in, s->in, n, count);
}

static ndp_status reduce_scatter(ndp_shm *s, const ndp_work *w, bool *shared) {
    advance(s->in, s->comm->group.count, (size_t)s->comm->group.rank * ndp_work_bytes(w));
    *shared = !is_small(w);
    return ndp_lane_sum(s->comm, w, s->in, &(void *){w->out}, 1, w->count);
}

static ndp_status all_gather(ndp_shm *s, const ndp_work *w, bool *shared) {
    int n = s->comm->group.count, rank = s->comm->group.rank;
    size_t part = ndp_work_bytes(w);
    bool one = is_shared(s, w), all_in_place = true;
    for (int p = 0; p < n; p++) {
        bool in_place = slot_of(s, p, w->sequence)->in_place;
        all_in_place &= in_place;
        if (p == rank ? !in_place : !one)
            NDP_TRY(ndp_lane_copy(s->comm, (char *)w->out + (size_t)p * part, p == rank ? w->in : s->in[p], part));
    }
    *shared = one ? !all_in_place : !is_small(w);
    return NDP_OK;
}

static ndp_status broadcast(ndp_shm *s, const ndp_work *w, bool *shared) {
    *shared = !is_small(w);
    return s->comm->group.rank == w->peer ? NDP_OK : ndp_lane_copy(s->comm, w->out, s->in[w->peer], ndp_work_bytes(w));
}

static ndp_status all_to_all(ndp_shm *s, const ndp_work *w, bool *shared) {
    int rank = s->comm->group.rank;
    char *to = w->out;
    for (int p = 0; p < s->comm->group.count; p++) {
        size_t part = ndp_work_part(w, p, rank);
        if (part > 0)
            NDP_TRY(ndp_lane_copy(s->comm, to, (char *)s->in[p] + ndp_work_handed(w, p, rank), part));
        to += part;
    }
    *shared = !is_small(w);
    return NDP_OK;
}

static ndp_status shift(ndp_shm *s, const ndp_work *w, bool *shared) {
    int n = s->comm->group.count;
    *shared = !is_small(w);
    return ndp_lane_copy(s->comm, w->out, s->in[(s->comm->group.rank + n - 1) % n], ndp_work_bytes(w));
}

static ndp_status barrier(ndp_shm *s, const ndp_work *w, bool *shared) {
    (void)s, (void)w;
    *shared = false;
    return NDP_OK;
}

static ndp_status (*const share[])(ndp_shm *, const ndp_work *, bool *) = {
    [NDP_WORK_BARRIER] = barrier,       [NDP_WORK_ALL_REDUCE] = all_reduce,
    [NDP_WORK_ALL_GATHER] = all_gather, [NDP_WORK_REDUCE_SCATTER] = reduce_scatter,
    [NDP_WORK_BROADCAST] = broadcast,   [NDP_WORK_ALL_TO_ALL] = all_to_all,
    [NDP_WORK_SHIFT] = shift,
};

/* On a device: runs the share after the operation is ready on all ranks, and publishes its end. */
static ndp_status run_share(ndp_shm *s, const ndp_work *w, bool *shared) {
    ndp_comm *c = s->comm;
    for (int p = 0; p < c->group.count; p++)
        NDP_TRY(ndp_lane_after(c, c->queue, &slot_of(s, p, w->sequence)->ready));
    NDP_TRY(share[w->kind](s, w, shared));
    return ndp_lane_mark(c, c->queue, &slot_of(s, c->group.rank, w->sequence)->finished);
}

/* Does rank p access this rank's buffers? In a broadcast, only the root's are read. */
static bool is_accessed_by(const ndp_work *w, int p) {
    const ndp_group *g = &w->comm->group;
    if (w->kind == NDP_WORK_BROADCAST)
        return g->rank == w->peer;
    return w->kind != NDP_WORK_SHIFT || p == (g->rank + 1) % g->count;
}

/* Until no peer accesses this rank's buffers any more. */
static ndp_status wait_for_peers(ndp_shm *s, const ndp_work *w) {
    for (int p = 0; p < s->comm->group.count; p++)
        if (is_accessed_by(w, p)) {
            NDP_TRY(ndp_gate_wait(&s->block[p].finished, w->sequence, w, p, 0));
            NDP_TRY(ndp_lane_after(s->comm, w->queue, &slot_of(s, p, w->sequence)->finished));
        }
    return NDP_OK;
}

/* This rank's share of the next operation, which all ranks have begun. */
static ndp_status execute_next(ndp_shm *s) {
    ndp_shm_pending *next = &s->pending[(s->executed + 1) % NDP_SHM_OUTSTANDING];
    ndp_work *w = &next->work;
    ndp_transport *t = s->comm->transport;
    for (int p = 1; p < s->comm->group.count; p++)
        NDP_TRY(compare(s, w, p));
    NDP_TRY(find_peers(s, w));
    NDP_TRY(ndp_health_enter(t->health, t->rank));
    ndp_status st = run_share(s, w, &next->shared);
    ndp_health_leave(t->health, t->rank);
    NDP_TRY(st);
    ndp_gate_set(&s->block[s->comm->group.rank].finished, w->sequence);
    s->executed++;
    t->pending_shares--;
    return NDP_OK;
}

static ndp_status make_progress(ndp_progress_fn *f) {
    ndp_shm *s = (ndp_shm *)f;
    while (s->executed != s->begun && all_arrived(s, s->executed + 1))
        NDP_TRY(execute_next(s));
    return NDP_OK;
}

/* After an all_reduce the copy has the result. */
static void release_copy(const ndp_shm *s, ndp_shm_pending *mine) {
    const ndp_work *w = &mine->work;
    if (!mine->staged)
        return;
    if (w->kind == NDP_WORK_ALL_REDUCE)
        ndp_copy_large(w->out, mine->staged, ndp_work_bytes(w));
    s->space->unstage(s->space->context, mine->staged);
    mine->staged = NULL;
}

ndp_status ndp_shm_wait(ndp_shm *s, ndp_work *w) {
    ndp_shm_pending *mine = &s->pending[w->sequence % NDP_SHM_OUTSTANDING];
    if (w->sequence != s->waited + 1)
        return NDP_FAIL(NDP_EBUG, "operation #%u of group %s is waited for before #%u", w->sequence, s->comm->name,
                        s->waited + 1);
    s->waited++;
    /* All earlier operations have been waited for, so this one is the next to execute, unless it has been executed. */
    for (int p = 0; p < s->comm->group.count; p++)
        NDP_TRY(ndp_gate_wait(&s->block[p].arrived, w->sequence, w, p, s->executed + 1 == w->sequence));
    if (s->executed + 1 == w->sequence)
        NDP_TRY(execute_next(s));
    w->in_place = !mine->staged;
    if (mine->shared)
        NDP_TRY(wait_for_peers(s, w));
    NDP_TRY(ndp_lane_after(s->comm, w->queue, &slot_of(s, s->comm->group.rank, w->sequence)->finished));
    release_copy(s, mine);
    return NDP_OK;
}

/* ---- the handle ---- */

ndp_status ndp_shm_init(ndp_shm *s, ndp_comm *c, ndp_shm_rank *block, const ndp_space *space) {
    void **peers = calloc((size_t)c->group.count, sizeof *peers);
    NDP_CHECK_MEMORY(peers, "for the communicator of group %s", c->name);
    *s = (ndp_shm){.progress = {.run = make_progress}, .comm = c, .block = block, .space = space, .in = peers};
    ndp_progress_fn_add(c->transport, &s->progress);
    return NDP_OK;
}

void ndp_shm_release(ndp_shm *s) {
    ndp_transport *t = s->comm->transport;
    t->pending_shares -= (int)(s->begun - s->executed);
    ndp_progress_fn_remove(t, &s->progress);
    free(s->in);
}
