/* Functions of a transport's table that need no peers: several transports have them (impl.h). */
#include "comm/impl.h"
#include "comm/node/mapping.h"

#include <stdlib.h>

ndp_status ndp_plain_comm_create(ndp_transport *t, ndp_group group, const char *name, ndp_comm **out) {
    ndp_comm *c = calloc(1, sizeof *c);
    if (!c)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the communicator of group %s", name);
    ndp_comm_init(c, t, group, name);
    *out = c;
    return NDP_OK;
}

void ndp_plain_comm_destroy(ndp_comm *c) { free(c); }

ndp_status ndp_plain_memory_map(ndp_transport *t, size_t bytes, void **out) {
    void *data;
    NDP_TRY(ndp_memory_map(-1, 0, bytes, &data));
    ndp_status st = t->ops->dry ? NDP_OK : ndp_memory_touch(data, bytes);
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
    if (!w)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for a window's handle");
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
