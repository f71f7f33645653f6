/* Called by what writes model folders outside runs (weights/export.c, weights/merge.c) and by verify/. */
#include "checkpoint/new_folder.h"

#include "base/fault.h"
#include "checkpoint/holder.h"
#include "checkpoint/shards.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    return NDP_OK;
}

/* ---- the hidden name ---- */

/* A name of a file has at most 255 bytes, of which about 65 tell processes apart: of a long name only the beginning is
 * in the hidden one. */
enum { NAME_PART = 150, PREFIX = NAME_PART + 16 };

/* ".NAME.tmp-folder-" */
static void hidden_prefix(const ndp_new_folder *f, char prefix[PREFIX]) {
    const char *slash = strrchr(f->place, '/');
    snprintf(prefix, PREFIX, ".%.*s.tmp-folder-", NAME_PART, slash ? slash + 1 : f->place);
}

typedef struct leftovers {
    const char *prefix;
    ndp_holder self;
} leftovers;

/* Folders that cannot be removed belong to another user and stay. */
static ndp_status remove_left(void *user, const char *folder, const char *name) {
    const leftovers *l = user;
    size_t n = strlen(l->prefix);
    char path[NDP_PATH];
    ndp_holder h;
    if (strncmp(name, l->prefix, n) == 0 && ndp_holder_of_word(name + n, &l->self, &h) &&
        ndp_holder_judge(&h, &l->self) == NDP_HOLDER_DEAD && ndp_path_join(path, folder, name) == NDP_OK)
        (void)!ndp_folder_remove(path);
    return NDP_OK;
}

/* A process may make several folders of one name, each with a number of its own. */
static ndp_status create_hidden(ndp_new_folder *f, const char *prefix, const ndp_holder *self) {
    enum { MOST = 1000 };
    char word[NDP_HOLDER_WORD], name[NDP_PATH];
    int r = -1;
    ndp_holder_word(self, word);
    for (int i = 0; r && i < MOST && (i == 0 || errno == EEXIST); i++) {
        snprintf(name, sizeof name, "%s%s-%d", prefix, word, i);
        NDP_TRY(ndp_path_join(f->beside, f->parent, name));
        r = ndp_fault(NDP_FAULT_WRITE) ? -1 : mkdir(f->beside, 0777);
    }
    return r ? NDP_FAIL(NDP_EIO, "cannot create the folder '%s': %s", f->beside, strerror(errno)) : NDP_OK;
}

ndp_status ndp_new_folder_begin(const char *folder, ndp_new_folder *out) {
    char prefix[PREFIX];
    leftovers left = {.prefix = prefix};
    NDP_TRY(ndp_new_folder_check(folder));
    NDP_TRY(find_paths(folder, out));
    NDP_TRY(ndp_folder_create(out->parent));
    hidden_prefix(out, prefix);
    ndp_holder_self(&left.self);
    (void)!ndp_folder_visit(out->parent, remove_left, &left);
    return create_hidden(out, prefix, &left.self);
}

/* ---- the end ---- */

/* An empty folder may be there: rmdir(2) removes no other. */
static ndp_status commit(const ndp_new_folder *f) {
    bool taken;
    NDP_TRY(ndp_durable_folder(f->beside));
    NDP_TRY(ndp_rename_new(f->beside, f->place, &taken));
    if (taken && rmdir(f->place) == 0)
        NDP_TRY(ndp_rename_new(f->beside, f->place, &taken));
    return taken ? NDP_FAIL(NDP_EINVAL,
                            "'%s' was made by another process meanwhile, and nothing is overwritten; give another one",
                            f->place)
                 : NDP_OK;
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
