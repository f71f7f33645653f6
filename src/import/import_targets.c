/* Which key of ours follows from what an import reads into each of its members. A key that is read straight into the
 * job has the option there; for the others, which are resolved together (import_finish.c), this table says it. */
#include "import/import_targets.h"

#define MEMBER(name) offsetof(ndp_import, name)

static const import_target targets[] = {
    /* clang-format off */
    {MEMBER(read.processes), "parallelism.dp_shard_size, parallelism.dp_replicate_size", "ranks that no size accounts for are data ranks"},
    {MEMBER(read.machines), "parallelism.dp_replicate_size", "with HYBRID_SHARD"},
    {MEMBER(read.size[NDP_PP]), "parallelism.pp_size", NULL},
    {MEMBER(read.size[NDP_DP_REPLICATE]), "parallelism.dp_replicate_size", NULL},
    {MEMBER(read.size[NDP_DP_SHARD]), "parallelism.dp_shard_size", NULL},
    {MEMBER(read.size[NDP_CP]), "parallelism.cp_size", "Axolotl under DeepSpeed: `parallelism.sp_size`"},
    {MEMBER(read.size[NDP_SP]), "parallelism.sp_size", NULL},
    {MEMBER(read.size[NDP_TP]), "parallelism.tp_size", NULL},
    {MEMBER(read.size[NDP_EP]), "parallelism.ep_size, parallelism.dp_shard_size", NULL},
    {MEMBER(read.distributed), "parallelism.dp_shard_size, parallelism.dp_replicate_size", "FSDP and DEEPSPEED shard over the data ranks, others replicate"},
    {MEMBER(read.strategy), "parallelism.dp_shard_size, parallelism.reshard_after_forward", NULL},
    {MEMBER(read.fsdp), "parallelism.dp_shard_size, parallelism.reshard_after_forward", "its first word is the strategy"},
    {MEMBER(read.reshard), "parallelism.reshard_after_forward", NULL},
    {MEMBER(read.zero_stage), "parallelism.dp_shard_size, parallelism.reshard_after_forward, parallelism.reduce_every", "stages 1 to 3 shard; only 3 drops gathered parameters; with 1 gradients are summed once an update"},
    {MEMBER(read.distributed_optimizer), "parallelism.dp_shard_size, parallelism.reshard_after_forward", NULL},
    {MEMBER(read.ring), "parallelism.cp_method, parallelism.cp_zigzag", NULL},
    {MEMBER(read.rotate), "parallelism.cp_method", NULL},
    {MEMBER(read.tp_sequence), "parallelism.tp_sequence_parallel", NULL},
    {MEMBER(read.micro), "batch.micro_batch_size", NULL},
    {MEMBER(read.accumulation), "batch.global_batch_size", "micro-batch x accumulation x data ranks"},
    {MEMBER(read.train_batch), "batch.global_batch_size", "with the micro-batch and accumulation it also gives the number of ranks"},
    {MEMBER(read.rise_from), "schedule.warmup_steps", "only 0"},
    {MEMBER(read.rise_ratio), "schedule.warmup_steps", "only 0"},
    {MEMBER(read.rise), "schedule.warmup_steps", "only `linear`, where warm-up has steps"},
    {MEMBER(read.peak), "optimizer.lr", NULL},
    {MEMBER(read.batch), "batch.global_batch_size", "of one rank: times the data ranks"},
    {MEMBER(read.max_steps), "train.steps", NULL},
    {MEMBER(read.epochs), "train.epochs", "unless `max_steps` is given"},
    {MEMBER(read.warmup), "schedule.warmup_steps", "below 1 a share: `schedule.warmup_ratio`"},
    {MEMBER(read.warmup_ratio), "schedule.warmup_ratio", "with `max_steps`: `schedule.warmup_steps`"},
    {MEMBER(read.min_lr_ratio), "schedule.min_lr_ratio", NULL},
    {MEMBER(read.wsd_min_lr_ratio), "schedule.min_lr_ratio", "of `warmup_stable_decay`"},
    {MEMBER(read.min_lr), "schedule.min_lr_ratio", "divided by `learning_rate`"},
    {MEMBER(read.cycles), "schedule.cycles", NULL},
    {MEMBER(read.decay_steps), "schedule.decay_ratio", "divided by `max_steps`"},
    {MEMBER(read.stable_steps), "schedule.decay_ratio", "the steps between warm-up and decay, no others"},
    {MEMBER(read.timescale), "schedule.warmup_steps", "of `inverse_sqrt`: the steps of warm-up, no others"},
    {MEMBER(read.optimizer), "optimizer.name", NULL},
    {MEMBER(read.muon), "optimizer.name", "muon; with `finetuning_type: full`"},
    {MEMBER(read.scheduler), "schedule.name", NULL},
    {MEMBER(read.revision), "model.path", "`org/name@revision`"},
    {MEMBER(read.router_logits), "moe.balance", NULL},
    {MEMBER(read.reinit), "model.init", "random"},
    {MEMBER(read.eos_token), "data.end_token", "if it is not the tokenizer's own"},
    {MEMBER(read.bos_token), "data.tokenizer", "only the tokenizer's own"},
    {MEMBER(read.unk_token), "data.tokenizer", "a token that it has"},
    {MEMBER(read.added_tokens), "data.tokenizer", "tokens that it has"},
    {MEMBER(read.fp32), "precision.compute", NULL},
    {MEMBER(read.bf16), "precision.compute", NULL},
    {MEMBER(read.fp16), "precision.compute", "bf16"},
    {MEMBER(read.half), "precision.compute", NULL},
    {MEMBER(read.mixed), "precision.compute", NULL},
    {MEMBER(read.checkpointing), "train.recompute", NULL},
    {MEMBER(read.fsdp_checkpointing), "train.recompute", NULL},
    {MEMBER(read.save), "checkpoint.every", NULL},
    {MEMBER(read.save_steps), "checkpoint.every", "below 1 a share of the steps"},
    {MEMBER(read.saves_per_epoch), "checkpoint.every", NULL},
    {MEMBER(read.eval), "train.eval_every", NULL},
    {MEMBER(read.eval_steps), "train.eval_every", "below 1 a share of the steps"},
    {MEMBER(read.evals_per_epoch), "train.eval_every", NULL},
    {MEMBER(read.keep_best), "train.keep_best", "in the run folder's `best`"},
    {MEMBER(read.tensorboard), "train.trackers", NULL},
    {MEMBER(read.reporters), "train.trackers", NULL},
    {MEMBER(read.chat_template), "data.chat_template", NULL},
    {MEMBER(read.packing), "data.packing", NULL},
    {MEMBER(read.multipack_attention), "data.document_mask", NULL},
    {MEMBER(read.train_on_inputs), "data.train_on", NULL},
    {MEMBER(read.excess), "data.overlong", NULL},
    {MEMBER(read.curriculum), "data.shuffle", NULL},
    {MEMBER(read.unique), "data.unique", NULL},
    {MEMBER(set.drop_system), "data.drop_system", NULL},
    {MEMBER(read.shuffle_merged), "data.shuffle", NULL},
    {MEMBER(read.adapter), "adapter.type", NULL},
    {MEMBER(read.four_bits), "adapter.type, adapter.base", "qlora, nf4"},
    {MEMBER(read.eight_bits), "adapter.type, adapter.base", "qlora, int8"},
    {MEMBER(read.targets), "adapter.targets", NULL},
    {MEMBER(read.parameters), "adapter.targets", NULL},
    {MEMBER(read.target_linear), "adapter.targets", "linear"},
    {MEMBER(read.bits), "adapter.type, adapter.base", "`4`: qlora, nf4; `8`: qlora, int8"},
    {MEMBER(read.stage), "data.format, data.packing, loss.name", "`pt`: texts, packed; `dpo`, `kto`, `rm`: pairs"},
    {MEMBER(read.pref_loss), "loss.name, loss.variant", "LLaMA-Factory's with `stage: dpo`"},
    {MEMBER(read.smoothing), "loss.label_smoothing", "with `loss_type: robust`"},
    {MEMBER(read.hpz), "parallelism.dp_shard_size, parallelism.dp_replicate_size", "with `stage: 3`: HSDP"},
    {MEMBER(read.peft), "adapter.type", "lora, or with `load_in_4bit` qlora"},
    {MEMBER(read.answers_only), "data.train_on", "assistant; without it all, but of a prompt and a completion"},
    {MEMBER(set.label), "data.format", "only `label`"},
    {MEMBER(set.ranking), "data.format", "preference"},
    {MEMBER(read.neat_packing), "data.packing, data.document_mask", NULL},
    {MEMBER(set.hub), "data.files", NULL},
    {MEMBER(set.sharegpt), "data.format", "`alpaca`: instruction, `sharegpt`: messages"},
    {MEMBER(read.embedding_lr), "optimizer.groups", "divided by `learning_rate`; without weight decay"},
    {MEMBER(read.embedding_lr_scale), "optimizer.groups", "before `embedding_lr`; without weight decay"},
    {MEMBER(read.group_modules), "optimizer.groups", "`*PART*.weight`"},
    {MEMBER(read.group_lr), "optimizer.groups", "divided by `learning_rate`"},
    {MEMBER(read.dora), "adapter.dora", NULL},
    {MEMBER(read.rslora), "adapter.rslora", NULL},
    {MEMBER(read.val_set_size), "data.validation_fraction", "a fraction; a number of records is not supported"},
    {MEMBER(read.pairs), "loss.name, loss.variant", "`dpo`, `ipo`, `orpo`, `simpo`, `kto`"},
    {MEMBER(read.reward), "loss.name", "reward"},
    {MEMBER(read.center), "loss.center", "with `reward_model: true`"},
    {MEMBER(read.beta), "loss.beta", NULL},
    {MEMBER(read.trl_beta), "loss.beta", "before `rl_beta`"},
    {MEMBER(read.odds_weight), "loss.beta", "if there is no `rl_beta`"},
    {MEMBER(read.nll_weight), "loss.sft_weight", "with `rl: simpo`, where TRL's default is 1"},
    {MEMBER(read.margin), "loss.gamma", "with `rl: simpo`"},
    {MEMBER(read.desirable), "loss.desirable_weight", "with `rl: kto`"},
    {MEMBER(read.undesirable), "loss.undesirable_weight", "with `rl: kto`"},
    {MEMBER(read.entropy), "loss.token_weight, loss.entropy_unit", "entropy"},
    {MEMBER(read.probability), "loss.token_weight", "probability"},
    {MEMBER(read.unfrozen), "model.trained", "as regular expressions of whole tensors; beside an adapter its factors are trained"},
    {MEMBER(job.optimizer.betas[1]), "optimizer.betas", NULL},
    {MEMBER(set.path), "data.files", NULL},
    {MEMBER(set.files), "data.files", NULL},
    {MEMBER(set.ds_type), "data.files", "the kind of the files"},
    {MEMBER(set.config), "data.files", "`org/name@revision:config/split`"},
    {MEMBER(set.revision), "data.files", "`org/name@revision:config/split`"},
    {MEMBER(set.template), "data.chat_template", NULL},
    {MEMBER(set.text), "data.text_field", NULL},
    {MEMBER(set.messages), "data.messages_field", NULL},
    {MEMBER(set.role), "data.role_field", NULL},
    {MEMBER(set.content), "data.content_field", NULL},
    {MEMBER(set.train), "data.train_field", NULL},
    {MEMBER(set.prompt), "data.prompt_field", NULL},
    {MEMBER(set.input), "data.input_field", NULL},
    {MEMBER(set.response), "data.response_field", NULL},
    {MEMBER(set.chosen), "data.chosen_field", NULL},
    {MEMBER(set.rejected), "data.rejected_field", NULL},
    {MEMBER(set.format), "data.chat_template", "only the texts that `plain` writes"},
    {MEMBER(set.no_input_format), "data.chat_template", "only the texts that `plain` writes"},
    /* clang-format on */
};

static const import_target *listed(size_t offset) {
    for (int i = 0; i < NDP_COUNT(targets); i++)
        if (targets[i].offset == offset)
            return &targets[i];
    return NULL;
}

bool ndp_import_target(size_t offset, import_target *out, char name[NDP_KEY_NAME]) {
    const import_target *t = listed(offset);
    if (t) {
        *out = *t;
        return true;
    }
    for (int i = 0; i < ndp_option_count; i++)
        if (offset == offsetof(ndp_import, job) + ndp_options[i].offset) {
            ndp_config_key(i, name);
            *out = (import_target){offset, name, NULL};
            return true;
        }
    return false;
}
