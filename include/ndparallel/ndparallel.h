/* ndparallel: native training of language models with any combination of parallelisms.
 *
 * A program reads a configuration, runs a world of ranks and, on each rank, a trainer:
 *
 *     ndp_config *c;
 *     ndp_config_create(&c);
 *     ndp_config_read(c, "job.yaml");
 *     ndp_config_set(c, "parallelism.dp_shard_size=4");
 *     ndp_world_run(c, rank_body, c);        // every rank: ndp_trainer_create, _step, _save, _export, _destroy
 *
 * or just ndp_train(), the whole loop with its run folder. All functions return a status; ndp_error_message() has the
 * words. Text that a function hands out through `char **` belongs to the caller, who frees it with free().
 * The library never exits, never prints except where a function says so, and keeps no global state: any number of
 * worlds may run in one process.
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
/* What the shared library exports is what stands here. */
#pragma GCC visibility push(default)

#define NDP_VERSION "0.1.0"
#define NDP_API __attribute__((warn_unused_result))

/* ---- status ---- */

/* What went wrong, by who has to act. */
typedef enum ndp_status {
    NDP_OK = 0,
    NDP_EINVAL,  /* the user's configuration, layout or argument */
    NDP_EFORMAT, /* a file is damaged, hostile or of an unsupported kind */
    NDP_EIO,     /* the system refused to read or write */
    NDP_ENOMEM,  /* not enough memory */
    NDP_ECOMM,   /* another rank failed, or the transport did */
    NDP_ENOTSUP, /* legal, but not built yet */
    NDP_EINTR,   /* stopped by a signal after saving */
    NDP_EBUG     /* ours: please report */
} ndp_status;

/* The calling thread's last error: one message with the cause and the way out; "" when there was none. Borrowed until
 * the thread's next failing call. */
const char *ndp_error_message(void);
/* Where it came from, "file:line < file:line ...", for bug reports. */
const char *ndp_error_trail(void);

/* ---- configuration ---- */

typedef struct ndp_config ndp_config;

/* All defaults. */
NDP_API ndp_status ndp_config_create(ndp_config **out);
void ndp_config_destroy(ndp_config *c);
/* Reads a job file over what is there. NDP_EINVAL: file, line, column, a caret, the nearest known key. */
NDP_API ndp_status ndp_config_read(ndp_config *c, const char *path);
/* "optimizer.lr=1e-3": the same checks. */
NDP_API ndp_status ndp_config_set(ndp_config *c, const char *assignment);
/* The same, put together as printf does: ndp_config_setf(c, "parallelism.tp_size=%d", 2). A text that comes from
 * elsewhere, such as a path, may hold what YAML has a meaning for; where that matters, quote it. */
NDP_API __attribute__((format(printf, 2, 3))) ndp_status ndp_config_setf(ndp_config *c, const char *format, ...);
/* The value of one key, "train.steps", as YAML. */
NDP_API ndp_status ndp_config_get(const ndp_config *c, const char *key, char **value);
/* What involves several keys; called once all is read. */
NDP_API ndp_status ndp_config_check(const ndp_config *c);
/* The complete configuration as YAML. */
NDP_API ndp_status ndp_config_text(const ndp_config *c, char **yaml);
/* All keys with type, range, default and one line of help. */
NDP_API ndp_status ndp_config_keys(char **text);

typedef struct ndp_import_opts {
    int ranks;                /* of the run; 0: as the file says, else one data rank */
    bool force;               /* leave out what would change the result, and unknown keys, instead of failing */
    char *const *assignments; /* as for ndp_config_set, made after the file; they settle what the file leaves open */
    int assignment_count;
} ndp_import_opts;
#define NDP_IMPORT_OPTS_INIT                                                                                           \
    { 0, false, NULL, 0 }
/* Makes `c` what an Axolotl file, an Accelerate file (YAML or JSON) or a ParallelismConfig says, over the defaults of
 * that program. *job: a job file with the imported keys alone, which reads back to the same configuration. *notes:
 * lines for a person: the batch equation, what is different here, every key that was not carried over and why.
 * NDP_EINVAL, with file, line, column and a caret: wrong values; without `force` also keys that change the result and
 * are not supported (adapter: lora), and unknown keys. */
NDP_API ndp_status ndp_config_import(ndp_config *c, const char *path, const ndp_import_opts *o, char **job,
                                     char **notes);

/* ---- worlds of ranks ---- */

typedef struct ndp_transport ndp_world;

/* Ranks that the layout of `c` asks for: the product of its sizes, train.ranks where one is `auto`, else 1. Checks the
 * layout against the model and says the nearest legal ones. Opens the model's config.json, and its weights where that
 * ties the head to the embedding: they may hold another head. */
NDP_API ndp_status ndp_config_ranks(const ndp_config *c, int *ranks);
/* True when ndp_launch, mpirun or srun started this process as a rank; *ranks (may be NULL): how many. */
bool ndp_world_launched(int *ranks);
/* Which of them this process is, before it joins; 0 when nothing says so. */
int ndp_world_launched_rank(void);

/* Runs `body` on every rank of a world that lives in this process: by train.transport as one rank (`self`), as threads
 * (`local`), or as this process's rank of the world that ndp_launch (`shm`), mpirun or srun (`mpi`) started. Returns
 * when the ranks of this process have ended; the status is that of the rank that failed first, its message names it. */
NDP_API ndp_status ndp_world_run(const ndp_config *c, ndp_status (*body)(ndp_world *, void *), void *arg);
/* "self", "local", "shm" or "mpi". */
const char *ndp_world_transport(const ndp_world *w);
int ndp_world_rank(const ndp_world *w);
int ndp_world_size(const ndp_world *w);
/* For a rank's body that fails, before it returns: makes its thread's error the world's. True on the rank that was
 * first (of its node), who is to tell the user; what the others have to say follows from that. */
bool ndp_world_fail(ndp_world *w);

typedef struct ndp_launch_opts {
    int ranks;
    int threads;                               /* a rank, for OMP_NUM_THREADS; 0: the program decides */
    const char *hostfile;                      /* NULL: this host, or what the batch system gives */
    const char *transport;                     /* "shm": this host, "mpi": mpirun; NULL, "auto": as the hosts ask for */
    char *const *argv;                         /* program and arguments, NULL at the end */
    const volatile sig_atomic_t *stop;         /* becomes non-zero: all ranks get SIGUSR1, once a second; may be NULL */
    void (*say)(void *user, const char *line); /* warnings; may be NULL */
    void (*tell)(void *user, const char *line); /* the end of a rank that could not report it itself; may be NULL */
    void *user;
} ndp_launch_opts;
#define NDP_LAUNCH_OPTS_INIT                                                                                           \
    { 1, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL }
/* The defaults, and what `c` says: its ranks, 0 when they have been launched already, or all live in this process by
 * train.transport or for being one; its transport (borrowed from `c`). Checks like ndp_config_ranks. */
NDP_API ndp_status ndp_launch_opts_read(const ndp_config *c, ndp_launch_opts *out);
/* Runs argv as `ranks` processes, which inherit stdout and stderr, and waits for their end. On one host they are
 * children of the calling thread; on several (a hostfile, or what the batch system gives), and with transport "mpi", of
 * mpirun. *exit_code: that of the rank that failed first, 128 + signal for one that was killed. The ranks end with the
 * calling thread. A terminal's Ctrl-C reaches ranks on one host; mpirun does not see it, so that the calling process
 * can let the ranks finish their step. NDP_ECOMM: a host of the hostfile cannot be reached. */
NDP_API ndp_status ndp_launch(const ndp_launch_opts *o, int *exit_code);

/* ---- training, step by step ---- */

typedef struct ndp_trainer ndp_trainer;

typedef struct ndp_metrics {
    int64_t step; /* 1 after the first update */
    double loss, grad_norm, lr;
    int64_t tokens; /* predicted in this update, all ranks, each once */
    double tokens_per_second, step_seconds;
    /* 6 x parameters x tokens_per_second / peak_flops; and the rate, measured from the start of the run to the step
     * before, of loops of nothing but multiply-adds in registers on all cores of the run. 0 outside of ndp_train. */
    double mfu, peak_flops;
    int64_t peak_memory_bytes; /* of this rank */
    double eval_loss;          /* of what is held out, after this update; NaN where it was not asked for */
    int64_t eval_tokens;
} ndp_metrics;

/* Collective over the world. Reads the model's facts, prepares the data, builds the step program, takes the memory and
 * loads (or draws) the weights. NDP_EINVAL before any memory is taken: the ranks of this host need more than is
 * available, and train.force_memory is not set. Borrows the configuration. */
NDP_API ndp_status ndp_trainer_create(const ndp_config *c, ndp_world *w, ndp_trainer **out);
/* NULL is fine. */
void ndp_trainer_destroy(ndp_trainer *t);
/* One update on the next global batch. Collective over the world. */
NDP_API ndp_status ndp_trainer_step(ndp_trainer *t, ndp_metrics *out);
/* The mean loss of all tokens that are held out (data.validation_files, data.validation_fraction), and their number: a
 * forward pass on the layout of the training. NDP_EINVAL when nothing is held out. Collective over the world. */
NDP_API ndp_status ndp_trainer_evaluate(ndp_trainer *t, double *loss, int64_t *tokens);
/* Updates made so far. */
int64_t ndp_trainer_updates(const ndp_trainer *t);
/* Saves weights, optimizer and cursor into `folder` (NULL: the run's checkpoints/). Collective; atomic. */
NDP_API ndp_status ndp_trainer_save(ndp_trainer *t, const char *folder);
/* Loads the newest checkpoint of `folder` (NULL: the run's), on any layout; *step = -1 if there has never been one.
 * Verifies every byte of it first. If it is damaged, the one saved before it is loaded, the damaged one is renamed to
 * step-N.damaged, and rank 0 warns on stderr. NDP_EINVAL if that one is damaged too, or if none is left: nothing is
 * changed, and the message says which steps verify. NDP_EINVAL also names what differs of all that determines the
 * curve: model, data, tokenizer, optimizer, schedule, batch, seed, precision. Collective. */
NDP_API ndp_status ndp_trainer_resume(ndp_trainer *t, const char *folder, int64_t *step);
/* The same from exactly the step `wanted`; newer checkpoints are renamed to step-N.superseded, or .damaged. wanted < 0:
 * as ndp_trainer_resume. Collective. */
NDP_API ndp_status ndp_trainer_resume_from(ndp_trainer *t, const char *folder, int64_t wanted, int64_t *step);
/* Writes the model as a Hugging Face folder (NULL: the run's model/). Collective. */
NDP_API ndp_status ndp_trainer_export(ndp_trainer *t, const char *folder);
/* The layout, the batch equation, the sizes: some lines for a person. */
NDP_API ndp_status ndp_trainer_describe(const ndp_trainer *t, char **text);

/* Tensors of the model by their names in the model folder. */
int ndp_trainer_tensors(const ndp_trainer *t);
const char *ndp_trainer_tensor(const ndp_trainer *t, int i, int64_t *elements);
typedef enum ndp_which { NDP_WEIGHT, NDP_GRADIENT } ndp_which;
/* The whole tensor in fp64 on every rank: the weights, or the last update's gradient before clipping. Collective. */
NDP_API ndp_status ndp_trainer_read(ndp_trainer *t, ndp_which which, int tensor, double *out);

/* ---- training, whole ---- */

typedef struct ndp_train_opts {
    bool resume;                       /* go on from the run folder's newest checkpoint */
    int64_t resume_from;               /* with resume: from the one of this step; < 0: the newest */
    bool await;                        /* with resume: wait for a run of another host that holds the folder's lock, and
                                        * take over once it has been silent for 30 s; otherwise that is NDP_EINVAL */
    const volatile sig_atomic_t *stop; /* becomes non-zero: finish the step, save, return NDP_EINTR; may be NULL */
    void (*progress)(void *user, const ndp_metrics *m, int64_t steps); /* rank 0, after each step; may be NULL */
    void (*say)(void *user, const char *line);                         /* rank 0: what is going on; may be NULL */
    /* Rank 0: how far the tokenizing is, a line that stands for the one before, up to ten times a second; NULL: a line
     * on stderr every few seconds. */
    void (*working)(void *user, const char *line);
    void *user;
    const char *const *accept; /* with `resume`: keys that may differ from the checkpoint's ("optimizer.lr") */
    int accept_count;
} ndp_train_opts;
#define NDP_TRAIN_OPTS_INIT                                                                                            \
    { false, -1, false, NULL, NULL, NULL, NULL, NULL, NULL, 0 }
/* The whole run on one rank of a world: run folder, metrics.jsonl, checkpoints, the trained model. NDP_EINVAL, before
 * anything in the folder is written: a resumed run differs from its checkpoint in a key that `accept` does not hold, or
 * `accept` holds one that does not differ. Rank 0 holds train.output_dir/lock meanwhile: NDP_EINVAL when another run
 * has it, or takes it over from this one. Collective. */
NDP_API ndp_status ndp_train(const ndp_config *c, ndp_world *w, const ndp_train_opts *o);
/* NDP_EINVAL when a live run of this host writes into train.output_dir: asked before ranks are started. */
NDP_API ndp_status ndp_run_folder_check(const ndp_config *c);

/* ---- the checkpoints of a run ---- */

typedef enum ndp_checkpoint_state {
    NDP_CHECKPOINT_VERIFIED,     /* every byte has the hash that its manifest states */
    NDP_CHECKPOINT_UNREAD,       /* its manifest is right and its files have their sizes; the data was not read */
    NDP_CHECKPOINT_UNVERIFIABLE, /* the same, with a manifest of version 1, which has no hashes */
    NDP_CHECKPOINT_DAMAGED,
    NDP_CHECKPOINT_ASIDE /* renamed by a resume: damaged, or newer than the step that the run went back to */
} ndp_checkpoint_state;

typedef struct ndp_checkpoint_entry {
    const char *name;           /* of its folder: "step-00000100", "step-00000100.damaged" */
    int64_t step, bytes, saved; /* bytes of all its files; when, in seconds since 1970 */
    ndp_checkpoint_state state;
    const char *words; /* which files and tensors are damaged; "" */
    double seconds;    /* that the examination took */
} ndp_checkpoint_entry;

/* Calls `each` for the checkpoints in RUN/checkpoints, newest first: all of them, then those set aside, or only the `n`
 * of `steps`. `data`: reads them whole, on all cores. NDP_EINVAL: there is no such folder, or no such step. Changes
 * nothing. */
NDP_API ndp_status ndp_checkpoints_examine(const char *run, const int64_t *steps, int n, bool data,
                                           void (*each)(void *user, const ndp_checkpoint_entry *e), void *user);
/* Removes checkpoints by their step ("100") or the name of their folder, which may be one set aside. Unless `force`, at
 * least one that is left has to verify, where any that goes does: else NDP_EINVAL, and all stay. So it is while a run
 * of this host writes there. */
NDP_API ndp_status ndp_checkpoints_remove(const char *run, const char *const *names, int n, bool force);

/* ---- knowing before ---- */

typedef struct ndp_plan_opts {
    int rank;           /* whose program */
    int ranks_per_node; /* 0: all on one node up to 8, else 8 */
    bool program;       /* the step and unit programs; otherwise memory by class and traffic by group */
    bool data;          /* reads the head of every source too, and fails where the run would */
} ndp_plan_opts;
#define NDP_PLAN_OPTS_INIT                                                                                             \
    { 0, 0, false, false }
/* What the run would do and need, for a world of any size, without ranks. Weights are not loaded; a folder without any
 * is planned by its config.json. `data`: asks that the model has weights (NDP_EIO), opens the tokenizer and every file
 * of the data, renders and tokenizes the first 100 records or 1 MiB of each source, and adds what the run would say of
 * them; writes nothing. */
NDP_API ndp_status ndp_plan(const ndp_config *c, const ndp_plan_opts *o, char **text);

/* ---- settling doubts: is a layout's training that of one rank? ---- */

/* What two runs are compared by. Distances are relative: of tensors the norm of the difference by the norm. */
typedef enum ndp_measure {
    NDP_MEASURE_TOKENS,         /* predicted, of every step */
    NDP_MEASURE_FIRST_GRADIENT, /* of every tensor, before clipping, in step 1 */
    NDP_MEASURE_GRAD_NORM,      /* of every step */
    NDP_MEASURE_LAST_GRADIENT,  /* of every tensor in the last step */
    NDP_MEASURE_LOSS,           /* of every step */
    NDP_MEASURE_WEIGHTS,        /* every tensor after the last step */
    NDP_MEASURES
} ndp_measure;
/* "grad_norm" */
const char *ndp_measure_name(ndp_measure m);

typedef struct ndp_spot {
    double off, bound; /* bound INFINITY: none */
    char where[96];    /* the tensor, or "step 3" */
    char unit[32];     /* of the model, that has the tensor; "" for steps */
} ndp_spot;

typedef struct ndp_deviation {
    ndp_spot worst; /* the nearest to its bound, or the farthest beyond */
    int beyond;     /* tensors or steps beyond their bounds */
    ndp_spot first; /* of these the first step, or the first that a backward pass meets: the nearest to the loss */
} ndp_deviation;

typedef struct ndp_verdict {
    bool agrees;
    int ranks;
    double seconds;
    ndp_deviation of[NDP_MEASURES];
    char words[768]; /* what is beyond its bound, and which axis does it; "" when the layout agrees */
} ndp_verdict;

enum { NDP_VERIFY_STEPS = 20 }; /* the most: the bounds are known to hold for so many */

typedef struct ndp_verify_opts {
    const char *const *layouts; /* "tp=2,dp_shard=2": the axes above 1; the rest are 1, whatever the job says */
    int n;
    int steps;                                 /* 1 .. NDP_VERIFY_STEPS */
    void (*say)(void *user, const char *line); /* what is going on; may be NULL */
    void *user;
} ndp_verify_opts;
#define NDP_VERIFY_OPTS_INIT                                                                                           \
    { NULL, 0, NDP_VERIFY_STEPS, NULL, NULL }
/* Trains the job for a few steps on one rank and then on every layout, with the same global batches, and compares by
 * the bounds of docs/ARCHITECTURE.md, proof 3. Ranks are threads of this process; nothing is written but the cache of
 * tokenized data. Of the configuration the layout, train.ranks and train.threads are set aside (cores / ranks threads
 * each), and the lr of AdamW is held to 1e-3, that of Lion to 1e-4, for which the bounds are known. A layout of several
 * axes that disagrees is run again with each of them alone. verdicts: n, the caller's. All layouts, and the memory for
 * them, are checked before anything runs: NDP_EINVAL, NDP_ENOTSUP. A layout that disagrees is no error. */
NDP_API ndp_status ndp_verify(const ndp_config *c, const ndp_verify_opts *o, ndp_verdict *verdicts);

/* ---- using a model ---- */

typedef struct ndp_evaluate_opts {
    const char *model;      /* Hugging Face folder */
    const char *data;       /* JSONL with a text a record, or a text file */
    int sequence_length;    /* longer documents are cut; 0: the model's */
    int threads;            /* 0: all cores */
    const char *device;     /* "cpu" or "ref" */
    const char *text_field; /* of JSONL records; NULL: "text" */
    bool force_memory;      /* load it although more memory is needed than is available */
} ndp_evaluate_opts;
#define NDP_EVALUATE_OPTS_INIT                                                                                         \
    { NULL, NULL, 0, 0, "cpu", NULL, false }
typedef struct ndp_evaluation {
    double mean_nll; /* sum of the nll of all predictions / their number */
    int64_t tokens;  /* predictions */
    int64_t documents;
} ndp_evaluation;
/* Prints a line on stderr where config.json ties the head to the embedding, but the weights hold another head: that is
 * kept, as in transformers. */
NDP_API ndp_status ndp_evaluate(const ndp_evaluate_opts *o, ndp_evaluation *out);
/* The mean loss of the held-out rows of a job (data.validation_files, data.validation_fraction) under the model in
 * model.path: what ndp_trainer_evaluate gives for the same weights, on the job's layout, with the memory of a forward
 * pass. NDP_EINVAL: nothing is held out, or model.init is random. Collective over the world. */
NDP_API ndp_status ndp_evaluate_job(const ndp_config *c, ndp_world *w, ndp_evaluation *out);

typedef struct ndp_generate_opts {
    const char *model, *prompt;
    int max_tokens;
    double temperature; /* 0: greedy */
    double top_p;       /* 1: all */
    int64_t seed;
    int threads;
    const char *device;
    bool force_memory; /* as in ndp_evaluate_opts */
} ndp_generate_opts;
#define NDP_GENERATE_OPTS_INIT                                                                                         \
    { NULL, "", 256, 0.0, 1.0, 42, 0, "cpu", false }
/* Continues the prompt. `emit` gets every new token's id and the new text so far decodable (may be ""); false stops.
 * Ends at the model's end token, at max_tokens or at the model's longest position. Prints what ndp_evaluate does. */
NDP_API ndp_status ndp_generate(const ndp_generate_opts *o, bool (*emit)(void *user, int32_t id, const char *text),
                                void *user);

/* ---- tokens ---- */

typedef enum ndp_tokens_form {
    NDP_TOKENS_IDS,    /* [1, 2, 3] */
    NDP_TOKENS_PIECES, /* ["tok", "ens"], as the vocabulary writes them */
    NDP_TOKENS_COUNT,  /* 3 */
    NDP_TOKENS_TEXT    /* the other way: lists of ids to texts, each a string of JSON */
} ndp_tokens_form;

typedef struct ndp_tokenize_opts {
    const char *tokenizer; /* a folder with a tokenizer.json, such a file, or "bytes" */
    /* JSONL with a text a record, or a text file; for NDP_TOKENS_TEXT lists, one a line. "-" is standard input, to its
     * end: a text, or JSONL where text_field is given. */
    const char *file;
    const char *text;       /* instead of a file: one text, or for NDP_TOKENS_TEXT one list */
    const char *text_field; /* of JSONL records; NULL: "text" */
    ndp_tokens_form form;
    bool special; /* add the special tokens that the tokenizer puts around a text; as text: show special tokens */
} ndp_tokenize_opts;
#define NDP_TOKENIZE_OPTS_INIT                                                                                         \
    { NULL, NULL, NULL, NULL, NDP_TOKENS_IDS, false }
/* A line of JSON for each text (record, document), without its line break; `emit` stops the run by false. NDP_EFORMAT
 * names the file and the line. */
NDP_API ndp_status ndp_tokenize(const ndp_tokenize_opts *o, bool (*emit)(void *user, const char *line, size_t length),
                                void *user);

/* Version, processor, cores, memory, libraries, transports: for bug reports. */
NDP_API ndp_status ndp_env(char **text);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
