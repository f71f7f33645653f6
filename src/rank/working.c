/* Lines about work before the first step. Called by tokens.c and reference.c. */
#include "rank/working.h"

#include "base/clock.h"
#include "checkpoint/agree.h"

static bool is_live(const ndp_working *w) { return w->rank->opts && w->rank->opts->working; }

ndp_working ndp_working_begin(const ndp_rank *r) { return (ndp_working){r, ndp_now(), ndp_now()}; }

bool ndp_working_due(ndp_working *w, double *seconds) {
    double now = ndp_now();
    if (!ndp_is_first(w->rank->world) || now - w->begin < 1 || now - w->last < (is_live(w) ? 0.1 : 5))
        return false;
    w->last = now;
    *seconds = now - w->begin;
    return true;
}

void ndp_working_say(const ndp_working *w, const char *line) {
    if (is_live(w))
        w->rank->opts->working(w->rank->opts->user, line);
    else
        ndp_info(&w->rank->log, "%s", line);
}
