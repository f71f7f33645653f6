#include "comm/mpi/mpi_agree.h"
#include "base/clock.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* How long the records of two ranks that differ are waited for: all ranks that wait for the operation are at it. */
enum { PATIENCE_SECONDS = 5 };

static ndp_mpi_hashes hashes_of(const ndp_record *r) {
    int64_t words[] = {r->kind, r->type, r->reduce, r->peer, r->sequence, r->count};
    size_t n = strnlen(r->at.what, sizeof r->at.what);
    return (ndp_mpi_hashes){.operation = XXH3_64bits(words, sizeof words),
                            .name = n ? XXH3_64bits(r->at.what, n) | 1 : 0};
}

/* As ndp_record_meets. */
static bool meets(ndp_mpi_hashes a, ndp_mpi_hashes b) {
    return a.operation == b.operation && (a.name == b.name || !a.name || !b.name);
}

static ndp_status said(const ndp_mpi_agree *a, const char *text) {
    return text ? NDP_FAIL(NDP_ECOMM, "MPI failed while the ranks of group %s compared operations: %s", a->base->name,
                           text)
                : NDP_OK;
}

const char *ndp_mpi_vote_begin(const ndp_mpi_agree *a, ndp_mpi_vote *v, const ndp_record *r) {
    v->record = *r;
    v->mine = hashes_of(r);
    return a->api->all_gather(a->comm, &v->mine, v->all, sizeof v->mine, &v->request);
}

/* This rank's record to all others. Small messages are on their way when this returns. */
static ndp_status tell(const ndp_mpi_agree *a, const ndp_record *mine) {
    for (int p = 0; p < a->base->group.count; p++) {
        uint64_t request;
        if (p != a->base->group.rank)
            NDP_TRY(said(a, a->api->send(a->second, mine, sizeof *mine, p, 0, &request)));
    }
    return NDP_OK;
}

/* *heard = false when it did not come. */
static ndp_status hear(const ndp_mpi_agree *a, const ndp_record *mine, int member, ndp_record *out, bool *heard) {
    uint64_t request;
    double deadline = ndp_now() + PATIENCE_SECONDS;
    *out = *mine;
    *heard = true;
    if (member == a->base->group.rank)
        return NDP_OK;
    NDP_TRY(said(a, a->api->recv(a->second, out, sizeof *out, member, 0, &request)));
    for (int done = 0; !done; sched_yield()) {
        NDP_TRY(said(a, a->api->test(&request, &done)));
        *heard = done;
        if (!done && ndp_now() > deadline)
            return NDP_OK;
    }
    return NDP_OK;
}

/* `records`: on the heap, and lost when one does not come, since MPI may still write there. */
static ndp_status name_both(const ndp_mpi_agree *a, const ndp_mpi_vote *v, int member) {
    ndp_record *records = calloc(2, sizeof *records);
    bool heard[2] = {false, false};
    char what[160];
    int rank = ndp_comm_world_rank(a->base, member), first = ndp_comm_world_rank(a->base, 0);
    if (!records)
        return NDP_FAIL(NDP_ENOMEM, "no memory to compare operations");
    if (a->base->group.rank == 0 || a->base->group.rank == member)
        NDP_TRY(tell(a, &v->record));
    NDP_TRY(hear(a, &v->record, member, &records[0], &heard[0]));
    NDP_TRY(hear(a, &v->record, 0, &records[1], &heard[1]));
    if (!heard[0] || !heard[1])
        return NDP_FAIL(NDP_ECOMM, "%s: rank %d brings another operation than rank %d; rank %d is at %s", a->base->name,
                        rank, first, a->base->transport->rank, ndp_record_text(&v->record, what, sizeof what));
    int world = a->base->transport->world;
    ndp_status st = !ndp_record_is_sound(&records[0], world) || !ndp_record_is_sound(&records[1], world)
                        ? NDP_FAIL(NDP_ECOMM, "%s: rank %d or %d sent a damaged record; do all run the same build?",
                                   a->base->name, rank, first)
                        : ndp_record_disagreement(a->base, rank, &records[0], first, &records[1]);
    free(records);
    return st;
}

ndp_status ndp_mpi_vote_look(const ndp_mpi_agree *a, ndp_mpi_vote *v, bool *agreed) {
    int done;
    *agreed = false;
    NDP_TRY(said(a, a->api->test(&v->request, &done)));
    if (!done)
        return NDP_OK;
    for (int p = 1; p < a->base->group.count; p++)
        if (!meets(v->all[0], v->all[p]))
            return name_both(a, v, p);
    *agreed = true;
    return NDP_OK;
}
