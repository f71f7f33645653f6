/* ndparallel replay: steps of a run once more, with all that they compute looked at. */
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct replay_arguments {
    cli_job job;
    ndp_replay_opts replay;
    const char *hostfile;
    char *file; /* RUN/job.yaml */
    int64_t different;
} replay_arguments;

static void take_steps(void *arguments, struct argp_state *state, const char *steps) {
    replay_arguments *a = arguments;
    cli_steps(state, "--steps", steps, &a->replay.first, &a->replay.last);
}

static const cli_option options[] = {
    {"steps", 0, "A-B", "The steps to repeat, counted from 1; or one step", CLI_CALL(take_steps)},
    {"compare", 0, NULL,
     "Compare loss and grad_norm with the run's metrics.jsonl, to the last bit; exit code 1 if they differ",
     CLI_FLAG(replay_arguments, replay.compare)},
    {"hostfile", 0, "FILE", "Start the ranks with mpirun on these hosts, one per line",
     CLI_TEXT(replay_arguments, hostfile)},
    CLI_JOB_DEVICE,
    {0},
};

/* The run's own job.yaml, and the folder as it was named. */
static void check_arguments(void *arguments, struct argp_state *state) {
    replay_arguments *a = arguments;
    const char *run = a->job.file;
    if (a->replay.first == 0)
        cli_refuse(state, "which steps? Give --steps A-B");
    if (!ndp_is_run_folder(run))
        cli_end(state, CLI_EXIT_MISTAKE, "%s is not the folder of a run: it has no checkpoints", run);
    size_t size = strlen(run) + sizeof "/job.yaml";
    if (!(a->file = malloc(size)))
        cli_end(state, CLI_EXIT_FAILED, "not enough memory for a path");
    snprintf(a->file, size, "%s/job.yaml", run);
    a->job.file = a->file;
    cli_job_assign_text(&a->job, state, "train.output_dir", run);
}

static void say(void *user, const char *line) {
    ndp_str text = {0};
    (void)user;
    ndp_str_addf(&text, "%s\n", line);
    cli_print_fitting(&text);
    fflush(stdout);
}

static ndp_status replay_rank(ndp_world *w, void *user) {
    replay_arguments *a = user;
    int64_t different = 0;
    ndp_replay_opts o = a->replay;
    o.say = say;
    ndp_status st = ndp_replay(a->job.config, w, &o, &different);
    if (ndp_world_rank(w) == 0)
        a->different = different;
    return st;
}

static int run(const cli_command *c, int argc, char **argv) {
    replay_arguments a = {0};
    cli_parse(c, argc, argv, &a);
    ndp_status st = cli_job_load(&a.job);
    cli_ranks ranks = {.argc = argc,
                       .argv = argv,
                       .command = "replay",
                       .hostfile = a.hostfile,
                       .debug = a.job.debug,
                       .body = replay_rank,
                       .user = &a};
    int code = st == NDP_OK ? cli_ranks_run(&ranks, a.job.config) : cli_fail_early(st, a.job.debug);
    if (code == 0 && a.different > 0)
        code = cli_error(1,
                         "%lld of the steps differ from the run: its machine or this one computes otherwise, or "
                         "one of them is at fault",
                         (long long)a.different);
    cli_job_release(&a.job);
    free(a.file);
    return cli_end_output(code);
}

const cli_command cmd_replay = {
    .name = "replay",
    .about = "repeat steps of a run and say what went wrong in them",
    .usage = "RUN",
    .help =
        "Repeat steps of the run in the folder RUN, from the newest checkpoint before them, and look at every value "
        "that they compute: the first one that is not finite, with its layer, op, tensor and record, or else the "
        "largest. With --compare, loss and gradient norm must be those of the run to the last bit, which they are "
        "on the same layout, kernels and machine. Writes nothing.",
    .options = options,
    .takes_job = true,
    .check = check_arguments,
    .examples = {"ndparallel replay runs/demo --steps 120-125", "ndparallel replay runs/demo --steps 250 --compare"},
    .run = run};
