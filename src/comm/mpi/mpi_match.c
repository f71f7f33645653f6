/* The comparison of operations, by hashes and, if these differ, by records. All ranks see the same hashes, so they
 * agree on which two send theirs. */
#include "comm/mpi/mpi_match.h"
#include "base/clock.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* How long to wait for the records of two ranks that differ. Every rank that waits for the operation sends its own. */
enum { PATIENCE_SECONDS = 5 };

static ndp_mpi_hashes hashes_of(const ndp_record *r) {
    int64_t words[] = {r->kind, r->type, r->reduce, r->peer, r->sequence, r->count, (int64_t)r->rows};
    size_t n = strnlen(r->at.what, sizeof r->at.what);
    return (ndp_mpi_hashes){.operation = XXH3_64bits(words, sizeof words),
                            .name = n ? XXH3_64bits(r->at.what, n) | 1 : 0};
}

/* As ndp_record_matches. */
static bool hashes_match(ndp_mpi_hashes a, ndp_mpi_hashes b) {
    return a.operation == b.operation && (a.name == b.name || !a.name || !b.name);
}

static ndp_status check_mpi(const ndp_mpi_matcher *a, const char *text) {
    return text ? NDP_FAIL(NDP_ECOMM, "MPI failed while the ranks of group %s compared operations: %s", a->base->name,
                           text)
                : NDP_OK;
}

const char *ndp_mpi_match_begin(const ndp_mpi_matcher *a, ndp_mpi_match *m, const ndp_record *r) {
    m->record = *r;
    m->mine = hashes_of(r);
    return a->api->all_gather(a->comm, &m->mine, m->all, sizeof m->mine, &m->request);
}

/* This rank's record to all others. Messages this small are buffered: the send needs no wait. */
static ndp_status send_record(const ndp_mpi_matcher *a, const ndp_record *mine) {
    for (int p = 0; p < a->base->group.count; p++) {
        uint64_t request;
        if (p != a->base->group.rank)
            NDP_TRY(check_mpi(a, a->api->send(a->second, mine, sizeof *mine, p, 0, &request)));
    }
    return NDP_OK;
}

/* *received = false if it did not arrive in time. */
static ndp_status receive_record(const ndp_mpi_matcher *a, const ndp_record *mine, int member, ndp_record *out,
                                 bool *received) {
    uint64_t request;
    double deadline = ndp_now() + PATIENCE_SECONDS;
    *out = *mine;
    *received = true;
    if (member == a->base->group.rank)
        return NDP_OK;
    NDP_TRY(check_mpi(a, a->api->recv(a->second, out, sizeof *out, member, 0, &request)));
    for (int done = 0; !done; sched_yield()) {
        NDP_TRY(check_mpi(a, a->api->test(&request, &done, NULL)));
        *received = done;
        if (!done && ndp_now() > deadline)
            return NDP_OK;
    }
    return NDP_OK;
}

/* `records` is on the heap, and is never freed if one does not arrive: MPI may still write there. */
static ndp_status name_both(const ndp_mpi_matcher *a, const ndp_mpi_match *m, int member) {
    ndp_record *records = calloc(2, sizeof *records);
    bool received[2] = {false, false};
    char what[160];
    int rank = ndp_comm_world_rank(a->base, member), first = ndp_comm_world_rank(a->base, 0);
    NDP_CHECK_MEMORY(records, "to compare operations");
    if (a->base->group.rank == 0 || a->base->group.rank == member)
        NDP_TRY(send_record(a, &m->record));
    NDP_TRY(receive_record(a, &m->record, member, &records[0], &received[0]));
    NDP_TRY(receive_record(a, &m->record, 0, &records[1], &received[1]));
    if (!received[0] || !received[1])
        return NDP_FAIL(NDP_ECOMM, "%s: rank %d has begun another operation than rank %d; rank %d is at %s",
                        a->base->name, rank, first, a->base->transport->rank,
                        ndp_record_text(&m->record, what, sizeof what));
    int world = a->base->transport->world;
    ndp_status st =
        !ndp_record_is_sound(&records[0], world) || !ndp_record_is_sound(&records[1], world)
            ? NDP_FAIL(NDP_ECOMM, "%s: rank %d or %d sent a damaged record; do all ranks run the same build?",
                       a->base->name, rank, first)
            : ndp_record_mismatch(a->base, rank, &records[0], first, &records[1]);
    free(records);
    return st;
}

ndp_status ndp_mpi_match_poll(const ndp_mpi_matcher *a, ndp_mpi_match *m, bool *agreed) {
    int done;
    *agreed = false;
    NDP_TRY(check_mpi(a, a->api->test(&m->request, &done, NULL)));
    if (!done)
        return NDP_OK;
    for (int p = 1; p < a->base->group.count; p++)
        if (!hashes_match(m->all[0], m->all[p]))
            return name_both(a, m, p);
    *agreed = true;
    return NDP_OK;
}
