#include "check.h"
#include "mesh/mesh.h"

static const ndp_layout_facts llama = {32, 8, 32, 0, 0, 0}, smol = {9, 3, 30, 0, 0, 0}, four_kv = {24, 4, 12, 0, 0, 0},
                              qwen = {14, 2, 24, 0, 0, 0}, large = {128, 8, 126, 0, 0, 0}, mixture = {32, 4, 48, 128, 0, 0};

/* Layers with 4 kv heads beside others with 16: a rank of tp has one of these for itself. */
static void kv_heads_differ(void **state) {
    (void)state;
    static const ndp_layout_facts gemma = {32, 4, 60, 0, 16, 0};
    ndp_layout fits = {{1, 1, 1, 1, 2, 16, 1}}, wide = {{1, 1, 1, 1, 1, 32, 1}}, odd = {{1, 1, 1, 1, 1, 3, 1}};
    CHECK_OK(ndp_layout_resolve(&fits, 32, &gemma));
    CHECK_FAILS(ndp_layout_resolve(&wide, 32, &gemma), NDP_EINVAL, "some layers have 4 kv heads, others 16");
    CHECK_FAILS(ndp_layout_resolve(&odd, 3, &gemma), NDP_EINVAL, "32 attention heads are not divisible by tp 3");
}

static void auto_is_filled(void **state) {
    (void)state;
    for (int axis = 0; axis < NDP_AXES; axis++) {
        ndp_layout l = {{2, 2, 2, 2, 2, 2, 1}};
        l.size[axis] = 0;
        CHECK_OK(ndp_layout_resolve(&l, 96, NULL));
        assert_int_equal(l.size[axis], 3);
    }
    ndp_layout l = {{1, 8, 0, 1, 1, 1, 1}};
    CHECK_OK(ndp_layout_resolve(&l, 65536, &llama));
    assert_int_equal(l.size[NDP_DP_SHARD], 8192);
    ndp_layout one = {{1, 1, 0, 1, 1, 1, 1}};
    CHECK_OK(ndp_layout_resolve(&one, 1, &smol));
    assert_int_equal(one.size[NDP_DP_SHARD], 1);
}

static void legal_products(void **state) {
    (void)state;
    ndp_layout cases[] = {{{1, 2, 1, 1, 1, 4, 1}},
                          {{4, 2, 1, 1, 1, 1, 1}},
                          {{1, 1, 1, 8, 1, 1, 1}},
                          {{1, 1, 1, 2, 4, 1, 1}},
                          {{1, 1, 1, 1, 1, 8, 1}}},
               experts[] = {{{1, 1, 2, 1, 1, 4, 8}}, {{1, 1, 2, 1, 1, 4, 2}}, {{2, 1, 4, 1, 1, 1, 4}}};
    for (int i = 0; i < NDP_COUNT(cases); i++)
        CHECK_OK(ndp_layout_resolve(&cases[i], 8, &llama));
    for (int i = 0; i < NDP_COUNT(experts); i++)
        CHECK_OK(ndp_layout_resolve(&experts[i], 8, &mixture));
    ndp_layout kv_repeated = {{1, 1, 1, 1, 2, 16, 1}}; /* 8 kv heads on 32 ranks: each on four */
    CHECK_OK(ndp_layout_resolve(&kv_repeated, 32, &llama));
}

typedef struct refusal {
    ndp_layout layout;
    int world;
    const ndp_layout_facts *facts;
    const char *rule, *nearest;
} refusal;

static void check_refusals(const refusal *cases, int n) {
    for (int i = 0; i < n; i++) {
        ndp_layout l = cases[i].layout;
        CHECK_FAILS(ndp_layout_resolve(&l, cases[i].world, cases[i].facts), NDP_EINVAL, cases[i].rule);
        if (!strstr(ndp_error_message(), cases[i].nearest))
            fail_msg("'%s' is not in: %s", cases[i].nearest, ndp_error_message());
        assert_memory_equal(&l, &cases[i].layout, sizeof l); /* not set on failure */
    }
}

/* Sizes: pp, dp_replicate, dp_shard, cp, sp, tp, ep. */
static void products_that_are_refused(void **state) {
    (void)state;
    static const refusal cases[] = {
        {{{1, 1, 4, 1, 1, 1, 1}},
         6,
         NULL,
         "the layout dp_shard 4 has 4 ranks, but the run has 6; set parallelism.dp_shard_size=6, or auto. The",
         "layouts on 6 ranks: dp_shard 6; dp_replicate 2 x dp_shard 3"},
        {{{1, 1, 1, 1, 1, 1, 1}},
         3,
         NULL,
         "the layout has 1 rank, since all its sizes are 1, but the run has 3; set parallelism.dp_shard_size=3, or "
         "auto. "
         "The nearest",
         "layouts on 3 ranks: dp_shard 3; dp_replicate 3; cp 3"},
        {{{1, 2, 2, 1, 1, 1, 1}},
         8,
         NULL,
         "the layout dp_replicate 2 x dp_shard 2 has 4 ranks, but the run has 8; set parallelism.dp_shard_size=4, or "
         "auto. The",
         "dp_replicate 2 x dp_shard 4; dp_replicate 4 x dp_shard 2; "},
        {{{1, 2, 2, 1, 1, 1, 1}},
         1,
         NULL,
         "has 4 ranks, but the run has 1; set parallelism.dp_replicate_size=1 and parallelism.dp_shard_size=1. The",
         "layouts on 1 rank: one rank"},
        {{{1, 1, 1, 1, 1, 2, 1}},
         1,
         &llama,
         "the layout tp 2 has 2 ranks, but the run has 1; set",
         "on 1 rank: one rank"},
        {{{1, 2, 2, 1, 1, 2, 1}},
         7,
         &llama,
         "dp_replicate 2 x dp_shard 2 x tp 2 has 8 ranks, but the run has 7",
         ": dp_shard 7; dp_replicate 7"},
        {{{1, 4, 64, 8, 1, 8, 1}},
         16000,
         &large,
         "has 16384 ranks, but the run has 16000",
         ": dp_replicate 5 x dp_shard 50 x cp 8 x tp 8; "},
        {{{1, 0, 1, 1, 1, 4, 1}},
         6,
         NULL,
         "dp_replicate auto x tp 4: 6 ranks are not a multiple of 4",
         ": dp_replicate 2 x tp 3; "},
        {{{1, 1, 0, 1, 1, 4, 1}},
         6,
         &llama,
         "dp_shard auto x tp 4: 6 ranks are not a multiple of 4",
         "6 ranks: dp_shard 3 x tp 2; dp_shard 6; dp_replicate 3 x tp 2; cp 3 x tp 2. On other numbers of ranks: "
         "tp 4 (4 ranks); dp_shard 2 x tp 4 (8 ranks)"},
        {{{1, 1, 3, 1, 1, 0, 1}},
         8,
         &llama,
         "dp_shard 3 x tp auto: 8 ranks are not a multiple of 3",
         ": dp_shard 4 x tp 2; dp_shard 2 x tp 4; dp_shard 8; tp 8. On other numbers of ranks: dp_shard 3 x tp 2 (6 "},
        {{{1, 1, 0, 2, 1, 1, 1}},
         1,
         &llama,
         "dp_shard auto x cp 2: 1 rank is not a multiple of 2",
         "on 1 rank: one rank. On other numbers of ranks: cp 2 (2 ranks)"},
    };
    check_refusals(cases, NDP_COUNT(cases));
}

static void heads_that_are_refused(void **state) {
    (void)state;
    static const refusal cases[] = {
        {{{1, 1, 1, 1, 1, 2, 1}},
         2,
         &smol,
         "9 attention heads are not divisible by tp 2 x sp 1 = 2",
         ": dp_shard 2; dp_replicate 2; cp 2; pp 2. On other numbers of ranks: tp 3 (3 ranks)"},
        {{{1, 1, 1, 1, 1, 3, 1}},
         3,
         &llama,
         "32 attention heads are not divisible by tp 3 x sp 1 = 3",
         ": dp_shard 3; dp_replicate 3; cp 3; pp 3. On other numbers of ranks: tp 2 (2 ranks); tp 4 (4 ranks)"},
        {{{1, 1, 0, 1, 2, 2, 1}}, 8, &smol, "9 attention heads are not divisible by tp 2 x sp 2 = 4", ": dp_shard 8"},
        {{{1, 1, 1, 2, 2, 1, 1}},
         4,
         &smol,
         "9 attention heads are not divisible by tp 1 x sp 2 = 2",
         ": cp 4; dp_shard 2 x cp 2; dp_replicate 2 x cp 2; pp 2 x cp 2. On other numbers of ranks: cp 2 x sp 3 (6 "
         "ranks)"},
        {{{1, 1, 0, 1, 5, 1, 1}},
         20,
         &llama,
         "32 attention heads are not divisible by tp 1 x sp 5 = 5",
         ": dp_shard 5 x sp 4; dp_shard 10 x sp 2; dp_shard 20; "},
        {{{1, 1, 1, 1, 4, 16, 1}},
         64,
         &llama,
         "32 attention heads are not divisible by tp 16 x sp 4 = 64",
         ": cp 2 x sp 2 x tp 16; dp_shard 2 x sp 2 x tp 16; dp_shard 2 x sp 4 x tp 8; "},
        {{{1, 1, 1, 1, 1, 0, 1}}, 3, &llama, "not divisible by tp 3 x sp 1 = 3", ": dp_shard 3; dp_replicate 3; cp 3"},
        {{{1, 1, 1, 1, 0, 1, 1}},
         64,
         &four_kv,
         "24 attention heads are not divisible by tp 1 x sp 64 = 64",
         ": dp_shard 8 x sp 8; dp_replicate 8 x sp 8; "},
        {{{1, 4, 64, 8, 1, 24, 1}},
         49152,
         &large,
         "128 attention heads are not divisible by tp 24 x sp 1 = 24",
         "tp 16 (32768 ranks); dp_replicate 4 x dp_shard 64 x cp 8 x tp 32 (65536 ranks)"},
        {{{1, 1, 2, 1, 1, 6, 1}},
         12,
         &four_kv,
         "4 kv heads and tp 6 x sp 1 = 6: neither divides",
         ": dp_shard 3 x tp 4; "},
        {{{1, 1, 1, 1, 6, 1, 1}},
         6,
         &four_kv,
         "4 kv heads and tp 1 x sp 6 = 6: neither divides",
         ": cp 3 x sp 2; dp_shard 3 x sp 2; dp_replicate 3 x sp 2; pp 3 x sp 2. On other numbers of ranks: sp 4 (4 "
         "ranks); sp "
         "8 (8 ranks)"},
        {{{1, 1, 0, 1, 3, 2, 1}},
         24,
         &four_kv,
         "4 kv heads and tp 2 x sp 3 = 6: neither divides",
         ": dp_shard 3 x sp 4 x tp 2; dp_shard 6 x sp 2 x tp 2; "},
        {{{1, 1, 1, 1, 1, 7, 1}},
         7,
         &qwen,
         "2 kv heads and tp 7 x sp 1 = 7: neither divides",
         "On other numbers of ranks: tp 2 (2 ranks); tp 14 (14 ranks)"},
    };
    check_refusals(cases, NDP_COUNT(cases));
}

static void stages_and_experts_that_are_refused(void **state) {
    (void)state;
    static const ndp_layout_facts tiny = {1, 1, 1, 0, 0, 0}, few_experts = {32, 4, 48, 6, 0, 0};
    static const refusal cases[] = {
        {{{2, 1, 1, 1, 1, 1, 1}}, 2, &tiny, "pp 2 is more than the 1 layer.", ": dp_shard 2"},
        {{{1, 1, 1, 1, 1, 2, 1}}, 2, &tiny, "1 attention head is not divisible by tp 2", ": dp_shard 2"},
        {{{64, 1, 1, 1, 1, 1, 1}},
         64,
         &llama,
         "pp 64 is more than the 32 layers",
         ": pp 32 x dp_shard 2; pp 32 x dp_replicate 2; pp 32 x cp 2; pp 32 x sp 2. On other numbers of ranks: pp 32 "
         "("},
        {{{31, 1, 1, 1, 1, 1, 1}},
         31,
         &smol,
         "pp 31 is more than the 30 layers",
         ": dp_shard 31; dp_replicate 31; cp 31. On other numbers of ranks: pp 30 (30 ranks)"},
        {{{0, 1, 1, 1, 1, 1, 1}}, 64, &llama, "pp 64 is more than the 32 layers", ": pp 32 x dp_shard 2; "},
        {{{64, 1, 0, 1, 1, 8, 1}}, 1024, &llama, "pp 64 is more than", ": pp 32 x dp_shard 4 x tp 8; "},
        {{{40, 1, 1, 1, 1, 3, 1}}, 120, &llama, "not divisible by tp 3 x sp 1", ": pp 30 x tp 4; pp 15 x tp 8"},
        {{{1, 1, 4, 1, 1, 1, 3}},
         4,
         &mixture,
         "ep 3 does not divide dp_shard 4 x cp 1 x sp 1 x tp 1 = 4",
         ": dp_shard 4 with ep 4; dp_shard 4 with ep 2; dp_shard 4"},
        {{{1, 1, 2, 2, 1, 1, 3}},
         4,
         &mixture,
         "ep 3 does not divide dp_shard 2 x cp 2 x sp 1 x tp 1 = 4",
         ": dp_shard 2 x cp 2 with ep 4; dp_shard 2 x cp 2 with ep 2; dp_shard 2 x cp 2"},
        {{{1, 1, 4, 1, 1, 2, 16}},
         8,
         &mixture,
         "ep 16 does not divide dp_shard 4 x cp 1 x sp 1 x tp 2 = 8",
         ": dp_shard 4 x tp 2 with ep 8; dp_shard 4 x tp 2 with ep 4; "},
        {{{1, 2, 2, 1, 1, 2, 8}},
         8,
         &mixture,
         "ep 8 does not divide dp_shard 2",
         ": dp_replicate 2 x dp_shard 2 x tp 2 w"},
        {{{1, 1, 8, 1, 1, 1, 8}}, 8, &few_experts, "ep 8 is more than the 6 experts", ": dp_shard 8 with ep 4; "},
        {{{1, 1, 4, 1, 1, 1, 2}}, 4, &llama, "ep 2: the model has no mixtures", ": dp_shard 4"},
    };
    check_refusals(cases, NDP_COUNT(cases));
}

static void nonsense(void **state) {
    (void)state;
    ndp_layout two_open = {{1, 0, 0, 1, 1, 1, 1}}, negative = {{1, -2, 1, 1, 1, 1, 1}}, no_ep = {{1, 1, 1, 1, 1, 1, 0}};
    ndp_layout one = NDP_LAYOUT_ONE, huge = {{65536, 65536, 65536, 65536, 65536, 65536, 1}};
    CHECK_FAILS(ndp_layout_resolve(&two_open, 4, NULL), NDP_EINVAL, "at most one");
    CHECK_FAILS(ndp_layout_resolve(&negative, 4, NULL), NDP_EINVAL, "dp_replicate_size is -2");
    CHECK_FAILS(ndp_layout_resolve(&no_ep, 1, NULL), NDP_EINVAL, "ep_size is 0");
    CHECK_FAILS(ndp_layout_resolve(&one, 0, NULL), NDP_EINVAL, "0 ranks");
    CHECK_FAILS(ndp_layout_resolve(&one, 1, &(ndp_layout_facts){0, 1, 1, 0, 0, 0}), NDP_EINVAL, "0 heads");
    CHECK_FAILS(ndp_layout_resolve(&huge, 65536, NULL), NDP_EINVAL, "but the run has 65536");
}

/* The layouts of a list "A; B; ...", each on `world` ranks, or on those that it says: "A (3 ranks)". */
static int check_list(char *list, int world) {
    int checked = 0;
    for (char *rest, *one = strtok_r(list, ";", &rest); one; one = strtok_r(NULL, ";", &rest), checked++) {
        ndp_layout s = NDP_LAYOUT_ONE;
        for (int axis = 0; axis < NDP_AXES; axis++) {
            char word[32];
            snprintf(word, sizeof word, "%s ", ndp_axis_name((ndp_axis)axis));
            char *at = strstr(one, word);
            if (at)
                sscanf(at + strlen(word), "%d", &s.size[axis]);
        }
        char *ranks = strchr(one, '(');
        if (ranks)
            sscanf(ranks, "(%d", &world);
        CHECK_OK(ndp_layout_resolve(&s, world, &smol));
    }
    return checked;
}

/* Every layout that a refusal names is legal, whatever was asked. */
static void suggestions_are_legal(void **state) {
    (void)state;
    int checked = 0;
    for (int world = 1; world <= 64; world += 7)
        for (int shard = 0; shard <= 3; shard++)
            for (int sp = 1; sp <= 3; sp++)
                for (int tp = 1; tp <= 5; tp++) {
                    ndp_layout l = {{1, 1, shard, 1, sp, tp, 1}};
                    if (ndp_layout_resolve(&l, world, &smol) == NDP_OK)
                        continue;
                    char text[2048];
                    snprintf(text, sizeof text, "%s", ndp_error_message());
                    char *list = strstr(text, world == 1 ? " rank: " : " ranks: "), *other = strstr(text, ". On other");
                    assert_non_null(list);
                    if (other) {
                        *other = '\0';
                        checked += check_list(strchr(other + 1, ':') + 2, world);
                    }
                    checked += check_list(strchr(list, ':') + 2, world);
                }
    assert_true(checked > 1000);
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
                                         {"tp=2,cp=2,tp=2", "has tp twice"},
                                         {"tp=0", "tp=0 is not a size"},
                                         {"tp=-1", "tp=-1 is not a size"},
                                         {"tp=2x,cp=2", "tp=2x is not a size"},
                                         {"tp=,cp=2", "tp= is not a size"},
                                         {"tp=auto", "from 1 to 1048576"},
                                         {"tp=99999999999999999999", "is not a size"}};
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(kv_heads_differ),
                                       cmocka_unit_test(auto_is_filled),
                                       cmocka_unit_test(legal_products),
                                       cmocka_unit_test(products_that_are_refused),
                                       cmocka_unit_test(heads_that_are_refused),
                                       cmocka_unit_test(stages_and_experts_that_are_refused),
                                       cmocka_unit_test(nonsense),
                                       cmocka_unit_test(suggestions_are_legal),
                                       cmocka_unit_test(layouts_are_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
