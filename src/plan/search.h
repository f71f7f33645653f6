/* The fastest layouts of a job on a cluster, of all that are legal. Inside plan. */
#ifndef NDP_PLAN_SEARCH_H
#define NDP_PLAN_SEARCH_H

#include "plan/result.h"
#include "plan/search_bounds.h"
#include "plan/step_time.h"

enum { NDP_SHOWN = 5 };

/* What is sought. */
typedef struct ndp_plan_seek {
    const ndp_dry_run *d;          /* of the job as it is, whose batch, world and keys stay but for what is chosen */
    const ndp_device_price *price; /* of that job */
    int most[NDP_AXES];            /* sizes of axes */
    int only_schedule;             /* an ndp_pipeline_kind; -1: all */
    bool (*stop)(void *user);      /* true: end with what is found; may be NULL */
    void *user;
} ndp_plan_seek;

typedef struct ndp_priced_way {
    ndp_plan_way c;
    ndp_step_time time;
    ndp_plan_need need;
} ndp_priced_way;

typedef struct ndp_found {
    ndp_priced_way results[NDP_SHOWN]; /* that fit, the fastest first */
    int n;
    bool stopped;                                         /* before all that may be among them were priced */
    int considered, priced, by_memory, by_rule, by_bound; /* candidates; those that fell, by what */
    ndp_plan_way least; /* of those that need more memory, the one that needs the least */
    double least_bytes;
} ndp_found;

/* NDP_ENOMEM, NDP_EBUG. */
NDP_API ndp_status ndp_plan_find(const ndp_plan_seek *of, ndp_found *out);
/* The step of one candidate again, on the cluster of of->price, which may have changed; and its bound. */
ndp_status ndp_plan_price_again(const ndp_plan_seek *of, const ndp_plan_way *c, ndp_step_time *out);
ndp_status ndp_plan_least_again(const ndp_plan_seek *of, const ndp_plan_way *c, double *seconds);
/* True where another layout does the same work and sends less: such are not tried. */
bool ndp_plan_way_dominated(const ndp_layout *l, int micro_batch);
/* Sets what is chosen in a configuration. */
void ndp_plan_way_apply(const ndp_plan_way *c, ndp_config *to);

#endif
