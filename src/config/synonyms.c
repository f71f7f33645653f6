/* What other programs call our keys, and keys of theirs that have no counterpart (names.h). */
#include "config/names.h"

#include "options/meant.h"
#include <string.h>

#define LISTED(NAME, name) " " #name
#define DERIVED                                                                                                        \
    "it is derived: batch.global_batch_size = batch.micro_batch_size x data ranks x accumulation; set "                \
    "batch.global_batch_size"
#define OTHER_TRACKER                                                                                                  \
    "set train.trackers: [tensorboard], which `wandb sync --sync-tensorboard` of wandb up to 0.29 reads; "             \
    "metrics.jsonl in train.output_dir has the metrics of every step"
#define IMPORTED                                                                                                       \
    "set model.path; `ndparallel config import FILE` converts a file of Axolotl, LLaMA-Factory, TRL, Accelerate or "   \
    "DeepSpeed"
#define STAGES                                                                                                         \
    "set parallelism.dp_shard_size; stage 3 is parallelism.reshard_after_forward: true, the default, stage 2 is false"

/* A row without words means "use KEY". */
const ndp_synonym ndp_synonyms[] = {
    {"model_name_or_path base_model", "model.path", IMPORTED},
    {"model_name model_path pretrained_model_name_or_path hf_assets_path", "model.path", NULL},
    {"base_model_config config_name", "model.config", NULL},
    {"unfrozen_parameters", "model.trained", "model.trained names the tensors that are trained"},
    {"peft lora", "adapter.type", "set adapter: {type: lora, r: 16}"},
    {"lora_r", "adapter.r", NULL},
    {"lora_alpha", "adapter.alpha", NULL},
    {"lora_dropout", "adapter.dropout", NULL},
    {"lora_target_modules target_modules", "adapter.targets", NULL},
    {"lora_modules_to_save", "adapter.modules_to_save", NULL},
    {"lora_model_dir", "adapter.path", NULL},
    {"peft_use_dora use_dora", "adapter.dora", NULL},
    {"peft_use_rslora use_rslora", "adapter.rslora", NULL},
    {"load_in_8bit", "adapter.base", "set adapter: {type: qlora, base: int8}"},
    {"load_in_4bit", "adapter.base", "set adapter: {type: qlora, base: nf4}"},
    {"dataset datasets dataset_path dataset_name data_path train_file train_files train_data input_bin", "data.files",
     NULL},
    {"test_datasets eval_dataset validation_file val_files input_val_bin", "data.validation_files", NULL},
    {"val_set_size validation_split", "data.validation_fraction", NULL},
    {"tokenizer_name tokenizer_path tokenizer_config", "data.tokenizer", NULL},
    {"seq_len seq_length sequence_len max_length max_seq_len max_seq_length model_max_length context_length block_size",
     "data.sequence_length", NULL},
    {"sample_packing", "data.packing", NULL},
    {"pad_to_sequence_len", "data.packing", "every row has data.sequence_length tokens; data.packing fills them"},
    {"train_on_inputs", "data.train_on", "train_on_inputs: true is data.train_on: all"},
    {"dataset_prepared_path", "data.cache_dir", NULL},
    {"dp dp_size", "parallelism.dp_shard_size",
     "set parallelism.dp_shard_size (FSDP) or parallelism.dp_replicate_size (DDP)"},
    {"ddp dp_replicate data_parallel_replicate_degree", "parallelism.dp_replicate_size", NULL},
    {"fsdp fsdp_config dp_shard data_parallel_shard_degree", "parallelism.dp_shard_size", NULL},
    {"zero_stage deepspeed", "parallelism.dp_shard_size", STAGES},
    {"fsdp_reshard_after_forward", "parallelism.reshard_after_forward", NULL},
    {"tp tensor_parallel_size tensor_parallel_degree tensor_model_parallel_size", "parallelism.tp_size", NULL},
    {"cp context_parallel_size context_parallel_degree", "parallelism.cp_size", NULL},
    {"sp ulysses_size", "parallelism.sp_size", NULL},
    {"sequence_parallel_degree", "parallelism.cp_size",
     "set parallelism.cp_size (a ring) or parallelism.sp_size (Ulysses)"},
    {"pp pipeline_parallel_size pipeline_parallel_degree pipeline_model_parallel_size", "parallelism.pp_size", NULL},
    {"pipeline_parallel_schedule", "pipeline.schedule", NULL},
    {"ep expert_parallel_degree expert_parallel_size expert_model_parallel_size", "parallelism.ep_size", NULL},
    {"bf16", "precision.compute", "bf16: true is precision.compute: bf16"},
    {"fp16", "precision.compute", "fp16 is not supported; set precision.compute to bf16 or fp32"},
    {"fp32", "precision.compute", "fp32: true is precision.compute: fp32, the default"},
    {"tf32", "train.matmul", "tf32: true is train.matmul: tf32, on device cuda"},
    {"mixed_precision mixed_precision_param dtype torch_dtype", "precision.compute", NULL},
    {"mixed_precision_reduce", "precision.reduce", NULL},
    {"gradient_accumulation_steps gradient_accumulation grad_accumulation_steps accumulation_steps",
     "batch.global_batch_size", DERIVED},
    {"batch_size", "batch.global_batch_size",
     "set batch.global_batch_size, rows of an update, and batch.micro_batch_size, rows that a rank computes at once"},
    {"train_batch_size", "batch.global_batch_size", NULL},
    {"total_batch_size", "batch.global_batch_size", "set batch.global_batch_size, in rows, not in tokens"},
    {"per_device_train_batch_size per_device_eval_batch_size eval_batch_size per_device_batch_size local_batch_size "
     "train_micro_batch_size_per_gpu",
     "batch.micro_batch_size", NULL},
    {"rl", "loss.name", NULL},
    {"loss_type", "loss.variant", NULL},
    {"rl_beta orpo_alpha", "loss.beta", NULL},
    {"dpo_label_smoothing", "loss.label_smoothing", NULL},
    {"simpo_gamma", "loss.gamma", NULL},
    {"gamma_beta_ratio", "loss.gamma", "set loss.gamma, the margin itself"},
    {"cpo_alpha rpo_alpha", "loss.sft_weight", NULL},
    {"field_chosen", "data.chosen_field", NULL},
    {"field_rejected", "data.rejected_field", NULL},
    {"reward_model", NULL, "reward models are not supported; loss.name is one of:" NDP_LOSSES(LISTED)},
    {"optim", "optimizer.name", NULL},
    {"learning_rate max_lr", "optimizer.lr", NULL},
    {"adam_beta1 adam_beta2 beta1 beta2", "optimizer.betas", NULL},
    {"adam_epsilon epsilon", "optimizer.eps", NULL},
    {"max_norm grad_clip gradient_clipping", "optimizer.max_grad_norm", NULL},
    {"lr_scheduler lr_scheduler_type", "schedule.name", NULL},
    {"scheduler", "schedule", NULL},
    {"num_warmup_steps lr_warmup_steps warmup_iters", "schedule.warmup_steps", NULL},
    {"min_lr", "schedule.min_lr_ratio", "set schedule.min_lr_ratio, a share of optimizer.lr"},
    {"min_lr_factor cosine_min_lr_ratio", "schedule.min_lr_ratio", NULL},
    {"training", "train", NULL},
    {"num_epochs num_train_epochs max_epochs", "train.epochs", NULL},
    {"max_steps num_steps total_steps max_train_steps num_iterations max_iters", "train.steps", NULL},
    {"random_seed", "train.seed", NULL},
    {"gradient_checkpointing", "train.recompute", "gradient_checkpointing: true is train.recompute: block"},
    {"activation_checkpointing activation_checkpoint", "train.recompute", "set train.recompute: block"},
    {"logging_steps log_freq log_interval", "train.log_every", NULL},
    {"eval_steps eval_interval val_every", "train.eval_every", NULL},
    {"evals_per_epoch", "train.eval_every", "set train.eval_every, in steps"},
    {"save_steps save_interval save_every checkpoint_every checkpoint_interval", "checkpoint.every", NULL},
    {"saves_per_epoch", "checkpoint.every", "set checkpoint.every, in steps"},
    {"save_total_limit keep_latest_k", "checkpoint.keep", NULL},
    {"async_mode async_save async_checkpoint", "checkpoint.async", NULL},
    {"out_dir run_name dump_folder", "train.output_dir", NULL},
    {"num_processes nproc_per_node world_size num_gpus", "train.ranks", NULL},
    {"num_machines nnodes", NULL, "hosts are named in a file: `ndparallel train JOB.YAML --hostfile FILE`"},
    {"num_threads", "train.threads", NULL},
    {"resume_from_checkpoint", NULL, "run `ndparallel train JOB.YAML --resume`, or --resume-from STEP"},
    {"wandb use_wandb wandb_project wandb_entity wandb_name wandb_run_id mlflow comet swanlab enable_wandb logger",
     "train.trackers", OTHER_TRACKER},
    {"tensorboard use_tensorboard enable_tensorboard", "train.trackers", "set train.trackers: [tensorboard]"},
    {"log_with report_to", "train.trackers", NULL},
    {"early_stopping early_stopping_patience early_stopping_steps", "train.stop_after", NULL},
    {"load_best_model_at_end", "train.keep_best", NULL},
    {"metric_for_best_model greater_is_better", "train.keep_best",
     "set train.keep_best: true, which keeps the model of the lowest eval_loss"},
    {"streaming", NULL,
     "streaming is not supported: data are tokenized once, into data.cache_dir, and rows are read from there"},
    {"attn_implementation flash_attention", NULL, "attention has one implementation for each device; leave it out"},
    {"push_to_hub", NULL, "uploads to the Hub are not supported; the model is in train.output_dir/model"},
};
const int ndp_synonym_count = NDP_COUNT(ndp_synonyms);

/* Words are written with '-' or '_'. */
const ndp_synonym *ndp_synonym_find(const char *word) {
    char text[64] = "";
    for (size_t i = 0; word[i] && i + 1 < sizeof text; i++)
        text[i] = (char)(word[i] == '-' ? '_' : word[i]);
    for (int i = 0; i < ndp_synonym_count && strlen(word) < sizeof text; i++)
        if (ndp_has_word(ndp_synonyms[i].theirs, text))
            return &ndp_synonyms[i];
    return NULL;
}
