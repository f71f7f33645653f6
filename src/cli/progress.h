/* What a run says on stdout: a line every few steps, and on a terminal a live line with a bar below them. */
#ifndef NDP_CLI_PROGRESS_H
#define NDP_CLI_PROGRESS_H

#include <ndparallel/ndparallel.h>

enum { CLI_LIVE_SIZE = 256 };
/* Erases the live line, at whose beginning the cursor is, and all below it. Not in one go: what is erased from the
 * first line of the screen on, some terminals keep above it. */
#define CLI_ERASE "\r\0337\033[K\033[B\033[J\0338"

typedef struct cli_progress {
    int columns;              /* of the terminal; 0: there is none */
    int every;                /* steps between lines */
    char live[CLI_LIVE_SIZE]; /* the live line; "": there is none */
    char newest[512];         /* the line of the newest step */
    bool printed;             /* it is printed */
    double last;              /* when the live line was drawn, or a line of work printed, seconds */
    double average;           /* seconds a step, lately; 0: no step yet */
} cli_progress;

/* stdout of this process; for a rank what the process that launched it saw. */
void cli_progress_init(cli_progress *p, int every);
/* For ndp_train_opts, with a cli_progress as their user. */
void cli_progress_step(void *progress, const ndp_metrics *m, int64_t steps);
void cli_progress_say(void *progress, const char *line);
void cli_progress_working(void *progress, const char *line);
/* Replaces the live line by the line of the newest step, unless that is printed already. */
void cli_progress_end(cli_progress *p);
/* Erases the live line that another process drew on this terminal and left behind. */
void cli_progress_erase(const cli_progress *p);

/* Tells the ranks that this process launches what they write to. */
void cli_progress_hand_on(void);

#endif
