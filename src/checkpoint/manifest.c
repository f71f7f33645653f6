#include "checkpoint/manifest.h"

#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char FORMAT[] = "ndparallel checkpoint";
enum { VERSION = 1 };

/* ---- reading ---- */

static ndp_status require(struct json_object *o, const char *what, const char *key) {
    struct json_object *value = NULL;
    if (!json_object_object_get_ex(o, key, &value) || !value)
        return NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is missing", what, key);
    return NDP_OK;
}

static ndp_status read_number(struct json_object *o, const char *what, const char *key, int64_t *out) {
    NDP_TRY(require(o, what, key));
    return ndp_json_int(o, what, key, 0, INT64_MAX, out);
}

static ndp_status check_version(struct json_object *o, const char *what) {
    const char *format = "";
    int64_t version = 0;
    if (!json_object_is_type(o, json_type_object))
        return NDP_FAIL(NDP_EFORMAT, "%s: not an object", what);
    NDP_TRY(ndp_json_string(o, what, "format", &format));
    if (strcmp(format, FORMAT) != 0)
        return NDP_FAIL(NDP_EFORMAT, "%s: \"format\" is not \"%s\"", what, FORMAT);
    NDP_TRY(read_number(o, what, "version", &version));
    if (version != VERSION)
        return NDP_FAIL(NDP_ENOTSUP, "%s: a checkpoint of version %lld; this program reads version %d", what,
                        (long long)version, VERSION);
    return NDP_OK;
}

static ndp_status read_file_entry(struct json_object *o, const char *what, ndp_manifest_file *out) {
    const char *name = "";
    if (!json_object_is_type(o, json_type_object))
        return NDP_FAIL(NDP_EFORMAT, "%s: an entry of \"files\" is not an object", what);
    NDP_TRY(ndp_json_string(o, what, "name", &name));
    if (!name[0] || name[0] == '.' || strchr(name, '/'))
        return NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is no name of a file of a checkpoint", what, name);
    NDP_TRY(read_number(o, what, "bytes", &out->bytes));
    out->name = name;
    return NDP_OK;
}

static ndp_status read_files(ndp_manifest *m, const char *what) {
    struct json_object *files = NULL;
    if (!json_object_object_get_ex(m->json, "files", &files) || !json_object_is_type(files, json_type_array))
        return NDP_FAIL(NDP_EFORMAT, "%s: there is no array \"files\"", what);
    size_t n = json_object_array_length(files);
    m->files = ndp_arena_alloc(&m->arena, (n + 1) * sizeof *m->files);
    if (!m->files)
        return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for %zu files", what, n);
    for (size_t i = 0; i < n; i++)
        NDP_TRY(read_file_entry(json_object_array_get_idx(files, i), what, &m->files[m->n_files++]));
    return NDP_OK;
}

static ndp_status read_members(ndp_manifest *m, const char *what) {
    NDP_TRY(check_version(m->json, what));
    NDP_TRY(read_number(m->json, what, "step", &m->info.step));
    NDP_TRY(read_number(m->json, what, "samples", &m->info.samples));
    NDP_TRY(read_number(m->json, what, "seed", &m->info.seed));
    if (json_object_object_get_ex(m->json, "extra", &m->info.extra) &&
        !json_object_is_type(m->info.extra, json_type_object))
        return NDP_FAIL(NDP_EFORMAT, "%s: \"extra\" is not an object", what);
    return read_files(m, what);
}

ndp_status ndp_manifest_parse(const char *text, size_t size, const char *what, ndp_manifest *out) {
    ndp_manifest m = {0};
    ndp_status st;
    NDP_TRY_GOTO(ndp_json_parse(text, size, what, &m.json), release);
    NDP_TRY_GOTO(read_members(&m, what), release);
    *out = m;
    return NDP_OK;
release:
    ndp_manifest_release(&m);
    return st;
}

static ndp_status check_files(const ndp_manifest *m, const char *folder) {
    for (int i = 0; i < m->n_files; i++) {
        const ndp_manifest_file *f = &m->files[i];
        char *path = ndp_format("%s/%s", folder, f->name);
        if (!path)
            return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory to check its files", folder);
        struct stat info;
        int r = stat(path, &info);
        free(path);
        if (r)
            return NDP_FAIL(NDP_EIO, "'%s/%s': %s", folder, f->name, strerror(errno));
        if (info.st_size != f->bytes)
            return NDP_FAIL(NDP_EFORMAT, "'%s/%s' has %lld bytes, its manifest says %lld", folder, f->name,
                            (long long)info.st_size, (long long)f->bytes);
    }
    return NDP_OK;
}

ndp_status ndp_manifest_read(const char *folder, ndp_manifest *out) {
    char *path = ndp_format("%s/manifest.json", folder), *text = NULL;
    size_t size = 0;
    ndp_manifest m = {0};
    ndp_status st;
    NDP_TRY_GOTO(path ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory to read %s", folder), release);
    NDP_TRY_GOTO(ndp_file_read_as(NDP_FILE_MANIFEST, path, &text, &size), release);
    NDP_TRY_GOTO(ndp_manifest_parse(text, size, path, &m), release);
    NDP_TRY_GOTO(check_files(&m, folder), release);
    *out = m;
    m = (ndp_manifest){0};
release:
    ndp_manifest_release(&m);
    free(text);
    free(path);
    return st;
}

void ndp_manifest_release(ndp_manifest *m) {
    json_object_put(m->json);
    ndp_arena_release(&m->arena);
    *m = (ndp_manifest){0};
}

/* ---- writing ---- */

ndp_status ndp_manifest_text(const ndp_checkpoint_info *info, const ndp_manifest_file *files, int n_files, char **out) {
    struct json_object *o = json_object_new_object(), *list = json_object_new_array();
    json_object_object_add(o, "format", json_object_new_string(FORMAT));
    json_object_object_add(o, "version", json_object_new_int(VERSION));
    json_object_object_add(o, "step", json_object_new_int64(info->step));
    json_object_object_add(o, "samples", json_object_new_int64(info->samples));
    json_object_object_add(o, "seed", json_object_new_int64(info->seed));
    if (info->extra)
        json_object_object_add(o, "extra", json_object_get(info->extra));
    for (int i = 0; i < n_files; i++) {
        struct json_object *file = json_object_new_object();
        json_object_object_add(file, "name", json_object_new_string(files[i].name));
        json_object_object_add(file, "bytes", json_object_new_int64(files[i].bytes));
        json_object_array_add(list, file);
    }
    json_object_object_add(o, "files", list);
    const char *text = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE);
    char *copy = text ? ndp_format("%s\n", text) : NULL;
    json_object_put(o);
    if (!copy)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the manifest of step %lld", (long long)info->step);
    *out = copy;
    return NDP_OK;
}
