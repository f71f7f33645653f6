/* Inside comm/watch: the states of ranks, and how they are put into words. */
#ifndef NDP_COMM_WATCH_WATCH_REPORT_H
#define NDP_COMM_WATCH_WATCH_REPORT_H

#include "comm/watch/journal.h"

enum { NDP_LONGEST_CYCLE = 64 }; /* ranks that are followed */

#define NDP_SILENT_SECONDS 2.0   /* a rank that waits has polled and replied long before */
#define NDP_PATIENCE_SECONDS 0.4 /* for the reply of one rank, before the next is asked */

typedef struct ndp_report {
    char data[900];
    size_t n;
} ndp_report;

__attribute__((format(printf, 2, 3))) void ndp_report_add(ndp_report *s, const char *fmt, ...);
/* "rank 3"; with several hosts "rank 3 on node-b". */
void ndp_report_rank(ndp_report *s, const ndp_transport *t, int rank);
/* "waits at #117 all_gather layers.3 (4096 bytes of fp32) of group tp, begun 2.1 s ago" */
void ndp_report_state(ndp_report *s, ndp_rank_state *a);

/* A remote rank: as its replies to requests of this wait say. */
ndp_rank_state ndp_watchdog_state_of(const ndp_transport *t, int rank);
/* The remote member that has been silent for longest and is not known to have begun the operation; else the one that
 * fell silent after it began. -1: none has been silent for `seconds` (begun: NDP_SILENT_SECONDS). */
int ndp_watchdog_find_silent(const ndp_work *w, double seconds);

#endif
