/* The `local` transport: ranks of one process (local_world.c), which access each other's memory through plain pointers.
 *
 * The world's lists (groups, shared windows) are guarded by one lock; operations use only gates. */
#include "comm/node/local.h"

#include "base/clock.h"
#include "base/turns.h"
#include "comm/node/mapping.h"
#include "comm/node/peers.h"
#include "comm/watch/health.h"

#include <stdlib.h>
#include <string.h>

#define QUIET_SECONDS 10.0 /* for peers to come to their end after a failure */

/* What the ranks of one communicator share. Each rank creates its handle without waiting: its n-th handle of a group
 * belongs together with the n-th handles of the others. Lives until the world ends. */
typedef struct local_group {
    struct local_group *next;
    ndp_group group;
    uint32_t number; /* from 1 */
    void *block;
    bool joined[]; /* by group rank */
} local_group;

/* The memory of a shared window; freed by the last rank that destroys its handle, or with the world if a rank never got
 * one. */
typedef struct local_shared {
    struct local_shared *next;
    int handles;
    void *data;
    size_t bytes;
} local_shared;

/* A queue of a device whose marks other ranks may still name; destroyed with the world. */
typedef struct local_queue {
    struct local_queue *next;
    const ndp_device *device;
    ndp_queue *queue;
    int rank;
} local_queue;

typedef struct local_comm {
    ndp_comm base;
    ndp_peers peers;
} local_comm;

static ndp_local *world_of(const ndp_transport *t) { return ((const ndp_local_transport *)t)->world; }

/* ---- memory: an address is valid on all ranks ---- */

static ndp_ref local_locate(void *context, const void *data, size_t bytes) {
    (void)context, (void)bytes;
    return (ndp_ref){.offset = (int64_t)(intptr_t)data};
}

static ndp_status local_resolve(void *context, ndp_ref ref, void **out) {
    (void)context;
    *out = (void *)(intptr_t)ref.offset;
    return NDP_OK;
}

static const ndp_space local_space = {.locate = local_locate, .resolve = local_resolve};

/* ---- groups ---- */

static void group_free(local_group *g) {
    if (g) {
        free(g->block);
        free(g);
    }
}

/* `bytes` is a multiple of 64. */
static void *zeroed(size_t bytes) {
    void *data = aligned_alloc(64, bytes);
    return data ? memset(data, 0, bytes) : NULL;
}

static local_group *group_new(ndp_group group) {
    size_t n = (size_t)group.count;
    local_group *g = calloc(1, sizeof *g + n);
    if (!g)
        return NULL;
    g->group = group;
    g->block = zeroed(ndp_peers_bytes((ndp_node_members){.count = group.count}));
    if (g->block)
        return g;
    group_free(g);
    return NULL;
}

/* Under the lock. NULL: no memory. */
static local_group *group_join(ndp_local *world, ndp_group group) {
    local_group **end = &world->groups, *g;
    for (; (g = *end) != NULL; end = &g->next)
        if (g->group.base == group.base && g->group.stride == group.stride && g->group.count == group.count &&
            !g->joined[group.rank])
            break;
    if (!g)
        g = *end = group_new(group);
    if (g && g->number == 0)
        g->number = ++world->numbered;
    if (g)
        g->joined[group.rank] = true;
    return g;
}

static ndp_status local_comm_create(ndp_transport *t, ndp_group group, const char *name, ndp_comm **out) {
    ndp_local *world = world_of(t);
    local_comm *c = calloc(1, sizeof *c);
    pthread_mutex_lock(&world->lock);
    local_group *g = c ? group_join(world, group) : NULL;
    pthread_mutex_unlock(&world->lock);
    if (!g) {
        free(c);
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the communicator of group %s", name);
    }
    ndp_comm_init(&c->base, t, group, name);
    c->base.number = g->number;
    ndp_status st =
        ndp_peers_init(&c->peers, &c->base, (ndp_node_members){.count = group.count}, g->block, &local_space);
    if (st != NDP_OK) {
        free(c);
        return st;
    }
    *out = &c->base;
    return NDP_OK;
}

static void local_comm_destroy(ndp_comm *c) {
    ndp_peers_release(&((local_comm *)c)->peers);
    free(c);
}

static ndp_status local_begin(ndp_work *w) { return ndp_peers_begin(&((local_comm *)w->comm)->peers, w); }
static ndp_status local_wait(ndp_work *w) { return ndp_peers_wait(&((local_comm *)w->comm)->peers, w); }

/* ---- windows ---- */

static ndp_status shared_new(ndp_comm *c, size_t bytes, local_shared **out) {
    ndp_local *world = world_of(c->transport);
    void *data;
    NDP_TRY(ndp_memory_map(-1, 0, bytes, &data));
    local_shared *s = malloc(sizeof *s);
    if (!s) {
        ndp_memory_unmap(data, bytes);
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for a window's handle");
    }
    pthread_mutex_lock(&world->lock);
    *s = (local_shared){.next = world->shared, .handles = c->group.count, .data = data, .bytes = bytes};
    world->shared = s;
    pthread_mutex_unlock(&world->lock);
    *out = s;
    return NDP_OK;
}

static void shared_release(ndp_local *world, local_shared *s) {
    pthread_mutex_lock(&world->lock);
    bool last = --s->handles == 0;
    local_shared **at = &world->shared;
    while (last && *at != s)
        at = &(*at)->next;
    if (last)
        *at = s->next;
    pthread_mutex_unlock(&world->lock);
    if (last) {
        ndp_memory_unmap(s->data, s->bytes);
        free(s);
    }
}

static void shared_abandon(ndp_local *world) {
    world->shared->handles = 1;
    shared_release(world, world->shared);
}

/* Rank 0 of the group creates the memory and broadcasts its address; NULL: it could not. */
static ndp_status shared_find(ndp_comm *c, size_t bytes, local_shared **out) {
    local_shared *s = NULL;
    ndp_status st = c->group.rank == 0 ? shared_new(c, bytes, &s) : NDP_OK;
    ndp_work w;
    NDP_TRY(ndp_broadcast_begin(c, &s, sizeof s, 0, &w));
    NDP_TRY(ndp_wait(&w));
    if (!s)
        return st != NDP_OK ? st
                            : NDP_FAIL(NDP_ENOMEM, "rank %d has not enough memory for a shared window of group %s",
                                       c->group.base, c->name);
    *out = s;
    return NDP_OK;
}

static ndp_status local_window_share(ndp_comm *c, size_t bytes, ndp_window **out) {
    if (c->group.count == 1)
        return ndp_plain_window_share(c, bytes, out);
    local_shared *s = NULL;
    NDP_TRY(shared_find(c, bytes, &s));
    ndp_status st = ndp_memory_touch_part(s->data, bytes, c->group.rank, c->group.count);
    ndp_window *w = st == NDP_OK ? calloc(1, sizeof *w) : NULL;
    if (!w) {
        shared_release(world_of(c->transport), s);
        return st != NDP_OK ? st : NDP_FAIL(NDP_ENOMEM, "not enough memory for a window's handle");
    }
    *w = (ndp_window){.transport = c->transport, .data = s->data, .bytes = bytes, .impl = s};
    *out = w;
    return NDP_OK;
}

static void local_window_destroy(ndp_window *w) {
    if (!w->impl || w->impl == w->data) {
        ndp_plain_window_destroy(w);
        return;
    }
    shared_release(world_of(w->transport), w->impl);
    free(w);
}

/* ---- the world ---- */

static void local_abort(ndp_transport *t, const char *message) { ndp_health_fail(t->health, t->rank, message); }

/* ---- beside it: the memory of a device (lane.h) ---- */

static ndp_status queue_new(ndp_transport *t, ndp_queue **out) {
    ndp_local *world = world_of(t);
    local_queue *q = malloc(sizeof *q);
    ndp_status st =
        q ? ndp_urgent_queue_create(t->device, t->context, out) : NDP_FAIL(NDP_ENOMEM, "not enough memory for a queue");
    if (st != NDP_OK) {
        free(q);
        return st;
    }
    pthread_mutex_lock(&world->lock);
    *q = (local_queue){world->queues, t->device, *out, t->rank};
    world->queues = q;
    pthread_mutex_unlock(&world->lock);
    return NDP_OK;
}

static ndp_status device_comm_create(ndp_transport *t, ndp_group group, const char *name, ndp_comm **out) {
    NDP_CHECK(group.count <= NDP_MOST_SUMMED,
              "group %s has %d ranks; threads sum at most %d on the device %s: set train.collectives: staged", name,
              group.count, NDP_MOST_SUMMED, t->device->name);
    NDP_TRY(local_comm_create(t, group, name, out));
    ndp_status st = queue_new(t, &(*out)->queue);
    if (st == NDP_OK)
        st = queue_new(t, &(*out)->begins);
    if (st != NDP_OK)
        local_comm_destroy(*out);
    return st;
}

/* The list only grows, at its head. */
static bool own_queues_settle(ndp_transport *t) {
    ndp_local *world = world_of(t);
    bool settled = true;
    pthread_mutex_lock(&world->lock);
    const local_queue *q = world->queues;
    pthread_mutex_unlock(&world->lock);
    for (; q; q = q->next)
        settled &= q->rank != t->rank || ndp_transport_settles(t, q->queue);
    return settled;
}

static bool all_are_quiet(const ndp_health *h) {
    bool all = true;
    for (int r = 0; r < h->world; r++)
        all &= atomic_load(&h->of[r].quiet) || atomic_load(&h->of[r].left);
    return all;
}

static bool device_quits(ndp_transport *t) {
    if (!own_queues_settle(t))
        return false;
    double limit = ndp_now() + QUIET_SECONDS;
    for (atomic_store(&t->health->of[t->rank].quiet, 1); !all_are_quiet(t->health); ndp_nap(1e-3))
        if (ndp_now() > limit)
            return false;
    return true;
}

static void device_destroy(ndp_transport *t) { free(t); }

static const ndp_transport_ops device_ops = {
    .name = "local",
    .comm_create = device_comm_create,
    .comm_destroy = local_comm_destroy,
    .begin = local_begin,
    .wait = local_wait,
    .destroy = device_destroy,
    .quits = device_quits,
};

static ndp_status local_on_device(ndp_transport *host, const ndp_device *d, ndp_device_context *context,
                                  ndp_transport **out) {
    ndp_local_transport *t = calloc(1, sizeof *t);
    NDP_CHECK_MEMORY(t, "for a transport of the device %s", d->name);
    *t = (ndp_local_transport){.base = ndp_transport_beside(host, &device_ops, d, context), .world = world_of(host)};
    *out = &t->base;
    return NDP_OK;
}

const ndp_transport_ops ndp_local_ops = {
    .name = "local",
    .comm_create = local_comm_create,
    .comm_destroy = local_comm_destroy,
    .begin = local_begin,
    .wait = local_wait,
    .memory_map = ndp_plain_memory_map,
    .memory_unmap = ndp_plain_memory_unmap,
    .window_register = ndp_plain_window_register,
    .window_share = local_window_share,
    .window_destroy = local_window_destroy,
    .on_device = local_on_device,
    .abort = local_abort,
};

void ndp_local_release(ndp_local *world) {
    while (world->groups) {
        local_group *g = world->groups;
        world->groups = g->next;
        group_free(g);
    }
    while (world->shared)
        shared_abandon(world);
    while (world->queues) {
        local_queue *q = world->queues;
        world->queues = q->next;
        q->device->queue_destroy(q->queue);
        free(q);
    }
}
