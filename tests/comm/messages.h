/* Messages, for every transport that moves data: as cases.h. */
#ifndef TESTS_COMM_MESSAGES_H
#define TESTS_COMM_MESSAGES_H

#include "base/clock.h"
#include "check.h"
#include "comm/cases.h"

#include <stdatomic.h>

/* ---- two streams in opposite directions along a line of ranks, as in a pipeline ---- */

enum { AHEAD = 8, LONGEST = 1 << 20 };

static const int64_t message_bytes[AHEAD] = {16, 1, 0, 70001, 4096, 1000, LONGEST, 64};

typedef struct stream {
    ndp_comm *comm;
    int to, from; /* outside the world: none */
    unsigned char *out, *in;
    ndp_work send[AHEAD], recv[AHEAD];
} stream;

static inline bool is_member(const stream *s, int rank) { return rank >= 0 && rank < ndp_comm_size(s->comm); }

static inline int mark_of(int rank, int k, int round) { return 1 + rank * 40 + round * 10 + k; }

static inline ndp_status stream_begin(stream *s, int k, int round) {
    unsigned char *out = s->out + (size_t)k * LONGEST;
    if (is_member(s, s->from))
        NDP_TRY(ndp_recv_begin(s->comm, s->in + (size_t)k * LONGEST, message_bytes[k], s->from, k % 3, &s->recv[k]));
    if (!is_member(s, s->to))
        return NDP_OK;
    memset(out, mark_of(ndp_comm_rank(s->comm), k, round), (size_t)message_bytes[k]);
    return ndp_send_begin(s->comm, out, message_bytes[k], s->to, k % 3, &s->send[k]);
}

static inline ndp_status stream_receive(stream *s, int k, int round) {
    if (!is_member(s, s->from))
        return NDP_OK;
    NDP_TRY(ndp_wait(&s->recv[k]));
    for (int64_t i = 0; i < message_bytes[k]; i++)
        WANT(s->in[(size_t)k * LONGEST + (size_t)i] == (unsigned char)mark_of(s->from, k, round),
             "round %d, message %d of %s: byte %lld", round, k, ndp_comm_name(s->comm), (long long)i);
    return NDP_OK;
}

/* Even ranks wait for their receives in the order of the begins, odd ranks in the opposite order. */
static inline ndp_status streams_round(stream s[2], int round) {
    int rank = ndp_comm_rank(s[0].comm);
    for (int k = 0; k < 2 * AHEAD; k++)
        NDP_TRY(stream_begin(&s[k % 2], k / 2, round));
    for (int k = 0; k < 2 * AHEAD; k++)
        NDP_TRY(stream_receive(&s[k % 2], rank % 2 ? AHEAD - 1 - k / 2 : k / 2, round));
    for (int k = 0; k < 2 * AHEAD; k++)
        if (is_member(&s[k % 2], s[k % 2].to))
            NDP_TRY(ndp_wait(&s[k % 2].send[k / 2]));
    return NDP_OK;
}

static inline ndp_status check_streams(ndp_transport *t, void *arg) {
    int rank = ndp_transport_rank(t);
    stream s[2] = {{.to = rank + 1, .from = rank - 1}, {.to = rank - 1, .from = rank + 1}};
    (void)arg;
    NDP_TRY(ndp_comm_create(t, world_group(t), "forward", &s[0].comm));
    NDP_TRY(ndp_comm_create(t, world_group(t), "backward", &s[1].comm));
    for (int kind = HEAP; kind <= WINDOW; kind++) {
        buffer b;
        NDP_TRY(buffer_init(&b, s[0].comm, (memory_kind)kind, (size_t)4 * AHEAD * LONGEST));
        for (int k = 0; k < 2; k++) {
            s[k].out = (unsigned char *)b.data + (size_t)2 * k * AHEAD * LONGEST;
            s[k].in = s[k].out + (size_t)AHEAD * LONGEST;
        }
        for (int round = 0; round < 3; round++)
            NDP_TRY(streams_round(s, round));
        NDP_TRY(ndp_barrier(s[0].comm));
        buffer_release(&b);
    }
    ndp_comm_destroy(s[0].comm);
    ndp_comm_destroy(s[1].comm);
    return NDP_OK;
}

/* 64 MiB between the first two ranks, in both directions at once. */
static inline ndp_status check_large_messages(ndp_transport *t, void *arg) {
    int rank = ndp_transport_rank(t), peer = 1 - rank;
    int64_t bytes = 64 << 20;
    ndp_comm *c;
    buffer in, out;
    ndp_work send, recv;
    (void)arg;
    NDP_TRY(ndp_comm_create(t, world_group(t), "world", &c));
    NDP_TRY(buffer_init(&in, c, WINDOW, rank < 2 ? (size_t)bytes : 1));
    NDP_TRY(buffer_init(&out, c, WINDOW, rank < 2 ? (size_t)bytes : 1));
    if (rank < 2 && ndp_comm_size(c) > 1) {
        memset(out.data, 7 + rank, (size_t)bytes);
        NDP_TRY(ndp_send_begin(c, out.data, bytes, peer, 32766, &send));
        NDP_TRY(ndp_recv_begin(c, in.data, bytes, peer, 32766, &recv));
        NDP_TRY(ndp_wait(&send));
        NDP_TRY(ndp_wait(&recv));
        for (int64_t i = 0; i < bytes; i += 61)
            WANT(((unsigned char *)in.data)[i] == 7 + peer, "byte %lld of a large message", (long long)i);
    }
    NDP_TRY(ndp_barrier(c));
    buffer_release(&in);
    buffer_release(&out);
    ndp_comm_destroy(c);
    return NDP_OK;
}

/* ---- neighbours on one node: ranks 2i and 2i + 1 ---- */

typedef struct neighbours {
    ndp_comm *world; /* messages are on the world, which may span nodes */
    atomic_int *flags;
    bool sends;
    int peer;
    char *data;
} neighbours;

enum { PAIR_BYTES = 4 << 20, RECEIVED = MEMORY_KINDS, WAITING };

static inline ndp_status wait_for_flag(const neighbours *p, int flag, const char *what) {
    for (double deadline = ndp_now() + HANGS; !atomic_load(&p->flags[flag]); usleep(100))
        WANT(ndp_now() < deadline, "%s", what);
    return NDP_OK;
}

/* The sender begins and makes no other call before the receiver has the message. */
static inline ndp_status receive_from_busy(const neighbours *p, int kind, bool in_place) {
    ndp_work w;
    if (p->sends) {
        memset(p->data, 3 + kind, PAIR_BYTES);
        NDP_TRY(ndp_send_begin(p->world, p->data, PAIR_BYTES, p->peer, 5, &w));
        NDP_TRY(wait_for_flag(p, kind, "a message did not arrive while its sender computed"));
        NDP_TRY(ndp_wait(&w));
        WANT(w.in_place == in_place, "a message in memory of kind %d was sent %s", kind,
             in_place ? "by a copy" : "in place");
        return NDP_OK;
    }
    NDP_TRY(ndp_recv_begin(p->world, p->data, PAIR_BYTES, p->peer, 5, &w));
    NDP_TRY(ndp_wait(&w));
    for (int i = 0; i < PAIR_BYTES; i++)
        WANT(p->data[i] == 3 + kind, "byte %d of a message", i);
    atomic_store(&p->flags[kind], 1);
    return NDP_OK;
}

/* The sender begins a second after the receiver is about to wait. */
static inline ndp_status receive_from_late(const neighbours *p) {
    char byte = 0;
    ndp_work w;
    if (p->sends) {
        NDP_TRY(wait_for_flag(p, WAITING, "the receiver does not wait"));
        usleep(1000 * 1000);
        NDP_TRY(ndp_send_begin(p->world, &byte, 1, p->peer, 5, &w));
        return ndp_wait(&w);
    }
    NDP_TRY(ndp_recv_begin(p->world, &byte, 1, p->peer, 5, &w));
    atomic_store(&p->flags[WAITING], 1);
    NDP_TRY(ndp_wait(&w));
    WANT(w.waited > 0.1 && w.waited < HANGS, "a receive waited for %g s", w.waited);
    return NDP_OK;
}

static inline ndp_status check_pairs(ndp_transport *t, void *arg) {
    int rank = ndp_transport_rank(t);
    bool threads = strcmp(ndp_transport_name(t), "local") == 0, paired = (rank ^ 1) < ndp_transport_world(t);
    neighbours p = {.sends = rank % 2 == 0, .peer = rank ^ 1};
    ndp_comm *both = NULL;
    ndp_window *flags = NULL;
    (void)arg;
    NDP_TRY(ndp_comm_create(t, world_group(t), "world", &p.world));
    if (paired) {
        NDP_TRY(ndp_comm_create(t, strided_group(t, 2, 1), "pair", &both));
        NDP_TRY(ndp_window_share(both, (WAITING + 1) * sizeof *p.flags, &flags));
        p.flags = ndp_window_data(flags);
    }
    for (int kind = 0; kind < MEMORY_KINDS; kind++) {
        buffer b;
        NDP_TRY(buffer_init(&b, p.world, (memory_kind)kind, PAIR_BYTES));
        p.data = b.data;
        if (paired)
            NDP_TRY(receive_from_busy(&p, kind, threads || kind == WINDOW));
        buffer_release(&b);
    }
    if (paired)
        NDP_TRY(receive_from_late(&p));
    NDP_TRY(ndp_barrier(p.world));
    ndp_window_destroy(flags);
    ndp_comm_destroy(both);
    ndp_comm_destroy(p.world);
    return NDP_OK;
}

/* ---- limits ---- */

static inline ndp_status receive_too_many(ndp_comm *c, char x[32], ndp_work recv[32], int from) {
    ndp_work w;
    for (int k = 0; k < 32; k++)
        NDP_TRY(ndp_recv_begin(c, &x[k], 1, from, 0, &recv[k]));
    WANT(ndp_recv_begin(c, x, 1, from, 0, &w) == NDP_EBUG, "33 receives");
    WANT(strstr(ndp_error_message(), "more than 32 receives outstanding on group world"), "%s", ndp_error_message());
    return NDP_OK;
}

/* 16 sends to the next rank and 32 receives; one more is refused and harms nothing. */
static inline ndp_status check_message_limits(ndp_transport *t, void *arg) {
    int rank = ndp_transport_rank(t), n = ndp_transport_world(t);
    char x[32], y[16] = {0};
    ndp_work send[17], recv[32];
    ndp_comm *c;
    (void)arg;
    NDP_TRY(ndp_comm_create(t, world_group(t), "world", &c));
    for (int half = 0; half < 2 && n > 1; half++) {
        for (int k = 0; k < 16; k++) {
            y[k] = (char)(16 * half + k);
            NDP_TRY(ndp_send_begin(c, &y[k], 1, (rank + 1) % n, 0, &send[k]));
        }
        if (half == 0) {
            WANT(ndp_send_begin(c, y, 1, (rank + 1) % n, 0, &send[16]) == NDP_EBUG, "17 sends");
            WANT(strstr(ndp_error_message(), "more than 16 sends outstanding on group world"), "%s",
                 ndp_error_message());
            NDP_TRY(ndp_barrier(c)); /* no rank receives before all have sent */
            NDP_TRY(receive_too_many(c, x, recv, (rank + n - 1) % n));
        }
        for (int k = 0; k < 16; k++) {
            NDP_TRY(ndp_wait(&recv[16 * half + k]));
            WANT(x[16 * half + k] == 16 * half + k, "message %d", 16 * half + k);
        }
        for (int k = 0; k < 16; k++)
            NDP_TRY(ndp_wait(&send[k]));
    }
    ndp_comm_destroy(c);
    return NDP_OK;
}

#endif
