/* What a run prints of a step: a row of a table with a heading, and the live line of a terminal. */
#ifndef NDP_CLI_STEP_LINE_H
#define NDP_CLI_STEP_LINE_H

#include <ndparallel/ndparallel.h>

typedef struct cli_step {
    const ndp_metrics *m;
    int64_t steps; /* of the whole run */
    double left;   /* seconds */
    bool held;     /* the run evaluates held-out rows */
    bool clock;    /* the row ends with the time of day */
} cli_step;

/* The columns of a row, a bit each, of those that the step has: all of them, or as many as fit into `width` (0: no
 * limit) when the least important are left out. */
unsigned cli_step_columns(const cli_step *s, int width);
void cli_step_heading(const cli_step *s, unsigned columns, char *out, size_t size);
void cli_step_row(const cli_step *s, unsigned columns, char *out, size_t size);
/* "[####    ] 20/60  loss 2.3456  left 0:42 ...": the bar is at least 10 wide, and what does not fit beside it is left
 * out, where the terminal has room for the bar. */
void cli_step_live(const cli_step *s, int width, char *out, size_t size);

#endif
