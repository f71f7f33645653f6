/* A file that grows by whole records: metrics.jsonl, and those of trackers. Called by rank 0 of a run. */
#include "train/appended.h"

#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

ndp_status ndp_appended_open(ndp_appended *f, char *path, const char *unit, int64_t end) {
    *f = (ndp_appended){.path = path, .unit = unit, .end = end};
    NDP_CHECK_MEMORY(path, "for the name of a file");
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return NDP_FAIL(NDP_EIO, "cannot write %s: %s", path, strerror(errno));
    f->fd = fd;
    return NDP_OK;
}

ndp_status ndp_appended_cut(const char *path, bool (*keeps)(void *user, const char *line, size_t n), void *user,
                            int64_t *end) {
    ndp_mapped file; /* mapped, since it may be gigabytes */
    *end = 0;
    if (!ndp_path_exists(path))
        return NDP_OK;
    NDP_TRY(ndp_file_map(path, &file));
    const char *text = (const char *)file.data, *at = text;
    for (const char *next; (next = memchr(at, '\n', file.size - (size_t)(at - text))); at = next + 1)
        if (!keeps(user, at, (size_t)(next - at)))
            break;
    *end = at - text;
    ndp_status st = ndp_file_write_atomic(path, file.data, (size_t)*end);
    ndp_file_unmap(&file);
    return st;
}

void ndp_appended_close(ndp_appended *f) {
    if (f->fd > 0)
        close(f->fd);
    ndp_str_release(&f->kept);
    free(f->path);
    *f = (ndp_appended){0};
}

static bool write_kept(ndp_appended *f) {
    for (size_t done = 0; done < f->kept.length;) {
        ssize_t n = ndp_fault(NDP_FAULT_APPEND)
                        ? -1
                        : pwrite(f->fd, f->kept.data + done, f->kept.length - done, f->end + (int64_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

ndp_status ndp_appended_flush(ndp_appended *f) {
    bool written = write_kept(f);
    int cause = errno;
    if (written) {
        f->end += (int64_t)f->kept.length;
        f->kept.length = 0; /* its memory is that of the next record */
        f->missing = f->lost;
    } else {
        (void)!ftruncate(f->fd, f->end); /* removes a part of a record */
    }
    if (f->missing == 0)
        return NDP_OK;
    return NDP_FAIL(NDP_EIO, "cannot write %s: %s; %lld %s%s not in it", f->path,
                    written ? "no memory" : strerror(cause), (long long)f->missing, f->unit,
                    f->missing == 1 ? " is" : "s are");
}

ndp_status ndp_appended_add(ndp_appended *f, void (*add)(ndp_str *out, const void *record), const void *record) {
    enum { MOST = 64 << 20 };
    const size_t whole = f->kept.length;
    bool lost = whole >= MOST;
    if (!lost)
        add(&f->kept, record);
    if (f->kept.failed) { /* the next one may have its memory */
        f->kept.length = whole;
        f->kept.failed = false;
        lost = true;
    }
    f->lost += lost;
    f->missing++;
    return ndp_appended_flush(f);
}
