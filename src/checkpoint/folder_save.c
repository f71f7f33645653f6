#include "base/text.h"
#include "checkpoint/agree.h"
#include "checkpoint/shards.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* Exporting into a folder that may contain older weights:
 *
 *   EMPTY --make .export.tmp/--> OPEN --all ranks write and sync--> WRITTEN --rename each file--> DONE
 *
 * Up to WRITTEN the older weights are untouched, and a failure removes .export.tmp. A single file replaces another
 * atomically. Several files cannot, so the old index is removed first and the new one is renamed last: after a crash in
 * between, the folder does not open, but it is never a mixture of two models. The remaining new files stay in
 * .export.tmp. */

static bool is_weights_file(const char *name) {
    size_t n = strlen(name);
    return strcmp(name, "model.safetensors") == 0 || strcmp(name, "model.safetensors.index.json") == 0 ||
           (strncmp(name, "model-", 6) == 0 && n > 12 && strcmp(name + n - 12, ".safetensors") == 0);
}

/* A path in a folder; freed by the caller. */
static ndp_status join(const char *folder, const char *name, char **out) {
    *out = ndp_format("%s/%s", folder, name);
    return *out ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for a path in '%s'", folder);
}

static ndp_status remove_file(const char *folder, const char *name) {
    char *path;
    NDP_TRY(join(folder, name, &path));
    ndp_status st = NDP_OK;
    if (unlink(path) && errno != ENOENT)
        st = NDP_FAIL(NDP_EIO, "cannot remove the older weights '%s': %s", path, strerror(errno));
    free(path);
    return st;
}

static ndp_status move_file(const char *from, const char *to, const char *name) {
    char *old = NULL, *new = NULL;
    ndp_status st;
    NDP_TRY_GOTO(join(from, name, &old), release);
    NDP_TRY_GOTO(join(to, name, &new), release);
    NDP_TRY_GOTO(ndp_durable_rename(old, new), release);
release:
    free(old);
    free(new);
    return st;
}

static bool is_new(const ndp_shards *s, const char *name) {
    for (int f = 0; f < s->n_files; f++)
        if (strcmp(s->files[f].name, name) == 0)
            return true;
    return s->n_files > 1 && strcmp(name, "model.safetensors.index.json") == 0;
}

/* Removes weight files in the folder that do not belong to this export. */
static ndp_status remove_older(const ndp_shards *s, const char *folder) {
    DIR *d = opendir(folder);
    if (!d)
        return NDP_FAIL(NDP_EIO, "cannot list '%s': %s", folder, strerror(errno));
    ndp_status st = NDP_OK;
    for (struct dirent *e; st == NDP_OK && (e = readdir(d));)
        if (is_weights_file(e->d_name) && !is_new(s, e->d_name))
            st = remove_file(folder, e->d_name);
    closedir(d);
    return st;
}

static ndp_status move_into_place(const ndp_shards *s, const char *beside, const char *folder) {
    NDP_TRY(ndp_durable_folder(beside));
    if (s->n_files > 1) {
        NDP_TRY(remove_file(folder, "model.safetensors.index.json"));
        NDP_TRY(remove_file(folder, "model.safetensors")); /* it would take precedence over the index */
    }
    for (int f = 0; f < s->n_files; f++)
        NDP_TRY(move_file(beside, folder, s->files[f].name));
    if (s->n_files > 1)
        NDP_TRY(move_file(beside, folder, "model.safetensors.index.json"));
    NDP_TRY(remove_older(s, folder));
    NDP_TRY(ndp_durable_folder(folder));
    return ndp_folder_remove(beside);
}

static ndp_status begin(const ndp_lock *lock, const char *beside) {
    NDP_TRY(ndp_lock_check(lock));
    return ndp_fresh_folder(beside);
}

static ndp_status commit(const ndp_shards *s, const ndp_lock *lock, const char *beside, const char *folder) {
    NDP_TRY(ndp_lock_check(lock));
    return move_into_place(s, beside, folder);
}

static ndp_status save(ndp_shards *s, ndp_comm *world, const ndp_lock *lock, const char *beside, const char *folder,
                       const ndp_file_piece *pieces, int n_pieces) {
    bool first = ndp_is_first(world);
    ndp_status st = ndp_agree(world, first ? begin(lock, beside) : NDP_OK);
    if (st == NDP_OK)
        st = ndp_shards_write(s, world, beside, pieces, n_pieces);
    if (st != NDP_OK)
        st = ndp_agree(world, first ? ndp_lock_explain(lock, st) : st);
    if (st != NDP_OK && first && ndp_lock_held(lock))
        ndp_remove_quietly(beside, st);
    NDP_TRY(st);
    return ndp_agree(world, first ? commit(s, lock, beside, folder) : NDP_OK);
}

ndp_status ndp_weights_save(ndp_comm *world, const char *folder, const ndp_tensor_spec *specs, int n,
                            const ndp_file_piece *pieces, int n_pieces, int64_t max_shard_bytes) {
    return ndp_weights_save_locked(world, NULL, folder, specs, n, pieces, n_pieces, max_shard_bytes);
}

ndp_status ndp_weights_save_locked(ndp_comm *world, const ndp_lock *lock, const char *folder,
                                   const ndp_tensor_spec *specs, int n, const ndp_file_piece *pieces, int n_pieces,
                                   int64_t max_shard_bytes) {
    static const char *const stems[] = {"model"};
    ndp_shards s = {0};
    char *beside = NULL;
    ndp_status st = ndp_shards_plan(&s, specs, n, stems, NDP_COUNT(stems), max_shard_bytes);
    if (st == NDP_OK)
        st = join(folder, ".export.tmp", &beside);
    st = ndp_agree(world, st);
    if (st == NDP_OK)
        st = save(&s, world, lock, beside, folder, pieces, n_pieces);
    free(beside);
    ndp_shards_release(&s);
    return st;
}
