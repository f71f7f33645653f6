/* ndparallel runs: lists run folders. */
#include "cli/commands.h"

typedef struct runs_arguments {
    const char *folder;
    bool json, debug;
} runs_arguments;

static const cli_option options[] = {
    CLI_JSON(runs_arguments, json),
    {"debug", 0, NULL, "Show where in the source an error occurred", CLI_FLAG(runs_arguments, debug), .group = 1},
    {0},
};

static void take_word(void *arguments, struct argp_state *state, char *word) {
    runs_arguments *a = arguments;
    if (state->arg_num > 0)
        cli_refuse(state, "one folder at a time ('%s')", word);
    a->folder = word;
}

static int run(const cli_command *c, int argc, char **argv) {
    runs_arguments a = {.folder = "."};
    char *text = NULL;
    cli_parse(c, argc, argv, &a);
    ndp_status st = ndp_runs_list(a.folder, a.json, &text);
    return cli_print(st, text, a.debug);
}

const cli_command cmd_runs = {
    .name = "runs",
    .about = "list runs with their state, step and loss",
    .usage = "[DIR]",
    .help =
        "List the run folders at DIR and up to three levels below it; default: the current folder. States: running; "
        "done, all steps are there; stopped, resume it; died, its process ended without a word, resume it; "
        "\"running?\", a process on another host has its lock. The age is that of the newest line of metrics.",
    .options = options,
    .argument = take_word,
    .examples = {"ndparallel runs", "ndparallel runs runs --json"},
    .run = run};
