/* ndparallel train: runs a job in this process, in ranks that it launches, or as one rank of a world already launched.
 */
#include "cli/commands.h"
#include "cli/events.h"
#include "cli/progress.h"
#include "cli/ranks.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- arguments ---- */

typedef struct train_arguments {
    cli_job job;
    bool resume, dry, no_data, json, profile, oversubscribe, elastic;
    int per_node, restarts;
    long long resume_from; /* -1: the newest */
    int64_t trace_first, trace_last;
    const char *hostfile, *trace, *cluster, *placement;
    cli_list accept;
} train_arguments;

/* The last --resume or --resume-from counts: --restarts appends one, for the newest. */
static void resume(void *arguments, struct argp_state *state, const char *step) {
    train_arguments *a = arguments;
    a->resume = true;
    a->resume_from = step ? cli_integer(state, "--resume-from", step, 0, LLONG_MAX) : -1;
}

static void trace_steps(void *arguments, struct argp_state *state, const char *steps) {
    train_arguments *a = arguments;
    cli_steps(state, "--trace-steps", steps, &a->trace_first, &a->trace_last);
}

static const char *placements(void) { return "given, best"; }

static const cli_option options[] = {
    {"resume", 0, NULL, "Resume from the newest checkpoint in the run folder", CLI_CALL(resume)},
    {"resume-from", 0, "STEP", "Resume from the checkpoint of this step; newer ones are set aside, not overwritten",
     CLI_CALL(resume)},
    {"accept", 0, "KEY",
     "With --resume: allow KEY (such as optimizer.lr) to differ from the checkpoint. May be repeated",
     CLI_LIST(train_arguments, accept)},
    {"restarts", 0, "N",
     "If a rank dies, start the ranks again from the newest checkpoint, up to N times. With --resume, also take over "
     "the run folder from a run on another host that has shown no sign of life for 30 s",
     CLI_INT(train_arguments, restarts, 1, 1 << 20)},
    {"oversubscribe", 0, NULL,
     "With --restarts and --hostfile: where the hosts that are left have too few slots, a slot takes two ranks",
     CLI_FLAG(train_arguments, oversubscribe)},
    {"elastic", 0, NULL,
     "With --restarts and --hostfile: where the hosts that are left have too few slots, the run goes on with fewer "
     "ranks, on the nearest legal layout, with the same global batch",
     CLI_FLAG(train_arguments, elastic)},
    {"hostfile", 0, "FILE", "Start the ranks with mpirun on these hosts, one per line (node-1 slots=8)",
     CLI_TEXT(train_arguments, hostfile)},
    {"placement", 0, "HOW",
     "Which host a rank runs on: given, in the hosts' order, or best, so that the axes with the most traffic cross the "
     "fewest and fastest links",
     CLI_TEXT(train_arguments, placement), .choices = placements},
    {"cluster", 0, "FILE",
     "A cluster.yaml of these hosts (`ndparallel topology` writes one): after 20 steps, says how long a step takes by "
     "its "
     "plan and how long it took; has the links for --placement best (default: measure them), and the devices for "
     "--dry-run",
     CLI_TEXT(train_arguments, cluster)},
    {"dry-run", 0, NULL,
     "Check the job, read the beginning of its data, and show the memory that one rank needs and what it sends; no "
     "training",
     CLI_FLAG(train_arguments, dry)},
    {"no-data", 0, NULL, "With --dry-run: open neither the data nor the tokenizer", CLI_FLAG(train_arguments, no_data)},
    {"ranks-per-node", 0, "N", "With --dry-run: ranks per node; default: one node for up to 8 ranks, else 8 per node",
     CLI_INT(train_arguments, per_node, 1, 1 << 20)},
    {"json", 0, NULL,
     "Print the lines of metrics.jsonl, and an object of JSON for each event; with --dry-run the result, as one line",
     CLI_FLAG(train_arguments, json)},
    CLI_JOB_DEVICE,
    {"trace", 0, "FILE",
     "Record when each rank does what in the last step, as a picture (FILE.svg) or Chrome trace events (FILE.json)",
     CLI_TEXT(train_arguments, trace)},
    {"trace-steps", 0, "A-B", "With --trace: record the steps A to B instead; a picture shows the last of them",
     CLI_CALL(trace_steps)},
    {"profile", 0, NULL,
     "At the end, show where the time of the steps went: ops, collectives, and the rank that the others wait for",
     CLI_FLAG(train_arguments, profile)},
    {0},
};

static bool is_placed(const train_arguments *a) { return a->placement && strcmp(a->placement, "best") == 0; }

static void check_arguments(void *arguments, struct argp_state *state) {
    const train_arguments *a = arguments;
    if (a->no_data && !a->dry)
        cli_refuse(state, "--no-data needs --dry-run: a real run needs its data");
    if (a->trace && a->dry)
        cli_refuse(state, "--trace records a real step, --dry-run has none: use `plan --timeline FILE`");
    if (a->trace_first && !a->trace)
        cli_refuse(state, "--trace-steps needs --trace FILE");
    if (a->profile && a->dry)
        cli_refuse(state, "--profile times real steps, --dry-run has none");
    const char *how = a->placement;
    if (how && strcmp(how, "given") != 0 && strcmp(how, "best") != 0)
        cli_refuse(state, "--placement '%s': expected given or best", how);
    if (a->cluster && a->dry && a->per_node)
        cli_refuse(state,
                   "--ranks-per-node and --cluster both say how many ranks a node has: leave out one of the two");
    if (a->json && is_placed(a) && !a->cluster && !a->dry)
        cli_refuse(state,
                   "--json and --placement best: give --cluster FILE, which `ndparallel topology -o FILE` writes");
    const char *left = a->elastic ? "--elastic" : a->oversubscribe ? "--oversubscribe" : NULL;
    if (left && !a->restarts)
        cli_refuse(state, "%s needs --restarts N: it says what a restart does with fewer slots", left);
    if (left && !a->hostfile)
        cli_refuse(state, "%s needs --hostfile: on one host all ranks start again where they were", left);
    if (a->accept.n && !a->resume)
        cli_refuse(state, "--accept needs --resume: only a resumed run can differ from a checkpoint");
}

/* ---- ranks ---- */

typedef struct train_run {
    const train_arguments *arguments;
    cli_ranks ranks;
    cli_progress progress;
    cli_events events; /* instead, with --json */
    bool first;        /* rank 0 has run in this process */
    bool held;         /* and held the run folder at its end */
} train_run;

/* Rank 0 draws the live line; the others erase it before they write to the terminal. */
static void clear_terminal(void *user, int rank) {
    train_run *r = user;
    if (r->arguments->json)
        return;
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
    o.accept = r->arguments->accept.items;
    o.accept_count = r->arguments->accept.n;
    o.await = r->arguments->restarts > 0 || getenv("SLURM_JOB_ID");
    o.trace = r->arguments->trace;
    o.trace_first = r->arguments->trace_first;
    o.trace_last = r->arguments->trace_last;
    o.profile = r->arguments->profile;
    o.held = &r->held;
    o.cluster = is_placed(r->arguments) ? NULL : r->arguments->cluster; /* a plan has the ranks in the order of nodes */
    o.stop = r->ranks.stop;
    o.progress = cli_progress_step;
    o.say = cli_progress_say;
    o.working = cli_progress_working;
    o.user = &r->progress;
    if (r->arguments->json) {
        o.progress = cli_events_step;
        o.say = cli_events_say;
        o.working = NULL;
        o.user = &r->events;
    }
    if (ndp_world_rank(w) == 0) /* ranks may be threads */
        r->first = true;
    ndp_status st = ndp_train(r->arguments->job.config, w, &o);
    if (ndp_world_rank(w) == 0 && r->arguments->json)
        cli_events_end(&r->events, st);
    else if (ndp_world_rank(w) == 0)
        cli_progress_end(&r->progress);
    return st;
}

/* ---- the command ---- */

static int dry_run(const train_arguments *a) {
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    o.ranks_per_node = a->per_node;
    o.cluster = a->cluster;
    o.data = !a->no_data;
    o.json = a->json;
    o.as_run = true;
    if (ndp_world_launched(NULL) && ndp_world_launched_rank() != 0)
        return 0; /* only rank 0 prints */
    char *text = NULL;
    ndp_status st = ndp_plan(a->job.config, &o, &text);
    return cli_print(st, text, a->job.debug);
}

/* How the job prints its steps: train.log_every (0: auto), and whether it holds data out. */
static ndp_status read_logging(const ndp_config *c, int *every, bool *held) {
    static const char *const keys[] = {"train.log_every", "data.validation_fraction", "data.validation_files"};
    double value[3] = {0};
    for (int i = 0; i < 3; i++) {
        char *text;
        ndp_status st = ndp_config_get(c, keys[i], &text);
        if (st != NDP_OK)
            return st;
        value[i] = i < 2 ? atof(text) : strcmp(text, "[]") != 0;
        free(text);
    }
    *every = (int)value[0];
    *held = value[1] > 0 || value[2] > 0;
    return NDP_OK;
}

/* ---- placement ---- */

/* Measures the links of the hosts, and writes a cluster.yaml to the run folder; its path is the caller's. */
static int measure_links(const train_arguments *a, char **path) {
    ndp_launch_opts o = NDP_LAUNCH_OPTS_INIT;
    char program[PATH_MAX] = "";
    ndp_status st = ndp_topology_ranks(a->hostfile, &o.ranks);
    if (st == NDP_OK)
        st = ndp_run_folder_file(a->job.config, "cluster.yaml", path);
    if (st != NDP_OK)
        return cli_fail(st, a->job.debug);
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    char *command[] = {n > 0 ? program : "ndparallel", "topology", "--quick", "-o", *path, NULL};
    o.argv = command;
    o.hostfile = a->hostfile;
    fflush(stdout);
    return cli_launch(&o, false, a->job.debug, NULL, NULL);
}

/* A folder of another run is not written to: the ranks refuse it. */
static bool is_of_another_run(const train_arguments *a) {
    char *job = NULL;
    bool is = !a->resume && ndp_run_folder_file(a->job.config, "job.yaml", &job) == NDP_OK && access(job, F_OK) == 0;
    free(job);
    return is;
}

/* Sets *hosts and *text; what cannot be placed is an error before anything is measured. */
static int choose_hosts(const train_arguments *a, const char *cluster, char ***hosts, char **text) {
    ndp_status st = ndp_place_ranks(a->job.config, a->hostfile, cluster, hosts, text);
    return st == NDP_OK ? 0 : cli_fail_early(st, a->job.debug);
}

/* Ranks that srun has started stay where they are: rank 0 prints what is better. */
static int print_better(const train_arguments *a) {
    char **hosts, *text;
    int code = ndp_world_launched_rank() == 0 ? choose_hosts(a, a->cluster, &hosts, &text) : -1;
    if (code != 0)
        return code < 0 ? 0 : code;
    fprintf(a->json ? stderr : stdout, "%splacement: these ranks are placed already; give srun that order\n", text);
    ndp_rank_hosts_free(hosts);
    free(text);
    return 0;
}

/* Sets *hosts to the host of each rank; NULL: they stay as they are. */
static int place_ranks(const train_arguments *a, char ***hosts) {
    char *text = NULL, *measured = NULL;
    *hosts = NULL;
    if (!is_placed(a) || getenv("NDP_LAUNCHED") || is_of_another_run(a))
        return 0;
    if (ndp_world_launched(NULL))
        return print_better(a);
    int code = choose_hosts(a, a->cluster, hosts, &text);
    if (code == 0 && !a->cluster) {
        ndp_rank_hosts_free(*hosts);
        free(text);
        *hosts = NULL;
        code = measure_links(a, &measured);
        if (code == 0)
            code = choose_hosts(a, measured, hosts, &text);
    }
    if (code == 0) {
        fputs(text, a->json ? stderr : stdout);
        free(text);
        fflush(stdout);
    }
    free(measured);
    return code;
}

/* The page about the run, however it has ended, once it has taken a step and if its folder was not taken over. Without
 * it the run is the same: after another error this one is not worth a message. */
static void write_report(const train_run *r, int code) {
    char *page = NULL, *run = NULL;
    if (!r->first || !r->held || (r->arguments->json ? r->events.before.step : r->progress.taken) == 0)
        return;
    ndp_status st = ndp_run_folder_file(r->arguments->job.config, "report.html", &page);
    if (st == NDP_OK && (run = strdup(page))) {
        *strrchr(run, '/') = '\0';
        st = ndp_runs_report((const char *const *)&run, 1, page);
    }
    if (st != NDP_OK || !run) {
        if (code == 0)
            cli_error(0, "the run has no report: %s", st == NDP_OK ? strerror(ENOMEM) : ndp_error_message());
    } else if (!r->arguments->json) {
        ndp_str line = {0};
        ndp_str_addf(&line, "report: %s\n", page);
        cli_print_fitting(&line);
    }
    free(page);
    free(run);
}

static int train_ranks(const train_arguments *a, int every, bool held, int argc, char **argv) {
    char **hosts;
    int code = place_ranks(a, &hosts);
    if (code)
        return code;
    train_run r = {.arguments = a};
    r.ranks = (cli_ranks){.argc = argc,
                          .argv = argv,
                          .command = "train",
                          .hostfile = a->hostfile,
                          .rank_hosts = (const char *const *)hosts,
                          .debug = a->job.debug,
                          .saves = true,
                          .restarts = a->restarts,
                          .oversubscribe = a->oversubscribe,
                          .elastic = a->elastic,
                          .body = train_rank,
                          .clear = clear_terminal,
                          .user = &r};
    if (a->json)
        cli_events_init(&r.events);
    else
        cli_progress_init(&r.progress, every, held);
    r.ranks.live = r.progress.columns > 0;
    code = cli_ranks_run(&r.ranks, a->job.config);
    write_report(&r, code);
    ndp_rank_hosts_free(hosts);
    return code;
}

static int train_job(const train_arguments *a, int argc, char **argv) {
    const ndp_config *c = a->job.config;
    if (a->dry)
        return dry_run(a);
    int every;
    bool held;
    ndp_status st = read_logging(c, &every, &held);
    if (st == NDP_OK && !ndp_world_launched(NULL))
        st = ndp_run_folder_check(c); /* before any rank is started */
    return st == NDP_OK ? train_ranks(a, every, held, argc, argv) : cli_fail_early(st, a->job.debug);
}

static int run(const cli_command *c, int argc, char **argv) {
    train_arguments a = {.resume_from = -1};
    cli_end_on_early_stop();
    cli_parse(c, argc, argv, &a);
    ndp_status st = cli_job_load(&a.job);
    int code = st == NDP_OK ? train_job(&a, argc, argv) : cli_fail_early(st, a.job.debug);
    cli_job_release(&a.job);
    free(a.accept.items);
    return code;
}

const cli_command cmd_train = {
    .name = "train",
    .about = "train a model from a job file",
    .usage = "JOB.YAML",
    .help = "Train a model as described by a job file. Starts the ranks of the job, on several hosts with mpirun, "
            "or joins the ranks that mpirun or srun started.",
    .options = options,
    .takes_job = true,
    .check = check_arguments,
    .examples = {"ndparallel train job.yaml --dry-run", "ndparallel train job.yaml --ranks 2 --set optimizer.lr=1e-4"},
    .run = run};
