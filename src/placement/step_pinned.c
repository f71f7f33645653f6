/* Places of communications in pinned memory (step/staging.h): those that may be under way at the same time are apart,
 * of the program and of a unit that runs meanwhile. A repeated range may rotate the numbers of its communications
 * (ndp_ring), and two iterations meet some of them alone: so lives are compared, whichever iterations are executed. */
#include "placement/step_buffer.h"

/* A communication by its number: of a list its begin's, of the program that of its place. */
typedef struct pinned {
    const ndp_call *call; /* its first begin; NULL: no communication has the number */
    int at;               /* where that is */
    ndp_life life;
    size_t start, end;
} pinned;

static size_t aligned(size_t n) { return (n + 63) & ~(size_t)63; }

static size_t bytes_of(const ndp_operand *o) {
    return (size_t)(o->view.rows * o->view.cols) * ndp_dtype_size(o->view.dtype);
}

/* A place has the result, and what is handed in where that is apart. */
static size_t place_bytes(const ndp_call *c) {
    ndp_collective kind = c->op->collective;
    bool apart = kind == NDP_REDUCE_SCATTER || kind == NDP_ALL_TO_ALL || kind == NDP_SHIFT || kind == NDP_SEND;
    return (kind == NDP_SEND ? 0 : aligned(bytes_of(&c->out[0]))) + (apart ? bytes_of(&c->in[0]) : 0);
}

/* A number of a range that is waited for at its start and begun again later is free between. One that rotates may be
 * under way in all of the range. */
static void extend(pinned *p, const ndp_call *c, int at, bool rotates, size_t place) {
    if (!p->call) {
        *p = (pinned){c, at, {at, at, 0, 0}, place, place + place_bytes(c)};
    } else if (c->kind == NDP_CALL_WAIT || rotates) {
        p->life.last = at;
    } else {
        p->life.gap = p->life.last + 1;
        p->life.gap_n = at - p->life.gap;
    }
}

static const char *what_of(const pinned *p) { return p->call->what ? p->call->what : ""; }

/* Those of `n` numbers are apart, and in the memory that there is. *end: where the last one ends. */
static ndp_status check_apart(const ndp_program *p, const char *of, const pinned *items, int n, size_t *end) {
    for (int i = 0; i < n; i++) {
        const pinned *a = &items[i];
        *end = a->end > *end ? a->end : *end;
        if (a->end > p->staging.bytes)
            return NDP_FAIL(NDP_EBUG, "placement: %s: #%d %s %s ends at byte %zu of pinned memory, of %zu", of, a->at,
                            a->call->op->name, what_of(a), a->end, p->staging.bytes);
        for (int k = 0; k < i; k++) {
            const pinned *b = &items[k];
            if (a->call && b->call && a->start < b->end && b->start < a->end && ndp_lives_meet(&a->life, &b->life))
                return NDP_FAIL(
                    NDP_EBUG,
                    "placement: %s: #%d %s %s has bytes %zu to %zu of pinned memory, where #%d %s may be under "
                    "way",
                    of, a->at, a->call->op->name, what_of(a), a->start, a->end, b->at, b->call->op->name);
        }
    }
    return NDP_OK;
}

/* The communications of a list, or without one of the program, by number; `n`: how many numbers there are. */
static ndp_status find_pinned(const ndp_program *p, const ndp_list *list, const size_t *places, int n, ndp_arena *arena,
                              pinned **out) {
    NDP_TRY(NDP_NEW(arena, n, *out));
    for (int i = 0; i < (list ? list->n : p->n); i++) {
        const ndp_instr *in = list ? NULL : &p->instrs[i];
        const ndp_call *c = list ? &list->calls[i] : in->code == NDP_DO_CALL ? &in->call : NULL;
        if (!c || c->kind == NDP_CALL_KERNEL)
            continue;
        ndp_ring numbers = in ? in->works : (ndp_ring){c->kind == NDP_CALL_WAIT ? c->partner : i, 1};
        for (int k = numbers.first; k < numbers.first + numbers.n; k++)
            extend(&(*out)[k], c, i, numbers.n > 1, places[k]);
    }
    return NDP_OK;
}

/* The first bytes are the list's while it runs. */
static ndp_status check_run(const ndp_program *p, int at, const pinned *works, size_t end_of_list) {
    for (int k = 0; k < p->n_works; k++)
        if (works[k].call && works[k].start < end_of_list && works[k].start < works[k].end &&
            ndp_lives_at(&works[k].life, at))
            return NDP_FAIL(
                NDP_EBUG,
                "placement: rank %d: the collectives of #%d %s take %zu bytes of pinned memory, where #%d %s "
                "may be under way",
                p->opts.step.mesh.rank, at, p->instrs[at].what, end_of_list, works[k].at, works[k].call->op->name);
    return NDP_OK;
}

ndp_status ndp_step_pinned_check(const ndp_program *p, ndp_arena *arena) {
    size_t ends[NDP_MAX_GRAPHS][NDP_PHASES] = {{0}}, end = 0;
    pinned *items;
    ndp_text rank = {""};
    if (p->staging.bytes == 0)
        return NDP_OK;
    for (int i = 0; i < p->opts.model->n_graphs * NDP_PHASES; i++) {
        int g = i / NDP_PHASES, phase = i % NDP_PHASES;
        const ndp_list *list = &p->opts.units[g].lists[phase];
        NDP_TRY(find_pinned(p, list, p->staging.places + p->staging.of_list[g][phase], list->n, arena, &items));
        NDP_TRY(check_apart(p, p->opts.units[g].graph->name, items, list->n, &ends[g][phase]));
    }
    ndp_text_add(&rank, "rank %d", p->opts.step.mesh.rank);
    NDP_TRY(find_pinned(p, NULL, p->staging.places, p->n_works, arena, &items));
    NDP_TRY(check_apart(p, rank.s, items, p->n_works, &end));
    for (int i = 0; i < p->n; i++)
        if (p->instrs[i].code == NDP_DO_RUN)
            NDP_TRY(check_run(p, i, items, ends[p->opts.model->units[p->instrs[i].unit].graph][p->instrs[i].phase]));
    return NDP_OK;
}
