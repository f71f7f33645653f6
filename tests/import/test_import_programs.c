/* DeepSpeed's file by itself, LLaMA-Factory's jobs and data sets, and an Accelerate file for one process. */
#include "base/text.h"
#include "import/imported.h"

#include <sys/stat.h>
#include <unistd.h>

static const ndp_import_opts four = {.ranks = 4};

/* Keys of an adapter in a file without one are of no effect, whatever the program. */
static void adapters_that_are_not_asked_for(void **state) {
    (void)state;
    static const char *const texts[] = {
        "base_model: m\ndatasets: [{path: a.jsonl, type: completion}]\nlora_r: 7\nlora_alpha: 9\n"
        "lora_modules_to_save: [lm_head]\nlora_target_modules: [q_proj]\n",
        "model_name_or_path: m\nfinetuning_type: full\nlora_rank: 7\nadditional_target: lm_head\n"};
    for (int k = 0; k < NDP_COUNT(texts); k++) {
        imported i;
        CHECK_OK(import(&i, texts[k], NULL));
        assert_null(strstr(i.job, "adapter:"));
        CHECK_KEYS(&i, {"adapter.type", "none"}, {"adapter.r", "16"}, {"adapter.modules_to_save", "[]"});
        check_round_trip(&i);
        release(&i);
    }
}

/* Stacks of experts are targets by their parameters; the weights of modules are modules. */
static void parameters_are_targets(void **state) {
    (void)state;
    imported i;
    CHECK_OK(import(&i,
                    "base_model: m\ndatasets: [{path: a.jsonl, type: completion}]\nadapter: lora\n"
                    "lora_target_modules: [q_proj]\n"
                    "lora_target_parameters: [mlp.experts.gate_up_proj, down_proj, mlp.up_proj.weight]\n",
                    NULL));
    CHECK_KEYS(&i, {"adapter.targets", "[\"q_proj\", \"mlp.experts.gate_up_proj\", \"experts.down_proj\", "
                                       "\"mlp.up_proj\"]"});
    check_round_trip(&i);
    release(&i);
}

/* One text is what PEFT compares with whole names; and images are what a record may not have. */
static void regular_expressions_are_kept(void **state) {
    (void)state;
    static const struct {
        const char *regex, *refused; /* NULL: it is kept */
    } of[] = {
        {"model.language_model.layers.[\\d]+.(mlp|self_attn).(up|q)_proj", NULL},
        {".*\\.(3|11)\\.self_attn\\.q_proj|.+_proj", NULL},
        {"(?!k).*_proj$", NULL},
        {"layers\\.[13]\\.q_proj", NULL},
        {"(.*)+(.*)+(.*)+x", "takes more than 200000 steps to compare with 'model.layers.3"},
        {"(q|k", "the regular expression '(q|k': missing closing parenthesis"},
        {"q|k)", "the regular expression 'q|k)': unmatched closing parenthesis"},
    };
    for (int k = 0; k < NDP_COUNT(of); k++) {
        imported i;
        char *text = ndp_format("base_model: m\ndatasets: [{path: a.jsonl, type: completion}]\nadapter: lora\n"
                                "processor_type: AutoProcessor\nlora_target_modules: '%s'\n",
                                of[k].regex);
        if (!of[k].refused) {
            CHECK_OK(import(&i, text, NULL));
            assert_int_equal(i.c.adapter.targets.n, 1);
            assert_string_equal(i.c.adapter.targets.items[0] + strlen("regex:"), of[k].regex);
            CHECK_NOTES(&i, "processor_type (line 4): read from the model folder");
            check_round_trip(&i);
            release(&i);
        } else {
            CHECK_FAILS(import(&i, text, NULL), NDP_EINVAL, of[k].refused);
            CHECK_FAILS(import(&i, text, NULL), NDP_EINVAL, "--set adapter.targets=");
        }
        free(text);
    }
}

/* Among names it is a name for PEFT, which finds no module of it; TRL makes a text of a list of one. */
static void regular_expressions_stand_alone(void **state) {
    (void)state;
    static const char *const lists[] = {
        ("base_model: m\ndatasets: [{path: a.jsonl, type: completion}]\nadapter: lora\nlora_target_modules: "
         "['(q|k)_proj']\n"),
        "model_name_or_path: m\nstage: sft\nfinetuning_type: lora\nlora_target: '.*(q|k)_proj'\n",
        "model_name_or_path: m\nuse_peft: true\nlora_target_modules: [q_proj, '(up|k)_proj']\n"};
    imported i;
    CHECK_OK(import(&i, "model_name_or_path: m\nuse_peft: true\nlora_target_modules: ['.*(q|k)_proj']\n", NULL));
    assert_string_equal(i.c.adapter.targets.items[0], "regex:.*(q|k)_proj");
    release(&i);
    for (int k = 0; k < NDP_COUNT(lists); k++)
        CHECK_FAILS(import(&i, lists[k], NULL), NDP_EINVAL, "a regular expression among names is a name for PEFT");
}

/* ---- Accelerate ---- */

/* `accelerate launch` starts one process, whatever num_processes says. */
static void accelerate_without_distribution(void **state) {
    (void)state;
    imported i;
    CHECK_OK(import(&i, "distributed_type: 'NO'\nnum_processes: 8\n", NULL));
    CHECK_KEYS(&i, {"parallelism.dp_replicate_size", "1"}, {"parallelism.dp_shard_size", "1"},
               {"batch.global_batch_size", "1"});
    CHECK_NOTES(&i, "distributed_type NO is one process: num_processes 8 is not used; --ranks 8 makes so many");
    release(&i);
    CHECK_OK(import(&i, "distributed_type: 'NO'\nnum_processes: 8\n", &four));
    CHECK_KEYS(&i, {"parallelism.dp_replicate_size", "4"});
    assert_null(strstr(i.notes, "is not used"));
    release(&i);
    CHECK_OK(import(&i, "distributed_type: 'NO'\nnum_processes: 1\n", NULL));
    assert_null(strstr(i.notes, "is not used"));
    release(&i);
}

/* ---- DeepSpeed ---- */

/* Every stage, with and without the number of ranks; "auto" and what is missing stay as a job has them. */
static void deepspeed_stages(void **state) {
    (void)state;
    static const struct {
        const char *shard, *replicate, *reshard, *reduce;
    } of[][2] = {{{"1", "auto", "true", "micro_batch"}, {"1", "4", "true", "micro_batch"}},
                 {{"auto", "1", "false", "update"}, {"4", "1", "false", "update"}},
                 {{"auto", "1", "false", "micro_batch"}, {"4", "1", "false", "micro_batch"}},
                 {{"auto", "1", "true", "micro_batch"}, {"4", "1", "true", "micro_batch"}}};
    for (int stage = 0; stage < 4; stage++)
        for (int ranks = 0; ranks < 2; ranks++) {
            imported i;
            char *text = ndp_format("{\"bf16\": {\"enabled\": \"auto\"}, \"zero_optimization\": {\"stage\": %d},"
                                    " \"train_micro_batch_size_per_gpu\": \"auto\", \"train_batch_size\": \"auto\","
                                    " \"gradient_accumulation_steps\": \"auto\", \"gradient_clipping\": \"auto\"}",
                                    stage);
            CHECK_OK(import(&i, text, ranks ? &four : NULL));
            CHECK_KEYS(&i, {"parallelism.dp_shard_size", of[stage][ranks].shard},
                       {"parallelism.dp_replicate_size", of[stage][ranks].replicate},
                       {"parallelism.reshard_after_forward", of[stage][ranks].reshard},
                       {"parallelism.reduce_every", of[stage][ranks].reduce}, {"precision.compute", "bf16"},
                       {"optimizer.max_grad_norm", "1"}, {"batch.global_batch_size", "16"});
            assert_null(strstr(i.job, "batch:")); /* it is the job's own */
            CHECK_NOTES(&i, "a DeepSpeed configuration", "set model.path, data.files");
            check_round_trip(&i);
            release(&i);
            free(text);
        }
}

/* The equation of the batch, from whatever parts the file has. */
static void deepspeed_batches(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int ranks;
        const char *global, *micro, *shard;
    } of[] = {
        {"train_batch_size: 64, train_micro_batch_size_per_gpu: 4, gradient_accumulation_steps: 2", 0, "64", "4", "8"},
        {"train_batch_size: 64, train_micro_batch_size_per_gpu: 4, gradient_accumulation_steps: 4", 4, "64", "4", "4"},
        {"train_batch_size: 64", 0, "64", "1", "auto"},
        {"train_micro_batch_size_per_gpu: 32", 0, "32", "32", "auto"},
        {"train_micro_batch_size_per_gpu: 32, gradient_accumulation_steps: 2", 4, "256", "32", "4"},
        {"gradient_accumulation_steps: 8", 4, "32", "1", "4"},
    };
    for (int k = 0; k < NDP_COUNT(of); k++) {
        imported i;
        ndp_import_opts o = {.ranks = of[k].ranks};
        char *text = ndp_format("{zero_optimization: {stage: 3}, %s}", of[k].text);
        CHECK_OK(import(&i, text, &o));
        CHECK_KEYS(&i, {"batch.global_batch_size", of[k].global}, {"batch.micro_batch_size", of[k].micro},
                   {"parallelism.dp_shard_size", of[k].shard}, {"optimizer.max_grad_norm", "1"});
        check_round_trip(&i);
        release(&i);
        free(text);
    }
    static const char *const wrong[] = {
        "{zero_optimization: {stage: 1}, train_batch_size: 10, train_micro_batch_size_per_gpu: 4}",
        "{zero_optimization: {stage: 1}, train_batch_size: 64, train_micro_batch_size_per_gpu: 4, "
        "gradient_accumulation_steps: 2}"};
    for (int k = 0; k < NDP_COUNT(wrong); k++) {
        imported i;
        CHECK_FAILS(import(&i, wrong[k], &four), NDP_EINVAL, "'train_batch_size' is ");
        release(&i);
    }
}

static void deepspeed_training(void **state) {
    (void)state;
    imported i;
    CHECK_OK(import(&i,
                    "{zero_optimization: {stage: 3, offload_param: {device: none}}, gradient_clipping: 0.5,\n"
                    " optimizer: {type: Adam, params: {lr: 2.0e-4, betas: [0.8, 0.99], weight_decay: auto}},\n"
                    " scheduler: {type: WarmupCosineLR, params: {total_num_steps: 500, warmup_num_steps: 20, "
                    "warmup_type: linear}},\n"
                    " activation_checkpointing: {partition_activations: true}}",
                    &four));
    CHECK_KEYS(&i, {"optimizer.name", "adamw"}, {"optimizer.lr", "0.0002"}, {"optimizer.betas", "[0.8, 0.99]"},
               {"optimizer.weight_decay", "0.1"}, {"optimizer.max_grad_norm", "0.5"}, {"schedule.name", "cosine"},
               {"schedule.min_lr_ratio", "0.0001"}, {"schedule.warmup_steps", "20"}, {"train.steps", "500"},
               {"train.recompute", "block"});
    check_round_trip(&i);
    release(&i);
    /* What a section lacks are DeepSpeed's own values, and warm-up without steps may be of any kind. */
    CHECK_OK(import(&i,
                    "{zero_optimization: {stage: 2}, optimizer: {type: SGD, params: {}}, scheduler: {type: "
                    "WarmupDecayLR, params: {warmup_max_lr: 0.5, warmup_num_steps: 0, total_num_steps: auto}}}",
                    &four));
    CHECK_KEYS(&i, {"optimizer.name", "sgd"}, {"optimizer.lr", "0.5"}, {"optimizer.weight_decay", "0"},
               {"schedule.name", "linear"}, {"schedule.min_lr_ratio", "0"}, {"schedule.warmup_steps", "0"});
    release(&i);
}

/* By name, all at once, with what settles each. */
static void what_deepspeed_has_alone(void **state) {
    (void)state;
    static const char text[] =
        "{zero_optimization: {stage: 3, offload_optimizer: {device: cpu, pin_memory: true}, cpu_offload: true},\n"
        " fp16: {enabled: true}, optimizer: {type: OneBitAdam, params: {adam_w_mode: false, freeze_step: 9}},\n"
        " scheduler: {type: WarmupLR, params: {warmup_min_lr: 0.1, warmup_num_steps: 9}},\n"
        " activation_checkpointing: {cpu_checkpointing: true}, curriculum_learning: {enabled: true}, trian: 1}";
    static const char *const words[] = {
        "'zero_optimization.offload_optimizer.device: cpu': parameters and optimizer state are not offloaded",
        "'zero_optimization.cpu_offload: true'",
        "'optimizer.type: OneBitAdam': another update rule; optimizer.name is one of:",
        "'optimizer.params.adam_w_mode: false': weight decay shrinks",
        "'optimizer.params.freeze_step: 9': optimizers have only",
        "'scheduler.params.warmup_num_steps: 9': warm-up is linear; DeepSpeed's is logarithmic",
        "'scheduler.params.warmup_min_lr: 0.1': warm-up rises from 0",
        "'activation_checkpointing.cpu_checkpointing: true'",
        "'trian': unknown key"};
    imported i;
    CHECK_FAILS(import(&i, text, &four), NDP_EINVAL, words[0]);
    for (int k = 0; k < NDP_COUNT(words); k++)
        if (!strstr(ndp_error_message(), words[k]))
            fail_msg("no '%s' in %s", words[k], ndp_error_message());
    release(&i);
    /* Beside another program's file the optimizer is that program's. */
    CHECK_FAILS(import(&i, "distributed_type: DEEPSPEED\ndeepspeed_config: {optimizer: {type: Adam}}\n", &four),
                NDP_EINVAL, "give the optimizer in optimizer:, not to DeepSpeed");
    release(&i);
    CHECK_OK(import(&i,
                    "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_optimization: {stage: 3, "
                    "offload_param: {device: cpu}}}\n",
                    &four));
    CHECK_NOTES(&i, "deepspeed_config.zero_optimization.offload_param (line 2): parameters and optimizer state");
    release(&i);
}

/* ZeRO++'s second copies, cut among some ranks, are HSDP. */
static void deepspeed_copies(void **state) {
    (void)state;
    static const struct {
        const char *zero;
        int replicate, shard;
    } cases[] = {{"{stage: 3, zero_hpz_partition_size: 2}", 2, 2},
                 {"{stage: 3, zero_hpz_partition_size: 1}", 1, 4},
                 {"{stage: 3, zero_hpz_partition_size: 3}", 1, 4},
                 {"{stage: 2, zero_hpz_partition_size: 2}", 1, 4}};
    for (int k = 0; k < NDP_COUNT(cases); k++) {
        imported i;
        char *text = ndp_format("zero_optimization: %s\n", cases[k].zero);
        CHECK_OK(import(&i, text, &four));
        check_int(text, "dp_replicate_size", i.c.parallelism.size[NDP_DP_REPLICATE], cases[k].replicate);
        check_int(text, "dp_shard_size", i.c.parallelism.size[NDP_DP_SHARD], cases[k].shard);
        release(&i);
        free(text);
    }
}

/* What the user sets is not asked for again; machines have a line. */
static void notes_know_what_is_set(void **state) {
    (void)state;
    static const char *const sets[] = {"model.config=c.json", "data.files=[a]", "batch.micro_batch_size=2",
                                       "optimizer.lr=1"};
    const ndp_import_opts o = {.assignments = sets, .assignment_count = NDP_COUNT(sets)};
    imported i;
    CHECK_OK(import(&i, "distributed_type: MULTI_GPU\nnum_machines: 2\nnum_processes: 8\n", &o));
    CHECK_NOTES(&i, "not the training: set schedule, train.steps\n", "num_machines 2: the layout is that of all ranks",
                "of the file, which --set changes: global batch 8 samples");
    release(&i);
    CHECK_OK(import(&i, "zero_optimization: {stage: 1}\n", &o));
    CHECK_NOTES(&i, "parts of the training: set train.steps\n");
    release(&i);
}

/* ---- LLaMA-Factory ---- */

static const char job[] = "model_name_or_path: m\nstage: sft\nfinetuning_type: lora\nlora_rank: 4\ndataset: ponds\n"
                          "template: default\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 3\n"
                          "learning_rate: 1.0e-4\nlr_scheduler_type: cosine\nwarmup_ratio: 0.1\nbf16: true\n";

/* Without a dataset_info.json: as far as keys go, and what to set is named. */
static void llamafactory_job(void **state) {
    (void)state;
    imported i;
    CHECK_OK(import(&i, job, &four));
    CHECK_KEYS(&i, {"model.path", "\"m\""}, {"adapter.type", "lora"}, {"adapter.r", "4"}, {"adapter.alpha", "8"},
               {"adapter.targets", "[\"linear\"]"}, {"batch.micro_batch_size", "2"}, {"batch.global_batch_size", "24"},
               {"parallelism.dp_replicate_size", "4"}, {"schedule.name", "cosine"}, {"schedule.warmup_ratio", "0.1"},
               {"optimizer.lr", "0.0001"}, {"optimizer.weight_decay", "0"}, {"train.epochs", "3"},
               {"train.recompute", "block"}, {"checkpoint.every", "500"}, {"data.sequence_length", "2048"},
               {"data.overlong", "truncate"}, {"data.packing", "false"}, {"precision.compute", "bf16"});
    CHECK_NOTES(&i, "a LLaMA-Factory configuration", "dataset ponds is an entry of a dataset_info.json",
                "set data.files to its files", "template default is LLaMA-Factory's own: set data.chat_template");
    assert_null(strstr(i.notes, "Axolotl"));
    assert_null(strstr(i.notes, "no datasets"));
    check_round_trip(&i);
    release(&i);
}

/* A folder with a dataset_info.json in `data`; *state is its path. */
static int make_info(void **state) {
    static const char info[] =
        "{\"ponds\": {\"file_name\": \"ponds.json\", \"columns\": {\"prompt\": \"ask\", \"response\": \"reply\"}},\n"
        " \"talks\": {\"file_name\": \"talks.jsonl\", \"formatting\": \"sharegpt\", \"columns\": {\"messages\": "
        "\"turns\"}, \"tags\": {\"role_tag\": \"who\", \"content_tag\": \"says\", \"user_tag\": \"person\"}},\n"
        " \"pages\": {\"hf_hub_url\": \"org/pages\", \"split\": \"other\", \"columns\": {\"prompt\": \"body\"}},\n"
        " \"votes\": {\"file_name\": \"votes.json\", \"ranking\": true},\n"
        " \"pairs\": {\"file_name\": \"pairs.json\", \"ranking\": true, \"formatting\": \"sharegpt\", \"columns\": "
        "{\"chosen\": \"good\", \"rejected\": \"bad\"}},\n"
        " \"likes\": {\"file_name\": \"likes.json\", \"formatting\": \"sharegpt\", \"columns\": {\"messages\": "
        "\"messages\", \"kto_tag\": \"label\"}, \"tags\": {\"role_tag\": \"role\", \"content_tag\": \"content\"}},\n"
        " \"tagged\": {\"file_name\": \"likes.json\", \"formatting\": \"sharegpt\", \"columns\": {\"kto_tag\": "
        "\"good\"}},\n"
        " \"scripts\": {\"script_url\": \"load.py\", \"file_name\": \"x.jsonl\"},\n"
        " \"far\": {\"file_name\": \"https://a.b/c.jsonl\"},\n"
        " \"calls\": {\"file_name\": \"calls.json\", \"columns\": {\"tools\": \"api\"}}}\n";
    char *folder = strdup("/tmp/ndp-info-XXXXXX"), *data, *file;
    assert_true(folder && mkdtemp(folder));
    data = ndp_format("%s/data", folder);
    file = ndp_format("%s/dataset_info.json", data);
    assert_int_equal(mkdir(data, 0700), 0);
    CHECK_OK(ndp_file_write_atomic(file, info, strlen(info)));
    free(data);
    free(file);
    *state = folder;
    return 0;
}

static int drop_info(void **state) {
    CHECK_OK(ndp_folder_remove(*state));
    free(*state);
    return 0;
}

/* The job with other words, dataset_dir among them. */
static ndp_status import_sets(imported *i, const char *folder, const char *dataset, const char *template,
                              const char *more) {
    char *text = ndp_format("dataset: %s\ntemplate: %s\ndataset_dir: %s/data\nmodel_name_or_path: m\n%s", dataset,
                            template, folder, more);
    ndp_status st = import(i, text, &four);
    free(text);
    return st;
}

static void llamafactory_sets(void **state) {
    imported i;
    char *files = ndp_format("[\"%s/data/ponds.json\", {path: \"%s/data/talks.jsonl\", format: messages}]",
                             (char *)*state, (char *)*state);
    CHECK_OK(import_sets(&i, *state, "ponds, talks", "qwen", "stage: sft\n"));
    CHECK_KEYS(&i, {"data.files", files}, {"data.format", "instruction"}, {"data.prompt_field", "\"ask\""},
               {"data.input_field", "\"input\""}, {"data.response_field", "\"reply\""},
               {"data.messages_field", "\"turns\""}, {"data.role_field", "\"who\""}, {"data.content_field", "\"says\""},
               {"data.roles", "[\"person: user\"]"}, {"data.chat_template", "\"qwen2.5\""}, {"data.train_on", "turn"});
    check_round_trip(&i);
    release(&i);
    free(files);
}

static void llamafactory_pairs(void **state) {
    static const struct {
        const char *dataset, *more, *loss, *variant, *beta, *gamma, *rows;
    } cases[] = {{"pairs", "stage: dpo\npref_ftx: 0.25\n", "dpo", "sigmoid", "0.1", "0.5", "2"},
                 {"pairs", "pref_loss: ipo\npref_beta: 0.3\nstage: dpo\n", "dpo", "ipo", "0.3", "0.5", "2"},
                 {"pairs", "stage: dpo\npref_loss: simpo\nsimpo_gamma: 1.5\n", "simpo", "sigmoid", "0.1", "1.5", "2"},
                 {"likes", "stage: kto\nkto_chosen_weight: 2\n", "kto", "sigmoid", "0.1", "0.5", "1"}};
    for (int k = 0; k < NDP_COUNT(cases); k++) {
        imported i;
        char *text = ndp_format("%sper_device_train_batch_size: 1\n", cases[k].more);
        CHECK_OK(import_sets(&i, *state, cases[k].dataset, "qwen", text));
        CHECK_KEYS(&i, {"data.format", "preference"}, {"loss.name", cases[k].loss}, {"loss.variant", cases[k].variant},
                   {"loss.beta", cases[k].beta}, {"batch.micro_batch_size", cases[k].rows}, {"data.packing", "false"},
                   {"data.prompt_field", k < 3 ? "\"conversations\"" : "\"messages\""},
                   {"data.chosen_field", k < 3 ? "\"good\"" : "null"}, {"loss.sft_weight", k ? "0" : "0.25"},
                   {"loss.desirable_weight", k == 3 ? "2" : "1"});
        if (strcmp(cases[k].loss, "simpo") == 0)
            CHECK_KEYS(&i, {"loss.gamma", cases[k].gamma});
        check_round_trip(&i);
        release(&i);
        free(text);
    }
}

/* The stage may come after the data. Texts are packed, and see each other. */
static void llamafactory_texts(void **state) {
    imported i;
    char *text = ndp_format("dataset: pages\ndataset_dir: %s/data\nmodel_name_or_path: m\nstage: pt\n"
                            "finetuning_type: full\n",
                            (char *)*state);
    CHECK_OK(import(&i, text, &four));
    CHECK_KEYS(&i, {"data.files", "[\"org/pages:other\"]"}, {"data.format", "text"}, {"data.text_field", "\"body\""},
               {"data.packing", "true"}, {"data.document_mask", "false"}, {"adapter.type", "none"});
    release(&i);
    free(text);
}

/* Each has its reason; where a run would start with another template it is refused. */
static void what_llamafactory_has_alone(void **state) {
    static const struct {
        const char *dataset, *template, *more, *words;
    } of[] = {
        {"ponds", "mistral", "", "'template: mistral': set data.chat_template to a built-in one"},
        {"seas", "qwen", "", "'dataset: seas': dataset_info.json has no such entry; or --set data.files="},
        {"votes", "qwen", "", "'dataset: ranking': pairs are for stage: dpo"},
        {"calls", "qwen", "",
         "'calls.columns.tools: api': history, system and tools are read from the fields of these names"},
        {"ponds", "qwen", "stage: ppo\n", "'stage: ppo': rewards are not supported"},
        {"votes", "qwen", "stage: dpo\n", "LLaMA-Factory joins a record's input to its instruction"},
        {"pairs", "qwen", "stage: dpo\npref_loss: orpo\n", "'pref_loss: orpo': loss.name orpo also trains on prompts"},
        {"pairs", "qwen", "stage: dpo\npref_loss: hinge\n", "of pref_loss, sigmoid, ipo and simpo are imported"},
        {"pairs", "qwen", "stage: dpo\npacking: true\n", "'packing: true': a document of preference data has a row"},
        {"pairs", "qwen", "stage: dpo\nref_model: other\n",
         "'ref_model: other': the reference is the model as the run"},
        {"tagged", "qwen", "stage: kto\n", "'kto_tag: good': whether an answer is wanted is read from the field label"},
        {"ponds", "qwen", "finetuning_type: freeze\n", "'finetuning_type: freeze': another method of training"},
        {"ponds", "qwen", "use_galore: true\n", "'use_galore: true': another method of training"},
        {"ponds", "qwen", "use_muon: true\n", "'use_muon: true': Muon updates whole matrices"},
        {"ponds", "qwen", "do_train: false\n", "'do_train: false': the job trains nothing: `ndparallel evaluate`"},
        {"ponds", "qwen", "do_predict: true\n", "'do_predict': the job trains nothing"},
        {"ponds", "qwen", "task: mmlu_test\n", "'task': the job trains nothing"},
        {"ponds", "qwen", "quantization_bit: 3\n", "'quantization_bit: 3': weights are quantized"},
        {"ponds", "qwen", "neftune_noise_alpha: 5\n", "'neftune_noise_alpha: 5'"},
        {"scripts", "qwen", "", "'scripts.script_url: load.py': download the data set as .jsonl and name its files"},
        {"far", "qwen", "", "nothing is downloaded; name local files"},
        {"ponds", "qwen", "lora_rnak: 5\n", "'lora_rnak': unknown key; did you mean 'lora_rank'?"},
        {"[]", "qwen", "", "'dataset' has no name of a data set"},
    };
    for (int k = 0; k < NDP_COUNT(of); k++) {
        imported i;
        CHECK_FAILS(import_sets(&i, *state, of[k].dataset, of[k].template, of[k].more), NDP_EINVAL, of[k].words);
        release(&i);
    }
}

/* Whether it trains, and with Muon, which decays vectors too. */
static void llamafactory_trains(void **state) {
    (void)state;
    static const char full[] = "model_name_or_path: m\nstage: sft\nfinetuning_type: full\n";
    static const char *const decays[][2] = {{"", "[]"},
                                            {"weight_decay: 0.5\n", "[{params: [\"vectors\"], weight_decay: 0.5}]"}};
    imported i;
    for (int k = 0; k < NDP_COUNT(decays); k++) {
        char *text = ndp_format("%sdo_train: true\ndo_predict: true\nuse_muon: true\n%s", full, decays[k][0]);
        CHECK_OK(import(&i, text, &four));
        CHECK_KEYS(&i, {"optimizer.name", "muon"}, {"optimizer.momentum", "0.95"}, {"optimizer.groups", decays[k][1]});
        CHECK_NOTES(&i, "the steps of Newton-Schulz are in fp32, LLaMA-Factory's in bf16");
        assert_null(strstr(i.notes, "do_train"));
        check_round_trip(&i);
        release(&i);
        free(text);
    }
    CHECK_OK(import(&i, full, &four));
    CHECK_KEYS(&i, {"optimizer.name", "adamw"});
    CHECK_NOTES(&i, "there is no do_train, without which LLaMA-Factory trains nothing; this job trains");
    release(&i);
}

/* Megatron's sizes, under LLaMA-Factory; its v1 engine has other keys. */
static void llamafactory_with_megatron(void **state) {
    (void)state;
    imported i;
    CHECK_OK(import(&i,
                    "model_name_or_path: m\nstage: sft\nfinetuning_type: full\ndo_train: true\n"
                    "per_device_train_batch_size: 1\ngradient_accumulation_steps: 8\ntensor_model_parallel_size: 2\n"
                    "pipeline_model_parallel_size: 2\nexpert_model_parallel_size: 2\nsequence_parallel: true\n"
                    "use_distributed_optimizer: true\noverlap_grad_reduce: true\nmoe_grouped_gemm: true\n"
                    "recompute_granularity: full\n",
                    &(ndp_import_opts){.ranks = 8}));
    CHECK_KEYS(&i, {"parallelism.tp_size", "2"}, {"parallelism.pp_size", "2"}, {"parallelism.ep_size", "2"},
               {"parallelism.dp_shard_size", "2"}, {"parallelism.tp_sequence_parallel", "true"},
               {"batch.global_batch_size", "16"});
    CHECK_NOTES(&i, "overlap_grad_reduce (line 12): the step program schedules gathers and reductions");
    check_round_trip(&i);
    release(&i);
    CHECK_FAILS(import(&i,
                       "model: m\ntemplate: qwen3_nothink\ndist_config: {name: fsdp2}\ntrain_dataset: a.yaml\n"
                       "sample_backend: hf\ncutoff_len: 9\nmax_steps: 10\nlearning_rate: 1.0e-4\n",
                       NULL),
                NDP_EINVAL, "the keys are those of LLaMA-Factory's v1 engine");
    release(&i);
}

/* Of a DeepSpeed file that another program's file has: remarks in JSON, and what does not change the result. */
static void parts_of_deepspeed(void **state) {
    (void)state;
    imported i;
    CHECK_OK(import(&i,
                    "model_name_or_path: m\nstage: sft\nfinetuning_type: full\ndo_train: true\n"
                    "deepspeed: {_comment: a, compile: {disable: false}, tensorboard: {enabled: true},\n"
                    " zero_optimization: {stage: 2}, tensor_parallel: {autotp_size: 2}}\n",
                    &four));
    CHECK_KEYS(&i, {"parallelism.tp_size", "2"}, {"parallelism.dp_shard_size", "2"});
    CHECK_NOTES(&i, "deepspeed._comment (line 5): a comment", "deepspeed.compile (line 5)");
    release(&i);
}

/* The name of a missing DeepSpeed file gives its stage. */
static void stages_by_name(void **state) {
    (void)state;
    static const struct {
        const char *file, *sharded, *gathered;
    } names[] = {{"ds_z0_config.json", "1", "true"},
                 {"ds_z2_autotp_config.json", "4", "false"},
                 {"a/zero_stage1_config.json", "4", "false"},
                 {"z/ds_z3_offload_config.json", "4", "true"},
                 {"deepspeed_configs/zero2.json", "4", "false"},
                 {"other.json", "4", "true"}};
    for (int k = 0; k < NDP_COUNT(names); k++) {
        imported i;
        char *text = ndp_format("stage: sft\ndo_train: true\nmodel_name_or_path: m\ndeepspeed: %s\n", names[k].file);
        CHECK_OK(import(&i, text, &four));
        CHECK_KEYS(&i, {"parallelism.dp_shard_size", names[k].sharded},
                   {"parallelism.reshard_after_forward", names[k].gathered});
        release(&i);
        free(text);
    }
}

/* Keys of the Trainer alone do not make a file LLaMA-Factory's. */
static void other_programs_of_the_trainer(void **state) {
    (void)state;
    imported i;
    CHECK_FAILS(import(&i, "model_name_or_path: m\nnum_train_epochs: 1\nlearning_rate: 1.0e-4\n", NULL), NDP_EINVAL,
                "'model_name_or_path': unknown key");
    release(&i);
}

/* What TRL's script takes for what a file lacks, and what it has. */
static void scripts_of_trl(void **state) {
    (void)state;
    imported i;
    CHECK_OK(import(&i, "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: org/set\n", &four));
    CHECK_KEYS(&i, {"model.path", "\"Qwen/Qwen2.5-0.5B\""}, {"data.files", "[\"org/set:train\"]"},
               {"data.format", "auto"}, {"data.sequence_length", "1024"}, {"data.packing", "false"},
               {"data.overlong", "truncate"}, {"data.train_on", "all"}, {"optimizer.lr", "2e-05"},
               {"optimizer.betas", "[0.9, 0.999]"}, {"schedule.name", "linear"}, {"schedule.warmup_steps", "0"},
               {"train.epochs", "3"}, {"batch.micro_batch_size", "8"}, {"batch.global_batch_size", "32"},
               {"precision.compute", "bf16"}, {"train.recompute", "block"}, {"checkpoint.every", "500"},
               {"adapter.type", "none"});
    CHECK_NOTES(&i, "a configuration of TRL's script sft", "TRL trains on whole conversations");
    check_round_trip(&i);
    release(&i);
    CHECK_OK(
        import(&i,
               "model_name_or_path: org/m\ndataset_name: org/set\ndataset_config: en\ndataset_train_split: train[:5%]\n"
               "use_peft: true\nlora_target_modules: all-linear\nload_in_4bit: true\nassistant_only_loss: true\n"
               "packing: true\nmax_length: 2048\nbf16: false\nmax_steps: 10\nwarmup_steps: 3\n"
               "gradient_checkpointing: false\nmodel_revision: v2\n",
               &four));
    CHECK_KEYS(&i, {"model.path", "\"org/m@v2\""}, {"data.files", "[\"org/set:en/train[:5%]\"]"},
               {"adapter.type", "qlora"}, {"adapter.r", "16"}, {"adapter.alpha", "32"}, {"adapter.dropout", "0.05"},
               {"adapter.targets", "[\"linear\"]"}, {"data.train_on", "assistant"}, {"data.packing", "true"},
               {"data.sequence_length", "2048"}, {"precision.compute", "fp32"}, {"train.steps", "10"},
               {"schedule.warmup_steps", "3"}, {"train.recompute", "none"});
    release(&i);
    CHECK_FAILS(import(&i, "dataset_name: org/set\nmodel_name_or_path: m\nbeta: 0.1\nnum_generations: 8\n", &four),
                NDP_EINVAL, "'num_generations: 8': rewards are not supported");
    release(&i);
}

/* The script dpo is known by its keys, or by what the user sets. */
static void pairs_of_trl(void **state) {
    (void)state;
    static const char whole[] = "model_name_or_path: m\ndataset_name: a.jsonl\nper_device_train_batch_size: 2\n%s";
    static const struct {
        const char *more, *variant, *beta, *smoothing;
    } of[] = {{"beta: 0.3\n", "sigmoid", "0.3", "0"},
              {"loss_type: ipo\n", "ipo", "0.1", "0"},
              {"loss_type: robust\nlabel_smoothing: 0.2\n", "robust", "0.1", "0.2"},
              {"label_smoothing: 0.2\n", "sigmoid", "0.1", "0"},
              {"loss_type: hinge\nmax_prompt_length: 100\n", "hinge", "0.1", "0"},
              {"loss_type: apo_zero\nprecompute_ref_log_probs: true\nlearning_rate: 1.0e-6\n", "apo_zero", "0.1", "0"}};
    imported i;
    for (int k = 0; k < NDP_COUNT(of); k++) {
        char *text = ndp_format(whole, of[k].more);
        CHECK_OK(import(&i, text, &four));
        CHECK_KEYS(&i, {"loss.name", "dpo"}, {"loss.variant", of[k].variant}, {"loss.beta", of[k].beta},
                   {"loss.label_smoothing", of[k].smoothing}, {"data.format", "preference"},
                   {"data.files", "[\"a.jsonl\"]"}, {"optimizer.lr", "1e-06"}, {"batch.global_batch_size", "16"},
                   {"data.train_on", "assistant"}, {"data.packing", "false"}, {"data.overlong", "truncate"});
        assert_null(strstr(i.notes, "data.train_on all"));
        check_round_trip(&i);
        release(&i);
        free(text);
    }
    const char *set[] = {"data.format=preference"};
    const ndp_import_opts told = {.ranks = 1, .assignments = set, .assignment_count = 1};
    char *text = ndp_format(whole, ""), *other = ndp_format(whole, "loss_type: sigmoid\nuse_weighting: true\n");
    CHECK_OK(import(&i, text, &told));
    CHECK_KEYS(&i, {"loss.name", "dpo"}, {"data.format", "preference"});
    release(&i);
    CHECK_FAILS(import(&i, other, NULL), NDP_EINVAL, "'use_weighting: true': of a pair's loss, loss.variant");
    free(text);
    free(other);
}

/* The script reward: its rate is another one, and texts that are longer than a row are left out. */
static void rewards_of_trl(void **state) {
    (void)state;
    static const char text[] = "model_name_or_path: m\ndataset_name: a.jsonl\n%s";
    static const char *const set[] = {"loss.name=reward"};
    const ndp_import_opts told = {.ranks = 4, .assignments = set, .assignment_count = 1};
    for (int k = 0; k < 2; k++) {
        imported i;
        char *whole = ndp_format(text, k ? "center_rewards_coefficient: 0.01\n" : "");
        CHECK_OK(import(&i, whole, k ? &four : &told));
        CHECK_KEYS(&i, {"loss.name", "reward"}, {"loss.center", k ? "0.01" : "0"}, {"data.format", "preference"},
                   {"optimizer.lr", "0.0001"}, {"data.overlong", "drop"}, {"batch.micro_batch_size", "16"});
        CHECK_OK(ndp_config_check(&i.c));
        check_round_trip(&i);
        release(&i);
        free(whole);
    }
}

/* The plan of transformers' own layout. A file that fits two programs says so. */
static void layouts_of_transformers(void **state) {
    (void)state;
    imported i;
    CHECK_OK(import(
        &i,
        "{\"tp_size\": 2, \"tp_plan\": \"auto\", \"fsdp_size\": 4, \"dp_replicate_size\": 2, \"pp_size\": null,\n"
        " \"fsdp_mixed_precision\": true, \"ep_size\": 1, \"ep_implementation\": \"auto\"}",
        NULL));
    CHECK_KEYS(&i, {"parallelism.tp_size", "2"}, {"parallelism.dp_shard_size", "4"},
               {"parallelism.dp_replicate_size", "2"}, {"parallelism.pp_size", "1"}, {"precision.compute", "bf16"},
               {"parallelism.reshard_after_forward", "true"});
    CHECK_NOTES(&i, "a DistributedConfig of transformers", "tensor parallelism follows the model's architecture");
    check_round_trip(&i);
    release(&i);
    CHECK_FAILS(import(&i, "fsdp_size: 4\nenable_expert_parallel: true\n", NULL), NDP_EINVAL,
                "ep_size is the number of ranks that share experts");
    release(&i);
    CHECK_OK(import(&i, "gradient_accumulation_steps: 2\n", NULL));
    CHECK_NOTES(&i, "read as an Accelerate configuration; as many of its keys are those of");
    release(&i);
}

/* The Trainer's arithmetic: no 2 for 1, a share rounded up, epochs that are not needed. */
static void the_trainers_warmup(void **state) {
    (void)state;
    static const struct {
        const char *text, *steps;
    } of[] = {{"max_steps: 100\nwarmup_steps: 1\n", "1"},
              {"max_steps: 100\nwarmup_ratio: 0.011\n", "2"},
              {"max_steps: 100\nwarmup_steps: 0\nwarmup_ratio: 0.5\n", "50"},
              {"max_steps: 100\nwarmup_steps: 7\nwarmup_ratio: 0.5\n", "7"},
              {"max_steps: 100\n", "0"}};
    for (int k = 0; k < NDP_COUNT(of); k++) {
        imported i;
        char *whole = ndp_format("model_name_or_path: m\nstage: sft\nlr_scheduler_type: cosine\n%s", of[k].text);
        CHECK_OK(import(&i, whole, &four));
        CHECK_KEYS(&i, {"schedule.warmup_steps", of[k].steps}, {"train.steps", "100"});
        assert_null(strstr(i.notes, "num_epochs"));
        release(&i);
        free(whole);
    }
}

/* Axolotl's ranks of experts are counted beside dp_shard_size, those of others among all ranks of a stage. */
static void layouts_of_experts(void **state) {
    (void)state;
#define AXOLOTL "base_model: m\ndatasets: [{path: a.jsonl, type: completion}]\nmax_steps: 9\nexpert_parallel_size: "
#define FSDP "\nfsdp_config: {fsdp_version: 2}"
    static const struct {
        const char *text;
        int ranks, replicate, shard, tp, ep, global;
        const char *said;
    } cases[] = {
        {AXOLOTL "4", 0, 1, 4, 1, 4, 4, "so the data ranks are dp_shard"},
        {AXOLOTL "2\nworld_size: 8\nexpert_parallel_backend: deep_ep", 0, 4, 2, 1, 2, 8, "expert_parallel_backend"},
        {AXOLOTL "2\ndp_shard_size: 2" FSDP, 4, 1, 4, 1, 2, 4, "expert_parallel_size 2 x dp_shard_size 2: para"},
        {AXOLOTL "2\ndp_shard_size: 2" FSDP, 8, 2, 4, 1, 2, 8, "parallelism.dp_shard_size 4"},
        {"parallelism_config: {dp_shard_size: 4, tp_size: 2, ep_size: 8}", 0, 1, 4, 2, 8, 4,
         "an Accelerate configuration"},
        {"distributed_type: MEGATRON_LM\nnum_processes: 8\nmegatron_lm_config: {megatron_lm_tp_degree: 2, "
         "megatron_lm_expert_model_parallel_size: 4}",
         0, 1, 4, 2, 4, 4, "parallelism.ep_size 4: ranks that share experts share all parameters"}};
    for (int k = 0; k < NDP_COUNT(cases); k++) {
        ndp_import_opts o = NDP_IMPORT_OPTS_INIT;
        imported i;
        o.ranks = cases[k].ranks;
        CHECK_OK(import(&i, cases[k].text, &o));
        const int *size = i.c.parallelism.size;
        check_int(cases[k].text, "dp_replicate_size", size[NDP_DP_REPLICATE], cases[k].replicate);
        check_int(cases[k].text, "dp_shard_size", size[NDP_DP_SHARD], cases[k].shard);
        check_int(cases[k].text, "tp_size", size[NDP_TP], cases[k].tp);
        check_int(cases[k].text, "ep_size", size[NDP_EP], cases[k].ep);
        check_int(cases[k].text, "global_batch_size", i.c.batch.global_batch_size, cases[k].global);
        if (!strstr(i.notes, cases[k].said))
            fail_msg("%s\n%s", cases[k].text, i.notes);
        release(&i);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_of_experts),
        cmocka_unit_test(adapters_that_are_not_asked_for),
        cmocka_unit_test(parameters_are_targets),
        cmocka_unit_test(regular_expressions_are_kept),
        cmocka_unit_test(regular_expressions_stand_alone),
        cmocka_unit_test(accelerate_without_distribution),
        cmocka_unit_test(deepspeed_stages),
        cmocka_unit_test(deepspeed_batches),
        cmocka_unit_test(deepspeed_training),
        cmocka_unit_test(what_deepspeed_has_alone),
        cmocka_unit_test(deepspeed_copies),
        cmocka_unit_test(notes_know_what_is_set),
        cmocka_unit_test(llamafactory_job),
        cmocka_unit_test_setup_teardown(llamafactory_sets, make_info, drop_info),
        cmocka_unit_test_setup_teardown(llamafactory_texts, make_info, drop_info),
        cmocka_unit_test_setup_teardown(what_llamafactory_has_alone, make_info, drop_info),
        cmocka_unit_test_setup_teardown(llamafactory_pairs, make_info, drop_info),
        cmocka_unit_test(llamafactory_trains),
        cmocka_unit_test(stages_by_name),
        cmocka_unit_test(llamafactory_with_megatron),
        cmocka_unit_test(parts_of_deepspeed),
        cmocka_unit_test(other_programs_of_the_trainer),
        cmocka_unit_test(scripts_of_trl),
        cmocka_unit_test(pairs_of_trl),
        cmocka_unit_test(rewards_of_trl),
        cmocka_unit_test(layouts_of_transformers),
        cmocka_unit_test(the_trainers_warmup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
