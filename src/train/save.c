/* Checkpoints of a trainer: weights, optimizer state, step and cursor, on any layout; and the model as it exports it.
 */
#include "checkpoint/agree.h"
#include "train/identity.h"
#include "train/metrics_file.h"
#include "weights/export.h"
#include "weights/state_codes.h"

#include <stdio.h>
#include <string.h>

static const ndp_update_groups *groups_of(const ndp_trainer *t) { return &ndp_engine_program(t->engine)->groups; }

/* All tensors of a checkpoint, with this rank's pieces. `cut`: of the run that wrote it (weights/state_codes.h). */
static ndp_status list_tensors(const ndp_trainer *t, ndp_code_cut cut, ndp_tensor_list *list) {
    const ndp_model_opts *o = &t->model.opts;
    NDP_TRY(ndp_tensor_list_add(list, t->engine, NDP_OWNED_MASTER, NDP_TENSORS_RUN,
                                ndp_checkpoint_type(o, NDP_OWNED_MASTER)));
    for (int k = 0; k < ndp_update_states(groups_of(t)); k++) {
        const ndp_owned_kind kind = (ndp_owned_kind)(NDP_OWNED_STATE0 + k);
        NDP_TRY(ndp_tensor_list_add(list, t->engine, kind, NDP_TENSORS_RUN, ndp_checkpoint_type(o, kind)));
        NDP_TRY(ndp_state_codes_add(list, t->engine, k, cut, o->master));
    }
    return NDP_OK;
}

/* `folder` or, if that is NULL, the run's checkpoints/, whose path is `room`. */
static ndp_status choose_folder(const ndp_trainer *t, const char **folder, char room[NDP_PATH]) {
    if (*folder)
        return NDP_OK;
    *folder = room;
    return ndp_path_join(room, t->rank.job.config->train.output_dir, "checkpoints");
}

/* The blocks that states are coded in: {"state_blocks": {"elements": 256, "tp_size": 2, "ep_size": 1}}; without ep_size
 * it was 1. */
static const char blocks_key[] = "state_blocks";

static bool has_codes(const ndp_trainer *t) { return ndp_update_codes(groups_of(t)); }

static void add_blocks(const ndp_trainer *t, struct json_object *extra) {
    struct json_object *blocks = json_object_new_object();
    json_object_object_add(blocks, "elements", json_object_new_int(NDP_CODE_BLOCK));
    json_object_object_add(blocks, "tp_size", json_object_new_int(ndp_code_cut_of(t->engine).tp));
    json_object_object_add(blocks, "ep_size", json_object_new_int(ndp_code_cut_of(t->engine).ep));
    json_object_object_add(extra, blocks_key, blocks);
}

/* The cut of the run that wrote a checkpoint; that of this one where no state has codes. */
static ndp_status read_blocks(const ndp_trainer *t, const ndp_checkpoint_info *info, ndp_code_cut *cut) {
    struct json_object *blocks = json_object_object_get(info->extra, blocks_key);
    struct json_object *ep = json_object_object_get(blocks, "ep_size");
    int elements = json_object_get_int(json_object_object_get(blocks, "elements"));
    *cut = ndp_code_cut_of(t->engine);
    if (!has_codes(t))
        return NDP_OK;
    cut->tp = json_object_get_int(json_object_object_get(blocks, "tp_size"));
    cut->ep = ep ? json_object_get_int(ep) : 1;
    if (elements != NDP_CODE_BLOCK || cut->tp < 1 || cut->tp > NDP_MOST_CODED_RANKS || cut->ep < 1 ||
        cut->ep > NDP_MOST_CODED_RANKS)
        return NDP_FAIL(NDP_EFORMAT,
                        "the manifest of step %lld has %s of %d elements, tp_size %d and ep_size %d, expected %d "
                        "elements and sizes of 1 to %d",
                        (long long)info->step, blocks_key, elements, cut->tp, cut->ep, NDP_CODE_BLOCK,
                        NDP_MOST_CODED_RANKS);
    return NDP_OK;
}

/* The run's identity, and the metrics of the step: their line follows the commit, so a resumed run may have to write
 * it.
 */
static ndp_status make_extra(const ndp_trainer *t, struct json_object **extra) {
    NDP_TRY(ndp_identity_extra(t, extra));
    if (t->newest.step == t->updates && t->newest.step > 0)
        json_object_object_add(*extra, "metrics", ndp_metrics_to_json(&t->newest));
    if (has_codes(t))
        add_blocks(t, *extra);
    ndp_own_state_put(t, *extra);
    return NDP_OK;
}

ndp_status ndp_trainer_save_request(const ndp_trainer *t, ndp_tensor_list *list, ndp_save_request *out) {
    const ndp_config *c = t->rank.job.config;
    *out = (ndp_save_request){.info = {t->updates, t->samples, c->train.seed, NULL, t->lock},
                              .keep = c->checkpoint.keep,
                              .max_shard_bytes = NDP_SHARD_BYTES};
    ndp_status st = list_tensors(t, ndp_code_cut_of(t->engine), list);
    if (st == NDP_OK && ndp_is_first(t->rank.world))
        st = make_extra(t, &out->info.extra);
    out->specs = list->specs, out->n = list->n, out->pieces = list->pieces, out->n_pieces = list->n_pieces;
    return ndp_agree(t->rank.world, st);
}

ndp_status ndp_trainer_save(ndp_trainer *t, const char *folder) {
    NDP_NOT_NULL(t);
    char room[NDP_PATH];
    ndp_tensor_list list = {0};
    ndp_save_request r;
    t->saved = (ndp_save_cost){0};
    NDP_TRY(choose_folder(t, &folder, room));
    ndp_status st = ndp_trainer_save_request(t, &list, &r);
    if (st == NDP_OK)
        st = ndp_checkpoint_save(t->rank.world, folder, &r.info, r.specs, r.n, r.pieces, r.n_pieces, r.keep,
                                 r.max_shard_bytes, &t->saved);
    json_object_put(r.info.extra);
    ndp_tensor_list_release(&list);
    return st;
}

ndp_status ndp_trainer_export(ndp_trainer *t, const char *folder) {
    NDP_NOT_NULL(t);
    char path[NDP_PATH];
    const char *name = t->model.opts.adapter.r > 0 ? "adapter" : "model";
    const ndp_export x = {&t->rank.job, &t->rank.data, &t->model, t->rank.world, t->lock};
    NDP_TRY(ndp_path_join(path, t->rank.job.config->train.output_dir, name));
    return ndp_export_engine(&x, t->engine, folder ? folder : path);
}

/* ---- resuming ---- */

typedef struct checkpoint_loading {
    const ndp_trainer *t;
    const ndp_checkpoint *checkpoint;
    ndp_owned_kind kind;
} checkpoint_loading;

static ndp_status read_checkpoint(void *user, const ndp_segment *s, int64_t first, int64_t count, void *out) {
    const checkpoint_loading *l = user;
    char name[512];
    snprintf(name, sizeof name, "%s%s", ndp_engine_prefix(l->t->engine, l->kind, s), s->name);
    return ndp_checkpoint_read(l->checkpoint, name, first, count, out, l->t->model.opts.master);
}

/* Says it once if the codes of states are not those of the checkpoint. */
static void say_blocks(const ndp_trainer *t, ndp_code_cut cut) {
    char line[200];
    ndp_code_cut now = ndp_code_cut_of(t->engine);
    if (ndp_code_cuts_equal(cut, now) || !ndp_is_first(t->rank.world))
        return;
    snprintf(line, sizeof line,
             "resume: 8-bit states are quantized anew: their blocks were those of tp_size %d and ep_size %d, now they "
             "are those of %d and %d",
             cut.tp, cut.ep, now.tp, now.ep);
    if (t->rank.opts && t->rank.opts->say)
        t->rank.opts->say(t->rank.opts->user, line);
    else
        ndp_info(&t->rank.log, "%s", line);
}

static ndp_status load_states(ndp_trainer *t, const ndp_checkpoint *c, ndp_code_cut cut) {
    for (int k = 0; k < ndp_update_states(groups_of(t)); k++) {
        const ndp_owned_kind kind = (ndp_owned_kind)(NDP_OWNED_STATE0 + k);
        NDP_TRY(ndp_engine_fill(t->engine, kind, NDP_TENSORS_RUN, read_checkpoint, &(checkpoint_loading){t, c, kind}));
        NDP_TRY(ndp_state_codes_load(t->engine, c, k, cut));
    }
    say_blocks(t, cut);
    return NDP_OK;
}

static ndp_status load_all(ndp_trainer *t, const ndp_checkpoint *c) {
    ndp_tensor_list list = {0};
    ndp_code_cut cut;
    NDP_TRY(read_blocks(t, ndp_checkpoint_get_info(c), &cut));
    ndp_status st = list_tensors(t, cut, &list);
    if (st == NDP_OK)
        st = ndp_checkpoint_check(c, list.specs, list.n);
    ndp_tensor_list_release(&list);
    NDP_TRY(st);
    NDP_TRY(ndp_engine_fill(t->engine, NDP_OWNED_MASTER, NDP_TENSORS_RUN, read_checkpoint,
                            &(checkpoint_loading){t, c, NDP_OWNED_MASTER}));
    NDP_TRY(load_states(t, c, cut));
    NDP_TRY(ndp_checkpoint_intact(c));
    NDP_TRY(ndp_engine_publish(t->engine));
    const ndp_checkpoint_info *info = ndp_checkpoint_get_info(c);
    t->updates = info->step;
    t->samples = info->samples;
    t->newest = (ndp_metrics){0}; /* checkpoints of earlier versions have no metrics */
    struct json_object *metrics = json_object_object_get(info->extra, "metrics");
    if (metrics)
        NDP_TRY(ndp_metrics_from_json(metrics, "the metrics of a checkpoint", &t->newest));
    bool known = t->updates == 0 || (t->newest.step == t->updates && t->newest.tokens_total > 0);
    t->tokens = known ? t->newest.tokens_total : -1;
    t->newest.epoch = ndp_trainer_epoch(t);
    memset(&t->own, 0, sizeof t->own);
    return ndp_own_state_take(t, info->extra);
}

/* Warns of what a resume did to the folder, and why. Called on rank 0. */
static void warn_of(const ndp_trainer *t, const char *path, const ndp_resume *r, const char *names) {
    if (r->unverifiable)
        ndp_warn(
            &t->rank.log,
            "the checkpoint of step %lld in '%s' has a manifest of version 1, without hashes: it cannot be verified",
            (long long)r->step, path);
    if (r->n_aside && r->damaged[0] && r->words[0])
        ndp_warn(&t->rank.log, "the checkpoint of step %lld in '%s' is DAMAGED: %s", (long long)r->aside[0], path,
                 r->words);
    if (r->n_aside)
        ndp_warn(&t->rank.log, "going back from step %lld to step %lld; set aside in '%s': %s", (long long)r->aside[0],
                 (long long)r->step, path, names);
}

ndp_status ndp_trainer_load(ndp_trainer *t, const char *path, int64_t step) {
    ndp_checkpoint *c = NULL;
    ndp_status st = ndp_checkpoint_open(path, step, &c);
    if (st == NDP_OK && ndp_is_first(t->rank.world))
        st = ndp_identity_check(t, ndp_checkpoint_get_info(c), path);
    st = ndp_agree(t->rank.world, st);
    if (st == NDP_OK)
        st = ndp_score_find_references(&t->score); /* of the weights that the run began with */
    if (st == NDP_OK)
        st = load_all(t, c);
    ndp_checkpoint_close(c);
    return ndp_agree(t->rank.world, st);
}

static ndp_status load_chosen(ndp_trainer *t, const char *path, const ndp_resume *r) {
    ndp_str names = {0};
    ndp_status st = ndp_trainer_load(t, path, r->step);
    if (st == NDP_OK)
        st = ndp_resume_settle(t->rank.world, path, r, &names);
    if (st == NDP_OK && ndp_is_first(t->rank.world))
        warn_of(t, path, r, names.data ? names.data : "");
    ndp_str_release(&names);
    return st;
}

ndp_status ndp_trainer_resume_from(ndp_trainer *t, const char *folder, int64_t wanted, int64_t *step) {
    NDP_NOT_NULL(t);
    char room[NDP_PATH];
    ndp_resume r;
    NDP_TRY(choose_folder(t, &folder, room));
    NDP_TRY(ndp_resume_choose(t->rank.world, folder, wanted, t->rank.exec.threads, &r));
    ndp_status st = r.step >= 0 ? load_chosen(t, folder, &r) : NDP_OK;
    if (st == NDP_OK && step)
        *step = r.step;
    ndp_resume_release(&r);
    return st;
}

ndp_status ndp_trainer_resume(ndp_trainer *t, const char *folder, int64_t *step) {
    NDP_NOT_NULL(t);
    return ndp_trainer_resume_from(t, folder, -1, step);
}
