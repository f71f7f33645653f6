/* The length of an imported run, its schedule, and when it saves and evaluates. With num_epochs the number of steps is
 * not known before the data is read: what Axolotl counts in shares of it becomes a share, or happens at the end. */
#include "import/import_parts.h"

#include <math.h>

static double epochs_of(const ndp_import *m) { return m->read.epochs > 0 ? m->read.epochs : 1; }

static ndp_status finish_steps(ndp_import *m) {
    if (m->read.max_steps == 0)
        return ndp_import_fail(&m->notes, "max_steps",
                               "'max_steps' is 0, expected a number of updates, or -1 for no limit");
    if (m->read.max_steps > 0) {
        if (!ndp_import_is_set(&m->notes, "train.steps"))
            m->job.train.steps = m->read.max_steps;
        if (m->read.epochs > 0)
            SAY(m,
                "max_steps %d determines the length of the run, even if it takes more than num_epochs %g; Axolotl "
                "would "
                "stop there\n",
                m->read.max_steps, m->read.epochs);
        ndp_import_mark(m, offsetof(ndp_config, train.steps));
        return NDP_OK;
    }
    if (ndp_import_is_set(&m->notes, "train.steps"))
        return NDP_OK;
    m->job.train.epochs = epochs_of(m);
    ndp_import_mark(m, offsetof(ndp_config, train.epochs));
    if (m->read.epochs <= 0)
        SAY(m, "train.epochs 1: Axolotl's num_epochs where none is given\n");
    return NDP_OK;
}

/* With train.epochs the number of steps is counted when the run starts. */
static bool knows_steps(const ndp_import *m) { return m->job.train.epochs == 0; }

/* warmup_steps below 1 is a share of the steps. */
static bool is_share(const ndp_import *m) { return m->read.warmup > 0 && m->read.warmup < 1; }

/* Axolotl's arithmetic, before it turns one step of warm-up into two. */
static int warmup_asked(const ndp_import *m) {
    int steps = m->job.train.steps, most = 100, share = (int)(0.03 * steps);
    if (is_share(m))
        return (int)ceil(m->read.warmup * steps); /* the Trainer's */
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

static ndp_status finish_schedule(ndp_import *m) {
    static const ndp_lr_kind names[] = {[SCHEDULE_CONSTANT] = NDP_LR_CONSTANT,
                                        [SCHEDULE_CONSTANT_WARMUP] = NDP_LR_CONSTANT,
                                        [SCHEDULE_LINEAR] = NDP_LR_LINEAR,
                                        [SCHEDULE_COSINE] = NDP_LR_COSINE};
    if (m->read.warmup >= 1 && m->read.warmup != floor(m->read.warmup))
        return ndp_import_fail(&m->notes, "warmup_steps",
                               "'warmup_steps' is %g, expected a whole number of steps, or a share below 1",
                               m->read.warmup);
    m->job.schedule.name = m->read.scheduler ? names[m->read.scheduler] : NDP_LR_COSINE;
    if (m->read.min_lr_ratio >= 0 && m->job.schedule.name == NDP_LR_COSINE)
        m->job.schedule.min_lr_ratio = m->read.min_lr_ratio;
    ndp_import_mark(m, offsetof(ndp_config, schedule.name));
    if (!knows_steps(m) && (m->read.warmup < 0 || is_share(m)) && m->read.scheduler != SCHEDULE_CONSTANT &&
        !ndp_import_is_set(&m->notes, "schedule.warmup_steps")) {
        share_warmup(m);
        return NDP_OK;
    }
    int warmup = m->read.scheduler == SCHEDULE_CONSTANT ? 0 : warmup_asked(m);
    m->job.schedule.warmup_steps = warmup == 1 && !is_share(m) ? 2 : warmup;
    ndp_import_mark(m, offsetof(ndp_config, schedule.warmup_steps));
    return NDP_OK;
}

ndp_status ndp_import_finish_steps(ndp_import *m) {
    NDP_TRY(finish_steps(m));
    return finish_schedule(m);
}

/* Adds a remark if the job's warm-up is not a number of steps that the file has. */
static void say_warmup(ndp_import *m) {
    int written = m->job.schedule.warmup_steps;
    if (ndp_import_is_set(&m->notes, "schedule.warmup_steps") || written == m->read.warmup || !knows_steps(m))
        return;
    const char *source = m->read.scheduler == SCHEDULE_CONSTANT ? "Axolotl's lr_scheduler constant has none"
                         : m->read.warmup >= 0                  ? "warmup_steps"
                         : m->read.warmup_ratio >= 0            ? "warmup_ratio"
                                                                : "Axolotl's 3%, at most 100";
    SAY(m, "schedule.warmup_steps %d of train.steps %d: %s%s\n", written, m->job.train.steps, source,
        written == 2 && warmup_asked(m) == 1 ? "; Axolotl turns one step of warm-up into two" : "");
}

void ndp_import_say_schedule(ndp_import *m) {
    if (!m->dialect->whole)
        return;
    say_warmup(m);
    bool rises = m->job.schedule.warmup_steps > 0 || m->job.schedule.warmup_ratio > 0,
         falls = m->job.schedule.name != NDP_LR_CONSTANT;
    if (rises || falls)
        SAY(m, "the learning rate %s%s%s, one update ahead of Axolotl\n",
            rises ? "starts at lr / warmup_steps, not at 0" : "", rises && falls ? ", and " : "",
            falls ? "reaches lr x min_lr_ratio at the last update" : "");
}

/* ---- checkpoints and evaluations ---- */

/* `every`: a number of steps, or, below 1, a share of all steps. */
static ndp_status count_steps(ndp_import *m, const char *name, double every, int *out) {
    if (every < 1 && !knows_steps(m)) {
        SAY(m, "%s is a share of the steps, which are counted when the run starts: only at the end\n", name);
        *out = 0;
        return NDP_OK;
    }
    if (every < 1)
        every = ceil(every * m->job.train.steps);
    if (every != floor(every) || every > 1 << 30)
        return ndp_import_fail(&m->notes, name, "'%s' is %g, expected a whole number of steps, or a share below 1",
                               name, every);
    *out = (int)every;
    return NDP_OK;
}

/* Steps of an epoch, where train.steps are all epochs of the run; 0: there is only one, at whose end an event happens
 * anyway. With max_steps the length of an epoch is unknown. */
static int steps_of_epoch(ndp_import *m, const char *name) {
    double every = ceil(m->job.train.steps / epochs_of(m));
    if (!knows_steps(m)) {
        if (epochs_of(m) > 1)
            SAY(m, "%s counts epochs, whose steps are counted when the run starts: only at the end\n", name);
        return 0;
    }
    if (m->read.max_steps > 0) {
        SAY(m, "%s counts epochs, but with max_steps the length of an epoch is unknown: only at the end\n", name);
        return 0;
    }
    return every < m->job.train.steps ? (int)every : 0;
}

static ndp_status finish_checkpoints(ndp_import *m) {
    enum { TRAINERS_OWN = 500 };
    int *every = &m->job.checkpoint.every;
    double times = m->read.saves_per_epoch * epochs_of(m);
    if (m->read.save_steps > 0)
        return count_steps(m, "save_steps", m->read.save_steps, every);
    if (times > 1) /* Axolotl turns it into a share of all steps */
        return count_steps(m, "saves_per_epoch", 1 / times, every);
    if (m->read.save == EVERY_STEPS)
        *every = TRAINERS_OWN;
    else if (m->read.save != EVERY_NEVER)
        *every = steps_of_epoch(m, m->read.save ? "save_strategy" : "save_strategy (default: epoch)");
    return NDP_OK;
}

static ndp_status finish_evaluation(ndp_import *m) {
    int *every = &m->job.train.eval_every, steps = m->job.train.steps;
    double times = m->read.evals_per_epoch * epochs_of(m);
    if (!ndp_import_find(&m->notes, "logging_steps")) /* Axolotl's */
        m->job.train.log_every = !knows_steps(m) ? 10 : steps < 400 ? 1 : steps < 2000 ? steps / 200 : 10;
    if (m->job.data.validation_fraction == 0 && m->job.data.validation_files.n == 0) {
        if (m->read.eval_steps > 0 || m->read.evals_per_epoch > 0 || m->read.eval > EVERY_NEVER)
            SAY(m, "there is no held-out data (val_set_size, test_datasets), so nothing is evaluated\n");
        return NDP_OK;
    }
    SAY(m, "eval_loss is the mean over all held-out tokens; Axolotl averages over batches\n");
    if (m->read.eval_steps > 0)
        return count_steps(m, "eval_steps", m->read.eval_steps, every);
    if (times > 1)
        return count_steps(m, "evals_per_epoch", 1 / times, every);
    if (m->read.eval == EVERY_STEPS)
        *every = m->job.train.log_every;
    else if (m->read.eval == EVERY_EPOCH)
        *every = steps_of_epoch(m, "eval_strategy");
    return NDP_OK;
}

ndp_status ndp_import_finish_events(ndp_import *m) {
    NDP_TRY(finish_checkpoints(m));
    return finish_evaluation(m);
}
