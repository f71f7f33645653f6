/* Exporting into a folder that may contain older weights:
 *
 *   EMPTY --make .export.tmp/--> OPEN --all ranks write and sync--> WRITTEN --rename each file--> DONE
 *
 * Up to WRITTEN the older weights are untouched, and a failure removes .export.tmp. A single file replaces another
 * atomically. Several files cannot, so the old index is removed first and the new one is renamed last: after a crash in
 * between, the folder does not open, but it is never a mixture of two models. The remaining new files stay in
 * .export.tmp. Called by the trainer for its exports. */
#include "base/text.h"
#include "checkpoint/agree.h"
#include "checkpoint/shards.h"
#include "checkpoint/steps.h"

#include <errno.h>
#include <unistd.h>

static bool is_weights_file(const char *name) {
    return strcmp(name, "model.safetensors") == 0 || strcmp(name, "model.safetensors.index.json") == 0 ||
           (strncmp(name, "model-", 6) == 0 && ndp_ends_with(name, ".safetensors"));
}

static ndp_status remove_file(const char *folder, const char *name) {
    char path[NDP_PATH];
    NDP_TRY(ndp_path_join(path, folder, name));
    if (unlink(path) && errno != ENOENT)
        return NDP_FAIL(NDP_EIO, "cannot remove the older weights '%s': %s", path, strerror(errno));
    return NDP_OK;
}

static ndp_status move_file(const char *from, const char *to, const char *name) {
    char old[NDP_PATH], new[NDP_PATH];
    NDP_TRY(ndp_path_join(old, from, name));
    NDP_TRY(ndp_path_join(new, to, name));
    return ndp_durable_rename(old, new);
}

static bool is_new(const ndp_shards *s, const char *name) {
    for (int f = 0; f < s->n_files; f++)
        if (strcmp(s->files[f].name, name) == 0)
            return true;
    return s->n_files > 1 && strcmp(name, "model.safetensors.index.json") == 0;
}

/* Removes weight files that do not belong to this export. */
static ndp_status remove_older(void *user, const char *folder, const char *name) {
    return is_weights_file(name) && !is_new(user, name) ? remove_file(folder, name) : NDP_OK;
}

static ndp_status move_into_place(ndp_shards *s, const char *beside, const char *folder) {
    NDP_TRY(ndp_durable_folder(beside));
    if (s->n_files > 1) {
        NDP_TRY(remove_file(folder, "model.safetensors.index.json"));
        NDP_TRY(remove_file(folder, "model.safetensors")); /* it would take precedence over the index */
    }
    for (int f = 0; f < s->n_files; f++)
        NDP_TRY(move_file(beside, folder, s->files[f].name));
    if (s->n_files > 1)
        NDP_TRY(move_file(beside, folder, "model.safetensors.index.json"));
    NDP_TRY(ndp_folder_visit(folder, remove_older, s));
    NDP_TRY(ndp_durable_folder(folder));
    return ndp_folder_remove(beside);
}

static ndp_status begin(const ndp_lock *lock, const char *beside) {
    NDP_TRY(ndp_lock_check(lock));
    return ndp_fresh_folder(beside);
}

static ndp_status commit(ndp_shards *s, const ndp_lock *lock, const char *beside, const char *folder) {
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
    if (st != NDP_OK && first && ndp_lock_owns_names(lock))
        ndp_remove_quietly(beside, st);
    NDP_TRY(st);
    return ndp_agree(world, first ? commit(s, lock, beside, folder) : NDP_OK);
}

ndp_status ndp_weights_save(ndp_comm *world, const ndp_lock *lock, const char *folder, const ndp_tensor_spec *specs,
                            int n, const ndp_file_piece *pieces, int n_pieces, int64_t max_shard_bytes) {
    return ndp_weights_save_stem(world, lock, folder, "model", specs, n, pieces, n_pieces, max_shard_bytes);
}

ndp_status ndp_weights_save_stem(ndp_comm *world, const ndp_lock *lock, const char *folder, const char *stem,
                                 const ndp_tensor_spec *specs, int n, const ndp_file_piece *pieces, int n_pieces,
                                 int64_t max_shard_bytes) {
    ndp_shards s = {0};
    char beside[NDP_PATH];
    int64_t generation = ndp_lock_generation(lock);
    ndp_status st = ndp_agree(world, ndp_shards_plan(&s, specs, n, &stem, 1, max_shard_bytes));
    if (st == NDP_OK)
        st = ndp_share_now(world, &generation, sizeof generation, 0);
    if (st == NDP_OK)
        st = ndp_beside_path(beside, folder, "export", generation);
    if (st == NDP_OK)
        st = save(&s, world, lock, beside, folder, pieces, n_pieces);
    ndp_shards_release(&s);
    return st;
}
