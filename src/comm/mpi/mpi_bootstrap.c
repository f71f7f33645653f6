/* How the ranks of an MPI world find out which of them share a node, and whether they can share memory there.
 *
 * Three all_gathers over the world, by MPI: (1) every rank's node and host name; (2) the address of the shared file
 * that the first rank of each node has created; (3) whether each rank could open it. Memory is shared on a node only if
 * all of its ranks could: they all see the same flags, so they decide alike. */
#include "comm/mpi/mpi_bootstrap.h"
#include "base/child.h"
#include "comm/node/mapping.h"
#include "comm/watch/host_link.h"
#include "comm/watch/state_query.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What every rank sends to all others. */
typedef struct rank_info {
    ndp_node_address address;
    ndp_host_name host;
    int32_t node, usable;
} rank_info;

ndp_status ndp_mpi_private_health(ndp_mpi_transport *t) {
    size_t bytes = ndp_health_bytes(t->base.world);
    t->private_ = aligned_alloc(64, (bytes + 63) / 64 * 64);
    NDP_CHECK_MEMORY(t->private_, "for a world of %d ranks", t->base.world);
    memset(t->private_, 0, bytes);
    t->private_->world = t->base.world;
    t->base.health = t->private_;
    void *journals;
    NDP_TRY(ndp_memory_map(-1, 0, ndp_mpi_journal_bytes(t), &journals));
    t->base.journals = t->journals = journals;
    return NDP_OK;
}

static ndp_status exchange_infos(ndp_mpi_transport *t, rank_info *all) {
    ndp_work w;
    rank_info mine = all[t->base.rank];
    return ndp_mpi_exchange(ndp_all_gather_begin(t->world, &mine, all, sizeof mine, NDP_U8, &w), &w);
}

static bool all_usable(const ndp_mpi_transport *t, const rank_info *all) {
    bool usable = true;
    for (int r = 0; r < t->base.world; r++)
        usable &= all[r].usable != 0 || all[r].node != all[t->base.rank].node;
    return usable;
}

/* The node's first rank has created the file, the others open it. */
static ndp_status open_node(ndp_mpi_transport *t, const rank_info *all) {
    int first = 0;
    while (all[first].node != all[t->base.rank].node)
        first++;
    if (first != t->base.rank)
        NDP_TRY(ndp_node_memory_open(&t->node, &all[first].address, t->base.world));
    t->base.health = t->node.health;
    t->base.journals = t->node.journals;
    return NDP_OK;
}

/* True on success; else the note says why. */
static bool succeeded(ndp_mpi_transport *t, ndp_status st) {
    if (st != NDP_OK)
        snprintf(
            t->note, sizeof t->note,
            "the %d ranks of this host cannot read each other's memory and exchange copies, which is slower: %.300s",
            ndp_transport_host_ranks(&t->base), ndp_error_message());
    return st == NDP_OK;
}

/* One rank of the node shows its note, the first that has one. */
static void choose_note(ndp_mpi_transport *t, const rank_info *all) {
    for (int r = 0; r < t->base.rank; r++)
        if (all[r].node == all[t->base.rank].node && !all[r].usable)
            return;
    if (t->note[0])
        t->base.note = t->note;
}

static void enter_process(ndp_presence *own) {
    ndp_process self;
    if (ndp_process_read(getpid(), &self))
        atomic_store(&own->started, self.started);
    atomic_store(&own->process, (uint32_t)getpid());
}

static ndp_status connect_node(ndp_mpi_transport *t, int node, bool wanted, rank_info *all) {
    rank_info *mine = &all[t->base.rank];
    mine->node = node;
    gethostname(mine->host.text, sizeof mine->host.text - 1);
    NDP_TRY(exchange_infos(t, all));
    for (int r = 0; r < t->base.world; r++)
        t->host_of[r] = t->node_of[r] = all[r].node;
    t->base.host_of = t->host_of;
    mine->usable = wanted && ndp_transport_host_ranks(&t->base) > 1 &&
                   (ndp_transport_host_rank(&t->base) != 0 ||
                    succeeded(t, ndp_node_memory_create(&t->node, t->base.world, &mine->address)));
    NDP_TRY(exchange_infos(t, all));
    if (all_usable(t, all))
        mine->usable = succeeded(t, open_node(t, all));
    if (mine->usable)
        enter_process(&t->node.health->of[t->base.rank]);
    NDP_TRY(exchange_infos(t, all));
    choose_note(t, all);
    t->on_node = all_usable(t, all);
    if (!t->on_node) {
        ndp_node_memory_release(&t->node);
        t->base.health = t->private_;
        t->base.journals = t->journals;
    }
    return NDP_OK;
}

/* Ranks of another node share memory if all of them could open its file. */
static void note_sharing(ndp_mpi_transport *t, const rank_info *all) {
    for (int r = 0; r < t->base.world; r++)
        if (!all[r].usable)
            for (int k = 0; k < t->base.world; k++)
                t->node_of[k] = all[k].node == all[r].node ? k : t->node_of[k];
}

/* Host names are only needed in messages if there are several. */
static ndp_status note_hosts(ndp_mpi_transport *t, const rank_info *all) {
    bool several = false;
    for (int r = 1; r < t->base.world; r++)
        several |= strcmp(all[r].host.text, all[0].host.text) != 0;
    if (!several)
        return NDP_OK;
    t->hosts = calloc((size_t)t->base.world, sizeof *t->hosts);
    NDP_CHECK_MEMORY(t->hosts, "for a world of %d ranks", t->base.world);
    for (int r = 0; r < t->base.world; r++)
        t->hosts[r] = all[r].host;
    t->base.hosts = t->hosts;
    return NDP_OK;
}

/* Ranks that cannot read each other's journals send state queries. */
static ndp_status connect_nodes(ndp_mpi_transport *t, const rank_info *all) {
    note_sharing(t, all);
    t->base.node_ranks = ndp_node_block(t->node_of, t->base.world);
    bool local = true;
    for (int r = 0; r < t->base.world; r++)
        local &= t->node_of[r] == t->node_of[t->base.rank];
    NDP_TRY(note_hosts(t, all));
    return local ? NDP_OK : ndp_state_query_create(t->api, &t->base, t->node_of, &t->base.state_query);
}

ndp_status ndp_mpi_bootstrap(ndp_mpi_transport *t, int node, bool wanted) {
    rank_info *all = calloc((size_t)t->base.world, sizeof *all);
    t->host_of = calloc((size_t)t->base.world, sizeof *t->host_of);
    t->node_of = calloc((size_t)t->base.world, sizeof *t->node_of);
    ndp_status st = NDP_MEMORY(all && t->host_of && t->node_of, "for a world of %d ranks", t->base.world);
    if (st == NDP_OK)
        st = connect_node(t, node, wanted, all);
    if (st == NDP_OK)
        st = connect_nodes(t, all);
    free(all);
    return st;
}

/* The lowest rank of the host that follows that of `rank`, in the order of these, with wrap-around. */
static int next_host(const ndp_transport *t, int rank, int step) {
    int r = rank;
    do
        r = (r + t->world + step) % t->world;
    while (ndp_transport_host_of(t, r) != r);
    return r;
}

ndp_status ndp_mpi_connect_lookout(ndp_mpi_transport *t) {
    const ndp_transport *base = &t->base;
    bool lowest = ndp_transport_host_of(base, base->rank) == base->rank;
    ndp_host_link *link = NULL;
    ndp_host_address own = {0}, *all;
    ndp_work w;
    if (!t->hosts)
        return ndp_lookout_connect(t->lookout, &t->base, NULL);
    all = calloc((size_t)base->world, sizeof *all);
    NDP_CHECK_MEMORY(all, "for a world of %d ranks", base->world);
    if (lowest)
        ndp_host_link_listen(&own, &link);
    ndp_status st = ndp_mpi_exchange(ndp_all_gather_begin(t->world, &own, all, sizeof own, NDP_U8, &w), &w);
    int next = lowest ? next_host(base, base->rank, 1) : 0;
    if (st == NDP_OK && lowest)
        ndp_host_link_connect(link, &all[next], next, next_host(base, base->rank, -1));
    free(all);
    if (st == NDP_OK)
        return ndp_lookout_connect(t->lookout, &t->base, link);
    ndp_host_link_close(link);
    return st;
}
