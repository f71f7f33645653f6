/* Binding ranks to cores, so that ranks on one host do not share any. */
#include "launch/launch.h"

#include <hwloc.h>
#include <limits.h>
#include <stdlib.h>

/* The cores that this process may use, as hwloc's tree; NULL on failure. */
static hwloc_topology_t usable_cores(void) {
    hwloc_topology_t t;
    if (hwloc_topology_init(&t))
        return NULL;
    if (hwloc_topology_set_flags(t, HWLOC_TOPOLOGY_FLAG_RESTRICT_TO_CPUBINDING | HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM) ||
        hwloc_topology_load(t)) {
        hwloc_topology_destroy(t);
        return NULL;
    }
    return t;
}

static ndp_status bind_part(hwloc_topology_t t, int part, int parts, int threads) {
    hwloc_obj_t root = hwloc_get_root_obj(t);
    if (hwloc_bitmap_weight(root->cpuset) < parts * threads)
        return NDP_OK;
    hwloc_bitmap_t *sets = calloc((size_t)parts, sizeof *sets);
    NDP_CHECK_MEMORY(sets, "for the core sets of %d ranks", parts);
    if (hwloc_distrib(t, &root, 1, sets, (unsigned)parts, INT_MAX, 0) == 0 &&
        hwloc_bitmap_weight(sets[part]) >= threads)
        (void)hwloc_set_cpubind(t, sets[part], HWLOC_CPUBIND_PROCESS); /* on failure the scheduler decides, as before */
    for (int i = 0; i < parts; i++)
        hwloc_bitmap_free(sets[i]);
    free(sets);
    return NDP_OK;
}

ndp_status ndp_bind_rank(int local_rank, int local_ranks, int threads) {
    NDP_CHECK(local_ranks >= 1 && local_rank >= 0 && local_rank < local_ranks && threads >= 1,
              "cannot bind rank %d of %d with %d threads", local_rank, local_ranks, threads);
    hwloc_topology_t t = local_ranks > 1 ? usable_cores() : NULL;
    if (!t)
        return NDP_OK;
    ndp_status st = bind_part(t, local_rank, local_ranks, threads);
    hwloc_topology_destroy(t);
    return st;
}
