/* Runs the ranks of a `local` world: threads of one process, or in tests fibers of one thread (base/turns.h). A body
 * that returns an error ends the run for all: rank_run records it in the health record, and the waits of the others
 * return it. */
#include "base/turns.h"
#include "comm/node/local.h"
#include "comm/node/mapping.h"
#include "comm/watch/wait.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STACK_BYTES = 8 << 20 };

static void rank_run(void *arg) {
    ndp_local_transport *t = arg;
    ndp_local *world = t->world;
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
static void run_threads(pthread_t *threads, ndp_local_transport *ranks, int n) {
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

static ndp_status run_in_turns(ndp_local_transport *ranks, int n, uint64_t seed) {
    void **args = calloc((size_t)n, sizeof *args);
    NDP_CHECK_MEMORY(args, "for a world of %d ranks", n);
    for (int r = 0; r < n; r++)
        args[r] = &ranks[r];
    ndp_status st = ndp_turns_run(n, rank_run, args, seed);
    free(args);
    return st;
}

static ndp_status world_run(ndp_local *world, pthread_t *threads, ndp_local_transport *ranks, int n) {
    for (int r = 0; r < n; r++) {
        ndp_transport base = {.ops = &ndp_local_ops,
                              .rank = r,
                              .world = n,
                              .node_ranks = n,
                              .health = world->health,
                              .journals = world->journals};
        NDP_TRY(ndp_wait_setup(&base, n));
        ranks[r] = (ndp_local_transport){.base = base, .world = world};
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
    ndp_local world = {.lock = PTHREAD_MUTEX_INITIALIZER, .body = body, .arg = arg, .first_status = NDP_ECOMM};
    pthread_t *threads = calloc(n, sizeof *threads);
    ndp_local_transport *ranks = calloc(n, sizeof *ranks);
    ndp_status st = NDP_OK;
    size_t health = (ndp_health_bytes(world_size) + 63) / 64 * 64, bytes = health + n * sizeof(ndp_journal);
    void *seen = NULL; /* what ranks see of each other: health, then journals */
    if (ndp_memory_map(-1, 0, bytes, &seen) != NDP_OK || !threads || !ranks) {
        st = NDP_FAIL(NDP_ENOMEM, "not enough memory for a world of %d ranks", world_size);
    } else {
        world.health = seen;
        world.health->world = world_size;
        world.journals = (ndp_journal *)((char *)seen + health);
        st = world_run(&world, threads, ranks, world_size);
    }
    ndp_local_release(&world);
    free(ranks);
    free(threads);
    ndp_memory_unmap(seen, bytes);
    return st;
}
