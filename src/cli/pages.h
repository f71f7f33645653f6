/* Manual pages and completion, made from the tables of commands (commands.h), options and keys. The build writes them:
 * `ndparallel help --generate DIR`. */
#ifndef NDP_CLI_PAGES_H
#define NDP_CLI_PAGES_H

#include "cli/commands.h"

#include <stdio.h>

/* ---- what the pages and scripts are made from ---- */

/* Calls `visit` for every command and sub-command, with its words: "checkpoint list". */
void cli_visit_commands(void (*visit)(void *user, const cli_command *c, const char *words), void *user);

/* "checkpoint list" for the row of `list` and "checkpoint", its own name for ""; the caller frees it. */
char *cli_words_below(const char *before, const cli_command *c);

/* A key of a job file: "train.device", its words with spaces between them, or "", and its meaning. */
typedef struct cli_key {
    const char *name, *words, *meaning;
} cli_key;
/* Calls `visit` for every key; the texts are valid during the call. */
NDP_API ndp_status cli_visit_keys(void (*visit)(void *user, const cli_key *key), void *user);

/* What can stand for an option's value or an argument. */
typedef enum cli_value {
    CLI_VALUE_NONE, /* an option without a value */
    CLI_VALUE_ANY,
    CLI_VALUE_FILE,
    CLI_VALUE_FOLDER,
    CLI_VALUE_PROGRAM,
    CLI_VALUE_WORDS,     /* those of the option's choices */
    CLI_VALUE_KEY,       /* a key of a job file */
    CLI_VALUE_ASSIGNMENT /* KEY=VALUE */
} cli_value;
cli_value cli_value_of(const cli_option *o);
cli_value cli_value_of_arguments(const cli_command *c);
/* The choices of an option with spaces between them; the caller frees the text. */
char *cli_words_of(const cli_option *o);

/* ---- pages and scripts ---- */

/* ndparallel.1: all commands, exit codes, environment. */
void cli_write_main_page(FILE *out);
/* ndparallel-checkpoint-list.1 */
void cli_write_command_page(FILE *out, const cli_command *c, const char *words);
/* ndparallel-job.5: every key, with all that `ndparallel config KEY` prints. */
NDP_API ndp_status cli_write_job_page(FILE *out);
NDP_API ndp_status cli_write_bash(FILE *out);
NDP_API ndp_status cli_write_zsh(FILE *out);
NDP_API ndp_status cli_write_fish(FILE *out);

/* Writes all of them below `folder`: man/ and completion/. Returns the exit code. */
int cli_generate(const char *folder);

/* What the scripts of the shells share. The commands that may follow one: its own, or after `help` all. */
const cli_command *const *cli_parts_of(const cli_command *c);
/* An action of a shell; its %s, if it has one, are the words that the option takes. */
void cli_put_action(FILE *out, const char *action, const cli_option *o);

#endif
