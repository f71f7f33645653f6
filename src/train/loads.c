/* How evenly the experts of each mixture were chosen in an update, as metrics say it: the largest count divided by the
 * mean one, and the entropy of the distribution of choices over experts divided by that of an even one. */
#include "train/trainer.h"

#include "base/text.h"

#include <math.h>
#include <stdlib.h>

enum { LARGEST, ENTROPY, NUMBERS };
static const char *const keys[NUMBERS] = {"max_load", "load_entropy"};

/* Of n counts; both 0 where there are none. */
static void measure(const double *counts, int n, double out[NUMBERS]) {
    double sum = 0, most = 0, entropy = 0;
    for (int e = 0; e < n; e++)
        sum += counts[e], most = fmax(most, counts[e]);
    for (int e = 0; e < n && sum > 0; e++)
        entropy -= counts[e] > 0 ? counts[e] / sum * log(counts[e] / sum) : 0;
    out[LARGEST] = sum > 0 ? most * n / sum : 0;
    out[ENTROPY] = sum > 0 && n > 1 ? entropy / log(n) : sum > 0;
}

ndp_status ndp_trainer_open_loads(ndp_trainer *t) {
    const ndp_model *m = &t->model;
    t->n_loads = NUMBERS * m->inputs->mixtures.n;
    t->loads = calloc((size_t)t->n_loads + 1, sizeof *t->loads);
    for (int u = 0; u < m->n_units && t->loads && t->n_loads > 0; u++)
        for (int k = 0; k < NUMBERS && m->units[u].mixture != NDP_NONE; k++)
            if (!(t->loads[m->units[u].mixture * NUMBERS + k].name =
                      ndp_arena_format(&t->model.arena, "%s/%s", keys[k], m->units[u].name)))
                return NDP_FAIL(NDP_ENOMEM, "not enough memory for names of numbers");
    return t->loads ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for %d numbers of mixtures", t->n_loads);
}

void ndp_trainer_take_loads(ndp_trainer *t, const double *loads, ndp_metrics *out) {
    const ndp_mixtures *m = &t->model.inputs->mixtures;
    for (int i = 0; i < t->n_loads / NUMBERS; i++) {
        double x[NUMBERS];
        measure(loads + (int64_t)i * m->experts, m->experts, x);
        for (int k = 0; k < NUMBERS; k++)
            t->loads[i * NUMBERS + k].value = x[k];
        out->max_load = fmax(out->max_load, x[LARGEST]);
        out->load_entropy = i == 0 ? x[ENTROPY] : fmin(out->load_entropy, x[ENTROPY]);
    }
    out->more = t->loads, out->n_more = t->n_loads;
}
