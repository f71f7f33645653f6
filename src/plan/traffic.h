/* What one rank sends in a step: its communications in groups of those that are alike, as text and as JSON, and, where
 * a cluster is given, the links they take. Inside plan. */
#ifndef NDP_PLAN_TRAFFIC_H
#define NDP_PLAN_TRAFFIC_H

#include "base/json_write.h"
#include "plan/cluster_plan.h"

/* Communications that differ only in their unit or buffer. */
typedef struct ndp_traffic_line {
    ndp_comm_event first;
    const char *graph; /* of the unit, or "" */
    bool others;       /* buffers */
    int64_t times;
} ndp_traffic_line;

typedef struct ndp_traffic {
    const ndp_program *program; /* borrowed */
    ndp_traffic_line *lines;
    int n;
    int64_t capacity;
    double sent[NDP_GROUPS]; /* bytes (ndp_program_traffic) */
} ndp_traffic;

NDP_API ndp_status ndp_traffic_read(const ndp_program *p, ndp_traffic *out);
void ndp_traffic_release(ndp_traffic *t);

/* How many, bytes handed in, kind, tensor (inside a unit) or buffers. `links`: also where they go and how long they
 * take; NULL: not. */
NDP_API ndp_status ndp_traffic_print(const ndp_traffic *t, ndp_cluster_plan *links, ndp_str *out);
/* The same as the list `key` of JSON. */
NDP_API ndp_status ndp_traffic_put(const ndp_traffic *t, ndp_cluster_plan *links, const char *key, ndp_json_out *out);

#endif
