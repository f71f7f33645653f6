/* The configuration of a run: one struct, one option table. The table parses YAML and --set, checks types and ranges,
 * prints help and defaults and writes the complete job.yaml back. */
#ifndef NDP_CONFIG_CONFIG_H
#define NDP_CONFIG_CONFIG_H

#include "base/text.h"
#include "data/corpus/record.h"
#include "data/row_table.h"
#include "mesh/mesh.h"
#include "model/adapter.h"
#include "model/architecture.h"
#include "ops/devices.h"
#include "ops/preference.h"
#include "ops/router_losses.h"
#include "ops/token_weight.h"
#include "optim/optim.h"
#include "parallel/recompute.h"
#include "parallel/row_cut.h"
#include "pipeline/pipeline.h"
#include "tensor/packed.h"

typedef enum ndp_init { NDP_INIT_PRETRAINED, NDP_INIT_RANDOM } ndp_init;
typedef enum ndp_collectives { NDP_COLLECTIVES_AUTO, NDP_COLLECTIVES_DEVICE, NDP_COLLECTIVES_STAGED } ndp_collectives;
typedef enum ndp_check_links { NDP_CHECK_LINKS_WARN, NDP_CHECK_LINKS_FAIL, NDP_CHECK_LINKS_OFF } ndp_check_links;
typedef enum ndp_async { NDP_ASYNC_AUTO, NDP_ASYNC_TRUE, NDP_ASYNC_FALSE } ndp_async;
typedef enum ndp_matmul { NDP_MATMUL_FP32, NDP_MATMUL_TF32 } ndp_matmul;
typedef enum ndp_train_on { NDP_TRAIN_ON_ASSISTANT, NDP_TRAIN_ON_ALL, NDP_TRAIN_ON_TURN } ndp_train_on;
typedef enum ndp_bad_records { NDP_BAD_RECORDS_ERROR, NDP_BAD_RECORDS_SKIP } ndp_bad_records;
/* When gradients are reduced to their owners; the default depends on pp_size. */
typedef enum ndp_reduce_every { NDP_REDUCE_EVERY_MICRO_BATCH, NDP_REDUCE_EVERY_UPDATE } ndp_reduce_every;

typedef enum ndp_adapter_init { NDP_ADAPTER_ZERO, NDP_ADAPTER_RANDOM } ndp_adapter_init;
typedef enum ndp_adapter_type { NDP_ADAPTER_NONE, NDP_ADAPTER_LORA, NDP_ADAPTER_QLORA } ndp_adapter_type;

/* What shows the numbers of a run besides metrics.jsonl (train/tracker.h). */
#define NDP_TRACKERS(X) X(tensorboard)

enum { NDP_MOST_OPTIONS = 160 };

/* precision.compute fp8: matrix products in fp8, all else as with bf16. Only planned. */
#define NDP_COMPUTE_FP8 ((ndp_dtype)NDP_DTYPES)

struct ndp_config {
    struct {
        char *path;          /* a Hugging Face folder; or */
        char *config;        /* path of a config.json, with init: random */
        ndp_init init;       /* default: pretrained with path, random with config */
        bool allow_longer;   /* train on sequences longer than max_position_embeddings */
        int sliding_window;  /* attention window of every layer; 0: what the model says */
        ndp_strings frozen;  /* names, or patterns of names, of units whose weights stay as they are */
        ndp_strings trained; /* names, patterns or regular expressions of the tensors that are trained; none: all */
    } model;
    struct {
        ndp_adapter_type type;
        int r;
        double alpha, dropout;
        bool rslora, dora;
        double lr_ratio_b;           /* the learning rate of B over that of A */
        ndp_strings targets;         /* names of projections, patterns of tensors' names, "linear" */
        ndp_strings modules_to_save; /* trained whole */
        ndp_packing base;            /* of qlora */
        ndp_adapter_init init;       /* of B */
        char *path;                  /* a PEFT folder; NULL: a new adapter */
    } adapter;
    struct {
        ndp_strings files, files_own; /* own options of each entry, "{format: alpaca}" or ""; missing: "" */
        ndp_strings mix;              /* one number per file: how often an epoch reads it; empty: once each */
        int sequence_length;          /* tokens per row */
        char *tokenizer;              /* "bytes", a folder, a tokenizer.json; NULL: the model folder's */
        ndp_record_kind format;
        char *text_field, *messages_field, *prompt_field, *input_field; /* of JSON records */
        char *response_field;                                           /* NULL: response or output */
        char *input_separator;               /* between the first two of these; NULL: an empty line */
        char *role_field, *content_field;    /* NULL: role or from, content or value */
        char *train_field;                   /* NULL: train and weight */
        char *chosen_field, *rejected_field; /* NULL: chosen or chosen_response, rejected or rejected_response */
        ndp_strings roles;                   /* "name in the records: role" */
        bool drop_system;
        char *chat_template; /* NULL: the tokenizer's own */
        char *template_date; /* NULL: NDP_CHAT_DATE */
        ndp_train_on train_on;
        ndp_bad_records bad_records;
        char *end_token;    /* of texts: "auto", "none", or a token */
        int bin_type;       /* bytes of an id: 2, 4 */
        bool document_mask; /* attention inside documents, positions restart */
        bool packing;
        ndp_overlong overlong;
        int64_t min_tokens;    /* of a document; 0: any number */
        int64_t max_documents; /* of each of `files`; 0: all */
        bool unique;
        ndp_strings validation_files, validation_own;
        double validation_fraction; /* of the documents */
        bool shuffle;
        char *cache_dir; /* tokenized data; NULL: $XDG_CACHE_HOME/ndparallel or ~/.cache/ndparallel */
    } data;
    struct {
        int size[NDP_SIZES];        /* parallelism.<axis>_size (mesh/mesh.h); 0: auto */
        bool reshard_after_forward; /* default: with pp 1 */
        ndp_reduce_every reduce_every;
        ndp_cp_method cp_method;
        bool cp_zigzag, tp_sequence_parallel;
    } parallelism;
    struct {
        ndp_pipeline_kind schedule;
        int virtual_stages; /* 0: as few as the schedule has */
        ndp_strings stages; /* decoder layers of each stage, or "auto" */
        char *file;         /* of schedule `file` */
    } pipeline;
    struct {
        ndp_dtype compute;           /* fp32, bf16, or on device ref fp64; planned only: NDP_COMPUTE_FP8 */
        ndp_dtype weights, states;   /* fp32 or bf16, of the owners' weights, of the optimizer's state */
        ndp_dtype reduce, tp_reduce; /* fp32; planned only: bf16 */
    } precision;
    struct {
        int global_batch_size, micro_batch_size; /* samples (rows); of a micro-batch, 0: auto */
    } batch;
    struct {
        ndp_loss name; /* other than XENT: with data.format preference */
        double beta;
        ndp_loss_variant variant; /* of dpo */
        double label_smoothing, gamma, center, sft_weight;
        double desirable_weight, undesirable_weight; /* of kto */
        ndp_token_weight token_weight;               /* of xent */
        int entropy_k;
        double entropy_alpha, entropy_unit;
    } loss;
    struct {
        ndp_balance balance;
        double balance_coef; /* 0: what the model's configuration says */
        double z_loss;
        double bias_rate;
        double capacity_factor; /* 0: full */
        char *routes;           /* NULL: routers choose */
    } moe;                      /* of models with mixtures of experts */
    struct {
        ndp_optimizer_name name;
        double lr, betas[2], eps, weight_decay, momentum, max_grad_norm; /* max_grad_norm 0: no clipping */
        ndp_strings groups; /* "{params: [...], lr_scale: 2}", as ndp_config_group reads them */
    } optimizer;
    struct {
        ndp_lr_kind name;
        int warmup_steps;
        double warmup_ratio; /* of the steps, instead of warmup_steps; 0: unset */
        double min_lr_ratio;
        double decay_ratio; /* of wsd */
        int cycles;         /* of cosine_restarts */
        ndp_lr_like like;   /* how steps are counted */
    } schedule;
    struct {
        int steps;
        double epochs; /* instead of steps; 0: unset */
        int64_t seed;
        ndp_recompute recompute;
        char *output_dir;
        int threads;                 /* per rank; 0: cores / ranks */
        bool force_memory;           /* start even if memory is short */
        int device;                  /* index of ndp_device_names */
        bool share_gpu;              /* more ranks on a host than GPUs */
        double gpu_memory;           /* GiB of a GPU; 0: those of this machine's */
        ndp_matmul matmul;           /* precision of fp32 products on GPUs */
        ndp_collectives collectives; /* of GPUs' tensors */
        char *transport;             /* "auto", "self", "local", "shm", "mpi" */
        ndp_check_links check_links;
        int ranks;        /* 0: the product of the sizes */
        int log_every;    /* steps; 0: auto */
        int eval_every;   /* steps; 0: only at the end */
        bool keep_best;   /* export the model of the lowest eval_loss */
        int stop_after;   /* evaluations without a lower eval_loss; 0: never */
        int sample_every; /* steps; 0: no samples */
        ndp_strings sample_prompts;
        int sample_tokens;
        bool own_batches;      /* the caller of the library gives the rows; */
        bool own_logits;       /* and its loss may be a function of logits */
        int own_generate;      /* texts that are continued at a time; 0: none */
        int layer_norms_every; /* steps; 0: never */
        double spike;          /* deviations above the mean loss; 0: no loss is one */
        ndp_strings trackers;  /* names of NDP_TRACKERS */
    } train;
    struct {
        int every;      /* steps; 0: only at the end */
        double minutes; /* since the last one; 0: off */
        int keep;
        ndp_async async; /* saves are written while steps go on */
    } checkpoint;
    /* By row of the option table: a file or --set names the key, so it keeps its value when others change. */
    bool given[NDP_MOST_OPTIONS];
    ndp_own_list own; /* architectures that the program has added */
};

/* All defaults. Release frees what a config owns. */
NDP_API ndp_status ndp_config_init(ndp_config *c);
void ndp_config_release(ndp_config *c);
/* Whether the job has the key, be it with the value of the default. */
NDP_API bool ndp_config_given(const ndp_config *c, const char *section, const char *key);
/* When gradients are reduced on so many pipeline ranks: as the job says, else by the default, which follows them. */
ndp_reduce_every ndp_config_reduce_every(const ndp_config *c, int pp);
NDP_API ndp_status ndp_config_copy(const ndp_config *from, ndp_config *to);

/* Reads a job file over the defaults. Unknown key, wrong type, value out of range, duplicate key: NDP_EINVAL, with
 * file:line:column, the line, a caret, what was expected and the nearest known key.
 * Relative paths in it (model.path, model.config, data.files, data.tokenizer) are kept as written: they are relative to
 * the working directory. */
NDP_API ndp_status ndp_config_read(ndp_config *c, const char *path);
NDP_API ndp_status ndp_config_parse(ndp_config *c, const char *text, size_t size, const char *what);
/* "optimizer.lr=1e-3", "data.files=[a.txt, b.txt]": the same checks; the message points into the assignment. */
NDP_API ndp_status ndp_config_set(ndp_config *c, const char *assignment);
/* Checks the rules that involve several keys: model.path or model.config, data.files, ... Called after all are read. */
NDP_API ndp_status ndp_config_check(const ndp_config *c);
/* The same of a job that is planned, and so needs no data; for a cluster, it may have values that cannot run. */
ndp_status ndp_config_check_planned(const ndp_config *c, bool cluster);
/* Appends the keys of `c` whose values are planned, but cannot run; `instead`: as a run can have them. */
void ndp_config_planned_only(const ndp_config *c, bool instead, ndp_str *out);
/* The number that data.mix gives to an entry of data.files, as text, borrowed; NULL: none. */
const char *ndp_config_mix(const ndp_config *c, int file);
/* NDP_EINVAL: data.mix is not a number for each entry of data.files, or 0 for all. A part of ndp_config_check. */
ndp_status ndp_config_check_mix(const ndp_config *c);

/* The configuration with which an entry of data.files is read: `c` with the entry's own options, the text of files_own.
 * *split: its split, "train[:10%]", owned by the caller; NULL: none. The caller releases *out. */
NDP_API ndp_status ndp_config_entry(const ndp_config *c, const char *own, ndp_config *out, char **split);
/* The loss of pairs that the section `loss` says; kind 0: data.format is not preference. */
ndp_preference ndp_config_preference(const ndp_config *c);
/* Rows that stay together in a micro-batch, and so its smallest size: 2, those of a pair; else 1. */
int ndp_config_least_rows(const ndp_config *c);
/* How many groups of tensors a job names: the entries of optimizer.groups, and those that other keys make. */
int ndp_config_groups(const ndp_config *c);
/* The key that makes group i, "adapter.lr_ratio_b"; NULL: it is entry i of optimizer.groups. */
const char *ndp_config_group_key(const ndp_config *c, int i);
/* Group i: the names of its tensors, which the caller releases, and how they are updated. */
NDP_API ndp_status ndp_config_group(const ndp_config *c, int i, ndp_strings *params, ndp_update_entry *out);
/* The section `optimizer`, less its groups. */
ndp_optimizer_opts ndp_config_optimizer(const ndp_config *c);
/* Item i of files_own; "" beyond its end. */
const char *ndp_config_own(const ndp_strings *own, int i);

/* Key number i of the option table, "optimizer.lr", into `name`; returns its role, an
 * ndp_key_role (options/option.h), -1 beyond the last key. */
enum { NDP_KEY_NAME = 64 };
int ndp_config_key(int i, char name[NDP_KEY_NAME]);

/* The complete configuration as YAML that ndp_config_parse reads back to the same values. */
NDP_API ndp_status ndp_config_write(const ndp_config *c, ndp_str *out);
/* A table of all keys: type, range, default, one line of help each; for `ndparallel config` and --help. */
void ndp_config_help(ndp_str *out);

#endif
