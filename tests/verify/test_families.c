/* Proof 3 for every family of models through the whole trainer, a sample of it (all of it: long_families): what data
 * parallel, context, sequence, tensor and pipeline axes cut is cut in each of them. With NDP_TEST_DEVICE: a smaller
 * sample, on that device. */
#include "verify/families.h"
#include "verify/invariance.h"

enum { STEPS = 3, GLOBAL = 12 };

/* Every axis with another one; ring and all_gather, and what else there is to choose. dp_replicate, dp_shard, cp, sp,
 * tp; all have heads for 2 ranks. */
static const way ways[] = {
    {.replicate = 2,
     .shard = 2,
     .global = GLOBAL,
     .accumulation = 3,
     .threads = 1,
     .gathered = true,
     .recompute = true},
    {.shard = 2, .cp = 2, .tp = 2, .global = GLOBAL, .accumulation = 2, .threads = 1, .recompute = true},
    {.cp = 3, .sp = 2, .global = GLOBAL, .accumulation = 1, .threads = 1, .all_gather = true},
    {.replicate = 2, .tp = 2, .global = GLOBAL, .accumulation = 1, .threads = 1, .whole_rows = true},
    {.pp = 2, .cp = 2, .tp = 2, .global = GLOBAL, .accumulation = 4, .threads = 1}};

/* Rows of `length`; 0: of the family's. */
static void check(const family_model *m, const char *precision, int length, const way *list, int n) {
    char *path;
    family f = {.s = family_subject(the_corpus, m, precision, &path)};
    f.s.steps = STEPS;
    f.s.length = length ? length : f.s.length;
    for (int i = 0; i < n; i++)
        check_way(&f, &list[i]);
    print_family(&f);
    family_release(&f);
    free(path);
}

static void fp32(void **state) { check(*state, "fp32", 0, ways, NDP_COUNT(ways)); }
static void bf16(void **state) { check(*state, "bf16", 0, ways + 1, 2); }

/* Of mixtures, without tp, where each expert's result is rounded once less than on one rank. */
static void mixture_bf16(void **state) {
    static const way list[] = {
        {.cp = 3, .sp = 2, .global = GLOBAL, .accumulation = 1, .threads = 1, .all_gather = true},
        {.replicate = 2, .shard = 2, .global = GLOBAL, .accumulation = 3, .threads = 1, .gathered = true},
        {.pp = 2, .shard = 2, .cp = 2, .global = GLOBAL, .accumulation = 3, .threads = 1, .recompute = true}};
    check(*state, "bf16", 0, list, NDP_COUNT(list));
}

/* Short rows: a device may be a slow one. */
static void fp32_on_device(void **state) { check(*state, "fp32", 13, ways, 3); }
static void bf16_on_device(void **state) { check(*state, "bf16", 13, ways, 3); }

/* In bf16: norms of heads and of all heads, whose backward meets gradients that were summed over ranks; capped scores;
 * learned positions. */
static const struct {
    const char *test, *family;
} halves[] = {{"llama_bf16", "llama"},
              {"qwen3_bf16", "qwen3"},
              {"olmo2_bf16", "olmo2"},
              {"gemma2_bf16", "gemma2"},
              {"gpt2_bf16", "gpt2"}},
  mixtures[] = {
      {"mixtral_bf16", "mixtral"},        {"qwen3_moe_bf16", "qwen3_moe"}, {"olmoe_bf16", "olmoe"},
      {"glm4_moe_bf16", "glm4_moe"},      {"gpt_oss_bf16", "gpt_oss"},     {"deepseek_v2_bf16", "deepseek_v2"},
      {"deepseek_v3_bf16", "deepseek_v3"}};

/* With an argument: only the tests of that name (a pattern). */
int main(int argc, char **argv) {
    bool device = getenv("NDP_TEST_DEVICE");
    struct CMUnitTest tests[FAMILIES + NDP_COUNT(halves) + NDP_COUNT(mixtures)];
    for (int i = 0; i < FAMILIES; i++)
        tests[i] = (struct CMUnitTest){family_models[i].name, device ? fp32_on_device : fp32, NULL, NULL,
                                       (void *)&family_models[i]};
    for (int i = 0; i < NDP_COUNT(halves); i++)
        tests[FAMILIES + i] = (struct CMUnitTest){halves[i].test, device ? bf16_on_device : bf16, NULL, NULL,
                                                  (void *)family_called(halves[i].family)};
    for (int i = 0; i < NDP_COUNT(mixtures); i++)
        tests[FAMILIES + NDP_COUNT(halves) + i] =
            (struct CMUnitTest){mixtures[i].test, mixture_bf16, NULL, NULL, (void *)family_called(mixtures[i].family)};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_the_corpus, drop_the_corpus);
}
