/* ndparallel plan: the memory, communication and program of one rank. */
#include "cli/commands.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct plan_arguments {
    cli_job job;
    ndp_plan_opts plan;
    const char *distribution;
    cli_list layouts, clusters;
    const char *nodes, *within;
    int numbers[64]; /* of nodes */
    bool passes;
} plan_arguments;

static const char *distributions(void) { return "block, cyclic"; }

static const cli_option options[] = {
    {"program", 0, NULL, "Print the step program and the unit programs, one instruction per line",
     CLI_FLAG(plan_arguments, plan.program)},
    {"rank", 0, "R", "The rank to show; default: 0, and with --program one rank of every pipeline stage",
     CLI_INT(plan_arguments, plan.rank, 0, (1 << 20) - 1)},
    {"ranks-per-node", 0, "N", "Ranks per node; default: one node for up to 8 ranks, else 8 per node",
     CLI_INT(plan_arguments, plan.ranks_per_node, 1, 1 << 20)},
    {"cluster", 0, "FILE|NxD:DEVICE",
     "Plan for a cluster.yaml (`ndparallel topology` writes one), or for N nodes of D built-in devices, such as "
     "2x8:h100-sxm: for its kind of device, whether it fits, which links the bytes take, and how long; several: with "
     "--search, whose results are one list",
     CLI_LIST(plan_arguments, clusters)},
    {"layout", 'l', "AXIS=SIZE,...",
     "A layout instead of the job's, such as tp=8,pp=4; ranks that are left go to dp_shard; may be repeated",
     CLI_LIST(plan_arguments, layouts)},
    {"search", 0, NULL,
     "With --cluster: the fastest layouts of all its devices, of every legal layout, micro-batch, recompute and "
     "schedule",
     CLI_FLAG(plan_arguments, plan.search)},
    {"nodes", 0, "N,...|auto",
     "So many nodes instead of those of the cluster, one after the other; auto, with --search: the fewest that fit",
     CLI_TEXT(plan_arguments, nodes)},
    {"within", 0, "TIME", "With --search: the fewest nodes with which the run is done in 24h (90m, 3600s, 2d)",
     CLI_TEXT(plan_arguments, within)},
    {"anchor", 0, "RUN",
     "With --cluster: scale all times by a run of the same model, device and precision, its measured to its planned "
     "step",
     CLI_TEXT(plan_arguments, plan.anchor)},
    {"apply", 0, "FILE.yaml", "With --search: write the job with the first layout's keys to another file",
     CLI_TEXT(plan_arguments, plan.apply)},
    {"distribution", 0, "HOW",
     "With --cluster: ranks fill one node after the other (block), or go around the nodes (cyclic), as those of srun "
     "may",
     CLI_TEXT(plan_arguments, distribution), .choices = distributions},
    {"schedule", 0, "FILE.csv", "Write the pipeline's table, a row per rank, as torch's CSV; pipeline.file reads it",
     CLI_TEXT(plan_arguments, plan.schedule)},
    {"timeline", 0, "FILE",
     "Simulate a step on a machine of stated rates and write when each rank does what: a picture (FILE.svg) or Chrome "
     "trace events (FILE.json)",
     CLI_TEXT(plan_arguments, plan.timeline)},
    {"layout-picture", 0, "FILE.svg",
     "Draw the layout: which samples, tokens, layers, heads and slice of the parameters each rank holds",
     CLI_TEXT(plan_arguments, plan.layout_picture)},
    {"placements", 0, "UNIT",
     "Print the values of a unit (all: of every kind of unit), and what each rank has of them on every axis: same, "
     "cut, "
     "part (a summand) or own (of its samples)",
     CLI_TEXT(plan_arguments, plan.placements)},
    {"passes", 0, NULL,
     "List the passes that make the program, in order; with JOB.YAML also what each wrote for the rank",
     CLI_FLAG(plan_arguments, passes)},
    CLI_JSON(plan_arguments, plan.json),
    CLI_JOB_DEVICE,
    {0},
};

/* "1,2,4" */
static void read_nodes(plan_arguments *a, struct argp_state *state) {
    const char *at = a->nodes;
    if (!a->plan.cluster)
        cli_refuse(state, "--nodes needs --cluster, which says what a node is");
    a->plan.fewest_nodes = strcmp(at, "auto") == 0;
    if (a->plan.fewest_nodes && !a->plan.search)
        cli_refuse(state, "--nodes auto needs --search");
    while (!a->plan.fewest_nodes && at) {
        int end = 0, n = a->plan.n_nodes, *to = &a->numbers[n];
        bool comma = sscanf(at, "%9d%n", to, &end) == 1 && at[end] == ',';
        if (end == 0 || *to < 1 || (at[end] && !comma) || n + 1 == (int)(sizeof a->numbers / sizeof *a->numbers))
            cli_refuse(state, "--nodes '%s': expected numbers such as 1,2,4, at most 63 of them, or auto", a->nodes);
        a->plan.n_nodes++;
        at = comma ? at + end + 1 : NULL;
    }
    a->plan.nodes = a->numbers;
}

/* "24h" */
static void read_within(plan_arguments *a, struct argp_state *state) {
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
    char *unit;
    double count = strtod(a->within, &unit), *to = &a->plan.within;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        *to = strcmp(unit, units[i].name) == 0 ? count * units[i].seconds : *to;
    if (!isdigit((unsigned char)*a->within) || !(*to > 0 && *to <= 1e12))
        cli_refuse(state, "--within '%s': expected a time above 0 with its unit, such as 24h, 90m, 3600s or 2d",
                   a->within);
    if (!a->plan.search)
        cli_refuse(state, "--within needs --search");
    if (a->plan.n_nodes)
        cli_refuse(state, "--within finds how many nodes are enough: leave out --nodes %s, or write --nodes auto",
                   a->nodes);
    a->plan.fewest_nodes = true;
}

/* True if both are one file: paths of one may differ. */
static bool is_same_file(const char *a, const char *b) {
    struct stat one, other;
    return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

static void check_clusters(plan_arguments *a, struct argp_state *state) {
    ndp_plan_opts *o = &a->plan;
    o->cluster = a->clusters.n ? a->clusters.items[0] : NULL;
    o->n_other_clusters = a->clusters.n > 1 ? a->clusters.n - 1 : 0;
    o->other_clusters = a->clusters.items + (a->clusters.n > 0);
    if (o->n_other_clusters && !o->search)
        cli_refuse(state, "--cluster %s and %s: --search compares clusters; add it, or name one", o->cluster,
                   o->other_clusters[0]);
    if (o->cluster && o->ranks_per_node)
        cli_refuse(state,
                   "--ranks-per-node and --cluster both say how many ranks a node has: leave out one of the two");
    if (o->search && (!o->cluster || a->layouts.n))
        cli_refuse(state, "--search needs --cluster, and tries all layouts: leave out --layout");
    if (a->nodes)
        read_nodes(a, state);
    if (a->within)
        read_within(a, state);
}

static void check_arguments(void *arguments, struct argp_state *state) {
    plan_arguments *a = arguments;
    const char *how = a->distribution;
    if (!a->job.file && !a->passes)
        cli_refuse(state, "no job file; give one, such as job.yaml");
    if (a->passes && (a->plan.program || a->plan.placements || a->plan.json))
        cli_refuse(state, "--passes is a text of its own: leave out %s",
                   a->plan.program      ? "--program"
                   : a->plan.placements ? "--placements"
                                        : "--json");
    if (how && strcmp(how, "block") != 0 && strcmp(how, "cyclic") != 0)
        cli_refuse(state, "--distribution '%s': expected block or cyclic", how);
    check_clusters(a, state);
    if (a->plan.apply && !a->plan.search)
        cli_refuse(state, "--apply writes what --search finds: add it");
    if (a->plan.apply && a->job.file && is_same_file(a->plan.apply, a->job.file))
        cli_refuse(state, "--apply %s is the job itself: name another file", a->plan.apply);
    if (a->plan.anchor && a->plan.n_other_clusters)
        cli_refuse(state, "--anchor is a run on one machine: give one --cluster");
    if (a->plan.anchor && (!a->plan.cluster || a->plan.program || a->plan.timeline))
        cli_refuse(state, "--anchor scales the times that --cluster says: %s",
                   a->plan.cluster ? "leave out --program and --timeline" : "add it");
    if (how && !a->plan.cluster)
        cli_refuse(state, "--distribution needs --cluster FILE, which says what nodes there are");
    a->plan.cyclic = how && strcmp(how, "cyclic") == 0;
    if (a->plan.json && (a->plan.program || a->plan.placements))
        cli_refuse(state, "--json has no %s: leave out one of the two", a->plan.program ? "--program" : "--placements");
}

static volatile sig_atomic_t interrupted; /* by the first Ctrl-C; the second ends the program */

static void on_interrupt(int signal) {
    (void)signal;
    interrupted = 1;
}

static bool is_interrupted(void *user) {
    (void)user;
    return interrupted;
}

/* A search prints what it has. */
static void watch_interrupts(ndp_plan_opts *o) {
    const struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    o->stop = is_interrupted;
    sigaction(SIGINT, &action, NULL);
}

static int run(const cli_command *c, int argc, char **argv) {
    plan_arguments a = {.job.optional = true, .plan = NDP_PLAN_OPTS_INIT};
    cli_parse(c, argc, argv, &a);
    a.plan.layouts = a.layouts.items;
    a.plan.n_layouts = a.layouts.n;
    char *text = NULL;
    if (a.plan.search)
        watch_interrupts(&a.plan);
    ndp_status st = a.job.file ? cli_job_load(&a.job) : NDP_OK;
    if (st == NDP_OK)
        st = (a.passes ? ndp_plan_passes : ndp_plan)(a.job.config, &a.plan, &text);
    bool debug = a.job.debug;
    cli_job_release(&a.job);
    free(a.layouts.items);
    free(a.clusters.items);
    return cli_print(st, text, debug);
}

const cli_command cmd_plan = {
    .name = "plan",
    .about = "show the memory and communication of a job, without running it",
    .usage = "JOB.YAML",
    .help = "Show the memory that one rank of a job needs, by class, and the bytes that it sends, by group; with "
            "--program, every instruction that it runs. Starts no ranks and opens no data.",
    .options = options,
    .takes_job = true,
    .check = check_arguments,
    .examples = {"ndparallel plan job.yaml --ranks 8",
                 "ndparallel plan job.yaml --set parallelism.pp_size=2 --timeline step.svg"},
    .run = run};
