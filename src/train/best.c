/* The model of the lowest eval_loss (train.keep_best) and early stopping (train.stop_after).
 *
 * Both are decided by rank 0 and shared. The evaluations that it counts are those of metrics.jsonl, whose lines a
 * resumed run cuts to the step that it goes on from; so they are those of the run's own past, also after
 * --resume-from. FOLDER/best says in evaluation.json which step it is of. If that is after the step that a run resumes
 * from, its evaluation is void: the next one replaces it, whatever its loss is.
 *
 * A new best/ is made whole beside its place, evaluation.json last, and then exchanged with the one before. Beside it
 * the name has the generation of the lock, as those of checkpoints have (checkpoint/steps.h). */
#include "train/best.h"

#include "base/fault.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/agree.h"
#include "checkpoint/shards.h"
#include "checkpoint/steps.h"
#include "train/loop.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char name[] = "best", replaced[] = ".best.old", record[] = "evaluation.json";

void ndp_best_count(ndp_best *b, int64_t step, double loss) {
    bool better = isfinite(loss) && (b->step == 0 || loss < b->loss);
    b->since = better ? 0 : b->since + 1;
    b->step = better ? step : b->step;
    b->loss = better ? loss : b->loss;
    b->newest = step;
    b->newest_loss = loss;
}

/* ---- the folder ---- */

static ndp_status path_in(char out[NDP_PATH], const char *folder, const char *part, const char *file) {
    char room[NDP_PATH];
    NDP_TRY(ndp_path_join(room, folder, part));
    return ndp_path_join(out, room, file);
}

static bool is_beside(const char *file) {
    char of[64];
    return ndp_beside_of(file, of) && strcmp(of, name) == 0;
}

/* `user`: the name of the whole one of the latest generation, or "". */
static ndp_status find_whole(void *user, const char *folder, const char *file) {
    char whole[NDP_PATH], *newest = user;
    if (!is_beside(file))
        return NDP_OK;
    NDP_TRY(path_in(whole, folder, file, record));
    bool later = strlen(file) != strlen(newest) ? strlen(file) > strlen(newest) : strcmp(file, newest) > 0;
    if (ndp_path_exists(whole) && later)
        snprintf(newest, NDP_PATH, "%s", file);
    return NDP_OK;
}

static ndp_status remove_beside(void *user, const char *folder, const char *file) {
    char path[NDP_PATH];
    (void)user;
    if (!is_beside(file))
        return NDP_OK;
    NDP_TRY(ndp_path_join(path, folder, file));
    return ndp_folder_remove(path);
}

ndp_status ndp_best_clean(const char *folder) {
    char place[NDP_PATH], new[NDP_PATH], old[NDP_PATH], newest[NDP_PATH] = "";
    NDP_TRY(ndp_path_join(place, folder, name));
    NDP_TRY(ndp_path_join(old, folder, replaced));
    NDP_TRY(ndp_folder_visit(folder, find_whole, newest));
    if (!ndp_path_exists(place) && newest[0]) {
        NDP_TRY(ndp_path_join(new, folder, newest));
        NDP_TRY(ndp_durable_rename(new, place));
    }
    if (!ndp_path_exists(place) && ndp_path_exists(old))
        NDP_TRY(ndp_durable_rename(old, place));
    NDP_TRY(ndp_folder_visit(folder, remove_beside, NULL));
    return ndp_folder_remove(old);
}

/* Exchanges them, so that one of the two is there at any time. File systems that cannot do that get two renames; a run
 * that is killed between them is settled by ndp_best_clean. */
static ndp_status put_in_place(const char *folder, const char *new) {
    char place[NDP_PATH], old[NDP_PATH];
    NDP_TRY(ndp_path_join(place, folder, name));
    NDP_TRY(ndp_path_join(old, folder, replaced));
    NDP_TRY(ndp_durable_folder(new));
    bool taken = ndp_path_exists(place);
    bool exchanged =
        taken && !ndp_fault(NDP_FAULT_RENAME) && renameat2(AT_FDCWD, new, AT_FDCWD, place, RENAME_EXCHANGE) == 0;
    if (taken && !exchanged)
        NDP_TRY(ndp_durable_rename(place, old));
    if (!exchanged)
        NDP_TRY(ndp_durable_rename(new, place));
    NDP_TRY(ndp_durable_folder(folder));
    NDP_TRY(ndp_folder_remove(new));
    return ndp_folder_remove(old);
}

static ndp_status write_record(const char *folder, const ndp_best *b) {
    char path[NDP_PATH], text[96];
    NDP_TRY(ndp_path_join(path, folder, record));
    snprintf(text, sizeof text, "{\"step\": %lld, \"eval_loss\": %.17g}\n", (long long)b->newest, b->newest_loss);
    return ndp_file_write_atomic(path, text, strlen(text));
}

/* What is kept, unless it is of a step after `step` or cannot be read. */
static ndp_best_model read_kept(const char *folder, int64_t step) {
    char path[NDP_PATH];
    struct json_object *o = NULL;
    ndp_best_model kept = {.loss = NAN};
    bool known = path_in(path, folder, name, record) == NDP_OK && ndp_path_exists(path) &&
                 ndp_json_read(path, &o) == NDP_OK && ndp_json_int(o, path, "step", 1, step, &kept.step) == NDP_OK &&
                 ndp_json_double(o, path, "eval_loss", &kept.loss) == NDP_OK && isfinite(kept.loss);
    json_object_put(o);
    return known ? kept : (ndp_best_model){0};
}

/* ---- of a run ---- */

/* Collective: the weights as `path`, which then takes the place of the best model of before. */
static ndp_status write_folder(ndp_training_loop *l, const char *path) {
    ndp_comm *world = l->trainer->rank.world;
    ndp_status own = l->first ? ndp_lock_check(l->lock) : NDP_OK;
    if (own == NDP_OK && l->first)
        own = ndp_fresh_folder(path);
    NDP_TRY(ndp_agree(world, own));
    NDP_TRY(ndp_trainer_export(l->trainer, path));
    if (l->first)
        own = write_record(path, &l->best);
    if (own == NDP_OK && l->first)
        own = ndp_lock_check(l->lock);
    if (own == NDP_OK && l->first)
        own = put_in_place(l->config->train.output_dir, path);
    return ndp_agree(world, own);
}

static ndp_status save_folder(ndp_training_loop *l) {
    char path[NDP_PATH];
    int64_t generation = ndp_lock_generation(l->lock);
    NDP_TRY(ndp_share_now(l->trainer->rank.world, &generation, sizeof generation, 0));
    NDP_TRY(ndp_beside_path(path, l->config->train.output_dir, name, generation));
    ndp_status st = write_folder(l, path);
    if (st != NDP_OK && l->first && ndp_lock_owns_names(l->lock))
        ndp_remove_quietly(path, st);
    return st;
}

void ndp_loop_say_best(const ndp_training_loop *l) {
    if (l->in_best.step > 0)
        ndp_say(l->say, l->opts->user, "best: %s/%s, of step %lld, eval_loss %.4f", l->config->train.output_dir, name,
                (long long)l->in_best.step, l->in_best.loss);
}

/* A disk that is full does not end the run: the best model of before stays, and the next better one tries again. */
static ndp_status save_best(ndp_training_loop *l) {
    ndp_status st = save_folder(l);
    if (st != NDP_OK && st != NDP_EIO)
        return ndp_loop_keep(l, st);
    if (st == NDP_EIO && l->first)
        ndp_warn(&l->trainer->rank.log, "%s. The run goes on, without the model of step %lld in %s/%s",
                 ndp_error_message(), (long long)l->best.newest, l->config->train.output_dir, name);
    if (st == NDP_EIO)
        return NDP_OK;
    l->in_best = (ndp_best_model){l->best.newest, l->best.newest_loss};
    ndp_loop_say_best(l);
    return NDP_OK;
}

/* Rank 0 decides, from the evaluations that it has counted; `evaluated`: the weights are those of the newest. */
static ndp_status decide(ndp_training_loop *l, bool evaluated) {
    const int most = l->config->train.stop_after;
    const double loss = l->best.newest_loss;
    bool better = isfinite(loss) && (l->in_best.step == 0 || loss < l->in_best.loss);
    bool more = ndp_trainer_updates(l->trainer) < l->trainer->rank.data.steps;
    bool decisions[] = {l->config->train.keep_best && evaluated && better, more && most > 0 && l->best.since >= most};
    NDP_TRY(ndp_share_now(l->trainer->rank.world, decisions, sizeof decisions, 0));
    l->enough = decisions[1];
    if (decisions[0])
        NDP_TRY(save_best(l));
    if (l->enough && l->best.step > 0)
        ndp_say(l->say, l->opts->user,
                "stopped early after step %lld: eval_loss was lowest, %.4f, at step %lld, %lld evaluations ago "
                "(train.stop_after %d)",
                (long long)ndp_trainer_updates(l->trainer), l->best.loss, (long long)l->best.step,
                (long long)l->best.since, most);
    else if (l->enough)
        ndp_say(l->say, l->opts->user, "stopped early: no eval_loss was finite (train.stop_after %d)", most);
    return NDP_OK;
}

static bool wanted(const ndp_training_loop *l) { return l->config->train.keep_best || l->config->train.stop_after > 0; }

ndp_status ndp_loop_begin_best(ndp_training_loop *l) {
    int64_t step = ndp_trainer_updates(l->trainer);
    if (!wanted(l))
        return NDP_OK;
    l->best = l->metrics.best; /* of rank 0 */
    if (l->first && l->config->train.keep_best && step > 0)
        l->in_best = read_kept(l->config->train.output_dir, step);
    return decide(l, step > 0 && l->best.newest == step);
}

ndp_status ndp_loop_judge(ndp_training_loop *l, const ndp_metrics *m) {
    if (!wanted(l) || l->failed != NDP_OK)
        return NDP_OK;
    ndp_best_count(&l->best, m->step, m->eval_loss);
    return decide(l, true);
}
