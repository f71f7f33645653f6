/* ndparallel help: what a command does, and its options. */
#include "cli/exit_codes.h"
#include "cli/pages.h"

#include <stdio.h>
#include <string.h>

typedef struct help_arguments {
    char *words[4]; /* of the command */
    int n;
    bool exit_codes;
    const char *generate; /* a folder */
} help_arguments;

static const cli_option options[] = {
    {"exit-codes", 0, NULL, "Print the exit codes of the program, as a table in Markdown",
     CLI_FLAG(help_arguments, exit_codes)},
    {"generate", 0, "DIR", NULL, CLI_TEXT(help_arguments, generate)}, /* for the build */
    {0},
};

static void take_word(void *arguments, struct argp_state *state, char *word) {
    help_arguments *a = arguments;
    if (a->n == (int)(sizeof a->words / sizeof *a->words))
        cli_refuse(state, "too many words: '%s'", word);
    else
        a->words[a->n++] = word;
}

static int print_exit_codes(void) {
    printf("| exit code | meaning |\n|---|---|\n");
    for (const cli_exit_row *r = cli_exit_rows; r->code; r++)
        printf("| %s | %s |\n", r->code, r->when);
    return cli_end_output(0);
}

static int run(const cli_command *c, int argc, char **argv) {
    help_arguments a = {0};
    char name[CLI_FULL_NAME];
    int used;
    cli_parse(c, argc, argv, &a);
    if (a.exit_codes)
        return print_exit_codes();
    if (a.generate)
        return cli_generate(a.generate);
    const cli_command *of = cli_find(a.words, a.n, &used, name);
    if (a.n == 0) {
        cli_print_commands(stdout);
        return cli_end_output(0);
    }
    if (used < a.n)
        return cli_fail_unknown(of && of->parts ? of : NULL, a.words[used]);
    cli_print_help(of, name);
    return 0;
}

const cli_command cmd_help = {.name = "help",
                              .about = "explain a command and its options",
                              .usage = "[COMMAND [SUBCOMMAND]]",
                              .help = "Print what COMMAND --help prints; without a command, the list of commands.",
                              .options = options,
                              .argument = take_word,
                              .examples = {"ndparallel help train", "ndparallel help --exit-codes"},
                              .run = run};
