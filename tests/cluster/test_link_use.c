/* What groups have of the links of six clusters, against numbers by hand. */
#include "check.h"
#include "cluster/cluster.h"

#include <math.h>
#include <stdlib.h>

enum { SHOWN = 3, MOST_NODES = 16 };

static int ones[MOST_NODES] = {1, 1}, eights[MOST_NODES] = {8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8};
static int unequal[MOST_NODES] = {8, 8, 4};
#define NAME(text) ((char *)(uintptr_t)(text))

/* Two nodes of one device, joined by one NIC each. */
static ndp_cluster two_nodes(void) {
    return (ndp_cluster){.name = NAME("two"),
                         .nodes = 2,
                         .devices_of = ones,
                         .links = {NAME("bus"), 100e9, 1e-6, NDP_LINK_SWITCH},
                         .nics = {NAME("ethernet"), 1, 10e9, 20e-6}};
}

/* Eight devices on a switch, with a NIC each. */
static ndp_cluster rails(int nodes) {
    return (ndp_cluster){.name = NAME("rails"),
                         .nodes = nodes,
                         .devices_of = eights,
                         .links = {NAME("nvlink"), 450e9, 2e-6, NDP_LINK_SWITCH},
                         .nics = {NAME("infiniband"), 8, 50e9, 5e-6}};
}

/* Four racks of four such nodes, whose uplinks carry a third. */
static ndp_cluster racks(void) {
    ndp_cluster c = rails(16);
    c.levels = 2;
    c.network[0] = (ndp_network_level){NAME("rack"), 4, 1};
    c.network[1] = (ndp_network_level){NAME("pod"), 4, 3};
    return c;
}

/* Nodes of 8, 8 and 4 devices with four NICs each. */
static ndp_cluster unequal_nodes(void) {
    ndp_cluster c = rails(3);
    c.devices_of = unequal;
    c.links.bandwidth = 300e9;
    c.nics = (ndp_nic_facts){NAME("roce"), 4, 25e9, 5e-6};
    return c;
}

static ndp_cluster mesh(void) {
    ndp_cluster c = rails(2);
    c.links = (ndp_link_facts){NAME("xgmi"), 448e9, 2e-6, NDP_LINK_MESH};
    return c;
}

static ndp_cluster ring(void) {
    ndp_cluster c = rails(1);
    c.links = (ndp_link_facts){NAME("ici"), 300e9, 2e-6, NDP_LINK_RING};
    return c;
}

/* The level, the group's ranks in a unit, bytes that leave it for each that a rank sends, the share of the link, and
 * bytes/s of each rank. */
typedef struct level_case {
    int level, ranks;
    double crosses, share, rate;
} level_case;

typedef struct group_case {
    ndp_cluster (*cluster)(void);
    int world, base, stride, count;
    ndp_send_pattern pattern;
    int slowest; /* of the levels below */
    level_case of[SHOWN];
} group_case;

static ndp_cluster two_rails(void) { return rails(2); }

#define DIRECT NDP_SENDS_DIRECT
#define RING NDP_SENDS_RING
#define NEXT NDP_SENDS_NEXT
#define BEFORE NDP_SENDS_BEFORE
static const group_case cases[] = {
    /* 2 nodes x 1 rank: all of it over the NIC */
    {two_nodes, 2, 0, 1, 2, DIRECT, 0, {{1, 1, 1, 1, 10e9}}},
    {two_nodes, 2, 0, 1, 2, RING, 0, {{1, 1, 1, 1, 10e9}}},
    {two_nodes, 2, 0, 1, 1, DIRECT, 0, {{0}}}, /* alone */
    /* 8 rails: one node; both nodes; across them, a rail each; half a node each */
    {two_rails, 16, 8, 1, 8, DIRECT, 0, {{0, 1, 1, 1, 450e9}}},
    {two_rails, 16, 0, 1, 16, DIRECT, 1, {{0, 1, 7.0 / 15, 1, 450e9 * 15 / 7}, {1, 8, 64.0 / 15, 1, 93.75e9}}},
    {two_rails, 16, 0, 1, 16, RING, 1, {{0, 1, 1, 1, 450e9}, {1, 8, 1, 1, 400e9}}},
    {two_rails, 16, 3, 8, 2, DIRECT, 0, {{1, 1, 1, 0.125, 50e9}}},
    {two_rails, 16, 1, 4, 4, DIRECT, 1, {{0, 1, 1.0 / 3, 1, 1350e9}, {1, 2, 4.0 / 3, 0.25, 75e9}}},
    {two_rails, 16, 1, 4, 4, RING, 1, {{0, 1, 0.5, 1, 900e9}, {1, 2, 1, 0.25, 100e9}}},
    /* To a neighbour: 1, 2 and 8 ranks of a node send out of it, each through its own NIC. */
    {two_rails, 16, 0, 1, 16, NEXT, 1, {{0, 1, 1, 1, 450e9}, {1, 8, 1, 1, 50e9}}},
    {two_rails, 16, 0, 1, 16, BEFORE, 1, {{0, 1, 1, 1, 450e9}, {1, 8, 1, 1, 50e9}}},
    {two_rails, 16, 0, 2, 8, NEXT, 1, {{0, 1, 1, 1, 450e9}, {1, 4, 1, 0.5, 50e9}}},
    {two_rails, 16, 3, 8, 2, NEXT, 0, {{1, 1, 1, 0.125, 50e9}}},
    /* racks whose uplinks carry a third: all ranks; one a node; in a rack; across racks */
    {racks,
     128,
     0,
     1,
     128,
     DIRECT,
     2,
     {{0, 1, 7.0 / 127, 1, 450e9 * 127 / 7},
      {1, 8, 960.0 / 127, 1, 400e9 * 127 / 960},
      {2, 32, 3072.0 / 127, 1, 1600e9 / 3 * 127 / 3072}}},
    {racks, 128, 5, 8, 16, DIRECT, 1, {{1, 1, 1, 0.125, 50e9}, {2, 4, 3.2, 0.125, 1600e9 / 3 / 25.6}}},
    {racks, 128, 5, 8, 16, RING, 0, {{1, 1, 1, 0.125, 50e9}, {2, 4, 1, 0.125, 1600e9 / 3 / 8}}},
    {racks, 128, 32, 8, 4, DIRECT, 0, {{1, 1, 1, 0.125, 50e9}}},
    {racks, 128, 9, 32, 4, DIRECT, 1, {{1, 1, 1, 0.125, 50e9}, {2, 1, 1, 1.0 / 32, 1600e9 / 3 / 32}}},
    {racks, 128, 0, 1, 16, DIRECT, 1, {{0, 1, 7.0 / 15, 1, 450e9 * 15 / 7}, {1, 8, 64.0 / 15, 1, 93.75e9}}},
    /* unequal nodes: the one that takes longest counts */
    {unequal_nodes,
     20,
     0,
     1,
     20,
     DIRECT,
     1,
     {{0, 1, 7.0 / 19, 1, 300e9 * 19 / 7}, {1, 8, 96.0 / 19, 1, 100e9 * 19 / 96}}},
    {unequal_nodes, 20, 16, 1, 4, DIRECT, 0, {{0, 1, 1, 1, 300e9}}},
    {unequal_nodes, 20, 1, 2, 10, DIRECT, 1, {{0, 1, 1.0 / 3, 1, 900e9}, {1, 4, 24.0 / 9, 0.5, 18.75e9}}},
    {unequal_nodes, 20, 0, 4, 5, DIRECT, 1, {{0, 1, 0.25, 1, 1200e9}, {1, 2, 1.5, 0.25, 100e9 / 6}}},
    {unequal_nodes, 20, 0, 10, 2, DIRECT, 0, {{1, 1, 1, 0.125, 12.5e9}}},
    /* a mesh: a seventh of the bandwidth to each other device */
    {mesh, 16, 0, 1, 8, DIRECT, 0, {{0, 1, 1.0 / 7, 1, 448e9}}},
    {mesh, 16, 0, 1, 8, RING, 0, {{0, 1, 1.0 / 7, 1, 448e9}}},
    {mesh, 16, 4, 1, 4, DIRECT, 0, {{0, 1, 1.0 / 3, 1, 192e9}}},
    {mesh, 16, 6, 1, 2, RING, 0, {{0, 1, 1, 1, 64e9}}},
    /* a ring: half of the bandwidth each way; a part of it has to come back the way it went */
    {ring, 8, 0, 1, 8, RING, 0, {{0, 1, 0.5, 1, 300e9}}},
    {ring, 8, 4, 1, 4, RING, 0, {{0, 1, 1, 1, 150e9}}},
    {ring, 8, 0, 1, 2, RING, 0, {{0, 1, 1, 1, 150e9}}},
    {ring, 8, 1, 2, 4, RING, 0, {{0, 1, 0.5, 0.5, 150e9}}},
    {ring, 8, 0, 4, 2, RING, 0, {{0, 1, 0.5, 0.25, 75e9}}},
};

static void near(double is, double wanted) { assert_true(fabs(is - wanted) <= 1e-12 * fabs(wanted)); }

static void check_case(const group_case *k) {
    ndp_cluster c = k->cluster();
    ndp_rank_map m;
    ndp_group *groups;
    ndp_group_links links;
    int n, levels = 0;
    CHECK_OK(ndp_rank_map_fill(&c, k->world, &m));
    CHECK_OK(ndp_groups_alike(k->world, k->stride, k->count, &groups, &n));
    CHECK_OK(ndp_cluster_links(&c, &m, (ndp_group){k->base, k->stride, k->count, 0}, groups, n, k->pattern, &links));
    for (; levels < SHOWN && k->of[levels].rate > 0; levels++) {
        const level_case *wanted = &k->of[levels];
        const ndp_link_use *u = &links.of[levels];
        assert_int_equal(u->level, wanted->level);
        assert_int_equal(u->ranks, wanted->ranks);
        near(u->crosses, wanted->crosses);
        near(u->share, wanted->share);
        near(u->rate, wanted->rate);
        near(u->capacity * u->share / u->crosses, wanted->rate);
    }
    assert_int_equal(links.n, levels);
    assert_int_equal(links.slowest, k->slowest);
    near(links.rate, k->of[k->slowest].rate);
    free(groups);
    ndp_rank_map_release(&m);
}

static void shares_are_those_by_hand(void **state) {
    (void)state;
    for (int i = 0; i < NDP_COUNT(cases); i++)
        check_case(&cases[i]);
}

/* One rank on a node of eight devices has one of the eight NICs. */
static void a_rank_alone_has_its_rail(void **state) {
    (void)state;
    ndp_cluster c = rails(2);
    ndp_rank_map m;
    ndp_group g = {0, 1, 2, 0};
    ndp_group_links links;
    CHECK_OK(ndp_rank_map_take(&c, 2, (int[]){1, 0}, &m));
    CHECK_OK(ndp_cluster_links(&c, &m, g, &g, 1, NDP_SENDS_DIRECT, &links));
    assert_int_equal(links.n, 1);
    near(links.of[0].capacity, 50e9);
    near(links.rate, 50e9);
    near(links.latency, 5e-6);
    ndp_rank_map_release(&m);
}

/* The same group on another map: every second rank on the other node. */
static void a_map_decides_what_crosses(void **state) {
    (void)state;
    ndp_cluster c = rails(2);
    ndp_rank_map m;
    ndp_group_links links;
    ndp_group *groups;
    int n, node[16];
    for (int r = 0; r < 16; r++)
        node[r] = r % 2;
    CHECK_OK(ndp_rank_map_take(&c, 16, node, &m));
    assert_int_equal(m.device[15], 7);
    CHECK_OK(ndp_groups_alike(16, 1, 2, &groups, &n));
    CHECK_OK(ndp_cluster_links(&c, &m, groups[3], groups, n, NDP_SENDS_DIRECT, &links));
    assert_int_equal(links.n, 1);
    assert_int_equal(links.of[0].level, NDP_LINK_NICS);
    near(links.rate, 50e9);
    assert_int_equal(links.least, 1);
    assert_int_equal(links.most, 1);
    free(groups);
    CHECK_OK(ndp_groups_alike(16, 2, 8, &groups, &n));
    CHECK_OK(ndp_cluster_links(&c, &m, groups[1], groups, n, NDP_SENDS_DIRECT, &links));
    assert_int_equal(links.of[0].level, NDP_LINK_DEVICES);
    assert_int_equal(links.n, 1);
    assert_int_equal(links.most, 8);
    free(groups);
    ndp_rank_map_release(&m);
}

static void ranks_beyond_the_devices_are_refused(void **state) {
    (void)state;
    ndp_cluster c = unequal_nodes();
    ndp_rank_map m = {0};
    CHECK_FAILS(ndp_rank_map_fill(&c, 21, &m), NDP_EINVAL,
                "21 ranks, but the cluster 'rails' has 20 devices on 3 nodes");
    CHECK_FAILS(ndp_rank_map_take(&c, 5, (int[]){2, 2, 2, 2, 2}, &m), NDP_EINVAL,
                "rank 4 is number 5 on node 2 of the cluster 'rails', which has 4 devices");
    CHECK_FAILS(ndp_rank_map_take(&c, 1, (int[]){3}, &m), NDP_EINVAL, "nodes 0 to 2");
    CHECK_OK(ndp_rank_map_fill(&c, 20, &m));
    assert_int_equal(m.node[15], 1);
    assert_int_equal(m.node[16], 2);
    assert_int_equal(m.device[19], 3);
    ndp_rank_map_release(&m);
}

static void levels_have_names(void **state) {
    (void)state;
    ndp_cluster c = racks();
    char name[64];
    assert_int_equal(ndp_cluster_levels(&c), 3);
    assert_string_equal(ndp_cluster_level_name(&c, 0, name, sizeof name), "nvlink");
    assert_string_equal(ndp_cluster_level_name(&c, 1, name, sizeof name), "infiniband");
    assert_string_equal(ndp_cluster_level_name(&c, 2, name, sizeof name), "rack uplink");
    c.nodes = 4;
    assert_int_equal(ndp_cluster_levels(&c), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_those_by_hand), cmocka_unit_test(a_rank_alone_has_its_rail),
        cmocka_unit_test(a_map_decides_what_crosses), cmocka_unit_test(ranks_beyond_the_devices_are_refused),
        cmocka_unit_test(levels_have_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
