/* Searches as text and JSON: the fastest layouts of one machine or of several, each planned as `plan` plans any job. */
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
    for (int axis = 0; axis < NDP_SIZES; axis++)
        n += c->layout.size[axis] > 1;
    return n + (c->recompute != NDP_RECOMPUTE_NONE);
}

static bool comes_before(const ndp_priced_way *fastest, const ndp_priced_way *a, const ndp_priced_way *b) {
    bool tied = equal(fastest, a) && equal(fastest, b);
    return tied && axes_of(&a->c) != axes_of(&b->c) ? axes_of(&a->c) < axes_of(&b->c)
                                                    : a->time.seconds < b->time.seconds;
}

/* Those of a machine, which are sorted by time. */
static void simpler_first(ndp_found *f) {
    const ndp_priced_way fastest = f->results[0];
    for (int i = 1; i < f->n; i++) {
        const ndp_priced_way moved = f->results[i];
        int at = i;
        for (; at > 0 && comes_before(&fastest, &moved, &f->results[at - 1]); at--)
            f->results[at] = f->results[at - 1];
        f->results[at] = moved;
    }
}

/* A result of a machine, in the list of all. */
typedef struct listed_way {
    ndp_searched *of;
    const ndp_priced_way *r;
} listed_way;

/* Fills `out` with the results of all machines; returns how many. */
static int list_results(ndp_searched *const *of, int n, listed_way *out) {
    const ndp_priced_way *fastest = &of[0]->found.results[0];
    int total = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < of[i]->found.n; k++)
            if (of[i]->found.results[k].time.seconds < fastest->time.seconds)
                fastest = &of[i]->found.results[k];
    for (int i = 0; i < n; i++)
        for (int k = 0; k < of[i]->found.n; k++) {
            const ndp_priced_way *r = &of[i]->found.results[k];
            int at = total++;
            for (; at > 0 && comes_before(fastest, r, out[at - 1].r); at--)
                out[at] = out[at - 1];
            out[at] = (listed_way){of[i], r};
        }
    return total;
}

double ndp_searched_run(const ndp_searched *s, const ndp_priced_way *r) {
    int steps = s->way.train.steps;
    return steps * r->time.seconds + ndp_plan_saves(&s->way, steps) * r->save;
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

/* "2 nodes of 1x8-h100-sxm: " */
static void add_machine(const ndp_searched *s, ndp_str *out) {
    const ndp_cluster *k = &s->links.cluster;
    ndp_str_addf(out, "%d node%s of %s: ", k->nodes, k->nodes == 1 ? "" : "s", k->name);
}

static double tokens_of(const ndp_job *j) {
    return (double)j->batch.global_batch * (double)j->config->data.sequence_length;
}

/* Whether each row of one machine has the whole run: where it decides. */
static bool shows_runs(const ndp_searched *s) { return s->o.within > 0 || s->links.cluster.price > 0; }

/* The whole run with a result, and what it costs. */
static void add_run(const ndp_searched *s, const ndp_priced_way *r, ndp_str *out) {
    const ndp_cluster *k = &s->links.cluster;
    double hours = ndp_searched_run(s, r) / 3600;
    int steps = s->way.train.steps, saves = ndp_plan_saves(&s->way, steps);
    if (s->way.train.epochs > 0)
        return;
    ndp_str_addf(out, "%d steps and %d save%s: %.3g h, %.4g tokens, %.4g device-hours", steps, saves,
                 saves == 1 ? "" : "s", hours, steps * tokens_of(&s->job), hours * s->job.world);
    if (k->price > 0)
        ndp_str_addf(out, ", %.4g at %.4g an hour and node", hours * k->nodes * k->price, k->price);
    ndp_str_add(out, "\n");
}

static void add_row(const listed_way *row, int place, bool same, bool several, ndp_str *out) {
    char bytes[16], has[16];
    const ndp_plan_seek *s = &row->of->seek;
    const ndp_priced_way *r = row->r;
    const ndp_job *j = s->d->job;
    const ndp_plan_capacity c = ndp_plan_capacity_of(s->d, &s->price->links->cluster);
    double tokens = tokens_of(j);
    double peak = ndp_step_time_peak(j, s->price) * j->world * r->time.seconds;
    ndp_str words = {0};
    if (several)
        add_machine(row->of, &words);
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
    if (several || shows_runs(row->of)) {
        ndp_str_add(out, "    ");
        add_run(row->of, r, out);
    }
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

/* Twice the memory wins what a candidate wins that it lets in; without it no time changes. */
static void add_doubled(const ndp_found *f, ndp_str *out, ndp_json_out *o) {
    const ndp_priced_way *more = &f->doubled, *first = &f->results[0];
    bool wins = more->time.seconds > 0 && more->time.seconds < first->time.seconds;
    double times = wins ? more->time.seconds / first->time.seconds : 1;
    ndp_json_put_number(o, "memory_x2", times);
    ndp_str_add(out, "; 2x memory: ");
    if (wins)
        describe(&more->c, out);
    else
        ndp_str_add(out, "same layout");
    ndp_str_addf(out, ", %+.0f%%", 100 * (times - 1));
}

static ndp_status add_changes(const ndp_plan_seek *s, const ndp_found *f, double scale, ndp_str *out, ndp_json_out *o) {
    ndp_json_open(o, "sensitivity", '{');
    for (int i = 0; i < NDP_COUNT(changes); i++) {
        double seconds;
        int best = 0;
        NDP_TRY(price_changed(s, f, &changes[i], &seconds, &best));
        double times = scale * seconds / f->results[0].time.seconds;
        ndp_json_put_number(o, changes[i].key, times);
        ndp_str_addf(out, "%s%s: ", i ? "; " : "", changes[i].what);
        if (best > 0)
            describe(&f->results[best].c, out);
        else
            ndp_str_add(out, "same layout");
        ndp_str_addf(out, ", %+.0f%%", 100 * (times - 1));
    }
    if (f->doubled_known)
        add_doubled(f, out, o);
    ndp_json_close(o, '}');
    ndp_str_add(out, "\n");
    return NDP_OK;
}

/* ---- the whole ---- */

/* A result as `plan` shows any layout, for JSON; the very first also has all other members. */
static ndp_status put_result(const listed_way *row, ndp_plan_output *out) {
    const ndp_searched *s = row->of;
    bool first = !out->filled;
    ndp_config way;
    ndp_job j;
    ndp_str text = out->report.text; /* theirs is not wanted */
    ndp_json_out json = out->report.json;
    NDP_TRY(ndp_config_copy(&s->way, &way));
    ndp_plan_way_apply(&row->r->c, &way);
    ndp_status st = ndp_job_init_planned(&way, 0, true, &j);
    if (st == NDP_OK) {
        out->report.text = (ndp_str){0};
        if (!first)
            out->report.json = (ndp_json_out){0};
        out->filled = true;
        out->links = &s->links;
        st = ndp_plan_report_job(&j, &s->o, out);
        out->links = NULL;
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

/* The rest of what is said of a machine, and what changes of it would do. */
static ndp_status add_rest(const ndp_searched *s, bool several, ndp_str *text, ndp_json_out *o) {
    if (several)
        add_machine(s, text);
    add_fallen(&s->seek, &s->found, text);
    if (s->found.stopped)
        return NDP_OK;
    if (several)
        add_machine(s, text);
    return add_changes(&s->seek, &s->found, s->scale, text, o);
}

/* "llama, 8.03 B parameters, bf16: 64 samples of 4096 tokens a step, on 2 nodes x 8 h100-sxm (built in)" */
static void add_header(const ndp_searched *s, bool several, ndp_str *text) {
    const ndp_job *j = &s->job;
    const ndp_cluster *k = &s->links.cluster;
    double parameters = (double)j->spec.parameters;
    ndp_str_addf(text, "%s, %.3g %s parameters, %s: %d sample%s of %lld tokens a step", j->spec.type,
                 parameters / (parameters < 1e9 ? 1e6 : 1e9), parameters < 1e9 ? "M" : "B",
                 j->planned.fp8 ? "fp8" : ndp_dtype_name(j->model.compute), j->batch.global_batch,
                 j->batch.global_batch == 1 ? "" : "s", (long long)j->config->data.sequence_length);
    if (!several) {
        ndp_str source = {0};
        ndp_cluster_source(k, &source);
        ndp_str_addf(text, ", on %d node%s x %d %s (%s)", k->nodes, k->nodes == 1 ? "" : "s", k->devices_of[0],
                     k->device, source.data ? source.data : "");
        ndp_str_release(&source);
    }
    ndp_str_add(text, "\n\n");
}

/* The whole run with the first result, where no row has one, and what to do next. */
static void add_next(const ndp_searched *s, ndp_str *text) {
    if (!shows_runs(s))
        add_run(s, &s->found.results[0], text);
    if (!s->o.apply)
        ndp_str_add(text, "write the first: --apply FILE.yaml; measure it: train it for 20 steps, then --anchor RUN\n");
}

/* Text of a list, and the JSON of what each machine's first result has. */
static ndp_status add_list(ndp_searched *const *of, int n, const listed_way *rows, int n_rows, bool several,
                           const char *notes, ndp_json_out *won, ndp_str *text) {
    add_header(of[0], several, text);
    for (int i = 0; i < n_rows; i++)
        add_row(&rows[i], i + 1, i > 0 && equal(rows[0].r, rows[i].r), several, text);
    ndp_str_add(text, "\n");
    for (int i = 0; i < n; i++)
        NDP_TRY(add_rest(of[i], several, text, &won[i]));
    if (!several)
        add_next(of[0], text);
    ndp_str_add(text, notes);
    return NDP_OK;
}

/* Entries of "results". The first of each machine has what a change of it would do. */
static ndp_status put_list(ndp_searched *const *of, const listed_way *rows, int n_rows, const ndp_json_out *won,
                           ndp_plan_output *out) {
    out->n = 0, out->first_seconds = 0; /* places are those of a list */
    for (int i = 0; i < n_rows; i++) {
        int k = 0;
        while (of[k] != rows[i].of)
            k++;
        if (rows[i].r == &of[k]->found.results[0])
            out->search = won[k];
        NDP_TRY(put_result(&rows[i], out));
        out->search = (ndp_json_out){0};
    }
    return NDP_OK;
}

ndp_status ndp_plan_report_found(ndp_searched *const *of, int n, const ndp_plan_opts *o, const char *notes,
                                 ndp_plan_output *out) {
    listed_way *rows = calloc((size_t)n * NDP_SHOWN, sizeof *rows);
    ndp_json_out *won = calloc((size_t)n, sizeof *won);
    ndp_status st = NDP_MEMORY(rows && won, "for %d results", n * NDP_SHOWN);
    bool several = o->n_other_clusters > 0;
    for (int i = 0; i < n && st == NDP_OK; i++)
        simpler_first(&of[i]->found);
    int n_rows = st == NDP_OK ? list_results(of, n, rows) : 0;
    if (st == NDP_OK)
        st = add_list(of, n, rows, n_rows, several, notes, won, &out->report.text);
    if (st == NDP_OK && o->apply)
        st = apply(&rows[0].of->way, &rows[0].r->c, o->apply, &out->report.text);
    if (st == NDP_OK && o->json)
        st = put_list(of, rows, n_rows, won, out);
    for (int i = 0; won && i < n; i++)
        ndp_str_release(&won[i].text);
    free(won);
    free(rows);
    return st;
}
