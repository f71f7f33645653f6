/* Dry runs: the real program of any world size on the null device, without data, weights or ranks. */
#include "check.h"
#include <ndparallel/ndparallel.h>

#include <stdlib.h>

static char *plan(ndp_config *c, const ndp_plan_opts *o) {
    char *text;
    CHECK_OK(ndp_plan(c, o, &text));
    return text;
}

static ndp_config *configure(const char *const *assignments) {
    ndp_config *c;
    CHECK_OK(ndp_config_create(&c));
    CHECK_OK(ndp_config_set(c, "data.files=nowhere.txt"));
    for (; *assignments; assignments++)
        CHECK_OK(ndp_config_set(c, *assignments));
    return c;
}

static ndp_config *tiny(const char *sizes, const char *more) {
    static char config[1024];
    snprintf(config, sizeof config, "model.config=%s/tests/golden/odd/config.json", getenv("NDP_SOURCE_DIR"));
    return configure(
        (const char *const[]){config, "data.sequence_length=128", "batch.global_batch_size=24", sizes, more, NULL});
}

static void programs_are_printed(void **state) {
    (void)state;
    ndp_config *c = tiny("parallelism.dp_shard_size=2", "parallelism.dp_replicate_size=3");
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    o.program = true, o.rank = 4, o.ranks_per_node = 1;
    char *text = plan(c, &o);
    static const char *const words[] = {"step program of rank 4 of 6 (dp_replicate 3 x dp_shard 2)",
                                        "all_gather layers.3 over shard",
                                        "reduce_scatter layers.3 over shard (2 ranks, base 4, stride 1)",
                                        "all_reduce layers.3 over replicate (3 ranks, base 0, stride 2)",
                                        "update head",
                                        "unit program block backward-weight",
                                        "attention_bwd",
                                        "xent",
                                        "programs of all 6 ranks meet"};
    for (int i = 0; i < NDP_COUNT(words); i++)
        if (!strstr(text, words[i]))
            fail_msg("the program lacks '%s':\n%s", words[i], text);
    free(text);
    ndp_config_destroy(c);
}

static void no_such_rank(void **state) {
    (void)state;
    ndp_config *c = tiny("parallelism.dp_shard_size=2", "train.steps=1");
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    o.rank = 2;
    char *text;
    CHECK_FAILS(ndp_plan(c, &o, &text), NDP_EINVAL, "ranks 0 to 1");
    ndp_config_destroy(c);
}

static void axes_that_are_not_built_say_so(void **state) {
    (void)state;
    ndp_config *c = tiny("parallelism.pp_size=2", "parallelism.dp_shard_size=1");
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    char *text;
    CHECK_FAILS(ndp_plan(c, &o, &text), NDP_ENOTSUP, "pp");
    ndp_config_destroy(c);
}

static double megabytes_used(void) {
    double kib = 0;
    char line[256];
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %lf", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib / 1024;
}

/* 405 billion parameters on 1,024 ranks: planned within a gigabyte of memory. */
static void llama_405b(void **state) {
    (void)state;
    const char *data = getenv("NDP_TEST_DATA");
    if (!data) {
        print_message("SKIPPED: configs/Llama-3.1-405B (NDP_TEST_DATA is not set)\n");
        skip();
    }
    char config[1024];
    snprintf(config, sizeof config, "model.config=%s/configs/Llama-3.1-405B/config.json", data);
    ndp_config *c = configure((const char *const[]){
        config, "data.sequence_length=8192", "parallelism.dp_replicate_size=8", "parallelism.dp_shard_size=128",
        "batch.global_batch_size=1024", "precision.compute=bf16", "train.recompute=block", NULL});
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    char *text = plan(c, &o);
    assert_non_null(strstr(text, "405853.4 M parameters"));
    assert_non_null(strstr(text, "on 1024 ranks"));
    assert_non_null(strstr(text, "over 128 ranks"));
    free(text);
    ndp_config_destroy(c);
    if (megabytes_used() > 1000)
        fail_msg("the dry run used %.0f MB", megabytes_used());
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(programs_are_printed), cmocka_unit_test(no_such_rank),
                                       cmocka_unit_test(axes_that_are_not_built_say_so), cmocka_unit_test(llama_405b)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
