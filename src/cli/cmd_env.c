/* ndparallel env: what the program runs on. */
#include "cli/cli.h"

int cmd_env(int argc, char **argv) {
    static const struct argp argp = {
        NULL, NULL, NULL, "Show what this program runs on, for bug reports: processor, memory, libraries, transports.",
        NULL, NULL, NULL};
    argp_parse(&argp, argc, argv, 0, NULL, NULL);
    char *text = NULL;
    ndp_status st = ndp_env(&text);
    return cli_print(st, text, false);
}
