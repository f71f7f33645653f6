/* A model and an adapter of it as one model: a Hugging Face folder with the tensors, types and files of the model. The
 * tensors go from file to file in ranges (weights/merged_tensor.h), so the memory does not depend on the model's size.
 */
#include "base/hub.h"
#include "checkpoint/new_folder.h"
#include "job/folder_facts.h"
#include "weights/adapter_base.h"
#include "weights/export.h"
#include "weights/merged_tensor.h"
#include "weights/weights.h"

#include <stdlib.h>
#include <string.h>

typedef struct merging {
    char folder[NDP_PATH]; /* of the model */
    ndp_adapter_folder adapter;
    ndp_model_spec spec;
    ndp_model model;
    ndp_weights *base;
    ndp_adapter_match match;
    ndp_merge merge;
    ndp_tensor_list list;
    int64_t changed;
} merging;

/* ---- what goes in ---- */

static ndp_status open_base(merging *x, const char *name) {
    const ndp_model_opts opts = {.mode = NDP_MODEL_SCORE, .rows = 1, .positions = 1, .compute = NDP_F32};
    NDP_TRY(ndp_hub_find(NDP_HUB_MODEL, name, x->folder));
    NDP_TRY(ndp_model_folder_refuse(x->folder));
    NDP_CHECK(!ndp_is_run_folder(x->folder),
              "'%s' is the folder of a run; give the model that the adapter was trained on: its model.path", name);
    NDP_TRY(ndp_hub_explain(NDP_HUB_MODEL, name, x->folder, ndp_folder_facts(x->folder, NULL, &x->spec)));
    NDP_TRY(ndp_hub_explain(NDP_HUB_MODEL, name, x->folder, ndp_weights_open(x->folder, &x->base)));
    NDP_TRY(ndp_model_build(&x->spec, &opts, &x->model));
    return ndp_weights_name(x->base, &x->model);
}

/* ---- what comes out ---- */

/* A head that is no longer tied begins as the embedding. */
static const ndp_tensor_entry *base_of(const merging *x, const ndp_adapted_tensor *t) {
    bool untied = x->match.own_head && t == &x->match.tensors[x->match.n - 1];
    return ndp_weights_find(x->base, untied ? x->spec.tie[0] : t->name);
}

/* The tensors of the model, of which some are computed and the others copied. */
static ndp_status list_merged(merging *x) {
    ndp_tensor_list *list = &x->list;
    int n = x->match.n;
    ndp_merged_tensor *tensors = ndp_arena_alloc(&list->arena, (size_t)n * sizeof *tensors);
    NDP_TRY(ndp_array_reserve(&list->specs, &list->capacity, n, sizeof *list->specs));
    NDP_TRY(ndp_array_reserve(&list->pieces, &list->piece_capacity, n, sizeof *list->pieces));
    NDP_CHECK_MEMORY(tensors, "for a list of %d tensors", n);
    for (list->n = 0; list->n < n; list->n++) {
        const ndp_adapted_tensor *t = &x->match.tensors[list->n];
        const ndp_tensor_entry *base = base_of(x, t);
        list->specs[list->n] = base->spec;
        list->specs[list->n].name = t->name;
        if (t->parts[NDP_FACTOR_A] || t->parts[NDP_NO_FACTOR]) {
            list->pieces[list->n_pieces++] = ndp_merged_tensor_init(&tensors[list->n], &x->merge, t, base, list->n);
            x->changed++;
        } else {
            NDP_TRY(ndp_tensor_list_stored(list, list->n, x->base, base, true));
        }
    }
    return ndp_tensor_list_carry(list, x->base, &x->model, true);
}

static ndp_status write_into(merging *x, const char *folder) {
    NDP_TRY(list_merged(x));
    NDP_TRY(ndp_export_copy(x->folder, folder, x->spec.own_head || x->match.own_head, x->spec.packed != NULL));
    NDP_TRY(ndp_export_template_of(x->adapter.path, x->folder, folder));
    NDP_TRY(ndp_weights_save(NULL, NULL, folder, x->list.specs, x->list.n, x->list.pieces, x->list.n_pieces,
                             NDP_SHARD_BYTES));
    NDP_TRY(ndp_weights_intact(x->adapter.weights));
    return ndp_weights_intact(x->base);
}

/* The one key that a merge compares. */
static const char base_key[] = "model.path";

static bool accepts_base(const ndp_merge_opts *o) {
    for (int i = 0; i < o->accept_count; i++)
        if (strcmp(o->accept[i], base_key) == 0)
            return true;
    return false;
}

static ndp_status check_accepted(const ndp_merge_opts *o, bool differs) {
    for (int i = 0; i < o->accept_count; i++) {
        bool base = strcmp(o->accept[i], base_key) == 0;
        NDP_CHECK(base, "--accept %s: a merge compares %s alone", o->accept[i], base_key);
        NDP_CHECK(differs, "--accept %s: it is not known to differ from that of the adapter's run; leave it out",
                  base_key);
    }
    return NDP_OK;
}

/* An adapter of a run is merged into the weights that it was trained beside. */
static ndp_status check_trained_beside(const merging *x, const ndp_merge_opts *o) {
    const ndp_adapter_base trained = ndp_adapter_base_find(x->adapter.path);
    ndp_hash128 now = {0, 0};
    ndp_str words = {0};
    if (*trained.hash)
        NDP_TRY(ndp_weights_hash_folder(x->folder, &now)); /* with the names of its files */
    bool differs = ndp_adapter_base_differs(&trained, now, x->folder, x->adapter.path, &words);
    ndp_status st = check_accepted(o, differs);
    if (st == NDP_OK && differs && !accepts_base(o))
        st = NDP_FAIL(NDP_EINVAL, "%s. Give that model, or merge with --accept %s",
                      words.failed ? "the adapter was trained beside other weights" : words.data, base_key);
    ndp_str_release(&words);
    return st;
}

static ndp_status merge_into(merging *x, const ndp_merge_opts *o) {
    const char *folder = o->folder;
    ndp_new_folder place;
    NDP_TRY(ndp_new_folder_check(folder));
    NDP_TRY(ndp_adapter_folder_find(o->adapter, &x->adapter));
    NDP_TRY(open_base(x, o->model));
    NDP_TRY(ndp_weights_fit(x->base, &x->model, NDP_TENSORS_ALL));
    NDP_TRY(ndp_adapter_match_make(&x->adapter, &x->spec, &x->model, &x->match));
    NDP_TRY(check_trained_beside(x, o));
    x->merge = (ndp_merge){.base = x->base,
                           .adapter = x->adapter.weights,
                           .form = x->adapter.config.form,
                           .scale = ndp_adapter_config_scale(&x->adapter.config)};
    NDP_TRY(ndp_new_folder_begin(folder, &place));
    return ndp_new_folder_end(&place, write_into(x, place.beside));
}

ndp_status ndp_adapter_merge(const char *model, const char *adapter, const char *folder, int64_t *changed) {
    NDP_NOT_NULL(model, adapter, folder, changed);
    return ndp_adapter_merge_with(&(ndp_merge_opts){.model = model, .adapter = adapter, .folder = folder}, changed);
}

ndp_status ndp_adapter_merge_with(const ndp_merge_opts *o, int64_t *changed) {
    NDP_NOT_NULL(o, changed);
    NDP_NOT_NULL(o->model, o->adapter, o->folder);
    merging *x = calloc(1, sizeof *x);
    NDP_CHECK_MEMORY(x, "to merge an adapter");
    ndp_status st = merge_into(x, o);
    if (st == NDP_OK)
        *changed = x->changed;
    ndp_merge_release(&x->merge);
    ndp_tensor_list_release(&x->list);
    ndp_adapter_match_release(&x->match);
    ndp_model_release(&x->model);
    ndp_weights_close(x->base);
    ndp_model_spec_release(&x->spec);
    ndp_adapter_folder_close(&x->adapter);
    free(x);
    return st;
}
