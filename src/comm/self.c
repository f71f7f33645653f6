/* The `self` transport: one rank. Every group has one rank, and comm.c performs its operations. */
#include "comm/impl.h"

#include <stdlib.h>

static void self_destroy(ndp_transport *t) { free(t); }

static ndp_status self_on_device(ndp_transport *host, const ndp_device *d, ndp_device_context *context,
                                 ndp_transport **out);

static const ndp_transport_ops self_ops = {
    .name = "self",
    .comm_create = ndp_plain_comm_create,
    .comm_destroy = ndp_plain_comm_destroy,
    .memory_map = ndp_plain_memory_map,
    .memory_unmap = ndp_plain_memory_unmap,
    .window_register = ndp_plain_window_register,
    .window_share = ndp_plain_window_share,
    .window_destroy = ndp_plain_window_destroy,
    .on_device = self_on_device,
    .destroy = self_destroy,
};

static ndp_status self_on_device(ndp_transport *host, const ndp_device *d, ndp_device_context *context,
                                 ndp_transport **out) {
    ndp_transport *t = calloc(1, sizeof *t);
    if (!t)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the self transport");
    *t = ndp_transport_beside(host, &self_ops, d, context);
    *out = t;
    return NDP_OK;
}

ndp_status ndp_transport_self(ndp_transport **out) {
    ndp_transport *t = calloc(1, sizeof *t);
    if (!t)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the self transport");
    *t = (ndp_transport){.ops = &self_ops, .world = 1, .node_ranks = 1};
    *out = t;
    return NDP_OK;
}
