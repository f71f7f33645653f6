/* RUN/run.json: what a run was, for those who look at it later (`record`). Written by rank 0 when the steps begin,
 * after each checkpoint, and when they end; no run reads it but for the parts before its own, which it keeps. */
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/agree.h"
#include "checkpoint/folder.h"
#include "checkpoint/steps.h"
#include "checkpoint/writer_thread.h"
#include "job/model_identity.h"
#include "plan/job_memory.h"
#include "train/identity.h"
#include "train/summary.h"
#include "weights/weights.h"

#include <math.h>
#include <ndparallel/ndparallel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME_BYTES = 64 };

struct ndp_run_file {
    char path[NDP_PATH];
    struct json_object *root, *part; /* the part is one of root's */
    double flops[2];                 /* of an update, all ranks: without and with what is computed again */
    int devices;                     /* GPUs; of ranks on processors, hosts */
    int64_t saved;                   /* the step of the checkpoint that was there at the last writing */
    char *base;                      /* the folder of the weights that a thread hashes; NULL: none */
    ndp_writer_thread hasher;
    ndp_hash128 base_hash;
};

/* ---- the whole ---- */

/* The words of this process's command line. */
static struct json_object *command(void) {
    struct json_object *words = json_object_new_array();
    ndp_str text = {0};
    char block[4096];
    FILE *f = fopen("/proc/self/cmdline", "r");
    for (size_t n; f && (n = fread(block, 1, sizeof block, f)) > 0;)
        ndp_str_add_bytes(&text, block, n);
    if (f)
        fclose(f);
    for (size_t at = 0; !text.failed && at < text.length; at += strlen(text.data + at) + 1)
        json_object_array_add(words, json_object_new_string(text.data + at));
    ndp_str_release(&text);
    return words;
}

/* The host of each rank. Collective; *out is NULL but on rank 0, or without memory. */
static ndp_status gather_hosts(const ndp_trainer *t, struct json_object **out) {
    char own[NAME_BYTES] = "", *all = calloc((size_t)t->rank.job.world, NAME_BYTES);
    gethostname(own, sizeof own - 1);
    ndp_status st =
        ndp_agree(t->rank.world, all ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for names of hosts"));
    ndp_work work;
    if (st == NDP_OK)
        st = ndp_all_gather_begin(t->rank.world, own, all, NAME_BYTES, NDP_U8, &work);
    if (st == NDP_OK)
        st = ndp_wait(&work);
    *out = st == NDP_OK && ndp_is_first(t->rank.world) ? json_object_new_array() : NULL;
    for (int r = 0; *out && r < t->rank.job.world; r++)
        json_object_array_add(*out, json_object_new_string(all + (size_t)r * NAME_BYTES));
    free(all);
    return st;
}

/* Floating-point operations of all ranks in an update's units. Collective. */
static ndp_status count_flops(const ndp_trainer *t, double flops[2]) {
    const ndp_program *p = ndp_engine_program(t->engine);
    flops[0] = flops[1] = 0;
    for (ndp_walk w = {0}; ndp_program_next(p, NDP_ALL_ITERATIONS, &w);) {
        const ndp_instr *in = &p->instrs[w.at];
        if (in->code != NDP_DO_RUN)
            continue;
        double own = p->opts.units[p->opts.model->units[in->unit].graph].lists[in->phase].flops;
        flops[0] += in->phase == NDP_RECOMPUTE ? 0 : own;
        flops[1] += own;
    }
    return ndp_reduce_now(t->rank.world, flops, 2, NDP_F64, NDP_SUM);
}

static int count_devices(const ndp_trainer *t, struct json_object *hosts) {
    int n = 0, all = (int)json_object_array_length(hosts);
    for (int i = 0; i < all; i++) {
        bool known = false;
        for (int k = 0; k < i; k++)
            known |= json_object_equal(json_object_array_get_idx(hosts, (size_t)i),
                                       json_object_array_get_idx(hosts, (size_t)k));
        n += !known;
    }
    return t->rank.exec.device->host_memory ? n : all;
}

/* Hashes of what the run reads, as its checkpoints have them; null: weights that its checkpoints hold (hash_base). */
static struct json_object *hashes_of(const ndp_trainer *t) {
    static const char *const keys[][2] = {{"data", "data.files"},
                                          {"held_out", "data.validation_files"},
                                          {"tokenizer", "data.tokenizer"},
                                          {"base", "model.path"},
                                          {"adapter", "adapter.path"}};
    struct json_object *extra = NULL, *o = json_object_new_object(), *identity = NULL;
    if (ndp_identity_extra(t, &extra) == NDP_OK)
        identity = json_object_object_get(extra, "identity");
    for (int i = 0; i < NDP_COUNT(keys); i++) {
        struct json_object *value = json_object_object_get(identity, keys[i][1]);
        bool known = value && strcmp(json_object_get_string(value), ndp_identity_saved) != 0;
        json_object_object_add(o, keys[i][0], known ? json_object_get(value) : NULL);
    }
    json_object_put(extra);
    return o;
}

static ndp_status hash_folder(void *file) {
    ndp_run_file *f = file;
    return ndp_weights_hash_folder(f->base, &f->base_hash);
}

/* The weights that a new run begins with, and then has in its checkpoints alone. A resumed run keeps their hash: the
 * folder may have others by now. */
static void hash_base(ndp_run_file *f, const ndp_trainer *t, struct json_object *hashes, struct json_object *before) {
    const ndp_weight_sources from = ndp_job_weights(&t->rank.job);
    struct json_object *old = json_object_object_get(before, "base");
    if (json_object_object_get(hashes, "base"))
        return;
    if (ndp_trainer_updates(t) > 0)
        json_object_object_add(hashes, "base", json_object_get(old));
    else if (from.folder && (f->base = strdup(from.folder)))
        ndp_writer_thread_begin(&f->hasher, hash_folder, f);
}

/* Null if they could not be read again. */
static void take_base_hash(ndp_run_file *f) {
    struct json_object *hashes = json_object_object_get(f->root, "hashes");
    ndp_str text = {0};
    if (!f->base)
        return;
    ndp_error_state before = ndp_error_swap((ndp_error_state){0});
    if (ndp_writer_thread_end(&f->hasher) == NDP_OK) {
        ndp_identity_hash(&text, f->base_hash);
        ndp_identity_text(hashes, "base", &text);
    }
    ndp_error_forget();
    ndp_error_swap(before);
    free(f->base);
    f->base = NULL;
}

/* Of rank 0. */
static struct json_object *device_name(const ndp_trainer *t) {
    char name[NDP_DEVICE_NAME];
    ndp_engine_device_name(t->engine, name);
    return json_object_new_string(name);
}

static struct json_object *layout_of(const ndp_trainer *t) {
    struct json_object *o = json_object_new_object();
    for (int a = 0; a < NDP_SIZES; a++)
        json_object_object_add(o, ndp_axis_name((ndp_axis)a), json_object_new_int(t->rank.job.layout.size[a]));
    return o;
}

static struct json_object *memory_of(const ndp_trainer *t) {
    struct json_object *o = json_object_new_object();
    ndp_engine_memory own = ndp_engine_memory_of(t->engine);
    json_object_object_add(o, "training", json_object_new_int64(own.device));
    json_object_object_add(o, "pinned", json_object_new_int64(own.pinned));
    if (t->score.engine)
        json_object_object_add(o, "evaluation", json_object_new_int64(ndp_engine_memory_of(t->score.engine).device));
    return o;
}

/* Returns the run.json that a resumed run continues; NULL: there is none. */
static struct json_object *file_before(const char *path, bool resumed) {
    struct json_object *old = NULL;
    return resumed && ndp_path_exists(path) && ndp_json_read(path, &old) == NDP_OK ? old : NULL;
}

static struct json_object *parts_before(struct json_object *old) {
    struct json_object *parts = json_object_object_get(old, "parts");
    return json_object_is_type(parts, json_type_array) ? json_object_get(parts) : json_object_new_array();
}

static void set_number(struct json_object *o, const char *key, double x) {
    json_object_object_add(o, key, json_object_new_double(x));
}

static struct json_object *seconds_of(const ndp_run_part *p) {
    struct json_object *o = json_object_new_object();
    double start = p->started - p->began;
    set_number(o, "start", start);
    set_number(o, "compute", p->compute);
    set_number(o, "communication", p->communication);
    set_number(o, "data", p->data);
    set_number(o, "evaluation", p->evaluation);
    set_number(o, "saves", p->saves);
    set_number(o, "log", p->log);
    set_number(o, "other",
               p->ended - p->began - start - p->compute - p->communication - p->data - p->evaluation - p->saves -
                   p->log);
    return o;
}

/* ---- writing ---- */

/* Nothing once another run holds the folder. */
static void write_file(const ndp_run_file *f, const ndp_trainer *t) {
    size_t n;
    if (!ndp_lock_held(t->lock))
        return;
    const char *text =
        json_object_to_json_string_length(f->root, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE, &n);
    ndp_error_state cause = ndp_error_swap((ndp_error_state){0}); /* of a run that ends by an error */
    if (ndp_file_write_atomic(f->path, text, n) != NDP_OK)
        ndp_warn(&t->rank.log, "%s; the run does not need it", ndp_error_message());
    ndp_error_forget();
    ndp_error_swap(cause);
}

static struct json_object *part_begun(const ndp_trainer *t, const ndp_run_part *p) {
    struct json_object *o = json_object_new_object();
    json_object_object_add(o, "version", json_object_new_string(ndp_build()));
    json_object_object_add(o, "command", command());
    set_number(o, "start", p->time);
    json_object_object_add(o, "first_step", json_object_new_int64(ndp_trainer_updates(t) + 1));
    return o;
}

ndp_status ndp_run_file_open(const ndp_trainer *t, const ndp_run_part *p, ndp_run_file **out) {
    struct json_object *hosts;
    *out = NULL;
    double flops[2];
    (void)ndp_engine_energy(t->engine); /* it counts from here on */
    NDP_TRY(count_flops(t, flops));
    NDP_TRY(gather_hosts(t, &hosts));
    if (!ndp_is_first(t->rank.world))
        return NDP_OK;
    ndp_run_file *f = calloc(1, sizeof *f);
    if (!f || ndp_path_join(f->path, t->rank.job.config->train.output_dir, "run.json") != NDP_OK) {
        free(f);
        json_object_put(hosts);
        return NDP_OK; /* the run does not need it */
    }
    memcpy(f->flops, flops, sizeof f->flops);
    f->devices = count_devices(t, hosts);
    f->root = json_object_new_object();
    f->part = part_begun(t, p);
    struct json_object *old = file_before(f->path, ndp_trainer_updates(t) > 0), *parts = parts_before(old),
                       *hashes = hashes_of(t);
    json_object_array_add(parts, f->part);
    hash_base(f, t, hashes, json_object_object_get(old, "hashes"));
    json_object_put(old);
    json_object_object_add(f->root, "version", json_object_new_string(ndp_build()));
    json_object_object_add(f->root, "device", json_object_new_string(t->rank.exec.device->name));
    json_object_object_add(f->root, "device_name", device_name(t));
    json_object_object_add(f->root, "threads", json_object_new_int(t->rank.exec.threads));
    json_object_object_add(f->root, "transport", json_object_new_string(ndp_transport_name(t->rank.transport)));
    json_object_object_add(f->root, "hosts", hosts);
    json_object_object_add(f->root, "layout", layout_of(t));
    json_object_object_add(f->root, "memory", memory_of(t));
    json_object_object_add(f->root, "parameters", json_object_new_int64(t->rank.job.spec.parameters));
    json_object_object_add(f->root, "steps", json_object_new_int(t->rank.data.steps));
    json_object_object_add(f->root, "hashes", hashes);
    json_object_object_add(f->root, "parts", parts);
    write_file(f, t);
    *out = f;
    return NDP_OK;
}

/* What the part has done until `now`, and the checkpoint that is there. */
static void set_progress(ndp_run_file *f, const ndp_trainer *t, const ndp_run_part *p, double now, int64_t saved) {
    static const char *const kinds[] = {"model", "hardware"};
    struct json_object *flops = json_object_new_object(), *result = NULL;
    char path[NDP_PATH];
    ndp_manifest m = {0};
    for (int k = 0; k < NDP_COUNT(kinds); k++)
        set_number(flops, kinds[k], f->flops[k] * (double)p->steps);
    set_number(f->part, "end", p->time + now - p->began);
    json_object_object_add(f->part, "last_step",
                           json_object_new_int64(p->steps > 0 ? p->last : ndp_trainer_updates(t)));
    json_object_object_add(f->part, "tokens", json_object_new_int64(p->tokens));
    json_object_object_add(f->part, "flops", flops);
    set_number(f->part, "device_hours", (now - p->began) / 3600 * f->devices);
    json_object_object_add(f->part, "energy_joules", isnan(p->joules) ? NULL : json_object_new_double(p->joules));
    f->saved = saved;
    if (saved > 0 && ndp_path_join(path, t->rank.job.config->train.output_dir, "checkpoints") == NDP_OK &&
        ndp_step_manifest(path, saved, &m) == NDP_OK) {
        char hash[40];
        snprintf(hash, sizeof hash, "%016llx%016llx", (unsigned long long)m.hash.high, (unsigned long long)m.hash.low);
        result = json_object_new_object();
        json_object_object_add(result, "step", json_object_new_int64(saved));
        json_object_object_add(result, "hash", json_object_new_string(hash));
    }
    ndp_manifest_release(&m);
    json_object_object_add(f->root, "result", result);
}

void ndp_run_file_update(ndp_run_file *f, const ndp_trainer *t, const ndp_run_part *p, int64_t saved) {
    if (!f || saved == f->saved || saved <= 0)
        return;
    if (!ndp_writer_thread_works(&f->hasher))
        take_base_hash(f);
    set_progress(f, t, p, ndp_now(), saved);
    write_file(f, t);
}

void ndp_run_file_close(ndp_run_file *f, const ndp_trainer *t, const ndp_run_part *p, int64_t saved, ndp_status st) {
    if (!f)
        return;
    ndp_error_state cause = ndp_error_swap((ndp_error_state){0}); /* of a run that ends by an error */
    take_base_hash(f);
    set_progress(f, t, p, p->ended, saved);
    ndp_error_forget();
    ndp_error_swap(cause);
    json_object_object_add(f->part, "exit_code", json_object_new_int(ndp_exit_code(st)));
    json_object_object_add(f->part, "cause", json_object_new_string(st == NDP_OK ? "done" : ndp_error_message()));
    json_object_object_add(f->part, "peak_memory_bytes", json_object_new_int64(t->newest.peak_memory_bytes));
    json_object_object_add(f->part, "seconds", seconds_of(p));
    if (p->best_step > 0) {
        set_number(f->part, "best_eval_loss", p->best);
        json_object_object_add(f->part, "best_step", json_object_new_int64(p->best_step));
    }
    write_file(f, t);
    json_object_put(f->root);
    free(f);
}
