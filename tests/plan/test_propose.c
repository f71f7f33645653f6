/* Layouts that are proposed: all that are legal, those that fit first, and what the layout of the job says not at all.
 */
#include "plan/odd_job.h"

enum { MOST = 64 };

static int propose(ndp_config *c, int ranks, int64_t memory, ndp_proposal out[MOST]) {
    int n;
    ndp_propose_opts o = {ranks, 0, memory};
    CHECK_OK(ndp_propose_layouts(c, &o, out, MOST, &n));
    return n;
}

static const ndp_proposal *find(const ndp_proposal *p, int n, const char *layout) {
    for (int i = 0; i < n; i++)
        if (strcmp(p[i].layout, layout) == 0)
            return &p[i];
    return NULL;
}

static void four_ranks(void **state) {
    (void)state;
    ndp_config *c = JOB("batch.global_batch_size=24");
    ndp_proposal p[MOST];
    int n = propose(c, 4, (int64_t)8 << 30, p);
    assert_true(n > 6 && p[0].fits && p[0].cost == 1);
    for (int i = 0; i < n; i++) {
        if (!p[i].fits || p[i].recompute || p[i].rank_memory <= 0 || p[i].waits < 0 || p[i].waits > 1)
            fail_msg("%s: %s, %lld bytes, waits %g", p[i].layout, p[i].bound_by, (long long)p[i].rank_memory,
                     p[i].waits);
        assert_true(i == 0 || p[i].cost >= p[i - 1].cost);
    }
    static const char *const legal[] = {"dp_shard 4", "dp_replicate 4", "tp 4", "cp 4", "pp 4", "dp_shard 2 x tp 2"};
    for (int i = 0; i < NDP_COUNT(legal); i++)
        if (!find(p, n, legal[i]))
            fail_msg("no %s among %d", legal[i], n);
    assert_string_equal(find(p, n, "dp_shard 2 x tp 2")->keys, "dp_shard_size: 2, tp_size: 2");
    assert_string_equal(find(p, n, "dp_replicate 4")->keys, "dp_replicate_size: 4, dp_shard_size: 1");
    /* Shards hold less. */
    assert_true(find(p, n, "dp_shard 4")->rank_memory < find(p, n, "dp_replicate 4")->rank_memory);
    /* The job's own layout is not read. */
    CHECK_OK(ndp_config_set(c, "parallelism.tp_size=3"));
    assert_int_equal(propose(c, 4, (int64_t)8 << 30, p), n);
    ndp_config_destroy(c);
}

/* Without memory for any all are listed with recomputation, the smallest first. */
static void little_memory(void **state) {
    (void)state;
    ndp_config *c = JOB("batch.global_batch_size=24");
    ndp_proposal p[MOST];
    int n = propose(c, 2, 1 << 20, p);
    for (int i = 0; i < n; i++) {
        assert_true(!p[i].fits && p[i].recompute);
        assert_string_equal(p[i].bound_by, "memory");
        assert_true(i == 0 || p[i].rank_memory >= p[i - 1].rank_memory);
    }
    ndp_config_destroy(c);
}

/* 5 layers, 8 heads, a batch of 24: nothing can be cut in 7 but the sequence. */
static void illegal_numbers(void **state) {
    (void)state;
    ndp_config *c = JOB("batch.global_batch_size=24");
    ndp_proposal p[MOST];
    int n = propose(c, 7, (int64_t)8 << 30, p);
    for (int i = 0; i < n; i++)
        if (strcmp(p[i].layout, "cp 7") != 0)
            fail_msg("%s", p[i].layout);
    ndp_propose_opts o = {0, 0, 0};
    CHECK_FAILS(ndp_propose_layouts(c, &o, p, MOST, &n), NDP_EINVAL, "0 ranks");
    CHECK_OK(ndp_config_set(c, "data.sequence_length=999999"));
    o.ranks = 2;
    CHECK_FAILS(ndp_propose_layouts(c, &o, p, MOST, &n), NDP_EINVAL, "is longer than");
    ndp_config_destroy(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(four_ranks), cmocka_unit_test(little_memory),
                                       cmocka_unit_test(illegal_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
