/* Questions on a terminal, each of which an option answers too. */
#ifndef NDP_CLI_ASK_H
#define NDP_CLI_ASK_H

#include "cli/cli.h"

enum { CLI_WHY = 1024 };
/* Takes an answer. False: it is not possible, and `why` says so. */
typedef bool cli_take(void *user, const char *answer, char why[CLI_WHY]);

typedef struct cli_question {
    const char *option, *text; /* "model"; "A folder, or a name on the Hub" */
    const char *given;         /* the option's value; NULL: it was not given */
    const char *fallback;      /* the default, also without a terminal; NULL: no default */
    const char *lacks;         /* said without an answer: what is needed */
    cli_take *take;
} cli_question;

/* Whether questions can be asked: standard input and output are a terminal. */
bool cli_can_ask(void);
/* Takes the option's value; else, if `asks`, asks until an answer is possible; else takes the fallback. Returns 0, or
 * prints an error and returns the exit code: the value of an option or a fallback that is not possible, nothing to
 * take, the end of the input. */
int cli_ask(const cli_question *q, bool asks, void *user);
/* Copies the message of the thread's last error. Returns false, for a cli_take. */
bool cli_why_failed(char why[CLI_WHY]);

#endif
