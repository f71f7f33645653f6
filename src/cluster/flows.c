/* Sums the bytes that a layout sends: by stage for all groups of a kind, then over the links of a level. */
#include "cluster/flows.h"

#include <stdlib.h>
#include <string.h>

ndp_status ndp_groups_of_kind(const ndp_layout *l, const ndp_mesh_facts *facts, ndp_group_kind kind, ndp_group **out,
                              int *n) {
    int world = 1;
    for (int axis = 0; axis < NDP_AXES; axis++)
        world *= l->size[axis];
    ndp_group *list = calloc((size_t)world, sizeof *list);
    ndp_status st = NDP_MEMORY(list, "for the groups of %d ranks", world);
    *n = 0;
    for (int r = 0; r < world && st == NDP_OK; r++) {
        ndp_mesh mesh;
        st = ndp_mesh_init(l, r, facts, &mesh);
        ndp_group g = st == NDP_OK ? ndp_mesh_group(&mesh, kind) : (ndp_group){0};
        if (st == NDP_OK && g.rank == 0)
            list[(*n)++] = g;
    }
    if (st == NDP_OK)
        *out = list;
    else
        free(list);
    return st;
}

/* Adds the flow of a kind and pattern, if any rank sends with it. */
static ndp_status add_flow(const ndp_layout *l, const ndp_mesh_facts *facts, const ndp_stage_sends *of_stage, int kind,
                           int pattern, ndp_flows *out) {
    int per_stage = out->world / l->size[NDP_PP];
    bool any = false;
    for (int s = 0; s < l->size[NDP_PP]; s++)
        any |= of_stage[s].bytes[kind][pattern] > 0;
    if (!any)
        return NDP_OK;
    ndp_flow f = {.pattern = (ndp_send_pattern)pattern, .bytes = calloc((size_t)out->world, sizeof *f.bytes)};
    ndp_status st = NDP_MEMORY(f.bytes, "for what %d ranks send", out->world);
    if (st == NDP_OK)
        st = ndp_groups_of_kind(l, facts, (ndp_group_kind)kind, &f.groups, &f.n);
    for (int r = 0; r < out->world && st == NDP_OK; r++)
        f.bytes[r] = of_stage[r / per_stage].bytes[kind][pattern];
    if (st == NDP_OK)
        out->items[out->n++] = f;
    else
        free(f.bytes);
    return st;
}

ndp_status ndp_flows_init(const ndp_layout *l, const ndp_mesh_facts *facts, const ndp_stage_sends *of_stage,
                          ndp_flows *out) {
    ndp_flows f = {.world = 1, .items = calloc(NDP_GROUPS * NDP_SEND_PATTERNS, sizeof *f.items)};
    for (int axis = 0; axis < NDP_AXES; axis++)
        f.world *= l->size[axis];
    ndp_status st = NDP_MEMORY(f.items, "for what %d ranks send", f.world);
    for (int kind = 0; kind < NDP_GROUPS && st == NDP_OK; kind++)
        for (int pattern = 0; pattern < NDP_SEND_PATTERNS && st == NDP_OK; pattern++)
            st = add_flow(l, facts, of_stage, kind, pattern, &f);
    if (st == NDP_OK)
        *out = f;
    else
        ndp_flows_release(&f);
    return st;
}

void ndp_flows_release(ndp_flows *f) {
    for (int i = 0; i < f->n; i++) {
        free(f->items[i].groups);
        free(f->items[i].bytes);
    }
    free(f->items);
    *f = (ndp_flows){0};
}

size_t ndp_flows_most_links(const ndp_cluster *c, int world) {
    return (size_t)world + 2 * (size_t)ndp_cluster_devices(c) + (size_t)c->nodes;
}

ndp_status ndp_flows_load(const ndp_flows *f, const ndp_cluster *c, const ndp_rank_map *m, int level, double *loads) {
    memset(loads, 0, ndp_flows_most_links(c, m->world) * sizeof *loads);
    for (int i = 0; i < f->n; i++) {
        const ndp_flow *flow = &f->items[i];
        NDP_TRY(ndp_cluster_add_loads(c, m, flow->groups, flow->n, flow->pattern, flow->bytes, level, loads));
    }
    return NDP_OK;
}
