/* Communicators, memory and windows of ranks that share a node.
 *
 * A communicator's block is a segment that the first rank to join creates; the table of groups, under its lock, tells
 * the others which. No rank waits for another here. */
#include "base/turns.h"
#include "comm/node/mapping.h"
#include "comm/node/node_memory.h"

#include <stdlib.h>

/* ---- communicators ---- */

/* A rank that is killed while it holds the lock ends the run, and so this wait. */
static ndp_status lock(ndp_node_memory *n) {
    while (atomic_exchange_explicit(&n->table->lock, 1, memory_order_acquire)) {
        NDP_TRY(ndp_health_check(n->health));
        ndp_yield();
    }
    return NDP_OK;
}

static void unlock(ndp_node_memory *n) { atomic_store_explicit(&n->table->lock, 0, memory_order_release); }

/* Under the lock: the first group of these ranks that this rank has not joined, else a new one. */
static ndp_status find_group(ndp_node_memory *n, const ndp_group *g, ndp_node_members members, int *out) {
    ndp_node_table *t = n->table;
    ndp_ref block;
    int k = 0;
    while (k < t->groups && !(t->group[k].base == g->base && t->group[k].stride == g->stride &&
                              t->group[k].count == g->count && !n->joined[k]))
        k++;
    if (k == t->groups) {
        if (k == NDP_NODE_GROUPS)
            return NDP_FAIL(NDP_ENOTSUP, "more than %d communicators in one run", NDP_NODE_GROUPS);
        NDP_TRY(ndp_node_segment_create(n, ndp_peers_bytes(members), members.count, &block));
        t->group[k] = (ndp_node_group){g->base, g->stride, g->count, block.segment};
        t->groups++;
    }
    *out = k;
    return NDP_OK;
}

ndp_status ndp_node_join(ndp_node_memory *n, ndp_comm *c, ndp_node_members members, ndp_node_part *out) {
    int k = 0;
    void *block;
    NDP_TRY(lock(n));
    ndp_status st = find_group(n, &c->group, members, &k);
    unlock(n);
    NDP_TRY(st);
    n->joined[k] = true;
    out->block = (ndp_ref){.segment = n->table->group[k].segment};
    NDP_TRY(ndp_node_memory_resolve(n, out->block, &block));
    return ndp_peers_init(&out->peers, c, members, block, &n->space);
}

void ndp_node_leave(ndp_node_memory *n, ndp_node_part *part) {
    ndp_peers_release(&part->peers);
    ndp_node_segment_drop(n, part->block);
}

/* ---- memory ---- */

ndp_status ndp_node_memory_map(ndp_node_memory *n, size_t bytes, void **out) {
    ndp_ref segment;
    void *data;
    NDP_TRY(ndp_node_segment_create(n, bytes, 1, &segment));
    ndp_status st = ndp_node_memory_resolve(n, segment, &data);
    if (st == NDP_OK)
        st = ndp_memory_touch(data, bytes);
    if (st != NDP_OK) {
        ndp_node_segment_drop(n, segment);
        return st;
    }
    *out = data;
    return NDP_OK;
}

void ndp_node_memory_unmap(ndp_node_memory *n, void *data) {
    int32_t s = 0;
    while (s < n->capacity && n->mappings[s].data != data)
        s++;
    if (s < n->capacity)
        ndp_node_segment_drop(n, (ndp_ref){.segment = s});
}

/* ---- windows ---- */

typedef struct node_window {
    ndp_window base;
    ndp_ref segment; /* a shared window's; -1: the memory is the caller's */
} node_window;

static ndp_status window_new(ndp_node_memory *n, ndp_comm *c, void *data, size_t bytes, ndp_ref segment,
                             ndp_window **out) {
    node_window *w = calloc(1, sizeof *w);
    NDP_CHECK_MEMORY(w, "for a window's handle");
    ndp_status st = ndp_node_range_add(n, data, bytes);
    if (st != NDP_OK) {
        free(w);
        return st;
    }
    w->base = (ndp_window){.transport = c->transport, .data = data, .bytes = bytes};
    w->segment = segment;
    *out = &w->base;
    return NDP_OK;
}

ndp_status ndp_node_window_register(ndp_node_memory *n, ndp_comm *c, void *data, size_t bytes, ndp_window **out) {
    return window_new(n, c, data, bytes, (ndp_ref){.segment = -1}, out);
}

/* The first rank creates a segment and sends its number to the others; -1: it could not. */
static ndp_status shared_segment(ndp_node_memory *n, ndp_comm *c, size_t bytes, ndp_ref *out) {
    ndp_ref ref = {.segment = -1};
    ndp_status st = c->group.rank == 0 ? ndp_node_segment_create(n, bytes, c->group.count, &ref) : NDP_OK;
    if (c->group.count > 1) {
        ndp_work w;
        NDP_TRY(ndp_broadcast_begin(c, &ref, sizeof ref, 0, &w));
        NDP_TRY(ndp_wait(&w));
    }
    if (st != NDP_OK)
        return st;
    if (ref.segment < 0)
        return NDP_FAIL(NDP_ENOMEM, "rank %d has no shared memory of %zu bytes for group %s", c->group.base, bytes,
                        c->name);
    *out = ref;
    return NDP_OK;
}

ndp_status ndp_node_window_share(ndp_node_memory *n, ndp_comm *c, size_t bytes, ndp_window **out) {
    ndp_ref segment;
    void *data = NULL;
    NDP_TRY(shared_segment(n, c, bytes, &segment));
    ndp_status st = ndp_node_memory_resolve(n, segment, &data);
    if (st == NDP_OK)
        st = ndp_memory_touch_part(data, bytes, c->group.rank, c->group.count);
    if (st == NDP_OK)
        st = window_new(n, c, data, bytes, segment, out);
    if (st != NDP_OK)
        ndp_node_segment_drop(n, segment);
    return st;
}

void ndp_node_window_destroy(ndp_node_memory *n, ndp_window *w) {
    ndp_node_range_remove(n, w->data, w->bytes);
    ndp_node_segment_drop(n, ((node_window *)w)->segment);
    free(w);
}
