/* Starting the ranks of one host: children of this process that share one file (comm/node/shm_world.h).
 *
 * The ranks are in the process group of their parent, so signals from the terminal reach all of them. The parent polls
 * the process descriptors of the ranks. When a rank ends with an error, the parent writes that into the shared file,
 * where the other ranks find it in their next wait. Ranks that are not waiting get SIGTERM after GRACE_SECONDS and
 * SIGKILL after GRACE_SECONDS more. The exit code is that of the rank that failed first. */
#include "base/child.h"
#include "base/clock.h"
#include "comm/node/shm_world.h"
#include "launch/launch.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STOPPED = 128 + SIGINT, LOOK_MS = 100, LOOK_OFTEN_MS = 10 };

#define GRACE_SECONDS 1.0 /* for a rank in the world to end on its own; also between SIGTERM and SIGKILL */

typedef struct child_rank {
    pid_t pid;  /* 0: it has ended */
    int code;   /* its exit code, once it has ended */
    int signal; /* the last signal sent to end it; 0: none */
} child_rank;

typedef struct launch_run {
    const ndp_launch_opts *opts;
    ndp_shm_world *world;
    child_rank *ranks;
    struct pollfd *ends; /* process descriptors by rank; fd -1: the system has none */
    int left;            /* number of ranks still running */
    int first;           /* the first rank that ended with an error; -1: none */
    double first_ended;
    double next_stop; /* when to send the next SIGUSR1 */
} launch_run;

/* ---- ends ---- */

/* Writes how a rank ended to `out`; `last`: what it did last. False if the rank has reported its error itself
 * (exit codes up to 2). */
static bool describe_end(int number, pid_t pid, int status, const char *last, char *out, size_t size) {
    int code = ndp_child_code(status);
    if (WIFSIGNALED(status))
        snprintf(out, size, "rank %d (process %d) was killed by signal %d (%s)%s%s", number, (int)pid, WTERMSIG(status),
                 strsignal(WTERMSIG(status)), last,
                 WTERMSIG(status) == SIGKILL ? "; if you did not kill it, memory ran out: see `train --dry-run`" : "");
    else
        snprintf(out, size, "rank %d (process %d) ended with code %d%s", number, (int)pid, code,
                 code > 2 ? "; its output above says why" : "");
    return code > 2;
}

static bool is_stopping(const launch_run *r) { return r->opts->stop && *r->opts->stop; }

static void note_failure(launch_run *r, int number, pid_t pid, int status) {
    char text[640], last[320];
    bool unreported =
        describe_end(number, pid, status, ndp_shm_world_last(r->world, number, last, sizeof last), text, sizeof text);
    const char *why = strchr(text, '(');
    bool stopped = r->ranks[number].code == STOPPED || is_stopping(r);
    if (r->first < 0) {
        r->first = number;
        r->first_ended = ndp_now();
        if (unreported && !stopped && ndp_shm_world_failed(r->world) < 0 && r->opts->report)
            r->opts->report(r->opts->user, text);
    }
    ndp_shm_world_ended(r->world, number, why);
}

/* A rank that was stopped and has left the world has not failed. */
static void note_end(launch_run *r, int number, int status) {
    child_rank *it = &r->ranks[number];
    pid_t pid = it->pid;
    it->pid = 0;
    it->code = ndp_child_code(status);
    r->left--;
    if (r->ends[number].fd >= 0)
        close(r->ends[number].fd);
    r->ends[number].fd = -1;
    bool stopped = WIFEXITED(status) && it->code == STOPPED && ndp_shm_world_left(r->world, number);
    if (it->code == 0 || stopped)
        ndp_shm_world_ended(r->world, number, NULL);
    else
        note_failure(r, number, pid, status);
}

static void reap_ended(launch_run *r) {
    for (int k = 0; k < r->opts->ranks; k++) {
        int status;
        if (r->ranks[k].pid && waitpid(r->ranks[k].pid, &status, WNOHANG) == r->ranks[k].pid)
            note_end(r, k, status);
    }
}

/* ---- signals ---- */

static void forward_stop(launch_run *r) {
    if (!is_stopping(r) || ndp_now() < r->next_stop)
        return;
    r->next_stop = ndp_now() + 1;
    for (int k = 0; k < r->opts->ranks; k++)
        if (r->ranks[k].pid)
            kill(r->ranks[k].pid, SIGUSR1);
}

/* A program that has not joined the world cannot see the failure, so it gets SIGTERM at once. */
static void end_other_ranks(launch_run *r) {
    if (r->first < 0)
        return;
    double since = ndp_now() - r->first_ended;
    for (int k = 0; k < r->opts->ranks; k++) {
        child_rank *it = &r->ranks[k];
        double grace = ndp_shm_world_joined(r->world, k) ? GRACE_SECONDS : 0;
        int wanted = since >= grace + GRACE_SECONDS ? SIGKILL : since >= grace ? SIGTERM : 0;
        if (it->pid && wanted && wanted != it->signal) {
            it->signal = wanted;
            kill(it->pid, wanted);
        }
    }
}

/* ---- the run ---- */

static void rank_environment(ndp_argv *w, const ndp_launch_opts *o, const ndp_shm_world *world, int number) {
    char where[64];
    ndp_shm_address a = ndp_shm_world_address(world);
    ndp_shm_address_text(&a, where, sizeof where);
    for (char **e = environ; *e; e++)
        if (strncmp(*e, NDP_WORLD "=", sizeof NDP_WORLD) != 0 && strncmp(*e, NDP_RANK "=", sizeof NDP_RANK) != 0 &&
            !(o->threads && strncmp(*e, "OMP_NUM_THREADS=", 16) == 0))
            ndp_argv_add(w, "%s", *e);
    ndp_argv_add(w, NDP_WORLD "=%s", where);
    ndp_argv_add(w, NDP_RANK "=%d", number);
    ndp_argv_add(w, NDP_LAUNCHED "=1");
    if (o->threads)
        ndp_argv_add(w, "OMP_NUM_THREADS=%d", o->threads);
}

static ndp_status start_rank(launch_run *r, int number) {
    const ndp_launch_opts *o = r->opts;
    ndp_argv env = {0};
    rank_environment(&env, o, r->world, number);
    ndp_child child = {
        .argv = o->argv, .env = env.items, .death_signal = SIGKILL, .keep = ndp_shm_world_address(r->world).fd};
    int cause = env.failed ? ENOMEM : ndp_child_start(&child, &r->ranks[number].pid);
    ndp_argv_release(&env);
    if (cause)
        return NDP_FAIL(NDP_EIO, "cannot start '%s' as rank %d of %d: %s", o->argv[0], number, o->ranks,
                        strerror(cause));
    r->left++;
    r->ends[number] = (struct pollfd){.fd = (int)syscall(SYS_pidfd_open, r->ranks[number].pid, 0), .events = POLLIN};
    return NDP_OK;
}

static void kill_all(launch_run *r) {
    for (int k = 0; k < r->opts->ranks; k++)
        if (r->ranks[k].pid) {
            kill(r->ranks[k].pid, SIGKILL);
            waitpid(r->ranks[k].pid, NULL, 0);
            if (r->ends[k].fd >= 0)
                close(r->ends[k].fd);
        }
}

/* Whether a signal that only asks a rank to stop ended it, which had no handler yet. */
static bool stopped_early(int code) { return code == 128 + SIGUSR1 || code == 128 + SIGHUP; }

/* The code of the rank that failed first. A rank that was ended by a signal from here has no code of its own. */
static int run_exit_code(const launch_run *r) {
    int failed = ndp_shm_world_failed(r->world), code = 0;
    if (failed < 0 || r->ranks[failed].code == 0 || r->ranks[failed].signal)
        failed = r->first;
    for (int k = 0; k < r->opts->ranks && code == 0; k++)
        code = r->ranks[k].code;
    code = failed >= 0 ? r->ranks[failed].code : code;
    return is_stopping(r) && stopped_early(code) ? STOPPED : code;
}

static int wait_for_all(launch_run *r) {
    bool polled = true; /* the system wakes us when a rank ends */
    for (int k = 0; k < r->opts->ranks; k++)
        polled &= r->ends[k].fd >= 0;
    while (r->left > 0) {
        poll(r->ends, (nfds_t)r->opts->ranks, polled ? LOOK_MS : LOOK_OFTEN_MS);
        reap_ended(r);
        forward_stop(r);
        end_other_ranks(r);
    }
    return run_exit_code(r);
}

static ndp_status run_all(launch_run *r, int *exit_code) {
    const ndp_launch_opts *o = r->opts;
    r->ranks = calloc((size_t)o->ranks, sizeof *r->ranks);
    r->ends = calloc((size_t)o->ranks, sizeof *r->ends);
    NDP_CHECK_MEMORY(r->ranks && r->ends, "for %d ranks", o->ranks);
    NDP_TRY(ndp_shm_world_create(o->ranks, &r->world));
    for (int k = 0; k < o->ranks; k++) {
        ndp_status st = start_rank(r, k);
        if (st != NDP_OK) {
            kill_all(r);
            return st;
        }
    }
    *exit_code = wait_for_all(r);
    return NDP_OK;
}

ndp_status ndp_launch_on_host(const ndp_launch_opts *o, int *exit_code) {
    launch_run r = {.opts = o, .first = -1};
    ndp_status st = run_all(&r, exit_code);
    ndp_shm_world_destroy(r.world);
    free(r.ranks);
    free(r.ends);
    return st;
}
