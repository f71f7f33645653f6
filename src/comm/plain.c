/* The transport `self`, of a rank without peers: every group has one rank, and comm.c performs its operations. Other
 * transports have some of its functions too (impl.h). */
#include "comm/impl.h"
#include "comm/node/mapping.h"

#include <stdlib.h>

static ndp_status plain_comm_create(ndp_transport *t, ndp_group group, const char *name, ndp_comm **out) {
    ndp_comm *c = calloc(1, sizeof *c);
    NDP_CHECK_MEMORY(c, "for the communicator of group %s", name);
    ndp_comm_init(c, t, group, name);
    *out = c;
    return NDP_OK;
}

static void plain_comm_destroy(ndp_comm *c) { free(c); }

ndp_status ndp_plain_memory_map(ndp_transport *t, size_t bytes, void **out) {
    void *data;
    (void)t;
    NDP_TRY(ndp_memory_map(-1, 0, bytes, &data));
    ndp_status st = ndp_memory_touch(data, bytes);
    if (st != NDP_OK) {
        ndp_memory_unmap(data, bytes);
        return st;
    }
    *out = data;
    return NDP_OK;
}

void ndp_plain_memory_unmap(ndp_transport *t, void *data, size_t bytes) {
    (void)t;
    ndp_memory_unmap(data, bytes);
}

ndp_status ndp_plain_window_register(ndp_comm *c, void *data, size_t bytes, ndp_window **out) {
    ndp_window *w = calloc(1, sizeof *w);
    NDP_CHECK_MEMORY(w, "for a window's handle");
    *w = (ndp_window){.transport = c->transport, .data = data, .bytes = bytes};
    *out = w;
    return NDP_OK;
}

ndp_status ndp_plain_window_share(ndp_comm *c, size_t bytes, ndp_window **out) {
    void *data;
    NDP_TRY(ndp_plain_memory_map(c->transport, bytes, &data));
    ndp_status st = ndp_plain_window_register(c, data, bytes, out);
    if (st != NDP_OK) {
        ndp_memory_unmap(data, bytes);
        return st;
    }
    (*out)->impl = data;
    return NDP_OK;
}

void ndp_plain_window_destroy(ndp_window *w) {
    ndp_memory_unmap(w->impl, w->bytes);
    free(w);
}

/* ---- the transport ---- */

static void plain_destroy(ndp_transport *t) { free(t); }

static ndp_status new_transport(ndp_transport of, ndp_transport **out) {
    ndp_transport *t = malloc(sizeof *t);
    NDP_CHECK_MEMORY(t, "for the %s transport", of.ops->name);
    *t = of;
    *out = t;
    return NDP_OK;
}

static ndp_status self_on_device(ndp_transport *host, const ndp_device *d, ndp_device_context *context,
                                 ndp_transport **out) {
    return new_transport(ndp_transport_beside(host, host->ops, d, context), out);
}

ndp_status ndp_transport_self(ndp_transport **out) {
    static const ndp_transport_ops ops = {
        .name = "self",
        .comm_create = plain_comm_create,
        .comm_destroy = plain_comm_destroy,
        .memory_map = ndp_plain_memory_map,
        .memory_unmap = ndp_plain_memory_unmap,
        .window_register = ndp_plain_window_register,
        .window_share = ndp_plain_window_share,
        .window_destroy = ndp_plain_window_destroy,
        .destroy = plain_destroy,
        .on_device = self_on_device,
    };
    return new_transport((ndp_transport){.ops = &ops, .world = 1, .node_ranks = 1}, out);
}
