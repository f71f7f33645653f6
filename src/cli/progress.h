/* What a run says on stdout: one live line on a terminal, a line every few steps elsewhere. */
#ifndef NDP_CLI_PROGRESS_H
#define NDP_CLI_PROGRESS_H

#include <ndparallel/ndparallel.h>

typedef struct cli_progress {
    int columns;    /* of the terminal; 0: there is none */
    int every;      /* steps between lines where there is none */
    bool drawn;     /* the live line stands, without its end */
    double last;    /* when it was drawn, or a line of work printed, seconds */
    double average; /* seconds a step, lately; 0: no step yet */
} cli_progress;

/* stdout of this process; for a rank what the process that launched it saw. */
void cli_progress_init(cli_progress *p, int every);
/* For ndp_train_opts, with a cli_progress as their user. */
void cli_progress_step(void *progress, const ndp_metrics *m, int64_t steps);
void cli_progress_say(void *progress, const char *line);
void cli_progress_working(void *progress, const char *line);
/* Ends the live line, so that something else may follow. */
void cli_progress_end(cli_progress *p);

/* Tells the ranks that this process launches what they write to. */
void cli_progress_hand_on(void);

#endif
