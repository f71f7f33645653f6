/* ndparallel plan: the memory, communication and program of one rank. */
#include "cli/cli.h"

#include <stdio.h>

enum { OPTION_PROGRAM = 1, OPTION_RANK, OPTION_PER_NODE, OPTION_SCHEDULE, OPTION_CLUSTER };

static const struct argp_option options[] = {
    {"program", OPTION_PROGRAM, NULL, 0, "Print the step program and the unit programs, one instruction per line", 0},
    {"rank", OPTION_RANK, "R", 0, "The rank to show; default: 0, and with --program one rank of every pipeline stage",
     0},
    {"ranks-per-node", OPTION_PER_NODE, "N", 0, "Ranks per node; default: one node for up to 8 ranks, else 8 per node",
     0},
    {"schedule", OPTION_SCHEDULE, "FILE.csv", 0,
     "Write the pipeline's table, a row per rank, as torch's CSV; pipeline.file reads it", 0},
    {"cluster", OPTION_CLUSTER, "FILE", OPTION_HIDDEN, NULL, 0}, /* refused, with what plan offers instead */
    {0},
};

typedef struct plan_arguments {
    cli_job job;
    ndp_plan_opts plan;
} plan_arguments;

static error_t parse_plan(int key, char *arg, struct argp_state *state) {
    plan_arguments *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->job;
        return 0;
    case OPTION_PROGRAM:
        a->plan.program = true;
        return 0;
    case OPTION_RANK:
        a->plan.rank = (int)cli_integer(state, "--rank", arg, 0, (1 << 20) - 1);
        return 0;
    case OPTION_PER_NODE:
        a->plan.ranks_per_node = (int)cli_integer(state, "--ranks-per-node", arg, 1, 1 << 20);
        return 0;
    case OPTION_SCHEDULE:
        a->plan.schedule = arg;
        return 0;
    case OPTION_CLUSTER:
        argp_failure(state, 1, 0,
                     "--cluster is not built yet: the search for a layout comes with the cost model. Without it "
                     "`plan` shows the memory and the traffic of the job's own layout");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int cmd_plan(int argc, char **argv) {
    static const struct argp_child children[] = {{&cli_job_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {options,
                                     parse_plan,
                                     "JOB.YAML",
                                     "Show the memory that one rank of a job needs, by class, and the bytes that it "
                                     "sends, by group; with --program, every instruction that it runs. Starts no "
                                     "ranks and opens no data.",
                                     children,
                                     NULL,
                                     NULL};
    plan_arguments a = {.plan = NDP_PLAN_OPTS_INIT};
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    ndp_config *c = NULL;
    char *text = NULL;
    ndp_status st = cli_job_load(&a.job, &c);
    if (st == NDP_OK)
        st = ndp_plan(c, &a.plan, &text);
    ndp_config_destroy(c);
    bool debug = a.job.debug;
    cli_job_release(&a.job);
    return cli_print(st, text, debug);
}
