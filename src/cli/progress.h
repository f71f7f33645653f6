/* The output of a run on stdout: a line every few steps and, on a terminal, a live line with a bar below them. */
#ifndef NDP_CLI_PROGRESS_H
#define NDP_CLI_PROGRESS_H

#include <ndparallel/ndparallel.h>

enum { CLI_LIVE_SIZE = 256 };
/* Erases the live line, at whose beginning the cursor is, and everything below it. In two parts, since some terminals
 * move the text erased from the first row of the screen into their history. */
#define CLI_ERASE "\r\0337\033[K\033[B\033[J\0338"

typedef struct cli_progress {
    int columns;              /* of the terminal; 0: there is none */
    int every;                /* steps between lines */
    char live[CLI_LIVE_SIZE]; /* the live line; "": there is none */
    char newest[512];         /* the line of the newest step */
    bool printed;             /* `newest` was printed */
    bool unwritable;          /* stdout failed, which was said */
    double last;              /* when a live or progress line was last drawn, seconds */
    double average;           /* recent seconds per step; 0: no step yet */
} cli_progress;

/* For the terminal of this process; for a launched rank, that of the process that launched it. From now on a stdout
 * that fails does not end the process: one message says so. */
void cli_progress_init(cli_progress *p, int every);
/* Callbacks of ndp_train_opts; `progress` is a cli_progress. */
void cli_progress_step(void *progress, const ndp_metrics *m, int64_t steps);
void cli_progress_say(void *progress, const char *line);
void cli_progress_working(void *progress, const char *line);
/* Replaces the live line with the line of the newest step, unless that was printed already. */
void cli_progress_end(cli_progress *p);
/* Erases a live line that another process left on this terminal. */
void cli_progress_erase(const cli_progress *p);

/* Passes the size of this terminal to the ranks that this process launches. */
void cli_progress_hand_on(void);

#endif
