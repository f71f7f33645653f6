/* Lists, measures and judges the links of a layout (link_check.h). The verdict is arithmetic on what was measured, and
 * the same on every rank. */
#include "measure/link_check.h"

#include "base/arena.h"
#include "base/clock.h"
#include "cluster/cluster.h"
#include "measure/median.h"

#include <stdlib.h>
#include <string.h>

void ndp_link_check_release(ndp_link_check *c) {
    ndp_world_hosts_release(&c->hosts);
    ndp_str_release(&c->warnings);
    free(c->links);
    *c = (ndp_link_check){0};
}

/* ---- the list ---- */

static bool crosses(const ndp_used_link *l) { return l->host_a != l->host_b; }

/* The same pair of hosts; inside a host, the same two ranks. */
static bool is_same(const ndp_used_link *x, const ndp_used_link *y) {
    if (!crosses(x) || !crosses(y))
        return x->probe.a == y->probe.a && x->probe.b == y->probe.b;
    return (x->host_a == y->host_a && x->host_b == y->host_b) || (x->host_a == y->host_b && x->host_b == y->host_a);
}

/* A list in the making. Links that have a host in common, or inside it a rank, disturb each other; and a rank is in one
 * link at a time (probe.h). */
typedef struct link_list {
    ndp_link_check *c;
    int64_t capacity;
    uint64_t *busy; /* by host, then by rank: the rounds in which it is in a link */
    int *first;     /* the same: its newest link; -1: none */
} link_list;

static int end_of(const link_list *l, const ndp_used_link *link, bool b) {
    if (crosses(link))
        return b ? link->host_b : link->host_a;
    return l->c->hosts.n + (b ? link->probe.b : link->probe.a);
}

/* Sets link->round to the first one in which its hosts and ranks are free. */
static void find_round(link_list *l, ndp_used_link *link) {
    enum { ROUNDS = 64, ENDS = 4 };
    uint64_t *ends[ENDS], busy = 0;
    for (int i = 0; i < ENDS; i++) {
        ends[i] = &l->busy[i < 2 ? end_of(l, link, i) : l->c->hosts.n + (i == 2 ? link->probe.a : link->probe.b)];
        busy |= *ends[i];
    }
    while (link->round < ROUNDS - 1 && (busy >> link->round & 1))
        link->round++;
    for (int i = 0; i < ENDS; i++)
        *ends[i] |= 1ull << link->round;
}

static ndp_status add_link(link_list *l, ndp_used_link link) {
    ndp_link_check *c = l->c;
    int a = end_of(l, &link, false), b = end_of(l, &link, true), lower = a < b ? a : b;
    for (int i = l->first[lower]; i >= 0; i = c->links[i].next)
        if (is_same(&c->links[i], &link)) {
            c->links[i].kinds |= link.kinds;
            return NDP_OK;
        }
    NDP_TRY(ndp_array_reserve(&c->links, &l->capacity, c->n + 1, sizeof *c->links));
    find_round(l, &link);
    c->rounds = link.round + 1 > c->rounds ? link.round + 1 : c->rounds;
    link.next = l->first[lower];
    l->first[lower] = c->n;
    c->links[c->n++] = link;
    return NDP_OK;
}

/* The link from a rank to the next one of its group. */
static ndp_status add_neighbours(link_list *l, ndp_group_kind kind, ndp_group g) {
    int from = g.base + g.rank * g.stride, to = g.base + (g.rank + 1) % g.count * g.stride;
    if (g.count < 2 || (g.count == 2 && g.rank == 1))
        return NDP_OK;
    int a = from < to ? from : to, b = from < to ? to : from;
    return add_link(l, (ndp_used_link){.probe = {.a = a, .b = b},
                                       .host_a = l->c->hosts.of[a],
                                       .host_b = l->c->hosts.of[b],
                                       .kind = kind,
                                       .group = g,
                                       .kinds = NDP_GROUP_BIT(kind)});
}

/* The groups of single axes and of those whose slices a layout shares: data and loss are made of them. */
static bool is_neighbourly(ndp_group_kind kind) {
    return kind != NDP_GROUP_WORLD && kind != NDP_GROUP_DATA && kind != NDP_GROUP_LOSS;
}

static ndp_status add_rank(link_list *list, const ndp_layout *l, int rank, const ndp_mesh_facts *facts) {
    ndp_mesh mesh;
    NDP_TRY(ndp_mesh_init(l, rank, facts, &mesh));
    for (int kind = 0; kind < NDP_GROUPS; kind++)
        if (is_neighbourly((ndp_group_kind)kind))
            NDP_TRY(add_neighbours(list, (ndp_group_kind)kind, ndp_mesh_group(&mesh, (ndp_group_kind)kind)));
    return NDP_OK;
}

ndp_status ndp_link_check_list(const ndp_layout *l, const ndp_mesh_facts *facts, ndp_link_check *c) {
    size_t ends = (size_t)c->hosts.n + (size_t)c->hosts.world;
    link_list list = {.c = c, .busy = calloc(ends, sizeof *list.busy), .first = calloc(ends, sizeof *list.first)};
    ndp_status st = NDP_MEMORY(list.busy && list.first, "for a list of links");
    for (size_t i = 0; i < ends && st == NDP_OK; i++)
        list.first[i] = -1;
    for (int r = 0; r < c->hosts.world && st == NDP_OK; r++)
        st = add_rank(&list, l, r, facts);
    free(list.busy);
    free(list.first);
    return st;
}

/* ---- the verdict ---- */

static double slower_way(const ndp_used_link *l) {
    return l->probe.to_a < l->probe.to_b ? l->probe.to_a : l->probe.to_b;
}

/* What the hosts' best links reach, the median of them; 0: fewer than three hosts have any. A host with a bad NIC has
 * only bad links, which would be the median of all links where there are few. */
static double usual_rate(const ndp_link_check *c) {
    double *best = calloc((size_t)c->hosts.n + 1, sizeof *best);
    int n = 0;
    for (int i = 0; best && i < c->n; i++) {
        const ndp_used_link *l = &c->links[i];
        double rate = crosses(l) ? slower_way(l) : 0;
        best[l->host_a] = rate > best[l->host_a] ? rate : best[l->host_a];
        best[l->host_b] = rate > best[l->host_b] ? rate : best[l->host_b];
    }
    for (int h = 0; best && h < c->hosts.n; h++)
        if (best[h] > 0)
            best[n++] = best[h];
    double rate = n >= 3 ? ndp_median(best, n) : 0;
    free(best);
    return rate;
}

void ndp_link_check_judge(ndp_link_check *c) {
    double usual = usual_rate(c);
    for (int i = 0; i < c->n; i++)
        c->links[i].slow = crosses(&c->links[i]) && slower_way(&c->links[i]) < usual / 2;
}

/* ---- in words ---- */

/* "ranks 4-7", "ranks 1, 3, 5" */
static void add_ranks(const ndp_group *g, ndp_str *out) {
    enum { LISTED = 8 };
    ndp_str_add(out, "ranks ");
    if (g->stride == 1)
        ndp_str_addf(out, "%d-%d", g->base, g->base + g->count - 1);
    for (int i = 0; i < g->count && i < LISTED && g->stride > 1; i++)
        ndp_str_addf(out, "%s%d", i ? ", " : "", g->base + i * g->stride);
    if (g->stride > 1 && g->count > LISTED)
        ndp_str_addf(out, ", ... %d", g->base + (g->count - 1) * g->stride);
}

/* The median of the links between hosts that are not slow, and their number. */
static double rate_of_others(const ndp_link_check *c, int *n) {
    double *rates = calloc((size_t)c->n + 1, sizeof *rates);
    *n = 0;
    for (int i = 0; rates && i < c->n; i++)
        if (crosses(&c->links[i]) && !c->links[i].slow)
            rates[(*n)++] = slower_way(&c->links[i]);
    double rate = rates ? ndp_median(rates, *n) : 0;
    free(rates);
    return rate;
}

/* The host that all slow links share, if they are all links of it; -1: none. */
static int host_of_all(const ndp_link_check *c) {
    for (int h = 0; h < c->hosts.n; h++) {
        int slow = 0, of_host = 0, of_it = 0;
        for (int i = 0; i < c->n; i++) {
            const ndp_used_link *l = &c->links[i];
            bool has = crosses(l) && (l->host_a == h || l->host_b == h);
            slow += l->slow;
            of_it += has && l->slow;
            of_host += has;
        }
        if (of_it == slow && slow == of_host && slow > 1)
            return h;
    }
    return -1;
}

/* "node-3 -> node-4: 11 MB/s, 5 others of its kind 118 MB/s; group shard (ranks 4-7)", the slower way. */
static void explain_link(ndp_link_check *c, const ndp_used_link *l, double rate, int others) {
    ndp_str *out = &c->warnings;
    char slow[NDP_RATE_TEXT], usual[NDP_RATE_TEXT];
    bool to_b = l->probe.to_b <= l->probe.to_a;
    int from = to_b ? l->host_a : l->host_b, to = to_b ? l->host_b : l->host_a;
    ndp_str_addf(out, "%s -> %s: %s, %d other%s of its kind %s; group %s (", c->hosts.names[from], c->hosts.names[to],
                 ndp_rate_text(slower_way(l), slow), others, others == 1 ? "" : "s", ndp_rate_text(rate, usual),
                 ndp_group_name(l->kind));
    add_ranks(&l->group, out);
    ndp_str_add(out, ")\n");
}

void ndp_link_check_explain(ndp_link_check *c) {
    int slow = 0, host = host_of_all(c), others;
    double rate = rate_of_others(c, &others);
    for (int i = 0; i < c->n; i++) {
        if (c->links[i].slow)
            explain_link(c, &c->links[i], rate, others);
        slow += c->links[i].slow;
    }
    if (host >= 0)
        ndp_str_addf(&c->warnings, "all %d links of %s are slow: its NIC, cable or port\n", slow, c->hosts.names[host]);
}

/* ---- axes ---- */

/* Whether a group of an axis has ranks on several hosts. */
static bool axis_crosses(const ndp_layout *l, const ndp_world_hosts *hosts, int axis) {
    int stride = 1;
    bool over = false;
    for (int inner = NDP_AXES - 1; inner > axis; inner--)
        stride *= l->size[inner];
    for (int r = 0; r + stride < hosts->world; r++)
        if (r / stride % l->size[axis] + 1 < l->size[axis])
            over |= hosts->of[r] != hosts->of[r + stride];
    return over;
}

void ndp_link_check_placement(const ndp_layout *l, ndp_link_check *c) {
    bool over[NDP_AXES];
    for (int axis = 0; axis < NDP_AXES; axis++)
        over[axis] = axis_crosses(l, &c->hosts, axis);
    for (int inner = NDP_AXES - 1; inner > 0; inner--)
        for (int outer = inner - 1; outer >= 0 && over[inner]; outer--)
            if (l->size[outer] > 1 && !over[outer]) {
                ndp_str_addf(&c->warnings,
                             "axis %s (%d ranks) crosses hosts while %s (%d), outside it, stays inside them: list the "
                             "hosts so that consecutive ranks share one, or use --placement best\n",
                             ndp_axis_name((ndp_axis)inner), l->size[inner], ndp_axis_name((ndp_axis)outer),
                             l->size[outer]);
                break;
            }
}

/* ---- measuring ---- */

/* Measures some links at once: those of a round, or one alone. */
static ndp_status measure_some(ndp_comm *world, ndp_link_check *c, const int *which, int n, const ndp_probe_opts *o) {
    ndp_probe *probes = calloc((size_t)n + 1, sizeof *probes);
    NDP_CHECK_MEMORY(probes, "to measure %d links", n);
    for (int i = 0; i < n; i++)
        probes[i] = c->links[which[i]].probe;
    ndp_status st = ndp_probes_run(world, probes, n, o);
    if (st == NDP_OK)
        st = ndp_probes_share(world, probes, n);
    for (int i = 0; i < n && st == NDP_OK; i++)
        c->links[which[i]].probe = probes[i];
    free(probes);
    return st;
}

static ndp_status measure_rounds(ndp_comm *world, ndp_link_check *c, const ndp_probe_opts *o) {
    int *which = calloc((size_t)c->n + 1, sizeof *which);
    ndp_status st = NDP_MEMORY(which, "to measure %d links", c->n);
    for (int round = 0; round < c->rounds && st == NDP_OK; round++) {
        int n = 0;
        for (int i = 0; i < c->n; i++)
            if (c->links[i].round == round)
                which[n++] = i;
        st = measure_some(world, c, which, n, o);
    }
    free(which);
    return st;
}

/* Rank 0's clock decides for all. */
static ndp_status time_is_left(ndp_comm *world, double start, double limit, bool *out) {
    ndp_work w;
    double left = ndp_now() - start < limit;
    NDP_TRY(ndp_broadcast_begin(world, &left, sizeof left, 0, &w));
    NDP_TRY(ndp_wait(&w));
    *out = left > 0;
    return NDP_OK;
}

/* Measures a link that looks slow once more, while all others are silent; the better result counts. */
static ndp_status measure_alone(ndp_comm *world, ndp_link_check *c, int i, const ndp_probe_opts *o) {
    ndp_probe before = c->links[i].probe, *p = &c->links[i].probe;
    NDP_TRY(measure_some(world, c, &i, 1, o));
    c->links[i].alone++;
    p->core = p->core > before.core ? p->core : before.core;
    p->to_a = p->to_a > before.to_a ? p->to_a : before.to_a;
    p->to_b = p->to_b > before.to_b ? p->to_b : before.to_b;
    p->latency = p->latency < before.latency ? p->latency : before.latency;
    return NDP_OK;
}

/* How often a link has to look slow alone before it is named. */
enum { TIMES_ALONE = 2 };

/* Measures what looks slow alone, each link up to TIMES_ALONE times, as long as there is time. */
static ndp_status repeat_slow(ndp_comm *world, ndp_link_check *c, double start, const ndp_probe_opts *o) {
    const double limit = 1.3;
    bool left = true;
    ndp_link_check_judge(c);
    for (int i = 0; i < TIMES_ALONE * c->n && left; i++) {
        if (!c->links[i % c->n].slow)
            continue;
        NDP_TRY(time_is_left(world, start, limit, &left));
        if (left)
            NDP_TRY(measure_alone(world, c, i % c->n, o));
        ndp_link_check_judge(c);
    }
    return NDP_OK;
}

/* Only what was measured often enough is named, by ranks that had cores: a message to a rank that others keep from
 * running is late on any link. */
static void keep_sure(ndp_link_check *c) {
    for (int i = 0; i < c->n; i++) {
        ndp_used_link *l = &c->links[i];
        bool unsure = l->slow && (l->alone < TIMES_ALONE || l->probe.core < 0.5);
        c->unsure += unsure;
        l->slow = l->slow && !unsure;
    }
}

ndp_status ndp_link_check_run(ndp_comm *world, const ndp_layout *l, const ndp_mesh_facts *facts, ndp_link_check *c) {
    double start = ndp_now();
    NDP_TRY(ndp_link_check_list(l, facts, c));
    /* A message takes a few times as long until its length is found. */
    double each = 0.2 / (c->rounds > 0 ? c->rounds : 1);
    ndp_probe_opts o = {.seconds = each < 0.02 ? each : 0.02, .most = 16 << 20, .repeats = 1};
    o.nap = o.seconds;
    NDP_TRY(measure_rounds(world, c, &o));
    o.nap = 4 * o.seconds;
    NDP_TRY(repeat_slow(world, c, start, &o));
    keep_sure(c);
    ndp_link_check_explain(c);
    ndp_link_check_placement(l, c);
    c->seconds = ndp_now() - start;
    return NDP_MEMORY(!c->warnings.failed, "for the warnings of links");
}

/* ---- links.json ---- */

static void put_link(const ndp_link_check *c, const ndp_used_link *l, ndp_json_out *out) {
    ndp_json_open(out, NULL, '{');
    ndp_json_put_text(out, "from", c->hosts.names[l->host_a]);
    ndp_json_put_text(out, "to", c->hosts.names[l->host_b]);
    ndp_json_open(out, "ranks", '[');
    ndp_json_put_int(out, NULL, l->probe.a);
    ndp_json_put_int(out, NULL, l->probe.b);
    ndp_json_close(out, ']');
    ndp_json_open(out, "groups", '[');
    for (int kind = 0; kind < NDP_GROUPS; kind++)
        if (l->kinds & NDP_GROUP_BIT(kind))
            ndp_json_put_text(out, NULL, ndp_group_name((ndp_group_kind)kind));
    ndp_json_close(out, ']');
    ndp_json_put_number(out, "latency", l->probe.latency);
    ndp_json_put_number(out, "bandwidth", l->probe.to_b);
    ndp_json_put_number(out, "bandwidth_back", l->probe.to_a);
    ndp_json_put_bool(out, "slow", l->slow);
    ndp_json_close(out, '}');
}

void ndp_link_check_put(const ndp_link_check *c, ndp_json_out *out) {
    ndp_json_open(out, "hosts", '[');
    for (int i = 0; i < c->hosts.n; i++)
        ndp_json_put_text(out, NULL, c->hosts.names[i]);
    ndp_json_close(out, ']');
    ndp_json_open(out, "host_of_rank", '[');
    for (int r = 0; r < c->hosts.world; r++)
        ndp_json_put_int(out, NULL, c->hosts.of[r]);
    ndp_json_close(out, ']');
    ndp_json_open(out, "links", '[');
    for (int i = 0; i < c->n; i++)
        put_link(c, &c->links[i], out);
    ndp_json_close(out, ']');
    ndp_json_put_number(out, "seconds", c->seconds);
}
