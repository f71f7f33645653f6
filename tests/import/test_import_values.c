/* What a key's value means to Axolotl, and the job that is written. */
#include "import/imported.h"

#include "base/text.h"
#include <unistd.h>

static const char start[] = "base_model: m\ndatasets: [{path: a.jsonl, type: completion}]\nmax_steps: 200\n";

static ndp_status import_more(imported *i, const char *more) {
    char text[512];
    snprintf(text, sizeof text, "%s%s\n", start, more);
    return import(i, text, NULL);
}

/* ---- numbers ---- */

/* As PyYAML 6.0.3 reads the file and pydantic 2.14 casts; tests/golden/axolotl_values.py prints them. */
static const char *const whole_numbers[][2] = {
    {"500_000", "500000"}, {"5_", "5"},       {"0x1F", "31"},
    {"0x_1f", "31"},       {"010", "8"},      {"08", "8"},
    {"0b1010", "10"},      {"1:30", "90"},    {"1:10:30", "4230"},
    {"1.0e+5", "100000"},  {"5.", "5"},       {"+5", "5"},
    {"500.0", "500"},      {"1__0", "10"},    {"'500_000'", "500000"},
    {"'500.0'", "500"},    {"'010'", "10"},   {"true", "1"},
    {"On", "1"},           {"\"5.00\"", "5"}, {"16_777_216", "16777216"},
};
static const char *const no_whole_numbers[] = {"_5",  "0X1f",   "0o17",   "1:60",   "1_0.5", "1.5",
                                               "1e5", "1.0e5",  "'1e5'",  "'0x10'", "1,000", "0x",
                                               "y",   "'true'", "'1__0'", ".inf",   "[5]",   "0:30"};
static const char *const numbers[][2] = {
    {"1e-5", "1e-05"},   {"1.0e-5", "1e-05"},      {"2E-05", "2e-05"},      {"1_0.5", "10.5"},
    {"1e5", "100000"},   {"1.0e5", "100000"},      {".5", "0.5"},           {"+.5", "0.5"},
    {"2.e-5", "2e-05"},  {"1:30.5", "90.5"},       {"1_000.5_0", "1000.5"}, {"09.5", "9.5"},
    {"'1_0.5'", "10.5"}, {"'2e-5'", "2e-05"},      {"0x10", "16"},          {"010", "8"},
    {"off", "0"},        {"1e1_0", "10000000000"},
};
static const char *const no_numbers[] = {"fast", "0X1f", "1e3_", "nan", ".inf", "'0x10'", "1,5", "-1", "y", "'true'"};

static void numbers_are_those_of_pyyaml(void **state) {
    (void)state;
    char more[128];
    imported i;
    for (int k = 0; k < NDP_COUNT(whole_numbers); k++) {
        snprintf(more, sizeof more, "sequence_len: %s", whole_numbers[k][0]);
        CHECK_OK(import_more(&i, more));
        CHECK_KEYS(&i, {"data.sequence_length", whole_numbers[k][1]});
        release(&i);
    }
    for (int k = 0; k < NDP_COUNT(numbers); k++) {
        snprintf(more, sizeof more, "learning_rate: %s", numbers[k][0]);
        CHECK_OK(import_more(&i, more));
        char *lr;
        CHECK_OK(ndp_config_get(&i.c, "optimizer.lr", &lr));
        if (strtod(lr, NULL) != strtod(numbers[k][1], NULL))
            fail_msg("%s is %s, expected %s", more, lr, numbers[k][1]);
        free(lr);
        release(&i);
    }
}

static void what_is_no_number_there_is_none_here(void **state) {
    (void)state;
    char more[128];
    imported i;
    for (int k = 0; k < NDP_COUNT(no_whole_numbers); k++) {
        snprintf(more, sizeof more, "sequence_len: %s", no_whole_numbers[k]);
        CHECK_FAILS(import_more(&i, more), NDP_EINVAL, "their.yaml:4:");
        release(&i);
    }
    for (int k = 0; k < NDP_COUNT(no_numbers); k++) {
        snprintf(more, sizeof more, "learning_rate: %s", no_numbers[k]);
        CHECK_FAILS(import_more(&i, more), NDP_EINVAL, "expected a number in [0, inf)");
        release(&i);
    }
    CHECK_FAILS(import_more(&i, "seed: 9223372036854775808"), NDP_EINVAL, "'seed' is '9223372036854775808'");
    release(&i);
    CHECK_OK(import_more(&i, "seed: 9223372036854775807\nwarmup_steps: NULL"));
    CHECK_KEYS(&i, {"train.seed", "9223372036854775807"}, {"schedule.warmup_steps", "6"});
    release(&i);
}

/* ---- what is off, and where it is refused ---- */

static void empty_lists_ask_for_nothing(void **state) {
    (void)state;
    imported i;
    CHECK_OK(import_more(&i, "unfrozen_parameters: []"));
    release(&i);
    CHECK_FAILS(import_more(&i, "unfrozen_parameters: ['model.norm[:8]']"), NDP_EINVAL, "their.yaml:4:");
    release(&i);
}

/* At the data set that names it, not at the template of the others. */
static void a_template_is_refused_where_it_is(void **state) {
    (void)state;
    static const char text[] = "base_model: m\nchat_template: chatml\nmax_steps: 3\ndatasets:\n"
                               "  - {path: a.jsonl, type: chat_template, chat_template: nosuch}\n";
    imported i;
    CHECK_FAILS(import(&i, text, NULL), NDP_EINVAL, "their.yaml:5:");
    release(&i);
}

static void accelerate_sequence_parallelism(void **state) {
    (void)state;
    static const char *const words[][2] = {{"", "true"},
                                           {", megatron_lm_sequence_parallelism: true", "true"},
                                           {", megatron_lm_sequence_parallelism: false", "false"}};
    for (int k = 0; k < NDP_COUNT(words); k++) {
        imported i;
        char *text = ndp_format(
            "distributed_type: MEGATRON_LM\nnum_processes: 2\nmegatron_lm_config: {megatron_lm_tp_degree: 2%s}",
            words[k][0]);
        CHECK_OK(import(&i, text, NULL));
        CHECK_KEYS(&i, {"parallelism.tp_size", "2"}, {"parallelism.tp_sequence_parallel", words[k][1]});
        release(&i);
        free(text);
    }
}

/* ---- words ---- */

static void truth_has_many_words(void **state) {
    (void)state;
    static const char *const yes[] = {"on", "Yes", "TRUE", "y", "T", "1", "'on'", "\"true\""}, *const no[] = {
                                                                                                   "off", "No", "FALSE",
                                                                                                   "n",   "f",  "0",
                                                                                                   "'no'"};
    char more[128];
    imported i;
    for (int k = 0; k < NDP_COUNT(yes) + NDP_COUNT(no); k++) {
        bool on = k < NDP_COUNT(yes);
        const char *word = on ? yes[k] : no[k - NDP_COUNT(yes)];
        snprintf(more, sizeof more, "sample_packing: %s\nbf16: %s\ngradient_checkpointing: %s\nfp16: off", word, word,
                 word);
        CHECK_OK(import_more(&i, more));
        CHECK_KEYS(&i, {"data.packing", on ? "true" : "false"}, {"precision.compute", on ? "bf16" : "fp32"},
                   {"train.recompute", on ? "block" : "none"});
        release(&i);
    }
    CHECK_FAILS(import_more(&i, "sample_packing: 2"), NDP_EINVAL,
                "'sample_packing' is '2', expected one of true, false");
    release(&i);
    CHECK_OK(import_more(&i, "fp16: on\nbf16: off"));
    CHECK_KEYS(&i, {"precision.compute", "bf16"});
    CHECK_NOTES(&i, "fp16: computation is in bf16, which has fewer bits and needs no loss scaling");
    release(&i);
}

static void attention_is_left_out_with_a_reason(void **state) {
    (void)state;
    static const char *const known[] = {"attention: flash",
                                        "attention: eager",
                                        "attention: sdpa",
                                        "attention: flex",
                                        "attn_implementation: flash_attention_2",
                                        "attn_implementation: flash_attention_3",
                                        "attn_implementation: flex_attention",
                                        "attn_implementation: sdpa",
                                        "attn_implementation: eager",
                                        "attn_implementation: xformers",
                                        "attn_implementation: kernels-community/flash-attn3"};
    imported i;
    for (int k = 0; k < NDP_COUNT(known); k++) {
        char note[128];
        CHECK_OK(import_more(&i, known[k]));
        snprintf(note, sizeof note, "  %.*s (line 4): ndparallel has its own kernels", (int)strcspn(known[k], ":"),
                 known[k]);
        CHECK_NOTES(&i, note);
        release(&i);
    }
    CHECK_FAILS(import_more(&i, "attention: sage"), NDP_EINVAL, "'attention: sage': attention is exact");
    release(&i);
    CHECK_FAILS(import_more(&i, "attn_implementation: kernels-community/sage-attention"), NDP_EINVAL,
                "attention is exact");
    release(&i);
    CHECK_FAILS(import_more(&i, "attention: flesh"), NDP_EINVAL, "their.yaml:4: 'attention' is 'flesh', expected");
    release(&i);
}

/* ---- the notes about the schedule ---- */

static void the_note_is_about_the_warm_up_that_is_written(void **state) {
    (void)state;
    static const char *const cases[][3] = {
        /* file, warm-up, note; NULL: none */
        {"warmup_ratio: 0.005", "2",
         "schedule.warmup_steps 2 of train.steps 200: warmup_ratio; Axolotl turns one step of warm-up into two\n"},
        {"warmup_steps: 1", "2",
         "schedule.warmup_steps 2 of train.steps 200: warmup_steps; Axolotl turns one step of warm-up into two\n"},
        {"warmup_ratio: 0.1", "20", "schedule.warmup_steps 20 of train.steps 200: warmup_ratio\n"},
        {"", "6", "schedule.warmup_steps 6 of train.steps 200: Axolotl's 3%, at most 100\n"},
        {"lr_scheduler: constant", "0",
         "schedule.warmup_steps 0 of train.steps 200: the Trainer's schedule constant has none\n"},
        {"lr_scheduler: constant\nwarmup_steps: 9", "0",
         "schedule.warmup_steps 0 of train.steps 200: the Trainer's schedule constant has none\n"},
        {"warmup_steps: 9", "9", NULL},
        {"warmup_steps: 0", "0", NULL},
    };
    for (int k = 0; k < NDP_COUNT(cases); k++) {
        imported i;
        CHECK_OK(import_more(&i, cases[k][0]));
        CHECK_KEYS(&i, {"schedule.warmup_steps", cases[k][1]});
        const char *said = strstr(i.notes, "schedule.warmup_steps");
        if (cases[k][2] ? !said || strncmp(said, cases[k][2], strlen(cases[k][2])) != 0 : said != NULL)
            fail_msg("%s: the notes have not '%s':\n%s", cases[k][0], cases[k][2] ? cases[k][2] : "none", i.notes);
        release(&i);
    }
}

static void the_user_has_the_last_word_on_the_warm_up(void **state) {
    (void)state;
    const char *sets[] = {"schedule.warmup_steps=0", "schedule.name=constant"};
    ndp_import_opts o = NDP_IMPORT_OPTS_INIT;
    o.assignments = sets;
    o.assignment_count = NDP_COUNT(sets);
    imported i;
    CHECK_OK(import(&i, start, &o));
    assert_null(strstr(i.notes, "warmup_steps"));
    assert_null(strstr(i.notes, "learning rate"));
    release(&i);
}

/* ---- the job ---- */

static void the_job_has_the_imported_keys_alone(void **state) {
    (void)state;
    static const char file[] = "base_model: m\ndatasets: [{path: a.jsonl, type: completion}]\nmax_steps: 200\n"
                               "learning_rate: 3.0e-4\nlogging_steps: 1\nmicro_batch_size: 2\n";
    const char *sets[] = {"train.threads=0"};
    ndp_import_opts o = NDP_IMPORT_OPTS_INIT;
    o.assignments = sets;
    o.assignment_count = NDP_COUNT(sets);
    imported i;
    CHECK_OK(import(&i, file, &o));
    assert_string_equal(i.job, "model:\n"
                               "  path: \"m\"\n"
                               "data:\n"
                               "  files: [\"a.jsonl\"]\n"
                               "  sequence_length: 512\n"
                               "  format: text\n"
                               "  packing: false\n"
                               "parallelism:\n"
                               "  dp_shard_size: 1\n"
                               "precision:\n"
                               "  compute: bf16\n"
                               "batch:\n"
                               "  global_batch_size: 2\n"
                               "  micro_batch_size: 2\n"
                               "optimizer:\n"
                               "  lr: 0.0003\n"
                               "  betas: [0.9, 0.999]\n"
                               "  weight_decay: 0\n"
                               "schedule:\n"
                               "  name: cosine\n"
                               "  warmup_steps: 6\n"
                               "  min_lr_ratio: 0\n"
                               "  like: axolotl\n"
                               "train:\n"
                               "  steps: 200\n"
                               "  output_dir: \"./model-out\"\n"
                               "  threads: 0\n"
                               "  log_every: 1\n"
                               "checkpoint:\n"
                               "  keep: 4\n"
                               "# All other keys have their defaults; `ndparallel config` lists them.\n");
    check_round_trip(&i);
    release(&i);
}

/* Below 1 the Trainer takes warmup_steps as a share, which it rounds up. */
static void warmup_may_be_a_share(void **state) {
    (void)state;
    imported i;
    CHECK_OK(import(&i, "base_model: m\nmax_steps: 205\nwarmup_steps: 0.1\n", NULL));
    CHECK_KEYS(&i, {"schedule.warmup_steps", "21"}, {"schedule.warmup_ratio", "0"});
    check_round_trip(&i);
    release(&i);
    CHECK_OK(import(&i, "base_model: m\nnum_epochs: 3\nwarmup_steps: 0.1\n", NULL));
    CHECK_KEYS(&i, {"schedule.warmup_ratio", "0.1"}, {"train.epochs", "3"});
    CHECK_NOTES(&i, "schedule.warmup_ratio 0.1: warmup_steps below 1 is a share of the steps");
    check_round_trip(&i);
    release(&i);
    CHECK_OK(import(&i, "base_model: m\nnum_epochs: 3\nwarmup_steps: 7\n", NULL));
    CHECK_KEYS(&i, {"schedule.warmup_steps", "7"}, {"schedule.warmup_ratio", "0"});
    release(&i);
}

static void keys_that_axolotl_no_longer_reads(void **state) {
    (void)state;
    imported i;
    CHECK_OK(
        import(&i,
               "base_model: m\nmax_steps: 3\nmax_packed_sequence_len: 2048\ntorchdistx_path:\ngptq_groupsize: 128\n"
               "use_kernels: true\ndatasets: [{path: a.jsonl, type: chat_template, message_field_training: learn}]\n",
               NULL));
    CHECK_KEYS(&i, {"data.train_field", "\"learn\""});
    CHECK_NOTES(&i, "max_packed_sequence_len (line 3), gptq_groupsize (line 5): Axolotl no longer reads this key",
                "use_kernels (line 6): ndparallel has its own kernels");
    check_round_trip(&i);
    release(&i);
}

/* What a data set has other than the first one stands at its entry. */
static void data_sets_of_several_types(void **state) {
    (void)state;
    imported i;
    CHECK_OK(
        import(&i,
               "base_model: m\nmax_steps: 3\nchat_template: chatml\ndatasets:\n"
               "- {path: a.jsonl, type: completion, field: body}\n"
               "- {path: b.jsonl, type: alpaca, split: 'train[:5%]'}\n"
               "- {path: org/set, type: chat_template, field_messages: turns, split: 'train[:1000]', name: en}\n"
               "- {path: c.jsonl, type: completion}\n"
               "test_datasets: [{path: d.jsonl, type: input_output}, {path: a.jsonl, type: completion, field: body}]\n",
               NULL));
    CHECK_KEYS(&i, {"data.format", "text"}, {"data.text_field", "\"body\""}, {"data.messages_field", "\"turns\""},
               {"data.files", "[\"a.jsonl\", {path: \"b.jsonl\", format: alpaca, split: \"train[:5%]\"}, "
                              "{path: \"org/set:en/train[:1000]\", format: messages}, "
                              "{path: \"c.jsonl\", text_field: \"text\"}]"},
               {"data.validation_files", "[{path: \"d.jsonl\", format: input_output}, \"a.jsonl\"]"});
    check_round_trip(&i);
    release(&i);
}

/* Over shards it is that of microsoft/dion; AdamW's betas are its own defaults unless both are given. */
static void muon_of_axolotl(void **state) {
    (void)state;
#define SHARDED "base_model: m\nmax_steps: 3\noptimizer: muon\nfsdp_config: {fsdp_version: 2}\n"
    static const char *const of[][3] = {{SHARDED, "[0.9, 0.95]", "[]"},
                                        {SHARDED "weight_decay: 0.01\nadam_beta1: 0.8\nadam_beta2: 0.99\n",
                                         "[0.8, 0.99]", "[{params: [\"embed_tokens\", \"lm_head\"], weight_decay: 0}]"},
                                        {SHARDED "adam_beta1: 0.8\n", "[0.9, 0.95]", "[]"}};
    for (int k = 0; k < NDP_COUNT(of); k++) {
        imported i;
        CHECK_OK(import(&i, of[k][0], NULL));
        CHECK_KEYS(&i, {"optimizer.name", "muon_spectral"}, {"optimizer.momentum", "0.95"},
                   {"optimizer.betas", of[k][1]}, {"optimizer.groups", of[k][2]});
        release(&i);
    }
    imported i;
    CHECK_FAILS(import(&i, SHARDED "adapter: lora\nlora_target_linear: true\n", NULL), NDP_EINVAL,
                "'optimizer: muon': Muon updates whole matrices");
    release(&i);
}

/* Types whose words are those of a style of alpaca, and documents that are too short. */
static void types_of_alpacas_styles(void **state) {
    (void)state;
    imported i;
    CHECK_OK(import(&i,
                    "base_model: m\nmax_steps: 3\nmin_sample_len: 9\ndatasets:\n"
                    "- {path: a.jsonl, type: alpaca_chat}\n- {path: b.jsonl, type: alpaca_instruct}\n"
                    "- {path: c.jsonl, type: gpteacher}\n- {path: d.jsonl, type: alpaca_w_system}\n"
                    "- {path: e.jsonl, type: alpaca_w_system.load_instruct}\n- {path: f.jsonl, type: jeopardy}\n"
                    "- {path: g.jsonl}\ndataset_exact_deduplication: true\n",
                    NULL));
    CHECK_KEYS(&i, {"data.format", "alpaca_chat"}, {"data.min_tokens", "9"}, {"data.unique", "true"},
               {"data.files", "[\"a.jsonl\", {path: \"b.jsonl\", format: alpaca}, {path: \"c.jsonl\", format: alpaca}, "
                              "{path: \"d.jsonl\", format: alpaca_system_chat}, "
                              "{path: \"e.jsonl\", format: alpaca_system}, {path: \"f.jsonl\", format: jeopardy}, "
                              "{path: \"g.jsonl\", format: token_ids}]"});
    check_round_trip(&i);
    release(&i);
    static char *const wrong[] = {"{path: a.jsonl, type: 'gpteacher:chat'}",
                                  "{path: a.jsonl, type: alpaca_chat, conversation: chatml}"};
    for (int k = 0; k < NDP_COUNT(wrong); k++) {
        char *text = ndp_format("base_model: m\nmax_steps: 3\ndatasets: [%s]\n", wrong[k]);
        CHECK_FAILS(import(&i, text, NULL), NDP_EINVAL, "styles of alpaca are instruct, chat, chatml and phi");
        release(&i);
        free(text);
    }
}

static void comments_of_json_are_named(void **state) {
    (void)state;
    static const char *const texts[] = {"{\"zero_optimization\": {\"stage\": 2}, // ranks\n \"train_batch_size\": 8}",
                                        "{/* both */ \"zero_optimization\": {\"stage\": 2}, \"train_batch_size\": 8}"};
    imported i;
    for (int k = 0; k < NDP_COUNT(texts); k++) {
        CHECK_FAILS(import(&i, texts[k], NULL), NDP_EINVAL, "a comment, which JSON does not have: remove it");
        release(&i);
    }
}

/* Ten megabytes are read no further than their size. */
static void large_files_are_refused(void **state) {
    (void)state;
    char path[] = "/tmp/ndp-large-XXXXXX", *notes, *job;
    int fd = mkstemp(path);
    assert_true(fd >= 0 && ftruncate(fd, 10 << 20) == 0);
    close(fd);
    const ndp_import_opts none = NDP_IMPORT_OPTS_INIT;
    ndp_config c;
    CHECK_OK(ndp_config_init(&c));
    CHECK_FAILS(ndp_config_import(&c, path, &none, &job, &notes), NDP_EFORMAT,
                "it has 10.0 MiB, a job file has 8.0 MiB at most");
    ndp_config_release(&c);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(large_files_are_refused),
                                       cmocka_unit_test(comments_of_json_are_named),
                                       cmocka_unit_test(warmup_may_be_a_share),
                                       cmocka_unit_test(keys_that_axolotl_no_longer_reads),
                                       cmocka_unit_test(numbers_are_those_of_pyyaml),
                                       cmocka_unit_test(empty_lists_ask_for_nothing),
                                       cmocka_unit_test(accelerate_sequence_parallelism),
                                       cmocka_unit_test(a_template_is_refused_where_it_is),
                                       cmocka_unit_test(what_is_no_number_there_is_none_here),
                                       cmocka_unit_test(truth_has_many_words),
                                       cmocka_unit_test(attention_is_left_out_with_a_reason),
                                       cmocka_unit_test(the_note_is_about_the_warm_up_that_is_written),
                                       cmocka_unit_test(the_user_has_the_last_word_on_the_warm_up),
                                       cmocka_unit_test(data_sets_of_several_types),
                                       cmocka_unit_test(muon_of_axolotl),
                                       cmocka_unit_test(types_of_alpacas_styles),
                                       cmocka_unit_test(the_job_has_the_imported_keys_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
