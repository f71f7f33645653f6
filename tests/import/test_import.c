#include "import/imported.h"
#include "place.h"

#include <unistd.h>

/* ---- Axolotl ---- */

static void axolotl_with_every_axis(void **state) {
    (void)state;
    imported i;
    CHECK_OK(import_file(&i, "axolotl_nd.yaml", NULL));
    CHECK_KEYS(&i, {"model.path", "\"models/small\""}, {"model.init", "pretrained"},
               {"data.files", "[\"data/books.jsonl\", \"data/news.jsonl\", \"data/more.jsonl\"]"},
               {"data.text_field", "\"body\""}, {"data.sequence_length", "4096"}, {"data.document_mask", "true"},
               {"parallelism.dp_shard_size", "4"}, {"parallelism.dp_replicate_size", "2"}, {"parallelism.tp_size", "2"},
               {"parallelism.cp_size", "1"}, {"parallelism.reshard_after_forward", "false"},
               {"precision.compute", "bf16"}, {"batch.micro_batch_size", "2"}, {"batch.global_batch_size", "48"},
               {"optimizer.name", "adamw"}, {"optimizer.lr", "2e-05"}, {"optimizer.betas", "[0.9, 0.95]"},
               {"optimizer.eps", "1e-06"}, {"optimizer.weight_decay", "0.01"}, {"optimizer.max_grad_norm", "0.5"},
               {"schedule.name", "cosine"}, {"schedule.min_lr_ratio", "0.1"}, {"schedule.warmup_steps", "50"},
               {"train.steps", "500"}, {"train.seed", "7"}, {"train.recompute", "block"},
               {"train.output_dir", "\"./out\""}, {"train.log_every", "5"}, {"checkpoint.every", "125"},
               {"checkpoint.keep", "2"});
    CHECK_NOTES(&i, "an Axolotl configuration",
                "global batch 48 samples = micro batch 2 x accumulation 3 x 8 data ranks (dp_replicate 2 x dp_shard 4)",
                "flash_attention (line 35): ndparallel has its own kernels for exact attention", "tf32 (line 51)",
                "num_epochs 2", "wandb_name (line 59): metrics are in", "CutCrossEntropyPlugin",
                "special_tokens.pad_token (line 61)",
                "fsdp_config.auto_wrap_policy (line 16), fsdp_config.transformer_layer_cls_to_wrap (line 17): the "
                "units of sharding");
    assert_null(strstr(i.notes, "wandb_project")); /* it is empty */
    assert_null(strstr(i.notes, "--ranks"));
    check_round_trip(&i);
    release(&i);
}

/* What a silent file means: Axolotl's values, not ours. */
static void axolotl_defaults(void **state) {
    (void)state;
    imported i;
    CHECK_OK(import(
        &i, "base_model: m\ndatasets: [{path: a.jsonl, type: completion}]\nlearning_rate: 1e-4\nmax_steps: 1000\n",
        NULL));
    CHECK_KEYS(&i, {"data.sequence_length", "512"}, {"optimizer.weight_decay", "0"},
               {"optimizer.betas", "[0.9, 0.999]"}, {"optimizer.eps", "1e-08"}, {"optimizer.max_grad_norm", "1"},
               {"schedule.name", "cosine"}, {"schedule.min_lr_ratio", "0"}, {"schedule.warmup_steps", "30"},
               {"precision.compute", "bf16"}, {"batch.global_batch_size", "1"}, {"train.recompute", "none"},
               {"parallelism.dp_shard_size", "1"}, {"train.output_dir", "\"./model-out\""}, {"checkpoint.keep", "4"},
               {"data.packing", "false"}, {"data.document_mask", "true"}, {"data.overlong", "auto"},
               {"data.format", "text"}, {"data.shuffle", "true"}, {"data.validation_fraction", "0"},
               {"train.log_every", "5"}, {"train.eval_every", "0"}, {"checkpoint.every", "0"});
    CHECK_NOTES(&i, "assuming 1, with one data rank. Use --ranks N to set it", "Axolotl's 3%, at most 100",
                "save_strategy (default: epoch) counts epochs");
    assert_null(strstr(i.notes, "no datasets"));
    assert_null(strstr(i.notes, "data.train_on")); /* texts alone */
    release(&i);
    CHECK_OK(import(&i, "base_model: m\nmax_steps: 1000\n", NULL));
    CHECK_NOTES(&i, "no datasets: set data.files");
    release(&i);
}

static void axolotl_layouts(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int ranks, replicate, shard, cp, sp, global;
        bool reshard;
    } cases[] = {
        {"tensor_parallel_size: 2", 8, 4, 1, 1, 1, 4, true},
        {"tensor_parallel_size: 2\nfsdp_config: {reshard_after_forward: true}", 8, 1, 4, 1, 1, 4, true},
        {"fsdp: [full_shard, auto_wrap]", 8, 1, 8, 1, 1, 8, true},
        {"deepspeed: ../zero_stage1_config.json", 2, 1, 2, 1, 1, 2, false},
        {"fsdp: full_shard auto_wrap", 8, 1, 8, 1, 1, 8, true},
        {"fsdp: [shard_grad_op]", 8, 1, 8, 1, 1, 8, false},
        {"fsdp: [no_shard]", 8, 8, 1, 1, 1, 8, true},
        {"fsdp_config: {fsdp_sharding_strategy: SHARD_GRAD_OP}", 4, 1, 4, 1, 1, 4, false},
        {"dp_shard_size: 2\nfsdp_config: {fsdp_version: 2}", 8, 4, 2, 1, 1, 8, true},
        {"dp_replicate_size: 2\nfsdp_config: {version: 2}", 8, 2, 4, 1, 1, 8, true},
        {"dp_shard_size: 2\ncontext_parallel_size: 2\nfsdp_config: {version: 2}", 4, 1, 2, 2, 1, 2, true},
        {"dp_shard_size: 3\ndp_replicate_size: 2", 0, 2, 3, 1, 1, 6, true},
        {"sequence_parallel_degree: 4", 8, 2, 1, 4, 1, 2, true},
        {"deepspeed: x/zero1.json\ncontext_parallel_size: 2", 8, 1, 4, 1, 2, 4, false},
        {"deepspeed: {zero_optimization: {stage: 3, overlap_comm: true}}", 8, 1, 8, 1, 1, 8, true},
        {"deepspeed: x/zero3_bf16.json\ngradient_accumulation_steps: 5", 4, 1, 4, 1, 1, 20, true},
        {"world_size: 4", 0, 4, 1, 1, 1, 4, true},
        {"micro_batch_size: 3\nbatch_size: 12", 2, 2, 1, 1, 1, 24, true},
    };
    for (int k = 0; k < NDP_COUNT(cases); k++) {
        char text[512];
        snprintf(text, sizeof text, "base_model: m\ndatasets: [{path: a.jsonl, type: completion}]\nmax_steps: 9\n%s\n",
                 cases[k].text);
        ndp_import_opts o = NDP_IMPORT_OPTS_INIT;
        o.ranks = cases[k].ranks;
        imported i;
        CHECK_OK(import(&i, text, &o));
        check_int(cases[k].text, "dp_replicate_size", i.c.parallelism.size[NDP_DP_REPLICATE], cases[k].replicate);
        check_int(cases[k].text, "dp_shard_size", i.c.parallelism.size[NDP_DP_SHARD], cases[k].shard);
        check_int(cases[k].text, "cp_size", i.c.parallelism.size[NDP_CP], cases[k].cp);
        check_int(cases[k].text, "sp_size", i.c.parallelism.size[NDP_SP], cases[k].sp);
        check_int(cases[k].text, "global_batch_size", i.c.batch.global_batch_size, cases[k].global);
        check_int(cases[k].text, "reshard_after_forward", i.c.parallelism.reshard_after_forward, cases[k].reshard);
        release(&i);
    }
}

/* The Trainer's betas are those of its Adam keys, whatever the optimizer. */
static void axolotl_lion(void **state) {
    (void)state;
    static const struct {
        const char *text, *set, *betas, *decay;
    } cases[] = {{"optimizer: lion_32bit\n", NULL, "[0.9, 0.999]", "0"},
                 {"optimizer: paged_lion_32bit\nadam_beta2: 0.99\n", NULL, "[0.9, 0.99]", "0"},
                 {"optimizer: lion_32bit\nadam_beta2: 0.95\nweight_decay: 0\n", NULL, "[0.9, 0.95]", "0"},
                 {"optimizer: lion_32bit\nweight_decay: 1\n", "optimizer.weight_decay=0.5", "[0.9, 0.999]", "0.5"},
                 {"optimizer: adamw_8bit\nweight_decay: 1\n", "optimizer.name=lion", "[0.9, 0.999]", "1"}};
    for (int k = 0; k < NDP_COUNT(cases); k++) {
        char text[512];
        ndp_import_opts o = NDP_IMPORT_OPTS_INIT;
        imported i;
        snprintf(text, sizeof text, "base_model: m\ndatasets: [{path: a.jsonl, type: completion}]\nmax_steps: 9\n%s",
                 cases[k].text);
        o.assignments = &cases[k].set;
        o.assignment_count = cases[k].set != NULL;
        CHECK_OK(import(&i, text, &o));
        CHECK_KEYS(&i, {"optimizer.name", "lion"}, {"optimizer.betas", cases[k].betas},
                   {"optimizer.weight_decay", cases[k].decay});
        check_round_trip(&i);
        release(&i);
    }
}

static void axolotl_context_parallel(void **state) {
    (void)state;
    imported i;
    ndp_import_opts o = NDP_IMPORT_OPTS_INIT;
    o.ranks = 8;
    CHECK_OK(import_file(&i, "axolotl_context.yaml", &o));
    CHECK_KEYS(&i, {"parallelism.cp_size", "2"}, {"parallelism.cp_method", "ring"}, {"parallelism.cp_zigzag", "false"},
               {"parallelism.dp_shard_size", "4"}, {"batch.global_batch_size", "16"}, {"optimizer.name", "sgd"},
               {"schedule.name", "constant"}, {"schedule.warmup_steps", "0"}, {"precision.compute", "fp32"},
               {"train.recompute", "block"});
    check_round_trip(&i);
    release(&i);
    static const char *const packed =
        "base_model: m\ndatasets: [{path: a.jsonl, type: completion}]\nmax_steps: 9\nsample_packing: true\n"
        "context_parallel_size: 2\n";
    CHECK_OK(import(&i, packed, NULL));
    CHECK_KEYS(&i, {"parallelism.cp_method", "all_gather"}); /* varlen_llama3 */
    release(&i);
}

static void axolotl_precisions(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"bf16: true", "bf16"}, {"bf16: full", "bf16"},        {"bf16: auto", "bf16"},    {"", "bf16"},
        {"bf16: no", "fp32"},   {"bf16: False", "fp32"},       {"float32: true", "fp32"}, {"bfloat16: auto", "bf16"},
        {"fp16: auto", "bf16"}, {"bf16:\nfp16: false", "bf16"}};
    for (int k = 0; k < NDP_COUNT(cases); k++) {
        char text[512];
        snprintf(text, sizeof text, "base_model: m\ndatasets: [{path: a.jsonl, type: completion}]\nmax_steps: 9\n%s\n",
                 cases[k][0]);
        imported i;
        CHECK_OK(import(&i, text, NULL));
        CHECK_KEYS(&i, {"precision.compute", cases[k][1]});
        release(&i);
    }
}

/* ---- data ---- */

static void conversations(void **state) {
    (void)state;
    imported i;
    CHECK_OK(import_file(&i, "axolotl_chat.yaml", NULL));
    CHECK_KEYS(&i, {"data.files", "[\"data/chats.jsonl.gz\", \"data/more.json\"]"}, {"data.format", "messages"},
               {"data.messages_field", "\"turns\""}, {"data.chat_template", "\"qwen2.5\""},
               {"data.train_on", "assistant"}, {"data.packing", "true"}, {"data.overlong", "error"},
               {"data.sequence_length", "192"}, {"data.validation_fraction", "0.25"}, {"train.eval_every", "1"},
               {"checkpoint.every", "1"}, {"batch.global_batch_size", "4"});
    CHECK_NOTES(&i, "training is on all that follows the assistant's header",
                "eval_loss is the mean over all held-out tokens", "pad_to_sequence_len (line 36): rows are");
    assert_null(strstr(i.notes, "which Axolotl"));
    check_round_trip(&i);
    release(&i);
}

static void questions(void **state) {
    (void)state;
    imported i;
    CHECK_OK(import_file(&i, "axolotl_instruct.yaml", NULL));
    CHECK_KEYS(&i, {"data.files", "[\"data/questions.jsonl\"]"}, {"data.validation_files", "[\"data/held.jsonl\"]"},
               {"data.format", "instruction"}, {"data.prompt_field", "\"question\""},
               {"data.input_field", "\"context\""}, {"data.response_field", "\"answer\""},
               {"data.chat_template", "\"plain\""}, {"data.train_on", "all"}, {"data.packing", "false"},
               {"data.overlong", "drop"}, {"train.eval_every", "1"}, {"checkpoint.every", "0"});
    check_round_trip(&i);
    release(&i);
}

/* More of a file, a key of ours, its value. */
static const char *const data_keys[][3] = {
    {"datasets: [{path: a.jsonl.zst, type: completion}]", "data.files", "[\"a.jsonl.zst\"]"},
    {"datasets: {path: b.NDJSON.xz, ds_type: json, type: completion}", "data.files", "[\"b.NDJSON.xz\"]"},
    {"datasets: [{path: json, data_files: ['data/*.json'], type: completion}]", "data.files", "[\"data/*.json\"]"},
    {"pretraining_dataset: [{path: a.jsonl, text_column: body}]", "data.text_field", "\"body\""},
    {"pretraining_dataset: a.jsonl", "data.format", "text"},
    {"pretraining_dataset: a.jsonl\nsample_packing: true\npretrain_multipack_attn: false", "data.document_mask",
     "false"},
    {"datasets: [{path: a.jsonl, type: alpaca}]", "data.format", "alpaca"},
    {"datasets: [{path: a.jsonl, type: alpaca}]", "data.train_on", "assistant"},
    {"datasets: [{path: a.jsonl, type: sharegpt}]", "data.format", "sharegpt"},
    {"datasets: [{path: a.jsonl, type: input_output}]", "data.format", "input_output"},
    {"datasets: [{path: a.jsonl, type: chat_template, roles: {assistant: [gpt, bot]}}, {path: b.jsonl, type: "
     "chat_template, roles: {user: [human, person], assistant: [bot]}}]",
     "data.roles", "[\"bot: assistant\", \"person: user\"]"},
    {"datasets: [{path: a.jsonl, type: chat_template, message_property_mappings: {role: speaker, content: value}}]",
     "data.role_field", "\"speaker\""},
    {"datasets: [{path: a.jsonl, type: chat_template, message_field_content: says}]", "data.content_field", "\"says\""},
    {"datasets: [{path: a.jsonl, type: chat_template, message_property_mappings: {role: from, content: value}}]",
     "data.role_field", "null"},
    {"datasets: [{path: a.jsonl, type: chat_template, chat_template: gemma}]", "data.chat_template", "\"gemma2\""},
    {"datasets: [{path: a.jsonl, type: chat_template}]", "data.chat_template", "null"},
    {"datasets: [{path: a.jsonl, type: chat_template}]", "data.messages_field", "\"messages\""},
    {"datasets: [{path: a.jsonl, type: chat_template}]", "data.train_on", "assistant"},
    {"datasets: [{path: a.jsonl, type: chat_template}]\ntrain_on_inputs: true", "data.train_on", "all"},
    {"datasets: [{path: a.jsonl, type: chat_template}]\nchat_template: chatml", "data.chat_template", "\"chatml\""},
    {"chat_template: tokenizer_default\ndatasets: [{path: a.jsonl, type: chat_template, chat_template: qwen3}]",
     "data.chat_template", "\"qwen3\""},
    {"datasets: [{path: a.jsonl, type: chat_template}]\nchat_template: qwen3_5", "data.chat_template", "\"qwen3.5\""},
    {"datasets: [{path: a.jsonl, type: chat_template}]\nchat_template: gemma4", "data.chat_template", "\"gemma4\""},
    {"datasets: [{path: a.jsonl, type: chat_template}]\nchat_template: phi_3", "data.chat_template", "\"phi3-bos\""},
    {"chat_template: llama3\ndatasets: [{path: a.jsonl, type: completion}]", "data.chat_template", "null"},
    {"datasets: [{path: a.jsonl, type: chat_template}, {path: b.jsonl, type: completion}]", "data.format", "messages"},
    {"datasets: [{path: a.jsonl, type: chat_template}]\nexcess_length_strategy: drop", "data.overlong", "drop"},
    {"datasets: [{path: a.jsonl, type: chat_template}]", "data.overlong", "drop"},
    {"datasets: [{path: a.jsonl, type: chat_template}]\nexcess_length_strategy: truncate", "data.overlong", "truncate"},
    {"datasets: [{path: a.jsonl, type: chat_template}]\nexcess_length_strategy: raise", "data.overlong", "error"},
    {"datasets: [{path: a.jsonl, type: completion}]\nexcess_length_strategy: truncate", "data.overlong", "auto"},
    {"sample_packing: true", "data.packing", "true"},
    {"sample_packing: false", "data.packing", "false"},
    {"curriculum_sampling: true\nshuffle_merged_datasets: false", "data.shuffle", "false"},
    {"curriculum_sampling: true", "data.shuffle", "true"},
    {"shuffle_merged_datasets: false", "data.shuffle", "true"},
    {"val_set_size: 0.02", "data.validation_fraction", "0.02"},
    {"val_set_size: 0.0", "data.validation_fraction", "0"},
    {"test_datasets: [{path: e.jsonl, type: completion, split: train}]", "data.validation_files", "[\"e.jsonl\"]"},
    {"val_set_size: 0.02\neval_steps: 7", "train.eval_every", "7"},
    {"val_set_size: 0.02\neval_steps: 0.1", "train.eval_every", "20"},
    {"val_set_size: 0.02\nevals_per_epoch: 4", "train.eval_every", "50"},
    {"val_set_size: 0.02\nevals_per_epoch: 2\nnum_epochs: 3", "train.eval_every", "34"},
    {"val_set_size: 0.02\nevals_per_epoch: 1", "train.eval_every", "0"},
    {"val_set_size: 0.02\neval_strategy: steps\nlogging_steps: 9", "train.eval_every", "9"},
    {"val_set_size: 0.02\neval_strategy: epoch", "train.eval_every", "0"},
    {"val_set_size: 0.02\neval_strategy: 'no'", "train.eval_every", "0"},
    {"eval_steps: 7", "train.eval_every", "0"},
    {"saves_per_epoch: 4", "checkpoint.every", "50"},
    {"saves_per_epoch: 1\nnum_epochs: 4", "checkpoint.every", "50"},
    {"save_strategy: steps", "checkpoint.every", "500"},
    {"save_strategy: 'no'", "checkpoint.every", "0"},
};

static void data_sets(void **state) {
    (void)state;
    for (int k = 0; k < NDP_COUNT(data_keys); k++) {
        char text[512];
        snprintf(text, sizeof text, "base_model: m\nmax_steps: 200\n%s\n", data_keys[k][0]);
        imported i;
        CHECK_OK(import(&i, text, NULL));
        check_keys(&i, (const char *const[][2]){{data_keys[k][1], data_keys[k][2]}, {NULL, NULL}});
        release(&i);
    }
}

/* Where epochs count, the user says train.steps, and an epoch is a part of them. */
static void epochs_of_steps(void **state) {
    (void)state;
    static const char file[] = "base_model: m\ndatasets: [{path: a.jsonl, type: completion}]\nnum_epochs: 3\n"
                               "val_set_size: 0.1\neval_strategy: epoch\nlearning_rate: 1e-4\n";
    const char *sets[] = {"train.steps=310"};
    ndp_import_opts o = NDP_IMPORT_OPTS_INIT;
    o.assignments = sets;
    o.assignment_count = 1;
    imported i;
    CHECK_OK(import(&i, file, &o));
    CHECK_KEYS(&i, {"train.steps", "310"}, {"train.eval_every", "104"}, {"checkpoint.every", "104"});
    release(&i);
}

/* The steps of epochs are counted when the run starts, so what Axolotl derives from them is a share, or at the end. */
static void epochs_without_steps(void **state) {
    (void)state;
    static const char base[] = "base_model: m\ndatasets: [{path: a.jsonl, type: completion}]\nval_set_size: 0.1\n";
    static const struct {
        const char *more, *epochs, *ratio, *steps, *note;
    } cases[] = {{"num_epochs: 3\nwarmup_ratio: 0.1", "3", "0.1", "10", "only at the end"},
                 {"num_epochs: 0.5\nwarmup_steps: 7", "0.5", "0", "7", "eval_loss"},
                 {"num_epochs: 2\nlr_scheduler: constant", "2", "0", "0", "eval_loss"},
                 {"num_epochs: 2\neval_steps: 0.25", "2", "0.03", "10", "eval_steps is a share of the steps"},
                 {"", "1", "0.03", "10", "train.epochs 1: Axolotl's num_epochs where none is given"}};
    for (int k = 0; k < NDP_COUNT(cases); k++) {
        char text[512];
        imported i;
        snprintf(text, sizeof text, "%s%s\n", base, cases[k].more);
        CHECK_OK(import(&i, text, NULL));
        CHECK_KEYS(&i, {"train.epochs", cases[k].epochs}, {"schedule.warmup_ratio", cases[k].ratio},
                   {"schedule.warmup_steps", cases[k].steps}, {"train.eval_every", "0"}, {"checkpoint.every", "0"});
        CHECK_NOTES(&i, cases[k].note);
        check_round_trip(&i);
        release(&i);
    }
}

/* What a file cannot say is settled by the key that the message names, and by it alone. */
static void settled_data(void **state) {
    (void)state;
    static char *const cases[][2] = {
        {"datasets: [{path: a.jsonl, type: 'alpaca:poem'}]", "data.format=instruction"},
        {"datasets: [{path: a.txt, type: completion}]", "data.files=[a.txt]"},
        {"datasets: [{path: a.jsonl, type: chat_template, chat_template: jamba}]", "data.chat_template=null"},
        {"datasets: [{path: a.jsonl, type: chat_template, roles_to_train: [user]}]", "data.train_on=all"},
        {"datasets: [{path: a.jsonl, type: chat_template, message_property_mappings: {weight: trained}}]",
         "data.files=[b.jsonl]"},
        {"datasets: [{path: a.jsonl, type: chat_template, roles: {system: [user]}}]", "data.files=[b.jsonl]"},
        {"special_tokens: {bos_token: x, additional_special_tokens: [y]}", "data.tokenizer=changed"},
        {"test_datasets: [{path: someone, type: completion}]", "data.validation_files=[v.jsonl]"},
        {"val_set_size: 100", "data.validation_fraction=0.1"},
        {"pretraining_sample_concatenation: true", "data.document_mask=false"},
    };
    for (int k = 0; k < NDP_COUNT(cases); k++) {
        char text[512];
        const char *sets[] = {cases[k][1]};
        snprintf(text, sizeof text, "base_model: m\nmax_steps: 200\n%s\n", cases[k][0]);
        ndp_import_opts o = NDP_IMPORT_OPTS_INIT;
        imported i;
        CHECK_FAILS(import(&i, text, &o), NDP_EINVAL, "--force imports without");
        release(&i);
        o.assignments = sets;
        o.assignment_count = 1;
        CHECK_OK(import(&i, text, &o));
        CHECK_NOTES(&i, "not carried over, settled by --set:\n");
        release(&i);
    }
}

/* Data sets on the Hub keep their names; those that are not in the cache are named with the command that gets them. */
static void sets_on_the_hub(void **state) {
    (void)state;
    static const struct {
        const char *set, *files, *note;
    } cases[] = {
        {"path: org/set, type: completion", "[\"org/set:train\"]",
         "data.files: 'org/set:train' is neither a path here nor a data set in the Hub cache /nowhere/hub"},
        {"path: org/set, name: en, split: validation, revision: v1, type: completion", "[\"org/set@v1:en/validation\"]",
         "download it: hf download --repo-type dataset org/set --revision v1"},
        {"path: org/set, data_files: [sub/a.jsonl.zst], type: completion", "[\"org/set/sub/a.jsonl.zst\"]",
         "hf download org/set sub/a.jsonl.zst --repo-type dataset --local-dir org/set"},
        {"path: a.parquet, type: completion", "[\"a.parquet\"]", "model.path"},
        {"path: csv, data_files: a.csv, type: completion", "[\"a.csv\"]", "download it: hf download org/model\n"}};
    setenv("HF_HOME", "/nowhere", 1);
    for (int k = 0; k < NDP_COUNT(cases); k++) {
        char text[512];
        imported i;
        snprintf(text, sizeof text, "base_model: org/model\nmax_steps: 200\ndatasets: [{%s}]\n", cases[k].set);
        CHECK_OK(import(&i, text, NULL));
        CHECK_KEYS(&i, {"model.path", "\"org/model\""}, {"data.files", cases[k].files});
        CHECK_NOTES(&i, cases[k].note);
        release(&i);
    }
    unsetenv("HF_HOME");
}

/* ---- what cannot be had ---- */

static void refusals_name_every_key(void **state) {
    (void)state;
    imported i;
    CHECK_FAILS(import_file(&i, "axolotl_lora.yaml", NULL), NDP_EINVAL,
                "axolotl_lora.yaml:2: 'relora: true': "
                "an adapter is trained as one, and merged by `ndparallel merge`\n"
                "  relora: true\n  ^");
    static const char *const words[] = {
        "line 3: 'adapter: llama-adapter': adapter.type is lora or qlora", "; or --set optimizer.name=...",
        "line 14: 'optimizer: adafactor': not the same as AdamW with states of fp32 or of 8 bits",
        "line 17: 'learning_rat': unknown key; did you mean 'learning_rate'?", "--force imports without them"};
    for (int k = 0; k < NDP_COUNT(words); k++)
        if (!strstr(ndp_error_message(), words[k]))
            fail_msg("the message lacks '%s': %s", words[k], ndp_error_message());
    assert_null(i.notes);
    release(&i);
}

static void force_and_set(void **state) {
    (void)state;
    imported i;
    ndp_import_opts o = NDP_IMPORT_OPTS_INIT;
    const char *sets[] = {"train.steps=300", "data.files=[rows.jsonl]", "optimizer.name=adamw", "parallelism.tp_size=2",
                          "data.format=instruction"};
    o.assignments = sets;
    o.assignment_count = NDP_COUNT(sets);
    CHECK_FAILS(import_file(&i, "axolotl_lora.yaml", &o), NDP_EINVAL, "line 17: 'learning_rat': unknown key");
    assert_null(strstr(ndp_error_message(), "optimizer")); /* settled */
    release(&i);
    o.force = true;
    CHECK_OK(import_file(&i, "axolotl_lora.yaml", &o));
    CHECK_KEYS(&i, {"train.steps", "300"}, {"data.files", "[\"rows.jsonl\"]"}, {"schedule.warmup_steps", "9"},
               {"parallelism.tp_size", "2"}, {"batch.global_batch_size", "8"}, {"optimizer.lr", "0.0002"},
               {"data.format", "instruction"}, {"train.epochs", "0"}, {"data.packing", "false"},
               {"data.validation_fraction", "0.05"}, {"data.chat_template", "null"}, {"checkpoint.every", "100"});
    CHECK_NOTES(&i, "NOT CARRIED OVER, BY --force; these change the result:\n", "adapter: llama-adapter (line 3)",
                "settled by --set:\n", "optimizer: adafactor (line 14)",
                "unknown keys:\n  learning_rat (line 17): unknown key");
    check_round_trip(&i);
    release(&i);
    const char *wrong[] = {"train.stps=3"};
    o.assignments = wrong;
    o.assignment_count = 1;
    CHECK_FAILS(import_file(&i, "axolotl_lora.yaml", &o), NDP_EINVAL, "did you mean 'steps'?");
    release(&i);
}

/* text, message: its words */
static const char *const refused[][2] = {
    /* values */
    {"base_model: m\nlearning_rate: fast\n",
     "their.yaml:2:16: 'learning_rate' is 'fast', expected a number in [0, inf)\n"
     "  learning_rate: fast\n                 ^"},
    {"base_model: m\nmicro_batch_size: 0\n",
     "their.yaml:2:19: 'micro_batch_size' is '0', expected a whole number from 1"},
    {"base_model: m\nmicro_batch_size: [2]\n", "'micro_batch_size' is a list"},
    {"base_model: m\noptimizer: adamw_torh\n",
     "their.yaml:2:12: 'optimizer' is 'adamw_torh', expected one of adamw_torch, "},
    {"base_model: m\noptimizer: adamw_torh\n", "did you mean 'adamw_torch'?\n  optimizer: adamw_torh\n             ^"},
    {"base_model: m\nlr_scheduler: [cosine]\n", "their.yaml:2:15: 'lr_scheduler' is 'a list', expected one of"},
    {"base_model: m\nsave_steps: 2.5\nmax_steps: 4\n", "their.yaml:2:1: 'save_steps' is 2.5"},
    {"base_model: m\nmax_steps: 0\n", "their.yaml:2:1: 'max_steps' is 0"},
    {"base_model: m\nfsdp_config: full\n", "their.yaml:2:14: 'fsdp_config' is a section"},
    {"base_model: m\nfsdp: [full_shard, sharded]\n", "their.yaml:2:1: 'fsdp' has 'sharded', expected full_shard"},
    {"base_model: m\nfsdp_config: {fsdp_shardin_strategy: 1}\n",
     "their.yaml:2:15: 'fsdp_config.fsdp_shardin_strategy': unknown key; did you mean 'fsdp_sharding_strategy'?"},
    {"base_model: m\ndatasets: [{type: completion}]\n", "'datasets[0]' has no path"},
    {"base_model: m\nbase_model: n\n", "their.yaml:2:1: duplicate key"},
    {"base_model: m\ndatasets: [\n", "their.yaml:2:12: flow sequence without"},
    /* values that go against each other */
    {"base_model: m\nmicro_batch_size: 3\nbatch_size: 4\n",
     "their.yaml:3:1: 'batch_size' 4 is not a multiple of micro_batch_size 3"},
    {"base_model: m\nbatch_size: 4\ngradient_accumulation_steps: 4\n", "their.yaml:2:1: 'batch_size' and 'gradient"},
    {"base_model: m\nmicro_batch_size: 16777216\ngradient_accumulation_steps: 16777216\n", "is more than 1073741824"},
    {"base_model: m\ntensor_parallel_size: 1048576\ncontext_parallel_size: 1048576\n", "more than 1048576 ranks"},
    {"base_model: m\nexpert_parallel_size: 1048576\ndp_shard_size: 2\n",
     "their.yaml:2:1: dp_shard_size x expert_parallel_size is 2097152 ranks"},
    {"num_processes: 8\ndistributed_type: FSDP\nparallelism_config: {parallelism_config_dp_shard_size: 2}\n",
     "their.yaml:1:1: the sizes multiply to 2 (pp 1 x dp_replicate 1 x dp_shard 2 x cp 1 x sp 1 x tp 1), but there are "
     "8 ranks"},
    {"num_processes: 3\ndistributed_type: FSDP\nparallelism_config: {tp_size: 2}\n",
     "their.yaml:1:1: the sizes multiply to 2"},
    {"num_processes: 3\nnum_machines: 2\ndistributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: HYBRID_SHARD}\n",
     "their.yaml:2:1: HYBRID_SHARD shards the parameters within a machine, but 3 ranks"},
    /* what changes the result */
    {"base_model: m\nadapter: ia3\nmax_steps: 3\n", "their.yaml:2:1: 'adapter: ia3': adapter.type is lora or qlora"},
    {"base_model: m\nadapter: lora\nmax_steps: 3\n",
     "their.yaml:2:1: 'adapter' without lora_target_modules or lora_target_linear"},
    {"base_model: m\nload_in_4bit: true\nmax_steps: 3\n",
     "their.yaml:2:1: 'load_in_4bit: true': quantized weights are not trained"},
    {"base_model: m\nadapter: lora\nlora_target_modules: ['model.layers.(?!k_).*_proj']\nmax_steps: 3\n",
     "a regular expression among names is a name for PEFT"},
    {"base_model: m\nadapter: lora\nlora_target_modules: [q_proj, lm_head]\nmax_steps: 3\n",
     "'lora_target_modules: lm_head': embedding and head have no factors"},
    {"base_model: m\nlr_quadratic_warmup: true\nmax_steps: 3\n", "'lr_quadratic_warmup: true': warm-up is linear"},
    {"base_model: m\nunfrozen_parameters: ['^model.embed_tokens.weight$[:32000]']\nmax_steps: 3\n",
     "'unfrozen_parameters: ^model.embed_tokens.weight$[:32000]': some rows of a tensor; tensors are trained whole"},
    {"base_model: m\nmodel_config: {router_aux_loss_coef: 1}\nmax_steps: 3\n",
     "'model_config.router_aux_loss_coef: 1': change the model folder's config.json"},
    {"base_model: m\nmodel_quantization_config: Other\nmax_steps: 3\n", "weights are quantized beside an adapter only"},
    {"base_model: m\nrl: grpo\nmax_steps: 3\n", "'rl: grpo': rewards are not supported"},
    {"base_model: m\nplugins: [my.Plugin]\nmax_steps: 3\n", "'plugins: my.Plugin': a plugin of another program"},
    {"base_model: m\nspecial_tokens: {mask_token: x}\nmax_steps: 3\n",
     "'special_tokens.mask_token: x': change the model folder's"},
    {"base_model: m\ntokens: [x]\nmax_steps: 3\n", "'tokens: x': whether the tokenizer has it is not known"},
    {"base_model: m\nmax_steps: 3\nattn_implementation: sage\n", "'attn_implementation: sage': attention is exact"},
    {"base_model: m\nmax_steps: 3\noptimizer: galore_adamw\n",
     "'optimizer: galore_adamw': not the same as AdamW with states of fp32"},
    {"base_model: m\nmax_steps: 3\noptimizer: lion_8bit\n",
     "'optimizer: lion_8bit': not the same as Lion in fp32; optimizer.name is one of: adamw adamw8bit sgd lion muon"},
    {"base_model: m\nmax_steps: 3\noptimizer: muon\n",
     "'optimizer: muon': Muon is read of Axolotl's files with sharded"},
    {"base_model: m\nmax_steps: 3\noptimizer: lion_32bit\nweight_decay: 0.1\n",
     "their.yaml:4:1: 'weight_decay: 0.1': the Trainer's Lion adds weight decay to the gradient"},
    {"base_model: m\nmax_steps: 3\ntrainer_cls: my.Trainer\n", "'trainer_cls: my.Trainer': a class of another program"},
    /* what is held out */
    {"base_model: m\nmax_steps: 3\nval_set_size: 200\n",
     "their.yaml:3:1: 'val_set_size: 200': data.validation_fraction is a fraction: this number / the "
     "number of records; or --set data.validation_fraction=..."},
    {"base_model: m\nmax_steps: 3\nval_set_size: 1\n",
     "their.yaml:3:1: 'val_set_size' is 1, expected a fraction below 1"},
    {"base_model: m\nmax_steps: 3\nval_set_size: 0.1\ntest_datasets: [{path: a.jsonl, type: completion}]\n",
     "their.yaml:3:1: 'val_set_size' and 'test_datasets' both set the held-out data"},
    {"base_model: m\nmax_steps: 3\neval_steps: 1.5\nval_set_size: 0.1\n", "their.yaml:3:1: 'eval_steps' is 1.5"},
    {"distributed_type: NO\nmixed_precision: fp8\n", "'mixed_precision: fp8': fp8 is not supported"},
    {"base_model: m\nmax_steps: 3\ndatasets: [{path: a.jsonl, split: 'train[:x]'}]\n",
     "'datasets[0].split: train[:x]': one split is read, or a slice of it"},
    {"base_model: m\nmax_steps: 3\ndatasets: [{path: org/set, split: train+test}]\n",
     "'datasets[0].split: train+test': one split is read, or a slice of it"},
    {"base_model: m\nmax_steps: 3\ndatasets: [{path: a.jsonl, feild: x}]\n",
     "'datasets[0].feild': unknown key; did you mean 'field'?"},
    {"base_model: m\nmax_steps: 3\ndeepspeed: {zero_optimization: {stage: 3, zero_quantized_weights: true}}\n",
     "'deepspeed.zero_optimization.zero_quantized_weights: true': communication is not quantized"},
    /* no configuration of theirs */
    {"", "expected the keys of a configuration of Axolotl, LLaMA-Factory, TRL, Accelerate, DeepSpeed or transformers"},
    {"[1, 2]", "their.yaml:1:1: expected the keys of a configuration of Axolotl"},
    {"colour: red\n", "their.yaml:1:1: the file has no key of a configuration of Axolotl, LLaMA-Factory, TRL, "
                      "Accelerate, DeepSpeed or transformers, such as base_model"},
    {"train: {steps: 3}\n", "no key of a configuration of Axolotl"},
    {"model: {path: m}\ndata: {files: [a]}\nbatch: {global_batch_size: 1}\n",
     "the keys are those of this program: a job file, which `ndparallel train` takes as it is"},
    {"{\"job\": {}, \"training\": {\"seq_len\": 8}, \"parallelism\": {}, \"model\": {\"flavor\": \"8B\"}}",
     "those of torchtitan; only configurations of Axolotl, LLaMA-Factory, TRL, Accelerate, DeepSpeed or transformers "
     "are "
     "imported: see docs/guide/from-torchtitan.md"},
    {"max_seq_length: 2048\nload_in_4bit: true\nfull_finetuning: false\nrandom_state: 3407\n",
     "those of Unsloth, which has no job files"},
    {"a: 1\n---\nb: 2\n", "a second document"},
    {"base_model: m\n<<: {lora_r: 8}\n", "'<<': a merge key of YAML 1.1: write its keys here"},
    {"{\n  // words\n  \"zero_optimization\": {\"stage\": 2} /* more */\n}", "missing comma in flow mapping"},
    {"{\"zero_optimization\": {\"stage\": 2}, \"zero_optimization\": {\"stage\": 3}}", "duplicate key"},
    {"base_model: m\nmax_steps: 3\ndatasets: !include sets.yaml\n", "'datasets: sets.yaml': records are read from"},
    {"# torchtitan\n[job]\ndump_folder = \"./outputs\"\n\n[parallelism]\ntensor_parallel_degree = 2\n",
     "their.yaml: a TOML file, as torchtitan's configurations are; only files of Axolotl, LLaMA-Factory, TRL, "
     "Accelerate, DeepSpeed and transformers (YAML or JSON) are imported: see docs/guide/from-torchtitan.md"},
    {"base_model: m\nmax_steps: 3\nwarmup_steps: 10.5\n",
     "their.yaml:3:1: 'warmup_steps' is 10.5, expected a whole number of steps, or a share below 1"},
};

/* A data set, what the message about it says. */
static const char *const refused_sets[][2] = {
    {"path: a.txt, type: completion", "'datasets[0]: a.txt': every line of a text file is a document there"},
    {"path: a.jsonl, ds_type: text, type: completion", "'datasets[0]: a.jsonl': every line"},
    {"path: a.jsonl, ds_type: csv, type: completion", "'datasets[0]: a.jsonl': records are read from .jsonl, .ndjson"},
    {"path: a.parquet, ds_type: json, type: completion", "'datasets[0]: a.parquet': records are read from .jsonl"},
    {"path: a.csv.gz, type: completion", "'datasets[0]: a.csv.gz': records are read from .jsonl"},
    {"path: a.jsonl, split: test, type: completion", "'datasets[0]: test': files are the split train"},
    {"path: a.jsonl.bz2, type: completion", "convert it, or rename it; or --set data.files=..."},
    {"path: someone, type: completion", "'datasets[0]: someone': not a file; download the data set"},
    {"path: some set, data_files: a.jsonl, type: completion", "'datasets[0]: some set': its data_files are not local"},
    {"path: parquet, data_files: a.jsonl, type: completion", "'datasets[0]: a.jsonl': records are read from"},
    {"path: 'https://a.b/c.jsonl', type: completion", "nothing is downloaded; name local files"},
    {"path: /tmp, type: completion", "'datasets[0]: /tmp': a folder has the files of several splits"},
    {"path: a.jsonl, type: chatml.intel", "'datasets[0].type: chatml.intel': supported types are alpaca, sharegpt,"},
    {"path: a.jsonl, type: 'alpaca:poem'", "'datasets[0]: alpaca:poem': styles of alpaca are instruct"},
    {"path: a.jsonl, type: context_qa.load_v2", "; or --set data.format=..."},
    {"path: a.jsonl, type: {field: x}", "'datasets[0].type.field': unknown key"},
    {"path: a.jsonl, type: {format: \"{instruction}\\n\"}", "'datasets[0]: custom type': supported types are"},
    {"path: a.jsonl, type: {format: \"{instruction}\\n\\n{input}\\n\", no_input_format: \"{instruction}\\n\", "
     "system_prompt: Be brief}",
     "'datasets[0].type.system_prompt: Be brief': system messages in prompts are not supported"},
    {"path: a.jsonl, type: completion, shards: 4", "'datasets[0].shards: 4': all documents are read"},
    {"path: a.jsonl, type: chat_template}, {path: b.jsonl, type: chat_template, chat_template: chatml",
     "'datasets[1]': data.chat_template applies to all files: the tokenizer's own before, chatml here"},
    {"path: a.jsonl, type: chat_template, chat_template: jamba",
     "'datasets[0]: jamba': conversations are rendered by the tokenizer's own template, or by chatml, qwen*"},
    {"path: a.jsonl, type: chat_template, chat_template_jinja: x",
     "'datasets[0].chat_template_jinja: x': conversations"},
    {"path: a.jsonl, type: chat_template, message_property_mappings: {weight: trained}",
     "'datasets[0].message_property_mappings.weight: trained': of a message, the role, the content"},
    {"path: a.jsonl, type: chat_template, roles: {user: [gpt]}",
     "'datasets[0].roles.user: gpt': this name has another role"},
    {"path: a.jsonl, type: chat_template, roles: {narrator: [voice]}",
     "'datasets[0].roles.narrator: voice': a role is system, user or assistant"},
    {"path: a.jsonl, type: chat_template, roles_to_train: [assistant, user]",
     "'datasets[0].roles_to_train: user': training is on the assistant's turns, or on everything"},
    {"path: a.jsonl, type: chat_template, roles_to_train: []", "'datasets[0].roles_to_train: []': training is on"},
    {"path: a.jsonl, type: chat_template, train_on_eos: last", "'datasets[0].train_on_eos: last': the token that ends"},
    {"path: a.jsonl, type: chat_template, message_field_training: train, message_field_training_detail: detail",
     "'datasets[0].message_field_training_detail: detail': data.train_on: assistant trains on whole turns"},
    {"path: a.jsonl, type: chat_template, field_system: s", "a system message has to be among the messages"},
    {"path: a.jsonl, type: chat_template, field_tools: tools",
     "'datasets[0].field_tools: tools': tools are not supported"},
    {"path: a.jsonl, type: chat_template, split_thinking: true", "reasoning is read from reasoning_content"},
    {"path: a.jsonl, type: chat_template, field_thinking: thoughts",
     "'datasets[0].field_thinking: thoughts': reasoning is"},
};

static void refused_data_sets(void **state) {
    (void)state;
    for (int k = 0; k < NDP_COUNT(refused_sets); k++) {
        char text[512];
        snprintf(text, sizeof text, "base_model: m\nmax_steps: 3\ndatasets: [{%s}]\n", refused_sets[k][0]);
        imported i;
        CHECK_FAILS(import(&i, text, NULL), NDP_EINVAL, refused_sets[k][1]);
        release(&i);
    }
}

static void refusals_point_at_the_place(void **state) {
    (void)state;
    for (int k = 0; k < NDP_COUNT(refused); k++) {
        imported i;
        CHECK_FAILS(import(&i, refused[k][0], NULL), NDP_EINVAL, "");
        check_points_at(refused[k][1]);
        assert_null(i.notes);
        CHECK_KEYS(&i, {"model.path", "null"}, {"train.steps", "100"}); /* untouched */
        release(&i);
    }
}

/* ---- Accelerate ---- */

static void accelerate_with_every_axis(void **state) {
    (void)state;
    imported i;
    CHECK_OK(import_file(&i, "accelerate_nd.yaml", NULL));
    CHECK_KEYS(&i, {"parallelism.dp_replicate_size", "2"}, {"parallelism.dp_shard_size", "2"},
               {"parallelism.cp_size", "2"}, {"parallelism.tp_size", "2"}, {"parallelism.sp_size", "1"},
               {"parallelism.cp_method", "ring"}, {"parallelism.reshard_after_forward", "false"},
               {"precision.compute", "bf16"}, {"train.recompute", "block"}, {"batch.global_batch_size", "4"});
    CHECK_NOTES(&i, "an Accelerate configuration", "x 4 data ranks (dp_replicate 2 x dp_shard 2)",
                "the file has the layout, but not the training: set model.path, data.files, batch, optimizer,",
                "micro batch 1 is assumed",
                "compute_environment (line 1), machine_rank (line 14), main_training_function (line 15)",
                "fsdp_config.fsdp_offload_params (line 10)");
    check_round_trip(&i);
    release(&i);
}

static void accelerate_layouts(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int replicate, shard, cp, sp, tp, pp;
        bool reshard;
        const char *compute;
    } cases[] = {
        {"distributed_type: MULTI_GPU\nnum_processes: 4", 4, 1, 1, 1, 1, 1, true, "fp32"},
        {"distributed_type: MULTI_GPU\nnum_processes: 4\nfsdp_config: {fsdp_sharding_strategy: FULL_SHARD}", 4, 1, 1, 1,
         1, 1, true, "fp32"},
        {"distributed_type: 'NO'\nmixed_precision: bf16", 1, 1, 1, 1, 1, 1, true, "bf16"},
        {"distributed_type: FSDP\nnum_processes: 4\nfsdp_config: {fsdp_sharding_strategy: FULL_SHARD}", 1, 4, 1, 1, 1,
         1, true, "fp32"},
        {"distributed_type: FSDP\nnum_processes: 4\nfsdp_config: {fsdp_sharding_strategy: 2}", 1, 4, 1, 1, 1, 1, false,
         "fp32"},
        {"distributed_type: FSDP\nnum_processes: 4\nfsdp_config: {fsdp_sharding_strategy: NO_SHARD}", 4, 1, 1, 1, 1, 1,
         true, "fp32"},
        {"distributed_type: FSDP\nnum_processes: 4\nfsdp_config: {fsdp_reshard_after_forward: SHARD_GRAD_OP}", 1, 4, 1,
         1, 1, 1, false, "fp32"},
        {"distributed_type: FSDP\nnum_processes: 8\nnum_machines: 2\nfsdp_config: {fsdp_sharding_strategy: "
         "HYBRID_SHARD_ZERO2}",
         2, 4, 1, 1, 1, 1, false, "fp32"},
        {"distributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config: {zero_stage: 0}", 4, 1, 1, 1, 1, 1, true,
         "fp32"},
        {"distributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config: {}", 1, 4, 1, 1, 1, 1, false, "fp32"},
        {"distributed_type: TP\nnum_processes: 4\ntp_config: {tp_size: 4}", 1, 1, 1, 1, 4, 1, true, "fp32"},
        {"distributed_type: MEGATRON_LM\nnum_processes: 8\nmegatron_lm_config: {megatron_lm_tp_degree: 2, "
         "megatron_lm_pp_degree: 2, megatron_lm_use_distributed_optimizer: true}",
         1, 2, 1, 1, 2, 2, false, "fp32"},
        {"distributed_type: FSDP\nnum_processes: 4\nparallelism_config: {parallelism_config_dp_replicate_size: 1, "
         "parallelism_config_dp_shard_size: 1}",
         1, 4, 1, 1, 1, 1, true, "fp32"},
        {"parallelism_config: {cp_size: 2, dp_shard_size: 3, cp_handler: {cp_comm_strategy: alltoall}}", 1, 3, 2, 1, 1,
         1, true, "fp32"},
        {"dp_shard_size: 2\ntp_size: 2", 1, 2, 1, 1, 2, 1, true, "fp32"},
        {"parallelism_config_dp_shard_size: 2\nparallelism_config_sp_size: 2", 1, 2, 1, 2, 1, 1, true, "fp32"},
    };
    for (int k = 0; k < NDP_COUNT(cases); k++) {
        imported i;
        CHECK_OK(import(&i, cases[k].text, NULL));
        check_int(cases[k].text, "dp_replicate_size", i.c.parallelism.size[NDP_DP_REPLICATE], cases[k].replicate);
        check_int(cases[k].text, "dp_shard_size", i.c.parallelism.size[NDP_DP_SHARD], cases[k].shard);
        check_int(cases[k].text, "cp_size", i.c.parallelism.size[NDP_CP], cases[k].cp);
        check_int(cases[k].text, "sp_size", i.c.parallelism.size[NDP_SP], cases[k].sp);
        check_int(cases[k].text, "tp_size", i.c.parallelism.size[NDP_TP], cases[k].tp);
        check_int(cases[k].text, "pp_size", i.c.parallelism.size[NDP_PP], cases[k].pp);
        check_int(cases[k].text, "reshard_after_forward", i.c.parallelism.reshard_after_forward, cases[k].reshard);
        CHECK_KEYS(&i, {"precision.compute", cases[k].compute});
        release(&i);
    }
}

static void accelerate_files(void **state) {
    (void)state;
    imported i;
    CHECK_OK(import_file(&i, "accelerate_hybrid.yaml", NULL));
    CHECK_KEYS(&i, {"parallelism.dp_replicate_size", "2"}, {"parallelism.dp_shard_size", "4"},
               {"parallelism.reshard_after_forward", "true"}, {"batch.global_batch_size", "32"},
               {"optimizer.max_grad_norm", "0.3"}, {"precision.compute", "fp32"});
    check_round_trip(&i);
    release(&i);
    CHECK_OK(import_file(&i, "accelerate_ulysses.json", NULL)); /* JSON */
    CHECK_KEYS(&i, {"parallelism.sp_size", "2"}, {"parallelism.dp_shard_size", "2"},
               {"parallelism.reshard_after_forward", "true"}, {"batch.global_batch_size", "4"},
               {"optimizer.max_grad_norm", "0.7"}, {"precision.compute", "bf16"});
    release(&i);
    CHECK_OK(import_file(&i, "parallelism.yaml", NULL));
    CHECK_KEYS(&i, {"parallelism.dp_replicate_size", "2"}, {"parallelism.dp_shard_size", "3"},
               {"parallelism.cp_size", "2"}, {"parallelism.cp_method", "all_gather"}, {"batch.global_batch_size", "6"});
    CHECK_NOTES(&i, "a ParallelismConfig");
    release(&i);
    CHECK_FAILS(import_file(&i, "none.yaml", NULL), NDP_EINVAL, "none.yaml");
    release(&i);
}

/* DeepSpeed's own file: its stage, and "auto" for what the program says. */
static void deepspeed_file(void **state) {
    (void)state;
    char path[] = "/tmp/ndp-zero-XXXXXX", text[256];
    int fd = mkstemp(path);
    static const char file[] = "{\"zero_optimization\": {\"stage\": 3, \"overlap_comm\": true},\n"
                               " \"bf16\": {\"enabled\": true}, \"fp16\": {\"enabled\": \"auto\", \"loss_scale\": 0},\n"
                               " \"gradient_clipping\": \"auto\", \"gradient_accumulation_steps\": 4}\n";
    assert_true(fd >= 0 && write(fd, file, sizeof file - 1) == (ssize_t)sizeof file - 1);
    close(fd);
    snprintf(text, sizeof text,
             "base_model: m\ndatasets: [{path: a.jsonl, type: completion}]\nmax_steps: 9\nbf16: no\ndeepspeed: %s\n",
             path);
    ndp_import_opts o = NDP_IMPORT_OPTS_INIT;
    o.ranks = 2;
    imported i;
    CHECK_OK(import(&i, text, &o));
    CHECK_KEYS(&i, {"parallelism.dp_shard_size", "2"}, {"parallelism.reshard_after_forward", "true"},
               {"batch.global_batch_size", "8"}, {"precision.compute", "bf16"}, {"optimizer.max_grad_norm", "1"});
    snprintf(text, sizeof text, "zero_optimization.overlap_comm (%s:1): the step program", path);
    CHECK_NOTES(&i, text);
    release(&i);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("{\"zero_optimization\":\n {\"stage\": 7}}", f);
    fclose(f);
    snprintf(text, sizeof text, "distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: %s}\n", path);
    char place[192];
    snprintf(place, sizeof place, "%s:2: 'zero_optimization.stage' is '7', expected a whole number from 0 to 3", path);
    CHECK_FAILS(import(&i, text, NULL), NDP_EINVAL, place);
    release(&i);
    remove(path);
}

/* Names that would break out of a comment, or are cut inside a character. */
static void hostile_names(void **state) {
    (void)state;
    imported i;
    ndp_import_opts o = NDP_IMPORT_OPTS_INIT;
    o.force = true;
    ndp_str s = {0};
    ndp_str_add(&s, "base_model: \"m\\r\\ntrain: {steps: 3}\"\nmax_steps: 9\n"
                    "\"a\\r\\ntrain: {steps: 5}\\x07\\u2028\\u0085\": 1\n\"x");
    for (int k = 0; k < 60; k++)
        ndp_str_add(&s, "\xc3\xbc");
    ndp_str_add(&s, "\": 1\n");
    CHECK_OK(import(&i, s.data, &o));
    CHECK_NOTES(&i, "a?\ntrain: {steps: 5}??? (line 3), x", "\xc3\xbc? (line 4): unknown key");
    assert_int_equal(ndp_utf8_valid_prefix(i.notes, strlen(i.notes)), strlen(i.notes));
    check_round_trip(&i);
    release(&i);
    ndp_str_release(&s);
}

/* Aliases that would be gigabytes if they were copied, and ones that hold themselves. */
static void alias_bombs_stay_small(void **state) {
    (void)state;
    imported i;
    ndp_str s = {0};
    ndp_str_add(&s, "base_model: m\ndataset_x: &f [");
    for (int k = 0; k < 20000; k++)
        ndp_str_addf(&s, "%sa.jsonl", k ? ", " : "");
    ndp_str_add(&s, "]\ndatasets:\n");
    for (int k = 0; k < 10000; k++)
        ndp_str_add(&s, "- {path: json, data_files: *f}\n");
    CHECK_FAILS(import(&i, s.data, NULL), NDP_EINVAL, "more than 65536 files");
    release(&i);
    ndp_str_release(&s);
    CHECK_FAILS(import(&i, "base_model: m\ndatasets: &d [*d]\n", NULL), NDP_EINVAL, "'datasets[0]' is a section");
    release(&i);
    CHECK_FAILS(import(&i, "distributed_type: FSDP\nparallelism_config: &p {cp_handler: *p, cp_size: 2}\n", NULL),
                NDP_EINVAL, "'parallelism_config.cp_handler.cp_handler': unknown key");
    release(&i);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(axolotl_with_every_axis),
                                       cmocka_unit_test(axolotl_defaults),
                                       cmocka_unit_test(axolotl_layouts),
                                       cmocka_unit_test(axolotl_lion),
                                       cmocka_unit_test(axolotl_context_parallel),
                                       cmocka_unit_test(axolotl_precisions),
                                       cmocka_unit_test(conversations),
                                       cmocka_unit_test(questions),
                                       cmocka_unit_test(data_sets),
                                       cmocka_unit_test(epochs_of_steps),
                                       cmocka_unit_test(epochs_without_steps),
                                       cmocka_unit_test(settled_data),
                                       cmocka_unit_test(sets_on_the_hub),
                                       cmocka_unit_test(refused_data_sets),
                                       cmocka_unit_test(refusals_name_every_key),
                                       cmocka_unit_test(force_and_set),
                                       cmocka_unit_test(refusals_point_at_the_place),
                                       cmocka_unit_test(accelerate_with_every_axis),
                                       cmocka_unit_test(accelerate_layouts),
                                       cmocka_unit_test(accelerate_files),
                                       cmocka_unit_test(deepspeed_file),
                                       cmocka_unit_test(hostile_names),
                                       cmocka_unit_test(alias_bombs_stay_small)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
