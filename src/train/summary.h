/* Inside the train room: what a run prints when it ends, and RUN/run.json. */
#ifndef NDP_TRAIN_SUMMARY_H
#define NDP_TRAIN_SUMMARY_H

#include "train/trainer.h"

/* Where the time of this rank's process went. */
typedef struct ndp_run_part {
    double began, started, ended; /* the call of ndp_train, its first step, the end; by ndp_now, 0: not yet */
    double time;                  /* of `began`, seconds since 1970 */
    /* Seconds; log: writing lines, and measuring the machine's peak and what lines have. */
    double compute, communication, data, evaluation, saves, log;
    int64_t steps, first, last, tokens; /* how many steps; the first and the last, 0: none; tokens of all */
    double joules;                      /* of the devices of all ranks, since `started`; NaN: not known */
    double best;                        /* the lowest eval_loss of this process, and its step; 0: none */
    int64_t best_step;
} ndp_run_part;

/* Adds a step. One of a process before has no seconds, only its evaluation. */
void ndp_run_part_add(ndp_run_part *p, const ndp_metrics *m);

/* "ndparallel 0.1.0 (1a2b3c4), host node-1, process 4711, 2026-01-31 12:00:00" */
void ndp_run_introduce(char out[160]);

/* The lines of a run that has ended, which the caller frees; NULL: not enough memory. */
char *ndp_run_summarize(const ndp_trainer *t, const ndp_run_part *p);

/* profile.c: the table of `train --profile`, of steps since ndp_engine_profile_reset(engine, true). *text: its lines,
 * on rank 0; the caller frees it; NULL on other ranks, and if there was no step. Collective over t->rank.world. */
NDP_API ndp_status ndp_trainer_profile(const ndp_trainer *t, const ndp_run_part *p, char **text);

typedef struct ndp_run_file ndp_run_file;
/* Collects what run.json says of the ranks, and writes it: version, command, hosts, layout, memory, hashes of what it
 * reads, and a part for each start of the run. A run.json of the parts before is kept. A thread hashes the weights that
 * a new run begins with, unless its identity has their hash. Collective over the world; *out is NULL but on rank 0. */
NDP_API ndp_status ndp_run_file_open(const ndp_trainer *t, const ndp_run_part *p, ndp_run_file **out);
/* Writes it again, with what the part has done so far, if the newest checkpoint, of step `saved`, is another than at
 * the last writing. NULL is fine. */
void ndp_run_file_update(ndp_run_file *f, const ndp_trainer *t, const ndp_run_part *p, int64_t saved);
/* The same at the end of the part, and why: `st`, its error message if it is not NDP_OK. A failure is a warning:
 * run.json is for readers alone. Closes it. */
void ndp_run_file_close(ndp_run_file *f, const ndp_trainer *t, const ndp_run_part *p, int64_t saved, ndp_status st);

#endif
