/* The folder of a run: taking its lock, removing what killed runs left there, and what rank 0 writes before the steps.
 */
#include "train/run_folder.h"

#include "base/text.h"
#include "checkpoint/agree.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/steps.h"
#include "train/best.h"
#include "train/identity.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the lock ---- */

ndp_status ndp_run_folder_file(const ndp_config *c, const char *name, char **path) {
    NDP_NOT_NULL(c, name, path);
    NDP_TRY(ndp_folder_create(c->train.output_dir));
    *path = ndp_format("%s/%s", c->train.output_dir, name);
    return NDP_MEMORY(*path, "for a path");
}

ndp_status ndp_run_folder_check(const ndp_config *c) {
    NDP_NOT_NULL(c);
    return ndp_lock_peek(c->train.output_dir);
}

/* One attempt of rank 0; passes on a note of the lock, such as whose it is. */
static ndp_status try_lock(ndp_lock *lock, const ndp_train_opts *o, bool *held) {
    ndp_status st = ndp_lock_try(lock, held);
    if (o->say && *ndp_lock_note(lock))
        o->say(o->user, ndp_lock_note(lock));
    return st == NDP_EIO
               ? NDP_FAIL(NDP_EIO, "%s; set train.output_dir to a folder that can be written to", ndp_error_message())
               : st;
}

/* Sums over ranks: does rank 0 still wait, and has any rank been stopped? */
static ndp_status sum_flags(ndp_comm *world, bool waits, const ndp_train_opts *o, bool *pending, bool *stopped) {
    double sums[] = {waits, o->stop && *o->stop};
    NDP_TRY(ndp_reduce_now(world, sums, NDP_COUNT(sums), NDP_F64, NDP_SUM));
    *pending = sums[0] > 0;
    *stopped = sums[1] > 0;
    return NDP_OK;
}

/* The ranks communicate several times a second, so that no wait times out, however long it takes to get the lock. */
static ndp_status wait_for_lock(const ndp_config *c, const ndp_train_opts *o, ndp_comm *world, ndp_lock *lock) {
    enum { NAP = 200000 };
    bool held = lock == NULL, pending = true, stopped = false;
    while (pending) {
        NDP_TRY(ndp_agree(world, lock ? try_lock(lock, o, &held) : NDP_OK));
        NDP_TRY(sum_flags(world, !held, o, &pending, &stopped));
        if (pending && stopped)
            return NDP_FAIL(NDP_EINTR, "stopped while the run waited for the folder %s, before it wrote anything",
                            c->train.output_dir);
        if (pending && lock)
            usleep(NAP);
    }
    return NDP_OK;
}

ndp_status ndp_run_folder_take(const ndp_config *c, const ndp_train_opts *o, ndp_comm *world, ndp_lock **lock) {
    *lock = NULL;
    bool await = o->resume && o->await;
    NDP_TRY(ndp_agree(world, ndp_is_first(world) ? ndp_lock_create(c->train.output_dir, await, lock) : NDP_OK));
    return wait_for_lock(c, o, world, *lock);
}

/* ---- its contents ---- */

ndp_status ndp_run_folder_newest(const ndp_config *c, int64_t *step) {
    NDP_NOT_NULL(c, step);
    char path[NDP_PATH];
    int64_t *steps = NULL, newest = 0;
    int n = 0;
    NDP_TRY(ndp_path_join(path, c->train.output_dir, "checkpoints"));
    NDP_TRY(ndp_checkpoint_steps(path, &steps, &n));
    ndp_status st = NDP_OK;
    for (int i = 0; i < n && newest == 0 && st == NDP_OK; i++) {
        ndp_examined e;
        st = ndp_checkpoint_examine(NULL, path, steps[i], false, 1, &e);
        newest = st == NDP_OK && e.state != NDP_CHECKPOINT_DAMAGED ? steps[i] : 0;
    }
    free(steps);
    if (st == NDP_OK)
        *step = newest;
    return st;
}

/* ---- leftovers ---- */

/* NAME.tmp-1234-5678 of ndp_file_write_atomic, lock.tmp-XXXXXX and lock.12 of the lock. */
static bool is_left(const char *name) {
    const char *end = strstr(name, ".tmp-"), *digits;
    if (strncmp(name, "lock.tmp-", 9) == 0)
        return true;
    if (strncmp(name, "lock.", 5) == 0 && name[5])
        return name[5 + strspn(name + 5, "0123456789")] == '\0';
    if (!end)
        return false;
    digits = end + 5;
    size_t pid = strspn(digits, "0123456789"), thread = digits[pid] == '-' ? strspn(digits + pid + 1, "0123456789") : 0;
    return pid && thread && digits[pid + 1 + thread] == '\0';
}

static ndp_status remove_left(void *user, const char *folder, const char *name) {
    char path[NDP_PATH], whole[64];
    bool export = ndp_beside_of(name, whole) && strcmp(whole, "export") == 0;
    (void)user;
    if (!is_left(name) && !export)
        return NDP_OK;
    NDP_TRY(ndp_path_join(path, folder, name));
    if (export)
        return ndp_folder_remove(path);
    if (unlink(path) && errno != ENOENT)
        return NDP_FAIL(NDP_EIO, "cannot remove '%s', which a killed run left: %s", path, strerror(errno));
    return NDP_OK;
}

static ndp_status clean_files(const char *folder) { return ndp_folder_visit(folder, remove_left, NULL); }

static ndp_status clean_below(const char *folder, const char *name, ndp_status (*clean)(const char *path)) {
    char path[NDP_PATH];
    NDP_TRY(ndp_path_join(path, folder, name));
    return clean(path);
}

static ndp_status clean_folder(const char *folder) {
    NDP_TRY(clean_files(folder));
    NDP_TRY(clean_below(folder, "model", clean_files));
    NDP_TRY(clean_below(folder, "adapter", clean_files));
    NDP_TRY(ndp_best_clean(folder));
    NDP_TRY(clean_below(folder, "checkpoints", clean_files));
    return clean_below(folder, "checkpoints", ndp_checkpoint_clean);
}

/* ---- before a run ---- */

static ndp_status refuse_other_run(const ndp_config *c) {
    static const char *const signs[] = {"metrics.jsonl", "checkpoints", "model", "adapter"};
    for (int i = 0; i < NDP_COUNT(signs); i++) {
        char path[NDP_PATH];
        NDP_TRY(ndp_path_join(path, c->train.output_dir, signs[i]));
        if (ndp_path_exists(path))
            return NDP_FAIL(NDP_EINVAL,
                            "train.output_dir %s holds another run (%s is there): choose another folder, remove it, or "
                            "continue the run with --resume",
                            c->train.output_dir, signs[i]);
    }
    return NDP_OK;
}

/* Whether files can be created in a folder of the run; it may be missing, since the run folder can be written. */
static ndp_status try_folder(const char *path) {
    char file[NDP_PATH];
    if (!ndp_path_exists(path))
        return NDP_OK;
    NDP_TRY(ndp_path_join(file, path, "file"));
    return ndp_output_check(file);
}

static ndp_status try_outputs(const ndp_config *c, const ndp_train_opts *o) {
    static const char *const folders[] = {"checkpoints", "model", "adapter", "best", "tb"};
    if (o->trace && ndp_output_check(o->trace) != NDP_OK)
        return NDP_FAIL(NDP_EINVAL, "the trace: %s", ndp_error_message());
    for (int i = 0; i < NDP_COUNT(folders); i++) {
        char path[NDP_PATH];
        NDP_TRY(ndp_path_join(path, c->train.output_dir, folders[i]));
        NDP_TRY(try_folder(path));
    }
    return NDP_OK;
}

ndp_status ndp_run_folder_prepare(const ndp_config *c, const ndp_train_opts *o) {
    if (!o->resume)
        NDP_TRY(refuse_other_run(c));
    NDP_TRY(clean_folder(c->train.output_dir));
    return try_outputs(c, o);
}

static bool names_overlong(const ndp_train_opts *o) {
    for (int i = 0; i < o->accept_count; i++)
        if (strcmp(o->accept[i], "data.overlong") == 0)
            return true;
    return false;
}

typedef struct kept_rows {
    bool cut;        /* data.overlong is `cut` */
    int micro_batch; /* 0: nothing is kept */
} kept_rows;

static bool has_micro_batch(const ndp_config *c, int micro_batch, int world) {
    ndp_config with;
    ndp_job j;
    if (micro_batch == 0 || ndp_config_copy(c, &with) != NDP_OK)
        return false;
    with.batch.micro_batch_size = micro_batch;
    bool has = ndp_job_init(&with, world, &j) == NDP_OK;
    if (has)
        ndp_job_release(&j);
    ndp_config_release(&with);
    return has;
}

/* Rank 0: reads them. A file that cannot be read says nothing. */
static kept_rows read_kept(const ndp_config *c, const ndp_train_opts *o, int world) {
    char path[NDP_PATH];
    ndp_config *then;
    kept_rows kept = {0};
    bool silent =
        !names_overlong(o) && c->data.overlong == NDP_OVERLONG_AUTO && !ndp_config_given(c, "data", "overlong");
    if (!o->resume || ndp_path_join(path, c->train.output_dir, "job.yaml") != NDP_OK || !ndp_path_exists(path) ||
        ndp_config_create(&then) != NDP_OK)
        return kept;
    if (ndp_config_read(then, path) == NDP_OK) {
        kept.cut = silent && then->data.overlong == NDP_OVERLONG_CUT;
        if (c->batch.micro_batch_size == 0 && has_micro_batch(c, then->batch.micro_batch_size, world))
            kept.micro_batch = then->batch.micro_batch_size;
    }
    ndp_config_destroy(then);
    ndp_error_set(NDP_OK, "");
    return kept;
}

static ndp_status keep_rows(const ndp_config *c, kept_rows rows, ndp_config **out) {
    ndp_config *copy = calloc(1, sizeof *copy);
    NDP_CHECK_MEMORY(copy, "for a configuration");
    ndp_status st = ndp_config_copy(c, copy);
    if (st == NDP_OK && rows.cut)
        st = ndp_config_setf(copy, "data.overlong=cut");
    if (st == NDP_OK && rows.micro_batch)
        st = ndp_config_setf(copy, "batch.micro_batch_size=%d", rows.micro_batch);
    *out = copy;
    return st;
}

ndp_status ndp_run_folder_keep(const ndp_config *c, const ndp_train_opts *o, ndp_comm *world, ndp_config **kept) {
    const char *folder = c->train.output_dir;
    void (*say)(void *user, const char *line) = ndp_is_first(world) ? o->say : NULL;
    kept_rows rows = ndp_is_first(world) ? read_kept(c, o, ndp_comm_size(world)) : (kept_rows){0};
    NDP_TRY(ndp_share_now(world, &rows, sizeof rows, 0));
    if (rows.cut)
        ndp_say(say, o->user,
                "resume: data.overlong stays cut, as in %s/job.yaml; --accept data.overlong changes it to auto",
                folder);
    if (rows.micro_batch)
        ndp_say(say, o->user, "resume: batch.micro_batch_size stays %d, as in %s/job.yaml", rows.micro_batch, folder);
    return rows.cut || rows.micro_batch ? ndp_agree(world, keep_rows(c, rows, kept)) : NDP_OK;
}

ndp_status ndp_run_folder_write_job(const ndp_trainer *t) {
    char path[NDP_PATH], *yaml;
    NDP_TRY(ndp_path_join(path, t->rank.job.config->train.output_dir, "job.yaml"));
    NDP_TRY(ndp_lock_check(t->lock)); /* reading the data may have taken hours */
    NDP_TRY(ndp_config_text(t->rank.job.config, &yaml));
    ndp_str text = {0};
    ndp_str_add(&text, "# ");
    ndp_trainer_describe_kernels(t, &text);
    ndp_identity_describe_accepted(t, &text);
    ndp_str_add(&text, yaml);
    free(yaml);
    ndp_status st = text.failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory for %s", path)
                                : ndp_file_write_atomic(path, text.data, text.length);
    ndp_str_release(&text);
    return st;
}

ndp_status ndp_run_folder_shared(const ndp_config *c, const char *name) {
    char path[NDP_PATH];
    NDP_TRY(ndp_path_join(path, c->train.output_dir, name));
    if (ndp_path_exists(path))
        return NDP_OK;
    return NDP_FAIL(NDP_EIO,
                    "'%s', which rank 0 wrote, is not visible on this host: train.output_dir must be on a disk that "
                    "all hosts share",
                    path);
}
