/* Updates of the user's own: any number of calls, each the whole schedule of a step, then the norm and the update. The
 * step program is that of a training run (step/engine.h: ndp_step_input); rows have weights (ndp_model_opts.own_rows).
 *
 * Each function first lets all ranks agree that its call is in order: a rank that refused it alone would leave the
 * others waiting. */
#include "train/own_batches.h"

#include "base/clock.h"
#include "base/text.h"
#include "checkpoint/agree.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_own(const ndp_trainer *t) { return t->rank.job.config->train.own_batches; }

ndp_status ndp_own_check(const ndp_trainer *t) {
    return is_own(t)
               ? NDP_OK
               : NDP_FAIL(NDP_EINVAL, "the trainer draws its own batches; set train.own_batches: true before it is "
                                      "made, to give yours");
}

static const ndp_mesh *mesh_of(const ndp_trainer *t) { return &ndp_engine_program(t->engine)->opts.step.mesh; }
static int data_rank(const ndp_trainer *t) { return ndp_mesh_group(mesh_of(t), NDP_GROUP_DATA).rank; }

/* ---- what the layout makes of a call ---- */

ndp_status ndp_trainer_shape(const ndp_trainer *t, ndp_loop_shape *out) {
    NDP_NOT_NULL(t, out);
    const ndp_batch_shape *b = &t->rank.feed.shape;
    *out = (ndp_loop_shape){.length = t->rank.job.config->data.sequence_length,
                            .global = b->global,
                            .own = b->global / b->data_ranks,
                            .micro = (int)b->micro,
                            .accumulation = t->rank.job.batch.accumulation,
                            .data_rank = data_rank(t),
                            .data_ranks = (int)b->data_ranks,
                            .vocabulary = t->rank.job.spec.vocab,
                            .consumed = t->samples};
    return NDP_OK;
}

ndp_status ndp_trainer_sample(ndp_trainer *t, int64_t sample, int32_t *ids, int32_t *labels, int32_t *positions,
                              int32_t *documents) {
    NDP_NOT_NULL(t, ids);
    const ndp_dataset *data = t->rank.data.dataset;
    int64_t length = t->rank.job.config->data.sequence_length;
    NDP_CHECK(data, "the job has no data of its own: data.files is empty");
    NDP_CHECK(sample >= 0, "there is no sample %lld", (long long)sample);
    int32_t *room = malloc(4 * (size_t)length * sizeof *room);
    NDP_CHECK_MEMORY(room, "for a sample of %lld tokens", (long long)length);
    int64_t row = ndp_sampler_row(&t->rank.data.sampler, sample), n = ndp_dataset_row_tokens(data, row);
    int32_t *parts[] = {room, room + length, room + 2 * length, room + 3 * length};
    ndp_status st = ndp_dataset_row(data, row, parts[0], parts[1], parts[2], parts[3]);
    for (int64_t s = n; s < length; s++)
        parts[3][s] = -1;
    int32_t *out[] = {ids, labels, positions, documents};
    for (int k = 0; k < 4 && st == NDP_OK; k++)
        if (out[k])
            memcpy(out[k], parts[k], (size_t)length * sizeof *room);
    free(room);
    return st;
}

/* ---- an update ---- */

/* The backward runs unscaled, and the update divides. */
static bool divides_late(const ndp_update_opts *o) { return o->calls != 1 && o->divide != NDP_DIVIDE_NUMBER; }

static ndp_status check_opts(const ndp_trainer *t, const ndp_update_opts *o) {
    NDP_TRY(ndp_own_check(t));
    NDP_CHECK(o->divide >= NDP_DIVIDE_TOKENS && o->divide <= NDP_DIVIDE_NUMBER, "there is no ndp_divide %d",
              (int)o->divide);
    NDP_CHECK(o->divide != NDP_DIVIDE_NUMBER || (isfinite(o->divide_by) && o->divide_by != 0),
              "divide_by is %g; it must be finite and not 0", o->divide_by);
    NDP_CHECK(isnan(o->lr) || isfinite(o->lr), "lr is %g", o->lr);
    NDP_CHECK(isnan(o->max_grad_norm) || (isfinite(o->max_grad_norm) && o->max_grad_norm >= 0),
              "max_grad_norm is %g; it must be finite and at least 0", o->max_grad_norm);
    NDP_CHECK(o->calls >= 0, "an update of %d calls", o->calls);
    if (o->calls != 1 && ndp_program_has_router_losses(ndp_engine_program(t->engine)))
        return NDP_FAIL(NDP_ENOTSUP, "updates of several calls are not supported with moe.balance or moe.z_loss, whose "
                                     "losses are means over one call: make one call, or set moe.balance: none and "
                                     "moe.z_loss: 0");
    if (o->calls != 1 && t->rank.job.config->moe.bias_rate > 0)
        return NDP_FAIL(NDP_ENOTSUP, "updates of several calls are not supported with moe.bias_rate, which counts the "
                                     "choices of experts in one call: make one call, or set moe.bias_rate: 0");
    return NDP_OK;
}

ndp_status ndp_trainer_begin(ndp_trainer *t, const ndp_update_opts *opts) {
    NDP_NOT_NULL(t);
    const ndp_update_opts o = opts ? *opts : (ndp_update_opts)NDP_UPDATE_OPTS_INIT;
    NDP_TRY(ndp_agree(t->rank.world, check_opts(t, &o)));
    memset(&t->own, 0, sizeof t->own);
    t->own.opts = o;
    t->own.begun = t->own.finite = true;
    t->own.started = ndp_now();
    return NDP_OK;
}

static double lr_of(const ndp_trainer *t) {
    const ndp_job *job = &t->rank.job;
    return isnan(t->own.opts.lr) ? ndp_trainer_lr(job->config, t->rank.data.steps, t->updates) : t->own.opts.lr;
}

/* `scale`: of the gradient. A sum that is not finite makes the norm so: then nothing is applied. */
static ndp_step_input input_of(const ndp_trainer *t, double scale) {
    const ndp_update_opts *o = &t->own.opts;
    double own = t->rank.job.config->optimizer.max_grad_norm;
    return (ndp_step_input){.lr = lr_of(t),
                            .update = t->updates,
                            .own_norm = true,
                            .max_norm = isnan(o->max_grad_norm) ? own : o->max_grad_norm,
                            .scale = t->own.finite ? scale : NAN};
}

/* One over it, as the op loss_scale has it; 0 where nothing is trained on. */
static double scale_of(double divisor) { return divisor != 0 ? 1.0 / divisor : 0; }

static double divisor_of(const ndp_update_opts *o, int64_t tokens, double weights) {
    return o->divide == NDP_DIVIDE_NUMBER ? o->divide_by : o->divide == NDP_DIVIDE_SUM ? weights : (double)tokens;
}

static ndp_status check_sum(const ndp_update_opts *o, double weights) {
    NDP_CHECK(o->divide != NDP_DIVIDE_SUM || (weights != 0 && isfinite(weights)),
              "the sum of the weights is %g, which the loss cannot be divided by; divide by a number", weights);
    return NDP_OK;
}

/* ---- a call ---- */

ndp_status ndp_own_check_call(const ndp_trainer *t) {
    NDP_TRY(ndp_own_check(t));
    NDP_CHECK(t->own.begun, "no update was begun: call ndp_trainer_begin first");
    NDP_CHECK(!t->own.normed, "the norm of this update was asked for, so it takes no more calls");
    NDP_CHECK(!t->own.closed, "the update was begun for %d call%s, and has had them", t->own.opts.calls,
              t->own.opts.calls == 1 ? "" : "s");
    return NDP_OK;
}

static ndp_status load_call(ndp_trainer *t, const ndp_own_rows *list) {
    ndp_feed *f = &t->rank.feed;
    for (int m = 0; m < t->rank.job.batch.accumulation; m++) {
        for (int64_t j = 0; j < f->shape.micro; j++) {
            int64_t i = ndp_own_rows_at(t, list->global, m, data_rank(t), j),
                    sample = ndp_sample_index(&f->shape, 0, m, data_rank(t), j);
            f->rows[j] = (ndp_feed_row){.row = -1,
                                        .update = t->updates,
                                        .sample = sample,
                                        .index = t->samples + t->own.samples + sample,
                                        .own = i < list->n ? &list->rows[i] : NULL};
        }
        NDP_TRY(ndp_feed_load(f));
        NDP_TRY(ndp_engine_load(t->engine, m, &f->whole));
    }
    return NDP_OK;
}

ndp_status ndp_own_run_call(ndp_trainer *t, const ndp_own_rows *list, const ndp_loss_function *loss, double *sum) {
    ndp_step_input in = input_of(t, 1);
    ndp_step_result r;
    if (loss)
        in.loss = *loss;
    NDP_TRY(ndp_agree(t->rank.world, load_call(t, list)));
    in.adds = t->own.calls > 0;
    in.open = divides_late(&t->own.opts) || t->own.opts.calls != t->own.calls + 1;
    ndp_status st = ndp_engine_submit(t->engine, &in);
    if (st == NDP_OK)
        st = ndp_engine_result(t->engine, &r);
    t->rank.apart |= st != NDP_OK;
    NDP_TRY(st);
    *sum = r.sum;
    t->own.calls++;
    t->own.closed = t->own.opts.calls == t->own.calls;
    t->own.norm = in.open ? NAN : r.grad_norm;
    t->own.finite &= isfinite(r.sum);
    return NDP_OK;
}

void ndp_own_count_call(ndp_trainer *t, const ndp_own_totals *totals) {
    t->own.samples += totals->samples;
    t->own.tokens += totals->tokens;
    t->own.weights += totals->weights;
}

ndp_status ndp_own_run_weighted(ndp_trainer *t, const ndp_own_rows *list, const ndp_loss_function *loss,
                                ndp_call_info *info) {
    const ndp_update_opts *o = &t->own.opts;
    ndp_own_totals totals;
    double sum;
    NDP_TRY(ndp_own_rows_totals(t, list, &totals));
    double divisor = divides_late(o) ? 1 : divisor_of(o, totals.tokens, totals.weights), scale = scale_of(divisor);
    if (!divides_late(o))
        NDP_TRY(check_sum(o, totals.weights)); /* on all ranks alike */
    for (int64_t i = 0; i < list->n; i++)
        list->rows[i].scale = scale;
    NDP_TRY(ndp_own_run_call(t, list, loss, &sum));
    ndp_own_count_call(t, &totals);
    t->own.sum += sum;
    *info = (ndp_call_info){sum * scale, sum, totals.weights, totals.tokens};
    return NDP_OK;
}

ndp_status ndp_trainer_forward_backward(ndp_trainer *t, const ndp_batch *batches, int n, ndp_call_info *info) {
    ndp_own_rows list;
    ndp_call_info unread;
    NDP_NOT_NULL(t);
    if (n > 0)
        NDP_NOT_NULL(batches);
    ndp_status st = ndp_own_rows_read(t, batches, n, true, ndp_own_check_call(t), &list);
    if (st == NDP_OK)
        st = ndp_own_run_weighted(t, &list, NULL, info ? info : &unread);
    ndp_own_rows_release(&list);
    return st;
}

/* ---- the norm, and the update ---- */

static ndp_status check_norm(const ndp_trainer *t) {
    NDP_TRY(ndp_own_check(t));
    NDP_CHECK(t->own.begun, "no update was begun: call ndp_trainer_begin first");
    NDP_CHECK(t->own.calls > 0, "the update has no gradient: call ndp_trainer_forward_backward first");
    if (divides_late(&t->own.opts))
        NDP_TRY(check_sum(&t->own.opts, t->own.weights));
    return NDP_OK;
}

/* What the update divides by, after its calls. */
static double late_divisor(const ndp_trainer *t) {
    return divides_late(&t->own.opts) ? divisor_of(&t->own.opts, t->own.tokens, t->own.weights) : 1;
}

double ndp_own_gradient_scale(const ndp_trainer *t) { return t->own.normed ? scale_of(late_divisor(t)) : 1; }

static ndp_status find_norm(ndp_trainer *t) {
    const ndp_step_input in = input_of(t, scale_of(late_divisor(t)));
    NDP_TRY(ndp_agree(t->rank.world, check_norm(t)));
    if (!t->own.normed && isnan(t->own.norm) && !(t->own.closed && !divides_late(&t->own.opts))) {
        ndp_status st = ndp_engine_norm(t->engine, &in, &t->own.norm);
        t->rank.apart |= st != NDP_OK;
        NDP_TRY(st);
    }
    t->own.normed = true;
    return NDP_OK;
}

ndp_status ndp_trainer_norm(ndp_trainer *t, double *norm) {
    NDP_NOT_NULL(t, norm);
    NDP_TRY(find_norm(t));
    *norm = t->own.norm;
    return NDP_OK;
}

static ndp_update_info info_of(const ndp_trainer *t) {
    const ndp_update_opts *o = &t->own.opts;
    double divisor = divisor_of(o, t->own.tokens, t->own.weights);
    bool applied = t->own.finite && isfinite(t->own.norm);
    return (ndp_update_info){.step = t->updates + applied,
                             .loss = t->own.sum * scale_of(divisor) + t->own.loss,
                             .grad_norm = t->own.norm,
                             .lr = lr_of(t),
                             .divided_by = divisor,
                             .tokens = t->own.tokens,
                             .calls = t->own.calls,
                             .applied = applied};
}

ndp_status ndp_trainer_update(ndp_trainer *t, ndp_update_info *out) {
    NDP_NOT_NULL(t);
    NDP_TRY(find_norm(t));
    ndp_step_input in = input_of(t, scale_of(late_divisor(t)));
    in.update_weights = true;
    ndp_status st = ndp_engine_update(t->engine, &in);
    t->rank.apart |= st != NDP_OK;
    NDP_TRY(st);
    const ndp_update_info info = info_of(t);
    t->updates += info.applied;
    t->samples += t->own.samples;
    t->tokens += t->tokens >= 0 ? info.tokens : 0;
    t->newest = (ndp_metrics){.step = info.applied ? t->updates : 0,
                              .loss = info.loss,
                              .grad_norm = info.grad_norm,
                              .lr = info.lr,
                              .tokens = info.tokens,
                              .tokens_total = t->tokens > 0 ? t->tokens : 0,
                              .time = ndp_time(),
                              .step_seconds = ndp_now() - t->own.started,
                              .tokens_per_second = (double)info.tokens / (ndp_now() - t->own.started),
                              .eval_loss = NAN};
    t->own.begun = false;
    if (out)
        *out = info;
    return NDP_OK;
}
