#include "check.h"
#include "mesh/mesh.h"

static const ndp_layout_facts llama = {32, 8, 32}, smol = {9, 3, 30}, four_kv = {24, 4, 12};

static void auto_is_filled(void **state) {
    (void)state;
    for (int axis = 0; axis < NDP_AXES; axis++) {
        ndp_layout l = {{2, 2, 2, 2, 2, 2}, 1};
        l.size[axis] = 0;
        CHECK_OK(ndp_layout_resolve(&l, 96, NULL));
        assert_int_equal(l.size[axis], 3);
    }
    ndp_layout l = {{1, 8, 0, 1, 1, 1}, 1};
    CHECK_OK(ndp_layout_resolve(&l, 65536, &llama));
    assert_int_equal(l.size[NDP_DP_SHARD], 8192);
    ndp_layout one = {{1, 1, 0, 1, 1, 1}, 1};
    CHECK_OK(ndp_layout_resolve(&one, 1, &smol));
    assert_int_equal(one.size[NDP_DP_SHARD], 1);
}

static void legal_products(void **state) {
    (void)state;
    ndp_layout cases[] = {{{1, 2, 1, 1, 1, 4}, 1}, {{4, 2, 1, 1, 1, 1}, 1}, {{1, 1, 1, 8, 1, 1}, 1},
                          {{1, 1, 1, 2, 4, 1}, 1}, {{1, 1, 2, 1, 2, 2}, 4}, {{1, 1, 1, 1, 1, 8}, 1}};
    for (int i = 0; i < NDP_COUNT(cases); i++)
        CHECK_OK(ndp_layout_resolve(&cases[i], 8, &llama));
    ndp_layout kv_repeated = {{1, 1, 1, 1, 2, 16}, 1}; /* 8 kv heads on 32 ranks: each on four */
    CHECK_OK(ndp_layout_resolve(&kv_repeated, 32, &llama));
}

typedef struct refusal {
    ndp_layout layout;
    int world;
    const ndp_layout_facts *facts;
    const char *rule, *nearest;
} refusal;

static void refusals_name_rule_and_nearest(void **state) {
    (void)state;
    static const refusal cases[] = {
        {{{1, 1, 4, 1, 1, 1}, 1},
         6,
         NULL,
         "dp_shard 4 is 4 ranks, not the 6 of this run",
         "layouts on 6 ranks: dp_shard 6; dp_replicate 2 x dp_shard 3"},
        {{{1, 2, 2, 1, 1, 1}, 1},
         8,
         NULL,
         "dp_replicate 2 x dp_shard 2 is 4 ranks, not the 8",
         "dp_replicate 2 x dp_shard 4; dp_replicate 4 x dp_shard 2; "},
        {{{1, 2, 2, 1, 1, 1}, 1}, 1, NULL, "is 4 ranks, not the 1", "layouts on 1 rank: one rank"},
        {{{1, 0, 1, 1, 1, 4}, 1},
         6,
         NULL,
         "dp_replicate auto x tp 4: 6 ranks are not a multiple of 4",
         ": dp_replicate 2 x tp 3; "},
        {{{1, 1, 1, 1, 1, 2}, 1},
         2,
         &smol,
         "9 attention heads are not divisible by tp 2 x sp 1 = 2",
         ": dp_shard 2; dp_replicate 2"},
        {{{1, 1, 0, 1, 2, 2}, 1}, 8, &smol, "9 attention heads are not divisible by tp 2 x sp 2 = 4", ": dp_shard 8"},
        {{{1, 1, 2, 1, 1, 6}, 1},
         12,
         &four_kv,
         "4 kv heads and tp 6 x sp 1 = 6: neither divides",
         ": dp_shard 3 x tp 4; "},
        {{{64, 1, 1, 1, 1, 1}, 1},
         64,
         &llama,
         "pp 64 is more than the 32 decoder layers",
         ": pp 32 x dp_shard 2; pp 32 x dp_replicate 2"},
        {{{1, 1, 4, 1, 1, 1}, 3},
         4,
         &llama,
         "ep 3 does not divide dp_shard 4 x cp 1 x sp 1 = 4",
         ": dp_shard 4 with ep 2; dp_shard 4"},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_layout l = cases[i].layout;
        CHECK_FAILS(ndp_layout_resolve(&l, cases[i].world, cases[i].facts), NDP_EINVAL, cases[i].rule);
        if (!strstr(ndp_error_message(), cases[i].nearest))
            fail_msg("'%s' is not in: %s", cases[i].nearest, ndp_error_message());
        assert_memory_equal(&l, &cases[i].layout, sizeof l); /* not set on failure */
    }
}

static void nonsense(void **state) {
    (void)state;
    ndp_layout two_open = {{1, 0, 0, 1, 1, 1}, 1}, negative = {{1, -2, 1, 1, 1, 1}, 1}, no_ep = {{1, 1, 1, 1, 1, 1}, 0};
    ndp_layout one = NDP_LAYOUT_ONE, huge = {{65536, 65536, 65536, 65536, 65536, 65536}, 1};
    CHECK_FAILS(ndp_layout_resolve(&two_open, 4, NULL), NDP_EINVAL, "at most one");
    CHECK_FAILS(ndp_layout_resolve(&negative, 4, NULL), NDP_EINVAL, "dp_replicate_size is -2");
    CHECK_FAILS(ndp_layout_resolve(&no_ep, 1, NULL), NDP_EINVAL, "ep_size is 0");
    CHECK_FAILS(ndp_layout_resolve(&one, 0, NULL), NDP_EINVAL, "0 ranks");
    CHECK_FAILS(ndp_layout_resolve(&one, 1, &(ndp_layout_facts){0, 1, 1}), NDP_EINVAL, "0 heads");
    CHECK_FAILS(ndp_layout_resolve(&huge, 65536, NULL), NDP_EINVAL, "not the 65536 of this run");
}

/* Every layout that a refusal names is legal, whatever was asked. */
static void suggestions_are_legal(void **state) {
    (void)state;
    int checked = 0;
    for (int world = 1; world <= 64; world += 7)
        for (int shard = 1; shard <= 5; shard++)
            for (int tp = 1; tp <= 5; tp++) {
                ndp_layout l = {{1, 1, shard, 1, 1, tp}, 1};
                if (ndp_layout_resolve(&l, world, &smol) == NDP_OK)
                    continue;
                char text[2048];
                snprintf(text, sizeof text, "%s", ndp_error_message());
                char *list = strstr(text, world == 1 ? "rank: " : "ranks: ");
                assert_non_null(list);
                list = strchr(list, ':') + 2;
                for (char *rest, *one = strtok_r(list, ";", &rest); one; one = strtok_r(NULL, ";", &rest), checked++) {
                    ndp_layout s = NDP_LAYOUT_ONE;
                    for (int axis = 0; axis < NDP_AXES; axis++) {
                        char word[32];
                        snprintf(word, sizeof word, "%s ", ndp_axis_name((ndp_axis)axis));
                        char *at = strstr(one, word);
                        if (at)
                            sscanf(at + strlen(word), "%d", &s.size[axis]);
                    }
                    CHECK_OK(ndp_layout_resolve(&s, world, &smol));
                }
            }
    assert_true(checked > 200);
}

static void what_is_built(void **state) {
    (void)state;
    ndp_layout data = {{1, 128, 32, 2, 2, 4}, 1}, all = {{2, 2, 2, 3, 4, 5}, 6};
    CHECK_OK(ndp_layout_built(&data));
    CHECK_FAILS(ndp_layout_built(&all), NDP_ENOTSUP,
                "not built yet: pp_size 2, ep_size 6;");
}

static void layouts_are_read(void **state) {
    (void)state;
    ndp_layout l;
    char text[160];
    CHECK_OK(ndp_layout_parse("tp=2,dp_shard=3", &l));
    assert_string_equal(ndp_layout_text(&l, text, sizeof text), "dp_shard 3 x tp 2");
    CHECK_OK(ndp_layout_parse("pp=1,dp_replicate=2,dp_shard=3,cp=4,sp=5,ep=7,tp=6", &l));
    assert_string_equal(ndp_layout_text(&l, text, sizeof text),
                        "dp_replicate 2 x dp_shard 3 x cp 4 x sp 5 x tp 6 with ep 7");
    static const char *const bad[][2] = {{"", "expected AXIS=SIZE"},
                                         {"tp", "expected AXIS=SIZE"},
                                         {"tp=2,", "expected AXIS=SIZE"},
                                         {"=2", "expected AXIS=SIZE"},
                                         {"tq=2", "unknown axis 'tq' in the layout 'tq=2'; did you mean 'tp'"},
                                         {"dp_shrad=2", "did you mean 'dp_shard'"},
                                         {"cp_size=2", "did you mean 'cp'"},
                                         {"dp_shrad_size=2", "did you mean 'dp_shard'"},
                                         {"quantum=2", "known are pp, dp_replicate"},
                                         {"tp=2,cp=2,tp=2", "says tp twice"},
                                         {"tp=0", "tp=0 is no size"},
                                         {"tp=-1", "tp=-1 is no size"},
                                         {"tp=2x,cp=2", "tp=2x is no size"},
                                         {"tp=,cp=2", "tp= is no size"},
                                         {"tp=auto", "from 1 to 1048576"},
                                         {"tp=99999999999999999999", "is no size"}};
    for (int i = 0; i < NDP_COUNT(bad); i++)
        CHECK_FAILS(ndp_layout_parse(bad[i][0], &l), NDP_EINVAL, bad[i][1]);
    char longest[4096];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    CHECK_FAILS(ndp_layout_parse(longest, &l), NDP_EINVAL, "expected AXIS=SIZE");
    memcpy(longest + sizeof longest - 3, "=2", 3);
    CHECK_FAILS(ndp_layout_parse(longest, &l), NDP_EINVAL, "unknown axis");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(auto_is_filled),
                                       cmocka_unit_test(legal_products),
                                       cmocka_unit_test(refusals_name_rule_and_nearest),
                                       cmocka_unit_test(nonsense),
                                       cmocka_unit_test(suggestions_are_legal),
                                       cmocka_unit_test(what_is_built),
                                       cmocka_unit_test(layouts_are_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
