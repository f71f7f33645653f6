/* The model of a checkpoint as a Hugging Face folder, the same bytes as the run's own export after that step. The
 * tensors go from file to file in chunks, so the memory does not depend on the model's size. */
#include "checkpoint/new_folder.h"
#include "weights/export.h"
#include "weights/run_model.h"
#include "weights/weights.h"

#include <ndparallel/ndparallel.h>

/* A tensor of the checkpoint as the source of a piece. */
typedef struct stored_tensor {
    ndp_piece_source source;
    ndp_weights *weights;
    const char *name;
    ndp_dtype type;
} stored_tensor;

/* Forgets what it has read, which would otherwise count as memory of the process until the end. */
static ndp_status read_stored(void *user, int64_t first, int64_t n, int64_t stride, void *out) {
    const stored_tensor *t = user;
    if (stride != 1)
        return NDP_FAIL(NDP_EBUG, "a tensor of a file is read with a stride of %lld", (long long)stride);
    NDP_TRY(ndp_weights_read(t->weights, t->name, first, n, out, t->type, false));
    ndp_weights_forget(t->weights, t->name, first, n);
    return NDP_OK;
}

static ndp_status add_pieces(const ndp_run_model *m, ndp_tensor_list *list) {
    ndp_weights *w = ndp_run_model_weights(m);
    stored_tensor *tensors = ndp_arena_alloc(&list->arena, (size_t)list->n * sizeof *tensors);
    NDP_TRY(ndp_array_reserve(&list->pieces, &list->piece_capacity, list->n, sizeof *list->pieces));
    if (!tensors)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for a list of %d tensors", list->n);
    for (int i = 0; i < list->n; i++) {
        const ndp_tensor_entry *e = ndp_weights_find(w, list->specs[i].name);
        tensors[i] = (stored_tensor){{read_stored, &tensors[i]}, w, e->spec.name, e->spec.dtype};
        list->pieces[i] = (ndp_file_piece){
            .tensor = i, .count = e->elements, .dtype = e->spec.dtype, .stride = 1, .source = &tensors[i].source};
    }
    list->n_pieces = list->n;
    return NDP_OK;
}

/* The tensors in the order of the model, in which a run exports them; they are all that the checkpoint has. */
static ndp_status list_tensors(const ndp_run_model *m, const ndp_model *model, ndp_tensor_list *list) {
    NDP_TRY(ndp_tensor_list_of(list, model, NDP_OWNED_MASTER, NDP_TENSORS_RUN, m->type));
    NDP_TRY(ndp_weights_check(ndp_run_model_weights(m), list->specs, list->n, NULL, NULL));
    return add_pieces(m, list);
}

static ndp_status write_files(const ndp_run_model *m, const ndp_model *model, const char *folder) {
    ndp_tensor_list list = {0};
    bool adapter = model->opts.adapter.r > 0;
    ndp_status st = list_tensors(m, model, &list);
    if (st == NDP_OK && adapter)
        st = ndp_tensor_list_wrap(&list);
    if (st == NDP_OK && adapter)
        st = ndp_export_tied(&m->job, model, &list);
    if (st == NDP_OK)
        st = adapter ? ndp_export_adapter_rest(&m->job, &m->data, model, folder)
                     : ndp_export_rest(&m->job, &m->data, folder, m->type);
    if (st == NDP_OK)
        st = ndp_weights_save_stem(NULL, NULL, folder, adapter ? "adapter_model" : "model", list.specs, list.n,
                                   list.pieces, list.n_pieces, adapter ? INT64_MAX : NDP_SHARD_BYTES);
    ndp_tensor_list_release(&list);
    return st;
}

static ndp_status write_into(const ndp_run_model *m, const char *folder) {
    ndp_model model;
    NDP_TRY(ndp_model_build(&m->job.spec, &m->job.model, &model));
    ndp_status st = write_files(m, &model, folder);
    ndp_model_release(&model);
    return st == NDP_OK ? ndp_checkpoint_intact(m->checkpoint) : st;
}

ndp_status ndp_checkpoint_export(const char *run, int64_t step, const char *folder, int64_t *exported) {
    NDP_NOT_NULL(run, folder, exported);
    ndp_run_model *m = NULL;
    ndp_new_folder place;
    NDP_TRY(ndp_new_folder_check(folder));
    NDP_TRY(ndp_run_model_open(run, step, 0, &m));
    ndp_status st = ndp_run_model_chat(m, &m->data.chat);
    if (st == NDP_OK)
        st = ndp_new_folder_begin(folder, &place);
    if (st == NDP_OK)
        st = ndp_new_folder_end(&place, write_into(m, place.beside));
    if (st == NDP_OK)
        *exported = m->step;
    ndp_run_model_close(m);
    return st;
}
