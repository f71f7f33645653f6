/* ndparallel env: what the program runs on. */
#include "cli/commands.h"

static int run(const cli_command *c, int argc, char **argv) {
    cli_parse(c, argc, argv, NULL);
    char *text = NULL;
    ndp_status st = ndp_env(&text);
    return cli_print(st, text, false);
}

const cli_command cmd_env = {
    .name = "env",
    .about = "show processor, memory and libraries, for bug reports",
    .help = "Show what this program runs on, for bug reports: processor, memory, libraries, transports, GPUs.",
    .examples = {"ndparallel env", "ndparallel env >env.txt"},
    .run = run};
