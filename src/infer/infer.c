/* A model opened for use on one rank: device, facts, tokenizer, memory check, engines. */
#include "infer/infer.h"

#include "base/cpu.h"
#include "base/hub.h"
#include "base/log.h"
#include "checkpoint/folder.h"
#include "job/folder_facts.h"
#include "job/job.h"
#include "launch/memory_need.h"
#include "ops/devices.h"
#include "plan/job_memory.h"
#include "text/chat/chat_own.h"
#include "weights/adapter_base.h"
#include "weights/run_model.h"
#include "weights/weights.h"
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ndp_status choose_device(ndp_infer *f, const char *name, int threads) {
    NDP_TRY(ndp_device_find(name ? name : "", &f->exec.device));
    NDP_CHECK(threads >= 0, "%d threads: give 1 or more, or 0 for all cores", threads);
    f->exec.threads = threads ? threads : ndp_device_threads(1);
    omp_set_num_threads(f->exec.threads);
    return NDP_OK;
}

static ndp_status use_spec(ndp_infer *f) {
    static const ndp_log log = {NDP_LOG_INFO, 0};
    NDP_TRY(ndp_spec_decoder(&f->spec, "inference", &f->facts));
    if (ndp_head_note(&f->spec))
        ndp_info(&log, "%s", ndp_head_note(&f->spec));
    return NDP_OK;
}

/* Of a model without a tokenizer: its ids, which texts are not made of. */
static ndp_status use_ids(ndp_infer *f) {
    char *why =
        ndp_format("the model %s has no tokenizer, which text needs; copy the tokenizer.json (or vocab.json and "
                   "merges.txt) of its vocabulary of %lld tokens into the folder",
                   f->folder, (long long)f->facts->vocab);
    NDP_CHECK_MEMORY(why, "for a tokenizer");
    ndp_status st = ndp_tokenizer_of_ids(f->facts->vocab, f->facts->bos, f->facts->eos, why, &f->tokenizer);
    free(why);
    return st;
}

static ndp_status read_folder(ndp_infer *f) {
    NDP_TRY(ndp_path_join(f->config, f->folder, "config.json"));
    NDP_TRY(ndp_path_join(f->generation, f->folder, "generation_config.json"));
    NDP_TRY(ndp_folder_facts(f->folder, NULL, &f->spec));
    NDP_TRY(use_spec(f));
    f->tokenizer_source = f->folder;
    NDP_TRY(ndp_weights_check_files(f->folder));
    ndp_status st = ndp_tokenizer_create(f->folder, &f->tokenizer);
    return st == NDP_EINVAL && !ndp_tokenizer_exists(f->folder) ? use_ids(f) : st;
}

/* The model of a job, in whatever its weights are. */
static ndp_status use_job(ndp_infer *f, const ndp_job *j, const ndp_job_data *d) {
    NDP_CHECK(!ndp_preference_scores(j->model.preference.kind),
              "%s trains a reward model (loss.name: reward), which gives a text one number and has no logits; "
              "its model folder is read by transformers' AutoModelForSequenceClassification",
              f->folder);
    f->spec = j->spec;
    f->adapter = j->model.adapter;
    f->tokenizer = d->tokenizer;
    f->tokenizer_source = d->tokenizer_source;
    snprintf(f->config, sizeof f->config, "%s", j->facts_path);
    return j->model_folder[0] ? ndp_path_join(f->generation, j->model_folder, "generation_config.json") : NDP_OK;
}

/* The checkpoint of a run. */
static ndp_status read_run(ndp_infer *f, int64_t step) {
    NDP_CHECK(ndp_is_run_folder(f->folder),
              "step %lld of %s: that is the folder of a model, not of a run; a run folder (train.output_dir) has a "
              "job.yaml and checkpoints",
              (long long)step, f->folder);
    NDP_TRY(ndp_run_model_open(f->folder, step, f->exec.threads, NULL, &f->run));
    NDP_TRY(ndp_run_model_check_base(f->run, f->folder));
    const char *why = ndp_tokenizer_why_no_texts(f->run->data.tokenizer);
    NDP_CHECK(!why, "%s was trained on ids, without a tokenizer: %s, and resume it, or export the checkpoint",
              f->folder, why);
    NDP_TRY(use_job(f, &f->run->job, &f->run->data));
    return use_spec(f);
}

static ndp_status use_adapter(ndp_infer *f, const char *name) {
    NDP_CHECK(
        !f->run,
        "'%s' is the folder of a run, whose checkpoint has its adapter, if it has one; give the model folder that "
        "the adapter '%s' belongs to",
        f->folder, name);
    NDP_TRY(ndp_adapter_use_open(name, &f->spec, &f->use));
    f->adapter = f->use.adapter;
    return ndp_adapter_base_check_folder(f->use.path, f->folder);
}

static ndp_status use_one_rank(ndp_infer *f) {
    NDP_TRY(ndp_transport_self(&f->transport));
    return ndp_mesh_init(&(ndp_layout)NDP_LAYOUT_ONE, 0, &(ndp_mesh_facts){.kv_heads = f->spec.layout.kv_heads},
                         &f->mesh);
}

static ndp_status open_folder(ndp_infer *f, const char *name, const char *adapter, int64_t step) {
    NDP_CHECK(name, "no model is given; give a Hugging Face folder");
    NDP_TRY(ndp_hub_find(NDP_HUB_MODEL, name, f->folder));
    NDP_TRY(ndp_model_folder_refuse(f->folder));
    NDP_CHECK(ndp_path_is_folder(f->folder),
              "%s is not a folder (%s); a model is a Hugging Face folder with config.json, tokenizer.json and "
              "safetensors, or a name in the Hub cache",
              name, ndp_path_why_no_folder(name));
    NDP_TRY(ndp_is_run_folder(f->folder) || step > 0 ? read_run(f, step)
                                                     : ndp_hub_explain(NDP_HUB_MODEL, name, f->folder, read_folder(f)));
    NDP_TRY(adapter ? use_adapter(f, adapter) : NDP_OK);
    return use_one_rank(f);
}

ndp_status ndp_infer_init(ndp_infer *f, const char *folder, const char *device, int threads) {
    return ndp_infer_open(f, folder, NULL, 0, device, threads);
}

ndp_status ndp_infer_open(ndp_infer *f, const char *model, const char *adapter, int64_t step, const char *device,
                          int threads) {
    *f = (ndp_infer){0};
    ndp_status st = choose_device(f, device, threads);
    if (st == NDP_OK)
        st = open_folder(f, model, adapter, step);
    if (st != NDP_OK)
        ndp_infer_release(f);
    return st;
}

ndp_status ndp_infer_of_job(ndp_infer *f, const ndp_job *j, const ndp_job_data *d, const ndp_exec *exec) {
    *f = (ndp_infer){.job = j, .exec = *exec};
    ndp_status st = use_job(f, j, d);
    if (st == NDP_OK)
        st = ndp_spec_decoder(&f->spec, "ndp_trainer_generate", &f->facts);
    if (st == NDP_OK)
        st = use_one_rank(f);
    if (st != NDP_OK)
        ndp_infer_release(f);
    return st;
}

void ndp_infer_release(ndp_infer *f) {
    ndp_transport_destroy(f->transport);
    ndp_adapter_use_release(&f->use);
    if (f->run)
        ndp_run_model_close(f->run);
    else if (!f->job) {
        ndp_tokenizer_destroy(f->tokenizer);
        ndp_model_spec_release(&f->spec);
    }
    *f = (ndp_infer){0};
}

/* Whether the adapter beside the model has a template of its own. */
static ndp_status find_own_template(const ndp_infer *f, bool *has) {
    ndp_str text = {0};
    ndp_status st = f->use.path[0] ? ndp_chat_own_text(f->use.path, NULL, &text) : NDP_OK;
    *has = text.length > 0;
    ndp_str_release(&text);
    return st;
}

ndp_status ndp_infer_chat(const ndp_infer *f, const char *name, ndp_chat *out) {
    bool own = false;
    if (!name && f->run)
        return ndp_run_model_chat(f->run, out);
    if (!name)
        NDP_TRY(find_own_template(f, &own));
    return ndp_chat_init(out, f->tokenizer, own ? f->use.path : f->tokenizer_source, name, NULL);
}

ndp_status ndp_infer_encode(const ndp_infer *f, const char *text, size_t n, bool special, ndp_ids *ids) {
    int64_t first = ids->n;
    const char *why = ndp_tokenizer_why_no_texts(f->tokenizer);
    if (n && why) /* a file is missing */
        return NDP_FAIL(NDP_EINVAL, "%s", why);
    NDP_TRY(special ? ndp_tokenizer_encode(f->tokenizer, text, n, true, ids)
                    : ndp_tokenizer_encode_rendered(f->tokenizer, text, n, ids));
    for (int64_t i = first; i < ids->n; i++)
        NDP_CHECK(ids->items[i] < f->facts->vocab,
                  "the tokenizer of %s gives token %d, but the model's vocabulary ends at %lld: they do "
                  "not belong together",
                  f->folder, ids->items[i], (long long)f->facts->vocab - 1);
    return NDP_OK;
}

ndp_status ndp_infer_begin(const ndp_infer *f, ndp_ids *prompt) {
    int64_t bos = ndp_tokenizer_bos(f->tokenizer);
    bos = bos < 0 ? f->facts->bos : bos;
    if (prompt->n == 0 && bos >= 0 && bos < f->facts->vocab)
        NDP_TRY(ndp_ids_add(prompt, (int32_t)bos));
    NDP_CHECK(prompt->n > 0, "the prompt is empty and the model in %s has no begin token: give a prompt", f->folder);
    return NDP_OK;
}

static ndp_engine_opts engine_opts(const ndp_infer *f, const ndp_exec *exec, const ndp_model *m,
                                   const ndp_engine *weights_of) {
    return (ndp_engine_opts){.model = m,
                             .step = {.mesh = f->mesh, .parallel = NDP_PARALLEL_INIT, .exec = exec, .accumulation = 1},
                             .transport = f->transport,
                             .weights_of = weights_of};
}

/* Builds the engines on a device that only plans, and adds up their memory of the host. The caller destroys `engines`,
 * also on failure. */
static ndp_status sum_memory(const ndp_infer *f, const ndp_exec *plan, const ndp_model *const *models, int n,
                             ndp_engine **engines, int64_t *bytes) {
    for (int i = 0; i < n; i++) {
        ndp_engine_opts opts = engine_opts(f, plan, models[i], i ? engines[0] : NULL);
        NDP_TRY(ndp_engine_create(&opts, &engines[i]));
        *bytes += ndp_engine_memory_of(engines[i]).host;
    }
    return NDP_OK;
}

/* Below AVX-512 oneDNN computes the products. Each thread but the first, whose part is in what every rank needs, has
 * buffers of the library's: 12.3 MiB were measured. */
static int64_t library_bytes(const ndp_infer *f) {
    enum { OF_THREAD = 13 << 20 };
    return ndp_cpu_has_avx512() ? 0 : (int64_t)(f->exec.threads - 1) * OF_THREAD;
}

ndp_status ndp_infer_check_memory(const ndp_infer *f, const ndp_model *const *models, int n, int64_t besides,
                                  const char *less) {
    enum { MOST = 2 };
    static const ndp_log log = {NDP_LOG_INFO, 0};
    const ndp_device planned = ndp_device_plan(f->exec.device);
    const ndp_exec plan = ndp_exec_of(&planned, f->exec.threads, 0);
    ndp_engine *engines[MOST] = {NULL};
    ndp_memory_need need = {.ranks = 1,
                            .mapped = 1,
                            .besides = f->exec.device->host_memory ? besides + library_bytes(f) : 0,
                            .what = "the model",
                            .less = less};
    NDP_TRY(n <= MOST ? NDP_OK : NDP_FAIL(NDP_EBUG, "%d models, %d at most", n, MOST));
    if (f->job)
        return NDP_OK; /* it was compared before the run */
    ndp_status st = sum_memory(f, &plan, models, n, engines, &need.rank);
    for (int i = n; i-- > 0;)
        ndp_engine_destroy(engines[i]);
    return st == NDP_OK ? ndp_memory_check(&need, f->force_memory, &log) : st;
}

ndp_status ndp_infer_engine(const ndp_infer *f, const ndp_model *m, const ndp_engine *weights_of, ndp_engine **out) {
    ndp_engine_opts opts = engine_opts(f, &f->exec, m, weights_of);
    ndp_engine *e;
    NDP_TRY(ndp_engine_create(&opts, &e));
    ndp_weight_sources from = {.folder = f->folder, .adapter = f->use.path[0] ? f->use.path : NULL};
    if (f->run)
        from = ndp_run_model_sources(f->run, &f->run->job);
    ndp_status st = weights_of || f->job ? NDP_OK : ndp_weights_start(e, &from);
    if (st != NDP_OK) {
        ndp_engine_destroy(e);
        return st;
    }
    *out = e;
    return NDP_OK;
}
