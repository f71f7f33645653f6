/* Runs from a job of a program with an architecture that no family has: trained in parts, which resume each other, on
 * any layouts; evaluated on held-out rows at the end of each part. */
#ifndef NDP_TESTS_VERIFY_PARTS_H
#define NDP_TESTS_VERIFY_PARTS_H

#include "train/tiny_run.h"

#include <math.h>
#include <ndparallel/ndparallel.h>

enum { STEPS = 6, CUT = 3 };

static inline void put_held(const char *folder) {
    tiny_put(folder, "held.txt", "There were 61 bears and 183 foxes, and they shared 3721 apples.\n");
}

typedef struct part {
    const ndp_config *config;
    int first, last; /* updates; a part that begins at 0 is not resumed, one that ends before STEPS saves */
    double *losses, held;
} part;

static inline ndp_status run_updates(ndp_trainer *t, part *p, bool first) {
    int64_t step = 0, tokens;
    double held;
    if (p->first > 0)
        NDP_TRY(ndp_trainer_resume(t, NULL, &step));
    assert_int_equal(step, p->first);
    for (int s = p->first; s < p->last; s++) {
        ndp_metrics m;
        NDP_TRY(ndp_trainer_step(t, &m));
        if (first)
            p->losses[s] = m.loss;
    }
    NDP_TRY(ndp_trainer_evaluate(t, &held, &tokens));
    if (first)
        p->held = held;
    return p->last > 0 && p->last < STEPS ? ndp_trainer_save(t, NULL) : NDP_OK;
}

static inline ndp_status run_rank(ndp_world *w, void *arg) {
    part *p = arg;
    ndp_trainer *t;
    NDP_TRY(ndp_trainer_create(p->config, w, &t));
    ndp_status st = run_updates(t, p, ndp_world_rank(w) == 0);
    ndp_trainer_destroy(t);
    return st;
}

static inline ndp_config *configure(const char *folder, const tiny_layout *l, const char *run, const char *optimizer) {
    ndp_config *c = tiny_configure(folder, l, run);
    tiny_set(c, "train.steps=%d", STEPS);
    tiny_set(c, "optimizer.name=%s", optimizer);
    tiny_set(c, "optimizer.lr=1e-2");
    tiny_set(c, "data.validation_files=[%s/held.txt]", folder);
    return c;
}

static inline void train_part(const ndp_config *c, int first, int last, double *losses) {
    part p = {c, first, last, losses, NAN};
    CHECK_OK(ndp_world_run(c, run_rank, &p));
    assert_true(isfinite(p.held));
}

static inline void run_part(const char *folder, const tiny_layout *l, const char *optimizer, const char *run, int first,
                            int last, double *losses) {
    ndp_config *c = configure(folder, l, run, optimizer);
    train_part(c, first, last, losses);
    ndp_config_destroy(c);
}

static inline ndp_status whole_run(ndp_world *w, void *c) {
    return ndp_train(c, w, &(ndp_train_opts)NDP_TRAIN_OPTS_INIT);
}

#endif
