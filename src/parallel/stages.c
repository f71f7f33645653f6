/* Which ranks of the pipeline hold a buffer. A table that units of two ranks use has a group of the mesh, over which
 * its gradient is summed. A job finds the pairs before any mesh exists; apply.c finds its buffers' groups in the mesh.
 */
#include "parallel/stages.h"

static bool uses(const ndp_unit *u, int buffer) {
    bool any = false;
    for (int s = 0; s < NDP_SLOTS; s++)
        any |= u->buffers[s] == buffer;
    return any;
}

bool ndp_stages_pair(const ndp_model *whole, const ndp_stages *s, int buffer, int pair[2], bool *more) {
    int n = 0, of[3] = {0};
    for (int u = 0; u < whole->n_units && n < 3; u++) {
        if (!uses(&whole->units[u], buffer))
            continue;
        of[n] = s->n > 0 ? s->rank_of[ndp_stage_of(s, u)] : 0;
        n += (n < 1 || of[0] != of[n]) && (n < 2 || of[1] != of[n]);
    }
    *more = n > 2;
    pair[0] = of[0] < of[1] ? of[0] : of[1];
    pair[1] = of[0] + of[1] - pair[0];
    return n >= 2;
}

/* The place of a pair; that of a free one if it is new, NDP_TIES if none is free. */
static int find(const ndp_ties *t, const int pair[2]) {
    int k = 0;
    while (k < NDP_TIES && t->of[k][0] != t->of[k][1] && (t->of[k][0] != pair[0] || t->of[k][1] != pair[1]))
        k++;
    return k;
}

ndp_status ndp_stages_ties(const ndp_model *whole, const ndp_stages *s, ndp_ties *out) {
    ndp_ties ties = {0};
    for (int b = 0; b < whole->n_buffers; b++) {
        int pair[2];
        bool more;
        if (!ndp_stages_pair(whole, s, b, pair, &more))
            continue;
        int k = find(&ties, pair);
        if (more)
            return NDP_FAIL(NDP_ENOTSUP, "%s is used by more than two ranks of the pipeline", whole->buffers[b].name);
        if (k == NDP_TIES)
            return NDP_FAIL(NDP_ENOTSUP,
                            "ranks %d and %d of the pipeline share %s; %d other pairs share tables, and no more can",
                            pair[0], pair[1], whole->buffers[b].name, NDP_TIES);
        ties.of[k][0] = pair[0], ties.of[k][1] = pair[1];
    }
    *out = ties;
    return NDP_OK;
}
