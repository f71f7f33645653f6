/* The loss of held-out rows: forward passes on the layout of the training, with its weights or those of a folder. */
#include "checkpoint/agree.h"
#include "job/run_model.h"
#include "train/trainer.h"

/* Shortens the passes if no source has as many rows as a pass takes: the plan was made before the rows were known. */
static ndp_status shorten_passes(ndp_trainer *t) {
    int64_t each = (int64_t)t->shape.micro * t->shape.data_ranks, most = 0, first, n;
    for (int i = 0; i < ndp_dataset_sources(t->data.held); i++) {
        ndp_dataset_source(t->data.held, i, &first, &n);
        most = n > most ? n : most;
    }
    int64_t needed = (most + each - 1) / each;
    if (!t->job.forward.ranks || needed >= t->job.forward.micro_batches)
        return NDP_OK;
    ndp_pipeline_release(&t->job.forward);
    return ndp_pipeline_forward(&t->job.pipeline, (int)needed, &t->job.forward);
}

ndp_status ndp_trainer_build_score(ndp_trainer *t) {
    ndp_engine_opts o;
    NDP_TRY(shorten_passes(t));
    NDP_TRY(ndp_job_score(&t->job, ndp_transport_rank(t->transport), &t->exec, t->engine, &t->score_model, &o));
    o.transport = t->transport;
    NDP_TRY(ndp_engine_create(&o, &t->score));
    return t->engine       ? NDP_OK
           : t->weights_of ? ndp_weights_load_set(t->score, ndp_run_model_weights(t->weights_of), t->weights_of->type)
                           : ndp_weights_load(t->score, t->job.model_folder);
}

/* This rank's rows of one pass over the rows [at, end), with empty ones after them. */
static ndp_status load_pass(ndp_trainer *t, int64_t at, int64_t end) {
    const ndp_step_opts *step = &ndp_engine_program(t->score)->opts.step;
    int64_t micro = t->shape.micro, mine = ndp_mesh_group(&step->mesh, NDP_GROUP_DATA).rank * micro;
    for (int m = 0; m < step->accumulation; m++, at += micro * t->shape.data_ranks) {
        for (int64_t j = 0; j < micro; j++)
            t->rows[j] = at + mine + j < end ? at + mine + j : -1;
        NDP_TRY(ndp_trainer_load_rows(t, t->data.held, t->rows));
        NDP_TRY(ndp_engine_load(t->score, m, &t->whole));
    }
    return NDP_OK;
}

/* Every row once, in order; the last pass is filled up with empty rows. A pass returns the mean over its tokens, and
 * passes are weighted by tokens, so the result does not depend on which rows a pass has. The ranks agree before each
 * pass, since a file of rows may fail on some of them, and none may wait in a pass for the others then. */
ndp_status ndp_trainer_score(ndp_trainer *t, int source, double *nll, int64_t *tokens) {
    int64_t at, n, each = (int64_t)t->shape.micro * t->shape.data_ranks;
    each *= ndp_engine_program(t->score)->opts.step.accumulation;
    *nll = 0;
    *tokens = 0;
    ndp_dataset_source(t->data.held, source, &at, &n);
    for (int64_t end = at + n; at < end; at += each) {
        ndp_step_result r;
        NDP_TRY(ndp_agree(t->world, load_pass(t, at, end)));
        ndp_status st = ndp_engine_step(t->score, 0, 0, false, &r);
        t->apart |= st != NDP_OK;
        NDP_TRY(st);
        *nll += r.loss * (double)r.tokens;
        *tokens += r.tokens;
    }
    return NDP_OK;
}

ndp_status ndp_trainer_evaluate(ndp_trainer *t, double *loss, int64_t *tokens) {
    NDP_CHECK(t->data.held, "nothing is held out; set data.validation_fraction or data.validation_files");
    double sum = 0, nll;
    int64_t counted = 0, n;
    for (int i = 0; i < ndp_dataset_sources(t->data.held); i++, sum += nll, counted += n)
        NDP_TRY(ndp_trainer_score(t, i, &nll, &n));
    *loss = sum / (double)counted;
    *tokens = counted;
    return NDP_OK;
}
