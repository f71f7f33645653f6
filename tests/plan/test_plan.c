/* Dry runs: the real program of any world size on the null device, without data, weights or ranks. */
#include "base/text.h"
#include "plan/odd_job.h"

#include <time.h>
#include <unistd.h>

#define TINY(...) JOB("batch.global_batch_size=24", __VA_ARGS__)

static void check_words(const char *text, const char *const *words, int n) {
    for (int i = 0; i < n; i++)
        check_says(text, words[i], true);
}

static void programs_are_printed(void **state) {
    (void)state;
    ndp_config *c = TINY("parallelism.dp_shard_size=2", "parallelism.dp_replicate_size=3");
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    o.program = true, o.rank = 4, o.ranks_per_node = 1;
    char *text = plan_of(c, &o);
    static const char *const words[] = {"step program of rank 4 of 6 (dp_replicate 3 x dp_shard 2)",
                                        "all_gather layers.3 over shard",
                                        "reduce_scatter layers.3 over shard (2 ranks, base 4, stride 1)",
                                        "all_reduce layers.3 over replicate (3 ranks, base 0, stride 2)",
                                        "adamw head",
                                        "unit program block backward-weight",
                                        "attention_bwd",
                                        "xent",
                                        "programs of all 6 ranks meet"};
    check_words(text, words, NDP_COUNT(words));
    free(text);
    ndp_config_destroy(c);
}

/* The collectives inside units: group, bytes, tensor. The last rank, whose slices have the norms. */
static void axes_inside_units_are_printed(void **state) {
    (void)state;
    ndp_config *c =
        TINY("parallelism.dp_shard_size=3", "parallelism.cp_size=2", "parallelism.tp_size=2", "train.recompute=block");
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    o.rank = 11;
    char *text = plan_of(c, &o);
    static const char *const budget[] = {
        "rows: 128 of a micro-batch; a rank has 64, attention 64 queries over 128 keys, the residual stream 32\n",
        "over 6 ranks\n", /* shard x cp */
        "shift          block: kv\n",
        "shift          block: dkv\n",
        "over 2 ranks\n",
        "all_gather     block: norm\n",
        "reduce_scatter block: down\n",
        "all_gather     head: logits.1\n",
        "reduce_scatter embedding: x0\n",
        "all_reduce     layers.0, ...\n",
        "programs of all 12 ranks meet"};
    check_words(text, budget, NDP_COUNT(budget));
    free(text);
    o.program = true;
    text = plan_of(c, &o);
    static const char *const program[] = {
        "begin shift over cp (2 ranks, base 9, stride 2)",
        "begin all_gather over tp (2 ranks, base 10, stride 1)",
        "begin reduce_scatter over tp (2 ranks, base 10, stride 1)",
        "all_reduce layers.0 over tp (2 ranks, base 10, stride 1)",
    };
    check_words(text, program, NDP_COUNT(program));
    free(text);
    ndp_config_destroy(c);
}

/* 126 rows over 2 x 2 x 2 x 2 are padded to 128. */
static void padding_is_said(void **state) {
    (void)state;
    ndp_config *c = TINY("parallelism.dp_shard_size=1", "parallelism.cp_size=2", "parallelism.sp_size=2",
                         "data.sequence_length=126");
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    char *text = plan_of(c, &o);
    static const char *const words[] = {
        "rows: 126 of a micro-batch, padded to 128; a rank has 32, attention 64 queries over "
        "128 keys, the residual stream 32",
        "all_to_all     block: "};
    check_words(text, words, NDP_COUNT(words));
    free(text);
    ndp_config_destroy(c);
}

/* A loop of the user's own: what a function of log-probabilities and continued texts cost, and calls that are too short
 * for the pipeline. 4 x 128 log-probabilities of 8 bytes are summed in a pass of 4 micro-batches. */
static void own_loops_are_priced(void **state) {
    (void)state;
    ndp_config *c =
        TINY("parallelism.dp_shard_size=1", "parallelism.pp_size=2", "train.own_batches=true", "train.own_generate=3");
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    char *text = plan_of(c, &o);
    static const char *const words[] = {"log-probabilities also has 6 forward passes of 4 micro-batches",
                                        "6 x    4.0 KiB  all_reduce     log-probabilities",
                                        "1 x   24.0 KiB  all_reduce     slopes",
                                        "each ndp_trainer_generate sends",
                                        "bytes, for forward passes",
                                        "bytes, to continue texts (train.own_generate)"};
    check_words(text, words, NDP_COUNT(words));
    assert_null(strstr(text, "note: a call"));
    free(text);
    CHECK_OK(ndp_config_set(c, "batch.global_batch_size=1"));
    text = plan_of(c, &o);
    static const char *const note[] = {"note: a call has 1 micro-batch for 2 pipeline ranks, which wait 50% of it"};
    check_words(text, note, 1);
    free(text);
    CHECK_OK(ndp_config_set(c, "train.own_generate=0"));
    text = plan_of(c, &o);
    assert_null(strstr(text, "continue texts"));
    free(text);
    o.rank = 1; /* the second stage continues no texts */
    CHECK_OK(ndp_config_set(c, "train.own_generate=3"));
    text = plan_of(c, &o);
    assert_null(strstr(text, "to continue texts"));
    free(text);
    ndp_config_destroy(c);
}

/* What an adapter is, what has factors, where the frozen weights are. */
static void models_are_described(void **state) {
    (void)state;
    static const struct {
        const char *model, *set[3], *words[3];
    } cases[] = {
        {"qwen2-moe",
         {"adapter.type=lora", "adapter.r=4"},
         {"adapter: lora of rank 4, scale 8, beside q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj; "
          "experts have none\n",
          "\n  frozen weights "}},
        {"mixtral",
         {"adapter.type=lora", "adapter.targets=[q_proj, '*.v_*']"},
         {"scale 2, beside q_proj, *.v_*; experts have none\n"}},
        {"phi3",
         {"adapter.type=qlora", "adapter.dora=true", "adapter.modules_to_save=[norm]"},
         {"adapter: qlora (nf4) with dora of rank 16, scale 2, beside qkv_proj, o_proj, gate_up_proj, down_proj; "
          "trained "
          "whole: norm\n",
          "\n  frozen weights "}},
        {"odd", {"adapter.type=none"}, {"\nprogram: "}},
        {"gpt2",
         {"adapter.type=qlora", "adapter.base=int8"},
         {"adapter: qlora (int8) of rank 16, ", "\n  frozen weights "}},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        char *model =
            ndp_format("model.config=%s/tests/golden/%s/config.json", getenv("NDP_SOURCE_DIR"), cases[i].model);
        ndp_config *c = configure((const char *const[]){model, "data.sequence_length=32", cases[i].set[0],
                                                        cases[i].set[1], cases[i].set[2], NULL});
        ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
        char *text = plan_of(c, &o);
        int n = 0;
        while (n < NDP_COUNT(cases[i].words) && cases[i].words[n])
            n++;
        check_words(text, cases[i].words, n);
        assert_true(!strstr(text, "frozen weights") == (strcmp(cases[i].model, "odd") == 0));
        free(model);
        free(text);
        ndp_config_destroy(c);
    }
}

#define PHI3                                                                                                           \
    "{\"model_type\": \"phi3\", \"vocab_size\": 100, \"hidden_size\": 32, \"intermediate_size\": 40, "                 \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"max_position_embeddings\": 64, "
#define GPT2                                                                                                           \
    "{\"model_type\": \"gpt2\", \"vocab_size\": 100, \"n_embd\": 32, \"n_head\": 4, \"n_layer\": 2, \"n_positions\": " \
    "64, "

/* Dropout of any family is left out, and a line says so and whose it is; a family without dropout has no such line. */
static void dropout_is_said(void **state) {
    (void)state;
    static const struct {
        const char *model, *words;
    } cases[] = {
        {PHI3 "\"attention_dropout\": 0.05, \"resid_pdrop\": 0.0}",
         "\nnote: config.json asks for dropout in training (up to 0.05), which is not applied\n"},
        {PHI3 "\"attention_dropout\": 0.05, \"resid_pdrop\": 0.125}",
         "\nnote: config.json asks for dropout in training (up to 0.125), which is not applied\n"},
        {GPT2 "\"attn_pdrop\": 0.1, \"embd_pdrop\": 0.0}",
         "\nnote: config.json asks for dropout in training (up to 0.1), which is not applied\n"},
        {GPT2 "\"attn_pdrop\": 0.0, \"embd_pdrop\": 0.0}",
         "\nnote: a gpt2 whose config.json lacks \"resid_pdrop\" has dropout 0.1 in training, which is not applied\n"}};
    char path[] = "/tmp/ndp-plan-XXXXXX", set[64];
    close(mkstemp(path));
    snprintf(set, sizeof set, "model.config=%s", path);
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        CHECK_OK(ndp_file_write_atomic(path, cases[i].model, strlen(cases[i].model)));
        ndp_config *c = configure((const char *const[]){set, "data.sequence_length=32", NULL});
        ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
        char *text = plan_of(c, &o);
        check_words(text, &cases[i].words, 1);
        free(text);
        ndp_config_destroy(c);
    }
    unlink(path);
    ndp_config *c = TINY("parallelism.dp_shard_size=1");
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    char *text = plan_of(c, &o);
    assert_null(strstr(text, "note:"));
    free(text);
    ndp_config_destroy(c);
}

static void no_such_rank(void **state) {
    (void)state;
    ndp_config *c = TINY("parallelism.dp_shard_size=2", "train.steps=1");
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    o.rank = 2;
    char *text;
    CHECK_FAILS(ndp_plan(c, &o, &text), NDP_EINVAL, "ranks 0 to 1");
    ndp_config_destroy(c);
}

static void experts_are_needed_for_ep(void **state) {
    (void)state;
    ndp_config *c = TINY("parallelism.ep_size=2", "parallelism.dp_shard_size=2");
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    char *text;
    CHECK_FAILS(ndp_plan(c, &o, &text), NDP_EINVAL, "ep 2: the model has no mixtures of experts");
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

/* Llama-3.1-8B: 525 million elements of the embedding keep 8 bytes of states, all others 2 and 8 / 256. */
static void states_of_8_bits(void **state) {
    (void)state;
    const char *data = getenv("NDP_TEST_DATA");
    if (!data) {
        print_message("SKIPPED: configs/Llama-3.1-8B (NDP_TEST_DATA is not set)\n");
        skip();
    }
    char config[1024];
    snprintf(config, sizeof config, "model.config=%s/configs/Llama-3.1-8B/config.json", data);
    ndp_config *c = configure((const char *const[]){config, "precision.compute=bf16", "parallelism.dp_shard_size=8",
                                                    "batch.global_batch_size=8", "optimizer.name=adamw8bit", NULL});
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    char *said;
    CHECK_OK(ndp_plan(c, &o, &said));
    double bytes = 0, table = 128256.0 * 4096, all = 8030261248.0;
    assert_non_null(strstr(said, "optimizer state"));
    assert_int_equal(sscanf(strstr(said, "optimizer state"), "optimizer state %*f %*s %lf bytes", &bytes), 1);
    double expected = (table * 8 + (all - table) * (2 + 8.0 / 256)) / 8;
    if (!(bytes >= expected * 0.9999 && bytes < expected * 1.001))
        fail_msg("%.0f bytes, expected %.0f", bytes, expected);
    free(said);
    ndp_config_destroy(c);
}

/* A dry run that has these words, within a gigabyte of memory and ten seconds of a core: two on a fast one, six on a
 * slow one that others share. */
static void check_dry_run(ndp_config *c, const char *name, const char *const *words, int n) {
    const char *sanitizer = getenv("NDP_SANITIZE");
    bool sanitized = sanitizer && *sanitizer;
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    clock_t start = clock();
    char *text = plan_of(c, &o);
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    check_words(text, words, n);
    free(text);
    print_message("%s: %.2f s of a core, %.0f MB\n", name, seconds, megabytes_used());
    if (!sanitized && seconds > 10)
        fail_msg("the dry run took %.1f s", seconds);
    if (!sanitized && megabytes_used() > 1000)
        fail_msg("the dry run used %.0f MB", megabytes_used());
}

/* 405 billion parameters on 1,024 ranks, and on 16,384: planned, and the programs of the corners of the mesh checked.
 */
static void llama_405b(void **state) {
    (void)state;
    static const struct {
        const char *sizes[4], *words[4];
    } cases[] = {{{"parallelism.dp_replicate_size=8", "parallelism.dp_shard_size=128"},
                  {"405853.4 M parameters", "on 1024 ranks", "over 128 ranks", "programs of 4 ranks (the first and"}},
                 {{"parallelism.dp_replicate_size=4", "parallelism.dp_shard_size=64", "parallelism.cp_size=8",
                   "parallelism.tp_size=8"},
                  {"on 16384 ranks", "over 512 ranks", "shift          block: kv", "programs of 16 ranks (the first"}},
                 {{"parallelism.pp_size=16", "parallelism.dp_shard_size=128", "parallelism.tp_size=8",
                   "batch.global_batch_size=2048"},
                  {"on 16384 ranks", "16 stages on 16 ranks, 16 micro-batches", "stage 15: layers.119 to head",
                   "programs of 64 ranks (of every stage the first and the last of each"}}};
    const char *data = getenv("NDP_TEST_DATA");
    if (!data) {
        print_message("SKIPPED: configs/Llama-3.1-405B (NDP_TEST_DATA is not set)\n");
        skip();
    }
    char config[1024];
    snprintf(config, sizeof config, "model.config=%s/configs/Llama-3.1-405B/config.json", data);
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_config *c = configure((const char *const[]){
            config, "data.sequence_length=8192", "batch.global_batch_size=1024", "precision.compute=bf16",
            "train.recompute=block", cases[i].sizes[0], cases[i].sizes[1], cases[i].sizes[2], cases[i].sizes[3], NULL});
        check_dry_run(c, cases[i].words[i ? 0 : 1], cases[i].words, NDP_COUNT(cases[i].words));
        ndp_config_destroy(c);
    }
}

/* Mixtures of experts on 64 ranks: 47 and 31 billion parameters. */
static void mixtures_of_experts(void **state) {
    (void)state;
    static const struct {
        const char *model, *words[4];
    } cases[] = {{"Mixtral-8x7B-v0.1",
                  {"model: mixtral, 32 layers, hidden 4096, heads 32 (8 kv), vocabulary 32000, 46702.8 M parameters",
                   "pp 2 x dp_shard 8 x tp 4 on 64 ranks", "84.0 MiB  all_gather     layers.0.experts",
                   "reduce_scatter block: experts"}},
                 {"Qwen3-30B-A3B",
                  {"model: qwen3_moe, 48 layers, hidden 2048, heads 32 (4 kv), vocabulary 151936, 30532.1 M parameters",
                   "pp 2 x dp_shard 8 x tp 4 on 64 ranks", "36.0 MiB  all_gather     layers.0.experts",
                   "reduce_scatter block: experts"}}};
    const char *data = getenv("NDP_TEST_DATA");
    if (!data) {
        print_message("SKIPPED: configs of Mixtral and Qwen3-30B-A3B (NDP_TEST_DATA is not set)\n");
        skip();
    }
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        char config[1024];
        snprintf(config, sizeof config, "model.config=%s/configs/%s/config.json", data, cases[i].model);
        ndp_config *c =
            configure((const char *const[]){config, "data.sequence_length=4096", "batch.global_batch_size=64",
                                            "precision.compute=bf16", "train.recompute=block", "parallelism.pp_size=2",
                                            "parallelism.dp_shard_size=8", "parallelism.tp_size=4", NULL});
        check_dry_run(c, cases[i].model, cases[i].words, NDP_COUNT(cases[i].words));
        ndp_config_destroy(c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_are_printed), cmocka_unit_test(axes_inside_units_are_printed),
        cmocka_unit_test(padding_is_said),      cmocka_unit_test(own_loops_are_priced),
        cmocka_unit_test(models_are_described), cmocka_unit_test(dropout_is_said),
        cmocka_unit_test(no_such_rank),         cmocka_unit_test(experts_are_needed_for_ep),
        cmocka_unit_test(states_of_8_bits),     cmocka_unit_test(llama_405b),
        cmocka_unit_test(mixtures_of_experts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
