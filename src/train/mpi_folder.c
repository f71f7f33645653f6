#include "train/mpi_folder.h"
#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define RUN "run-"

/* $TMPDIR/ndparallel-UID, which nobody else can write to; freed by the caller. */
static ndp_status home(char **out) {
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
                      "'%s', for mpirun's files, is no folder that only this user can write to: remove it, "
                      "or set TMPDIR",
                      path);
    if (st != NDP_OK) {
        free(path);
        return st;
    }
    *out = path;
    return NDP_OK;
}

/* A descriptor that holds the folder's lock, -1 when it cannot be had. */
static int lock(const char *path) {
    struct stat held, now;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    /* It may have been removed before it was locked. */
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &held) == 0 && stat(path, &now) == 0 &&
        held.st_ino == now.st_ino && held.st_dev == now.st_dev)
        return fd;
    close(fd);
    return -1;
}

/* What cannot be removed stays: it is not this run's. */
static void remove_abandoned(const char *folder) {
    DIR *all = opendir(folder);
    for (struct dirent *e; all && (e = readdir(all)) != NULL;) {
        char *path = strncmp(e->d_name, RUN, strlen(RUN)) == 0 ? ndp_format("%s/%s", folder, e->d_name) : NULL;
        int fd = path ? lock(path) : -1;
        if (fd >= 0) {
            (void)!ndp_folder_remove(path);
            close(fd);
        }
        free(path);
    }
    if (all)
        closedir(all);
}

ndp_status ndp_mpi_folder_create(ndp_mpi_folder *out) {
    enum { TRIES = 100 };
    char *folder;
    NDP_TRY(home(&folder));
    remove_abandoned(folder);
    ndp_mpi_folder f = {.lock = -1};
    int error = 0;
    for (int i = 0; i < TRIES && f.lock < 0 && error == 0; i++) {
        free(f.path);
        f.path = ndp_format("%s/" RUN "XXXXXX", folder);
        error = !f.path ? ENOMEM : mkdtemp(f.path) ? 0 : errno;
        if (error == 0)
            f.lock = lock(f.path);
    }
    ndp_status st = f.lock >= 0 ? NDP_OK
                                : NDP_FAIL(NDP_EIO, "cannot create a folder in '%s' for mpirun's files: %s", folder,
                                           strerror(error ? error : EBUSY));
    free(folder);
    if (st != NDP_OK) {
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
