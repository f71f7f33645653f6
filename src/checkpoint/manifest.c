/* Reading and writing manifest.json. It is input from disk: every number is checked before it is used, and unknown or
 * missing members are damage, so that no flipped byte goes unnoticed. */
#include "checkpoint/manifest.h"

#include "base/json_write.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char FORMAT[] = "ndparallel checkpoint";
static const char HASH_MEMBER[] = ",\n  \"hash\": \"", END[] = "\n}\n";
enum { VERSION = 2, SEAL = sizeof HASH_MEMBER - 1 + NDP_HASH_DIGITS + 1 + sizeof END - 1 };

/* We never write larger chunks; a safetensors header has at most 100 MiB. */
static const int64_t CHUNK_MOST = 128 << 20;

/* ---- the hash of the text ---- */

/* Hashes the bytes before the member "hash", and the closing line. NDP_ENOMEM. */
static ndp_status hash_text(const char *text, size_t before, ndp_hash128 *out) {
    char *whole = malloc(before + sizeof END);
    NDP_CHECK_MEMORY(whole, "for the hash of a manifest of %zu bytes", before);
    memcpy(whole, text, before);
    memcpy(whole + before, END, sizeof END);
    *out = ndp_hash_of(whole, before + sizeof END - 1);
    free(whole);
    return NDP_OK;
}

void ndp_manifest_seal(ndp_str *text) {
    ndp_hash128 hash;
    char digits[NDP_HASH_DIGITS + 1];
    text->failed |= text->failed || hash_text(text->data, text->length, &hash) != NDP_OK;
    if (!text->failed)
        ndp_str_addf(text, "%s%s\"%s", HASH_MEMBER, ndp_hash_text(hash, digits), END);
}

/* The hash at the end of a text of version 2; false if there is none. */
static bool read_seal(const char *text, size_t size, ndp_hash128 *out) {
    if (size < SEAL)
        return false;
    const char *seal = text + size - SEAL, *digits = seal + sizeof HASH_MEMBER - 1, *after = digits + NDP_HASH_DIGITS;
    return memcmp(seal, HASH_MEMBER, sizeof HASH_MEMBER - 1) == 0 && ndp_hash_parse(digits, out) && *after == '"' &&
           memcmp(after + 1, END, sizeof END - 1) == 0;
}

static ndp_status check_hash(const char *text, size_t size, const char *what, ndp_hash128 *out) {
    ndp_hash128 stated, is;
    char one[NDP_HASH_DIGITS + 1], other[NDP_HASH_DIGITS + 1];
    if (!read_seal(text, size, &stated))
        return NDP_FAIL(NDP_EFORMAT, "%s: it does not end with its hash: it is damaged", what);
    NDP_TRY(hash_text(text, size - SEAL, &is));
    if (!ndp_hash128_equal(stated, is))
        return NDP_FAIL(NDP_EFORMAT, "%s: its text has the hash %s, not the %s that it states: it is damaged", what,
                        ndp_hash_text(is, one), ndp_hash_text(stated, other));
    *out = is;
    return NDP_OK;
}

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

/* Reads the version. A manifest of version 1 must have none of the later members: a damaged digit must not turn a
 * verified manifest into an unverified one. */
static ndp_status check_version(ndp_manifest *m, const char *text, size_t size, const char *what) {
    const char *format = "";
    int64_t version = 0;
    if (!json_object_is_type(m->json, json_type_object))
        return NDP_FAIL(NDP_EFORMAT, "%s: not an object", what);
    NDP_TRY(ndp_json_string(m->json, what, "format", &format));
    if (strcmp(format, FORMAT) != 0)
        return NDP_FAIL(NDP_EFORMAT, "%s: \"format\" is not \"%s\"", what, FORMAT);
    NDP_TRY(read_number(m->json, what, "version", &version));
    if (version != 1)
        NDP_TRY(check_hash(text, size, what, &m->hash));
    if (version > VERSION)
        return NDP_FAIL(NDP_ENOTSUP,
                        "%s: checkpoint version %lld is not supported; this program reads versions 1 to %d", what,
                        (long long)version, VERSION);
    m->version = version == 1 ? 1 : VERSION;
    return NDP_OK;
}

/* Checks that all members are in `known` and, with `all`, that none of these is missing. */
static ndp_status check_members(struct json_object *o, const char *what, const char *const *known, int n, bool all) {
    json_object_object_foreach(o, key, value) {
        int i = 0;
        (void)value;
        while (i < n && strcmp(known[i], key) != 0)
            i++;
        if (i == n)
            return NDP_FAIL(NDP_EFORMAT, "%s: \"%.40s\" is not a known member: it is damaged", what, key);
    }
    for (int i = 0; i < n && all; i++)
        NDP_TRY(require(o, what, known[i]));
    return NDP_OK;
}

/* [offset, bytes, "hash"], which starts where the previous chunk ends. */
static ndp_status read_chunk(struct json_object *o, const char *what, const char *file, int64_t end, ndp_chunk *out) {
    struct json_object *item[3] = {0};
    bool three = json_object_is_type(o, json_type_array) && json_object_array_length(o) == 3;
    for (int i = 0; i < 3 && three; i++)
        item[i] = json_object_array_get_idx(o, (size_t)i);
    const char *hash = three ? ndp_json_text(item[2]) : NULL;
    if (!hash || strlen(hash) != NDP_HASH_DIGITS || !ndp_hash_parse(hash, &out->hash) ||
        !json_object_is_type(item[0], json_type_int) || !json_object_is_type(item[1], json_type_int))
        return NDP_FAIL(NDP_EFORMAT, "%s: %s: a chunk is not [offset, bytes, \"hash\"]", what, file);
    out->offset = json_object_get_int64(item[0]);
    out->bytes = json_object_get_int64(item[1]);
    if (out->offset != end || out->bytes <= 0 || out->bytes > CHUNK_MOST)
        return NDP_FAIL(NDP_EFORMAT, "%s: %s: a chunk of %lld bytes at %lld; expected 1 to %lld bytes at %lld", what,
                        file, (long long)out->bytes, (long long)out->offset, (long long)CHUNK_MOST, (long long)end);
    return NDP_OK;
}

/* Checks that the chunks cover the file. */
static ndp_status read_chunks(ndp_manifest *m, struct json_object *o, const char *what, ndp_manifest_file *out) {
    struct json_object *list = NULL;
    if (!json_object_object_get_ex(o, "chunks", &list) || !json_object_is_type(list, json_type_array))
        return NDP_FAIL(NDP_EFORMAT, "%s: %s has no array \"chunks\"", what, out->name);
    int64_t n = (int64_t)json_object_array_length(list), end = 0;
    ndp_chunk *chunks = ndp_arena_alloc(&m->arena, ((size_t)n + 1) * sizeof *chunks);
    if (!chunks)
        return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for %lld chunks", what, (long long)n);
    for (int64_t i = 0; i < n; i++) {
        NDP_TRY(read_chunk(json_object_array_get_idx(list, (size_t)i), what, out->name, end, &chunks[i]));
        if (__builtin_add_overflow(end, chunks[i].bytes, &end))
            return NDP_FAIL(NDP_EFORMAT, "%s: %s: its chunks are too large", what, out->name);
    }
    if (end != out->bytes)
        return NDP_FAIL(NDP_EFORMAT, "%s: %s has %lld bytes, its chunks cover %lld", what, out->name,
                        (long long)out->bytes, (long long)end);
    out->chunks = chunks;
    out->n_chunks = n;
    return NDP_OK;
}

static ndp_status read_file_entry(ndp_manifest *m, struct json_object *o, const char *what, ndp_manifest_file *out) {
    static const char *const members[] = {"name", "bytes", "chunks"};
    const char *name = "";
    if (!json_object_is_type(o, json_type_object))
        return NDP_FAIL(NDP_EFORMAT, "%s: an entry of \"files\" is not an object", what);
    NDP_TRY(check_members(o, what, members, m->version == 1 ? 2 : 3, false));
    NDP_TRY(ndp_json_string(o, what, "name", &name));
    if (!name[0] || name[0] == '.' || strchr(name, '/'))
        return NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is not the name of a checkpoint file", what, name);
    NDP_TRY(read_number(o, what, "bytes", &out->bytes));
    out->name = name;
    for (const ndp_manifest_file *f = m->files; f < out; f++)
        if (strcmp(f->name, name) == 0)
            return NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is listed twice", what, name);
    return m->version == 1 ? NDP_OK : read_chunks(m, o, what, out);
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
        NDP_TRY(read_file_entry(m, json_object_array_get_idx(files, i), what, &m->files[m->n_files++]));
    return NDP_OK;
}

static ndp_status read_members(ndp_manifest *m, const char *text, size_t size, const char *what) {
    static const char *const members[] = {"format", "version", "step", "samples", "seed", "extra", "files", "hash"};
    NDP_TRY(check_version(m, text, size, what));
    NDP_TRY(m->version == 1 ? check_members(m->json, what, members, NDP_COUNT(members) - 1, false)
                            : check_members(m->json, what, members, NDP_COUNT(members), true));
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
    NDP_TRY_GOTO(read_members(&m, text, size, what), release);
    *out = m;
    return NDP_OK;
release:
    ndp_manifest_release(&m);
    return st;
}

/* ---- the files ---- */

ndp_status ndp_manifest_file_check(const char *folder, const char *name, int64_t bytes) {
    char path[NDP_PATH];
    struct stat info;
    NDP_TRY(ndp_path_join(path, folder, name));
    if (lstat(path, &info))
        return NDP_FAIL(errno == ENOENT ? NDP_EFORMAT : NDP_EIO, "'%s': %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return NDP_FAIL(NDP_EFORMAT, "'%s/%s' is %s, not the file that was saved", folder, name,
                        S_ISLNK(info.st_mode) ? "a symbolic link" : "not a regular file");
    if (bytes >= 0 && info.st_size != bytes)
        return NDP_FAIL(NDP_EFORMAT, "'%s/%s' has %lld bytes, its manifest says %lld", folder, name,
                        (long long)info.st_size, (long long)bytes);
    return NDP_OK;
}

static bool is_listed(const ndp_manifest *m, const char *name) {
    for (int i = 0; i < m->n_files; i++)
        if (strcmp(m->files[i].name, name) == 0)
            return true;
    return false;
}

/* Rejects weights that the manifest does not list: they could be read in place of the listed ones. */
static ndp_status check_listed(void *manifest, const char *folder, const char *name) {
    bool weights = ndp_ends_with(name, ".safetensors") || ndp_ends_with(name, ".safetensors.index.json");
    if (weights && !is_listed(manifest, name))
        return NDP_FAIL(NDP_EFORMAT, "'%s/%s' is not in the manifest: it does not belong to this checkpoint", folder,
                        name);
    return NDP_OK;
}

static ndp_status check_files(ndp_manifest *m, const char *folder) {
    for (int i = 0; i < m->n_files; i++)
        NDP_TRY(ndp_manifest_file_check(folder, m->files[i].name, m->files[i].bytes));
    return ndp_folder_visit(folder, check_listed, m);
}

/* A checkpoint is a folder, or a link to one. NDP_EFORMAT: something else has its name; NDP_EIO: what it is cannot be
 * determined. */
static ndp_status check_folder(const char *path) {
    struct stat info, link;
    bool found = stat(path, &info) == 0;
    int cause = errno;
    if (found && !S_ISDIR(info.st_mode))
        return NDP_FAIL(NDP_EFORMAT, "'%s' is %s, not a checkpoint folder", path,
                        S_ISREG(info.st_mode)    ? "a file"
                        : S_ISFIFO(info.st_mode) ? "a pipe"
                                                 : "a device or socket");
    if (!found && (cause == ENOENT || cause == ELOOP || cause == ENOTDIR) && lstat(path, &link) == 0)
        return NDP_FAIL(NDP_EFORMAT, "'%s' is a dangling link, not a checkpoint folder", path);
    return found ? NDP_OK : NDP_FAIL(NDP_EIO, "cannot read '%s': %s", path, strerror(cause));
}

ndp_status ndp_manifest_read(const char *folder, ndp_manifest *out) {
    char path[NDP_PATH], *text;
    size_t size;
    ndp_manifest m;
    NDP_TRY(ndp_path_join(path, folder, "manifest.json"));
    NDP_TRY(check_folder(folder));
    NDP_TRY(ndp_manifest_file_check(folder, "manifest.json", -1));
    NDP_TRY(ndp_file_read_as(NDP_FILE_MANIFEST, path, &text, &size));
    ndp_status st = ndp_manifest_parse(text, size, path, &m);
    free(text);
    NDP_TRY(st);
    st = check_files(&m, folder);
    if (st == NDP_OK)
        *out = m;
    else
        ndp_manifest_release(&m);
    return st;
}

void ndp_manifest_release(ndp_manifest *m) {
    json_object_put(m->json);
    ndp_arena_release(&m->arena);
    *m = (ndp_manifest){0};
}

/* ---- writing ---- */

static void add_file(ndp_str *s, const ndp_manifest_file *f) {
    char hash[NDP_HASH_DIGITS + 1];
    ndp_str_add(s, "    {\"name\": ");
    ndp_json_quote(s, f->name);
    ndp_str_addf(s, ", \"bytes\": %lld, \"chunks\": [", (long long)f->bytes);
    for (int64_t i = 0; i < f->n_chunks; i++)
        ndp_str_addf(s, "%s\n      [%lld, %lld, \"%s\"]", i ? "," : "", (long long)f->chunks[i].offset,
                     (long long)f->chunks[i].bytes, ndp_hash_text(f->chunks[i].hash, hash));
    ndp_str_add(s, "]}");
}

ndp_status ndp_manifest_text(const ndp_checkpoint_info *info, const ndp_manifest_file *files, int n_files, char **out) {
    ndp_str s = {0};
    const char *extra =
        info->extra
            ? json_object_to_json_string_ext(info->extra, JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE)
            : "{}";
    ndp_str_addf(&s, "{\n  \"format\": \"%s\",\n  \"version\": %d,\n  \"step\": %lld,\n", FORMAT, VERSION,
                 (long long)info->step);
    ndp_str_addf(&s, "  \"samples\": %lld,\n  \"seed\": %lld,\n  \"extra\": ", (long long)info->samples,
                 (long long)info->seed);
    s.failed |= !extra;
    ndp_str_add(&s, extra ? extra : "");
    ndp_str_add(&s, ",\n  \"files\": [");
    for (int i = 0; i < n_files; i++) {
        ndp_str_add(&s, i ? ",\n" : "\n");
        add_file(&s, &files[i]);
    }
    ndp_str_add(&s, "\n  ]");
    ndp_manifest_seal(&s);
    *out = ndp_str_detach(&s);
    return NDP_MEMORY(*out, "for the manifest of step %lld", (long long)info->step);
}
