/* Prices of calls and lists, in seconds. A kernel is as slow as the slower of its arithmetic and its memory traffic.
 * */
#include "graph/price.h"

#include <math.h>

/* All but the rank's own part, of what it hands in. */
static double leaving(ndp_collective kind, double bytes, int ranks) {
    switch (kind) {
    case NDP_ALL_GATHER:
        return bytes * (ranks - 1);
    case NDP_ALL_REDUCE:
        return 2 * bytes * (ranks - 1) / ranks;
    case NDP_SHIFT:
    case NDP_SEND:
    case NDP_RECV:
        return bytes;
    default:
        return bytes * (ranks - 1) / ranks;
    }
}

double ndp_call_moved(const ndp_call *c, int ranks) {
    return c->in_place || ranks == 1 ? 0 : leaving(c->op->collective, c->bytes, ranks);
}

static double kernel_by_rates(const void *rates, const ndp_call *c) {
    const ndp_rates *r = rates;
    return fmax(c->flops / r->flops, c->bytes / r->bytes);
}

static double comm_by_rates(const void *rates, const ndp_call *c, const ndp_group *group) {
    const ndp_rates *r = rates;
    return group->count == 1 ? 0 : r->latency + ndp_call_moved(c, group->count) / r->sent;
}

ndp_price ndp_price_by_rates(const ndp_rates *rates) {
    return (ndp_price){.kernel = kernel_by_rates, .comm = comm_by_rates, .user = rates};
}

double ndp_list_price(const ndp_list *list, const ndp_price *price, const ndp_mesh *mesh) {
    double sum = 0;
    for (int i = 0; i < list->n; i++) {
        const ndp_call *c = &list->calls[i];
        double times = (double)ndp_repeats_times(&list->repeats, i);
        if (c->kind == NDP_CALL_KERNEL)
            sum += times * price->kernel(price->user, c);
        if (c->kind == NDP_CALL_BEGIN) {
            ndp_group group = ndp_mesh_group(mesh, (ndp_group_kind)c->channel);
            sum += times * price->comm(price->user, c, &group);
        }
    }
    return sum;
}
