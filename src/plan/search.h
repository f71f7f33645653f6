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
    int most[NDP_SIZES];           /* sizes of axes */
    int only_schedule;             /* an ndp_pipeline_kind; -1: all */
    bool (*stop)(void *user);      /* true: end with what is found; may be NULL */
    void *user;
} ndp_plan_seek;

typedef struct ndp_priced_way {
    ndp_plan_way c;
    ndp_step_time time;
    ndp_plan_need need;
    double save; /* seconds of one */
    int likely;  /* the rank that needs the most, as far as is known before memory is planned */
} ndp_priced_way;

typedef struct ndp_found {
    ndp_priced_way results[NDP_SHOWN]; /* that fit, the fastest first */
    int n;
    ndp_priced_way doubled; /* faster than all of them with twice the memory; seconds 0: none is */
    bool stopped;           /* before all that may be among them were priced */
    bool doubled_known;     /* that was not stopped, nor left out */
    int considered, priced, by_memory, by_rule, by_bound; /* candidates; those that fell, by what */
    ndp_plan_way least; /* of those that need more memory, the one that needs the least */
    double least_bytes;
} ndp_found;

/* NDP_ENOMEM, NDP_EBUG. */
NDP_API ndp_status ndp_plan_find(const ndp_plan_seek *of, ndp_found *out);
/* A candidate's step, of a job that has what r->c says (search_price.c). Programs whose memory is not planned say
 * whether it can be in `room` bytes, and the step below `most` seconds; then that of the fullest rank is planned until
 * it is. r->need: more than `room`, or what is at most that. `known` gets rates of links. What breaks a rule;
 * NDP_ENOMEM, NDP_EBUG. */
ndp_status ndp_plan_price_way(const ndp_plan_seek *of, ndp_known_links *known, const ndp_job *j, double room,
                              double most, ndp_priced_way *r);
/* Sets r->need to what the fullest rank needs, and r->save. NDP_ENOMEM, NDP_EBUG. */
ndp_status ndp_plan_need_again(const ndp_plan_seek *of, ndp_priced_way *r);
/* The step of one candidate again, on the cluster of of->price, which may have changed; and its bound. */
ndp_status ndp_plan_price_again(const ndp_plan_seek *of, const ndp_plan_way *c, ndp_step_time *out);
ndp_status ndp_plan_least_again(const ndp_plan_seek *of, const ndp_plan_way *c, double *seconds);
/* A machine that is searched: a cluster of one size. Stays where it is. */
typedef struct ndp_searched {
    ndp_plan_opts o; /* of it alone */
    int nodes;       /* that o.nodes says; 0: as many as the cluster has */
    ndp_config way;  /* of the job from which the search starts */
    ndp_job job;
    ndp_dry_run d;
    ndp_cluster_plan links;
    ndp_device_price price;
    ndp_plan_seek seek;
    ndp_found found; /* times by the anchor */
    double scale;    /* that they had; 1 without an anchor */
} ndp_searched;
/* Seconds of a run of train.steps with one of the results, without evaluations, whose rows only data say. */
double ndp_searched_run(const ndp_searched *s, const ndp_priced_way *r);
/* Appends text and JSON: the results of `n` machines as one list, the fastest first, then what is said of each.
 * o->apply gets the first. NDP_ENOMEM, NDP_EIO. */
ndp_status ndp_plan_report_found(ndp_searched *const *of, int n, const ndp_plan_opts *o, const char *notes,
                                 ndp_plan_output *out);

/* Sets what is chosen in a configuration. */
void ndp_plan_way_apply(const ndp_plan_way *c, ndp_config *to);

#endif
