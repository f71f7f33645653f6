/* One look at a rank's process. */
#include "comm/watch/neighbour.h"

#include <stdio.h>

/* Between two looks of one that is stopped, or gets little of a core. */
#define LONGEST_GAP 5.0

ndp_neighbour_news ndp_neighbour_look(ndp_neighbour *n, double now, double limit) {
    ndp_process p;
    bool there = ndp_process_read(n->process, &p);
    double gap = n->looked > 0 ? now - n->looked : 0;
    n->looked = now;
    n->started = there && !n->started ? p.started : n->started;
    if (!there || ndp_process_has_ended(&p) || p.started != n->started)
        return NDP_NEIGHBOUR_ENDED;
    if (!strchr("Tt", p.state)) {
        bool told = n->told;
        n->told = false;
        n->stopped = 0;
        return told ? NDP_NEIGHBOUR_GOES_ON : NDP_NEIGHBOUR_SAME;
    }
    if (n->stopped <= 0)
        n->stopped = now;
    else if (gap > LONGEST_GAP)
        n->stopped += gap;
    if (now - n->stopped > limit)
        return NDP_NEIGHBOUR_STOPPED_LONG;
    if (n->told || now - n->stopped < NDP_STOPPED_SECONDS)
        return NDP_NEIGHBOUR_SAME;
    n->told = true;
    return NDP_NEIGHBOUR_STOPPED;
}

char *ndp_neighbour_name(int rank, const char *host, pid_t process, char *out, size_t size) {
    snprintf(out, size, "rank %d%s%s (process %d)", rank, host ? " on " : "", host ? host : "", (int)process);
    return out;
}

char *ndp_neighbour_text(ndp_neighbour_news news, const ndp_neighbour *n, const char *who, double limit, char *out,
                         size_t size) {
    if (news == NDP_NEIGHBOUR_STOPPED)
        snprintf(out, size,
                 "%s is stopped, by a signal or a debugger; `kill -CONT %d` lets it go on, and after %g s "
                 "(NDP_COMM_TIMEOUT) the run ends",
                 who, (int)n->process, limit);
    else if (news == NDP_NEIGHBOUR_STOPPED_LONG)
        snprintf(out, size, "%s has been stopped for %g s, NDP_COMM_TIMEOUT, by a signal or a debugger", who, limit);
    else
        snprintf(out, size, "%s goes on", who);
    return out;
}
