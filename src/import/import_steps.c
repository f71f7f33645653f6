/* The length of an imported run, and when it saves and evaluates. With num_epochs the number of steps is not known
 * before the data is read: what Axolotl counts in shares of it becomes a share, or happens at the end. */
#include "import/import_parts.h"

#include <math.h>
#include <string.h>

static double epochs_of(const ndp_import *m) { return m->read.epochs > 0 ? m->read.epochs : 1; }

static ndp_status finish_steps(ndp_import *m) {
    if (m->read.max_steps == 0)
        return ndp_import_fail(&m->notes, "max_steps",
                               "'max_steps' is 0, expected a number of updates, or -1 for no limit");
    if (m->read.max_steps > 0) {
        if (!ndp_import_is_set(&m->notes, "train.steps"))
            m->job.train.steps = m->read.max_steps;
        if (m->read.epochs > 0 && ndp_import_is_axolotl(m))
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

ndp_status ndp_import_finish_steps(ndp_import *m) {
    NDP_TRY(finish_steps(m));
    return ndp_import_finish_schedule(m);
}

/* ---- checkpoints and evaluations ---- */

/* `every`: a number of steps, or, below 1, a share of all steps. */
static ndp_status count_steps(ndp_import *m, const char *name, double every, int *out) {
    if (every < 1 && !ndp_import_knows_steps(m)) {
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
    if (!ndp_import_knows_steps(m)) {
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

enum { TRAINERS_OWN = 500 }; /* steps between logs, evaluations and saves, by default */

static ndp_status finish_checkpoints(ndp_import *m) {
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

static ndp_status count_evaluations(ndp_import *m) {
    int *every = &m->job.train.eval_every, steps = m->job.train.steps;
    double times = m->read.evals_per_epoch * epochs_of(m);
    if (!ndp_import_find(&m->notes, "logging_steps") && ndp_import_is_axolotl(m))
        m->job.train.log_every = !ndp_import_knows_steps(m) ? 10 : steps < 400 ? 1 : steps < 2000 ? steps / 200 : 10;
    if (m->job.data.validation_fraction == 0 && m->job.data.validation_files.n == 0) {
        if (m->read.eval_steps > 0 || m->read.evals_per_epoch > 0 || m->read.eval > EVERY_NEVER)
            SAY(m, "there is no held-out data (val_set_size, test_datasets), so nothing is evaluated\n");
        return NDP_OK;
    }
    SAY(m, "eval_loss is the mean over all held-out %s; %s averages over batches\n",
        m->read.pairs == PAIRS_KTO ? "answers"
        : m->read.pairs            ? "pairs"
                                   : "tokens",
        m->dialect->program);
    if (m->read.eval_steps > 0)
        return count_steps(m, "eval_steps", m->read.eval_steps, every);
    if (times > 1)
        return count_steps(m, "evals_per_epoch", 1 / times, every);
    if (m->read.eval == EVERY_STEPS)
        *every = m->job.train.log_every > 0 ? m->job.train.log_every : TRAINERS_OWN;
    else if (m->read.eval == EVERY_EPOCH)
        *every = steps_of_epoch(m, "eval_strategy");
    return NDP_OK;
}

static ndp_status finish_evaluation(ndp_import *m) {
    NDP_TRY(count_evaluations(m));
    if (m->read.keep_best)
        m->job.train.keep_best = m->read.keep_best == WORD_YES;
    if (m->job.train.eval_every == 0 && (m->job.train.keep_best || m->job.train.stop_after)) {
        SAY(m, "nothing is evaluated before the end: no best model is kept, and the run does not stop early\n");
        m->job.train.keep_best = false;
        m->job.train.stop_after = 0;
    }
    if (m->job.train.keep_best)
        SAY(m, "train.keep_best: the best model is in train.output_dir/best; the one in model is of the last step\n");
    return NDP_OK;
}

ndp_status ndp_import_finish_trackers(ndp_import *m) {
    bool shown = m->read.tensorboard == WORD_YES, wandb = false;
    if (ndp_import_is_set(&m->notes, "train.trackers"))
        return NDP_OK;
    for (int i = 0; i < m->read.reporters.n; i++) {
        const char *name = m->read.reporters.items[i];
        bool known = strcmp(name, "tensorboard") == 0 || strcmp(name, "all") == 0;
        wandb |= strcmp(name, "wandb") == 0;
        shown |= known || wandb;
        if (!known && strcmp(name, "wandb") != 0 && strcmp(name, "none") != 0)
            SAY(m, "%s is not supported; metrics.jsonl in train.output_dir has the metrics of every step\n", name);
    }
    if (wandb)
        SAY(m,
            "train.trackers [tensorboard]: `wandb sync --sync-tensorboard %s/tb` of wandb up to 0.29 reads its files\n",
            m->job.train.output_dir);
    return shown ? ndp_strings_add(&m->job.train.trackers, "tensorboard") : NDP_OK;
}

ndp_status ndp_import_finish_events(ndp_import *m) {
    NDP_TRY(finish_checkpoints(m));
    return finish_evaluation(m);
}
