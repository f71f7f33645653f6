/* All options, in the order in which `ndparallel config` and job.yaml show them. The help is what users read; a row
 * also says what a key means to a resumed run. */
#include "config/entry.h"
#include "config/group.h"
#include "config/names.h"

#include <string.h>

static const char *const init_words[] = {"pretrained", "random", NULL};
static const char *const adapter_words[] = {
    [NDP_ADAPTER_NONE] = "none", [NDP_ADAPTER_LORA] = "lora", [NDP_ADAPTER_QLORA] = "qlora", NULL};
static const char *const start_words[] = {[NDP_ADAPTER_ZERO] = "zero", [NDP_ADAPTER_RANDOM] = "random", NULL};
static const char *const base_words[] = {"nf4", "int8", NULL};
static const int base_forms[] = {NDP_PACKING_NF4, NDP_PACKING_INT8};
static const char *const full_words[] = {"full", NULL};
static const char *const compute_words[] = {"fp32", "bf16", "fp64", "fp8", NULL};
static const int compute_types[] = {NDP_F32, NDP_BF16, NDP_F64, NDP_COMPUTE_FP8};
static const char *const reduce_words[] = {[NDP_F32] = "fp32", [NDP_BF16] = "bf16", NULL};
#define OPTIMIZER_WORD(NAME, name, ...) #name,
static const char *const optimizer_words[] = {NDP_OPTIMIZERS(OPTIMIZER_WORD) NULL};
#define LOSS_WORD(NAME, name) #name,
static const char *const balance_words[] = {
    [NDP_BALANCE_AUTO] = "auto", [NDP_BALANCE_NONE] = "none", [NDP_BALANCE_SEQUENCE] = "sequence", NULL};
static const char *const loss_words[] = {NDP_LOSSES(LOSS_WORD) NULL};
static const char *const weight_words[] = {NDP_TOKEN_WEIGHTS(LOSS_WORD) NULL};
static const char *const variant_words[] = {NDP_LOSS_VARIANTS(LOSS_WORD) NULL};
#define SCHEDULE_WORD(NAME, name) #name,
static const char *const schedule_words[] = {NDP_LR_SCHEDULES(SCHEDULE_WORD) NULL};
static const char *const like_words[] = {"own", "transformers", "axolotl", "deepspeed", NULL};
static const char *const cp_words[] = {[NDP_CP_RING] = "ring", [NDP_CP_ALL_GATHER] = "all_gather", NULL};
static const char *const reduce_every_words[] = {"micro_batch", "update", NULL};
#define PIPELINE_WORD(NAME, name, ...) #name,
static const char *const pipeline_words[] = {NDP_PIPELINES(PIPELINE_WORD) NULL};
static const char *const recompute_words[] = {
    [NDP_RECOMPUTE_NONE] = "none", [NDP_RECOMPUTE_BLOCK] = "block", [NDP_RECOMPUTE_SELECTIVE] = "selective", NULL};
static const char *const matmul_words[] = {"fp32", "tf32", NULL};
static const char *const check_words[] = {"warn", "fail", "off", NULL};
static const char *const async_words[] = {
    [NDP_ASYNC_AUTO] = "auto", [NDP_ASYNC_TRUE] = "true", [NDP_ASYNC_FALSE] = "false", NULL};
static const char *const collectives_words[] = {"auto", "device", "staged", NULL};
#define FORMAT_WORD(NAME, word, ...) #word,
static const char *const format_words[] = {NDP_RECORDS(FORMAT_WORD) NULL};
static const char *const train_on_words[] = {"assistant", "all", "turn", NULL};
static const char *const bad_words[] = {[NDP_BAD_RECORDS_ERROR] = "error", [NDP_BAD_RECORDS_SKIP] = "skip", NULL};
static const char *const bin_words[] = {"uint16", "uint32", NULL};
static const int bin_bytes[] = {2, 4};
static const char *const overlong_words[] = {
    [NDP_OVERLONG_AUTO] = "auto", [NDP_OVERLONG_CUT] = "cut",           [NDP_OVERLONG_ERROR] = "error",
    [NDP_OVERLONG_DROP] = "drop", [NDP_OVERLONG_TRUNCATE] = "truncate", NULL};
#define TRACKER_WORD(name) #name,
static const char *const tracker_words[] = {NDP_TRACKERS(TRACKER_WORD) NULL};
static const char *const transport_words[] = {"auto", "self", "local", "shm", "mpi", NULL};

/* What other programs call values of ours. */
#define FP16_WHY "fp16 is not supported; bf16 has fp32's range and needs no loss scaling"
static const ndp_foreign_value compute_foreign[] = {{"fp16 float16 half f16", "bf16", FP16_WHY},
                                                    {"fp8* float8*", "bf16", "fp8 is only planned (plan --cluster)"},
                                                    {"bfloat16", "bf16", NULL},
                                                    {"float32 float no", "fp32", NULL},
                                                    {"float64 double", "fp64", NULL},
                                                    {0}};
static const ndp_foreign_value optimizer_foreign[] = {
    {"adamw_bnb_8bit adamw_8bit paged_adamw_8bit adamw_torch_8bit adam8bit", "adamw8bit", NULL},
    {"adamw_torch* adamw_hf adam fused_adamw", "adamw", NULL},
    {"adamw_* paged_adamw*", "adamw", "its states are fp32"},
    {0}};
static const ndp_foreign_value schedule_foreign[] = {
    {"constant_with_warmup", "constant", "schedule.warmup_steps sets the warm-up"},
    {"cosine_with_min_lr* cosine_warmup*", "cosine", "schedule.min_lr_ratio sets its end"},
    {"cosine_with_restarts cosine_annealing_with_restarts", "cosine_restarts", "schedule.cycles sets how many"},
    {"warmup_stable_decay warmup-stable-decay", "wsd", "schedule.decay_ratio sets its decay"},
    {0}};
static const ndp_foreign_value device_foreign[] = {{"gpu cuda:* nvidia", "cuda", NULL}, {0}};
static const ndp_foreign_value transport_foreign[] = {{"nccl gloo ucc", "auto", NULL}, {0}};
static const ndp_foreign_value tracker_foreign[] = {
    {"wandb weights_and_biases all", "tensorboard", "`wandb sync --sync-tensorboard` of wandb up to 0.29 reads it"},
    {0}};
static const ndp_foreign_value async_foreign[] = {
    {"yes on async* dcp*", "true", NULL}, {"no off none disabled", "false", NULL}, {0}};
static const ndp_foreign_value recompute_foreign[] = {
    {"true full", "block", NULL}, {"false no off", "none", NULL}, {0}};

/* The readers of most keys: what takes a job; of it what also needs a run folder; what trains; ... */
enum {
    TRAIN = NDP_READER_TRAIN,
    LEARN = TRAIN | NDP_READER_VERIFY,  /* what trains */
    STEP = LEARN | NDP_READER_PLAN,     /* what makes the programs of a step */
    HELD = TRAIN | NDP_READER_EVALUATE, /* what reads held-out data */
    ROWS = LEARN | HELD,                /* what reads data */
    LAYOUT = HELD | NDP_READER_PLAN,
    JOB = STEP | HELD,
    RUN = JOB | NDP_READER_RUN
};

/* A row begins with the role of its key (config.h) and its readers: there is no other way to name one. */
#define FREE(section, key, readers) #section, #key, offsetof(ndp_config, section.key), NDP_KEY_FREE, readers
#define IDENTITY(section, key, readers) #section, #key, offsetof(ndp_config, section.key), NDP_KEY_IDENTITY, readers
#define CONTENTS(section, key, readers) #section, #key, offsetof(ndp_config, section.key), NDP_KEY_CONTENTS, readers
#define TEXT(default) NDP_OPTION_TEXT, default
#define INT(default, from, to) NDP_OPTION_INT, #default, from, to
#define INT64(default, from, to) NDP_OPTION_INT64, #default, from, to
#define NUMBER(default, within) NDP_OPTION_NUMBER, #default, .interval = within
#define WORD(default, choices) NDP_OPTION_WORD, #default, .words = choices
#define ENTRIES NDP_OPTION_ENTRIES, "[]", .read_entry = ndp_entry_read
#define BOOL(default) NDP_OPTION_BOOL, #default
#define WHEN .when =
#define HELP .help =
/* clang-format off */
/* The sizes of the layout: all may be auto, except ep. */
#define AXIS(NAME, name, value, weight, help_text)                                                                     \
    {"parallelism", #name "_size", offsetof(ndp_config, parallelism.size[NDP_##NAME]), NDP_KEY_FREE, JOB,              \
     NDP_OPTION_INT, value, 1, 1 << 20, .open = NDP_##NAME < NDP_AXES, HELP help_text},
/* clang-format on */

const ndp_option ndp_options[] = {
    /* clang-format off */
    {CONTENTS(model, path, RUN), TEXT(NULL), HELP "a Hugging Face folder: config.json, safetensors, tokenizer; or its name in the Hub cache"},
    {CONTENTS(model, config, RUN), TEXT(NULL), HELP "a config.json; the model starts with random weights"},
    {IDENTITY(model, init, JOB), WORD(pretrained, init_words), HELP "random if only model.config is given"},
    {FREE(model, allow_longer, JOB), BOOL(false), WHEN "data.sequence_length is above max_position_embeddings of the model", HELP "train on more than max_position_embeddings tokens"},
    {CONTENTS(model, sliding_window, RUN), INT(0, 0, 1 << 24), HELP "attention window of every layer; 0: the model's own"},
    {IDENTITY(model, frozen, STEP), NDP_OPTION_LIST, "[]", HELP "units whose weights stay as they are: embed, layers.0, layers.*, head"},
    {IDENTITY(model, trained, STEP), NDP_OPTION_LIST, "[]", HELP "tensors that are trained, and no others: names (o_proj), patterns (*.experts.*), regex: and a regular expression"},

    {IDENTITY(adapter, type, RUN), WORD(none, adapter_words), HELP "lora: train two small factors beside each target projection, with the base frozen (PEFT's LoRA); qlora: with the base's projections stored in adapter.base"},
    {IDENTITY(adapter, r, RUN), INT(16, 1, 4096), WHEN "adapter.type is lora or qlora", HELP "rank of the factors"},
    {IDENTITY(adapter, alpha, RUN), NUMBER(32, "(0, inf)"), WHEN "adapter.type is lora or qlora", HELP "the product of the factors is scaled by alpha / r"},
    {IDENTITY(adapter, rslora, RUN), BOOL(false), WHEN "adapter.type is lora or qlora", HELP "scale by alpha / sqrt(r)"},
    {IDENTITY(adapter, dropout, LEARN), NUMBER(0, "[0, 1)"), WHEN "adapter.type is lora or qlora", HELP "share of the elements of a factor's input that are 0 in training"},
    {IDENTITY(adapter, lr_ratio_b, STEP), NUMBER(1, "(0, inf)"), WHEN "adapter.type is lora or qlora", HELP "LoRA+: the learning rate of the second factor, and of vectors that are trained, is optimizer.lr times this"},
    {IDENTITY(adapter, targets, RUN), NDP_OPTION_LIST, "[linear]", WHEN "adapter.type is lora or qlora", HELP "projections with factors: their names (q_proj), patterns of tensor names, regex: and a regular expression of them, as PEFT reads one, or linear: all but experts, which experts.gate_up_proj and experts.down_proj name"},
    {IDENTITY(adapter, dora, RUN), BOOL(false), WHEN "adapter.type is lora or qlora", HELP "also train the length of each row of the sum (DoRA)"},
    {IDENTITY(adapter, modules_to_save, RUN), NDP_OPTION_LIST, "[]", WHEN "adapter.type is lora or qlora", HELP "modules that are trained whole beside the factors: embed_tokens, lm_head, norms"},
    {IDENTITY(adapter, base, RUN), WORD(nf4, base_words), .meanings = base_forms, WHEN "adapter.type is qlora", HELP "how the frozen projections are stored: nf4 (4 bits, blocks of 64), int8 (rows)"},
    {IDENTITY(adapter, init, RUN), WORD(zero, start_words), WHEN "adapter.type is lora or qlora", HELP "the second factor of a new adapter: zero, as in PEFT, or random, which trains the first one from step 1 on; verify takes random"},
    {CONTENTS(adapter, path, RUN), TEXT(NULL), WHEN "adapter.type is lora or qlora", HELP "a PEFT folder: training continues its adapter"},

    {CONTENTS(data, files, ROWS), ENTRIES, .own = offsetof(ndp_config, data.files_own), HELP "files, folders, patterns: .txt .jsonl .json .csv .parquet .arrow .bin ...; org/name:split in the Hub cache; {path: NAME, format: alpaca, ...} with its own options"},
    {CONTENTS(data, mix, LEARN), NDP_OPTION_LIST, "[]", .open = true, WHEN "data.files has several entries", HELP "how often an epoch reads the rows of each file: a list of numbers, or file: number"},
    {IDENTITY(data, sequence_length, JOB), INT(256, 1, 1 << 24), HELP "tokens per row"},
    {CONTENTS(data, tokenizer, RUN), TEXT(NULL), HELP "bytes, a folder or a tokenizer.json; null: the model folder's, or none if the data are .bin files"},
    {IDENTITY(data, format, ROWS), WORD(auto, format_words), .entry = true, WHEN "data.files has JSON records or tables", HELP "format of JSON records; auto: by the fields of each record"},
    {IDENTITY(data, text_field, ROWS), TEXT("text"), .entry = true, WHEN "records have a text", HELP "field that holds the text"},
    {IDENTITY(data, messages_field, ROWS), TEXT("messages"), .entry = true, WHEN "records have messages", HELP "field that holds a list of {role, content} or {from, value}"},
    {IDENTITY(data, role_field, ROWS), TEXT(NULL), .entry = true, WHEN "records have messages", HELP "field of a message that holds its role; null: role or from"},
    {IDENTITY(data, content_field, ROWS), TEXT(NULL), .entry = true, WHEN "records have messages", HELP "field of a message that holds its text; null: content or value"},
    {IDENTITY(data, train_field, ROWS), TEXT(NULL), .entry = true, WHEN "records have messages", HELP "field of a message that says whether it is trained on; null: weight, train, loss_mask and their likes"},
    {IDENTITY(data, drop_system, ROWS), BOOL(false), .entry = true, WHEN "records have messages", HELP "leave out a first message of the system, as for templates that do not take one"},
    {IDENTITY(data, roles, ROWS), NDP_OPTION_LIST, "[]", .open = true, .entry = true, WHEN "records have messages", HELP "names of roles in the records: {bot: assistant} for system, user, assistant or tool"},
    {IDENTITY(data, prompt_field, ROWS), TEXT("instruction"), .entry = true, WHEN "records have a question and an answer", HELP "field that holds the question"},
    {IDENTITY(data, input_field, ROWS), TEXT("input"), .entry = true, WHEN "records have a question and an answer", HELP "field that continues the question, if present; without input, that is context"},
    {IDENTITY(data, input_separator, ROWS), TEXT(NULL), .entry = true, WHEN "records have a question and an answer", HELP "what divides the question from the field that continues it, where a chat template renders both; null: an empty line"},
    {IDENTITY(data, response_field, ROWS), TEXT(NULL), .entry = true, WHEN "records have a question and an answer", HELP "field that holds the answer; null: response or output"},
    {IDENTITY(data, chosen_field, ROWS), TEXT(NULL), .entry = true, WHEN "data.format is preference", HELP "field that holds the preferred answer; null: chosen or chosen_response"},
    {IDENTITY(data, rejected_field, ROWS), TEXT(NULL), .entry = true, WHEN "data.format is preference", HELP "field that holds the other answer; null: rejected or rejected_response"},
    {CONTENTS(data, chat_template, ROWS), TEXT(NULL), WHEN "records are conversations", HELP "a built-in one, such as chatml or llama3.1, or a file.jinja, which the result then has; null: the tokenizer's own"},
    {IDENTITY(data, template_date, ROWS), TEXT(NULL), WHEN "the chat template writes a date", HELP "the date that chat templates write as today, such as 2025-01-31; null: 2024-07-26"},
    {IDENTITY(data, train_on, ROWS), WORD(assistant, train_on_words), .entry = true, WHEN "records are conversations, or have a question and an answer", HELP "which part of a conversation is trained on: what the assistant wrote with the token that ends it, all, or the assistant's turn with the line breaks behind that token, too"},
    {FREE(data, bad_records, ROWS), WORD(error, bad_words), WHEN "data.files has JSON records or tables", HELP "records that cannot be read or rendered: an error, or left out and counted"},
    {CONTENTS(data, end_token, ROWS), TEXT("auto"), HELP "ends every text: auto (the tokenizer's), none, or one of its tokens; an id for .bin files without a tokenizer"},
    {IDENTITY(data, bin_type, ROWS), WORD(uint16, bin_words), .meanings = bin_bytes, WHEN "data.files has .bin files without a header", HELP "type of the ids in .bin files without a header"},
    {IDENTITY(data, document_mask, ROWS), BOOL(true), HELP "attention stays within a document, and positions restart"},
    {IDENTITY(data, packing, ROWS), BOOL(true), HELP "several documents per row; false: one, padded; with preference data the default is false"},
    {CONTENTS(data, overlong, ROWS), WORD(auto, overlong_words), HELP "documents longer than a row: auto and cut continue them in another row, auto without pieces of conversations that lack their question; or an error, left out, truncated; with preference data auto is truncate"},
    {IDENTITY(data, min_tokens, ROWS), INT64(0, 0, INT64_MAX), HELP "documents of fewer tokens, with the end token, are left out and counted; of a pair one of the two is enough"},
    {IDENTITY(data, max_documents, ROWS), INT64(0, 0, INT64_MAX), HELP "only the first documents of each entry of data.files, or pairs; 0: all"},
    {IDENTITY(data, unique, ROWS), BOOL(false), HELP "documents, or pairs, with the tokens of an earlier one are left out and counted, also those held out"},
    {CONTENTS(data, validation_files, ROWS), ENTRIES, .own = offsetof(ndp_config, data.validation_own), HELP "held-out data, named like data.files"},
    {IDENTITY(data, validation_fraction, ROWS), NUMBER(0, "[0, 1)"), WHEN "data.validation_files is empty", HELP "fraction of the documents of data.files to hold out"},
    {IDENTITY(data, shuffle, LEARN), BOOL(true), HELP "a new order every epoch, the same on every layout"},
    {FREE(data, cache_dir, ROWS), TEXT(NULL), HELP "folder for tokenized data; null: $XDG_CACHE_HOME/ndparallel"},


    NDP_AXES_LIST(AXIS)
    {FREE(parallelism, reshard_after_forward, JOB), BOOL(true), WHEN "parallelism.dp_shard_size, parallelism.cp_size or parallelism.sp_size is above 1", HELP "drop gathered parameters between forward and backward; with pp_size above 1 the default is false"},
    {FREE(parallelism, reduce_every, STEP), WORD(micro_batch, reduce_every_words), WHEN "batch.global_batch_size is more than batch.micro_batch_size on every data rank", HELP "when gradients are summed over ranks; with pp_size above 1 the default is update"},
    {FREE(parallelism, cp_method, JOB), WORD(ring, cp_words), WHEN "parallelism.cp_size is above 1", HELP "keys and values: passed around a ring, or gathered"},
    {FREE(parallelism, cp_zigzag, JOB), BOOL(true), WHEN "parallelism.cp_size is above 1", HELP "an early and a late chunk per rank: equal work under a causal mask"},
    {FREE(parallelism, tp_sequence_parallel, JOB), BOOL(true), WHEN "parallelism.tp_size is above 1", HELP "norms and residuals are split along the sequence"},

    {FREE(pipeline, schedule, JOB), WORD(1f1b, pipeline_words), WHEN "parallelism.pp_size is above 1", HELP "order of forwards and backwards on pp_size ranks"},
    {FREE(pipeline, virtual_stages, JOB), INT(auto, 1, NDP_MOST_STAGES), .open = true, WHEN "parallelism.pp_size is above 1, and pipeline.schedule is not file", HELP "stages per rank; auto: as few as the schedule has"},
    {FREE(pipeline, stages, JOB), NDP_OPTION_LIST, "auto", WHEN "parallelism.pp_size is above 1", HELP "layers of each stage, such as [12, 10, 8]; auto: by their cost"},
    {FREE(pipeline, file, JOB), TEXT(NULL), WHEN "parallelism.pp_size is above 1, and pipeline.schedule is file", HELP "the table of schedule `file`: torch's CSV, a row per rank"},

    {IDENTITY(precision, compute, RUN), WORD(fp32, compute_words), .meanings = compute_types, .foreign = compute_foreign, HELP "type of activations and kernels; fp64: device ref only; fp8: bf16 with matrix products in fp8, for plan --cluster only"},
    {IDENTITY(precision, weights, STEP), WORD(fp32, reduce_words), WHEN "precision.compute is bf16", HELP "type of the weights that updates change. fp32: exact, the upper half of it in bf16 for kernels; bf16: that half alone, rounded at random"},
    {IDENTITY(precision, states, STEP), WORD(fp32, reduce_words), HELP "type of the optimizer's moments; bf16: rounded at random, the same on every layout"},
    {IDENTITY(precision, reduce, STEP), WORD(fp32, reduce_words), HELP "type of gradients sent between ranks; bf16: for plan --cluster only"},
    {IDENTITY(precision, tp_reduce, STEP), WORD(fp32, reduce_words), WHEN "parallelism.tp_size or parallelism.sp_size is above 1", HELP "type of activations and their gradients that are summed over tp and sp; bf16: for plan --cluster only"},

    {IDENTITY(batch, global_batch_size, JOB), INT(16, 1, 1 << 30), HELP "rows per update; accumulation is derived"},
    {FREE(batch, micro_batch_size, JOB), INT(1, 1, 1 << 24), .open = true, HELP "rows that a rank computes at once; auto: as many as fit its memory, with plan --cluster the fastest of these; with preference data the default is 2, a pair"},

    {IDENTITY(loss, name, JOB), WORD(xent, loss_words), HELP "xent: of tokens; the others of preference data; reward trains a reward model"},
    {IDENTITY(loss, beta, JOB), NUMBER(0.1, "(0, inf)"), WHEN "data.format is preference, and loss.name is not reward", HELP "scale of the rewards; of orpo: weight of the odds ratio"},
    {IDENTITY(loss, variant, JOB), WORD(sigmoid, variant_words), WHEN "loss.name is dpo or kto", HELP "which loss of that name; of kto sigmoid or apo_zero"},
    {IDENTITY(loss, label_smoothing, JOB), NUMBER(0, "[0, 0.5)"), WHEN "loss.name is simpo, or loss.variant is robust", HELP "probability that a pair is the wrong way round"},
    {IDENTITY(loss, gamma, JOB), NUMBER(0.5, "[0, inf)"), WHEN "loss.name is simpo", HELP "margin between the rewards"},
    {IDENTITY(loss, center, JOB), NUMBER(0, "[0, inf)"), WHEN "loss.name is reward", HELP "weight of the squared sum of a pair's rewards, which keeps them near 0"},
    {IDENTITY(loss, sft_weight, JOB), NUMBER(0, "[0, inf)"), WHEN "data.format is preference", HELP "weight of the mean token loss of chosen answers (of orpo: of prompt and answer), added to that of pairs; with orpo the default is 1"},
    {IDENTITY(loss, desirable_weight, JOB), NUMBER(1, "[0, inf)"), WHEN "loss.name is kto", HELP "weight of the loss of answers that are wanted"},
    {IDENTITY(loss, undesirable_weight, JOB), NUMBER(1, "[0, inf)"), WHEN "loss.name is kto", HELP "weight of the loss of those that are not"},
    {IDENTITY(loss, token_weight, JOB), WORD(none, weight_words), WHEN "loss.name is xent", HELP "weights of tokens in training, without a gradient through them. entropy: by that of the largest logits (EAFT); probability: that of the token (DFT)"},
    {IDENTITY(loss, entropy_k, JOB), INT(20, 2, NDP_MOST_TOP), WHEN "loss.token_weight is entropy", HELP "largest logits whose softmax has the entropy"},
    {IDENTITY(loss, entropy_alpha, JOB), NUMBER(1, "(0, inf)"), WHEN "loss.token_weight is entropy", HELP "exponent of the weight"},
    {IDENTITY(loss, entropy_unit, JOB), NUMBER(1, "(0, inf)"), WHEN "loss.token_weight is entropy", HELP "entropy, in nats, that has weight 1"},
    {IDENTITY(moe, balance, LEARN), WORD(auto, balance_words), HELP "loss that keeps the experts of a mixture evenly used. sequence: in each sample and layer (DeepSeek-V3's), so that no layout or batch changes it; auto: if the model's output_router_logits is true"},
    {IDENTITY(moe, balance_coef, LEARN), NUMBER(0, "[0, inf)"), HELP "its coefficient in each layer; 0: the model's router_aux_loss_coef x num_experts_per_tok / mixture layers"},
    {IDENTITY(moe, z_loss, LEARN), NUMBER(0, "[0, inf)"), HELP "coefficient of the square of the log of the sum of a router's exponentials, in each layer"},
    {IDENTITY(moe, bias_rate, LEARN), NUMBER(0, "[0, inf)"), WHEN "routers have a bias that is added where they choose", HELP "loss-free balancing: after each update the bias of an expert grows by this if it got fewer tokens than the mean of its layer, and falls if it got more"},
    {FREE(moe, capacity_factor, JOB), NUMBER(1.5, "[1, inf)"), .words = full_words, WHEN "parallelism.ep_size is above 1", HELP "memory for the rows that come to a rank's experts, in shares of what comes if experts are evenly used. More rows come in rounds: slower, with the same results; full: memory for all rows of all ranks of ep"},
    {CONTENTS(moe, routes, STEP), TEXT(NULL), WHEN "the model is a mixture of experts", HELP "a safetensors file with the experts that each row of an update goes to, instead of those that routers choose"},

    {IDENTITY(optimizer, name, STEP), WORD(adamw, optimizer_words), .foreign = optimizer_foreign, HELP "the update rule"},
    {IDENTITY(optimizer, lr, LEARN), NUMBER(3.0e-4, "[0, inf)"), HELP "learning rate after warm-up"},
    {IDENTITY(optimizer, betas, LEARN), NDP_OPTION_PAIR, "[0.9, 0.95]", .interval = "[0, 1)", HELP "decay rates of the moments"},
    {IDENTITY(optimizer, eps, LEARN), NUMBER(1.0e-8, "(0, inf)"), HELP "added to the denominator"},
    {IDENTITY(optimizer, weight_decay, LEARN), NUMBER(0.1, "[0, inf)"), HELP "not applied to norms, biases and other 1-D parameters"},
    {IDENTITY(optimizer, momentum, STEP), NUMBER(0, "[0, 1)"), HELP "momentum"},
    {IDENTITY(optimizer, max_grad_norm, STEP), NUMBER(1.0, "[0, inf)"), HELP "clip gradients to this global norm; 0: no clipping"},
    {IDENTITY(optimizer, groups, STEP), NDP_OPTION_MAPPINGS, "[]", .read_entry = ndp_group_read, HELP "tensors with a learning rate, a weight decay or an optimizer of their own: {params: [embed_tokens, \"*.bias\"], lr_scale: 0.1, weight_decay: 0, optimizer: adamw}"},

    {IDENTITY(schedule, name, LEARN), WORD(cosine, schedule_words), .foreign = schedule_foreign, HELP "shape of the learning rate after warm-up"},
    {IDENTITY(schedule, warmup_steps, LEARN), INT(10, 0, 1 << 30), WHEN "schedule.warmup_ratio is 0", HELP "steps of linear warm-up"},
    {IDENTITY(schedule, warmup_ratio, LEARN), NUMBER(0, "[0, 1]"), WHEN "it is above 0", HELP "warm-up as a share of the steps, instead of schedule.warmup_steps; 0: unset"},
    {IDENTITY(schedule, min_lr_ratio, LEARN), NUMBER(0.1, "[0, 1]"), WHEN "schedule.name is linear, cosine, wsd or cosine_restarts", HELP "final learning rate / lr"},
    {IDENTITY(schedule, decay_ratio, LEARN), NUMBER(0.1, "(0, 1]"), WHEN "schedule.name is wsd", HELP "share of the steps, the last ones, in which the learning rate falls"},
    {IDENTITY(schedule, cycles, LEARN), INT(1, 1, 1 << 20), WHEN "schedule.name is cosine_restarts", HELP "how often the learning rate falls, each time from lr"},
    {IDENTITY(schedule, like, LEARN), WORD(own, like_words), HELP "transformers: warm-up begins at 0 and its ratio is rounded up, a decay ends one update after the last; axolotl: the same, but the ratio is rounded down, and 1 step is 2; deepspeed: warm-up and lines are one update later still"},

    {IDENTITY(train, steps, LEARN), INT(100, 1, 1 << 30), WHEN "train.epochs is 0", HELP "number of updates"},
    {CONTENTS(train, epochs, LEARN), NUMBER(0, "[0, 1e9]"), WHEN "it is above 0", HELP "instead of train.steps: passes over the rows, such as 3 or 0.5; 0: unset"},
    {FREE(train, own_batches, JOB), BOOL(false), HELP "a program of your own gives the rows, by the library (ndp_trainer_forward_backward); data.files may be empty"},
    {FREE(train, own_logits, JOB), BOOL(false), HELP "the host computes the loss from whole rows of logits, so that it may be a function of yours (ndp_trainer_forward_backward_logits)"},
    {FREE(train, own_generate, JOB), INT(0, 0, 1 << 16), WHEN "train.own_batches is true", HELP "texts of up to data.sequence_length tokens that ndp_trainer_generate continues at a time, in memory of the first rank of each data rank, with all weights; 0: it is not called"},
    {IDENTITY(train, seed, LEARN), INT64(42, 0, INT64_MAX), HELP "seed of initial weights and data order"},
    {FREE(train, recompute, STEP), WORD(none, recompute_words), .foreign = recompute_foreign, HELP "block: keep only the input of each layer, and recompute the rest in backward; selective: also keep the result of attention, every second matrix product, and sums over tp"},
    {FREE(train, output_dir, TRAIN), TEXT("runs/demo"), HELP "run folder: metrics, checkpoints, the trained model"},
    {FREE(train, threads, ROWS), INT(0, 0, 4096), HELP "threads per rank; 0: cores / ranks"},
    {FREE(train, force_memory, ROWS), BOOL(false), HELP "start even if more memory is needed than is available"},
    {FREE(train, device, JOB), WORD(cpu, ndp_device_names), .foreign = device_foreign, HELP "cuda: NVIDIA GPUs, one for each rank; ref: plain loops, for comparison; sim: cuda's kernels on the CPU, for tests"},
    {FREE(train, share_gpu, HELD), BOOL(false), WHEN "train.device is cuda", HELP "device cuda: allow more ranks on a host than it has GPUs"},
    {FREE(train, gpu_memory, JOB), NUMBER(0, "[0, 1e6]"), WHEN "train.device is cuda", HELP "device cuda: GiB of each GPU, for plans and dry runs where there is none; 0: what is free on this machine's GPU, if it has one"},
    {IDENTITY(train, matmul, ROWS), WORD(fp32, matmul_words), WHEN "train.device is cuda, and precision.compute is fp32", HELP "device cuda, compute fp32: tf32 rounds the operands of products to 10 bits, and is faster"},
    {FREE(train, collectives, JOB), WORD(auto, collectives_words), WHEN "train.device is cuda", HELP "device cuda: how ranks exchange tensors: device (on the GPUs; processes use NCCL), staged (through the host's memory, slow), or auto: device, but staged for processes that share a GPU and threads that do not"},
    {FREE(train, transport, ROWS), TEXT("auto"), .words = transport_words, .foreign = transport_foreign, HELP "how ranks communicate; local: threads of one process, shm: processes of one host"},
    {FREE(train, check_links, TRAIN), WORD(warn, check_words), WHEN "the ranks are on several hosts", HELP "measure the links between hosts before the first step: warn names those that are slow, and axes placed badly; fail also ends the run; off: measure nothing"},
    {FREE(train, ranks, LAYOUT), INT(0, 0, 1 << 20), HELP "number of ranks; 0: the product of the sizes"},
    {FREE(train, log_every, TRAIN), INT(auto, 1, 1 << 30), .open = true, HELP "steps between printed lines; auto: on a terminal one at evaluations, saves and every 10 s, elsewhere at most 1,000 in a run"},
    {FREE(train, eval_every, TRAIN), INT(0, 0, 1 << 30), WHEN "data.validation_files or data.validation_fraction is set", HELP "steps between evaluations of the held-out data; 0: only at the end"},
    {FREE(train, keep_best, TRAIN), BOOL(false), WHEN "train.eval_every is above 0", HELP "export the model of the lowest eval_loss to train.output_dir/best, besides that of the last step"},
    {FREE(train, stop_after, TRAIN), INT(0, 0, 1 << 30), WHEN "train.eval_every is above 0", HELP "end the run after so many evaluations without a lower eval_loss; 0: go on to train.steps"},
    {FREE(train, sample_every, STEP), INT(0, 0, 1 << 30), WHEN "train.sample_prompts is set", HELP "steps between samples: texts by the weights as they are, in samples.jsonl; 0: none"},
    {FREE(train, sample_prompts, TRAIN), NDP_OPTION_LIST, "[]", .open = true, WHEN "train.sample_every is above 0", HELP "what samples continue: questions where records are conversations, else beginnings of texts"},
    {FREE(train, sample_tokens, TRAIN), INT(64, 1, 1 << 20), WHEN "train.sample_every is above 0", HELP "most tokens of a sample; a forward pass each"},
    {FREE(train, layer_norms_every, TRAIN), INT(0, 0, 1 << 30), HELP "steps between measurements of each layer's gradient norm, in metrics.jsonl; 0: none"},
    {FREE(train, spike, TRAIN), NUMBER(0, "[0, 1e6]"), HELP "run a step again and check its values if its loss is so many standard deviations above the mean of the last 200, before its update; 0: only if it is not finite"},
    {FREE(train, trackers, TRAIN), NDP_OPTION_LIST, "[]", .words = tracker_words, .foreign = tracker_foreign, HELP "what shows the metrics besides metrics.jsonl; tensorboard: event files in train.output_dir/tb"},

    {FREE(checkpoint, every, TRAIN), INT(0, 0, 1 << 30), HELP "steps between checkpoints; 0: only at the end"},
    {FREE(checkpoint, minutes, TRAIN), NUMBER(30, "[0, 1e6]"), HELP "a checkpoint also so many minutes after the last one; 0: off"},
    {FREE(checkpoint, keep, TRAIN), INT(3, 1, 1 << 20), HELP "how many of the latest checkpoints to keep"},
    {FREE(checkpoint, async, TRAIN | NDP_READER_PLAN), WORD(auto, async_words), .foreign = async_foreign, WHEN "checkpoint.every or checkpoint.minutes is above 0", HELP "copy what is saved and write it while the steps go on; auto: if there is memory for the copy; false: the steps wait until it is written"},
    /* clang-format on */
};
const int ndp_option_count = NDP_COUNT(ndp_options);
_Static_assert(NDP_COUNT(ndp_options) <= NDP_MOST_OPTIONS, "ndp_config.given has a place for every option");
_Static_assert(NDP_COUNT(ndp_options) <= NDP_MOST_ROWS, "a reading has a place for every option");

static const ndp_option_section sections[] = {
    {"model", NULL, NULL},     {"adapter", NULL, NULL},   {"data", NULL, NULL},     {"parallelism", NULL, NULL},
    {"pipeline", NULL, NULL},  {"precision", NULL, NULL}, {"batch", NULL, NULL},    {"loss", NULL, NULL},
    {"moe", NULL, NULL},       {"optimizer", NULL, NULL}, {"schedule", NULL, NULL}, {"train", NULL, NULL},
    {"checkpoint", NULL, NULL}};

const ndp_option_table ndp_job_options = {.rows = ndp_options,
                                          .n = NDP_COUNT(ndp_options),
                                          .sections = sections,
                                          .section_count = NDP_COUNT(sections),
                                          .expected = "sections such as 'model:' and 'data:'",
                                          .refuse = ndp_names_refuse};

const ndp_option *ndp_option_find(const char *section, const char *key) {
    return ndp_option_among(&ndp_job_options, section, key);
}

bool ndp_option_opens_section(int i) {
    return i == 0 || strcmp(ndp_options[i].section, ndp_options[i - 1].section) != 0;
}
