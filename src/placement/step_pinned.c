/* Places of collectives in pinned memory (step/staging.h): those that are under way at the same time are apart, of the
 * program and of a unit that runs meanwhile. */
#include "placement/step_lane.h"

static size_t aligned(size_t n) { return (n + 63) & ~(size_t)63; }

/* A place has the result, and what is handed in where that is apart. */
size_t ndp_step_pinned_bytes(const ndp_call *c) {
    ndp_collective kind = c->op->collective;
    bool apart = kind == NDP_REDUCE_SCATTER || kind == NDP_ALL_TO_ALL || kind == NDP_SHIFT || kind == NDP_SEND;
    size_t result = kind == NDP_SEND ? 0 : aligned(ndp_step_operand_bytes(&c->out[0]));
    return result + (apart ? ndp_step_operand_bytes(&c->in[0]) : 0);
}

/* ---- lists ---- */

typedef struct pinned_list {
    const ndp_list *list;
    const size_t *places; /* by call */
    int *under_way, n;    /* begins */
} pinned_list;

static ndp_status begin(pinned_list *p, int call, const char *unit) {
    size_t start = p->places[call], end = start + ndp_step_pinned_bytes(&p->list->calls[call]);
    for (int i = 0; i < p->n; i++) {
        int other = p->under_way[i];
        size_t first = p->places[other], last = first + ndp_step_pinned_bytes(&p->list->calls[other]);
        if (start < last && first < end)
            return NDP_FAIL(
                NDP_EBUG,
                "placement: unit %s: #%d %s begins in bytes %zu to %zu of pinned memory, where #%d %s is under "
                "way",
                unit, call, p->list->calls[call].op->name, start, end, other, p->list->calls[other].op->name);
    }
    p->under_way[p->n++] = call;
    return NDP_OK;
}

static void end(pinned_list *p, int call) {
    int i = 0;
    while (i < p->n && p->under_way[i] != call)
        i++;
    if (i < p->n)
        p->under_way[i] = p->under_way[--p->n];
}

/* Two iterations show all (graph/repeat.h). */
static ndp_status walk(pinned_list *p, const char *unit) {
    for (ndp_walk w = NDP_WALK_START; ndp_walk_next(&p->list->repeats, p->list->n, NDP_FIRST_ITERATIONS(2), &w);) {
        const ndp_call *c = &p->list->calls[w.at];
        if (c->kind == NDP_CALL_BEGIN)
            NDP_TRY(begin(p, w.at, unit));
        if (c->kind == NDP_CALL_WAIT)
            end(p, c->partner);
    }
    return NDP_OK;
}

static ndp_status check_list(ndp_step_program *s, int graph, int phase, ndp_arena *arena) {
    const ndp_program *p = s->program;
    const ndp_unit_program *unit = &p->opts.units[graph];
    pinned_list list = {.list = &unit->lists[phase], .places = p->staging.places + p->staging.of_list[graph][phase]};
    for (int i = 0; i < list.list->n; i++) {
        const ndp_call *c = &list.list->calls[i];
        size_t last = c->kind == NDP_CALL_BEGIN ? list.places[i] + ndp_step_pinned_bytes(c) : 0;
        s->pinned[graph][phase] = last > s->pinned[graph][phase] ? last : s->pinned[graph][phase];
    }
    if (s->pinned[graph][phase] > p->staging.bytes)
        return NDP_FAIL(NDP_EBUG, "placement: unit %s: its collectives take %zu bytes of pinned memory, of %zu",
                        unit->graph->name, s->pinned[graph][phase], p->staging.bytes);
    NDP_TRY(NDP_NEW(arena, list.list->n * 2, list.under_way));
    return walk(&list, unit->graph->name);
}

ndp_status ndp_step_pinned_init(ndp_step_program *s, ndp_arena *arena) {
    for (int g = 0; s->program->staging.bytes > 0 && g < s->program->opts.model->n_graphs; g++)
        for (int phase = 0; phase < NDP_PHASES; phase++)
            NDP_TRY(check_list(s, g, phase, arena));
    return NDP_OK;
}

/* ---- the program ---- */

ndp_status ndp_step_pin(const ndp_step_lane *l, ndp_under_way *u) {
    const ndp_staging *s = &l->program->staging;
    if (s->bytes == 0)
        return NDP_OK;
    u->place = s->places[u->work];
    u->place_end = u->place + ndp_step_pinned_bytes(&l->instr->call);
    for (int i = 0; i < l->n_under_way; i++) {
        const ndp_under_way *other = l->list[i];
        if (u->place < other->place_end && other->place < u->place_end)
            return ndp_step_refuse(l, "begins in bytes %zu to %zu of pinned memory, where #%d %s is under way",
                                   u->place, u->place_end, other->at, other->instr->call.op->name);
    }
    return u->place_end <= s->bytes
               ? NDP_OK
               : ndp_step_refuse(l, "pinned memory has %zu bytes, not %zu", s->bytes, u->place_end);
}

ndp_status ndp_step_pinned_run(const ndp_step_lane *l) {
    int graph = l->program->opts.model->units[l->instr->unit].graph;
    size_t end_of_list = l->shared->pinned[graph][l->instr->phase];
    for (int i = 0; end_of_list > 0 && i < l->n_under_way; i++) {
        const ndp_under_way *other = l->list[i];
        if (other->place < end_of_list && other->place_end > other->place)
            return ndp_step_refuse(l, "its collectives take %zu bytes of pinned memory, where #%d %s is under way",
                                   end_of_list, other->at, other->instr->call.op->name);
    }
    return NDP_OK;
}
