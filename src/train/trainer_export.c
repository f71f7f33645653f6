/* The trained model as a model folder, or its adapter as a folder of PEFT. */
#include "checkpoint/agree.h"
#include "train/trainer.h"
#include "weights/export.h"

/* Rank 0: writes everything except the weights. */
static ndp_status write_rest(const ndp_trainer *t, const char *folder, ndp_dtype type) {
    NDP_TRY(ndp_lock_check(t->lock));
    return ndp_export_rest(&t->rank.job, &t->rank.data, folder, type);
}

static ndp_status export_to(ndp_trainer *t, const char *folder) {
    ndp_dtype type = ndp_export_type(&t->model.opts);
    NDP_TRY(ndp_agree(t->rank.world, ndp_is_first(t->rank.world) ? write_rest(t, folder, type) : NDP_OK));
    ndp_tensor_list list = {0};
    ndp_status st =
        ndp_agree(t->rank.world, ndp_tensor_list_add(&list, t->engine, NDP_OWNED_MASTER, NDP_TENSORS_RUN, "", type));
    if (st == NDP_OK)
        st = ndp_weights_save(t->rank.world, t->lock, folder, list.specs, list.n, list.pieces, list.n_pieces,
                              NDP_SHARD_BYTES);
    ndp_tensor_list_release(&list);
    return st;
}

/* Rank 0. */
static ndp_status write_adapter_rest(const ndp_trainer *t, const char *folder) {
    NDP_TRY(ndp_lock_check(t->lock));
    return ndp_export_adapter_rest(&t->rank.job, &t->rank.data, &t->model, folder);
}

static ndp_status export_adapter(ndp_trainer *t, const char *folder) {
    ndp_tensor_list list = {0};
    ndp_dtype type = t->model.opts.master; /* factors are small: nothing is rounded */
    NDP_TRY(ndp_agree(t->rank.world, ndp_is_first(t->rank.world) ? write_adapter_rest(t, folder) : NDP_OK));
    ndp_status st = ndp_tensor_list_add(&list, t->engine, NDP_OWNED_MASTER, NDP_TENSORS_RUN, "", type);
    if (st == NDP_OK)
        st = ndp_tensor_list_wrap(&list);
    if (st == NDP_OK)
        st = ndp_export_tied(&t->rank.job, &t->model, &list);
    st = ndp_agree(t->rank.world, st);
    if (st == NDP_OK)
        st = ndp_weights_save_stem(t->rank.world, t->lock, folder, "adapter_model", list.specs, list.n, list.pieces,
                                   list.n_pieces, INT64_MAX);
    ndp_tensor_list_release(&list);
    return st;
}

ndp_status ndp_trainer_export(ndp_trainer *t, const char *folder) {
    NDP_NOT_NULL(t);
    char path[NDP_PATH];
    bool adapter = t->model.opts.adapter.r > 0;
    NDP_TRY(ndp_path_join(path, t->rank.job.config->train.output_dir, adapter ? "adapter" : "model"));
    return (adapter ? export_adapter : export_to)(t, folder ? folder : path);
}
