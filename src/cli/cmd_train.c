/* ndparallel train: runs a job in this process, in ranks that it launches, or as one rank of a world already launched.
 */
#include "cli/progress.h"
#include "cli/ranks.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- arguments ---- */

enum {
    OPTION_RESUME = 1,
    OPTION_RESUME_FROM,
    OPTION_ACCEPT,
    OPTION_RESTARTS,
    OPTION_HOSTFILE,
    OPTION_DRY,
    OPTION_NO_DATA,
    OPTION_PER_NODE
};

static const struct argp_option options[] = {
    {"resume", OPTION_RESUME, NULL, 0, "Resume from the newest checkpoint in the run folder", 0},
    {"resume-from", OPTION_RESUME_FROM, "STEP", 0,
     "Resume from the checkpoint of this step; newer ones are set aside, not overwritten", 0},
    {"accept", OPTION_ACCEPT, "KEY", 0,
     "With --resume: allow KEY (such as optimizer.lr) to differ from the checkpoint. May be repeated", 0},
    {"restarts", OPTION_RESTARTS, "N", 0,
     "If a rank dies, start the ranks again from the newest checkpoint, up to N times. With --resume, also take over "
     "the "
     "run folder from a run on another host that has shown no sign of life for 30 s",
     0},
    {"hostfile", OPTION_HOSTFILE, "FILE", 0,
     "Start the ranks with mpirun on these hosts, one per line (node-1 slots=8)", 0},
    {"dry-run", OPTION_DRY, NULL, 0,
     "Check the job, read the beginning of its data, and show the memory that one rank needs and what it sends; no "
     "training",
     0},
    {"no-data", OPTION_NO_DATA, NULL, 0, "With --dry-run: open neither the data nor the tokenizer", 0},
    {"ranks-per-node", OPTION_PER_NODE, "N", 0,
     "With --dry-run: ranks per node; default: one node for up to 8 ranks, else 8 per node", 0},
    {0},
};

typedef struct train_arguments {
    cli_job job;
    bool resume, dry, no_data;
    int per_node, restarts;
    long long resume_from; /* -1: the newest */
    const char *hostfile;
    const char **accept; /* owned */
    int accept_count;
} train_arguments;

static void add_accepted(train_arguments *a, const char *key, struct argp_state *state) {
    const char **more = realloc(a->accept, ((size_t)a->accept_count + 1) * sizeof *more);
    if (!more)
        argp_failure(state, 1, 0, "no memory for the arguments");
    a->accept = more;
    a->accept[a->accept_count++] = key;
}

static error_t parse_train(int key, char *arg, struct argp_state *state) {
    train_arguments *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->job;
        return 0;
    case OPTION_RESUME: /* the last --resume or --resume-from counts: --restarts appends one, for the newest */
        a->resume = true;
        a->resume_from = -1;
        return 0;
    case OPTION_ACCEPT:
        add_accepted(a, arg, state);
        return 0;
    case OPTION_RESTARTS:
        a->restarts = (int)cli_integer(state, "--restarts", arg, 1, 1 << 20);
        return 0;
    case OPTION_RESUME_FROM:
        a->resume = true;
        a->resume_from = cli_integer(state, "--resume-from", arg, 0, LLONG_MAX);
        return 0;
    case OPTION_HOSTFILE:
        a->hostfile = arg;
        return 0;
    case OPTION_DRY:
        a->dry = true;
        return 0;
    case OPTION_NO_DATA:
        a->no_data = true;
        return 0;
    case OPTION_PER_NODE:
        a->per_node = (int)cli_integer(state, "--ranks-per-node", arg, 1, 1 << 20);
        return 0;
    case ARGP_KEY_END:
        if (a->no_data && !a->dry)
            argp_error(state, "--no-data needs --dry-run: a real run needs its data");
        if (a->accept_count && !a->resume)
            argp_error(state, "--accept needs --resume: only a resumed run can differ from a checkpoint");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- ranks ---- */

typedef struct train_run {
    const train_arguments *arguments;
    const ndp_config *config;
    cli_ranks ranks;
    cli_progress progress;
} train_run;

/* Rank 0 draws the live line; the others erase it before they write to the terminal. */
static void clear_terminal(void *user, int rank) {
    train_run *r = user;
    if (rank == 0)
        cli_progress_end(&r->progress);
    else
        cli_progress_erase(&r->progress);
}

static ndp_status train_rank(ndp_world *w, void *user) {
    train_run *r = user;
    ndp_train_opts o = NDP_TRAIN_OPTS_INIT;
    o.resume = r->arguments->resume;
    o.resume_from = r->arguments->resume_from;
    o.accept = r->arguments->accept;
    o.accept_count = r->arguments->accept_count;
    o.await = r->arguments->restarts > 0 || getenv("SLURM_JOB_ID");
    o.stop = r->ranks.stop;
    o.progress = cli_progress_step;
    o.say = cli_progress_say;
    o.working = cli_progress_working;
    o.user = &r->progress;
    ndp_status st = ndp_train(r->config, w, &o);
    if (ndp_world_rank(w) == 0)
        cli_progress_end(&r->progress);
    return st;
}

/* ---- the command ---- */

static int dry_run(const train_arguments *a, const ndp_config *c) {
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    o.ranks_per_node = a->per_node;
    o.data = !a->no_data;
    if (ndp_world_launched(NULL) && ndp_world_launched_rank() != 0)
        return 0; /* only rank 0 prints */
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

static int train_job(const train_arguments *a, const ndp_config *c, int argc, char **argv) {
    if (a->dry)
        return dry_run(a, c);
    int every;
    ndp_status st = log_every(c, &every);
    if (st == NDP_OK && !ndp_world_launched(NULL))
        st = ndp_run_folder_check(c); /* before any rank is started */
    if (st != NDP_OK)
        return cli_fail_early(st, a->job.debug);
    train_run r = {.arguments = a, .config = c};
    r.ranks = (cli_ranks){.argc = argc,
                          .argv = argv,
                          .command = "train",
                          .hostfile = a->hostfile,
                          .debug = a->job.debug,
                          .saves = true,
                          .restarts = a->restarts,
                          .body = train_rank,
                          .clear = clear_terminal,
                          .user = &r};
    cli_progress_init(&r.progress, every);
    r.ranks.live = r.progress.columns > 0;
    return cli_ranks_run(&r.ranks, c);
}

int cmd_train(int argc, char **argv) {
    static const struct argp_child children[] = {{&cli_job_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {options,
                                     parse_train,
                                     "JOB.YAML",
                                     "Train a model as described by a job file. Starts the ranks of the job, on "
                                     "several hosts with mpirun, or joins the ranks that mpirun or srun started.",
                                     children,
                                     NULL,
                                     NULL};
    train_arguments a = {.resume_from = -1};
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    ndp_config *c = NULL;
    ndp_status st = cli_job_load(&a.job, &c);
    int code = st == NDP_OK ? train_job(&a, c, argc, argv) : cli_fail_early(st, a.job.debug);
    ndp_config_destroy(c);
    cli_job_release(&a.job);
    free(a.accept);
    return code;
}
