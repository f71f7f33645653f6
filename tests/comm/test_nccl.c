/* The plugin ndp_nccl.so on ranks in processes, on the device `sim`, with the library of tests/comm/fake_nccl. CTest
 * runs this by `ndparallel launch` and by mpirun; alone it is skipped.
 *
 * Every operation gets the bytes that the staged transport gets, or those that follow from its definition. With an
 * argument it plays one failure and prints what each rank was told. */
#include "comm/comm.h"
#include "comm/impl.h"
#include "comm/launched.h"
#include "device/cuda/cuda_load.h"
#include "tensor/dtype.h"

#include "check.h"
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { SKIPPED = 77, ROOM = 1 << 18 };

typedef struct world {
    ndp_transport *host, *nccl, *staged;
    const ndp_device *device;
    ndp_device_context *context;
    ndp_queue *queue;
    ndp_comm *of_nccl, *of_staged;
    char *memory, *pinned, *stage; /* of the device, of the host, for staged operations */
    int rank, ranks;
} world;

static world here;
static ndp_device counted; /* w->device, whose urgent queues are counted */
static int urgent;

static ndp_status urgent_queue_create(ndp_device_context *c, ndp_queue **out) {
    urgent++;
    return ((const ndp_device *)counted.user)->urgent_queue_create(c, out);
}

#define WANT(cond, ...)                                                                                                \
    do {                                                                                                               \
        if (!(cond))                                                                                                   \
            return NDP_FAIL(NDP_EBUG, __VA_ARGS__);                                                                    \
    } while (0)

static ndp_group everyone(const world *w) { return (ndp_group){0, 1, w->ranks, w->rank}; }

/* ---- the start and the end ---- */

static ndp_status open_device(world *w) {
    const ndp_cuda_api *api;
    NDP_TRY(ndp_cuda_load(true, true, &api));
    counted = *api->device;
    counted.user = api->device, counted.urgent_queue_create = urgent_queue_create;
    w->device = &counted;
    NDP_TRY(w->device->open(
        api->device, &(ndp_device_opts){.local_rank = w->rank, .node_ranks = w->ranks, .share = true}, &w->context));
    NDP_TRY(w->device->queue_create(w->context, &w->queue));
    NDP_TRY(w->device->memory_map(w->context, 2 * ROOM, NDP_MEMORY_DEVICE, (void **)&w->memory));
    NDP_TRY(w->device->memory_map(w->context, 2 * ROOM, NDP_MEMORY_HOST, (void **)&w->pinned));
    return w->device->memory_map(w->context, 4 * ROOM, NDP_MEMORY_HOST, (void **)&w->stage);
}

static ndp_status join(world *w) {
    NDP_TRY(ndp_launched_on_host(&(int){0}) ? ndp_transport_shm(&w->host) : ndp_transport_mpi(&w->host));
    w->rank = ndp_transport_rank(w->host);
    w->ranks = ndp_transport_world(w->host);
    NDP_TRY(open_device(w));
    NDP_TRY(ndp_transport_on_device(w->host, w->device, w->context, &w->nccl));
    NDP_TRY(ndp_transport_staged(w->host, w->device, w->context, &w->staged));
    NDP_TRY(ndp_comm_create(w->nccl, everyone(w), "shard", &w->of_nccl));
    return ndp_comm_create(w->staged, everyone(w), "shard", &w->of_staged);
}

static void leave(world *w) {
    if (w->nccl)
        ndp_transport_settles(w->nccl, w->queue); /* it writes words of the transports */
    ndp_comm_destroy(w->of_nccl);
    ndp_comm_destroy(w->of_staged);
    ndp_transport_destroy(w->nccl);
    ndp_transport_destroy(w->staged);
    if (w->context) {
        w->device->memory_unmap(w->context, w->memory, 2 * ROOM, NDP_MEMORY_DEVICE);
        w->device->memory_unmap(w->context, w->pinned, 2 * ROOM, NDP_MEMORY_HOST);
        w->device->memory_unmap(w->context, w->stage, 4 * ROOM, NDP_MEMORY_HOST);
        w->device->queue_destroy(w->queue);
        w->device->close(w->context);
    }
    ndp_transport_destroy(w->host);
}

/* ---- operations ---- */

/* Element i of what `rank` hands in: no two of them are equal for long, and their sums are rounded. */
static void put(void *data, ndp_dtype type, int64_t i, int rank) {
    double x = (double)((i * 37 + rank * 1013) % 4093) / 7.0 - 200;
    float f = (float)x;
    int64_t n = (int64_t)(x * 1e6);
    if (type == NDP_F64)
        ((double *)data)[i] = x;
    else if (type == NDP_I64)
        ((int64_t *)data)[i] = n;
    else if (type == NDP_BF16)
        ((uint16_t *)data)[i] = ndp_f32_to_bf16(f);
    else if (type == NDP_U8)
        ((unsigned char *)data)[i] = (unsigned char)(i * 7 + rank * 31 + i / 256);
    else
        ((float *)data)[i] = f;
}

static ndp_status copy(world *w, void *to, const void *from, size_t bytes) {
    return w->device->copy(w->queue, to, bytes, from, bytes, bytes, 1);
}

/* The device's memory is `in`, then `out`, ROOM bytes each: both are filled by a copy that is still to run. */
static ndp_status fill(world *w, ndp_dtype type) {
    int64_t n = ROOM / (int64_t)ndp_dtype_size(type);
    for (int64_t i = 0; i < n; i++) {
        put(w->pinned, type, i, w->rank);
        put(w->pinned + ROOM, type, i, w->rank + 100);
    }
    return copy(w, w->memory, w->pinned, 2 * ROOM);
}

/* Runs the call, or two of it at once where they write the same; the device's memory is then in w->pinned. early: the
 * communicator's queue runs before the caller's queue waits for it, which shows whether it waited itself. */
static ndp_status run(world *w, ndp_comm *c, ndp_comm_call call, int times, bool early) {
    ndp_work work[2];
    NDP_TRY(fill(w, call.type));
    for (int k = 0; k < times; k++) {
        call.stage = w->stage + k * 2 * ROOM;
        NDP_TRY(ndp_comm_begin(c, &call, w->queue, &work[k]));
    }
    if (early)
        NDP_TRY(ndp_transport_drain(c->transport, c->queue));
    for (int k = 0; k < times; k++)
        NDP_TRY(ndp_comm_wait(&work[k], w->queue));
    NDP_TRY(copy(w, w->pinned, w->memory, 2 * ROOM));
    return ndp_transport_drain(c->transport, w->queue);
}

static ndp_status compare(world *w, const char *want, const ndp_comm_call *c, const char *what) {
    size_t at = 0;
    while (at < 2 * ROOM && want[at] == w->pinned[at])
        at++;
    WANT(at == 2 * ROOM, "%s of %s, count %lld: NCCL's bytes differ from the staged ones at %zu", what,
         ndp_dtype_name(c->type), (long long)c->count, at);
    return NDP_OK;
}

/* Both transports leave the same bytes everywhere. */
static ndp_status same_bytes(world *w, ndp_comm_call call, int times, const char *what) {
    char *want = malloc(2 * ROOM);
    WANT(want, "test memory");
    ndp_status st = run(w, w->of_staged, call, times, false);
    memcpy(want, w->pinned, 2 * ROOM);
    for (int early = 0; early < 2 && st == NDP_OK; early++) {
        st = run(w, w->of_nccl, call, times, early);
        if (st == NDP_OK)
            st = compare(w, want, &call, what);
    }
    free(want);
    return st;
}

static ndp_status each_operation(world *w, ndp_dtype type, int64_t count) {
    size_t bytes = (size_t)count * ndp_dtype_size(type);
    char *in = w->memory, *out = in + ROOM;
    ndp_comm_call c = {.in = in, .out = out, .count = count, .type = type};
    c.kind = NDP_WORK_ALL_GATHER;
    NDP_TRY(same_bytes(w, c, 2, "all_gather"));
    c.in = out + bytes * (size_t)w->rank;
    NDP_TRY(same_bytes(w, c, 1, "all_gather in place"));
    c.in = in;
    c.kind = NDP_WORK_SHIFT;
    NDP_TRY(same_bytes(w, c, 2, "shift"));
    c.kind = NDP_WORK_ALL_TO_ALL;
    NDP_TRY(same_bytes(w, c, 1, "all_to_all"));
    if (type == NDP_U8) {
        c.kind = NDP_WORK_BROADCAST;
        c.in = out;
        for (c.peer = 0; c.peer < w->ranks; c.peer++)
            NDP_TRY(same_bytes(w, c, 1, "broadcast"));
        return NDP_OK;
    }
    c.kind = NDP_WORK_REDUCE_SCATTER;
    NDP_TRY(same_bytes(w, c, 2, "reduce_scatter"));
    c.accumulate = true;
    if (type != NDP_BF16) /* rounded twice */
        NDP_TRY(same_bytes(w, c, 1, "reduce_scatter that accumulates"));
    c.accumulate = false;
    c.kind = NDP_WORK_ALL_REDUCE;
    c.in = out;
    NDP_TRY(same_bytes(w, c, 1, "all_reduce"));
    c.reduce = NDP_MAX;
    return same_bytes(w, c, 1, "maximum");
}

static ndp_status operations(world *w) {
    static const ndp_dtype types[] = {NDP_F32, NDP_BF16, NDP_F64, NDP_I64, NDP_U8};
    for (int i = 0; i < (int)(sizeof types / sizeof *types); i++) {
        NDP_TRY(each_operation(w, types[i], 1));
        NDP_TRY(each_operation(w, types[i], 1000));
        NDP_TRY(each_operation(w, types[i], 0));
    }
    return ndp_barrier(w->of_nccl);
}

/* Parts of rank r for rank p have (3 r + p) % 5 rows of one element. */
static ndp_status uneven_parts(world *w) {
    int64_t at = 0;
    int32_t rows[256];
    for (int i = 0; i < w->ranks * w->ranks; i++)
        rows[i] = (3 * (i / w->ranks) + i % w->ranks) % 5;
    ndp_comm_call c = {.kind = NDP_WORK_ALL_TO_ALL,
                       .in = w->memory,
                       .out = w->memory + ROOM,
                       .count = 1,
                       .type = NDP_F32,
                       .rows = rows};
    NDP_TRY(run(w, w->of_nccl, c, 1, false));
    const float *got = (float *)(w->pinned + ROOM);
    for (int p = 0; p < w->ranks; p++) {
        int64_t from = 0;
        for (int q = 0; q < w->rank; q++)
            from += (3 * p + q) % 5;
        for (int64_t i = 0; i < rows[p * w->ranks + w->rank]; i++, at++) {
            float want[16];
            for (int k = 0; k < 16; k++)
                put(want, NDP_F32, k, p);
            float x = from + i < 16 ? want[from + i] : 0;
            WANT(from + i >= 16 || got[at] == x, "element %lld of the part from rank %d is %g, not %g", (long long)i, p,
                 got[at], x);
        }
    }
    float behind[32];
    for (int k = 0; k <= at; k++)
        put(behind, NDP_F32, k, w->rank + 100);
    WANT(got[at] == behind[at], "all_to_all wrote behind the last part");
    return NDP_OK;
}

/* Operations of two communicators of one group, and of a group of every second rank, in turn. */
static ndp_status several_groups(world *w) {
    ndp_comm *second, *half;
    ndp_group part = {w->rank % 2, 2, (w->ranks - w->rank % 2 + 1) / 2, w->rank / 2};
    ndp_work works[3];
    NDP_TRY(ndp_comm_create(w->nccl, everyone(w), "gathers", &second));
    NDP_TRY(ndp_comm_create(w->nccl, part, "half", &half));
    ndp_comm *comms[] = {w->of_nccl, second, half};
    NDP_TRY(fill(w, NDP_I64));
    for (int k = 0; k < 3; k++) {
        int64_t *x = (int64_t *)(w->memory + k * 8);
        ndp_comm_call c = {.kind = NDP_WORK_ALL_REDUCE, .in = x, .out = x, .count = 1, .type = NDP_I64};
        NDP_TRY(ndp_comm_begin(comms[k], &c, w->queue, &works[k]));
    }
    for (int k = 2; k >= 0; k--)
        NDP_TRY(ndp_comm_wait(&works[k], w->queue));
    NDP_TRY(copy(w, w->pinned, w->memory, 3 * 8));
    NDP_TRY(ndp_transport_drain(w->nccl, w->queue));
    for (int k = 0; k < 3; k++) {
        int64_t want = 0, one[3];
        for (int r = k == 2 ? w->rank % 2 : 0; r < w->ranks; r += k == 2 ? 2 : 1) {
            put(one, NDP_I64, k, r);
            want += one[k];
        }
        int64_t got = ((int64_t *)w->pinned)[k];
        WANT(got == want, "sum %d is %lld, not %lld", k, (long long)got, (long long)want);
    }
    ndp_comm_destroy(half);
    ndp_comm_destroy(second);
    return NDP_OK;
}

/* ---- messages ---- */

/* Both neighbours in the ring get two messages of rank r, of sizes 100 and 60000, while r receives theirs. The sends
 * begin first on even ranks. */
static ndp_status neighbours(world *w, ndp_comm *c) {
    int n = w->ranks, next = (w->rank + 1) % n, before = (w->rank + n - 1) % n;
    static const int64_t sizes[] = {100, 60000};
    ndp_work works[4];
    NDP_TRY(fill(w, NDP_U8));
    for (int step = 0; step < 4; step++) {
        int k = step % 2;
        bool send = (step < 2) == (w->rank % 2 == 0);
        ndp_comm_call call = {.kind = send ? NDP_WORK_SEND : NDP_WORK_RECV,
                              .in = send ? w->memory + k * 1000 : NULL,
                              .out = send ? NULL : w->memory + ROOM + k * 1000,
                              .count = sizes[k],
                              .type = NDP_U8,
                              .peer = send ? next : before,
                              .tag = k};
        NDP_TRY(ndp_comm_begin(c, &call, w->queue, &works[step]));
    }
    for (int step = 3; step >= 0; step--)
        NDP_TRY(ndp_comm_wait(&works[step], w->queue));
    NDP_TRY(copy(w, w->pinned, w->memory, 2 * ROOM));
    NDP_TRY(ndp_transport_drain(w->nccl, w->queue));
    for (int k = 0; k < 2; k++)
        for (int64_t i = k * 1000; i < k * 1000 + sizes[k]; i++) {
            unsigned char want = (unsigned char)(i * 7 + before * 31 + i / 256),
                          got = (unsigned char)w->pinned[ROOM + i];
            WANT(got == want, "byte %lld of message %d is %d, not %d", (long long)i, k, got, want);
        }
    return NDP_OK;
}

static ndp_status messages(world *w) {
    ndp_comm *c;
    uint64_t sends[16] = {0}, receives[16] = {0};
    NDP_TRY(ndp_comm_create(w->nccl, everyone(w), "forward", &c));
    sends[(w->rank + 1) % w->ranks] = 77;
    receives[(w->rank + w->ranks - 1) % w->ranks] = 77;
    NDP_TRY(ndp_comm_connect(c, sends, receives));
    for (int i = 0; i < 5; i++)
        NDP_TRY(neighbours(w, c));
    ndp_comm_destroy(c);
    return NDP_OK;
}

static ndp_status unexpected_messages(world *w) {
    ndp_work work;
    ndp_comm_call c = {
        .kind = NDP_WORK_SEND, .in = w->memory, .count = 10, .type = NDP_U8, .peer = (w->rank + 1) % w->ranks};
    ndp_status st = ndp_comm_begin(w->of_nccl, &c, w->queue, &work);
    WANT(st == NDP_EBUG || st == NDP_EINVAL, "a message without ndp_comm_connect began");
    WANT(strstr(ndp_error_message(), "without ndp_comm_connect"), "%s", ndp_error_message());
    return NDP_OK;
}

static ndp_status sum_once(world *w, int64_t count) {
    ndp_comm_call c = {.kind = NDP_WORK_ALL_REDUCE, .in = w->memory, .out = w->memory, .count = count, .type = NDP_F32};
    return run(w, w->of_nccl, c, 1, false);
}

/* Operations have an urgent queue; a communicator that shares the queue of another makes none, and both give the right
 * bits one after the other. */
static ndp_status queues(world *w) {
    ndp_comm *first, *second, *own = w->of_nccl;
    NDP_TRY(ndp_comm_create(w->nccl, everyone(w), "first", &first));
    NDP_TRY(ndp_comm_create(w->nccl, everyone(w), "second", &second));
    ndp_comm_share_queue(second, first);
    int before = urgent;
    for (int i = 0; i < 6; i++) {
        w->of_nccl = i % 2 ? first : second;
        NDP_TRY(sum_once(w, 1000 + i));
    }
    w->of_nccl = own;
    WANT(urgent == before + 1, "two communicators on one queue have made %d urgent ones", urgent - before);
    ndp_comm_destroy(second);
    ndp_comm_destroy(first);
    return NDP_OK;
}

/* ---- the tests ---- */

typedef struct part {
    const char *name;
    ndp_status (*run)(world *w);
} part;
static const part parts[] = {
    {"operations", operations},
    {"uneven_parts", uneven_parts},
    {"several_groups", several_groups},
    {"messages", messages},
    {"unexpected_messages", unexpected_messages},
    {"queues", queues},
};

static ndp_status tell(world *w, ndp_status st) {
    if (st != NDP_OK) {
        printf("rank %d says: %s\n", w->rank, ndp_error_message());
        if (w->nccl && !ndp_transport_settles(w->nccl, w->queue)) /* it has aborted the operations */
            printf("the queue does not end\n");
        fflush(stdout);
        ndp_transport_abort(w->nccl ? w->nccl : w->host, ndp_error_message());
    }
    return st;
}

static ndp_status run_all(world *w) {
    for (int i = 0; i < (int)(sizeof parts / sizeof *parts); i++)
        NDP_TRY(parts[i].run(w));
    return NDP_OK;
}

/* ---- failures ---- */

/* Rank 1 receives the messages of rank 0 in another order. */
static ndp_status other_order(world *w) {
    ndp_comm *c;
    uint64_t sends[16] = {0}, receives[16] = {0};
    NDP_TRY(ndp_comm_create(w->nccl, everyone(w), "forward", &c));
    if (w->rank == 0)
        sends[1] = 77;
    if (w->rank == 1)
        receives[0] = 78;
    ndp_status st = ndp_comm_connect(c, sends, receives);
    ndp_comm_destroy(c);
    return st;
}

/* An operation meets an error by itself, and never ends. */
static ndp_status fail_by_itself(world *w) {
    for (int i = 0; i < 10; i++)
        NDP_TRY(sum_once(w, 10));
    return NDP_OK;
}

static ndp_status play(world *w, const char *what) {
    if (strcmp(what, "order") == 0)
        return other_order(w);
    if (strcmp(what, "error") == 0)
        return fail_by_itself(w);
    NDP_TRY(sum_once(w, 10));
    return sum_once(w, w->rank == 1 && strcmp(what, "differ") == 0 ? 11 : 10);
}

int main(int argc, char **argv) {
    if (!ndp_launched(&(int){0})) {
        printf("skipped: it runs in several processes\n");
        return SKIPPED;
    }
    if (argc > 1 && strcmp(argv[1], "kill") == 0 && ndp_launched_rank() == 1)
        setenv("FAKE_NCCL_DIE", "1", 1);
    ndp_status st = join(&here);
    if (st == NDP_OK)
        st = argc > 1 ? play(&here, argv[1]) : run_all(&here);
    if (here.host)
        tell(&here, st);
    else
        printf("%s\n", ndp_error_message());
    leave(&here);
    if (st == NDP_OK)
        printf("all is well\n");
    return st != NDP_OK;
}
