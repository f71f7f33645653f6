/* Which files a folder or a pattern stands for, in the order of the bytes of their names, so that every machine
 * reads them in the same order. Called by cache/corpus.c. */
#include "data/corpus/files.h"

#include "data/corpus/hub_data.h"
#include "data/corpus/source.h"
#include <errno.h>
#include <fts.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

static bool is_read(const char *path) {
    ndp_source_kind unused;
    return ndp_source_is_known(path, &unused);
}

/* ---- folders ---- */

static int by_name(const FTSENT **a, const FTSENT **b) { return strcmp((*a)->fts_name, (*b)->fts_name); }

typedef struct folder_walk {
    FTS *fts;
    bool (*wanted)(const char *path);
    ndp_strings *paths;
    int64_t *left_out;
} folder_walk;

static ndp_status visit_entry(const folder_walk *w, FTSENT *e) {
    bool hidden = e->fts_level > 0 && e->fts_name[0] == '.';
    switch (e->fts_info) {
    case FTS_D:
        if (hidden)
            fts_set(w->fts, e, FTS_SKIP);
        return NDP_OK;
    case FTS_DNR:
    case FTS_ERR:
    case FTS_NS:
        return NDP_FAIL(NDP_EIO, "cannot read '%s': %s", e->fts_path, strerror(e->fts_errno));
    case FTS_F:
    case FTS_SLNONE:  /* a dangling link, */
    case FTS_DEFAULT: /* a pipe, socket or device: opening it reports that */
        if (hidden || w->wanted(e->fts_path))
            return hidden ? NDP_OK : ndp_strings_add(w->paths, e->fts_path);
        ++*w->left_out;
        return NDP_OK;
    default:
        return NDP_OK;
    }
}

/* NULL at the end (errno 0) or on failure (errno set). */
static FTSENT *next_entry(FTS *fts) {
    errno = 0;
    return fts_read(fts);
}

ndp_status ndp_folder_files(const char *folder, bool (*wanted)(const char *path), ndp_strings *paths,
                            int64_t *left_out) {
    char *path = strdup(folder), *roots[2] = {path, NULL};
    for (size_t n = path ? strlen(path) : 0; n > 1 && path[n - 1] == '/';)
        path[--n] = '\0';
    const folder_walk w = {path ? fts_open(roots, FTS_LOGICAL | FTS_NOCHDIR, by_name) : NULL, wanted, paths, left_out};
    ndp_status st = w.fts ? NDP_OK : NDP_FAIL(NDP_EIO, "cannot read '%s': %s", folder, strerror(errno));
    for (FTSENT *e; st == NDP_OK && (e = next_entry(w.fts));)
        st = visit_entry(&w, e);
    if (st == NDP_OK && errno)
        st = NDP_FAIL(NDP_EIO, "cannot read '%s': %s", folder, strerror(errno));
    if (w.fts)
        fts_close(w.fts);
    free(path);
    return st;
}

/* The name of a file that describes tables, as datasets.save_to_disk writes it beside them. */
static bool describes_tables(const char *path) {
    return ndp_ends_with(path, "/dataset_info.json") || ndp_ends_with(path, "/state.json");
}

/* In a folder with .arrow files, leaves out what describes them. `before`: files of other sources. */
static ndp_status leave_out_descriptions(ndp_file_list *l, const char *folder, int before) {
    bool tables = false;
    int kept = before;
    for (int i = before; i < l->paths.n; i++)
        tables |= ndp_ends_with(l->paths.items[i], ".arrow");
    for (int i = before; tables && i < l->paths.n; i++)
        if (ndp_ends_with(l->paths.items[i], "/dataset_dict.json"))
            return NDP_FAIL(NDP_EINVAL, "data.files: the folder '%s' has several splits; name one, such as '%s/train'",
                            folder, folder);
    for (int i = before; i < l->paths.n; i++) {
        if (tables && describes_tables(l->paths.items[i])) {
            free(l->paths.items[i]);
            l->left_out++;
        } else
            l->paths.items[kept++] = l->paths.items[i];
    }
    l->paths.n = kept;
    return NDP_OK;
}

static ndp_status add_folder(ndp_file_list *l, const char *folder) {
    int before = l->paths.n;
    ndp_status st = ndp_folder_files(folder, is_read, &l->paths, &l->left_out);
    if (st == NDP_OK)
        st = leave_out_descriptions(l, folder, before);
    if (st == NDP_OK && l->paths.n == before)
        st = NDP_FAIL(
            NDP_EINVAL,
            "data.files: the folder '%s' has no file whose name ends in .txt, .md, .jsonl, .json, .csv, .parquet, "
            ".arrow or .bin, or these and .gz, .zst or .xz",
            folder);
    return st;
}

/* ---- patterns ---- */

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static ndp_status add_pattern(ndp_file_list *l, const char *pattern) {
    glob_t found;
    int failed = glob(pattern, GLOB_NOSORT | GLOB_ERR, NULL, &found), cause = errno;
    if (failed)
        return failed == GLOB_NOMATCH || (failed == GLOB_ABORTED && cause == ENOENT)
                   ? NDP_FAIL(NDP_EINVAL, "data.files: no file matches '%s'", pattern)
                   : NDP_FAIL(NDP_EIO, "data.files: cannot look for '%s': %s", pattern,
                              strerror(failed == GLOB_NOSPACE ? ENOMEM : cause));
    qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, by_bytes);
    ndp_status st = NDP_OK;
    for (size_t i = 0; i < found.gl_pathc && st == NDP_OK; i++)
        st = ndp_path_is_folder(found.gl_pathv[i]) ? add_folder(l, found.gl_pathv[i])
                                                   : ndp_strings_add(&l->paths, found.gl_pathv[i]);
    globfree(&found);
    return st;
}

ndp_status ndp_file_list_add(ndp_file_list *l, const char *name) {
    ndp_hub_name unused;
    if (ndp_path_is_folder(name))
        return add_folder(l, name);
    if (ndp_path_exists(name))
        return ndp_strings_add(&l->paths, name);
    NDP_TRY(ndp_hub_refuse_url("data.files", name));
    if (strpbrk(name, "*?["))
        return add_pattern(l, name);
    return !is_read(name) && ndp_hub_parse(NDP_HUB_DATASET, name, &unused) ? ndp_hub_data_files(name, &l->paths)
                                                                           : ndp_strings_add(&l->paths, name);
}
