/* The schedule of an imported run. Axolotl's arithmetic of the warm-up is that of its builder, the rest is the
 * Trainer's. */
#include "import/import_parts.h"

#include <math.h>
#include <stdio.h>

/* ---- warm-up ---- */

/* warmup_steps below 1 is a share of the steps. */
static bool is_share(const ndp_import *m) { return m->read.warmup > 0 && m->read.warmup < 1; }

/* Axolotl's arithmetic, before it turns one step of warm-up into two. */
static int warmup_asked(const ndp_import *m) {
    int steps = m->job.train.steps, most = 100, share = (int)(0.03 * steps);
    if (is_share(m))
        return (int)ceil(m->read.warmup * steps); /* the Trainer's */
    if (!ndp_import_is_axolotl(m))                /* the Trainer's, too */
        return m->read.warmup > 0 ? (int)m->read.warmup : (int)ceil(m->read.warmup_ratio * steps);
    if (m->read.warmup >= 0)
        return (int)m->read.warmup;
    if (m->read.warmup_ratio >= 0)
        return (int)(m->read.warmup_ratio * steps);
    return share < most ? share : most;
}

/* Warm-up as a share of steps that are not known yet. */
static void share_warmup(ndp_import *m) {
    double share = is_share(m) ? m->read.warmup : m->read.warmup_ratio >= 0 ? m->read.warmup_ratio : 0.03;
    m->job.schedule.warmup_ratio = share;
    if (is_share(m))
        SAY(m, "schedule.warmup_ratio %g: warmup_steps below 1 is a share of the steps\n", share);
    else if (m->read.warmup_ratio < 0)
        SAY(m, "schedule.warmup_ratio 0.03: Axolotl's, which is at most 100 steps\n");
    if (share == 0)
        m->job.schedule.warmup_steps = 0;
    ndp_import_mark(m, share > 0 ? offsetof(ndp_config, schedule.warmup_ratio)
                                 : offsetof(ndp_config, schedule.warmup_steps));
}

static ndp_status finish_warmup(ndp_import *m) {
    if (m->read.warmup >= 1 && m->read.warmup != floor(m->read.warmup))
        return ndp_import_fail(&m->notes, "warmup_steps",
                               "'warmup_steps' is %g, expected a whole number of steps, or a share below 1",
                               m->read.warmup);
    if (!ndp_import_knows_steps(m) && (m->read.warmup < 0 || is_share(m)) && m->read.scheduler != SCHEDULE_CONSTANT &&
        !ndp_import_is_set(&m->notes, "schedule.warmup_steps")) {
        share_warmup(m);
        return NDP_OK;
    }
    int warmup = m->read.scheduler == SCHEDULE_CONSTANT ? 0 : warmup_asked(m);
    m->job.schedule.warmup_steps = warmup == 1 && !is_share(m) && ndp_import_is_axolotl(m) ? 2 : warmup;
    ndp_import_mark(m, offsetof(ndp_config, schedule.warmup_steps));
    return NDP_OK;
}

/* ---- what one schedule has ---- */

/* Refuses a number of lr_scheduler_kwargs. */
static ndp_status refuse_number(ndp_import *m, const char *name, double value, const char *why, const char *ours) {
    char text[32];
    snprintf(text, sizeof text, "%g", value);
    return ndp_import_refuse(&m->notes, name, text, ndp_import_node(&m->notes, name), why, ours);
}

/* The end of a rate that falls as cosine_with_min_lr or warmup_stable_decay; others fall to 0. */
static ndp_status finish_end(ndp_import *m) {
    double *least = &m->job.schedule.min_lr_ratio, lr = m->job.optimizer.lr;
    bool cosine = m->job.schedule.name == NDP_LR_COSINE;
    if (cosine && m->read.min_lr > lr)
        return refuse_number(m, "lr_scheduler_kwargs.min_lr", m->read.min_lr, "it is more than learning_rate",
                             "schedule.min_lr_ratio");
    if (cosine && m->read.min_lr >= 0)
        *least = m->read.min_lr > 0 ? m->read.min_lr / lr : 0;
    else if (cosine && m->read.min_lr_ratio >= 0)
        *least = m->read.min_lr_ratio;
    else if (m->job.schedule.name == NDP_LR_WSD && m->read.wsd_min_lr_ratio >= 0)
        *least = m->read.wsd_min_lr_ratio;
    return NDP_OK;
}

static ndp_status finish_cycles(ndp_import *m) {
    const char *name = "lr_scheduler_kwargs.num_cycles";
    double cycles = m->read.cycles;
    if (cycles == 0)
        return NDP_OK;
    if (m->job.schedule.name != NDP_LR_COSINE_RESTARTS)
        return cycles == 0.5
                   ? NDP_OK
                   : refuse_number(m, name, cycles, "other cosines fall once, without waves", "schedule.name");
    if (cycles != floor(cycles))
        return refuse_number(m, name, cycles, "a schedule has whole cycles", "schedule.cycles");
    m->job.schedule.cycles = (int)cycles;
    ndp_import_mark(m, offsetof(ndp_config, schedule.cycles));
    return NDP_OK;
}

/* The share of the steps in which the rate falls. */
static ndp_status finish_decay(ndp_import *m) {
    const char *ours = "schedule.decay_ratio", *falls = "lr_scheduler_kwargs.num_decay_steps",
               *stays = "lr_scheduler_kwargs.num_stable_steps";
    int decay = m->read.decay_steps, stable = m->read.stable_steps, steps = m->job.train.steps;
    if (m->job.schedule.name != NDP_LR_WSD)
        return NDP_OK;
    if (decay == 0)
        return ndp_import_refuse(&m->notes, "lr_scheduler", "warmup_stable_decay",
                                 ndp_import_node(&m->notes, "lr_scheduler"),
                                 "lr_scheduler_kwargs has no num_decay_steps", ours);
    if (!ndp_import_knows_steps(m))
        return refuse_number(m, falls, decay, "the steps of num_epochs are counted when the run starts; give a share",
                             ours);
    if (decay > steps)
        return refuse_number(m, falls, decay, "it is more than max_steps", ours);
    m->job.schedule.decay_ratio = (double)decay / steps;
    ndp_import_mark(m, offsetof(ndp_config, schedule.decay_ratio));
    if (stable >= 0 && stable != steps - decay - m->job.schedule.warmup_steps)
        return refuse_number(m, stays, stable, "the rate falls in the last steps, after all others but the warm-up",
                             ours);
    return NDP_OK;
}

static ndp_status finish_timescale(ndp_import *m) {
    int warmup = m->job.schedule.warmup_steps, without = 10000;
    if (m->job.schedule.name != NDP_LR_INVERSE_SQRT || m->read.timescale == 0 ||
        m->read.timescale == (warmup > 0 ? warmup : without))
        return NDP_OK;
    return refuse_number(m, "lr_scheduler_kwargs.timescale", m->read.timescale,
                         "the rate falls by the length of the warm-up", "schedule.warmup_steps");
}

/* Whose way of counting the schedule has. */
static void finish_like(ndp_import *m) {
    if (!m->dialect->whole || ndp_import_is_deepspeed(m) || ndp_import_is_set(&m->notes, "schedule.like"))
        return;
    ndp_import_mark(m, offsetof(ndp_config, schedule.like));
    if (m->read.scheduler == SCHEDULE_COSINE_AHEAD)
        SAY(m, "cosine_warmup_with_min_lr begins at lr / warmup_steps and ends at the last update, as ours; between "
               "these it is behind by less than one update\n");
    else
        m->job.schedule.like = ndp_import_is_axolotl(m) ? NDP_LR_LIKE_AXOLOTL : NDP_LR_LIKE_TRANSFORMERS;
}

ndp_status ndp_import_finish_schedule(ndp_import *m) {
    static const ndp_lr_kind names[] = {[SCHEDULE_CONSTANT] = NDP_LR_CONSTANT,
                                        [SCHEDULE_CONSTANT_WARMUP] = NDP_LR_CONSTANT,
                                        [SCHEDULE_LINEAR] = NDP_LR_LINEAR,
                                        [SCHEDULE_COSINE] = NDP_LR_COSINE,
                                        [SCHEDULE_COSINE_AHEAD] = NDP_LR_COSINE,
                                        [SCHEDULE_RESTARTS] = NDP_LR_COSINE_RESTARTS,
                                        [SCHEDULE_INVERSE_SQRT] = NDP_LR_INVERSE_SQRT,
                                        [SCHEDULE_WSD] = NDP_LR_WSD};
    m->job.schedule.name = m->read.scheduler ? names[m->read.scheduler] : NDP_LR_COSINE;
    ndp_import_mark(m, offsetof(ndp_config, schedule.name));
    finish_like(m);
    NDP_TRY(finish_warmup(m));
    if (m->read.quadratic == WORD_YES && m->job.schedule.name == NDP_LR_COSINE)
        NDP_TRY(ndp_import_refuse(&m->notes, "lr_quadratic_warmup", "true",
                                  ndp_import_node(&m->notes, "lr_quadratic_warmup"), "warm-up is linear",
                                  "schedule.warmup_steps"));
    NDP_TRY(finish_end(m));
    NDP_TRY(finish_cycles(m));
    NDP_TRY(finish_decay(m));
    return finish_timescale(m);
}

/* ---- remarks ---- */

/* Adds a remark if the job's warm-up is not a number of steps that the file has. */
static void say_warmup(ndp_import *m) {
    int written = m->job.schedule.warmup_steps;
    if (ndp_import_is_set(&m->notes, "schedule.warmup_steps") || written == m->read.warmup ||
        !ndp_import_knows_steps(m) || (written == 0 && m->read.warmup_ratio == 0))
        return;
    const char *source = m->read.scheduler == SCHEDULE_CONSTANT ? "the Trainer's schedule constant has none"
                         : m->read.warmup >= 0                  ? "warmup_steps"
                         : m->read.warmup_ratio >= 0            ? "warmup_ratio"
                                                                : "Axolotl's 3%, at most 100";
    SAY(m, "schedule.warmup_steps %d of train.steps %d: %s%s\n", written, m->job.train.steps, source,
        written == 2 && warmup_asked(m) == 1 ? "; Axolotl turns one step of warm-up into two" : "");
}

void ndp_import_say_schedule(ndp_import *m) {
    if (m->dialect->whole)
        say_warmup(m);
}
