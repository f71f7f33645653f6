/* The search as text and JSON: the fastest layouts, each planned as `plan` plans any job. */
#include "plan/plan_report.h"
#include "plan/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Times that differ by less than the planner's error count as equal, and the layout with fewer axes comes first. */
static bool equal(const ndp_priced_way *first, const ndp_priced_way *r) {
    return r->time.seconds <= first->time.seconds * (1 + NDP_EQUAL_TIMES);
}

static int axes_of(const ndp_plan_way *c) {
    int n = 0;
    for (int axis = 0; axis < NDP_AXES; axis++)
        n += c->layout.size[axis] > 1;
    return n + (c->recompute != NDP_RECOMPUTE_NONE);
}

static void simpler_first(ndp_found *f) {
    const ndp_priced_way fastest = f->results[0];
    for (int i = 1; i < f->n && equal(&fastest, &f->results[i]); i++)
        for (int k = i; k > 0 && axes_of(&f->results[k].c) < axes_of(&f->results[k - 1].c); k--) {
            const ndp_priced_way moved = f->results[k];
            f->results[k] = f->results[k - 1];
            f->results[k - 1] = moved;
        }
}

/* ---- text ---- */

static void describe(const ndp_plan_way *c, ndp_str *out) {
    static const char *const recompute[] = {"", ", recompute", ", selective recompute"};
    char layout[160];
    ndp_str_addf(out, "%s, micro-batch %d%s%s", ndp_layout_text(&c->layout, layout, sizeof layout), c->micro_batch,
                 recompute[c->recompute], c->reshard || c->layout.size[NDP_DP_SHARD] == 1 ? "" : ", weights kept");
    if (c->layout.size[NDP_PP] > 1)
        ndp_str_addf(out, ", %s", ndp_pipeline_table[c->schedule].name);
    if (c->layout.size[NDP_PP] > 1 && c->virtual_stages > 1)
        ndp_str_addf(out, " x %d", c->virtual_stages);
}

static void add_row(const ndp_plan_seek *s, const ndp_priced_way *r, int place, bool same, ndp_str *out) {
    char bytes[16], has[16];
    const ndp_job *j = s->d->job;
    const ndp_plan_capacity c = ndp_plan_capacity_of(s->d, &s->price->links->cluster);
    double tokens = (double)j->batch.global_batch * (double)j->config->data.sequence_length;
    double peak = ndp_step_time_peak(j, s->price) * j->world * r->time.seconds;
    ndp_str words = {0};
    describe(&r->c, &words);
    if (same)
        ndp_str_add(out, " =  ");
    else
        ndp_str_addf(out, "%2d  ", place);
    ndp_str_addf(out, "%s\n    %8.4g s/step  %8.4g tokens/s  MFU %4.1f%%  %s", words.data ? words.data : "",
                 r->time.seconds, tokens / r->time.seconds, 100 * r->time.flops / peak,
                 ndp_human_bytes((double)(r->need.peak + c.runtime), bytes));
    if (c.bytes)
        ndp_str_addf(out, " of %s", ndp_human_bytes((double)c.bytes, has));
    ndp_str_add(out, "\n    bound by ");
    ndp_step_time_words(&r->time, out);
    ndp_str_release(&words);
}

static void add_fallen(const ndp_plan_seek *s, const ndp_found *f, ndp_str *out) {
    char bytes[16];
    const ndp_plan_capacity c = ndp_plan_capacity_of(s->d, &s->price->links->cluster);
    if (f->stopped)
        ndp_str_add(out, "stopped: of the others, some may be faster\n");
    ndp_str_addf(out, "%d considered: %d priced, %d break a rule, %d cannot be among the first %d", f->considered,
                 f->priced, f->by_rule, f->by_bound, NDP_SHOWN);
    if (f->by_memory) {
        ndp_str_addf(out, ", %d need more memory (the best, at least %s: ", f->by_memory,
                     ndp_human_bytes(f->least_bytes + (double)c.runtime, bytes));
        describe(&f->least, out);
        ndp_str_add(out, ")");
    }
    ndp_str_add(out, "\n");
}

/* ---- what would change it ---- */

typedef struct change {
    const char *key, *what;
    double network, links, flops;
} change;
static const change changes[] = {{"network_x2", "2x network", 2, 1, 1},
                                 {"links_x2", "2x links of a node", 1, 2, 1},
                                 {"flops_x1.1", "+10% flops", 1, 1, 1.1}};

static void apply_change(const change *k, ndp_cluster *c) {
    c->nics.bandwidth *= k->network;
    c->links.bandwidth *= k->links;
    for (int i = 0; i < NDP_RATES; i++)
        c->facts.flops[i] *= k->flops;
}

/* Prices the results again on the changed cluster: the first, and those that may be faster by more than the planner's
 * error. *best: the fastest of them. */
static ndp_status price_changed(const ndp_plan_seek *s, const ndp_found *f, const change *k, double *seconds,
                                int *best) {
    ndp_plan_seek changed = *s;
    ndp_device_price price = *s->price;
    ndp_cluster_plan links = *s->price->links; /* of which the lists are borrowed */
    apply_change(k, &links.cluster);
    price.links = &links;
    changed.price = &price;
    *seconds = INFINITY;
    for (int i = 0; i < f->n; i++) {
        ndp_step_time t;
        double least;
        NDP_TRY(ndp_plan_least_again(&changed, &f->results[i].c, &least));
        if (least * (1 + NDP_EQUAL_TIMES) >= *seconds)
            continue;
        NDP_TRY(ndp_plan_price_again(&changed, &f->results[i].c, &t));
        if (t.seconds * (1 + NDP_EQUAL_TIMES) < *seconds)
            *seconds = t.seconds, *best = i;
    }
    return NDP_OK;
}

static ndp_status add_changes(const ndp_plan_seek *s, const ndp_found *f, ndp_str *out, ndp_json_out *o) {
    ndp_json_open(o, "sensitivity", '{');
    for (int i = 0; i < NDP_COUNT(changes); i++) {
        double seconds;
        int best = 0;
        NDP_TRY(price_changed(s, f, &changes[i], &seconds, &best));
        double times = seconds / f->results[0].time.seconds;
        ndp_json_put_number(o, changes[i].key, times);
        ndp_str_addf(out, "%s%s: ", i ? "; " : "", changes[i].what);
        if (best > 0)
            describe(&f->results[best].c, out);
        else
            ndp_str_add(out, "same layout");
        ndp_str_addf(out, ", %+.0f%%", 100 * (times - 1));
    }
    ndp_json_close(o, '}');
    ndp_str_add(out, "\n");
    return NDP_OK;
}

/* ---- the whole ---- */

/* The job whose keys the search starts from: one rank stands for any layout. */
static ndp_status base_job(const ndp_config *c, ndp_config *way, ndp_job *j) {
    int world = c->train.ranks;
    NDP_TRY(ndp_config_copy(c, way));
    way->train.ranks = way->batch.micro_batch_size = 1;
    for (int axis = 0; axis < NDP_SIZES; axis++)
        way->parallelism.size[axis] = 1;
    ndp_status st = ndp_job_init_planned(way, 0, true, j);
    if (st != NDP_OK)
        ndp_config_release(way);
    NDP_TRY(st);
    way->train.ranks = j->world = world;
    j->layout.size[NDP_DP_SHARD] = world;
    return NDP_OK;
}

/* A result as `plan` shows any layout, for JSON; the first also has all other members. */
static ndp_status put_result(const ndp_config *c, const ndp_plan_opts *o, const ndp_priced_way *r, bool first,
                             ndp_plan_output *out) {
    ndp_config way;
    ndp_job j;
    ndp_str text = out->report.text; /* theirs is not wanted */
    ndp_json_out json = out->report.json;
    NDP_TRY(ndp_config_copy(c, &way));
    ndp_plan_way_apply(&r->c, &way);
    ndp_status st = ndp_job_init_planned(&way, 0, true, &j);
    if (st == NDP_OK) {
        out->report.text = (ndp_str){0};
        if (!first)
            out->report.json = (ndp_json_out){0};
        st = ndp_plan_report_job(&j, o, out);
        ndp_job_release(&j);
        ndp_str_release(&out->report.text);
        out->report.text = text;
        if (!first) {
            ndp_str_release(&out->report.json.text);
            out->report.json = json;
        }
    }
    ndp_config_release(&way);
    return st;
}

/* Writes the job with the keys of a way. */
static ndp_status apply(const ndp_config *c, const ndp_plan_way *w, const char *path, ndp_str *text) {
    ndp_config way;
    ndp_str yaml = {0};
    NDP_TRY(ndp_config_copy(c, &way));
    ndp_plan_way_apply(w, &way);
    ndp_status st = ndp_config_write(&way, &yaml);
    if (st == NDP_OK)
        st = ndp_file_write_atomic(path, yaml.data, yaml.length);
    if (st == NDP_OK)
        ndp_str_addf(text, "wrote %s: the job with the first layout\n", path);
    ndp_str_release(&yaml);
    ndp_config_release(&way);
    return st;
}

static ndp_status report(const ndp_config *c, const ndp_plan_opts *o, const ndp_plan_seek *s, ndp_found *f,
                         ndp_plan_output *out) {
    ndp_str *text = &out->report.text;
    const ndp_job *j = s->d->job;
    const ndp_cluster *k = &s->price->links->cluster;
    out->considered += f->considered, out->priced += f->priced;
    out->by_memory += f->by_memory, out->by_rule += f->by_rule, out->by_bound += f->by_bound;
    out->n = 0, out->first_seconds = 0; /* places are those among as many nodes */
    ndp_str_release(&out->search.text);
    out->search = (ndp_json_out){0};
    ndp_str_addf(text, "%d sample%s of %lld tokens a step, on %d node%s, %d %s\n\n", j->batch.global_batch,
                 j->batch.global_batch == 1 ? "" : "s", (long long)j->config->data.sequence_length, k->nodes,
                 k->nodes == 1 ? "" : "s", j->world, k->device);
    NDP_CHECK(
        f->n > 0,
        "no layout of %d %s fits: of %d considered %d need more memory, at least %.3g GiB a device, and "
        "%d break a rule (heads, layers, or a global batch of %d samples that the data ranks do not divide). Plan "
        "one layout to see what would fit",
        j->world, k->device, f->considered, f->by_memory, f->least_bytes / (1 << 30), f->by_rule,
        j->batch.global_batch);
    simpler_first(f);
    for (int i = 0; i < f->n; i++)
        add_row(s, &f->results[i], i + 1, i > 0 && equal(&f->results[0], &f->results[i]), text);
    ndp_str_add(text, "\n");
    add_fallen(s, f, text);
    if (!f->stopped)
        NDP_TRY(add_changes(s, f, text, &out->search));
    if (o->apply)
        NDP_TRY(apply(c, &f->results[0].c, o->apply, text));
    for (int i = 0; i < f->n && o->json; i++)
        NDP_TRY(put_result(c, o, &f->results[i], i == 0, out));
    return NDP_OK;
}

ndp_status ndp_plan_search(const ndp_config *c, const ndp_plan_opts *o, ndp_plan_output *out) {
    ndp_config way;
    ndp_job j;
    ndp_dry_run d;
    ndp_cluster_plan links = {0};
    ndp_device_price price = {0};
    ndp_plan_seek s = {.d = &d, .price = &price, .only_schedule = -1, .stop = o->stop, .user = o->user};
    ndp_found found;
    for (int axis = 0; axis < NDP_AXES; axis++)
        s.most[axis] = INT32_MAX;
    if (o->apply)
        NDP_TRY(ndp_output_check(o->apply));
    NDP_TRY(base_job(c, &way, &j));
    ndp_status st = ndp_cluster_plan_open(&j, o, &links);
    if (st == NDP_OK)
        st = ndp_dry_run_init(&d, &j, ndp_rank_map_block(&links.map), 0);
    links.rings = st == NDP_OK && !d.device.host_memory && !d.exec.staged;
    if (st == NDP_OK)
        st = ndp_device_price_init(&d, &links, &price);
    if (st == NDP_OK)
        st = ndp_plan_find(&s, &found);
    if (st == NDP_OK)
        st = report(&way, o, &s, &found, out);
    ndp_device_price_release(&price);
    ndp_cluster_plan_release(&links);
    ndp_job_release(&j);
    ndp_config_release(&way);
    return st;
}
