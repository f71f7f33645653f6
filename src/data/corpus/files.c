/* Which files a folder or a pattern stands for, in the order of the bytes of their names, so that every machine
 * reads them in the same order. Called by cache/corpus.c. */
#include "data/corpus/files.h"

#include "data/corpus/folder_files.h"
#include "data/corpus/hub_data.h"
#include "data/corpus/source.h"
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

static bool is_read(const char *path) {
    ndp_source_kind unused;
    return ndp_source_is_known(path, &unused);
}

/* ---- folders ---- */

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

/* ---- splits ---- */

/* The slice at the end of a split; *name: the split without it, owned by the caller. */
static ndp_status cut_slice(const char *split, char **name, ndp_slice *slice) {
    size_t n = strlen(split);
    NDP_CHECK(
        ndp_slice_cut(split, &n, slice),
        "data.files: the split '%s' is not of the form train[FROM:TO] with whole numbers or percentages up to 100, "
        "such as train[:10%%], train[1000:] or train[-5%%:]",
        split);
    *name = strndup(split, n);
    return NDP_MEMORY(*name, "for the configuration");
}

/* A data set on the Hub, as org/name:config/split. */
static ndp_status add_data_set(ndp_file_list *l, const char *name, const ndp_hub_name *n, const char *split,
                               ndp_slice *slice) {
    char *plain = NULL;
    const char *given = split ? split : n->split;
    NDP_CHECK(!split || !n->split[0], "data.files: '%s' names a split, and so does its split: %s; name one", name,
              split);
    if (!*given)
        return ndp_hub_data_files(name, &l->paths);
    NDP_TRY(cut_slice(given, &plain, slice));
    char *whole = ndp_format("%s%s%s:%s%s%s", n->repo, n->revision[0] ? "@" : "", n->revision, n->config,
                             n->config[0] ? "/" : "", plain);
    free(plain);
    ndp_status st =
        whole ? ndp_hub_data_files(whole, &l->paths) : NDP_FAIL(NDP_ENOMEM, "not enough memory for the configuration");
    free(whole);
    return st;
}

static ndp_status check_split(const char *name, const char *split, ndp_slice *slice) {
    char *plain = NULL;
    if (!split)
        return NDP_OK;
    NDP_TRY(cut_slice(split, &plain, slice));
    bool train = strcmp(plain, "train") == 0;
    free(plain);
    NDP_CHECK(train, "data.files: '%s' is not a data set in the Hub cache: files are the split train, not '%s'", name,
              split);
    return NDP_OK;
}

ndp_status ndp_file_list_add(ndp_file_list *l, const char *name, const char *split, ndp_slice *slice) {
    ndp_hub_name n;
    *slice = (ndp_slice){0};
    bool there = ndp_path_exists(name);
    if (!there && !is_read(name) && ndp_hub_parse(NDP_HUB_DATASET, name, &n))
        return add_data_set(l, name, &n, split, slice);
    NDP_TRY(check_split(name, split, slice));
    if (ndp_path_is_folder(name))
        return add_folder(l, name);
    if (there)
        return ndp_strings_add(&l->paths, name);
    NDP_TRY(ndp_hub_refuse_url("data.files", name));
    return strpbrk(name, "*?[") ? add_pattern(l, name) : ndp_strings_add(&l->paths, name);
}
