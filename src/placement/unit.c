/* Proving the lists of all units: the contract of unit.h, from the first unit to the last. */
#include "placement/unit.h"

#include "placement/unit_trial.h"
#include <stdlib.h>
#include <string.h>

struct ndp_units {
    const ndp_lanes *lanes;
    int graphs;
    ndp_unit_made *made;  /* by lane, graph and phase */
    ndp_content *between; /* by place in a stage: what the unit before hands on */
    ndp_content **in,
        **out; /* by pp and graph: as it was judged with, and its result, by place in a stage; NULL: not yet */
    ndp_share *(*uses)[NDP_SLOTS]; /* by unit of the whole model, slot and segment: of its gradient */
    ndp_arena arena;
    ndp_units_watcher watcher;
};

/* ---- the phases of a unit ---- */

static bool same_made(const ndp_unit_made *a, const ndp_unit_made *b) {
    bool same = a->n == b->n;
    for (int k = 0; k < NDP_MADE_SUMS; k++)
        same &= a->sums[k].share == b->sums[k].share && a->sums[k].adds == b->sums[k].adds;
    for (int i = 0; same && i < a->n; i++) {
        const ndp_contribution *x = &a->items[i], *y = &b->items[i];
        same = x->slot == y->slot && x->first == y->first && x->count == y->count && x->share == y->share &&
               x->pgrad == y->pgrad && x->adds == y->adds;
    }
    return same;
}

static ndp_unit_made *made_at(const ndp_units *u, int lane, int graph, ndp_phase phase) {
    return &u->made[((size_t)lane * (size_t)u->graphs + (size_t)graph) * NDP_PHASES + phase];
}

static ndp_status run_phase(ndp_units *u, ndp_unit_trial *run, ndp_phase phase) {
    NDP_TRY(ndp_unit_trial_phase(run, phase));
    for (int lane = run->first; lane < run->first + run->n; lane++) {
        ndp_unit_made *at = made_at(u, lane, run->graph, phase), made;
        NDP_TRY(ndp_trial_take_made(run, lane, &u->arena, &made));
        if (at->items && !same_made(at, &made))
            return ndp_trial_refuse(
                run, lane, "%s: it makes other gradients of what a recompute leaves than of what a forward does",
                ndp_phase_name(phase));
        *at = made;
    }
    return NDP_OK;
}

static void clear(ndp_unit_trial *run, int base) {
    for (int i = 0; i < run->n; i++)
        run->memory[i].bases[base].n = 0;
}

/* Both halves of the backward, of what is saved now. */
static ndp_status run_backward(ndp_units *u, ndp_unit_trial *run, const ndp_content *before, const ndp_content *after) {
    const ndp_graph *g = run->uses.graph;
    clear(run, NDP_BASE_BETWEEN);
    clear(run, NDP_BASE_GRAD_INPUT);
    for (int i = 0; i < run->n && g->output != NDP_NONE; i++) {
        int64_t col;
        ndp_thing what = {NDP_THING_GRADIENT, ndp_value_origin(g, g->output, &col)};
        NDP_TRY(ndp_trial_write_boundary(run, run->first + i, NDP_BASE_GRAD_OUTPUT, &after[i], what,
                                         run->uses.of[g->nodes[NDP_NODES_FORWARD].n][0]));
    }
    NDP_TRY(run_phase(u, run, NDP_BACKWARD_INPUT));
    NDP_TRY(ndp_trial_check_grad_input(run, before));
    return run_phase(u, run, NDP_BACKWARD_WEIGHT);
}

/* Which phases of a graph the programs of these lanes run. */
static unsigned phases_of(const ndp_unit_trial *run) {
    unsigned phases = 0;
    const ndp_program *seen = NULL;
    for (int lane = run->first; lane < run->first + run->n; lane++) {
        const ndp_program *p = run->lanes->items[lane].program;
        for (int i = 0; i < p->n && p != seen; i++)
            if (p->instrs[i].code == NDP_DO_RUN && p->opts.model->units[p->instrs[i].unit].graph == run->graph)
                phases |= 1u << p->instrs[i].phase;
        seen = p;
    }
    return phases;
}

static ndp_status run_unit(ndp_units *u, ndp_unit_trial *run, const ndp_content *before, ndp_content *after) {
    unsigned phases = phases_of(run), backward = 1u << NDP_BACKWARD_INPUT | 1u << NDP_BACKWARD_WEIGHT;
    bool outputs = run->uses.graph->output != NDP_NONE;
    static const ndp_phase forwards[] = {NDP_FORWARD_DROP, NDP_FORWARD};
    for (int k = 0; k < 2; k++) {
        if (!(phases >> forwards[k] & 1))
            continue;
        clear(run, NDP_BASE_OUTPUT);
        NDP_TRY(run_phase(u, run, forwards[k]));
        if (outputs)
            NDP_TRY(ndp_trial_take_output(run, after));
    }
    if ((phases >> NDP_FORWARD & 1) && (phases & backward))
        NDP_TRY(run_backward(u, run, before, after));
    if (!(phases >> NDP_RECOMPUTE & 1))
        return NDP_OK;
    clear(run, NDP_BASE_SAVED);
    clear(run, NDP_BASE_SAVED_INPUT);
    NDP_TRY(run_phase(u, run, NDP_RECOMPUTE));
    return run_backward(u, run, before, after);
}

/* Contents that live as long as the units. */
static ndp_status keep_contents(ndp_units *u, const ndp_content *from, int n, ndp_content **out) {
    NDP_TRY(NDP_NEW(&u->arena, n, *out));
    for (int i = 0; i < n; i++) {
        (*out)[i] = ndp_content_of(&u->arena, from[i].rows, from[i].cols);
        NDP_TRY(ndp_content_move(&from[i], 0, from[i].rows, 0, from[i].cols, 0, 0, &(*out)[i]));
    }
    return NDP_OK;
}

static ndp_status judge_unit(ndp_units *u, ndp_unit_trial *run, const ndp_model *whole, int at) {
    ndp_content *after;
    NDP_TRY(ndp_uses_init(&whole->graphs[run->graph], &run->arena, &run->uses));
    NDP_TRY(NDP_NEW(&run->arena, run->n, run->memory));
    NDP_TRY(NDP_NEW(&run->arena, run->n, after));
    NDP_TRY(ndp_trial_write_before(run, u->between));
    NDP_TRY(run_unit(u, run, u->between, after));
    if (u->watcher.done)
        u->watcher.done(u->watcher.user, run->unit, run->first);
    NDP_TRY(keep_contents(u, u->between, run->n, &u->in[at]));
    return keep_contents(u, after, run->n, &u->out[at]);
}

/* Judges unit `unit` of the lanes at `pp`. */
static ndp_status prove_unit(ndp_units *u, int pp, int unit) {
    const ndp_program *p = u->lanes->items[pp * u->lanes->stage].program;
    int n = u->lanes->stage, graph = p->opts.model->units[unit].graph;
    ndp_unit_trial run = {.lanes = u->lanes,
                          .first = pp * n,
                          .n = n,
                          .unit = unit,
                          .graph = graph,
                          .observer = u->watcher.observer,
                          .user = u->watcher.user};
    ndp_status st = judge_unit(u, &run, p->opts.whole, pp * u->graphs + graph);
    ndp_arena_release(&run.arena);
    return st;
}

/* True if a unit of that graph was judged with what the unit before hands on now; things are named by graphs. */
static bool proven(const ndp_units *u, int at) {
    int n = u->lanes->stage;
    bool same = u->in[at] != NULL;
    for (int i = 0; same && i < n; i++)
        same = ndp_contents_equal(&u->in[at][i], &u->between[i]);
    return same;
}

static ndp_status prove_number(ndp_units *u, int number) {
    for (int pp = 0; pp < u->lanes->size[NDP_PP]; pp++) {
        const ndp_model *m = u->lanes->items[pp * u->lanes->stage].program->opts.model;
        for (int i = 0; i < m->n_units; i++) {
            int at = pp * u->graphs + m->units[i].graph;
            if (m->units[i].number != number)
                continue;
            bool shown = u->watcher.unit && strcmp(u->watcher.unit, m->units[i].name) == 0;
            if (!proven(u, at) || shown)
                NDP_TRY(prove_unit(u, pp, i));
            u->between = u->out[at];
            return NDP_OK;
        }
    }
    return NDP_FAIL(NDP_EBUG, "placement: no rank has unit %d of the model", number);
}

static ndp_status prove_all(ndp_units *u) {
    const ndp_model *whole = u->lanes->items[0].program->opts.whole;
    int graphs = u->lanes->size[NDP_PP] * u->graphs;
    NDP_TRY(NDP_NEW(&u->arena, u->lanes->n * u->graphs * NDP_PHASES, u->made));
    NDP_TRY(NDP_NEW(&u->arena, u->lanes->n, u->between));
    NDP_TRY(NDP_NEW(&u->arena, graphs, u->in));
    NDP_TRY(NDP_NEW(&u->arena, graphs, u->out));
    for (int i = 0; i < whole->n_units; i++)
        NDP_TRY(prove_number(u, i));
    return NDP_OK;
}

/* True if a gradient flows through a use of the segment in the unit. */
static bool has_gradient(const ndp_uses *uses, int slot, int segment) {
    const ndp_nodes *nodes = &uses->graph->nodes[NDP_NODES_FORWARD];
    for (int i = 0; i < nodes->n; i++)
        for (int k = 0; k < nodes->items[i].n_in; k++) {
            const ndp_value *v = nodes->items[i].in[k] == NDP_NONE ? NULL : &uses->graph->values[nodes->items[i].in[k]];
            if (v && uses->of[i][k] != 0 && v->kind == NDP_VALUE_PARAM && v->slot == slot && v->segment <= segment &&
                segment < v->segment + v->segments)
                return true;
        }
    return false;
}

/* Numbers the units that have a gradient of a segment: `seen` of them by buffer and segment. With `total`, all of them,
 * each gets its part of the sum. */
static ndp_status weigh_uses(ndp_units *u, const ndp_uses *uses, int (*seen)[NDP_MOST_SEGMENTS],
                             int (*total)[NDP_MOST_SEGMENTS]) {
    const ndp_model *whole = u->lanes->items[0].program->opts.whole;
    for (int i = 0; i < whole->n_units * NDP_SLOTS; i++) {
        const ndp_unit *unit = &whole->units[i / NDP_SLOTS];
        int slot = i % NDP_SLOTS, b = unit->buffers[slot], n = b == NDP_NONE ? 0 : whole->buffers[b].segments.n;
        if (total)
            NDP_TRY(NDP_NEW(&u->arena, n, u->uses[i / NDP_SLOTS][slot]));
        for (int k = 0; k < n; k++) {
            if (!has_gradient(&uses[unit->graph], slot, k))
                continue;
            int before = seen[b][k]++;
            ndp_dim_key dim = ndp_dim_make(ndp_dim_make('u', (uint64_t)b), (uint64_t)k);
            if (total)
                u->uses[i / NDP_SLOTS][slot][k] = ndp_range_share(dim, total[b][k], before, before + 1);
        }
    }
    return NDP_OK;
}

static ndp_status take_uses(ndp_units *u) {
    const ndp_model *whole = u->lanes->items[0].program->opts.whole;
    ndp_uses *uses;
    int(*total)[NDP_MOST_SEGMENTS], (*seen)[NDP_MOST_SEGMENTS];
    NDP_TRY(NDP_NEW(&u->arena, whole->n_graphs, uses));
    NDP_TRY(NDP_NEW(&u->arena, whole->n_buffers, total));
    NDP_TRY(NDP_NEW(&u->arena, whole->n_buffers, seen));
    NDP_TRY(NDP_NEW(&u->arena, whole->n_units, u->uses));
    for (int g = 0; g < whole->n_graphs; g++)
        NDP_TRY(ndp_uses_init(&whole->graphs[g], &u->arena, &uses[g]));
    NDP_TRY(weigh_uses(u, uses, total, NULL));
    return weigh_uses(u, uses, seen, total);
}

ndp_status ndp_units_prove(const ndp_lanes *l, const ndp_units_watcher *w, ndp_units **out) {
    ndp_units *u = calloc(1, sizeof *u);
    *out = u;
    NDP_CHECK_MEMORY(u, "to check placements");
    u->lanes = l;
    u->watcher = *w;
    u->graphs = l->items[0].program->opts.whole->n_graphs;
    NDP_TRY(take_uses(u));
    return prove_all(u);
}

void ndp_units_release(ndp_units *u) {
    if (u)
        ndp_arena_release(&u->arena);
    free(u);
}

const ndp_unit_made *ndp_units_made(const ndp_units *u, int lane, int graph, ndp_phase phase) {
    return made_at(u, lane, graph, phase);
}

ndp_share ndp_use_weight(const ndp_units *u, int unit, int slot, int segment) { return u->uses[unit][slot][segment]; }
