/* LLaMA-Factory's keys, from its hparams/ and the Trainer's below them, and its data sets: names of entries of a
 * dataset_info.json, whose keys are a table too. */
#include "import/import_table.h"

#include <stdlib.h>
#include <string.h>

/* ---- reasons and words ---- */

static const char own_generation[] = "used to generate; see `ndparallel generate`";
static const char other_method[] = "another method of training than full weights, LoRA and QLoRA";
static const char no_pairs[] = "pairs are for stage: dpo";
static const char other_pairs[] = "of pref_loss, sigmoid, ipo and simpo are imported";
static const char with_prompt[] = "loss.name orpo also trains on prompts, LLaMA-Factory's on answers alone";
static const char plain_records[] = "of a record, instruction, input and output are read, or its messages";
static const char mixed_as_is[] = "the entries of data.files are read whole, or mixed by data.mix";
static const char own_evaluation[] = "evaluation computes the loss on held-out data only";
static const char read_as_is[] = "read from the model folder";
static const char no_training[] =
    "the job trains nothing: `ndparallel evaluate` computes the loss of held-out data, `ndparallel generate` answers";

static const import_word stages[] = {{"sft", STAGE_SFT, 0},
                                     {"pt", STAGE_PT, 0},
                                     {"dpo", STAGE_DPO, 0},
                                     {"kto", STAGE_KTO, 0},
                                     {"rm", STAGE_RM, 0},
                                     {"*", 0, no_rewards},
                                     {0}};
static const import_word preferences[] = {{"sigmoid", PAIRS_DPO, 0}, {"ipo", PAIRS_IPO, 0}, {"simpo", PAIRS_SIMPO, 0},
                                          {"orpo", 0, with_prompt},  {"*", 0, other_pairs}, {0}};
static const import_word methods[] = {
    {"lora", NDP_ADAPTER_LORA, 0}, {"full", NDP_ADAPTER_NONE, 0}, {"*", 0, other_method}, {0}};
static const import_word bits[] = {{"4", 4, 0}, {"8", 8, 0}, {"*", 0, no_quantization}, {0}};
static const import_word quantizers[] = {{"bnb bitsandbytes nf4", 0, 0}, {"*", 0, no_quantization}, {0}};
static const import_word mixes[] = {{"concat", 0, 0}, {"*", 0, mixed_as_is}, {0}};
static const import_word recomputes[] = {{"true", WORD_NO, 0}, {"false", WORD_YES, 0}, {0}};
static const import_word attentions[] = {{"auto disabled sdpa fa2 fa3", 0, 0}, {"*", 0, exact_attention}, {0}};
static const char own_names[] = "history, system and tools are read from the fields of these names";
static const import_word history_words[] = {{"history", 0, 0}, {"*", 0, own_names}, {0}},
                         system_words[] = {{"system", 0, 0}, {"*", 0, own_names}, {0}},
                         tools_words[] = {{"tools", 0, 0}, {"*", 0, own_names}, {0}};
static const import_word trained[] = {{"true", 0, 0}, {"false", 0, no_training}, {0}};
static const import_word samplings[] = {{"random", 0, 0}, {"*", 0, by_seed}, {0}};
static const import_word formats[] = {
    {"alpaca", WORD_NO, 0}, {"sharegpt openai", WORD_YES, 0}, {"*", 0, plain_records}, {0}};

/* ---- keys ---- */

/* Keys of the Trainer are also those of other programs that run it. */
static const char trainer[] = "trainer", lf[] = "trainer:llamafactory", entry[] = "llamafactory entry",
                  columns[] = "llamafactory columns", tags[] = "llamafactory tags";

static const import_key keys[] = {
    /* clang-format off */
    /* the model, the adapter */
    {trainer, "model_name_or_path", TEXT(job.model.path)},
    {lf, "adapter_name_or_path", TEXT(job.adapter.path)},
    {lf, "stage", WORD(read.stage, stages), SETTLED_BY("data.format")},
    {lf, "finetuning_type", WORD(read.adapter, methods), SETTLED_BY("adapter.type")},
    {lf, "lora_rank", INT(job.adapter.r, 1, 4096)},
    {lf, "lora_alpha", NUMBER(job.adapter.alpha, "(0, inf)")},
    {lf, "lora_dropout", NUMBER(job.adapter.dropout, "[0, 1)")},
    {lf, "lora_target", EACH(ndp_import_llamafactory_targets), SETTLED_BY("adapter.targets"), .why = "`all` is linear"},
    {lf, "additional_target", LIST(job.adapter.modules_to_save)},
    {lf, "use_rslora", WORD(read.rslora, truth)},
    {lf, "use_dora", WORD(read.dora, truth)},
    {lf, "pissa_* loftq_* use_galore galore_* use_apollo apollo_* use_badam badam_* use_llama_pro freeze_* module_dropout "
         "oft_* use_adam_mini", REFUSED(other_method)},
    {lf, "use_muon", WORD(read.muon, truth)},
    {lf, "loraplus_lr_ratio", NUMBER(job.adapter.lr_ratio_b, "(0, inf)")},
    {lf, "loraplus_lr_embedding", LEFT(no_embedding_factors)},
    {lf, "create_new_adapter", LEFT("adapter.path continues an adapter")},
    {lf, "quantization_bit", WORD(read.bits, bits), SETTLED_BY("adapter.base")},
    {lf, "quantization_method quantization_type", WORD(read.ignored, quantizers), SETTLED_BY("adapter.base"), .why = "adapter.base is nf4 or int8"},
    {lf, "double_quantization quantization_device_map", LEFT(no_quantization)},
    {lf, "rope_scaling resize_vocab shift_attn mixture_of_depths moe_aux_loss_coef", REFUSED("change the model folder's config.json instead")},
    {lf, "add_tokens add_special_tokens new_special_tokens_config init_special_tokens", REFUSED("change the model folder's tokenizer instead")},
    {lf, "model_revision", LEFT(read_as_is)},
    {lf, "cache_dir use_fast_tokenizer split_special_tokens trust_remote_code hf_hub_token ms_hub_token om_hub_token low_cpu_mem_usage "
         "infer_dtype", LEFT(read_as_is)},
    {lf, "image_* video_* audio_* freeze_vision_tower freeze_multi_modal_projector freeze_language_model use_audio_in_video "
         "crop_to_patches", LEFT(no_images)},
    {lf, "flash_attn", WORD(read.ignored, attentions), .why = own_attention},
    {trainer, "torch_compile* use_liger_kernel liger_kernel_config", LEFT(own_kernels)},
    {lf, "enable_liger_kernel use_unsloth* use_kt kt_* use_reentrant_gc use_v1_kernels", LEFT(own_kernels)},
    {lf, "upcast_layernorm upcast_lmhead_output", LEFT("norms and the loss are in fp32")},

    /* the data */
    {lf, "dataset", EACH(ndp_import_llamafactory_sets), INSIDE(entry), SETTLED_BY("data.files"), .why = "by dataset_info.json"},
    {lf, "eval_dataset", EACH(ndp_import_llamafactory_sets), SETTLED_BY("data.validation_files"), .why = "by dataset_info.json"},
    {lf, "dataset_dir media_dir", LEFT("where dataset_info.json is looked for")},
    {lf, "template", EACH(ndp_import_llamafactory_template), SETTLED_BY("data.chat_template"), .why = "`qwen`, `qwen2_vl`, `qwen3_nothink`, `llama3`, `chatml`, `gemma`, `phi`"},
    {lf, "cutoff_len", INT(job.data.sequence_length, 1, 1 << 24)},
    {lf, "packing", WORD(read.packing, truth)},
    {lf, "neat_packing", WORD(read.neat_packing, truth)},
    {lf, "train_on_prompt", WORD(read.train_on_inputs, truth)},
    {lf, "mask_history", REFUSED("data.train_on: assistant trains on all turns of the assistant"), SETTLED_BY("data.train_on")},
    {lf, "max_samples", INT64(job.data.max_documents, 1, INT64_MAX)},
    {lf, "val_size", NUMBER(read.val_set_size, "[0, inf)")},
    {lf, "mix_strategy", WORD(read.ignored, mixes), SETTLED_BY("data.files"), .why = mixed_as_is},
    {lf, "interleave_probs", REFUSED(mixed_as_is), SETTLED_BY("data.files")},
    {lf, "default_system", REFUSED("a system message has to be among the messages of a record")},
    {lf, "tool_format", LEFT("the chat template writes tools")},
    {lf, "enable_thinking preserve_thinking", LEFT("reasoning is read from reasoning_content, or from <think>...</think> in the content")},
    {trainer, "dataloader_* remove_unused_columns", LEFT(own_cache)},
    {lf, "streaming buffer_size overwrite_cache preprocessing_* tokenized_path data_shared_file_system", LEFT(own_cache)},
    {lf, "ignore_pad_token_for_loss", LEFT("padding is masked and needs no token")},
    {lf, "efficient_eos", LEFT("the template's end token of an assistant turn is trained on")},
    {trainer, "group_by_length", REFUSED(by_seed), SETTLED_BY("data.shuffle")},
    {lf, "disable_shuffling", REFUSED(by_seed), SETTLED_BY("data.shuffle")},

    /* the batch, the steps */
    {trainer, "per_device_train_batch_size", INT(read.micro, 1, 1 << 24)},
    {trainer, "gradient_accumulation_steps", INT(read.accumulation, 1, 1 << 24)},
    {trainer, "num_train_epochs", NUMBER(read.epochs, "(0, inf)")},
    {trainer, "max_steps", INT(read.max_steps, -1, 1 << 30)},
    {trainer, "seed", INT64(job.train.seed, 0, INT64_MAX)},
    {trainer, "data_seed", LEFT(by_seed)},

    /* the optimizer */
    {trainer, "optim", WORD(read.optimizer, optimizers), SETTLED_BY("optimizer.name")},
    {trainer, "learning_rate", NUMBER(job.optimizer.lr, "[0, inf)")},
    {trainer, "adam_beta1", NUMBER(job.optimizer.betas[0], "[0, 1)")},
    {trainer, "adam_beta2", NUMBER(job.optimizer.betas[1], "[0, 1)")},
    {trainer, "adam_epsilon", NUMBER(job.optimizer.eps, "(0, inf)")},
    {trainer, "weight_decay", NUMBER(job.optimizer.weight_decay, "[0, inf)")},
    {trainer, "max_grad_norm", NUMBER(job.optimizer.max_grad_norm, "[0, inf)")},
    {trainer, "optim_args optim_target_modules", REFUSED("optimizers have only the options in optimizer:"), SETTLED_BY("optimizer.name")},
    {trainer, "lr_scheduler_type", WORD(read.scheduler, schedules), SETTLED_BY("schedule.name")},
    {trainer, "lr_scheduler_kwargs", SECTION("scheduler")},
    {trainer, "warmup_steps", NUMBER(read.warmup, "[0, 1073741824]")},
    {trainer, "warmup_ratio", NUMBER(read.warmup_ratio, "[0, 1]")},
    {trainer, "neftune_noise_alpha", REFUSED("noise on embeddings is not supported")},
    {trainer, "label_smoothing_factor", REFUSED(one_loss)},
    {lf, "use_asft_loss asft_alpha", REFUSED(one_loss)},
    {lf, "use_dft_loss", WORD(read.probability, truth), SETTLED_BY("loss.token_weight")},
    {lf, "use_eaft_loss", WORD(read.entropy, truth), SETTLED_BY("loss.token_weight")},
    {lf, "eaft_alpha", NUMBER(job.loss.entropy_alpha, "(0, inf)")},
    {lf, "train_mm_proj_only", REFUSED(no_images)},

    /* precision, memory, ranks */
    {trainer, "bf16", WORD(read.bf16, truth_or_auto)},
    {trainer, "fp16", WORD(read.fp16, half_words)},
    {lf, "pure_bf16", WORD(read.half, truth)},
    {lf, "fp8*", REFUSED(no_fp8), SETTLED_BY("precision.compute")},
    {trainer, "tf32", LEFT("matrix products are in fp32 or bf16 (precision.compute)")},
    {lf, "disable_gradient_checkpointing", WORD(read.checkpointing, recomputes)},
    {lf, "gradient_checkpointing*", LEFT("see disable_gradient_checkpointing")},
    {trainer, "deepspeed", EACH(ndp_import_deepspeed), INSIDE("deepspeed"), SETTLED_BY("parallelism.dp_shard_size"),
     .why = "a file, or its keys; of a missing file the name gives the stage"},
    {trainer, "fsdp", LIST(read.fsdp)},
    {trainer, "fsdp_config", SECTION("fsdp"), .prefix = "fsdp_"},
    {trainer, "fsdp_transformer_layer_cls_to_wrap fsdp_min_num_params", LEFT(units)},
    {trainer, "ddp_*", LEFT(overlapped)},
    {trainer, "local_rank accelerator_config log_on_each_node save_on_each_node", LEFT(launched)},
    {lf, "ray_* resources_per_worker placement_strategy device_map master_addr master_port", LEFT(launched)},
    {lf, "print_param_status", LEFT(no_tracker)},

    /* the run */
    {lf, "do_train", WORD(read.ignored, trained)},
    {trainer, "do_eval do_predict predict_with_generate eval_accumulation_steps eval_on_start batch_eval_metrics eval_delay "
              "eval_do_concat_batches eval_use_gather_object bf16_full_eval fp16_full_eval prediction_loss_only label_names", LEFT(own_evaluation)},
    {lf, "compute_accuracy eval_num_beams eval_on_each_dataset", LEFT(own_evaluation)},
    {trainer, "auto_find_batch_size", REFUSED("the batch size is fixed; --dry-run shows whether it fits"), SETTLED_BY("batch.micro_batch_size")},
    {trainer, "average_tokens_across_devices", LEFT("gradients are means over all tokens of an update")},
    {trainer, "activation_checkpointing", WORD(read.fsdp_checkpointing, truth)},
    {trainer, "activation_checkpointing_kwargs", LEFT("recomputation is per decoder block")},
    {trainer, "enable_jit_checkpoint restore_callback_states_from_checkpoint ignore_data_skip", LEFT(own_resume)},
    {trainer, "generation_* sortish_sampler", LEFT(own_generation)},
    {trainer, "train_sampling_strategy", WORD(read.ignored, samplings), SETTLED_BY("data.shuffle"), .why = by_seed},
    {trainer, "length_column_name", LEFT(by_seed)},
    {trainer, "parallelism_config", SECTION("parallelism"), .prefix = "parallelism_config_"},
    {trainer, "project trackio_*", LEFT(other_tracker)},
    {trainer, "torch_empty_cache_steps use_cache skip_memory_metrics", LEFT(own_memory)},
    {trainer, "use_cpu", LEFT("the device is train.device")},
    {trainer, "debug full_determinism", LEFT("results do not depend on the layout; collectives are checked against each other")},
    {lf, "train_from_scratch", WORD(read.reinit, truth)},
    {lf, "adapter_folder offload_folder use_kv_cache block_diag_attn compute_dtype model_max_length", LEFT(read_as_is)},
    /* Megatron's, with USE_MCA */
    {lf, "tensor_model_parallel_size", AXIS(TP)},
    {lf, "pipeline_model_parallel_size", AXIS(PP)},
    {lf, "expert_model_parallel_size", AXIS(EP)},
    {lf, "context_parallel_size", AXIS(CP)},
    {lf, "sequence_parallel", WORD(read.tp_sequence, truth)},
    {lf, "use_distributed_optimizer", WORD(read.distributed_optimizer, truth)},
    {lf, "virtual_pipeline_model_parallel_size", LEFT("the order of a pipeline's micro-batches is pipeline.schedule")},
    {lf, "overlap_* moe_token_dispatcher_type moe_shared_expert_overlap", LEFT(overlapped)},
    {lf, "bias_activation_fusion apply_rope_fusion masked_softmax_fusion moe_grouped_gemm transformer_impl", LEFT(own_kernels)},
    {lf, "recompute_*", LEFT("recomputation is per decoder block")},
    {lf, "hyper_parallel_args use_hyper_parallel use_mca", REFUSED("another program's layers train then")},
    {lf, "batch_size download_mode lang n_shot save_dir task task_dir", LEFT("used only by other commands")},
    {trainer, "output_dir", TEXT(job.train.output_dir)},
    {trainer, "overwrite_output_dir resume_from_checkpoint", LEFT(own_resume)},
    {trainer, "save_steps", NUMBER(read.save_steps, "(0, inf)")},
    {trainer, "save_strategy", WORD(read.save, save_words)},
    {trainer, "save_total_limit", INT(job.checkpoint.keep, 1, 1 << 20)},
    {trainer, "save_only_model save_safetensors", LEFT("checkpoints hold all that a resumed run needs, in safetensors")},
    {trainer, "logging_steps", INT(job.train.log_every, 1, 1 << 30)},
    {trainer, "eval_steps", NUMBER(read.eval_steps, "[0, inf)")},
    {trainer, "eval_strategy evaluation_strategy", WORD(read.eval, eval_words)},
    {trainer, "per_device_eval_batch_size", LEFT("held-out data is batched and packed like training data; a document's loss is the same")},
    {trainer, "load_best_model_at_end", WORD(read.keep_best, truth)},
    {lf, "early_stopping_steps", INT(job.train.stop_after, 0, 1 << 30)},
    {trainer, "metric_for_best_model greater_is_better", LEFT(by_eval_loss)},
    {trainer, "report_to", LIST(read.reporters)},
    {lf, "use_swanlab swanlab_*", LEFT(other_tracker)},
    {trainer, "run_name logging_* disable_tqdm log_level* include_*", LEFT(no_tracker)},
    {lf, "plot_loss enable_torch_profiler profile_modules profiler_*", LEFT(no_tracker)},
    {trainer, "push_to_hub* hub_*", LEFT(no_hub)},
    {lf, "export_*", LEFT(no_hub)},
    {lf, "do_sample temperature top_p top_k num_beams max_length max_new_tokens repetition_penalty length_penalty "
         "skip_special_tokens infer_backend vllm_* sglang_*", LEFT(own_generation)},
    {lf, "pref_loss", WORD(read.pref_loss, preferences), SETTLED_BY("loss.variant")},
    {lf, "pref_beta", NUMBER(read.beta, "(0, inf)")},
    {lf, "pref_ftx", NUMBER(job.loss.sft_weight, "[0, inf)")},
    {lf, "simpo_gamma", NUMBER(read.margin, "[0, inf)")},
    {lf, "kto_chosen_weight", NUMBER(read.desirable, "[0, inf)")},
    {lf, "kto_rejected_weight", NUMBER(read.undesirable, "[0, inf)")},
    {lf, "dpo_label_smoothing", REFUSED("smoothed labels (cDPO) are not supported; loss.variant robust takes loss.label_smoothing"),
     SETTLED_BY("loss.variant")},
    {lf, "pref_bco_weight", REFUSED(other_pairs), SETTLED_BY("loss.variant")},
    {lf, "ld_alpha", REFUSED("a pair's loss is not weighted"), SETTLED_BY("loss.variant")},
    {lf, "ref_model ref_model_adapters", REFUSED("the reference is the model as the run starts")},
    {lf, "ref_model_* reward_* ppo_*", LEFT("used only by other values of stage")},

    /* an entry of dataset_info.json */
    {entry, "file_name", TEXT(set.path)},
    {entry, "hf_hub_url", TEXT(set.hub)},
    {entry, "subset", TEXT(set.config)},
    {entry, "split", EACH(ndp_import_dataset_split), SETTLED_BY("data.files"), .why = "`org/name@revision:config/split`"},
    {entry, "formatting", WORD(set.sharegpt, formats), SETTLED_BY("data.format")},
    {entry, "ranking", WORD(set.ranking, truth), SETTLED_BY("data.format")},
    {entry, "columns", SECTION(columns)},
    {entry, "tags", SECTION(tags)},
    {entry, "num_samples", REFUSED(all_read), SETTLED_BY("data.files")},
    {entry, "ms_hub_url om_hub_url", LEFT("file_name and hf_hub_url are read")},
    {entry, "script_url cloud_file_name folder", REFUSED("download the data set as .jsonl and name its files"), SETTLED_BY("data.files")},
    {columns, "prompt", TEXT(set.prompt)},
    {columns, "query", TEXT(set.input)},
    {columns, "response", TEXT(set.response)},
    {columns, "messages", TEXT(set.messages)},
    {columns, "chosen", TEXT(set.chosen)},
    {columns, "rejected", TEXT(set.rejected)},
    {columns, "kto_tag", TEXT(set.label)},
    {columns, "history", WORD(read.ignored, history_words), SETTLED_BY("data.files")},
    {columns, "system", WORD(read.ignored, system_words), SETTLED_BY("data.files")},
    {columns, "tools", WORD(read.ignored, tools_words), SETTLED_BY("data.files")},
    {columns, "images videos audios", REFUSED(plain_records), SETTLED_BY("data.files")},
    {tags, "role_tag", TEXT(set.role)},
    {tags, "content_tag", TEXT(set.content)},
    {tags, "user_tag assistant_tag system_tag", EACH(ndp_import_tag), SETTLED_BY("data.roles")},
    {tags, "observation_tag function_tag", LEFT("tool calls are in a message's tool_calls")},
    /* clang-format on */
};
const import_table ndp_import_llamafactory = {keys, NDP_COUNT(keys)};

/* ---- what the file lacks ---- */

void ndp_import_begin_llamafactory(import_values *read) {
    read->adapter = NDP_ADAPTER_LORA;
    read->target_linear = WORD_YES;
    read->micro = 8;
    read->epochs = 3;
    read->scheduler = SCHEDULE_LINEAR;
    read->warmup_ratio = 0;
    read->checkpointing = WORD_YES;
    read->save = EVERY_STEPS;
    read->excess = EXCESS_TRUNCATE;
    read->margin = 0.5;
    read->whole_turns = true;
}

/* Without do_train nothing is trained; a file with another task is for that. */
static ndp_status check_training(ndp_import *m) {
    static const char *const tasks[] = {"do_predict", "do_eval", "predict_with_generate", "task"};
    if (ndp_import_find(&m->notes, "do_train"))
        return NDP_OK;
    for (int i = 0; i < NDP_COUNT(tasks); i++) {
        const import_seen *seen = ndp_import_find(&m->notes, tasks[i]);
        if (seen)
            return ndp_import_refuse(&m->notes, tasks[i], NULL, seen->node, no_training, NULL);
    }
    SAY(m, "there is no do_train, without which LLaMA-Factory trains nothing; this job trains\n");
    return NDP_OK;
}

/* LLaMA-Factory's is the Muon of Moonlight, as ours; it decays norms and biases too. */
static ndp_status prepare_muon(ndp_import *m) {
    static const char key[] = "use_muon";
    if (m->read.muon != WORD_YES)
        return NDP_OK;
    if (m->read.adapter != NDP_ADAPTER_NONE)
        return ndp_import_refuse(&m->notes, key, "true", ndp_import_node(&m->notes, key),
                                 "Muon updates whole matrices; set finetuning_type: full", "optimizer.name");
    m->read.optimizer = (1 + NDP_MUON) | OPTIMIZER_OF_BF16;
    if (!ndp_import_is_set(&m->notes, "optimizer.momentum"))
        NDP_TRY(ndp_config_set(&m->job, "optimizer.momentum=0.95"));
    if (m->job.optimizer.weight_decay == 0 || ndp_import_is_set(&m->notes, "optimizer.groups"))
        return NDP_OK;
    ndp_import_mark(m, offsetof(ndp_config, optimizer.groups));
    return ndp_config_setf(&m->job, "optimizer.groups=[{params: [vectors], weight_decay: %.17g}]",
                           m->job.optimizer.weight_decay);
}

ndp_status ndp_import_prepare_llamafactory(ndp_import *m) {
    import_values *read = &m->read;
    NDP_TRY(check_training(m));
    NDP_TRY(prepare_muon(m));
    if (!ndp_import_find(&m->notes, "lora_alpha"))
        m->job.adapter.alpha = 2 * m->job.adapter.r;
    read->four_bits = read->bits == 4 ? WORD_YES : 0;
    read->eight_bits = read->bits == 8 ? WORD_YES : 0;
    if (read->warmup == 0) /* the ratio counts */
        read->warmup = -1;
    if (read->neat_packing == WORD_YES || (!read->packing && read->stage == STAGE_PT))
        read->packing = WORD_YES;
    if (read->packing == WORD_YES) /* otherwise documents that share a row see each other */
        read->multipack_attention = read->neat_packing == WORD_YES ? WORD_YES : WORD_NO;
    if (read->stage == STAGE_DPO)
        read->pairs = read->pref_loss ? read->pref_loss : PAIRS_DPO;
    else if (read->stage == STAGE_KTO)
        read->pairs = PAIRS_KTO;
    else if (read->stage == STAGE_RM)
        read->pairs = PAIRS_REWARD;
    if (read->stage == STAGE_RM)
        SAY(m, "stage rm: LLaMA-Factory keeps the language model and writes a head beside it; here it becomes a "
               "...ForSequenceClassification, whose head has no bias, which would be the same for all texts\n");
    if (read->stage == STAGE_PT)
        return NDP_OK;
    m->job.data.overlong = NDP_OVERLONG_TRUNCATE; /* also where data.files is left to the user */
    ndp_import_mark(m, offsetof(ndp_config, data.overlong));
    ndp_import_mark(m, offsetof(ndp_config, data.train_on));
    SAY(m, "data.overlong truncate: of a long conversation the beginning is kept; LLaMA-Factory shortens questions "
           "and "
           "answers\n");
    return NDP_OK;
}

/* ---- adapter, template ---- */

/* Adds the words of a list or of a text with commas. */
static ndp_status add_words(struct fy_node *item, ndp_strings *out) {
    const char *text = ndp_yaml_text(item);
    for (size_t n; text && *(text += strspn(text, ", ")); text += n) {
        n = strcspn(text, ", ");
        char *word = strndup(text, n);
        ndp_status st = word ? ndp_strings_add(out, word) : NDP_FAIL(NDP_ENOMEM, "not enough memory for a list");
        free(word);
        NDP_TRY(st);
    }
    return NDP_OK;
}

static ndp_status add_target(ndp_import *m, struct fy_node *item, const char *name) {
    (void)name;
    return add_words(item, &m->read.targets);
}

ndp_status ndp_import_llamafactory_targets(ndp_import *m, struct fy_node *value, const char *name) {
    NDP_TRY(ndp_import_items(m, value, name, add_target));
    bool all = m->read.targets.n == 1 && strcmp(m->read.targets.items[0], "all") == 0;
    m->read.target_linear = all ? WORD_YES : WORD_NO;
    if (all)
        ndp_strings_release(&m->read.targets);
    return NDP_OK;
}

/* A key at the top, wherever it is. */
static const char *text_at_top(const ndp_import *m, const char *key) {
    struct fy_node *root = m->yaml.root;
    return fy_node_is_mapping(root) ? ndp_yaml_text(fy_node_mapping_lookup_by_string(root, key, strlen(key))) : NULL;
}

/* Their names of templates that write what ours do, and Axolotl's for these (import_data.c). */
static const char *known_template(const char *name) {
    static const char *const known[][2] = {{"qwen", "qwen_25"},  {"qwen2_vl", "qwen2_vl"}, {"qwen3_nothink", "chatml"},
                                           {"llama3", "llama3"}, {"chatml", "chatml"},     {"gemma", "gemma"},
                                           {"phi", "phi_35"}};
    for (int i = 0; name && i < NDP_COUNT(known); i++)
        if (strcmp(known[i][0], name) == 0)
            return known[i][1];
    return name ? NULL : "tokenizer_default";
}

/* ---- data sets ---- */

/* dataset_info.json: in dataset_dir, or beside the job. *folder: where it is, which is the caller's; NULL: nowhere. */
static ndp_status find_info(const ndp_import *m, char **folder) {
    const char *named = text_at_top(m, "dataset_dir"), *slash = strrchr(m->yaml.what, '/');
    char *beside = ndp_format("%.*s", slash ? (int)(slash - m->yaml.what) : 1, slash ? m->yaml.what : "."),
         *below = ndp_format("%s/data", beside ? beside : ".");
    const char *const places[] = {named ? named : "data", beside, below};
    *folder = NULL;
    for (int i = 0; i < NDP_COUNT(places) && !*folder; i++) {
        char *file = ndp_format("%s/dataset_info.json", places[i] ? places[i] : ".");
        if (file && ndp_path_exists(file))
            *folder = strdup(places[i]);
        free(file);
    }
    ndp_status st = NDP_MEMORY(beside && below, "for a path");
    free(beside);
    free(below);
    return st;
}

static const char own_template[] =
    "set data.chat_template to a built-in one (`ndparallel config data.chat_template`), or to a "
    "file, *.jinja, that writes the same; null is the tokenizer's own";

/* Where data.files is left to the user too, a remark is enough: such a job does not run as it is. */
ndp_status ndp_import_llamafactory_template(ndp_import *m, struct fy_node *value, const char *name) {
    const char *template = ndp_yaml_text(value);
    char *folder;
    if (!template)
        return ndp_yaml_fail(m->notes.y, value, "expected the name of a template");
    if (known_template(template))
        return NDP_OK;
    NDP_TRY(find_info(m, &folder));
    bool runs = folder != NULL;
    free(folder);
    if (runs)
        return ndp_import_refuse(&m->notes, name, template, value, own_template, "data.chat_template");
    SAY(m, "template %s is LLaMA-Factory's own: %s\n", template, own_template);
    return NDP_OK;
}

static ndp_status open_info(ndp_import *m, const char *folder) {
    size_t size;
    char *path = ndp_format("%s/dataset_info.json", folder);
    const char *what = path ? ndp_arena_strdup(&m->notes.arena, path) : NULL;
    free(path);
    NDP_CHECK_MEMORY(what, "for a path");
    if (m->info_text)
        return NDP_OK;
    NDP_TRY(ndp_file_read_as(NDP_FILE_JOB, what, &m->info_text, &size));
    NDP_TRY(ndp_yaml_open(&m->info_yaml, what, m->info_text, size, 0));
    if (!m->info_yaml.root || !fy_node_is_mapping(m->info_yaml.root))
        return ndp_yaml_fail(&m->info_yaml, m->info_yaml.root, "expected an object with an entry for each data set");
    return NDP_OK;
}

/* What m->set, which has an entry's keys, is here. */
static ndp_status settle_set(ndp_import *m, const char *folder, const char *name, struct fy_node *node) {
    bool texts = m->read.stage == STAGE_PT, chats = m->set.sharegpt == WORD_YES, pairs = ndp_import_has_pairs(m);
    const char *stage = text_at_top(m, "stage"), *template = known_template(text_at_top(m, "template"));
    texts |= stage && strcmp(stage, "pt") == 0; /* the key may come later */
    if (m->set.ranking == WORD_YES && !pairs)
        NDP_TRY(ndp_import_refuse(&m->notes, "dataset", "ranking", ndp_import_node(&m->notes, "dataset"), no_pairs,
                                  "data.format"));
    if (m->set.label && strcmp(m->set.label, "label") != 0)
        NDP_TRY(ndp_import_refuse(&m->notes, "kto_tag", m->set.label, ndp_import_node(&m->notes, "dataset"),
                                  "whether an answer is wanted is read from the field label", ndp_import_files_key(m)));
    NDP_TRY(ndp_option_copy_text(texts            ? "completion"
                                 : chats && pairs ? "chat_template.default"
                                 : chats          ? "chat_template"
                                                  : "llamafactory",
                                 &m->set.type));
    if (texts)
        NDP_TRY(ndp_option_copy_text(m->set.prompt ? m->set.prompt : "instruction", &m->set.text));
    if (chats && !m->set.messages)
        NDP_TRY(ndp_option_copy_text("conversations", &m->set.messages));
    NDP_TRY(ndp_option_copy_text(template ? template : "tokenizer_default", &m->set.template));
    if (!texts && !chats)
        NDP_TRY(ndp_import_share(m, offsetof(ndp_config, data.input_separator), "\n", name, node));
    char *path = m->set.hub ? strdup(m->set.hub) : m->set.path ? ndp_format("%s/%s", folder, m->set.path) : NULL;
    free(m->set.path);
    m->set.path = path;
    return NDP_OK;
}

static ndp_status add_entry(ndp_import *m, const char *folder, const char *entry_name, const char *name,
                            struct fy_node *value) {
    struct fy_node *node = fy_node_mapping_lookup_by_string(m->info_yaml.root, entry_name, strlen(entry_name));
    if (!node)
        return ndp_import_refuse(&m->notes, name, entry_name, value, "dataset_info.json has no such entry",
                                 ndp_import_files_key(m));
    ndp_import_forget_set(m);
    m->notes.y = &m->info_yaml;
    ndp_status st = ndp_import_walk(m, node, entry, NULL, entry_name);
    m->notes.y = &m->yaml;
    NDP_TRY(st);
    NDP_TRY(settle_set(m, folder, name, value));
    return ndp_import_add_set(m, name, value, NULL);
}

ndp_status ndp_import_llamafactory_sets(ndp_import *m, struct fy_node *value, const char *name) {
    ndp_strings names = {0};
    char *folder = NULL;
    m->sets.held_out = strcmp(name, "eval_dataset") == 0;
    ndp_status st = add_words(value, &names);
    if (st == NDP_OK && names.n == 0)
        st = ndp_yaml_fail(m->notes.y, value, "'%s' has no name of a data set", name);
    if (st == NDP_OK)
        st = find_info(m, &folder);
    if (st == NDP_OK && !folder)
        SAY(m,
            "%s %s is an entry of a dataset_info.json, which is not there (dataset_dir, or beside this file): set %s "
            "to its "
            "files, and data.format if they are not recognised\n",
            name, ndp_yaml_text(value), ndp_import_files_key(m));
    if (st == NDP_OK && folder)
        st = open_info(m, folder);
    for (int i = 0; st == NDP_OK && folder && i < names.n; i++)
        st = add_entry(m, folder, names.items[i], name, value);
    ndp_strings_release(&names);
    free(folder);
    return st;
}
