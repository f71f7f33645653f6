/* The `mpi` transport: processes. Ranks of one node use each other's memory (node_memory.h) if this could be set up:
 * for messages, and for collectives of groups that lie inside a node. Everything else uses MPI (mpi_plain.c).
 *
 * NDP_SHM=off takes MPI for everything. Several nodes are rehearsed on one by NDP_NODE_RANKS=N, which takes every N
 * ranks for a node of their own, and by NDP_NODE_OF=0,1,1,0, which says the node of each rank. */
#include "base/clock.h"
#include "comm/launched.h"
#include "comm/mpi/mpi_bootstrap.h"
#include "comm/mpi/mpi_load.h"
#include "comm/mpi/mpi_plain.h"
#include "comm/node/mapping.h"
#include "comm/watch/state_query.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GRACE_SECONDS = 2 };

typedef struct mpi_comm {
    ndp_comm base;
    ndp_node_members members; /* that share memory with this rank; count = 0: none */
    ndp_node_part part;       /* if there are any */
    ndp_mpi_plain plain;      /* unless all share memory */
    int place[];              /* members.place, if some share memory and some do not */
} mpi_comm;

/* ---- operations ---- */

static bool all_share_memory(const mpi_comm *c) { return c->members.count && !c->members.place; }

static bool is_in_memory(const ndp_work *w) {
    const mpi_comm *c = (const mpi_comm *)w->comm;
    return all_share_memory(c) || (ndp_work_is_message(w) && c->members.place && c->members.place[w->peer] >= 0);
}

static ndp_status mpi_begin(ndp_work *w) {
    mpi_comm *c = (mpi_comm *)w->comm;
    return is_in_memory(w) ? ndp_peers_begin(&c->part.peers, w) : ndp_mpi_plain_begin(&c->plain, w);
}

static ndp_status mpi_wait(ndp_work *w) {
    mpi_comm *c = (mpi_comm *)w->comm;
    if (is_in_memory(w))
        return ndp_peers_wait(&c->part.peers, w);
    ndp_status st = ndp_mpi_plain_wait(&c->plain, w);
    if (st != NDP_OK)
        ndp_health_fail_wait(c->base.transport->health, c->base.transport->rank, ndp_error_message());
    return st;
}

/* ---- communicators ---- */

static void find_members(const ndp_mpi_transport *t, mpi_comm *c) {
    ndp_group g = c->base.group;
    int n = 0;
    for (int r = 0; r < g.count && t->on_node; r++)
        c->place[r] = t->node_of[g.base + r * g.stride] == t->node_of[t->base.rank] ? n++ : -1;
    if (n > 1)
        c->members = (ndp_node_members){.count = n, .place = n < g.count ? c->place : NULL};
}

/* The group's first rank chooses the number. */
static ndp_status number_for_group(ndp_mpi_transport *t, mpi_comm *c, uint32_t *out) {
    ndp_work w;
    *out = c->base.group.rank == 0 ? ++t->numbered : 0;
    return ndp_mpi_exchange(ndp_broadcast_begin(&c->base, out, sizeof *out, 0, &w), &w);
}

static void mpi_comm_destroy(ndp_comm *base) {
    mpi_comm *c = (mpi_comm *)base;
    ndp_mpi_transport *t = (ndp_mpi_transport *)base->transport;
    if (c->members.count)
        ndp_node_leave(&t->node, &c->part);
    if (!all_share_memory(c))
        ndp_mpi_plain_release(&c->plain, atomic_load(&t->base.health->failed) != 0);
    free(c);
}

/* The broadcast itself has no number, and does not count as an operation. */
static ndp_status connect_by_mpi(ndp_mpi_transport *t, mpi_comm *c) {
    uint32_t number;
    NDP_TRY(ndp_mpi_plain_init(&c->plain, t->api, &c->base));
    ndp_status st = number_for_group(t, c, &number);
    if (st != NDP_OK) {
        ndp_mpi_plain_release(&c->plain, atomic_load(&t->base.health->failed) != 0);
        return st;
    }
    c->base.number = number;
    c->base.operations = 0;
    return NDP_OK;
}

static ndp_status comm_connect(ndp_mpi_transport *t, mpi_comm *c) {
    find_members(t, c);
    if (c->members.count)
        NDP_TRY(ndp_node_join(&t->node, &c->base, c->members, &c->part));
    ndp_status st = all_share_memory(c) ? NDP_OK : connect_by_mpi(t, c);
    if (st != NDP_OK && c->members.count)
        ndp_node_leave(&t->node, &c->part);
    return st;
}

static ndp_status mpi_comm_create(ndp_transport *base, ndp_group group, const char *name, ndp_comm **out) {
    ndp_mpi_transport *t = (ndp_mpi_transport *)base;
    mpi_comm *c = calloc(1, sizeof *c + (size_t)group.count * sizeof *c->place);
    NDP_CHECK_MEMORY(c, "for the communicator of group %s", name);
    ndp_comm_init(&c->base, base, group, name);
    ndp_status st = comm_connect(t, c);
    if (st != NDP_OK) {
        free(c);
        return st;
    }
    *out = &c->base;
    return NDP_OK;
}

/* ---- memory ---- */

static ndp_status mpi_memory_map(ndp_transport *base, size_t bytes, void **out) {
    ndp_mpi_transport *t = (ndp_mpi_transport *)base;
    return t->on_node ? ndp_node_memory_map(&t->node, bytes, out) : ndp_plain_memory_map(base, bytes, out);
}

static void mpi_memory_unmap(ndp_transport *base, void *data, size_t bytes) {
    ndp_mpi_transport *t = (ndp_mpi_transport *)base;
    if (t->on_node)
        ndp_node_memory_unmap(&t->node, data);
    else
        ndp_plain_memory_unmap(base, data, bytes);
}

static ndp_status mpi_window_register(ndp_comm *base, void *data, size_t bytes, ndp_window **out) {
    ndp_mpi_transport *t = (ndp_mpi_transport *)base->transport;
    return t->on_node ? ndp_node_window_register(&t->node, base, data, bytes, out)
                      : ndp_plain_window_register(base, data, bytes, out);
}

static ndp_status mpi_window_share(ndp_comm *base, size_t bytes, ndp_window **out) {
    ndp_mpi_transport *t = (ndp_mpi_transport *)base->transport;
    if (base->group.count > 1 && !all_share_memory((mpi_comm *)base))
        return NDP_FAIL(NDP_ENOTSUP, "no shared window for group %s: %s", base->name,
                        t->on_node ? "it spans nodes" : "the processes of this node cannot share memory");
    return t->on_node ? ndp_node_window_share(&t->node, base, bytes, out) : ndp_plain_window_share(base, bytes, out);
}

static void mpi_window_destroy(ndp_window *w) {
    ndp_mpi_transport *t = (ndp_mpi_transport *)w->transport;
    if (t->on_node)
        ndp_node_window_destroy(&t->node, w);
    else
        ndp_plain_window_destroy(w);
}

/* ---- the end ---- */

/* Waits up to GRACE_SECONDS until all other ranks have ended: true if they have. Ranks of other nodes cannot be seen,
 * so with several nodes this is false. */
static bool others_have_left(const ndp_mpi_transport *t) {
    double deadline = ndp_now() + GRACE_SECONDS;
    for (int r = 0; r < t->base.world; r++)
        while (r != t->base.rank && !atomic_load(&t->base.health->of[r].left)) {
            if (ndp_now() > deadline)
                return false;
            ndp_state_query_progress(t->base.state_query);
            usleep(2000);
        }
    return true;
}

/* Ranks of this node see the record, those of other nodes get a notice, and all return by themselves. Ranks that have
 * not ended after the grace period, or are on other nodes, are ended by MPI_Abort. Only the rank that failed first does
 * this. */
static void mpi_abort(ndp_transport *base, const char *message) {
    ndp_mpi_transport *t = (ndp_mpi_transport *)base;
    ndp_health_fail(base->health, base->rank, message);
    if (base->health->rank != base->rank)
        return;
    ndp_state_query_send_failure(base->state_query, message);
    if (others_have_left(t))
        return;
    ndp_lookout_part(t->lookout);
    t->api->abort(base->exit_code ? base->exit_code : 1);
}

/* Ranks of other nodes cannot see that this one has left, so it stays and replies to requests until they also leave. */
static bool barrier_at_the_end(ndp_mpi_transport *t) {
    ndp_comm_at(t->world, "end of the run", -1, -1);
    return ndp_barrier(t->world) == NDP_OK;
}

/* After a failure MPI is finalised if all ranks do it, since mpirun may hang if some finalise and others just exit. If
 * not all do, MPI_Finalize would wait forever. */
static void mpi_destroy(ndp_transport *base) {
    ndp_mpi_transport *t = (ndp_mpi_transport *)base;
    bool failed = base->health && atomic_load(&base->health->failed) != 0;
    if (base->health)
        atomic_store(&base->health->of[base->rank].left, 1);
    if (!failed && base->state_query)
        failed = !barrier_at_the_end(t);
    ndp_lookout_enter(t->lookout, true);
    ndp_state_query_destroy(base->state_query, failed);
    if (t->world)
        mpi_comm_destroy(t->world);
    if (t->ours && (!failed || others_have_left(t)))
        t->api->finalize();
    if (base->health)
        atomic_store(&base->health->of[base->rank].ended, 1);
    ndp_lookout_end(t->lookout);
    ndp_node_memory_release(&t->node);
    free(t->private_);
    ndp_memory_unmap(t->journals, ndp_mpi_journal_bytes(t));
    free(t->host_of);
    free(t->node_of);
    free(t->hosts);
    free(t);
}

static const ndp_transport_ops mpi_ops = {
    .name = "mpi",
    .comm_create = mpi_comm_create,
    .comm_destroy = mpi_comm_destroy,
    .begin = mpi_begin,
    .wait = mpi_wait,
    .memory_map = mpi_memory_map,
    .memory_unmap = mpi_memory_unmap,
    .window_register = mpi_window_register,
    .window_share = mpi_window_share,
    .window_destroy = mpi_window_destroy,
    .abort = mpi_abort,
    .destroy = mpi_destroy,
};

/* ---- the start ---- */

static ndp_status check_launcher(const ndp_mpi_transport *t) {
    int ranks = 1;
    if (t->base.world > 1 || !ndp_launched(&ranks) || ranks == 1)
        return NDP_OK;
    return NDP_FAIL(
        NDP_ECOMM,
        "the launcher started %d ranks, but each of them is alone: this program uses %s, and was started by "
        "another MPI's mpirun (or by srun without its PMI plugin); start it with the mpirun of that MPI",
        ranks, t->api->library());
}

/* MPI_Init would print a page, and end the process. Open MPI alone needs PMIx; others may have Slurm's own library. */
static ndp_status check_pmi(const ndp_mpi_transport *t) {
    int tasks;
    if (!ndp_launched_without_pmi(&tasks) || strncmp(t->api->library(), "Open MPI", 8) != 0)
        return NDP_OK;
    return NDP_FAIL(NDP_ECOMM,
                    "srun started %d tasks without PMIx, by which Open MPI connects them: use `srun --mpi=pmix` (`srun "
                    "--mpi=list` shows whether there is one), or start `ndparallel train` in the batch script without "
                    "srun; OMPI_MCA_pmix=s1 or s2 says that this Open MPI was built with Slurm's PMI",
                    tasks);
}

static int env_positive(const char *name) {
    const char *text = getenv(name);
    int n = text ? atoi(text) : 0;
    return n > 0 ? n : 0;
}

/* Item `rank` of a list such as 0,1,1,0; -1: it is shorter. */
static int item_of(const char *list, int rank) {
    while (list && rank-- > 0)
        list = (list = strchr(list, ',')) ? list + 1 : NULL;
    return list ? atoi(list) : -1;
}

/* The lowest rank of this rank's node: what MPI says, or the environment. */
static int node_of_rank(const ndp_mpi_world *w) {
    const char *list = getenv("NDP_NODE_OF");
    int per_node = env_positive("NDP_NODE_RANKS"), first = 0;
    while (list && item_of(list, first) != item_of(list, w->rank))
        first++;
    return list ? first : per_node ? w->rank / per_node * per_node : w->node;
}

/* Of ranks that were launched: alone, there is no other to look at. */
static ndp_status begin_lookout(ndp_mpi_transport *t) {
    int ranks = 1;
    if (!ndp_launched(&ranks) || ranks == 1)
        return NDP_OK;
    NDP_TRY(ndp_wait_limit(&t->base.timeout));
    return ndp_lookout_begin(ndp_launched_rank(), t->base.timeout, &t->lookout);
}

static ndp_status join(ndp_mpi_transport *t) {
    ndp_mpi_world world;
    NDP_TRY(check_pmi(t));
    NDP_TRY(begin_lookout(t));
    const char *text = t->api->init(&world);
    if (text)
        return NDP_FAIL(NDP_ECOMM, "MPI_Init failed: %s", text);
    ndp_lookout_enter(t->lookout, false);
    t->ours = world.ours;
    t->base.rank = world.rank;
    t->base.world = world.size;
    NDP_TRY(check_launcher(t));
    NDP_TRY(ndp_mpi_private_health(t));
    NDP_TRY(ndp_wait_setup(&t->base, 1));
    const char *shm = getenv("NDP_SHM");
    NDP_TRY(mpi_comm_create(&t->base, (ndp_group){0, 1, world.size, world.rank}, "world", &t->world));
    NDP_TRY(ndp_mpi_bootstrap(t, node_of_rank(&world), !shm || strcmp(shm, "off") != 0));
    if (t->lookout)
        NDP_TRY(ndp_mpi_connect_lookout(t));
    return ndp_wait_setup(&t->base, ndp_transport_host_ranks(&t->base));
}

ndp_status ndp_transport_mpi(ndp_transport **out) {
    const ndp_mpi_api *api;
    NDP_TRY(ndp_mpi_load(&api));
    ndp_mpi_transport *t = calloc(1, sizeof *t);
    NDP_CHECK_MEMORY(t, "for the mpi transport");
    t->base.ops = &mpi_ops;
    t->api = api;
    t->node.fd = -1;
    ndp_status st = join(t);
    if (st != NDP_OK) {
        ndp_lookout_yield(t->lookout);
        mpi_destroy(&t->base);
        return st;
    }
    *out = &t->base;
    return NDP_OK;
}
