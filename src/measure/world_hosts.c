/* The hosts of a world, by the names that its ranks gather (world_hosts.h). */
#include "measure/world_hosts.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void ndp_world_hosts_release(ndp_world_hosts *h) {
    free(h->of);
    free(h->names);
    *h = (ndp_world_hosts){0};
}

ndp_status ndp_world_hosts_take(const char (*of_rank)[NDP_HOST_TEXT], int world, ndp_world_hosts *out) {
    ndp_world_hosts h = {.world = world};
    h.of = calloc((size_t)world, sizeof *h.of);
    h.names = calloc((size_t)world, sizeof *h.names);
    if (!h.of || !h.names) {
        ndp_world_hosts_release(&h);
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the hosts of %d ranks", world);
    }
    for (int r = 0; r < world; r++) {
        int i = 0;
        while (i < h.n && strcmp(h.names[i], of_rank[r]) != 0)
            i++;
        if (i == h.n)
            memcpy(h.names[h.n++], of_rank[r], NDP_HOST_TEXT);
        h.of[r] = i;
    }
    *out = h;
    return NDP_OK;
}

ndp_status ndp_world_hosts_read(ndp_comm *world, ndp_world_hosts *out) {
    int n = ndp_comm_size(world);
    char mine[NDP_HOST_TEXT] = "", (*all)[NDP_HOST_TEXT] = calloc((size_t)n, sizeof *all);
    ndp_work w;
    NDP_CHECK_MEMORY(all, "for the hosts of %d ranks", n);
    gethostname(mine, sizeof mine - 1);
    ndp_status st = ndp_all_gather_begin(world, mine, all, sizeof mine, NDP_U8, &w);
    if (st == NDP_OK)
        st = ndp_wait(&w);
    if (st == NDP_OK)
        st = ndp_world_hosts_take(all, n, out);
    free(all);
    return st;
}
