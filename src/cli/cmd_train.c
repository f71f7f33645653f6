/* ndparallel train: in this process, in ranks that it launches, or as one rank of a world that was launched. */
#include "cli/cli.h"
#include "cli/progress.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- arguments ---- */

enum { OPTION_RESUME = 1, OPTION_HOSTFILE, OPTION_DRY, OPTION_PER_NODE };

static const struct argp_option options[] = {
    {"resume", OPTION_RESUME, NULL, 0, "Goes on from the newest checkpoint of the run folder", 0},
    {"hostfile", OPTION_HOSTFILE, "FILE", 0, "Hosts for mpirun, one a line", 0},
    {"dry-run", OPTION_DRY, NULL, 0, "Shows what one rank needs and sends, and ends", 0},
    {"ranks-per-node", OPTION_PER_NODE, "N", 0, "For --dry-run; default: all on one node up to 8, else 8", 0},
    {0},
};

typedef struct arguments {
    cli_job job;
    bool resume, dry;
    int per_node;
    const char *hostfile;
} arguments;

static error_t parse(int key, char *arg, struct argp_state *state) {
    arguments *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->job;
        return 0;
    case OPTION_RESUME:
        a->resume = true;
        return 0;
    case OPTION_HOSTFILE:
        a->hostfile = arg;
        return 0;
    case OPTION_DRY:
        a->dry = true;
        return 0;
    case OPTION_PER_NODE:
        a->per_node = (int)cli_integer(state, "--ranks-per-node", arg, 1, 1 << 20);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- ranks ---- */

typedef struct run {
    const arguments *arguments;
    const ndp_config *config;
    const volatile sig_atomic_t *stop;
    cli_progress progress;
    atomic_bool joined, told; /* a rank of this process came to its body; the user knows why the run failed */
} run;

/* One rank tells: of a failure the first one that had it, of a stop rank 0. */
static void tell(run *r, ndp_world *w, ndp_status st) {
    char who[32] = "";
    int rank = ndp_world_rank(w);
    if (st == NDP_EINTR ? rank != 0 : !ndp_world_fail(w))
        return;
    atomic_store(&r->told, true);
    if (rank == 0)
        cli_progress_end(&r->progress);
    else if (r->progress.columns)
        fputs("\r\033[K", stderr); /* rank 0 may have a live line there */
    if (ndp_world_size(w) > 1 && st != NDP_EINTR && strncmp(ndp_error_message(), "rank ", 5) != 0)
        snprintf(who, sizeof who, "rank %d: ", rank);
    cli_fail_of(who, st, r->arguments->job.debug);
}

static ndp_status body(ndp_world *w, void *arg) {
    run *r = arg;
    ndp_train_opts o = NDP_TRAIN_OPTS_INIT;
    atomic_store(&r->joined, true);
    o.resume = r->arguments->resume;
    o.stop = r->stop;
    o.progress = cli_progress_step;
    o.say = cli_progress_say;
    o.working = cli_progress_working;
    o.user = &r->progress;
    ndp_status st = ndp_train(r->config, w, &o);
    if (st != NDP_OK)
        tell(r, w, st);
    return st;
}

/* The launcher ends all ranks when the first one ends with an error, and takes its exit code: a rank that has nothing
 * to say lets the one go first that has. True when nobody did. */
static bool nobody_spoke(void) {
    enum { SECONDS = 2 };
    return sleep(SECONDS) == 0; /* else ended by the launcher's SIGTERM */
}

/* An error before the ranks met: most likely all have it. */
static int fail_early(ndp_status st, bool debug) {
    bool other = ndp_world_launched(NULL) && ndp_world_launched_rank() != 0;
    return !other || nobody_spoke() ? cli_fail(st, debug) : cli_exit_code(st);
}

static int run_ranks(const arguments *a, const ndp_config *c, int every) {
    run r = {.arguments = a, .config = c, .stop = cli_catch_signals()};
    cli_progress_init(&r.progress, every);
    ndp_status st = ndp_world_run(c, body, &r);
    cli_progress_end(&r.progress);
    if (st == NDP_OK || atomic_load(&r.told))
        return cli_exit_code(st);
    if (!ndp_world_launched(NULL) || !atomic_load(&r.joined))
        return fail_early(st, a->job.debug);
    if (st != NDP_EINTR)
        (void)nobody_spoke(); /* the rank that failed did, or will */
    return cli_exit_code(st);
}

/* ---- launching them ---- */

/* This program again, with the same arguments: the ranks notice that they were launched. */
static char **same_command(int argc, char **argv, char program[PATH_MAX]) {
    char **again = calloc((size_t)argc + 2, sizeof *again);
    ssize_t n = readlink("/proc/self/exe", program, PATH_MAX - 1);
    if (!again || n < 0) {
        fprintf(stderr, "ndparallel: cannot find out what this program is: %s\n", strerror(errno));
        free(again);
        return NULL;
    }
    program[n] = '\0';
    again[0] = program;
    again[1] = "train";
    memcpy(again + 2, argv + 1, sizeof *again * (size_t)(argc - 1));
    return again;
}

static int launch(const arguments *a, int ranks, int argc, char **argv) {
    char program[PATH_MAX], **command = same_command(argc, argv, program);
    ndp_launch_opts o = NDP_LAUNCH_OPTS_INIT;
    o.ranks = ranks;
    o.hostfile = a->hostfile;
    o.argv = command;
    int code = command ? cli_launch(&o, a->job.debug) : 1;
    free(command);
    return code;
}

/* ---- the command ---- */

static int dry_run(const arguments *a, const ndp_config *c) {
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    o.ranks_per_node = a->per_node;
    char *text = NULL;
    ndp_status st = ndp_plan(c, &o, &text);
    return cli_print(st, text, a->job.debug);
}

static ndp_status log_every(const ndp_config *c, int *every) {
    char *text;
    ndp_status st = ndp_config_get(c, "train.log_every", &text);
    if (st != NDP_OK)
        return st;
    *every = atoi(text);
    free(text);
    return NDP_OK;
}

static int train(const arguments *a, const ndp_config *c, int argc, char **argv) {
    if (a->dry)
        return dry_run(a, c);
    int ranks, every;
    ndp_status st = ndp_launch_ranks(c, &ranks);
    if (st == NDP_OK)
        st = log_every(c, &every);
    if (st != NDP_OK)
        return fail_early(st, a->job.debug);
    return ranks == 0 ? run_ranks(a, c, every) : launch(a, ranks, argc, argv);
}

int cmd_train(int argc, char **argv) {
    static const struct argp_child children[] = {{&cli_job_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        options,
        parse,
        "JOB.YAML",
        "Trains a model as a job file says. Starts its ranks with mpirun, or joins those that mpirun or srun started.",
        children,
        NULL,
        NULL};
    arguments a = {0};
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    ndp_config *c = NULL;
    ndp_status st = cli_job_load(&a.job, &c);
    int code = st == NDP_OK ? train(&a, c, argc, argv) : fail_early(st, a.job.debug);
    ndp_config_destroy(c);
    cli_job_release(&a.job);
    return code;
}
