/* A world of processes: the parent's view of the shared file, and the text by which its children find it. */
#include "comm/node/shm_world.h"
#include "comm/node/node_memory.h"
#include "comm/watch/journal.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

struct ndp_shm_world {
    ndp_node_memory node;
    ndp_node_address address;
    int ranks;
};

ndp_status ndp_shm_world_create(int ranks, ndp_shm_world **out) {
    ndp_shm_world *w = calloc(1, sizeof *w);
    NDP_CHECK_MEMORY(w, "for a world of %d ranks", ranks);
    w->ranks = ranks;
    ndp_status st = ndp_node_memory_create(&w->node, ranks, &w->address);
    if (st != NDP_OK) {
        free(w);
        return st;
    }
    *out = w;
    return NDP_OK;
}

void ndp_shm_world_destroy(ndp_shm_world *w) {
    if (w)
        ndp_node_memory_release(&w->node);
    free(w);
}

ndp_shm_address ndp_shm_world_address(const ndp_shm_world *w) {
    return (ndp_shm_address){.fd = w->address.fd, .ranks = w->ranks, .token = w->address.token};
}

void ndp_shm_address_text(const ndp_shm_address *a, char *out, size_t size) {
    snprintf(out, size, "%d:%d:%016" PRIx64, a->fd, a->ranks, a->token);
}

/* The number before `end`, from 0 to INT_MAX; *text moves past `end`. */
static bool read_number(const char **text, char end, int *out) {
    int64_t n = 0;
    const char *at = *text;
    for (; *at >= '0' && *at <= '9' && n <= INT_MAX; at++)
        n = 10 * n + (*at - '0');
    if (at == *text || n > INT_MAX || *at != end)
        return false;
    *text = at + 1;
    *out = (int)n;
    return true;
}

bool ndp_shm_address_read(const char *text, ndp_shm_address *out) {
    char *end;
    ndp_shm_address a;
    if (!text || !read_number(&text, ':', &a.fd) || !read_number(&text, ':', &a.ranks) || a.ranks < 1)
        return false;
    a.token = strtoull(text, &end, 16);
    if (end != text + 16 || *end)
        return false;
    *out = a;
    return true;
}

/* ---- the state of its ranks ---- */

/* `inside` is cleared: a process that has ended accesses no memory, though it may have been killed while it did. */
void ndp_shm_world_ended(ndp_shm_world *w, int rank, const char *why) {
    ndp_health *h = w->node.health;
    atomic_store(&h->of[rank].inside, 0);
    if (why)
        ndp_health_fail(h, rank, why);
    atomic_store(&h->of[rank].left, 1);
}

pid_t ndp_shm_world_process(const ndp_shm_world *w, int rank) {
    return (pid_t)atomic_load(&w->node.health->of[rank].process);
}

bool ndp_shm_world_joined(const ndp_shm_world *w, int rank) { return ndp_shm_world_process(w, rank) != 0; }

bool ndp_shm_world_left(const ndp_shm_world *w, int rank) { return atomic_load(&w->node.health->of[rank].left) != 0; }

const char *ndp_shm_world_last(const ndp_shm_world *w, int rank, char *out, size_t size) {
    ndp_rank_state s = ndp_journal_read(&w->node.journals[rank]);
    out[0] = '\0';
    return ndp_rank_state_is_sound(&s, w->ranks) ? ndp_last_text(&s, out, size) : out;
}

int ndp_shm_world_failed(const ndp_shm_world *w) {
    const ndp_health *h = w->node.health;
    return atomic_load(&h->failed) == 2 ? h->rank : -1;
}

void ndp_shm_world_write_journals(const ndp_shm_world *w) {
    char own[NDP_JOURNAL_PREFIX];
    const ndp_health *h = w->node.health;
    const char *prefix = ndp_journal_prefix(h, own);
    int failed = ndp_shm_world_failed(w);
    char why[sizeof h->message + 32];
    for (int r = 0; prefix && failed >= 0 && r < w->ranks; r++) {
        snprintf(why, sizeof why, "rank %d failed: %s", failed, h->message);
        ndp_journal_write_file(prefix, &w->node.journals[r], r, w->ranks, r == failed ? h->message : why);
    }
}
