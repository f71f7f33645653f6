/* How evenly the experts of each mixture were chosen in an update, as metrics say it: the largest count divided by the
 * mean one, and the entropy of the distribution of choices over experts divided by that of an even one. With ep, in how
 * many rounds their rows went to other ranks: the mean of all ranks and micro-batches. */
#include "train/trainer.h"

#include "base/text.h"
#include "checkpoint/agree.h"

#include <math.h>
#include <stdlib.h>

enum { LARGEST, ENTROPY, ROUNDS, NUMBERS };
static const char *const keys[NUMBERS] = {"max_load", "load_entropy", "rounds"};

/* Of n counts; both 0 where there are none. */
static void measure(const double *counts, int n, double out[ROUNDS]) {
    double sum = 0, most = 0, entropy = 0;
    for (int e = 0; e < n; e++)
        sum += counts[e], most = fmax(most, counts[e]);
    for (int e = 0; e < n && sum > 0; e++)
        entropy -= counts[e] > 0 ? counts[e] / sum * log(counts[e] / sum) : 0;
    out[LARGEST] = sum > 0 ? most * n / sum : 0;
    out[ENTROPY] = sum > 0 && n > 1 ? entropy / log(n) : sum > 0;
}

/* Numbers of a mixture: rounds are the last one, and not of every run. */
static int numbers(const ndp_trainer *t) { return t->rounds ? NUMBERS : ROUNDS; }

ndp_status ndp_trainer_open_loads(ndp_trainer *t) {
    const ndp_model *m = &t->model;
    int n = m->inputs->mixtures.n;
    if (n > 0 && ndp_program_has_counts(ndp_engine_program(t->engine))) {
        t->rounds = calloc((size_t)n, sizeof *t->rounds);
        NDP_CHECK_MEMORY(t->rounds, "for rounds of %d mixtures", n);
    }
    t->n_loads = numbers(t) * n;
    t->loads = calloc((size_t)t->n_loads + 1, sizeof *t->loads);
    NDP_CHECK_MEMORY(t->loads, "for %d numbers of mixtures", t->n_loads);
    for (int u = 0; u < m->n_units && n > 0; u++)
        for (int k = 0; k < numbers(t) && m->units[u].mixture != NDP_NONE; k++)
            if (!(t->loads[m->units[u].mixture * numbers(t) + k].name =
                      ndp_arena_format(&t->model.arena, "%s/%s", keys[k], m->units[u].name)))
                return NDP_FAIL(NDP_ENOMEM, "not enough memory for names of numbers");
    return NDP_OK;
}

void ndp_trainer_take_loads(ndp_trainer *t, const ndp_step_result *r, ndp_metrics *out) {
    const ndp_mixtures *m = &t->model.inputs->mixtures;
    for (int i = 0; i < m->n; i++) {
        double x[ROUNDS];
        measure(r->loads + (int64_t)i * m->experts, m->experts, x);
        for (int k = 0; k < ROUNDS; k++)
            t->loads[i * numbers(t) + k].value = x[k];
        out->max_load = fmax(out->max_load, x[LARGEST]);
        out->load_entropy = i == 0 ? x[ENTROPY] : fmin(out->load_entropy, x[ENTROPY]);
        if (t->rounds)
            t->rounds[i] = (double)r->later[i];
    }
    out->more = t->loads, out->n_more = t->n_loads;
}

ndp_status ndp_trainer_take_rounds(ndp_trainer *t, ndp_metrics *out) {
    int n = t->model.inputs->mixtures.n;
    const ndp_job *job = &t->rank.job;
    double exchanges = (double)job->batch.accumulation * job->world / job->layout.size[NDP_PP];
    if (!t->rounds)
        return NDP_OK;
    NDP_TRY(ndp_reduce_now(t->rank.world, t->rounds, n, NDP_F64, NDP_SUM));
    for (int i = 0; i < n; i++) {
        double rounds = t->loads[i * NUMBERS + ROUNDS].value = 1 + t->rounds[i] / exchanges;
        out->rounds = fmax(out->rounds, rounds);
    }
    t->newest.rounds = out->rounds;
    return NDP_OK;
}
