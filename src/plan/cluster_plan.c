/* A job on a cluster (cluster_plan.h): the links of its groups are found when they are asked for, and what all ranks
 * send follows from the programs of one rank of each pipeline stage, since those of a stage send alike. */
#include "plan/cluster_plan.h"

#include "measure/measure_device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- groups ---- */

typedef struct ndp_known_link {
    int stride, count;
    ndp_send_pattern pattern;
    ndp_group_links links;
} known_link;

void ndp_known_links_release(ndp_known_links *k) {
    free(k->items);
    *k = (ndp_known_links){0};
}

static const known_link *find_known(const ndp_known_links *k, const ndp_group *g, ndp_send_pattern pattern) {
    for (int i = 0; k && i < k->n; i++)
        if (k->items[i].stride == g->stride && k->items[i].count == g->count && k->items[i].pattern == pattern)
            return &k->items[i];
    return NULL;
}

static ndp_status remember(ndp_known_links *k, const ndp_group *g, ndp_send_pattern pattern, const ndp_group_links *l) {
    if (!k)
        return NDP_OK;
    NDP_TRY(ndp_array_reserve(&k->items, &k->capacity, k->n + 1, sizeof *k->items));
    k->items[k->n++] = (known_link){g->stride, g->count, pattern, *l};
    return NDP_OK;
}

/* The groups of all kinds but pairs of stages cover the ranks, so their stride and size say all of them. */
static ndp_status find_links(ndp_cluster_plan *p, ndp_group_kind kind, ndp_send_pattern pattern) {
    ndp_mesh mesh;
    ndp_group *groups;
    int n;
    ndp_known_links *shared = kind < NDP_GROUP_TIE ? p->shared : NULL;
    NDP_TRY(ndp_mesh_init(&p->job->layout, p->rank, &p->facts, &mesh));
    const ndp_group g = ndp_mesh_group(&mesh, kind);
    const known_link *known = find_known(shared, &g, pattern);
    ndp_group_links *to = &p->links[kind][pattern];
    if (known) {
        *to = known->links;
        p->known[kind][pattern] = true;
        return NDP_OK;
    }
    NDP_TRY(ndp_groups_of_kind(&p->job->layout, &p->facts, kind, &groups, &n));
    ndp_status st = ndp_cluster_links(&p->cluster, &p->map, g, groups, n, pattern, to);
    if (st == NDP_OK)
        st = remember(shared, &g, pattern, to);
    p->known[kind][pattern] = st == NDP_OK;
    free(groups);
    return st;
}

/* The links of the rank's group for it. */
static ndp_status links_of(ndp_cluster_plan *p, ndp_group_kind kind, ndp_send_pattern pattern,
                           const ndp_group_links **out) {
    if (!p->known[kind][pattern])
        NDP_TRY(find_links(p, kind, pattern));
    *out = &p->links[kind][pattern];
    return NDP_OK;
}

/* To whom a communication of a rank sends. */
static ndp_send_pattern pattern_of(const ndp_cluster_plan *p, const ndp_mesh *mesh, const ndp_call *c) {
    ndp_group g = ndp_mesh_group(mesh, ndp_channel_group(c->channel));
    switch (c->op->collective) {
    case NDP_SEND:
        return c->attr.peer == (g.rank + 1) % g.count ? NDP_SENDS_NEXT : NDP_SENDS_BEFORE;
    case NDP_RECV: /* what the peer sends */
        return g.rank == (c->attr.peer + 1) % g.count ? NDP_SENDS_NEXT : NDP_SENDS_BEFORE;
    case NDP_SHIFT:
        return NDP_SENDS_NEXT;
    case NDP_ALL_TO_ALL:
        return NDP_SENDS_DIRECT;
    default:
        return p->rings ? NDP_SENDS_RING : NDP_SENDS_DIRECT;
    }
}

ndp_status ndp_cluster_plan_call_links(ndp_cluster_plan *p, const ndp_mesh *mesh, const ndp_call *c,
                                       const ndp_group_links **out) {
    ndp_group_kind kind = ndp_channel_group(c->channel);
    ndp_send_pattern pattern = pattern_of(p, mesh, c);
    NDP_TRY(links_of(p, kind, pattern, out));
    if (c->op->collective != NDP_SEND && c->op->collective != NDP_RECV)
        return NDP_OK;
    const ndp_group g = ndp_mesh_group(mesh, kind);
    int level = ndp_cluster_level_between(&p->cluster, &p->map, mesh->rank, g.base + c->attr.peer * g.stride);
    p->messages[pattern][level] = ndp_group_links_through(*out, level);
    *out = &p->messages[pattern][level];
    return NDP_OK;
}

double ndp_cluster_plan_rate(const ndp_cluster_plan *p, const ndp_link_use *u) {
    const ndp_efficiency *e = &p->cluster.efficiency;
    return u->rate * (u->level == NDP_LINK_DEVICES ? e->links : e->nics);
}

/* Latency of one step inside a node, and between nodes. */
static void latencies(const ndp_group_links *l, double *inside, double *between) {
    *inside = *between = 0;
    for (int i = 0; i < l->n; i++) {
        double *of = l->of[i].level == NDP_LINK_DEVICES ? inside : between;
        *of = fmax(*of, l->of[i].latency);
    }
}

/* A ring passes all ranks one after the other; a tree, which sums may take, goes through the nodes of a group and then
 * through the ranks of each. Other algorithms send to all at once. */
static double latency_of(const ndp_cluster_plan *p, const ndp_group_links *l, ndp_collective kind, int ranks) {
    double inside, between, nodes = ceil((double)ranks / (l->most > 0 ? l->most : 1)),
                            borders = nodes > 1 ? fmin(nodes, ranks - 1) : 0;
    bool one_step = kind == NDP_SHIFT || kind == NDP_SEND || kind == NDP_RECV || kind == NDP_ALL_TO_ALL;
    latencies(l, &inside, &between);
    if (!p->rings || one_step)
        return l->latency;
    double ring = fmax(borders * between + (ranks - 1 - borders) * inside, l->latency);
    double tree = fmax(ceil(log2(nodes)) * between + (l->most > 1 ? l->most - 1 : 0) * inside, l->latency);
    return kind == NDP_ALL_REDUCE ? 2 * fmin(ring, tree) : ring;
}

double ndp_cluster_plan_seconds(const ndp_cluster_plan *p, const ndp_group_links *l, ndp_collective kind, int ranks,
                                double bytes) {
    double slowest = 0;
    for (int i = 0; i < l->n; i++)
        slowest = fmax(slowest, bytes / ndp_cluster_plan_rate(p, &l->of[i]));
    return l->n ? latency_of(p, l, kind, ranks) + slowest : 0;
}

/* ---- the plan ---- */

ndp_status ndp_cluster_plan_find(const ndp_plan_opts *o, ndp_cluster *out) {
    ndp_cluster c;
    NDP_TRY(ndp_cluster_find(o->cluster, &c));
    ndp_status st = o->n_nodes ? ndp_cluster_resize(&c, o->nodes[0]) : NDP_OK;
    if (st == NDP_OK)
        *out = c;
    else
        ndp_cluster_release(&c);
    return st;
}

ndp_status ndp_cluster_plan_open(const ndp_job *j, const ndp_plan_opts *o, ndp_cluster_plan *out) {
    int rank = o->rank < 0 ? 0 : o->rank;
    bool cyclic = o->cyclic;
    ndp_cluster_plan p = {.job = j, .rank = rank, .facts = {j->spec.layout.kv_heads, j->ties}};
    NDP_TRY(ndp_cluster_plan_find(o, &p.cluster));
    ndp_status st =
        cyclic ? ndp_rank_map_deal(&p.cluster, j->world, &p.map) : ndp_rank_map_fill(&p.cluster, j->world, &p.map);
    if (st == NDP_OK)
        st = ndp_cluster_complete(&p.cluster);
    if (st == NDP_OK)
        *out = p;
    else
        ndp_cluster_plan_release(&p);
    return st;
}

ndp_cluster_plan ndp_cluster_plan_of(const ndp_cluster_plan *p, const ndp_job *j, ndp_known_links *shared) {
    ndp_cluster_plan of = *p;
    of.job = j;
    of.facts = (ndp_mesh_facts){j->spec.layout.kv_heads, j->ties};
    of.shared = shared;
    memset(of.known, 0, sizeof of.known);
    return of;
}

void ndp_cluster_plan_release(ndp_cluster_plan *p) {
    ndp_rank_map_release(&p->map);
    ndp_cluster_release(&p->cluster);
}

/* ---- loads of links ---- */

static ndp_status read_stage(const ndp_cluster_plan *p, const ndp_dry_run *d, const ndp_model *m, int rank,
                             ndp_stage_sends *out) {
    ndp_engine *engine;
    ndp_comm_event e;
    NDP_TRY(ndp_plan_engine(d, m, rank, &engine));
    const ndp_program *program = ndp_engine_program(engine);
    for (ndp_comm_event_cursor c = NDP_COMM_EVENTS(NDP_FIRST_USUAL); ndp_program_comm_event(program, &c, &e);)
        if (e.begin && ndp_comm_event_kind(&e) != NDP_RECV)
            out->bytes[ndp_comm_event_group(&e)][pattern_of(p, &program->opts.step.mesh, e.call)] +=
                (double)ndp_repeats_times(&program->repeats, e.instr) * ndp_comm_event_moved(program, &e);
    ndp_engine_destroy(engine);
    return NDP_OK;
}

/* "node 3", or its name */
static void unit_name(const ndp_cluster *c, int level, int unit, char *out, size_t size) {
    if (level == NDP_LINK_DEVICES)
        snprintf(out, size, "%s %d", c->links.shape == NDP_LINK_RING ? "link" : "rank", unit);
    else if (level == NDP_LINK_NICS && unit < c->hosts.n)
        snprintf(out, size, "%s", c->hosts.items[unit]);
    else
        snprintf(out, size, "%s %d", level == NDP_LINK_NICS ? "node" : c->network[level - NDP_LINK_UPLINKS].name, unit);
}

static void add_level(const ndp_cluster_plan *p, int level, const double *loads, ndp_str *out, ndp_json_out *json) {
    enum { LISTED = 4096 };
    char name[64], unit[256], bytes[16], rate[NDP_RATE_TEXT];
    int links = ndp_cluster_link_count(&p->cluster, &p->map, level), busiest = 0;
    double most = 0;
    for (int i = 0; i < links; i++) {
        double seconds = loads[i] / ndp_cluster_link_capacity(&p->cluster, &p->map, level, i);
        busiest = seconds > most ? i : busiest;
        most = seconds > most ? seconds : most;
    }
    double capacity = ndp_cluster_link_capacity(&p->cluster, &p->map, level, busiest);
    ndp_cluster_level_name(&p->cluster, level, name, sizeof name);
    unit_name(&p->cluster, level, busiest, unit, sizeof unit);
    ndp_str_addf(out, "  %-16s %10s  of %s, the most; %s carry it in %.3g s\n", name,
                 ndp_human_bytes(loads[busiest], bytes), unit, ndp_rate_text(capacity, rate), most);
    ndp_json_open(json, NULL, '{');
    ndp_json_put_text(json, "link", name);
    ndp_json_put_text(json, "busiest", unit);
    ndp_json_put_number(json, "bytes", loads[busiest]);
    ndp_json_put_number(json, "capacity", capacity);
    ndp_json_put_number(json, "seconds", most);
    ndp_json_open(json, "bytes_of_each", '[');
    for (int i = 0; i < links && links <= LISTED; i++)
        ndp_json_put_number(json, NULL, loads[i]);
    ndp_json_close(json, ']');
    ndp_json_close(json, '}');
}

static ndp_status add_levels(const ndp_cluster_plan *p, const ndp_flows *flows, ndp_str *out, ndp_json_out *json) {
    double *loads = calloc(ndp_flows_most_links(&p->cluster, p->map.world), sizeof *loads);
    NDP_CHECK_MEMORY(loads, "for the links of %d ranks", p->map.world);
    ndp_status st = NDP_OK;
    for (int level = 0; level < ndp_cluster_levels(&p->cluster) && st == NDP_OK; level++) {
        st = ndp_flows_load(flows, &p->cluster, &p->map, level, loads);
        if (st == NDP_OK)
            add_level(p, level, loads, out, json);
    }
    free(loads);
    return st;
}

ndp_status ndp_cluster_plan_flows(const ndp_cluster_plan *p, const ndp_dry_run *d, const ndp_model *m, ndp_flows *out) {
    int n = p->job->layout.size[NDP_PP], per_stage = p->job->world / n;
    ndp_stage_sends *stages = calloc((size_t)n, sizeof *stages);
    ndp_status st = NDP_MEMORY(stages, "for %d stages", n);
    for (int i = 0; i < n && st == NDP_OK; i++)
        st = read_stage(p, d, m, i * per_stage, &stages[i]);
    if (st == NDP_OK)
        st = ndp_flows_init(&p->job->layout, &p->facts, stages, out);
    free(stages);
    return st;
}

/* What a device of the cluster does. */
static void add_device(const ndp_cluster *c, ndp_str *out, ndp_json_out *json) {
    const ndp_device_facts *f = &c->facts;
    char memory[16], rate[NDP_RATE_TEXT];
    ndp_str_addf(out, "\ndevices of %s: %s, fp32 %.3g TFLOP/s, bf16 %.3g, %s of memory at %s\n", c->name, c->device,
                 f->flops[NDP_RATE_FP32] * 1e-12, f->flops[NDP_RATE_BF16] * 1e-12,
                 ndp_human_bytes(f->memory_bytes, memory), ndp_rate_text(f->memory_bandwidth, rate));
    ndp_json_open(json, "device", '{');
    ndp_json_put_text(json, "name", c->device);
    ndp_json_put_number(json, "fp32", f->flops[NDP_RATE_FP32]);
    ndp_json_put_number(json, "bf16", f->flops[NDP_RATE_BF16]);
    ndp_json_put_number(json, "memory_bytes", f->memory_bytes);
    ndp_json_put_number(json, "memory_bandwidth", f->memory_bandwidth);
    ndp_json_close(json, '}');
}

ndp_status ndp_cluster_plan_loads(const ndp_cluster_plan *p, const ndp_dry_run *d, const ndp_model *m, ndp_str *out,
                                  ndp_json_out *json) {
    ndp_str source = {0};
    ndp_flows flows;
    NDP_TRY(ndp_cluster_plan_flows(p, d, m, &flows));
    ndp_cluster_source(&p->cluster, &source);
    add_device(&p->cluster, out, json);
    ndp_str_addf(out, "\nover links of %s in a step, all ranks (%s)\n", p->cluster.name,
                 source.data ? source.data : "");
    ndp_json_open(json, "cluster", '{');
    ndp_json_put_text(json, "name", p->cluster.name);
    ndp_json_put_int(json, "nodes", p->cluster.nodes);
    ndp_json_put_int(json, "devices", ndp_cluster_devices(&p->cluster));
    ndp_json_put_text(json, "numbers", source.data);
    ndp_json_close(json, '}');
    ndp_json_put_text(json, "numbers", source.data);
    ndp_json_open(json, "links", '[');
    ndp_status st = add_levels(p, &flows, out, json);
    ndp_json_close(json, ']');
    ndp_str_release(&source);
    ndp_flows_release(&flows);
    return st;
}
