/* Open MPI leaves its session folders behind when it is killed. They are kept in one folder per run, which is locked
 * while the run lives, so that the next start knows which folders to remove. */
#include "host/mpi_folder.h"
#include "base/text.h"
#include "host/host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RUN "run-"
#define MARK "launcher"

/* $TMPDIR/ndparallel-UID, writable only by this user. The caller frees the path. */
static ndp_status user_folder(char **out) {
    const char *folder = getenv("TMPDIR");
    struct stat info;
    char *path = ndp_format("%s/ndparallel-%u", folder && *folder ? folder : "/tmp", (unsigned)geteuid());
    ndp_status st = path ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "no memory for a path");
    if (path && mkdir(path, 0700) != 0 && errno != EEXIST)
        st = NDP_FAIL(NDP_EIO,
                      "cannot create the folder '%s' for mpirun's files: %s; set TMPDIR to one that can be "
                      "written to",
                      path, strerror(errno));
    else if (path &&
             (lstat(path, &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 022)))
        st = NDP_FAIL(NDP_EINVAL,
                      "'%s', for mpirun's files, is not a folder that only this user can write to: remove it, "
                      "or set TMPDIR",
                      path);
    if (st != NDP_OK) {
        free(path);
        return st;
    }
    *out = path;
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
    char *mark = ndp_format("%s/" MARK, path);
    bool young = stat(path, &info) == 0 && time(NULL) - info.st_mtime < SECONDS;
    young &= !mark || !ndp_path_exists(mark);
    free(mark);
    return young;
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
    char *folder = ndp_format("%.*s", (int)(name - path), path);
    if (folder)
        (void)!ndp_folder_visit(folder, remove_abandoned, NULL);
    free(folder);
}

/* Creates the file in the folder that marks it as created by a launcher. */
static int mark_as_launched(const char *path) {
    char *file = ndp_format("%s/" MARK, path);
    int fd = file ? open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
    int error = !file ? ENOMEM : fd < 0 ? errno : 0;
    free(file);
    if (fd >= 0)
        close(fd);
    return error;
}

ndp_status ndp_mpi_folder_create(ndp_mpi_folder *out) {
    enum { TRIES = 100 };
    char *folder;
    NDP_TRY(user_folder(&folder));
    (void)!ndp_folder_visit(folder, remove_abandoned, NULL); /* without them the run starts, too */
    ndp_mpi_folder f = {.lock = -1};
    int error = 0;
    for (int i = 0; i < TRIES && f.lock < 0 && error == 0; i++) {
        free(f.path);
        f.path = ndp_format("%s/" RUN "XXXXXX", folder);
        error = !f.path ? ENOMEM : mkdtemp(f.path) ? 0 : errno;
        if (error == 0)
            f.lock = lock_folder(f.path);
        if (f.lock >= 0)
            error = mark_as_launched(f.path);
    }
    ndp_status st = f.lock >= 0 && error == 0
                        ? NDP_OK
                        : NDP_FAIL(NDP_EIO, "cannot create a folder in '%s' for mpirun's files: %s", folder,
                                   strerror(error ? error : EBUSY));
    free(folder);
    if (st != NDP_OK) {
        if (f.lock >= 0)
            close(f.lock);
        free(f.path);
        return st;
    }
    *out = f;
    return NDP_OK;
}

void ndp_mpi_folder_remove(ndp_mpi_folder *f) {
    (void)!ndp_folder_remove(f->path); /* what is left is removed at the next start */
    if (f->lock >= 0)
        close(f->lock);
    free(f->path);
    *f = (ndp_mpi_folder){.lock = -1};
}
