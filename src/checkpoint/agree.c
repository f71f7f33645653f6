/* One outcome for all ranks. A rank's word is (size - rank) << 8 | status, 0 without an error, so the largest word is
 * the lowest failing rank's; that rank then broadcasts its message. Called wherever ranks do different things: saves,
 * resumes, the run folder, the trainer. */
#include "checkpoint/agree.h"

#include <stdio.h>
#include <string.h>

ndp_status ndp_reduce_now(ndp_comm *world, void *values, int64_t n, ndp_dtype type, ndp_reduce op) {
    ndp_work w;
    if (!world)
        return NDP_OK;
    NDP_TRY(ndp_all_reduce_begin(world, values, n, type, op, &w));
    return ndp_wait(&w);
}

ndp_status ndp_share_now(ndp_comm *world, void *data, size_t bytes, int root) {
    ndp_work w;
    if (!world || !bytes)
        return NDP_OK;
    NDP_TRY(ndp_broadcast_begin(world, data, (int64_t)bytes, root, &w));
    return ndp_wait(&w);
}

/* *word becomes the largest one of all ranks; `message` becomes that of the lowest rank with it. */
static ndp_status exchange(ndp_comm *world, int64_t *word, char message[1024], int *root) {
    NDP_TRY(ndp_reduce_now(world, word, 1, NDP_I64, NDP_MAX));
    if (*word == 0)
        return NDP_OK;
    int64_t first = ndp_comm_size(world) - (*word >> 8);
    if (first < 0 || first >= ndp_comm_size(world) || (*word & 0xff) == 0)
        return NDP_FAIL(NDP_ECOMM,
                        "rank %lld of %d, which does not exist, reported a failure; do all ranks run the same build?",
                        (long long)first, ndp_comm_size(world));
    *root = (int)first;
    NDP_TRY(ndp_share_now(world, message, 1024, *root));
    message[1023] = '\0'; /* it comes from another process */
    return NDP_OK;
}

ndp_status ndp_agree(ndp_comm *world, ndp_status mine) {
    if (!world || ndp_comm_size(world) == 1)
        return mine;
    int rank = ndp_comm_rank(world), root = 0;
    /* A word is size - rank, then the status: the maximum is the lowest failing rank's. */
    int64_t word = mine == NDP_OK ? 0 : (int64_t)(ndp_comm_size(world) - rank) << 8 | (int64_t)mine;
    char own[1024] = "", message[1024];
    snprintf(own, sizeof own, "%s", ndp_error_message());
    memcpy(message, own, sizeof message);
    if (mine != NDP_OK)
        ndp_comm_report(world, own); /* it may have failed where the others wait for it */
    ndp_status st = exchange(world, &word, message, &root);
    if (mine != NDP_OK && st == NDP_OK)
        ndp_comm_report(world, NULL);
    if (st != NDP_OK && mine != NDP_OK) { /* they have not met: this rank's own error is the cause */
        ndp_error_set(mine, own);
        return mine;
    }
    NDP_TRY(st);
    if (word == 0)
        return mine;
    return rank == root ? mine : NDP_FAIL((ndp_status)(word & 0xff), "rank %d: %s", root, message);
}
