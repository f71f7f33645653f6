/* The checker: replays the programs of all ranks against each other.
 *
 * Collectives of one group meet in order: the k-th begin of every member must be the same operation. That is compared
 * first; then the ranks are run: a wait passes once all members of its group have begun the same operation. A state in
 * which nobody can go on is a deadlock under some timing, since waits are the only places where a rank stops. */
#include "step/program.h"

#include <stdlib.h>
#include <string.h>

typedef struct replay {
    const ndp_program *const *programs;
    int world;
    int *at;     /* by rank: next instruction */
    int *begun;  /* by rank and group kind: collectives begun */
    int *number; /* by rank and instruction: which of its group's collectives a begin is (offsets in first) */
    size_t *first;
} replay;

/* The k-th collective that a rank begins on a group kind; NULL when it begins fewer. */
static const ndp_instr *nth_begin(const ndp_program *p, ndp_group_kind group, int k, int *index) {
    for (int i = 0; i < p->n; i++)
        if (p->instrs[i].code == NDP_DO_BEGIN && p->instrs[i].group == group && k-- == 0) {
            *index = i;
            return &p->instrs[i];
        }
    return NULL;
}

static bool same(const ndp_instr *a, const ndp_instr *b) {
    return a->kind == b->kind && a->count == b->count && a->type == b->type && strcmp(a->what, b->what) == 0;
}

/* All members of a rank's group begin the same collectives: compared with the group's first member. */
static ndp_status compare(const replay *r, int rank, ndp_group_kind kind) {
    const ndp_program *mine = r->programs[rank];
    ndp_group g = ndp_mesh_group(&mine->opts.mesh, kind);
    const ndp_program *theirs = r->programs[g.base];
    for (int k = 0, i = 0, j = 0; g.rank > 0; k++) {
        const ndp_instr *a = nth_begin(mine, kind, k, &i), *b = nth_begin(theirs, kind, k, &j);
        if (!a && !b)
            return NDP_OK;
        if (!a || !b)
            return NDP_FAIL(NDP_EBUG, "rank %d begins %s %s over %s at #%d, rank %d begins no such collective",
                            a ? rank : g.base, ndp_comm_kind_name(a ? a->kind : b->kind), a ? a->what : b->what,
                            ndp_group_name(kind), a ? i : j, a ? g.base : rank);
        if (!same(a, b))
            return NDP_FAIL(NDP_EBUG, "over %s, rank %d is at #%d %s %s (%lld), rank %d at #%d %s %s (%lld)",
                            ndp_group_name(kind), rank, i, ndp_comm_kind_name(a->kind), a->what, (long long)a->count,
                            g.base, j, ndp_comm_kind_name(b->kind), b->what, (long long)b->count);
    }
    return NDP_OK;
}

static bool all_begun(const replay *r, int rank, const ndp_instr *wait, int number) {
    ndp_group g = ndp_mesh_group(&r->programs[rank]->opts.mesh, wait->group);
    for (int k = 0; k < g.count; k++)
        if (r->begun[(g.base + k * g.stride) * NDP_GROUPS + (int)wait->group] <= number)
            return false;
    return true;
}

/* Runs one rank until it must wait; true when it moved. */
static bool advance(replay *r, int rank) {
    const ndp_program *p = r->programs[rank];
    int from = r->at[rank];
    for (; r->at[rank] < p->n; r->at[rank]++) {
        int i = r->at[rank];
        const ndp_instr *in = &p->instrs[i];
        int *number = r->number + r->first[rank];
        if (in->code == NDP_DO_BEGIN)
            number[i] = r->begun[rank * NDP_GROUPS + (int)in->group]++;
        if (in->code == NDP_DO_WAIT && !all_begun(r, rank, in, number[in->partner]))
            break;
    }
    return r->at[rank] > from;
}

static ndp_status run_all(replay *r) {
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < r->world; rank++)
            moved |= advance(r, rank);
    }
    for (int rank = 0; rank < r->world; rank++)
        if (r->at[rank] < r->programs[rank]->n) {
            const ndp_instr *in = &r->programs[rank]->instrs[r->at[rank]];
            return NDP_FAIL(NDP_EBUG, "deadlock: rank %d waits for ever at #%d %s %s over %s", rank, r->at[rank],
                            ndp_comm_kind_name(in->kind), in->what, ndp_group_name(in->group));
        }
    return NDP_OK;
}

/* Every begin has its wait behind it, and every wait its begin before it. */
static ndp_status check_pairs(const ndp_program *p, int rank) {
    for (int i = 0; i < p->n; i++) {
        const ndp_instr *in = &p->instrs[i];
        bool begin = in->code == NDP_DO_BEGIN, wait = in->code == NDP_DO_WAIT;
        if ((begin && (in->partner <= i || p->instrs[in->partner].partner != i)) ||
            (wait && (in->partner < 0 || in->partner >= i)))
            return NDP_FAIL(NDP_EBUG, "rank %d: #%d %s %s has no partner", rank, i, ndp_comm_kind_name(in->kind),
                            in->what);
    }
    return NDP_OK;
}

static ndp_status check_all(replay *r) {
    for (int rank = 0; rank < r->world; rank++) {
        NDP_TRY(check_pairs(r->programs[rank], rank));
        for (int kind = 0; kind < NDP_GROUPS; kind++)
            NDP_TRY(compare(r, rank, (ndp_group_kind)kind));
    }
    return run_all(r);
}

ndp_status ndp_program_check(const ndp_program *const *programs, int world) {
    replay r = {.programs = programs, .world = world};
    size_t instrs = 0;
    r.first = calloc((size_t)world + 1, sizeof *r.first);
    for (int rank = 0; r.first && rank < world; rank++) {
        r.first[rank] = instrs;
        instrs += (size_t)programs[rank]->n;
    }
    r.at = calloc((size_t)world + 1, sizeof *r.at);
    r.begun = calloc((size_t)world * NDP_GROUPS + 1, sizeof *r.begun);
    r.number = calloc(instrs + 1, sizeof *r.number);
    ndp_status st = NDP_OK;
    if (!r.at || !r.begun || !r.number || !r.first)
        st = NDP_FAIL(NDP_ENOMEM, "no memory to check %d programs", world);
    else
        st = check_all(&r);
    free(r.first);
    free(r.at);
    free(r.begun);
    free(r.number);
    return st;
}
