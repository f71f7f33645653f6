/* Running the ranks of a job, and reporting an error exactly once.
 *
 * In a world, the first rank to fail reports (ndp_world_fail). Before ranks have joined, rank 0 reports and the others
 * wait a moment for mpirun to end them; if that does not happen, they also report. */
#include "cli/ranks.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- errors ---- */

/* Prints the error on one rank only: the first that failed, or rank 0 if the run was stopped. */
static void report_failure(cli_ranks *r, ndp_world *w, ndp_status st) {
    char who[32] = "";
    int rank = ndp_world_rank(w);
    if (st == NDP_EINTR ? rank != 0 : !ndp_world_fail(w))
        return;
    atomic_store(&r->reported, true);
    if (r->clear)
        r->clear(r->user, rank);
    if (ndp_world_size(w) > 1 && st != NDP_EINTR && strncmp(ndp_error_message(), "rank ", 5) != 0)
        snprintf(who, sizeof who, "rank %d: ", rank);
    cli_fail_of(who, st, r->debug);
}

/* mpirun ends all ranks when the first one ends with an error, and takes its exit code. So a rank without an error of
 * its own waits for that one. True if no rank ended the run meanwhile. */
static bool wait_for_failed_rank(void) {
    enum { SECONDS = 2 };
    return sleep(SECONDS) == 0; /* or SIGTERM from mpirun ends this process */
}

/* What the tasks of an srun cannot but all find, and srun does not end the others: rank 0 alone reports it. */
static bool is_of_all(void) { return strncmp(ndp_error_message(), "srun started ", 13) == 0; }

int cli_fail_early(ndp_status st, bool debug) {
    bool other = ndp_world_launched(NULL) && ndp_world_launched_rank() != 0;
    if (other && is_of_all())
        return ndp_exit_code(st);
    return !other || wait_for_failed_rank() ? cli_fail(st, debug) : ndp_exit_code(st);
}

/* ---- ranks of this process ---- */

static ndp_status run_rank(ndp_world *w, void *arg) {
    cli_ranks *r = arg;
    if (strcmp(ndp_world_transport(w), "mpi") == 0)
        atomic_store(&r->by_mpi, true);
    atomic_store(&r->joined, true);
    ndp_status st = r->body(w, r->user);
    if (st != NDP_OK)
        report_failure(r, w, st);
    return st;
}

static int run_here(cli_ranks *r, const ndp_config *c) {
    if (r->saves)
        r->stop = cli_catch_signals(r->live && !ndp_world_launched(NULL));
    else
        cli_end_on_signal();
    ndp_status st = ndp_world_run(c, run_rank, r);
    /* Where mpirun is a child of ours: at another code it would kill the ranks that still save, or wait for a minute in
     * a batch job. The parent has read what rank 0 said (launch/mpirun_watch.c), unless mpirun wrote it to a terminal.
     */
    if (st == NDP_EINTR && r->by_mpi && getenv("NDP_LAUNCHED") && !isatty(STDERR_FILENO))
        return 0;
    if (st == NDP_OK || atomic_load(&r->reported))
        return ndp_exit_code(st);
    if (!ndp_world_launched(NULL) || !atomic_load(&r->joined))
        return cli_fail_early(st, r->debug);
    if (st != NDP_EINTR && r->by_mpi)
        (void)wait_for_failed_rank(); /* which has reported, or will */
    return ndp_exit_code(st);
}

/* ---- launched ranks ---- */

/* What a start after the first one differs in. */
typedef struct another_start {
    int number; /* 0: the first one */
    ndp_restart at;
} another_start;

/* The command line of this process; of another start with its settings and --resume appended. The ranks notice that
 * they are launched. */
static char **same_command(const cli_ranks *r, const another_start *start, char program[PATH_MAX]) {
    int words = r->argc + 1;
    char **again = calloc((size_t)(words + 2 * start->at.n_settings) + 2, sizeof *again);
    ssize_t n = readlink("/proc/self/exe", program, PATH_MAX - 1);
    if (!again || n < 0) {
        cli_error(1, "cannot find this program's own path: %s", strerror(errno));
        free(again);
        return NULL;
    }
    program[n] = '\0';
    again[0] = program;
    again[1] = (char *)(uintptr_t)r->command;
    memcpy(again + 2, r->argv + 1, sizeof *again * (size_t)(r->argc - 1));
    for (int i = 0; i < start->at.n_settings; i++) {
        again[words++] = (char *)(uintptr_t) "--set";
        again[words++] = (char *)(uintptr_t)start->at.settings[i].text;
    }
    again[words] = (char *)(uintptr_t)(start->number ? "--resume" : NULL); /* last, so that it replaces --resume-from */
    return again;
}

static int launch_ranks(const cli_ranks *r, const ndp_config *c, const another_start *start, ndp_launch_opts o,
                        ndp_strings *lost) {
    char program[PATH_MAX], **command = same_command(r, start, program);
    o.hostfile = r->hostfile;
    o.rank_hosts = start->at.rank_hosts ? (const char *const *)start->at.rank_hosts : r->rank_hosts;
    o.ranks = start->at.ranks ? start->at.ranks : o.ranks;
    o.starts = start->number;
    o.argv = command;
    int code = command ? cli_launch(&o, r->live, r->debug, r->saves ? c : NULL, lost) : 1;
    free(command);
    return code;
}

/* Whether to restart: not after an error of the user, and not after a Ctrl-C. */
static bool has_died(int code) { return code != 0 && code != 2 && code != ndp_exit_code(NDP_EINTR); }

/* Where the ranks start again. False: nowhere, which is said. */
static bool find_restart(const cli_ranks *r, const ndp_config *c, const ndp_strings *lost, ndp_restart *out) {
    ndp_restart_opts o = NDP_RESTART_OPTS_INIT;
    o.hostfile = r->hostfile;
    o.rank_hosts = r->rank_hosts;
    o.lost = (const char *const *)lost->items;
    o.n_lost = lost->n;
    o.oversubscribe = r->oversubscribe;
    o.elastic = r->elastic;
    ndp_status st = r->hostfile ? ndp_restart_find(c, &o, out) : NDP_OK;
    return st == NDP_OK || (cli_fail(st, r->debug), false);
}

static int launch_with_restarts(const cli_ranks *r, const ndp_config *c, const ndp_launch_opts *o) {
    ndp_strings lost = {0};
    another_start start = {0};
    int code = launch_ranks(r, c, &start, *o, &lost);
    while (start.number < r->restarts && has_died(code)) {
        ndp_restart_release(&start.at);
        if (!find_restart(r, c, &lost, &start.at))
            break;
        start.number++;
        fprintf(cli_is_json() ? stderr : stdout, "restart %d of %d: the ranks ended with code %d%s%s\n", start.number,
                r->restarts, code, start.at.text ? "; " : "", start.at.text ? start.at.text : "");
        fflush(stdout);
        code = launch_ranks(r, c, &start, *o, &lost);
    }
    ndp_restart_release(&start.at);
    ndp_strings_release(&lost);
    return code;
}

/* Ranks of a command without a job are processes, also if there is one. */
static ndp_status read_launch(const cli_ranks *r, const ndp_config *c, ndp_launch_opts *o) {
    if (r->ranks == 0)
        return ndp_launch_opts_read(c, o);
    *o = (ndp_launch_opts)NDP_LAUNCH_OPTS_INIT;
    o->ranks = ndp_world_launched(NULL) ? 0 : r->ranks;
    return NDP_OK;
}

int cli_ranks_run(cli_ranks *r, const ndp_config *c) {
    ndp_launch_opts o;
    ndp_status st = read_launch(r, c, &o);
    if (st == NDP_OK && !r->hostfile && !ndp_world_launched(NULL))
        st = ndp_device_check(c); /* the ranks run on this host */
    if (st != NDP_OK)
        return cli_fail_early(st, r->debug);
    if (o.ranks == 0 && r->restarts && !ndp_world_launched(NULL))
        cli_error(0, "--restarts only works for ranks that are separate processes; this run is one process and will "
                     "not be restarted");
    return o.ranks == 0 ? run_here(r, c) : launch_with_restarts(r, c, &o);
}
