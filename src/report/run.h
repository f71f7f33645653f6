/* A run folder as others see it, during a run or after it. Only reads: a run may be writing there. */
#ifndef NDP_REPORT_RUN_H
#define NDP_REPORT_RUN_H

#include "report/run_metrics.h"

typedef enum ndp_run_state {
    NDP_RUN_RUNNING,   /* a live process of this host holds the lock */
    NDP_RUN_ELSEWHERE, /* a process that this host does not see holds the lock; whether it lives takes time to know */
    NDP_RUN_DONE,      /* all steps are there */
    NDP_RUN_STOPPED,   /* not all steps, and no lock */
    NDP_RUN_DIED       /* not all steps, and the lock is that of a dead process */
} ndp_run_state;
/* "running", "running?", "done", "stopped", "died". */
const char *ndp_run_state_word(ndp_run_state state);

/* A key of a job file that a run has written, "optimizer.lr", and the text of its value. */
typedef struct ndp_job_key {
    char *key, *value;
} ndp_job_key;

enum { NDP_RUN_TAIL = 64 };
typedef struct ndp_run_view {
    char *folder, *job; /* job: the text of job.yaml */
    ndp_job_key *keys;
    int64_t n_keys, capacity;
    ndp_run_state state;
    int64_t step, steps; /* of the newest line or checkpoint; of the job, 0: unknown, of epochs without a checkpoint */
    double age;          /* seconds since the newest line was written; NaN: there is none */
    struct json_object *record; /* of run.json; NULL: there is none, or it cannot be read: a run may be writing it */
    ndp_run_metrics metrics;
    int64_t beat;        /* the counter of the lock, of a run elsewhere */
    size_t read, n_tail; /* of ndp_run_read_on: the bytes of metrics.jsonl that are in `metrics`, and their last ones */
    char tail[NDP_RUN_TAIL];
    bool cut; /* behind them is a line without an end */
} ndp_run_view;

/* True for a folder with a job.yaml and a metrics.jsonl or a lock. */
bool ndp_run_is_there(const char *folder);
/* Reads a run's job, state and metrics: all of them, or (`newest`) the newest line and evaluation. NDP_EINVAL: the
 * folder is no run's; names what is missing. Released by the caller, after an error too. */
NDP_API ndp_status ndp_run_read(const char *folder, bool newest, ndp_run_view *out);
/* Reads on in a run that this function alone reads, `{.folder}` at first, which is owned: of metrics.jsonl, the whole
 * lines that it has gained; all lines if it is another file by now, as after a resume from an earlier step, or after an
 * error. */
NDP_API ndp_status ndp_run_read_on(ndp_run_view *r);
void ndp_run_release(ndp_run_view *r);

/* The value of a key of the job; NULL: there is no such key. */
const char *ndp_run_job_value(const ndp_run_view *r, const char *key);

#endif
