/* ndparallel: native training of language models with any combination of parallelisms.
 *
 * A program reads a configuration and runs a world of ranks, with a trainer on each rank:
 *
 *     ndp_config *c;
 *     ndp_config_create(&c);
 *     ndp_config_read(c, "job.yaml");
 *     ndp_config_set(c, "parallelism.dp_shard_size=4");
 *     ndp_world_run(c, rank_body, c);        // every rank: ndp_trainer_create, _step, _save, _export, _destroy
 *
 * or calls ndp_train(), which is the whole loop with its run folder. A function that can fail returns an ndp_status;
 * ndp_error_message() describes the error. The caller frees text returned through `char **` with free(). A pointer may
 * be NULL where a comment says so, and `user` and `arg` may be anything. Any other NULL is NDP_EINVAL with a message
 * that names the argument; a function that returns no status then does nothing, and returns 0, false, NULL or NaN.
 * "Collective" means that every rank of the world must call the function, in the same order. A rank is a process or a
 * thread. A type or function is there since 0.1.0 unless its comment says since when (CHANGELOG.md). The library never
 * exits, prints only where a function's comment says so, and keeps no global state: any number of worlds may run in one
 * process.
 */
#ifndef NDPARALLEL_H
#define NDPARALLEL_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
/* The shared library exports exactly the functions declared here. */
#pragma GCC visibility push(default)

#define NDP_VERSION "0.1.0"
#define NDP_API __attribute__((warn_unused_result))

/* ---- status ---- */

/* What went wrong, classified by who has to act. */
typedef enum ndp_status {
    NDP_OK = 0,
    NDP_EINVAL,  /* the user's configuration, layout or argument */
    NDP_EFORMAT, /* a file is damaged, hostile or of a kind that is not supported */
    NDP_EIO,     /* the system refused to read or write */
    NDP_ENOMEM,  /* not enough memory */
    NDP_ECOMM,   /* another rank failed, or the transport did */
    NDP_ENOTSUP, /* legal, but not supported */
    NDP_EINTR,   /* stopped by a signal, after saving */
    NDP_EBUG     /* a bug in ndparallel: please report it */
} ndp_status;

/* The version, and the commit in parentheses where the build knew it: "0.1.0 (1a2b3c4d)". Since 0.2. */
const char *ndp_build(void);
/* The exit code that the program has for a status: 0; 2 for a mistake of the user; 130 for a stop; else 1. Since 0.2.
 */
int ndp_exit_code(ndp_status st);

/* The calling thread's last error: one message with the cause and the fix; "" if there was none. Valid until the
 * thread's next failing call. */
const char *ndp_error_message(void);
/* Where that error came from, "file:line < file:line ...", for bug reports. */
const char *ndp_error_trail(void);

/* Whether text on this file descriptor may have colours: it is a terminal, NO_COLOR is not set to something, and TERM
 * is not dumb. Since 0.2. */
bool ndp_colours(int fd);

/* ---- names ---- */

/* The candidate nearest to `word` by edit distance; NULL: none is near enough to be what was meant. */
const char *ndp_nearest(const char *word, const char *const *candidates, int n);
/* The `most` candidates nearest to `word`, or all if there are fewer, however far: the nearest first. Returns their
 * number. */
int ndp_nearest_names(const char *word, const char *const *candidates, int n, int most, const char **out);

/* ---- configuration ---- */

typedef struct ndp_config ndp_config;

/* A configuration with every key at its default. */
NDP_API ndp_status ndp_config_create(ndp_config **out);
void ndp_config_destroy(ndp_config *c);
/* Reads a job file; its keys replace those already set. NDP_EINVAL: the message has file:line, a caret below the place,
 * and the nearest known key. */
NDP_API ndp_status ndp_config_read(ndp_config *c, const char *path);
/* Sets one key: "optimizer.lr=1e-3", with the same checks. */
NDP_API ndp_status ndp_config_set(ndp_config *c, const char *assignment);
/* The same, formatted as by printf: ndp_config_setf(c, "parallelism.tp_size=%d", 2). The value is read as YAML: put
 * quotes around a text, such as a path, that may contain YAML syntax. */
NDP_API __attribute__((format(printf, 2, 3))) ndp_status ndp_config_setf(ndp_config *c, const char *format, ...);
/* The value of one key, "train.steps", as YAML. */
NDP_API ndp_status ndp_config_get(const ndp_config *c, const char *key, char **value);
/* Checks that involve several keys. Call it after the last key is set. */
NDP_API ndp_status ndp_config_check(const ndp_config *c);
/* The complete configuration as YAML. */
NDP_API ndp_status ndp_config_text(const ndp_config *c, char **yaml);
/* All keys with type, range, default and one line of help. */
NDP_API ndp_status ndp_config_keys(char **text);
/* How ndp_config_describe writes keys. */
typedef enum ndp_keys_format {
    NDP_KEYS_TEXT,     /* lines: meaning, values, default, what reads the key, what a resumed run may change */
    NDP_KEYS_MARKDOWN, /* rows of one table: key, values, default, meaning */
    NDP_KEYS_JSON,     /* all of it, as one line: {"keys": [{"key": "optimizer.lr", ...}, ...]} */
    NDP_KEYS_FIELDS /* a line for each key: its name, its words with spaces between them, its meaning; tabs between */
} ndp_keys_format;
/* The meaning of the named keys: "optimizer.lr", "lr" if only one section has it, "optimizer" for a section; n 0: all
 * keys. NDP_EINVAL: an unknown name, with the nearest one. */
NDP_API ndp_status ndp_config_describe(const char *const *names, int n, ndp_keys_format format, char **text);
/* The devices that are built, for train.device and the options of ndp_evaluate and ndp_generate: "cpu, ref". */
const char *ndp_device_choices(void);

typedef struct ndp_import_opts {
    int ranks;  /* of the run; 0: the number in the file, or one data rank */
    bool force; /* drop unknown keys, and keys that are not supported and change the result, instead of failing */
    /* For ndp_config_set, applied after the file; they supply what the file leaves open. */
    const char *const *assignments;
    int assignment_count;
} ndp_import_opts;
#define NDP_IMPORT_OPTS_INIT                                                                                           \
    { 0, false, NULL, 0 }
/* Converts a file of Axolotl, LLaMA-Factory, TRL, Accelerate, DeepSpeed or transformers (YAML or JSON) into `c`;
 * keys that the file leaves out get the defaults of that program. *job: a job file with only the imported keys, which
 * reads back to the same configuration. *notes: lines for the user: the batch equation, what differs here, and each key
 * that was not carried over, with the reason. NDP_EINVAL, with file:line and a caret: invalid values; without `force`
 * also unknown keys, and keys that are not supported and change the result (rl: grpo). NDP_ENOTSUP: without `force`,
 * the model is known not to load. */
NDP_API ndp_status ndp_config_import(ndp_config *c, const char *path, const ndp_import_opts *o, char **job,
                                     char **notes);
/* The keys of a program, "axolotl", "llamafactory", "trl", "accelerate", "deepspeed" or "transformers", as Markdown
 * tables: which key of ours each becomes, or why it is left out or not supported. `part`: one table, "imported",
 * "left-out" or "unsupported"; NULL: all. NDP_EINVAL: another word. */
NDP_API ndp_status ndp_config_import_keys(const char *program, const char *part, char **markdown);

/* ---- worlds of ranks ---- */

typedef struct ndp_transport ndp_world;

/* The number of ranks that the layout of `c` needs: the product of its sizes, or train.ranks if a size is `auto`.
 * Checks the layout against the model; an error names the nearest legal layouts. Opens the model's config.json and, if
 * that ties the head to the embedding, its weights, which may contain a different head. */
NDP_API ndp_status ndp_config_ranks(const ndp_config *c, int *ranks);
/* True if ndp_launch, mpirun or srun started this process as a rank. *ranks (may be NULL): the size of that world. */
bool ndp_world_launched(int *ranks);
/* The rank of this process in that world, known before it joins; 0 if it was not launched. */
int ndp_world_launched_rank(void);

/* Runs `body` on every rank that lives in this process. train.transport says which: a single rank (`self`), all ranks
 * as threads (`local`), or one rank of the world that ndp_launch (`shm`), mpirun or srun (`mpi`) started. Returns after
 * the ranks of this process have returned, with the status of the rank that failed first; the message names it. */
NDP_API ndp_status ndp_world_run(const ndp_config *c, ndp_status (*body)(ndp_world *, void *), void *arg);
/* The same without a body, for a process that is one rank: of the world that started it (ndp_launch, mpirun, srun), or
 * the only one. *out: its world, which ndp_world_leave ends, on every rank, after what was made with it was destroyed.
 * Of one join each; a process may join again after it has left `self`, not a world that was launched. NDP_EINVAL:
 * ranks of this layout would be threads; start the program as processes. Collective. Since 0.2. */
NDP_API ndp_status ndp_world_join(const ndp_config *c, ndp_world **out);
/* `st`: how this rank has ended. With an error other than NDP_EINTR the other ranks fail with the thread's message, and
 * wait for this one no longer. Accepts NULL. Since 0.2. */
void ndp_world_leave(ndp_world *w, ndp_status st);
/* "self", "local", "shm" or "mpi". */
const char *ndp_world_transport(const ndp_world *w);
int ndp_world_rank(const ndp_world *w);
int ndp_world_size(const ndp_world *w);
/* Call it in a rank's body after an error, before returning: it makes the thread's error that of the world, so that the
 * other ranks stop waiting. True on the first rank of its node to fail, which should report the error to the user; the
 * errors of the other ranks are consequences of it. */
bool ndp_world_fail(ndp_world *w);
/* Returns on every rank after all have called it, also before there are trainers. Collective. Since 0.2. */
NDP_API ndp_status ndp_world_barrier(ndp_world *w);

typedef struct ndp_launch_opts {
    int ranks;
    int threads;           /* per rank, for OMP_NUM_THREADS; 0: the program decides */
    const char *hostfile;  /* NULL: this host, or the hosts that the batch system allocated */
    const char *transport; /* "shm": this host; "mpi": mpirun; "auto" or NULL: mpi only if there are several hosts */
    char *const *argv;     /* program and arguments, ending with NULL */
    const volatile sig_atomic_t *stop;            /* once non-zero, all ranks get SIGUSR1 every second; may be NULL */
    void (*say)(void *user, const char *line);    /* warnings; may be NULL */
    void (*report)(void *user, const char *line); /* how a rank ended that could not report it itself; may be NULL */
    void *user;
    /* [ranks]: the host of each rank, by a name that the hostfile or the batch system has for it. NULL: ranks fill the
     * hosts in their order. */
    const char *const *rank_hosts;
    /* How often the calling process has started these ranks before. They take the folder of their run over at once from
     * those of earlier starts, wherever these are. Since 0.2. */
    int starts;
    /* A host that ranks or mpirun have lost, once for each after the end; may be NULL. Since 0.2. */
    void (*lost)(void *user, const char *host);
    /* Set to true once a stop has ended the ranks before rank 0 could say so; may be NULL. Since 0.2. */
    bool *unsaid;
} ndp_launch_opts;
#define NDP_LAUNCH_OPTS_INIT                                                                                           \
    { 1, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL }
/* The defaults, with the ranks and the transport of `c`, which is borrowed. ranks is 0 if there is nothing to launch:
 * the ranks were launched already, or all of them live in this process (train.transport, or a single rank). The same
 * checks as ndp_config_ranks. */
NDP_API ndp_status ndp_launch_opts_read(const ndp_config *c, ndp_launch_opts *out);
/* Runs argv as `ranks` processes, which inherit stdout and stderr, and waits for them to end. On one host they are
 * children of the calling thread; on several hosts (a hostfile, or a batch allocation) and with transport "mpi",
 * mpirun starts them. *exit_code: that of the rank that failed first, 128 + signal if it was killed. If the calling
 * thread ends, the ranks end too. Ctrl-C on a terminal reaches the ranks of one host directly. mpirun does not get it,
 * so the calling process can let the ranks finish their step. NDP_EINVAL: a hostfile or a map that cannot be, before
 * anything is started. NDP_ECOMM: a host of the hostfile cannot be reached. */
NDP_API ndp_status ndp_launch(const ndp_launch_opts *o, int *exit_code);

/* ---- training, step by step ---- */

typedef struct ndp_trainer ndp_trainer;

/* Means over pairs of preference data, under the names of TRL: rewards/chosen, rewards/rejected, rewards/accuracies,
 * rewards/margins, logps/chosen, logps/rejected, nll_loss, kl. Of single answers (loss.name kto) over those that are
 * wanted and those that are not; NaN where an update has none. */
typedef struct ndp_pair_metrics {
    int64_t pairs; /* or single answers; 0: there are none, and the rest is not set */
    double reward_chosen, reward_rejected, accuracy, margin, logp_chosen, logp_rejected; /* accuracy NaN: of kto */
    double nll; /* of the tokens that loss.sft_weight adds; NaN: none */
    double kl;  /* what single answers were compared with; NaN: of pairs. Since 0.2.0 */
} ndp_pair_metrics;

typedef struct ndp_named_number {
    const char *name;
    double value;
} ndp_named_number;

typedef struct ndp_metrics {
    int64_t step; /* 1 after the first update */
    double loss, grad_norm, lr;
    int64_t tokens; /* predicted in this update by all ranks, each counted once */
    double tokens_per_second, step_seconds;
    int64_t tokens_total; /* since the first step of the run; 0: not known, as its checkpoint is of before 0.2 */
    double epoch;         /* passes over the rows so far, a part of one included */
    double time;          /* when its result was taken, seconds since 1970, UTC */
    /* What step_seconds are, on this rank: waits for other ranks that nothing hid, the loading of the batch, and the
     * rest. On a device with a queue of its own, waits are a part of the rest, and communication_seconds is 0. */
    double compute_seconds, communication_seconds, data_seconds;
    double evaluation_seconds, save_seconds; /* after this update; 0: none. 0 outside ndp_train */
    /* mfu = 6 x parameters x tokens_per_second / peak_flops. peak_flops is the best rate, measured from the start of
     * the run to the step before, of pure multiply-add loops in registers on all cores of the run. 0 outside ndp_train.
     */
    double mfu, peak_flops;
    int64_t peak_memory_bytes; /* of this rank */
    double eval_loss;          /* of the held-out data after this update; NaN if it was not evaluated */
    int64_t eval_tokens;
    ndp_pair_metrics pair, eval_pair; /* of this update; of the held-out data, with eval_loss */
    /* Of routers, means over layers and tokens, without their coefficients (moe.balance, moe.z_loss); not a part of
     * `loss`. balance_loss is 1 where all experts get as many tokens. 0: there is no such loss. */
    double balance_loss, z_loss;
    /* Of mixtures, over the whole update, of the least even layer: how often its most chosen expert was chosen, divided
     * by the mean over experts; and the entropy of the distribution of choices over experts, divided by the log of
     * their number. Both are 1 where all experts get as many tokens. max_load 0: there are no mixtures. Since 0.2. */
    double max_load, load_entropy;
    /* With ep: in how many rounds rows went to the experts of other ranks, the mean over ranks and micro-batches, of
     * the layer with the most; 1: all went at once (moe.capacity_factor). 0: without rounds. Since 0.2. */
    double rounds;
    /* Of a step that was run again since it was not finite, or a spike (train.spike): what was found in it; valid
     * during the callback. NULL: any other step. Since 0.2. */
    const char *cause;
    /* Numbers that not every step has, under the names that metrics.jsonl has for them; valid during the callback, or
     * until the next step. In the first step of a process memory/CLASS, planned bytes; of mixtures max_load/LAYER,
     * load_entropy/LAYER and rounds/LAYER; by train.layer_norms_every grad_norm/LAYER. Since 0.2. */
    const ndp_named_number *more;
    int n_more;
} ndp_metrics;

/* Collective. Reads the model's config.json, prepares the data, builds the step program, allocates the memory and loads
 * the weights, or draws random ones. NDP_EINVAL before any memory is allocated: the ranks of this host need more than
 * is available, and train.force_memory is not set. Borrows the configuration. */
NDP_API ndp_status ndp_trainer_create(const ndp_config *c, ndp_world *w, ndp_trainer **out);
void ndp_trainer_destroy(ndp_trainer *t);
/* One update on the next global batch. *out may be NULL. Collective. */
NDP_API ndp_status ndp_trainer_step(ndp_trainer *t, ndp_metrics *out);
/* The mean loss over all held-out tokens (data.validation_files, data.validation_fraction) and their number, by forward
 * passes on the layout of the training; either may be NULL. NDP_EINVAL: the job holds no data out. Collective. */
NDP_API ndp_status ndp_trainer_evaluate(ndp_trainer *t, double *loss, int64_t *tokens);
/* The number of updates so far. */
int64_t ndp_trainer_updates(const ndp_trainer *t);
/* Saves weights, optimizer state and data cursor to `folder` (NULL: the run's checkpoints/). Atomic. Collective. */
NDP_API ndp_status ndp_trainer_save(ndp_trainer *t, const char *folder);
/* Loads the newest checkpoint of `folder` (NULL: the run's), on any layout. *step (may be NULL): its step; -1 if the
 * run never saved one. Every byte of it is verified first. If it is damaged, it is renamed to step-N.damaged, the
 * checkpoint before it is loaded, and rank 0 warns on stderr. NDP_EINVAL if that one is damaged too, or if there is
 * none: nothing is changed, and the message lists the steps that verify. NDP_EINVAL also if anything that determines
 * the loss curve differs from the checkpoint (model, data, tokenizer, optimizer, schedule, batch, seed, precision); it
 * names what. Collective. */
NDP_API ndp_status ndp_trainer_resume(ndp_trainer *t, const char *folder, int64_t *step);
/* The same from exactly the step `wanted`; newer checkpoints are renamed to step-N.superseded or step-N.damaged.
 * wanted < 0: as ndp_trainer_resume. Collective. */
NDP_API ndp_status ndp_trainer_resume_from(ndp_trainer *t, const char *folder, int64_t wanted, int64_t *step);
/* Writes the model as a Hugging Face folder (NULL: the run's model/). Collective. */
NDP_API ndp_status ndp_trainer_export(ndp_trainer *t, const char *folder);
/* A few lines for the user: model, layout, batch equation, data, memory. */
NDP_API ndp_status ndp_trainer_describe(const ndp_trainer *t, char **text);

/* The number of tensors of the model, and the name of tensor i in the model folder; NULL beyond the last. *elements
 * (may be NULL): how many it has. */
int ndp_trainer_tensors(const ndp_trainer *t);
const char *ndp_trainer_tensor(const ndp_trainer *t, int i, int64_t *elements);
/* The number of a tensor; -1: there is none of that name. Since 0.2. */
int ndp_trainer_find(const ndp_trainer *t, const char *name);
/* STATE0 and STATE1 are those of its optimizer: of adamw the two moments, of lion, sgd and muon the momentum. Since
 * 0.2. */
typedef enum ndp_which { NDP_WEIGHT, NDP_GRADIENT, NDP_STATE0, NDP_STATE1 } ndp_which;
/* Reads a whole tensor in fp64 on every rank: the weights, or the last update's gradient before clipping, 0 of a frozen
 * one; of own batches that of the update under way, after ndp_trainer_norm, divided. NDP_EINVAL: its optimizer does not
 * keep the state. NDP_ENOTSUP: a state is kept in codes. Collective. */
NDP_API ndp_status ndp_trainer_read(ndp_trainer *t, ndp_which which, int tensor, double *out);
/* Replaces a whole tensor, rounded to its type; every rank gives the same numbers. Not of gradients, nor of packed
 * weights. Collective. Since 0.2. */
NDP_API ndp_status ndp_trainer_write(ndp_trainer *t, ndp_which which, int tensor, const double *in);

/* ---- training: the whole run ---- */

typedef struct ndp_train_opts {
    bool resume;         /* from the newest checkpoint of the run folder */
    int64_t resume_from; /* with resume: from the checkpoint of this step; < 0: the newest */
    /* With resume: if a run on another host holds the folder's lock, wait until its counter has stood still for 30 s,
     * then take over. Otherwise such a lock is NDP_EINVAL. */
    bool await;
    /* Once non-zero: finish the step, save, return NDP_EINTR; or the pass over a part of the reference. May be NULL. */
    const volatile sig_atomic_t *stop;
    void (*progress)(void *user, const ndp_metrics *m, int64_t steps); /* rank 0, after each step; may be NULL */
    void (*say)(void *user, const char *line);                         /* rank 0: status messages; may be NULL */
    /* Rank 0: the progress of tokenizing and of scoring a reference, up to ten times a second; each line replaces the
     * previous one. NULL: a line on stderr every few seconds. */
    void (*working)(void *user, const char *line);
    void *user;
    const char *const *accept; /* with resume: keys that may differ from the checkpoint, such as "optimizer.lr" */
    int accept_count;
    /* A path: record when each rank did what in the last step, write it there as Chrome trace events (.json) or as a
     * picture (.svg), and say what part of the step each rank waited for other pipeline stages. NULL: no. */
    const char *trace;
    /* Since 0.2.0. Time each op and collective of all steps, and say after the last one where their time went, and
     * which rank the others wait for. */
    bool profile;
    /* Since 0.2.0. The steps that `trace` records, counted from 1: all of trace_first to trace_last, of which a picture
     * shows the last. 0: the last step of the run. */
    int64_t trace_first, trace_last;
    /* Since 0.2.0. Rank 0 sets it: the run still held the lock of its folder when it ended, so that files may be
     * written there. May be NULL. */
    bool *held;
    /* Since 0.2.0. A cluster.yaml, or NODESxDEVICES:DEVICE, as in ndp_plan_opts: after the 20th step rank 0 says how
     * long a step takes by its plan, and how long steps 6 to 20 took (the median); with `trace` or `profile` also which
     * part differs most. NDP_EINVAL, before the first step: the job cannot be planned on it. NULL: no. */
    const char *cluster;
} ndp_train_opts;
#define NDP_TRAIN_OPTS_INIT                                                                                            \
    { false, -1, false, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, false, 0, 0, NULL, NULL }
/* The whole run: run folder, metrics.jsonl, checkpoints, the trained model. A run that ends with an error outside a
 * step first saves the step that it has finished; the message says which step is on disk. NDP_EINVAL, before anything
 * in the folder is written: the trace cannot be written where `trace` says, or is of steps that the run does not have;
 * a resumed run differs from its checkpoint in a key that is not in `accept`, or `accept` has a key that does not
 * differ. Rank 0 holds train.output_dir/lock throughout; NDP_EINVAL if another run holds it, or takes it over during
 * the run. Collective. */
NDP_API ndp_status ndp_train(const ndp_config *c, ndp_world *w, const ndp_train_opts *o);
/* The line of metrics.jsonl of a step, without the line break; the caller frees it. `before`: the step before, for what
 * a line has only where it changes; NULL: none. Since 0.2. */
NDP_API ndp_status ndp_metrics_line(const ndp_metrics *m, const ndp_metrics *before, char **line);
/* NDP_EINVAL if a live run on this host writes to train.output_dir. For a check before ranks are started. */
NDP_API ndp_status ndp_run_folder_check(const ndp_config *c);
/* The path of a file in train.output_dir, which is made if it does not exist. The caller frees it. */
NDP_API ndp_status ndp_run_folder_file(const ndp_config *c, const char *name, char **path);
/* The newest checkpoint in train.output_dir whose manifest and file sizes are correct; *step 0: there is none. */
NDP_API ndp_status ndp_run_folder_newest(const ndp_config *c, int64_t *step);
/* NDP_EINVAL if this machine lacks what train.device needs: the plugin, a driver, a GPU, a library; the message says
 * what to install. For a check before ranks are started. */
NDP_API ndp_status ndp_device_check(const ndp_config *c);

/* ---- adapters ---- */

/* Writes a model with an adapter of it merged, W + scale B A, as a Hugging Face folder: the tensors of `model` in their
 * types, computed in fp64 and rounded once, and its other files. `model`: a Hugging Face folder; `adapter`: a folder as
 * PEFT saves it, or that of a run that has trained one. *changed: the number of tensors that differ. The memory does
 * not depend on the model's size. The folder appears complete or not at all. NDP_EINVAL: it exists and is not empty, or
 * the adapter belongs to another model (the message has the tensor, both shapes or the nearest names), or a run trained
 * it beside other weights, of which it recorded the hash; NDP_ENOTSUP names a key of adapter_config.json; NDP_EFORMAT:
 * an element is not finite. */
NDP_API ndp_status ndp_adapter_merge(const char *model, const char *adapter, const char *folder, int64_t *changed);
typedef struct ndp_merge_opts {
    const char *model, *adapter, *folder; /* as above */
    /* Keys that may differ from the run that trained the adapter: "model.path", whose weights they are then not. */
    const char *const *accept;
    int accept_count;
} ndp_merge_opts;
#define NDP_MERGE_OPTS_INIT                                                                                            \
    { NULL, NULL, NULL, NULL, 0 }
/* The same. NDP_EINVAL also if `accept` has a key that does not differ. */
NDP_API ndp_status ndp_adapter_merge_with(const ndp_merge_opts *o, int64_t *changed);
/* Sets the section adapter of a job to the adapter of a folder: adapter.path, and the options and names that go with
 * it. A job that is evaluated then has the adapter, and one that is trained goes on with it. */
NDP_API ndp_status ndp_config_use_adapter(ndp_config *c, const char *adapter);

/* ---- using a model ---- */

typedef struct ndp_evaluate_opts {
    const char *model;       /* Hugging Face folder, or the folder of a run, for one of its checkpoints */
    const char *const *data; /* files: JSONL with one text per record, or text */
    int data_count;
    int sequence_length;    /* tokens of a window; a longer document is scored in several; 0: the model's maximum */
    int stride;             /* tokens from the start of a window to that of the next; 0: one less than a window has */
    int threads;            /* 0: all cores */
    const char *device;     /* of ndp_device_choices */
    const char *text_field; /* of JSONL records; NULL: "text" */
    bool force_memory;      /* load the model although it needs more memory than is available */
    int64_t step;           /* of a run's checkpoint; 0: the newest whole one */
    const char *adapter;    /* beside a model folder: a folder as PEFT saves it, or of a run that has trained one */
} ndp_evaluate_opts;
#define NDP_EVALUATE_OPTS_INIT                                                                                         \
    { NULL, NULL, 0, 0, 0, 0, "cpu", NULL, false, 0, NULL }
typedef struct ndp_evaluation {
    const char *name; /* of the file, borrowed from the options; NULL: of all, or of what data.validation_fraction holds
                       * out */
    double mean_nll;  /* mean negative log-likelihood of a predicted token, nats; NaN without tokens */
    int64_t tokens;   /* number of predicted tokens */
    int64_t bytes;    /* of UTF-8 that they decode to */
    int64_t documents;
    int64_t divided;    /* documents that are longer than a window; */
    int window, stride; /* tokens of a window, and from one to the next; all three 0 for a job */
} ndp_evaluation;
/* The mean nll as bits per byte of text: the same unit for every tokenizer. NaN without bytes. */
double ndp_bits_per_byte(const ndp_evaluation *e);
/* Scores the documents of files, each on its own. A document that is longer than a window is scored in several, each of
 * which predicts its tokens that the one before does not have, as the perplexity guide of transformers does. A window
 * predicts all of its tokens but the first, so with a stride below the window's length every token of a document but
 * the first is predicted once. *all: the result for all files together; *files (may be NULL): an array with that of
 * each of o->data_count, which the caller frees. Prints a line on stderr if config.json ties the head to the embedding
 * but the weights contain a different head, which is then used, as in transformers. */
NDP_API ndp_status ndp_evaluate(const ndp_evaluate_opts *o, ndp_evaluation *all, ndp_evaluation **files);
/* True for the folder of a run (train.output_dir), not of a model: it has a job.yaml and no config.json. */
NDP_API bool ndp_is_run_folder(const char *folder);
/* The mean loss of the model in model.path on the held-out rows of a job, as ndp_trainer_evaluate computes it for these
 * weights, on the job's layout, with the memory of a forward pass. `run` (NULL: none): the folder of a run, whose
 * checkpoint of `step` (0: the newest whole one) has the weights instead; model.path, config and sliding_window are
 * then those of the run. Every byte of the checkpoint is checked. *files (may be NULL): an array of *n results, which
 * the caller frees: of each entry of data.validation_files, or one, of what data.validation_fraction holds out.
 * NDP_EINVAL: the job holds no data out, or model.init is random without a run. Collective. */
NDP_API ndp_status ndp_evaluate_job(const ndp_config *c, ndp_world *w, const char *run, int64_t step,
                                    ndp_evaluation *all, ndp_evaluation **files, int *n);

/* Why a text ended. */
typedef enum ndp_finish {
    NDP_FINISH_STOP,     /* an end token or a stop string */
    NDP_FINISH_LENGTH,   /* max_tokens, or no more positions */
    NDP_FINISH_CANCELLED /* `emit` returned false */
} ndp_finish;
typedef struct ndp_generate_opts {
    const char *model, *prompt; /* no prompt (NULL) is the empty one */
    int max_tokens;
    double temperature; /* 0: greedy */
    double top_p;       /* 1: all tokens */
    int64_t seed;
    int threads;
    const char *device;
    bool force_memory;       /* as in ndp_evaluate_opts */
    const char *const *stop; /* texts that end the generated text, which does not contain them */
    int stop_count;
    const char *chat_template; /* of conversations: a name as in data.chat_template; NULL: that of the training */
    int64_t step;              /* as in ndp_evaluate_opts */
    const char *adapter;       /* the same */
    bool ids; /* texts are not needed: a model without a tokenizer continues the empty prompt, and its texts are "" */
    ndp_finish *finish; /* ndp_generate sets it to why the text ended; may be NULL. Since 0.2. */
} ndp_generate_opts;
#define NDP_GENERATE_OPTS_INIT                                                                                         \
    { NULL, "", 256, 0.0, 1.0, 42, 0, "cpu", false, NULL, 0, NULL, 0, NULL, false, NULL }
/* Continues the prompt. Calls `emit` for each new token with its id and the text that it completes, which may be "";
 * `emit` returns false to stop. Ends at the model's end token, before a stop string, after max_tokens, or at the
 * model's last position. Text that may be the beginning of a stop string is emitted once it is known not to be one.
 * Prints the same line as ndp_evaluate. */
NDP_API ndp_status ndp_generate(const ndp_generate_opts *o, bool (*emit)(void *user, int32_t id, const char *text),
                                void *user);

typedef struct ndp_generated {
    int64_t prompts, tokens; /* tokens generated */
    int batch;
    double seconds; /* without reading the file and loading the model */
} ndp_generated;
/* Continues each prompt of a JSONL file, `batch` at a time (0: as many as memory allows, up to 16). A record is
 * {"prompt": text}, or {"messages": [...]}, which a chat template renders. Calls `emit` for each record, in the order
 * of the file, with a line of JSON without the line break: {"index": 0, "text": ..., "tokens": ..., "finish": "stop" or
 * "length"}, and "id" if the record has one. Results do not depend on `batch`; sampling depends on the seed and the
 * record's index. opts->prompt is not used. NDP_EFORMAT names the file and the line, before anything is generated. */
NDP_API ndp_status ndp_generate_file(const ndp_generate_opts *o, const char *file, int batch,
                                     bool (*emit)(void *user, const char *line, size_t length), void *user,
                                     ndp_generated *out);

/* A conversation with a model. */
typedef struct ndp_dialog ndp_dialog;

typedef struct ndp_reply {
    int64_t tokens;           /* generated */
    int64_t computed, reused; /* tokens of the conversation before it: computed now, and kept from earlier turns */
    int64_t room;             /* tokens that the context has left */
    ndp_finish finish;
} ndp_reply;

/* Opens the model and its chat template. `system`: the system message; NULL: none, or the template's own. `context`:
 * the longest conversation in tokens; 0: the model's maximum, at most 8192. The options, but not their strings, are
 * copied. NDP_ENOTSUP: the model has no chat template that can be used. */
NDP_API ndp_status ndp_dialog_create(const ndp_generate_opts *o, const char *system, int context, ndp_dialog **out);
void ndp_dialog_destroy(ndp_dialog *d);
/* Adds a user's message and generates the answer, passed to `emit` as by ndp_generate. Both become part of the
 * conversation, the answer also if it was cancelled. After an error the conversation is as before. NDP_EINVAL: it would
 * be longer than the context. */
NDP_API ndp_status ndp_dialog_ask(ndp_dialog *d, const char *message,
                                  bool (*emit)(void *user, int32_t id, const char *text), void *user, ndp_reply *out);
/* Forgets all messages but the system message. */
void ndp_dialog_reset(ndp_dialog *d);

/* ---- tokens ---- */

typedef enum ndp_tokens_form {
    NDP_TOKENS_IDS,    /* [1, 2, 3] */
    NDP_TOKENS_PIECES, /* ["tok", "ens"], spelled as in the vocabulary */
    NDP_TOKENS_COUNT,  /* 3 */
    NDP_TOKENS_TEXT    /* decodes: lists of ids to texts, each a JSON string */
} ndp_tokens_form;

typedef struct ndp_tokenize_opts {
    const char *tokenizer; /* a folder with a tokenizer.json, such a file, or "bytes" */
    /* JSONL with one text per record, or a text file; for NDP_TOKENS_TEXT one list of ids per line. "-" reads all of
     * standard input: one text, or JSONL if text_field is set. */
    const char *file;
    const char *text;       /* instead of a file: one text, or one list of ids for NDP_TOKENS_TEXT */
    const char *text_field; /* of JSONL records; NULL: "text" */
    ndp_tokens_form form;
    bool special; /* add the special tokens that the tokenizer puts around a text; with NDP_TOKENS_TEXT show them */
} ndp_tokenize_opts;
#define NDP_TOKENIZE_OPTS_INIT                                                                                         \
    { NULL, NULL, NULL, NULL, NDP_TOKENS_IDS, false }
/* Calls `emit` with one line of JSON for each text, without the line break; `emit` returns false to stop. NDP_EFORMAT
 * names the file and the line. */
NDP_API ndp_status ndp_tokenize(const ndp_tokenize_opts *o, bool (*emit)(void *user, const char *line, size_t length),
                                void *user);

/* Version, processor, cores, memory, libraries, transports and GPUs, for bug reports. */
NDP_API ndp_status ndp_env(char **text);
/* The same as one line of JSON. */
NDP_API ndp_status ndp_env_json(char **json);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#include <ndparallel/loop.h>
#include <ndparallel/plan.h>
#include <ndparallel/runs.h>
#include <ndparallel/verify.h>

#endif
