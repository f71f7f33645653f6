#include "comm/mpi_plain.h"
#include "base/clock.h"
#include "comm/reduce.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* Up to here every rank gets all buffers whole and sums them: one message instead of two. */
enum { WHOLE_BYTES = 4096 };

static ndp_status said(const ndp_work *w, const char *text) {
    char what[128];
    return text ? NDP_FAIL(NDP_ECOMM, "MPI failed in %s: %s", ndp_work_text(w, what, sizeof what), text) : NDP_OK;
}

ndp_status ndp_mpi_plain_init(ndp_mpi_plain *p, const ndp_mpi_api *api, ndp_group group) {
    *p = (ndp_mpi_plain){.api = api, .parts = calloc((size_t)group.count, sizeof *p->parts)};
    if (!p->parts)
        return NDP_FAIL(NDP_ENOMEM, "no memory for a communicator of %d ranks", group.count);
    const char *text = api->comm_create(group.base, group.stride, group.count, &p->comm);
    if (!text)
        return NDP_OK;
    free(p->parts);
    p->parts = NULL;
    return NDP_FAIL(NDP_ECOMM, "MPI gives no communicator of %d ranks: %s", group.count, text);
}

void ndp_mpi_plain_release(ndp_mpi_plain *p, bool quiet) {
    free(p->parts);
    if (quiet) /* MPI may still write into the scratch; the process is about to end */
        return;
    if (p->comm)
        p->api->comm_destroy(p->comm);
    for (int i = 0; i < NDP_SHM_OUTSTANDING; i++)
        free(p->scratch[i].data);
}

static ndp_status take_scratch(ndp_mpi_plain *p, const ndp_work *w, size_t bytes, char **out) {
    ndp_mpi_scratch *s = &p->scratch[w->sequence % NDP_SHM_OUTSTANDING];
    if (s->bytes < bytes || !s->data) {
        free(s->data);
        *s = (ndp_mpi_scratch){malloc(bytes + 1), bytes};
        if (!s->data)
            return NDP_FAIL(NDP_ENOMEM, "no memory of %zu bytes to receive a %s of group %s", bytes,
                            ndp_work_kind_name(w->kind), w->comm->name);
    }
    *out = s->data;
    return NDP_OK;
}

static ndp_status complete(ndp_mpi_plain *p, ndp_work *w) {
    const ndp_transport *t = w->comm->transport;
    double deadline = ndp_now() + t->timeout;
    for (int64_t looks = 1;; looks++) {
        int done, other;
        NDP_TRY(said(w, p->api->test(&w->request[0], &done)));
        NDP_TRY(said(w, p->api->test(&w->request[1], &other)));
        if (done && other)
            return NDP_OK;
        NDP_TRY(ndp_health_check(t->health));
        if (looks % 256 == 0 && ndp_now() > deadline)
            return ndp_wait_expired(w, -1);
        sched_yield(); /* never a sleep: MPI moves only while it is called */
    }
}

/* ---- reductions ---- */

/* How an all_reduce is cut: n parts of `part` elements; where they do not fill the buffer exactly it goes through a
 * padded copy. The scratch holds what was received and, behind it, that copy. */
typedef struct cut {
    bool whole, padded;
    int64_t part;
    size_t part_bytes, all_bytes;
} cut;

static cut cut_of(const ndp_work *w) {
    size_t size = ndp_dtype_size((ndp_dtype)w->type), n = (size_t)w->comm->group.count;
    cut k = {.part = (w->count + (int64_t)n - 1) / (int64_t)n};
    k.whole = ndp_work_bytes(w) <= WHOLE_BYTES;
    k.padded = k.part * (int64_t)n != w->count;
    k.part_bytes = k.whole ? ndp_work_bytes(w) : (size_t)k.part * size;
    k.all_bytes = k.part_bytes * n;
    return k;
}

static void point_to_parts(ndp_mpi_plain *p, const ndp_work *w, char *received, size_t part_bytes) {
    for (int r = 0; r < w->comm->group.count; r++)
        p->parts[r] = received + (size_t)r * part_bytes;
}

static ndp_status all_reduce_begin(ndp_mpi_plain *p, ndp_work *w) {
    cut k = cut_of(w);
    char *received;
    NDP_TRY(take_scratch(p, w, k.all_bytes * 2, &received));
    if (k.whole)
        return said(w, p->api->all_gather(p->comm, w->in, received, (int64_t)k.part_bytes, &w->request[0]));
    char *send = w->out;
    if (k.padded) {
        send = received + k.all_bytes;
        ndp_copy_large(send, w->in, ndp_work_bytes(w));
        memset(send + ndp_work_bytes(w), 0, k.all_bytes - ndp_work_bytes(w));
    }
    return said(w, p->api->all_to_all(p->comm, send, received, (int64_t)k.part_bytes, &w->request[0]));
}

static ndp_status all_reduce_end(ndp_mpi_plain *p, ndp_work *w) {
    cut k = cut_of(w);
    char *received;
    int n = w->comm->group.count;
    NDP_TRY(take_scratch(p, w, k.all_bytes * 2, &received));
    point_to_parts(p, w, received, k.part_bytes);
    char *result = k.padded ? received + k.all_bytes : w->out;
    char *mine = k.whole ? w->out : result + (size_t)w->comm->group.rank * k.part_bytes;
    ndp_reduce_ranks((ndp_dtype)w->type, (ndp_reduce)w->reduce, p->parts, n, &(void *){mine}, 1,
                     k.whole ? w->count : k.part, false);
    if (k.whole)
        return NDP_OK;
    NDP_TRY(said(w, p->api->all_gather(p->comm, NULL, result, (int64_t)k.part_bytes, &w->request[0])));
    NDP_TRY(complete(p, w));
    ndp_copy_large(w->out, result, ndp_work_bytes(w));
    return NDP_OK;
}

static ndp_status reduce_scatter_begin(ndp_mpi_plain *p, ndp_work *w) {
    size_t part = ndp_work_bytes(w);
    char *received;
    NDP_TRY(take_scratch(p, w, part * (size_t)w->comm->group.count, &received));
    return said(w, p->api->all_to_all(p->comm, w->in, received, (int64_t)part, &w->request[0]));
}

static ndp_status reduce_scatter_end(ndp_mpi_plain *p, ndp_work *w) {
    size_t part = ndp_work_bytes(w);
    char *received;
    NDP_TRY(take_scratch(p, w, part * (size_t)w->comm->group.count, &received));
    point_to_parts(p, w, received, part);
    ndp_reduce_ranks((ndp_dtype)w->type, NDP_SUM, p->parts, w->comm->group.count, &(void *){w->out}, 1, w->count,
                     w->accumulate);
    return NDP_OK;
}

/* ---- all operations ---- */

static ndp_status all_gather_begin(ndp_mpi_plain *p, ndp_work *w) {
    size_t part = ndp_work_bytes(w);
    bool in_place = w->in == (char *)w->out + (size_t)w->comm->group.rank * part;
    return said(w, p->api->all_gather(p->comm, in_place ? NULL : w->in, w->out, (int64_t)part, &w->request[0]));
}

static ndp_status shift_begin(ndp_mpi_plain *p, ndp_work *w) {
    int n = w->comm->group.count, rank = w->comm->group.rank, next = (rank + 1) % n, before = (rank + n - 1) % n;
    NDP_TRY(said(w, p->api->recv(p->comm, w->out, w->count, before, NDP_TAG_SHIFT, &w->request[0])));
    return said(w, p->api->send(p->comm, w->in, w->count, next, NDP_TAG_SHIFT, &w->request[1]));
}

ndp_status ndp_mpi_plain_begin(ndp_mpi_plain *p, ndp_work *w) {
    const ndp_mpi_api *api = p->api;
    w->request[0] = w->request[1] = 0;
    switch (w->kind) {
    case NDP_WORK_BARRIER:
        return said(w, api->barrier(p->comm, &w->request[0]));
    case NDP_WORK_ALL_REDUCE:
        return all_reduce_begin(p, w);
    case NDP_WORK_ALL_GATHER:
        return all_gather_begin(p, w);
    case NDP_WORK_REDUCE_SCATTER:
        return reduce_scatter_begin(p, w);
    case NDP_WORK_BROADCAST:
        return said(w, api->broadcast(p->comm, w->out, w->count, w->peer, &w->request[0]));
    case NDP_WORK_ALL_TO_ALL:
        return said(w, api->all_to_all(p->comm, w->in, w->out, w->count, &w->request[0]));
    case NDP_WORK_SHIFT:
        return shift_begin(p, w);
    case NDP_WORK_SEND:
        return said(w, api->send(p->comm, w->in, w->count, w->peer, w->tag, &w->request[0]));
    case NDP_WORK_RECV:
        return said(w, api->recv(p->comm, w->out, w->count, w->peer, w->tag, &w->request[0]));
    default:
        return NDP_FAIL(NDP_EBUG, "an operation of kind %d", w->kind);
    }
}

ndp_status ndp_mpi_plain_wait(ndp_mpi_plain *p, ndp_work *w) {
    NDP_TRY(complete(p, w));
    switch (w->kind) {
    case NDP_WORK_ALL_REDUCE:
        return all_reduce_end(p, w);
    case NDP_WORK_REDUCE_SCATTER:
        return reduce_scatter_end(p, w);
    default:
        return NDP_OK;
    }
}
