/* The same checks for every transport that moves data. They run on rank threads, where cmocka's assertions must not:
 * each returns a status, and the test asserts on that. */
#ifndef TESTS_COMM_CASES_H
#define TESTS_COMM_CASES_H

#include "comm/impl.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WANT(cond, ...)                                                                                                \
    do {                                                                                                               \
        if (!(cond))                                                                                                   \
            return NDP_FAIL(NDP_EBUG, __VA_ARGS__);                                                                    \
    } while (0)

/* Bytes past the end of a buffer, which no rank may touch. */
enum { GUARD = 64 };

static inline void guard(void *end) { memset(end, 0xAB, GUARD); }

static inline ndp_status check_guard(const void *end, const char *what) {
    for (int i = 0; i < GUARD; i++)
        WANT(((const unsigned char *)end)[i] == 0xAB, "%s wrote behind its buffer", what);
    return NDP_OK;
}

/* Where a case takes its buffers from: the heap, a window, the transport's memory without a window, a window on the
 * heap. Peers access only windows of the transport's memory in place. */
typedef enum memory_kind { HEAP, WINDOW, UNREGISTERED, HEAP_WINDOW, MEMORY_KINDS } memory_kind;

typedef struct buffer {
    ndp_memory_source source;
    ndp_window *window;
    void *heap, *mapped, *data;
    size_t bytes;
} buffer;

/* Collective over `world`. In a window the buffer lies at another offset on every rank. */
static inline ndp_status buffer_init(buffer *b, ndp_comm *world, memory_kind kind, size_t bytes) {
    size_t offset = 64 * (size_t)(1 + ndp_comm_rank(world));
    *b = (buffer){.source = ndp_transport_memory(world->transport), .bytes = bytes + GUARD + offset};
    void *memory;
    if (kind == HEAP || kind == HEAP_WINDOW) {
        memory = b->heap = calloc(1, b->bytes);
        WANT(memory, "test memory");
    } else {
        NDP_TRY(b->source.map(b->source.user, b->bytes, &b->mapped));
        memory = b->mapped;
    }
    b->data = (char *)memory + offset;
    return kind == WINDOW || kind == HEAP_WINDOW ? ndp_window_register(world, memory, b->bytes, &b->window) : NDP_OK;
}

static inline void buffer_release(buffer *b) {
    ndp_window_destroy(b->window);
    b->source.unmap(b->source.user, b->mapped, b->bytes);
    free(b->heap);
}

/* Element i of group rank r: numbers whose sum depends on the order of summation. */
static inline double value(int r, int64_t i) {
    int64_t k = (r * 7919 + i * 104729 + 13) % 1009 - 504;
    return (double)k / 7.0 * (double)(1 << (i + r) % 9);
}

static inline void put(void *data, ndp_dtype type, int64_t i, double x) {
    switch (type) {
    case NDP_F32:
        ((float *)data)[i] = (float)x;
        break;
    case NDP_F64:
        ((double *)data)[i] = x;
        break;
    case NDP_BF16:
        ((uint16_t *)data)[i] = ndp_f32_to_bf16((float)x);
        break;
    default:
        ((int64_t *)data)[i] = (int64_t)x;
        break;
    }
}

static inline void fill(void *data, ndp_dtype type, int r, int64_t first, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        put(data, type, i, value(r, first + i));
}

/* The reduction of one element in rank order, kept in the three kinds of arithmetic at once. */
typedef struct tally {
    float f;
    double d;
    int64_t k;
} tally;

static inline tally tally_of(const void *stored, ndp_dtype type) {
    tally t = {0};
    uint16_t h;
    memcpy(&h, stored, 2);
    if (type == NDP_BF16)
        t.f = ndp_bf16_to_f32(h);
    else if (type == NDP_F32)
        memcpy(&t.f, stored, 4);
    else if (type == NDP_F64)
        memcpy(&t.d, stored, 8);
    else
        memcpy(&t.k, stored, 8);
    return t;
}

static inline tally tally_add(tally a, tally b, ndp_reduce op) {
    if (op == NDP_SUM)
        return (tally){a.f + b.f, a.d + b.d, a.k + b.k};
    return (tally){a.f > b.f ? a.f : b.f, a.d > b.d ? a.d : b.d, a.k > b.k ? a.k : b.k};
}

/* What the type stores of the reduction of element i over n ranks, then of `plus` if there is one. */
static inline void expected(unsigned char out[8], ndp_dtype type, ndp_reduce op, int n, int64_t i,
                            const unsigned char *plus) {
    unsigned char x[8];
    put(x, type, 0, value(0, i));
    tally t = tally_of(x, type);
    for (int r = 1; r < n; r++) {
        put(x, type, 0, value(r, i));
        t = tally_add(t, tally_of(x, type), op);
    }
    if (plus)
        t = tally_add(t, tally_of(plus, type), op);
    if (type == NDP_F32)
        memcpy(out, &t.f, 4);
    else if (type == NDP_F64)
        memcpy(out, &t.d, 8);
    else if (type == NDP_BF16)
        memcpy(out, &(uint16_t){ndp_f32_to_bf16(t.f)}, 2);
    else
        memcpy(out, &t.k, 8);
}

static inline ndp_status same(const void *a, const void *b, ndp_dtype type, int64_t i, const char *what, int n) {
    size_t size = ndp_dtype_size(type);
    WANT(memcmp((const char *)a + (size_t)i * size, b, size) == 0, "%s of %s over %d ranks: element %lld is wrong",
         what, ndp_dtype_name(type), n, (long long)i);
    return NDP_OK;
}

static inline ndp_status check_all_reduce(ndp_comm *c, void *data, ndp_dtype type, ndp_reduce op, int64_t count) {
    int n = ndp_comm_size(c);
    char *end = (char *)data + (size_t)count * ndp_dtype_size(type);
    fill(data, type, ndp_comm_rank(c), 0, count);
    guard(end);
    ndp_work w;
    NDP_TRY(ndp_all_reduce_begin(c, data, count, type, op, &w));
    NDP_TRY(ndp_wait(&w));
    NDP_TRY(check_guard(end, "all_reduce"));
    for (int64_t i = 0; i < count; i++) {
        unsigned char want[8];
        expected(want, type, op, n, i, NULL);
        NDP_TRY(same(data, want, type, i, op == NDP_SUM ? "all_reduce" : "maximum", n));
    }
    return NDP_OK;
}

/* Rank q's part of rank r's input holds elements q x count ... of rank r. */
static inline ndp_status check_reduce_scatter(ndp_comm *c, void *data, ndp_dtype type, int64_t count, bool accumulate) {
    int n = ndp_comm_size(c), rank = ndp_comm_rank(c);
    fill(data, type, rank, 0, n * count);
    size_t bytes = (size_t)count * ndp_dtype_size(type);
    char *out = calloc(1, bytes + GUARD);
    fill(out, type, 5, 1000, count);
    guard(out + bytes);
    ndp_work w;
    ndp_status st = ndp_reduce_scatter_begin(c, data, out, count, type, accumulate, &w);
    if (st == NDP_OK)
        st = ndp_wait(&w);
    if (st == NDP_OK)
        st = check_guard(out + bytes, "reduce_scatter");
    for (int64_t i = 0; i < count && st == NDP_OK; i++) {
        unsigned char want[8], before[8];
        put(before, type, 0, value(5, 1000 + i));
        expected(want, type, NDP_SUM, n, rank * count + i, accumulate ? before : NULL);
        st = same(out, want, type, i, "reduce_scatter", n);
    }
    free(out);
    return st;
}

/* out[size x count]; in place: the part lies there already. */
static inline ndp_status check_all_gather(ndp_comm *c, void *in, void *out, ndp_dtype type, int64_t count,
                                          bool in_place) {
    int n = ndp_comm_size(c), rank = ndp_comm_rank(c);
    size_t part = (size_t)count * ndp_dtype_size(type);
    if (in_place)
        in = (char *)out + (size_t)rank * part;
    fill(in, type, rank, 0, count);
    ndp_work w;
    NDP_TRY(ndp_all_gather_begin(c, in, out, count, type, &w));
    if (count > 100000 && rank == n - 1)
        usleep(3000); /* the others must not come back before this rank's part is in place */
    NDP_TRY(ndp_wait(&w));
    for (int r = 0; r < n; r++)
        for (int64_t i = 0; i < count; i++) {
            unsigned char want[8];
            put(want, type, 0, value(r, i));
            NDP_TRY(same((char *)out + (size_t)r * part, want, type, i, in_place ? "all_gather in place" : "all_gather",
                         n));
        }
    return NDP_OK;
}

static inline ndp_status check_broadcast(ndp_comm *c, unsigned char *data, int64_t bytes, int root) {
    for (int64_t i = 0; i < bytes; i++)
        data[i] = ndp_comm_rank(c) == root ? (unsigned char)(i * 31 + root) : 0;
    ndp_work w;
    NDP_TRY(ndp_broadcast_begin(c, data, bytes, root, &w));
    NDP_TRY(ndp_wait(&w));
    for (int64_t i = 0; i < bytes; i++)
        WANT(data[i] == (unsigned char)(i * 31 + root), "broadcast from %d: byte %lld", root, (long long)i);
    return NDP_OK;
}

static inline ndp_status check_all_to_all(ndp_comm *c, unsigned char *in, unsigned char *out, int64_t bytes) {
    int n = ndp_comm_size(c), rank = ndp_comm_rank(c);
    for (int64_t i = 0; i < n * bytes; i++)
        in[i] = (unsigned char)(rank * 41 + i / (bytes ? bytes : 1) * 7 + i % 13);
    ndp_work w;
    NDP_TRY(ndp_all_to_all_begin(c, in, out, bytes, &w));
    NDP_TRY(ndp_wait(&w));
    for (int r = 0; r < n; r++)
        for (int64_t i = 0; i < bytes; i++)
            WANT(out[r * bytes + i] == (unsigned char)(r * 41 + rank * 7 + (rank * bytes + i) % 13),
                 "all_to_all of %lld bytes: from %d, byte %lld", (long long)bytes, r, (long long)i);
    return NDP_OK;
}

/* Rank p hands (3 p + 2 q) % 4 rows to rank q, none to itself where that is 0; or q to p. `in` and `out` have room for
 * 2 n rows: there are never more of 4 numbers that repeat. */
static inline ndp_status check_all_to_all_rows(ndp_comm *c, unsigned char *in, unsigned char *out, int64_t bytes,
                                               bool back) {
    int n = ndp_comm_size(c), rank = ndp_comm_rank(c);
    int64_t at = 0;
    int32_t *rows = malloc((size_t)(n * n) * sizeof *rows);
    WANT(rows, "no memory");
    for (int p = 0; p < n; p++)
        for (int q = 0; q < n; q++)
            rows[p * n + q] = (3 * (back ? q : p) + 2 * (back ? p : q)) % 4;
    for (int q = 0; q < n; q++)
        for (int64_t i = 0; i < (3 * rank + 2 * q) % 4 * bytes; i++)
            in[at++] = (unsigned char)(rank * 41 + q * 7 + i % 13);
    const ndp_comm_call call = {
        .kind = NDP_WORK_ALL_TO_ALL, .in = in, .out = out, .count = bytes, .type = NDP_U8, .rows = rows, .back = back};
    int64_t come = 0;
    for (int p = 0; p < n; p++)
        come += (3 * p + 2 * rank) % 4 * bytes;
    guard(out + come);
    ndp_work w;
    NDP_TRY(ndp_comm_begin(c, &call, NULL, &w));
    NDP_TRY(ndp_wait(&w));
    free(rows);
    NDP_TRY(check_guard(out + come, "all_to_all of rows"));
    at = 0;
    for (int p = 0; p < n; p++)
        for (int64_t i = 0; i < (3 * p + 2 * rank) % 4 * bytes; i++, at++)
            WANT(out[at] == (unsigned char)(p * 41 + rank * 7 + i % 13), "rows of %lld bytes from %d: byte %lld",
                 (long long)bytes, p, (long long)i);
    return NDP_OK;
}

static inline ndp_status check_shift(ndp_comm *c, unsigned char *in, unsigned char *out, int64_t bytes) {
    int n = ndp_comm_size(c), rank = ndp_comm_rank(c);
    for (int64_t i = 0; i < bytes; i++)
        in[i] = (unsigned char)(rank * 41 + i % 13);
    guard(out + bytes);
    ndp_work w;
    NDP_TRY(ndp_shift_begin(c, in, out, bytes, &w));
    NDP_TRY(ndp_wait(&w));
    NDP_TRY(check_guard(out + bytes, "shift"));
    for (int64_t i = 0; i < bytes; i++)
        WANT(out[i] == (unsigned char)((rank + n - 1) % n * 41 + i % 13), "shift of %lld bytes: byte %lld",
             (long long)bytes, (long long)i);
    return NDP_OK;
}

/* Everybody sends three messages to the next rank, two of them with one tag, and receives the last one first. */
static inline ndp_status check_ring(ndp_comm *c, unsigned char *a, unsigned char *b, int64_t bytes, bool sends_first) {
    static const int tags[3] = {1, 1, 2}, order[3] = {2, 0, 1};
    int n = ndp_comm_size(c), rank = ndp_comm_rank(c), next = (rank + 1) % n, before = (rank + n - 1) % n;
    if (n == 1)
        return NDP_OK;
    int64_t third = bytes / 3;
    ndp_work send[3], recv[3];
    for (int k = 0; k < 3; k++) {
        memset(a + k * third, rank + 50 * k, (size_t)third);
        NDP_TRY(ndp_send_begin(c, a + k * third, third, next, tags[k], &send[k]));
    }
    for (int k = 0; k < 3; k++)
        NDP_TRY(ndp_recv_begin(c, b + order[k] * third, third, before, tags[order[k]], &recv[k]));
    for (int k = 0; k < 6; k++) {
        bool sends = (k < 3) == sends_first;
        NDP_TRY(ndp_wait(sends ? &send[k % 3] : &recv[k % 3]));
    }
    for (int64_t i = 0; i < 3 * third; i++)
        WANT(b[i] == before + 50 * (i / third), "messages of %lld bytes: byte %lld", (long long)third, (long long)i);
    return NDP_OK;
}

static const ndp_dtype reduced_types[] = {NDP_F32, NDP_BF16, NDP_F64, NDP_I64};

static inline ndp_status check_reductions(ndp_comm *c, void *data, int64_t count) {
    for (int t = 0; t < NDP_COUNT(reduced_types); t++) {
        NDP_TRY(check_all_reduce(c, data, reduced_types[t], NDP_SUM, count));
        NDP_TRY(check_all_reduce(c, data, reduced_types[t], NDP_MAX, count));
        NDP_TRY(check_reduce_scatter(c, data, reduced_types[t], count, false));
        NDP_TRY(check_reduce_scatter(c, data, reduced_types[t], count, true));
    }
    return NDP_OK;
}

/* Every operation on group `c` with parts of `count` elements. */
static inline ndp_status check_operations(ndp_comm *world, ndp_comm *c, memory_kind kind, int64_t count) {
    int n = ndp_comm_size(c);
    size_t bytes = (size_t)(n * count) * 8;
    buffer a, b;
    NDP_TRY(buffer_init(&a, world, kind, bytes));
    NDP_TRY(buffer_init(&b, world, kind, bytes));
    NDP_TRY(check_reductions(c, a.data, count));
    NDP_TRY(check_all_gather(c, a.data, b.data, NDP_F32, count, false));
    NDP_TRY(check_all_gather(c, a.data, b.data, NDP_BF16, count, true));
    NDP_TRY(check_broadcast(c, a.data, count, 0));
    NDP_TRY(check_broadcast(c, a.data, count, n - 1));
    NDP_TRY(check_all_to_all(c, a.data, b.data, count));
    NDP_TRY(check_all_to_all_rows(c, a.data, b.data, count, false));
    NDP_TRY(check_all_to_all_rows(c, a.data, b.data, count, true));
    NDP_TRY(check_shift(c, a.data, b.data, count));
    NDP_TRY(check_ring(c, a.data, b.data, count, false));
    NDP_TRY(check_ring(c, a.data, b.data, count, true));
    NDP_TRY(ndp_barrier(c));
    buffer_release(&a);
    buffer_release(&b);
    return NDP_OK;
}

static inline ndp_group world_group(const ndp_transport *t) {
    return (ndp_group){0, 1, ndp_transport_world(t), ndp_transport_rank(t)};
}

/* The group of `count` ranks at `stride` that holds this rank, in a mesh where the stride's block repeats. */
static inline ndp_group strided_group(const ndp_transport *t, int count, int stride) {
    int rank = ndp_transport_rank(t), block = count * stride, base = rank / block * block + rank % stride;
    return (ndp_group){base, stride, count, (rank - base) / stride};
}

/* All operations, on the world and on groups of it, on the heap and in windows, for small, odd and larger counts. */
static inline ndp_status check_transport(ndp_transport *t, void *arg) {
    static const int64_t counts[] = {0, 1, 7, 129, 5003};
    (void)arg;
    ndp_comm *world;
    NDP_TRY(ndp_comm_create(t, world_group(t), "world", &world));
    for (int stride = 1; stride <= 2; stride++)
        for (int count = 1; count * stride <= ndp_transport_world(t); count++) {
            if (ndp_transport_world(t) % (count * stride) != 0)
                continue;
            ndp_comm *c;
            NDP_TRY(ndp_comm_create(t, strided_group(t, count, stride), "part", &c));
            for (int kind = HEAP; kind <= WINDOW; kind++)
                for (int k = 0; k < NDP_COUNT(counts); k++)
                    NDP_TRY(check_operations(world, c, (memory_kind)kind, counts[k]));
            ndp_comm_destroy(c);
        }
    ndp_comm_destroy(world);
    return NDP_OK;
}

/* A shared window: what one rank writes into its slice all see, and the gather moves nothing. The part may also come
 * from elsewhere. */
static inline ndp_status check_shared_window(ndp_transport *t, void *arg) {
    bool *supported = arg;
    int64_t counts[] = {1, 100003};
    ndp_comm *c;
    NDP_TRY(ndp_comm_create(t, world_group(t), "shard", &c));
    for (int k = 0; k < 2; k++) {
        int64_t count = counts[k];
        ndp_window *w;
        ndp_status st = ndp_window_share(c, (size_t)(count * ndp_comm_size(c)) * 4, &w);
        if (supported)
            *supported = st == NDP_OK;
        if (st != NDP_OK) {
            WANT(st == NDP_ENOTSUP, "a shared window: %s", ndp_error_message());
            break;
        }
        WANT((uintptr_t)ndp_window_data(w) % (2 << 20) == 0, "a window at %p", ndp_window_data(w));
        NDP_TRY(check_all_gather(c, NULL, ndp_window_data(w), NDP_F32, count, true));
        NDP_TRY(ndp_barrier(c)); /* all have looked before anybody writes again */
        memset((float *)ndp_window_data(w) + ndp_comm_rank(c) * count, 0, (size_t)count * 4);
        float *in = malloc((size_t)count * 4);
        st = in ? check_all_gather(c, in, ndp_window_data(w), NDP_F32, count, false) : NDP_ENOMEM;
        free(in);
        NDP_TRY(st);
        ndp_window_destroy(w);
    }
    ndp_comm_destroy(c);
    return NDP_OK;
}

/* Eight operations of several kinds and groups at once; each begin is far ahead of its wait, 100 rounds. */
static inline ndp_status check_outstanding(ndp_transport *t, void *arg) {
    enum { N = 8, COUNT = 700, ROUNDS = 100 };
    (void)arg;
    ndp_comm *c, *half;
    buffer b;
    NDP_TRY(ndp_comm_create(t, world_group(t), "world", &c));
    NDP_TRY(ndp_comm_create(t, strided_group(t, ndp_transport_world(t) % 2 == 0 ? 2 : 1, 1), "pair", &half));
    NDP_TRY(buffer_init(&b, c, WINDOW, sizeof(float) * N * COUNT));
    ndp_work w[N], other[N];
    int64_t extra[N];
    for (int round = 0; round < ROUNDS; round++) {
        for (int k = 0; k < N; k++) {
            float *x = (float *)b.data + k * COUNT;
            extra[k] = ndp_comm_rank(half) + k;
            int64_t count = k % 2 ? COUNT : 5 + k;
            for (int64_t i = 0; i < count; i++)
                x[i] = (float)(round + k + ndp_comm_rank(c));
            NDP_TRY(ndp_all_reduce_begin(c, x, count, NDP_F32, NDP_SUM, &w[k]));
            NDP_TRY(ndp_all_reduce_begin(half, &extra[k], 1, NDP_I64, NDP_MAX, &other[k]));
        }
        int n = ndp_comm_size(c);
        for (int k = 0; k < N; k++) {
            NDP_TRY(ndp_wait(&other[k]));
            WANT(extra[k] == ndp_comm_size(half) - 1 + k, "pair: %lld", (long long)extra[k]);
            NDP_TRY(ndp_wait(&w[k]));
            float want = (float)(n * (round + k) + n * (n - 1) / 2);
            float *x = (float *)b.data + k * COUNT;
            for (int64_t i = 0; i < (k % 2 ? COUNT : 5 + k); i++)
                WANT(x[i] == want, "round %d, operation %d: %g, not %g", round, k, (double)x[i], (double)want);
        }
    }
    buffer_release(&b);
    ndp_comm_destroy(half);
    ndp_comm_destroy(c);
    return NDP_OK;
}

/* A mesh's communicators as one rank holds them: the world, and groups of every size at every stride, each twice. */
enum { MANY = 24 };

typedef struct many {
    ndp_comm *comm[MANY];
    float *data[MANY], *out[MANY]; /* per communicator: size parts of PART */
    ndp_work work[MANY];
    int n;
} many;

enum { PART = 1500 }; /* beyond what an all_reduce by MPI sends whole */

static inline ndp_status many_init(many *m, ndp_transport *t, ndp_comm *world, float *memory) {
    int size = ndp_transport_world(t);
    m->comm[0] = world;
    m->n = 1;
    for (int stride = 1; stride <= size; stride++)
        for (int count = 1; count * stride <= size; count++)
            for (int twice = 0; twice < 2 && size % (count * stride) == 0 && m->n < MANY; twice++)
                NDP_TRY(ndp_comm_create(t, strided_group(t, count, stride), "part", &m->comm[m->n++]));
    for (int k = 0; k < m->n; k++) {
        m->data[k] = memory + (int64_t)k * 2 * size * PART;
        m->out[k] = m->data[k] + (int64_t)size * PART;
    }
    return NDP_OK;
}

static inline ndp_status many_begin(many *m, int k, int round) {
    ndp_comm *c = m->comm[k];
    int64_t n = ndp_comm_size(c), rank = ndp_comm_rank(c), bytes = PART * (int64_t)sizeof(float);
    for (int64_t i = 0; i < n * PART; i++)
        m->data[k][i] = (float)(round + k + 10 * (i / PART) + 100 * rank);
    switch ((k + round) % 5) {
    case 0:
        return ndp_all_gather_begin(c, m->data[k], m->out[k], PART, NDP_F32, &m->work[k]);
    case 1:
        return ndp_reduce_scatter_begin(c, m->data[k], m->out[k], PART, NDP_F32, false, &m->work[k]);
    case 2:
        return ndp_all_to_all_begin(c, m->data[k], m->out[k], bytes, &m->work[k]);
    case 3:
        memcpy(m->out[k], m->data[k], (size_t)bytes);
        return ndp_all_reduce_begin(c, m->out[k], PART, NDP_F32, NDP_SUM, &m->work[k]);
    default:
        return ndp_shift_begin(c, m->data[k], m->out[k], bytes, &m->work[k]);
    }
}

static inline ndp_status many_end(many *m, int k, int round) {
    int n = ndp_comm_size(m->comm[k]), rank = ndp_comm_rank(m->comm[k]), kind = (k + round) % 5;
    float base = (float)(round + k);
    NDP_TRY(ndp_wait(&m->work[k]));
    for (int i = 0; i < (kind == 0 || kind == 2 ? n : 1) * PART; i++) {
        float from = (float)(100 * (i / PART)), want = base + from; /* a gathered part 0 */
        if (kind == 1 || kind == 3)
            want = (float)n * (base + (kind == 1 ? 10 * (float)rank : 0)) + 50 * (float)(n * (n - 1));
        else if (kind == 2)
            want += 10 * (float)rank;
        else if (kind == 4)
            want = base + 100 * (float)((rank + n - 1) % n);
        WANT(m->out[k][i] == want, "communicator %d of %d ranks, round %d: element %d is %g, not %g", k, n, round, i,
             (double)m->out[k][i], (double)want);
    }
    return NDP_OK;
}

/* One transport carries many communicators of overlapping groups at once. Every rank begins and ends their operations
 * in an order of its own, another one each round; on one communicator the order is the same for all. */
static inline ndp_status check_many(ndp_transport *t, void *arg) {
    enum { ROUNDS = 20 };
    static const int strides[] = {1, 5, 7, 11}; /* none divides the number of communicators but 1 */
    many m = {0};
    ndp_comm *world;
    buffer b;
    NDP_TRY(ndp_comm_create(t, world_group(t), "world", &world));
    NDP_TRY(buffer_init(&b, world, arg ? *(memory_kind *)arg : WINDOW,
                        sizeof(float) * MANY * 2 * PART * (size_t)ndp_transport_world(t)));
    NDP_TRY(many_init(&m, t, world, b.data));
    WANT(ndp_transport_world(t) < 3 || m.n > 4, "%d communicators", m.n);
    for (int round = 0; round < ROUNDS; round++) {
        int seed = round + 3 * ndp_transport_rank(t), step = strides[seed % 4];
        step = m.n % step == 0 ? 1 : step;
        for (int k = 0; k < m.n; k++)
            NDP_TRY(many_begin(&m, (seed + k * step) % m.n, round));
        for (int k = m.n - 1; k >= 0; k--)
            NDP_TRY(many_end(&m, (2 * seed + k * step) % m.n, round));
    }
    NDP_TRY(ndp_barrier(world));
    buffer_release(&b);
    for (int k = 0; k < m.n; k++)
        ndp_comm_destroy(m.comm[k]);
    return NDP_OK;
}

/* Ranks ask for windows of very different sizes (stages of a pipeline do), and reduce from different places in them. */
static inline ndp_status check_uneven_windows(ndp_transport *t, void *arg) {
    enum { COUNT = 5000 };
    int rank = ndp_transport_rank(t), n = ndp_transport_world(t);
    size_t bytes = rank == 1 ? 0 : (size_t)(1 + 5 * rank) << 20, needed = sizeof(float) * COUNT;
    ndp_comm *world;
    ndp_window *w, *own;
    ndp_memory_source source = ndp_transport_memory(t);
    void *memory, *own_memory;
    (void)arg;
    NDP_TRY(ndp_comm_create(t, world_group(t), "world", &world));
    NDP_TRY(source.map(source.user, bytes, &memory));
    NDP_TRY(source.map(source.user, needed * (size_t)(n - rank), &own_memory));
    NDP_TRY(ndp_window_register(world, memory, bytes, &w));
    NDP_TRY(ndp_window_register(world, own_memory, needed * (size_t)(n - rank), &own));
    WANT(ndp_window_data(w) == memory && (uintptr_t)memory % (2 << 20) == 0, "a window at %p", memory);
    for (size_t i = 0; i < bytes; i += 4000)
        WANT(((char *)memory)[i] == 0, "byte %zu of new memory", i);
    memset(ndp_window_data(w), 1, bytes);
    float *x = bytes ? (float *)((char *)ndp_window_data(w) + bytes - needed) : ndp_window_data(own);
    NDP_TRY(check_all_reduce(world, (char *)x - (bytes ? GUARD : 0), NDP_F32, NDP_SUM, COUNT));
    ndp_window_destroy(own);
    ndp_window_destroy(w);
    source.unmap(source.user, memory, bytes);
    source.unmap(source.user, own_memory, needed * (size_t)(n - rank));
    ndp_comm_destroy(world);
    return NDP_OK;
}

static inline ndp_status check_kind_in_place(ndp_comm *world, ndp_comm *c, memory_kind kind, bool wanted) {
    enum { COUNT = 1 << 15 };
    static const char *const names[] = {"all_gather", "reduce_scatter", "all_to_all", "shift", "all_reduce"};
    buffer a, b;
    ndp_work w;
    size_t bytes = sizeof(float) * COUNT * (size_t)ndp_comm_size(c);
    NDP_TRY(buffer_init(&a, world, kind, bytes));
    NDP_TRY(buffer_init(&b, world, kind, bytes));
    for (int k = 0; k < NDP_COUNT(names); k++) {
        if (k == 0)
            NDP_TRY(ndp_all_gather_begin(c, a.data, b.data, COUNT, NDP_F32, &w));
        else if (k == 1)
            NDP_TRY(ndp_reduce_scatter_begin(c, a.data, b.data, COUNT, NDP_F32, true, &w));
        else if (k == 2)
            NDP_TRY(ndp_all_to_all_begin(c, a.data, b.data, sizeof(float) * COUNT, &w));
        else if (k == 3)
            NDP_TRY(ndp_shift_begin(c, a.data, b.data, sizeof(float) * COUNT, &w));
        else
            NDP_TRY(ndp_all_reduce_begin(c, a.data, COUNT, NDP_F32, NDP_SUM, &w));
        NDP_TRY(ndp_wait(&w));
        WANT(w.in_place == wanted, "%s in memory of kind %d is done %s", names[k], (int)kind,
             wanted ? "by copies" : "in place");
    }
    NDP_TRY(ndp_barrier(world));
    buffer_release(&a);
    buffer_release(&b);
    return NDP_OK;
}

/* Large operations on windows of the transport's memory are done straight on the peers' memory: `wanted` says whether
 * the transport can. Processes copy all other memory; threads never have to. */
static inline ndp_status check_in_place(ndp_transport *t, void *arg) {
    bool wanted = !arg || *(bool *)arg, threads = strcmp(ndp_transport_name(t), "local") == 0;
    ndp_comm *world, *c;
    NDP_TRY(ndp_comm_create(t, world_group(t), "world", &world));
    NDP_TRY(ndp_comm_create(t, strided_group(t, ndp_transport_world(t), 1), "all", &c));
    for (int kind = 0; kind < MEMORY_KINDS; kind++)
        NDP_TRY(check_kind_in_place(world, c, (memory_kind)kind, wanted && (threads || kind == WINDOW)));
    ndp_comm_destroy(c);
    ndp_comm_destroy(world);
    return NDP_OK;
}

/* Rounds of large collectives and messages on buffers that only their rank can reach. */
static inline ndp_status check_heap(ndp_transport *t) {
    enum { ROUNDS = 30, BYTES = 1 << 20 };
    int n = ndp_transport_world(t);
    ndp_comm *world;
    unsigned char *a = malloc((size_t)BYTES * (size_t)n + GUARD), *b = malloc((size_t)BYTES * (size_t)n + GUARD);
    WANT(a && b, "test memory");
    NDP_TRY(ndp_comm_create(t, world_group(t), "world", &world));
    for (int k = 0; k < ROUNDS; k++) {
        NDP_TRY(check_all_to_all(world, a, b, BYTES - 64 * k));
        NDP_TRY(check_ring(world, a, b, BYTES - 64 * k, k % 2));
        NDP_TRY(check_all_reduce(world, a, NDP_F64, NDP_SUM, 1 << 12));
        NDP_TRY(check_broadcast(world, a, BYTES, k % n));
    }
    NDP_TRY(ndp_barrier(world));
    ndp_comm_destroy(world);
    free(a);
    free(b);
    return NDP_OK;
}

#endif
