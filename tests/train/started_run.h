/* A run that begins, or goes on from a checkpoint, and in which an operation of rank 0 may fail after a step. */
#ifndef NDP_TESTS_TRAIN_STARTED_RUN_H
#define NDP_TESTS_TRAIN_STARTED_RUN_H

#include "base/fault.h"
#include "check.h"

typedef struct started_run {
    const ndp_config *config;
    int64_t from;  /* -1: a new run; 0: resumes the newest checkpoint; else the one of that step */
    int64_t fails; /* after this step's line, the next operation of kind `fault` fails; 0: none */
    ndp_fault_kind fault;
} started_run;

static inline void started_step(void *user, const ndp_metrics *m, int64_t steps) {
    const started_run *r = user;
    (void)steps;
    if (m->step == r->fails)
        ndp_fault_arm(r->fault, 1);
}

static inline ndp_status started_rank(ndp_world *w, void *arg) {
    ndp_train_opts o = NDP_TRAIN_OPTS_INIT;
    started_run *r = arg;
    o.resume = r->from >= 0;
    o.resume_from = r->from > 0 ? r->from : -1;
    o.progress = started_step;
    o.user = r;
    return ndp_train(r->config, w, &o);
}

static inline void run_started(started_run r) { CHECK_OK(ndp_world_run(r.config, started_rank, &r)); }

#endif
