/* A model as a GGUF file: of a Hugging Face folder as it is, of a run's checkpoint as `checkpoint export` writes it, an
 * adapter merged into its model. What is made on the way, and the file itself, are in a hidden folder beside the file's
 * place (checkpoint/new_folder.h), to which it is renamed when it is durable. */
#include "base/hub.h"
#include "checkpoint/new_folder.h"
#include "checkpoint/shards.h"
#include "job/folder_facts.h"
#include "model/decoder.h"
#include "weights/export.h"
#include "weights/gguf/gguf.h"
#include "weights/run_model.h"

#include <ndparallel/ndparallel.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *word;
    ndp_gguf_type type;
} types[] = {{"fp32", NDP_GGUF_F32}, {"bf16", NDP_GGUF_BF16}, {"f16", NDP_GGUF_F16}, {"q8_0", NDP_GGUF_Q8_0}};

ndp_status ndp_gguf_type_parse(const char *word, ndp_gguf_type *out) {
    for (int i = 0; i < NDP_COUNT(types); i++)
        if (strcmp(types[i].word, word) == 0) {
            *out = types[i].type;
            return NDP_OK;
        }
    return NDP_FAIL(NDP_EINVAL, "'%s' is no type of a GGUF file; it is one of fp32, bf16, f16 and q8_0", word);
}

/* ---- a folder ---- */

static ndp_status list_all(ndp_gguf *g, ndp_weights *w, const ndp_model_spec *spec, const char *name) {
    const ndp_model_opts opts = {.mode = NDP_MODEL_SCORE, .rows = 1, .positions = 1, .compute = NDP_F32};
    ndp_model model;
    NDP_TRY(ndp_model_build(spec, &opts, &model));
    ndp_status st = ndp_weights_name(w, &model);
    if (st == NDP_OK)
        st = ndp_weights_fit(w, &model, NDP_TENSORS_ALL);
    ndp_model_release(&model);
    NDP_TRY(st);
    NDP_TRY(ndp_gguf_list_tensors(g));
    NDP_TRY(ndp_gguf_model_keys(g, name));
    return ndp_gguf_tokenizer_keys(g);
}

static ndp_status convert(ndp_gguf *g, const ndp_model_spec *spec, const char *name, const char *path) {
    ndp_weights *w = NULL;
    NDP_TRY(ndp_spec_decoder(spec, "a GGUF file", &g->facts));
    NDP_TRY(ndp_gguf_family_find(g->facts->family, &g->family));
    NDP_TRY(ndp_weights_open(g->folder, &w));
    g->weights = w;
    ndp_status st = list_all(g, w, spec, name);
    if (st == NDP_OK)
        st = ndp_gguf_write(g, path);
    if (st == NDP_OK)
        st = ndp_weights_intact(w);
    ndp_weights_close(w);
    return st;
}

ndp_status ndp_gguf_convert(const char *folder, const char *name, ndp_gguf_type type, const char *path,
                            int64_t *tensors) {
    ndp_gguf g = {.folder = folder, .type = type};
    ndp_model_spec spec;
    NDP_TRY(ndp_folder_facts(folder, NULL, &spec));
    ndp_status st = convert(&g, &spec, name, path);
    if (st == NDP_OK)
        *tensors = g.n;
    ndp_gguf_release(&g);
    ndp_model_spec_release(&spec);
    return st;
}

/* ---- a run ---- */

/* The families are known before anything is written. */
static ndp_status check_run(const ndp_run_model *m) {
    const ndp_facts *facts;
    const ndp_gguf_family *family;
    NDP_CHECK(!ndp_preference_scores(m->job.model.preference.kind),
              "the run trains a reward model (loss.name: reward): a GGUF file has a causal language model");
    NDP_TRY(ndp_spec_decoder(&m->job.spec, "a GGUF file", &facts));
    return ndp_gguf_family_find(facts->family, &family);
}

/* Writes the model of an open checkpoint to BESIDE/model. */
static ndp_status write_model(ndp_run_model *m, const char *run, const char *beside, char folder[NDP_PATH]) {
    char adapter[NDP_PATH];
    int64_t changed;
    NDP_TRY(check_run(m));
    NDP_TRY(ndp_run_model_chat(m, &m->data.chat));
    NDP_TRY(ndp_path_join(folder, beside, "model"));
    if (m->job.model.adapter.r == 0)
        return ndp_export_run_model(m, folder);
    NDP_CHECK(m->config->model.path, "'%s' has trained an adapter beside random weights, which no file has", run);
    NDP_TRY(ndp_run_model_check_base(m, run));
    NDP_TRY(ndp_path_join(adapter, beside, "adapter"));
    NDP_TRY(ndp_export_run_model(m, adapter));
    return ndp_adapter_merge(m->job.model_folder, adapter, folder, &changed);
}

static ndp_status export_run(const char *run, int64_t step, const char *beside, char folder[NDP_PATH]) {
    ndp_run_model *m = NULL;
    NDP_TRY(ndp_run_model_open(run, step, 0, NULL, &m));
    ndp_status st = write_model(m, run, beside, folder);
    ndp_run_model_close(m);
    return st;
}

/* ---- the file ---- */

/* The last part of a path, by which people know the model. */
static const char *name_of(const char *path, char out[NDP_PATH]) {
    snprintf(out, NDP_PATH, "%s", path);
    for (size_t n = strlen(out); n > 1 && out[n - 1] == '/';)
        out[--n] = '\0';
    const char *slash = strrchr(out, '/');
    return slash && slash[1] ? slash + 1 : out;
}

static ndp_status write_beside(const ndp_gguf_opts *o, ndp_gguf_type type, const ndp_new_folder *place,
                               int64_t *tensors) {
    char folder[NDP_PATH], file[NDP_PATH], name[NDP_PATH];
    bool taken;
    if (ndp_is_run_folder(o->model)) {
        NDP_TRY(export_run(o->model, o->step, place->beside, folder));
    } else {
        NDP_CHECK(o->step == 0, "'%s' is no run, so it has no step %lld", o->model, (long long)o->step);
        NDP_TRY(ndp_hub_find(NDP_HUB_MODEL, o->model, folder));
        NDP_TRY(ndp_model_folder_refuse(folder));
    }
    NDP_TRY(ndp_path_join(file, place->beside, "file.gguf"));
    NDP_TRY(ndp_hub_explain(NDP_HUB_MODEL, o->model, folder,
                            ndp_gguf_convert(folder, name_of(o->model, name), type, file, tensors)));
    NDP_TRY(ndp_rename_new(file, place->place, &taken));
    return taken
               ? NDP_FAIL(NDP_EINVAL, "'%s' was made by another process meanwhile, and nothing is overwritten", o->file)
               : ndp_durable_folder(place->parent);
}

ndp_status ndp_gguf_export(const ndp_gguf_opts *o, int64_t *tensors) {
    ndp_new_folder place;
    ndp_gguf_type type;
    NDP_NOT_NULL(o, tensors);
    NDP_NOT_NULL(o->model, o->file);
    NDP_TRY(ndp_gguf_type_parse(o->type ? o->type : "bf16", &type));
    NDP_CHECK(!ndp_path_exists(o->file), "'%s' exists, and nothing is overwritten; give another file", o->file);
    NDP_TRY(ndp_new_folder_begin(o->file, &place));
    ndp_status st = write_beside(o, type, &place, tensors);
    ndp_remove_quietly(place.beside, st);
    return st;
}
