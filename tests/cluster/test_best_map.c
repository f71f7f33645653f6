/* The map of ranks that sends the fewest bytes over the uplinks of racks, against a count of every message between two
 * ranks. */
#include "cluster/best_map.h"
#include "cluster/every_message.h"

static void check_is_map(const ndp_cluster *c, const ndp_rank_map *m) {
    int ranks[MOST_NODES] = {0};
    assert_int_equal(m->world, RANKS);
    for (int r = 0; r < RANKS; r++) {
        assert_true(m->node[r] >= 0 && m->node[r] < c->nodes);
        assert_int_equal(m->device[r], ranks[m->node[r]]++);
    }
    for (int i = 0; i < c->nodes; i++)
        assert_true(ranks[i] <= c->devices_of[i]);
}

/* The least over all orders of the nodes from `at` on, of the bytes of the outermost uplinks, or of the busiest NIC
 * where there are none. Ranks are in their own order. */
static double least(const ndp_cluster *c, const traffic *t, int *order, int at) {
    int node[RANKS], r = 0, outermost = ndp_cluster_levels(c) - 1;
    double best = INFINITY, busiest;
    for (int i = at; i < c->nodes && at < c->nodes - 1; i++) {
        int x = order[i];
        order[i] = order[at];
        order[at] = x;
        best = fmin(best, least(c, t, order, at + 1));
        order[at] = order[i];
        order[i] = x;
    }
    if (at < c->nodes - 1)
        return best;
    for (int i = 0; i < c->nodes; i++)
        for (int d = 0; d < c->devices_of[order[i]] && r < RANKS; d++)
            node[r++] = order[i];
    double bytes = count_bytes(c, node, t, outermost, &busiest);
    return outermost >= NDP_LINK_UPLINKS ? bytes : busiest;
}

static void check_best(const ndp_cluster *c, const job *j, const ndp_rank_map *given) {
    int order[MOST_NODES], outermost = ndp_cluster_levels(c) - 1;
    const traffic t = traffic_of(j);
    double busiest, of_given, bytes;
    ndp_flows f = flows_of(j);
    ndp_rank_map best, again;
    ndp_map_cost cost, before;
    for (int i = 0; i < c->nodes; i++)
        order[i] = i;
    CHECK_OK(ndp_best_map(c, &j->layout, &f, given, &best));
    check_is_map(c, &best);
    bytes = count_bytes(c, best.node, &t, outermost, &busiest);
    double is = outermost >= NDP_LINK_UPLINKS ? bytes : busiest, wanted = least(c, &t, order, 0);
    if (is > wanted && !is_near(is, wanted))
        fail_msg("%g bytes, in some order of the nodes %g", is, wanted);
    bytes = count_bytes(c, given->node, &t, outermost, &of_given);
    of_given = outermost >= NDP_LINK_UPLINKS ? bytes : of_given;
    assert_true(is <= of_given || is_near(is, of_given));
    CHECK_OK(ndp_map_cost_of(&f, c, &best, &cost));
    CHECK_OK(ndp_map_cost_of(&f, c, given, &before));
    int better = ndp_map_cost_compare(&cost, &before);
    assert_true(better <= 0 && ndp_map_cost_compare(&before, &cost) == -better);
    if (better == 0)
        assert_memory_equal(best.node, given->node, sizeof *best.node * RANKS);
    CHECK_OK(ndp_best_map(c, &j->layout, &f, given, &again));
    assert_memory_equal(again.node, best.node, sizeof *best.node * RANKS);
    ndp_rank_map_release(&again);
    CHECK_OK(ndp_best_map(c, &j->layout, &f, &best, &again)); /* it cannot be better */
    assert_memory_equal(again.node, best.node, sizeof *best.node * RANKS);
    assert_memory_equal(again.device, best.device, sizeof *best.device * RANKS);
    ndp_rank_map_release(&again);
    ndp_rank_map_release(&best);
    ndp_flows_release(&f);
}

static void no_order_of_the_nodes_is_better(void **state) {
    enum { SMALL = 3 }; /* clusters of few nodes, of which all orders are tried */
    ndp_layout l;
    (void)state;
    for (int at = 0; layout_at(at, &l); at++)
        for (int k = 0; k < SMALL; k++)
            for (uint32_t seed = 0; seed < 2; seed++) {
                const ndp_cluster c = clusters[k]();
                const job j = seed ? random_job(&l, seed + 5 * (uint32_t)at) : usual_job(&l);
                ndp_rank_map filled, dealt, anyhow = random_map(&c, seed + 1 + 17 * (uint32_t)at);
                CHECK_OK(ndp_rank_map_fill(&c, RANKS, &filled));
                CHECK_OK(ndp_rank_map_deal(&c, RANKS, &dealt));
                check_best(&c, &j, &filled);
                check_best(&c, &j, &dealt);
                check_best(&c, &j, &anyhow);
                ndp_rank_map_release(&filled);
                ndp_rank_map_release(&dealt);
                ndp_rank_map_release(&anyhow);
            }
}

/* Eight nodes: exchanges of two. What training sends lies in nested groups, so the first order is among the best. */
static void many_nodes_are_exchanged(void **state) {
    const ndp_cluster c = pods();
    ndp_layout l;
    (void)state;
    for (int at = 0; layout_at(at, &l); at += 12) {
        const job j = usual_job(&l);
        ndp_rank_map m = random_map(&c, 3 + (uint32_t)at);
        check_best(&c, &j, &m);
        ndp_rank_map_release(&m);
    }
}

/* ---- by hand ---- */

static void check_nodes(const char *layout, const ndp_cluster *c, const ndp_stage_sends *sends, const int *given,
                        const int *wanted, double uplinks) {
    job j = {.layout = layout_of(layout)};
    double busiest;
    ndp_rank_map m, best;
    for (int s = 0; s < MOST_STAGES; s++)
        j.sends[s] = *sends;
    ndp_flows f = flows_of(&j);
    const traffic t = traffic_of(&j);
    CHECK_OK(ndp_rank_map_take(c, RANKS, given, &m));
    CHECK_OK(ndp_best_map(c, &j.layout, &f, &m, &best));
    assert_memory_equal(best.node, wanted, sizeof *wanted * RANKS);
    assert_true(is_near(count_bytes(c, best.node, &t, NDP_LINK_UPLINKS, &busiest), uplinks));
    ndp_rank_map_release(&best);
    ndp_rank_map_release(&m);
    ndp_flows_release(&f);
}

static void maps_by_hand(void **state) {
    (void)state;
    const ndp_cluster c = racks_of_twos(), u = unequal_racks();
    static const int in_order[RANKS] = {0, 0, 1, 1, 2, 2, 3, 3}, in_turn[RANKS] = {0, 1, 2, 3, 0, 1, 2, 3};
    ndp_stage_sends tp = {0}, shard = {0}, both = {0};
    tp.bytes[NDP_GROUP_TP][NDP_SENDS_DIRECT] = 100;
    shard.bytes[NDP_GROUP_SHARD][NDP_SENDS_DIRECT] = 99;
    both.bytes[NDP_GROUP_TP][NDP_SENDS_DIRECT] = 100;
    both.bytes[NDP_GROUP_REPLICATE][NDP_SENDS_DIRECT] = 1;
    /* tp inside nodes, whatever is given; what is given stays, if it does that */
    check_nodes("dp_shard=4,tp=2", &c, &tp, in_turn, in_order, 0);
    check_nodes("dp_shard=4,tp=2", &c, &tp, (int[]){3, 3, 1, 1, 0, 0, 2, 2}, (int[]){3, 3, 1, 1, 0, 0, 2, 2}, 0);
    /* the shards inside a rack, so tp across: ranks 0, 2, 4, 6 in one rack */
    check_nodes("dp_shard=4,tp=2", &c, &shard, in_order, (int[]){0, 2, 0, 2, 1, 3, 1, 3}, 0);
    /* tp inside nodes, and the pairs of replicas inside racks: only then nothing crosses */
    check_nodes("dp_replicate=2,dp_shard=2,tp=2", &c, &both, in_order, (int[]){0, 0, 2, 2, 1, 1, 3, 3}, 0);
    /* a node of three devices: fours in each rack, so that no four is torn */
    tp.bytes[NDP_GROUP_TP][NDP_SENDS_DIRECT] = 0;
    tp.bytes[NDP_GROUP_TP][NDP_SENDS_RING] = 7;
    check_nodes("dp_shard=2,tp=4", &u, &tp, (int[]){0, 0, 2, 2, 0, 1, 3, 3}, (int[]){0, 0, 0, 1, 2, 2, 3, 3}, 0);
}

/* Two nodes of three and five devices: the pipeline is cut where it sends little. */
static void the_last_two_nodes_are_exchanged_too(void **state) {
    (void)state;
    static int devices_of[MOST_NODES] = {3, 5};
    const ndp_cluster c = flat(2, devices_of);
    job j = {.layout = layout_of("pp=8")};
    ndp_rank_map m, best;
    for (int s = 0; s < RANKS; s++)
        j.sends[s].bytes[NDP_GROUP_PP][NDP_SENDS_NEXT] = s == 4 ? 1 : s == 7 ? 0 : 100;
    ndp_flows f = flows_of(&j);
    CHECK_OK(ndp_rank_map_fill(&c, RANKS, &m));
    CHECK_OK(ndp_best_map(&c, &j.layout, &f, &m, &best));
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(best.node[r], r < 5);
    check_best(&c, &j, &m);
    ndp_rank_map_release(&best);
    ndp_rank_map_release(&m);
    ndp_flows_release(&f);
}

/* Eight stages in two racks of four: of the cuts that give each rack four, those of stages 1 and 5 are the cheapest,
 * two exchanges away from the order of the nodes. */
static void exchanges_lead_to_better_maps(void **state) {
    (void)state;
    static const double sends[RANKS] = {40, 1, 90, 100, 40, 1, 90, 0};
    const ndp_cluster c = racks(8, ones, 4);
    job j = {.layout = layout_of("pp=8")};
    double busiest;
    ndp_rank_map m, best;
    for (int s = 0; s < RANKS; s++)
        j.sends[s].bytes[NDP_GROUP_PP][NDP_SENDS_NEXT] = sends[s];
    const traffic t = traffic_of(&j);
    ndp_flows f = flows_of(&j);
    CHECK_OK(ndp_rank_map_fill(&c, RANKS, &m));
    CHECK_OK(ndp_best_map(&c, &j.layout, &f, &m, &best));
    assert_true(count_bytes(&c, best.node, &t, NDP_LINK_UPLINKS, &busiest) == 2);
    check_is_map(&c, &best);
    ndp_rank_map_release(&best);
    ndp_rank_map_release(&m);
    ndp_flows_release(&f);
}

/* No exchange of two nodes makes the result better, whatever the stages send. */
static void no_exchange_is_left(void **state) {
    (void)state;
    const ndp_cluster in_racks[] = {racks(8, ones, 4), racks(8, ones, 2), pods()};
    const ndp_layout l = layout_of("pp=8");
    for (uint32_t seed = 1; seed <= 40; seed++) {
        const ndp_cluster *c = &in_racks[seed % NDP_COUNT(in_racks)];
        const job j = random_job(&l, seed);
        ndp_flows f = flows_of(&j);
        ndp_rank_map m, best;
        ndp_map_cost cost, other_cost;
        CHECK_OK(ndp_rank_map_fill(c, RANKS, &m));
        CHECK_OK(ndp_best_map(c, &l, &f, &m, &best));
        CHECK_OK(ndp_map_cost_of(&f, c, &best, &cost));
        for (int i = 0; i < RANKS; i++)
            for (int k = i + 1; k < RANKS; k++) {
                ndp_rank_map other = best;
                int node[RANKS];
                memcpy(node, best.node, sizeof node);
                node[i] = best.node[k];
                node[k] = best.node[i];
                other.node = node;
                CHECK_OK(ndp_map_cost_of(&f, c, &other, &other_cost));
                assert_true(ndp_map_cost_compare(&other_cost, &cost) >= 0);
            }
        ndp_rank_map_release(&best);
        ndp_rank_map_release(&m);
        ndp_flows_release(&f);
    }
}

/* Sixteen ranks on three axes of other sizes: shards inside nodes of four, tp inside racks, the pipeline across. */
static void three_axes_nest_by_what_they_send(void **state) {
    (void)state;
    enum { MORE_RANKS = 16 };
    static int fours[MOST_NODES] = {4, 4, 4, 4};
    const ndp_cluster c = racks(4, fours, 2);
    const ndp_layout l = layout_of("pp=2,dp_shard=4,tp=2");
    ndp_stage_sends sends[2] = {0};
    ndp_rank_map m, best;
    ndp_flows f;
    for (int s = 0; s < 2; s++) {
        sends[s].bytes[NDP_GROUP_SHARD][NDP_SENDS_RING] = 10000;
        sends[s].bytes[NDP_GROUP_TP][NDP_SENDS_RING] = 100;
        sends[s].bytes[NDP_GROUP_PP][s ? NDP_SENDS_BEFORE : NDP_SENDS_NEXT] = 1;
    }
    CHECK_OK(ndp_flows_init(&l, NDP_NO_MODEL, sends, &f));
    CHECK_OK(ndp_rank_map_fill(&c, MORE_RANKS, &m));
    CHECK_OK(ndp_best_map(&c, &l, &f, &m, &best));
    for (int r = 0; r < MORE_RANKS; r++)
        assert_int_equal(best.node[r], r / 8 * 2 + r % 2);
    ndp_rank_map_release(&best);
    ndp_rank_map_release(&m);
    ndp_flows_release(&f);
}

/* Outer levels first; of an uplink bytes before time, of other links the busiest one first. */
static void costs_are_compared_from_outside(void **state) {
    (void)state;
    ndp_map_cost a = {.levels = 3, .bytes = {1, 1, 1}, .seconds = {1, 1, 1}}, b = a;
    assert_int_equal(ndp_map_cost_compare(&a, &b), 0);
    b.bytes[2] = 1 + 1e-12; /* rounding */
    assert_int_equal(ndp_map_cost_compare(&a, &b), 0);
    b.bytes[2] = 2;
    b.seconds[2] = b.bytes[1] = b.seconds[1] = b.seconds[0] = 0.5;
    assert_true(ndp_map_cost_compare(&a, &b) < 0 && ndp_map_cost_compare(&b, &a) > 0);
    b.bytes[2] = 1;
    assert_true(ndp_map_cost_compare(&a, &b) > 0 && ndp_map_cost_compare(&b, &a) < 0);
    b = a;
    b.seconds[1] = 2;
    b.bytes[1] = b.seconds[0] = b.bytes[0] = 0.5;
    assert_true(ndp_map_cost_compare(&a, &b) < 0);
    b.seconds[1] = 1;
    assert_true(ndp_map_cost_compare(&a, &b) > 0);
    b = a;
    b.seconds[0] = 2;
    b.bytes[0] = 0.5;
    assert_true(ndp_map_cost_compare(&a, &b) < 0);
    b = a;
    b.bytes[0] = 0.5;
    assert_true(ndp_map_cost_compare(&a, &b) > 0);
}

/* Sums and the busiest link of each level, in seconds: unequal nodes, uplinks of unequal racks. */
static void costs_by_hand(void **state) {
    (void)state;
    const ndp_cluster c = racks_of_twos();
    job j = {.layout = layout_of("dp_shard=8")};
    ndp_map_cost cost;
    ndp_rank_map m;
    j.sends[0].bytes[NDP_GROUP_SHARD][NDP_SENDS_NEXT] = 1e9;
    ndp_flows f = flows_of(&j);
    CHECK_OK(ndp_rank_map_take(&c, RANKS, (int[]){0, 1, 0, 1, 2, 2, 3, 3}, &m));
    CHECK_OK(ndp_map_cost_of(&f, &c, &m, &cost));
    assert_int_equal(cost.levels, 3);
    assert_true(is_near(cost.bytes[0], 2e9) && is_near(cost.bytes[1], 6e9) && is_near(cost.bytes[2], 2e9));
    assert_true(is_near(cost.seconds[0], 0.01)); /* 1 GB at 100 GB/s */
    assert_true(is_near(cost.seconds[1], 0.2));  /* 2 GB at 10 GB/s */
    assert_true(is_near(cost.seconds[2], 0.1));  /* 1 GB at half of two NICs */
    ndp_rank_map_release(&m);
    ndp_flows_release(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_order_of_the_nodes_is_better),
                                       cmocka_unit_test(many_nodes_are_exchanged),
                                       cmocka_unit_test(maps_by_hand),
                                       cmocka_unit_test(the_last_two_nodes_are_exchanged_too),
                                       cmocka_unit_test(exchanges_lead_to_better_maps),
                                       cmocka_unit_test(no_exchange_is_left),
                                       cmocka_unit_test(three_axes_nest_by_what_they_send),
                                       cmocka_unit_test(costs_are_compared_from_outside),
                                       cmocka_unit_test(costs_by_hand)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
