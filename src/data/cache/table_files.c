/* Converting the tables of a corpus. A rank claims file F by creating claim-rows-F; rows-F appears by a rename,
 * complete. Called by cache.c, before the corpus is cut into parts. */
#include "data/cache/table_files.h"

#include "data/corpus/source.h"
#include "data/table/table_reader.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool is_table(const char *path) {
    ndp_source_kind kind;
    return ndp_source_is_known(path, &kind) && kind == NDP_SOURCE_TABLE;
}

typedef struct conversion {
    const ndp_crew *crew;
    FILE *file;
} conversion;

static const ndp_status STOPPED = NDP_EINTR;

static ndp_status fail_writing(const ndp_crew *crew) {
    return NDP_FAIL(
        NDP_EIO,
        "cannot write the rows of a table to %s: %s; they take about as much space as the file unpacked, and "
        "data.cache_dir names another folder",
        crew->folder, strerror(errno));
}

static ndp_status put(void *user, const char *bytes, size_t n) {
    conversion *c = user;
    if (fwrite(bytes, 1, n, c->file) != n)
        return fail_writing(c->crew);
    return NDP_OK;
}

static ndp_status end_row(void *user) { return ndp_crew_stopped(((conversion *)user)->crew) ? STOPPED : NDP_OK; }

/* `readers`: how many ranks may convert at the same time. */
static ndp_status convert(const ndp_crew *crew, const char *path, int64_t f, int readers) {
    char rows[NDP_CREW_PATH], beside[NDP_CREW_PATH];
    conversion c = {.crew = crew};
    const ndp_table_sink sink = {put, end_row, &c};
    int64_t n;
    ndp_crew_path(crew, rows, "rows-%lld", (long long)f);
    ndp_crew_path(crew, beside, "rows-%lld.tmp", (long long)f);
    if (!(c.file = fopen(beside, "wbe")))
        return fail_writing(crew);
    ndp_status st = ndp_table_read(path, 0, NDP_TABLE_SILENCE, readers, &sink, &n);
    if (fclose(c.file) && st == NDP_OK)
        st = fail_writing(crew);
    if (st == STOPPED && ndp_crew_stopped(crew))
        return NDP_OK;
    if (st == NDP_OK && rename(beside, rows))
        st = fail_writing(crew);
    return st;
}

static ndp_status replace(const ndp_crew *crew, ndp_corpus *c, int64_t f) {
    char name[32], rows[NDP_CREW_PATH];
    ndp_mapped converted;
    snprintf(name, sizeof name, "rows-%lld", (long long)f);
    if (!ndp_crew_wait(crew, name, NULL, NULL))
        return NDP_OK;
    NDP_TRY(ndp_file_map(ndp_crew_path(crew, rows, "%s", name), &converted));
    c->bytes += converted.size - c->mapped[f].size;
    ndp_file_unmap(&c->mapped[f]);
    c->mapped[f] = converted;
    return NDP_OK;
}

ndp_status ndp_tables_convert(const ndp_crew *crew, ndp_corpus *c) {
    char name[32];
    int tables = 0;
    for (int64_t f = 0; f < c->files.paths.n; f++)
        tables += is_table(c->files.paths.items[f]);
    for (int64_t f = 0; f < c->files.paths.n && !ndp_crew_stopped(crew); f++) {
        bool mine = false;
        snprintf(name, sizeof name, "claim-rows-%lld", (long long)f);
        if (is_table(c->files.paths.items[f]))
            NDP_TRY(ndp_crew_mark(crew, name, &mine));
        if (mine)
            NDP_TRY(convert(crew, c->files.paths.items[f], f, tables < crew->size ? tables : crew->size));
    }
    for (int64_t f = 0; f < c->files.paths.n && !ndp_crew_stopped(crew); f++)
        if (is_table(c->files.paths.items[f]))
            NDP_TRY(replace(crew, c, f));
    return NDP_OK;
}
