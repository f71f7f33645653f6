/* The tables of other programs' keys: which there are, how their rows are written, and the reasons and words that
 * several of them use. Inside this room only. */
#ifndef NDP_CONFIG_IMPORT_TABLE_H
#define NDP_CONFIG_IMPORT_TABLE_H

#include "import/import_parts.h"

extern const import_table ndp_import_axolotl, ndp_import_accelerate, ndp_import_llamafactory, ndp_import_trl;
/* Sets the tables and the dialect that knows the most keys of the file. */
NDP_API ndp_status ndp_import_choose(ndp_import *m);

#define INTO(member) .offset = offsetof(ndp_import, member)
#define INT(member, from, to) IMPORT_VALUE, .type = NDP_OPTION_INT, INTO(member), .low = from, .high = to
#define SIZE(member) INT(member, 1, 1 << 20)
#define AXIS(NAME) SIZE(read.size[NDP_##NAME])
#define PAIR(member, within) IMPORT_VALUE, .type = NDP_OPTION_PAIR, INTO(member), .interval = within
#define INT64(member, from, to) IMPORT_VALUE, .type = NDP_OPTION_INT64, INTO(member), .low = from, .high = to
#define NUMBER(member, within) IMPORT_VALUE, .type = NDP_OPTION_NUMBER, INTO(member), .interval = within
#define TEXT(member) IMPORT_VALUE, .type = NDP_OPTION_TEXT, INTO(member)
#define LIST(member) IMPORT_VALUE, .type = NDP_OPTION_LIST, INTO(member)
#define WORD(member, choices) IMPORT_WORD, INTO(member), .words = choices
#define SECTION(name) IMPORT_SECTION, .inside = name
#define INSIDE(name) .inside = name /* of EACH: the section whose keys it reads */
#define EACH(function) IMPORT_EACH, .each = function
#define LEFT(reason) IMPORT_LEFT, .why = reason
#define REFUSED(reason) IMPORT_REFUSED, .why = reason
#define SETTLED_BY(key) .ours = key

/* ---- reasons ---- */

/* The words of a list of ours (NDP_OPTIMIZERS, NDP_LOSSES), for reasons that name them. */
#define LISTED(NAME, name, ...) " " #name

static const char launched[] = "ndparallel, mpirun or srun start the ranks; see train.ranks and --hostfile";
static const char own_attention[] = "ndparallel has its own kernels for exact attention";
static const char own_kernels[] = "ndparallel has its own kernels; there is nothing to compile or patch";
static const char own_memory[] = "`ndparallel train --dry-run` shows the plan of memory";
static const char units[] = "the units of sharding are the embedding, each decoder block and the head";
static const char one_sharding[] = "there is only one implementation of sharding";
static const char always_sharded[] = "every rank reads its own slice; checkpoints hold whole tensors, in safetensors";
static const char no_offload[] = "parameters and optimizer state are not offloaded";
static const char overlapped[] = "the step program schedules gathers and reductions";
static const char no_tracker[] = "metrics are in the run folder's metrics.jsonl";
static const char no_fp16[] = "fp16 is not supported; bf16 needs no loss scaling";
static const char no_fp8[] = "fp8 is not supported";
static const char no_hub[] = "nothing is downloaded or uploaded; paths are paths on disk";
static const char no_rewards[] = "rewards are not supported; loss.name is one of:" NDP_LOSSES(LISTED);
static const char own_cache[] = "data are tokenized once, into data.cache_dir";
static const char no_embedding_factors[] = "embeddings have no factors";
static const char one_loss[] = "the loss of tokens is the cross-entropy of the next one";
static const char all_trained[] = "tensors that are trained do not change in a run; model.trained names them";
static const char exact_attention[] = "attention is exact and covers all that the mask allows";
static const char by_seed[] = "rows are shuffled with train.seed, identically on every layout";
static const char all_read[] = "all documents are read; data.max_documents takes the first of each file";
static const char by_eval_loss[] = "the best model is that of the lowest eval_loss (train.keep_best)";
static const char other_tracker[] =
    "metrics are in the run folder's metrics.jsonl; train.trackers: [tensorboard] writes files of TensorBoard, which "
    "`wandb sync --sync-tensorboard` up to 0.29 reads";
static const char own_resume[] = "use `ndparallel train --resume`, which reads its own checkpoints";
static const char no_images[] = "only text is supported";
static const char no_quantization[] = "weights are quantized beside an adapter only, as nf4 or int8 (adapter.base)";
static const char all_layers[] = "all layers have the same factors, of one rank; see adapter.targets";

/* ---- words ---- */

/* "true" and "false" are all that ndp_import_truth takes for them. */
static const import_word truth[] = {{"true", WORD_YES, 0}, {"false", WORD_NO, 0}, {0}};
static const import_word truth_or_auto[] = {
    {"auto", WORD_AUTO, 0}, {"full true", WORD_YES, 0}, {"false", WORD_NO, 0}, {0}};
static const import_word half_words[] = {{"true", WORD_YES, 0}, {"auto", 0, 0}, {"false", WORD_NO, 0}, {0}};
static const import_word checkpointing_words[] = {
    {"true", WORD_YES, 0}, {"false", WORD_NO, 0}, {"offload offload_disk unsloth", WORD_OFFLOAD, 0}, {0}};

/* ---- of the transformers' Trainer ---- */

#define OPTIMIZERS_LISTED NDP_OPTIMIZERS(LISTED)
static const char not_adamw[] =
    "not the same as AdamW with states of fp32 or of 8 bits; optimizer.name is one of:" OPTIMIZERS_LISTED;
static const char not_lion[] = "not the same as Lion in fp32; optimizer.name is one of:" OPTIMIZERS_LISTED;
/* clang-format off */
/* What transformers' Trainer calls optimizers. */
#define TRAINER_OPTIMIZERS \
    {"adamw_torch adamw_torch_fused adamw_torch_xla adamw_torch_npu_fused adamw_hf adamw_apex_fused", 1 + NDP_ADAMW, 0}, \
    {"paged_adamw_32bit paged_adamw", (1 + NDP_ADAMW) | OPTIMIZER_PAGED, 0}, \
    {"adamw_bnb_8bit adamw_8bit", 1 + NDP_ADAMW8BIT, 0}, \
    {"paged_adamw_8bit", (1 + NDP_ADAMW8BIT) | OPTIMIZER_PAGED, 0}, \
    {"adamw_torch_8bit ao_adamw_8bit", (1 + NDP_ADAMW8BIT) | OPTIMIZER_OF_TORCHAO, 0}, \
    {"adamw_torch_4bit ao_adamw_4bit", (1 + NDP_ADAMW8BIT) | OPTIMIZER_OF_4_BITS, 0}, \
    {"sgd", 1 + NDP_SGD, 0}, \
    {"lion_32bit", 1 + NDP_LION, 0}, \
    {"paged_lion_32bit", (1 + NDP_LION) | OPTIMIZER_PAGED, 0}, \
    {"lion_* paged_lion_*", 0, not_lion}, \
    {"adamw_anyprecision adopt_adamw ao_adamw_* ademamix* paged_ademamix_* adafactor adagrad rmsprop* galore_* " \
     "apollo_adamw* schedule_free_* optimi_adamw came_pytorch grokadamw stable_adamw lomo adalomo dion", \
     0, not_adamw}
/* clang-format on */
static const import_word optimizers[] = {TRAINER_OPTIMIZERS, {"muon", 0, not_adamw}, {0}};
static const import_word starts[] = {
    {"true", 0, 0}, {"*", 0, "factors begin as PEFT's default: A uniform, B zero (adapter.init)"}, {0}};
static const char no_schedule[] = "schedule.name is one of:" NDP_LR_SCHEDULES(LISTED);
static const import_word schedules[] = {{"constant", SCHEDULE_CONSTANT, 0},
                                        {"constant_with_warmup", SCHEDULE_CONSTANT_WARMUP, 0},
                                        {"linear", SCHEDULE_LINEAR, 0},
                                        {"cosine cosine_with_min_lr", SCHEDULE_COSINE, 0},
                                        {"cosine_warmup_with_min_lr", SCHEDULE_COSINE_AHEAD, 0},
                                        {"cosine_with_restarts", SCHEDULE_RESTARTS, 0},
                                        {"inverse_sqrt", SCHEDULE_INVERSE_SQRT, 0},
                                        {"warmup_stable_decay", SCHEDULE_WSD, 0},
                                        {"polynomial reduce_lr_on_plateau one_cycle rex greedy", 0, no_schedule},
                                        {0}};
static const import_word save_words[] = {
    {"no false", EVERY_NEVER, 0}, {"steps", EVERY_STEPS, 0}, {"epoch best", EVERY_EPOCH, 0}, {0}};
static const import_word eval_words[] = {
    {"no false", EVERY_NEVER, 0}, {"steps", EVERY_STEPS, 0}, {"epoch", EVERY_EPOCH, 0}, {0}};

#endif
