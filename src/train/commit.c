/* What a run has on disk: commits of finished steps and lines of their numbers, and the failure that it ends with. */
#include "base/clock.h"
#include "base/log.h"
#include "launch/launch.h"
#include "plan/plan_report.h"
#include "train/loop.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

ndp_status ndp_loop_keep(ndp_training_loop *l, ndp_status st) {
    const ndp_rank *r = &l->trainer->rank;
    bool apart = r->apart || (r->transport && ndp_transport_has_failed(r->transport));
    if (st == NDP_OK || st == NDP_ECOMM || apart)
        return st;
    if (l->failed == NDP_OK) {
        l->failed = st;
        snprintf(l->why, sizeof l->why, "%s", ndp_error_message());
    } else if (l->first && strcmp(l->why, ndp_error_message()) != 0) {
        ndp_warn(&l->trainer->rank.log, "%s", ndp_error_message());
    }
    return NDP_OK;
}

/* "step 12 is on disk", or why none is. */
static const char *on_disk(const ndp_training_loop *l, char out[160]) {
    int64_t done = ndp_trainer_updates(l->trainer);
    if (l->saved > 0 && l->saved == done)
        snprintf(out, 160, "step %lld is on disk", (long long)l->saved);
    else if (l->saved > 0)
        snprintf(out, 160, "the newest step on disk is %lld%s", (long long)l->saved,
                 l->torn ? ", as later weights are those of no step" : "");
    else
        snprintf(out, 160, "no step is on disk%s",
                 done == 0      ? ", as none was finished"
                 : l->torn      ? ", as the weights are those of no step"
                 : l->tried < 0 ? ", as the run ended before its first save"
                                : "");
    return out;
}

ndp_status ndp_loop_explain(const ndp_training_loop *l, ndp_status st, const char *why) {
    char disk[160];
    if (st == NDP_OK || st == NDP_EBUG || !l->begun)
        return st;
    return NDP_FAIL(st, "%s; %s%s", why, on_disk(l, disk), l->saved > 0 ? "; continue with --resume" : "");
}

bool ndp_loop_saves(const ndp_training_loop *l, int64_t step) {
    int every = l->config->checkpoint.every;
    return step == l->trainer->rank.data.steps || (every > 0 && step % every == 0);
}

/* Once: a save that takes longer than a stopped job has. `what`: "a save takes 3.1 s". */
static void warn_of_time(ndp_training_loop *l, const char *what, double seconds) {
    if (!l->first || l->slow || l->stop_seconds < 0 || seconds <= l->stop_seconds)
        return;
    l->slow = true;
    ndp_warn(
        &l->trainer->rank.log,
        "%s, and ranks end %d s after the batch system's SIGTERM: a job that is stopped loses the steps since its "
        "last save. Have it signal earlier (Slurm: --signal=B:USR1@%.0f), or wait longer (Slurm: KillWait; mpirun: "
        "OMPI_MCA_odls_base_sigkill_timeout=%.0f)",
        what, l->stop_seconds, ceil(seconds * 1.5), ceil(seconds * 1.5));
}

ndp_status ndp_loop_check_stop(ndp_training_loop *l) {
    const ndp_transport *t = l->trainer->rank.transport;
    char what[96], size[16];
    int64_t bytes;
    l->stop_seconds = l->first ? ndp_rank_stop_seconds() : -1;
    if (l->stop_seconds < 0)
        return NDP_OK;
    NDP_TRY(ndp_checkpoint_bytes(l->trainer->engine, &bytes));
    double seconds = (double)bytes * ndp_transport_host_ranks(t) / ndp_transport_world(t) / NDP_SAVE_RATE;
    snprintf(what, sizeof what, "a save writes %s: %.2g s at 1 GB/s from each node, which is assumed",
             ndp_human_bytes((double)bytes, size), seconds);
    warn_of_time(l, what, seconds);
    return NDP_OK;
}

static void say_saved(ndp_training_loop *l) {
    const ndp_save_cost *cost = &l->trainer->saved;
    char size[16], beside[80] = "";
    if (cost->processor > 0)
        snprintf(beside, sizeof beside, "; steps waited %.2f s, threads used %.2f s of a core", l->waited,
                 cost->processor);
    ndp_say(l->say, l->opts->user, "checkpoint: %s/checkpoints/step-%08lld  %s in %.2f s, %.1f%% of it hashing%s",
            l->config->train.output_dir, (long long)l->saved, ndp_human_bytes((double)cost->bytes, size), cost->seconds,
            cost->seconds > 0 ? 100 * cost->hashing / cost->seconds : 0, beside);
    snprintf(beside, sizeof beside, "a save takes %.1f s", cost->seconds);
    warn_of_time(l, beside, cost->seconds);
}

static bool is_ending(const ndp_training_loop *l) {
    const ndp_trainer *t = l->trainer;
    return l->stop || l->enough || l->failed != NDP_OK || ndp_trainer_updates(t) == t->rank.data.steps;
}

/* The end of the save of a step. A full or broken disk ends the run only at its last save: until then the next one
 * tries again, and older checkpoints stay. */
static ndp_status settle(ndp_training_loop *l, ndp_status st, int64_t step) {
    char disk[160];
    ndp_trainer *t = l->trainer;
    if (t->saved.committed)
        l->saved = step;
    if (st == NDP_OK)
        say_saved(l);
    if (st != NDP_EIO || (is_ending(l) && step == ndp_trainer_updates(t)))
        return ndp_loop_keep(l, st);
    if (l->first)
        ndp_warn(&t->rank.log, "%s; %s. The run goes on, and the next save tries again", ndp_error_message(),
                 t->saved.committed ? "this step is saved" : on_disk(l, disk));
    return NDP_OK;
}

static ndp_status go_on(ndp_training_loop *l) {
    double begin = ndp_now();
    bool ended;
    ndp_status st = ndp_trainer_go_on_saving(l->trainer, &ended);
    double seconds = ndp_now() - begin;
    l->save_seconds += seconds;
    l->waited += seconds;
    return ended ? settle(l, st, l->trainer->background.step) : NDP_OK;
}

ndp_status ndp_loop_go_on_saving(ndp_training_loop *l) {
    return l->trainer->background.save && !l->writing ? go_on(l) : NDP_OK;
}

ndp_status ndp_loop_end_save(ndp_training_loop *l) {
    while (l->trainer->background.save)
        NDP_TRY(go_on(l));
    return NDP_OK;
}

/* Saves the newest step: in the background, unless the run would only wait for it. */
static ndp_status commit(ndp_training_loop *l) {
    ndp_trainer *t = l->trainer;
    NDP_TRY(ndp_loop_end_save(l));
    bool background = t->rank.background && !is_ending(l);
    double begin = ndp_now();
    ndp_status st = background ? ndp_trainer_begin_save(t) : ndp_trainer_save(t, NULL);
    l->waited = ndp_now() - begin;
    l->save_seconds += l->waited;
    l->tried = ndp_trainer_updates(t);
    l->due = false;
    l->next_save = ndp_now() + 60 * l->config->checkpoint.minutes;
    return background && st == NDP_OK ? NDP_OK : settle(l, st, l->tried);
}

ndp_status ndp_loop_commit_if_due(ndp_training_loop *l) {
    bool whole = l->trainer->pending.n == 0 && l->failed == NDP_OK;
    return whole && (l->stop || l->due || ndp_loop_saves(l, ndp_trainer_updates(l->trainer))) ? commit(l) : NDP_OK;
}

ndp_status ndp_loop_commit_rest(ndp_training_loop *l) {
    int64_t step = ndp_trainer_updates(l->trainer);
    return l->torn || step == 0 || l->saved == step || l->tried == step ? NDP_OK : commit(l);
}

static void write_trackers(ndp_training_loop *l, const ndp_metrics *m) {
    bool written = ndp_tracker_add(l->tracker, m) == NDP_OK;
    if (!written && !l->untracked)
        ndp_warn(&l->trainer->rank.log, "%s. The run goes on, and keeps its records until they can be written",
                 ndp_error_message());
    l->untracked = !written;
}

/* What cannot be written now is kept and written with a later line, so a full disk does not end the run. */
ndp_status ndp_loop_write_line(ndp_training_loop *l, const ndp_metrics *m) {
    NDP_TRY(ndp_lock_check(l->lock));
    const ndp_metrics line = ndp_metrics_as_line(m, l->metrics.peak_flops);
    write_trackers(l, &line); /* first: a resumed run gives them no step that has a line */
    bool written = ndp_metrics_add(&l->metrics, m) == NDP_OK;
    if (!written && !l->unwritable)
        ndp_warn(&l->trainer->rank.log, "%s. The run goes on, and keeps its lines until they can be written",
                 ndp_error_message());
    l->unwritable = !written;
    return NDP_OK;
}
