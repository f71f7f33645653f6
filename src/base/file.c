#include "base/text.h"

#include "base/fault.h"
#include "base/watched.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* `verb` as in "cannot read PATH: No such file or directory". */
#define IO_FAIL(verb, path) NDP_FAIL(NDP_EIO, "cannot %s '%s': %s", (verb), (path), strerror(errno))

/* `flags`: O_NONBLOCK does not wait for somebody to write into a pipe; files do not care. */
static ndp_status open_regular(const char *path, int flags, int *fd, struct stat *info) {
    int f = open(path, O_RDONLY | O_CLOEXEC | flags);
    if (f < 0)
        return IO_FAIL("read", path);
    if (fstat(f, info) == 0 && !S_ISDIR(info->st_mode)) {
        *fd = f;
        return NDP_OK;
    }
    ndp_status st = S_ISDIR(info->st_mode) ? NDP_FAIL(NDP_EIO, "cannot read '%s': it is a folder, not a file", path)
                                           : IO_FAIL("read", path);
    close(f);
    return st;
}

/* Reads to the end of the file, whatever its size was said to be: a pipe says 0. */
static ndp_status read_all(int fd, const char *path, size_t guess, char **data, size_t *size) {
    size_t capacity = guess + 1, used = 0;
    char *buffer = NULL;
    for (;;) {
        char *grown = realloc(buffer, capacity + 1);
        if (!grown) {
            free(buffer);
            return NDP_FAIL(NDP_ENOMEM, "not enough memory to read '%s' (%zu bytes)", path, capacity);
        }
        buffer = grown;
        ssize_t n;
        while (used < capacity && (n = read(fd, buffer + used, capacity - used)) != 0) {
            if (n > 0)
                used += (size_t)n;
            else if (errno != EINTR) {
                free(buffer);
                return IO_FAIL("read", path);
            }
        }
        if (used < capacity)
            break;
        capacity += capacity / 2 + 4096;
    }
    buffer[used] = '\0';
    *data = buffer;
    *size = used;
    return NDP_OK;
}

ndp_status ndp_file_read(const char *path, char **data, size_t *size) {
    int fd = -1;
    struct stat info;
    NDP_TRY(open_regular(path, 0, &fd, &info));
    ndp_status st = read_all(fd, path, (size_t)info.st_size, data, size);
    close(fd);
    return st;
}

ndp_status ndp_fd_read(int fd, const char *name, char **data, size_t *size) {
    return read_all(fd, name, 0, data, size);
}

static ndp_status write_and_sync(int fd, const char *path, const char *data, size_t size) {
    while (size) {
        ssize_t n =
            ndp_fault(NDP_FAULT_WRITE) ? -1 : write(fd, data, size < ((size_t)1 << 30) ? size : (size_t)1 << 30);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return IO_FAIL("write", path);
        data += n;
        size -= (size_t)n;
    }
    return ndp_fault(NDP_FAULT_SYNC) || fsync(fd) ? IO_FAIL("write", path) : NDP_OK;
}

/* The folder that holds `path`; NULL when memory ran out. */
static char *parent_of(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash)
        return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

ndp_status ndp_file_write_atomic(const char *path, const void *data, size_t size) {
    ndp_status st = NDP_OK;
    char *parent = parent_of(path), *beside = ndp_format("%s.tmp-%d-%d", path, (int)getpid(), (int)gettid());
    if (!parent || !beside) {
        st = NDP_FAIL(NDP_ENOMEM, "not enough memory to write '%s'", path);
        goto free_names;
    }
    int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        st = IO_FAIL("write", beside);
        goto free_names;
    }
    st = write_and_sync(fd, path, data, size);
    if (close(fd) && st == NDP_OK)
        st = IO_FAIL("write", path);
    if (st == NDP_OK && (ndp_fault(NDP_FAULT_RENAME) || rename(beside, path)))
        st = IO_FAIL("write", path);
    if (st != NDP_OK)
        unlink(beside);
    else
        st = ndp_folder_sync(parent);
free_names:
    free(beside);
    free(parent);
    return st;
}

static ndp_status watch(const char *path, const void *data, const struct stat *info, ndp_mapped *out) {
    ndp_mapped m = {.data = data, .size = (size_t)info->st_size, .path = strdup(path)};
    if (m.size && m.path)
        m.watch = ndp_file_watch_begin(data, m.size, info);
    if (!m.path || (m.size && !m.watch)) {
        ndp_file_unmap(&m);
        return NDP_FAIL(NDP_ENOMEM, "not enough memory to map '%s'", path);
    }
    *out = m;
    return NDP_OK;
}

ndp_status ndp_file_map(const char *path, ndp_mapped *out) {
    int fd = -1;
    struct stat info;
    NDP_TRY(open_regular(path, O_NONBLOCK, &fd, &info));
    ndp_status st = NDP_OK;
    const void *data = ""; /* nothing can be mapped of an empty file */
    if (!S_ISREG(info.st_mode))
        st = NDP_FAIL(NDP_EIO, "cannot map '%s': it is not a regular file", path);
    else if (info.st_size && (data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0)) == MAP_FAILED)
        st = IO_FAIL("map", path);
    close(fd);
    return st == NDP_OK ? watch(path, data, &info, out) : st;
}

void ndp_file_unmap(ndp_mapped *m) {
    if (m->watch)
        ndp_file_watch_end(m->watch);
    if (m->size)
        munmap((void *)(uintptr_t)m->data, m->size);
    free(m->path);
    *m = (ndp_mapped){0};
}

ndp_status ndp_file_check(const ndp_mapped *m) {
    return m->watch ? ndp_file_watch_check(m->watch, m->path, m->size) : NDP_OK;
}

ndp_status ndp_file_end(ndp_mapped *m, ndp_status st) {
    ndp_status intact = ndp_file_check(m);
    ndp_file_unmap(m);
    return intact != NDP_OK ? intact : st;
}

bool ndp_path_exists(const char *path) { return access(path, F_OK) == 0; }

bool ndp_path_is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

ndp_status ndp_folder_create(const char *path) {
    NDP_CHECK(path[0], "cannot create a folder without a name");
    char *partial = strdup(path);
    if (!partial)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory to create the folder '%s'", path);
    ndp_status st = NDP_OK;
    for (char *p = partial + 1; st == NDP_OK; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        char end = *p;
        *p = '\0';
        /* Another rank may make it at the same time: what counts is that it is there. */
        if (mkdir(partial, 0777) && !ndp_path_is_folder(partial))
            st = IO_FAIL("create the folder", partial);
        *p = end;
        if (!end)
            break;
    }
    free(partial);
    return st;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *where) {
    (void)info, (void)type, (void)where;
    return remove(path) && errno != ENOENT ? (int)IO_FAIL("remove", path) : 0;
}

ndp_status ndp_folder_remove(const char *path) {
    int r = nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    if (r > 0)
        return (ndp_status)r;
    return r < 0 && errno != ENOENT ? IO_FAIL("remove", path) : NDP_OK;
}

ndp_status ndp_folder_sync(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return IO_FAIL("sync the folder", path);
    ndp_status st = NDP_OK;
    if (fsync(fd) && errno != EINVAL) /* some file systems sync no folders: EINVAL */
        st = IO_FAIL("sync the folder", path);
    close(fd);
    return st;
}
