/* Steps of a run once more: from the checkpoint before them, with the values of each call watched, and compared with
 * the lines that the run has written. The run's folder is only read. */
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/agree.h"
#include "checkpoint/checkpoint.h"
#include "train/metrics_file.h"
#include "train/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct replayed_run {
    const ndp_config *config;
    const ndp_replay_opts *opts;
    ndp_trainer *trainer;
    ndp_step_values values;
    ndp_mapped metrics; /* rank 0: metrics.jsonl of the run; empty: it has none, or nothing is compared */
    int64_t different;
} replayed_run;

/* ---- the checkpoint ---- */

/* Rank 0: the newest step below `first`. */
static ndp_status find_step(const replayed_run *r, const char *folder, int64_t *step) {
    int64_t *steps, oldest = -1;
    int n;
    NDP_TRY(ndp_checkpoint_steps(folder, &steps, &n));
    *step = -1;
    for (int i = n; i-- > 0;) { /* the oldest first */
        oldest = i == n - 1 ? steps[i] : oldest;
        *step = steps[i] < r->opts->first ? steps[i] : *step;
    }
    free(steps);
    if (oldest < 0)
        return NDP_FAIL(NDP_EINVAL, "%s has no checkpoint to begin from", r->config->train.output_dir);
    if (*step < 0)
        return NDP_FAIL(NDP_EINVAL,
                        "step %lld is not after a checkpoint: the oldest in %s is of step %lld. Give steps from %lld "
                        "on; a run keeps the newest (checkpoint.keep)",
                        (long long)r->opts->first, folder, (long long)oldest, (long long)oldest + 1);
    return NDP_OK;
}

/* Loads the checkpoint before the steps, whose every byte is checked. */
static ndp_status go_back(replayed_run *r) {
    ndp_trainer *t = r->trainer;
    char folder[NDP_PATH];
    ndp_examined seen;
    int64_t step = -1;
    NDP_TRY(ndp_path_join(folder, r->config->train.output_dir, "checkpoints"));
    NDP_TRY(ndp_agree(t->rank.world, ndp_is_first(t->rank.world) ? find_step(r, folder, &step) : NDP_OK));
    NDP_TRY(ndp_share_now(t->rank.world, &step, sizeof step, 0));
    NDP_TRY(ndp_checkpoint_examine(t->rank.world, folder, step, true, t->rank.exec.threads, &seen));
    if (seen.state == NDP_CHECKPOINT_DAMAGED)
        return NDP_FAIL(NDP_EFORMAT, "the checkpoint of step %lld in %s is damaged: %s", (long long)step, folder,
                        seen.words);
    NDP_TRY(ndp_trainer_load(t, folder, step));
    ndp_say(ndp_is_first(t->rank.world) ? r->opts->say : NULL, r->opts->user,
            "replay: from the checkpoint of step %lld", (long long)step);
    return NDP_OK;
}

/* ---- the run's own numbers ---- */

static ndp_status open_metrics(replayed_run *r) {
    char path[NDP_PATH];
    if (!r->opts->compare)
        return NDP_OK;
    NDP_TRY(ndp_path_join(path, r->config->train.output_dir, "metrics.jsonl"));
    return ndp_file_map(path, &r->metrics);
}

/* The newest line of a step; a damaged one is none. */
static bool find_line(const replayed_run *r, int64_t step, ndp_metrics *out) {
    const char *text = (const char *)r->metrics.data, *at = text;
    bool found = false;
    for (const char *end; at && (end = memchr(at, '\n', r->metrics.size - (size_t)(at - text))); at = end + 1) {
        bool unused;
        double loss;
        struct json_object *o = NULL;
        if (ndp_line_step(at, (size_t)(end - at), &unused, &loss) != step)
            continue;
        if (ndp_json_parse(at, (size_t)(end - at), "metrics.jsonl", &o) == NDP_OK)
            found |= ndp_metrics_from_json(o, "a line of metrics.jsonl", out) == NDP_OK;
        json_object_put(o);
    }
    return found;
}

static bool same(double a, double b) { return a == b || (!isfinite(a) && !isfinite(b)); }

/* Rank 0: says how the step compares with the run's. */
static ndp_status compare(replayed_run *r, const ndp_metrics *m, ndp_str *line) {
    ndp_metrics then;
    if (!r->opts->compare)
        return NDP_OK;
    if (!find_line(r, m->step, &then))
        return NDP_FAIL(NDP_EINVAL, "%s/metrics.jsonl has no line of step %lld to compare with",
                        r->config->train.output_dir, (long long)m->step);
    bool equal = same(then.loss, m->loss) && same(then.grad_norm, m->grad_norm);
    r->different += !equal;
    if (equal)
        ndp_str_add(line, "; as in the run");
    else
        ndp_str_addf(line, "; NOT as in the run, which had the loss %.17g and grad_norm %.17g", then.loss,
                     then.grad_norm);
    return NDP_OK;
}

/* ---- the steps ---- */

static ndp_status replay_step(replayed_run *r, bool *finite) {
    ndp_trainer *t = r->trainer;
    ndp_metrics m;
    ndp_checks checks;
    ndp_str line = {0};
    ndp_step_values_begin(&r->values);
    ndp_engine_watch_values(t->engine, &r->values);
    ndp_status st = ndp_trainer_step(t, &m);
    ndp_engine_watch_values(t->engine, NULL);
    NDP_TRY(st);
    NDP_TRY(ndp_trainer_gather_checks(t, m.step - 1, &r->values, &checks));
    ndp_str_addf(&line, "step %lld: loss %.*g, grad_norm %.*g", (long long)m.step, r->opts->compare ? 17 : 6, m.loss,
                 r->opts->compare ? 17 : 6, m.grad_norm);
    st = ndp_is_first(t->rank.world) ? compare(r, &m, &line) : NDP_OK;
    ndp_str_add(&line, "; ");
    ndp_checks_describe(&checks, &line);
    if (st == NDP_OK)
        ndp_say(ndp_is_first(t->rank.world) ? r->opts->say : NULL, r->opts->user, "%s", line.data ? line.data : "");
    ndp_str_release(&line);
    *finite = isfinite(m.loss) && isfinite(m.grad_norm);
    return ndp_agree(t->rank.world, st);
}

static ndp_status replay_steps(replayed_run *r) {
    ndp_trainer *t = r->trainer;
    bool finite = true;
    NDP_CHECK(r->opts->last <= t->rank.data.steps, "step %lld is after the last one of the run, %d",
              (long long)r->opts->last, t->rank.data.steps);
    NDP_TRY(ndp_agree(t->rank.world, ndp_is_first(t->rank.world) ? open_metrics(r) : NDP_OK));
    NDP_TRY(go_back(r));
    while (ndp_trainer_updates(t) < r->opts->first - 1)
        NDP_TRY(ndp_trainer_step(t, NULL));
    while (finite && ndp_trainer_updates(t) < r->opts->last)
        NDP_TRY(replay_step(r, &finite));
    return ndp_share_now(t->rank.world, &r->different, sizeof r->different, 0);
}

ndp_status ndp_replay(const ndp_config *c, ndp_world *w, const ndp_replay_opts *o, int64_t *different) {
    NDP_NOT_NULL(c, w, o, different);
    replayed_run r = {.config = c, .opts = o};
    NDP_CHECK(o->first >= 1 && o->first <= o->last,
              "steps %lld to %lld cannot be repeated: give the first and the "
              "last, counted from 1",
              (long long)o->first, (long long)o->last);
    NDP_TRY(ndp_trainer_create(c, w, &r.trainer));
    ndp_status st = replay_steps(&r);
    *different = r.different;
    ndp_step_values_release(&r.values);
    ndp_file_unmap(&r.metrics);
    ndp_trainer_destroy(r.trainer);
    return st;
}
