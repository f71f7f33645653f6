/* The search is small: axes nest in as many orders as there are axes above 1, and hosts of a job are few; where they
 * are many, racks keep their nodes together and exchanges of two nodes are tried (best_map.h). */
#include "cluster/best_map.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- costs ---- */

ndp_status ndp_map_cost_of(const ndp_flows *f, const ndp_cluster *c, const ndp_rank_map *m, ndp_map_cost *out) {
    double *loads = calloc(ndp_flows_most_links(c, m->world), sizeof *loads);
    ndp_status st = NDP_MEMORY(loads, "for the links of %d ranks", m->world);
    *out = (ndp_map_cost){.levels = ndp_cluster_levels(c)};
    for (int level = 0; level < out->levels && st == NDP_OK; level++) {
        st = ndp_flows_load(f, c, m, level, loads);
        for (int i = 0; i < ndp_cluster_link_count(c, m, level) && st == NDP_OK; i++) {
            double seconds = loads[i] > 0 ? loads[i] / ndp_cluster_link_capacity(c, m, level, i) : 0;
            out->bytes[level] += loads[i];
            out->seconds[level] = seconds > out->seconds[level] ? seconds : out->seconds[level];
        }
    }
    free(loads);
    return st;
}

/* Sums in another order differ by a rounding. */
static int compare(double a, double b) { return fabs(a - b) <= 1e-9 * fmax(a, b) ? 0 : a < b ? -1 : 1; }

int ndp_map_cost_compare(const ndp_map_cost *a, const ndp_map_cost *b) {
    for (int level = a->levels - 1; level >= 0; level--) {
        bool uplink = level >= NDP_LINK_UPLINKS;
        int first = uplink ? compare(a->bytes[level], b->bytes[level]) : compare(a->seconds[level], b->seconds[level]);
        int then = uplink ? compare(a->seconds[level], b->seconds[level]) : compare(a->bytes[level], b->bytes[level]);
        if (first || then)
            return first ? first : then;
    }
    return 0;
}

/* ---- candidates ---- */

typedef struct map_search {
    const ndp_cluster *c;
    const ndp_layout *l;
    const ndp_flows *f;
    int world;
    int axes[NDP_AXES], n_axes; /* those above 1, innermost first */
    int *rank_at;               /* by place: the rank, as the axes nest now */
    int *order;                 /* of the nodes */
    int *node;                  /* of each rank, in the candidate */
    ndp_rank_map best;
    ndp_map_cost cost;
    bool better; /* the candidate tried last was the best so far */
} map_search;

/* Sets rank_at: the place's digits, innermost first, are coordinates on the axes in their present order. */
static void nest_axes(map_search *s) {
    for (int place = 0; place < s->world; place++) {
        int coord[NDP_AXES] = {0}, rest = place;
        for (int i = 0; i < s->n_axes; i++) {
            coord[s->axes[i]] = rest % s->l->size[s->axes[i]];
            rest /= s->l->size[s->axes[i]];
        }
        s->rank_at[place] = ndp_mesh_rank_of(s->l, coord);
    }
}

/* Fills the nodes in the present order, and keeps the map if it is the best so far. */
static ndp_status try_map(map_search *s) {
    ndp_rank_map m;
    ndp_map_cost cost;
    for (int i = 0, place = 0; i < s->c->nodes && place < s->world; i++)
        for (int d = 0; d < s->c->devices_of[s->order[i]] && place < s->world; d++)
            s->node[s->rank_at[place++]] = s->order[i];
    NDP_TRY(ndp_rank_map_take(s->c, s->world, s->node, &m));
    ndp_status st = ndp_map_cost_of(s->f, s->c, &m, &cost);
    s->better = st == NDP_OK && ndp_map_cost_compare(&cost, &s->cost) < 0;
    if (s->better) {
        ndp_rank_map old = s->best;
        s->best = m;
        s->cost = cost;
        m = old;
    }
    ndp_rank_map_release(&m);
    return st;
}

static void swap(int *a, int *b) {
    int x = *a;
    *a = *b;
    *b = x;
}

/* Visits all orders of the items from `at` on. */
static ndp_status permute(map_search *s, int *items, int n, int at, ndp_status (*visit)(map_search *)) {
    if (at >= n - 1)
        return visit(s);
    for (int i = at; i < n; i++) {
        swap(&items[at], &items[i]);
        ndp_status st = permute(s, items, n, at + 1, visit);
        swap(&items[at], &items[i]);
        NDP_TRY(st);
    }
    return NDP_OK;
}

/* Exchanges two nodes as long as that makes a better map. */
static ndp_status try_exchanges(map_search *s) {
    NDP_TRY(try_map(s));
    for (bool any = true; any;) {
        any = false;
        for (int i = 0; i < s->c->nodes; i++)
            for (int k = i + 1; k < s->c->nodes; k++) {
                swap(&s->order[i], &s->order[k]);
                NDP_TRY(try_map(s));
                if (!s->better)
                    swap(&s->order[i], &s->order[k]);
                any |= s->better;
            }
    }
    return NDP_OK;
}

/* The nodes in all orders, for the present nesting of the axes. */
static ndp_status try_nodes(map_search *s) {
    enum { ALL_ORDERS = 6, EXCHANGES = 48 };
    for (int i = 0; i < s->c->nodes; i++)
        s->order[i] = i;
    nest_axes(s);
    if (s->c->nodes <= ALL_ORDERS)
        return permute(s, s->order, s->c->nodes, 0, try_map);
    return s->c->nodes <= EXCHANGES ? try_exchanges(s) : try_map(s);
}

static ndp_status search(map_search *s, const ndp_rank_map *given) {
    for (int axis = NDP_AXES - 1; axis >= 0; axis--)
        if (s->l->size[axis] > 1)
            s->axes[s->n_axes++] = axis;
    NDP_TRY(ndp_rank_map_take(s->c, s->world, given->node, &s->best));
    NDP_TRY(ndp_map_cost_of(s->f, s->c, &s->best, &s->cost));
    return permute(s, s->axes, s->n_axes, 0, try_nodes);
}

ndp_status ndp_best_map(const ndp_cluster *c, const ndp_layout *l, const ndp_flows *f, const ndp_rank_map *given,
                        ndp_rank_map *out) {
    map_search s = {.c = c, .l = l, .f = f, .world = given->world};
    int *memory = calloc(2 * (size_t)s.world + (size_t)c->nodes, sizeof *memory);
    ndp_status st = NDP_MEMORY(memory, "to place %d ranks", s.world);
    s.rank_at = memory;
    s.node = memory + s.world;
    s.order = memory + 2 * s.world;
    if (st == NDP_OK)
        st = search(&s, given);
    free(memory);
    if (st == NDP_OK)
        *out = s.best;
    else
        ndp_rank_map_release(&s.best);
    return st;
}
