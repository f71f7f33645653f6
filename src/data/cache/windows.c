/* From slices of sources to parts of files. A slice counts the records of all files of its source, in their order, so
 * all of them are counted, then each file gets the part of the slice that lies in it. Called by cache.c and sample.c.
 */
#include "data/cache/windows.h"

#include "data/corpus/source_records.h"
#include "data/corpus/unpack.h"
#include <stdlib.h>
#include <string.h>

static ndp_file_window whole(const ndp_corpus *c, int64_t f) {
    return (ndp_file_window){0, INT64_MAX, 0, c->mapped[f].size};
}

ndp_file_window ndp_corpus_window(const ndp_corpus *c, int64_t f) { return c->windows ? c->windows[f] : whole(c, f); }

static bool any_slice(const ndp_corpus *c) {
    for (int i = 0; i < c->n_sources; i++)
        if (c->slices[i].given)
            return true;
    return false;
}

static ndp_status count_file(const ndp_corpus *c, int64_t f, int64_t *n) {
    const char *path = c->files.paths.items[f];
    const ndp_mapped *file = &c->mapped[f];
    ndp_source_chunk chunk;
    char *unpacked = NULL;
    size_t size = file->size;
    if (ndp_is_packed(path))
        NDP_TRY(ndp_unpack(path, file->data, file->size, &unpacked, &size));
    ndp_status st = ndp_source_begin(path, unpacked ? unpacked : (const char *)file->data, size, &chunk);
    if (st == NDP_OK)
        st = ndp_source_count_records(&chunk, n);
    free(unpacked);
    return st;
}

/* Where a file of lines is cut. Others are read whole, up to the records that they leave out. */
static void find_bytes(const ndp_corpus *c, int64_t f, ndp_file_window *w) {
    const ndp_mapped *file = &c->mapped[f];
    ndp_source_chunk chunk;
    size_t begin = 0, stop = 0;
    *w = (ndp_file_window){w->first, w->end, 0, w->first < w->end ? file->size : 0};
    if (ndp_is_packed(c->files.paths.items[f]) ||
        ndp_source_begin(c->files.paths.items[f], (const char *)file->data, file->size, &chunk) != NDP_OK ||
        chunk.kind == NDP_SOURCE_JSON)
        return;
    ndp_source_find_records(&chunk, w->first, w->end, &begin, &stop);
    w->begin = begin;
    w->stop = stop;
}

/* Cuts the slice of source i out of its files, which have n[f] records. */
static ndp_status cut_source(const ndp_corpus *c, int i, const int64_t *n, ndp_file_window *windows) {
    int64_t from = i ? c->source_ends[i - 1] : 0, all = 0, first, end, at = 0;
    for (int64_t f = from; f < c->source_ends[i]; f++)
        all += n[f];
    ndp_slice_bounds(&c->slices[i], all, &first, &end);
    NDP_CHECK(first<end, "data.files: the slice of %s%s takes no record: records %lld to %lld of %lld",
                      c->files.paths.items[from], c->source_ends[i]>
                          from +
                      1
                  ? ", ..."
                  : "",
              (long long)first, (long long)end, (long long)all);
    for (int64_t f = from; f < c->source_ends[i]; at += n[f++]) {
        ndp_file_window *w = &windows[f];
        w->first = first < at ? 0 : first - at > n[f] ? n[f] : first - at;
        w->end = end < at ? 0 : end - at > n[f] ? n[f] : end - at;
        find_bytes(c, f, w);
    }
    return NDP_OK;
}

static ndp_status find_source(const ndp_corpus *c, int i, int64_t *n, ndp_file_window *windows) {
    for (int64_t f = i ? c->source_ends[i - 1] : 0; f < c->source_ends[i]; f++)
        NDP_TRY(count_file(c, f, &n[f]));
    return cut_source(c, i, n, windows);
}

static bool is_cheap(const ndp_corpus *c, int i) {
    ndp_source_kind kind;
    for (int64_t f = i ? c->source_ends[i - 1] : 0; f < c->source_ends[i]; f++)
        if (ndp_is_packed(c->files.paths.items[f]) ||
            (ndp_source_is_known(c->files.paths.items[f], &kind) && kind == NDP_SOURCE_TABLE))
            return false;
    return true;
}

static ndp_status find_all(const ndp_corpus *c, bool cheap, ndp_file_window **out) {
    int64_t files = c->files.paths.n, *n = calloc((size_t)files, sizeof *n);
    ndp_file_window *windows = calloc((size_t)files, sizeof *windows);
    ndp_status st = NDP_MEMORY(n && windows, "for %lld files", (long long)files);
    for (int64_t f = 0; f < files && st == NDP_OK; f++)
        windows[f] = whole(c, f);
    for (int i = 0; i < c->n_sources && st == NDP_OK; i++)
        if (c->slices[i].given && (!cheap || is_cheap(c, i)))
            st = find_source(c, i, n, windows);
    st = ndp_corpus_check_read(c, 0, files, st);
    free(n);
    if (st != NDP_OK)
        free(windows);
    else
        *out = windows;
    return st;
}

/* Progress is of the bytes that are read. */
static void count_bytes(ndp_corpus *c) {
    c->bytes = 0;
    for (int64_t f = 0; f < c->files.paths.n; f++)
        c->bytes += c->windows[f].stop - c->windows[f].begin;
}

static ndp_status read_windows(const ndp_crew *crew, ndp_corpus *c) {
    char path[NDP_CREW_PATH], *bytes;
    size_t size, wanted = (size_t)c->files.paths.n * sizeof *c->windows;
    NDP_TRY(ndp_file_read_as(NDP_FILE_CONFIG, ndp_crew_path(crew, path, "windows"), &bytes, &size));
    c->windows = (ndp_file_window *)(void *)bytes;
    return size == wanted ? NDP_OK
                          : NDP_FAIL(NDP_EFORMAT, "%s: %zu bytes instead of %zu: the ranks see different files", path,
                                     size, wanted);
}

ndp_status ndp_windows_find(const ndp_crew *crew, ndp_corpus *c) {
    char path[NDP_CREW_PATH];
    if (!any_slice(c))
        return NDP_OK;
    if (crew->rank == 0) {
        NDP_TRY(find_all(c, false, &c->windows));
        NDP_TRY(ndp_file_write_atomic(ndp_crew_path(crew, path, "windows"), c->windows,
                                      (size_t)c->files.paths.n * sizeof *c->windows));
    } else if (!ndp_crew_wait(crew, "windows", NULL, NULL))
        return NDP_OK;
    else
        NDP_TRY(read_windows(crew, c));
    count_bytes(c);
    return NDP_OK;
}

ndp_status ndp_windows_find_cheap(ndp_corpus *c) { return any_slice(c) ? find_all(c, true, &c->windows) : NDP_OK; }
