#include "checkpoint/agree.h"

#include <stdio.h>

ndp_status ndp_agree(ndp_comm *world, ndp_status mine) {
    if (!world || ndp_comm_size(world) == 1)
        return mine;
    int rank = ndp_comm_rank(world), size = ndp_comm_size(world);
    /* The maximum is the lowest failing rank's word: size - rank above its status. */
    int64_t word = mine == NDP_OK ? 0 : (int64_t)(size - rank) << 8 | (int64_t)mine;
    char message[1024] = "";
    snprintf(message, sizeof message, "%s", ndp_error_message());
    ndp_work w;
    NDP_TRY(ndp_all_reduce_begin(world, &word, 1, NDP_I64, NDP_MAX, &w));
    NDP_TRY(ndp_wait(&w));
    if (word == 0)
        return NDP_OK;
    int root = size - (int)(word >> 8);
    ndp_status st = ndp_broadcast_begin(world, message, sizeof message, root, &w);
    if (st == NDP_OK)
        st = ndp_wait(&w);
    if (st != NDP_OK && rank == root) { /* another, who has heard it, was quicker to end the run */
        ndp_error_set(mine, message);
        return mine;
    }
    NDP_TRY(st);
    return rank == root ? mine : NDP_FAIL((ndp_status)(word & 0xff), "rank %d: %s", root, message);
}
