/* The scoring engine, and the loss of held-out rows. Called by train/, verify/ and infer/. */
#include "score/score.h"

#include <stdlib.h>

/* The most rows that a forward pass may have to read: of one source, or of all for a reference. */
static int64_t most_rows(const ndp_rank *r) {
    int64_t most = ndp_job_refers(&r->job) && r->data.dataset ? ndp_dataset_rows(r->data.dataset) : 0, first, n;
    for (int i = 0; r->data.held && i < ndp_dataset_sources(r->data.held); i++) {
        ndp_dataset_source(r->data.held, i, &first, &n);
        most = n > most ? n : most;
    }
    return most;
}

/* Shortens the passes if no source has as many rows as a pass takes: the plan was made before the rows were known. */
static ndp_status shorten_passes(ndp_rank *r) {
    int64_t each = r->feed.shape.micro * r->feed.shape.data_ranks, needed = (most_rows(r) + each - 1) / each;
    needed = needed > 0 ? needed : 1;
    if (!r->job.forward.ranks || needed >= r->job.forward.micro_batches)
        return NDP_OK;
    ndp_pipeline_release(&r->job.forward);
    return ndp_pipeline_forward(&r->job.pipeline, (int)needed, &r->job.forward);
}

ndp_status ndp_score_build(ndp_score *s, ndp_rank *r, const ndp_engine *trained) {
    ndp_engine_opts o;
    *s = (ndp_score){.rank = r};
    bool own = trained && r->job.config->train.own_batches, samples = trained && r->job.config->train.sample_every > 0;
    if (!r->data.held && !ndp_job_refers(&r->job) && !samples && !own)
        return NDP_OK;
    if (!own)
        NDP_TRY(shorten_passes(r));
    NDP_TRY(ndp_job_score(&r->job, ndp_transport_rank(r->transport), &r->exec, trained, &s->model, &o));
    o.transport = r->transport;
    NDP_TRY(ndp_engine_create(&o, &s->engine));
    ndp_weight_sources from = ndp_run_model_sources(r->weights_of, &r->job);
    return trained ? NDP_OK : ndp_weights_start(s->engine, &from);
}

void ndp_score_destroy(ndp_score *s) {
    ndp_engine_destroy(s->engine);
    ndp_model_release(&s->model);
    free(s->references[0]);
    free(s->references[1]);
    free(s->mismatched[0]);
    free(s->mismatched[1]);
    free(s->scores);
    *s = (ndp_score){0};
}

/* ---- the loss ---- */

/* Every row once, in order. A pass returns the mean over its tokens, and passes are weighted by tokens, so the result
 * does not depend on which rows a pass has. Of pairs it returns sums. */
ndp_status ndp_score_held_out(ndp_score *s, int source, int64_t most, ndp_step_result *sums) {
    const ndp_dataset *held = s->rank->data.held;
    int64_t at, n, each = ndp_score_pass_rows(s);
    bool pairs = s->rank->job.model.preference.kind != NDP_PREFERENCE_NONE;
    ndp_dataset_source(held, source, &at, &n);
    n = most > 0 && most < n ? most : n;
    NDP_TRY(ndp_score_find_held_point(s, source, most));
    for (int64_t end = at + n; at < end; at += each) {
        ndp_step_result result;
        NDP_TRY(ndp_score_pass(s, ndp_score_dataset_row, held, at, end, &result));
        for (int i = 0; i < NDP_PAIR_SUMS && pairs; i++)
            sums->sums[i] += result.sums[i];
        if (!pairs)
            sums->sums[NDP_PAIR_NLL] += result.loss * (double)result.tokens;
        sums->tokens += result.tokens;
        sums->pairs += result.pairs;
        sums->nll_tokens += result.nll_tokens;
    }
    return NDP_OK;
}

double ndp_score_loss(const ndp_score *s, const ndp_step_result *sums) {
    const ndp_preference *p = &s->rank->job.model.preference;
    return p->kind ? ndp_step_result_loss(sums, p) : sums->sums[NDP_PAIR_NLL] / (double)sums->tokens;
}
