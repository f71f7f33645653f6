/* The thread looks five times a second, at /proc/PID/stat of each other rank of the host.
 *
 * What both threads use: `transport` and `neighbours` (set once, by connect), `place`, `found` (set once `message` is
 * complete), `taken`, `reporter`. All else is the thread's. */
#include "comm/watch/lookout.h"
#include "base/clock.h"
#include "base/log.h"
#include "comm/launched.h"
#include "comm/watch/health.h"
#include "comm/watch/host_link.h"
#include "comm/watch/journal.h"
#include "comm/watch/neighbour.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define SAYS_SECONDS 0.5   /* after it was found, in which the rank may meet it in a wait */
#define ENDS_SECONDS 2.0   /* after it was said */
#define TAKES_SECONDS 10.0 /* instead, if the rank has met it: it notifies other hosts */
#define GAP_SECONDS 2.0    /* between two looks: this process was stopped itself, which does not count */

enum { MAIN = 1, THREAD = 2, MOST_SIBLINGS = 256 };
enum { INITIALIZES, WORKS, FINALIZES };

struct ndp_lookout {
    pthread_t thread;
    int end;          /* an eventfd: written once the thread is to end */
    atomic_bool ends; /* the same, if that could not be written */
    int rank;
    double limit;
    _Atomic(ndp_transport *) transport;
    ndp_host_link *link;
    ndp_neighbour *neighbours; /* by world rank; process 0: this rank, or one that is not to be seen */
    _Atomic uint32_t place, found, taken, reporter;
    char message[800];
    ndp_sibling siblings[MOST_SIBLINGS]; /* before that */
    ndp_neighbour seen[MOST_SIBLINGS];
    int n_siblings;
    bool was_stopped;
    double began, left, found_at, said_at, looked; /* 0: not yet */
};

/* ---- what is found ---- */

__attribute__((format(printf, 3, 4))) static void find(ndp_lookout *l, double now, const char *fmt, ...) {
    if (atomic_load(&l->found))
        return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(l->message, sizeof l->message, fmt, args);
    va_end(args);
    l->found_at = now;
    atomic_store(&l->found, 1);
}

ndp_status ndp_lookout_check(const ndp_transport *t) {
    ndp_lookout *l = t->lookout;
    if (!l || !atomic_load(&l->found))
        return NDP_OK;
    atomic_store(&l->taken, 1);
    return NDP_FAIL(NDP_ECOMM, "%s", l->message);
}

static bool reports(ndp_lookout *l, uint32_t who) {
    uint32_t none = 0;
    return atomic_compare_exchange_strong(&l->reporter, &none, who) || none == who;
}

bool ndp_lookout_lets_report(const ndp_transport *t) { return !t->lookout || reports(t->lookout, MAIN); }

void ndp_lookout_yield(ndp_lookout *l) {
    while (l && !reports(l, MAIN))
        usleep(100000);
}

/* One rank of the host says it: the first that records it. Before the ranks are connected there is no record, and the
 * caller has made sure of that. */
static void say_found(ndp_lookout *l, const ndp_transport *t) {
    if (t)
        ndp_health_record(t->health, l->rank, l->message);
    if ((!t || t->health->rank == l->rank) && reports(l, THREAD))
        fprintf(stderr, "ndparallel: %s\n", l->message);
}

static void act(ndp_lookout *l, double now) {
    enum { FAILED = 1 }; /* the exit code */
    if (l->found_at > 0 && l->said_at <= 0 && now - l->found_at >= SAYS_SECONDS) {
        say_found(l, atomic_load(&l->transport));
        l->said_at = now;
    }
    if (l->said_at > 0 && now - l->said_at >= (atomic_load(&l->taken) ? TAKES_SECONDS : ENDS_SECONDS)) {
        ndp_host_link_part(l->link);
        _exit(FAILED);
    }
}

/* ---- ranks that have joined ---- */

static const char *host_of(const ndp_transport *t, int rank) { return t->hosts ? t->hosts[rank].text : NULL; }

/* What the rank did last is in its journal, which is in shared memory. */
static void find_rank(ndp_lookout *l, const ndp_transport *t, int rank, const char *what, double now) {
    char last[NDP_LAST_TEXT] = "", own[NDP_JOURNAL_PREFIX];
    ndp_rank_state s = ndp_journal_read(&t->journals[rank]);
    if (ndp_rank_state_is_sound(&s, t->world))
        ndp_last_text(&s, last, sizeof last);
    find(l, now, "%s%s", what, last);
    const char *prefix = ndp_journal_prefix(t->health, own);
    if (prefix)
        ndp_journal_write_file(prefix, &t->journals[rank], rank, t->world, l->message);
}

static void look_at_rank(ndp_lookout *l, const ndp_transport *t, int rank, double now) {
    ndp_presence *p = &t->health->of[rank];
    ndp_neighbour *n = &l->neighbours[rank];
    char who[128], text[400];
    ndp_neighbour_news news = ndp_neighbour_look(n, now, l->limit);
    ndp_log log = {NDP_LOG_WARN, l->rank};
    ndp_neighbour_name(rank, host_of(t, rank), n->process, who, sizeof who);
    ndp_neighbour_text(news, n, who, l->limit, text, sizeof text);
    if (news == NDP_NEIGHBOUR_STOPPED && !atomic_exchange(&p->told, 1))
        ndp_warn(&log, "%s", text);
    else if (news == NDP_NEIGHBOUR_GOES_ON && atomic_exchange(&p->told, 0))
        ndp_warn(&log, "%s", text);
    else if (news == NDP_NEIGHBOUR_STOPPED_LONG)
        find_rank(l, t, rank, text, now);
    else if (news == NDP_NEIGHBOUR_ENDED && !atomic_load(&p->ended)) {
        atomic_store(&p->inside, 0);
        snprintf(text, sizeof text, "%s has died", who);
        find_rank(l, t, rank, text, now);
    }
}

/* Whether all ranks have come to their end, after which they are inside MPI together. */
static bool all_leave(const ndp_lookout *l, const ndp_transport *t) {
    bool all = atomic_load(&l->place) == FINALIZES;
    for (int r = 0; r < t->world; r++)
        all &= !l->neighbours[r].process || atomic_load(&t->health->of[r].left);
    return all;
}

static void look_at_ranks(ndp_lookout *l, const ndp_transport *t, double now) {
    for (int r = 0; r < t->world && !atomic_load(&t->health->failed); r++)
        if (l->neighbours[r].process && !atomic_load(&t->health->of[r].ended))
            look_at_rank(l, t, r, now);
    if (l->left <= 0 && all_leave(l, t))
        l->left = now;
    if (l->left > 0 && now - l->left > l->limit + 1)
        find(l, now, "rank %d (process %d) has waited for %g s, NDP_COMM_TIMEOUT, for the other ranks to leave MPI",
             l->rank, (int)getpid(), l->limit);
}

/* ---- other hosts ---- */

/* "ranks 2-3" of the host whose lowest rank is `first`: those that are neighbours of it. */
static void ranks_of_host(const ndp_transport *t, int first, char *out, size_t size) {
    int last = first;
    while (last + 1 < t->world && ndp_transport_host_of(t, last + 1) == ndp_transport_host_of(t, first))
        last++;
    if (last == first)
        snprintf(out, size, "rank %d", first);
    else
        snprintf(out, size, "ranks %d-%d", first, last);
}

static void look_at_hosts(ndp_lookout *l, const ndp_transport *t, double now) {
    int first;
    char ranks[48], own[96] = "", other[96] = "another host";
    if (!l->link || atomic_load(&t->health->failed))
        return;
    ndp_link_news news = ndp_host_link_look(l->link, &first);
    if (news == NDP_LINK_SAME || atomic_load(&t->health->failed))
        return;
    ranks_of_host(t, first, ranks, sizeof ranks);
    if (t->hosts) {
        snprintf(own, sizeof own, " on %s", t->hosts[l->rank].text);
        snprintf(other, sizeof other, "%s", t->hosts[first].text);
    }
    if (news == NDP_LINK_LOST)
        find(l, now, "rank %d%s: host %s (%s) has shown no sign of life for %d s: it, or its link, is down", l->rank,
             own, other, ranks, NDP_LOST_SECONDS);
    else
        find(l, now, "rank %d on %s has died, or all of that host (%s): its connection with rank %d%s has ended", first,
             other, ranks, l->rank, own);
}

/* ---- before ranks have joined ---- */

static bool is_stopped(const ndp_sibling *s) {
    ndp_process p;
    return ndp_process_read(s->process, &p) && strchr("Tt", p.state);
}

static void look_at_sibling(ndp_lookout *l, const ndp_sibling *s, ndp_neighbour *n, double now) {
    char host[64] = "", who[128], text[400];
    gethostname(host, sizeof host - 1);
    ndp_neighbour_name(s->rank, host, s->process, who, sizeof who);
    ndp_neighbour_news news = ndp_neighbour_look(n, now, l->limit);
    ndp_neighbour_text(news, n, who, l->limit, text, sizeof text);
    if (news == NDP_NEIGHBOUR_STOPPED || news == NDP_NEIGHBOUR_GOES_ON)
        ndp_warn(&(ndp_log){NDP_LOG_WARN, l->rank}, "%s", text);
    else if (news == NDP_NEIGHBOUR_STOPPED_LONG)
        find(l, now, "%s; the ranks have not joined", text);
    else if (news == NDP_NEIGHBOUR_ENDED && !l->was_stopped) /* while it was, the run has ended */
        find(l, now, "%s has ended before the ranks joined", who);
}

/* What mpirun, or its daemon, has started as ranks beside this one, as it is seen first. The lowest of them that is not
 * stopped speaks. */
static void look_at_siblings(ndp_lookout *l, double now) {
    ndp_sibling all[MOST_SIBLINGS];
    int n = ndp_launched_children(getppid(), all, MOST_SIBLINGS), lowest = l->rank;
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (k < l->n_siblings && l->siblings[k].process != all[i].process)
            k++;
        if (k == l->n_siblings && k < MOST_SIBLINGS) {
            l->siblings[l->n_siblings++] = all[i];
            l->seen[k] = (ndp_neighbour){.process = all[i].process};
        }
        lowest = all[i].rank < lowest && !is_stopped(&all[i]) ? all[i].rank : lowest;
    }
    for (int k = 0; k < l->n_siblings && lowest == l->rank; k++)
        look_at_sibling(l, &l->siblings[k], &l->seen[k], now);
    if (lowest == l->rank && atomic_load(&l->place) == INITIALIZES && now - l->began > l->limit + 1)
        find(l, now, "rank %d (process %d) has waited for %g s, NDP_COMM_TIMEOUT, to join the other ranks by MPI",
             l->rank, (int)getpid(), l->limit);
}

/* ---- the thread ---- */

/* A time that began before a gap begins later by it. */
static void leave_out_gap(ndp_lookout *l, double now) {
    double *const times[] = {&l->began, &l->left, &l->found_at, &l->said_at}, gap = now - l->looked;
    for (int i = 0; i < NDP_COUNT(times) && gap > GAP_SECONDS; i++)
        *times[i] += *times[i] > 0 ? gap : 0;
    l->was_stopped |= gap > GAP_SECONDS;
    l->looked = now;
}

static void look_at_joined(ndp_lookout *l, const ndp_transport *t, double now) {
    look_at_ranks(l, t, now);
    look_at_hosts(l, t, now);
}

static void *keep(void *arg) {
    ndp_lookout *l = arg;
    struct pollfd end = {.fd = l->end, .events = POLLIN};
    while (poll(&end, 1, (int)(1e3 * NDP_LOOK_SECONDS)) <= 0 && !atomic_load(&l->ends)) {
        double now = ndp_now();
        const ndp_transport *t = atomic_load(&l->transport);
        leave_out_gap(l, now);
        if (t)
            look_at_joined(l, t, now);
        else
            look_at_siblings(l, now);
        act(l, now);
    }
    return NULL;
}

/* Signals are the rank's. */
static int start_thread(ndp_lookout *l) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int cause = pthread_create(&l->thread, NULL, keep, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return cause;
}

ndp_status ndp_lookout_begin(int rank, double limit, ndp_lookout **out) {
    ndp_lookout *l = calloc(1, sizeof *l);
    NDP_CHECK_MEMORY(l, "to look at other ranks");
    l->rank = rank;
    l->limit = limit;
    l->began = l->looked = ndp_now();
    l->end = eventfd(0, EFD_CLOEXEC);
    int cause = l->end < 0 ? errno : start_thread(l);
    if (cause) {
        if (l->end >= 0)
            close(l->end);
        free(l);
        return NDP_FAIL(NDP_EIO, "cannot start the thread that looks at other ranks: %s", strerror(cause));
    }
    *out = l;
    return NDP_OK;
}

ndp_status ndp_lookout_connect(ndp_lookout *l, ndp_transport *t, ndp_host_link *link) {
    l->link = link;
    l->neighbours = calloc((size_t)t->world, sizeof *l->neighbours);
    NDP_CHECK_MEMORY(l->neighbours, "for a world of %d ranks", t->world);
    for (int r = 0; r < t->world; r++) {
        const ndp_presence *p = &t->health->of[r];
        ndp_process seen;
        ndp_neighbour *n = &l->neighbours[r];
        *n = (ndp_neighbour){.process = (pid_t)atomic_load(&p->process), .started = atomic_load(&p->started)};
        /* Another name space of processes has other numbers. */
        if (r == t->rank || !n->process || !ndp_process_read(n->process, &seen) || seen.started != n->started)
            *n = (ndp_neighbour){0};
    }
    t->lookout = l;
    atomic_store(&l->transport, t);
    return NDP_OK;
}

void ndp_lookout_enter(ndp_lookout *l, bool finalize) {
    if (l)
        atomic_store(&l->place, finalize ? FINALIZES : WORKS);
}

void ndp_lookout_part(ndp_lookout *l) {
    if (l)
        ndp_host_link_part(l->link);
}

void ndp_lookout_end(ndp_lookout *l) {
    if (!l)
        return;
    atomic_store(&l->ends, true);
    ssize_t n = write(l->end, &(uint64_t){1}, sizeof(uint64_t));
    (void)n;
    pthread_join(l->thread, NULL);
    close(l->end);
    ndp_host_link_part(l->link);
    ndp_host_link_close(l->link);
    free(l->neighbours);
    free(l);
}
