/* The whole run: run folder, steps, checkpoints, signals, metrics, the trained model.
 *
 *   step -> commit, if one is due -> everything that can fail: evaluation, metrics, the next batch; at the end, trace,
 * model
 *
 * So whatever fails, the weights are those of a finished step, and a run saves that step before it ends. Two kinds of
 * failure: one inside a step, or of a rank or transport, leaves the ranks apart, and the run ends at once with what was
 * committed (NDP_TRY). Any other is made that of all ranks by ndp_agree and kept; the run then ends in order (keep).
 *
 * Rank 0 takes the lock of the run folder and cleans it before any rank spends time. After each step all ranks sum
 * their stop flags, and rank 0 adds whether it is time for a checkpoint, so that they stop and save after the same
 * step. What rank 0 writes, it writes while it holds the lock.
 *
 * Saves may be written by threads while the steps go on (checkpoint.async). With their flags, the ranks sum whether one
 * still writes; after the first step at which none does, they commit the save. The next save and the end of the steps
 * wait for it. */
#include "train/loop.h"
#include "base/clock.h"
#include "base/log.h"
#include "checkpoint/agree.h"
#include "train/links.h"
#include "train/run_folder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- a step ---- */

static bool evaluates(const ndp_training_loop *l, int64_t step) {
    int every = l->config->train.eval_every;
    return l->trainer->rank.data.held && (step == l->trainer->rank.data.steps || (every > 0 && step % every == 0));
}

/* Whether the next step may be submitted. A device with a queue of its own gets one more before the host takes the
 * result of this one, and works meanwhile; not before an evaluation or a save, which need the weights as they are after
 * this step, nor after a stop. */
static bool may_submit(const ndp_training_loop *l) {
    const ndp_trainer *t = l->trainer;
    int64_t step = ndp_trainer_updates(t);
    if (l->stop || l->enough || l->failed != NDP_OK || step >= t->rank.data.steps)
        return false;
    if (t->pending.n == 0)
        return true;
    if (ndp_trainer_needs_weights(t) || t->late_update)
        return false;
    bool checked = step > 1 || !ndp_trainer_checks_policy(t); /* it reads what step 1 has loaded */
    return checked && !t->rank.exec.device->host_memory && t->pending.n == 1 && !l->due && !evaluates(l, step) &&
           !ndp_loop_samples(l, step) && !ndp_loop_measures_layers(l, step) && !ndp_loop_saves(l, step);
}

/* Sums what the ranks have seen, so that all of them stop, save and end after the same step. A failure of one becomes
 * that of all. */
static ndp_status sum_over_ranks(ndp_training_loop *l, ndp_status own, double *peak) {
    ndp_trainer *t = l->trainer;
    bool due = l->first && l->config->checkpoint.minutes > 0 && ndp_now() >= l->next_save;
    double sums[] = {l->opts->stop && *l->opts->stop, due, own != NDP_OK, *peak, ndp_trainer_save_works(t),
                     ndp_engine_energy(t->engine)};
    NDP_TRY(ndp_reduce_now(t->rank.world, sums, NDP_COUNT(sums), NDP_F64, NDP_SUM));
    l->stop |= sums[0] > 0;
    l->due |= sums[1] > 0;
    *peak = sums[3];
    l->writing = sums[4] > 0;
    l->part.joules = sums[5];
    return sums[2] > 0 ? ndp_loop_keep(l, ndp_agree(t->rank.world, own)) : NDP_OK;
}

/* A step begins once all ranks have read their part of its batch. */
static ndp_status submit_steps(ndp_training_loop *l) {
    while (may_submit(l)) {
        double none = 0;
        NDP_TRY(ndp_trainer_prepare_next(l->trainer));
        ndp_status own = l->own != NDP_OK ? l->own : ndp_trainer_load_next(l->trainer);
        NDP_TRY(sum_over_ranks(l, own, &none));
        if (!l->stop && l->failed == NDP_OK)
            NDP_TRY(ndp_trainer_submit_loaded(l->trainer));
    }
    return NDP_OK;
}

/* A step that is not finite was not applied: the weights are those of the step before. */
static ndp_status refuse_step(ndp_training_loop *l, const ndp_metrics *m) {
    bool whole;
    NDP_TRY(ndp_trainer_count_back(l->trainer, m->step - 1, &whole));
    l->torn = !whole;
    return ndp_loop_keep(l, ndp_loop_refuse_step(l, m));
}

/* Applies a step that waits for its loss to be judged; the update is a part of its time. */
static ndp_status apply_step(ndp_training_loop *l, ndp_metrics *m) {
    if (!l->trainer->late_update)
        return NDP_OK;
    double begin = ndp_now();
    NDP_TRY(ndp_loop_judge_loss(l, m));
    double judged = ndp_now();
    l->part.log += judged - begin;
    NDP_TRY(ndp_trainer_late_update(l->trainer));
    double update = ndp_now() - judged, whole = m->step_seconds + update;
    m->compute_seconds += update;
    m->tokens_per_second *= m->step_seconds / whole;
    m->mfu *= m->step_seconds / whole;
    m->step_seconds = whole;
    return NDP_OK;
}

static ndp_status take_step(ndp_training_loop *l, ndp_metrics *m) {
    NDP_TRY(ndp_trainer_result(l->trainer, m));
    double begin = ndp_now();
    l->trainer->peak.flops = ndp_trainer_own_peak(l->trainer);
    l->part.log += ndp_now() - begin;
    begin = ndp_now();
    NDP_TRY(sum_over_ranks(l, NDP_OK, &l->trainer->peak.flops));
    l->part.communication += ndp_now() - begin;
    l->cause[0] = '\0';
    NDP_TRY(isfinite(m->loss) && isfinite(m->grad_norm) ? apply_step(l, m) : refuse_step(l, m));
    m->cause = l->cause[0] ? l->cause : NULL;
    begin = ndp_now();
    NDP_TRY(ndp_loop_add_more(l, m));
    l->part.log += ndp_now() - begin;
    return NDP_OK;
}

/* ---- after the commit ---- */

/* Once. */
static void say_plain_products(ndp_training_loop *l) {
    const ndp_device *d = l->trainer->rank.exec.device;
    char first[128];
    long n = l->plain || !d->plain_products ? 0 : d->plain_products(first, sizeof first);
    if (n > 0)
        ndp_warn(&l->trainer->rank.log,
                 "%ld matrix products of this rank so far have no algorithm in cuBLASLt, and were computed without "
                 "tensor cores, slowly; the first: %s",
                 n, first);
    l->plain |= n > 0;
}

/* Evaluates where that is due, then writes the line of the step and shows it. */
static ndp_status report_step(ndp_training_loop *l, ndp_metrics *m) {
    if (evaluates(l, m->step) && l->failed == NDP_OK) {
        double begin = ndp_now();
        NDP_TRY(ndp_loop_keep(l, ndp_trainer_evaluate(l->trainer, &m->eval_loss, &m->eval_tokens)));
        m->evaluation_seconds = ndp_now() - begin;
    }
    if (ndp_loop_samples(l, m->step) && l->failed == NDP_OK) {
        double begin = ndp_now();
        NDP_TRY(ndp_loop_keep(l, ndp_loop_sample(l, m->step)));
        m->evaluation_seconds += ndp_now() - begin;
    }
    if (m->eval_tokens > 0) {
        double begin = ndp_now();
        m->eval_pair = l->trainer->held;
        NDP_TRY(ndp_loop_judge(l, m));
        l->save_seconds += ndp_now() - begin;
    }
    m->save_seconds = l->save_seconds;
    l->save_seconds = 0;
    ndp_run_part_add(&l->part, m);
    if (!l->first)
        return NDP_OK;
    double begin = ndp_now();
    ndp_run_file_update(l->file, l->trainer, &l->part, l->saved);
    ndp_status own = ndp_loop_write_line(l, m);
    l->own = l->own != NDP_OK ? l->own : own;
    if (l->opts->progress)
        l->opts->progress(l->opts->user, m, l->trainer->rank.data.steps);
    say_plain_products(l);
    ndp_loop_compare_plan(l, m);
    l->part.log += ndp_now() - begin;
    return NDP_OK;
}

static ndp_status run_steps(ndp_training_loop *l) {
    NDP_TRY(submit_steps(l));
    while (l->trainer->pending.n > 0) {
        ndp_metrics m;
        NDP_TRY(take_step(l, &m));
        NDP_TRY(ndp_loop_go_on_saving(l));
        NDP_TRY(ndp_loop_commit_if_due(l));
        NDP_TRY(report_step(l, &m));
        NDP_TRY(submit_steps(l));
    }
    return NDP_OK;
}

/* Frees the text; NULL is fine. */
static void say_lines(const ndp_training_loop *l, char *text) {
    char *rest = NULL;
    for (char *line = text ? strtok_r(text, "\n", &rest) : NULL; line; line = strtok_r(NULL, "\n", &rest))
        ndp_say(l->say, l->opts->user, "%s", line);
    free(text);
}

static ndp_status say_peak(const ndp_training_loop *l) {
    char *line = ndp_trainer_describe_peak(l->trainer);
    NDP_CHECK_MEMORY(line, "for a line");
    say_lines(l, line);
    return NDP_OK;
}

/* Measures the peak at the start, unless there is no step to do. */
static ndp_status measure_peak(const ndp_training_loop *l) {
    if (ndp_trainer_updates(l->trainer) >= l->trainer->rank.data.steps)
        return NDP_OK;
    NDP_TRY(ndp_trainer_measure_peak(l->trainer));
    return say_peak(l);
}

static ndp_status write_trace(const ndp_training_loop *l) {
    char *text;
    if (!l->opts->trace)
        return NDP_OK;
    NDP_TRY(ndp_trainer_trace(l->trainer, l->opts->trace, l->opts->trace_first, l->opts->trace_last, &text));
    say_lines(l, text);
    return NDP_OK;
}

static ndp_status export_model(const ndp_training_loop *l) {
    NDP_TRY(ndp_trainer_export(l->trainer, NULL));
    bool adapter = l->config->adapter.type != NDP_ADAPTER_NONE;
    ndp_say(l->say, l->opts->user, "%s: %s/%s, of step %lld", adapter ? "adapter" : "model",
            l->config->train.output_dir, adapter ? "adapter" : "model", (long long)ndp_trainer_updates(l->trainer));
    return NDP_OK;
}

/* All of it is tried, whatever fails: nothing here takes away the step that was committed. */
static ndp_status finish(ndp_training_loop *l) {
    NDP_TRY(ndp_loop_end_save(l));
    NDP_TRY(ndp_loop_commit_rest(l));
    ndp_status own = l->own;
    if (own == NDP_OK && l->metrics.file.missing > 0)
        own = ndp_appended_flush(&l->metrics.file);
    if (own == NDP_OK && l->samples.file.missing > 0)
        own = ndp_appended_flush(&l->samples.file);
    NDP_TRY(ndp_loop_keep(l, ndp_agree(l->trainer->rank.world, own)));
    if (l->stop || (!l->enough && ndp_trainer_updates(l->trainer) < l->trainer->rank.data.steps))
        return NDP_OK;
    NDP_TRY(ndp_loop_keep(l, write_trace(l)));
    bool grown = l->trainer->peak.flops > 1.01 * l->trainer->peak.first; /* since it was first printed */
    NDP_TRY(ndp_loop_keep(l, ndp_agree(l->trainer->rank.world, grown ? say_peak(l) : NDP_OK)));
    NDP_TRY(ndp_loop_keep(l, export_model(l)));
    ndp_loop_say_best(l);
    return NDP_OK;
}

/* ---- the run ---- */

/* Not before a refusal: that has nothing on stdout. */
static void introduce(const ndp_training_loop *l) {
    char line[160];
    ndp_run_introduce(line);
    ndp_say(l->say, l->opts->user, "%s", line);
}

static ndp_status resume(ndp_training_loop *l) {
    int64_t step;
    NDP_TRY(ndp_trainer_resume_from(l->trainer, NULL, l->opts->resume_from, &step));
    introduce(l);
    if (step < 0)
        ndp_say(l->say, l->opts->user, "resume: no checkpoint in %s, starting from the beginning",
                l->config->train.output_dir);
    else
        ndp_say(l->say, l->opts->user, "resume: from step %lld", (long long)step);
    NDP_CHECK(step >= 0 || l->opts->accept_count == 0, "--accept %s: there is no checkpoint in %s to differ from",
              l->opts->accept[0], l->config->train.output_dir);
    l->saved = step;
    return NDP_OK;
}

/* Whether the checkpoint that the run resumed from has the metrics of its step. */
static bool has_metrics(const ndp_training_loop *l) {
    int64_t step = ndp_trainer_updates(l->trainer);
    return step > 0 && l->trainer->newest.step == step;
}

/* Whether metrics.jsonl has no line of that step. Rank 0. */
static bool lacks_line(const ndp_training_loop *l) {
    return has_metrics(l) && l->metrics.newest < ndp_trainer_updates(l->trainer);
}

static ndp_status open_metrics(ndp_training_loop *l) {
    const char *folder = l->config->train.output_dir;
    int64_t step = ndp_trainer_updates(l->trainer);
    NDP_TRY(ndp_lock_check(l->lock));
    NDP_TRY(ndp_metrics_open(&l->metrics, folder, step, has_metrics(l) && evaluates(l, step)));
    NDP_TRY(ndp_loop_open_samples(l, step + !lacks_line(l)));
    return ndp_tracker_open(&l->config->train.trackers, folder, step + !lacks_line(l), &l->tracker);
}

/* The line of the step that the run resumed from, if the run before ended between its commit and the line. */
static ndp_status report_resumed(ndp_training_loop *l) {
    ndp_metrics m = l->trainer->newest;
    bool missing = l->first && lacks_line(l);
    NDP_TRY(ndp_share_now(l->trainer->rank.world, &missing, sizeof missing, 0));
    return missing ? report_step(l, &m) : NDP_OK;
}

/* Has the engine record and time its steps, as far as that is asked for. */
static ndp_status watch_steps(const ndp_training_loop *l) {
    const ndp_train_opts *o = l->opts;
    ndp_engine *e = l->trainer->engine;
    if (o->trace)
        NDP_TRY(ndp_engine_record_updates(e, o->trace_first - 1, o->trace_last - 1));
    return ndp_loop_times_ops(l) ? ndp_engine_profile_reset(e, true) : NDP_OK;
}

static ndp_status begin_run(ndp_training_loop *l) {
    if (l->opts->resume)
        NDP_TRY(resume(l));
    else
        introduce(l);
    NDP_TRY(ndp_score_find_references(&l->trainer->score)); /* none are missing after a resume from a checkpoint */
    NDP_TRY(ndp_agree(l->trainer->rank.world, l->first ? ndp_run_folder_write_job(l->trainer) : NDP_OK));
    NDP_TRY(ndp_agree(l->trainer->rank.world, ndp_run_folder_shared(l->config, "job.yaml")));
    ndp_transport_keep_journals(l->trainer->rank.transport, l->config->train.output_dir);
    NDP_TRY(ndp_agree(l->trainer->rank.world, l->first ? open_metrics(l) : NDP_OK));
    char *text;
    NDP_TRY(ndp_trainer_describe(l->trainer, &text));
    ndp_say(l->say, l->opts->user, "%s", text);
    free(text);
    NDP_TRY(ndp_agree(l->trainer->rank.world, watch_steps(l)));
    NDP_TRY(measure_peak(l));
    NDP_TRY(ndp_trainer_open_background(l->trainer));
    NDP_TRY(ndp_loop_check_stop(l));
    l->part.started = ndp_now();
    l->next_save = l->part.started + 60 * l->config->checkpoint.minutes;
    l->begun = true;
    return ndp_run_file_open(l->trainer, &l->part, &l->file);
}

static ndp_status say_profile(const ndp_training_loop *l) {
    char *text;
    if (!l->opts->profile || l->failed != NDP_OK)
        return NDP_OK;
    NDP_TRY(ndp_trainer_profile(l->trainer, &l->part, &text));
    say_lines(l, text);
    return NDP_OK;
}

static ndp_status run_whole(ndp_training_loop *l) {
    NDP_TRY(begin_run(l));
    NDP_TRY(ndp_loop_begin_best(l));
    NDP_TRY(report_resumed(l));
    NDP_TRY(run_steps(l));
    double begin = ndp_now();
    NDP_TRY(finish(l));
    l->part.ended = ndp_now();
    l->part.saves += l->part.ended - begin;
    say_lines(l, l->first && l->part.last > 0 ? ndp_run_summarize(l->trainer, &l->part) : NULL);
    NDP_TRY(ndp_loop_keep(l, say_profile(l)));
    if (l->failed == NDP_OK && l->stop)
        return NDP_FAIL(NDP_EINTR, "stopped after step %lld; continue with --resume",
                        (long long)ndp_trainer_updates(l->trainer));
    return l->failed;
}

/* Rank 0 locks the folder and checks it, and the links are measured, before any other work. */
static ndp_status prepare_folder(ndp_training_loop *l, ndp_world *w) {
    ndp_comm *world;
    ndp_group all = {0, 1, ndp_transport_world(w), ndp_transport_rank(w)};
    NDP_TRY(ndp_comm_create(w, all, "run folder", &world));
    ndp_status st = ndp_agree(world, l->first ? ndp_loop_check_cluster(l, ndp_comm_size(world)) : NDP_OK);
    if (st == NDP_OK)
        st = ndp_run_folder_take(l->config, l->opts, world, &l->lock);
    if (st == NDP_OK)
        st = ndp_agree(world, l->first ? ndp_run_folder_prepare(l->config, l->opts) : NDP_OK);
    if (st == NDP_OK)
        st = ndp_run_folder_keep(l->config, l->opts, world, &l->kept);
    l->config = l->kept ? l->kept : l->config;
    if (st == NDP_OK)
        st = ndp_links_check(l->config, world, l->say, l->opts->user);
    ndp_comm_destroy(world);
    return st;
}

static ndp_status train_in_folder(ndp_training_loop *l, ndp_world *w) {
    NDP_TRY(ndp_trainer_open(l->config, w, &(ndp_rank_opts){.run = l->opts}, &l->trainer));
    l->trainer->lock = l->lock;
    l->trainer->late_update = l->config->train.spike > 0;
    NDP_CHECK(!l->opts->trace || l->opts->trace_last <= l->trainer->rank.data.steps,
              "the trace is to end with step %lld, and the run has %d steps", (long long)l->opts->trace_last,
              l->trainer->rank.data.steps);
    NDP_TRY(ndp_agree(l->trainer->rank.world, ndp_loop_encode_prompts(l)));
    NDP_TRY(ndp_agree(l->trainer->rank.world, ndp_loop_open_more(l)));
    NDP_TRY(ndp_agree(l->trainer->rank.world, l->first ? ndp_loop_plan_step(l) : NDP_OK));
    if (l->opts->resume)
        NDP_TRY(ndp_agree(l->trainer->rank.world, ndp_run_folder_shared(l->config, "")));
    ndp_status st = run_whole(l);
    if (ndp_trainer_drop_save(l->trainer))
        l->saved = l->trainer->background.step;
    l->part.ended = ndp_now();
    ndp_run_file_close(l->file, l->trainer, &l->part, l->saved, st);
    if (st == NDP_OK || st == NDP_EINTR)
        return st;
    return ndp_loop_explain(l, st, l->failed == st ? l->why : ndp_error_message());
}

ndp_status ndp_train(const ndp_config *c, ndp_world *w, const ndp_train_opts *o) {
    NDP_NOT_NULL(c, w, o);
    if (o->accept_count)
        NDP_NOT_NULL(o->accept);
    ndp_training_loop l = {.config = c, .opts = o, .first = ndp_transport_rank(w) == 0, .saved = -1, .tried = -1};
    l.say = l.first ? o->say : NULL;
    l.part = (ndp_run_part){.began = ndp_now(), .time = ndp_time()};
    NDP_CHECK(!c->train.own_batches,
              "train.own_batches is true: the rows are those of a program of your own (ndp_trainer_forward_backward); "
              "to train on data.files, set it to false");
    if (o->trace)
        NDP_TRY(ndp_trace_check(o));
    ndp_status st = prepare_folder(&l, w);
    if (st == NDP_OK)
        st = train_in_folder(&l, w);
    ndp_tracker_close(l.tracker);
    ndp_metrics_close(&l.metrics);
    ndp_loop_close_samples(&l);
    ndp_loop_close_more(&l);
    ndp_trainer_destroy(l.trainer);
    if (l.first && o->held)
        *o->held = l.lock && ndp_lock_held(l.lock);
    ndp_lock_destroy(l.lock);
    ndp_config_destroy(l.kept);
    return st;
}
