/* The exit codes of the program, listed here only: X(NAME, code, as it is shown, when the program ends with it). */
#ifndef NDP_CLI_EXIT_CODES_H
#define NDP_CLI_EXIT_CODES_H

#define CLI_EXIT_CODES_LIST(X)                                                                                         \
    X(DONE, 0, "0", "done; of `verify` and `checkpoint verify`: everything agrees")                                    \
    X(FAILED, 1, "1",                                                                                                  \
      "failed: the disk, memory, a rank, a bug. Of `verify`: a layout or a dump differs; of `checkpoint verify`: a "   \
      "checkpoint does not verify")                                                                                    \
    X(MISTAKE, 2, "2",                                                                                                 \
      "a mistake in the command, the job or an input file, or a job that needs more memory than there is; the "        \
      "message "                                                                                                       \
      "names the fix")                                                                                                 \
    X(STOPPED, 130, "130", "stopped by Ctrl-C, SIGTERM or SIGHUP; `train` has saved a checkpoint")                     \
    X(KILLED, 128, "128 + N",                                                                                          \
      "signal N killed a rank: 137 is SIGKILL, of which the system's lack of memory is one cause")                     \
    X(OF_RANK, -1, "any other", "of `launch`: the exit code of your program's first rank that failed")

#define CLI_EXIT_ENUMERATOR(NAME, code, ...) CLI_EXIT_##NAME = (code),
typedef enum cli_exit_number { CLI_EXIT_CODES_LIST(CLI_EXIT_ENUMERATOR) } cli_exit_number;

typedef struct cli_exit_row {
    const char *code, *when; /* "128 + N"; a sentence without a capital and a full stop, with `code` in backticks */
} cli_exit_row;
/* Ending with {0}. */
extern const cli_exit_row cli_exit_rows[];

#endif
