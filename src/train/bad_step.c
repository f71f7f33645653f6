/* A step that went wrong in a run: one that is not finite, or whose loss is a spike (train.spike). It is run again with
 * its values checked (checked.c), before its update. */
#include "train/loop.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What a check of the step found, into l->cause. */
static ndp_status find_cause(ndp_training_loop *l, const ndp_metrics *m, ndp_checks *checks) {
    ndp_str text = {0};
    NDP_TRY(ndp_trainer_check_step(l->trainer, m->step - 1, checks));
    ndp_checks_describe(checks, &text);
    snprintf(l->cause, sizeof l->cause, "%s", text.data ? text.data : "");
    ndp_str_release(&text);
    return NDP_OK;
}

ndp_status ndp_loop_refuse_step(ndp_training_loop *l, const ndp_metrics *m) {
    ndp_checks checks = {.bad.value.order = INT64_MAX};
    if (!l->torn)
        NDP_TRY(find_cause(l, m, &checks));
    const ndp_found_value *bad = &checks.bad.value;
    bool weight = strncmp(bad->tensor, "weight ", strlen("weight ")) == 0;
    const char *fix = l->torn                   ? ". Lower optimizer.lr or set optimizer.max_grad_norm"
                      : bad->order == INT64_MAX ? ". It was finite when it was run again: the machine may be at fault"
                      : weight ? ". The weights were like that before this step: look at the model folder or the "
                                 "checkpoint that the run began with"
                               : ". Lower optimizer.lr or set optimizer.max_grad_norm";
    return NDP_FAIL(NDP_EINVAL, "step %lld: the loss is %g and the gradient norm %g; %s%sthe run stops here%s",
                    (long long)m->step, ndp_plain_nan(m->loss), ndp_plain_nan(m->grad_norm), l->cause,
                    l->cause[0] ? "; " : "", fix);
}

/* A mean of fewer losses says little. */
enum { LEAST = 20 };

static bool is_spike(const ndp_training_loop *l, double loss, double *mean, double *deviation) {
    int64_t most = NDP_COUNT(l->recent.losses), n = l->recent.n < most ? l->recent.n : most;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++)
        sum += l->recent.losses[i];
    *mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++)
        squares += (l->recent.losses[i] - *mean) * (l->recent.losses[i] - *mean);
    *deviation = sqrt(squares / (double)n);
    return n >= LEAST && loss > *mean + l->config->train.spike * *deviation;
}

ndp_status ndp_loop_judge_loss(ndp_training_loop *l, const ndp_metrics *m) {
    double mean, deviation;
    bool spike = is_spike(l, m->loss, &mean, &deviation);
    l->recent.losses[l->recent.n++ % NDP_COUNT(l->recent.losses)] = m->loss;
    if (!spike)
        return NDP_OK;
    ndp_checks checks;
    NDP_TRY(find_cause(l, m, &checks));
    ndp_say(l->say, l->opts->user, "spike: step %lld has the loss %.6g, the last %lld have %.6g +- %.2g; %s",
            (long long)m->step, m->loss,
            (long long)(l->recent.n - 1 < NDP_COUNT(l->recent.losses) ? l->recent.n - 1 : NDP_COUNT(l->recent.losses)),
            mean, deviation, l->cause);
    return NDP_OK;
}
