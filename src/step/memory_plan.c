/* The memory plan: gives every block an offset in its region. ndp_program_build calls it last.
 *
 * Persistent blocks come first, one after another. The others share what follows: a block occupies its bytes from its
 * first instruction to its last, and blocks whose intervals overlap do not overlap in memory (graph/intervals.h). Lent
 * blocks keep the offsets of their owner's plan. Budget and traffic are sums over the same blocks and calls. */
#include "graph/intervals.h"
#include "graph/price.h"
#include "step/loss_rows.h"
#include "step/program_parts.h"

#include <stdlib.h>
#include <string.h>

const char *ndp_memory_class_name(ndp_memory_class c) {
    static const char *const names[NDP_MEM_CLASSES] = {
        "weights", "master weights", "frozen weights", "gradients", "optimizer state", "activations", "work", "data"};
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

/* The blocks that share memory, in their order; the caller's to free. */
static ndp_status list_intervals(const ndp_program *p, ndp_interval **items, int *n) {
    *items = calloc((size_t)p->n_blocks + 1, sizeof **items);
    *n = 0;
    NDP_CHECK_MEMORY(*items, "to plan %d blocks", p->n_blocks);
    for (int i = 0; i < p->n_blocks; i++)
        if (!p->blocks[i].persistent && p->blocks[i].life.first >= 0)
            (*items)[(*n)++] = (ndp_interval){aligned(p->blocks[i].bytes), p->blocks[i].life, 0};
    return NDP_OK;
}

/* Ranks that map a region. */
static size_t sharers(const ndp_program *p, ndp_region r) {
    return ndp_region_is_shared(r) ? (size_t)ndp_mesh_group(&p->opts.step.mesh, ndp_region_group(r)).count : 1;
}

/* Of the memory that a rank may have without a better plan: what is left for blocks that share memory. */
static size_t left_of_enough(const ndp_program *p) {
    size_t taken = 0;
    for (int r = 0; r < NDP_REGIONS; r++)
        taken += p->bytes[r] / sharers(p, (ndp_region)r);
    return p->opts.step.enough > taken ? p->opts.step.enough - taken : 0;
}

static ndp_status place_intervals(ndp_program *p) {
    ndp_interval *items;
    int n;
    bool place = !p->opts.step.unplaced;
    NDP_TRY(list_intervals(p, &items, &n));
    size_t total = place ? 0 : ndp_intervals_peak(items, n);
    ndp_status st = place ? ndp_intervals_place(items, n, left_of_enough(p), &total) : NDP_OK;
    for (int i = 0, k = 0; st == NDP_OK && i < p->n_blocks && place; i++)
        if (!p->blocks[i].persistent && p->blocks[i].life.first >= 0)
            p->blocks[i].offset = p->bytes[NDP_REGION_ARENA] + items[k++].offset;
    free(items);
    p->bytes[NDP_REGION_ARENA] += total;
    return st;
}

/* Bytes of a block that count for this rank: its slice of a shared buffer, none of a lent one. */
static size_t own_bytes(const ndp_program *p, const ndp_block *b) {
    return ndp_region_is_lent(b->region) ? 0 : b->bytes / sharers(p, b->region);
}

/* Sets p->peak: the first instruction at which this rank's blocks take the most. */
static ndp_status find_peak(ndp_program *p) {
    int64_t *change = calloc((size_t)p->n + 1, sizeof *change), now = 0, most = -1; /* of bytes, at an instruction */
    NDP_CHECK_MEMORY(change, "to plan %d instructions", p->n);
    for (int i = 0; i < p->n_blocks; i++) {
        const ndp_life *l = &p->blocks[i].life;
        int64_t bytes = (int64_t)own_bytes(p, &p->blocks[i]);
        if (l->first < 0)
            continue;
        change[l->first] += bytes;
        change[l->last + 1] -= bytes;
        change[l->gap] -= l->gap_n > 0 ? bytes : 0;
        change[l->gap + l->gap_n] += l->gap_n > 0 ? bytes : 0;
    }
    for (int i = 0; i < p->n; i++) {
        now += change[i];
        if (now > most)
            most = now, p->peak = i;
    }
    free(change);
    return NDP_OK;
}

ndp_status ndp_memory_plan(ndp_program *p) {
    for (int i = 0; i < p->n_blocks; i++) {
        ndp_block *b = &p->blocks[i];
        if (!b->persistent)
            continue;
        b->life = (ndp_life){0, p->n - 1, 0, 0};
        if (ndp_region_is_lent(b->region))
            continue; /* placed by its owner's plan */
        b->offset = p->bytes[b->region];
        p->bytes[b->region] += aligned(b->bytes);
    }
    NDP_TRY(find_peak(p));
    return place_intervals(p);
}

ndp_status ndp_memory_least(const ndp_program *p, size_t *bytes) {
    ndp_interval *items;
    int n;
    NDP_TRY(list_intervals(p, &items, &n));
    *bytes = ndp_intervals_peak(items, n);
    free(items);
    for (int i = 0; i < p->n_blocks; i++)
        *bytes += p->blocks[i].persistent && p->blocks[i].region == NDP_REGION_ARENA ? aligned(p->blocks[i].bytes) : 0;
    return NDP_OK;
}

void ndp_program_budget(const ndp_program *p, ndp_budget *out) {
    *out = (ndp_budget){.staging = p->staging.bytes + ndp_loss_rows_bytes(p)};
    for (int r = 0; r < NDP_REGIONS; r++)
        out->total += p->bytes[r] / sharers(p, (ndp_region)r);
    for (int i = 0; i < p->n_blocks; i++)
        if (ndp_lives_at(&p->blocks[i].life, p->peak))
            out->class_bytes[p->blocks[i].class] += own_bytes(p, &p->blocks[i]);
}

double ndp_comm_event_moved(const ndp_program *p, const ndp_comm_event *e) {
    return ndp_call_moved(e->call, ndp_mesh_group(&p->opts.step.mesh, ndp_comm_event_group(e)).count);
}

void ndp_program_traffic(const ndp_program *p, double out[NDP_GROUPS]) {
    for (int g = 0; g < NDP_GROUPS; g++)
        out[g] = 0;
    ndp_comm_event m;
    for (ndp_comm_event_cursor c = NDP_COMM_EVENTS(NDP_FIRST_USUAL); ndp_program_comm_event(p, &c, &m);)
        if (m.begin && ndp_comm_event_kind(&m) != NDP_RECV)
            out[ndp_comm_event_group(&m)] +=
                (double)ndp_repeats_times(&p->repeats, m.instr) * ndp_comm_event_moved(p, &m);
}

void ndp_program_calls(const ndp_program *p, double calls[NDP_OP_COUNT], double moved[NDP_OP_COUNT]) {
    memset(calls, 0, NDP_OP_COUNT * sizeof *calls);
    memset(moved, 0, NDP_OP_COUNT * sizeof *moved);
    for (int i = 0; i < p->n; i++) {
        int n;
        ndp_repeats repeats;
        const ndp_call *of = ndp_instr_calls(p, &p->instrs[i], &n, &repeats);
        for (int k = 0; k < n; k++) {
            double times = (double)(ndp_repeats_times(&p->repeats, i) * ndp_repeats_times(&repeats, k));
            ndp_group_kind group = ndp_channel_group(of[k].channel);
            calls[of[k].op->id] += of[k].kind == NDP_CALL_WAIT ? 0 : times;
            if (of[k].kind == NDP_CALL_BEGIN)
                moved[of[k].op->id] += times * ndp_call_moved(&of[k], ndp_mesh_group(&p->opts.step.mesh, group).count);
        }
    }
}
