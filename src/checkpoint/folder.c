/* A folder of weights for reading: one file, or the shards of an index, as one list of tensors sorted by name. Every
 * file and the index are checked completely when the folder is opened. Called by the trainer, inference and
 * checkpoints. */
#include "checkpoint/packed_forms.h"

#include "base/json.h"
#include "base/text.h"
#include "checkpoint/hash.h"
#include <stdio.h>
#include <stdlib.h>

/* ---- opening ---- */

static ndp_status open_file(ndp_weights *w, const char *name, ndp_safetensors **out) {
    NDP_TRY(ndp_array_reserve(&w->files, &w->file_capacity, w->n_files + 1, sizeof *w->files));
    const char *path = ndp_arena_format(&w->arena, "%s/%s", w->folder, name);
    NDP_CHECK_MEMORY(path, "to open %s", name);
    NDP_TRY(ndp_safetensors_open(path, out));
    w->files[w->n_files++] = *out;
    return NDP_OK;
}

static ndp_status add_tensor(ndp_weights *w, const ndp_safetensors *file, const ndp_tensor_entry *entry) {
    NDP_TRY(ndp_array_reserve(&w->tensors, &w->capacity, w->n + 1, sizeof *w->tensors));
    w->tensors[w->n++] = (ndp_named_tensor){entry, file, NULL};
    return NDP_OK;
}

static int compare_named(const void *a, const void *b) {
    return strcmp(((const ndp_named_tensor *)a)->entry->spec.name, ((const ndp_named_tensor *)b)->entry->spec.name);
}

/* The shard of that name; opens it at first use. */
static ndp_status find_shard(ndp_weights *w, const char *index, const char *name, const char *tensor,
                             ndp_safetensors **out) {
    if (!name[0] || name[0] == '.' || strchr(name, '/'))
        return NDP_FAIL(NDP_EFORMAT, "%s: tensor %s: \"%s\" is not the name of a file next to the index", index, tensor,
                        name);
    for (int64_t i = w->n_files - 1; i >= 0; i--)
        if (strcmp(strrchr(ndp_safetensors_path(w->files[i]), '/') + 1, name) == 0) {
            *out = w->files[i];
            return NDP_OK;
        }
    char path[NDP_PATH];
    NDP_TRY(ndp_path_join(path, w->folder, name));
    if (!ndp_path_exists(path))
        return NDP_FAIL(NDP_EIO, "%s: tensor %s is in \"%s\", which is missing; download or copy it too", index, tensor,
                        name);
    return open_file(w, name, out);
}

/* A tensor that the index puts in one shard must be in no other. transformers would take it from the last shard. */
static ndp_status check_once(const ndp_weights *w, const char *index, const char *tensor, const char *shard) {
    int found = 0;
    for (int64_t f = 0; f < w->n_files; f++)
        found += ndp_safetensors_find(w->files[f], tensor) != NULL;
    return found == 1 ? NDP_OK
                      : NDP_FAIL(NDP_EFORMAT,
                                 "%s: tensor %s is in %d shards, and it is unclear which one counts (the index says "
                                 "%s); remove it from the others",
                                 index, tensor, found, shard);
}

/* The tensors of the index, each in its shard, and then those of shards that the index does not list: they exist too,
 * and nothing is dropped silently. */
static ndp_status read_map(ndp_weights *w, const char *index, struct json_object *map) {
    json_object_object_foreach(map, name, value) {
        const char *file = ndp_json_text(value);
        if (!file)
            return NDP_FAIL(NDP_EFORMAT, "%s: tensor %s: its shard is not the name of a file", index, name);
        ndp_safetensors *shard = NULL;
        NDP_TRY(find_shard(w, index, file, name, &shard));
        const ndp_tensor_entry *entry = ndp_safetensors_find(shard, name);
        if (!entry)
            return NDP_FAIL(NDP_EFORMAT, "%s: tensor %s should be in %s, but is not there", index, name,
                            ndp_safetensors_path(shard));
        NDP_TRY(add_tensor(w, shard, entry));
    }
    for (int64_t f = 0; f < w->n_files; f++)
        for (int i = 0; i < ndp_safetensors_count(w->files[f]); i++) {
            const ndp_tensor_entry *entry = ndp_safetensors_at(w->files[f], i);
            struct json_object *shard = NULL;
            if (json_object_object_get_ex(map, entry->spec.name, &shard))
                NDP_TRY(check_once(w, index, entry->spec.name, json_object_get_string(shard)));
            else
                NDP_TRY(add_tensor(w, w->files[f], entry));
        }
    return NDP_OK;
}

static ndp_status open_index(ndp_weights *w, const char *path) {
    struct json_object *index = NULL, *map = NULL;
    char *text;
    size_t size;
    NDP_TRY(ndp_file_read_as(NDP_FILE_INDEX, path, &text, &size));
    ndp_status st = ndp_json_parse(text, size, path, &index);
    free(text);
    NDP_TRY(st);
    if (!json_object_is_type(index, json_type_object) || !json_object_object_get_ex(index, "weight_map", &map) ||
        !json_object_is_type(map, json_type_object))
        st = NDP_FAIL(NDP_EFORMAT, "%s: there is no object \"weight_map\" (which tensor is in which shard)", path);
    else
        st = read_map(w, path, map);
    json_object_put(index);
    return st;
}

/* All tensors of a file. */
static ndp_status add_file(ndp_weights *w, const char *name) {
    ndp_safetensors *file = NULL;
    NDP_TRY(open_file(w, name, &file));
    for (int i = 0; i < ndp_safetensors_count(file); i++)
        NDP_TRY(add_tensor(w, file, ndp_safetensors_at(file, i)));
    return NDP_OK;
}

static ndp_status open_single(ndp_weights *w, const char *stem) {
    const char *name = ndp_arena_format(&w->arena, "%s.safetensors", stem);
    NDP_CHECK_MEMORY(name, "to open %s", w->folder);
    return add_file(w, name);
}

/* Whether there is a file NAME + ENDING. */
static bool holds(const char *folder, const char *name, const char *ending) {
    char *path = ndp_format("%s/%s%s", folder, name, ending);
    bool there = path && ndp_path_exists(path);
    free(path);
    return there;
}

bool ndp_weights_exist(const char *folder) {
    return holds(folder, "model", ".safetensors") || holds(folder, "model", ".safetensors.index.json");
}

/* Finds out whether it is a single file, or shards with an index. */
static ndp_status find_files(const char *folder, const char *stem, bool *single) {
    if (!ndp_path_is_folder(folder))
        return NDP_FAIL(NDP_EIO, "'%s' is not a folder (%s); expected one that holds %s.safetensors", folder,
                        ndp_path_why_no_folder(folder), stem);
    *single = holds(folder, stem, ".safetensors"); /* takes precedence, as in transformers */
    if (*single || holds(folder, stem, ".safetensors.index.json"))
        return NDP_OK;
    bool pickled = holds(folder, "pytorch_model", ".bin") || holds(folder, "pytorch_model", ".bin.index.json");
    return NDP_FAIL(NDP_EIO, "'%s' holds neither %s.safetensors nor %s.safetensors.index.json%s", folder, stem, stem,
                    pickled ? "; pytorch_model.bin is not read: transformers saves it as safetensors with "
                              "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(FOLDER)"
                            : "; download or copy the weights as well");
}

static ndp_status open_files(ndp_weights *w, const char *folder, const char *stem) {
    bool single;
    NDP_TRY(find_files(folder, stem, &single));
    w->folder = ndp_arena_strdup(&w->arena, folder);
    const char *index = ndp_arena_format(&w->arena, "%s/%s.safetensors.index.json", folder, stem);
    NDP_CHECK_MEMORY(w->folder && index, "to open %s", folder);
    return single ? open_single(w, stem) : open_index(w, index);
}

typedef struct matching {
    ndp_weights *weights;
    const char *stem;
} matching;

static ndp_status add_matching(void *user, const char *folder, const char *name) {
    const matching *m = user;
    (void)folder;
    bool wanted = strncmp(name, m->stem, strlen(m->stem)) == 0 && ndp_ends_with(name, ".safetensors");
    return wanted ? add_file(m->weights, name) : NDP_OK;
}

static ndp_status open_matching(ndp_weights *w, const char *folder, const char *stem) {
    if (!ndp_path_is_folder(folder))
        return NDP_FAIL(NDP_EIO, "'%s' is not a folder (%s)", folder, ndp_path_why_no_folder(folder));
    w->folder = ndp_arena_strdup(&w->arena, folder);
    NDP_CHECK_MEMORY(w->folder, "to open %s", folder);
    NDP_TRY(ndp_folder_visit(folder, add_matching, &(matching){w, stem}));
    return w->n_files ? NDP_OK : NDP_FAIL(NDP_EIO, "'%s' holds no %s.safetensors", folder, stem);
}

ndp_status ndp_weights_sort(ndp_weights *w) {
    if (w->n)
        qsort(w->tensors, (size_t)w->n, sizeof *w->tensors, compare_named);
    for (int64_t i = 1; i < w->n; i++)
        if (compare_named(&w->tensors[i - 1], &w->tensors[i]) == 0)
            return NDP_FAIL(NDP_EFORMAT, "'%s': tensor %s is in two files, and it is unclear which one counts",
                            w->folder, w->tensors[i].entry->spec.name);
    return NDP_OK;
}

typedef ndp_status weights_opener(ndp_weights *w, const char *folder, const char *stem);

static ndp_status open_sorted(const char *folder, const char *stem, weights_opener *open, ndp_weights **out) {
    ndp_weights *w = calloc(1, sizeof *w);
    NDP_CHECK_MEMORY(w, "to open %s", folder);
    ndp_status st = open(w, folder, stem);
    if (st == NDP_OK)
        st = ndp_weights_sort(w);
    if (st == NDP_OK)
        *out = w;
    else
        ndp_weights_close(w);
    return st;
}

ndp_status ndp_weights_open_stem(const char *folder, const char *stem, ndp_weights **out) {
    return open_sorted(folder, stem, open_files, out);
}

ndp_status ndp_weights_open_all(const char *folder, const char *stem, ndp_weights **out) {
    return open_sorted(folder, stem, open_matching, out);
}

ndp_status ndp_weights_open(const char *folder, ndp_weights **out) {
    return ndp_weights_open_stem(folder, "model", out);
}

ndp_status ndp_weights_check_files(const char *folder) {
    ndp_weights *w = NULL;
    NDP_TRY(ndp_weights_open(folder, &w));
    ndp_weights_close(w);
    return NDP_OK;
}

void ndp_weights_close(ndp_weights *w) {
    if (!w)
        return;
    for (int64_t i = 0; i < w->n_files; i++)
        ndp_safetensors_close(w->files[i]);
    free(w->files);
    free(w->tensors);
    ndp_arena_release(&w->arena);
    free(w);
}

const ndp_named_tensor *ndp_weights_named(const ndp_weights *w, const char *name) {
    ndp_tensor_entry wanted = {.spec.name = name};
    ndp_named_tensor key = {&wanted, NULL, NULL};
    return w->n ? bsearch(&key, w->tensors, (size_t)w->n, sizeof *w->tensors, compare_named) : NULL;
}

/* ---- access ---- */

const char *ndp_weights_folder(const ndp_weights *w) { return w->folder; }
int ndp_weights_count(const ndp_weights *w) { return (int)w->n; }
const ndp_tensor_entry *ndp_weights_at(const ndp_weights *w, int i) { return w->tensors[i].entry; }

const ndp_tensor_entry *ndp_weights_find(const ndp_weights *w, const char *name) {
    const ndp_named_tensor *t = ndp_weights_named(w, name);
    return t ? t->entry : NULL;
}

ndp_status ndp_weights_read(const ndp_weights *w, const char *name, int64_t first, int64_t count, void *dest,
                            ndp_dtype type, bool finite) {
    const ndp_named_tensor *t = ndp_weights_named(w, name);
    if (!t)
        return NDP_FAIL(NDP_EFORMAT, "'%s' holds no tensor %s", w->folder, name);
    return t->packed ? ndp_dequantised_read(w, t, first, count, dest, type, finite)
                     : ndp_safetensors_read(t->file, t->entry, first, count, dest, type, finite);
}

void ndp_weights_forget(const ndp_weights *w, const char *name, int64_t first, int64_t count) {
    const ndp_named_tensor *t = ndp_weights_named(w, name);
    if (t && !t->packed) /* rows of codes lie everywhere: they stay */
        ndp_safetensors_forget(t->file, t->entry, first, count);
}

ndp_status ndp_weights_hash(const ndp_weights *w, ndp_hash128 *out) {
    ndp_str text = {0};
    char shape[256], digits[NDP_HASH_DIGITS + 1];
    for (int i = 0; i < ndp_weights_count(w); i++) {
        const ndp_dequantised *packed = w->tensors[i].packed;
        const ndp_named_tensor *of = packed ? packed->parts : &w->tensors[i];
        for (int k = 0; k < (packed ? packed->n : 1); k++)
            ndp_str_addf(&text, "%s %s %s %s\n", of[k].entry->spec.name, of[k].entry->type_name,
                         ndp_shape_text(&of[k].entry->spec, shape, sizeof shape),
                         ndp_hash_text(ndp_safetensors_hash(of[k].file, of[k].entry), digits));
    }
    ndp_status st = text.failed
                        ? NDP_FAIL(NDP_ENOMEM, "not enough memory for the hash of %d tensors", ndp_weights_count(w))
                        : ndp_weights_intact(w);
    *out = ndp_hash_of(text.data ? text.data : "", text.length);
    ndp_str_release(&text);
    return st;
}

ndp_status ndp_weights_hash_folder(const char *folder, ndp_hash128 *out) {
    ndp_weights *w = NULL;
    NDP_TRY(ndp_weights_open(folder, &w));
    ndp_status st = ndp_weights_hash(w, out);
    ndp_weights_close(w);
    return st;
}

ndp_status ndp_weights_intact(const ndp_weights *w) {
    for (int64_t i = 0; i < w->n_files; i++)
        NDP_TRY(ndp_safetensors_check(w->files[i]));
    return NDP_OK;
}

ndp_status ndp_weights_same(const ndp_weights *w, const ndp_tensor_entry *a, const ndp_tensor_entry *b, bool *same) {
    enum { BLOCK = 4096 };
    double x[BLOCK], y[BLOCK];
    bool equal = ndp_tensor_same_shape(&a->spec, &b->spec);
    for (int64_t at = 0; at < a->elements && equal; at += BLOCK) {
        int64_t n = a->elements - at < BLOCK ? a->elements - at : BLOCK;
        NDP_TRY(ndp_weights_read(w, a->spec.name, at, n, x, NDP_F64, false));
        NDP_TRY(ndp_weights_read(w, b->spec.name, at, n, y, NDP_F64, false));
        int64_t differ = 0;
        for (int64_t i = 0; i < n; i++)
            differ += !(x[i] == y[i]); /* also NaN */
        equal = differ == 0;
    }
    *same = equal;
    return NDP_OK;
}
