/* Starting the ranks of one host: children of this process that share one file (comm/node/shm_world.h).
 *
 * The ranks are in the process group of their parent, so signals from the terminal reach all of them. The parent polls
 * the process descriptors of the ranks. When a rank ends with an error, the parent writes that into the shared file,
 * where the other ranks find it in their next wait. Ranks that are not waiting get SIGTERM after GRACE_SECONDS and
 * SIGKILL after GRACE_SECONDS more. The exit code is that of the rank that failed first.
 *
 * The parent also looks at the ranks in /proc: in whatever place of the run one is stopped, tokenizing or behind the
 * last collective, it is named at once, and ends the run once it has been stopped for the time that a wait may last. */
#include "base/child.h"
#include "base/clock.h"
#include "base/log.h"
#include "comm/node/shm_world.h"
#include "comm/watch/neighbour.h"
#include "comm/watch/wait.h"
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
    bool said;  /* it was stopped, and has left the world as all do */
    bool gone;  /* it failed before its process ended, which has no code of its own */
    ndp_neighbour seen;
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
    double next_look;
    double limit; /* seconds for which a rank may be stopped */
} launch_run;

/* ---- ends ---- */

/* Writes how a rank ended to `out`; `last`: what it did last. */
static void describe_end(int number, pid_t pid, int status, const char *last, char *out, size_t size) {
    if (WIFSIGNALED(status))
        snprintf(out, size, "rank %d (process %d) was killed by signal %d (%s)%s%s", number, (int)pid, WTERMSIG(status),
                 strsignal(WTERMSIG(status)), last,
                 WTERMSIG(status) == SIGKILL ? "; if you did not kill it, memory ran out: see `train --dry-run`" : "");
    else
        snprintf(out, size,
                 "rank %d (process %d) ended with code %d, and not by an error of ndparallel; what it printed, if "
                 "anything, says why%s",
                 number, (int)pid, WEXITSTATUS(status), last);
}

/* Codes up to 2 are those of a rank that has said why: it has recorded its failure, or has failed before it joined, or
 * after it left. In the middle of the run it was an exit() of the user's code, or of a library. */
static bool has_said_why(const launch_run *r, int number) {
    return r->ranks[number].code <= 2 && (ndp_shm_world_failed(r->world) >= 0 || ndp_shm_world_left(r->world, number) ||
                                          !ndp_shm_world_joined(r->world, number));
}

static bool is_stopping(const launch_run *r) { return r->opts->stop && *r->opts->stop; }

static void note_failure(launch_run *r, int number, pid_t pid, int status) {
    char text[720], last[320];
    bool unreported = !has_said_why(r, number);
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
    it->code = it->gone ? 1 : ndp_child_code(status);
    r->left--;
    if (r->ends[number].fd >= 0)
        close(r->ends[number].fd);
    r->ends[number].fd = -1;
    bool stopped = WIFEXITED(status) && it->code == STOPPED && ndp_shm_world_left(r->world, number);
    it->said = stopped;
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

/* ---- ranks that are stopped ---- */

/* Ends the run for a rank whose process has not ended, or was not the one that was started. */
static void fail_rank(launch_run *r, int number, const char *what) {
    char text[720], last[320];
    snprintf(text, sizeof text, "%s%s", what, ndp_shm_world_last(r->world, number, last, sizeof last));
    r->first = number;
    r->first_ended = ndp_now();
    r->ranks[number].gone = true;
    if (ndp_shm_world_failed(r->world) < 0 && r->opts->report)
        r->opts->report(r->opts->user, text);
    ndp_shm_world_ended(r->world, number, strchr(text, '('));
}

/* The end of a child is heard of by itself; a child's child may have joined in its place. */
static void look_at_rank(launch_run *r, int number, double now) {
    const ndp_launch_opts *o = r->opts;
    child_rank *it = &r->ranks[number];
    pid_t joined = ndp_shm_world_process(r->world, number), process = joined ? joined : it->pid;
    char who[64], text[320];
    if (it->seen.process != process)
        it->seen = (ndp_neighbour){.process = process};
    ndp_neighbour_news news = ndp_neighbour_look(&it->seen, now, r->limit);
    ndp_neighbour_name(number, NULL, process, who, sizeof who);
    ndp_neighbour_text(news, &it->seen, who, r->limit, text, sizeof text);
    if (news == NDP_NEIGHBOUR_STOPPED || news == NDP_NEIGHBOUR_GOES_ON)
        ndp_say(o->say, o->user, "%s%s", news == NDP_NEIGHBOUR_STOPPED ? "warning: " : "", text);
    else if (news == NDP_NEIGHBOUR_STOPPED_LONG)
        fail_rank(r, number, text);
    else if (news == NDP_NEIGHBOUR_ENDED && joined && joined != it->pid && !ndp_shm_world_left(r->world, number)) {
        snprintf(text, sizeof text, "%s has died, and the program that started it goes on", who);
        fail_rank(r, number, text);
    }
}

static void look_at_ranks(launch_run *r) {
    double now = ndp_now();
    if (now < r->next_look)
        return;
    r->next_look = now + NDP_LOOK_SECONDS;
    for (int k = 0; k < r->opts->ranks && r->first < 0; k++)
        if (r->ranks[k].pid)
            look_at_rank(r, k, now);
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

/* Whether a signal that only asks a rank to stop ended it, which had no handler yet. SIGINT's code is that of a stop.
 */
static bool stopped_early(int code) { return code == 128 + SIGUSR1 || code == 128 + SIGHUP || code == 128 + SIGTERM; }

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

/* Rank 0 says that a run was stopped before it leaves the world; a rank that ends earlier says nothing. The signal may
 * have come to a rank alone. */
static void note_unsaid(const launch_run *r, int code) {
    if (r->opts->unsaid && code == STOPPED && !r->ranks[0].said)
        *r->opts->unsaid = true;
}

static int wait_for_all(launch_run *r) {
    bool polled = true; /* the system wakes us when a rank ends */
    for (int k = 0; k < r->opts->ranks; k++)
        polled &= r->ends[k].fd >= 0;
    while (r->left > 0) {
        poll(r->ends, (nfds_t)r->opts->ranks, polled ? LOOK_MS : LOOK_OFTEN_MS);
        reap_ended(r);
        forward_stop(r);
        look_at_ranks(r);
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
    note_unsaid(r, *exit_code);
    ndp_shm_world_write_journals(r->world);
    return NDP_OK;
}

ndp_status ndp_launch_on_host(const ndp_launch_opts *o, int *exit_code) {
    launch_run r = {.opts = o, .first = -1};
    if (ndp_wait_limit(&r.limit) != NDP_OK)
        r.limit = NDP_WAIT_SECONDS; /* the ranks say what is wrong */
    ndp_status st = run_all(&r, exit_code);
    ndp_shm_world_destroy(r.world);
    free(r.ranks);
    free(r.ends);
    return st;
}
