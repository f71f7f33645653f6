/* The placement check: each pair of data coordinates that has programs is checked as lanes of its own. */
#include "placement/placement.h"

#include "placement/step_world.h"
#include "placement/unit_trial.h"

/* The units of a pair of coordinates hold for another one whose lanes have the same lists. */
static bool same_lists(const ndp_lanes *a, const ndp_lanes *b) {
    bool same = a->n == b->n;
    for (int i = 0; same && i < a->n; i++)
        same = a->items[i].program->opts.units == b->items[i].program->opts.units &&
               a->items[i].stands_in == b->items[i].stands_in;
    return same;
}

typedef struct checked_pair {
    ndp_lanes lanes;
    ndp_units *units; /* NULL: those of an earlier pair */
} checked_pair;

/* Checks pair `k`, after those before it. */
static ndp_status check_pair(const ndp_placement_opts *o, const int dp[2], checked_pair *pairs, int k) {
    checked_pair *p = &pairs[k];
    int same = 0;
    NDP_TRY(ndp_lanes_init(o->programs, o->n, dp, o->claims, &p->lanes));
    NDP_TRY(ndp_claims_prove(&p->lanes));
    while (same < k && !(pairs[same].units && same_lists(&pairs[same].lanes, &p->lanes)))
        same++;
    if (same == k)
        NDP_TRY(ndp_units_prove(&p->lanes, &(ndp_units_watcher){0}, &p->units));
    return ndp_steps_prove(&p->lanes, pairs[same].units);
}

/* The pairs of data coordinates of the programs, of a block the first, each once. Returns how many. */
static int find_pairs(const ndp_placement_opts *o, int (*dp)[2]) {
    int n = 0, data = ndp_lanes_data(&o->programs[0]->opts.step.mesh.layout);
    for (int i = 0; i < o->n; i++) {
        const int *coord = o->programs[i]->opts.step.mesh.coord, block = coord[NDP_DP_SHARD] / data * data;
        int k = 0;
        while (k < n && (dp[k][0] != coord[NDP_DP_REPLICATE] || dp[k][1] != block))
            k++;
        dp[k][0] = coord[NDP_DP_REPLICATE], dp[k][1] = block;
        n = k == n ? n + 1 : n;
    }
    return n;
}

/* "every gradient is a complete sum over dp_shard, tp and 8 micro-batches" */
static void say_proof(const ndp_program *p, ndp_str *out) {
    static const ndp_axis order[] = {NDP_DP_REPLICATE, NDP_DP_SHARD, NDP_CP, NDP_SP, NDP_TP, NDP_PP};
    const int *size = p->opts.step.mesh.layout.size, n = p->opts.step.accumulation;
    const char *before = "";
    ndp_str_add(out, "every gradient is a complete sum over ");
    for (int i = 0; i < NDP_COUNT(order); i++)
        if (size[order[i]] > 1) {
            ndp_str_addf(out, "%s%s", before, ndp_axis_name(order[i]));
            before = ", ";
        }
    ndp_str_addf(out, "%s%d micro-batch%s", before[0] ? " and " : "", n, n == 1 ? "" : "es");
}

static ndp_status check_pairs(const ndp_placement_opts *o, ndp_arena *arena) {
    int(*dp)[2];
    checked_pair *pairs;
    NDP_TRY(NDP_NEW(arena, o->n, dp));
    NDP_TRY(NDP_NEW(arena, o->n, pairs));
    ndp_status st = NDP_OK;
    int n = find_pairs(o, dp);
    for (int k = 0; k < n && st == NDP_OK; k++)
        st = check_pair(o, dp[k], pairs, k);
    for (int k = 0; k < n; k++) {
        ndp_units_release(pairs[k].units);
        ndp_lanes_release(&pairs[k].lanes);
    }
    return st;
}

ndp_status ndp_placement_check(const ndp_placement_opts *o, ndp_str *proof) {
    ndp_arena arena = {0};
    ndp_status st = check_pairs(o, &arena);
    ndp_arena_release(&arena);
    if (st == NDP_OK && proof)
        say_proof(o->programs[0], proof);
    return st;
}
