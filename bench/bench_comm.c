/* The collectives, and messages between two ranks, on buffers of 64 MB (large reductions and gathers) and of 2 MB (what
 * tensor and sequence parallelism send) of fp32, beside a memcpy of the same bytes by one rank: median and best of 15,
 * in milliseconds. Alone: 2 and 4 ranks as threads. Started by `ndparallel launch`, or by mpirun: its ranks
 * (NDP_SHM=off: by MPI alone; NDP_NODE_RANKS=2: as on nodes of two ranks). */
#include "base/clock.h"
#include "comm/launched.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 64 << 20, ROUNDS = 15, QUICK_ROUNDS = 3000, MESSAGES = 8 };

#define BUSY_SECONDS 0.05

typedef struct bench {
    ndp_transport *transport;
    ndp_comm *comm;
    float *in, *out, *shared; /* in windows of BYTES; shared: NULL where there is none */
    int64_t bytes;            /* of this round */
} bench;

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const bench *b, const char *what, double *seconds) {
    qsort(seconds, ROUNDS, sizeof *seconds, by_value);
    if (ndp_comm_rank(b->comm) == 0)
        printf("  %-28s %9.3f ms, best %9.3f\n", what, seconds[ROUNDS / 2] * 1e3, seconds[0] * 1e3);
}

typedef enum kind { FLOOR, GATHER_SHARED, GATHER, SCATTER, REDUCE, EXCHANGE, SHIFT } kind;

static ndp_status once(const bench *b, kind k) {
    ndp_work w;
    int64_t count = b->bytes / 4, part = count / ndp_comm_size(b->comm);
    int rank = ndp_comm_rank(b->comm);
    switch (k) {
    case FLOOR:
        memcpy(b->out, b->in, (size_t)b->bytes);
        return NDP_OK;
    case GATHER_SHARED:
        NDP_TRY(ndp_all_gather_begin(b->comm, b->shared + rank * part, b->shared, part, NDP_F32, &w));
        break;
    case GATHER:
        NDP_TRY(ndp_all_gather_begin(b->comm, b->in, b->out, part, NDP_F32, &w));
        break;
    case SCATTER:
        NDP_TRY(ndp_reduce_scatter_begin(b->comm, b->in, b->out, part, NDP_F32, false, &w));
        break;
    case EXCHANGE:
        NDP_TRY(ndp_all_to_all_begin(b->comm, b->in, b->out, part * 4, &w));
        break;
    case SHIFT:
        NDP_TRY(ndp_shift_begin(b->comm, b->in, b->out, b->bytes, &w));
        break;
    default:
        NDP_TRY(ndp_all_reduce_begin(b->comm, b->in, count, NDP_F32, NDP_SUM, &w));
        break;
    }
    return ndp_wait(&w);
}

static ndp_status time_kind(const bench *b, const char *what, kind k) {
    double seconds[ROUNDS];
    for (int i = -1; i < ROUNDS; i++) {
        NDP_TRY(ndp_barrier(b->comm));
        double start = ndp_now();
        if (k != FLOOR || ndp_comm_rank(b->comm) == 0)
            NDP_TRY(once(b, k));
        if (i >= 0)
            seconds[i] = ndp_now() - start;
    }
    report(b, what, seconds);
    return NDP_OK;
}

/* One number, as for the gradient norm: how fast ranks meet. */
static ndp_status time_small(const bench *b) {
    double x = 1, seconds[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        double start = ndp_now();
        for (int k = 0; k < QUICK_ROUNDS / ROUNDS; k++) {
            ndp_work w;
            NDP_TRY(ndp_all_reduce_begin(b->comm, &x, 1, NDP_F64, NDP_MAX, &w));
            NDP_TRY(ndp_wait(&w));
        }
        seconds[i] = (ndp_now() - start) / (QUICK_ROUNDS / ROUNDS);
    }
    report(b, "all_reduce of one fp64", seconds);
    return NDP_OK;
}

/* ---- messages: between the first two ranks ---- */

/* Begins MESSAGES sends before it waits for any. */
static ndp_status stream(const bench *b, bool sends, bool receives) {
    int peer = 1 - ndp_comm_rank(b->comm);
    ndp_work send[MESSAGES], recv;
    for (int k = 0; k < MESSAGES && sends; k++)
        NDP_TRY(ndp_send_begin(b->comm, b->in, b->bytes, peer, 0, &send[k]));
    for (int k = 0; k < MESSAGES && receives; k++) {
        NDP_TRY(ndp_recv_begin(b->comm, b->out, b->bytes, peer, 0, &recv));
        NDP_TRY(ndp_wait(&recv));
    }
    for (int k = 0; k < MESSAGES && sends; k++)
        NDP_TRY(ndp_wait(&send[k]));
    return NDP_OK;
}

static ndp_status one_way(const bench *b) {
    int rank = ndp_comm_rank(b->comm);
    return stream(b, rank == 0, rank == 1);
}

static ndp_status both_ways(const bench *b) { return stream(b, true, true); }

/* There and back, MESSAGES times in all. */
static ndp_status ping(const bench *b) {
    int rank = ndp_comm_rank(b->comm), peer = 1 - rank;
    for (int k = 0; k < MESSAGES; k++) {
        ndp_work w;
        if (k % 2 == rank)
            NDP_TRY(ndp_send_begin(b->comm, b->in, b->bytes, peer, 0, &w));
        else
            NDP_TRY(ndp_recv_begin(b->comm, b->out, b->bytes, peer, 0, &w));
        NDP_TRY(ndp_wait(&w));
    }
    return NDP_OK;
}

/* Rank 1 sends and computes for BUSY_SECONDS before it waits. */
static ndp_status from_a_busy_rank(const bench *b) {
    ndp_work w;
    if (ndp_comm_rank(b->comm) == 0) {
        NDP_TRY(ndp_recv_begin(b->comm, b->out, b->bytes, 1, 0, &w));
        return ndp_wait(&w);
    }
    NDP_TRY(ndp_send_begin(b->comm, b->in, b->bytes, 0, 0, &w));
    for (double end = ndp_now() + BUSY_SECONDS; ndp_now() < end;)
        ;
    return ndp_wait(&w);
}

static ndp_status time_messages(const bench *b, const char *what, ndp_status (*run)(const bench *), int messages) {
    double seconds[ROUNDS];
    for (int i = -1; i < ROUNDS; i++) {
        NDP_TRY(ndp_barrier(b->comm));
        double start = ndp_now();
        if (ndp_comm_rank(b->comm) < 2)
            NDP_TRY(run(b));
        if (i >= 0)
            seconds[i] = (ndp_now() - start) / messages;
    }
    report(b, what, seconds);
    return NDP_OK;
}

static ndp_status time_all_messages(const bench *b) {
    NDP_TRY(time_messages(b, "message, ping", ping, MESSAGES));
    NDP_TRY(time_messages(b, "message, 8 one way", one_way, MESSAGES));
    NDP_TRY(time_messages(b, "message, 8 each way", both_ways, 2 * MESSAGES));
    return time_messages(b, "message from a busy rank", from_a_busy_rank, 1);
}

static ndp_status time_size(bench *b, int64_t megabytes) {
    b->bytes = megabytes << 20;
    if (ndp_comm_rank(b->comm) == 0)
        printf(" %lld MB\n", (long long)megabytes);
    NDP_TRY(time_kind(b, "floor: memcpy by one rank", FLOOR));
    if (b->shared)
        NDP_TRY(time_kind(b, "all_gather, shared window", GATHER_SHARED));
    NDP_TRY(time_kind(b, "all_gather", GATHER));
    NDP_TRY(time_kind(b, "reduce_scatter", SCATTER));
    NDP_TRY(time_kind(b, "all_reduce", REDUCE));
    NDP_TRY(time_kind(b, "all_to_all", EXCHANGE));
    NDP_TRY(time_kind(b, "shift", SHIFT));
    return time_all_messages(b);
}

static ndp_status run(ndp_transport *t, void *arg) {
    bench b = {.transport = t};
    ndp_window *in, *out, *shared = NULL;
    ndp_memory_source source = ndp_transport_memory(t);
    void *memory[2];
    (void)arg;
    omp_set_num_threads(1);
    ndp_group world = {0, 1, ndp_transport_world(t), ndp_transport_rank(t)};
    NDP_TRY(ndp_comm_create(t, world, "world", &b.comm));
    for (int k = 0; k < 2; k++)
        NDP_TRY(source.map(source.user, BYTES, &memory[k]));
    NDP_TRY(ndp_window_register(b.comm, memory[0], BYTES, &in));
    NDP_TRY(ndp_window_register(b.comm, memory[1], BYTES, &out));
    b.in = ndp_window_data(in);
    b.out = ndp_window_data(out);
    ndp_status st = ndp_window_share(b.comm, BYTES, &shared);
    if (st != NDP_OK && st != NDP_ENOTSUP)
        return st;
    b.shared = st == NDP_OK ? ndp_window_data(shared) : NULL;
    if (world.rank == 0)
        printf("%s, %d ranks\n", ndp_transport_name(t), world.count);
    for (int64_t megabytes = 2; megabytes <= BYTES >> 20; megabytes *= 32)
        NDP_TRY(time_size(&b, megabytes));
    NDP_TRY(time_small(&b));
    ndp_window_destroy(in);
    ndp_window_destroy(out);
    ndp_window_destroy(shared);
    for (int k = 0; k < 2; k++)
        source.unmap(source.user, memory[k], BYTES);
    ndp_comm_destroy(b.comm);
    return NDP_OK;
}

static ndp_status run_launched(void) {
    ndp_transport *t;
    NDP_TRY(ndp_launched_on_host(&(int){0}) ? ndp_transport_shm(&t) : ndp_transport_mpi(&t));
    ndp_status st = run(t, NULL);
    if (st != NDP_OK) {
        fprintf(stderr, "%s\n", ndp_error_message());
        ndp_transport_abort(t, ndp_error_message());
    }
    ndp_transport_destroy(t);
    return st;
}

int main(void) {
    int ranks;
    if (ndp_launched(&ranks))
        return run_launched() == NDP_OK ? 0 : 1;
    for (int n = 2; n <= 4; n *= 2)
        if (ndp_local_world(n, run, NULL) != NDP_OK) {
            fprintf(stderr, "%s\n", ndp_error_message());
            return 1;
        }
    return 0;
}
