/* The output of `train --json` on stdout: the lines of metrics.jsonl, and an object for each event of the run,
 *
 *   {"event": "start" | "checkpoint" | "evaluation" | "message" | "end", "time": seconds since 1970, ...}
 *
 * A run that is refused has none. */
#ifndef NDP_CLI_EVENTS_H
#define NDP_CLI_EVENTS_H

#include "cli/cli.h"

typedef struct cli_events {
    ndp_metrics before; /* of the newest step */
    bool begun;
    bool unwritable; /* stdout failed, which was said */
} cli_events;

/* From now on a stdout that fails does not end the process: one warning says so. */
void cli_events_init(cli_events *e);
/* Callbacks of ndp_train_opts; `events` is a cli_events. The first line that is said begins the run. */
void cli_events_step(void *events, const ndp_metrics *m, int64_t steps);
void cli_events_say(void *events, const char *line);
/* The run ended with `st`, whose message is this thread's. */
void cli_events_end(cli_events *e, ndp_status st);

#endif
