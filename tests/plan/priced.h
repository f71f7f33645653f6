/* What tests of prices share: a small job on a cluster that may be changed, and the programs of its stages. */
#ifndef TESTS_PLAN_PRICED_H
#define TESTS_PLAN_PRICED_H

#include "base/rng.h"
#include "plan/odd_job.h"
#include "plan/step_time.h"

#include <math.h>

/* Stays where it is. */
typedef struct priced {
    ndp_config *config;
    ndp_job job;
    ndp_cluster_plan links;
    ndp_dry_run run;
    ndp_device_price price;
    ndp_model model;
} priced;

/* For p->config, whose job is legal. Of processors, whose numbers are measured, others that stay the same. */
static inline void priced_open(priced *p, const char *cluster) {
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    o.cluster = cluster;
    CHECK_OK(ndp_cluster_plan_open(&p->job, &o, &p->links));
    ndp_cluster *c = &p->links.cluster;
    if (ndp_cluster_of_hosts(c)) {
        c->facts.flops[NDP_RATE_FP32] = c->facts.flops[NDP_RATE_BF16] = 1e12;
        c->facts.memory_bytes = 64e9, c->facts.memory_bandwidth = 50e9, c->facts.call_seconds = 1e-6;
        c->efficiency = (ndp_efficiency){0.8, 0.5, 0.8, 0.8, 0.8};
    }
    CHECK_OK(ndp_dry_run_init(&p->run, &p->job, ndp_rank_map_block(&p->links.map), 0));
    p->links.rings = !p->run.device.host_memory && !p->run.exec.staged;
    CHECK_OK(ndp_device_price_init(&p->run, &p->links, &p->price));
    CHECK_OK(ndp_model_build(&p->job.spec, &p->job.model, &p->model));
}

/* After the cluster or the programs have changed. */
static inline void priced_forget(priced *p) {
    ndp_device_price_forget(&p->price);
    memset(p->links.known, 0, sizeof p->links.known);
}

static inline void priced_close(priced *p) {
    ndp_model_release(&p->model);
    ndp_device_price_release(&p->price);
    ndp_cluster_plan_release(&p->links);
    ndp_job_release(&p->job);
    ndp_config_destroy(p->config);
}

/* The programs of the first rank of each stage. */
enum { PRICED_STAGES = 8 };
typedef struct priced_programs {
    ndp_engine *engines[PRICED_STAGES];
    const ndp_program *items[PRICED_STAGES];
    int n, alike;
} priced_programs;

static inline priced_programs priced_build(priced *p, ndp_folding_rule fold) {
    priced_programs out = {.n = p->job.layout.size[NDP_PP]};
    assert_true(out.n <= PRICED_STAGES);
    out.alike = p->job.world / out.n;
    p->run.fold = fold;
    priced_forget(p);
    for (int i = 0; i < out.n; i++) {
        CHECK_OK(ndp_plan_engine(&p->run, &p->model, i * out.alike, &out.engines[i]));
        out.items[i] = ndp_engine_program(out.engines[i]);
    }
    return out;
}

static inline void priced_release(priced_programs *p) {
    for (int i = 0; i < p->n; i++)
        ndp_engine_destroy(p->engines[i]);
}

#endif
