/* Files from outside are checked before they are read: regular, within the limit of their kind, and whole. Those that
 * we write are in output.c. */
#include "base/text.h"

#include "base/fault.h"
#include "base/watched.h"
#include <dirent.h>
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

/* ---- opening regular files ---- */

/* Size limits by kind of file, far above those in use: the largest tokenizer.json has some 35 MB. */
static const struct {
    const char *name;
    size_t most;
    bool ours;
} kinds[] = {
    [NDP_FILE_DATA] = {"data", SIZE_MAX - 1, false}, /* no limit: mapped, not read */
    [NDP_FILE_OWN] = {"a file of ours", SIZE_MAX - 1, .ours = true},
    [NDP_FILE_ANY] = {"a file that is read whole", (size_t)1 << 30, false},
    [NDP_FILE_JOB] = {"a job file", (size_t)8 << 20, false},
    [NDP_FILE_CONFIG] = {"a configuration of a model or tokenizer", (size_t)16 << 20, false},
    [NDP_FILE_TOKENIZER] = {"a tokenizer", (size_t)256 << 20, false},
    [NDP_FILE_TEMPLATE] = {"a chat template", (size_t)1 << 20, false},
    [NDP_FILE_INDEX] = {"an index of weights", (size_t)64 << 20, false},
    [NDP_FILE_MANIFEST] = {"a manifest of a checkpoint", (size_t)256 << 20, .ours = true},
    [NDP_FILE_HOSTS] = {"a hostfile", (size_t)1 << 20, false},
    [NDP_FILE_CLUSTER] = {"a description of a cluster", (size_t)1 << 20, false},
};

/* Of a missing file that the user named, the name is a mistake. */
static ndp_status fail_open(ndp_file_kind kind, const char *path) {
    int cause = errno;
    struct stat link;
    bool missing = cause == ENOENT || cause == ENOTDIR;
    ndp_status code = missing && !kinds[kind].ours ? NDP_EINVAL : NDP_EIO;
    if (cause == ENOENT && lstat(path, &link) == 0 && S_ISLNK(link.st_mode))
        return NDP_FAIL(code, "cannot read '%s': it is a link to a missing file", path);
    char *meant = cause == ENOENT ? ndp_nearest_path(path) : NULL;
    ndp_status st = NDP_FAIL(code, "cannot read '%s': %s%s%s%s", path, strerror(cause), meant ? "; did you mean '" : "",
                             meant ? meant : "", meant ? "'?" : "");
    free(meant);
    return st;
}

static ndp_status check_regular(const char *path, mode_t mode) {
    const char *what = S_ISDIR(mode)    ? "a folder"
                       : S_ISFIFO(mode) ? "a pipe"
                       : S_ISSOCK(mode) ? "a socket"
                                        : "a device";
    return S_ISREG(mode) ? NDP_OK : NDP_FAIL(NDP_EIO, "cannot read '%s': it is %s, not a file", path, what);
}

static ndp_status fail_large(ndp_file_kind kind, const char *path, const char *has, size_t bytes) {
    char of_file[16], of_kind[16];
    return NDP_FAIL(NDP_EFORMAT, "cannot read '%s': it has %s%s, %s has %s at most; is it the right file?", path, has,
                    ndp_human_bytes((double)bytes, of_file), kinds[kind].name,
                    ndp_human_bytes((double)kinds[kind].most, of_kind));
}

static ndp_status check_size(ndp_file_kind kind, const char *path, off_t size) {
    return (size_t)size <= kinds[kind].most ? NDP_OK : fail_large(kind, path, "", (size_t)size);
}

/* Checks the kind of file before opening it, since opening alone may block (a pipe) or have effects (a tape is
 * rewound); and again afterwards, since the file may have been replaced. O_NONBLOCK is for that case, and for files of
 * /proc that block. */
static ndp_status open_regular(ndp_file_kind kind, const char *path, int *fd, struct stat *info) {
    if (stat(path, info))
        return fail_open(kind, path);
    NDP_TRY(check_regular(path, info->st_mode));
    int f = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (f < 0)
        return fail_open(kind, path);
    ndp_status st = fstat(f, info) ? IO_FAIL("read", path) : check_regular(path, info->st_mode);
    if (st == NDP_OK)
        st = check_size(kind, path, info->st_size);
    if (st == NDP_OK)
        *fd = f;
    else
        close(f);
    return st;
}

ndp_status ndp_file_open(ndp_file_kind kind, const char *path, int *fd) {
    struct stat info;
    return open_regular(kind, path, fd, &info);
}

/* ---- reading ---- */

/* Fills the buffer up to `capacity`; less means the end of the file. */
static ndp_status fill(int fd, const char *name, char *buffer, size_t capacity, size_t *used) {
    while (*used < capacity) {
        ssize_t n = read(fd, buffer + *used, capacity - *used);
        if (n == 0)
            break;
        if (n < 0 && errno != EINTR)
            return IO_FAIL("read", name);
        *used += n > 0 ? (size_t)n : 0;
    }
    return NDP_OK;
}

/* Reads to the end, whatever size was reported: files of /proc report 0, and others may grow. *size > most: there is
 * more. */
static ndp_status read_all(int fd, const char *name, size_t guess, size_t most, char **data, size_t *size) {
    size_t capacity = guess + 1, used = 0;
    char *buffer = NULL;
    ndp_status st = NDP_OK;
    for (;; capacity += capacity / 2 + 4096) {
        char *grown = realloc(buffer, capacity + 1);
        if (!grown)
            st = NDP_FAIL(NDP_ENOMEM, "not enough memory to read '%s' (%zu bytes)", name, capacity);
        buffer = grown ? grown : buffer;
        if (st == NDP_OK)
            st = fill(fd, name, buffer, capacity, &used);
        if (st != NDP_OK) {
            free(buffer);
            return st;
        }
        if (used < capacity || used > most)
            break;
    }
    buffer[used] = '\0';
    *data = buffer;
    *size = used;
    return NDP_OK;
}

ndp_status ndp_file_read_as(ndp_file_kind kind, const char *path, char **data, size_t *size) {
    int fd = -1;
    struct stat info;
    char *text;
    size_t n, most = kinds[kind].most;
    NDP_TRY(open_regular(kind, path, &fd, &info));
    ndp_status st = read_all(fd, path, (size_t)info.st_size, most, &text, &n);
    close(fd);
    NDP_TRY(st);
    if (n > most) {
        free(text);
        return fail_large(kind, path, "more than ", most);
    }
    *data = text;
    *size = n;
    return NDP_OK;
}

ndp_status ndp_file_read(const char *path, char **data, size_t *size) {
    return ndp_file_read_as(NDP_FILE_ANY, path, data, size);
}

ndp_status ndp_fd_read(int fd, const char *name, size_t most, char **data, size_t *size) {
    char *text, of_limit[16];
    size_t n;
    NDP_TRY(read_all(fd, name, 0, most, &text, &n));
    if (n > most) {
        free(text);
        return NDP_FAIL(NDP_ENOMEM, "%s has more than %s, which do not fit into memory; split it, or name a file", name,
                        ndp_human_bytes((double)most, of_limit));
    }
    *data = text;
    *size = n;
    return NDP_OK;
}

/* ---- writing ---- */

int ndp_write_at(int fd, const void *data, size_t size, int64_t at) {
    enum { MOST = 8 << 20 };
    const char *from = data;
    while (size) {
        ssize_t n = ndp_fault(NDP_FAULT_WRITE) ? -1 : pwrite(fd, from, size < MOST ? size : MOST, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = ENOSPC;
        if (n <= 0)
            return -1;
        int before = errno;
        (void)sync_file_range(fd, at, n, SYNC_FILE_RANGE_WRITE); /* fsync reports what fails */
        errno = before;
        from += n;
        at += n;
        size -= (size_t)n;
    }
    return 0;
}

/* ---- mapping ---- */

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

ndp_status ndp_file_map_as(ndp_file_kind kind, const char *path, ndp_mapped *out) {
    int fd = -1;
    struct stat info;
    NDP_TRY(open_regular(kind, path, &fd, &info));
    ndp_status st = NDP_OK;
    const void *data = ""; /* an empty file cannot be mapped */
    if (info.st_size && (data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0)) == MAP_FAILED)
        st = IO_FAIL("map", path);
    close(fd);
    return st == NDP_OK ? watch(path, data, &info, out) : st;
}

ndp_status ndp_file_map(const char *path, ndp_mapped *out) { return ndp_file_map_as(NDP_FILE_OWN, path, out); }

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

/* A fault may map all of a large folio of the page cache, of up to 2 MiB, around the byte that was read. */
void ndp_file_forget(const ndp_mapped *m, size_t at, size_t n) {
    const size_t folio = (size_t)2 << 20;
    size_t from = at / folio * folio, to = (at + n + folio - 1) / folio * folio;
    if (m->size && at < m->size)
        (void)!madvise((void *)(uintptr_t)(m->data + from), (to < m->size ? to : m->size) - from, MADV_DONTNEED);
}

ndp_status ndp_file_end(ndp_mapped *m, ndp_status st) {
    ndp_status intact = ndp_file_check(m);
    ndp_file_unmap(m);
    return intact != NDP_OK ? intact : st;
}

/* ---- paths and folders ---- */

ndp_status ndp_path_join(char out[NDP_PATH], const char *folder, const char *name) {
    int n = snprintf(out, NDP_PATH, "%s/%s", folder, name);
    NDP_CHECK(n < NDP_PATH, "the path '%s/%s' has %d bytes, %d at most", folder, name, n, NDP_PATH - 1);
    return NDP_OK;
}

bool ndp_path_exists(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

bool ndp_path_is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

const char *ndp_path_why_no_folder(const char *path) {
    struct stat info;
    return stat(path, &info) ? strerror(errno) : S_ISDIR(info.st_mode) ? NULL : strerror(ENOTDIR);
}

char *ndp_path_parent(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash)
        return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

/* Creates one folder and makes its name durable. */
static ndp_status make_folder(const char *path) {
    if (mkdir(path, 0777)) { /* another rank may create it at the same time: it only has to exist */
        int cause = errno;
        if (ndp_path_is_folder(path))
            return NDP_OK;
        errno = cause;
        return IO_FAIL("create the folder", path);
    }
    char *parent = ndp_path_parent(path);
    ndp_status st = NDP_MEMORY(parent, "to create the folder '%s'", path);
    if (parent && access(parent, R_OK) == 0) /* a folder without read permission cannot be synced */
        st = ndp_folder_sync(parent);
    free(parent);
    return st;
}

ndp_status ndp_folder_create(const char *path) {
    NDP_CHECK(path[0], "cannot create a folder without a name");
    char *partial = strdup(path);
    NDP_CHECK_MEMORY(partial, "to create the folder '%s'", path);
    ndp_status st = NDP_OK;
    for (char *p = partial + 1; st == NDP_OK; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        char end = *p;
        *p = '\0';
        st = make_folder(partial);
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

ndp_status ndp_folder_visit(const char *folder, ndp_folder_visitor *visit, void *user) {
    DIR *d = opendir(folder);
    if (!d)
        return errno == ENOENT ? NDP_OK : IO_FAIL("list the folder", folder);
    ndp_status st = NDP_OK;
    for (struct dirent *e; st == NDP_OK && (e = readdir(d));)
        st = visit(user, folder, e->d_name);
    closedir(d);
    return st;
}

ndp_status ndp_folder_sync(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return IO_FAIL("sync the folder", path);
    ndp_status st = NDP_OK;
    if (fsync(fd) && errno != EINVAL) /* EINVAL: some file systems cannot sync folders */
        st = IO_FAIL("sync the folder", path);
    close(fd);
    return st;
}
