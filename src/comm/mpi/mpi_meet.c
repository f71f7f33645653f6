/* How the ranks of an MPI world find out who shares a node, and whether memory can be shared there. */
#include "comm/mpi/mpi_meet.h"
#include "comm/watch/inquiry.h"
#include "comm/node/mapping.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What every rank tells the world. */
typedef struct introduction {
    ndp_node_address address;
    ndp_host_name host;
    int32_t node, usable;
} introduction;

ndp_status ndp_mpi_private_health(ndp_mpi_transport *t) {
    size_t bytes = ndp_health_bytes(t->base.world);
    t->private_ = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!t->private_)
        return NDP_FAIL(NDP_ENOMEM, "no memory for a world of %d ranks", t->base.world);
    memset(t->private_, 0, bytes);
    t->private_->world = t->base.world;
    t->base.health = t->private_;
    void *journals;
    NDP_TRY(ndp_memory_map(-1, 0, ndp_mpi_journal_bytes(t), &journals));
    t->base.journals = t->journals = journals;
    return NDP_OK;
}

static ndp_status tell_world(ndp_mpi_transport *t, introduction *all) {
    ndp_work w;
    introduction mine = all[t->base.rank];
    return ndp_mpi_exchange(ndp_all_gather_begin(t->world, &mine, all, sizeof mine, NDP_U8, &w), &w);
}

static bool all_usable(const ndp_mpi_transport *t, const introduction *all) {
    bool usable = true;
    for (int r = 0; r < t->base.world; r++)
        usable &= all[r].usable != 0 || all[r].node != all[t->base.rank].node;
    return usable;
}

/* The node's first rank makes the memory that it shares, the others open it. */
static ndp_status open_node(ndp_mpi_transport *t, const introduction *all) {
    int first = 0;
    while (all[first].node != all[t->base.rank].node)
        first++;
    if (first != t->base.rank)
        NDP_TRY(ndp_node_open(&t->node, &all[first].address, t->base.world));
    t->base.health = t->node.health;
    t->base.journals = t->node.journals;
    return NDP_OK;
}

/* True when it could; else this rank notes why. */
static bool could(ndp_mpi_transport *t, ndp_status st) {
    if (st != NDP_OK)
        snprintf(
            t->note, sizeof t->note,
            "the %d ranks of this host cannot read each other's memory and exchange copies, which is slower: %.300s",
            t->base.node_ranks, ndp_error_message());
    return st == NDP_OK;
}

/* One of a node's ranks says why, the first that knows. */
static void choose_note(ndp_mpi_transport *t, const introduction *all) {
    for (int r = 0; r < t->base.rank; r++)
        if (all[r].node == all[t->base.rank].node && !all[r].usable)
            return;
    if (t->note[0])
        t->base.note = t->note;
}

/* Three rounds: who is on which node; the memory that each node's first rank has made; whether all could map it. Where
 * one could not, the node goes without, and says so; it is no error. */
static ndp_status meet_node(ndp_mpi_transport *t, int node, bool wanted, introduction *all) {
    introduction *mine = &all[t->base.rank];
    int place = 0;
    mine->node = node;
    gethostname(mine->host.text, sizeof mine->host.text - 1);
    NDP_TRY(tell_world(t, all));
    for (int r = 0; r < t->base.world; r++) {
        t->node_of[r] = all[r].node;
        t->base.node_ranks += all[r].node == node;
        place += all[r].node == node && r < t->base.rank;
    }
    mine->usable = wanted && t->base.node_ranks > 1 &&
                   (place != 0 || could(t, ndp_node_create(&t->node, t->base.world, &mine->address)));
    NDP_TRY(tell_world(t, all));
    if (all_usable(t, all))
        mine->usable = could(t, open_node(t, all));
    NDP_TRY(tell_world(t, all));
    choose_note(t, all);
    t->on_node = all_usable(t, all);
    if (!t->on_node) {
        ndp_node_release(&t->node);
        t->base.health = t->private_;
        t->base.journals = t->journals;
    }
    return NDP_OK;
}

/* Another node's ranks share memory when all of them could map it. */
static void note_sharing(ndp_mpi_transport *t, const introduction *all) {
    for (int r = 0; r < t->base.world; r++)
        if (!all[r].usable)
            for (int k = 0; k < t->base.world; k++)
                t->node_of[k] = all[k].node == all[r].node ? k : t->node_of[k];
}

/* Names are only said where they tell ranks apart. */
static ndp_status note_hosts(ndp_mpi_transport *t, const introduction *all) {
    bool several = false;
    for (int r = 1; r < t->base.world; r++)
        several |= strcmp(all[r].host.text, all[0].host.text) != 0;
    if (!several)
        return NDP_OK;
    t->hosts = calloc((size_t)t->base.world, sizeof *t->hosts);
    if (!t->hosts)
        return NDP_FAIL(NDP_ENOMEM, "no memory for a world of %d ranks", t->base.world);
    for (int r = 0; r < t->base.world; r++)
        t->hosts[r] = all[r].host;
    t->base.hosts = t->hosts;
    return NDP_OK;
}

/* Where ranks cannot read each other's journals they ask. */
static ndp_status connect_nodes(ndp_mpi_transport *t, const introduction *all) {
    note_sharing(t, all);
    bool near = true;
    for (int r = 0; r < t->base.world; r++)
        near &= t->node_of[r] == t->node_of[t->base.rank];
    NDP_TRY(note_hosts(t, all));
    return near ? NDP_OK : ndp_inquiry_create(t->api, &t->base, t->node_of, &t->base.inquiry);
}

ndp_status ndp_mpi_meet(ndp_mpi_transport *t, int node, bool wanted) {
    introduction *all = calloc((size_t)t->base.world, sizeof *all);
    t->node_of = calloc((size_t)t->base.world, sizeof *t->node_of);
    ndp_status st =
        all && t->node_of ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "no memory for a world of %d ranks", t->base.world);
    if (st == NDP_OK)
        st = meet_node(t, node, wanted, all);
    if (st == NDP_OK)
        st = connect_nodes(t, all);
    free(all);
    return st;
}
