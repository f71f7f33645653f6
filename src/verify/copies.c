/* Hashes of what a job reads. Files that cannot be read are left out: what is wrong with them is said where the job is
 * checked. */
#include "verify/copies.h"

#include "base/hub.h"
#include "data/corpus/files.h"
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)
enum { WHOLE = 64, PARTS = 64 }; /* MiB; of a larger file, parts of 1 MiB */

static void add_hash(const void *data, size_t n, ndp_str *out) {
    char digits[NDP_HASH_DIGITS + 1];
    ndp_str_addf(out, "%s ", ndp_hash_text(ndp_hash_of(data, n), digits));
}

static void add_file(const char *path, ndp_str *out) {
    ndp_mapped file;
    if (ndp_file_map_as(NDP_FILE_DATA, path, &file) != NDP_OK)
        return;
    ndp_str_addf(out, "%zu ", file.size);
    if (file.size <= WHOLE * MIB)
        add_hash(file.data, file.size, out);
    else
        for (size_t i = 0; i < PARTS; i++)
            add_hash(file.data + (file.size - MIB) / (PARTS - 1) * i, MIB, out);
    ndp_file_unmap(&file);
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void add_files(ndp_strings *paths, bool sort, ndp_str *out) {
    if (sort && paths->n)
        qsort(paths->items, (size_t)paths->n, sizeof *paths->items, by_text);
    for (int i = 0; i < paths->n; i++)
        add_file(paths->items[i], out);
    ndp_strings_release(paths);
}

static void add_data(const ndp_strings *names, ndp_str *out) {
    ndp_file_list list = {0};
    ndp_slice slice;
    for (int i = 0; i < names->n; i++)
        (void)!ndp_file_list_add(&list, names->items[i], NULL, &slice);
    add_files(&list.paths, false, out);
}

static ndp_status take_model_file(void *user, const char *folder, const char *name) {
    char path[NDP_PATH];
    if (!ndp_ends_with(name, ".safetensors") && !ndp_ends_with(name, ".json"))
        return NDP_OK;
    NDP_TRY(ndp_path_join(path, folder, name));
    return ndp_strings_add(user, path);
}

static void add_model(const ndp_config *c, ndp_str *out) {
    char folder[NDP_PATH];
    ndp_strings files = {0};
    if (c->model.config)
        (void)!ndp_strings_add(&files, c->model.config);
    if (c->model.path && ndp_hub_find(NDP_HUB_MODEL, c->model.path, folder) == NDP_OK)
        (void)!ndp_folder_visit(folder, take_model_file, &files);
    add_files(&files, true, out);
}

bool ndp_job_copy(const ndp_config *c, char out[NDP_HASH_DIGITS + 1]) {
    ndp_str all = {0};
    add_data(&c->data.files, &all);
    add_data(&c->data.validation_files, &all);
    add_model(c, &all);
    ndp_error_set(NDP_OK, "");
    bool any = all.length && !all.failed;
    out[0] = '\0';
    if (any)
        (void)ndp_hash_text(ndp_hash_of(all.data, all.length), out);
    ndp_str_release(&all);
    return any;
}
