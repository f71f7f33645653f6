/* Measures links between pairs of ranks (probe.h).
 *
 * The lower rank of a pair leads: pings give the latency; then messages that both send at once grow until one lasts
 * long enough, which is repeated. A message goes in pieces, several of them under way. Who calls it: link_check.c for
 * the links of a layout, host_links.c for those between hosts. */
#include "measure/probe.h"

#include "base/clock.h"
#include "measure/median.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    FIRST_BYTES = 1 << 17,
    PINGS = 12,
    GROWTH = 4,
    LEAST_PIECE = 60 << 10, /* MPI sends so little without asking first */
    MOST_PIECE = 1 << 20,
    IN_FLIGHT = NDP_MOST_SENDS /* so that a rank without a core for a while does not stop the link */
};

/* A rank's end of a pair. The lower rank leads: it says how long the next message is; 0 ends it. */
typedef struct probe_end {
    ndp_comm *comm;
    int peer;
    const ndp_probe_opts *opts;
    char *out, *in;
    int64_t capacity; /* of each */
} probe_end;

static ndp_status pass(ndp_comm *c, void *data, int64_t bytes, int peer, bool sends) {
    ndp_work w;
    NDP_TRY(sends ? ndp_send_begin(c, data, bytes, peer, 0, &w) : ndp_recv_begin(c, data, bytes, peer, 0, &w));
    return ndp_wait(&w);
}

static ndp_status reserve(probe_end *e, int64_t bytes) {
    if (bytes <= e->capacity)
        return NDP_OK;
    free(e->out);
    free(e->in);
    e->capacity = bytes;
    e->out = calloc(1, (size_t)bytes);
    e->in = malloc((size_t)bytes);
    NDP_CHECK_MEMORY(e->out && e->in, "for two messages of %lld bytes to measure a link with", (long long)bytes);
    memset(e->in, 0, (size_t)bytes); /* pages that are taken in the message would count */
    return NDP_OK;
}

/* A message in pieces, of which several are under way: if it went whole, MPI's own messages for one direction would
 * wait behind the data of the other. */
typedef struct stream {
    int64_t bytes, piece;
    ndp_work works[IN_FLIGHT];
    int64_t begun, ended; /* pieces */
} stream;

static int64_t piece_of(int64_t bytes) {
    int64_t piece = bytes / 64 / 4096 * 4096;
    return piece < LEAST_PIECE ? LEAST_PIECE : piece > MOST_PIECE ? MOST_PIECE : piece;
}

static int64_t pieces(const stream *s) { return (s->bytes + s->piece - 1) / s->piece; }

static ndp_status begin_piece(probe_end *e, stream *s, bool sends) {
    int64_t at = s->begun * s->piece, n = s->bytes - at < s->piece ? s->bytes - at : s->piece;
    ndp_work *w = &s->works[s->begun++ % IN_FLIGHT];
    return sends ? ndp_send_begin(e->comm, e->out + at, n, e->peer, 1, w)
                 : ndp_recv_begin(e->comm, e->in + at, n, e->peer, 1, w);
}

static ndp_status end_piece(stream *s) { return ndp_wait(&s->works[s->ended++ % IN_FLIGHT]); }

/* What a rank sees of a message both ways. */
typedef struct message_seen {
    double seconds, rate, core;
} message_seen;

/* The rate of what arrives after the first third, with which a switch's allowance for bursts is used up and a
 * connection has found its speed; at most a quarter more than that of the whole: what waited for a rank without a core
 * is there at once. */
static double rate_of(int64_t bytes, int64_t rest, double seconds, double rest_seconds) {
    const double most = 1.25 * (double)bytes / seconds;
    double rate = (double)rest / rest_seconds;
    return rate < most ? rate : most;
}

/* Both send and receive a message. */
static ndp_status exchange(probe_end *e, int64_t bytes, message_seen *seen) {
    stream in = {.bytes = bytes, .piece = piece_of(bytes)}, out = in;
    int64_t n = pieces(&in), third = n / 3;
    double start = ndp_now(), from = start, own = ndp_thread_now();
    while (in.begun < n && in.begun < IN_FLIGHT)
        NDP_TRY(begin_piece(e, &in, false));
    while (in.ended < n) {
        if (out.begun - out.ended == IN_FLIGHT)
            NDP_TRY(end_piece(&out));
        if (out.begun < n)
            NDP_TRY(begin_piece(e, &out, true));
        if (out.begun < n && out.begun < IN_FLIGHT)
            continue;
        NDP_TRY(end_piece(&in));
        from = in.ended == third ? ndp_now() : from;
        if (in.begun < n)
            NDP_TRY(begin_piece(e, &in, false));
    }
    double end = ndp_now();
    seen->seconds = end - start;
    seen->rate = rate_of(bytes, bytes - third * in.piece, end - start, end - from);
    seen->core = (ndp_thread_now() - own) / seen->seconds;
    while (out.begun < n || out.ended < out.begun) {
        if (out.begun < n && out.begun - out.ended < IN_FLIGHT)
            NDP_TRY(begin_piece(e, &out, true));
        else
            NDP_TRY(end_piece(&out));
    }
    return NDP_OK;
}

static ndp_status follow(probe_end *e) {
    int64_t bytes;
    for (int i = 0; i < PINGS; i++) {
        NDP_TRY(pass(e->comm, &bytes, sizeof bytes, e->peer, false));
        NDP_TRY(pass(e->comm, &bytes, sizeof bytes, e->peer, true));
    }
    for (;;) {
        message_seen seen;
        NDP_TRY(pass(e->comm, &bytes, sizeof bytes, e->peer, false));
        if (bytes == 0)
            return NDP_OK;
        NDP_TRY(reserve(e, bytes));
        NDP_TRY(pass(e->comm, &bytes, sizeof bytes, e->peer, true)); /* ready */
        NDP_TRY(exchange(e, bytes, &seen));
        NDP_TRY(pass(e->comm, &seen, sizeof seen, e->peer, true));
    }
}

static ndp_status ping(probe_end *e, double *latency) {
    int64_t word = 0;
    *latency = 1e9;
    for (int i = 0; i < PINGS; i++) { /* the first one opens the connection */
        double start = ndp_now();
        NDP_TRY(pass(e->comm, &word, sizeof word, e->peer, true));
        NDP_TRY(pass(e->comm, &word, sizeof word, e->peer, false));
        double one_way = (ndp_now() - start) / 2;
        *latency = one_way < *latency ? one_way : *latency;
    }
    return NDP_OK;
}

/* Of a message of that length, both ways at once: what this rank sees, and its peer. */
static ndp_status once(probe_end *e, int64_t bytes, message_seen *here, message_seen *there) {
    int64_t ready = bytes;
    NDP_TRY(reserve(e, bytes));
    NDP_TRY(pass(e->comm, &ready, sizeof ready, e->peer, true));
    NDP_TRY(pass(e->comm, &ready, sizeof ready, e->peer, false));
    NDP_TRY(exchange(e, bytes, here));
    return pass(e->comm, there, sizeof *there, e->peer, false);
}

static int64_t next_size(int64_t bytes, double seconds, const ndp_probe_opts *o) {
    double grows = seconds > 0 ? 1.25 * o->seconds / seconds : GROWTH;
    grows = grows < 2 ? 2 : grows > GROWTH ? GROWTH : grows;
    int64_t next = (int64_t)(grows * (double)bytes) / 4096 * 4096;
    return next < o->most ? next : o->most;
}

static ndp_status lead(probe_end *e, ndp_probe *p) {
    enum { MOST_REPEATS = 8 };
    int64_t bytes = FIRST_BYTES, end = 0;
    double to_a[MOST_REPEATS], to_b[MOST_REPEATS];
    int n = 0;
    NDP_TRY(ping(e, &p->latency));
    while (n < e->opts->repeats && n < MOST_REPEATS) {
        message_seen here, there;
        NDP_TRY(once(e, bytes, &here, &there));
        double seconds = here.seconds > there.seconds ? here.seconds : there.seconds;
        if (seconds < e->opts->seconds && bytes < e->opts->most) {
            bytes = next_size(bytes, seconds, e->opts);
            continue;
        }
        to_a[n] = here.rate;
        to_b[n++] = there.rate;
        p->core = here.core < there.core ? here.core : there.core;
    }
    p->to_a = ndp_median(to_a, n);
    p->to_b = ndp_median(to_b, n);
    return pass(e->comm, &end, sizeof end, e->peer, true);
}

ndp_status ndp_probes_run(ndp_comm *c, ndp_probe *probes, int n, const ndp_probe_opts *o) {
    int rank = ndp_comm_rank(c);
    bool idle = true;
    NDP_TRY(ndp_barrier(c));
    for (int i = 0; i < n; i++) {
        ndp_probe *p = &probes[i];
        idle = idle && p->a != rank && p->b != rank;
        p->latency = p->to_a = p->to_b = p->core = 0;
        if (p->a != rank && p->b != rank)
            continue;
        probe_end e = {.comm = c, .peer = p->a == rank ? p->b : p->a, .opts = o};
        ndp_status st = p->a == rank ? lead(&e, p) : follow(&e);
        free(e.out);
        free(e.in);
        NDP_TRY(st);
    }
    const struct timespec nap = {.tv_sec = (time_t)o->nap, .tv_nsec = (long)(1e9 * (o->nap - floor(o->nap)))};
    if (idle && o->nap > 0)
        nanosleep(&nap, NULL);
    return NDP_OK;
}

ndp_status ndp_probes_share(ndp_comm *c, ndp_probe *probes, int n) {
    enum { NUMBERS = 4 };
    ndp_work w;
    double *all = calloc((size_t)n * NUMBERS + 1, sizeof *all);
    NDP_CHECK_MEMORY(all, "for the measurements of %d links", n);
    for (int i = 0; i < n; i++)
        if (probes[i].a == ndp_comm_rank(c))
            memcpy(all + i * NUMBERS, (double[]){probes[i].latency, probes[i].to_a, probes[i].to_b, probes[i].core},
                   NUMBERS * sizeof *all);
    ndp_status st = ndp_all_reduce_begin(c, all, (int64_t)n * NUMBERS, NDP_F64, NDP_SUM, &w);
    if (st == NDP_OK)
        st = ndp_wait(&w);
    for (int i = 0; i < n && st == NDP_OK; i++) {
        probes[i].latency = all[i * NUMBERS];
        probes[i].to_a = all[i * NUMBERS + 1];
        probes[i].to_b = all[i * NUMBERS + 2];
        probes[i].core = all[i * NUMBERS + 3];
    }
    free(all);
    return st;
}
