/* The lock protocol of lock.h.
 *
 * Files: FOLDER/lock names the holder. FOLDER/lock.G is a claim: a process that tries to take over in generation G.
 * Every file is written completely and synced under a name of its own, and then gets its name by link(), which fails if
 * the name exists: of several processes exactly one succeeds, on NFS too.
 *
 *   attempt     free: link own file to `lock`. Holder dead: take_over.
 *   take_over   link own file to lock.G+1; read everything again, and only if nothing changed rename it to `lock`
 *
 * Invariants. A generation has at most one holder. A process that was declared dead while alive finds another
 * generation in `lock` (ndp_lock_check) before it commits anything. A claim with a generation not above the lock's is
 * stale and is ignored. A claim's own process may die as well; the next taker then claims the generation after it.
 *
 * A holder on this host is judged by its process, one elsewhere by its counter (stands_still). */
#include "checkpoint/lock.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/text.h"
#include "checkpoint/heartbeat.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct ndp_lock {
    char *folder, path[NDP_PATH]; /* path: FOLDER/lock */
    bool made_folder, await;
    double patience;
    ndp_holder self; /* with the generation held or tried */
    bool held;
    ndp_heartbeat beat;
    struct {
        ndp_holder holder; /* with the counter last read; pid 0: none */
        double still, at;  /* seconds for which the counter stood still; time of the last reading */
    } watch;
    char note[1024];
};

/* ---- create, destroy ---- */

static ndp_status read_patience(double *patience) {
    const char *text = getenv("NDP_LOCK_PATIENCE");
    char *end;
    *patience = text ? strtod(text, &end) : NDP_LOCK_PATIENCE;
    NDP_CHECK(!text || (end != text && !*end && *patience > 0 && isfinite(*patience)),
              "NDP_LOCK_PATIENCE is \"%s\", expected a positive number of seconds", text);
    return NDP_OK;
}

static ndp_status init(ndp_lock *l, const char *folder) {
    NDP_TRY(read_patience(&l->patience));
    NDP_TRY(ndp_path_join(l->path, folder, "lock"));
    l->folder = strdup(folder);
    NDP_CHECK_MEMORY(l->folder, "to lock '%s'", folder);
    ndp_holder_self(&l->self);
    l->made_folder = !ndp_path_exists(folder);
    return NDP_OK;
}

ndp_status ndp_lock_create(const char *folder, bool await, ndp_lock **out) {
    ndp_lock *l = calloc(1, sizeof *l);
    NDP_CHECK_MEMORY(l, "to lock '%s'", folder);
    l->await = await;
    ndp_status st;
    NDP_TRY_GOTO(init(l, folder), destroy);
    *out = l;
    return NDP_OK;
destroy:
    ndp_lock_destroy(l);
    return st;
}

/* Leaves the message of an earlier failure in place. False: there is no lock, or it cannot be read. */
static bool read_quietly(const ndp_lock *l, ndp_holder *h) {
    bool there;
    char *message = strdup(ndp_error_message());
    ndp_status st = ndp_holder_read(l->path, h, &there);
    if (st != NDP_OK && message)
        ndp_error_set(st, message);
    free(message);
    return st == NDP_OK && there;
}

bool ndp_lock_held(const ndp_lock *l) {
    ndp_holder h;
    return !l || (read_quietly(l, &h) && ndp_holder_same(&h, &l->self));
}

bool ndp_lock_owns_names(const ndp_lock *l) {
    ndp_holder h;
    return !l || (read_quietly(l, &h) && (ndp_holder_same(&h, &l->self) || h.generation > l->self.generation));
}

void ndp_lock_destroy(ndp_lock *l) {
    if (!l)
        return;
    if (l->held) {
        ndp_heartbeat_end(&l->beat);
        if (ndp_lock_held(l))
            unlink(l->path);
    }
    if (l->made_folder)
        rmdir(l->folder); /* fails unless it is empty */
    free(l->folder);
    free(l);
}

/* ---- the process of a holder ---- */

/* What is on disk: the holder of the lock, and the process that is taking it over. */
typedef struct view {
    ndp_holder lock, claim; /* claim: the one of the highest generation */
    bool locked, claimed;
} view;

static const char *claim_name(int64_t generation, char out[64]) {
    snprintf(out, 64, "lock.%" PRId64, generation);
    return out;
}

static ndp_status claim_path(char out[NDP_PATH], const char *folder, int64_t generation) {
    char name[64];
    return ndp_path_join(out, folder, claim_name(generation, name));
}

/* Raises *generation to that of a claim. */
static ndp_status note_claim(void *generation, const char *folder, const char *name) {
    int64_t *highest = generation;
    char again[64];
    (void)folder;
    if (strncmp(name, "lock.", 5) != 0 || name[5] < '1' || name[5] > '9')
        return NDP_OK;
    int64_t g = strtoll(name + 5, NULL, 10);
    if (g > *highest && strcmp(name, claim_name(g, again)) == 0)
        *highest = g;
    return NDP_OK;
}

/* A claim whose generation is not above the lock's came too late. */
static ndp_status look(const char *folder, view *v) {
    int64_t generation = 0;
    char path[NDP_PATH];
    *v = (view){0};
    if (ndp_path_is_folder(folder)) /* else creating it will report that */
        NDP_TRY(ndp_folder_visit(folder, note_claim, &generation));
    if (generation) {
        NDP_TRY(claim_path(path, folder, generation));
        NDP_TRY(ndp_holder_read(path, &v->claim, &v->claimed));
    }
    NDP_TRY(ndp_path_join(path, folder, "lock"));
    NDP_TRY(ndp_holder_read(path, &v->lock, &v->locked));
    if (v->locked && v->claimed && v->claim.generation <= v->lock.generation)
        v->claimed = false;
    return NDP_OK;
}

static bool is_same(bool a_there, const ndp_holder *a, bool b_there, const ndp_holder *b) {
    return a_there == b_there && (!a_there || (ndp_holder_same(a, b) && a->counter == b->counter));
}

/* ---- refusals ---- */

static ndp_status refuse_live(const char *folder, const ndp_holder *h) {
    return NDP_FAIL(NDP_EINVAL,
                    "the run folder %s is in use: process %lld of this host ('%s') writes there (%s/lock, generation "
                    "%lld). Wait for that run or stop it, or name another folder (train.output_dir)",
                    folder, (long long)h->pid, h->host, folder, (long long)h->generation);
}

static const char *place(const ndp_holder *h, const ndp_holder *self) {
    return strcmp(h->boot_id, self->boot_id) == 0 ? "another container of this host"
           : strcmp(h->host, self->host) == 0     ? "another host of this name, or this one before it restarted"
                                                  : "another host";
}

static ndp_status refuse_elsewhere(const ndp_lock *l, const ndp_holder *h) {
    return NDP_FAIL(NDP_EINVAL,
                    "the run folder %s is in use: process %lld on '%s' holds %s/lock (generation %lld), and this host "
                    "cannot tell whether it still runs: that is %s. If `ps -p %lld` there shows no such process, "
                    "remove %s/lock; or give --resume and --restarts (under Slurm --resume is enough): it takes over "
                    "once the counter in that file has stood still for %g s",
                    l->folder, (long long)h->pid, h->host, l->folder, (long long)h->generation, place(h, &l->self),
                    (long long)h->pid, l->folder, l->patience);
}

/* ---- taking the lock ---- */

/* A durable, open file with a name of its own that contains `self`. */
static ndp_status write_private(const ndp_lock *l, char path[NDP_PATH], int *fd) {
    char text[NDP_HOLDER_TEXT];
    int counter, n = ndp_holder_text(&l->self, text, &counter);
    NDP_TRY(ndp_folder_create(l->folder)); /* a run that failed may have removed it */
    NDP_TRY(ndp_path_join(path, l->folder, "lock.tmp-XXXXXX"));
    *fd = ndp_fault(NDP_FAULT_WRITE) ? -1 : mkostemp(path, O_CLOEXEC);
    if (*fd >= 0 && fchmod(*fd, 0644) == 0 && write(*fd, text, (size_t)n) == n && !ndp_fault(NDP_FAULT_SYNC) &&
        fsync(*fd) == 0)
        return NDP_OK;
    ndp_status st = NDP_FAIL(NDP_EIO, "cannot write %s/lock: %s", l->folder, strerror(errno));
    if (*fd >= 0) {
        unlink(path);
        close(*fd);
    }
    return st;
}

/* Gives the file the name `to`. *done: false if that name exists, or another run removed our file. Link counts are
 * checked, since NFS may lose the reply to a successful link; file systems without links use rename instead. */
static ndp_status link_new(int fd, const char *from, const char *to, bool *done) {
    struct stat info;
    *done = !ndp_fault(NDP_FAULT_RENAME) && link(from, to) == 0;
    int cause = errno;
    if (!*done && (cause == EPERM || cause == EOPNOTSUPP || cause == ENOSYS)) {
        *done = renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0;
        cause = errno;
    } else if (!*done) {
        *done = fstat(fd, &info) == 0 && info.st_nlink == 2;
    }
    return *done || cause == EEXIST || cause == ENOENT
               ? NDP_OK
               : NDP_FAIL(NDP_EIO, "cannot create '%s': %s", to, strerror(cause));
}

/* With `claim` ours: whether nothing has changed since `v`; removes the claim that it overtakes, if any. */
static ndp_status may_rename(const ndp_lock *l, const view *v, bool *may) {
    view now;
    *may = false;
    NDP_TRY(look(l->folder, &now));
    if (!now.claimed || !ndp_holder_same(&now.claim, &l->self) || !is_same(now.locked, &now.lock, v->locked, &v->lock))
        return NDP_OK;
    char overtaken[NDP_PATH];
    NDP_TRY(claim_path(overtaken, l->folder, v->claim.generation));
    *may = !v->claimed || unlink(overtaken) == 0;
    return NDP_OK;
}

/* Takes over from the dead holder in `v`, in generation self.generation. *held: false if another process was faster. */
static ndp_status take_over(ndp_lock *l, const view *v, int fd, const char *private, bool *held) {
    char claim[NDP_PATH];
    bool linked = false, may = false;
    NDP_TRY(claim_path(claim, l->folder, l->self.generation));
    NDP_TRY(link_new(fd, private, claim, &linked));
    if (!linked)
        return NDP_OK;
    ndp_status st = may_rename(l, v, &may);
    if (may && (ndp_fault(NDP_FAULT_RENAME) || rename(claim, l->path)))
        st = NDP_FAIL(NDP_EIO, "cannot rename '%s' to '%s': %s", claim, l->path, strerror(errno));
    *held = may && st == NDP_OK && ndp_lock_held(l);
    if (!may || st != NDP_OK)
        unlink(claim);
    return st;
}

/* One attempt to become the next holder after `v`: no holder, or a dead one. */
static ndp_status attempt(ndp_lock *l, const view *v, bool *held) {
    char private[NDP_PATH];
    int fd;
    l->self.generation = v->claimed ? v->claim.generation + 1 : v->locked ? v->lock.generation + 1 : 1;
    NDP_TRY(write_private(l, private, &fd));
    ndp_status st = v->locked || v->claimed ? take_over(l, v, fd, private, held) : link_new(fd, private, l->path, held);
    unlink(private);
    if (!*held) {
        close(fd);
        return st;
    }
    st = ndp_heartbeat_begin(&l->beat, fd, &l->self, l->patience);
    l->held = st == NDP_OK;
    if (!l->held)
        unlink(l->path);
    return st == NDP_OK ? ndp_folder_sync(l->folder) : st;
}

/* ---- waiting ---- */

/* Whether the counter of a holder elsewhere has stood still for long enough. From one reading to the next at most one
 * second counts: a file server that did not answer for a minute also stopped the holder's counter. */
static bool stands_still(ndp_lock *l, const ndp_holder *h) {
    double now = ndp_now(), since = now - l->watch.at;
    bool changed = !l->watch.holder.pid || !is_same(true, h, true, &l->watch.holder);
    l->watch.still = changed ? 0 : l->watch.still + fmin(since, 1.0);
    l->watch.at = now;
    l->watch.holder = *h;
    return l->watch.still >= l->patience;
}

static ndp_status judge(ndp_lock *l, const ndp_holder *h, bool *dead) {
    bool first = !ndp_holder_same(h, &l->watch.holder);
    const char *why = "which has ended";
    char still[64];
    bool given_up = ndp_holder_given_up(h, &l->self);
    switch (given_up ? NDP_HOLDER_DEAD : ndp_holder_judge(h, &l->self)) {
    case NDP_HOLDER_ALIVE:
        return refuse_live(l->folder, h);
    case NDP_HOLDER_ELSEWHERE:
        if (!l->await)
            return refuse_elsewhere(l, h);
        *dead = stands_still(l, h);
        snprintf(still, sizeof still, "whose counter has stood still for %g s", l->patience);
        why = still;
        break;
    case NDP_HOLDER_DEAD:
        *dead = true;
        why = given_up ? "whose launcher has started these ranks in place of it" : why;
        break;
    }
    if (*dead)
        snprintf(l->note, sizeof l->note, "run folder: takes over %s from process %lld on '%s', %s; generation %lld",
                 l->folder, (long long)h->pid, h->host, why, (long long)h->generation + 1);
    else if (first)
        snprintf(l->note, sizeof l->note,
                 "run folder: process %lld on '%s' holds %s/lock; waiting until its counter has stood still for %g s",
                 (long long)h->pid, h->host, l->folder, l->patience);
    return NDP_OK;
}

ndp_status ndp_lock_try(ndp_lock *l, bool *held) {
    enum { ATTEMPTS = 50 }; /* each failure means that another process was faster */
    *held = false;
    l->note[0] = '\0';
    for (int i = 0; i < ATTEMPTS; i++) {
        view v;
        bool dead = false;
        NDP_TRY(look(l->folder, &v));
        if (v.locked || v.claimed) {
            NDP_TRY(judge(l, v.claimed ? &v.claim : &v.lock, &dead));
            if (!dead)
                return NDP_OK;
        }
        NDP_TRY(attempt(l, &v, held));
        if (*held)
            return NDP_OK;
        l->note[0] = '\0';
    }
    return NDP_FAIL(NDP_EIO, "cannot take %s/lock: lost the race for the lock %d times", l->folder, ATTEMPTS);
}

const char *ndp_lock_note(const ndp_lock *l) { return l->note; }

/* ---- held ---- */

ndp_status ndp_lock_check(const ndp_lock *l) {
    ndp_holder h;
    bool there;
    if (!l)
        return NDP_OK;
    NDP_TRY(ndp_holder_read(l->path, &h, &there));
    if (!there)
        return NDP_FAIL(NDP_EINVAL,
                        "%s is gone, so another run may write into this folder; this run stops, and nothing more of it "
                        "is saved. Continue with --resume",
                        l->path);
    if (ndp_holder_same(&h, &l->self))
        return NDP_OK;
    return NDP_FAIL(
        NDP_EINVAL,
        "process %lld on '%s' has taken over the run folder %s in generation %lld, while this run (generation "
        "%lld) seemed dead; this run stops, and nothing more of it is saved",
        (long long)h.pid, h.host, l->folder, (long long)h.generation, (long long)l->self.generation);
}

int64_t ndp_lock_generation(const ndp_lock *l) { return l && l->held ? l->self.generation : 0; }

ndp_status ndp_lock_explain(const ndp_lock *l, ndp_status st) {
    return st == NDP_OK || ndp_lock_held(l) ? st : ndp_lock_check(l);
}

ndp_status ndp_lock_peek(const char *folder) {
    view v;
    ndp_holder self;
    NDP_TRY(look(folder, &v));
    ndp_holder_self(&self);
    const ndp_holder *h = v.claimed ? &v.claim : &v.lock;
    return (v.locked || v.claimed) && ndp_holder_judge(h, &self) == NDP_HOLDER_ALIVE ? refuse_live(folder, h) : NDP_OK;
}
