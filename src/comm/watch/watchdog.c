/* How a wait that hangs is detected and explained.
 *
 * DEFINITIONS
 *
 *   wait        One call of ndp_wait that lasts. A rank numbers its waits in its journal: `wait` is odd inside one.
 *   poll        While it waits, a rank repeatedly runs its progress functions (its share of all operations that it has
 *               begun) and checks again whether its own operation is done. Each such round is one poll.
 *   blocked on  Rank A is blocked on rank B if A's wait cannot end before B begins some operation.
 *   edge        A's journal entry {blocked_on = B, peer_wait = v}: A is blocked on B, and B cannot begin that operation
 *               while B is inside its wait v. The edge is certain if v != 0; a guess has v = 0.
 *   local       A rank whose journal this one can read in memory; all others are remote, and are asked (state_query.h).
 *   missing     A member of a group that has not begun the collective for which others wait.
 *   of a device A rank whose device is stuck in the wait of an operation is inside a wait, as if its host were; and it
 *               has begun an operation once its device has come to the begin (device_wait.c, waypoints.h).
 *
 * INVARIANTS
 *
 *   (1) Only its own rank writes a journal. The entry of a remote rank is written by ranks of this node, from replies.
 *       Readers get a consistent copy (the lock in journal.c).
 *   (2) A rank's wait numbers only grow, so a rank and an odd number identify one wait forever.
 *   (3) A rank begins no operation inside a wait: progress functions only complete what was begun before.
 *   (4) An edge with peer_wait = v != 0 is only written if the peer was seen inside v after it could have helped:
 *       - at a gate: the peer has polled twice inside v since this rank first saw it there, so that one whole poll fell
 *         into that time, and the gate is still not reached (ndp_watchdog_peer_wait, then check_gate in wait.c);
 *       - without gates: the peer's journal, or its reply, says NOT_BEGUN and names v, read in one copy
 *         (ndp_journal_progress). By (3) it cannot begin the operation before v ends.
 *   (5) A cycle is reported only if every edge is certain and every rank is inside the wait that the edge to it names,
 *       the reporting rank included. Then none of these waits ends: the first to end would need another one to end
 *       before. So the states need not be read at one moment, and it does not matter how old a reply is.
 *   (6) An edge that is stale (its peer has left wait v) or a guess never makes a cycle, by (2) and (5). Guesses only
 *       serve the message of a time-out.
 *   (7) The entry of a remote rank is read only after a reply that was requested in the present wait. Another rank of
 *       this node may have stored another reply there since, which is harmless by (5).
 *   (8) No rank waits for any of this: a wait through MPI that is over within UNWATCHED_SECONDS
 *       (mpi_plain.c) sends no message, and a rank that computes is never interrupted.
 *
 * STATES of a rank in ndp_wait, with the function on each arrow
 *
 *   SPINNING ---- done ----------------------------------------------> DONE
 *      |
 *      | ndp_journal_wait_begin (gates: after 0.2 to 5 ms; MPI: after POLLS_UNRECORDED polls)
 *      v
 *   WAITING ---- done: ndp_journal_wait_end -------------------------> DONE
 *    |    ^ \--- another rank failed: ndp_health_check --------------> NDP_ECOMM "rank 2 failed: ..."
 *    |    |  \-- the peer has left: ndp_watchdog_left ---------------> NDP_ECOMM "rank 2 left the run ..."
 *    |    |   \- time limit: ndp_watchdog_check_limit ---------------> NDP_ECOMM "... all other ranks have begun ..."
 *    |    |
 *    |    | the missing rank has begun the operation: ndp_watchdog_find_missing, ndp_journal_set_blocked_on(-1)
 *    |    |
 *    | an edge is known: ndp_journal_set_blocked_on, after
 *    |   gates: ndp_watchdog_peer_wait
 *    v   MPI:   ndp_watchdog_find_missing (a remote peer: ndp_state_query_send, later ndp_state_query_serve)
 *   BLOCKED ---- done, failed, left: as above
 *           \--- a closed cycle: ndp_watchdog_find_cycle -----------> NDP_ECOMM "ranks wait for each other ..."
 *            |\- a process has died: ndp_lookout_check -------------> NDP_ECOMM "rank 2 (process 71) has died ..."
 *            \-- time limit: ndp_watchdog_check_limit --------------> NDP_ECOMM "... rank 3 has not arrived ..."
 *
 * The rank that gets an error first records it (ndp_health_fail, ndp_state_query_send_failure); the waits of all others
 * then return that error by ndp_health_check.
 *
 * EXAMPLE: a cycle over two hosts. Ranks 0 and 1 are on host a, 2 and 3 on host b. Each first reduces with the next
 * rank and then with the one before, over the groups north {0,1}, east {1,2}, south {2,3} and west {0,3}: each waits
 * forever.
 *
 *   rank 0, wait 11, at a gate of 1: rank 1 has polled twice inside its wait 5     -> edge 0 -> 1 in 5
 *   rank 1, wait 5, by MPI: asks 2 for all_reduce #1 of east; it replies NOT_BEGUN, wait 9 -> edge 1 -> 2 in 9
 *   rank 2, wait 9, at a gate of 3: rank 3 has polled twice inside its wait 7      -> edge 2 -> 3 in 7
 *   rank 3, wait 7, by MPI: asks 0 for all_reduce #1 of west; it replies NOT_BEGUN, wait 11 -> edge 3 -> 0 in 11
 *
 * Rank 0 follows the edges: 1 is local and inside wait 5; 2 and 3 are remote, so it requests their states and stops; at
 * a later check the replies are there: 2 is inside wait 9, 3 inside wait 7, and blocked on 0 in 11, which is rank 0's
 * present wait. The cycle is closed, about a second after the last of them began to wait, and the message lists all
 * four operations. */
#include "comm/watch/watchdog.h"
#include "comm/watch/health.h"
#include "comm/watch/lookout.h"
#include "comm/watch/state_query.h"
#include "comm/watch/watch_report.h"

#define CHECK_SECONDS 0.1

static ndp_status request_state(const ndp_transport *t, int rank) {
    return ndp_state_query_is_local(t->state_query, rank) ? NDP_OK : ndp_state_query_send(t->state_query, rank);
}

/* ---- edges ---- */

uint32_t ndp_watchdog_peer_wait(ndp_watchdog *v, const ndp_transport *t, int rank) {
    ndp_rank_state s = ndp_journal_read(&t->journals[rank]);
    if (!s.waiting || s.wait != v->wait) {
        v->wait = s.waiting ? s.wait : 0;
        v->polls = s.polls;
        return 0;
    }
    /* The first of the two polls may have begun before this rank looked. */
    return s.polls - v->polls >= 2 ? s.wait : 0;
}

ndp_status ndp_watchdog_left(const ndp_work *w, int rank) {
    return NDP_FAIL(NDP_ECOMM, "rank %d left the run while others wait in %s (group %s)", rank,
                    ndp_work_kind_name(w->kind), w->comm->name);
}

/* UNKNOWN until the reply of a remote rank is here. */
static ndp_status progress_of(const ndp_work *w, int rank, const ndp_expected_op *e, ndp_peer_progress *out) {
    const ndp_transport *t = w->comm->transport;
    *out = (ndp_peer_progress){.progress = NDP_PROGRESS_UNKNOWN};
    NDP_TRY(request_state(t, rank));
    if (ndp_state_query_is_local(t->state_query, rank))
        *out = ndp_state_query_local_progress(t, rank, e);
    else if (ndp_state_query_remote(t->state_query, rank))
        *out = ndp_state_query_remote(t->state_query, rank)->progress;
    return out->progress == NDP_PROGRESS_NOT_BEGUN && out->left ? ndp_watchdog_left(w, rank) : NDP_OK;
}

static ndp_status find_missing_sender(const ndp_expected_op *e, const ndp_work *w) {
    ndp_transport *t = w->comm->transport;
    ndp_peer_progress sender;
    int rank = ndp_comm_world_rank(w->comm, w->peer);
    NDP_TRY(progress_of(w, rank, e, &sender));
    ndp_journal_set_blocked_on(&t->journals[t->rank], rank,
                               sender.progress == NDP_PROGRESS_NOT_BEGUN ? sender.wait : 0);
    return NDP_OK;
}

/* Checks the other members one after the other, from the next rank on, until one has not begun the operation. After a
 * full circle, one member per check: a member that is silent then may have been stopped in the middle of it. */
static ndp_status find_missing_member(ndp_watchdog *v, const ndp_expected_op *e, const ndp_work *w, double now) {
    ndp_transport *t = w->comm->transport;
    int n = w->comm->group.count, missing = -1;
    ndp_peer_progress it;
    for (bool more = true; more;) {
        int rank = ndp_comm_world_rank(w->comm, (w->comm->group.rank + 1 + v->member) % n);
        NDP_TRY(progress_of(w, rank, e, &it));
        missing = it.progress == NDP_PROGRESS_NOT_BEGUN ? rank : -1;
        if (missing >= 0 || (it.progress == NDP_PROGRESS_UNKNOWN && now < v->until))
            break;
        v->member = (v->member + 1) % (n - 1);
        v->until = now + NDP_PATIENCE_SECONDS;
        v->circled |= v->member == 0;
        more = it.progress == NDP_PROGRESS_BEGUN && !v->circled;
    }
    ndp_journal_set_blocked_on(&t->journals[t->rank],
                               missing >= 0 ? missing : ndp_watchdog_find_silent(w, NDP_SILENT_SECONDS),
                               missing >= 0 ? it.wait : 0);
    return NDP_OK;
}

ndp_status ndp_watchdog_find_missing(ndp_watchdog *v, const ndp_expected_op *e, const ndp_work *w, double now) {
    if (now < v->next)
        return NDP_OK;
    if (v->until <= 0)
        v->until = now + NDP_PATIENCE_SECONDS;
    return ndp_work_is_message(w) ? find_missing_sender(e, w) : find_missing_member(v, e, w, now);
}

/* ---- cycles ---- */

/* Follows the edges from this rank back to it; invariant (5). */
ndp_status ndp_watchdog_find_cycle(ndp_watchdog *v, ndp_transport *t, double now) {
    ndp_report s = {.n = 0};
    int rank = t->rank;
    bool certain = true;
    if (now < v->next)
        return NDP_OK;
    v->next = now + CHECK_SECONDS;
    ndp_rank_state own = ndp_journal_read(&t->journals[rank]);
    NDP_TRY(ndp_lookout_check(t));
    uint32_t wait = own.wait, first = wait;
    for (int k = 0; k < NDP_LONGEST_CYCLE; k++) {
        ndp_rank_state a = ndp_watchdog_state_of(t, rank);
        if (!a.waiting || a.blocked_on < 0)
            return NDP_OK;
        certain &= a.wait == wait; /* after a guess `wait` is 0, and a.wait is odd */
        ndp_report_add(&s, "; ");
        ndp_report_rank(&s, t, rank);
        ndp_report_add(&s, " ");
        ndp_report_state(&s, &a);
        ndp_report_add(&s, ", for rank %d", a.blocked_on);
        wait = a.peer_wait;
        rank = a.blocked_on;
        if (rank == t->rank)
            break;
        NDP_TRY(request_state(t, rank));
    }
    if (!certain || rank != t->rank || wait != first)
        return NDP_OK;
    return NDP_FAIL(NDP_ECOMM, "ranks wait for each other: they begin operations in different orders%s", s.data);
}
