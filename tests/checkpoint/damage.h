/* Damage to checkpoints, by a seed: what a disk, a copy or a mistake may do to one. Each kind knows which file, and
 * which tensor, has to be named. */
#ifndef TESTS_CHECKPOINT_DAMAGE_H
#define TESTS_CHECKPOINT_DAMAGE_H

#include "checkpoint/ranks.h"
#include "checkpoint/steps.h"

#include <dirent.h>

/* ---- chance ---- */

/* splitmix64 */
static inline uint64_t draw(uint64_t *seed) {
    uint64_t z = *seed += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline int64_t below(uint64_t *seed, int64_t n) { return (int64_t)(draw(seed) % (uint64_t)n); }

/* ---- files ---- */

/* A path and its ending, in a buffer of the caller. */
static inline const char *ending(const char *path, const char *end, char out[512]) {
    if (snprintf(out, 512, "%s%s", path, end) >= 512)
        fail_msg("%s%s is too long", path, end);
    return out;
}

typedef struct bytes {
    char *data;
    size_t size;
} bytes;

static inline bytes read_bytes(const char *path) {
    bytes b = {0};
    CHECK_OK(ndp_file_read(path, &b.data, &b.size));
    return b;
}

static inline void copy_one(const char *from, const char *to) {
    bytes b = read_bytes(from);
    put_file(to, b.data, b.size);
    free(b.data);
}

static inline void copy_folder(const char *from, const char *to) {
    char a[512], b[512];
    struct dirent *e;
    DIR *d = opendir(from);
    if (!d || mkdir(to, 0777))
        fail_msg("cannot copy %s to %s", from, to);
    while ((e = readdir(d)))
        if (e->d_name[0] != '.')
            copy_one(in(from, e->d_name, a), in(to, e->d_name, b));
    closedir(d);
}

/* The name of a file of a checkpoint whose name ends so: any of them. */
static inline void pick_file(const char *step, const char *end, uint64_t *seed, char name[256]) {
    int n = 0;
    struct dirent *e;
    DIR *d = opendir(step);
    if (!d)
        fail_msg("cannot list %s", step);
    while ((e = readdir(d))) {
        size_t length = strlen(e->d_name);
        if (e->d_name[0] != '.' && length >= strlen(end) && strcmp(e->d_name + length - strlen(end), end) == 0 &&
            below(seed, ++n) == 0)
            snprintf(name, 256, "%s", e->d_name);
    }
    closedir(d);
    if (n == 0)
        fail_msg("%s holds no *%s", step, end);
}

/* ---- damage ---- */

typedef enum damage_kind {
    FLIP_DATA,
    FLIP_HEADER,
    FLIP_MANIFEST,
    FLIP_INDEX,
    ZERO_PAGE,
    SCRIBBLE, /* a sector of other bytes */
    TRUNCATE,
    EXTEND,
    SWAP,
    OLDER_FILE,
    LINK_TO_OLDER,
    LINK_TO_ITSELF, /* moved, and linked */
    DELETE,
    FOLDER_INSTEAD,
    STRAY_FILE,
    LOSE_MEMBER,        /* of the manifest */
    LOSE_SEALED_MEMBER, /* with the hash that it then has */
    VERSION_1,
    DAMAGES
} damage_kind;

static const char *const damage_names[] = {"bits of tensor data",
                                           "bits of a header",
                                           "bits of the manifest",
                                           "bits of an index",
                                           "a zeroed page",
                                           "a sector of noise",
                                           "truncated",
                                           "extended",
                                           "two files swapped",
                                           "a file of an older one",
                                           "a link to an older",
                                           "a link to itself",
                                           "deleted",
                                           "a folder instead",
                                           "a file too many",
                                           "a member lost",
                                           "a member lost, sealed",
                                           "version 1"};

/* What has to be named. */
typedef struct expected {
    char file[256], tensor[256]; /* tensor "": none */
} expected;

/* The tensor that holds byte `at` of an intact file; "" for its header. */
static inline void tensor_at(const char *path, size_t at, char name[256]) {
    ndp_safetensors *f = NULL;
    CHECK_OK(ndp_safetensors_open(path, &f));
    for (int i = 0; i < ndp_safetensors_count(f); i++) {
        const ndp_tensor_entry *e = ndp_safetensors_at(f, i);
        if (at >= e->offset && at < e->offset + e->bytes)
            snprintf(name, 256, "%s", e->spec.name);
    }
    ndp_safetensors_close(f);
}

static inline size_t payload_of(const bytes *b) {
    size_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | (unsigned char)b->data[i];
    return 8 + n;
}

/* Flips 1 to 3 bits of one byte among [from, to). Returns where. */
static inline size_t flip(const char *path, size_t from, size_t to, uint64_t *seed) {
    bytes b = read_bytes(path);
    if (to == 0)
        to = b.size;
    size_t at = from + (size_t)below(seed, (int64_t)(to - from));
    unsigned mask = 0;
    for (int i = (int)below(seed, 3); i >= 0; i--)
        mask |= 1u << below(seed, 8);
    b.data[at] = (char)((unsigned char)b.data[at] ^ mask);
    put_file(path, b.data, b.size);
    free(b.data);
    return at;
}

static inline void flip_weights(const char *path, bool header, uint64_t *seed, expected *e) {
    char intact[512];
    bytes b = read_bytes(path);
    ending(path, ".intact", intact);
    put_file(intact, b.data, b.size);
    size_t payload = payload_of(&b), at = header ? flip(path, 0, payload, seed) : flip(path, payload, b.size, seed);
    tensor_at(intact, at, e->tensor);
    unlink(intact);
    free(b.data);
}

/* A page or a sector of the data, aligned in the file, of zeros or noise. */
static inline void overwrite(const char *path, size_t size, bool noise, uint64_t *seed, expected *e) {
    bytes b = read_bytes(path);
    size_t payload = payload_of(&b), first = payload / size, last = (b.size - 1) / size;
    size_t begin = (first + (size_t)below(seed, (int64_t)(last - first + 1))) * size, end = begin + size;
    begin = begin < payload ? payload : begin;
    end = end > b.size ? b.size : end;
    tensor_at(path, begin, e->tensor);
    for (size_t i = begin; i < end; i++)
        b.data[i] = noise ? (char)(b.data[i] ^ (1 + below(seed, 255))) : 0;
    put_file(path, b.data, b.size);
    free(b.data);
}

static inline void resize(const char *path, bool longer, uint64_t *seed) {
    bytes b = read_bytes(path);
    size_t size = longer ? b.size + 1 + (size_t)below(seed, 5000) : (size_t)below(seed, (int64_t)b.size);
    assert_int_equal(truncate(path, (off_t)size), 0);
    free(b.data);
}

static inline void swap_files(const char *step, uint64_t *seed, expected *e) {
    char other[256] = "", a[512], b[512], aside[512];
    pick_file(step, ".safetensors", seed, e->file);
    do
        pick_file(step, ".safetensors", seed, other);
    while (strcmp(other, e->file) == 0);
    in(step, e->file, a);
    in(step, other, b);
    ending(a, ".aside", aside);
    assert_int_equal(rename(a, aside) | rename(b, a) | rename(aside, b), 0);
    e->file[0] = '\0'; /* either may be named */
}

/* Takes one member of the manifest away, at the top or of a file. */
static inline void lose_member(const char *path, bool seal, uint64_t *seed) {
    static const char *const members[] = {"format", "version", "step",  "samples", "seed",
                                          "extra",  "files",   "bytes", "name",    "chunks"};
    bytes b = read_bytes(path);
    struct json_object *o = NULL, *files = NULL;
    CHECK_OK(ndp_json_parse(b.data, b.size, path, &o));
    const char *member = members[below(seed, NDP_COUNT(members))];
    if (json_object_object_get_ex(o, member, NULL)) {
        json_object_object_del(o, member);
    } else {
        json_object_object_get_ex(o, "files", &files);
        size_t n = json_object_array_length(files);
        json_object_object_del(json_object_array_get_idx(files, (size_t)below(seed, (int64_t)n)), member);
    }
    if (seal)
        json_object_object_del(o, "hash");
    const char *text = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE);
    ndp_str s = {0};
    ndp_str_add_bytes(&s, text, seal ? strlen(text) - 2 : strlen(text)); /* without the closing line */
    if (seal)
        ndp_manifest_seal(&s);
    put_file(path, s.data, s.length);
    ndp_str_release(&s);
    json_object_put(o);
    free(b.data);
}

static inline void call_it_version_1(const char *path) {
    bytes b = read_bytes(path);
    char *at = strstr(b.data, "\"version\": 2");
    assert_non_null(at);
    at[11] = '1';
    put_file(path, b.data, b.size);
    free(b.data);
}

static inline void replace_file(damage_kind kind, const char *path, const char *older) {
    char moved[512];
    ending(path, ".moved", moved);
    if (kind == OLDER_FILE) {
        copy_one(older, path);
    } else if (kind == LINK_TO_ITSELF) {
        assert_int_equal(rename(path, moved) | symlink(strrchr(moved, '/') + 1, path), 0);
    } else {
        assert_int_equal(unlink(path), 0);
        if (kind == LINK_TO_OLDER)
            assert_int_equal(symlink(older, path), 0);
        if (kind == FOLDER_INSTEAD)
            assert_int_equal(mkdir(path, 0777), 0);
    }
}

/* Damages folder `step` of a checkpoint that was saved in shards; `older` is another one, whole, of the same run. */
static inline expected damage(const char *step, const char *older, damage_kind kind, uint64_t *seed) {
    expected e = {{0}, {0}};
    char path[512], other[512];
    bool data = kind == FLIP_DATA || kind == FLIP_HEADER || kind == ZERO_PAGE || kind == SCRIBBLE || kind == OLDER_FILE;
    bool manifest = kind == FLIP_MANIFEST || kind >= LOSE_MEMBER;
    const char *end = data ? ".safetensors" : manifest ? "manifest.json" : kind == FLIP_INDEX ? ".index.json" : "";
    if (kind == SWAP) {
        swap_files(step, seed, &e);
        return e;
    }
    pick_file(step, end, seed, e.file);
    in(step, e.file, path);
    in(older, e.file, other);
    if (kind == FLIP_DATA || kind == FLIP_HEADER)
        flip_weights(path, kind == FLIP_HEADER, seed, &e);
    else if (kind == FLIP_MANIFEST || kind == FLIP_INDEX)
        flip(path, 0, 0, seed);
    else if (kind == ZERO_PAGE || kind == SCRIBBLE)
        overwrite(path, kind == ZERO_PAGE ? 4096 : 512, kind == SCRIBBLE, seed, &e);
    else if (kind == TRUNCATE || kind == EXTEND)
        resize(path, kind == EXTEND, seed);
    else if (kind == LOSE_MEMBER || kind == LOSE_SEALED_MEMBER)
        lose_member(path, kind == LOSE_SEALED_MEMBER, seed);
    else if (kind == VERSION_1)
        call_it_version_1(path);
    else if (kind == STRAY_FILE)
        copy_one(in(older, "model-00001-of-00003.safetensors", other), in(step, "model.safetensors", path));
    else
        replace_file(kind, path, other);
    if (kind == STRAY_FILE)
        snprintf(e.file, sizeof e.file, "model.safetensors");
    return e;
}

#endif
