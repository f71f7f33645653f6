/* Accelerate's keys: ClusterConfig, ParallelismConfig, the plugins for FSDP, DeepSpeed (and DeepSpeed's own file) and
 * Megatron-LM, as these programs read them. An Axolotl file has sections with the same keys. */
#include "import/import_table.h"

static const import_word mixed_words[] = {
    {"no", WORD_NO, 0}, {"bf16", WORD_YES, 0}, {"fp16", WORD_HALF, 0}, {"fp8", 0, no_fp8}, {0}};
static const import_word strategies[] = {{"FULL_SHARD 1", FULL_SHARD, 0},
                                         {"SHARD_GRAD_OP 2", SHARD_GRAD_OP, 0},
                                         {"NO_SHARD 3", NO_SHARD, 0},
                                         {"HYBRID_SHARD 4", HYBRID_SHARD, 0},
                                         {"HYBRID_SHARD_ZERO2 _HYBRID_SHARD_ZERO2 5", HYBRID_SHARD_ZERO2, 0},
                                         {0}};
/* FSDP2's key, which holds a strategy in files that were written for FSDP1. */
static const import_word reshard_words[] = {
    {"true FULL_SHARD", FULL_SHARD, 0}, {"false SHARD_GRAD_OP", SHARD_GRAD_OP, 0},     {"NO_SHARD", NO_SHARD, 0},
    {"HYBRID_SHARD", HYBRID_SHARD, 0},  {"HYBRID_SHARD_ZERO2", HYBRID_SHARD_ZERO2, 0}, {0}};
static const import_word distributed_words[] = {{"NO", DISTRIBUTED_NO, 0},
                                                {"MULTI_* TP MEGATRON_LM XLA TPU", DISTRIBUTED_DDP, 0},
                                                {"FSDP", DISTRIBUTED_FSDP, 0},
                                                {"DEEPSPEED", DISTRIBUTED_DEEPSPEED, 0},
                                                {0}};
/* torch: keys and values by one all-gather, or by one all-to-all per step, which is a ring. */
static const import_word rotations[] = {{"allgather", NDP_CP_ALL_GATHER + 1, 0}, {"alltoall", NDP_CP_RING + 1, 0}, {0}};

static const char accelerate[] = "accelerate", distributed[] = "distributed", parallelism[] = "parallelism",
                  cp_handler[] = "cp_handler", tp_config[] = "tp", fsdp[] = "fsdp", deepspeed[] = "deepspeed",
                  zero[] = "zero", enabled_bf16[] = "bf16", enabled_fp16[] = "fp16", megatron[] = "megatron";
/* A DeepSpeed file by itself. */
static const char alone[] = "deepspeed:alone", zero_alone[] = "zero:alone", optimizer[] = "deepspeed optimizer",
                  optimizer_params[] = "deepspeed optimizer.params", schedule[] = "deepspeed scheduler",
                  schedule_params[] = "deepspeed scheduler.params", checkpoints[] = "deepspeed checkpoints";

static const char other_update[] = "another update rule; optimizer.name is one of:" OPTIMIZERS_LISTED;
static const char no_l2[] = "weight decay shrinks the weights; it is not added to gradients";
static const char no_such_schedule[] =
    "of DeepSpeed's schedules WarmupLR, WarmupDecayLR and WarmupCosineLR are imported";
static const char other_data[] = "data are read in the order of train.seed, whole";
static const char other_network[] = "the model is that of config.json";
/* DeepSpeed's Adam is AdamW unless adam_w_mode is false. */
static const import_word update_words[] = {
    {"Adam AdamW", 1 + NDP_ADAMW, 0}, {"Lion", 1 + NDP_LION, 0}, {"SGD", 1 + NDP_SGD, 0}, {"*", 0, other_update}, {0}};
static const import_word schedule_words[] = {{"WarmupLR", SCHEDULE_CONSTANT_WARMUP, 0},
                                             {"WarmupDecayLR", SCHEDULE_LINEAR, 0},
                                             {"WarmupCosineLR", SCHEDULE_COSINE, 0},
                                             {"*", 0, no_such_schedule},
                                             {0}};
static const import_word offload_words[] = {{"none", 0, 0}, {"*", 0, no_offload}, {0}};
static const import_word rise_words[] = {{"linear", RISE_LINEAR, 0}, {"log", RISE_LOG, 0}, {0}};
static const import_word corrected[] = {{"true", 0, 0}, {"false", 0, "moments are corrected for their beginning"}, {0}};
static const import_word decoupled[] = {{"true", 0, 0}, {"false", 0, no_l2}, {0}};

static const import_key keys[] = {
    /* clang-format off */
    /* accelerate config */
    {accelerate, "num_processes", SIZE(read.processes)},
    {accelerate, "num_machines", SIZE(read.machines)},
    {accelerate, "distributed_type", WORD(read.distributed, distributed_words)},
    {accelerate, "mixed_precision", WORD(read.mixed, mixed_words), SETTLED_BY("precision.compute")},
    {accelerate, "fp16", WORD(read.fp16, half_words)},
    {accelerate, "fp8_config", REFUSED(no_fp8), SETTLED_BY("precision.compute")},
    {accelerate, "gradient_accumulation_steps", INT(read.accumulation, 1, 1 << 24)},
    {accelerate, "gradient_clipping", NUMBER(job.optimizer.max_grad_norm, "[0, inf)")},
    {accelerate, "parallelism_config", SECTION(parallelism), .prefix = "parallelism_config_"},
    {accelerate, "fsdp_config", SECTION(fsdp), .prefix = "fsdp_"},
    {accelerate, "deepspeed_config", SECTION(deepspeed), .prefix = "deepspeed_"},
    {accelerate, "megatron_lm_config", SECTION(megatron), .prefix = "megatron_lm_"},
    {accelerate, "tp_config", SECTION(tp_config)},
    {accelerate, "log_with", LIST(read.reporters)},
    {accelerate, "debug", LEFT("collectives are checked against each other before the first step")},
    {accelerate, "use_cpu", LEFT("the device is train.device")},
    {accelerate, "enable_cpu_affinity", LEFT("the number of cores per rank is train.threads")},
    {accelerate, "ec2_instance_type iam_role_name base_job_name image_uri profile py_version pytorch_version region sagemaker_* "
                 "transformers_version additional_args", LEFT(launched)},
    {accelerate, "compute_environment machine_rank main_process_ip main_process_port main_training_function rdzv_* "
                 "same_network gpu_ids mpirun_config", LEFT(launched)},
    {accelerate, "ipex_config dynamo_*", LEFT(own_kernels)},
    {accelerate, "downcast_bf16 tpu_* command_file commands", LEFT("TPUs are not supported")},

    /* ParallelismConfig */
    {parallelism, "dp_replicate_size", AXIS(DP_REPLICATE)},
    {parallelism, "dp_shard_size", AXIS(DP_SHARD)},
    {parallelism, "cp_size", AXIS(CP)},
    {parallelism, "sp_size", AXIS(SP)},
    {parallelism, "tp_size", AXIS(TP)},
    {parallelism, "ep_size", AXIS(EP)},
    {parallelism, "cp_comm_strategy", WORD(read.rotate, rotations)},
    {parallelism, "cp_handler", SECTION(cp_handler)},
    {parallelism, "tp_handler", LEFT("tensor parallelism follows the model's architecture")},
    {parallelism, "cp_backend sp_backend sp_handler sp_attn_implementation", LEFT(own_attention)},
    {parallelism, "sp_seq_length sp_seq_length_is_variable", LEFT("data.sequence_length is the length of all rows")},
    {parallelism, "enable_async_tp", LEFT(overlapped)},
    {cp_handler, "cp_comm_strategy", WORD(read.rotate, rotations)},
    {tp_config, "tp_size", AXIS(TP)},

    /* DistributedConfig of transformers */
    {distributed, "tp_size", AXIS(TP)},
    {distributed, "fsdp_size", AXIS(DP_SHARD)},
    {distributed, "dp_replicate_size", AXIS(DP_REPLICATE)},
    {distributed, "pp_size", AXIS(PP)},
    {distributed, "ep_size", AXIS(EP)},
    {distributed, "fsdp_mixed_precision", WORD(read.half, truth)},
    {distributed, "fsdp_cpu_offload", LEFT(no_offload)},
    {distributed, "tp_plan", LEFT("tensor parallelism follows the model's architecture")},
    {distributed, "fsdp_plan", LEFT(units)},
    {distributed, "ep_plan ep_implementation", LEFT(own_kernels)},
    {distributed, "enable_expert_parallel", REFUSED("it is no longer read there: ep_size is the number of ranks that share experts"),
     SETTLED_BY("parallelism.ep_size")},
    {distributed, "enable_sequence_parallel", LEFT("transformers does not read it; see parallelism.tp_sequence_parallel")},

    /* fully sharded data parallelism */
    {fsdp, "sharding_strategy", WORD(read.strategy, strategies)},
    {fsdp, "reshard_after_forward", WORD(read.reshard, reshard_words)},
    {fsdp, "activation_checkpointing", WORD(read.fsdp_checkpointing, truth)},
    {fsdp, "version", LEFT(one_sharding)},
    {fsdp, "offload_params cpu_offload_pin_memory", LEFT(no_offload)},
    {fsdp, "cpu_ram_efficient_loading sync_module_states state_dict_type final_state_dict_type", LEFT(always_sharded)},
    {fsdp, "auto_wrap_policy transformer_layer_cls_to_wrap min_num_params use_orig_params", LEFT(units)},
    {fsdp, "backward_prefetch* forward_prefetch limit_all_gathers", LEFT(overlapped)},
    {fsdp, "mixed_precision_policy", LEFT("precision.compute is the only setting; gradients are reduced in fp32")},
    {fsdp, "ignored_modules", REFUSED("all parameters are sharded and their gradients reduced")},

    /* DeepSpeed: Accelerate's keys, and those of its own file */
    {deepspeed, "zero_stage", INT(read.zero_stage, 0, 3)},
    {deepspeed, "gradient_accumulation_steps", INT(read.accumulation, 1, 1 << 24)},
    {deepspeed, "gradient_clipping", NUMBER(job.optimizer.max_grad_norm, "[0, inf)")},
    {deepspeed, "train_micro_batch_size_per_gpu", INT(read.micro, 1, 1 << 24)},
    {deepspeed, "train_batch_size", LEFT("it is derived: micro batch x accumulation x data ranks")},
    {deepspeed, "prescale_gradients gradient_predivide_factor fp32_allreduce sparse_gradients data_types",
     LEFT("gradients are means over all tokens of an update, summed in fp32")},
    {deepspeed, "tensorboard wandb csv_monitor comet monitor_config", LEFT(other_tracker)},
    {deepspeed, "flops_profiler comms_logger dump_state memory_breakdown timers", LEFT(no_tracker)},
    {deepspeed, "autotuning elasticity nebula checkpoint aio pipeline zero_force_ds_cpu_optimizer "
                "load_universal_checkpoint use_node_local_storage", LEFT(own_memory)},
    {deepspeed, "disable_allgather gradient_allreduce_op use_data_before_expert_parallelism", LEFT(overlapped)},
    {deepspeed, "dataloader_drop_last", LEFT(all_read)},
    {deepspeed, "compile", LEFT(own_kernels)},
    {deepspeed, "tensor_parallel", SECTION("deepspeed tp")},
    {"deepspeed tp", "autotp_size", AXIS(TP)},
    {"deepspeed tp", "*", LEFT("tensor parallelism follows the model's architecture")},
    {deepspeed, "torch_autocast", LEFT("the type of products is precision.compute")},
    {deepspeed, "amp", REFUSED(no_fp16), SETTLED_BY("precision.compute")},
    {deepspeed, "compression_training quantize_training sparse_attention progressive_layer_drop eigenvalue hybrid_engine",
     REFUSED(other_network)},
    {deepspeed, "curriculum_learning data_efficiency", REFUSED(other_data)},
    {deepspeed, "config_file", EACH(ndp_import_deepspeed), SETTLED_BY("parallelism.dp_shard_size"),
     .why = "a file with keys of DeepSpeed"},
    {deepspeed, "zero_optimization", SECTION(zero)},
    {deepspeed, "bf16 bfloat16", SECTION(enabled_bf16)},
    {deepspeed, "fp16", SECTION(enabled_fp16)},
    {deepspeed, "optimizer", REFUSED("give the optimizer in optimizer:, not to DeepSpeed"), SETTLED_BY("optimizer.name")},
    {deepspeed, "scheduler", REFUSED("give the schedule in schedule:, not to DeepSpeed"), SETTLED_BY("schedule.name")},
    {deepspeed, "offload_*", LEFT(no_offload)},
    {deepspeed, "zero3_* zero_allow_untested_optimizer", LEFT(always_sharded)},
    {deepspeed, "seq_parallel_communication_data_type", LEFT("tensors travel in precision.compute")},
    {deepspeed, "communication_data_type", LEFT("tensors travel in precision.compute, gradients in fp32")},
    {deepspeed, "hostfile multinode_launcher exclusion_filter inclusion_filter", LEFT(launched)},
    {deepspeed, "moe_layer_cls_names", LEFT(units)},
    {deepspeed, "activation_checkpointing", LEFT("set by train.recompute")},
    {deepspeed, "steps_per_print wall_clock_breakdown", LEFT(no_tracker)},
    {zero, "stage", INT(read.zero_stage, 0, 3)},
    {zero, "offload_*", LEFT(no_offload)},
    {zero, "cpu_offload*", LEFT(no_offload)},
    {zero, "stage3_* overlap_comm prefetch_bucket_size param_persistence_threshold max_live_parameters "
           "max_reuse_distance allgather_* reduce_*", LEFT(overlapped)},
    {zero, "gather_16bit_weights_on_model_save elastic_checkpoint", LEFT(always_sharded)},
    {zero, "contiguous_gradients round_robin_gradients memory_efficient_linear sub_group_size", LEFT(own_memory)},
    {zero, "ignore_unused_parameters leaf_module override_module_apply", LEFT(units)},
    {zero, "zero_hpz_partition_size", SIZE(read.hpz)},
    {zero, "mics_*", REFUSED("set parallelism.dp_shard_size and dp_replicate_size: groups of ranks that share the parameters"),
     SETTLED_BY("parallelism.dp_shard_size")},
    {zero, "use_multi_rank_bucket_allreduce use_all_reduce_for_fetch_params model_persistence_threshold "
           "module_granularity_threshold parameter_alignment legacy_stage1", LEFT(overlapped)},
    {zero, "load_from_fp32_weights pipeline_loading_checkpoint save_muon_momentum_buffer_in_memory", LEFT(always_sharded)},
    {zero, "compute_grad_norm log_trace_cache_warnings enable_sanity_checks", LEFT(no_tracker)},
    {zero, "zenflow", REFUSED(no_offload)},
    {zero, "zero_quantized_*", REFUSED("communication is not quantized")},
    {enabled_bf16, "enabled", WORD(read.bf16, truth_or_auto)},
    {enabled_fp16, "enabled", WORD(read.fp16, half_words)},
    {enabled_bf16, "bf16_* check_overflow immediate_grad_update", LEFT("weights, gradients and states are in fp32")},
    {enabled_fp16, "fp16_*", LEFT("weights, gradients and states are in fp32")},
    {enabled_fp16, "auto_cast loss_scale* min_loss_scale initial_scale_power hysteresis consecutive_hysteresis",
     LEFT(no_fp16)},

    /* a DeepSpeed file by itself, which says more than one that another program names */
    {alone, "zero_optimization", SECTION(zero_alone)},
    {alone, "train_batch_size", INT(read.train_batch, 1, 1 << 30)},
    {alone, "optimizer", SECTION(optimizer)},
    {alone, "scheduler", SECTION(schedule)},
    {alone, "activation_checkpointing", SECTION(checkpoints)},
    {zero_alone, "offload_*", SECTION("deepspeed offload")},
    {zero_alone, "cpu_offload*", REFUSED(no_offload)},
    {"deepspeed offload", "device", WORD(read.ignored, offload_words)},
    {"deepspeed offload", "*", LEFT(no_offload)},
    {optimizer, "type", WORD(read.optimizer, update_words), SETTLED_BY("optimizer.name")},
    {optimizer, "params", SECTION(optimizer_params)},
    {optimizer, "legacy_fusion", LEFT(own_kernels)},
    {optimizer_params, "lr", NUMBER(job.optimizer.lr, "[0, inf)")},
    {optimizer_params, "betas", PAIR(job.optimizer.betas, "[0, 1)")},
    {optimizer_params, "eps", NUMBER(job.optimizer.eps, "(0, inf)")},
    {optimizer_params, "weight_decay", NUMBER(job.optimizer.weight_decay, "[0, inf)")},
    {optimizer_params, "momentum", NUMBER(job.optimizer.momentum, "[0, 1)")},
    {optimizer_params, "adam_w_mode", WORD(read.ignored, decoupled), SETTLED_BY("optimizer.weight_decay")},
    {optimizer_params, "bias_correction", WORD(read.ignored, corrected)},
    {optimizer_params, "torch_adam fused foreach set_grad_none", LEFT(own_kernels)},
    {optimizer_params, "*", REFUSED("optimizers have only the options in optimizer:"), SETTLED_BY("optimizer.name")},
    {schedule, "type", WORD(read.scheduler, schedule_words), SETTLED_BY("schedule.name")},
    {schedule, "params", SECTION(schedule_params)},
    {schedule_params, "warmup_max_lr", NUMBER(read.peak, "[0, inf)")},
    {schedule_params, "warmup_min_lr", NUMBER(read.rise_from, "[0, inf)")},
    {schedule_params, "warmup_min_ratio", NUMBER(read.rise_ratio, "[0, 1]")},
    {schedule_params, "warmup_num_steps", NUMBER(read.warmup, "[0, 1073741824]")},
    {schedule_params, "warmup_type", WORD(read.rise, rise_words)},
    {schedule_params, "total_num_steps", INT(read.max_steps, 1, 1 << 30)},
    {schedule_params, "cos_min_ratio", NUMBER(read.min_lr_ratio, "[0, 1]")},
    {schedule_params, "last_batch_iteration", LEFT("a resumed run continues its schedule")},
    {schedule_params, "*", REFUSED(no_such_schedule), SETTLED_BY("schedule.name")},
    {checkpoints, "cpu_checkpointing", REFUSED(no_offload)},
    {checkpoints, "*", LEFT("train.recompute: block recomputes the decoder blocks")},

    /* Megatron-LM by Accelerate */
    {megatron, "tp_degree", AXIS(TP)},
    {megatron, "pp_degree", AXIS(PP)},
    {megatron, "expert_model_parallel_size", AXIS(EP)},
    {megatron, "context_parallel_size", AXIS(CP)},
    {megatron, "num_micro_batches", INT(read.accumulation, 1, 1 << 24)},
    {megatron, "sequence_parallelism", WORD(read.tp_sequence, truth)},
    {megatron, "recompute_activations", WORD(read.checkpointing, checkpointing_words)},
    {megatron, "gradient_clipping", NUMBER(job.optimizer.max_grad_norm, "[0, inf)")},
    {megatron, "use_distributed_optimizer", WORD(read.distributed_optimizer, truth)},
    /* clang-format on */
};
const import_table ndp_import_accelerate = {keys, NDP_COUNT(keys)};
