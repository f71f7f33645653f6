/* The parts of an import: what was read from a file, and what follows from it. Inside this room only. */
#ifndef NDP_CONFIG_IMPORT_PARTS_H
#define NDP_CONFIG_IMPORT_PARTS_H

#include "config/table.h"
#include "import/import_notes.h"
#include <string.h>

typedef struct ndp_import ndp_import;

/* ---- the tables of keys: what a key of another program is, and how its value is read ---- */

/* Words that a value may be, separated by spaces as the names of keys are. Case does not matter; a word that ends with
 * * is a prefix. */
typedef struct import_word {
    const char *words;
    int value;
    const char *refused; /* why it is refused; NULL: it is not */
} import_word;

typedef enum import_kind {
    IMPORT_VALUE,   /* read like an option of ours, into its member of ndp_import */
    IMPORT_WORD,    /* one of `words`: its value, an int */
    IMPORT_SECTION, /* a mapping: its keys are those of section `inside`, which may be written with `prefix` */
    IMPORT_EACH,    /* `each` reads it */
    IMPORT_LEFT,    /* has no counterpart and no effect on the result: `why` */
    IMPORT_REFUSED  /* changes the result and is not supported: `why`; allowed when off (null, false, 0, no, empty) */
} import_kind;

typedef struct import_key {
    /* "zero:alone" has the keys of "zero", too; of two rows with the same names its own counts. */
    const char *section;
    const char *names; /* of keys, separated by spaces; one that ends with * is a prefix */
    import_kind kind;
    ndp_option_type type; /* VALUE: these four as in ndp_option */
    size_t offset;        /* in ndp_import; of WORD too */
    int64_t low, high;
    const char *interval;
    const import_word *words;
    const char *inside, *prefix;
    ndp_status (*each)(ndp_import *m, struct fy_node *value, const char *name);
    const char *why;
    const char *ours; /* the key of ours that settles it when the user sets it; NULL: none */
} import_key;

typedef struct import_table {
    const import_key *keys;
    int n;
} import_table;
/* All of them; ends with NULL. */
extern const import_table *const ndp_import_tables[];

/* ---- what was read ---- */

/* A dialect is a section of the tables and the values that its program takes for keys that a file lacks. */
typedef struct import_values import_values;
typedef struct import_dialect {
    const char *section, *name, *program;
    const char *marks;    /* keys, separated by spaces, of which the file has at least one; NULL: any will do */
    const char *defaults; /* a job file; NULL: ours */
    void (*begin)(import_values *read);   /* defaults of what is not in the job; NULL: none */
    ndp_status (*prepare)(ndp_import *m); /* once all is read; NULL: nothing */
    bool whole;                           /* the file describes the whole training, not the layout alone */
} import_dialect;

/* FSDP's sharding strategies, by the numbers that Accelerate also takes. */
enum { FULL_SHARD = 1, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, HYBRID_SHARD_ZERO2 };
/* How Accelerate distributes. */
enum { DISTRIBUTED_NO = 1, DISTRIBUTED_DDP, DISTRIBUTED_FSDP, DISTRIBUTED_DEEPSPEED };
enum { WORD_NO = 1, WORD_YES, WORD_AUTO, WORD_OFFLOAD, WORD_HALF }; /* 0: the file does not have the key */
enum { RING_PLAIN = 1, RING_ZIGZAG, RING_STRIPE, RING_GATHERED };
enum {
    SCHEDULE_CONSTANT = 1,
    SCHEDULE_CONSTANT_WARMUP,
    SCHEDULE_LINEAR,
    SCHEDULE_COSINE,
    SCHEDULE_COSINE_AHEAD, /* with a warm-up that does not begin at 0 */
    SCHEDULE_RESTARTS,
    SCHEDULE_INVERSE_SQRT,
    SCHEDULE_WSD
};
enum { EVERY_NEVER = 1, EVERY_STEPS, EVERY_EPOCH };
enum { RISE_LINEAR = 1, RISE_LOG };
enum { STAGE_SFT = 1, STAGE_PT, STAGE_DPO, STAGE_KTO, STAGE_RM };
/* What an optimizer has besides its name. */
enum {
    OPTIMIZER_PAGED = 1 << 8,
    OPTIMIZER_OF_TORCHAO = 1 << 9,
    OPTIMIZER_OF_4_BITS = 1 << 10,
    OPTIMIZER_OF_BF16 = 1 << 11, /* Muon's Newton-Schulz */
    OPTIMIZER_NAME = OPTIMIZER_PAGED - 1
};
enum { EXCESS_DROP = 1, EXCESS_TRUNCATE, EXCESS_RAISE };
enum {
    PAIRS_DPO = 1,
    PAIRS_IPO,
    PAIRS_HINGE,
    PAIRS_ROBUST,
    PAIRS_APO_ZERO,
    PAIRS_ORPO,
    PAIRS_SIMPO,
    PAIRS_KTO,
    PAIRS_REWARD
};

/* What was read, where it does not go straight into the job. What the file lacks is 0, unless noted. */
struct import_values {
    int processes, machines;
    int size[NDP_SIZES], hpz;                       /* hpz: ranks that DeepSpeed's second copies are cut among */
    int distributed, strategy, reshard, zero_stage; /* zero_stage: -1 */
    bool undecided;                                 /* the number of data ranks is */
    ndp_strings fsdp;
    int micro, accumulation, batch, train_batch;
    int max_steps;                             /* -1 */
    double warmup;                             /* steps, or below 1 a share of them; -1 */
    double epochs, warmup_ratio, min_lr_ratio; /* the ratios: -1 */
    double min_lr, wsd_min_lr_ratio;           /* the same of lr_scheduler_kwargs: -1 */
    double cycles;
    int decay_steps, stable_steps, timescale; /* stable_steps: -1 */
    double rise_from, peak, rise_ratio;       /* of DeepSpeed's schedulers */
    int rise;                                 /* RISE_... */
    int optimizer;                            /* 1 + its ndp_optimizer_name, and OPTIMIZER_... */
    int scheduler, fp32, bf16, fp16, half, mixed;
    int checkpointing, fsdp_checkpointing, ring, rotate, tp_sequence, distributed_optimizer;
    int save, eval; /* EVERY_... */
    int keep_best, tensorboard;
    ndp_strings reporters; /* names of trackers */
    double save_steps, saves_per_epoch, eval_steps, evals_per_epoch;
    char *chat_template;
    int packing, multipack_attention, train_on_inputs, excess, curriculum, shuffle_merged, unique;
    double val_set_size;
    int adapter, four_bits, eight_bits, target_linear, dora, rslora, muon; /* adapter: an ndp_adapter_type */
    ndp_strings targets, parameters;                   /* modules; and parameters, which stacks of experts are */
    double embedding_lr, embedding_lr_scale, group_lr; /* 0: the rate of all */
    ndp_strings lr_groups, group_modules;
    int pairs;                                                                              /* the key rl: PAIRS_... */
    double beta, trl_beta, odds_weight, nll_weight, margin, desirable, undesirable, center; /* of preferences; -1 */
    int reward;                                                                             /* PAIRS_REWARD */
    char *revision, *eos_token, *bos_token, *unk_token;
    ndp_strings added_tokens, unfrozen; /* tokens that the vocabulary has to have; patterns of parameters */
    int router_logits, reinit, quadratic;
    int entropy, probability;                 /* WORD_YES: tokens have such weights */
    int peft, answers_only;                   /* TRL's */
    double smoothing;                         /* of its pairs */
    int ignored;                              /* a word that changes nothing */
    int stage, bits, neat_packing, pref_loss; /* LLaMA-Factory's; stage: STAGE_..., pref_loss: PAIRS_... */
    bool whole_turns;                         /* its templates: line breaks behind an answer are trained on */
};

/* The data set that is being read. */
typedef struct import_set {
    char *path, *type, *ds_type, *template;
    char *text, *messages, *prompt, *input, *response; /* names of fields */
    char *chosen, *rejected, *label;                   /* of pairs, and of single answers */
    char *role, *content, *train;                      /* names of fields of a message */
    char *format, *no_input_format;                    /* of a custom type */
    char *hub, *config, *revision, *split;             /* of a data set on the Hub */
    int sharegpt, ranking;                             /* WORD_YES: LLaMA-Factory's formatting, its pairs */
    int drop_system;
    ndp_strings files;
    ndp_str own; /* what it has other than the sets before it: ", format: alpaca, text_field: \"body\"" */
} import_set;

/* A data set whose records are conversations, or questions and answers: it names a chat template. */
typedef struct import_chat {
    const char *name; /* of the data set */
    struct fy_node *node;
    const char *template; /* as Axolotl calls it; NULL: that of the whole file, else the tokenizer's */
} import_chat;

#define NDP_IMPORT_NO_TEMPLATE                                                                                         \
    "conversations are rendered by the tokenizer's own template, or by chatml, qwen*, llama3, gemma, gemma3, "         \
    "gemma4*, "                                                                                                        \
    "phi_3*, pixtral or mistral_v*; data.chat_template also takes a file, *.jinja"

/* What all data sets together have. */
typedef struct import_sets {
    bool held_out;                 /* the current set is one of test_datasets */
    int formats;                   /* bits 1 << ndp_record_kind of all data sets */
    ndp_record_kind format;        /* of the first one */
    bool shared[NDP_MOST_OPTIONS]; /* by option: one of the data sets has set it for all (import_sets.c) */
    import_chat *chats;
    int64_t chat_count, chat_capacity;
} import_sets;

struct ndp_import {
    ndp_config job;
    bool imported[NDP_MOST_OPTIONS]; /* a flag for each of ndp_options: it is written to the job */
    const import_dialect *dialect;
    ndp_yaml yaml, deepspeed_yaml; /* the file, and the one that its key deepspeed names */
    char *deepspeed_text;
    ndp_yaml info_yaml; /* LLaMA-Factory's dataset_info.json */
    char *info_text;
    import_values read;
    import_set set;
    import_sets sets;
    ndp_import_notes notes;
};
/* Adds a line to the remarks. */
#define SAY(m, ...) ndp_str_addf(&(m)->notes.remarks, __VA_ARGS__)

/* The readers that the tables name. */
NDP_API ndp_status ndp_import_datasets(ndp_import *m, struct fy_node *value, const char *name);
NDP_API ndp_status ndp_import_dataset_type(ndp_import *m, struct fy_node *value, const char *name);
NDP_API ndp_status ndp_import_dataset_split(ndp_import *m, struct fy_node *value, const char *name);
NDP_API ndp_status ndp_import_role(ndp_import *m, struct fy_node *value, const char *name);
NDP_API ndp_status ndp_import_roles_to_train(ndp_import *m, struct fy_node *value, const char *name);
NDP_API ndp_status ndp_import_plugins(ndp_import *m, struct fy_node *value, const char *name);
NDP_API ndp_status ndp_import_deepspeed(ndp_import *m, struct fy_node *value, const char *name);

NDP_API ndp_status ndp_import_tokens(ndp_import *m, struct fy_node *value, const char *name);
NDP_API ndp_status ndp_import_lr_groups(ndp_import *m, struct fy_node *value, const char *name);
NDP_API ndp_status ndp_import_tag(ndp_import *m, struct fy_node *value, const char *name);
NDP_API ndp_status ndp_import_llamafactory_sets(ndp_import *m, struct fy_node *value, const char *name);
NDP_API ndp_status ndp_import_llamafactory_template(ndp_import *m, struct fy_node *value, const char *name);
NDP_API ndp_status ndp_import_llamafactory_targets(ndp_import *m, struct fy_node *value, const char *name);
void ndp_import_begin_trl(import_values *read);
ndp_status ndp_import_prepare_trl(ndp_import *m);
bool ndp_import_is_trl_dpo(const ndp_import *m);
void ndp_import_begin_llamafactory(import_values *read);
ndp_status ndp_import_prepare_llamafactory(ndp_import *m);

/* import_deepspeed.c: a DeepSpeed file by itself: its ranks, before the layout; its batch; its optimizer, schedule and
 * clipping. */
bool ndp_import_is_deepspeed(const ndp_import *m);
void ndp_import_deepspeed_ranks(ndp_import *m);
ndp_status ndp_import_deepspeed_batch(ndp_import *m);
ndp_status ndp_import_deepspeed_training(ndp_import *m);

/* ---- the walk by the tables ---- */

/* The key of a section that a name, with or without the prefix of its section, fits best; NULL: none. */
const import_key *ndp_import_key(const char *section, const char *prefix, const char *name);
/* Whether a section has the key, if only by its part before a colon. */
bool ndp_import_has_key(const char *section, const import_key *k);
/* Reads the keys of a mapping by the table's section; `name` is the mapping's own, "" at the top. */
NDP_API ndp_status ndp_import_walk(ndp_import *m, struct fy_node *node, const char *section, const char *prefix,
                                   const char *name);
/* Reads each item of a list; a value that is not a list is the one item. */
ndp_status ndp_import_items(ndp_import *m, struct fy_node *value, const char *name,
                            ndp_status (*each)(ndp_import *m, struct fy_node *item, const char *name));

/* ---- what follows ---- */

/* Whether the file is Axolotl's, whose arithmetic differs from that of the transformers' Trainer. */
bool ndp_import_is_axolotl(const ndp_import *m);
/* Adds m->set, a data set of this name, to the job. `silent_type`: that of a set without one; NULL: there is none. */
ndp_status ndp_import_add_set(ndp_import *m, const char *name, struct fy_node *node, const char *silent_type);
/* Sets a text of `data`, at its offset in ndp_config, from a data set: of all of them, or of this one. */
ndp_status ndp_import_share(ndp_import *m, size_t offset, const char *value, const char *name, struct fy_node *node);
/* Whether the current set drops messages of the system, in the same way. */
ndp_status ndp_import_share_drop(ndp_import *m);
/* The format of the first set is the job's; one with another has it as its own. */
ndp_status ndp_import_share_format(ndp_import *m, ndp_record_kind format);
static inline bool ndp_import_same(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }
/* The files of m->set, to those of the job. */
ndp_status ndp_import_add_files(ndp_import *m, const char *name, struct fy_node *node);
/* The key of ours for them. */
const char *ndp_import_files_key(const ndp_import *m);
/* Frees what m->set has, for the next data set. */
void ndp_import_forget_set(ndp_import *m);

/* Layout, global batch, steps, schedule, precision from what was read, into `job`; remarks on the equation of the
 * batch. */
NDP_API ndp_status ndp_import_finish(ndp_import *m);
/* The length of the run and its schedule; afterwards, with the data known, checkpoints and evaluations. */
NDP_API ndp_status ndp_import_finish_steps(ndp_import *m);
NDP_API ndp_status ndp_import_finish_events(ndp_import *m);
NDP_API ndp_status ndp_import_finish_trackers(ndp_import *m);
/* The part about data: format, chat template, packing, held-out data. */
ndp_status ndp_import_finish_data(ndp_import *m);
/* import_adapter.c: the part about adapters and quantized weights. */
ndp_status ndp_import_finish_adapter(ndp_import *m);
/* With train.epochs the number of steps is counted when the run starts. */
static inline bool ndp_import_knows_steps(const ndp_import *m) { return m->job.train.epochs == 0; }
/* The part about the schedule, with the length of the run known. */
ndp_status ndp_import_finish_schedule(ndp_import *m);
/* import_finish.c: optimizer.name. */
ndp_status ndp_import_finish_optimizer(ndp_import *m);
/* import_model.c: the part about the model, its tokenizer and what of it is trained. */
ndp_status ndp_import_finish_model(ndp_import *m);
/* Whether the model of that published name has latent attention (MLA), and so no projections of keys and values. */
bool ndp_import_has_latent_attention(const char *path);
/* import_groups.c: optimizer.groups. */
ndp_status ndp_import_finish_groups(ndp_import *m);
/* The loss of pairs. */
ndp_status ndp_import_finish_preference(ndp_import *m);
/* Whether the file has the key rl, which may come after its data sets. */
bool ndp_import_has_pairs(const ndp_import *m);
/* Remarks on the schedule, after the user's assignments. */
void ndp_import_say_schedule(ndp_import *m);
/* Marks the option at this offset of ndp_config: it is written to the job, even with its default. */
void ndp_import_mark(ndp_import *m, size_t offset);
/* The job file. */
NDP_API ndp_status ndp_import_job(const ndp_import *m, char **job);

#endif
