/* ndparallel env: what the program runs on. */
#include "cli/commands.h"

typedef struct env_arguments {
    bool json;
} env_arguments;

static const cli_option options[] = {
    CLI_JSON(env_arguments, json),
    {0},
};

static int run(const cli_command *c, int argc, char **argv) {
    env_arguments a = {0};
    cli_parse(c, argc, argv, &a);
    char *text = NULL;
    ndp_status st = (a.json ? ndp_env_json : ndp_env)(&text);
    return cli_print(st, text, false);
}

const cli_command cmd_env = {
    .name = "env",
    .about = "show processor, memory and libraries, for bug reports",
    .help = "Show what this program runs on, for bug reports: processor, memory, libraries, transports, GPUs.",
    .options = options,
    .examples = {"ndparallel env", "ndparallel env --json"},
    .run = run};
