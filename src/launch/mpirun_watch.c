/* Waiting for mpirun. Which of its ranks on this host ended first is seen in /proc. What ranks write to stderr goes
 * through a pipe of this process: so it knows whether a rank has said why it ended, on whichever host, and when the run
 * has failed. mpirun may then wait forever for a host that is gone, and is killed. */
#include "launch/mpirun_watch.h"
#include "base/child.h"
#include "base/clock.h"
#include "launch/launch.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOOK_MS = 10 };

#define PATIENCE_SECONDS 10.0      /* for mpirun to end after a rank has failed */
#define LOST_PATIENCE_SECONDS 3.0  /* after a rank has lost a host: mpirun waits for its daemon there */
#define LEFT_PATIENCE_SECONDS 30.0 /* after its last rank has ended, which may have been well */
/* After a stop, at which all is saved: where mpirun got SIGTERM it waits for long. */
#define STOP_PATIENCE_SECONDS 5.0

void ndp_mpirun_watch_begin(ndp_mpirun_watch *w, pid_t mpirun, int world, bool here, int errors) {
    *w = (ndp_mpirun_watch){.mpirun = mpirun, .world = world, .here = here, .errors = errors, .first = -1};
}

/* ---- what ranks write ---- */

static bool begins(const char *line, const char *with) { return strncmp(line, with, strlen(with)) == 0; }

static void add_lost(ndp_mpirun_watch *w, const char *name, size_t n) {
    bool known = n == 0 || n >= sizeof w->lost[0] || w->n_lost == NDP_LOST_HOSTS;
    for (int i = 0; i < w->n_lost; i++)
        known |= strncmp(w->lost[i], name, n) == 0 && !w->lost[i][n];
    if (!known)
        snprintf(w->lost[w->n_lost++], sizeof w->lost[0], "%.*s", (int)n, name);
}

/* "ndparallel: rank 0 on node-1: host node-2 (ranks 2-3) has shown no sign of life" (comm/watch/lookout.c), and
 * mpirun's "  Remote daemon: [[1,0],2] on node node-2". */
static void note_lost(ndp_mpirun_watch *w) {
    static const char silent[] = " has shown no sign of life", host[] = ": host ", node[] = " on node ";
    const char *at = strstr(w->line, host);
    if (begins(w->line, "ndparallel: rank ") && at && strstr(at, silent))
        add_lost(w, at + strlen(host), strcspn(at + strlen(host), " "));
    at = strstr(w->line, node);
    if (begins(w->line + strspn(w->line, " "), "Remote daemon:") && at)
        add_lost(w, at + strlen(node), strcspn(at + strlen(node), " "));
}

/* On a busy host, mpirun has killed the others before this process looks again; the peers' line is earlier. */
static void note_dead(ndp_mpirun_watch *w) {
    int rank, process, end = 0;
    if (sscanf(w->line, "ndparallel: rank %d (process %d) has died%n", &rank, &process, &end) == 2 && end && !*w->dead)
        snprintf(w->dead, sizeof w->dead, "rank %d (process %d)", rank, process);
}

/* Open MPI 5 says that a rank has ended in a box, between lines of hyphens, and cannot be told not to. */
static bool is_boxed(ndp_mpirun_watch *w) {
    bool edge = w->length == 74 && strspn(w->line, "-") == 74;
    w->boxed = !edge && (w->boxed || begins(w->line, "prterun detected that one or more processes exited") ||
                         begins(w->line, "prterun noticed that process rank"));
    return edge || w->boxed;
}

/* A line of a rank that has failed begins with its number (cli/ranks.c, comm/watch/lookout.c). Open MPI's own words
 * about a host are those of the versions 4 and 5. */
static void end_line(ndp_mpirun_watch *w) {
    static const char *const lost[] = {"ORTE has lost communication", "ORTE was unable to reliably",
                                       "PRTE has lost communication", "PRTE was unable to reliably"};
    w->line[w->length < (int)sizeof w->line ? w->length : (int)sizeof w->line - 1] = '\0';
    bool failed = begins(w->line, "ndparallel: rank ");
    w->said |= failed;
    w->ours |= begins(w->line, "ndparallel: ") || *w->line == '{'; /* --json */
    bool stopped = begins(w->line, "{\"error\": {\"code\": 130,") || strstr(w->line, "stopped after step ") ||
                   strstr(w->line, "stopped before the run") || begins(w->line, "ndparallel: stopped ");
    if (w->stopped <= 0 && stopped)
        w->stopped = ndp_now();
    note_lost(w);
    note_dead(w);
    for (int i = 0; i < NDP_COUNT(lost); i++)
        failed |= begins(w->line, lost[i]);
    if (w->failed <= 0 && failed)
        w->failed = ndp_now();
    w->printed |= !is_boxed(w) && w->length > 0 && !begins(w->line, "warning");
    w->length = 0;
}

static void pass_on(const char *text, ssize_t size) {
    while (size > 0) {
        ssize_t n = write(STDERR_FILENO, text, (size_t)size);
        if (n < 0 && errno != EINTR)
            return;
        text += n > 0 ? n : 0;
        size -= n > 0 ? n : 0;
    }
}

/* False once no process can write any more. */
static bool read_errors(ndp_mpirun_watch *w) {
    char text[4096];
    ssize_t n;
    while ((n = read(w->errors, text, sizeof text)) > 0) {
        pass_on(text, n);
        for (ssize_t i = 0; i < n; i++) {
            if (text[i] == '\n')
                end_line(w);
            else if (w->length++ < (int)sizeof w->line - 1)
                w->line[w->length - 1] = text[i];
        }
    }
    return n != 0;
}

/* ---- its ranks ---- */

static bool has_ended(pid_t process) {
    ndp_process p;
    return !ndp_process_read(process, &p) || ndp_process_has_ended(&p);
}

static void close_end(ndp_mpirun_watch *w, int i) {
    if (w->open[i] && w->ends[i] >= 0)
        close(w->ends[i]);
    w->open[i] = 0;
}

static void watch_end(ndp_mpirun_watch *w, int i) {
    struct epoll_event wanted = {.events = EPOLLIN | EPOLLET, .data.u32 = (uint32_t)i};
    w->open[i] = w->ranks[i].process;
    w->ends[i] = (int)syscall(SYS_pidfd_open, w->open[i], 0);
    if (w->ends[i] >= 0 && epoll_ctl(w->events, EPOLL_CTL_ADD, w->ends[i], &wanted)) {
        close(w->ends[i]);
        w->ends[i] = -1;
    }
}

static void watch_ends(ndp_mpirun_watch *w) {
    for (int i = 0; i < NDP_WATCHED_RANKS; i++) {
        if (i < w->n && w->open[i] == w->ranks[i].process)
            continue;
        close_end(w, i);
        if (i < w->n)
            watch_end(w, i);
    }
}

/* Returns when something is written or a rank ends, or after LOOK_MS. On a busy host mpirun has killed the others
 * before this process goes on; epoll's first event is of the first end all the same. */
static void wait_a_little(ndp_mpirun_watch *w) {
    struct epoll_event got[1 + NDP_WATCHED_RANKS];
    int n = epoll_wait(w->events, got, NDP_COUNT(got), LOOK_MS);
    if (n < 0 && errno != EINTR) /* there is no epoll */
        usleep(1000 * LOOK_MS);
    for (int k = 0; k < n && !w->ended; k++) {
        w->ended = got[k].data.u32 < NDP_WATCHED_RANKS;
        w->first = w->ended && w->n == w->world ? (int)got[k].data.u32 : -1;
    }
}

static void watch_errors(ndp_mpirun_watch *w) {
    struct epoll_event wanted = {.events = EPOLLIN, .data.u32 = NDP_WATCHED_RANKS};
    w->events = epoll_create1(EPOLL_CLOEXEC);
    epoll_ctl(w->events, EPOLL_CTL_ADD, w->errors, &wanted);
}

/* Of ranks without a process descriptor. */
static void look_at_ranks(ndp_mpirun_watch *w) {
    int ended = -1, several = 0;
    if (w->ended)
        return;
    for (int i = 0; i < w->n; i++)
        if (w->ends[i] < 0 && has_ended(w->ranks[i].process)) {
            ended = i;
            several++;
        }
    w->ended = several > 0;
    w->first = several == 1 && w->n == w->world ? ended : -1;
    if (!w->ended && w->n < w->world) { /* once all are known, the list would only lose those that have ended */
        w->n = ndp_launched_children(w->mpirun, w->ranks, NDP_WATCHED_RANKS);
        watch_ends(w);
    }
}

/* mpirun may hang once its ranks have ended: one that is killed may have held a lock of mpirun's. */
static void look_for_ranks(ndp_mpirun_watch *w) {
    ndp_sibling any;
    if (w->here && w->ended && w->failed <= 0 && ndp_launched_children(w->mpirun, &any, 1) == 0) {
        w->failed = ndp_now();
        w->left = true;
    }
}

const char *ndp_mpirun_watch_first(const ndp_mpirun_watch *w, char out[64]) {
    snprintf(out, 64, "%s", *w->dead ? w->dead : "a rank");
    if (!*w->dead && w->first >= 0)
        snprintf(out, 64, "rank %d (process %d)", w->ranks[w->first].rank, (int)w->ranks[w->first].process);
    return out;
}

/* ---- its end ---- */

/* A batch system's daemons leave ranks that long before they end them, twice. Where a host is lost they would only wait
 * for it. */
static double patience(const ndp_mpirun_watch *w) {
    if (w->n_lost)
        return w->said ? LOST_PATIENCE_SECONDS : PATIENCE_SECONDS;
    return (w->left ? LEFT_PATIENCE_SECONDS : PATIENCE_SECONDS) + 2 * w->stop_seconds;
}

static void tell_of_lost(ndp_mpirun_watch *w, double now) {
    if (w->n_lost && !w->said && !w->told && w->failed > 0 && now - w->failed > LOST_PATIENCE_SECONDS) {
        w->told = true;
        w->lose(w->user, w->lost[0]);
    }
}

static void kill_all(ndp_mpirun_watch *w) {
    for (int i = 0; i < w->n; i++)
        if (!has_ended(w->ranks[i].process))
            kill(w->ranks[i].process, SIGKILL);
    kill(-w->mpirun, SIGKILL);
    w->killed = true;
}

/* A signal may come before a rank has a handler. mpirun itself, which ends the ranks on SIGTERM, ends with 1. */
static bool has_stopped(const ndp_mpirun_watch *w, bool stopping, int code) {
    bool early = code == 128 + SIGUSR1 || code == 128 + SIGTERM || code == 128 + SIGHUP;
    return (stopping && early) || w->stopped > 0;
}

/* mpirun forwards SIGUSR1 to the ranks that it has started so far, so the signal is repeated every second. SIGINT and
 * SIGTERM would end the ranks within a second. */
static int wait_for(ndp_mpirun_watch *w, const volatile sig_atomic_t *stop) {
    double next_stop = 0;
    bool stopping = false, errors = true;
    for (;;) {
        int status;
        wait_a_little(w);
        look_at_ranks(w);
        look_for_ranks(w);
        if (errors && !read_errors(w)) {
            errors = false;
            epoll_ctl(w->events, EPOLL_CTL_DEL, w->errors, NULL);
        }
        pid_t ended = waitpid(w->mpirun, &status, WNOHANG);
        if (ended < 0 && errno != EINTR)
            return 1;
        if (ended == w->mpirun) {
            int code = w->killed ? 1 : ndp_child_code(status);
            (void)read_errors(w);
            return has_stopped(w, stopping, code) ? 128 + SIGINT : code;
        }
        double now = ndp_now();
        tell_of_lost(w, now);
        if (!w->killed && ((w->failed > 0 && now - w->failed > patience(w)) ||
                           (w->stopped > 0 && now - w->stopped > STOP_PATIENCE_SECONDS)))
            kill_all(w);
        if (stop && *stop && w->stopped <= 0 && ndp_now() >= next_stop) {
            kill(w->mpirun, SIGUSR1);
            next_stop = ndp_now() + 1;
            stopping = true;
        }
    }
}

int ndp_mpirun_watch_wait(ndp_mpirun_watch *w, const volatile sig_atomic_t *stop) {
    watch_errors(w);
    int code = wait_for(w, stop);
    for (int i = 0; i < NDP_WATCHED_RANKS; i++)
        close_end(w, i);
    if (w->events >= 0)
        close(w->events);
    return code;
}
