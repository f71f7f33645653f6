/* The memory plan: gives every block an offset in its region. ndp_program_build calls it last.
 *
 * Persistent blocks come first, one after another. The others share what follows: a block occupies its bytes from its
 * first instruction to its last, and blocks whose intervals overlap do not overlap in memory (graph/intervals.h). Lent
 * blocks keep the offsets of their owner's plan. Budget and traffic are sums over the same blocks and calls. */
#include "graph/intervals.h"
#include "graph/price.h"
#include "step/program_parts.h"

#include <stdlib.h>

const char *ndp_memory_class_name(ndp_memory_class c) {
    static const char *const names[NDP_MEM_CLASSES] = {"weights",     "master weights", "gradients", "optimizer state",
                                                       "activations", "work",           "data"};
    return names[c];
}

const char *ndp_region_name(ndp_region r) {
    return r == NDP_REGION_ARENA        ? "arena"
           : ndp_region_is_shared(r)    ? "shared"
           : r == NDP_REGION_LENT_ARENA ? "lent"
                                        : "lent shared";
}

/* 256 bytes: two cache lines for prefetching pairs, and a whole number of vectors of any width. */
static size_t aligned(size_t n) { return (n + 255) & ~(size_t)255; }

static ndp_status place_intervals(ndp_program *p) {
    ndp_interval *items = calloc((size_t)p->n_blocks + 1, sizeof *items);
    if (!items)
        return NDP_FAIL(NDP_ENOMEM, "no memory to plan %d blocks", p->n_blocks);
    int n = 0;
    for (int i = 0; i < p->n_blocks; i++)
        if (!p->blocks[i].persistent && p->blocks[i].first >= 0)
            items[n++] = (ndp_interval){aligned(p->blocks[i].bytes), p->blocks[i].first, p->blocks[i].last, 0};
    size_t total = 0;
    ndp_status st = ndp_intervals_place(items, n, &total);
    for (int i = 0, k = 0; st == NDP_OK && i < p->n_blocks; i++)
        if (!p->blocks[i].persistent && p->blocks[i].first >= 0)
            p->blocks[i].offset = p->bytes[NDP_REGION_ARENA] + items[k++].offset;
    free(items);
    p->bytes[NDP_REGION_ARENA] += total;
    return st;
}

ndp_status ndp_memory_plan(ndp_program *p) {
    for (int i = 0; i < p->n_blocks; i++) {
        ndp_block *b = &p->blocks[i];
        if (!b->persistent)
            continue;
        b->first = 0, b->last = p->n - 1;
        if (ndp_region_is_lent(b->region))
            continue; /* placed by its owner's plan */
        b->offset = p->bytes[b->region];
        p->bytes[b->region] += aligned(b->bytes);
    }
    return place_intervals(p);
}

/* Ranks that map a region. */
static size_t sharers(const ndp_program *p, ndp_region r) {
    return ndp_region_is_shared(r) ? (size_t)ndp_mesh_group(&p->opts.step.mesh, ndp_region_group(r)).count : 1;
}

/* Bytes of a block that count for this rank: its slice of a shared buffer, none of a lent one. */
static size_t own_bytes(const ndp_program *p, const ndp_block *b) {
    return ndp_region_is_lent(b->region) ? 0 : b->bytes / sharers(p, b->region);
}

void ndp_program_budget(const ndp_program *p, ndp_budget *out) {
    *out = (ndp_budget){.staging = p->staging.bytes};
    for (int r = 0; r < NDP_REGIONS; r++)
        out->total += p->bytes[r] / sharers(p, (ndp_region)r);
    size_t most = 0;
    int peak = 0;
    for (int at = 0; at < p->n; at++) {
        size_t sum = 0;
        for (int i = 0; i < p->n_blocks; i++)
            if (p->blocks[i].first <= at && at <= p->blocks[i].last)
                sum += own_bytes(p, &p->blocks[i]);
        if (sum > most)
            most = sum, peak = at;
    }
    for (int i = 0; i < p->n_blocks; i++)
        if (p->blocks[i].first <= peak && peak <= p->blocks[i].last)
            out->class_bytes[p->blocks[i].class] += own_bytes(p, &p->blocks[i]);
}

double ndp_comm_event_moved(const ndp_program *p, const ndp_comm_event *e) {
    return ndp_call_moved(e->call, ndp_mesh_group(&p->opts.step.mesh, ndp_comm_event_group(e)).count);
}

void ndp_program_traffic(const ndp_program *p, double out[NDP_GROUPS]) {
    for (int g = 0; g < NDP_GROUPS; g++)
        out[g] = 0;
    ndp_comm_event m;
    for (ndp_comm_event_cursor c = {0}; ndp_program_comm_event(p, &c, &m);)
        if (m.begin && ndp_comm_event_kind(&m) != NDP_RECV)
            out[ndp_comm_event_group(&m)] += ndp_comm_event_moved(p, &m);
}
