/* Writing a safetensors file. Its layout is a function of the list of tensors alone, so any number of ranks can write
 * elements into a file that one of them created at its full size. Called by shards.c (sizes), shards_write.c (create)
 * and exchange.c (join, write). */
#include "base/fault.h"
#include "base/json_write.h"
#include "base/text.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_types.h"
#include "checkpoint/shards.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { BLOCK = 1 << 18 }; /* bytes converted at a time */

struct ndp_safetensors_writer {
    char *path;
    int fd;
    const ndp_tensor_spec *specs;
    int n;
    int64_t *offset; /* of each tensor, in the file */
    int64_t size;
    ndp_str header; /* with its length before it */
    void *block;    /* allocated at the first conversion */
};

/* ---- the layout ---- */

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static ndp_status check_names(const ndp_tensor_spec *specs, int n) {
    const char **names = malloc(((size_t)n + 1) * sizeof *names);
    NDP_CHECK_MEMORY(names, "for the names of %d tensors", n);
    for (int i = 0; i < n; i++)
        names[i] = specs[i].name;
    qsort(names, (size_t)n, sizeof *names, compare_names);
    ndp_status st = NDP_OK;
    for (int i = 0; i < n && st == NDP_OK; i++)
        if (strcmp(names[i], "__metadata__") == 0)
            st = NDP_FAIL(NDP_EINVAL, "no tensor of a safetensors file can be named __metadata__");
        else if (i && strcmp(names[i], names[i - 1]) == 0)
            st = NDP_FAIL(NDP_EINVAL, "tensor %s would be saved twice in one file", names[i]);
    free(names);
    return st;
}

static ndp_status spec_bytes(const ndp_tensor_spec *t, int64_t *bytes) {
    char shape[128];
    int64_t elements = t->ndim <= NDP_TENSOR_DIMS ? ndp_tensor_elements(t) : -1;
    if (t->dtype >= NDP_DTYPES || elements < 0 ||
        __builtin_mul_overflow(elements, (int64_t)ndp_dtype_size(t->dtype), bytes))
        return NDP_FAIL(NDP_EINVAL, "tensor %s of type %d and shape %s cannot be saved", t->name, (int)t->dtype,
                        t->ndim <= NDP_TENSOR_DIMS ? ndp_shape_text(t, shape, sizeof shape) : "(too many dimensions)");
    return NDP_OK;
}

/* One member of the header's object, e.g. "a.b":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]} */
static void add_member(ndp_str *s, const ndp_tensor_spec *t, int64_t begin, int64_t end) {
    ndp_str_add(s, ",");
    ndp_json_quote(s, t->name);
    ndp_str_addf(s, ":{\"dtype\":\"%s\",\"shape\":[", t->as ? t->as : ndp_safetensors_types[t->dtype].name);
    for (int d = 0; d < t->ndim; d++)
        ndp_str_addf(s, "%s%lld", d ? "," : "", (long long)t->shape[d]);
    ndp_str_addf(s, "],\"data_offsets\":[%lld,%lld]}", (long long)begin, (long long)end);
}

/* Fills offset, size and header; they are a function of the list alone. */
static ndp_status lay_out(ndp_safetensors_writer *w) {
    int64_t at = 0, bytes = 0;
    unsigned char length[8] = {0};
    NDP_TRY(check_names(w->specs, w->n));
    ndp_str_add_bytes(&w->header, length, sizeof length);
    ndp_str_add(&w->header, "{\"__metadata__\":{\"format\":\"pt\"}"); /* required by transformers */
    for (int i = 0; i < w->n; i++, at += bytes) {
        int64_t end;
        NDP_TRY(spec_bytes(&w->specs[i], &bytes));
        if (__builtin_add_overflow(at, bytes, &end) || end > INT64_MAX / 2)
            return NDP_FAIL(NDP_EINVAL, "tensor %s: %lld bytes before it and %lld of its own do not fit a file",
                            w->specs[i].name, (long long)at, (long long)bytes);
        w->offset[i] = at;
        add_member(&w->header, &w->specs[i], at, end);
    }
    ndp_str_add(&w->header, "}");
    while (w->header.length % 8 && !w->header.failed) /* aligns the tensors if all have one type */
        ndp_str_add(&w->header, " ");
    NDP_CHECK_MEMORY(!w->header.failed, "for the header of %d tensors", w->n);
    for (int i = 0; i < 8; i++)
        w->header.data[i] = (char)((w->header.length - 8) >> (8 * i) & 0xff);
    for (int i = 0; i < w->n; i++)
        w->offset[i] += (int64_t)w->header.length;
    w->size = at + (int64_t)w->header.length;
    return NDP_OK;
}

/* Sets *out, or destroys the writer after an error. */
static ndp_status finish(ndp_safetensors_writer *w, ndp_status st, ndp_safetensors_writer **out) {
    if (st == NDP_OK)
        *out = w;
    else
        ndp_safetensors_writer_destroy(w);
    return st;
}

static ndp_status writer_new(const char *path, const ndp_tensor_spec *specs, int n, ndp_safetensors_writer **out) {
    ndp_safetensors_writer *w = calloc(1, sizeof *w);
    NDP_CHECK_MEMORY(w, "to write %s", path);
    *w = (ndp_safetensors_writer){.path = strdup(path), .fd = -1, .specs = specs, .n = n};
    w->offset = malloc(((size_t)n + 1) * sizeof *w->offset);
    bool taken = w->path && w->offset;
    return finish(w, taken ? lay_out(w) : NDP_FAIL(NDP_ENOMEM, "not enough memory to write %s", path), out);
}

ndp_status ndp_safetensors_size(const ndp_tensor_spec *specs, int n, int64_t *bytes, int64_t *offsets) {
    ndp_safetensors_writer *w = NULL;
    NDP_TRY(writer_new("a file", specs, n, &w));
    *bytes = w->size;
    if (offsets)
        memcpy(offsets, w->offset, (size_t)n * sizeof *offsets);
    ndp_safetensors_writer_destroy(w);
    return NDP_OK;
}

/* ---- the file ---- */

ndp_status ndp_write_failed(const char *path, int64_t bytes) {
    int cause = errno;
    char need[16], free_bytes[16] = "unknown";
    struct statvfs fs;
    char *folder = strdup(path), *slash = folder ? strrchr(folder, '/') : NULL;
    if (slash)
        *slash = '\0';
    if (folder && statvfs(slash ? folder : ".", &fs) == 0)
        ndp_human_bytes((double)fs.f_bavail * (double)fs.f_frsize, free_bytes);
    free(folder);
    ndp_human_bytes((double)bytes, need);
    if (cause == ENOSPC || cause == EDQUOT || cause == EFBIG)
        return NDP_FAIL(
            NDP_EIO,
            "cannot write '%s': %s; the file needs %lld bytes (%s), its disk has %s free. Free some space, or choose "
            "another folder",
            path, strerror(cause), (long long)bytes, need, free_bytes);
    return NDP_FAIL(NDP_EIO, "cannot write '%s': %s", path, strerror(cause));
}

static ndp_status write_at(ndp_safetensors_writer *w, const void *data, size_t size, int64_t at) {
    return ndp_write_at(w->fd, data, size, at) ? ndp_write_failed(w->path, w->size) : NDP_OK;
}

int ndp_file_reserve(int fd, int64_t size) {
    if (ndp_fault(NDP_FAULT_WRITE))
        return -1;
    int r;
    do
        r = fallocate(fd, 0, 0, size);
    while (r != 0 && errno == EINTR);
    return r != 0 && (errno == EOPNOTSUPP || errno == ENOSYS) ? ftruncate(fd, size) : r;
}

ndp_status ndp_safetensors_create(const char *path, const ndp_tensor_spec *specs, int n, ndp_safetensors_writer **out) {
    ndp_safetensors_writer *w = NULL;
    NDP_TRY(writer_new(path, specs, n, &w));
    w->fd = ndp_fault(NDP_FAULT_WRITE) ? -1 : open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    ndp_status st = w->fd < 0 || ndp_file_reserve(w->fd, w->size) ? ndp_write_failed(w->path, w->size)
                                                                  : write_at(w, w->header.data, w->header.length, 0);
    if (st != NDP_OK && w->fd >= 0)
        unlink(path);
    return finish(w, st, out);
}

const char *ndp_safetensors_header(const ndp_safetensors_writer *w, size_t *bytes) {
    *bytes = w->header.length;
    return w->header.data;
}

ndp_status ndp_safetensors_join(const char *path, const ndp_tensor_spec *specs, int n, ndp_safetensors_writer **out) {
    ndp_safetensors_writer *w = NULL;
    NDP_TRY(writer_new(path, specs, n, &w));
    struct stat info = {0};
    ndp_status st = NDP_OK;
    w->fd = open(path, O_WRONLY | O_CLOEXEC);
    if (w->fd < 0 || fstat(w->fd, &info))
        st = NDP_FAIL(NDP_EIO,
                      "cannot write '%s', which rank 0 created: %s; is the folder on a disk that all nodes share?",
                      path, strerror(errno));
    else if (info.st_size != w->size)
        st = NDP_FAIL(NDP_EIO,
                      "'%s' has %lld bytes, not the %lld that all ranks are to write: the ranks do not agree on "
                      "its tensors",
                      path, (long long)info.st_size, (long long)w->size);
    return finish(w, st, out);
}

static ndp_status write_converted(ndp_safetensors_writer *w, ndp_dtype stored, const char *src, ndp_dtype type,
                                  int64_t count, int64_t at) {
    if (!w->block && !(w->block = malloc(BLOCK)))
        return NDP_FAIL(NDP_ENOMEM, "not enough memory to convert the tensors of '%s'", w->path);
    size_t size = ndp_dtype_size(stored);
    int64_t most = BLOCK / (int64_t)size;
    for (int64_t first = 0; first < count; first += most) {
        int64_t n = count - first < most ? count - first : most;
        ndp_convert(src + (size_t)first * ndp_dtype_size(type), type, w->block, stored, n);
        NDP_TRY(write_at(w, w->block, (size_t)n * size, at + first * (int64_t)size));
    }
    return NDP_OK;
}

ndp_status ndp_safetensors_write(ndp_safetensors_writer *w, int tensor, int64_t first, int64_t count, const void *src,
                                 ndp_dtype type) {
    if (tensor < 0 || tensor >= w->n)
        return NDP_FAIL(NDP_EBUG, "%s: tensor number %d of %d", w->path, tensor, w->n);
    const ndp_tensor_spec *t = &w->specs[tensor];
    int64_t elements = ndp_tensor_elements(t);
    if (first < 0 || count < 0 || first > elements || count > elements - first)
        return NDP_FAIL(NDP_EBUG, "%s: elements [%lld, +%lld) of tensor %s, which has %lld", w->path, (long long)first,
                        (long long)count, t->name, (long long)elements);
    if (!ndp_dtype_converts(type, t->dtype))
        return NDP_FAIL(NDP_EBUG, "%s: tensor %s is stored as %s, given as %s", w->path, t->name,
                        ndp_dtype_name(t->dtype), type < NDP_DTYPES ? ndp_dtype_name(type) : "an unknown type");
    size_t size = ndp_dtype_size(t->dtype);
    int64_t at = w->offset[tensor] + first * (int64_t)size;
    if (type == t->dtype)
        return write_at(w, src, (size_t)count * size, at);
    return write_converted(w, t->dtype, src, type, count, at);
}

ndp_status ndp_safetensors_sync(ndp_safetensors_writer *w) {
    if (ndp_fault(NDP_FAULT_SYNC) || fsync(w->fd))
        return NDP_FAIL(NDP_EIO, "cannot make '%s' durable: %s", w->path, strerror(errno));
    return NDP_OK;
}

void ndp_safetensors_writer_destroy(ndp_safetensors_writer *w) {
    if (!w)
        return;
    if (w->fd >= 0)
        close(w->fd);
    ndp_str_release(&w->header);
    free(w->offset);
    free(w->block);
    free(w->path);
    free(w);
}
