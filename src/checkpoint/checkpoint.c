/* Saving a checkpoint: the transitions OPEN, WRITTEN, SYNCED, COMMITTED of checkpoint.h, and the removal of older ones.
 * The threads of a background save communicate with no other rank, so a rank may wait for its own at any time: whatever
 * the ranks agree on, they do in the calls. */
#include "checkpoint/checkpoint.h"

#include "base/clock.h"
#include "base/fault.h"
#include "checkpoint/agree.h"
#include "checkpoint/shards.h"
#include "checkpoint/steps.h"
#include "checkpoint/writer_thread.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* The paths of one save. */
typedef struct target {
    const char *folder; /* CHECKPOINTS */
    char beside[NDP_PATH], final[NDP_PATH];
} target;

/* Collective: rank 0 has the lock. */
static ndp_status target_init(target *t, ndp_comm *world, const char *folder, const ndp_checkpoint_info *info) {
    int64_t generation = ndp_lock_generation(info->lock);
    char name[64];
    t->folder = folder;
    NDP_TRY(ndp_share_now(world, &generation, sizeof generation, 0));
    NDP_TRY(ndp_beside_path(t->beside, folder, ndp_step_name(info->step, name), generation));
    return ndp_step_path(t->final, folder, info->step);
}

/* ---- SYNCED: the manifest ---- */

static ndp_status write_manifest(const ndp_shards *s, const char *folder, const ndp_checkpoint_info *info,
                                 int64_t *bytes) {
    int n = 0;
    char path[NDP_PATH], *text = NULL;
    NDP_TRY(ndp_path_join(path, folder, "manifest.json"));
    ndp_status st;
    ndp_manifest_file *files = calloc((size_t)(s->n_files + s->n_indices) + 1, sizeof *files);
    NDP_CHECK_MEMORY(files, "for the manifest in '%s'", folder);
    for (; n < s->n_files; n++)
        files[n] = (ndp_manifest_file){s->files[n].name, s->files[n].bytes, s->files[n].chunks, s->files[n].n_chunks};
    for (int i = 0; i < s->n_indices; i++)
        files[n++] = s->indices[i];
    for (int i = 0; i < n; *bytes += files[i++].bytes)
        NDP_TRY_GOTO(ndp_manifest_file_check(folder, files[i].name, files[i].bytes), release);
    NDP_TRY_GOTO(ndp_manifest_text(info, files, n, &text), release);
    NDP_TRY_GOTO(ndp_file_write_atomic(path, text, strlen(text)), release);
release:
    free(text);
    free(files);
    return st;
}

/* ---- COMMITTED ---- */

/* Renames the new folder to its final name. An existing checkpoint of the same step is exchanged with it atomically,
 * and is then the one under the temporary name. */
static ndp_status move_into_place(const target *t) {
    if (!ndp_path_exists(t->final))
        return ndp_durable_rename(t->beside, t->final);
    if (ndp_fault(NDP_FAULT_RENAME) || renameat2(AT_FDCWD, t->beside, AT_FDCWD, t->final, RENAME_EXCHANGE))
        return NDP_FAIL(NDP_EIO, "cannot put '%s' in place of the checkpoint '%s': %s; remove the older one first",
                        t->beside, t->final, strerror(errno));
    return NDP_OK;
}

/* Keeps the newest `keep` checkpoints that look whole, and the one just written. */
static ndp_status prune(const char *folder, const ndp_checkpoint_info *just_written, int keep) {
    int64_t *steps = NULL;
    int n = 0, kept = 0;
    NDP_TRY(ndp_lock_check(just_written->lock));
    NDP_TRY(ndp_checkpoint_steps(folder, &steps, &n));
    ndp_status st = NDP_OK;
    for (int i = 0; i < n && st == NDP_OK; i++) {
        ndp_examined e;
        char name[64];
        st = ndp_checkpoint_examine(NULL, folder, steps[i], false, 1, &e);
        if (st != NDP_OK || e.state == NDP_CHECKPOINT_DAMAGED || kept++ < keep || steps[i] == just_written->step)
            continue;
        st = ndp_step_remove(folder, ndp_step_name(steps[i], name));
    }
    free(steps);
    return st;
}

static ndp_status commit(const ndp_shards *s, const target *t, const ndp_checkpoint_info *info, int64_t *bytes,
                         bool *committed) {
    NDP_TRY(write_manifest(s, t->beside, info, bytes));
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

/* Collective. *committed is set on all ranks, also if the commit failed after the rename. */
static ndp_status commit_and_tell(const ndp_shards *s, ndp_comm *world, const target *t,
                                  const ndp_checkpoint_info *info, int64_t *bytes, bool *committed) {
    ndp_status st = ndp_is_first(world) ? commit(s, t, info, bytes, committed) : NDP_OK;
    NDP_TRY(ndp_share_now(world, committed, sizeof *committed, 0));
    return ndp_agree(world, st);
}

/* What is half-written, or the checkpoint that was replaced. */
static void remove_beside(const target *t, const ndp_checkpoint_info *info, ndp_status st) {
    if (ndp_lock_owns_names(info->lock))
        ndp_remove_quietly(t->beside, st);
}

static ndp_status save(ndp_shards *s, ndp_comm *world, const target *t, const ndp_checkpoint_info *info,
                       const ndp_file_piece *pieces, int n_pieces, int64_t *bytes, bool *committed) {
    bool first = ndp_is_first(world);
    ndp_status st = ndp_agree(world, first ? begin(t, info) : NDP_OK);
    if (st == NDP_OK)
        st = ndp_shards_write(s, world, t->beside, pieces, n_pieces);
    if (st == NDP_OK)
        st = commit_and_tell(s, world, t, info, bytes, committed);
    if (st != NDP_OK)
        st = ndp_agree(world, first ? ndp_lock_explain(info->lock, st) : st);
    if (first && (st != NDP_OK || *committed))
        remove_beside(t, info, st);
    return st;
}

/* Collective: the longest time of all ranks, in microseconds. */
static ndp_status measure(ndp_comm *world, double seconds, double hashing, int64_t bytes, ndp_save_cost *cost) {
    int64_t most[] = {(int64_t)(seconds * 1e6), (int64_t)(hashing * 1e6), bytes};
    NDP_TRY(ndp_reduce_now(world, most, NDP_COUNT(most), NDP_I64, NDP_MAX));
    cost->bytes = most[2];
    cost->seconds = (double)most[0] * 1e-6;
    cost->hashing = (double)most[1] * 1e-6;
    return NDP_OK;
}

static ndp_status plan_files(ndp_shards *s, ndp_comm *world, const ndp_tensor_spec *specs, int n, int64_t most) {
    static const char *const stems[] = {"model", "optimizer"};
    return ndp_agree(world, ndp_shards_plan(s, specs, n, stems, NDP_COUNT(stems), most));
}

ndp_status ndp_checkpoint_save(ndp_comm *world, const char *folder, const ndp_checkpoint_info *info,
                               const ndp_tensor_spec *specs, int n, const ndp_file_piece *pieces, int n_pieces,
                               int keep, int64_t max_shard_bytes, ndp_save_cost *cost) {
    double start = ndp_now();
    int64_t bytes = 0;
    ndp_save_cost spent = {0};
    ndp_shards s = {0};
    target t;
    ndp_status st = plan_files(&s, world, specs, n, max_shard_bytes);
    if (st == NDP_OK)
        st = target_init(&t, world, folder, info);
    if (st == NDP_OK)
        st = save(&s, world, &t, info, pieces, n_pieces, &bytes, &spent.committed);
    if (st == NDP_OK)
        st = measure(world, ndp_now() - start, s.hashing, bytes, &spent);
    if (st == NDP_OK && keep > 0)
        st = ndp_agree(world, ndp_is_first(world) ? prune(folder, info, keep) : NDP_OK);
    ndp_shards_release(&s);
    if (cost)
        *cost = spent;
    return st;
}

/* ---- in the background ---- */

struct ndp_background_save {
    ndp_comm *world;
    char folder[NDP_PATH];
    ndp_checkpoint_info info;
    target to;
    int keep;
    ndp_shards files;
    ndp_shard_copy copy;
    bool committing; /* all files are written; the thread of rank 0 commits them */
    ndp_writer_thread thread;
    double copying; /* seconds */
    int64_t bytes;
    bool committed;
};

/* The work of every rank's thread. */
static ndp_status write_files(void *arg) {
    ndp_background_save *b = arg;
    if (ndp_is_first(b->world))
        NDP_TRY(ndp_shards_sync(&b->files, b->to.beside));
    return ndp_shards_write_copy(&b->files, b->to.beside, &b->copy);
}

/* The work of rank 0's thread after it. */
static ndp_status commit_files(void *arg) {
    ndp_background_save *b = arg;
    NDP_TRY(ndp_shards_write_indices(&b->files, b->to.beside));
    NDP_TRY(commit(&b->files, &b->to, &b->info, &b->bytes, &b->committed));
    remove_beside(&b->to, &b->info, NDP_OK);
    return b->keep > 0 ? prune(b->folder, &b->info, b->keep) : NDP_OK;
}

ndp_status ndp_background_save_bytes(ndp_comm *world, const ndp_save_request *r, int64_t *bytes) {
    ndp_shards s = {0};
    ndp_shard_copy copy = {0};
    ndp_status st = plan_files(&s, world, r->specs, r->n, r->max_shard_bytes);
    if (st == NDP_OK)
        st = ndp_shards_copy(&s, world, r->pieces, r->n_pieces, &copy);
    ndp_shards_release(&s);
    *bytes = copy.bytes;
    return st;
}

static void destroy(ndp_background_save *b) {
    ndp_shards_release(&b->files);
    free(b);
}

static ndp_status new_save(ndp_comm *world, const ndp_save_request *r, void *space, int64_t bytes,
                           ndp_background_save **out) {
    ndp_background_save *b = calloc(1, sizeof *b);
    *out = b;
    NDP_CHECK_MEMORY(b, "to save a checkpoint");
    b->world = world;
    b->info = r->info;
    b->keep = r->keep;
    b->thread.writes = true;
    b->copy = (ndp_shard_copy){.data = space, .bytes = bytes};
    NDP_CHECK(snprintf(b->folder, sizeof b->folder, "%s", r->folder) < NDP_PATH,
              "'%.80s...' is longer than a path can be", r->folder);
    return NDP_OK;
}

/* Collective: up to the copy. */
static ndp_status copy(ndp_background_save *b, const ndp_save_request *r) {
    bool first = ndp_is_first(b->world);
    NDP_TRY(plan_files(&b->files, b->world, r->specs, r->n, r->max_shard_bytes));
    NDP_TRY(target_init(&b->to, b->world, b->folder, &b->info));
    ndp_status st = ndp_agree(b->world, first ? begin(&b->to, &b->info) : NDP_OK);
    if (st == NDP_OK)
        st = ndp_shards_create(&b->files, b->world, b->to.beside, r->pieces, r->n_pieces);
    if (st == NDP_OK)
        st = ndp_shards_copy(&b->files, b->world, r->pieces, r->n_pieces, &b->copy);
    if (st != NDP_OK)
        st = ndp_agree(b->world, first ? ndp_lock_explain(b->info.lock, st) : st);
    if (st != NDP_OK && first)
        remove_beside(&b->to, &b->info, st);
    return st;
}

ndp_status ndp_background_save_begin(ndp_comm *world, const ndp_save_request *r, void *space, int64_t bytes,
                                     ndp_background_save **out) {
    double start = ndp_now();
    ndp_background_save *b;
    ndp_status st = ndp_agree(world, new_save(world, r, space, bytes, &b));
    if (st == NDP_OK)
        st = copy(b, r);
    if (st == NDP_OK) {
        b->copying = ndp_now() - start;
        ndp_writer_thread_begin(&b->thread, write_files, b);
        *out = b;
    } else if (b) {
        destroy(b);
    }
    return st;
}

bool ndp_background_save_works(const ndp_background_save *b) { return ndp_writer_thread_works(&b->thread); }

/* After the thread has ended. */
static ndp_status begin_commit(ndp_background_save *b, ndp_status own) {
    NDP_TRY(ndp_agree(b->world, own));
    NDP_TRY(ndp_shards_share_hashes(&b->files, b->world, b->copy.parts, b->copy.n));
    b->committing = true;
    if (ndp_is_first(b->world))
        ndp_writer_thread_begin(&b->thread, commit_files, b);
    return NDP_OK;
}

/* Collective: what it has cost, the processor's seconds of all ranks. */
static ndp_status measure_threads(const ndp_background_save *b, ndp_save_cost *cost) {
    double processor = b->thread.processor;
    NDP_TRY(measure(b->world, b->copying + b->thread.seconds, b->files.hashing, b->bytes, cost));
    NDP_TRY(ndp_reduce_now(b->world, &processor, 1, NDP_F64, NDP_SUM));
    cost->processor = processor;
    return NDP_OK;
}

ndp_status ndp_background_save_go_on(ndp_background_save *b, bool *ended, ndp_save_cost *cost) {
    bool first = ndp_is_first(b->world);
    ndp_status st = ndp_writer_thread_end(&b->thread);
    *ended = b->committing;
    if (!b->committing) {
        st = begin_commit(b, st);
    } else {
        ndp_status shared = ndp_share_now(b->world, &b->committed, sizeof b->committed, 0);
        st = shared != NDP_OK ? shared : ndp_agree(b->world, st);
    }
    if (st == NDP_OK && !*ended)
        return NDP_OK;
    *ended = true;
    *cost = (ndp_save_cost){.committed = b->committed};
    if (st != NDP_OK)
        st = ndp_agree(b->world, first ? ndp_lock_explain(b->info.lock, st) : st);
    if (st != NDP_OK && first)
        remove_beside(&b->to, &b->info, st);
    if (st == NDP_OK)
        st = measure_threads(b, cost);
    destroy(b);
    return st;
}

bool ndp_background_save_drop(ndp_background_save *b) {
    if (!b)
        return false;
    ndp_status st = ndp_writer_thread_end(&b->thread);
    bool committed = b->committed;
    if (ndp_is_first(b->world) && !committed)
        remove_beside(&b->to, &b->info, st);
    destroy(b);
    return committed;
}
