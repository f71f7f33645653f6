/* Ranks of a team as threads, for tests. */
#ifndef NDP_TESTS_DATA_TEAM_H
#define NDP_TESTS_DATA_TEAM_H

#include "data/cache/cache.h"

#include "check.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { TEAM_MOST = 8, TEAM_BYTES = 256 };

/* Where the ranks meet. */
typedef struct meeting {
    int size;
    pthread_barrier_t barrier;
    char told[TEAM_MOST][TEAM_BYTES];
    ndp_status status[TEAM_MOST];
    char message[TEAM_MOST][512];
} meeting;

typedef struct member {
    meeting *m;
    int rank;
    ndp_dataset_options o;
    char *path;
    char message[600];
    ndp_status status;
} member;

static inline ndp_status team_gather(void *user, const void *mine, void *all, int64_t bytes) {
    member *e = user;
    assert_true(bytes <= TEAM_BYTES && bytes % 4 == 0);
    memcpy(e->m->told[e->rank], mine, (size_t)bytes);
    pthread_barrier_wait(&e->m->barrier);
    for (int r = 0; r < e->m->size; r++)
        memcpy((char *)all + r * bytes, e->m->told[r], (size_t)bytes);
    pthread_barrier_wait(&e->m->barrier);
    return NDP_OK;
}

static inline ndp_status team_agree(void *user, ndp_status mine) {
    member *e = user;
    e->m->status[e->rank] = mine;
    snprintf(e->m->message[e->rank], sizeof e->m->message[0], "%s", ndp_error_message());
    pthread_barrier_wait(&e->m->barrier);
    int failed = 0;
    while (failed < e->m->size && e->m->status[failed] == NDP_OK)
        failed++;
    ndp_status st = NDP_OK;
    if (failed < e->m->size)
        st = NDP_FAIL(e->m->status[failed], "rank %d: %s", failed, e->m->message[failed]);
    pthread_barrier_wait(&e->m->barrier);
    return st;
}

static inline void *team_rank(void *arg) {
    member *e = arg;
    ndp_team team = {e->rank, e->m->size, team_agree, team_gather, e};
    e->o.team = &team;
    e->status = ndp_dataset_prepare(&e->o, &e->path);
    snprintf(e->message, sizeof e->message, "%s", e->status == NDP_OK ? "" : ndp_error_message());
    return NULL;
}

/* Prepares on `n` ranks, whose options are those of their members. */
static inline void team_prepare(member *members, int n) {
    meeting m = {.size = n};
    pthread_t threads[TEAM_MOST];
    assert_int_equal(pthread_barrier_init(&m.barrier, NULL, (unsigned)n), 0);
    for (int r = 0; r < n; r++) {
        members[r].m = &m;
        members[r].rank = r;
        members[r].path = NULL;
        assert_int_equal(pthread_create(&threads[r], NULL, team_rank, &members[r]), 0);
    }
    for (int r = 0; r < n; r++)
        pthread_join(threads[r], NULL);
    pthread_barrier_destroy(&m.barrier);
}

#endif
