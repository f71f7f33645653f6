/* Clusters of eight devices or a few more, layouts of eight ranks, what they send, and a count of every message. */
#ifndef TESTS_CLUSTER_EVERY_MESSAGE_H
#define TESTS_CLUSTER_EVERY_MESSAGE_H

#include "check.h"
#include "cluster/flows.h"

#include <math.h>
#include <stdlib.h>

enum { RANKS = 8, MOST_NODES = 8, MOST_STAGES = 8, MOST_LOADS = RANKS + 3 * MOST_NODES + 16 };
#define NAME(text) ((char *)(uintptr_t)(text))

/* ---- clusters ---- */

static int twos[MOST_NODES] = {2, 2, 2, 2}, unequal[MOST_NODES] = {3, 1, 2, 2};
static int ones[MOST_NODES] = {1, 1, 1, 1, 1, 1, 1, 1};

/* Nodes without racks. */
static inline ndp_cluster flat(int nodes, int *devices_of) {
    return (ndp_cluster){.name = NAME("flat"),
                         .nodes = nodes,
                         .devices_of = devices_of,
                         .links = {NAME("nvlink"), 100e9, 1e-6, NDP_LINK_SWITCH},
                         .nics = {NAME("ethernet"), 1, 10e9, 20e-6}};
}

/* Racks of two nodes whose uplinks carry half of what their NICs do. */
static inline ndp_cluster racks(int nodes, int *devices_of, int members) {
    ndp_cluster c = flat(nodes, devices_of);
    c.levels = 2;
    c.network[0] = (ndp_network_level){NAME("rack"), members, 1};
    c.network[1] = (ndp_network_level){NAME("core"), nodes / members, 2};
    return c;
}

static inline ndp_cluster racks_of_twos(void) { return racks(4, twos, 2); }
static inline ndp_cluster unequal_racks(void) { return racks(4, unequal, 2); }
static inline ndp_cluster flat_twos(void) { return flat(4, twos); }

/* Racks of two nodes in pods of two. */
static inline ndp_cluster pods(void) {
    ndp_cluster c = racks(8, ones, 2);
    c.levels = 3;
    c.network[1] = (ndp_network_level){NAME("pod"), 2, 1.5};
    c.network[2] = (ndp_network_level){NAME("core"), 2, 2};
    return c;
}

static ndp_cluster (*const clusters[])(void) = {racks_of_twos, unequal_racks, flat_twos, pods};

/* ---- layouts and what they send ---- */

typedef struct job {
    ndp_layout layout;
    ndp_mesh_facts facts;
    ndp_stage_sends sends[MOST_STAGES];
} job;

static inline ndp_layout layout_of(const char *text) {
    ndp_layout l;
    CHECK_OK(ndp_layout_parse(text, &l));
    return l;
}

/* The i-th layout of 8 ranks on one, two or three axes; false: there are no more. */
static inline bool layout_at(int i, ndp_layout *out) {
    static const int sizes[] = {1, 2, 4, 8};
    for (int code = 0; code < 1 << 2 * NDP_AXES; code++) {
        ndp_layout l = NDP_LAYOUT_ONE;
        int world = 1;
        for (int axis = 0; axis < NDP_AXES; axis++)
            world *= l.size[axis] = sizes[code >> 2 * axis & 3];
        if (world == RANKS && i-- == 0) {
            *out = l;
            return true;
        }
    }
    return false;
}

/* As in training: much on tp, sp and cp, less on the shards, little elsewhere; the ends of the pipeline send one way.
 */
static inline job usual_job(const ndp_layout *l) {
    job j = {.layout = *l, .facts = {.kv_heads = 2}};
    int last = l->size[NDP_PP] - 1;
    if (last > 0)
        j.facts.ties.of[0][1] = last;
    for (int s = 0; s <= last; s++) {
        double(*bytes)[NDP_SEND_PATTERNS] = j.sends[s].bytes;
        bytes[NDP_GROUP_TP][NDP_SENDS_RING] = 1000;
        bytes[NDP_GROUP_SP][NDP_SENDS_DIRECT] = 300;
        bytes[NDP_GROUP_CP][NDP_SENDS_NEXT] = 200;
        bytes[NDP_GROUP_SHARD][NDP_SENDS_RING] = 100;
        bytes[NDP_GROUP_REPLICATE][NDP_SENDS_RING] = 20;
        bytes[NDP_GROUP_LOSS][NDP_SENDS_DIRECT] = 0.125;
        bytes[NDP_GROUP_PP][NDP_SENDS_NEXT] = s < last ? 8 : 0;
        bytes[NDP_GROUP_PP][NDP_SENDS_BEFORE] = s > 0 ? 8 : 0;
        bytes[NDP_GROUP_TIE][NDP_SENDS_DIRECT] = s == 0 || s == last ? 4 : 0;
    }
    return j;
}

static inline uint32_t next_random(uint32_t *state) { return (*state = *state * 1664525u + 1013904223u) >> 16; }

/* A few kinds and patterns, other bytes for each stage. */
static inline job random_job(const ndp_layout *l, uint32_t seed) {
    job j = {.layout = *l, .facts = {.kv_heads = 1 + (int)(seed % 4)}};
    uint32_t random = seed * 2654435761u;
    if (l->size[NDP_PP] > 1)
        j.facts.ties.of[1][0] = l->size[NDP_PP] - 1;
    for (int s = 0; s < l->size[NDP_PP]; s++)
        for (int kind = 0; kind < NDP_GROUPS; kind++)
            for (int pattern = 0; pattern < NDP_SEND_PATTERNS; pattern++)
                if (next_random(&random) % 3 == 0)
                    j.sends[s].bytes[kind][pattern] = next_random(&random) % 1000;
    return j;
}

/* ---- every message ---- */

typedef void on_message(int from, int to, double bytes, void *user);

/* What a member of a group sends, by its pattern. */
static inline void send_all(const ndp_group *g, ndp_send_pattern pattern, double bytes, on_message *on, void *user) {
    int from = g->base + g->rank * g->stride, n = g->count;
    int next = g->base + (g->rank + 1) % n * g->stride, before = g->base + (g->rank + n - 1) % n * g->stride;
    for (int i = 0; i < n && pattern == NDP_SENDS_DIRECT; i++)
        if (i != g->rank)
            on(from, g->base + i * g->stride, bytes / (n - 1), user);
    if (pattern == NDP_SENDS_NEXT || pattern == NDP_SENDS_RING)
        on(from, next, pattern == NDP_SENDS_RING ? bytes / 2 : bytes, user);
    if (pattern == NDP_SENDS_BEFORE || pattern == NDP_SENDS_RING)
        on(from, before, pattern == NDP_SENDS_RING ? bytes / 2 : bytes, user);
}

static inline void all_messages(const job *j, on_message *on, void *user) {
    for (int r = 0; r < RANKS; r++) {
        ndp_mesh mesh;
        CHECK_OK(ndp_mesh_init(&j->layout, r, &j->facts, &mesh));
        for (int kind = 0; kind < NDP_GROUPS; kind++) {
            ndp_group g = ndp_mesh_group(&mesh, (ndp_group_kind)kind);
            const double *bytes = j->sends[mesh.coord[NDP_PP]].bytes[kind];
            for (int pattern = 0; pattern < NDP_SEND_PATTERNS && g.count > 1; pattern++)
                send_all(&g, (ndp_send_pattern)pattern, bytes[pattern], on, user);
        }
    }
}

/* Bytes from rank to rank. */
typedef struct traffic {
    double bytes[RANKS][RANKS];
} traffic;

static inline void add_message(int from, int to, double bytes, void *user) {
    ((traffic *)user)->bytes[from][to] += bytes;
}

static inline traffic traffic_of(const job *j) {
    traffic t = {0};
    all_messages(j, add_message, &t);
    return t;
}

/* The unit of a level that a node is in; of level 0, a rank is its own. */
static int unit_of(const ndp_cluster *c, int level, int node) {
    int members = 1;
    for (int i = 0; i + NDP_LINK_UPLINKS <= level; i++)
        members *= c->network[i].members;
    return node / members;
}

/* What leaves over each link of a level; level 0: what each rank sends inside its node. */
static inline void count_loads(const ndp_cluster *c, const int *node, const traffic *t, int level, double *loads) {
    memset(loads, 0, MOST_LOADS * sizeof *loads);
    for (int i = 0; i < RANKS; i++)
        for (int k = 0; k < RANKS; k++)
            if (level == NDP_LINK_DEVICES && node[i] == node[k])
                loads[i] += t->bytes[i][k];
            else if (level != NDP_LINK_DEVICES && unit_of(c, level, node[i]) != unit_of(c, level, node[k]))
                loads[unit_of(c, level, node[i])] += t->bytes[i][k];
}

/* Of all links of a level together, and of the busiest one. */
static inline double count_bytes(const ndp_cluster *c, const int *node, const traffic *t, int level, double *busiest) {
    double loads[MOST_LOADS], sum = 0;
    count_loads(c, node, t, level, loads);
    *busiest = 0;
    for (int i = 0; i < MOST_LOADS; i++) {
        sum += loads[i];
        *busiest = fmax(*busiest, loads[i]);
    }
    return sum;
}

static inline bool is_near(double x, double y) { return fabs(x - y) <= 1e-9 * fmax(1, fabs(y)); }

static inline ndp_flows flows_of(const job *j) {
    ndp_flows f;
    CHECK_OK(ndp_flows_init(&j->layout, &j->facts, j->sends, &f));
    return f;
}

/* A map with ranks anywhere. */
static inline ndp_rank_map random_map(const ndp_cluster *c, uint32_t seed) {
    int place[MOST_LOADS], n = 0, node[RANKS];
    uint32_t random = seed * 2246822519u;
    ndp_rank_map m;
    for (int i = 0; i < c->nodes; i++)
        for (int d = 0; d < c->devices_of[i]; d++)
            place[n++] = i;
    for (int r = 0; r < RANKS; r++) {
        int at = (int)(next_random(&random) % (uint32_t)n);
        node[r] = place[at];
        place[at] = place[--n];
    }
    CHECK_OK(ndp_rank_map_take(c, RANKS, node, &m));
    return m;
}

#endif
