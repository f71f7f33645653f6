/* The `shm` transport: the processes that ndp_launch started on one host. They share nothing but the file of their
 * world (node_memory.h), so they need no handshake before the first operation, and no process listens on any address.
 */
#include "comm/node/node_memory.h"
#include "comm/node/shm_world.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

typedef struct shm_transport {
    ndp_transport base;
    ndp_node_memory node;
} shm_transport;

typedef struct shm_comm {
    ndp_comm base;
    ndp_node_part part;
} shm_comm;

static ndp_node_memory *node_of(ndp_transport *t) { return &((shm_transport *)t)->node; }

static ndp_status shm_comm_create(ndp_transport *t, ndp_group group, const char *name, ndp_comm **out) {
    shm_comm *c = calloc(1, sizeof *c);
    NDP_CHECK_MEMORY(c, "for the communicator of group %s", name);
    ndp_comm_init(&c->base, t, group, name);
    ndp_status st = ndp_node_join(node_of(t), &c->base, (ndp_node_members){.count = group.count}, &c->part);
    if (st != NDP_OK) {
        free(c);
        return st;
    }
    *out = &c->base;
    return NDP_OK;
}

static void shm_comm_destroy(ndp_comm *c) {
    ndp_node_leave(node_of(c->transport), &((shm_comm *)c)->part);
    free(c);
}

static ndp_status shm_begin(ndp_work *w) { return ndp_peers_begin(&((shm_comm *)w->comm)->part.peers, w); }
static ndp_status shm_wait(ndp_work *w) { return ndp_peers_wait(&((shm_comm *)w->comm)->part.peers, w); }

static ndp_status shm_memory_map(ndp_transport *t, size_t bytes, void **out) {
    return ndp_node_memory_map(node_of(t), bytes, out);
}

static void shm_memory_unmap(ndp_transport *t, void *data, size_t bytes) {
    (void)bytes;
    ndp_node_memory_unmap(node_of(t), data);
}

static ndp_status shm_window_register(ndp_comm *c, void *data, size_t bytes, ndp_window **out) {
    return ndp_node_window_register(node_of(c->transport), c, data, bytes, out);
}

static ndp_status shm_window_share(ndp_comm *c, size_t bytes, ndp_window **out) {
    return ndp_node_window_share(node_of(c->transport), c, bytes, out);
}

static void shm_window_destroy(ndp_window *w) { ndp_node_window_destroy(node_of(w->transport), w); }

static void shm_abort(ndp_transport *t, const char *message) { ndp_health_fail(t->health, t->rank, message); }

/* Peers that still work need nothing from this rank: its last wait returned when no peer accessed its buffers any more.
 */
static void shm_destroy(ndp_transport *t) {
    atomic_store(&t->health->of[t->rank].left, 1);
    ndp_node_memory_release(node_of(t));
    free(t);
}

static const ndp_transport_ops shm_ops = {
    .name = "shm",
    .comm_create = shm_comm_create,
    .comm_destroy = shm_comm_destroy,
    .begin = shm_begin,
    .wait = shm_wait,
    .memory_map = shm_memory_map,
    .memory_unmap = shm_memory_unmap,
    .window_register = shm_window_register,
    .window_share = shm_window_share,
    .window_destroy = shm_window_destroy,
    .abort = shm_abort,
    .destroy = shm_destroy,
};

/* ---- the start ---- */

/* Each rank is one process, which joins once. */
static ndp_status claim_rank(ndp_node_memory *n, int rank) {
    uint32_t other = 0;
    if (atomic_compare_exchange_strong(&n->health->of[rank].process, &other, (uint32_t)getpid()))
        return NDP_OK;
    return NDP_FAIL(
        NDP_EINVAL,
        "process %u has joined as rank %d: each rank is one of the processes that ndparallel launch starts, or a "
        "child of one, and joins once",
        other, rank);
}

static ndp_status join(shm_transport *t, const ndp_shm_address *a, int rank) {
    int fd = fcntl(a->fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        return NDP_FAIL(
            NDP_EINVAL,
            "the memory of this world is closed (descriptor %d): a script that starts a rank's program must keep "
            "its descriptors open",
            a->fd);
    NDP_TRY(ndp_node_memory_attach(&t->node, fd, a->token, a->ranks));
    NDP_TRY(claim_rank(&t->node, rank));
    t->base = (ndp_transport){.ops = &shm_ops,
                              .rank = rank,
                              .world = a->ranks,
                              .node_ranks = a->ranks,
                              .health = t->node.health,
                              .journals = t->node.journals};
    return ndp_wait_setup(&t->base, a->ranks);
}

ndp_status ndp_transport_shm(ndp_transport **out) {
    ndp_shm_address a;
    int rank = ndp_launched_rank();
    NDP_CHECK(ndp_shm_address_read(getenv(NDP_WORLD), &a) && rank < a.ranks,
              "transport shm: this process is not a rank that ndparallel started on one host (" NDP_WORLD " is '%s'); "
              "start it with `ndparallel launch -n N -- PROGRAM`",
              getenv(NDP_WORLD) ? getenv(NDP_WORLD) : "");
    shm_transport *t = calloc(1, sizeof *t);
    NDP_CHECK_MEMORY(t, "for the shm transport");
    t->node.fd = -1;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* not inherited through a shell between the launcher and this process */
    ndp_status st = join(t, &a, rank);
    if (st != NDP_OK) {
        ndp_node_memory_release(&t->node);
        free(t);
        return st;
    }
    *out = &t->base;
    return NDP_OK;
}
