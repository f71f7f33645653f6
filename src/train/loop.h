/* The state of a run, for loop.c, which runs its steps, and commit.c, which saves them. */
#ifndef NDP_TRAIN_LOOP_H
#define NDP_TRAIN_LOOP_H

#include "train/metrics_file.h"
#include "train/summary.h"
#include "train/tracker.h"
#include "train/trainer.h"

/* The steps of a process that are compared with their plan, 6 to 20, and the parts of both. */
enum { NDP_COMPARED_STEPS = 15, NDP_COMPARED_PARTS = 5 };

typedef struct ndp_training_loop {
    const ndp_config *config;
    ndp_config *kept; /* config with what the run before had; NULL: it is the caller's */
    const ndp_train_opts *opts;
    ndp_trainer *trainer;
    bool first;                                /* rank 0 */
    void (*say)(void *user, const char *line); /* of opts on rank 0; else NULL */
    ndp_lock *lock;                            /* of the run folder; rank 0 */
    ndp_metrics_file metrics;                  /* rank 0 */
    ndp_run_part part;                         /* what it did so far */
    ndp_run_file *file;                        /* run.json; rank 0, NULL: not yet */
    double save_seconds;                       /* of saves that no line of a step has */
    double waited;                             /* of them, those of the newest save */
    bool writing;                              /* all ranks: a rank's thread still wrote a save after the last step */
    ndp_tracker *tracker;                      /* rank 0; NULL: none */
    bool unwritable, untracked;                /* it was said that metrics.jsonl, a tracker, cannot be written */
    int stop_seconds;                          /* rank 0 in a batch system: from its SIGTERM to its SIGKILL; else -1 */
    bool slow;                                 /* it was said that a save takes longer than a stopped job has */
    bool plain;                                /* it was said that products are computed by a slow kernel */
    ndp_best best;                             /* rank 0: the evaluations so far */
    ndp_best_model in_best;                    /* rank 0: what is in best/ */
    bool enough;                               /* all ranks: train.stop_after ends the run after this step */
    bool begun;     /* the steps have begun: from here on, an error names the newest checkpoint */
    bool stop, due; /* all ranks: stop after this step; save after it */
    bool torn;      /* the weights are those of no step */
    struct {
        double losses[200];
        int64_t n; /* so far; loss i is in place i % 200 */
    } recent;      /* all ranks: finite losses of the steps of this process, for train.spike */
    struct {
        ndp_ids *prompts;  /* all ranks: train.sample_prompts; NULL: nothing is sampled */
        ndp_appended file; /* rank 0: samples.jsonl */
    } samples;
    struct {
        ndp_named_number *all; /* the classes of memory, then the units of the model; owned */
        int n;
        bool said; /* a step of this process has the memory */
    } more;
    char cause[1024]; /* all ranks: what a check has found in the newest step; "": it was not checked */
    struct {
        double seconds, part[NDP_COMPARED_PARTS]; /* of a step by its plan, with opts->cluster */
        double steps[NDP_COMPARED_STEPS], parts[NDP_COMPARED_PARTS][NDP_COMPARED_STEPS]; /* as measured */
        double before[NDP_COMPARED_PARTS]; /* the sums of the ops of all steps before */
    } planned;                             /* rank 0 */
    double next_save;                      /* rank 0: when checkpoint.minutes will have passed */
    int64_t saved, tried;                  /* step of the newest checkpoint, and of the newest attempt; -1: none */
    ndp_status own;                        /* rank 0's failure, which the ranks have not agreed on yet */
    ndp_status failed;                     /* the failure that ends the run, and its message */
    char why[2048];
} ndp_training_loop;

/* Keeps the first failure that all ranks have agreed on; the run ends with it. A later one is a warning. Returns `st`
 * if the ranks are apart: nothing collective may follow. */
ndp_status ndp_loop_keep(ndp_training_loop *l, ndp_status st);
/* Warns if a batch system leaves a stopped job less time than a save is likely to take. Before the first step. */
ndp_status ndp_loop_check_stop(ndp_training_loop *l);
/* Adds the newest checkpoint to an error. A bug keeps its trail instead. */
ndp_status ndp_loop_explain(const ndp_training_loop *l, ndp_status st, const char *why);

/* Collective, before the first step: what best/ and the evaluations of the runs before say. */
ndp_status ndp_loop_begin_best(ndp_training_loop *l);
/* Collective, after an evaluation: keeps its model if that is the best so far, and sets l->enough. */
ndp_status ndp_loop_judge(ndp_training_loop *l, const ndp_metrics *m);

/* bad_step.c. Collective, after a step that was not finite, whose weights are those before it: checks it, and returns
 * the error that names the cause. */
ndp_status ndp_loop_refuse_step(ndp_training_loop *l, const ndp_metrics *m);
/* Collective, after a step that has not been applied yet: checks it, and says what was found, if its loss is a spike.
 */
ndp_status ndp_loop_judge_loss(ndp_training_loop *l, const ndp_metrics *m);

/* more_metrics.c: the names of numbers that not every step has, and the planned memory. NDP_ENOMEM. */
ndp_status ndp_loop_open_more(ndp_training_loop *l);
/* Whether the norms of layers are measured after the step, before the next one is submitted; */
bool ndp_loop_measures_layers(const ndp_training_loop *l, int64_t step);
/* sets m->more, which lasts until the next step. Collective. */
ndp_status ndp_loop_add_more(ndp_training_loop *l, ndp_metrics *m);
void ndp_loop_close_more(ndp_training_loop *l);

/* plan_line.c: whether opts->cluster, if there is one, has devices for so many ranks, of the kind of theirs. */
ndp_status ndp_loop_check_cluster(const ndp_training_loop *l, int world);
/* Rank 0, before the first step: plans it. NDP_EINVAL: it cannot be. */
ndp_status ndp_loop_plan_step(ndp_training_loop *l);
/* Rank 0, after the line of each step: says the plan beside what was measured, once. */
void ndp_loop_compare_plan(ndp_training_loop *l, const ndp_metrics *m);
/* Whether the engine times its ops. */
static inline bool ndp_loop_times_ops(const ndp_training_loop *l) {
    return l->opts->profile || (l->opts->cluster && l->opts->trace);
}

/* samples.c: encodes the prompts. NDP_EINVAL: one is too long, or the job has no tokenizer. The ranks agree after it.
 */
ndp_status ndp_loop_encode_prompts(ndp_training_loop *l);
/* Rank 0: opens samples.jsonl, without the lines of steps from `first` on, which are written again. */
ndp_status ndp_loop_open_samples(ndp_training_loop *l, int64_t first);
void ndp_loop_close_samples(ndp_training_loop *l);
/* Whether texts are generated after the step; */
bool ndp_loop_samples(const ndp_training_loop *l, int64_t step);
/* does it, says them and writes their lines. A line that cannot be written is kept. Collective. */
ndp_status ndp_loop_sample(ndp_training_loop *l, int64_t step);

/* Says which step best/ is of, if that is kept. */
void ndp_loop_say_best(const ndp_training_loop *l);

/* Whether a checkpoint of the step is due by the configuration. */
bool ndp_loop_saves(const ndp_training_loop *l, int64_t step);
/* Where a save is written while steps go on, after a step: commits it, or takes note of its commit, if l->writing says
 * that it is time; and waits until it has ended. */
ndp_status ndp_loop_go_on_saving(ndp_training_loop *l);
ndp_status ndp_loop_end_save(ndp_training_loop *l);
/* Saves the newest step if that, a time or a stop asks for it. */
ndp_status ndp_loop_commit_if_due(ndp_training_loop *l);
/* Rank 0: gives the numbers of a step to the trackers and to metrics.jsonl. NDP_EINVAL: the lock is lost. */
ndp_status ndp_loop_write_line(ndp_training_loop *l, const ndp_metrics *m);
/* The last chance of a step that a failure has left unsaved. */
ndp_status ndp_loop_commit_rest(ndp_training_loop *l);

#endif
