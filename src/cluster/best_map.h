/* Where to put the ranks of a layout: the axes with the most traffic innermost in the tree of links. */
#ifndef NDP_CLUSTER_BEST_MAP_H
#define NDP_CLUSTER_BEST_MAP_H

#include "cluster/flows.h"

/* What a map costs, by level of links. Maps are compared from the outermost level inwards: of two maps, the better one
 * sends fewer bytes over the uplinks; if that is the same, it needs less time at its busiest link. */
typedef struct ndp_map_cost {
    int levels;
    double bytes[NDP_LINK_LEVELS];   /* over all links of the level */
    double seconds[NDP_LINK_LEVELS]; /* of the busiest one */
} ndp_map_cost;

NDP_API ndp_status ndp_map_cost_of(const ndp_flows *f, const ndp_cluster *c, const ndp_rank_map *m, ndp_map_cost *out);
/* < 0: `a` is better; 0: they are alike. */
int ndp_map_cost_compare(const ndp_map_cost *a, const ndp_map_cost *b);

/* The best of: every nesting of the axes in the order of devices, and the nodes in every order, or for more than six
 * of them in the orders that exchanges of two lead to. The nodes have as many ranks as devices, at most. `given`: the
 * map to start from, which is the result if none is better. The caller releases it, unless this fails. */
NDP_API ndp_status ndp_best_map(const ndp_cluster *c, const ndp_layout *l, const ndp_flows *f,
                                const ndp_rank_map *given, ndp_rank_map *out);

#endif
