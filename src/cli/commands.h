/* The table of commands. What is parsed, --help, manual pages and completion all come from it. */
#ifndef NDP_CLI_COMMANDS_H
#define NDP_CLI_COMMANDS_H

#include "cli/cli.h"

extern const cli_command cmd_train, cmd_plan, cmd_verify, cmd_checkpoint, cmd_merge, cmd_export, cmd_launch,
    cmd_evaluate, cmd_generate, cmd_data, cmd_tokenize, cmd_config, cmd_topology, cmd_env, cmd_help, cmd_runs,
    cmd_report, cmd_watch, cmd_replay, cmd_init, cmd_doctor, cmd_record;
/* All of them, in the order of `ndparallel --help`, ending with NULL. */
extern const cli_command *const cli_commands[];

/* A command that other programs have, or a likely word for one of ours, and what does that here: "generate --chat". */
typedef struct cli_synonym {
    const char *word, *command;
    const char *also; /* a sentence; NULL: none */
} cli_synonym;
/* Ending with {0}. */
extern const cli_synonym cli_synonyms[];

enum { CLI_FULL_NAME = 64 };
/* Walks down the table by the words, as far as they name commands: *used is how many did, *name (may be NULL) the
 * command's full name, "ndparallel checkpoint list". NULL if the first word names none. */
const cli_command *cli_find(char *const *words, int n, int *used, char name[CLI_FULL_NAME]);
/* Prints that `word` is no command, and which one was meant; `in`: the command that was to have it as a sub-command,
 * NULL for the program. Returns exit code 2. */
int cli_fail_unknown(const cli_command *in, const char *word);
/* The list of commands, as `ndparallel --help` prints it. */
void cli_print_commands(FILE *out);
/* Prints what `name --help` prints, and ends the process. */
void cli_print_help(const cli_command *c, char *name);

#endif
