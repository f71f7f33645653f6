/* Questions and answers (ask.h). A terminal is read line by line, so that its own editing of lines works. */
#include "cli/ask.h"
#include "cli/exit_codes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool cli_can_ask(void) { return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO); }

bool cli_why_failed(char why[CLI_WHY]) {
    snprintf(why, CLI_WHY, "%s", ndp_error_message());
    return false;
}

/* The answer in a line: without blanks around it. */
static char *trim(char *line) {
    line += strspn(line, " \t");
    size_t n = strlen(line);
    while (n && strchr(" \t\r\n", line[n - 1]))
        line[--n] = '\0';
    return line;
}

static int ask_until_possible(const cli_question *q, void *user) {
    char *line = NULL, why[CLI_WHY];
    size_t size = 0;
    bool taken = false;
    while (!taken) {
        printf(q->fallback && *q->fallback ? "%s [%s]: " : "%s: ", q->text, q->fallback);
        fflush(stdout);
        if (getline(&line, &size, stdin) < 0)
            break;
        const char *answer = trim(line);
        if (!*answer && !q->fallback)
            continue;
        taken = q->take(user, *answer ? answer : q->fallback, why);
        if (!taken)
            printf("  %s\n", why);
    }
    free(line);
    if (taken)
        return 0;
    printf("\n");
    return cli_error(CLI_EXIT_STOPPED, "the input ended before the last question; nothing was written");
}

int cli_ask(const cli_question *q, bool asks, void *user) {
    char why[CLI_WHY];
    const char *answer = q->given ? q->given : q->fallback;
    if (!q->given && asks)
        return ask_until_possible(q, user);
    if (!answer)
        return cli_error(CLI_EXIT_MISTAKE, "--%s is needed without a terminal: %s", q->option, q->lacks);
    if (q->take(user, answer, why))
        return 0;
    return cli_error(CLI_EXIT_MISTAKE, "--%s: %s", q->option, why);
}
