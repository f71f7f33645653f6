/* ndparallel report: runs as an HTML page. */
#include "cli/commands.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct report_arguments {
    const char **runs; /* as many as argv; borrowed from it */
    int n;
    const char *output;
    bool debug;
} report_arguments;

static const cli_option options[] = {
    {"output", 'o', "FILE", "The page to write; default, for one run: RUN/report.html",
     CLI_TEXT(report_arguments, output)},
    {"debug", 0, NULL, "Show where in the source an error occurred", CLI_FLAG(report_arguments, debug), .group = 1},
    {0},
};

static void take_word(void *arguments, struct argp_state *state, char *word) {
    report_arguments *a = arguments;
    (void)state;
    a->runs[a->n++] = word;
}

static void check_arguments(void *arguments, struct argp_state *state) {
    const report_arguments *a = arguments;
    if (a->n == 0)
        cli_refuse(state, "no run folder; give a job's train.output_dir");
    if (a->n > 1 && !a->output)
        cli_refuse(state, "a report of several runs needs -o FILE, the page to write");
}

static int write_report(const report_arguments *a) {
    char *path = a->output ? strdup(a->output) : ndp_format("%s/report.html", a->runs[0]);
    if (!path)
        return cli_fail(NDP_ENOMEM, a->debug);
    ndp_status st = ndp_runs_report(a->runs, a->n, path);
    int code = st == NDP_OK ? 0 : cli_fail(st, a->debug);
    if (st == NDP_OK)
        printf("report: %s\n", path);
    free(path);
    return cli_end_output(code);
}

static int run(const cli_command *c, int argc, char **argv) {
    report_arguments a = {.runs = calloc((size_t)argc, sizeof *a.runs)};
    if (!a.runs) {
        fprintf(stderr, "ndparallel: %s\n", strerror(ENOMEM));
        return 1;
    }
    cli_parse(c, argc, argv, &a);
    int code = write_report(&a);
    free(a.runs);
    return code;
}

const cli_command cmd_report = {
    .name = "report",
    .about = "write runs as an HTML page with their curves",
    .usage = "RUN...",
    .help =
        "Write one HTML file about one run or several, during a run or after it: their curves in common plots, over "
        "steps, tokens and time; a table of the runs; how their jobs differ; where the time went; evaluations, "
        "checkpoints, samples and jobs. The page has no script and loads nothing. RUN is a job's train.output_dir.",
    .options = options,
    .argument = take_word,
    .check = check_arguments,
    .examples = {"ndparallel report runs/demo", "ndparallel report runs/demo runs/other -o report.html"},
    .run = run};
