/* The program: `ndparallel COMMAND ...`. Each command has a file cmd_*.c and a row in commands.c. */
#include "cli/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Read by argp. */
const char *argp_program_version = "ndparallel " NDP_VERSION;

/* A command that has only sub-commands, without one: options such as --help end the process. */
static int run_group(const cli_command *c, int argc, char **argv) {
    cli_parse(c, argc, argv, NULL);
    fprintf(stderr, "%s: no command; give ", argv[0]);
    for (const cli_command *const *part = c->parts; *part; part++)
        fprintf(stderr, "%s%s", part == c->parts ? "" : part[1] ? ", " : " or ", (*part)->name);
    fprintf(stderr, "\n");
    return 2;
}

/* Runs the command that the arguments name. */
static int run_command(int argc, char **argv) {
    char name[CLI_FULL_NAME];
    int used;
    const cli_command *c = cli_find(argv + 1, argc - 1, &used, name);
    if (!c)
        return cli_fail_unknown(NULL, argv[1]);
    argv += used;
    argc -= used;
    argv[0] = name;
    if (!c->run && argc > 1 && argv[1][0] != '-')
        return cli_fail_unknown(c, argv[1]);
    return (c->run ? c->run : run_group)(c, argc, argv);
}

/* OpenMP's threads spin while they wait. On a machine that other programs use, that can make a step many times slower.
 * The runtime reads the spin count from the environment when it is loaded, so the program sets it and executes itself
 * again, unless the user has set it. */
static void limit_spinning(char **argv) {
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT"))
        return;
    if (setenv("GOMP_SPINCOUNT", "1000", 1) == 0)
        execv("/proc/self/exe", argv);
}

int main(int argc, char **argv) {
    argp_err_exit_status = 2;
    const char *word = argc > 1 ? argv[1] : "";
    if (!*word) {
        cli_print_commands(stderr);
        return 2;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        cli_print_commands(stdout);
        return 0;
    }
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        puts(argp_program_version);
        return 0;
    }
    limit_spinning(argv);
    return run_command(argc, argv);
}
