/* The files that a data set names, and why some cannot be read. */
#include "config/import_parts.h"

#include <string.h>
#include <strings.h>

static bool ends_with_one_of(const char *path, size_t n, const char *const *endings) {
    for (; *endings; endings++) {
        size_t k = strlen(*endings);
        if (n > k && strncasecmp(path + n - k, *endings, k) == 0)
            return true;
    }
    return false;
}

/* Why a file cannot be read as Axolotl reads it; NULL: it can. */
static const char *why_unread(const ndp_import *m, const char *path) {
    static const char *const packed[] = {".gz", ".zst", ".xz", NULL},
                             *const records[] = {".jsonl", ".ndjson", ".json", NULL},
                             *const texts[] = {".txt", ".text", ".md", NULL};
    size_t n = strlen(path);
    if (ends_with_one_of(path, n, packed))
        n = (size_t)(strrchr(path, '.') - path);
    const char *type = m->set.ds_type;
    if (strstr(path, "://"))
        return "nothing is downloaded; name local files";
    if (ndp_path_is_folder(path))
        return "Axolotl takes the files of one split from a folder; name them";
    if ((type && strcmp(type, "text") == 0) || ends_with_one_of(path, n, texts))
        return "Axolotl reads every line of a text file as a document; here lines <|endoftext|> separate documents. "
               "Write .jsonl";
    if (type && strcmp(type, "json") != 0)
        return "records are read from .jsonl, .ndjson and .json, also .gz, .zst and .xz; convert it";
    if (ends_with_one_of(path, n, records))
        return NULL;
    return ndp_path_exists(path) || memchr(path, '.', n)
               ? "records are read from .jsonl, .ndjson and .json, also .gz, .zst and .xz; convert it, or rename it"
               : "not a file; download the data set as .jsonl and name its files";
}

const char *ndp_import_files_key(const ndp_import *m) {
    return m->sets.held_out ? "data.validation_files" : "data.files";
}

static ndp_status add_file(ndp_import *m, const char *path, const char *name, struct fy_node *node) {
    enum { MOST = 1 << 16 };
    ndp_strings *files = m->sets.held_out ? &m->job.data.validation_files : &m->job.data.files;
    const char *why = why_unread(m, path);
    if (why)
        return ndp_import_refuse(&m->notes, name, path, node, why, ndp_import_files_key(m));
    if (files->n >= MOST)
        return ndp_yaml_fail(m->notes.y, node, "more than %d files", MOST);
    return ndp_strings_add(files, path);
}

/* A path such as `json` is the type of the data_files; a folder is where a loader would look for them. */
ndp_status ndp_import_add_files(ndp_import *m, const char *name, struct fy_node *node) {
    static const char *const kinds[] = {"json", "text", "csv", "parquet", "arrow", NULL};
    const char *path = m->set.path;
    if (!path && !m->set.files.n)
        return ndp_yaml_fail(m->notes.y, node, "'%s' has no path", name);
    if (!m->set.files.n)
        return add_file(m, path, name, node);
    const char *const *kind = kinds;
    while (path && *kind && strcmp(*kind, path) != 0)
        kind++;
    if (path && !*kind && !ndp_path_is_folder(path))
        return ndp_import_refuse(&m->notes, name, path, node,
                                 "its data_files are not local; download them and set path: json",
                                 ndp_import_files_key(m));
    if (path && *kind && !m->set.ds_type)
        NDP_TRY(ndp_option_copy_text(path, &m->set.ds_type));
    for (int i = 0; i < m->set.files.n; i++)
        NDP_TRY(add_file(m, m->set.files.items[i], name, node));
    return NDP_OK;
}
