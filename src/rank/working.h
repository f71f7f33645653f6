/* Inside the rank room: lines about work that a run does before its first step. */
#ifndef NDP_RANK_WORKING_H
#define NDP_RANK_WORKING_H

#include "rank/rank.h"

typedef struct ndp_working {
    const ndp_rank *rank; /* borrowed */
    double begin, last;
} ndp_working;

ndp_working ndp_working_begin(const ndp_rank *r);
/* True on rank 0 where a line is due, after the first second: ten times a second for the `working` callback, else every
 * 5 s for the log. *seconds: since the beginning. */
bool ndp_working_due(ndp_working *w, double *seconds);
void ndp_working_say(const ndp_working *w, const char *line);

#endif
