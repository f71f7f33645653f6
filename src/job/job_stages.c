/* The pipeline of a job: its table of actions, and its stages, which are the same on every rank and every resume. Only
 * jobs whose pp is above 1 have them. */
#include "job/job.h"

#include "parallel/stage_cut.h"

#include <stdlib.h>
#include <string.h>

static ndp_status make_table(ndp_job *j) {
    const ndp_config *c = j->config;
    int pp = j->layout.size[NDP_PP], m = j->batch.accumulation, v = c->pipeline.virtual_stages;
    if (c->pipeline.schedule != NDP_PIPELINE_FILE)
        return ndp_pipeline_make(c->pipeline.schedule, pp, v ? v : ndp_pipeline_table[c->pipeline.schedule].fewest, m,
                                 &j->pipeline);
    NDP_TRY(ndp_pipeline_read(c->pipeline.file, m, &j->pipeline));
    NDP_CHECK(j->pipeline.ranks == pp, "%s has %d rows; parallelism.pp_size is %d: the file needs one row per rank",
              c->pipeline.file, j->pipeline.ranks, pp);
    return NDP_OK;
}

/* The layers of each stage, if pipeline.stages lists them; *n 0: auto. */
static ndp_status read_layers(const ndp_strings *stages, int **layers, int *n) {
    *n = stages->n == 1 && strcmp(stages->items[0], "auto") == 0 ? 0 : stages->n;
    *layers = calloc((size_t)*n + 1, sizeof **layers);
    NDP_CHECK_MEMORY(*layers, "for %d stages", *n);
    for (int i = 0; i < *n; i++) {
        char *end;
        long value = strtol(stages->items[i], &end, 10);
        NDP_CHECK(
            *end == '\0' && end != stages->items[i] && value >= 1 && value <= NDP_MOST_STAGES,
            "pipeline.stages: '%s' is not a number of layers; list one for each stage, such as [12, 10, 8], or auto",
            stages->items[i]);
        (*layers)[i] = (int)value;
    }
    return NDP_OK;
}

static ndp_status cut(ndp_job *j, const ndp_model *m, const int *layers, int n) {
    ndp_engine_opts e;
    const ndp_rates rates = NDP_RATES_INIT; /* never measured: every resume makes the same cut */
    const ndp_price price = ndp_price_by_rates(&rates);
    ndp_unit_cost *costs = calloc((size_t)m->n_units, sizeof *costs);
    j->first_unit = calloc((size_t)j->pipeline.stages + 1, sizeof *j->first_unit);
    ndp_status st = NDP_MEMORY(costs && j->first_unit, "for the stages");
    if (st == NDP_OK)
        st = ndp_job_engine(j, 0, NULL, &e);
    if (st == NDP_OK && n == 0)
        st = ndp_unit_costs(m, &e.step.mesh, &e.step.parallel, e.step.recompute, &price, costs);
    if (st == NDP_OK)
        st = ndp_stage_cut(m, costs, j->pipeline.stages, layers, n, j->first_unit);
    free(costs);
    return st;
}

ndp_status ndp_job_cut(ndp_job *j) {
    ndp_model m;
    int *layers = NULL, n;
    if (j->layout.size[NDP_PP] == 1)
        return NDP_OK;
    NDP_TRY(make_table(j));
    NDP_TRY(ndp_pipeline_forward(&j->pipeline, 2 * j->pipeline.ranks, &j->forward));
    NDP_TRY(ndp_model_build(&j->spec, &j->model, &m));
    ndp_status st = read_layers(&j->config->pipeline.stages, &layers, &n);
    if (st == NDP_OK)
        st = cut(j, &m, layers, n);
    j->stages = (ndp_stages){j->pipeline.stages, j->first_unit, j->pipeline.rank_of};
    if (st == NDP_OK)
        st = ndp_stages_ties(&m, &j->stages, &j->ties);
    free(layers);
    ndp_model_release(&m);
    return st;
}

/* The mean share of a step that the ranks of the pipeline wait for each other, where each action takes as long; 0
 * without one. NDP_ENOMEM. */
static ndp_status bubble_of(const ndp_job *j, double *share) {
    const ndp_pipeline *p = &j->pipeline;
    ndp_pipeline_times t;
    double *ones = malloc((size_t)(p->stages + 1) * sizeof *ones);
    *share = 0;
    for (int i = 0; ones && i < p->stages; i++)
        ones[i] = 1;
    ndp_status st = !ones       ? NDP_FAIL(NDP_ENOMEM, "not enough memory for %d stages", p->stages)
                    : !p->ranks ? NDP_OK
                                : ndp_pipeline_replay(p, &(ndp_pipeline_costs){ones, ones, ones, 0}, &t);
    for (int r = 0; r < p->ranks && st == NDP_OK; r++)
        *share += t.idle[r] / t.makespan / p->ranks;
    if (p->ranks && st == NDP_OK)
        ndp_pipeline_times_release(&t);
    free(ones);
    return st;
}

void ndp_job_note_bubble(const ndp_job *j, ndp_str *out) {
    double share;
    if (j->config->train.own_batches && j->batch.accumulation < j->pipeline.ranks && bubble_of(j, &share) == NDP_OK)
        ndp_str_addf(out,
                     "note: a call has %d micro-batch%s for %d pipeline ranks, which wait %.0f%% of it (%s); each call "
                     "flushes the pipeline: raise batch.global_batch_size, or lower batch.micro_batch_size, to %d "
                     "micro-batches or more\n",
                     j->batch.accumulation, j->batch.accumulation == 1 ? "" : "es", j->pipeline.ranks, 100 * share,
                     j->pipeline.name, j->pipeline.ranks);
}
