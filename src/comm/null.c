/* The `null` transport, for dry runs: one rank's handle of a world of any size in which nothing moves. Its memory is
 * address space, which costs nothing until it is written to. */
#include "comm/impl.h"

#include <stdlib.h>

static void null_destroy(ndp_transport *t) { free(t); }

static const ndp_transport_ops null_ops = {
    .name = "null",
    .dry = true,
    .comm_create = ndp_plain_comm_create,
    .comm_destroy = ndp_plain_comm_destroy,
    .memory_map = ndp_plain_memory_map,
    .memory_unmap = ndp_plain_memory_unmap,
    .window_register = ndp_plain_window_register,
    .window_share = ndp_plain_window_share,
    .window_destroy = ndp_plain_window_destroy,
    .destroy = null_destroy,
};

ndp_status ndp_transport_null(int world, int rank, ndp_transport **out) {
    NDP_CHECK(world >= 1 && rank >= 0 && rank < world, "rank %d of a null world of %d ranks", rank, world);
    ndp_transport *t = calloc(1, sizeof *t);
    if (!t)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the null transport");
    *t = (ndp_transport){.ops = &null_ops, .rank = rank, .world = world, .node_ranks = 1};
    *out = t;
    return NDP_OK;
}
