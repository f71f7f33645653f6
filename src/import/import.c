/* The entry: reads a file of another program, resolves what its keys mean together, and writes the job. */
#include "import/import.h"

#include "config/foreign.h"
#include "import/import_table.h"
#include <stdlib.h>
#include <string.h>

static ndp_status assign(ndp_import *m) {
    for (int i = 0; i < m->notes.o->assignment_count; i++)
        NDP_TRY(ndp_config_set(&m->job, m->notes.o->assignments[i]));
    return NDP_OK;
}

static ndp_status refuse_toml(const char *text, size_t size, const char *what) {
    NDP_CHECK(
        !ndp_foreign_is_toml(text, size),
        "%s: a TOML file, as torchtitan's configurations are; only files of Axolotl, LLaMA-Factory, TRL, Accelerate, "
        "DeepSpeed and transformers (YAML or JSON) are imported: see docs/guide/from-torchtitan.md. "
        "`ndparallel config --defaults` prints a job file to fill in: "
        "torchtitan's "
        "data_parallel_replicate_degree, data_parallel_shard_degree, context_parallel_degree, "
        "tensor_parallel_degree and pipeline_parallel_degree are dp_replicate_size, dp_shard_size (-1: auto), "
        "cp_size, tp_size and pp_size of parallelism; local_batch_size is batch.micro_batch_size, seq_len "
        "data.sequence_length, and the weights are a Hugging Face folder, model.path",
        what);
    return NDP_OK;
}

static ndp_status run(ndp_import *m, const char *text, size_t size, const char *what) {
    NDP_TRY(refuse_toml(text, size, what));
    NDP_TRY(ndp_config_init(&m->job));
    NDP_TRY(ndp_yaml_open(&m->yaml, what, text, size, 0));
    NDP_TRY(ndp_import_choose(m));
    if (m->dialect->defaults)
        NDP_TRY(ndp_config_parse(&m->job, m->dialect->defaults, strlen(m->dialect->defaults), "defaults"));
    if (m->dialect->begin)
        m->dialect->begin(&m->read);
    NDP_TRY(ndp_import_walk(m, m->yaml.root, m->dialect->section, "parallelism_config_", ""));
    NDP_TRY(assign(m)); /* what follows sees the user's keys, */
    if (m->dialect->prepare)
        NDP_TRY(m->dialect->prepare(m));
    NDP_TRY(ndp_import_finish(m));
    NDP_TRY(assign(m)); /* and does not replace them */
    ndp_import_say_schedule(m);
    return ndp_import_judge(&m->notes);
}

static void release(ndp_import *m) {
    ndp_strings_release(&m->read.fsdp);
    ndp_strings_release(&m->read.targets);
    ndp_strings_release(&m->read.parameters);
    ndp_strings_release(&m->read.reporters);
    ndp_strings_release(&m->read.lr_groups);
    ndp_strings_release(&m->read.group_modules);
    ndp_strings_release(&m->read.added_tokens);
    ndp_strings_release(&m->read.unfrozen);
    char *texts[] = {m->read.chat_template, m->read.revision, m->read.eos_token, m->read.bos_token, m->read.unk_token};
    for (int i = 0; i < NDP_COUNT(texts); i++)
        free(texts[i]);
    ndp_import_forget_set(m);
    free(m->sets.chats);
    ndp_yaml_close(&m->yaml);
    ndp_yaml_close(&m->deepspeed_yaml);
    free(m->deepspeed_text);
    ndp_yaml_close(&m->info_yaml);
    free(m->info_text);
    ndp_import_release_notes(&m->notes);
    ndp_config_release(&m->job);
}

ndp_status ndp_config_import_text(ndp_config *c, const char *text, size_t size, const char *what,
                                  const ndp_import_opts *o, char **job, char **notes) {
    char *written = NULL;
    ndp_import m = {.read = {.zero_stage = -1,
                             .max_steps = -1,
                             .warmup = -1,
                             .warmup_ratio = -1,
                             .min_lr_ratio = -1,
                             .min_lr = -1,
                             .wsd_min_lr_ratio = -1,
                             .stable_steps = -1,
                             .beta = -1,
                             .trl_beta = -1,
                             .odds_weight = -1,
                             .nll_weight = -1,
                             .margin = -1,
                             .desirable = -1,
                             .undesirable = -1,
                             .center = -1},
                    .notes = {.o = o, .file = &m.yaml, .y = &m.yaml}};
    ndp_status st = run(&m, text, size, what);
    if (st == NDP_OK)
        st = ndp_import_job(&m, &written);
    if (st == NDP_OK)
        st = ndp_import_report(&m.notes, m.dialect->name, notes);
    if (st == NDP_OK) {
        *job = written;
        written = NULL;
        ndp_config_release(c);
        *c = m.job;
        memset(&m.job, 0, sizeof m.job);
    }
    free(written);
    release(&m);
    return st;
}

ndp_status ndp_config_import(ndp_config *c, const char *path, const ndp_import_opts *o, char **job, char **notes) {
    NDP_NOT_NULL(c, path, o, job, notes);
    if (o->assignment_count)
        NDP_NOT_NULL(o->assignments);
    return NDP_FILE_PARSE(NDP_FILE_JOB, path, text, size, ndp_config_import_text(c, text, size, path, o, job, notes));
}
