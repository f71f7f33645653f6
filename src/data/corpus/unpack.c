/* Unpacking by libarchive into memory that grows as needed: the expansion is checked with every read, so a file made
 * to fill memory is refused after little more than its allowance. Called by source.c, cache/parts.c and sample.c. */
#include "data/corpus/unpack.h"

#include "base/memory_limit.h"

#include <archive.h>
#include <archive_entry.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct packing {
    const char *ending;
    int (*support)(struct archive *);
    int code;
} packing;

static const packing packings[] = {
    {".gz", archive_read_support_filter_gzip, ARCHIVE_FILTER_GZIP},
    {".zst", archive_read_support_filter_zstd, ARCHIVE_FILTER_ZSTD},
    {".xz", archive_read_support_filter_xz, ARCHIVE_FILTER_XZ},
};

static const packing *packing_of(const char *path) {
    size_t n = strlen(path);
    for (int i = 0; i < NDP_COUNT(packings); i++) {
        size_t m = strlen(packings[i].ending);
        if (n > m && !strcasecmp(path + n - m, packings[i].ending))
            return &packings[i];
    }
    return NULL;
}

size_t ndp_unpacked_name(const char *path) {
    const packing *p = packing_of(path);
    return strlen(path) - (p ? strlen(p->ending) : 0);
}

static ndp_status fail_unpack(struct archive *a, const char *path, const packing *p) {
    const char *why = archive_error_string(a);
    return NDP_FAIL(NDP_EFORMAT, "%s: not a whole %s file: %s", path, p->ending,
                    why ? why : "it is not compressed that way");
}

/* Texts compress 3 to 30 times. A file that expands far more was made to fill memory, or repeats a line forever.
 * Checked while the file is unpacked, so that such a file takes little more than the allowance. */
static ndp_status check_expansion(struct archive *a, const char *path, const packing *p, size_t unpacked) {
    const size_t packed = (size_t)archive_filter_bytes(a, -1);
    if (unpacked <= NDP_UNPACK_ALLOWANCE + NDP_UNPACK_RATIO * packed)
        return NDP_OK;
    return NDP_FAIL(
        NDP_EFORMAT,
        "%s: its first %zu bytes unpack to more than %zu; beyond %zu MiB a %s file may expand %zu times. If "
        "this is really a text, unpack it and give the unpacked file",
        path, packed, unpacked, NDP_UNPACK_ALLOWANCE >> 20, p->ending, NDP_UNPACK_RATIO);
}

/* Grows the buffer. NULL: out of memory; `buffer` is then freed. */
static char *grow(char *buffer, size_t *capacity, size_t used, size_t head) {
    *capacity = *capacity < head / 2 ? 2 * *capacity : head;
    bool fits = (int64_t)(*capacity - used) < ndp_memory_available();
    char *grown = fits ? realloc(buffer, *capacity) : NULL;
    if (!grown)
        free(buffer);
    return grown;
}

/* Reads up to `head` bytes. */
static ndp_status read_all(struct archive *a, const char *path, const packing *p, size_t head, char **out, size_t *n) {
    size_t capacity = (size_t)1 << 20, used = 0;
    capacity = capacity < head ? capacity : head;
    char *buffer = malloc(capacity);
    for (la_ssize_t got = 1; buffer && got > 0; used += (size_t)got) {
        if (used == capacity && used < head && !(buffer = grow(buffer, &capacity, used, head)))
            break;
        got = used < head ? archive_read_data(a, buffer + used, capacity - used) : 0;
        ndp_status st = got < 0 ? fail_unpack(a, path, p) : check_expansion(a, path, p, used + (size_t)got);
        if (st != NDP_OK) {
            free(buffer);
            return st;
        }
    }
    if (!buffer)
        return NDP_FAIL(NDP_ENOMEM,
                        "%s: it unpacks to more than %zu bytes, which do not fit into memory; split the file", path,
                        used);
    *out = buffer;
    *n = used;
    return NDP_OK;
}

/* The result for an archive without an entry. */
static ndp_status give_empty(char **out, size_t *n) {
    char *nothing = malloc(1);
    NDP_CHECK_MEMORY(nothing, "to unpack a file");
    *out = nothing;
    *n = 0;
    return NDP_OK;
}

static ndp_status open_and_read(struct archive *a, const packing *p, const char *path, const void *contents,
                                size_t size, size_t head, char **out, size_t *n) {
    struct archive_entry *entry;
    if (p->support(a) != ARCHIVE_OK || archive_read_support_format_raw(a) != ARCHIVE_OK ||
        archive_read_support_format_empty(a) != ARCHIVE_OK)
        return NDP_FAIL(NDP_ENOTSUP, "%s: this libarchive does not read %s files", path, p->ending);
    int begun = archive_read_open_memory(a, contents, size);
    if (begun == ARCHIVE_OK)
        begun = archive_read_next_header(a, &entry);
    if ((begun != ARCHIVE_OK && begun != ARCHIVE_EOF) || archive_filter_code(a, 0) != p->code)
        return fail_unpack(a, path, p);
    if (begun == ARCHIVE_EOF)
        return give_empty(out, n);
    char *unpacked = NULL;
    size_t length = 0;
    NDP_TRY(read_all(a, path, p, head, &unpacked, &length));
    int64_t used = archive_filter_bytes(a, -1);
    if (used >= (int64_t)size || length == head) {
        *out = unpacked;
        *n = length;
        return NDP_OK;
    }
    free(unpacked);
    return NDP_FAIL(NDP_EFORMAT, "%s: the last %lld bytes, after the end of the %s data, are something else", path,
                    (long long)size - used, p->ending);
}

ndp_status ndp_unpack_head(const char *path, const void *contents, size_t size, size_t most, char **out, size_t *n) {
    const packing *p = packing_of(path);
    struct archive *a = p ? archive_read_new() : NULL;
    if (!a)
        return p ? NDP_FAIL(NDP_ENOMEM, "%s: not enough memory to unpack it", path)
                 : NDP_FAIL(NDP_EINVAL, "%s is not the name of a compressed file", path);
    ndp_status st = open_and_read(a, p, path, contents, size, most, out, n);
    archive_read_free(a);
    return st;
}

ndp_status ndp_unpack(const char *path, const void *contents, size_t size, char **out, size_t *n) {
    return ndp_unpack_head(path, contents, size, SIZE_MAX, out, n);
}
