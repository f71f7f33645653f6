/* Called by train/checkpoint_export.c. */
#include "checkpoint/new_folder.h"

#include "checkpoint/shards.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ndp_status count_entry(void *user, const char *folder, const char *name) {
    (void)folder;
    *(int *)user += strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
    return NDP_OK;
}

ndp_status ndp_new_folder_check(const char *folder) {
    int entries = 0;
    NDP_CHECK(*folder, "no folder is given to write to");
    if (!ndp_path_exists(folder))
        return NDP_OK;
    NDP_CHECK(ndp_path_is_folder(folder), "'%s' exists and is not a folder; give another one", folder);
    NDP_TRY(ndp_folder_visit(folder, count_entry, &entries));
    NDP_CHECK(entries == 0, "the folder '%s' is not empty, and nothing is overwritten; give another one", folder);
    return NDP_OK;
}

static ndp_status find_paths(const char *folder, ndp_new_folder *f) {
    NDP_CHECK(strlen(folder) < sizeof f->place, "'%.80s...' is longer than a path can be", folder);
    snprintf(f->place, sizeof f->place, "%s", folder);
    for (size_t n = strlen(f->place); n > 1 && f->place[n - 1] == '/';)
        f->place[--n] = '\0';
    const char *slash = strrchr(f->place, '/'), *name = slash ? slash + 1 : f->place;
    NDP_CHECK(*name && strcmp(name, ".") != 0 && strcmp(name, "..") != 0, "'%s' is not the name of a new folder",
              folder);
    if (slash && slash > f->place)
        snprintf(f->parent, sizeof f->parent, "%.*s", (int)(slash - f->place), f->place);
    else
        snprintf(f->parent, sizeof f->parent, "%s", slash ? "/" : ".");
    char *hidden = ndp_format(".%s.tmp-folder", name);
    ndp_status st =
        hidden ? ndp_path_join(f->beside, f->parent, hidden) : NDP_FAIL(NDP_ENOMEM, "not enough memory for a name");
    free(hidden);
    return st;
}

ndp_status ndp_new_folder_begin(const char *folder, ndp_new_folder *out) {
    NDP_TRY(ndp_new_folder_check(folder));
    NDP_TRY(find_paths(folder, out));
    NDP_TRY(ndp_folder_create(out->parent));
    return ndp_fresh_folder(out->beside);
}

/* rename(2) replaces an empty folder, and no other. */
static ndp_status commit(const ndp_new_folder *f) {
    NDP_TRY(ndp_durable_folder(f->beside));
    return ndp_durable_rename(f->beside, f->place);
}

ndp_status ndp_new_folder_end(const ndp_new_folder *f, ndp_status st) {
    if (st == NDP_OK)
        st = commit(f);
    if (st != NDP_OK) {
        ndp_remove_quietly(f->beside, st);
        return st;
    }
    return ndp_durable_folder(f->parent);
}
