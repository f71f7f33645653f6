/* DeepSpeed's configuration: as a file or a section that another program's file has, which says the form of sharding,
 * and as a file by itself, which also has the batch, and may have the optimizer and the schedule. */
#include "import/import_parts.h"

#include <stdio.h>
#include <string.h>

/* ---- named by another program's file ---- */

/* Files are named zero1.json, zero3_bf16.json, zero_stage2_config.json, ds_z3_config.json, so the name of a missing one
 * gives its stage. */
static int stage_of_name(const char *path) {
    const char *file = strrchr(path, '/'), *digit = NULL;
    for (const char *at = file ? file + 1 : path; (at = strchr(at, 'z')) && !digit; at++) {
        if (at[1] >= '0' && at[1] <= '3')
            digit = at + 1;
        else if (strncmp(at, "zero", 4) == 0)
            digit = strpbrk(at, "0123");
    }
    return digit ? *digit - '0' : 3;
}

static ndp_status read_file(ndp_import *m, const char *path) {
    size_t size;
    char *what = ndp_arena_strdup(&m->notes.arena, path);
    NDP_CHECK_MEMORY(what, "for the configuration");
    NDP_TRY(ndp_file_read_as(NDP_FILE_JOB, path, &m->deepspeed_text, &size));
    m->notes.y = &m->deepspeed_yaml;
    ndp_status st = ndp_yaml_open(m->notes.y, what, m->deepspeed_text, size, 0);
    if (st == NDP_OK && !m->notes.y->root)
        st = NDP_FAIL(NDP_EINVAL, "%s: empty; expected a DeepSpeed configuration", path);
    if (st == NDP_OK)
        st = ndp_import_walk(m, m->notes.y->root, "deepspeed", NULL, "");
    m->notes.y = &m->yaml;
    return st;
}

/* DeepSpeed's keys, or the file that has them. */
ndp_status ndp_import_deepspeed(ndp_import *m, struct fy_node *value, const char *name) {
    const char *path = ndp_yaml_text(value);
    if (!path)
        return ndp_import_walk(m, value, "deepspeed", NULL, name);
    if (m->deepspeed_text)
        return ndp_yaml_fail(m->notes.y, value, "'%s' names a second DeepSpeed file", name);
    if (ndp_path_exists(path))
        return read_file(m, path);
    if (m->read.zero_stage < 0)
        m->read.zero_stage = stage_of_name(path);
    ndp_str_addf(&m->notes.remarks,
                 "%s: %s was not found; assuming ZeRO stage %d, which affects memory, not the result; its other keys "
                 "are not known\n",
                 name, path, m->read.zero_stage);
    return NDP_OK;
}

/* ---- by itself ---- */

bool ndp_import_is_deepspeed(const ndp_import *m) { return strcmp(m->dialect->section, "deepspeed:alone") == 0; }

/* Whether the file has a key: "scheduler", "params", "warmup_num_steps". NULLs at the end are left out. */
static bool has(const ndp_import *m, const char *a, const char *b, const char *c) {
    const char *const path[] = {a, b, c};
    struct fy_node *at = m->yaml.root;
    for (int i = 0; i < NDP_COUNT(path) && path[i] && at; i++)
        at = fy_node_is_mapping(at) ? fy_node_mapping_lookup_by_string(at, path[i], strlen(path[i])) : NULL;
    return at && !ndp_yaml_is_null(at);
}

void ndp_import_deepspeed_ranks(ndp_import *m) {
    int64_t of_one = (int64_t)m->read.micro * m->read.accumulation;
    if (of_one > 0 && m->read.train_batch > 0 && m->read.train_batch % of_one == 0 && !m->notes.o->ranks)
        m->read.processes = (int)(m->read.train_batch / of_one);
}

/* Number of data ranks; 0: it is not known before the job starts. */
static int64_t data_ranks(const ndp_import *m) {
    return (int64_t)m->job.parallelism.size[NDP_DP_REPLICATE] * m->job.parallelism.size[NDP_DP_SHARD];
}

/* What the file leaves to its program, as "auto", is as the job has it. */
ndp_status ndp_import_deepspeed_batch(ndp_import *m) {
    int micro = m->read.micro ? m->read.micro : 1, accumulation = m->read.accumulation ? m->read.accumulation : 1;
    int64_t ranks = data_ranks(m), one = (int64_t)micro * accumulation, global = m->read.train_batch;
    if (global % micro || (global && ranks && m->read.micro && m->read.accumulation && global != one * ranks))
        return ndp_import_fail(&m->notes, "train_batch_size",
                               "'train_batch_size' is %lld, but micro batch %d x accumulation %d are %lld samples of a "
                               "data rank, and there are %lld of these",
                               (long long)global, micro, accumulation, (long long)one, (long long)ranks);
    if (!global && (m->read.micro || m->read.accumulation)) {
        global = one * (ranks ? ranks : 1);
        if (!ranks)
            SAY(m, "batch.global_batch_size %lld is that of one data rank: multiply it by their number\n",
                (long long)global);
    }
    if (global > 1 << 30)
        return ndp_import_fail(&m->notes, "", "the global batch, %lld samples, is more than %d", (long long)global,
                               1 << 30);
    if (global) {
        m->job.batch.global_batch_size = (int)global;
        m->job.batch.micro_batch_size = micro;
        ndp_import_mark(m, offsetof(ndp_config, batch.global_batch_size));
        ndp_import_mark(m, offsetof(ndp_config, batch.micro_batch_size));
    }
    if (global && ranks)
        SAY(m, "global batch %lld samples; %lld data rank%s\n", (long long)global, (long long)ranks,
            ranks == 1 ? "" : "s");
    return NDP_OK;
}

/* DeepSpeed's own values of what the section lacks; what is "auto" there stays the job's. */
static ndp_status set_absent(ndp_import *m, const char *section, const char *const (*absent)[2]) {
    for (; (*absent)[0]; absent++)
        if (!has(m, section, "params", (*absent)[0]))
            NDP_TRY(ndp_config_set(&m->job, (*absent)[1]));
    return NDP_OK;
}

static ndp_status refuse(ndp_import *m, const char *name, double value, const char *why, const char *ours) {
    char text[32];
    snprintf(text, sizeof text, "%g", value);
    return ndp_import_refuse(&m->notes, name, text, ndp_import_node(&m->notes, name), why, ours);
}

static ndp_status finish_warmup(ndp_import *m) {
    static const char steps[] = "scheduler.params.warmup_num_steps", from_0[] = "warm-up rises from 0";
    if (!has(m, "scheduler", "params", "warmup_num_steps")) {
        SAY(m, "schedule.warmup_steps 1000: DeepSpeed's warmup_num_steps where none is given\n");
        m->read.warmup = 1000;
    }
    if (m->read.warmup >= 0) {
        m->job.schedule.warmup_steps = (int)m->read.warmup;
        ndp_import_mark(m, offsetof(ndp_config, schedule.warmup_steps));
    }
    if (m->read.warmup > 0 && m->read.rise != RISE_LINEAR)
        NDP_TRY(refuse(m, steps, m->read.warmup,
                       "warm-up is linear; DeepSpeed's is logarithmic, unless warmup_type is linear",
                       "schedule.warmup_steps"));
    if (m->read.rise_from > 0)
        NDP_TRY(refuse(m, "scheduler.params.warmup_min_lr", m->read.rise_from, from_0, "schedule.warmup_steps"));
    if (m->read.rise_ratio > 0)
        NDP_TRY(refuse(m, "scheduler.params.warmup_min_ratio", m->read.rise_ratio, from_0, "schedule.warmup_steps"));
    return NDP_OK;
}

static ndp_status finish_scheduler(ndp_import *m) {
    static const ndp_lr_kind names[] = {[SCHEDULE_CONSTANT_WARMUP] = NDP_LR_CONSTANT,
                                        [SCHEDULE_LINEAR] = NDP_LR_LINEAR,
                                        [SCHEDULE_COSINE] = NDP_LR_COSINE};
    if (!m->read.scheduler)
        return NDP_OK;
    m->job.schedule.name = names[m->read.scheduler];
    ndp_import_mark(m, offsetof(ndp_config, schedule.name));
    ndp_import_mark(m, offsetof(ndp_config, schedule.like));
    if (!ndp_import_is_set(&m->notes, "schedule.like"))
        m->job.schedule.like = NDP_LR_LIKE_DEEPSPEED;
    m->job.schedule.min_lr_ratio = 0;
    if (m->read.scheduler == SCHEDULE_COSINE)
        m->job.schedule.min_lr_ratio = m->read.min_lr_ratio >= 0 ? m->read.min_lr_ratio : 1e-4; /* DeepSpeed's own */
    if (m->read.peak > 0)
        m->job.optimizer.lr = m->read.peak;
    if (m->read.max_steps > 0) {
        m->job.train.steps = m->read.max_steps;
        ndp_import_mark(m, offsetof(ndp_config, train.steps));
    }
    return finish_warmup(m);
}

ndp_status ndp_import_deepspeed_training(ndp_import *m) {
    static const char *const optimizer[][2] = {{"lr", "optimizer.lr=0.001"},
                                               {"betas", "optimizer.betas=[0.9, 0.999]"},
                                               {"eps", "optimizer.eps=1e-8"},
                                               {"weight_decay", "optimizer.weight_decay=0"},
                                               {0}};
    static const char *const forms[] = {
        "replicas", "dp_shard, gathered weights are kept, gradients whole until the update",
        "dp_shard, gathered weights are kept", "dp_shard, weights are gathered for each use"};
    SAY(m, "ZeRO stage %d: %s\n", m->read.zero_stage > 0 ? m->read.zero_stage : 0,
        forms[m->read.zero_stage > 0 ? m->read.zero_stage : 0]);
    if (ndp_import_find(&m->notes, "activation_checkpointing"))
        SAY(m, "activation_checkpointing: train.recompute: block\n");
    if (!has(m, "gradient_clipping", NULL, NULL))
        NDP_TRY(ndp_config_set(&m->job, "optimizer.max_grad_norm=1")); /* DeepSpeed's own, since 0.19 */
    if (has(m, "optimizer", NULL, NULL)) {
        NDP_TRY(ndp_import_finish_optimizer(m));
        NDP_TRY(set_absent(m, "optimizer", optimizer));
    }
    NDP_TRY(finish_scheduler(m));
    static const char *const rest[] = {"model.path", "data.files", "train.steps", "optimizer", NULL};
    const char *const with[] = {"model.path", "data.files", "train.steps", NULL};
    SAY(m, "the file has the layout and parts of the training");
    ndp_import_say_unset(&m->notes, has(m, "optimizer", NULL, NULL) ? with : rest, "\n");
    return NDP_OK;
}
