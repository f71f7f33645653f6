/* The check of a world's programs without its ranks. Every program is built for the job's device, and those of ranks
 * that communicate are replayed against each other (step/check.c). What a job needs and takes is read from fewer
 * programs than that (ndp_stand_ins_first). */
#include "base/memory_limit.h"
#include "placement/placement.h"
#include "plan/device_price.h"
#include "plan/plan_report.h"
#include "plan/stand_ins.h"
#include "step/simulate.h"
#include "step/timeline.h"

#include <stdlib.h>
#include <string.h>

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
static void add_stages(const ndp_job *j, const ndp_stand_ins *w, ndp_str *out) {
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

/* The programs that score held-out rows: the same proof. With the weights of the programs that train, if there are any,
 * else with their own. */
static ndp_status check_scores(const ndp_dry_run *d, ndp_stand_ins *w, bool trained) {
    size_t n = (size_t)w->n + 1;
    ndp_engine **engines = calloc(n, sizeof *engines);
    ndp_model *models = calloc(n, sizeof *models);
    const ndp_program **programs = calloc(n, sizeof *programs);
    ndp_status st = NDP_MEMORY(engines && models && programs, "to check %d programs", w->n);
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

/* Builds the programs and proves them; *proof: what was proven. */
static ndp_status prove(const ndp_dry_run *d, const ndp_model *m, ndp_stand_ins *w, ndp_str *proof) {
    NDP_TRY(ndp_stand_ins_of_check(d, m, w));
    for (int i = 0; i < w->n; i++) {
        NDP_TRY(ndp_stand_ins_build(d, m, 0, w, i));
        if (w->engines[i])
            NDP_TRY(ndp_program_order(w->programs[i]));
    }
    if (w->n > 1)
        NDP_TRY(ndp_program_check(w->programs, w->n));
    if (w->n > 1 && !d->device.host_memory && !d->exec.staged)
        NDP_TRY(ndp_program_check_queues(w->programs, w->n));
    NDP_TRY(ndp_placement_check(&(ndp_placement_opts){w->programs, w->n, &ndp_engine_claims}, proof));
    return check_scores(d, w, true);
}

static void add_proof(const ndp_job *j, const ndp_stand_ins *w, const char *proof, ndp_plan_report *report) {
    bool all = w->n == j->world;
    ndp_str *out = &report->text;
    ndp_json_open(&report->json, "checked", '{');
    ndp_json_put_int(&report->json, "ranks", w->n);
    ndp_json_put_bool(&report->json, "all_ranks", all);
    ndp_json_put_text(&report->json, "proof", proof);
    ndp_json_close(&report->json, '}');
    if (!proof)
        ndp_str_addf(
            out,
            "\nnot proven: here %d rank%s for all in memory and time; plan without --cluster, and a run before "
            "its first step, prove the programs\n",
            w->n, w->n == 1 ? " stands" : "s stand");
    else if (w->n == 1)
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

/* Instructions that the proof of a world walks: two iterations of ranges, on each rank of a world that is checked
 * whole, else on the lanes of at most four pairs of data coordinates (placement.h). `w`: the first ranks. */
static double proof_walks(const ndp_job *j, const ndp_stand_ins *w) {
    const int *size = j->layout.size;
    double walked = 0, ranks = j->world;
    for (int i = 0; i < w->n; i++) {
        const ndp_repeats *r = &w->programs[i]->repeats;
        walked += w->programs[i]->n + (r->n ? r->items[0].n : 0);
    }
    for (int axis = NDP_DP_REPLICATE; axis <= NDP_DP_SHARD && j->world > NDP_WHOLE_WORLD; axis++)
        ranks = size[axis] > 2 ? ranks * 2 / size[axis] : ranks;
    return walked / w->n * ranks;
}

/* What prices is proven while that takes tenths of a second; *w: the programs. */
static ndp_status take_world(const ndp_dry_run *d, const ndp_model *m, bool prices, ndp_stand_ins *w, ndp_str *proof) {
    const double most = 100e3;
    ndp_status st = NDP_OK;
    if (!prices)
        return prove(d, m, w, proof);
    NDP_TRY(ndp_stand_ins_first(d, m, w));
    for (int i = 0; i < w->n && st == NDP_OK; i++)
        st = ndp_stand_ins_build(d, m, 0, w, i);
    if (st != NDP_OK || proof_walks(d->job, w) > most)
        return st;
    ndp_stand_ins_release(w);
    *w = (ndp_stand_ins){0};
    return prove(d, m, w, proof);
}

static ndp_status check(const ndp_dry_run *d, const ndp_model *m, const ndp_plan_extras *extras, ndp_stand_ins *w,
                        ndp_plan_report *out) {
    ndp_str proof = {0};
    ndp_status st = take_world(d, m, extras->prices && !extras->timeline && !extras->placements, w, &proof);
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
    ndp_str_release(&proof);
    return st;
}

/* Simulates a step of the checked programs. */
static ndp_status simulate(const ndp_stand_ins *w, const ndp_plan_extras *extras, ndp_str *out) {
    const ndp_rates rates = NDP_RATES_INIT;
    const ndp_price stands = ndp_price_by_rates(&rates);
    const ndp_device_price *price = extras->price;
    const ndp_step_costs by_rates = {.seconds = ndp_price_seconds, .user = &stands, .background = true};
    ndp_simulation s;
    ndp_timeline line = {0};
    const ndp_step_costs costs = price ? ndp_device_costs(price) : by_rates;
    ndp_status st = ndp_simulate(w->programs, w->n, &costs, &s);
    for (int i = 0; i < w->n && st == NDP_OK; i++)
        st = ndp_timeline_add(&line, w->programs[i], s.times[i], ndp_program_executed(w->programs[i]));
    if (st == NDP_OK)
        st = ndp_timeline_write(&line, extras->timeline);
    if (st == NDP_OK && price)
        ndp_str_addf(out, "\ntimeline: %s, simulated for %s\n", extras->timeline, price->links->cluster.device);
    else if (st == NDP_OK)
        ndp_str_addf(out,
                     "\ntimeline: %s, simulated for %.3g operations and %.3g bytes of memory a second, messages of "
                     "%.3g bytes a second after %.3g s\n",
                     extras->timeline, rates.flops, rates.bytes, rates.sent, rates.latency);
    if (st == NDP_OK)
        ndp_timeline_print(&line, out);
    ndp_timeline_release(&line);
    ndp_simulation_release(&s);
    return st;
}

ndp_status ndp_plan_check(const ndp_dry_run *d, const ndp_model *m, const ndp_plan_extras *extras,
                          ndp_plan_report *out) {
    ndp_stand_ins w = {0};
    ndp_status st = check(d, m, extras, &w, out);
    if (st == NDP_OK && extras->timeline)
        st = simulate(&w, extras, &out->text);
    ndp_stand_ins_release(&w);
    return st;
}

ndp_status ndp_job_prove(const ndp_job *j, const ndp_program_place *at) {
    ndp_dry_run d;
    ndp_model m;
    ndp_stand_ins w = {0};
    NDP_TRY(ndp_dry_run_at(&d, j, at));
    NDP_TRY(ndp_model_build(&j->spec, &j->model, &m));
    ndp_status st = at->forward_only ? ndp_stand_ins_of_check(&d, &m, &w) : prove(&d, &m, &w, NULL);
    if (st == NDP_OK && at->forward_only)
        st = check_scores(&d, &w, false);
    ndp_stand_ins_release(&w);
    ndp_model_release(&m);
    ndp_memory_give_back(); /* a run's plan counts none of it */
    return st;
}
