/* Bytes over the links of a cluster, against a count of every message between two ranks. */
#include "cluster/every_message.h"

static void check_loads(const ndp_cluster *c, const job *j, const ndp_rank_map *m) {
    double wanted[MOST_LOADS], loads[MOST_LOADS];
    const traffic t = traffic_of(j);
    ndp_flows f = flows_of(j);
    assert_int_equal(f.world, RANKS);
    assert_true(ndp_flows_most_links(c, RANKS) <= MOST_LOADS);
    for (int level = 0; level < ndp_cluster_levels(c); level++) {
        CHECK_OK(ndp_flows_load(&f, c, m, level, loads));
        count_loads(c, m->node, &t, level, wanted);
        assert_true((size_t)ndp_cluster_link_count(c, m, level) <= ndp_flows_most_links(c, RANKS));
        for (int i = 0; i < ndp_cluster_link_count(c, m, level); i++)
            if (!is_near(loads[i], wanted[i]))
                fail_msg("level %d, link %d: %g bytes, by hand %g", level, i, loads[i], wanted[i]);
    }
    ndp_flows_release(&f);
}

static void loads_are_those_of_every_message(void **state) {
    ndp_layout l;
    (void)state;
    for (int at = 0; layout_at(at, &l); at++)
        for (int k = 0; k < NDP_COUNT(clusters); k++)
            for (uint32_t seed = 0; seed < 4; seed++) {
                const ndp_cluster c = clusters[k]();
                const job j = seed ? random_job(&l, seed + 7 * (uint32_t)at) : usual_job(&l);
                ndp_rank_map m = random_map(&c, seed + 1 + 31 * (uint32_t)at);
                check_loads(&c, &j, &m);
                ndp_rank_map_release(&m);
            }
}

static void groups_are_listed_once(void **state) {
    ndp_layout l;
    (void)state;
    for (int at = 0; layout_at(at, &l); at++)
        for (int kind = 0; kind < NDP_GROUPS; kind++) {
            const job j = usual_job(&l);
            ndp_group *groups;
            int n, seen[RANKS] = {0};
            CHECK_OK(ndp_groups_of_kind(&l, &j.facts, (ndp_group_kind)kind, &groups, &n));
            for (int i = 0; i < n; i++)
                for (int k = 0; k < groups[i].count; k++)
                    seen[groups[i].base + k * groups[i].stride]++;
            for (int r = 0; r < RANKS; r++)
                assert_int_equal(seen[r], 1);
            free(groups);
        }
}

/* Four stages on four nodes of two ranks: each stage's activations leave its node, gradients come back. */
static void stages_send_what_they_have(void **state) {
    (void)state;
    const ndp_layout l = layout_of("pp=4,dp_shard=2");
    const ndp_cluster c = racks_of_twos();
    job j = {.layout = l};
    double loads[MOST_LOADS];
    ndp_rank_map m;
    for (int s = 0; s < 4; s++) {
        j.sends[s].bytes[NDP_GROUP_PP][NDP_SENDS_NEXT] = s < 3 ? 100 + s : 0;
        j.sends[s].bytes[NDP_GROUP_PP][NDP_SENDS_BEFORE] = s > 0 ? 10 + s : 0;
        j.sends[s].bytes[NDP_GROUP_SHARD][NDP_SENDS_RING] = 1000 * (s + 1);
    }
    ndp_flows f = flows_of(&j);
    assert_int_equal(f.n, 3);
    CHECK_OK(ndp_rank_map_fill(&c, RANKS, &m));
    CHECK_OK(ndp_flows_load(&f, &c, &m, NDP_LINK_NICS, loads));
    assert_true(loads[0] == 200 && loads[1] == 202 + 22 && loads[2] == 204 + 24 && loads[3] == 26);
    CHECK_OK(ndp_flows_load(&f, &c, &m, NDP_LINK_UPLINKS, loads));
    assert_true(loads[0] == 202 && loads[1] == 24);
    CHECK_OK(ndp_flows_load(&f, &c, &m, NDP_LINK_DEVICES, loads));
    for (int r = 0; r < RANKS; r++)
        assert_true(loads[r] == 1000 * (r / 2 + 1));
    ndp_rank_map_release(&m);
    ndp_flows_release(&f);
    f = flows_of(&(job){.layout = l});
    assert_int_equal(f.n, 0); /* no rank sends */
    ndp_flows_release(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(loads_are_those_of_every_message),
                                       cmocka_unit_test(groups_are_listed_once),
                                       cmocka_unit_test(stages_send_what_they_have)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
