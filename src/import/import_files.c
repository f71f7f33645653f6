/* The files that a data set names, and why some cannot be read. */
#include "base/hub.h"
#include "config/entry.h"
#include "import/import_parts.h"

#include <stdlib.h>
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

static const char unread[] = "records are read from .jsonl, .ndjson and .json, also .gz, .zst and .xz, and from .csv, "
                             ".parquet and .arrow; convert it, or rename it";

/* Whether files of a type of Axolotl's, NULL for any, have such a name. */
static bool is_of_type(const char *path, size_t n, const char *type) {
    static const char *const records[] = {".jsonl", ".ndjson", ".json", NULL};
    static const char *const tables[][2] = {{".csv", NULL}, {".parquet", NULL}, {".arrow", NULL}};
    if ((!type || strcmp(type, "json") == 0) && ends_with_one_of(path, n, records))
        return true;
    for (int i = 0; i < NDP_COUNT(tables) && !path[n]; i++) /* not compressed */
        if ((!type || strcmp(type, tables[i][0] + 1) == 0) && ends_with_one_of(path, n, tables[i]))
            return true;
    return false;
}

/* Why a file cannot be read as Axolotl reads it; NULL: it can. */
static const char *why_unread(const ndp_import *m, const char *path) {
    static const char *const packed[] = {".gz", ".zst", ".xz", NULL}, *const texts[] = {".txt", ".text", ".md", NULL};
    size_t n = strlen(path);
    if (ends_with_one_of(path, n, packed))
        n = (size_t)(strrchr(path, '.') - path);
    const char *type = m->set.ds_type;
    if (strstr(path, "://"))
        return "nothing is downloaded; name local files";
    if (ndp_path_is_folder(path))
        return "a folder has the files of several splits; name them";
    if ((type && strcmp(type, "text") == 0) || ends_with_one_of(path, n, texts))
        return "every line of a text file is a document there; here lines <|endoftext|> separate documents. "
               "Write .jsonl";
    if (is_of_type(path, n, type))
        return NULL;
    return type || ndp_path_exists(path) || memchr(path, '.', n)
               ? unread
               : "not a file; download the data set as .jsonl and name its files";
}

const char *ndp_import_files_key(const ndp_import *m) {
    return m->sets.held_out ? "data.validation_files" : "data.files";
}

/* Adds an entry with the options of its own that the current data set has. `split`: NULL: none, or part of the name. */
static ndp_status add_entry(ndp_import *m, const char *name, const char *split) {
    ndp_strings *names = m->sets.held_out ? &m->job.data.validation_files : &m->job.data.files,
                *own = m->sets.held_out ? &m->job.data.validation_own : &m->job.data.files_own;
    ndp_str text = {0};
    ndp_str_add(&text, "{path: ");
    ndp_option_write_text(name, &text);
    ndp_str_add(&text, m->set.own.data ? m->set.own.data : "");
    if (split) {
        ndp_str_add(&text, ", split: ");
        ndp_option_write_text(split, &text);
    }
    ndp_str_add(&text, "}");
    ndp_status st = text.failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory for the configuration")
                                : ndp_entry_parse(text.data, names, own);
    ndp_str_release(&text);
    return st;
}

/* Of a folder, the one file of training that `datasets` finds there: train.jsonl, and so on; else the path itself. */
static char *training_file(const char *path) {
    static const char *const endings[] = {"jsonl", "json", "csv", "parquet", "arrow"};
    char *only = NULL;
    int found = 0;
    for (int i = 0; i < NDP_COUNT(endings) && ndp_path_is_folder(path); i++) {
        char *file = ndp_format("%s/train.%s", path, endings[i]);
        bool there = file && ndp_path_exists(file);
        found += there;
        if (there && !only)
            only = file;
        else
            free(file);
    }
    if (found == 1)
        return only;
    free(only);
    return strdup(path);
}

static ndp_status add_file(ndp_import *m, const char *path, const char *name, struct fy_node *node) {
    enum { MOST = 1 << 16 };
    const ndp_strings *files = m->sets.held_out ? &m->job.data.validation_files : &m->job.data.files;
    const char *why = why_unread(m, path);
    if (why)
        return ndp_import_refuse(&m->notes, name, path, node, why, ndp_import_files_key(m));
    if (files->n >= MOST)
        return ndp_yaml_fail(m->notes.y, node, "more than %d files", MOST);
    bool whole = !m->set.split || strcmp(m->set.split, "train") == 0;
    return add_entry(m, path, whole ? NULL : m->set.split);
}

/* A data set on the Hub, by its name here: org/name@revision:config/split. */
static ndp_status add_hub_set(ndp_import *m, const ndp_hub_name *n) {
    const import_set *s = &m->set;
    const char *revision = s->revision ? s->revision : n->revision;
    const char *config = s->config && strcmp(s->config, "default") != 0 ? s->config : "";
    char folder[NDP_PATH], *name = ndp_format("%s%s%s:%s%s%s", n->repo, *revision ? "@" : "", revision, config,
                                              *config ? "/" : "", s->split ? s->split : "train");
    NDP_CHECK_MEMORY(name, "for the configuration");
    if (ndp_hub_find(NDP_HUB_DATASET, name, folder) != NDP_OK)
        SAY(m, "%s: %s\n", ndp_import_files_key(m), ndp_error_message());
    ndp_status st = add_entry(m, name, NULL);
    free(name);
    return st;
}

/* Files of a data set on the Hub by their names there: in the cache, else where the download of a note puts them. */
static ndp_status add_hub_files(ndp_import *m, const char *set, const char *name, struct fy_node *node) {
    char folder[NDP_PATH];
    bool cached = ndp_hub_find(NDP_HUB_DATASET, set, folder) == NDP_OK;
    ndp_status st = NDP_OK;
    ndp_str names = {0};
    for (int i = 0; st == NDP_OK && i < m->set.files.n; i++) {
        char *path = ndp_format("%s/%s", cached ? folder : set, m->set.files.items[i]);
        st = NDP_MEMORY(path, "for the configuration");
        if (st == NDP_OK)
            st = add_file(m, path, name, node);
        ndp_str_addf(&names, " %s", m->set.files.items[i]);
        free(path);
    }
    if (st == NDP_OK && !cached && !names.failed)
        SAY(m, "%s: files of %s are looked for below it: hf download %s%s --repo-type dataset --local-dir %s\n",
            ndp_import_files_key(m), set, set, names.data, set);
    ndp_str_release(&names);
    return st;
}

static bool is_known_file(const char *path) {
    size_t n = strlen(path);
    static const char *const others[] = {".txt", ".text", ".md", ".gz", ".zst", ".xz", ".bz2", ".zip", NULL};
    return is_of_type(path, n, NULL) || ends_with_one_of(path, n, others);
}

/* A path such as `json` is the type of the data_files; a folder is where a loader would look for them. */
ndp_status ndp_import_add_files(ndp_import *m, const char *name, struct fy_node *node) {
    static const char *const kinds[] = {"json", "text", "csv", "parquet", "arrow", NULL};
    const char *path = m->set.path;
    ndp_hub_name hub;
    if (!path && !m->set.files.n)
        return ndp_yaml_fail(m->notes.y, node, "'%s' has no path", name);
    if (path && !m->set.files.n && !ndp_path_exists(path) && !is_known_file(path) &&
        ndp_hub_parse(NDP_HUB_DATASET, path, &hub))
        return add_hub_set(m, &hub);
    if (m->set.split && strcmp(m->set.split, "train") != 0 && strncmp(m->set.split, "train[", 6) != 0)
        return ndp_import_refuse(&m->notes, name, m->set.split, node,
                                 "files are the split train; name the files of this one", ndp_import_files_key(m));
    if (!m->set.files.n) {
        char *file = training_file(path);
        ndp_status st = file ? add_file(m, file, name, node) : NDP_MEMORY(false, "for a path");
        free(file);
        return st;
    }
    const char *const *kind = kinds;
    while (path && *kind && strcmp(*kind, path) != 0)
        kind++;
    if (path && !*kind && !ndp_path_is_folder(path))
        return ndp_hub_parse(NDP_HUB_DATASET, path, &hub)
                   ? add_hub_files(m, path, name, node)
                   : ndp_import_refuse(&m->notes, name, path, node,
                                       "its data_files are not local; download them and set path: json",
                                       ndp_import_files_key(m));
    if (path && *kind && !m->set.ds_type)
        NDP_TRY(ndp_option_copy_text(path, &m->set.ds_type));
    for (int i = 0; i < m->set.files.n; i++)
        NDP_TRY(add_file(m, m->set.files.items[i], name, node));
    return NDP_OK;
}
