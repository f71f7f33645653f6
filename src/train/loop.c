/* The whole run: run folder, steps, metrics, checkpoints, signals, the trained model.
 *
 * Rank 0 takes the lock of the run folder and cleans it before any rank spends time. After each step all ranks sum
 * their stop flags, so that they stop after the same step. What rank 0 writes, it writes while it holds the lock; its
 * errors become those of all ranks by ndp_agree. */
#include "base/log.h"
#include "checkpoint/agree.h"
#include "step/timeline.h"
#include "train/identity.h"
#include "train/run_folder.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct training_loop {
    const ndp_config *config;
    const ndp_train_opts *opts;
    ndp_trainer *trainer;
    bool first;                                /* rank 0 */
    void (*say)(void *user, const char *line); /* of opts on rank 0; else NULL */
    ndp_lock *lock;                            /* of the run folder; rank 0 */
    FILE *metrics;
    int64_t saved; /* step of the newest checkpoint */
} training_loop;

/* ---- run folder ---- */

static ndp_status refuse_other_run(const ndp_config *c) {
    static const char *const signs[] = {"metrics.jsonl", "checkpoints", "model"};
    for (int i = 0; i < NDP_COUNT(signs); i++) {
        char path[NDP_PATH];
        NDP_TRY(ndp_path_join(path, c->train.output_dir, signs[i]));
        if (ndp_path_exists(path))
            return NDP_FAIL(NDP_EINVAL,
                            "train.output_dir %s holds another run (%s is there): choose another folder, remove it, or "
                            "continue the run with --resume",
                            c->train.output_dir, signs[i]);
    }
    return NDP_OK;
}

/* Called after a resume, so that a refused one keeps the job.yaml of its run. */
static ndp_status write_job(const training_loop *l) {
    char path[NDP_PATH], *yaml;
    NDP_TRY(ndp_path_join(path, l->config->train.output_dir, "job.yaml"));
    NDP_TRY(ndp_lock_check(l->lock)); /* reading the data may have taken hours */
    NDP_TRY(ndp_config_text(l->config, &yaml));
    ndp_str text = {0};
    ndp_str_add(&text, "# ");
    ndp_trainer_describe_kernels(l->trainer, &text);
    ndp_identity_describe_accepted(l->trainer, &text);
    ndp_str_add(&text, yaml);
    free(yaml);
    ndp_status st = text.failed ? NDP_FAIL(NDP_ENOMEM, "no memory for %s", path)
                                : ndp_file_write_atomic(path, text.data, text.length);
    ndp_str_release(&text);
    return st;
}

/* Checks that this rank sees what rank 0 wrote: "job.yaml", or "" for the folder. The first checkpoint would fail on a
 * folder that is not shared, but only hours later. */
static ndp_status check_shared_folder(const training_loop *l, const char *name) {
    char path[NDP_PATH];
    NDP_TRY(ndp_path_join(path, l->config->train.output_dir, name));
    if (ndp_path_exists(path))
        return NDP_OK;
    return NDP_FAIL(NDP_EIO,
                    "'%s', which rank 0 wrote, is not visible on this host: train.output_dir must be on a disk that "
                    "all hosts share",
                    path);
}

/* Removes the lines of steps after `step`, which were never saved: a resumed run writes them again. */
static ndp_status cut_metrics(const char *path, int64_t step) {
    ndp_mapped file; /* mapped, since it may be gigabytes */
    if (!ndp_path_exists(path))
        return NDP_OK;
    NDP_TRY(ndp_file_map(path, &file));
    const char *text = (const char *)file.data, *end = text;
    for (const char *next; (next = memchr(end, '\n', file.size - (size_t)(end - text))); end = next + 1) {
        char head[48]; /* a copy, since sscanf would scan to the end of the file */
        long long at = 0;
        snprintf(head, sizeof head, "%.*s", (int)(next - end < 40 ? next - end : 40), end);
        if (sscanf(head, "{\"step\": %lld", &at) != 1 || at > step)
            break;
    }
    ndp_status st = ndp_file_write_atomic(path, text, (size_t)(end - text));
    ndp_file_unmap(&file);
    return st;
}

static ndp_status open_metrics(training_loop *l) {
    char path[NDP_PATH];
    NDP_TRY(ndp_path_join(path, l->config->train.output_dir, "metrics.jsonl"));
    NDP_TRY(ndp_lock_check(l->lock));
    NDP_TRY(cut_metrics(path, ndp_trainer_updates(l->trainer)));
    l->metrics = fopen(path, "ae");
    return l->metrics ? ndp_folder_sync(l->config->train.output_dir)
                      : NDP_FAIL(NDP_EIO, "cannot write %s: %s", path, strerror(errno));
}

/* JSON has no NaN or infinity: they are written as null. */
static void put_number(FILE *f, const char *key, double x) {
    if (isfinite(x))
        fprintf(f, ", \"%s\": %.17g", key, x);
    else
        fprintf(f, ", \"%s\": null", key);
}

static ndp_status write_metrics(training_loop *l, const ndp_metrics *m) {
    FILE *f = l->metrics;
    NDP_TRY(ndp_lock_check(l->lock));
    fprintf(f, "{\"step\": %lld", (long long)m->step);
    put_number(f, "loss", m->loss);
    put_number(f, "grad_norm", m->grad_norm);
    put_number(f, "lr", m->lr);
    fprintf(f, ", \"tokens\": %lld", (long long)m->tokens);
    put_number(f, "tokens_per_second", m->tokens_per_second);
    put_number(f, "step_seconds", m->step_seconds);
    put_number(f, "mfu", m->mfu);
    put_number(f, "peak_flops", m->peak_flops);
    fprintf(f, ", \"peak_memory_bytes\": %lld", (long long)m->peak_memory_bytes);
    if (m->eval_tokens > 0)
        put_number(f, "eval_loss", m->eval_loss);
    fprintf(f, "}\n");
    if (fflush(f) != 0)
        return NDP_FAIL(NDP_EIO, "cannot write %s/metrics.jsonl: %s", l->config->train.output_dir, strerror(errno));
    return NDP_OK;
}

/* ---- steps ---- */

static ndp_status save_checkpoint(training_loop *l) {
    NDP_TRY(ndp_trainer_save(l->trainer, NULL));
    l->saved = ndp_trainer_updates(l->trainer);
    const ndp_save_cost *cost = &l->trainer->saved;
    char size[16];
    ndp_say(l->say, l->opts->user, "checkpoint: %s/checkpoints/step-%08lld  %s in %.2f s, %.1f%% of it hashing",
            l->config->train.output_dir, (long long)l->saved, ndp_human_bytes((double)cost->bytes, size), cost->seconds,
            cost->seconds > 0 ? 100 * cost->hashing / cost->seconds : 0);
    return NDP_OK;
}

/* Sums the stop flags, so that ranks that see a signal at different times stop after the same step, and the peaks. */
static ndp_status sum_over_ranks(const training_loop *l, bool *stop) {
    ndp_trainer *t = l->trainer;
    double sums[] = {l->opts->stop && *l->opts->stop, ndp_trainer_own_peak(t)};
    NDP_TRY(ndp_reduce_now(t->world, sums, NDP_COUNT(sums), NDP_F64, NDP_SUM));
    *stop = sums[0] > 0;
    t->peak.flops = sums[1];
    return NDP_OK;
}

static ndp_status report_step(training_loop *l, const ndp_metrics *m) {
    ndp_status st = NDP_OK;
    if (l->first) {
        st = write_metrics(l, m);
        if (l->opts->progress)
            l->opts->progress(l->opts->user, m, l->trainer->data.steps);
    }
    return st;
}

static ndp_status check_finite(const training_loop *l, const ndp_metrics *m) {
    if (isfinite(m->loss) && isfinite(m->grad_norm))
        return NDP_OK;
    return NDP_FAIL(NDP_EINVAL,
                    "step %lld: the loss is %g and the gradient norm %g; the run stops here. Lower "
                    "optimizer.lr or set optimizer.max_grad_norm, then --resume from step %lld",
                    (long long)m->step, m->loss, m->grad_norm, (long long)l->saved);
}

static bool evaluates(const training_loop *l, int64_t step) {
    int every = l->config->train.eval_every;
    return l->trainer->data.held && (step == l->trainer->data.steps || (every > 0 && step % every == 0));
}

static bool saves(const training_loop *l, int64_t step) {
    int every = l->config->checkpoint.every;
    return every > 0 && step % every == 0;
}

/* The next result. A device with a queue of its own gets one more step before that, and works while the host reports
 * this one; not before an evaluation or a save, which need the weights as they are after this step, nor after a stop.
 */
static ndp_status next_result(training_loop *l, bool stop, ndp_metrics *m) {
    ndp_trainer *t = l->trainer;
    if (t->pending.n == 0)
        NDP_TRY(ndp_trainer_submit(t));
    int64_t step = ndp_trainer_updates(t);
    bool pauses = stop || step == l->trainer->data.steps || evaluates(l, step) || saves(l, step);
    if (!t->exec.device->host_memory && t->pending.n == 1 && !pauses)
        NDP_TRY(ndp_trainer_submit(t));
    return ndp_trainer_result(t, m);
}

static ndp_status run_steps(training_loop *l) {
    bool stop = false;
    while (l->trainer->pending.n > 0 || (!stop && ndp_trainer_updates(l->trainer) < l->trainer->data.steps)) {
        ndp_metrics m;
        NDP_TRY(next_result(l, stop, &m));
        if (evaluates(l, m.step))
            NDP_TRY(ndp_trainer_evaluate(l->trainer, &m.eval_loss, &m.eval_tokens));
        NDP_TRY(ndp_agree(l->trainer->world, report_step(l, &m)));
        NDP_TRY(check_finite(l, &m));
        bool asked;
        NDP_TRY(sum_over_ranks(l, &asked));
        stop |= asked;
        if ((stop && l->trainer->pending.n == 0) || saves(l, m.step))
            NDP_TRY(save_checkpoint(l));
    }
    if (stop)
        return NDP_FAIL(NDP_EINTR, "stopped after step %lld; continue with --resume",
                        (long long)ndp_trainer_updates(l->trainer));
    return NDP_OK;
}

static ndp_status say_peak(const training_loop *l) {
    char *line = ndp_trainer_describe_peak(l->trainer);
    if (!line)
        return NDP_FAIL(NDP_ENOMEM, "no memory for a line");
    ndp_say(l->say, l->opts->user, "%s", line);
    free(line);
    return NDP_OK;
}

/* Measures the peak at the start, unless there is no step to do. */
static ndp_status measure_peak(const training_loop *l) {
    if (ndp_trainer_updates(l->trainer) >= l->trainer->data.steps)
        return NDP_OK;
    NDP_TRY(ndp_trainer_measure_peak(l->trainer));
    return say_peak(l);
}

/* Prints the peak again at the end if it has grown noticeably since the start, when it was first printed. */
static ndp_status report_peak(const training_loop *l) {
    const double shown = 1.01;
    return l->trainer->peak.flops > shown * l->trainer->peak.first ? say_peak(l) : NDP_OK;
}

static ndp_status begin_run(training_loop *l) {
    if (l->opts->resume) {
        int64_t step;
        NDP_TRY(ndp_trainer_resume_from(l->trainer, NULL, l->opts->resume_from, &step));
        if (step < 0)
            ndp_say(l->say, l->opts->user, "resume: no checkpoint in %s, starting from the beginning",
                    l->config->train.output_dir);
        else
            ndp_say(l->say, l->opts->user, "resume: from step %lld", (long long)step);
        NDP_CHECK(step >= 0 || l->opts->accept_count == 0, "--accept %s: there is no checkpoint in %s to differ from",
                  l->opts->accept[0], l->config->train.output_dir);
        l->saved = step < 0 ? 0 : step;
    }
    NDP_TRY(ndp_agree(l->trainer->world, l->first ? write_job(l) : NDP_OK));
    NDP_TRY(ndp_agree(l->trainer->world, check_shared_folder(l, "job.yaml")));
    NDP_TRY(ndp_agree(l->trainer->world, l->first ? open_metrics(l) : NDP_OK));
    char *text;
    NDP_TRY(ndp_trainer_describe(l->trainer, &text));
    ndp_say(l->say, l->opts->user, "%s", text);
    free(text);
    return measure_peak(l);
}

static ndp_status write_trace(const training_loop *l) {
    char *text, *rest = NULL;
    NDP_TRY(ndp_trainer_trace(l->trainer, l->opts->trace, &text));
    for (char *line = text ? strtok_r(text, "\n", &rest) : NULL; line; line = strtok_r(NULL, "\n", &rest))
        ndp_say(l->say, l->opts->user, "%s", line);
    free(text);
    return NDP_OK;
}

static ndp_status run_whole(training_loop *l) {
    NDP_TRY(begin_run(l));
    if (l->opts->trace)
        NDP_TRY(ndp_agree(l->trainer->world, ndp_engine_record(l->trainer->engine)));
    NDP_TRY(run_steps(l));
    if (l->opts->trace)
        NDP_TRY(write_trace(l));
    NDP_TRY(report_peak(l));
    if (l->saved != ndp_trainer_updates(l->trainer))
        NDP_TRY(save_checkpoint(l));
    NDP_TRY(ndp_trainer_export(l->trainer, NULL));
    ndp_say(l->say, l->opts->user, "model: %s/model", l->config->train.output_dir);
    return NDP_OK;
}

static ndp_status check_folder(const training_loop *l) {
    if (!l->opts->resume)
        NDP_TRY(refuse_other_run(l->config));
    return ndp_run_folder_clean(l->config->train.output_dir);
}

/* Rank 0 locks the folder and checks it, before any other work. */
static ndp_status prepare_folder(training_loop *l, ndp_world *w) {
    ndp_comm *world;
    ndp_group all = {0, 1, ndp_transport_world(w), ndp_transport_rank(w)};
    NDP_TRY(ndp_comm_create(w, all, "run folder", &world));
    ndp_status st = ndp_run_folder_take(l->config, l->opts, world, &l->lock);
    if (st == NDP_OK)
        st = ndp_agree(world, l->first ? check_folder(l) : NDP_OK);
    ndp_comm_destroy(world);
    return st;
}

static ndp_status train_in_folder(training_loop *l, ndp_world *w) {
    NDP_TRY(ndp_trainer_open(l->config, w, &(ndp_trainer_opts){.run = l->opts}, &l->trainer));
    l->trainer->lock = l->lock;
    if (l->opts->resume)
        NDP_TRY(ndp_agree(l->trainer->world, check_shared_folder(l, "")));
    return run_whole(l);
}

ndp_status ndp_train(const ndp_config *c, ndp_world *w, const ndp_train_opts *o) {
    training_loop l = {.config = c, .opts = o, .first = ndp_transport_rank(w) == 0};
    l.say = l.first ? o->say : NULL;
    if (o->trace)
        NDP_TRY(ndp_timeline_check_path(o->trace));
    ndp_status st = prepare_folder(&l, w);
    if (st == NDP_OK)
        st = train_in_folder(&l, w);
    if (l.metrics)
        fclose(l.metrics);
    ndp_trainer_destroy(l.trainer);
    ndp_lock_destroy(l.lock);
    return st;
}
