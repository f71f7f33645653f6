/* Axolotl's keys, from its schema and the code that reads them. */
#include "import/import_table.h"

/* ---- reasons ---- */

static const char no_relora[] = "an adapter is trained as one, and merged by `ndparallel merge`";
static const char other_rl[] = "used only by other values of rl";
static const char own_reference[] = "log-probabilities of the reference are computed once, before the first step";
static const char own_config[] = "change the model folder's config.json instead";
static const char model_tokenizer[] = "change the model folder's tokenizer instead";
static const char first_fit[] = "rows are packed first fit; documents that share a row do not affect each other";
static const char padding[] = "rows are data.sequence_length long, and padding is masked";
static const char runs_to_the_end[] = "a run ends before train.steps only by train.stop_after";
static const char message_keys[] = "of a message, the role, the content and reasoning_content are read";
static const char whole_turns[] = "data.train_on: assistant trains on whole turns of the assistant";
static const char given_system[] = "a system message has to be among the messages of a record";
static const char plugins_known[] = "plugins for speed: Cut Cross Entropy, Liger, kernels; any other is not supported";
static const char in_hub_name[] = "`org/name@revision:config/split`";
static const char not_read[] = "Axolotl no longer reads this key";
static const char thoughts[] =
    "reasoning is read from reasoning_content, thinking or reasoning, or from <think>...</think> in the content";

/* ---- words ---- */

static const import_word adapters[] = {
    {"lora", NDP_ADAPTER_LORA, 0}, {"qlora", NDP_ADAPTER_QLORA, 0}, {"*", 0, "adapter.type is lora or qlora"}, {0}};
static const import_word decays[] = {{"cosine", 0, 0}, {"linear 1-sqrt", 0, "the rate of wsd falls as a cosine"}, {0}};
static const import_word rises[] = {{"linear", 0, 0}, {"cosine 1-sqrt", 0, "warm-up is linear"}, {0}};
static const import_word rings[] = {{"varlen_llama3", RING_GATHERED, 0},
                                    {"batch_ring", RING_PLAIN, 0},
                                    {"batch_zigzag", RING_ZIGZAG, 0},
                                    {"batch_stripe", RING_STRIPE, 0},
                                    {0}};
static const import_word attentions[] = {{"eager sdp sdpa flash* flex* xformers*", 0, 0},
                                         {"sage* s2* fp8 kernels-community/sage*", 0, exact_attention},
                                         {"kernels-community/*", 0, 0},
                                         {0}};
static const import_word with_muon[] = {
    TRAINER_OPTIMIZERS, {"muon", (1 + NDP_MUON_SPECTRAL) | OPTIMIZER_OF_BF16, 0}, {0}};
static const import_word packings[] = {{"Mxfp4Config FineGrainedFP8Config", 0, 0}, {"*", 0, no_quantization}, {0}};
static const import_word excesses[] = {
    {"drop", EXCESS_DROP, 0}, {"truncate", EXCESS_TRUNCATE, 0}, {"raise", EXCESS_RAISE, 0}, {0}};
static const import_word preferences[] = {{"dpo", PAIRS_DPO, 0},
                                          {"ipo", PAIRS_IPO, 0},
                                          {"orpo", PAIRS_ORPO, 0},
                                          {"simpo", PAIRS_SIMPO, 0},
                                          {"kto", PAIRS_KTO, 0},
                                          {"*", 0, no_rewards},
                                          {0}};
static const import_word reward_words[] = {{"true", PAIRS_REWARD, 0}, {"false", 0, 0}, {0}};
static const import_word one_label[] = {{"1", 0, 0}, {"*", 0, "a reward model has one label"}, {0}};
/* Keys whose only accepted value is what ndparallel does anyway. */
static const import_word thought_key[] = {{"reasoning_content thinking reasoning", 0, 0}, {"*", 0, thoughts}, {0}};
static const import_word turn_ends[] = {
    {"turn", 0, 0}, {"*", 0, "the token that ends a turn is trained on together with the turn"}, {0}};

/* ---- keys ---- */

static const char axolotl[] = "axolotl", lr_group[] = "lr_group", dataset[] = "dataset", tokens[] = "tokens",
                  scheduler[] = "scheduler", prompter[] = "prompter", mappings[] = "mappings", roles[] = "roles",
                  trl[] = "trl", model_config[] = "model_config";

static const import_key keys[] = {
    /* clang-format off */
    /* the model */
    {axolotl, "base_model", TEXT(job.model.path)},
    {axolotl, "tokenizer_config", TEXT(job.data.tokenizer)},
    {axolotl, "base_model_config cls_model_config model_type model_config_type tokenizer_type processor_type tokenizer_use_fast tokenizer_legacy "
              "tokenizer_use_mistral_common is_falcon_derived_model is_llama_derived_model is_mistral_derived_model "
              "is_qwen_derived_model", LEFT("read from the model folder")},
    {axolotl, "trust_remote_code", LEFT("model folders are read without running code from them")},
    {axolotl, "revision_of_model", TEXT(read.revision), SETTLED_BY("model.path")},
    {axolotl, "model_config overrides_of_model_config", SECTION(model_config)},
    {model_config, "output_router_logits", WORD(read.router_logits, truth)},
    {model_config, "*", REFUSED(own_config)},
    {axolotl, "overrides_of_model_kwargs rope_scaling shrink_embeddings scaling_softmax*", REFUSED(own_config)},
    {axolotl, "resize_token_embeddings_to_32x", LEFT("the vocabulary is padded internally where that is faster")},
    {axolotl, "mean_resizing_embeddings", LEFT("no rows are added to the vocabulary")},
    {axolotl, "embeddings_skip_upcast", LEFT("weights are kept in fp32; computation uses precision.compute")},
    {axolotl, "reinit_weights", WORD(read.reinit, truth)},
    {axolotl, "special_tokens", SECTION(tokens)},
    {axolotl, "tokens", EACH(ndp_import_tokens), SETTLED_BY("data.tokenizer"), .why = "tokens that the tokenizer has"},
    {axolotl, "added_tokens_overrides", REFUSED(model_tokenizer), SETTLED_BY("data.tokenizer")},
    {axolotl, "fix_untrained_tokens", REFUSED("embeddings are not changed before training")},
    {tokens, "pad_token", LEFT("padding is masked and needs no token")},
    {tokens, "eos_token", TEXT(read.eos_token), SETTLED_BY("data.tokenizer")},
    {tokens, "bos_token", TEXT(read.bos_token), SETTLED_BY("data.tokenizer")},
    {tokens, "unk_token", TEXT(read.unk_token), SETTLED_BY("data.tokenizer")},
    {tokens, "additional_special_tokens", LIST(read.added_tokens), SETTLED_BY("data.tokenizer")},
    {tokens, "*", REFUSED(model_tokenizer), SETTLED_BY("data.tokenizer")},
    {axolotl, "gptq quantization qat use_onebitllms", REFUSED(no_quantization)},
    {axolotl, "quantize_moe_experts", LEFT("adapter.base stores the projections of layers, those of experts too")},
    {axolotl, "load_in_4bit", WORD(read.four_bits, truth), SETTLED_BY("adapter.base")},
    {axolotl, "load_in_8bit", WORD(read.eight_bits, truth), SETTLED_BY("adapter.base")},
    {axolotl, "model_quantization_config", WORD(read.ignored, packings), SETTLED_BY("model.path"),
     .why = "packed weights of the folder are dequantised where they are read"},
    {axolotl, "bnb_config_kwargs model_quantization_config_kwargs gptq_disable_exllama", LEFT(no_quantization)},
    {axolotl, "adapter", WORD(read.adapter, adapters), SETTLED_BY("adapter.type")},
    {axolotl, "lora_r", INT(job.adapter.r, 1, 4096)},
    {axolotl, "lora_alpha", NUMBER(job.adapter.alpha, "(0, inf)")},
    {axolotl, "lora_dropout", NUMBER(job.adapter.dropout, "[0, 1)")},
    {axolotl, "lora_target_modules", LIST(read.targets), SETTLED_BY("adapter.targets")},
    {axolotl, "lora_target_parameters", LIST(read.parameters), SETTLED_BY("adapter.targets")},
    {axolotl, "lora_target_linear", WORD(read.target_linear, truth)},
    {axolotl, "lora_modules_to_save", LIST(job.adapter.modules_to_save)},
    {axolotl, "peft_use_dora", WORD(read.dora, truth)},
    {axolotl, "peft_use_rslora", WORD(read.rslora, truth)},
    {axolotl, "lora_model_dir", TEXT(job.adapter.path)},
    {axolotl, "peft_init_lora_weights", WORD(read.ignored, starts), SETTLED_BY("adapter.init"),
     .why = "factors begin as PEFT's default"},
    {axolotl, "relora relora_*", REFUSED(no_relora)},
    {axolotl, "loraplus_lr_ratio", NUMBER(job.adapter.lr_ratio_b, "(0, inf)")},
    {axolotl, "loraplus_lr_embedding", LEFT(no_embedding_factors)},
    {axolotl, "peft peft_* lora_exclude_modules", REFUSED(all_layers), SETTLED_BY("adapter.targets")},
    {axolotl, "lora_fan_in_fan_out", LEFT("how files hold matrices follows from the model")},
    {axolotl, "lora_qkv_kernel lora_o_kernel lora_mlp_kernel lora_embedding_kernel lora_on_cpu qlora_*", LEFT(own_kernels)},
    {axolotl, "peft_autocast_adapter_dtype", LEFT("factors are in fp32; computation uses precision.compute")},
    {axolotl, "merge_lora", LEFT("`ndparallel merge` does it")},
    {axolotl, "unfrozen_parameters", LIST(read.unfrozen), SETTLED_BY("model.trained")},
    {axolotl, "optim_target_modules lisa_*", REFUSED(all_trained)},
    {axolotl, "freeze_mm_modules", LEFT("only the text is trained; other parts stay as they are")},
    {axolotl, "is_multimodal image_size image_resize_algorithm", REFUSED(no_images)},

    /* the layout */
    {axolotl, "tensor_parallel_size", AXIS(TP)},
    {axolotl, "context_parallel_size sequence_parallel_degree", AXIS(CP)},
    {axolotl, "dp_shard_size", AXIS(DP_SHARD)},
    {axolotl, "dp_replicate_size", AXIS(DP_REPLICATE)},
    {axolotl, "expert_parallel_size", AXIS(EP)},
    {axolotl, "expert_parallel_token_capacity", REFUSED("no token is dropped")},
    {axolotl, "expert_parallel_*", LEFT(own_kernels)},
    {axolotl, "world_size", SIZE(read.processes)},
    {axolotl, "ring_attn_func", WORD(read.ring, rings)},
    {axolotl, "fsdp", LIST(read.fsdp)},
    {axolotl, "fsdp_config", SECTION("fsdp"), .prefix = "fsdp_"},
    {axolotl, "fsdp_version", LEFT(one_sharding)},
    {axolotl, "fsdp_final_state_dict_type", LEFT(always_sharded)},
    {axolotl, "deepspeed", EACH(ndp_import_deepspeed), INSIDE("deepspeed"), SETTLED_BY("parallelism.dp_shard_size"),
     .why = "a file, or its keys; of a missing file the name gives the stage"},
    {axolotl, "ddp", LEFT("the number of replicas is parallelism.dp_replicate_size")},
    {axolotl, "ddp_*", LEFT(overlapped)},
    {axolotl, "ddp_timeout", LEFT("NDP_COMM_TIMEOUT sets how long ranks wait for each other")},
    {axolotl, "device device_map local_rank use_ray ray_* resources_per_worker accelerator_config debug "
              "axolotl_config_path", LEFT(launched)},
    {axolotl, "max_memory gpu_memory_limit low_cpu_mem_usage gc_* tiled_mlp* experimental_skip_move_to_device", LEFT(own_memory)},
    {axolotl, "activation_offloading layer_offloading", LEFT(no_offload)},
    {axolotl, "auto_find_batch_size", REFUSED("the batch size is fixed; --dry-run shows whether it fits"),
     SETTLED_BY("batch.micro_batch_size")},

    /* the batch, the steps */
    {axolotl, "micro_batch_size", INT(read.micro, 1, 1 << 24)},
    {axolotl, "gradient_accumulation_steps", INT(read.accumulation, 1, 1 << 24)},
    {axolotl, "batch_size", INT(read.batch, 1, 1 << 30)},
    {axolotl, "num_epochs", NUMBER(read.epochs, "(0, inf)")},
    {axolotl, "max_steps", INT(read.max_steps, -1, 1 << 30)},
    {axolotl, "seed", INT64(job.train.seed, 0, INT64_MAX)},

    /* the optimizer */
    {axolotl, "optimizer", WORD(read.optimizer, with_muon), SETTLED_BY("optimizer.name")},
    {axolotl, "learning_rate", NUMBER(job.optimizer.lr, "[0, inf)")},
    {axolotl, "adam_beta1", NUMBER(job.optimizer.betas[0], "[0, 1)")},
    {axolotl, "adam_beta2", NUMBER(job.optimizer.betas[1], "[0, 1)")},
    {axolotl, "adam_epsilon", NUMBER(job.optimizer.eps, "(0, inf)")},
    {axolotl, "weight_decay", NUMBER(job.optimizer.weight_decay, "[0, inf)")},
    {axolotl, "max_grad_norm", NUMBER(job.optimizer.max_grad_norm, "[0, inf)")},
    {axolotl, "adam_beta3 adam_epsilon2", REFUSED(not_adamw)},
    {axolotl, "optim_args", REFUSED("optimizers have only the options in optimizer:"), SETTLED_BY("optimizer.name")},
    {axolotl, "embedding_lr", NUMBER(read.embedding_lr, "[0, inf)"), SETTLED_BY("optimizer.groups")},
    {axolotl, "embedding_lr_scale", NUMBER(read.embedding_lr_scale, "[0, inf)"), SETTLED_BY("optimizer.groups")},
    {axolotl, "lr_groups", EACH(ndp_import_lr_groups), INSIDE(lr_group), SETTLED_BY("optimizer.groups")},
    {lr_group, "name", LEFT("groups have no names")},
    {lr_group, "modules", LIST(read.group_modules)},
    {lr_group, "lr", NUMBER(read.group_lr, "[0, inf)")},
    {axolotl, "lr_scheduler", WORD(read.scheduler, schedules), SETTLED_BY("schedule.name")},
    {axolotl, "lr_scheduler_kwargs", SECTION(scheduler)},
    {scheduler, "min_lr_rate", NUMBER(read.min_lr_ratio, "[0, 1]")},
    {scheduler, "min_lr_ratio", NUMBER(read.wsd_min_lr_ratio, "[0, 1]")},
    {scheduler, "min_lr", NUMBER(read.min_lr, "[0, inf)")},
    {scheduler, "num_cycles", NUMBER(read.cycles, "(0, 1048576]")},
    {scheduler, "num_decay_steps", INT(read.decay_steps, 1, 1 << 30)},
    {scheduler, "num_stable_steps", INT(read.stable_steps, 0, 1 << 30)},
    {scheduler, "timescale", INT(read.timescale, 1, 1 << 30)},
    {scheduler, "decay_type", WORD(read.ignored, decays), SETTLED_BY("schedule.name")},
    {scheduler, "warmup_type", WORD(read.ignored, rises), SETTLED_BY("schedule.name")},
    {scheduler, "*", REFUSED(no_schedule), SETTLED_BY("schedule.name")},
    {axolotl, "cosine_min_lr_ratio", NUMBER(read.min_lr_ratio, "[0, 1]")},
    {axolotl, "cosine_constant_lr_ratio jagged_restart_*", REFUSED(no_schedule), SETTLED_BY("schedule.name")},
    {axolotl, "lr_quadratic_warmup", WORD(read.quadratic, truth), SETTLED_BY("schedule.warmup_steps"), .why = "only a cosine has it, which is refused"},
    {axolotl, "lr_div_factor", LEFT("used only by one_cycle")},
    {axolotl, "warmup_steps", NUMBER(read.warmup, "[0, 1073741824]")},
    {axolotl, "warmup_ratio", NUMBER(read.warmup_ratio, "[0, 1]")},
    {axolotl, "neftune_noise_alpha noisy_embedding_alpha", REFUSED("noise on embeddings is not supported")},
    {axolotl, "label_smoothing_factor kd_*", REFUSED(one_loss)},
    {axolotl, "use_eaft", WORD(read.entropy, truth), SETTLED_BY("loss.token_weight")},
    {axolotl, "eaft_alpha", NUMBER(job.loss.entropy_alpha, "(0, inf)")},
    {axolotl, "eaft_k", INT(job.loss.entropy_k, 2, NDP_MOST_TOP)},
    {axolotl, "trainer_cls", REFUSED("a class of another program, which could change the training")},

    /* precision, memory, kernels */
    {axolotl, "bf16", WORD(read.bf16, truth_or_auto)},
    {axolotl, "fp16", WORD(read.fp16, half_words)},
    {axolotl, "fp8", REFUSED(no_fp8), SETTLED_BY("precision.compute")},
    {axolotl, "fp8_*", LEFT(no_fp8)},
    {axolotl, "bfloat16", WORD(read.half, truth_or_auto)},
    {axolotl, "float16", WORD(read.fp16, half_words)},
    {axolotl, "float32", WORD(read.fp32, truth)},
    {axolotl, "tf32", LEFT("matrix products are in fp32 or bf16 (precision.compute)")},
    {axolotl, "gradient_checkpointing", WORD(read.checkpointing, checkpointing_words)},
    {axolotl, "gradient_checkpointing_kwargs", LEFT("recomputation is per decoder block")},
    {axolotl, "flash_attention flash_attn_* flash_optimum sdp_attention xformers_attention flex_attention flex_attn_* "
              "eager_attention heads_k_stride fused_attn_kernel gemma4_hybrid_attn_impl", LEFT(own_attention)},
    {axolotl, "attention attn_implementation", WORD(read.ignored, attentions), .why = own_attention},
    {axolotl, "sage_attention s2_attention", REFUSED(exact_attention)},
    {axolotl, "torch_compile* deepcompile liger_* cut_cross_entropy chunked_cross_entropy* unsloth_* llama4_linearized_experts "
              "experts_implementation use_kernels use_scattermoe use_sonicmoe", LEFT(own_kernels)},
    {axolotl, "plugins", EACH(ndp_import_plugins), .why = plugins_known},
    {axolotl, "diffusion", REFUSED(one_loss)},

    /* the data: keys of all sets */
    {axolotl, "datasets pretraining_dataset", EACH(ndp_import_datasets), INSIDE(dataset), SETTLED_BY("data.files")},
    {axolotl, "test_datasets", EACH(ndp_import_datasets), SETTLED_BY("data.validation_files")},
    {axolotl, "val_set_size", NUMBER(read.val_set_size, "[0, inf)")},
    {axolotl, "sequence_len", INT(job.data.sequence_length, 1, 1 << 24)},
    {axolotl, "min_sample_len", INT64(job.data.min_tokens, 0, INT64_MAX)},
    {axolotl, "excess_length_strategy", WORD(read.excess, excesses)},
    {axolotl, "sample_packing", WORD(read.packing, truth)},
    {axolotl, "pretrain_multipack_attn", WORD(read.multipack_attention, truth)},
    {axolotl, "train_on_inputs", WORD(read.train_on_inputs, truth)},
    {axolotl, "chat_template", TEXT(read.chat_template)},
    {axolotl, "curriculum_sampling", WORD(read.curriculum, truth)},
    {axolotl, "shuffle_merged_datasets", WORD(read.shuffle_merged, truth)},
    {axolotl, "shuffle_before_merging_datasets", LEFT(by_seed)},
    {axolotl, "group_by_length", REFUSED(by_seed), SETTLED_BY("data.shuffle")},
    {axolotl, "sample_packing_* multipack_real_batches pretrain_multipack_buffer_size streaming_multipack_buffer_size",
     LEFT(first_fit)},
    {axolotl, "pad_to_sequence_len pad_to_multiple_of batch_flattening", LEFT(padding)},
    {axolotl, "pretraining_sample_concatenation",
     REFUSED("documents in a row are masked from each other; data.document_mask: false joins them into one text"),
     SETTLED_BY("data.document_mask")},
    {axolotl, "use_pose", REFUSED("positions are those in the document")},
    {axolotl, "pose_*", LEFT("positions are those in the document")},
    {axolotl, "dataset_exact_deduplication", WORD(read.unique, truth)},
    {axolotl, "dataset_shard_num", REFUSED(all_read), SETTLED_BY("data.files")},
    {axolotl, "dataset_shard_idx", LEFT(all_read)},
    {axolotl, "dataset_* dataloader_* skip_prepare_dataset num_dataset_shards_to_save remove_unused_columns streaming",
     LEFT(own_cache)},
    {axolotl, "chat_template_jinja chat_template_kwargs", REFUSED(NDP_IMPORT_NO_TEMPLATE), SETTLED_BY("data.chat_template")},
    {axolotl, "default_system_message", REFUSED(given_system)},
    {axolotl, "eot_tokens", LEFT("the template's end token of an assistant turn is trained on")},
    {axolotl, "roles_to_train train_on_eos train_on_eot", LEFT("Axolotl reads this key only in a data set")},
    /* the loss of pairs */
    {axolotl, "rl", WORD(read.pairs, preferences)},
    {axolotl, "rl_beta", NUMBER(read.beta, "(0, inf)")},
    {axolotl, "trl", SECTION(trl)},
    {trl, "beta", NUMBER(read.trl_beta, "(0, inf)")},
    {trl, "*", LEFT(other_rl)},
    {axolotl, "orpo_alpha", NUMBER(read.odds_weight, "(0, inf)")},
    {axolotl, "cpo_alpha", NUMBER(read.nll_weight, "[0, inf)")},
    {axolotl, "simpo_gamma", NUMBER(read.margin, "[0, inf)")},
    {axolotl, "kto_desirable_weight", NUMBER(read.desirable, "[0, inf)")},
    {axolotl, "kto_undesirable_weight", NUMBER(read.undesirable, "[0, inf)")},
    {axolotl, "dpo_label_smoothing", REFUSED("smoothed labels (cDPO) are not supported; loss.variant robust takes loss.label_smoothing"),
     SETTLED_BY("loss.variant")},
    {axolotl, "dpo_loss_type dpo_loss_weights", REFUSED("loss.variant is one of:" NDP_LOSS_VARIANTS(LISTED)), SETTLED_BY("loss.variant")},
    {axolotl, "dpo_use_weighting dpo_norm_loss", REFUSED("a pair's loss is not weighted"), SETTLED_BY("loss.variant")},
    {axolotl, "rpo_alpha", REFUSED("set loss.sft_weight, the weight of the mean token loss of chosen answers"), SETTLED_BY("loss.sft_weight")},
    {axolotl, "dpo_padding_free dpo_use_logits_to_keep dpo_use_liger_kernel dpo_generate_during_eval", LEFT(own_kernels)},
    {axolotl, "precompute_ref_log_probs rl_adapter_ref_model", LEFT(own_reference)},
    {axolotl, "max_prompt_len", LEFT("data.overlong says what becomes of a document longer than a row; prompts have no length of their own")},
    {axolotl, "reward_model", WORD(read.reward, reward_words)},
    {axolotl, "center_rewards_coefficient", NUMBER(read.center, "[0, inf)")},
    {axolotl, "num_labels", WORD(read.ignored, one_label)},
    {axolotl, "process_reward_model", REFUSED(no_rewards)},
    {axolotl, "vllm dpo_* orpo_* kto_* rpo_* cpo_* simpo_* ebft", LEFT(other_rl)},

    /* a data set */
    {dataset, "path", TEXT(set.path)},
    {dataset, "data_files", LIST(set.files)},
    {dataset, "type", EACH(ndp_import_dataset_type), INSIDE(prompter), SETTLED_BY("data.format"),
     .why = "completion, pretrain, chat_template, alpaca, sharegpt, input_output"},
    {dataset, "ds_type", TEXT(set.ds_type)},
    {dataset, "field text_column", TEXT(set.text)},
    {dataset, "field_messages", TEXT(set.messages)},
    {dataset, "chat_template", TEXT(set.template)},
    {dataset, "split", EACH(ndp_import_dataset_split), SETTLED_BY("data.files"), .why = in_hub_name},
    {dataset, "name", TEXT(set.config)},
    {dataset, "revision", TEXT(set.revision)},
    {dataset, "trust_remote_code", LEFT(no_hub)},
    {dataset, "preprocess_shards", LEFT(own_cache)},
    {dataset, "shards skip", REFUSED(all_read), SETTLED_BY("data.files")},
    {dataset, "shards_idx", LEFT(all_read)},
    {dataset, "chat_template_jinja", REFUSED(NDP_IMPORT_NO_TEMPLATE), SETTLED_BY("data.chat_template")},
    {dataset, "message_property_mappings", SECTION(mappings)},
    {dataset, "message_field_role", TEXT(set.role)},
    {dataset, "message_field_content", TEXT(set.content)},
    {dataset, "field_thinking template_thinking_key", WORD(read.ignored, thought_key)},
    {dataset, "split_thinking", REFUSED(thoughts)},
    {dataset, "roles", SECTION(roles)},
    {dataset, "roles_to_train", EACH(ndp_import_roles_to_train), SETTLED_BY("data.train_on")},
    {dataset, "train_on_eos train_on_eot", WORD(read.ignored, turn_ends), SETTLED_BY("data.train_on")},
    {dataset, "message_field_training", TEXT(set.train)},
    {dataset, "message_field_training_detail", REFUSED(whole_turns), SETTLED_BY("data.train_on")},
    {dataset, "drop_system_message", WORD(set.drop_system, truth)},
    {dataset, "field_system", REFUSED(given_system)},
    {dataset, "field_tools", REFUSED("tools are not supported")},
    {dataset, "field_chosen", TEXT(set.chosen)},
    {dataset, "field_rejected", TEXT(set.rejected)},
    {dataset, "step_separator max_completion_length train_on_last_step_only", LEFT("used only by reward models")},
    {dataset, "conversation field_human field_model", LEFT("used only by sharegpt and similar types")},
    {dataset, "input_format input_transform logprobs_field temperature", LEFT("not used by any supported data set type")},
    {mappings, "role", TEXT(set.role)},
    {mappings, "content", TEXT(set.content)},
    {mappings, "reasoning_content", WORD(read.ignored, thought_key)},
    {mappings, "*", REFUSED(message_keys), SETTLED_BY("data.files")},
    {roles, "*", EACH(ndp_import_role), SETTLED_BY("data.roles")},
    {prompter, "field_instruction", TEXT(set.prompt)},
    {prompter, "field_input", TEXT(set.input)},
    {prompter, "field_output", TEXT(set.response)},
    {prompter, "format", TEXT(set.format)},
    {prompter, "no_input_format", TEXT(set.no_input_format)},
    {prompter, "system_prompt field_system", REFUSED("system messages in prompts are not supported"), SETTLED_BY("data.format")},
    {prompter, "system_format", LEFT("system messages in prompts are not supported")},

    /* the run folder */
    {axolotl, "output_dir", TEXT(job.train.output_dir)},
    {axolotl, "save_steps", NUMBER(read.save_steps, "(0, inf)")},
    {axolotl, "saves_per_epoch", NUMBER(read.saves_per_epoch, "(0, inf)")},
    {axolotl, "save_strategy", WORD(read.save, save_words)},
    {axolotl, "save_total_limit", INT(job.checkpoint.keep, 1, 1 << 20)},
    {axolotl, "save_first_step dynamic_checkpoint", LEFT("checkpoints are written every checkpoint.every steps")},
    {axolotl, "save_only_model", LEFT("checkpoints hold all that a resumed run needs")},
    {axolotl, "save_safetensors", LEFT(always_sharded)},
    {axolotl, "logging_steps", INT(job.train.log_every, 1, 1 << 30)},
    {axolotl, "test_value", LEFT("one of Axolotl's examples has it, and nothing reads it")},
    {axolotl, "resume_from_checkpoint auto_resume_from_checkpoints", LEFT(own_resume)},
    {axolotl, "eval_steps", NUMBER(read.eval_steps, "[0, inf)")},
    {axolotl, "evals_per_epoch", NUMBER(read.evals_per_epoch, "[0, inf)")},
    {axolotl, "eval_strategy evaluation_strategy", WORD(read.eval, eval_words)},
    {axolotl, "eval_batch_size eval_sample_packing", LEFT("held-out data is batched and packed like training data; "
                                                          "a document's loss is the same")},
    {axolotl, "eval_sequence_len", LEFT("held-out rows have data.sequence_length too")},
    {axolotl, "eval_* do_* bench_*", LEFT("evaluation computes the loss on held-out data only")},
    {axolotl, "load_best_model_at_end", WORD(read.keep_best, truth)},
    {axolotl, "metric_for_best_model greater_is_better", LEFT(by_eval_loss)},
    {axolotl, "early_stopping_patience", INT(job.train.stop_after, 0, 1 << 30)},
    {axolotl, "loss_watchdog_*", LEFT(runs_to_the_end)},
    {axolotl, "use_tensorboard", WORD(read.tensorboard, truth)},
    {axolotl, "report_to", LIST(read.reporters)},
    {axolotl, "use_wandb wandb_* use_mlflow mlflow_* hf_mlflow_* use_comet comet_* use_trackio trackio_* use_otel "
              "otel_* use_otel_metrics use_swanlab swanlab_*", LEFT(other_tracker)},
    {axolotl, "include_t* profiler_steps*", LEFT(no_tracker)},
    {axolotl, "gradio_*", LEFT("use `ndparallel generate`")},
    {axolotl, "hub_* push_* hf_use_auth_token", LEFT(no_hub)},
    {axolotl, "strict", LEFT("unknown keys are always refused")},

    /* of kernels, memory, and other optimizers */
    {axolotl, "large_head_attention sdpa_varlen use_dsv4_kernels use_glm_dsa_kernels dsv4_fp4_grouped_mode", LEFT(own_kernels)},
    {axolotl, "fp32_norm_classes fp32_norms", LEFT("norms and the loss are in fp32")},
    {axolotl, "generate_samples generation_* num_generation_samples", LEFT("use `ndparallel generate`")},
    {axolotl, "is_preprocess preprocess_iterable total_supervised_tokens", LEFT(own_cache)},
    {axolotl, "ple_cpu_offload", LEFT(no_offload)},
    {axolotl, "torch_empty_cache_steps", LEFT(own_memory)},
    {axolotl, "selective_checkpointing", LEFT("recomputation is per decoder block")},
    {axolotl, "dion_* qgalore_*", LEFT("used only by other optimizers")},
    {axolotl, "lora_alpha_pattern lora_rank_pattern", REFUSED(all_layers), SETTLED_BY("adapter.targets")},
    {axolotl, "merge_method nvfp4_merge_aware", LEFT("`ndparallel merge` does it")},
    {axolotl, "processor_kwargs tokenizer_save_jinja_files type_of_model", LEFT("read from the model folder")},
    {axolotl, "role_boundaries", REFUSED(whole_turns), SETTLED_BY("data.train_on")},

    /* keys of older versions, which are in its examples still */
    {axolotl, "max_packed_sequence_len gptq_groupsize gptq_model_v1 torchdistx_path total_num_tokens adam_eps eta_min torch_dtype "
              "full_finetune base_model_ignore_patterns", LEFT(not_read)},
    /* clang-format on */
};
const import_table ndp_import_axolotl = {keys, NDP_COUNT(keys)};
