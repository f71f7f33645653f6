/* One layout on a cluster, as text and as an entry of "results". */
#include "plan/result.h"

#include "plan/step_time.h"

#include <stdio.h>

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

static void put_time(const ndp_job *j, const ndp_device_price *price, const ndp_step_time *t, ndp_str *out,
                     ndp_json_out *o) {
    double tokens = (double)j->batch.global_batch * (double)j->config->data.sequence_length;
    double peak = ndp_step_time_peak(j, price) * j->world * t->seconds;
    int bound = 0;
    ndp_json_put_number(o, "step_seconds", t->seconds);
    ndp_json_put_number(o, "tokens_per_second", tokens / t->seconds);
    ndp_json_put_number(o, "mfu", t->flops / peak);
    ndp_json_put_number(o, "hfu", t->hardware_flops / peak);
    ndp_json_open(o, "time", '{');
    for (int k = 0; k < NDP_TIME_PARTS; k++) {
        ndp_json_put_number(o, ndp_time_part_name(k), t->parts[k]);
        bound = t->parts[k] > t->parts[bound] ? k : bound;
    }
    ndp_json_close(o, '}');
    ndp_json_put_text(o, "bound_by", ndp_time_part_name(bound));
    ndp_json_put_int(o, "critical_rank", t->critical_rank);
    ndp_str_addf(out, "a step takes %.4g s: %.4g tokens/s, %.1f%% of the devices' rate; bound by %s\n", t->seconds,
                 tokens / t->seconds, 100 * t->flops / peak, ndp_time_part_name(bound));
}

/* Prices the step. */
static ndp_status add_time(const ndp_dry_run *d, const ndp_model *m, ndp_cluster_plan *links, ndp_str *out,
                           ndp_json_out *o) {
    ndp_device_price price;
    ndp_step_time t;
    NDP_TRY(ndp_device_price_init(d, links, &price));
    ndp_status st = ndp_step_time_of(d, m, &price, &t);
    if (st == NDP_OK)
        put_time(d->job, &price, &t, out, o);
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
                               const ndp_plan_need *need, int place, ndp_str *out, ndp_json_out *results) {
    const ndp_job *j = d->job;
    const ndp_plan_capacity c = ndp_plan_capacity_of(d, &links->cluster);
    bool fits = ndp_plan_fits(&c, need);
    ndp_str line = {0}, only = {0};
    ndp_config_planned_only(j->config, false, &only);
    add_need(j, need, &c, &line);
    ndp_str_addf(out, "\n%s\n", line.data ? line.data : "");
    if (only.length)
        ndp_str_addf(out, "only planned, does not run: %s\n", only.data);
    ndp_json_open(results, NULL, '{');
    ndp_json_put_int(results, "place", place);
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
    ndp_status st = add_time(d, m, links, out, results);
    if (st == NDP_OK && !fits)
        st = ndp_plan_put_nearest(d, links, out, results);
    ndp_json_close(results, '}');
    return st;
}
