/* A trained model as a folder: a model folder, or the adapter alone as a folder of PEFT. The tensors are those that a
 * run saves, from its engine or from a checkpoint; from files they go to files in chunks, so the memory does not depend
 * on the model's size. Both ways give the same bytes. */
#include "weights/export.h"

#include "checkpoint/agree.h"
#include "checkpoint/new_folder.h"
#include "weights/run_model.h"

#include <ndparallel/ndparallel.h>

static bool has_adapter(const ndp_export *x) { return x->model->opts.adapter.r > 0; }

ndp_dtype ndp_export_type(const ndp_model_opts *o) {
    return o->compute == NDP_BF16 && o->adapter.r == 0 ? NDP_BF16
                                                       : o->master; /* factors are small: nothing is rounded */
}

/* Everything except the weights. */
static ndp_status write_rest(const ndp_export *x, const char *folder) {
    NDP_TRY(ndp_lock_check(x->lock));
    return has_adapter(x) ? ndp_export_adapter_rest(x->job, x->data, x->model, folder)
                          : ndp_export_rest(x->job, x->data, folder, ndp_export_type(&x->model->opts));
}

/* Opens the model folder if the model carries tensors of it; NULL: it does not, or the folder is gone, which a resumed
 * run does without, unless they are those of whole parts. */
static ndp_status open_carried(const ndp_export *x, ndp_weights **out) {
    const char *folder = ndp_job_weights(x->job).folder;
    const ndp_model_spec *s = &x->job->spec;
    *out = NULL;
    if (has_adapter(x) || (s->carried == 0 && !s->composite) || !folder)
        return NDP_OK;
    if (!ndp_weights_exist(folder))
        return s->composite ? NDP_FAIL(NDP_EIO,
                                       "'%s' has no weights any more, and the export needs those of the other parts of "
                                       "the %s; put it back, and use ndparallel checkpoint export",
                                       folder, s->composite)
                            : NDP_OK;
    NDP_TRY(ndp_weights_open(folder, out));
    return ndp_weights_name(*out, x->model);
}

/* What the model folder has of modules that are not built. All ranks list it, and the first one writes it. */
static ndp_status carry(const ndp_export *x, ndp_status st, ndp_tensor_list *list, ndp_weights **from) {
    int before = list->n;
    if (st == NDP_OK)
        st = open_carried(x, from);
    if (st == NDP_OK && *from)
        st = ndp_tensor_list_carry(list, *from, x->model, ndp_is_first(x->world));
    NDP_TRY(ndp_agree(x->world, st));
    int64_t n = list->n - before, most[2] = {n, -n};
    NDP_TRY(ndp_reduce_now(x->world, most, 2, NDP_I64, NDP_MAX));
    return most[0] == -most[1]
               ? NDP_OK
               : NDP_FAIL(NDP_EFORMAT,
                          "the model folder of one rank has %lld tensors that are not trained, and that "
                          "of another %lld: give all hosts the same folder",
                          (long long)most[0], (long long)-most[1]);
}

/* Takes the status of the listing, which the ranks share here. */
static ndp_status write_listed(const ndp_export *x, ndp_status st, ndp_tensor_list *list, const char *folder) {
    bool adapter = has_adapter(x);
    NDP_TRY(ndp_agree(x->world, st));
    if (ndp_is_first(x->world))
        st = write_rest(x, folder);
    if (st == NDP_OK && adapter)
        st = ndp_tensor_list_wrap(list);
    if (st == NDP_OK && adapter)
        st = ndp_export_tied(x->job, x->model, list);
    NDP_TRY(ndp_agree(x->world, st));
    return ndp_weights_save_stem(x->world, x->lock, folder, adapter ? "adapter_model" : "model", list->specs, list->n,
                                 list->pieces, list->n_pieces, adapter ? INT64_MAX : NDP_SHARD_BYTES);
}

static ndp_status write_folder(const ndp_export *x, ndp_status st, ndp_tensor_list *list, const char *folder) {
    ndp_weights *from = NULL;
    st = carry(x, st, list, &from);
    st = write_listed(x, st, list, folder);
    if (st == NDP_OK && from)
        st = ndp_weights_intact(from);
    ndp_weights_close(from);
    return st;
}

ndp_status ndp_export_engine(const ndp_export *x, const ndp_engine *e, const char *folder) {
    ndp_tensor_list list = {0};
    ndp_dtype type = ndp_export_type(&x->model->opts);
    ndp_status st = ndp_tensor_list_add(&list, e, NDP_OWNED_MASTER, NDP_TENSORS_RUN, type);
    st = write_folder(x, st, &list, folder);
    ndp_tensor_list_release(&list);
    return st;
}

/* ---- a checkpoint ---- */

/* The tensors in the order of the model, in which a run exports them; they are all that the checkpoint has. */
static ndp_status list_stored(const ndp_run_model *m, const ndp_model *model, ndp_tensor_list *list) {
    const ndp_weights *w = ndp_run_model_weights(m);
    NDP_TRY(ndp_tensor_list_of(list, model, NDP_OWNED_MASTER, NDP_TENSORS_RUN, m->type));
    NDP_TRY(ndp_weights_check(w, list->specs, list->n, NULL, NULL));
    for (int i = 0; i < list->n; i++)
        NDP_TRY(ndp_tensor_list_stored(list, i, w, ndp_weights_find(w, list->specs[i].name), false));
    return NDP_OK;
}

ndp_status ndp_export_run_model(const ndp_run_model *m, const char *folder) {
    ndp_model model;
    ndp_tensor_list list = {0};
    NDP_TRY(ndp_model_build(&m->job.spec, &m->job.model, &model));
    ndp_status st = list_stored(m, &model, &list);
    st = write_folder(&(ndp_export){&m->job, &m->data, &model, NULL, NULL}, st, &list, folder);
    ndp_tensor_list_release(&list);
    ndp_model_release(&model);
    return st == NDP_OK ? ndp_checkpoint_intact(m->checkpoint) : st;
}

static ndp_status export_checkpoint(const char *run, int64_t step, const ndp_own_list *own, const char *folder,
                                    int64_t *exported) {
    ndp_run_model *m = NULL;
    ndp_new_folder place;
    NDP_TRY(ndp_new_folder_check(folder));
    NDP_TRY(ndp_run_model_open(run, step, 0, own, &m));
    ndp_status st = ndp_run_model_chat(m, &m->data.chat);
    if (st == NDP_OK)
        st = ndp_new_folder_begin(folder, &place);
    if (st == NDP_OK)
        st = ndp_new_folder_end(&place, ndp_export_run_model(m, place.beside));
    if (st == NDP_OK)
        *exported = m->step;
    ndp_run_model_close(m);
    return st;
}

ndp_status ndp_checkpoint_export(const char *run, int64_t step, const char *folder, int64_t *exported) {
    NDP_NOT_NULL(run, folder, exported);
    return export_checkpoint(run, step, NULL, folder, exported);
}

ndp_status ndp_architecture_export(const ndp_architecture *a, const char *run, int64_t step, const char *folder,
                                   int64_t *exported) {
    ndp_own_list own = {0};
    NDP_NOT_NULL(a, run, folder, exported);
    NDP_TRY(ndp_own_add(&own, a));
    return export_checkpoint(run, step, &own, folder, exported);
}
