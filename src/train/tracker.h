/* Inside the train room: the trackers of a run (train.trackers), which show its numbers outside ndparallel. Rank 0
 * opens them at the start of a run and gives them what a line of metrics.jsonl has. */
#ifndef NDP_TRAIN_TRACKER_H
#define NDP_TRAIN_TRACKER_H

#include "config/config.h"

/* A kind of tracker. */
typedef struct ndp_tracker_kind {
    /* Opens one for the run in `folder`. `first`: the next step that it is given; what it was given of that step or
     * later ones by runs before is void. *out belongs to the caller, who closes it; NULL on failure. */
    ndp_status (*open)(const char *folder, int64_t first, void **out);
    /* A step. NDP_EIO: it could not be written; it is kept, if there is room, and written with a later one. */
    ndp_status (*add)(void *self, const ndp_metrics *m);
    void (*close)(void *self); /* tries once more to write what is kept */
} ndp_tracker_kind;

#define NDP_TRACKER_DECLARE(name) extern const ndp_tracker_kind ndp_tracker_##name;
NDP_TRACKERS(NDP_TRACKER_DECLARE)

/* All trackers of a run. */
typedef struct ndp_tracker ndp_tracker;

/* Opens the trackers that the configuration names, as ndp_tracker_kind.open. *out is NULL if it names none. The caller
 * closes it. */
NDP_API ndp_status ndp_tracker_open(const ndp_strings *names, const char *folder, int64_t first, ndp_tracker **out);
/* Gives a step to all of them. NDP_EIO: the first failure of one. NULL is fine. */
NDP_API ndp_status ndp_tracker_add(ndp_tracker *t, const ndp_metrics *m);
void ndp_tracker_close(ndp_tracker *t);

#endif
