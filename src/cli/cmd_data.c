/* ndparallel data: the records of a job as they are trained on. */
#include "cli/commands.h"
#include "cli/progress.h"

#include <unistd.h>

typedef struct data_arguments {
    cli_job job;
    ndp_data_opts data;
} data_arguments;

static const cli_option options[] = {
    {"show", 0, "N", "Records to show of each source; default: 3", CLI_INT64(data_arguments, data.show, 0, 1 << 20)},
    {"ids", 0, NULL, "Show token ids instead of text", CLI_FLAG(data_arguments, data.ids)},
    {"head", 0, NULL, "Read only the beginning of each source, as a dry run does", CLI_FLAG(data_arguments, data.head)},
    CLI_JSON(data_arguments, data.json),
    {0},
};

static int run(const cli_command *c, int argc, char **argv) {
    data_arguments a = {.data = NDP_DATA_OPTS_INIT};
    cli_progress progress;
    cli_parse(c, argc, argv, &a);
    a.data.colour = ndp_colours(STDOUT_FILENO);
    cli_progress_init(&progress, 0, false);
    a.data.working = progress.columns ? cli_progress_working : NULL;
    a.data.user = &progress;
    char *text = NULL;
    ndp_status st = cli_job_load(&a.job);
    if (st == NDP_OK)
        st = ndp_data(a.job.config, &a.data, &text);
    cli_progress_erase(&progress);
    bool debug = a.job.debug;
    cli_job_release(&a.job);
    return cli_print(st, text, debug);
}

const cli_command cmd_data = {
    .name = "data",
    .about = "show records with the tokens that are trained on marked",
    .usage = "JOB.YAML",
    .help =
        "Tokenize the data of a job as its run does, or find the cache of an earlier one, and show the first records: "
        "what is trained on in [ ], or in green on a terminal, and what is in no row in { }; totals of each source, "
        "records that are cut, left out or skipped, and why; answers that end without a special token. Needs neither "
        "weights nor a GPU.",
    .options = options,
    .takes_job = true,
    .examples = {"ndparallel data job.yaml --show 5", "ndparallel data job.yaml --show 1 --ids"},
    .run = run};
