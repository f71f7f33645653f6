/* The check of a world's programs without its ranks. Every program is built for the job's device, and those of ranks
 * that communicate are replayed against each other (step/check.c). */
#include "parallel/apply.h"
#include "placement/placement.h"
#include "plan/plan_report.h"
#include "step/simulate.h"
#include "step/timeline.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

/* The programs that are checked. Ranks whose programs are the same share one, in which each has its own groups. */
typedef struct checked_world {
    int *ranks;
    ndp_engine **engines; /* NULL: shares that of an earlier rank */
    ndp_program *shared;  /* of those, with the rank's own mesh and slices (`owned`); the rest is borrowed */
    const ndp_program **programs;
    ndp_engine_memory *scores; /* what those with an engine need besides, for held-out rows */
    int n;
} checked_world;

/* Worlds of up to this many ranks are checked whole, and simulated whole by a trial. */
enum { WHOLE_WORLD = 64, WHOLE_TRIAL = 8 };

/* Sets *same if ranks of the tensor axis at these coordinates have parts of tensors of the same sizes. */
static ndp_status same_sizes(const ndp_dry_run *d, const ndp_model *m, int a, int b, bool *same) {
    ndp_engine_opts opts[2];
    NDP_TRY(ndp_job_engine(d->job, a, &d->exec, &opts[0]));
    NDP_TRY(ndp_job_engine(d->job, b, &d->exec, &opts[1]));
    *same = true;
    for (int i = 0; i < m->n_buffers && *same; i++) {
        ndp_arena arena = {0};
        ndp_segments parts[2] = {{0}};
        ndp_status st = NDP_OK;
        for (int k = 0; k < 2 && st == NDP_OK; k++)
            st = ndp_parallel_segments(&m->buffers[i].segments, &opts[k].step.mesh, &opts[k].step.parallel, &arena,
                                       &parts[k]);
        for (int s = 0; st == NDP_OK && s < parts[0].n; s++)
            *same = *same && parts[0].items[s].rows == parts[1].items[s].rows &&
                    parts[0].items[s].cols == parts[1].items[s].cols;
        ndp_arena_release(&arena);
        NDP_TRY(st);
    }
    return NDP_OK;
}

/* The coordinates on tp that stand for all: the first, the last, and each with parts of other sizes. */
static ndp_status choose_tp(const ndp_dry_run *d, const ndp_model *m, int *of, int *n) {
    int tp = d->job->layout.size[NDP_TP];
    of[0] = 0, of[1] = tp - 1;
    *n = tp > 1 ? 2 : 1;
    for (int c = 1; c < tp - 1; c++) {
        bool found = false;
        for (int k = 0; k < *n && !found; k++)
            NDP_TRY(same_sizes(d, m, of[k], c, &found));
        if (!found)
            of[(*n)++] = c;
    }
    return NDP_OK;
}

/* Adds the combinations of the first and the last coordinate of each axis, of all on pp, and of those of tp: ranks
 * between the first and the last of an axis play the same part in their groups, but every stage has a program of its
 * own. */
static void add_roles(const ndp_job *j, const int *tp, int n_tp, checked_world *w) {
    const int *size = j->layout.size;
    for (int pp = 0; pp < size[NDP_PP]; pp++)
        for (int corner = 0; corner < 1 << (NDP_TP - 1); corner++)
            for (int t = 0; t < n_tp; t++) {
                int coord[NDP_AXES] = {[NDP_PP] = pp, [NDP_TP] = tp[t]};
                bool new = true; /* on an axis of size 1 the first rank is the last */
                for (int axis = NDP_PP + 1; axis < NDP_TP; axis++) {
                    bool last = corner >> (axis - 1) & 1;
                    coord[axis] = last ? size[axis] - 1 : 0;
                    new = new && (!last || coord[axis] > 0);
                }
                if (new)
                    w->ranks[w->n++] = ndp_mesh_rank_of(&j->layout, coord);
            }
}

/* `whole`: up to so many ranks, all of them. */
static ndp_status choose_ranks(const ndp_dry_run *d, const ndp_model *m, int whole, checked_world *w) {
    const ndp_job *j = d->job;
    int *tp = malloc(((size_t)j->layout.size[NDP_TP] + 2) * sizeof *tp), n_tp = 0;
    ndp_status st = tp ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory to check the programs");
    if (st == NDP_OK && j->world > whole)
        st = choose_tp(d, m, tp, &n_tp);
    size_t most = (size_t)whole + (((size_t)j->layout.size[NDP_PP] * (size_t)n_tp) << (NDP_TP - 1));
    w->ranks = calloc(most, sizeof *w->ranks);
    w->engines = calloc(most, sizeof *w->engines);
    w->shared = calloc(most, sizeof *w->shared);
    w->programs = calloc(most, sizeof *w->programs);
    w->scores = calloc(most, sizeof *w->scores);
    if (st == NDP_OK && (!w->ranks || !w->engines || !w->shared || !w->programs || !w->scores))
        st = NDP_FAIL(NDP_ENOMEM, "not enough memory to check %zu programs", most);
    for (int r = 0; st == NDP_OK && r < j->world && j->world <= whole; r++)
        w->ranks[w->n++] = r;
    if (st == NDP_OK && j->world > whole)
        add_roles(j, tp, n_tp, w);
    free(tp);
    return st;
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

/* The slices of rank i, which shares a program. */
static ndp_status take_slices(checked_world *w, int i, const ndp_program *p) {
    size_t n = (size_t)p->opts.model->n_buffers;
    ndp_owned *owned = calloc(n + 1, sizeof *owned);
    if (!owned)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory to check the programs");
    memcpy(owned, p->owned, n * sizeof *owned);
    w->shared[i].owned = owned;
    return NDP_OK;
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
        w->shared[i].owned = NULL;
        w->programs[i] = &w->shared[i];
        ndp_status st = take_slices(w, i, p);
        ndp_engine_destroy(e);
        return st;
    }
    w->engines[i] = e;
    w->programs[i] = p;
    return ndp_program_order(p);
}

/* The programs that score held-out rows: the same proof. With the weights of the programs that train, if there are any,
 * else with their own. */
static ndp_status check_scores(const ndp_dry_run *d, checked_world *w, bool trained) {
    size_t n = (size_t)w->n + 1;
    ndp_engine **engines = calloc(n, sizeof *engines);
    ndp_model *models = calloc(n, sizeof *models);
    const ndp_program **programs = calloc(n, sizeof *programs);
    ndp_status st =
        engines && models && programs ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory to check %d programs", w->n);
    int built = 0;
    for (int i = 0; i < w->n && st == NDP_OK; i++) {
        if (trained && !w->engines[i])
            continue;
        st = ndp_plan_score_engine(d, w->ranks[i], w->engines[i], &models[built], &engines[built]);
        if (st == NDP_OK && engines[built]) {
            programs[built] = ndp_engine_program(engines[built]);
            w->scores[i] = ndp_engine_memory_of(engines[built]);
            built++;
        }
    }
    if (st == NDP_OK && built > 0)
        st = ndp_placement_check(&(ndp_placement_opts){programs, built, &ndp_engine_claims}, NULL);
    for (int i = 0; i < built; i++) {
        ndp_engine_destroy(engines[i]);
        ndp_model_release(&models[i]);
    }
    free(programs);
    free(models);
    free(engines);
    return st;
}

/* The rank that needs the most. */
static ndp_status find_fullest(const ndp_dry_run *d, const checked_world *w, ndp_plan_need *out) {
    const ndp_job *j = d->job;
    ndp_engine_memory texts;
    *out = (ndp_plan_need){.peak = -1};
    NDP_TRY(ndp_plan_texts(d, &texts));
    for (int i = 0; i < w->n; i++) {
        if (!w->engines[i])
            continue;
        bool leads = ndp_mesh_leads(&w->programs[i]->opts.step.mesh), host = d->device.host_memory;
        const ndp_engine_memory own = ndp_engine_memory_of(w->engines[i]), *score = &w->scores[i];
        int64_t device = own.device + score->device + (leads ? texts.device : 0);
        int64_t bytes = device + (host ? own.pinned + score->pinned : 0);
        if (bytes <= out->peak)
            continue;
        *out = (ndp_plan_need){.rank = w->ranks[i], .peak = bytes};
        ndp_program_budget(w->programs[i], &out->budget);
        int place = w->ranks[i] / (j->world / j->layout.size[NDP_PP]);
        while (out->stage < j->pipeline.stages && j->pipeline.rank_of[out->stage] != place)
            out->stage++;
    }
    return NDP_OK;
}

/* Builds the programs and proves them; *proof: what was proven. */
static ndp_status prove(const ndp_dry_run *d, const ndp_model *m, checked_world *w, ndp_str *proof) {
    NDP_TRY(choose_ranks(d, m, WHOLE_WORLD, w));
    for (int i = 0; i < w->n; i++)
        NDP_TRY(add_program(d, m, w, i));
    if (w->n > 1)
        NDP_TRY(ndp_program_check(w->programs, w->n));
    NDP_TRY(ndp_placement_check(&(ndp_placement_opts){w->programs, w->n, &ndp_engine_claims}, proof));
    return check_scores(d, w, true);
}

static void add_proof(const ndp_job *j, const checked_world *w, const char *proof, ndp_plan_report *report) {
    bool all = w->n == j->world;
    ndp_str *out = &report->text;
    ndp_json_open(&report->json, "checked", '{');
    ndp_json_put_int(&report->json, "ranks", w->n);
    ndp_json_put_bool(&report->json, "all_ranks", all);
    ndp_json_put_text(&report->json, "proof", proof);
    ndp_json_close(&report->json, '}');
    if (w->n == 1)
        ndp_str_addf(out, "\nchecked: %s\n", proof);
    else
        ndp_str_addf(out,
                     "\nchecked: the programs of %s%d ranks%s meet in the same order with the same bytes; no deadlock; "
                     "%s\n",
                     all ? "all " : "", w->n,
                     all                 ? ""
                     : j->pipeline.ranks ? " (of every stage the first and the last of each other axis)"
                                         : " (the first and the last of each axis)",
                     proof);
}

static ndp_status check(const ndp_dry_run *d, const ndp_model *m, const ndp_plan_extras *extras, checked_world *w,
                        ndp_plan_report *out) {
    ndp_str proof = {0};
    ndp_status st = prove(d, m, w, &proof);
    const ndp_placement_opts placed = {w->programs, w->n, &ndp_engine_claims};
    if (st == NDP_OK) {
        add_stages(d->job, w, &out->text);
        ndp_plan_put_pipeline(&out->json, d->job, w->programs, w->n);
    }
    const char *unit = extras->placements;
    if (st == NDP_OK && unit)
        st = ndp_placement_print(&placed, strcmp(unit, "all") == 0 ? NULL : unit, &out->text);
    if (st == NDP_OK)
        add_proof(d->job, w, proof.data, out);
    if (st == NDP_OK && extras->need)
        st = find_fullest(d, w, extras->need);
    ndp_str_release(&proof);
    return st;
}

/* Simulates a step of the checked programs. */
static ndp_status simulate(const checked_world *w, const char *path, ndp_str *out) {
    const ndp_rates rates = NDP_RATES_INIT;
    const ndp_price price = ndp_price_by_rates(&rates);
    ndp_simulation s;
    ndp_timeline line = {0};
    ndp_status st = ndp_simulate(
        w->programs, w->n, &(ndp_step_costs){.seconds = ndp_price_seconds, .user = &price, .background = true}, &s);
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

static void world_release(checked_world *w) {
    for (int i = 0; i < w->n && w->engines; i++)
        ndp_engine_destroy(w->engines[i]);
    for (int i = 0; i < w->n && w->shared; i++)
        free(w->shared[i].owned);
    free(w->ranks);
    free(w->engines);
    free(w->shared);
    free(w->programs);
    free(w->scores);
}

ndp_status ndp_plan_check(const ndp_dry_run *d, const ndp_model *m, const ndp_plan_extras *extras,
                          ndp_plan_report *out) {
    checked_world w = {0};
    ndp_status st = check(d, m, extras, &w, out);
    if (st == NDP_OK && extras->timeline)
        st = simulate(&w, extras->timeline, &out->text);
    world_release(&w);
    return st;
}

/* What the simulated ranks wait, and what they need. */
static void measure_trial(const checked_world *w, const ndp_simulation *s, ndp_plan_trial *out) {
    static const ndp_step_part waits[] = {NDP_PART_RECEIVE, NDP_PART_SEND, NDP_PART_COLLECTIVE, NDP_PART_IDLE};
    *out = (ndp_plan_trial){.seconds = s->makespan};
    for (int i = 0; i < w->n; i++) {
        for (int k = 0; k < NDP_COUNT(waits) && s->makespan > 0; k++) {
            double share = s->parts[i][waits[k]] / s->makespan / w->n;
            out->waits += share;
            out->bubble += waits[k] == NDP_PART_COLLECTIVE ? 0 : share;
        }
        if (!w->engines[i])
            continue;
        const ndp_engine_memory one = ndp_engine_memory_of(w->engines[i]);
        out->device = one.device > out->device ? one.device : out->device;
        out->pinned = one.pinned > out->pinned ? one.pinned : out->pinned;
    }
}

ndp_status ndp_plan_try(const ndp_dry_run *d, const ndp_model *m, const ndp_price *price, ndp_plan_trial *out) {
    checked_world w = {0};
    ndp_simulation s = {0};
    ndp_status st = choose_ranks(d, m, WHOLE_TRIAL, &w);
    for (int i = 0; i < w.n && st == NDP_OK; i++)
        st = add_program(d, m, &w, i);
    if (st == NDP_OK) {
        st = ndp_simulate(w.programs, w.n,
                          &(ndp_step_costs){.seconds = ndp_price_seconds, .user = price, .background = true}, &s);
        if (st == NDP_OK)
            measure_trial(&w, &s, out);
        ndp_simulation_release(&s);
    }
    world_release(&w);
    return st;
}

ndp_status ndp_plan_fullest(const ndp_dry_run *d, const ndp_model *m, ndp_plan_need *out) {
    checked_world w = {0};
    ndp_status st = choose_ranks(d, m, WHOLE_TRIAL, &w);
    for (int i = 0; i < w.n && st == NDP_OK; i++) {
        st = add_program(d, m, &w, i);
        if (st == NDP_OK && w.engines[i])
            st = ndp_plan_score(d, w.ranks[i], w.engines[i], &w.scores[i]);
    }
    if (st == NDP_OK)
        st = find_fullest(d, &w, out);
    world_release(&w);
    return st;
}

ndp_status ndp_job_prove(const ndp_job *j, const ndp_program_place *at) {
    ndp_dry_run d;
    ndp_model m;
    checked_world w = {0};
    NDP_TRY(ndp_dry_run_at(&d, j, at));
    NDP_TRY(ndp_model_build(&j->spec, &j->model, &m));
    ndp_status st = at->forward_only ? choose_ranks(&d, &m, WHOLE_WORLD, &w) : prove(&d, &m, &w, NULL);
    if (st == NDP_OK && at->forward_only)
        st = check_scores(&d, &w, false);
    world_release(&w);
    ndp_model_release(&m);
    malloc_trim(0); /* a run's plan counts none of it */
    return st;
}
