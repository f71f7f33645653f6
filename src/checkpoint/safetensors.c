/* Reading a safetensors file, which may be hostile. Invariant: once a file is open, every tensor lies within it, has
 * the size of its shape, and shares no byte with another one. Called by folder.c for weights and by whole.c to name
 * the damage. */
#include "checkpoint/safetensors.h"

#include "base/arena.h"
#include "base/json.h"
#include "base/text.h"
#include "checkpoint/hash.h"
#include "checkpoint/safetensors_types.h"

#include <stdlib.h>

static const size_t HEADER_MOST = 100u << 20; /* the limit of the format's own library */

struct ndp_safetensors {
    ndp_mapped map; /* empty for a file in memory */
    const unsigned char *data;
    size_t size;    /* of the whole file */
    size_t payload; /* offset of the first tensor */
    const char *path;
    ndp_tensor_entry *entries;
    int *by_name; /* indices of entries, sorted by name */
    int n;
    struct json_object *header; /* owns names and metadata */
    ndp_arena arena;
};

/* ---- the header ---- */

/* Sets payload, and returns the header's text. */
static ndp_status check_frame(ndp_safetensors *f, const char **text, size_t *length) {
    if (f->size < 8)
        return NDP_FAIL(NDP_EFORMAT, "%s: %zu bytes is too short for a safetensors file", f->path, f->size);
    if (f->size >= 7 && memcmp(f->data, "version", 7) == 0)
        return NDP_FAIL(NDP_EFORMAT, "%s: this is a git-lfs pointer, not the weights; run 'git lfs pull' in its folder",
                        f->path);
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | f->data[i];
    if (n > HEADER_MOST)
        return NDP_FAIL(NDP_EFORMAT, "%s: a header of %llu bytes (at most %zu are allowed): not a safetensors file",
                        f->path, (unsigned long long)n, HEADER_MOST);
    if (n > f->size - 8)
        return NDP_FAIL(
            NDP_EFORMAT,
            "%s: the header should have %llu bytes, but the file holds only %zu after its first 8: it is cut "
            "off; download or copy it again",
            f->path, (unsigned long long)n, f->size - 8);
    if (n == 0 || f->data[8] != '{')
        return NDP_FAIL(NDP_EFORMAT, "%s: the header does not begin with '{': not a safetensors file", f->path);
    f->payload = 8 + (size_t)n;
    *text = (const char *)f->data + 8;
    *length = (size_t)n;
    return NDP_OK;
}

static ndp_status check_metadata(const ndp_safetensors *f, struct json_object *metadata) {
    if (!json_object_is_type(metadata, json_type_object))
        return NDP_FAIL(NDP_EFORMAT, "%s: __metadata__ is not an object", f->path);
    json_object_object_foreach(metadata, key, value) {
        if (!json_object_is_type(value, json_type_string))
            return NDP_FAIL(NDP_EFORMAT, "%s: __metadata__ \"%s\" is not a string", f->path, key);
    }
    return NDP_OK;
}

static const ndp_safetensors_type *find_type(const char *name) {
    for (int i = 0; i < NDP_COUNT(ndp_safetensors_types); i++)
        if (strcmp(ndp_safetensors_types[i].name, name) == 0)
            return &ndp_safetensors_types[i];
    return NULL;
}

/* Reads non-negative integers from an array of at most `most`. */
static ndp_status read_numbers(const ndp_safetensors *f, const char *name, struct json_object *o, const char *key,
                               int most, int64_t *out, int *n) {
    struct json_object *array = NULL;
    if (!json_object_object_get_ex(o, key, &array) || !json_object_is_type(array, json_type_array))
        return NDP_FAIL(NDP_EFORMAT, "%s: tensor %s: %s is %s, expected an array", f->path, name, key,
                        array ? "not an array" : "missing");
    size_t length = json_object_array_length(array);
    if (length > (size_t)most)
        return NDP_FAIL(NDP_EFORMAT, "%s: tensor %s: %s has %zu numbers, at most %d are allowed", f->path, name, key,
                        length, most);
    for (size_t i = 0; i < length; i++) {
        struct json_object *x = json_object_array_get_idx(array, i);
        if (!json_object_is_type(x, json_type_int) || json_object_get_int64(x) < 0)
            return NDP_FAIL(NDP_EFORMAT, "%s: tensor %s: %s[%zu] is %.40s, expected a whole number from 0", f->path,
                            name, key, i, x ? json_object_to_json_string(x) : "null");
        out[i] = json_object_get_int64(x); /* saturates beyond int64_t, and no file is that long */
    }
    *n = (int)length;
    return NDP_OK;
}

static ndp_status read_type(const ndp_safetensors *f, const char *name, struct json_object *o,
                            const ndp_safetensors_type **out) {
    struct json_object *type = NULL;
    if (!json_object_object_get_ex(o, "dtype", &type) || !json_object_is_type(type, json_type_string))
        return NDP_FAIL(NDP_EFORMAT, "%s: tensor %s: dtype is %s", f->path, name, type ? "not a string" : "missing");
    const char *text = ndp_json_text(type);
    *out = text ? find_type(text) : NULL;
    if (!*out)
        return NDP_FAIL(NDP_EFORMAT, "%s: tensor %s: unknown dtype %.40s", f->path, name,
                        json_object_to_json_string_ext(type, JSON_C_TO_STRING_PLAIN));
    return NDP_OK;
}

/* Checks one tensor by itself: its size agrees with its shape, and it lies within the file. */
static ndp_status read_entry(const ndp_safetensors *f, const char *name, struct json_object *o, ndp_tensor_entry *e) {
    if (!json_object_is_type(o, json_type_object))
        return NDP_FAIL(NDP_EFORMAT, "%s: tensor %s: its description is not an object", f->path, name);
    const ndp_safetensors_type *type = NULL;
    int64_t range[2], bytes;
    int n;
    char shape[128];
    e->spec.name = name;
    NDP_TRY(read_type(f, name, o, &type));
    NDP_TRY(read_numbers(f, name, o, "shape", NDP_TENSOR_DIMS, e->spec.shape, &e->spec.ndim));
    NDP_TRY(read_numbers(f, name, o, "data_offsets", 2, range, &n));
    if (n != 2 || range[0] > range[1])
        return NDP_FAIL(NDP_EFORMAT, "%s: tensor %s: data_offsets are not [begin, end] with begin <= end", f->path,
                        name);
    ndp_shape_text(&e->spec, shape, sizeof shape);
    e->elements = ndp_tensor_elements(&e->spec);
    if (e->elements < 0 || __builtin_mul_overflow(e->elements, (int64_t)type->size, &bytes))
        return NDP_FAIL(NDP_EFORMAT, "%s: tensor %s: the product of its shape %s overflows", f->path, name, shape);
    if (range[1] - range[0] != bytes)
        return NDP_FAIL(NDP_EFORMAT,
                        "%s: tensor %s: %s %s takes %lld bytes, but its data_offsets [%lld, %lld] hold %lld", f->path,
                        name, type->name, shape, (long long)bytes, (long long)range[0], (long long)range[1],
                        (long long)(range[1] - range[0]));
    size_t there = f->size - f->payload;
    if ((uint64_t)range[1] > there)
        return NDP_FAIL(
            NDP_EFORMAT,
            "%s: tensor %s lies at [%lld, %lld) of the data, but the file holds only %zu bytes of it: it is "
            "cut off; download or copy it again",
            f->path, name, (long long)range[0], (long long)range[1], there);
    e->spec.dtype = type->dtype;
    e->type_name = type->name;
    e->offset = f->payload + (size_t)range[0];
    e->bytes = (size_t)bytes;
    return NDP_OK;
}

/* ---- the tensors together ---- */

static int compare_offset(const void *a, const void *b, void *file) {
    const ndp_tensor_entry *x = &((ndp_safetensors *)file)->entries[*(const int *)a];
    const ndp_tensor_entry *y = &((ndp_safetensors *)file)->entries[*(const int *)b];
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int compare_name(const void *a, const void *b, void *file) {
    const ndp_tensor_entry *entries = ((ndp_safetensors *)file)->entries;
    return strcmp(entries[*(const int *)a].spec.name, entries[*(const int *)b].spec.name);
}

/* Checks that the tensors tile the data: each starts where the previous one ends. */
static ndp_status check_tiling(ndp_safetensors *f, int *order) {
    size_t end = f->payload;
    const char *before = "the start";
    qsort_r(order, (size_t)f->n, sizeof *order, compare_offset, f);
    for (int i = 0; i < f->n; i++) {
        const ndp_tensor_entry *e = &f->entries[order[i]];
        if (e->offset < end)
            return NDP_FAIL(NDP_EFORMAT,
                            "%s: tensors %s and %s overlap by %zu bytes: it is damaged; download or copy it again",
                            f->path, before, e->spec.name, end - e->offset < e->bytes ? end - e->offset : e->bytes);
        if (e->offset > end)
            return NDP_FAIL(
                NDP_EFORMAT,
                "%s: a hole of %zu bytes between %s and tensor %s: it is damaged; download or copy it again", f->path,
                e->offset - end, before, e->spec.name);
        end = e->offset + e->bytes;
        before = e->spec.name;
    }
    if (end < f->size)
        return NDP_FAIL(NDP_EFORMAT,
                        "%s: %zu bytes after the last tensor belong to none: it is damaged; download or copy it again",
                        f->path, f->size - end);
    return NDP_OK;
}

static ndp_status read_entries(ndp_safetensors *f) {
    struct json_object *metadata = NULL;
    if (json_object_object_get_ex(f->header, "__metadata__", &metadata))
        NDP_TRY(check_metadata(f, metadata));
    size_t room = (size_t)json_object_object_length(f->header) + 1;
    f->entries = ndp_arena_alloc(&f->arena, room * sizeof *f->entries);
    f->by_name = ndp_arena_alloc(&f->arena, room * sizeof *f->by_name);
    if (!f->entries || !f->by_name)
        return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for a table of %zu tensors", f->path, room);
    json_object_object_foreach(f->header, name, value) {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        NDP_TRY(read_entry(f, name, value, &f->entries[f->n]));
        f->by_name[f->n] = f->n;
        f->n++;
    }
    NDP_TRY(check_tiling(f, f->by_name));
    qsort_r(f->by_name, (size_t)f->n, sizeof *f->by_name, compare_name, f);
    return NDP_OK;
}

static ndp_status read_file(ndp_safetensors *f, const char *path) {
    const char *text = NULL;
    size_t length = 0;
    f->path = ndp_arena_strdup(&f->arena, path);
    if (!f->path)
        return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory to open it", path);
    NDP_TRY(check_frame(f, &text, &length));
    while (length && text[length - 1] == ' ') /* padding */
        length--;
    NDP_TRY(ndp_json_parse(text, length, f->path, &f->header));
    return read_entries(f);
}

/* Takes ownership of `map`, also on failure. */
static ndp_status open_bytes(ndp_mapped map, const void *data, size_t size, const char *what, ndp_safetensors **out) {
    ndp_safetensors *f = calloc(1, sizeof *f);
    if (!f) {
        ndp_file_unmap(&map);
        return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory to open it", what);
    }
    f->map = map;
    f->data = data;
    f->size = size;
    ndp_status st;
    NDP_TRY_GOTO(read_file(f, what), close);
    *out = f;
    return NDP_OK;
close:
    ndp_safetensors_close(f);
    return st;
}

ndp_status ndp_safetensors_open(const char *path, ndp_safetensors **out) {
    ndp_mapped map = {0};
    NDP_TRY(ndp_file_map(path, &map));
    return open_bytes(map, map.data, map.size, path, out);
}

ndp_status ndp_safetensors_open_memory(const void *data, size_t size, const char *what, ndp_safetensors **out) {
    return open_bytes((ndp_mapped){0}, data, size, what, out);
}

void ndp_safetensors_close(ndp_safetensors *f) {
    if (!f)
        return;
    json_object_put(f->header);
    ndp_file_unmap(&f->map);
    ndp_arena_release(&f->arena);
    free(f);
}

/* ---- access ---- */

ndp_status ndp_safetensors_check(const ndp_safetensors *f) { return ndp_file_check(&f->map); }

const char *ndp_safetensors_path(const ndp_safetensors *f) { return f->path; }
int ndp_safetensors_count(const ndp_safetensors *f) { return f->n; }
const ndp_tensor_entry *ndp_safetensors_at(const ndp_safetensors *f, int i) { return &f->entries[i]; }

const ndp_tensor_entry *ndp_safetensors_find(const ndp_safetensors *f, const char *name) {
    int low = 0, high = f->n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        int order = strcmp(f->entries[f->by_name[middle]].spec.name, name);
        if (order == 0)
            return &f->entries[f->by_name[middle]];
        *(order < 0 ? &low : &high) = order < 0 ? middle + 1 : middle;
    }
    return NULL;
}

const char *ndp_safetensors_metadata(const ndp_safetensors *f, const char *key) {
    struct json_object *metadata = NULL, *value = NULL;
    if (!json_object_object_get_ex(f->header, "__metadata__", &metadata) ||
        !json_object_object_get_ex(metadata, key, &value))
        return NULL;
    return json_object_get_string(value);
}

/* A float is NaN or infinite if all bits of its exponent are set. The source may have any alignment. */
#define ANY_FULL(type)                                                                                                 \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        type bits;                                                                                                     \
        memcpy(&bits, p + i * (int64_t)sizeof bits, sizeof bits);                                                      \
        any |= (type)(bits & (type)mask) == (type)mask;                                                                \
    }

/* No early exit, so that the loops are vectorized. */
static bool any_full(const unsigned char *p, size_t size, uint64_t mask, int64_t n) {
    int any = 0;
    if (size == 2)
        ANY_FULL(uint16_t)
    else if (size == 4)
        ANY_FULL(uint32_t)
    else
        ANY_FULL(uint64_t)
    return any;
}

/* Index of the first element that is NaN or infinite, or -1. */
static int64_t first_not_finite(const unsigned char *p, ndp_dtype type, int64_t n) {
    static const uint64_t exponent[NDP_DTYPES] = {
        [NDP_F32] = 0x7f800000, [NDP_BF16] = 0x7f80, [NDP_F16] = 0x7c00, [NDP_F64] = 0x7ff0000000000000};
    enum { BLOCK = 4096 };
    uint64_t mask = exponent[type];
    int64_t size = (int64_t)ndp_dtype_size(type);
    for (int64_t first = 0; mask && first < n; first += BLOCK) {
        int64_t end = n - first < BLOCK ? n : first + BLOCK;
        if (!any_full(p + first * size, (size_t)size, mask, end - first))
            continue;
        while (!any_full(p + first * size, (size_t)size, mask, 1))
            first++;
        return first;
    }
    return -1;
}

/* ndp_convert for any alignment: the format does not align the tensors of a file. */
static void convert_unaligned(const unsigned char *from, ndp_dtype from_type, void *to, ndp_dtype to_type, int64_t n) {
    size_t size = ndp_dtype_size(from_type);
    if (from_type == to_type) {
        memcpy(to, from, (size_t)n * size);
    } else if ((uintptr_t)from % size == 0) {
        ndp_convert(from, from_type, to, to_type, n);
    } else {
        enum { BLOCK = 1024 };
        double block[BLOCK];
        for (int64_t first = 0; first < n; first += BLOCK) {
            int64_t count = n - first < BLOCK ? n - first : BLOCK;
            memcpy(block, from + (size_t)first * size, (size_t)count * size);
            ndp_convert(block, from_type, (char *)to + (size_t)first * ndp_dtype_size(to_type), to_type, count);
        }
    }
}

ndp_status ndp_safetensors_read(const ndp_safetensors *f, const ndp_tensor_entry *t, int64_t first, int64_t count,
                                void *dest, ndp_dtype type, bool finite) {
    if (first < 0 || count < 0 || first > t->elements || count > t->elements - first)
        return NDP_FAIL(NDP_EBUG, "%s: tensor %s: elements [%lld, +%lld) requested, it has %lld", f->path, t->spec.name,
                        (long long)first, (long long)count, (long long)t->elements);
    if (!ndp_dtype_converts(t->spec.dtype, type))
        return NDP_FAIL(NDP_ENOTSUP, "%s: tensor %s is stored as %s, which cannot be read as %s; convert the file",
                        f->path, t->spec.name, t->type_name, ndp_dtype_name(type));
    if (count == 0)
        return NDP_OK;
    const unsigned char *from = f->data + t->offset + (size_t)first * ndp_dtype_size(t->spec.dtype);
    int64_t bad = finite ? first_not_finite(from, t->spec.dtype, count) : -1;
    if (bad >= 0)
        return NDP_FAIL(NDP_EFORMAT,
                        "%s: tensor %s holds a NaN or an infinity at element %lld: the file is damaged (copy "
                        "it again), or its training diverged (take weights from before that)",
                        f->path, t->spec.name, (long long)(first + bad));
    convert_unaligned(from, t->spec.dtype, dest, type, count);
    return NDP_OK;
}

const unsigned char *ndp_safetensors_data(const ndp_safetensors *f, const ndp_tensor_entry *t) {
    return f->data + t->offset;
}

ndp_hash128 ndp_safetensors_hash(const ndp_safetensors *f, const ndp_tensor_entry *t) {
    ndp_hash128 h = ndp_hash_of(f->data + t->offset, t->bytes);
    ndp_file_forget(&f->map, (size_t)(f->data - f->map.data) + t->offset, t->bytes);
    return h;
}

void ndp_safetensors_forget(const ndp_safetensors *f, const ndp_tensor_entry *t, int64_t first, int64_t count) {
    size_t size = ndp_dtype_size(t->spec.dtype);
    ndp_file_forget(&f->map, (size_t)(f->data - f->map.data) + t->offset + (size_t)first * size, (size_t)count * size);
}
