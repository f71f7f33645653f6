/* Reductions over MPI: it moves the parts, and this rank sums its own, in the order of the ranks, so that the bits are
 * those of any transport. Called by mpi_plain.c. */
#include "comm/mpi/mpi_plain.h"
#include "comm/rank_sum.h"

#include <stdlib.h>
#include <string.h>

/* Up to this size every rank gets all buffers whole and sums them: one message instead of two. */
enum { WHOLE_BYTES = 4096 };

ndp_status ndp_mpi_scratch_take(ndp_mpi_pending *o, size_t bytes, void **out) {
    ndp_mpi_scratch *s = &o->scratch;
    if (s->bytes < bytes || !s->data) {
        free(s->data);
        *s = (ndp_mpi_scratch){malloc(bytes + 1), bytes};
        if (!s->data)
            return NDP_FAIL(NDP_ENOMEM, "no memory of %zu bytes to receive a %s of group %s", bytes,
                            ndp_work_kind_name(o->work.kind), o->work.comm->name);
    }
    *out = s->data;
    return NDP_OK;
}

/* How an all_reduce is divided: n parts of `part` elements. If they do not fill the buffer exactly, it goes through a
 * padded copy. The scratch holds the received parts and, after them, that copy. */
typedef struct all_reduce_parts {
    bool whole, padded;
    int64_t part;
    size_t part_bytes, all_bytes;
} all_reduce_parts;

static all_reduce_parts parts_of(const ndp_work *w) {
    size_t size = ndp_dtype_size((ndp_dtype)w->type), n = (size_t)w->comm->group.count;
    all_reduce_parts k = {.part = (w->count + (int64_t)n - 1) / (int64_t)n};
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

ndp_status ndp_mpi_all_reduce_begin(ndp_mpi_plain *p, ndp_mpi_pending *o) {
    ndp_work *w = &o->work;
    all_reduce_parts k = parts_of(w);
    void *received = NULL;
    NDP_TRY(ndp_mpi_scratch_take(o, k.all_bytes * 2, &received));
    if (k.whole)
        return ndp_mpi_check(w, p->api->all_gather(p->comm, w->in, received, (int64_t)k.part_bytes, &w->request[0]));
    char *send = w->out;
    if (k.padded) {
        send = (char *)received + k.all_bytes;
        ndp_copy_large(send, w->in, ndp_work_bytes(w));
        memset(send + ndp_work_bytes(w), 0, k.all_bytes - ndp_work_bytes(w));
    }
    return ndp_mpi_check(w, p->api->all_to_all(p->comm, send, received, (int64_t)k.part_bytes, &w->request[0]));
}

/* After the first half: sums this rank's part and, unless it is the whole buffer, begins to gather the parts. */
ndp_status ndp_mpi_all_reduce_end(ndp_mpi_plain *p, ndp_mpi_pending *o) {
    ndp_work *w = &o->work;
    all_reduce_parts k = parts_of(w);
    char *received = o->scratch.data, *result = k.padded ? received + k.all_bytes : w->out;
    if (o->gathering) {
        ndp_copy_large(w->out, result, ndp_work_bytes(w));
        o->gathering = false;
        return NDP_OK;
    }
    char *mine = k.whole ? w->out : result + (size_t)w->comm->group.rank * k.part_bytes;
    point_to_parts(p, w, received, k.part_bytes);
    ndp_reduce_ranks((ndp_dtype)w->type, (ndp_reduce)w->reduce, p->parts, w->comm->group.count, &(void *){mine}, 1,
                     k.whole ? w->count : k.part, false);
    if (k.whole)
        return NDP_OK;
    o->gathering = true;
    return ndp_mpi_check(w, p->api->all_gather(p->second, NULL, result, (int64_t)k.part_bytes, &w->request[0]));
}

ndp_status ndp_mpi_reduce_scatter_begin(ndp_mpi_plain *p, ndp_mpi_pending *o) {
    ndp_work *w = &o->work;
    size_t part = ndp_work_bytes(w);
    void *received = NULL;
    NDP_TRY(ndp_mpi_scratch_take(o, part * (size_t)w->comm->group.count, &received));
    return ndp_mpi_check(w, p->api->all_to_all(p->comm, w->in, received, (int64_t)part, &w->request[0]));
}

void ndp_mpi_reduce_scatter_end(ndp_mpi_plain *p, ndp_mpi_pending *o) {
    const ndp_work *w = &o->work;
    point_to_parts(p, w, o->scratch.data, ndp_work_bytes(w));
    ndp_reduce_ranks((ndp_dtype)w->type, NDP_SUM, p->parts, w->comm->group.count, &(void *){w->out}, 1, w->count,
                     w->accumulate);
}
