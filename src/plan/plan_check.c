/* The check of a world's programs without its ranks. Every program is built for the job's device, and those of ranks
 * that communicate are replayed against each other (step/check.c). */
#include "plan/plan_parts.h"
#include "step/simulate.h"
#include "step/timeline.h"

#include <stdlib.h>

/* The programs that are checked. Ranks whose programs are the same share one, in which each has its own groups. */
typedef struct checked_world {
    int *ranks;
    ndp_engine **engines; /* NULL: shares that of an earlier rank */
    ndp_program *shared;  /* of those, with the rank's own mesh; the rest is borrowed */
    const ndp_program **programs;
    int n;
} checked_world;

/* Worlds of up to this many ranks are checked whole. */
enum { WHOLE_WORLD = 64 };

/* Adds the combinations of the first and the last coordinate of each axis, and of all on pp: ranks between the first
 * and the last of an axis play the same part in their groups, but every stage has a program of its own. */
static void add_roles(const ndp_job *j, checked_world *w) {
    const int *size = j->layout.size;
    for (int pp = 0; pp < size[NDP_PP]; pp++)
        for (int corner = 0; corner < 1 << NDP_AXES; corner += 2) {
            int coord[NDP_AXES] = {[NDP_PP] = pp};
            bool new = true; /* on an axis of size 1 the first rank is the last */
            for (int axis = NDP_PP + 1; axis < NDP_AXES; axis++) {
                bool last = corner >> axis & 1;
                coord[axis] = last ? size[axis] - 1 : 0;
                new = new && (!last || coord[axis] > 0);
            }
            if (new)
                w->ranks[w->n++] = ndp_mesh_rank_of(&j->layout, coord);
        }
}

static ndp_status choose_ranks(const ndp_job *j, checked_world *w) {
    size_t most = WHOLE_WORLD + ((size_t)j->layout.size[NDP_PP] << (NDP_AXES - 1));
    w->ranks = calloc(most, sizeof *w->ranks);
    w->engines = calloc(most, sizeof *w->engines);
    w->shared = calloc(most, sizeof *w->shared);
    w->programs = calloc(most, sizeof *w->programs);
    if (!w->ranks || !w->engines || !w->shared || !w->programs)
        return NDP_FAIL(NDP_ENOMEM, "no memory to check %zu programs", most);
    for (int r = 0; r < j->world && j->world <= WHOLE_WORLD; r++)
        w->ranks[w->n++] = r;
    if (j->world > WHOLE_WORLD)
        add_roles(j, w);
    return NDP_OK;
}

/* "embed, model.layers.0 .. model.layers.6" */
static void add_units(const ndp_model *m, int stage, ndp_str *out) {
    int first = 0, end;
    while (m->units[first].stage != stage)
        first++;
    for (end = first; end < m->n_units && m->units[end].stage == stage;)
        end++;
    ndp_str_addf(out, "%s", m->units[first].name);
    if (end - first > 1)
        ndp_str_addf(out, " to %s", m->units[end - 1].name);
    ndp_str_addf(out, " (%d)", end - first);
}

/* The first rank of each place on pp: its stages and its memory. */
static void add_stages(const ndp_job *j, const checked_world *w, ndp_str *out) {
    char bytes[16];
    int per_stage = j->world / j->layout.size[NDP_PP];
    if (!j->pipeline.ranks)
        return;
    ndp_str_addf(out, "\npipeline: %s, %d stages on %d ranks, %d micro-batches\n", j->pipeline.name, j->pipeline.stages,
                 j->pipeline.ranks, j->pipeline.micro_batches);
    ndp_str_addf(out,
                 "gathered weights are %s after a forward (parallelism.reshard_after_forward), gradients reduced %s "
                 "(parallelism.reduce_every)\n",
                 j->config->parallelism.reshard_after_forward ? "dropped" : "kept",
                 j->config->parallelism.reduce_every == NDP_REDUCE_EVERY_UPDATE ? "once an update"
                                                                                : "after each micro-batch");
    for (int i = 0; i < w->n; i++) {
        if (w->ranks[i] % per_stage != 0)
            continue;
        ndp_budget budget;
        ndp_program_budget(w->programs[i], &budget);
        ndp_str_addf(out, "  rank %-6d %10s ", w->ranks[i], ndp_human_bytes((double)budget.total, bytes));
        for (int s = 0, n = 0; s < j->pipeline.stages; s++)
            if (j->pipeline.rank_of[s] == w->ranks[i] / per_stage) {
                ndp_str_addf(out, "%s stage %d: ", n++ ? "; " : "", s);
                add_units(w->programs[i]->opts.model, s, out);
            }
        ndp_str_add(out, "\n");
    }
}

/* The first rank before rank i of the list that has the same program; i: none. */
static int find_same(const checked_world *w, int i, const ndp_program *p) {
    int k = 0;
    while (k < i && !(w->engines[k] && ndp_program_same(w->programs[k], p)))
        k++;
    return k;
}

/* Builds the program of rank i of the list. */
static ndp_status add_program(const ndp_dry_run *d, const ndp_model *m, checked_world *w, int i) {
    ndp_engine *e;
    NDP_TRY(ndp_plan_engine(d, m, w->ranks[i], &e));
    const ndp_program *p = ndp_engine_program(e);
    int same = find_same(w, i, p);
    if (same < i) {
        w->shared[i] = *w->programs[same];
        w->shared[i].opts.step.mesh = p->opts.step.mesh;
        w->programs[i] = &w->shared[i];
        ndp_engine_destroy(e);
        return NDP_OK;
    }
    w->engines[i] = e;
    w->programs[i] = p;
    return ndp_program_order(p);
}

static ndp_status check(const ndp_dry_run *d, const ndp_model *m, checked_world *w, ndp_str *out) {
    const ndp_job *j = d->job;
    NDP_TRY(choose_ranks(j, w));
    for (int i = 0; i < w->n; i++)
        NDP_TRY(add_program(d, m, w, i));
    if (w->n == 1)
        return NDP_OK;
    NDP_TRY(ndp_program_check(w->programs, w->n));
    add_stages(j, w, out);
    bool all = w->n == j->world;
    ndp_str_addf(out,
                 "\nchecked: the programs of %s%d ranks%s meet in the same order with the same bytes; no deadlock\n",
                 all ? "all " : "", w->n,
                 all                 ? ""
                 : j->pipeline.ranks ? " (of every stage the first and the last of each other axis)"
                                     : " (the first and the last of each axis)");
    return NDP_OK;
}

/* Simulates a step of the checked programs. */
static ndp_status simulate(const checked_world *w, const char *path, ndp_str *out) {
    const ndp_rates rates = NDP_RATES_INIT;
    const ndp_price price = ndp_price_by_rates(&rates);
    ndp_simulation s;
    ndp_timeline line = {0};
    ndp_status st = ndp_simulate(w->programs, w->n, &(ndp_step_costs){ndp_price_seconds, &price, true}, &s);
    for (int i = 0; i < w->n && st == NDP_OK; i++)
        st = ndp_timeline_add(&line, w->programs[i], s.times[i], ndp_program_executed(w->programs[i]));
    if (st == NDP_OK)
        st = ndp_timeline_write(&line, path);
    if (st == NDP_OK) {
        ndp_str_addf(out,
                     "\ntimeline: %s, simulated for %.3g operations and %.3g bytes of memory a second, messages of "
                     "%.3g bytes a second after %.3g s\n",
                     path, rates.flops, rates.bytes, rates.sent, rates.latency);
        ndp_timeline_print(&line, out);
    }
    ndp_timeline_release(&line);
    ndp_simulation_release(&s);
    return st;
}

ndp_status ndp_plan_check(const ndp_dry_run *d, const ndp_model *m, const char *timeline, ndp_str *out) {
    checked_world w = {0};
    if (d->job->world == 1 && !timeline)
        return NDP_OK;
    ndp_status st = check(d, m, &w, out);
    if (st == NDP_OK && timeline)
        st = simulate(&w, timeline, out);
    for (int i = 0; i < w.n && w.engines; i++)
        ndp_engine_destroy(w.engines[i]);
    free(w.ranks);
    free(w.engines);
    free(w.shared);
    free(w.programs);
    return st;
}
