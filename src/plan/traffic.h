/* What one rank sends in a step: its communications in lines of those that are alike, and, where a cluster is given,
 * the links they take. Inside plan. */
#ifndef NDP_PLAN_TRAFFIC_H
#define NDP_PLAN_TRAFFIC_H

#include "base/json_write.h"
#include "plan/cluster_plan.h"

/* How many, bytes handed in, kind, tensor (inside a unit) or buffers, by kind of group: as text, and as the list `key`
 * of JSON. `links`: also where they go and how long they take; NULL: not. NDP_ENOMEM. */
NDP_API ndp_status ndp_traffic_write(const ndp_program *p, ndp_cluster_plan *links, const char *key, ndp_str *out,
                                     ndp_json_out *json);

#endif
