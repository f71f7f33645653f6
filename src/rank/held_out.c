/* The loss of held-out rows: forward passes on the layout of the training, with its weights or those of a folder. */
#include "checkpoint/agree.h"
#include "rank/rank.h"

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
    int64_t each = (int64_t)r->shape.micro * r->shape.data_ranks, needed = (most_rows(r) + each - 1) / each;
    if (!r->job.forward.ranks || needed >= r->job.forward.micro_batches)
        return NDP_OK;
    ndp_pipeline_release(&r->job.forward);
    return ndp_pipeline_forward(&r->job.pipeline, (int)needed, &r->job.forward);
}

ndp_status ndp_rank_build_score(ndp_rank *r, const ndp_engine *trained) {
    ndp_engine_opts o;
    if (!r->data.held && !ndp_job_refers(&r->job))
        return NDP_OK;
    NDP_TRY(shorten_passes(r));
    NDP_TRY(ndp_job_score(&r->job, ndp_transport_rank(r->transport), &r->exec, trained, &r->score_model, &o));
    o.transport = r->transport;
    NDP_TRY(ndp_engine_create(&o, &r->score));
    ndp_weight_sources from = ndp_run_model_sources(r->weights_of, &r->job);
    return trained ? NDP_OK : ndp_weights_start(r->score, &from);
}

void ndp_rank_destroy_score(ndp_rank *r) {
    ndp_engine_destroy(r->score);
    ndp_model_release(&r->score_model);
    r->score = NULL;
}

/* This rank's rows of one pass over the rows [at, end), with empty ones after them. */
static ndp_status load_pass(ndp_rank *r, ndp_engine *e, const ndp_dataset *d, int64_t at, int64_t end) {
    const ndp_step_opts *step = &ndp_engine_program(e)->opts.step;
    int64_t micro = r->shape.micro, mine = ndp_mesh_group(&step->mesh, NDP_GROUP_DATA).rank * micro;
    for (int m = 0; m < step->accumulation; m++, at += micro * r->shape.data_ranks) {
        for (int64_t j = 0; j < micro; j++)
            r->rows[j] = at + mine + j < end ? at + mine + j : -1;
        NDP_TRY(ndp_rank_load_rows(r, d, r->rows));
        NDP_TRY(ndp_engine_load(e, m, &r->whole));
    }
    return NDP_OK;
}

/* The ranks agree before the pass, since a file of rows may fail on some of them, and none may wait in it for the
 * others then. */
ndp_status ndp_rank_score_pass(ndp_rank *r, ndp_engine *e, const ndp_dataset *d, int64_t at, int64_t end,
                               ndp_step_result *out) {
    NDP_TRY(ndp_agree(r->world, load_pass(r, e, d, at, end)));
    ndp_status st = ndp_engine_step(e, 0, 0, false, out);
    r->apart |= st != NDP_OK;
    return st;
}

/* Every row once, in order; the last pass is filled up with empty rows. A pass returns the mean over its tokens, and
 * passes are weighted by tokens, so the result does not depend on which rows a pass has. Of pairs it returns sums. */
ndp_status ndp_rank_score(ndp_rank *r, int source, int64_t most, ndp_step_result *sums) {
    int64_t at, n, each = (int64_t)r->shape.micro * r->shape.data_ranks;
    each *= ndp_engine_program(r->score)->opts.step.accumulation;
    bool pairs = r->job.model.preference.kind != NDP_PREFERENCE_NONE;
    ndp_dataset_source(r->data.held, source, &at, &n);
    n = most > 0 && most < n ? most : n;
    for (int64_t end = at + n; at < end; at += each) {
        ndp_step_result result;
        NDP_TRY(ndp_rank_score_pass(r, r->score, r->data.held, at, end, &result));
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

double ndp_rank_loss_of(const ndp_rank *r, const ndp_step_result *sums) {
    return r->job.model.preference.kind ? ndp_step_result_loss(sums, &r->job.model.preference)
                                        : sums->sums[NDP_PAIR_NLL] / (double)sums->tokens;
}
