#include "checkpoint/checkpoint.h"

#include "base/fault.h"
#include "checkpoint/agree.h"
#include "checkpoint/shards.h"
#include "checkpoint/steps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* The paths of one save. */
typedef struct target {
    const char *folder; /* CHECKPOINTS */
    char *beside, *final;
} target;

static ndp_status target_init(target *t, const char *folder, int64_t step) {
    t->folder = folder;
    t->beside = ndp_step_path(folder, step, true);
    t->final = ndp_step_path(folder, step, false);
    return t->beside && t->final ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory to save into '%s'", folder);
}

static void target_release(target *t) {
    free(t->beside);
    free(t->final);
}

/* ---- SYNCED: the manifest ---- */

static ndp_status file_bytes(const char *folder, const char *name, int64_t *bytes) {
    char *path = ndp_format("%s/%s", folder, name);
    struct stat info;
    ndp_status st = NDP_OK;
    if (!path || stat(path, &info))
        st = NDP_FAIL(NDP_EIO, "cannot find '%s/%s', which was just written: %s", folder, name, strerror(errno));
    else
        *bytes = info.st_size;
    free(path);
    return st;
}

/* The files of the shards, and an index where one stem has several. */
static ndp_status list_files(const ndp_shards *s, const char *folder, ndp_manifest_file *files, char (*indices)[64],
                             int *n) {
    for (int f = 0; f < s->n_files; f++) {
        files[*n].name = s->files[f].name;
        NDP_TRY(file_bytes(folder, s->files[f].name, &files[(*n)++].bytes));
        bool another = f > 0 && s->files[f].stem == s->files[f - 1].stem;
        bool last = f + 1 == s->n_files || s->files[f].stem != s->files[f + 1].stem;
        if (another && last) {
            snprintf(*indices, sizeof *indices, "%s.safetensors.index.json", s->files[f].stem);
            files[*n].name = *indices++;
            NDP_TRY(file_bytes(folder, files[*n].name, &files[*n].bytes));
            ++*n;
        }
    }
    return NDP_OK;
}

static ndp_status write_manifest(const ndp_shards *s, const char *folder, const ndp_checkpoint_info *info) {
    enum { STEMS = 2 };
    char indices[STEMS][64], *path = NULL, *text = NULL;
    ndp_manifest_file *files = calloc((size_t)s->n_files + STEMS, sizeof *files);
    int n = 0;
    ndp_status st = NDP_OK;
    if (!files || !(path = ndp_format("%s/manifest.json", folder)))
        st = NDP_FAIL(NDP_ENOMEM, "not enough memory for the manifest in '%s'", folder);
    NDP_TRY_GOTO(st, release);
    NDP_TRY_GOTO(list_files(s, folder, files, indices, &n), release);
    NDP_TRY_GOTO(ndp_manifest_text(info, files, n, &text), release);
    NDP_TRY_GOTO(ndp_file_write_atomic(path, text, strlen(text)), release);
release:
    free(text);
    free(path);
    free(files);
    return st;
}

/* ---- COMMITTED ---- */

/* Puts the new folder in its place. One of the same step is swapped out, whole for whole, and then stands beside. */
static ndp_status move_into_place(const target *t) {
    if (!ndp_path_exists(t->final))
        return ndp_durable_rename(t->beside, t->final);
    if (ndp_fault(NDP_FAULT_RENAME) || renameat2(AT_FDCWD, t->beside, AT_FDCWD, t->final, RENAME_EXCHANGE))
        return NDP_FAIL(NDP_EIO, "cannot put '%s' in place of the checkpoint '%s': %s; remove the older one first",
                        t->beside, t->final, strerror(errno));
    return NDP_OK;
}

/* Hidden before it is emptied: no crash leaves a half-removed checkpoint under a checkpoint's name. */
static ndp_status remove_step(const char *folder, int64_t step) {
    target t = {0};
    ndp_status st;
    NDP_TRY_GOTO(target_init(&t, folder, step), release);
    NDP_TRY_GOTO(ndp_durable_rename(t.final, t.beside), release);
    NDP_TRY_GOTO(ndp_folder_remove(t.beside), release);
release:
    target_release(&t);
    return st;
}

static ndp_status prune(const char *folder, const ndp_checkpoint_info *just_written, int keep) {
    int64_t *steps = NULL;
    int n = 0;
    NDP_TRY(ndp_lock_check(just_written->lock));
    NDP_TRY(ndp_checkpoint_list(folder, &steps, &n, NULL));
    ndp_status st = NDP_OK;
    for (int i = keep; i < n && st == NDP_OK; i++)
        if (steps[i] != just_written->step)
            st = remove_step(folder, steps[i]);
    free(steps);
    return st;
}

static ndp_status commit(const ndp_shards *s, const target *t, const ndp_checkpoint_info *info, bool *committed) {
    NDP_TRY(write_manifest(s, t->beside, info));
    NDP_TRY(ndp_durable_folder(t->beside));
    NDP_TRY(ndp_lock_check(info->lock));
    NDP_TRY(move_into_place(t));
    *committed = true;
    return ndp_durable_folder(t->folder);
}

static ndp_status begin(const target *t, const ndp_checkpoint_info *info) {
    NDP_TRY(ndp_lock_check(info->lock));
    return ndp_fresh_folder(t->beside);
}

static ndp_status save(const ndp_shards *s, ndp_comm *world, const target *t, const ndp_checkpoint_info *info,
                       const ndp_file_piece *pieces, int n_pieces, int keep) {
    bool first = ndp_is_first(world), committed = false;
    ndp_status st = ndp_agree(world, first ? begin(t, info) : NDP_OK);
    if (st == NDP_OK)
        st = ndp_shards_write(s, world, t->beside, pieces, n_pieces);
    if (st == NDP_OK)
        st = ndp_agree(world, first ? commit(s, t, info, &committed) : NDP_OK);
    if (st != NDP_OK)
        st = ndp_agree(world, first ? ndp_lock_explain(info->lock, st) : st);
    if (first && (st != NDP_OK || committed) && ndp_lock_held(info->lock)) /* half-written, or swapped out */
        ndp_remove_quietly(t->beside, st);
    NDP_TRY(st);
    return ndp_agree(world, first && keep > 0 ? prune(t->folder, info, keep) : NDP_OK);
}

ndp_status ndp_checkpoint_save_sharded(ndp_comm *world, const char *folder, const ndp_checkpoint_info *info,
                                       const ndp_tensor_spec *specs, int n, const ndp_file_piece *pieces, int n_pieces,
                                       int keep, int64_t max_shard_bytes) {
    static const char *const stems[] = {"model", "optimizer"};
    ndp_shards s = {0};
    target t = {0};
    ndp_status st = ndp_shards_plan(&s, specs, n, stems, NDP_COUNT(stems), max_shard_bytes);
    if (st == NDP_OK)
        st = target_init(&t, folder, info->step);
    st = ndp_agree(world, st);
    if (st == NDP_OK)
        st = save(&s, world, &t, info, pieces, n_pieces, keep);
    target_release(&t);
    ndp_shards_release(&s);
    return st;
}

ndp_status ndp_checkpoint_save(ndp_comm *world, const char *folder, const ndp_checkpoint_info *info,
                               const ndp_tensor_spec *specs, int n, const ndp_file_piece *pieces, int n_pieces,
                               int keep) {
    return ndp_checkpoint_save_sharded(world, folder, info, specs, n, pieces, n_pieces, keep, NDP_SHARD_BYTES);
}
