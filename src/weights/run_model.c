/* Opening the model of a checkpoint. A checkpoint has only tensors, in the names and shapes of a model folder; what
 * else a model is comes from where RUN/job.yaml takes it. Called by export.c and by infer/. */
#include "weights/run_model.h"

#include "base/cpu.h"
#include "base/json.h"
#include "base/log.h"
#include "job/folder_facts.h"
#include "job/model_identity.h"
#include "weights/adapter_base.h"
#include "weights/export.h"
#include <stdlib.h>
#include <string.h>

static const ndp_log run_log = {NDP_LOG_INFO, 0};

bool ndp_is_run_folder(const char *folder) {
    char config[NDP_PATH], job[NDP_PATH];
    return folder && ndp_path_join(config, folder, "config.json") == NDP_OK &&
           ndp_path_join(job, folder, "job.yaml") == NDP_OK && ndp_path_exists(job) && !ndp_path_exists(config);
}

/* ---- the checkpoint ---- */

static ndp_status examine(const char *folder, int64_t step, int threads, ndp_examined *e) {
    NDP_TRY(ndp_checkpoint_examine(NULL, folder, step, true, threads, e));
    if (e->state == NDP_CHECKPOINT_UNVERIFIABLE)
        ndp_warn(&run_log, "the checkpoint of step %lld in '%s' has no hashes: it cannot be verified", (long long)step,
                 folder);
    return NDP_OK;
}

/* The checkpoint of that step, or (0) the newest one that is whole. `steps`: newest first. */
static ndp_status choose_step(const char *folder, const int64_t *steps, int n, int64_t wanted, int threads,
                              int64_t *out) {
    for (int i = 0; i < n; i++) {
        ndp_examined e;
        if (wanted > 0 && steps[i] != wanted)
            continue;
        NDP_TRY(examine(folder, steps[i], threads, &e));
        *out = steps[i];
        if (e.state != NDP_CHECKPOINT_DAMAGED)
            return NDP_OK;
        NDP_CHECK(wanted <= 0, "the checkpoint of step %lld in '%s' is damaged: %s", (long long)wanted, folder,
                  e.words);
        ndp_warn(&run_log, "the checkpoint of step %lld in '%s' is DAMAGED and not used: %s", (long long)steps[i],
                 folder, e.words);
    }
    NDP_CHECK(wanted <= 0, "there is no checkpoint of step %lld in '%s'; `ndparallel checkpoint list` lists them",
              (long long)wanted, folder);
    return NDP_FAIL(NDP_EINVAL, "there is no whole checkpoint in '%s'", folder);
}

static ndp_status open_checkpoint(ndp_run_model *m, const char *run, int64_t step, int threads) {
    char folder[NDP_PATH];
    int64_t *steps = NULL;
    int n = 0;
    NDP_TRY(ndp_path_join(folder, run, "checkpoints"));
    NDP_TRY(ndp_checkpoint_steps(folder, &steps, &n));
    ndp_status st = choose_step(folder, steps, n, step, threads, &m->step);
    free(steps);
    return st == NDP_OK ? ndp_checkpoint_open(folder, m->step, &m->checkpoint) : st;
}

/* NULL: the checkpoint was written by a version that recorded none. */
static struct json_object *identity_of(const ndp_run_model *m) {
    return json_object_object_get(ndp_checkpoint_get_info(m->checkpoint)->extra, "identity");
}

ndp_status ndp_run_model_check_base(const ndp_run_model *m, const char *run) {
    const ndp_adapter_base base = ndp_adapter_base_of(identity_of(m));
    return m->job.model.adapter.r > 0 ? ndp_adapter_base_check(&base, m->job.model_folder, run) : NDP_OK;
}

ndp_weights *ndp_run_model_weights(const ndp_run_model *m) { return ndp_checkpoint_weights(m->checkpoint); }

ndp_weight_sources ndp_run_model_sources(const ndp_run_model *m, const ndp_job *j) {
    ndp_weight_sources from = ndp_job_weights(j);
    if (m)
        from.own = ndp_run_model_weights(m), from.rounded = m->type;
    return from;
}

/* ---- the rest ---- */

static ndp_status read_job(ndp_run_model *m, const char *run, const ndp_own_list *own) {
    char path[NDP_PATH];
    NDP_TRY(ndp_path_join(path, run, "job.yaml"));
    NDP_CHECK(ndp_path_exists(path), "'%s' is not a run folder: there is no '%s'; give a job's train.output_dir", run,
              path);
    NDP_TRY(ndp_config_create(&m->config));
    m->job.config = m->config;
    if (own)
        m->config->own = *own;
    return ndp_config_read(m->config, path);
}

/* The precision that the checkpoint was trained with, whatever a later resume has accepted. */
static ndp_status choose_model(ndp_run_model *m) {
    static const char key[] = "precision.compute";
    const char *value = ndp_json_text(json_object_object_get(identity_of(m), key));
    if (value)
        NDP_TRY(ndp_config_setf(m->config, "%s=%s", key, value));
    m->job.batch.micro_batch = ndp_config_preference(m->config).kind ? 2 : 1; /* a pair, as its loss has them */
    ndp_job_choose_model(&m->job);
    m->type = ndp_export_type(&m->job.model);
    return NDP_OK;
}

/* The head is tied unless the checkpoint has one of its own (job/folder_facts.h); that of an adapter has none, and its
 * model folder says it. */
static ndp_status read_spec(ndp_run_model *m) {
    ndp_model_spec *s = &m->job.spec;
    if (m->job.model.adapter.r > 0 && m->config->model.init == NDP_INIT_PRETRAINED)
        return ndp_folder_facts(m->job.model_folder, &m->config->own, s);
    NDP_TRY(ndp_model_spec_read(m->job.facts_path, &m->config->own, s));
    ndp_model_spec_set_own_head(s, ndp_weights_find(ndp_run_model_weights(m), s->tie[1]) != NULL);
    return NDP_OK;
}

/* Compares with the identity that the checkpoint recorded: another config.json may have the same shapes. */
static ndp_status check_identity(const ndp_run_model *m) {
    struct json_object *then = identity_of(m), *now;
    ndp_model model;
    ndp_status st = NDP_OK;
    NDP_TRY(ndp_model_build(&m->job.spec, &m->job.model, &model));
    now = ndp_identity_model(&model, m->data.tokenizer);
    ndp_model_release(&model);
    json_object_object_foreach(now, key, value) {
        struct json_object *recorded = json_object_object_get(then, key);
        if (!value && st == NDP_OK)
            st = NDP_FAIL(NDP_ENOMEM, "not enough memory for %s of the model's identity", key);
        if (st == NDP_OK && recorded && !json_object_equal(recorded, value))
            st = NDP_FAIL(NDP_EINVAL,
                          "%s belongs to another model than the checkpoint of step %lld: %s was %.80s, now it is %.80s",
                          strcmp(key, "data.tokenizer") == 0 ? "the tokenizer" : m->job.facts_path, (long long)m->step,
                          key, json_object_get_string(recorded), json_object_get_string(value));
    }
    json_object_put(now);
    return st;
}

ndp_status ndp_run_model_chat(const ndp_run_model *m, ndp_chat *out) {
    static const char key[] = "data.chat_template";
    const ndp_job_data *d = &m->data;
    const char *name = m->config->data.chat_template,
               *then = ndp_json_text(json_object_object_get(identity_of(m), key));
    ndp_chat chat;
    ndp_status init = ndp_chat_init(&chat, d->tokenizer, d->tokenizer_source, name, m->config->data.template_date);
    if (init != NDP_OK)
        return NDP_FAIL(init, "%s; the run's data.chat_template is %s", ndp_error_message(), name ? name : "not set");
    if (!name || !then || strcmp(then, ndp_chat_name(&chat)) == 0) {
        *out = chat;
        return NDP_OK;
    }
    ndp_status st =
        NDP_FAIL(NDP_EINVAL,
                 "data.chat_template: '%s' is now another template (%s) than the one that the checkpoint of "
                 "step %lld was trained with (%s)",
                 name, ndp_chat_name(&chat), (long long)m->step, then);
    ndp_chat_release(&chat);
    return st;
}

static ndp_status open_sources(ndp_run_model *m) {
    NDP_TRY(ndp_job_find_model(&m->job));
    NDP_TRY(read_spec(m));
    m->data.job = &m->job;
    NDP_TRY(ndp_job_tokenizer_open(&m->data));
    return check_identity(m);
}

static ndp_status open_all(ndp_run_model *m, const char *run, int64_t step, int threads, const ndp_own_list *own) {
    NDP_TRY(read_job(m, run, own));
    NDP_TRY(open_checkpoint(m, run, step, threads));
    NDP_TRY(choose_model(m));
    ndp_status st = open_sources(m);
    if (st == NDP_OK || st == NDP_ENOMEM)
        return st;
    return NDP_FAIL(
        st,
        "%s. A checkpoint has only tensors: config.json and the tokenizer are those that %s/job.yaml names, "
        "where relative paths start at the current folder",
        ndp_error_message(), run);
}

ndp_status ndp_run_model_open(const char *run, int64_t step, int threads, const ndp_own_list *own,
                              ndp_run_model **out) {
    ndp_run_model *m = calloc(1, sizeof *m);
    NDP_CHECK_MEMORY(m, "for a model");
    ndp_status st = open_all(m, run, step, threads ? threads : ndp_cpu_cores(), own);
    if (st == NDP_OK)
        *out = m;
    else
        ndp_run_model_close(m);
    return st;
}

void ndp_run_model_close(ndp_run_model *m) {
    if (!m)
        return;
    ndp_job_data_close(&m->data);
    ndp_checkpoint_close(m->checkpoint);
    ndp_job_release(&m->job);
    ndp_config_destroy(m->config);
    free(m);
}
