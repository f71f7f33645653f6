/* One layout on a cluster, as text and as an entry of "results". */
#include "plan/result.h"

#include "plan/step_time.h"

#include <math.h>

ndp_plan_capacity ndp_plan_capacity_of(const ndp_dry_run *d, const ndp_cluster *c) {
    const ndp_device_facts *f = &c->facts;
    double stated = d->job->config->train.gpu_memory * (1 << 30);
    if (d->device.host_memory)
        return (ndp_plan_capacity){ndp_cluster_of_hosts(c) ? (int64_t)(f->memory_bytes / d->per_node) : 0, 0};
    return (ndp_plan_capacity){(int64_t)(stated > 0 ? stated : f->memory_bytes), (int64_t)f->runtime_bytes};
}

/* "rank 1024 (stage 1) needs 79.4 GiB of 79.1 GiB, 640 MiB of it for its runtime: does not fit" */
static void add_need(const ndp_job *j, const ndp_plan_need *n, const ndp_plan_capacity *c, ndp_str *out) {
    char need[16], has[16], runtime[16];
    ndp_str_addf(out, "rank %d ", n->rank);
    if (j->pipeline.ranks)
        ndp_str_addf(out, "(stage %d) ", n->stage);
    ndp_str_addf(out, "needs %s", ndp_human_bytes((double)(n->peak + c->runtime), need));
    if (c->bytes)
        ndp_str_addf(out, " of %s", ndp_human_bytes((double)c->bytes, has));
    if (c->runtime)
        ndp_str_addf(out, ", %s of it for the runtime", ndp_human_bytes((double)c->runtime, runtime));
    if (c->bytes)
        ndp_str_add(out, ndp_plan_fits(c, n) ? ": fits" : ": does not fit");
}

int ndp_plan_nodes(const ndp_rank_map *m) {
    int most = 0;
    for (int r = 0; r < m->world; r++)
        most = m->node[r] > most ? m->node[r] : most;
    return most + 1;
}

static void put_keys(const ndp_job *j, ndp_json_out *o) {
    static const char *const recompute[] = {"none", "block", "selective"};
    bool stages = j->pipeline.ranks > 0;
    ndp_json_put_int(o, "micro_batch_size", j->batch.micro_batch);
    ndp_json_put_int(o, "accumulation", j->batch.accumulation);
    ndp_json_put_text(o, "recompute", recompute[j->config->train.recompute]);
    ndp_json_put_bool(o, "reshard_after_forward", j->config->parallelism.reshard_after_forward);
    ndp_json_put_text(o, "schedule", stages ? j->pipeline.name : NULL);
    ndp_json_put_int(o, "virtual_stages", stages ? j->pipeline.stages / j->pipeline.ranks : 1);
}

static void put_need(const ndp_plan_need *n, const ndp_plan_capacity *c, ndp_json_out *o) {
    ndp_json_open(o, "memory", '{');
    ndp_json_put_int(o, "peak_bytes", n->peak);
    ndp_json_put_int(o, "rank", n->rank);
    if (c->bytes)
        ndp_json_put_int(o, "capacity_bytes", c->bytes);
    else
        ndp_json_put_null(o, "capacity_bytes");
    ndp_json_put_int(o, "runtime_bytes", c->runtime);
    ndp_plan_put_classes(o, &n->budget);
    ndp_json_close(o, '}');
}

static const char *name_of(ndp_collective kind) {
    int i = 0;
    while (i < NDP_OP_COUNT - 1 && ndp_all_ops[i]->collective != kind)
        i++;
    return ndp_all_ops[i]->name;
}

static void put_comms(const ndp_cluster *c, const ndp_step_time *t, ndp_json_out *o) {
    char link[64];
    ndp_json_open(o, "communication", '[');
    for (int k = 0; k < NDP_GROUPS * NDP_COLLECTIVES; k++) {
        const ndp_step_comm *m = &t->comms[k / NDP_COLLECTIVES][k % NDP_COLLECTIVES];
        if (m->bytes == 0)
            continue;
        ndp_json_open(o, NULL, '{');
        ndp_json_put_text(o, "group", ndp_group_name((ndp_group_kind)(k / NDP_COLLECTIVES)));
        ndp_json_put_text(o, "kind", name_of((ndp_collective)(k % NDP_COLLECTIVES)));
        ndp_json_put_text(o, "link",
                          m->level == NDP_NONE ? NULL : ndp_cluster_level_name(c, m->level, link, sizeof link));
        ndp_json_put_number(o, "bytes", m->bytes);
        ndp_json_put_number(o, "seconds", m->seconds);
        ndp_json_put_number(o, "exposed_seconds", m->exposed);
        ndp_json_close(o, '}');
    }
    ndp_json_close(o, ']');
}

static double tokens_of(const ndp_job *j) {
    return (double)j->batch.global_batch * (double)j->config->data.sequence_length;
}

static void put_time(const ndp_dry_run *d, const ndp_device_price *price, const ndp_step_time *t, ndp_json_out *o) {
    double peak = ndp_step_time_peak(d->job, price) * d->job->world * t->seconds;
    ndp_json_put_number(o, "step_seconds", t->seconds);
    ndp_json_put_number(o, "tokens_per_second", tokens_of(d->job) / t->seconds);
    ndp_json_put_number(o, "mfu", t->flops / peak);
    ndp_json_put_number(o, "hfu", t->hardware_flops / peak);
    ndp_json_open(o, "time", '{');
    for (int k = 0; k < NDP_TIME_PARTS; k++)
        ndp_json_put_number(o, ndp_time_part_name(k), t->parts[k]);
    ndp_json_close(o, '}');
    put_comms(&price->links->cluster, t, o);
    ndp_json_put_text(o, "bound_by", ndp_time_part_name(ndp_step_time_bound(t)));
    ndp_json_put_int(o, "critical_rank", t->critical_rank);
}

static void add_time_text(const ndp_dry_run *d, const ndp_device_price *price, const ndp_step_time *t, ndp_str *out) {
    double peak = ndp_step_time_peak(d->job, price) * d->job->world * t->seconds;
    ndp_str_addf(out, "a step takes %.4g s: %.4g tokens/s, %.1f%% of the devices' rate\n  bound by ", t->seconds,
                 tokens_of(d->job) / t->seconds, 100 * t->flops / peak);
    ndp_step_time_words(t, out);
}

/* ---- the whole run ---- */

/* What a run does besides steps. */
typedef struct run_extras {
    int steps, evaluations, saves; /* steps 0: not known without data */
    double pass, evaluation;       /* seconds; NaN: no evaluation, or data alone say how many passes it has */
    int64_t rows;                  /* of a pass */
} run_extras;

static ndp_status find_extras(const ndp_dry_run *d, const ndp_device_price *price, const ndp_plan_output *to,
                              run_extras *out) {
    const ndp_job *j = d->job;
    const ndp_config *c = j->config;
    const ndp_plan_rows *rows = &to->report.rows;
    int micro_batches = rows->passes ? rows->micro_batches : j->forward.ranks ? j->forward.micro_batches : 1;
    int steps = c->train.epochs > 0 ? rows->steps : c->train.steps, every = c->train.eval_every;
    ndp_step_time pass;
    *out = (run_extras){.steps = steps, .pass = NAN, .evaluation = NAN};
    out->saves = ndp_plan_saves(c, steps);
    if (steps == 0 || (c->data.validation_fraction == 0 && c->data.validation_files.n == 0))
        return NDP_OK;
    out->evaluations = every ? (steps + every - 1) / every : 1; /* also after the last step */
    out->rows = (int64_t)j->batch.micro_batch * j->batch.data_ranks * micro_batches;
    NDP_TRY(ndp_plan_pass_time(d, price, micro_batches, &pass));
    out->pass = to->scale * pass.seconds;
    if (rows->passes)
        out->evaluation = (double)rows->passes * out->pass;
    return NDP_OK;
}

static void put_extras(const run_extras *e, const ndp_job *j, ndp_json_out *o) {
    ndp_json_put_int(o, "steps", e->steps);
    ndp_json_put_number(o, "tokens", e->steps * tokens_of(j));
    ndp_json_put_int(o, "saves", e->saves);
    ndp_json_put_int(o, "evaluations", e->evaluations);
    ndp_json_put_number(o, "evaluation_seconds", e->evaluation);
    ndp_json_put_int(o, "pass_rows", e->rows);
    ndp_json_put_number(o, "pass_seconds", e->pass);
}

static void add_extras(const run_extras *e, ndp_str *out) {
    bool counted = isfinite(e->evaluation);
    ndp_str_addf(out, "%d steps", e->steps);
    if (counted)
        ndp_str_addf(out, ", %d evaluation%s of %.3g s", e->evaluations, e->evaluations == 1 ? "" : "s", e->evaluation);
    ndp_str_addf(out, " and %d save%s: ", e->saves, e->saves == 1 ? "" : "s");
}

/* The whole run, where its length is known. */
static void put_run(const ndp_dry_run *d, const ndp_cluster_plan *links, const run_extras *e, double seconds,
                    ndp_str *out, ndp_json_out *o) {
    const ndp_cluster *k = &links->cluster;
    if (e->steps == 0) {
        ndp_json_put_null(o, "run");
        return;
    }
    int nodes = ndp_plan_nodes(&links->map);
    double hours = seconds / 3600;
    add_extras(e, out);
    ndp_str_addf(out, "%.3g h, %.4g tokens, %.4g device-hours", hours, e->steps * tokens_of(d->job),
                 hours * d->job->world);
    ndp_json_open(o, "run", '{');
    put_extras(e, d->job, o);
    ndp_json_put_number(o, "seconds", seconds);
    ndp_json_put_number(o, "device_hours", hours * d->job->world);
    ndp_json_put_number(o, "price", k->price > 0 ? hours * nodes * k->price : NAN);
    ndp_json_put_number(o, "energy", k->power > 0 ? seconds * nodes * k->power : NAN);
    ndp_json_close(o, '}');
    if (k->price > 0)
        ndp_str_addf(out, ", %.4g at %.4g an hour and node", hours * nodes * k->price, k->price);
    if (k->power > 0)
        ndp_str_addf(out, ", %.4g kWh", hours * nodes * k->power / 1e3);
    ndp_str_add(out, "\n");
    if (e->evaluations && !isfinite(e->evaluation))
        ndp_str_addf(out, "not counted: %d evaluation%s, each %.3g s for every %lld held-out rows\n", e->evaluations,
                     e->evaluations == 1 ? "" : "s", e->pass, (long long)e->rows);
}

static ndp_status add_run(const ndp_dry_run *d, const ndp_device_price *price, const ndp_step_time *t,
                          ndp_plan_output *to) {
    run_extras e;
    NDP_TRY(find_extras(d, price, to, &e));
    double evaluations = isfinite(e.evaluation) ? e.evaluations * e.evaluation : 0;
    put_run(d, price->links, &e, e.steps * t->seconds + evaluations + e.saves * to->report.save, &to->report.text,
            &to->results);
    return NDP_OK;
}

/* Prices the step, and the run. */
static ndp_status add_time(const ndp_dry_run *d, const ndp_model *m, ndp_cluster_plan *links, ndp_plan_output *to) {
    ndp_device_price price;
    ndp_step_time t;
    ndp_plan_need unused;
    ndp_str *out = &to->report.text;
    ndp_json_out *o = &to->results;
    NDP_TRY(ndp_device_price_init(d, links, &price));
    ndp_status st = ndp_step_time_of(d, m, &price, INFINITY, &t, &unused);
    if (st == NDP_OK) {
        ndp_step_time_scale(&t, to->scale);
        to->first_seconds = to->first_seconds > 0 ? to->first_seconds : t.seconds;
        ndp_json_put_bool(o, "equal_to_first", fabs(t.seconds / to->first_seconds - 1) <= NDP_EQUAL_TIMES);
        put_time(d, &price, &t, o);
        add_time_text(d, &price, &t, out);
        st = add_run(d, &price, &t, to);
    }
    ndp_device_price_release(&price);
    return st;
}

static void put_why(const char *code, const char *text, ndp_json_out *o) {
    ndp_json_open(o, "why_not", '{');
    ndp_json_put_text(o, "code", code);
    ndp_json_put_text(o, "text", text);
    ndp_json_close(o, '}');
}

ndp_status ndp_plan_put_result(const ndp_dry_run *d, const ndp_model *m, ndp_cluster_plan *links,
                               const ndp_plan_need *need, ndp_plan_output *out) {
    ndp_json_out *results = &out->results;
    ndp_str *text = &out->report.text;
    const ndp_job *j = d->job;
    const ndp_plan_capacity c = ndp_plan_capacity_of(d, &links->cluster);
    bool fits = ndp_plan_fits(&c, need);
    ndp_str line = {0}, only = {0};
    ndp_config_planned_only(j->config, false, &only);
    add_need(j, need, &c, &line);
    ndp_str_addf(text, "\n%s\n", line.data ? line.data : "");
    if (only.length)
        ndp_str_addf(text, "only planned, does not run: %s\n", only.data);
    ndp_json_open(results, NULL, '{');
    ndp_json_put_int(results, "place", ++out->n);
    ndp_json_put_text(results, "cluster", links->cluster.name);
    ndp_json_put_int(results, "nodes", ndp_plan_nodes(&links->map));
    ndp_json_open(results, "layout", '{');
    ndp_plan_put_sizes(results, j);
    ndp_json_close(results, '}');
    put_keys(j, results);
    ndp_json_put_bool(results, "fits", fits);
    if (fits)
        ndp_json_put_null(results, "why_not");
    else
        put_why("memory", line.data, results);
    ndp_json_put_bool(results, "runs", only.length == 0);
    put_need(need, &c, results);
    ndp_str_release(&line);
    ndp_str_release(&only);
    ndp_status st = add_time(d, m, links, out);
    if (st == NDP_OK && !fits)
        st = ndp_plan_put_nearest(d, links, text, results);
    if (out->search.text.length)
        ndp_str_addf(&results->text, ", %s", out->search.text.data);
    ndp_json_close(results, '}');
    return st;
}
