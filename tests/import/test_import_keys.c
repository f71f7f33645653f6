/* The tables that `ndparallel config import --keys` prints. */
#include "import/import_table.h"

#include "import/imported.h"

#include <stdlib.h>

static char *keys_of(const char *program, const char *part) {
    char *text;
    CHECK_OK(ndp_config_import_keys(program, part, &text));
    return text;
}

static const char *const programs[] = {"axolotl", "llamafactory", "trl", "accelerate", "deepspeed", "transformers"};

/* All programs' tables, which share sections. */
static char *all_keys(void) {
    ndp_str all = {0};
    for (int p = 0; p < NDP_COUNT(programs); p++) {
        char *keys = keys_of(programs[p], NULL);
        ndp_str_add(&all, keys);
        free(keys);
    }
    return ndp_str_detach(&all);
}

/* As a code span, alone or below a section. */
static bool has_name(const char *text, const char *name, size_t n) {
    for (const char *at = text; (at = memmem(at, strlen(at), name, n)); at++)
        if (strchr("`.", at[-1]) && at[n] == '`')
            return true;
    return false;
}

static void check_names(const char *text, const char *names) {
    for (size_t n; names += strspn(names, " "), (n = strcspn(names, " ")); names += n)
        if (!has_name(text, names, n))
            fail_msg("%.*s is in no table", (int)n, names);
}

/* A reason up to the first character that is escaped. */
static void check_reason(const char *text, const char *why) {
    size_t n = why ? strcspn(why, "<|") : 0;
    if (n && !memmem(text, strlen(text), why, n))
        fail_msg("'%s' is in no table", why);
}

static void every_row_is_listed(void **state) {
    (void)state;
    char *text = all_keys();
    for (const import_table *const *t = ndp_import_tables; *t; t++)
        for (int i = 0; i < (*t)->n; i++) {
            const import_key *k = &(*t)->keys[i];
            if (k->kind != IMPORT_SECTION)
                check_names(text, k->names);
            check_reason(text, k->why);
            for (const import_word *w = k->kind == IMPORT_WORD ? k->words : NULL; w && w->words; w++)
                check_reason(text, w->refused);
            if (k->kind == IMPORT_REFUSED && k->ours)
                check_names(text, k->ours);
        }
    free(text);
}

/* Every `section.key` in the column "here" is an option. */
static void imported_keys_exist(void **state) {
    (void)state;
    int found = 0;
    for (int p = 0; p < NDP_COUNT(programs); p++) {
        char *text = keys_of(programs[p], "imported"), *lines = NULL, *cells;
        for (char *line = strtok_r(text, "\n", &lines); line; line = strtok_r(NULL, "\n", &lines)) {
            cells = strstr(line, "` | `");
            cells = cells ? cells + strlen("` | ") : NULL;
            char *rest = NULL, *end = cells ? strstr(cells, " | ") : NULL;
            if (!end || line[2] != '`')
                continue;
            *end = '\0';
            for (char *key = strtok_r(cells, "`, ", &rest); key; key = strtok_r(NULL, "`, ", &rest), found++) {
                char *dot = strchr(key, '.');
                assert_non_null(dot);
                *dot = '\0';
                if (!ndp_option_find(key, dot + 1))
                    fail_msg("%s.%s is no key", key, dot + 1);
            }
        }
        free(text);
    }
    assert_true(found > 60);
}

/* ---- what a key sets is what the table says ---- */

/* A value of a key that changes the job, and what else the file needs for that. */
typedef struct sample {
    const char *key, *value, *with;
} sample;
#define HELD_OUT "max_steps: 100\nval_set_size: 0.5\n"
static const sample axolotl_samples[] = {
    {"base_model", "other", ""},
    {"tokenizer_config", "letters", ""},
    {"tensor_parallel_size", "2", ""},
    {"context_parallel_size", "2", ""},
    {"dp_shard_size", "2", ""},
    {"dp_replicate_size", "2", ""},
    {"expert_parallel_size", "2", ""},
    {"world_size", "4", ""},
    {"ring_attn_func", "batch_zigzag", "context_parallel_size: 2\n"},
    {"fsdp", "[full_shard]", "world_size: 4\n"},
    {"adapter", "lora", "lora_target_linear: true\n"},
    {"revision_of_model", "v1", ""},
    {"reinit_weights", "true", ""},
    {"fp16", "true", "bf16: false\n"},
    {"float16", "true", "bf16: false\n"},
    {"load_in_4bit", "true", "adapter: lora\nlora_target_linear: true\n"},
    {"load_in_8bit", "true", "adapter: lora\nlora_target_linear: true\n"},
    {"lora_r", "7", "adapter: lora\nlora_target_linear: true\n"},
    {"lora_alpha", "7", "adapter: lora\nlora_target_linear: true\n"},
    {"lora_dropout", "0.5", "adapter: lora\nlora_target_linear: true\n"},
    {"lora_target_modules", "[q_proj]", "adapter: lora\nlora_target_linear: true\n"},
    {"unfrozen_parameters", "[^lm_head.weight$]", ""},
    {"eaft_k", "7", "use_eaft: true\n"},
    {"eaft_alpha", "0.5", "use_eaft: true\n"},
    {"use_eaft", "true", ""},
    {"lora_target_linear", "true", "adapter: lora\nlora_target_modules: [q_proj]\n"},
    {"lora_target_parameters", "[experts.down_proj]", "adapter: lora\nlora_target_linear: true\n"},
    {"lora_modules_to_save", "[lm_head]", "adapter: lora\nlora_target_linear: true\n"},
    {"lora_model_dir", "folder", "adapter: lora\nlora_target_linear: true\n"},
    {"peft_use_dora", "true", "adapter: lora\nlora_target_linear: true\n"},
    {"peft_use_rslora", "true", "adapter: lora\nlora_target_linear: true\n"},
    {"loraplus_lr_ratio", "4", "adapter: lora\nlora_target_linear: true\n"},
    {"embedding_lr", "0.5", ""},
    {"embedding_lr_scale", "0.5", ""},
    {"micro_batch_size", "3", ""},
    {"gradient_accumulation_steps", "3", ""},
    {"batch_size", "4", ""},
    {"num_epochs", "3", ""},
    {"max_steps", "77", ""},
    {"seed", "5", ""},
    {"optimizer", "sgd", ""},
    {"learning_rate", "0.5", ""},
    {"adam_beta1", "0.5", ""},
    {"adam_beta2", "0.5", ""},
    {"adam_epsilon", "0.5", ""},
    {"weight_decay", "0.5", ""},
    {"max_grad_norm", "0.5", ""},
    {"lr_scheduler", "linear", ""},
    {"cosine_min_lr_ratio", "0.5", ""},
    {"warmup_steps", "5", "max_steps: 100\n"},
    {"warmup_ratio", "0.5", ""},
    {"bf16", "false", ""},
    {"bfloat16", "true", "bf16: false\n"},
    {"float32", "true", ""},
    {"gradient_checkpointing", "true", ""},
    {"val_set_size", "0.5", ""},
    {"sequence_len", "99", ""},
    {"excess_length_strategy", "truncate", ""},
    {"min_sample_len", "9", ""},
    {"sample_packing", "true", ""},
    {"pretrain_multipack_attn", "false", ""},
    {"train_on_inputs", "true", ""},
    {"chat_template", "llama3", ""},
    {"curriculum_sampling", "true", "shuffle_merged_datasets: false\n"},
    {"dataset_exact_deduplication", "true", ""},
    {"shuffle_merged_datasets", "false", "curriculum_sampling: true\n"},
    {"rl", "dpo", ""},
    {"rl_beta", "2", "rl: dpo\n"},
    {"orpo_alpha", "2", "rl: orpo\n"},
    {"cpo_alpha", "2", "rl: simpo\n"},
    {"simpo_gamma", "2", "rl: simpo\n"},
    {"kto_desirable_weight", "0.5", "rl: kto\n"},
    {"kto_undesirable_weight", "2", "rl: kto\n"},
    {"reward_model", "true", ""},
    {"center_rewards_coefficient", "0.01", "reward_model: true\n"},
    {"output_dir", "elsewhere", ""},
    {"save_steps", "7", "max_steps: 100\n"},
    {"saves_per_epoch", "2", "max_steps: 100\n"},
    {"save_strategy", "steps", "max_steps: 100\n"},
    {"save_total_limit", "9", ""},
    {"logging_steps", "3", ""},
    {"eval_steps", "7", HELD_OUT},
    {"load_best_model_at_end", "true", HELD_OUT "eval_steps: 7\n"},
    {"early_stopping_patience", "3", HELD_OUT "eval_steps: 7\n"},
    {"use_tensorboard", "true", ""},
    {"report_to", "[wandb]", ""},
    {"evals_per_epoch", "2", HELD_OUT},
    {"eval_strategy", "steps", HELD_OUT},
    {0},
};
#define HYBRID "distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: HYBRID_SHARD}\nnum_processes: 4\n"
static const sample accelerate_samples[] = {
    {"num_processes", "4", ""},
    {"num_machines", "2", HYBRID},
    {"distributed_type", "FSDP", "num_processes: 4\n"},
    {"mixed_precision", "bf16", ""},
    {"fp16", "true", ""},
    {"gradient_accumulation_steps", "3", ""},
    {"gradient_clipping", "0.5", ""},
    {"log_with", "tensorboard", ""},
    {0},
};

static const sample llamafactory_samples[] = {
    {"eaft_alpha", "0.5", "use_eaft_loss: true\n"},
    {"use_eaft_loss", "true", ""},
    {"use_dft_loss", "true", ""},
    {"model_name_or_path", "other", ""},
    {"train_from_scratch", "true", ""},
    {"pref_loss", "ipo", "stage: dpo\n"},
    {"pref_beta", "0.3", "stage: dpo\n"},
    {"pref_ftx", "0.3", "stage: dpo\n"},
    {"simpo_gamma", "0.3", "stage: dpo\npref_loss: simpo\n"},
    {"kto_chosen_weight", "3", "stage: kto\n"},
    {"kto_rejected_weight", "3", "stage: kto\n"},
    {"activation_checkpointing", "true", "disable_gradient_checkpointing: true\n"},
    {"adapter_name_or_path", "folder", ""},
    {"stage", "pt", ""},
    {"finetuning_type", "full", ""},
    {"lora_rank", "7", ""},
    {"lora_alpha", "7", ""},
    {"lora_dropout", "0.5", ""},
    {"additional_target", "[lm_head]", ""},
    {"use_rslora", "true", ""},
    {"use_dora", "true", ""},
    {"loraplus_lr_ratio", "4", ""},
    {"quantization_bit", "4", ""},
    {"cutoff_len", "99", ""},
    {"packing", "true", ""},
    {"neat_packing", "true", ""},
    {"train_on_prompt", "true", ""},
    {"max_samples", "9", ""},
    {"val_size", "0.5", ""},
    {"per_device_train_batch_size", "3", ""},
    {"gradient_accumulation_steps", "3", ""},
    {"num_train_epochs", "2", ""},
    {"max_steps", "77", ""},
    {"seed", "5", ""},
    {"optim", "sgd", ""},
    {"use_muon", "true", "finetuning_type: full\n"},
    {"tensor_model_parallel_size", "2", ""},
    {"pipeline_model_parallel_size", "2", ""},
    {"expert_model_parallel_size", "2", ""},
    {"context_parallel_size", "2", ""},
    {"sequence_parallel", "false", ""},
    {"use_distributed_optimizer", "true", ""},
    {"learning_rate", "0.5", ""},
    {"adam_beta1", "0.5", ""},
    {"adam_beta2", "0.5", ""},
    {"adam_epsilon", "0.5", ""},
    {"weight_decay", "0.5", ""},
    {"max_grad_norm", "0.5", ""},
    {"lr_scheduler_type", "cosine", ""},
    {"warmup_steps", "5", "max_steps: 100\n"},
    {"warmup_ratio", "0.5", ""},
    {"bf16", "true", ""},
    {"fp16", "true", ""},
    {"pure_bf16", "true", ""},
    {"disable_gradient_checkpointing", "true", ""},
    {"fsdp", "[shard_grad_op]", ""},
    {"output_dir", "elsewhere", ""},
    {"save_steps", "7", "max_steps: 100\n"},
    {"save_strategy", "no", "max_steps: 100\n"},
    {"save_total_limit", "9", ""},
    {"logging_steps", "3", ""},
    {"eval_steps", "7", "max_steps: 100\nval_size: 0.5\n"},
    {"load_best_model_at_end", "true", "max_steps: 100\nval_size: 0.5\neval_steps: 7\n"},
    {"early_stopping_steps", "3", "max_steps: 100\nval_size: 0.5\neval_steps: 7\n"},
    {"report_to", "[none, tensorboard]", ""},
    {"eval_strategy", "steps", "max_steps: 100\nval_size: 0.5\nlogging_steps: 5\n"},
    {0},
};
static const sample trl_samples[] = {
    {"model_revision", "v1", "model_name_or_path: org/m\n"},
    {"use_peft", "true", "lora_target_modules: all-linear\n"},
#define PEFT "use_peft: true\nlora_target_modules: [q_proj]\n"
    {"lora_r", "7", PEFT},
    {"lora_alpha", "7", PEFT},
    {"lora_dropout", "0.5", PEFT},
    {"lora_target_modules", "[k_proj]", "use_peft: true\nlora_target_parameters: [mlp.experts.down_proj]\n"},
    {"lora_target_parameters", "[mlp.experts.down_proj]", PEFT},
    {"lora_modules_to_save", "[lm_head]", PEFT},
    {"use_rslora", "true", PEFT},
    {"use_dora", "true", PEFT},
    {"load_in_4bit", "true", PEFT},
    {"load_in_8bit", "true", PEFT},
    {"dataset_name", "org/set", ""},
    {"dataset_config", "en", "dataset_name: org/set\n"},
    {"dataset_text_field", "body", "dataset_name: org/set\n"},
    {"max_length", "99", ""},
    {"packing", "true", ""},
    {"eos_token", "x", ""},
    {"assistant_only_loss", "true", ""},
    {"gradient_checkpointing", "false", ""},
    {"router_aux_loss_coef", "0.5", ""},
    {"loss_type", "ipo", ""},
    {"beta", "0.7", ""},
    {"label_smoothing", "0.2", "loss_type: robust\n"},
    {"center_rewards_coefficient", "0.2", ""},
    {0},
};
static const sample distributed_samples[] = {
    {"tp_size", "2", ""},
    {"fsdp_size", "2", ""},
    {"pp_size", "2", ""},
    {"dp_replicate_size", "2", ""},
    {"ep_size", "2", "fsdp_size: 2\n"},
    {"fsdp_mixed_precision", "true", ""},
    {0},
};
static const sample deepspeed_samples[] = {
    {"train_batch_size", "64", ""},
    {0},
};

static const sample *sample_of(const sample *samples, const char *names) {
    for (const sample *s = samples; s->key; s++) {
        const char *at = strstr(names, s->key);
        size_t n = strlen(s->key);
        if (at && (at == names || at[-1] == ' ') && (at[n] == '\0' || at[n] == ' '))
            return s;
    }
    return NULL;
}

/* The keys of ours in the row of a key, as "`a`, `b`". */
static char *targets_of(const char *table, const char *key) {
    char *cell = ndp_format("`%s`", key);
    const char *at = strstr(table, cell), *from;
    free(cell);
    assert_non_null(at);
    while (at > table && at[-1] != '\n')
        at--;
    from = strstr(at, " | ") + 3;
    return strndup(from, (size_t)(strstr(from, " | ") - from));
}

/* Whether one of these keys has another value in `b` than in `a`. */
static bool any_differs(char *targets, const imported *a, const imported *b) {
    bool differs = false;
    char *rest = NULL;
    for (char *key = strtok_r(targets, "`, ", &rest); key; key = strtok_r(NULL, "`, ", &rest)) {
        char *before, *after;
        CHECK_OK(ndp_config_get(&a->c, key, &before));
        CHECK_OK(ndp_config_get(&b->c, key, &after));
        differs |= strcmp(before, after) != 0;
        free(before);
        free(after);
    }
    return differs;
}

static void check_sample(const char *table, const char *base, const sample *s) {
    imported without, with;
    char *targets = targets_of(table, s->key), *before = ndp_format("%s%s", base, s->with),
         *after = ndp_format("%s%s%s: %s\n", strcmp(s->key, "base_model") == 0 ? "" : base, s->with, s->key, s->value);
    CHECK_OK(import(&without, before, NULL));
    CHECK_OK(import(&with, after, NULL));
    if (!any_differs(targets, &without, &with))
        fail_msg("%s: %s does not change what the table says", s->key, s->value);
    release(&without);
    release(&with);
    free(targets);
    free(before);
    free(after);
}

static void keys_set_what_the_table_says(void **state) {
    (void)state;
    static const struct {
        const char *section, *base;
        const sample *samples;
    } sampled[NDP_COUNT(programs)] = {
        {"axolotl", "base_model: org/m\ndatasets: [{path: a.jsonl, type: chat_template}]\n", axolotl_samples},
        {"trainer:llamafactory", "do_train: true\ndataset: some\n", llamafactory_samples},
        {"trainer:trl", "do_train: true\ncompletion_only_loss: false\n", trl_samples},
        {"accelerate", "compute_environment: LOCAL_MACHINE\n", accelerate_samples},
        {"deepspeed:alone", "zero_optimization: {stage: 2}\n", deepspeed_samples},
        {"distributed", "ep_implementation: auto\n", distributed_samples}};
    for (int p = 0; p < NDP_COUNT(programs); p++) {
        char *table = keys_of(programs[p], "imported");
        for (const import_table *const *t = ndp_import_tables; *t; t++)
            for (int i = 0; i < (*t)->n; i++) {
                const import_key *k = &(*t)->keys[i];
                bool reads = (k->kind == IMPORT_VALUE || k->kind == IMPORT_WORD) && !k->why &&
                             k->offset != offsetof(ndp_import, read.ignored);
                bool trainers = p == 1 && strcmp(k->section, "trainer") == 0; /* read as LLaMA-Factory's */
                if (!reads || (strcmp(k->section, sampled[p].section) != 0 && !trainers))
                    continue;
                const sample *s = sample_of(sampled[p].samples, k->names);
                if (!s)
                    fail_msg("%s has no sample", k->names);
                check_sample(table, sampled[p].base, s);
            }
        free(table);
    }
}

static void check_line(const char *text, const char *line) {
    if (!strstr(text, line))
        fail_msg("no line '%s'", line);
}

/* A row of each kind, as a reader sees it. */
static void rows_say_what_happens(void **state) {
    (void)state;
    char *text = keys_of("axolotl", NULL);
    check_line(text,
               "\n| `deepspeed.train_micro_batch_size_per_gpu`, `micro_batch_size` | `batch.micro_batch_size` |  |\n");
    check_line(text, "\n| `base_model` | `model.path` |  |\n");
    check_line(text, "\n| `adam_beta1`, `adam_beta2` | `optimizer.betas` |  |\n");
    check_line(text, "\n| `optimizer` | `optimizer.name` | `adamw_torch`, ");
    check_line(text, "\n| `optimizer`: `lion_*`, `paged_lion_*` | not the same as Lion in fp32");
    check_line(text, "`fp16`, `float16` | `precision.compute` | bf16 |\n");
    check_line(text,
               "\n| `datasets.train_on_eos`, `datasets.train_on_eot`: another value | the token that ends a turn ");
    check_line(text,
               "\n| `relora`, `relora_*` | an adapter is trained as one, and merged by `ndparallel merge` |  |\n");
    check_line(text, "\n| `load_in_4bit` | `adapter.type`, `adapter.base` |");
    check_line(text, "or from \\<think>...\\</think> in the content");
    free(text);
    text = keys_of("accelerate", NULL);
    check_line(text, "\n| `parallelism_config.tp_size`, `deepspeed_config.tensor_parallel.autotp_size`, "
                     "`megatron_lm_config.tp_degree`, `tp_config.tp_size` |");
    check_line(text, "\n| `fsdp_config` | a section | its keys may have the prefix `fsdp_` |\n");
    free(text);
}

static void one_table_has_no_heading(void **state) {
    (void)state;
    char *all = keys_of("accelerate", NULL);
    static const char *const parts[] = {"imported", "left-out", "unsupported"};
    for (int i = 0; i < NDP_COUNT(parts); i++) {
        char *one = keys_of("accelerate", parts[i]);
        assert_memory_equal(one, "| accelerate | ", 15);
        check_line(all, one);
        free(one);
    }
    assert_memory_equal(all, "### Imported\n\n| ", 16);
    free(all);
}

static void other_words_are_errors(void **state) {
    (void)state;
    char *text;
    CHECK_FAILS(ndp_config_import_keys("torchtitan", NULL, &text), NDP_EINVAL,
                "--keys 'torchtitan': expected axolotl, llamafactory, trl, accelerate, deepspeed or transformers");
    CHECK_FAILS(ndp_config_import_keys("axolotl", "all", &text), NDP_EINVAL,
                "--keys axolotl 'all': expected imported, left-out or unsupported");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_listed),    cmocka_unit_test(imported_keys_exist),
        cmocka_unit_test(rows_say_what_happens),  cmocka_unit_test(one_table_has_no_heading),
        cmocka_unit_test(other_words_are_errors), cmocka_unit_test(keys_set_what_the_table_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
