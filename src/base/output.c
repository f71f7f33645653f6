/* Writing files by a rename, and streams in place. Each write, sync and rename is a fault point (fault.h). */
#include "base/text.h"

#include "base/fault.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* `name` is the user's name of it. */
#define WRITE_FAIL(name) NDP_FAIL(NDP_EIO, "cannot write '%s': %s", (name), strerror(errno))

/* What a name stands for. */
typedef struct place {
    const char *name;    /* as the user wrote it */
    char path[NDP_PATH]; /* where its links lead */
    int open;            /* the descriptor that it names, or -1 */
    bool is_stream, exists;
    mode_t mode; /* of a file that exists */
} place;

/* ---- finding ---- */

/* The N of /proc/self/fd/N, under any name of that folder; -1: the path is not such a name. */
static int descriptor_of(const char *path) {
    const char *name = strrchr(path, '/');
    char ours[NDP_PATH], its[NDP_PATH], *parent = ndp_path_parent(path);
    name = name ? name + 1 : path;
    bool same = parent && *name && strlen(name) < 10 && name[strspn(name, "0123456789")] == '\0' &&
                realpath("/proc/self/fd", ours) && realpath(parent, its) && strcmp(ours, its) == 0;
    free(parent);
    return same ? atoi(name) : -1;
}

/* Replaces p->path, a link, by what it names. */
static ndp_status follow(place *p, const char *link) {
    char *parent = ndp_path_parent(p->path);
    char *next = !parent ? NULL : link[0] == '/' ? strdup(link) : ndp_format("%s/%s", parent, link);
    ndp_status st = NDP_MEMORY(next, "to write '%s'", p->name);
    if (next && snprintf(p->path, NDP_PATH, "%s", next) >= NDP_PATH)
        st = (errno = ENAMETOOLONG, WRITE_FAIL(p->name));
    free(next);
    free(parent);
    return st;
}

/* Follows the links, the last of which may name nothing. */
static ndp_status follow_all(place *p) {
    enum { MOST_LINKS = 40 }; /* as Linux */
    char link[NDP_PATH];
    if (snprintf(p->path, NDP_PATH, "%s", p->name) >= NDP_PATH)
        return errno = ENAMETOOLONG, WRITE_FAIL(p->name);
    for (int i = 0; i < MOST_LINKS; i++) {
        p->open = descriptor_of(p->path);
        ssize_t n = p->open < 0 ? readlink(p->path, link, sizeof link - 1) : -1;
        if (n < 0) /* errors other than EINVAL, not a link, show when it is used */
            return NDP_OK;
        link[n] = '\0';
        NDP_TRY(follow(p, link));
    }
    return errno = ELOOP, WRITE_FAIL(p->name);
}

static ndp_status find(const char *name, place *p) {
    struct stat info;
    *p = (place){.name = name, .open = -1};
    if (stat(name, &info) &&
        errno == EACCES) /* also a link of another user in /tmp, which the kernel does not follow */
        return WRITE_FAIL(name);
    NDP_TRY(follow_all(p));
    p->is_stream = p->open >= 0;
    if (p->is_stream || stat(p->path, &info))
        return NDP_OK;
    p->exists = true;
    p->mode = info.st_mode;
    p->is_stream = !S_ISREG(info.st_mode);
    if (S_ISDIR(info.st_mode) || S_ISSOCK(info.st_mode))
        return NDP_FAIL(NDP_EIO, "cannot write '%s': it is %s, not a file", name,
                        S_ISDIR(info.st_mode) ? "a folder" : "a socket");
    return NDP_OK;
}

/* ---- streams ---- */

/* A pipe opens once a process reads it; one that nothing ever reads must not hold up a run. */
static int open_stream(const place *p) {
    enum { TRIES = 500, NAP = 10000000 };
    int fd = -1;
    if (p->open >= 0)
        return fcntl(p->open, F_DUPFD_CLOEXEC, 0);
    for (int i = 0; i < TRIES; i++) {
        fd = open(p->path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (fd >= 0 || errno != ENXIO || !S_ISFIFO(p->mode))
            break;
        nanosleep(&(struct timespec){0, NAP}, NULL);
    }
    return fd;
}

static int write_all(int fd, const char *from, size_t size) {
    while (size) {
        ssize_t n = ndp_fault(NDP_FAULT_WRITE) ? -1 : write(fd, from, size);
        if (n < 0 && errno == EAGAIN)
            (void)poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
        else if (n == 0 || (n < 0 && errno != EINTR))
            return -1;
        from += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* A reader that has gone is an error (EPIPE), not the end of this process: SIGPIPE is held back and taken. */
static int write_quietly(int fd, const char *data, size_t size) {
    sigset_t pipe, before, pending;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    int r = write_all(fd, data, size), cause = errno;
    if (r && cause == EPIPE && !sigismember(&pending, SIGPIPE))
        (void)sigtimedwait(&pipe, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = cause;
    return r;
}

static ndp_status write_stream(const place *p, const void *data, size_t size) {
    int fd = open_stream(p);
    if (fd < 0 && errno == ENXIO && S_ISFIFO(p->mode))
        return NDP_FAIL(NDP_EIO, "cannot write '%s': it is a pipe that no process reads", p->name);
    if (fd < 0)
        return WRITE_FAIL(p->name);
    ndp_status st = write_quietly(fd, data, size) ? WRITE_FAIL(p->name) : NDP_OK;
    if (close(fd) && st == NDP_OK)
        st = WRITE_FAIL(p->name);
    return st;
}

/* ---- files ---- */

/* Creates an empty file beside it, never one that another process has put there. NULL: failed, and *st is set;
 * otherwise the caller frees the name. */
static char *create_beside(const place *p, int *fd, ndp_status *st) {
    char *beside = ndp_format("%s.tmp-%d-%d", p->path, (int)getpid(), (int)gettid());
    char *parent = ndp_path_parent(p->path);
    const char *why = parent ? ndp_path_why_no_folder(parent) : NULL;
    *fd = -1;
    if (!beside || !parent)
        *st = NDP_FAIL(NDP_ENOMEM, "not enough memory to write '%s'", p->name);
    else if (why)
        *st = NDP_FAIL(NDP_EIO, "cannot write '%s': the folder '%s': %s", p->name, parent, why);
    else if ((unlink(beside) && errno != ENOENT) || /* of an earlier process with our number */
             (*fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) < 0)
        *st = WRITE_FAIL(p->name);
    free(parent);
    if (*fd >= 0)
        return beside;
    free(beside);
    return NULL;
}

static ndp_status write_and_sync(const place *p, int fd, const void *data, size_t size) {
    if (p->exists)
        (void)fchmod(fd, p->mode & 0777); /* some file systems have no permissions */
    if (ndp_write_at(fd, data, size, 0) || ndp_fault(NDP_FAULT_SYNC) || fsync(fd))
        return WRITE_FAIL(p->name);
    return NDP_OK;
}

static ndp_status sync_parent(const place *p) {
    char *parent = ndp_path_parent(p->path);
    ndp_status st = parent ? ndp_folder_sync(parent) : NDP_FAIL(NDP_ENOMEM, "not enough memory to write '%s'", p->name);
    free(parent);
    return st;
}

static ndp_status write_file(const place *p, const void *data, size_t size) {
    int fd;
    ndp_status st;
    char *beside = create_beside(p, &fd, &st);
    if (!beside)
        return st;
    st = write_and_sync(p, fd, data, size);
    if (close(fd) && st == NDP_OK)
        st = WRITE_FAIL(p->name);
    if (st == NDP_OK && (ndp_fault(NDP_FAULT_RENAME) || rename(beside, p->path)))
        st = WRITE_FAIL(p->name);
    if (st != NDP_OK)
        unlink(beside);
    free(beside);
    return st == NDP_OK ? sync_parent(p) : st;
}

ndp_status ndp_file_write_atomic(const char *path, const void *data, size_t size) {
    place p;
    NDP_TRY(find(path, &p));
    return p.is_stream ? write_stream(&p, data, size) : write_file(&p, data, size);
}

/* ---- trying ---- */

static ndp_status check_stream(const place *p) {
    int flags = p->open >= 0 ? fcntl(p->open, F_GETFL) : 0;
    if (flags < 0 || (p->open < 0 && faccessat(AT_FDCWD, p->path, W_OK, AT_EACCESS)))
        return WRITE_FAIL(p->name);
    if (p->open >= 0 && (flags & O_ACCMODE) == O_RDONLY)
        return NDP_FAIL(NDP_EIO, "cannot write '%s': it is open for reading only", p->name);
    return NDP_OK;
}

ndp_status ndp_output_check(const char *path) {
    place p;
    int fd;
    ndp_status st = NDP_OK;
    NDP_CHECK(path[0], "cannot write a file without a name");
    NDP_TRY(find(path, &p));
    if (p.is_stream)
        return check_stream(&p);
    char *beside = create_beside(&p, &fd, &st);
    if (!beside)
        return st;
    if (close(fd) | unlink(beside))
        st = WRITE_FAIL(path);
    free(beside);
    return st;
}
