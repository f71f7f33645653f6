/* The parts of an import: the table of their keys, what was read from a file, and what follows from it. Inside this
 * room only. */
#ifndef NDP_CONFIG_IMPORT_PARTS_H
#define NDP_CONFIG_IMPORT_PARTS_H

#include "base/arena.h"
#include "config/import.h"
#include "config/option.h"

typedef struct ndp_import ndp_import;

/* One of the words that a value may be. Case does not matter; one that ends with * is a prefix. */
typedef struct import_word {
    const char *word;
    int value;
    const char *refused; /* why it is refused; NULL: it is not */
} import_word;

typedef enum import_kind {
    IMPORT_VALUE,   /* read like an option of ours, to its place in ndp_import */
    IMPORT_WORD,    /* one of `words`: its value, an int */
    IMPORT_SECTION, /* a mapping: its keys are those of section `inside`, which may be written with `prefix` */
    IMPORT_EACH,    /* `each` reads it */
    IMPORT_LEFT,    /* has no counterpart and no effect on the result: `why` */
    IMPORT_REFUSED  /* changes the result and is not supported: `why`; allowed when off (null, false, 0, no, empty) */
} import_kind;

typedef struct import_key {
    const char *section, *names; /* names of keys, separated by spaces; one that ends with * is a prefix */
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

extern const import_table ndp_import_axolotl, ndp_import_accelerate;
extern const import_table *const ndp_import_tables[]; /* both; ends with NULL */

/* A dialect is a section of the table and what its program takes for keys that a file lacks. */
typedef struct import_dialect {
    const char *section, *name;
    const char *const *defaults; /* assignments, ends with NULL */
    bool whole;                  /* says what is trained and how, not the layout alone */
} import_dialect;
extern const import_dialect ndp_import_dialects[];
extern const int ndp_import_dialect_count;

/* FSDP's sharding strategies, by the numbers that Accelerate also takes. */
enum { FULL_SHARD = 1, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, HYBRID_SHARD_ZERO2 };
/* How Accelerate distributes. */
enum { DISTRIBUTED_NO = 1, DISTRIBUTED_DDP, DISTRIBUTED_FSDP, DISTRIBUTED_DEEPSPEED };
enum { WORD_NO = 1, WORD_YES, WORD_AUTO, WORD_OFFLOAD }; /* 0 is a word that was not said */
enum { RING_PLAIN = 1, RING_ZIGZAG, RING_STRIPE, RING_GATHERED };
enum { SCHEDULE_CONSTANT = 1, SCHEDULE_CONSTANT_WARMUP, SCHEDULE_LINEAR, SCHEDULE_COSINE };
enum { EVERY_NEVER = 1, EVERY_STEPS, EVERY_EPOCH };
enum { EXCESS_DROP = 1, EXCESS_TRUNCATE, EXCESS_RAISE };

typedef enum import_verdict { SEEN_CARRIED, SEEN_LEFT, SEEN_REFUSED, SEEN_UNKNOWN } import_verdict;

/* A key of the file and what became of it. */
typedef struct import_seen {
    import_verdict verdict;
    const char *name;     /* as written, "fsdp_config.fsdp_version" */
    ndp_yaml *y;          /* whose node it is */
    struct fy_node *node; /* the key; NULL: not in the file */
    const char *why, *ours;
} import_seen;

/* A data set whose records are conversations, or questions and answers: it names a chat template. */
typedef struct import_chat {
    const char *name; /* of the data set */
    struct fy_node *node;
    const char *template; /* as Axolotl calls it; NULL: that of the whole file, else the tokenizer's */
} import_chat;
#define NDP_IMPORT_NO_TEMPLATE                                                                                         \
    "conversations are rendered by the tokenizer's own template, or by chatml, qwen_25 or qwen3; others are not "      \
    "supported"

/* What a file contains. Numbers and words that it lacks are 0, unless noted. */
struct ndp_import {
    ndp_config job;
    const ndp_import_opts *o;
    const import_dialect *dialect;
    ndp_yaml yaml, deepspeed_yaml; /* the file, and the one that its key deepspeed names */
    ndp_yaml *y;                   /* the one being read */
    char *deepspeed_text;
    ndp_arena arena;
    import_seen *seen;
    int64_t seen_count, seen_capacity;
    ndp_str remarks; /* lines */
    bool *imported;  /* a flag for each of ndp_options: it is written to the job; NULL: none yet */

    int processes, machines;
    int size[NDP_SIZES];
    int distributed, strategy, reshard, zero_stage; /* zero_stage -1: none said */
    ndp_strings fsdp;
    int micro, accumulation, batch;
    int max_steps, warmup;                     /* -1: none said */
    double epochs, warmup_ratio, min_lr_ratio; /* the ratios: -1 */
    int scheduler, fp32, bf16, fp16, half, mixed;
    int checkpointing, fsdp_checkpointing, ring, rotate, tp_sequence, distributed_optimizer;
    int save, eval; /* EVERY_... */
    double save_steps, saves_per_epoch, eval_steps, evals_per_epoch;
    int ignored; /* a word that changes nothing */

    struct { /* the data set being read */
        char *path, *type, *ds_type, *template;
        char *text, *messages, *prompt, *input, *response; /* names of fields */
        char *format, *no_input_format;                    /* of a type of the user's own */
        ndp_strings files;
    } set;
    bool held;   /* it is one of test_datasets */
    int formats; /* bits 1 << ndp_data_format of all data sets */
    int shared;  /* bits: which keys that all data sets share one has said */
    import_chat *chats;
    int64_t chat_count, chat_capacity;
    char *chat_template;
    int packing, multipack_attention, train_on_inputs, excess, curriculum, shuffle_merged;
    double val_set_size;
};

/* ---- reading ---- */

/* What PyYAML and pydantic make of a scalar. */
enum { NDP_IMPORT_DIGITS = 64 };
/* A number, in the digits that ndp_option_digits reads; false when it is none. `whole`: the key takes an integer. */
bool ndp_import_digits(struct fy_node *node, bool whole, char out[NDP_IMPORT_DIGITS]);
/* true, yes, on, y, t, 1 and their opposites; false when it is none of them. */
bool ndp_import_truth(struct fy_node *node, bool *out);
bool ndp_import_is_null(struct fy_node *node);

/* Reads the keys of a mapping by the table's section; `name` is the mapping's own, "" at the top. */
NDP_API ndp_status ndp_import_walk(ndp_import *m, struct fy_node *node, const char *section, const char *prefix,
                                   const char *name);
/* Notes what became of a key. `node` may be NULL. */
NDP_API ndp_status ndp_import_note(ndp_import *m, import_verdict verdict, const char *name, struct fy_node *node,
                                   const char *why, const char *ours);
/* Notes a refusal, with the value: "adapter: lora". `value` may be NULL. */
ndp_status ndp_import_refuse(ndp_import *m, const char *name, const char *value, struct fy_node *node, const char *why,
                             const char *ours);
/* The last key of this name that was seen; NULL: none. */
const import_seen *ndp_import_find(const ndp_import *m, const char *name);
/* NDP_EINVAL, with the message pointing at the key of this name, if the file has it. */
ndp_status ndp_import_fail(ndp_import *m, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* True when the user sets this key of ours. */
bool ndp_import_is_set(const ndp_import *m, const char *ours);

/* The readers that the table names. */
NDP_API ndp_status ndp_import_datasets(ndp_import *m, struct fy_node *value, const char *name);
NDP_API ndp_status ndp_import_dataset_type(ndp_import *m, struct fy_node *value, const char *name);
NDP_API ndp_status ndp_import_dataset_split(ndp_import *m, struct fy_node *value, const char *name);
NDP_API ndp_status ndp_import_role(ndp_import *m, struct fy_node *value, const char *name);
NDP_API ndp_status ndp_import_roles_to_train(ndp_import *m, struct fy_node *value, const char *name);
NDP_API ndp_status ndp_import_plugins(ndp_import *m, struct fy_node *value, const char *name);
NDP_API ndp_status ndp_import_deepspeed(ndp_import *m, struct fy_node *value, const char *name);
/* Reads each item of a list; a value that is no list is the one item. */
ndp_status ndp_import_items(ndp_import *m, struct fy_node *value, const char *name,
                            ndp_status (*each)(ndp_import *m, struct fy_node *item, const char *name));
/* The files of m->set, to those of the job. */
ndp_status ndp_import_add_files(ndp_import *m, const char *name, struct fy_node *node);
/* Frees what m->set has, for the next data set. */
void ndp_import_forget_set(ndp_import *m);

/* ---- what follows ---- */

/* Layout, global batch, steps, schedule, precision from what was read, into `job`; says the equation. */
NDP_API ndp_status ndp_import_finish(ndp_import *m);
/* The part about data: format, chat template, packing, held-out data. */
ndp_status ndp_import_finish_data(ndp_import *m);
/* Remarks on the schedule, after the user's assignments. */
void ndp_import_say_schedule(ndp_import *m);
/* Marks the option at this offset of ndp_config: it is written to the job, even with its default. */
NDP_API ndp_status ndp_import_mark(ndp_import *m, size_t offset);
/* The job file. */
NDP_API ndp_status ndp_import_job(const ndp_import *m, char **job);
/* All notes, as lines of text. */
NDP_API ndp_status ndp_import_report(const ndp_import *m, char **notes);
/* NDP_EINVAL with all refused and unknown keys, and what to do; NDP_OK when there are none. */
NDP_API ndp_status ndp_import_judge(ndp_import *m);

#endif
