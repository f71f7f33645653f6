/* The `local` transport: ranks are threads of one process, or in tests fibers of one thread (base/turns.h), and access
 * each other's memory through plain pointers.
 *
 * The world's lists (groups, shared windows) are guarded by one lock; operations use only gates. A body that returns an
 * error ends the run for all: rank_main records it in the health record, and the waits of the others return it. */
#include "base/turns.h"
#include "comm/node/mapping.h"
#include "comm/node/peers.h"
#include "comm/watch/health.h"

#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STACK_BYTES = 8 << 20 };

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
} local_queue;

typedef struct local_world {
    pthread_mutex_t lock; /* guards groups, numbered, shared, handles, queues, first_status, stopped */
    local_queue *queues;
    uint32_t numbered; /* groups */
    local_group *groups;
    local_shared *shared;
    ndp_health *health;
    ndp_journal *journals; /* [ranks] */
    ndp_status (*body)(ndp_transport *, void *);
    void *arg;
    ndp_status first_status;
    char stopped[256]; /* the message of the first rank that a signal stopped; "": none */
} local_world;

typedef struct local_transport {
    ndp_transport base;
    local_world *world;
} local_transport;

typedef struct local_comm {
    ndp_comm base;
    ndp_peers peers;
} local_comm;

static local_world *world_of(const ndp_transport *t) { return ((const local_transport *)t)->world; }

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
static local_group *group_join(local_world *world, ndp_group group) {
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
    local_world *world = world_of(t);
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
    local_world *world = world_of(c->transport);
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

static void shared_release(local_world *world, local_shared *s) {
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

static void shared_abandon(local_world *world) {
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
    local_world *world = world_of(t);
    local_queue *q = malloc(sizeof *q);
    ndp_status st =
        q ? t->device->queue_create(t->context, out) : NDP_FAIL(NDP_ENOMEM, "not enough memory for a queue");
    if (st != NDP_OK) {
        free(q);
        return st;
    }
    pthread_mutex_lock(&world->lock);
    *q = (local_queue){world->queues, t->device, *out};
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

/* After a failure its last shares may still run, and their memory is about to go. Where they do not end, the engine
 * keeps the memory (step/engine_host.c). */
static void device_comm_destroy(ndp_comm *c) {
    ndp_transport_settles(c->transport, c->queue);
    local_comm_destroy(c);
}

static void device_destroy(ndp_transport *t) { free(t); }

static const ndp_transport_ops device_ops = {
    .name = "local",
    .comm_create = device_comm_create,
    .comm_destroy = device_comm_destroy,
    .begin = local_begin,
    .wait = local_wait,
    .destroy = device_destroy,
};

static ndp_status local_on_device(ndp_transport *host, const ndp_device *d, ndp_device_context *context,
                                  ndp_transport **out) {
    local_transport *t = calloc(1, sizeof *t);
    if (!t)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for a transport of the device %s", d->name);
    *t = (local_transport){.base = ndp_transport_beside(host, &device_ops, d, context), .world = world_of(host)};
    *out = &t->base;
    return NDP_OK;
}

static const ndp_transport_ops local_ops = {
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

static void rank_run(void *arg) {
    local_transport *t = arg;
    local_world *world = t->world;
    omp_set_num_threads(1); /* per thread: N ranks share the cores; a body may raise it */
    ndp_error_set(NDP_OK, "");
    ndp_status st = world->body(&t->base, world->arg);
    if (st == NDP_EINTR) { /* no failure: the others return by themselves */
        pthread_mutex_lock(&world->lock);
        if (!world->stopped[0])
            snprintf(world->stopped, sizeof world->stopped, "%s", ndp_error_message());
        pthread_mutex_unlock(&world->lock);
    } else if (st != NDP_OK) {
        ndp_journal_write(&t->base);
        ndp_health_fail(world->health, t->base.rank, ndp_error_message());
    }
    bool failed = atomic_load(&world->health->failed) == 2;
    if (failed && world->health->rank == t->base.rank) {
        pthread_mutex_lock(&world->lock);
        world->first_status = st != NDP_OK ? st : NDP_ECOMM;
        pthread_mutex_unlock(&world->lock);
    }
    atomic_store(&world->health->of[t->base.rank].left, 1);
}

static void *rank_main(void *arg) {
    rank_run(arg);
    return NULL;
}

/* Starts as many rank threads as the system allows, and waits for their end. */
static void run_threads(pthread_t *threads, local_transport *ranks, int n) {
    int started = 0;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    for (; started < n; started++) {
        int error = pthread_create(&threads[started], &attr, rank_main, &ranks[started]);
        if (error) {
            char message[160];
            snprintf(message, sizeof message, "cannot start the thread of rank %d of %d: %s", started, n,
                     strerror(error));
            ranks[0].world->first_status = NDP_ENOMEM;
            ndp_health_fail(ranks[0].world->health, started, message);
            break;
        }
    }
    pthread_attr_destroy(&attr);
    for (int r = 0; r < started; r++)
        pthread_join(threads[r], NULL);
}

/* NDP_LOCAL_ORDER, for tests: seeds, with commas between them. The ranks take turns on one thread, in an order that one
 * of the seeds shuffles: another one for worlds of n + 1 ranks than of n. False: not set, or empty. */
static bool order_of(int n, uint64_t *seed) {
    const char *text = getenv("NDP_LOCAL_ORDER");
    if (!text || !*text)
        return false;
    int seeds = 1;
    for (const char *c = text; (c = strchr(c, ',')) != NULL; c++)
        seeds++;
    for (int k = n % seeds; k > 0; k--)
        text = strchr(text, ',') + 1;
    *seed = strtoull(text, NULL, 10);
    return true;
}

static ndp_status run_in_turns(local_transport *ranks, int n, uint64_t seed) {
    void **args = calloc((size_t)n, sizeof *args);
    if (!args)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for a world of %d ranks", n);
    for (int r = 0; r < n; r++)
        args[r] = &ranks[r];
    ndp_status st = ndp_turns_run(n, rank_run, args, seed);
    free(args);
    return st;
}

static ndp_status world_run(local_world *world, pthread_t *threads, local_transport *ranks, int n) {
    for (int r = 0; r < n; r++) {
        ndp_transport base = {.ops = &local_ops,
                              .rank = r,
                              .world = n,
                              .node_ranks = n,
                              .health = world->health,
                              .journals = world->journals};
        NDP_TRY(ndp_wait_setup(&base, n));
        ranks[r] = (local_transport){.base = base, .world = world};
    }
    uint64_t seed;
    if (order_of(n, &seed))
        NDP_TRY(run_in_turns(ranks, n, seed));
    else
        run_threads(threads, ranks, n);
    if (atomic_load(&world->health->failed) == 0) {
        if (world->stopped[0])
            return NDP_FAIL(NDP_EINTR, "%s", world->stopped);
        return NDP_OK;
    }
    char message[sizeof world->health->message + 32];
    snprintf(message, sizeof message, "rank %d: %s", world->health->rank, world->health->message);
    ndp_error_set(world->first_status, message);
    return world->first_status;
}

ndp_status ndp_local_world(int world_size, ndp_status (*body)(ndp_transport *, void *), void *arg) {
    NDP_CHECK(world_size >= 1, "a world of %d ranks", world_size);
    size_t n = (size_t)world_size;
    local_world world = {.lock = PTHREAD_MUTEX_INITIALIZER, .body = body, .arg = arg, .first_status = NDP_ECOMM};
    world.health = zeroed(ndp_health_bytes(world_size));
    pthread_t *threads = calloc(n, sizeof *threads);
    local_transport *ranks = calloc(n, sizeof *ranks);
    ndp_status st = NDP_OK;
    size_t journal_bytes = n * sizeof(ndp_journal);
    void *journals = NULL;
    if (ndp_memory_map(-1, 0, journal_bytes, &journals) != NDP_OK || !world.health || !threads || !ranks) {
        st = NDP_FAIL(NDP_ENOMEM, "not enough memory for a world of %d ranks", world_size);
    } else {
        world.health->world = world_size;
        world.journals = journals;
        st = world_run(&world, threads, ranks, world_size);
    }
    while (world.groups) {
        local_group *g = world.groups;
        world.groups = g->next;
        group_free(g);
    }
    while (world.shared)
        shared_abandon(&world);
    while (world.queues) {
        local_queue *q = world.queues;
        world.queues = q->next;
        q->device->queue_destroy(q->queue);
        free(q);
    }
    free(ranks);
    free(threads);
    free(world.health);
    ndp_memory_unmap(journals, journal_bytes);
    return st;
}
