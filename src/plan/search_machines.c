/* A search on the machines that a user names: clusters, each in one size or several, or in the smallest that is enough.
 * Sizes of one cluster have a list of results each; several clusters have one list of all. */
#include "plan/plan_report.h"
#include "plan/search.h"

#include <math.h>
#include <stdlib.h>

/* A walk over machines. */
typedef struct tour {
    const ndp_config *c;
    const ndp_plan_opts *o;
    ndp_plan_output *out;
    ndp_searched **list; /* of several clusters: with results, owned */
    int n, reported;
    int64_t capacity;
    ndp_str notes, why; /* of several clusters: what else is to be said; why the last machine has no results */
} tour;

enum { MOST_IN_TIME = 1024 }; /* nodes on which a run is looked for that is done in time */

static bool several(const tour *t) { return t->o->n_other_clusters > 0; }

/* ---- one machine ---- */

/* The job whose keys the search starts from: one rank, which has the fewest samples, stands for any layout. */
static ndp_status base_job(const ndp_config *c, ndp_config *way, ndp_job *j) {
    int world = c->train.ranks;
    NDP_TRY(ndp_config_copy(c, way));
    way->train.ranks = 1, way->batch.micro_batch_size = ndp_config_least_rows(c);
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

static void destroy(ndp_searched *s) {
    if (!s)
        return;
    ndp_device_price_release(&s->price);
    ndp_cluster_plan_release(&s->links);
    ndp_job_release(&s->job);
    ndp_config_release(&s->way);
    free(s);
}

static ndp_status check_found(const ndp_searched *s) {
    const ndp_found *f = &s->found;
    const char *device = s->links.cluster.device;
    const ndp_plan_capacity c = ndp_plan_capacity_of(&s->d, &s->links.cluster);
    NDP_CHECK(
        f->n > 0,
        "no layout of %d %s fits: of %d considered %d need more memory, at least %.3g GiB a device, and "
        "%d break a rule (heads, layers, or a global batch of %d samples that the data ranks do not divide). Plan "
        "one layout to see what would fit",
        s->job.world, device, f->considered, f->by_memory, (f->least_bytes + (double)c.runtime) / (1 << 30), f->by_rule,
        s->job.batch.global_batch);
    return NDP_OK;
}

static ndp_status open_machine(ndp_searched *s) {
    NDP_TRY(ndp_cluster_plan_open(&s->job, &s->o, &s->links));
    NDP_TRY(ndp_dry_run_init(&s->d, &s->job, ndp_rank_map_block(&s->links.map), 0));
    s->links.rings = !s->d.device.host_memory && !s->d.exec.staged;
    return ndp_device_price_init(&s->d, &s->links, &s->price);
}

static ndp_status search(tour *t, ndp_searched *s) {
    ndp_config way;
    NDP_TRY(ndp_config_copy(t->c, &way));
    ndp_status st = ndp_plan_take_cluster(&s->o, &way);
    if (st == NDP_OK)
        st = base_job(&way, &s->way, &s->job);
    ndp_config_release(&way);
    NDP_TRY(st);
    NDP_TRY(open_machine(s));
    s->seek =
        (ndp_plan_seek){.d = &s->d, .price = &s->price, .only_schedule = -1, .stop = s->o.stop, .user = s->o.user};
    for (int axis = 0; axis < NDP_SIZES; axis++)
        s->seek.most[axis] = INT32_MAX;
    NDP_TRY(ndp_plan_find(&s->seek, &s->found));
    s->scale = t->out->scale;
    for (int i = 0; i < s->found.n; i++)
        ndp_step_time_scale(&s->found.results[i].time, s->scale);
    ndp_step_time_scale(&s->found.doubled.time, s->scale);
    t->out->considered += s->found.considered, t->out->priced += s->found.priced;
    t->out->by_memory += s->found.by_memory, t->out->by_rule += s->found.by_rule;
    t->out->by_bound += s->found.by_bound;
    return check_found(s);
}

/* ---- what is said ---- */

/* Of sizes that a user names or that are tried, what begins a block; of several clusters, a line after the list. */
static void say(tour *t, const ndp_plan_opts *o, int nodes, const char *text) {
    ndp_str *out = several(t) ? &t->notes : &t->out->report.text;
    if (several(t) && nodes)
        ndp_str_addf(out, "%d node%s of %s: ", nodes, nodes == 1 ? "" : "s", o->cluster);
    else if (several(t))
        ndp_str_addf(out, "%s: ", o->cluster);
    else if (nodes)
        ndp_str_addf(out, "%s%d node%s\n", out->length ? "\n" : "", nodes, nodes == 1 ? "" : "s");
    if (text)
        ndp_str_addf(out, "%s\n", text);
}

/* *out NULL: no layout fits, which is said. */
static ndp_status visit(tour *t, const ndp_plan_opts *one, int nodes, ndp_searched **out) {
    ndp_searched *s = calloc(1, sizeof *s);
    NDP_CHECK_MEMORY(s, "for a search");
    s->o = *one;
    s->nodes = nodes;
    s->o.nodes = &s->nodes, s->o.n_nodes = nodes > 0;
    ndp_status st = search(t, s);
    *out = st == NDP_OK ? s : NULL;
    if (st != NDP_OK)
        destroy(s);
    if (st != NDP_EINVAL)
        return st;
    ndp_str_release(&t->why);
    ndp_str_add(&t->why, ndp_error_message());
    ndp_error_set(NDP_OK, "");
    if (nodes || several(t))
        say(t, one, nodes, t->why.data ? t->why.data : "");
    return NDP_OK;
}

/* A machine whose results are wanted. */
static ndp_status take(tour *t, ndp_searched *s, bool heading) {
    t->reported++;
    if (several(t)) {
        ndp_status st = ndp_array_reserve(&t->list, &t->capacity, t->n + 1, sizeof *t->list);
        if (st == NDP_OK)
            t->list[t->n++] = s;
        else
            destroy(s);
        return st;
    }
    if (heading)
        say(t, &s->o, s->nodes, NULL);
    ndp_status st = ndp_plan_report_found(&s, 1, t->o, "", t->out);
    destroy(s);
    return st;
}

/* ---- the fewest nodes ---- */

/* "1.5 h" */
static void add_time(double seconds, ndp_str *out) {
    double unit = seconds < 60 ? 1 : seconds < 3600 ? 60 : 3600;
    ndp_str_addf(out, "%.4g %s", seconds / unit, unit == 1 ? "s" : unit == 60 ? "min" : "h");
}

static void say_too_long(tour *t, const ndp_searched *s) {
    ndp_str text = {0};
    ndp_str_add(&text, "the run takes ");
    add_time(ndp_searched_run(s, &s->found.results[0]), &text);
    ndp_str_add(&text, ", more than ");
    add_time(t->o->within, &text);
    say(t, &s->o, s->nodes, text.data);
    ndp_str_release(&text);
}

/* The fastest of those that were tried, none of which is done in time. */
static ndp_status take_fastest(tour *t, ndp_searched *best, int tried) {
    ndp_str text = {0};
    ndp_str_addf(&text, "none of up to %d nodes is done within ", tried);
    add_time(t->o->within, &text);
    ndp_str_addf(&text, "%s; the fastest is %d node%s",
                 tried < MOST_IN_TIME ? ", nor are more, by what twice as many win" : "", best->nodes,
                 best->nodes == 1 ? "" : "s");
    if (several(t))
        say(t, &best->o, 0, text.data);
    else
        ndp_str_addf(&t->out->report.text, "\n%s\n\n", text.data ? text.data : "");
    ndp_str_release(&text);
    return take(t, best, false);
}

static double first_run(const ndp_searched *s) { return s ? ndp_searched_run(s, &s->found.results[0]) : INFINITY; }

/* Whether MOST_IN_TIME nodes would not be done either, if each doubling divided the time by `gain`. */
static bool is_hopeless(double seconds, double within, int nodes, double gain) {
    return !(gain > 1) || nodes * pow(2, log(seconds / within) / log(gain)) > MOST_IN_TIME;
}

/* 1, 2, 4 ... nodes. Where a time is asked for, until it is kept, or would not be by the larger of what the last two
 * doublings won. */
static ndp_status search_fewest(tour *t, const ndp_plan_opts *one) {
    ndp_searched *best = NULL, *s;
    const double within = t->o->within;
    double gains[2] = {INFINITY, INFINITY};
    int tried = 0, most = within > 0 ? MOST_IN_TIME : NDP_MOST_NODES;
    ndp_status st = NDP_OK;
    for (int nodes = 1; nodes <= most && st == NDP_OK; nodes *= 2) {
        st = visit(t, one, nodes, &s);
        tried = nodes;
        if (s && (within == 0 || first_run(s) <= within || s->found.stopped)) {
            destroy(best);
            return take(t, s, true);
        }
        if (s)
            say_too_long(t, s);
        gains[0] = gains[1];
        gains[1] = best ? first_run(best) / first_run(s) : INFINITY; /* 0: there is no layout any more */
        bool better = first_run(s) < first_run(best);
        destroy(better ? best : s);
        best = better ? s : best;
        if ((one->stop && one->stop(one->user)) ||
            (best && is_hopeless(first_run(best), within, nodes, fmax(gains[0], gains[1]))))
            break;
    }
    if (st != NDP_OK)
        destroy(best);
    return st == NDP_OK && best ? take_fastest(t, best, tried) : st;
}

/* ---- the whole ---- */

static ndp_status search_cluster(tour *t, const char *cluster) {
    ndp_plan_opts one = *t->o;
    ndp_searched *s;
    one.cluster = cluster;
    if (t->o->fewest_nodes)
        return search_fewest(t, &one);
    for (int i = 0; i < (t->o->n_nodes ? t->o->n_nodes : 1); i++) {
        NDP_TRY(visit(t, &one, t->o->n_nodes ? t->o->nodes[i] : 0, &s));
        if (s)
            NDP_TRY(take(t, s, true));
    }
    return NDP_OK;
}

/* Clusters and sizes that cannot be are errors before any work. */
static ndp_status check_machines(const ndp_plan_opts *o) {
    for (int k = -1; k < o->n_other_clusters; k++)
        for (int i = 0; i < (o->n_nodes ? o->n_nodes : 1); i++) {
            ndp_plan_opts one = *o;
            ndp_cluster c;
            one.cluster = k < 0 ? o->cluster : o->other_clusters[k];
            one.nodes = o->n_nodes ? &o->nodes[i] : NULL;
            NDP_TRY(ndp_cluster_plan_find(&one, &c));
            ndp_cluster_release(&c);
        }
    return NDP_OK;
}

static ndp_status search_all(tour *t) {
    const ndp_plan_opts *o = t->o;
    for (int k = -1; k < o->n_other_clusters; k++)
        NDP_TRY(search_cluster(t, k < 0 ? o->cluster : o->other_clusters[k]));
    if (t->n)
        return ndp_plan_report_found(t->list, t->n, o, t->notes.data ? t->notes.data : "", t->out);
    return t->reported ? NDP_OK : NDP_FAIL(NDP_EINVAL, "%s", t->why.data ? t->why.data : "");
}

ndp_status ndp_plan_search(const ndp_config *c, const ndp_plan_opts *o, ndp_plan_output *out) {
    tour t = {.c = c, .o = o, .out = out};
    NDP_TRY(check_machines(o));
    if (o->apply)
        NDP_TRY(ndp_output_check(o->apply));
    ndp_status st = search_all(&t);
    for (int i = 0; i < t.n; i++)
        destroy(t.list[i]);
    free(t.list);
    ndp_str_release(&t.notes);
    ndp_str_release(&t.why);
    return st;
}
