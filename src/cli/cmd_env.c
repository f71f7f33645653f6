/* ndparallel env: what the program runs on. */
#include "cli/cli.h"

int cmd_env(int argc, char **argv) {
    static const cli_command command = {
        .help = "Show what this program runs on, for bug reports: processor, memory, libraries, transports, GPUs."};
    cli_parse(&command, argc, argv, NULL);
    char *text = NULL;
    ndp_status st = ndp_env(&text);
    return cli_print(st, text, false);
}
