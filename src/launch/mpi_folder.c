/* Open MPI leaves its session folders behind when it is killed. They are kept in one folder per run, which is locked
 * while the run lives, so that the next start knows which folders to remove. */
#include "launch/mpi_folder.h"
#include "base/text.h"
#include "launch/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RUN "run-"
#define MARK "launcher"

/* $TMPDIR/ndparallel-UID, writable only by this user. */
static ndp_status user_folder(char path[NDP_PATH]) {
    const char *folder = getenv("TMPDIR");
    char name[64];
    struct stat info;
    snprintf(name, sizeof name, "ndparallel-%u", (unsigned)geteuid());
    NDP_TRY(ndp_path_join(path, folder && *folder ? folder : "/tmp", name));
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return NDP_FAIL(
            NDP_EIO, "cannot create the folder '%s' for mpirun's files: %s; set TMPDIR to one that can be written to",
            path, strerror(errno));
    if (lstat(path, &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 022))
        return NDP_FAIL(NDP_EINVAL,
                        "'%s', for mpirun's files, is not a folder that only this user can write to: remove it, or set "
                        "TMPDIR",
                        path);
    return NDP_OK;
}

/* A descriptor that holds the folder's lock; -1 if another process holds it. */
static int lock_folder(const char *path) {
    struct stat held, now;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    /* The folder may have been removed before it was locked. */
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &held) == 0 && stat(path, &now) == 0 &&
        held.st_ino == now.st_ino && held.st_dev == now.st_dev)
        return fd;
    close(fd);
    return -1;
}

/* A launcher locks the folder that it creates. A folder that an Open MPI daemon created on another host is locked by
 * its first rank; until that rank runs, the folder counts as in use while it is young. */
static bool may_be_starting(const char *path) {
    enum { SECONDS = 60 };
    struct stat info;
    char mark[NDP_PATH];
    bool young = stat(path, &info) == 0 && time(NULL) - info.st_mtime < SECONDS;
    return young && (ndp_path_join(mark, path, MARK) != NDP_OK || !ndp_path_exists(mark));
}

/* Folders that cannot be removed belong to another user and stay. */
static ndp_status remove_abandoned(void *user, const char *folder, const char *name) {
    char path[NDP_PATH];
    (void)user;
    if (strncmp(name, RUN, strlen(RUN)) != 0)
        return NDP_OK;
    NDP_TRY(ndp_path_join(path, folder, name));
    int fd = lock_folder(path);
    if (fd < 0)
        return NDP_OK;
    if (!may_be_starting(path))
        (void)!ndp_folder_remove(path);
    close(fd);
    return NDP_OK;
}

void ndp_mpi_folder_keep(void) {
    const char *path = getenv("OMPI_MCA_orte_tmpdir_base"), *name = path ? strrchr(path, '/') : NULL;
    if (!getenv(NDP_LAUNCHED) || !name || strncmp(name + 1, RUN, strlen(RUN)) != 0)
        return;
    if (lock_folder(path) < 0) /* the launcher has it, or another rank of this host */
        return;
    char folder[NDP_PATH];
    snprintf(folder, sizeof folder, "%.*s", (int)(name - path), path);
    (void)!ndp_folder_visit(folder, remove_abandoned, NULL);
}

/* Creates the file in the folder that marks it as created by a launcher. Returns 0 or an errno. */
static int mark_as_launched(const char *path) {
    char file[NDP_PATH];
    if (ndp_path_join(file, path, MARK) != NDP_OK)
        return ENAMETOOLONG;
    int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int error = fd < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    return error;
}

ndp_status ndp_mpi_folder_create(ndp_mpi_folder *out) {
    enum { TRIES = 100 };
    char folder[NDP_PATH];
    NDP_TRY(user_folder(folder));
    (void)!ndp_folder_visit(folder, remove_abandoned, NULL); /* the run also starts without them */
    ndp_mpi_folder f = {.lock = -1};
    int error = 0;
    for (int i = 0; i < TRIES && f.lock < 0 && error == 0; i++) {
        NDP_TRY(ndp_path_join(f.path, folder, RUN "XXXXXX"));
        error = mkdtemp(f.path) ? 0 : errno;
        if (error == 0)
            f.lock = lock_folder(f.path);
        if (f.lock >= 0)
            error = mark_as_launched(f.path);
    }
    if (f.lock >= 0 && error == 0) {
        *out = f;
        return NDP_OK;
    }
    if (f.lock >= 0)
        close(f.lock);
    return NDP_FAIL(NDP_EIO, "cannot create a folder in '%s' for mpirun's files: %s", folder,
                    strerror(error ? error : EBUSY));
}

void ndp_mpi_folder_remove(ndp_mpi_folder *f) {
    (void)!ndp_folder_remove(f->path); /* what is left is removed at the next start */
    if (f->lock >= 0)
        close(f->lock);
    *f = (ndp_mpi_folder){.lock = -1};
}
