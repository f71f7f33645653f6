/* A run that is watched, for watch.c and serve.c. */
#ifndef NDP_REPORT_WATCH_H
#define NDP_REPORT_WATCH_H

#include "report/page.h"
#include "report/run.h"

struct ndp_http_server;

struct ndp_watch {
    ndp_run_view run;
    char *name; /* the last folder of its path */
    /* The rows of one call of ndp_watch_read. */
    void (*row)(void *user, const ndp_metrics *m, int64_t steps);
    void *user;
    int64_t shown;     /* the newest step that was a row */
    double peak_flops; /* of the newest line that has it */
    /* Of a lock elsewhere: its counter when it was first read, and when it was last seen to move. */
    int64_t beat;
    bool begun, moves;
    double moved_at;
    struct ndp_http_server *server; /* NULL: none */
};

/* Reads on, and judges a run elsewhere by whether its lock's counter moves. */
NDP_API ndp_status ndp_watch_look(ndp_watch *w);

#endif
