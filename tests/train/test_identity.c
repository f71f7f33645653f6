/* Resumes with something changed: what determines the curve is named and refused before anything is written, what does
 * not may change, and --accept takes single keys. Every row of the option table is in one of the cases. */
#include "config/table.h"
#include "train/resumes.h"

/* ---- the cases ---- */

typedef struct change {
    const char *name;
    int base;
    const char *sets[MOST_SETS];
    const char *accept[3];
    const char *refused; /* the keys that the message names, or other words of it; NULL: the run goes on */
    const char *says[2]; /* words of the message, or of the run */
} change;

static const change changes[] = {
    /* clang-format off */
    /* the data */
    {"text shuffled", COSINE, .sets = {"data.files=[@/shuffled.jsonl, @/chats.jsonl]"}, .refused = "data.files"},
    {"one letter of the text", COSINE, .sets = {"data.files=[@/letter.jsonl, @/chats.jsonl]"}, .refused = "data.files"},
    {"files in another order", COSINE, .sets = {"data.files=[@/chats.jsonl, @/texts.jsonl]"}, .refused = "data.files"},
    {"a field of an entry", COSINE, .sets = {"data.files=[{path: @/texts.jsonl, text_field: body}, @/chats.jsonl]"}, .refused = "data.files", .says = {"0 {text_field: \"body\""}},
    {"a slice of an entry", COSINE, .sets = {"data.files=[{path: @/texts.jsonl, split: 'train[1:]'}, @/chats.jsonl]"}, .refused = "data.files"},
    {"a file less", COSINE, .sets = {"data.files=[@/texts.jsonl]"}, .refused = "data.files"},
    {"sequence_length", COSINE, .sets = {"data.sequence_length=80"}, .refused = "data.sequence_length"},
    {"packing", COSINE, .sets = {"data.packing=false"}, .refused = "data.packing"},
    {"document_mask", COSINE, .sets = {"data.document_mask=false"}, .refused = "data.document_mask data.overlong", .says = {"was cut, now it is auto"}},
    {"shuffle", COSINE, .sets = {"data.shuffle=false"}, .refused = "data.shuffle"},
    {"mix", COSINE, .sets = {"data.mix=[1, 2]"}, .refused = "data.mix"},
    {"mix by names", COSINE, .sets = {"data.mix=[@/chats.jsonl: 2, @/texts.jsonl: 1]"}, .refused = "data.mix", .says = {"now it is [\"1\", \"2\"]"}},
    {"held-out files", COSINE, .sets = {"data.validation_files=@/held-too.jsonl"}, .refused = "data.validation_files"},
    {"no held-out files", COSINE, .sets = {"data.validation_files=[]"}, .refused = "data.validation_files"},
    {"held-out fraction", CONSTANT, .sets = {"data.validation_fraction=0.2"}, .refused = "data.validation_fraction"},
    {"end_token", COSINE, .sets = {"data.end_token=<s>"}, .refused = "data.end_token"},
    {"tokenizer file changed", COSINE, .sets = {"data.tokenizer=@/other-tokens"}, .refused = "data.tokenizer"},
    {"tokenizer bytes", COSINE, .sets = {"data.tokenizer=bytes"}, .refused = "data.tokenizer data.end_token"},
    {"template", COSINE, .sets = {"data.chat_template=qwen3"}, .refused = "data.chat_template"},
    {"template_date", COSINE, .sets = {"data.template_date=2026-11-02"}, .refused = "data.template_date"},
    {"train_on", COSINE, .sets = {"data.train_on=all"}, .refused = "data.train_on"},
    {"text_field", COSINE, .sets = {"data.text_field=body"}, .refused = "data.text_field"},
    {"format", CONSTANT, .sets = {"data.format=text"}, .refused = "data.format"},
    {"messages_field", CONSTANT, .sets = {"data.messages_field=talk"}, .refused = "data.messages_field"},
    {"prompt_field", CONSTANT, .sets = {"data.prompt_field=ask"}, .refused = "data.prompt_field"},
    {"input_field", CONSTANT, .sets = {"data.input_field=more"}, .refused = "data.input_field"},
    {"input_separator", CONSTANT, .sets = {"data.input_separator=': '"}, .refused = "data.input_separator"},
    {"response_field", CONSTANT, .sets = {"data.response_field=answer"}, .refused = "data.response_field"},
    {"role_field", CONSTANT, .sets = {"data.role_field=speaker"}, .refused = "data.role_field"},
    {"content_field", CONSTANT, .sets = {"data.content_field=says"}, .refused = "data.content_field"},
    {"train_field", CONSTANT, .sets = {"data.train_field=training"}, .refused = "data.train_field"},
    {"roles", CONSTANT, .sets = {"data.roles={bot: assistant}"}, .refused = "data.roles"},
    {"bin_type", COSINE, .sets = {"data.bin_type=uint32"}, .refused = "data.bin_type"},
    {"chosen_field", PREFERENCE, .sets = {"data.chosen_field=better"}, .refused = "data.chosen_field"},
    {"rejected_field", PREFERENCE, .sets = {"data.rejected_field=worse"}, .refused = "data.rejected_field"},
    /* the model */
    {"rope_theta", COSINE, .sets = {"model.config=@/theta.json"}, .refused = "model.rope_theta", .says = {"10000, now it is 20000"}},
    {"window of config.json", COSINE, .sets = {"model.config=@/window.json"}, .refused = "model.sliding_window"},
    {"window of the job", COSINE, .sets = {"model.sliding_window=8"}, .refused = "model.sliding_window"},
    {"frozen units", COSINE, .sets = {"model.frozen=[embed]"}, .refused = "model.frozen", .says = {"cannot be accepted"}},
    {"trained tensors", COSINE, .sets = {"model.trained=[o_proj]"}, .refused = "model.trained", .says = {"optimizer state for other tensors"}},
    {"norm eps", COSINE, .sets = {"model.config=@/eps.json"}, .refused = "model.norm_eps"},
    {"hidden_act", COSINE, .sets = {"model.config=@/act.json"}, .refused = "model.hidden_act"},
    {"max_position_embeddings", COSINE, .sets = {"model.config=@/longer.json"}, .refused = "model.max_position_embeddings"},
    {"rope_scaling", COSINE, .sets = {"model.config=@/scaled.json"}, .refused = "model.rope_type model.rope_factor"},
    {"initializer_range", COSINE, .sets = {"model.config=@/range.json"}, .refused = "model.initializer_range"},
    {"tied head", COSINE, .sets = {"model.config=@/tied.json"}, .refused = "model.tie_word_embeddings", .says = {"cannot be accepted"}},
    {"layers", COSINE, .sets = {"model.config=@/layers.json"}, .refused = "model.num_hidden_layers", .says = {"other shapes"}},
    {"init", COSINE, .sets = {"model.config=null", "model.path=@/model", "model.init=pretrained"}, .refused = "model.init"},
    {"experts", MIXTURE, .sets = {"model.config=@/experts.json"}, .refused = "model.num_experts", .says = {"other shapes"}},
    {"choices", MIXTURE, .sets = {"model.config=@/choices.json"}, .refused = "model.num_experts_per_tok", .says = {"2, now it is 3"}},
    {"choices accepted", MIXTURE, .sets = {"model.config=@/choices.json"}, {"model.num_experts_per_tok"}, .says = {"accepted: model.num_experts_per_tok was 2, now it is 3"}},
    {"size of experts", MIXTURE, .sets = {"model.config=@/expert-ffn.json"}, .refused = "model.moe_intermediate_size", .says = {"cannot be accepted"}},
    {"weights of choices", MIXTURE, .sets = {"model.config=@/renormalised.json"}, .refused = "model.norm_topk_prob", .says = {"false, now it is true"}},
    {"layers with experts", MIXTURE, .sets = {"model.config=@/mixtures.json"}, .refused = "model.mixture", .says = {"true false true, now it is false true true", "cannot be accepted"}},
    {"size of the shared expert", SHARED, .sets = {"model.config=@/shared-ffn.json"}, .refused = "model.shared_expert_intermediate_size", .says = {"8, now it is 9", "cannot be accepted"}},
    /* the adapter */
    {"an adapter", COSINE, .sets = {"adapter.type=lora"}, .refused = "adapter.type"},
    {"no adapter", LORA, .sets = {"adapter.type=none"}, .refused = "adapter.type"},
    {"rank", LORA, .sets = {"adapter.r=4"}, .refused = "adapter.r"},
    {"alpha", LORA, .sets = {"adapter.alpha=4"}, .refused = "adapter.alpha"},
    {"rslora", LORA, .sets = {"adapter.rslora=true"}, .refused = "adapter.rslora"},
    {"dropout", LORA, .sets = {"adapter.dropout=0.5"}, .refused = "adapter.dropout"},
    {"targets", LORA, .sets = {"adapter.targets=[q_proj]"}, .refused = "adapter.targets"},
    {"rate of B", LORA, .sets = {"adapter.lr_ratio_b=4"}, .refused = "adapter.lr_ratio_b", .says = {"adapter.lr_ratio_b was 1, now it is 4"}},
    {"dora", LORA, .sets = {"adapter.dora=true"}, .refused = "adapter.dora"},
    {"modules_to_save", LORA, .sets = {"adapter.modules_to_save=[lm_head]"}, .refused = "adapter.modules_to_save"},
    {"start of B", LORA, .sets = {"adapter.init=random"}, .refused = "adapter.init"},
    {"seed of random frozen weights", LORA, .sets = {"train.seed=7"}, {"train.seed"}, "train.seed", {"cannot be accepted (weights that no checkpoint holds are drawn from it)"}},
    {"seed of a random reference", PREFERENCE, .sets = {"train.seed=7"}, {"train.seed"}, "train.seed", {"cannot be accepted"}},
    {"packed base", QLORA, .sets = {"adapter.base=int8"}, .refused = "adapter.base"},
    /* optimizer, schedule, batch */
    {"lr", COSINE, .sets = {"optimizer.lr=1e-3"}, .refused = "optimizer.lr", .says = {"lr of step 3: 0.000165 then, 0.00055 now", "resume with --accept optimizer.lr"}},
    {"betas", COSINE, .sets = {"optimizer.betas=[0.9, 0.99]"}, .refused = "optimizer.betas"},
    {"eps", COSINE, .sets = {"optimizer.eps=1e-6"}, .refused = "optimizer.eps"},
    {"weight_decay", COSINE, .sets = {"optimizer.weight_decay=0"}, .refused = "optimizer.weight_decay"},
    {"momentum", COSINE, .sets = {"optimizer.momentum=0.5"}, .refused = "optimizer.momentum"},
    {"clip", COSINE, .sets = {"optimizer.max_grad_norm=0"}, .refused = "optimizer.max_grad_norm"},
    {"optimizer", COSINE, .sets = {"optimizer.name=sgd"}, .refused = "optimizer.name", .says = {"cannot be accepted"}},
    {"lion from adamw", COSINE, .sets = {"optimizer.name=lion"}, .refused = "optimizer.name optimizer.betas", .says = {"cannot be accepted"}},
    {"adamw from lion", LION, .sets = {"optimizer.name=adamw"}, .refused = "optimizer.name optimizer.betas", .says = {"state of another optimizer"}},
    {"sgd from lion", LION, .sets = {"optimizer.name=sgd", "optimizer.momentum=0.9"}, .refused = "optimizer.name optimizer.betas optimizer.momentum"},
    {"betas of lion", LION, .sets = {"optimizer.betas=[0.95, 0.98]"}, .refused = "optimizer.betas", .says = {"[0.9, 0.99], now it is [0.95, 0.98]"}},
    {"adamw8bit from adamw", COSINE, .sets = {"optimizer.name=adamw8bit"}, .refused = "optimizer.name", .says = {"optimizer.name was adamw, now it is adamw8bit, which cannot be accepted (the checkpoint has the state of another optimizer)"}},
    {"adamw from adamw8bit", CODED, .sets = {"optimizer.name=adamw"}, {"optimizer.name"}, "optimizer.name", {"cannot be accepted"}},
    {"groups", COSINE, .sets = {"optimizer.groups=[{params: [vectors], lr_scale: 0.5}]"}, .refused = "optimizer.groups", .says = {"optimizer.groups was [], now it is [{params: [\"vectors\"], lr_scale: 0.5}]", "--accept optimizer.groups"}},
    {"groups accepted", COSINE, .sets = {"optimizer.groups=[{params: [q_proj], weight_decay: 0}]"}, {"optimizer.groups"}, .says = {"accepted: optimizer.groups was [], now it is [{params: [\"q_proj\"], weight_decay: 0}]"}},
    {"groups with another optimizer", COSINE, .sets = {"optimizer.groups=[{params: [vectors], optimizer: lion}]"}, {"optimizer.groups"}, "optimizer.groups", {"cannot be accepted (the checkpoint has the state of another optimizer)"}},
    {"schedule", COSINE, .sets = {"schedule.name=linear"}, .refused = "schedule.name", .says = {"lr of step 3: "}},
    {"warm-up", COSINE, .sets = {"schedule.warmup_steps=3"}, .refused = "schedule.warmup_steps"},
    {"warm-up twice", COSINE, .sets = {"schedule.warmup_ratio=0.5"}, .refused = "", .says = {"schedule.warmup_steps 1 and schedule.warmup_ratio 0.5 are both set"}},
    {"min_lr_ratio", COSINE, .sets = {"schedule.min_lr_ratio=0"}, .refused = "schedule.min_lr_ratio"},
    {"decay_ratio", COSINE, .sets = {"schedule.decay_ratio=0.5"}, .refused = "schedule.decay_ratio"},
    {"cycles", COSINE, .sets = {"schedule.cycles=2"}, .refused = "schedule.cycles"},
    {"counted as another program", COSINE, .sets = {"schedule.like=transformers"}, .refused = "schedule.like", .says = {"lr of step 3: "}},
    {"restarts", COSINE, .sets = {"schedule.name=cosine_restarts", "schedule.cycles=2"}, .refused = "schedule.name schedule.cycles", .says = {"lr of step 3: 0.000165 then, 0.0003 now"}},
    {"a decay accepted", CONSTANT, .sets = {"schedule.name=wsd", "schedule.decay_ratio=0.5"}, {"schedule.name", "schedule.decay_ratio"}, .says = {"accepted: schedule.name was constant, now it is wsd", "lr of step 3: "}},
    {"steps of a cosine", COSINE, .sets = {"train.steps=8"}, .refused = "train.steps", .says = {"lr of step 3: 0.000165 then, 0.000281913 now", "resume with --accept train.steps"}},
    {"overlong documents truncated", COSINE, .sets = {"data.sequence_length=12", "data.overlong=truncate"}, .refused = "data.sequence_length data.overlong"},
    {"longer documents", COSINE, .sets = {"data.min_tokens=2"}, .refused = "data.min_tokens"},
    {"repeated documents", COSINE, .sets = {"data.unique=true"}, .refused = "data.unique"},
    {"without the system's messages", COSINE, .sets = {"data.drop_system=true"}, .refused = "data.drop_system"},
    {"fewer documents", COSINE, .sets = {"data.max_documents=39"}, .refused = "data.max_documents"},
    {"steps and epochs", COSINE, .sets = {"train.epochs=1"}, .refused = "", .says = {"train.steps 4 and train.epochs 1 are both set"}},
    {"steps and a schedule that reads them", CONSTANT, .sets = {"schedule.name=linear", "train.steps=8"}, .refused = "schedule.name train.steps"},
    {"batch", COSINE, .sets = {"batch.global_batch_size=8"}, .refused = "batch.global_batch_size"},
    {"seed", COSINE, .sets = {"train.seed=7"}, .refused = "train.seed"},
    {"precision", COSINE, .sets = {"precision.compute=bf16"}, .refused = "precision.compute"},
    {"products", COSINE, .sets = {"train.device=sim", "train.matmul=tf32"}, .refused = "train.matmul", .says = {"fp32, now it is tf32"}},
    {"several", COSINE, .sets = {"train.seed=7", "optimizer.lr=1", "data.files=[@/shuffled.jsonl, @/chats.jsonl]"}, .refused = "train.seed optimizer.lr data.files"},
    /* the loss */
    {"balance", MIXTURE, .sets = {"moe.balance=sequence"}, .refused = "moe.balance"},
    {"balance_coef", MIXTURE, .sets = {"moe.balance_coef=0.5"}, .refused = "moe.balance_coef"},
    {"z_loss", MIXTURE, .sets = {"moe.z_loss=0.5"}, .refused = "moe.z_loss"},
    {"bias_rate", SCORED, .sets = {"moe.bias_rate=0.001"}, .refused = "moe.bias_rate"},
    {"bias_rate of softmax routers", MIXTURE, .sets = {"moe.bias_rate=0.001"}, .refused = "", .says = {"a model of qwen3_moe has none"}},
    {"rounds of rows to experts", MIXTURE, .sets = {"moe.capacity_factor=2"}},
    {"weights of tokens", COSINE, .sets = {"loss.token_weight=entropy", "loss.entropy_k=5"}, .refused = "loss.token_weight loss.entropy_k"},
    {"weight by entropy", COSINE, .sets = {"loss.token_weight=entropy", "loss.entropy_alpha=2", "loss.entropy_unit=3"}, .refused = "loss.token_weight loss.entropy_alpha loss.entropy_unit"},
    {"loss", PREFERENCE, .sets = {"loss.name=orpo"}, .refused = "loss.name loss.sft_weight", .says = {"dpo, now it is orpo"}},
    {"reward", PREFERENCE, .sets = {"loss.name=reward", "loss.center=0.1"}, .refused = "loss.name loss.center"},
    {"beta", PREFERENCE, .sets = {"loss.beta=0.5"}, .refused = "loss.beta"},
    {"variant", PREFERENCE, .sets = {"loss.variant=ipo"}, .refused = "loss.variant"},
    {"label_smoothing", PREFERENCE, .sets = {"loss.variant=robust", "loss.label_smoothing=0.1"}, .refused = "loss.variant loss.label_smoothing"},
    {"gamma", PREFERENCE, .sets = {"loss.name=simpo", "loss.gamma=1"}, .refused = "loss.name loss.gamma"},
    {"sft_weight", PREFERENCE, .sets = {"loss.sft_weight=0.5"}, .refused = "loss.sft_weight"},
    {"weights of answers", PREFERENCE, .sets = {"loss.name=kto", "loss.desirable_weight=2", "loss.undesirable_weight=3"}, .refused = "loss.name loss.desirable_weight loss.undesirable_weight"},
    /* --accept */
    {"one of two accepted", COSINE, .sets = {"train.seed=7", "optimizer.lr=1e-3"}, {"optimizer.lr"}, "train.seed"},
    {"accepted without a difference", COSINE, .sets = {0}, {"optimizer.lr"}, "", {"--accept optimizer.lr: it does not differ"}},
    {"one too many accepted", COSINE, .sets = {"train.seed=7"}, {"train.seed", "optimizer.lr"}, "", {"--accept optimizer.lr: it does not differ"}},
    {"steps of a constant schedule accepted", CONSTANT, .sets = {"train.steps=3"}, {"train.steps"}, "", {"--accept train.steps: it does not differ"}},
    {"a free key accepted", COSINE, .sets = {"train.threads=2"}, {"train.threads"}, "", {"may change on any resume"}},
    {"an unknown key accepted", COSINE, .sets = {"train.seed=7"}, {"train.sed"}, "", {"did you mean train.seed?"}},
    {"optimizer accepted", COSINE, .sets = {"optimizer.name=sgd"}, {"optimizer.name"}, "optimizer.name", {"cannot be accepted"}},
    {"shape accepted", COSINE, .sets = {"model.config=@/ffn.json"}, {"model.intermediate_size"}, "model.intermediate_size", {"cannot be accepted"}},
    {"momentum of sgd accepted", SGD, .sets = {"optimizer.momentum=0.9"}, {"optimizer.momentum"}, "optimizer.momentum", {"cannot be accepted"}},
    {"adamw from muon", MUON, .sets = {"optimizer.name=adamw"}, .refused = "optimizer.name optimizer.momentum", .says = {"state of another optimizer"}},
    {"momentum of muon", MUON, .sets = {"optimizer.momentum=0.9"}, .refused = "optimizer.momentum", .says = {"0.95, now it is 0.9"}},
    {"momentum of muon accepted", MUON, .sets = {"optimizer.momentum=0.9"}, {"optimizer.momentum"}, .says = {"accepted: optimizer.momentum"}},
    {"momentum with lion accepted", LION, .sets = {"optimizer.momentum=0.9"}, {"optimizer.momentum"}, .says = {"accepted: optimizer.momentum"}},
    {"lr accepted", COSINE, .sets = {"optimizer.lr=1e-3"}, {"optimizer.lr"}, .says = {"accepted: optimizer.lr was 0.0003, now it is 0.001", "lr of step 3: 0.000165 then, 0.00055 now"}},
    {"steps accepted", COSINE, .sets = {"train.steps=5"}, {"train.steps"}, .says = {"accepted: train.steps was 4, now it is 5", "lr of step 3: "}},
    {"seed accepted", COSINE, .sets = {"train.seed=7"}, {"train.seed"}, .says = {"cursor: stays at sample 8 ("}},
    {"text accepted", COSINE, .sets = {"data.files=[@/shuffled.jsonl, @/chats.jsonl]"}, {"data.files"}, .says = {"cursor: stays at sample 8 (", "the next rows are "}},
    {"tokenizer accepted", COSINE, .sets = {"data.tokenizer=@/other-tokens"}, {"data.tokenizer"}, .says = {"accepted: data.tokenizer was"}},
    {"batch and window accepted", COSINE, .sets = {"batch.global_batch_size=2", "model.sliding_window=8"}, {"batch.global_batch_size", "model.sliding_window"}, .says = {"accepted: model.sliding_window was 16, now it is 8"}},
    {"precision accepted", COSINE, .sets = {"precision.compute=bf16"}, {"precision.compute"}, .says = {"accepted: precision.compute"}},
    {"states in bf16", COSINE, .sets = {"precision.states=bf16"}, .refused = "precision.states"},
    {"states in bf16 accepted", COSINE, .sets = {"precision.states=bf16"}, {"precision.states"}, .says = {"accepted: precision.states was fp32, now it is bf16"}},
    {"weights in bf16", COSINE, .sets = {"precision.compute=bf16", "precision.weights=bf16"}, {"precision.compute"}, .refused = "precision.weights"},
    {"weights in bf16 accepted", COSINE, .sets = {"precision.compute=bf16", "precision.weights=bf16"}, {"precision.compute", "precision.weights"}, .says = {"accepted: precision.weights was fp32, now it is bf16"}},
    {"products accepted", COSINE, .sets = {"train.device=sim", "train.matmul=tf32"}, {"train.matmul"}, .says = {"accepted: train.matmul was fp32, now it is tf32"}},
    {"beta accepted", PREFERENCE, .sets = {"loss.beta=0.5"}, {"loss.beta"}, .says = {"accepted: loss.beta was 0.1, now it is 0.5"}},
    /* free */
    {"pairs on two replicas, another cache", PREFERENCE, .sets = {"parallelism.dp_replicate_size=2", "data.cache_dir=@/cache-too"}},
    {"steps of a constant schedule", CONSTANT, .sets = {"train.steps=6"}, .says = {"resume: from step 2"}},
    {"steps of inverse_sqrt", INVERSE_SQRT, .sets = {"train.steps=6"}, .says = {"resume: from step 2"}},
    {"two ranks that share parameters", COSINE, .sets = {"parallelism.dp_shard_size=2", "train.ranks=2", "parallelism.reshard_after_forward=false"}},
    {"lion on two ranks", LION, .sets = {"parallelism.dp_shard_size=2"}},
    {"muon on two ranks", MUON, .sets = {"parallelism.dp_shard_size=2"}},
    {"8-bit states on two ranks", CODED, .sets = {"parallelism.dp_shard_size=2"}},
    {"8-bit states on two tensor ranks", CODED, .sets = {"parallelism.tp_size=2"}},
    {"two replicas, micro batch of 1", COSINE, .sets = {"parallelism.dp_replicate_size=2", "batch.micro_batch_size=1"}},
    {"tensor parallelism", COSINE, .sets = {"parallelism.tp_size=2", "parallelism.tp_sequence_parallel=false"}},
    {"context parallelism", COSINE, .sets = {"parallelism.cp_size=2", "parallelism.cp_method=all_gather", "parallelism.cp_zigzag=false"}},
    {"a pipeline", COSINE, .sets = {"parallelism.pp_size=2", "pipeline.schedule=zero_bubble", "pipeline.virtual_stages=1", "pipeline.stages=[1, 1]", "parallelism.reduce_every=micro_batch"}},
    {"a pipeline from a file", COSINE, .sets = {"parallelism.pp_size=2", "pipeline.schedule=file", "pipeline.file=@/pipeline.csv"}},
    {"sequence parallelism", COSINE, .sets = {"parallelism.sp_size=2"}},
    {"experts on two tensor ranks", MIXTURE, .sets = {"parallelism.tp_size=2"}},
    {"two ranks that share experts", MIXTURE, .sets = {"parallelism.dp_shard_size=2", "parallelism.ep_size=2"}},
    {"a shared expert on two tensor ranks", SHARED, .sets = {"parallelism.tp_size=2"}},
    {"the same experts by another key", MIXTURE, .sets = {"model.config=@/same-mixture.json", "parallelism.cp_size=2"}},
    {"threads", COSINE, .sets = {"train.threads=2", "train.force_memory=true"}},
    {"transport", COSINE, .sets = {"train.transport=self"}},
    {"links not measured", COSINE, .sets = {"train.check_links=off"}},
    {"device", COSINE, .sets = {"train.device=ref", "train.share_gpu=true", "train.collectives=staged", "train.gpu_memory=80"}},
    {"recompute", COSINE, .sets = {"train.recompute=block"}},
    {"recompute of what is kept", COSINE, .sets = {"train.recompute=selective"}},
    {"products in fp8", COSINE, .sets = {"precision.compute=fp8"}, .refused = "", .says = {"only planned, by `plan --cluster`"}},
    {"sums in bf16", COSINE, .sets = {"precision.reduce=bf16", "precision.tp_reduce=bf16"}, .refused = "", .says = {"precision.reduce: bf16, precision.tp_reduce: bf16: only planned"}},
    {"checkpoints", COSINE, .sets = {"checkpoint.every=1", "checkpoint.minutes=5", "checkpoint.keep=2", "checkpoint.async=false"}},
    {"lines and evaluations", COSINE, .sets = {"train.log_every=2", "train.eval_every=1"}},
    {"samples", COSINE, .sets = {"train.sample_every=2", "train.sample_prompts=[a, b]", "train.sample_tokens=3"}},
    {"rows of a program's own", COSINE, .sets = {"train.own_batches=true", "train.own_generate=4"}, .refused = "", .says = {"the rows are those of a program of your own"}},
    {"a loss of whole logits", COSINE, .sets = {"train.own_logits=true", "parallelism.tp_size=2"}},
    {"norms of layers", COSINE, .sets = {"train.layer_norms_every=2"}},
    {"spikes", COSINE, .sets = {"train.spike=1e-3"}},
    {"trackers", COSINE, .sets = {"train.trackers=[tensorboard]"}},
    {"best model", COSINE, .sets = {"train.eval_every=1", "train.keep_best=true", "train.stop_after=9"}},
    {"cache folder, overlong", COSINE, .sets = {"data.cache_dir=@/cache-too", "data.overlong=error"}},
    {"no record is bad", COSINE, .sets = {"data.bad_records=skip"}},
    {"no document is too long", COSINE, .sets = {"data.overlong=drop"}},
    {"longer sequences allowed", COSINE, .sets = {"model.allow_longer=true"}},
    {"the same files by other names", COSINE, .sets = {"data.files=[@/copied.jsonl, @/chats.jsonl]", "model.config=@/same.json", "data.tokenizer=@/same-tokens"}},
    /* clang-format on */
};

/* ---- checking a case ---- */

/* NULL, or what is wrong with it; the caller frees. */
static char *check_keys(const char *keys, const char *message) {
    char *list = strdup(keys), *rest = NULL;
    int named = 0, n = 0;
    for (const char *at = message; (at = strstr(at, ", now it is ")) != NULL; at++)
        named++;
    for (char *key = strtok_r(list, " ", &rest); key; key = strtok_r(NULL, " ", &rest), n++) {
        char *words = ndp_format("%s was ", key);
        bool there = strstr(message, words) != NULL;
        free(words);
        if (!there) {
            free(list);
            return ndp_format("the message does not name %s: %s", keys, message);
        }
    }
    free(list);
    return n == named ? NULL : ndp_format("the message names %d keys, not %d: %s", named, n, message);
}

static char *check_said(const change *x, const char *text) {
    for (int i = 0; i < NDP_COUNT(x->says) && x->says[i]; i++)
        if (!text || !strstr(text, x->says[i]))
            return ndp_format("no '%s' in: %s", x->says[i], text ? text : "");
    return NULL;
}

static char *check_refused(const char *folder, const change *x, run *r) {
    uint64_t before = state_of(folder, bases[x->base].name);
    ndp_status st = train(r, true, x->accept);
    if (st != NDP_EINVAL)
        return ndp_format("status %d: %s", st, st == NDP_OK ? "it goes on" : ndp_error_message());
    char *wrong = *x->refused ? check_keys(x->refused, ndp_error_message()) : NULL;
    if (!wrong)
        wrong = check_said(x, ndp_error_message());
    if (!wrong && state_of(folder, bases[x->base].name) != before)
        wrong = ndp_format("the folder has changed");
    return wrong;
}

/* The last manifest has what was accepted, and the values that are now the run's. */
static char *check_manifest(const char *folder, const change *x, int step) {
    struct json_object *extra = extra_of(folder, "again", step), *list = json_object_object_get(extra, "accepted");
    size_t n = list ? json_object_array_length(list) : 0, found = 0, wanted = 0;
    while (x->accept[wanted])
        wanted++;
    for (size_t k = 0; k < wanted; k++)
        for (size_t i = 0; i < n; i++) {
            struct json_object *o = json_object_array_get_idx(list, i),
                               *identity = json_object_object_get(extra, "identity");
            found +=
                strcmp(json_object_get_string(json_object_object_get(o, "key")), x->accept[k]) == 0 &&
                json_object_get_int(json_object_object_get(o, "step")) == SAVED &&
                json_object_equal(json_object_object_get(o, "to"), json_object_object_get(identity, x->accept[k])) &&
                !json_object_equal(json_object_object_get(o, "from"), json_object_object_get(o, "to"));
        }
    char *wrong = n == wanted && found == n ? NULL
                                            : ndp_format("the manifest has %zu accepted keys, %zu of %zu are right: %s",
                                                         n, found, wanted, json_object_to_json_string(list));
    json_object_put(extra);
    return wrong;
}

static char *check_goes_on(const char *folder, const change *x, run *r) {
    if (train(r, true, x->accept) != NDP_OK)
        return ndp_format("refused: %s", ndp_error_message());
    char *wrong = check_said(x, r->said.data);
    return wrong ? wrong : check_manifest(folder, x, r->config->train.steps);
}

static char *check(const char *folder, const change *x) {
    if (!x->refused)
        copy_run(folder, x->base);
    ndp_config *c = configure(folder, x->base, x->refused ? bases[x->base].name : "again");
    for (int i = 0; i < MOST_SETS && x->sets[i]; i++)
        set(c, folder, x->sets[i]);
    run r = {.config = c};
    char *wrong = x->refused ? check_refused(folder, x, &r) : check_goes_on(folder, x, &r);
    ndp_str_release(&r.said);
    ndp_config_destroy(c);
    return wrong;
}

static void resumed_with_something_changed(void **state) {
    int right = 0, refused = 0;
    for (int b = 0; b < NDP_COUNT(bases); b++)
        train_base(*state, b);
    for (int i = 0; i < NDP_COUNT(changes); i++) {
        char *wrong = check(*state, &changes[i]);
        if (wrong)
            print_error("%s: %s\n", changes[i].name, wrong);
        right += !wrong;
        refused += changes[i].refused != NULL;
        free(wrong);
    }
    print_message("resumes with something changed: %d of %d as they should be (%d refused, %d go on)\n", right,
                  NDP_COUNT(changes), refused, NDP_COUNT(changes) - refused);
    assert_int_equal(right, NDP_COUNT(changes));
}

/* ---- the table ---- */

/* Does a case change the key, or is it refused for it? */
static bool is_tried(const char *key) {
    size_t n = strlen(key);
    for (int i = 0; i < NDP_COUNT(changes); i++)
        for (int k = 0; k < MOST_SETS && changes[i].sets[k]; k++)
            if (strncmp(changes[i].sets[k], key, n) == 0 && changes[i].sets[k][n] == '=')
                return true;
    return false;
}

/* Every key has a role and a case, and the manifest has those that are not free. */
static void every_key_has_a_case(void **state) {
    static const char *const one_value[] = {"precision.reduce", "precision.tp_reduce", /* for runs */
                                            "adapter.path", "moe.routes",              /* test_resumed_curves */
                                            "train.output_dir"};                       /* all that go on are copies */
    static const char *const others[] = {"model.config", "train.epochs"};
    struct json_object *extra = extra_of(*state, "cosine", SAVED),
                       *identity = json_object_object_get(extra, "identity");
    char key[NDP_KEY_NAME];
    for (int i = 0, role; (role = ndp_config_key(i, key)) >= 0; i++) {
        bool elsewhere = false, alone = false; /* its contents have other keys */
        for (int k = 0; k < NDP_COUNT(others); k++)
            elsewhere |= strcmp(key, others[k]) == 0;
        for (int k = 0; k < NDP_COUNT(one_value); k++)
            alone |= strcmp(key, one_value[k]) == 0;
        if (role == 0)
            fail_msg("%s is neither free nor identity", key);
        if (!alone && !is_tried(key))
            fail_msg("no case changes %s", key);
        if (json_object_object_get_ex(identity, key, NULL) != (role != NDP_KEY_FREE && !elsewhere))
            fail_msg("%s, of role %d, is %s the identity", key, role, role == NDP_KEY_FREE ? "in" : "not in");
    }
    json_object_put(extra);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(resumed_with_something_changed),
                                       cmocka_unit_test(every_key_has_a_case)};
    return cmocka_run_group_tests(tests, make_folder, tiny_teardown);
}
