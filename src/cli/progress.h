/* The output of a run on stdout: a row every few steps and, on a terminal, a live line with a bar below them. */
#ifndef NDP_CLI_PROGRESS_H
#define NDP_CLI_PROGRESS_H

#include "cli/step_line.h"

enum { CLI_LIVE_SIZE = 256 };
/* Erases the live line, at whose beginning the cursor is, and everything below it. In two parts, since some terminals
 * move the text erased from the first row of the screen into their history. */
#define CLI_ERASE "\r\0337\033[K\033[B\033[J\0338"

typedef struct cli_progress {
    int columns;              /* of the terminal; 0: there is none */
    int every;                /* steps between lines; 0: train.log_every is auto */
    bool held;                /* the run evaluates held-out rows */
    char live[CLI_LIVE_SIZE]; /* the live line; "": there is none */
    ndp_metrics newest;       /* of `steps`, and the seconds left after it */
    int64_t steps, evaluated; /* evaluated: the newest step that has a line because of its evaluation */
    double newest_left;
    bool printed;      /* the row of `newest` was printed */
    unsigned chosen;   /* columns of the newest row (step_line.h); 0: none yet */
    int rows;          /* since the newest heading */
    bool unwritable;   /* stdout failed, which was said */
    double last;       /* when a live or progress line was last drawn, seconds */
    double printed_at; /* when a row was */
    int64_t taken;     /* steps so far */
    double average;    /* recent seconds per step */
    double extra;      /* seconds of evaluations and saves */
} cli_progress;

/* For the terminal of this process; for a launched rank, that of the process that launched it. From now on a stdout
 * that fails does not end the process: one message says so. `every`, `held`: see above. */
void cli_progress_init(cli_progress *p, int every, bool held);
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
