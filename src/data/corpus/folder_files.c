/* The files of a folder, in the order of the bytes of their names. */
#include "data/corpus/folder_files.h"

#include <errno.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>

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
