/* What ranks may take for nodes of equal size, from where they really are. */
#include "check.h"
#include "comm/impl.h"

static void ranks_in_order(void **state) {
    (void)state;
    assert_int_equal(ndp_node_block((const int[]){0}, 1), 1);
    assert_int_equal(ndp_node_block((const int[]){0, 0, 0}, 3), 3);
    assert_int_equal(ndp_node_block((const int[]){0, 0, 2, 2, 4, 4, 6, 6}, 8), 2);
    assert_int_equal(ndp_node_block((const int[]){0, 0, 0, 0, 4, 4, 4, 4}, 8), 4);
    assert_int_equal(ndp_node_block((const int[]){0, 1, 2, 3}, 4), 1);
}

/* A part of a node is a block as well. */
static void nodes_of_several_sizes(void **state) {
    (void)state;
    assert_int_equal(ndp_node_block((const int[]){0, 0, 0, 0, 4, 4, 6, 6}, 8), 2);
    assert_int_equal(ndp_node_block((const int[]){0, 0, 0, 0, 4, 4}, 6), 2);
    assert_int_equal(ndp_node_block((const int[]){0, 0, 0, 3, 4, 4, 6, 6}, 8), 1);
    assert_int_equal(ndp_node_block((const int[]){0, 0, 2, 2, 4}, 5), 1);
    assert_int_equal(ndp_node_block((const int[]){0, 0, 0, 0, 0, 0, 6, 6, 6}, 9), 3);
}

static void ranks_in_another_order(void **state) {
    (void)state;
    assert_int_equal(ndp_node_block((const int[]){0, 1, 0, 1, 0, 1, 0, 1}, 8), 1);
    assert_int_equal(ndp_node_block((const int[]){0, 0, 2, 2, 0, 0, 2, 2}, 8), 2); /* pairs stay together */
    assert_int_equal(ndp_node_block((const int[]){0, 0, 2, 3, 3, 2}, 6), 1);
    /* Neighbours on one node that are not one block: 1 2 | 3 4. */
    assert_int_equal(ndp_node_block((const int[]){0, 1, 1, 3, 3, 0}, 6), 1);
}

/* The definition, for all ways to put 6 ranks on 3 nodes: n is a block's size, and no larger divisor is. */
static void it_is_the_largest(void **state) {
    enum { RANKS = 6, NODES = 3, WAYS = 729 };
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        int node_of[RANKS], largest = 0;
        for (int r = 0, rest = way; r < RANKS; r++, rest /= NODES)
            node_of[r] = rest % NODES;
        for (int n = 1; n <= RANKS; n++) {
            bool together = RANKS % n == 0;
            for (int r = 0; r < RANKS && together; r++)
                together = node_of[r] == node_of[r / n * n];
            largest = together ? n : largest;
        }
        assert_int_equal(ndp_node_block(node_of, RANKS), largest);
    }
}

static void places_on_a_host(void **state) {
    static const int host_of[] = {0, 1, 1, 0, 0, 5};
    static const int ranks[] = {3, 2, 2, 3, 3, 1}, place[] = {0, 0, 1, 1, 2, 0};
    (void)state;
    for (int r = 0; r < 6; r++) {
        ndp_transport t = {.rank = r, .world = 6, .host_of = host_of};
        assert_int_equal(ndp_transport_host_ranks(&t), ranks[r]);
        assert_int_equal(ndp_transport_host_rank(&t), place[r]);
        t.host_of = NULL; /* one host */
        assert_int_equal(ndp_transport_host_ranks(&t), 6);
        assert_int_equal(ndp_transport_host_rank(&t), r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_in_order),         cmocka_unit_test(nodes_of_several_sizes),
        cmocka_unit_test(ranks_in_another_order), cmocka_unit_test(it_is_the_largest),
        cmocka_unit_test(places_on_a_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
