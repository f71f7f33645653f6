/* Forming a crew, and its files.
 *
 * Forming (find_leaders), in rounds. The lowest rank without a leader makes a work folder and sends its name to all;
 * every rank without a leader that can see that folder joins. This repeats until every rank has a leader, which takes
 * as many rounds as there are different cache folders. These rounds are the only messages of a crew.
 *
 * Work folder: building-XXXXXX, flock'ed by the leader for as long as it lives, so that the leader of a later run can
 * tell an abandoned folder from one in use. If such a leader locks the folder between mkdtemp and flock, ours makes a
 * new one (`again`).
 *
 * Called by cache.c (form, dissolve) and cache_build.c (mark, wait). */
#include "data/cache/crew.h"

#include "base/fault.h"
#include "base/turns.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define WORK_PREFIX "building-"

/* ---- the work folder ---- */

/* A descriptor that holds the lock, or -1. *taken: another process holds it; otherwise folders cannot be locked here.
 */
static int lock_folder(const char *path, bool *taken) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *taken = false;
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB)) {
        *taken = errno == EWOULDBLOCK;
        close(fd);
        return -1;
    }
    return fd;
}

static void remove_what_is_left(const char *folder) {
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (strncmp(e->d_name, WORK_PREFIX, strlen(WORK_PREFIX)) != 0)
            continue;
        char *path = ndp_format("%s/%s", folder, e->d_name);
        bool taken;
        int fd = path ? lock_folder(path, &taken) : -1;
        if (fd >= 0) {
            (void)ndp_folder_remove(path); /* if this fails, a later run removes it */
            close(fd);
        }
        free(path);
    }
    if (d)
        closedir(d);
}

/* Makes a folder, its lock and `go`. *again: another leader mistook the new folder for an abandoned one. */
static ndp_status try_work(ndp_crew *c, bool *again) {
    char go[NDP_CREW_PATH];
    bool taken;
    *again = false;
    c->work = ndp_format("%s/" WORK_PREFIX "XXXXXX", c->folder);
    NDP_CHECK_MEMORY(c->work, "to name the token cache");
    if (ndp_fault(NDP_FAULT_WRITE) || !mkdtemp(c->work))
        return NDP_FAIL(NDP_EIO, "%s", strerror(errno));
    c->leads = true;
    c->lock = lock_folder(c->work, &taken);
    int fd = taken ? -1 : open(ndp_crew_path(c, go, "go"), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        *again = taken || errno == ENOENT;
        return NDP_FAIL(NDP_EIO, "%s", strerror(errno));
    }
    close(fd);
    return NDP_OK;
}

static ndp_status make_work(ndp_crew *c) {
    enum { TRIES = 100 };
    bool again = true;
    ndp_status st = NDP_OK;
    for (int i = 0; again && i < TRIES; i++) {
        st = try_work(c, &again);
        if (st != NDP_OK)
            ndp_crew_dissolve(c);
    }
    return st;
}

void ndp_crew_dissolve(ndp_crew *c) {
    if (c->leads)
        (void)ndp_folder_remove(c->work); /* if this fails, a later run does it: the folder is not locked */
    if (c->lock >= 0)
        close(c->lock);
    free(c->work);
    c->work = NULL;
    c->leads = false;
    c->lock = -1;
}

/* ---- forming a crew ---- */

typedef struct offer {
    int32_t leader; /* of the sending rank; -1: it has none yet */
    char name[NDP_CREW_NAME];
} offer;

static ndp_status make_offer(ndp_crew *c, ndp_status (*otherwise)(void *user, char name[NDP_CREW_NAME]), void *user,
                             char name[NDP_CREW_NAME]) {
    remove_what_is_left(c->folder);
    if (make_work(c) != NDP_OK)
        return otherwise(user, name);
    snprintf(name, NDP_CREW_NAME, "%s", strrchr(c->work, '/') + 1);
    return NDP_OK;
}

static ndp_status join(ndp_crew *c, const char *name) {
    char *path = ndp_format("%s/%s", c->folder, name);
    NDP_CHECK_MEMORY(path, "to name the token cache");
    if (strncmp(name, WORK_PREFIX, strlen(WORK_PREFIX)) == 0) {
        c->work = path;
        return NDP_OK;
    }
    snprintf(c->there, sizeof c->there, "%s", name);
    free(path);
    return NDP_OK;
}

/* A name from another process must be a plain name inside the folder. */
static bool is_name(const char name[NDP_CREW_NAME]) {
    return memchr(name, '\0', NDP_CREW_NAME) && name[0] && name[0] != '.' && !strchr(name, '/');
}

static bool sees(const ndp_crew *c, const char *name) {
    char *path = ndp_format("%s/%s", c->folder, name);
    bool there = path && ndp_path_exists(path);
    free(path);
    return there;
}

/* Round by round, the lowest rank without a leader becomes one. */
static ndp_status find_leaders(ndp_crew *c, offer *all, ndp_status (*otherwise)(void *, char[NDP_CREW_NAME]),
                               void *user) {
    const ndp_team *t = c->team;
    offer mine = {.leader = -1};
    for (;;) {
        NDP_TRY(t->gather(t->user, &mine, all, sizeof mine));
        int leader = 0;
        while (leader < t->size && all[leader].leader >= 0)
            leader++;
        if (leader == t->size)
            break;
        NDP_TRY(t->agree(t->user, leader == t->rank ? make_offer(c, otherwise, user, mine.name) : NDP_OK));
        NDP_TRY(t->gather(t->user, &mine, all, sizeof mine));
        ndp_status st = is_name(all[leader].name)
                            ? NDP_OK
                            : NDP_FAIL(NDP_ECOMM,
                                       "rank %d sent no valid name of a token cache; do all ranks run the "
                                       "same build?",
                                       leader);
        if (st == NDP_OK && (leader == t->rank || (mine.leader < 0 && sees(c, all[leader].name)))) {
            mine.leader = leader;
            if (leader != t->rank || !c->work)
                st = join(c, all[leader].name);
        }
        NDP_TRY(t->agree(t->user, st));
    }
    c->size = 0;
    for (int r = 0; r < t->size; r++) {
        c->rank = r == t->rank ? c->size : c->rank;
        c->size += all[r].leader == mine.leader;
    }
    return NDP_OK;
}

ndp_status ndp_crew_form(const ndp_team *team, const char *folder,
                         ndp_status (*otherwise)(void *user, char name[NDP_CREW_NAME]), void *user, ndp_crew *out) {
    ndp_crew c = {.team = team, .folder = folder, .size = 1, .lock = -1};
    ndp_status st = NDP_OK;
    if (!team) {
        char name[NDP_CREW_NAME];
        st = make_offer(&c, otherwise, user, name);
        if (st == NDP_OK && !c.work)
            st = join(&c, name);
    } else {
        offer *all = calloc((size_t)team->size, sizeof *all);
        st = team->agree(team->user,
                         all ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for a list of %d ranks", team->size));
        if (st == NDP_OK)
            st = find_leaders(&c, all, otherwise, user);
        free(all);
    }
    if (st != NDP_OK) {
        ndp_crew_dissolve(&c);
        return st;
    }
    *out = c;
    return NDP_OK;
}

/* ---- files of the work folder ---- */

const char *ndp_crew_path(const ndp_crew *c, char out[NDP_CREW_PATH], const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int n = snprintf(out, NDP_CREW_PATH, "%s/", c->work);
    if (n < NDP_CREW_PATH)
        vsnprintf(out + n, (size_t)(NDP_CREW_PATH - n), fmt, args);
    va_end(args);
    return out;
}

bool ndp_crew_has(const ndp_crew *c, const char *name) {
    char path[NDP_CREW_PATH];
    return ndp_path_exists(ndp_crew_path(c, path, "%s", name));
}

ndp_status ndp_crew_mark(const ndp_crew *c, const char *name, bool *first) {
    char path[NDP_CREW_PATH];
    int fd = open(ndp_crew_path(c, path, "%s", name), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (first)
        *first = fd >= 0;
    if (fd >= 0)
        close(fd);
    return fd >= 0 || errno == EEXIST ? NDP_OK : NDP_FAIL(NDP_EIO, "%s", strerror(errno));
}

void ndp_crew_stop(const ndp_crew *c) {
    char path[NDP_CREW_PATH];
    if (c->work)
        (void)unlink(ndp_crew_path(c, path, "go"));
}

bool ndp_crew_stopped(const ndp_crew *c) { return !ndp_crew_has(c, "go"); }

bool ndp_crew_wait(const ndp_crew *c, const char *name, void (*meanwhile)(void *user), void *user) {
    double nap = 1e-4;
    for (; !ndp_crew_has(c, name); ndp_nap(nap)) {
        if (ndp_crew_stopped(c))
            return false;
        if (meanwhile)
            meanwhile(user);
        nap = nap < 0.05 ? 2 * nap : 0.1;
    }
    return true;
}
