/* What runs have left in their folders: steps that are repeated, checkpoints, lists, reports, live screens. A part of
 * ndparallel.h, which includes it; the same rules hold. */
#ifndef NDPARALLEL_RUNS_H
#define NDPARALLEL_RUNS_H

#include <ndparallel/ndparallel.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- steps of a run once more ---- */

typedef struct ndp_replay_opts {
    int64_t first, last;                       /* steps, counted from 1 */
    bool compare;                              /* each with its line in metrics.jsonl, to the last bit */
    void (*say)(void *user, const char *line); /* rank 0: a line for each step; may be NULL */
    void *user;
} ndp_replay_opts;
/* Repeats steps of the run in train.output_dir, from the newest checkpoint before them, and looks at all that is
 * computed in them: says the first value that is not finite, in which layer, op and tensor, and the record that it
 * comes from, or else the largest ones. Ends after a step that is not finite. Writes nothing. *different:
 * how many of the steps have another loss or gradient norm than the run had; 0 without `compare`. NDP_EINVAL: there is
 * no checkpoint before `first`, the job differs from the run's in what ndp_trainer_resume names, or metrics.jsonl has
 * no line of a step. NDP_EFORMAT: the checkpoint is damaged. Collective. Since 0.2. */
NDP_API ndp_status ndp_replay(const ndp_config *c, ndp_world *w, const ndp_replay_opts *o, int64_t *different);

/* ---- the checkpoints of a run ---- */

typedef enum ndp_checkpoint_state {
    NDP_CHECKPOINT_VERIFIED,     /* every byte matches the hashes in its manifest */
    NDP_CHECKPOINT_UNREAD,       /* manifest and file sizes are correct; the data was not read */
    NDP_CHECKPOINT_UNVERIFIABLE, /* the same, but the manifest has version 1, which has no hashes */
    NDP_CHECKPOINT_DAMAGED,
    NDP_CHECKPOINT_ASIDE /* renamed by a resume: damaged, or newer than the step that was resumed from */
} ndp_checkpoint_state;

typedef struct ndp_checkpoint_entry {
    const char *name;           /* of its folder: "step-00000100", "step-00000100.damaged" */
    int64_t step, bytes, saved; /* size of all its files; time of the save, in seconds since 1970 */
    ndp_checkpoint_state state;
    const char *words; /* which files and tensors are damaged; "" if none */
    double seconds;    /* time that the check took */
    /* Of the step: the loss that its manifest has, and the eval_loss in RUN/metrics.jsonl; NaN: unknown. Since 0.2. */
    double loss, eval_loss;
} ndp_checkpoint_entry;

/* Calls `each` for the checkpoints in RUN/checkpoints, newest first, then for those set aside; with n > 0 only for the
 * `n` given steps. `data`: reads every byte, on all cores. NDP_EINVAL: no such folder or step. Changes nothing. */
NDP_API ndp_status ndp_checkpoints_examine(const char *run, const int64_t *steps, int n, bool data,
                                           void (*each)(void *user, const ndp_checkpoint_entry *e), void *user);
/* Removes checkpoints, named by step ("100") or folder; a folder may be one set aside. NDP_EINVAL, and nothing is
 * removed: a run on this host writes there; or, unless `force`, the last checkpoint that verifies would be removed. */
NDP_API ndp_status ndp_checkpoints_remove(const char *run, const char *const *names, int n, bool force);

/* Writes the model of a checkpoint as a Hugging Face folder: the bytes that ndp_trainer_export writes after that step.
 * `step`: 0 for the newest checkpoint that is whole; *exported: its step. Every byte of the checkpoint is checked
 * first; the memory does not depend on the model's size. The folder appears complete or not at all. config.json and the
 * tokenizer are those that RUN/job.yaml names. NDP_EINVAL: the folder exists and is not empty, the checkpoint is
 * damaged, or one of these files is gone or of another model. */
NDP_API ndp_status ndp_checkpoint_export(const char *run, int64_t step, const char *folder, int64_t *exported);

/* Since 0.2.0. */
typedef struct ndp_gguf_opts {
    const char *model; /* a Hugging Face folder, or its name in the Hub cache; or the folder of a run */
    const char *file;  /* must not exist */
    const char *type;  /* of matrices: "fp32", "bf16", "f16" or "q8_0"; NULL: "bf16" */
    int64_t step;      /* of a run's checkpoint; 0: the newest whole one */
} ndp_gguf_opts;
#define NDP_GGUF_OPTS_INIT                                                                                             \
    { NULL, NULL, NULL, 0 }
/* Writes a model as a GGUF file, which llama.cpp, Ollama and LM Studio run: the names, values and order of numbers of
 * llama.cpp's converter. An adapter that a run has trained is merged first. *tensors: how many the file has. The memory
 * does not depend on the model's size; of a run, the disk holds its model folder as well meanwhile. The file appears
 * complete or not at all. NDP_EINVAL: the file exists, the type is unknown, or as ndp_checkpoint_export;
 * NDP_ENOTSUP: the family or the tokenizer is not one that llama.cpp has (the message lists those that are). Since
 * 0.2.0. */
NDP_API ndp_status ndp_gguf_export(const ndp_gguf_opts *o, int64_t *tensors);

/* ---- looking at runs ---- */

/* Lists the run folders at `folder` and up to three levels below it, as lines of at most 79 columns below a heading, or
 * as one line of JSON: {"runs": [{"path", "state", "step", "steps", "loss", "eval_loss", "tokens_per_second",
 * "age_seconds"}]}, with null for what a run does not have. `state`: "running"; "running?", a process on another host
 * holds its lock; "done"; "stopped"; "died", the process that holds its lock is dead. Only reads. NDP_EINVAL: no such
 * folder. Since 0.2.0. */
NDP_API ndp_status ndp_runs_list(const char *folder, bool json, char **text);
/* Writes an HTML page about `n` > 0 runs to `path`: one file, without scripts, that loads nothing. A run may be writing
 * to its folder. Curves have at most 600 columns, so the file does not grow with the steps. NDP_EINVAL: a folder is not
 * that of a run; the message says what is missing. Since 0.2.0. */
NDP_API ndp_status ndp_runs_report(const char *const *runs, int n, const char *path);

typedef enum ndp_record_form { NDP_RECORD_AS_TEXT, NDP_RECORD_AS_MARKDOWN, NDP_RECORD_AS_JSON } ndp_record_form;
/* The record of a run, from its run.json: program, device, layout, tokens, floating-point operations of the model and
 * of the hardware, hours, device hours, energy, hashes of data, tokenizer, base and result, and its parts, one for each
 * start; as lines, as a section of a model card, or as one line of JSON: {"run", "state", "record", "differences"}.
 * *differences: how many fields job.yaml, metrics.jsonl or the manifest of the newest checkpoint have otherwise, which
 * the text names. Only reads. *text is freed by the caller. NDP_EINVAL: no run folder, or one without a run.json. Since
 * 0.2.0. */
NDP_API ndp_status ndp_record_show(const char *run, ndp_record_form form, char **text, int *differences);

/* A run folder that is looked at again and again, while a run writes there or later, on any host that sees it. Only
 * reads. Since 0.2.0. */
typedef struct ndp_watch ndp_watch;
typedef struct ndp_watch_state {
    const char *word; /* as of ndp_runs_list; "running" also for a process on another host whose lock is seen to move */
    bool live;        /* a process holds the folder, as far as this host knows */
    int64_t step, steps; /* of the run so far, of the whole job; steps 0: not known */
    int64_t damaged;     /* lines of metrics.jsonl that were left out */
    int log_every;       /* train.log_every; 0: auto */
    bool held;           /* the job evaluates held-out rows */
} ndp_watch_state;
/* *state (may be NULL): what the newest line says. NDP_EINVAL: the folder is not that of a run; the message says what
 * is missing. */
NDP_API ndp_status ndp_watch_create(const char *run, ndp_watch_state *state, ndp_watch **out);
void ndp_watch_destroy(ndp_watch *w);
/* Reads what the run has written since the last call, and calls `row` (NULL: nothing) for each new step, with what its
 * line in metrics.jsonl has of those that a log shows. *state may be NULL. An error of the disk may pass: the next call
 * reads all again. Not with ndp_watch_serve. */
NDP_API ndp_status ndp_watch_read(ndp_watch *w, void (*row)(void *user, const ndp_metrics *m, int64_t steps),
                                  void *user, ndp_watch_state *state);

typedef struct ndp_screen_opts {
    int columns, rows; /* of the terminal */
    bool ascii;        /* no other characters */
    bool colours;      /* escape sequences for them */
} ndp_screen_opts;
/* The run as a screen of at most o->rows lines of at most o->columns - 1 columns, with the curve of its loss. */
NDP_API ndp_status ndp_watch_screen(const ndp_watch *w, const ndp_screen_opts *o, char **text);
/* Serves the report (/), read anew for each request, and numbers for Prometheus (/metrics) by HTTP, from a thread,
 * until ndp_watch_destroy. `address`: "127.0.0.1:9000", "[::1]:9000", a port alone for 127.0.0.1; port 0: any that is
 * free. *url: where, freed by the caller. Without `any`, only a loopback address, and requests must name it as their
 * host; NDP_EINVAL: another one, or it is taken. NDP_ENOTSUP: the plugin or libmicrohttpd is missing. */
NDP_API ndp_status ndp_watch_serve(ndp_watch *w, const char *address, bool any, char **url);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
