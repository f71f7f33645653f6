/* What a source of data looks like: the kind of its first file, and of records the fields of the first one. A guess for
 * people, who may correct it; how records are read is decided in record_fields.c. Called by `ndparallel init`. */
#include "data/corpus/files.h"
#include "data/corpus/source.h"
#include "data/corpus/unpack.h"
#include "data/table/table_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first object in a text, of JSONL or of a list; NULL if no object is complete. */
static struct json_object *first_object(const char *text, size_t n) {
    const char *at = memchr(text, '{', n);
    struct json_tokener *t = at ? json_tokener_new() : NULL;
    size_t rest = at ? n - (size_t)(at - text) : 0;
    struct json_object *o =
        t ? json_tokener_parse_ex(t, at, (int)(rest < NDP_RECORD_BYTES ? rest : NDP_RECORD_BYTES)) : NULL;
    if (t)
        json_tokener_free(t);
    return o;
}

static bool has(struct json_object *record, const char *field) {
    return !field || json_object_object_get_ex(record, field, NULL);
}

/* The only field with a text, or that with the longest one; NULL: none. */
static const char *text_field(struct json_object *record) {
    const char *found = NULL;
    size_t most = 0;
    json_object_object_foreach(record, key, value) {
        const char *text = ndp_json_text(value);
        if (text && (!found || strlen(text) > most)) {
            found = key;
            most = strlen(text);
        }
    }
    return found;
}

/* Fields of records and what they are; the first row with all its fields holds. */
static const struct {
    const char *fields[2], *kind, *format;
    bool conversations;
} rows[] = {
    {{"chosen", "rejected"}, "pairs of a preferred and another answer", "preference", true},
    {{"chosen_response", "rejected_response"}, "pairs of a preferred and another answer", "preference", true},
    {{"completion", "label"}, "answers that are wanted or not", "preference", true},
    {{"messages", NULL}, "conversations (messages)", "auto", true},
    {{"conversations", NULL}, "conversations (ShareGPT)", "auto", true},
    {{"segments", NULL}, "texts in segments", "input_output", false},
    {{"prompt", "completion"}, "prompts and completions", "auto", false},
    {{"instruction", NULL}, "instructions and responses", "auto", true},
    {{"text", NULL}, "records with a text", "auto", false},
};

static void guess_record(struct json_object *record, ndp_data_guess *out) {
    const char *field = text_field(record);
    for (int i = 0; i < NDP_COUNT(rows); i++)
        if (has(record, rows[i].fields[0]) && has(record, rows[i].fields[1])) {
            out->kind = rows[i].kind;
            out->format = rows[i].format;
            out->conversations = rows[i].conversations;
            return;
        }
    out->kind = "records";
    if (field && strlen(field) < sizeof out->text_field)
        snprintf(out->text_field, sizeof out->text_field, "%s", field);
}

/* The beginning of a file of records, as JSON; the caller frees *text. */
static ndp_status read_head(const char *path, ndp_source_kind kind, char **text, size_t *n) {
    bool complete;
    ndp_mapped file;
    if (kind == NDP_SOURCE_TABLE)
        return ndp_table_head(path, 1, 1 << 20, text, n, &complete);
    NDP_TRY(ndp_file_map_as(NDP_FILE_DATA, path, &file));
    ndp_status st = NDP_OK;
    size_t most = file.size < NDP_RECORD_BYTES ? file.size : NDP_RECORD_BYTES;
    if (ndp_is_packed(path))
        st = ndp_unpack_head(path, file.data, file.size, 1 << 20, text, n);
    else if ((*text = malloc(most + 1))) {
        memcpy(*text, file.data, most);
        *n = most;
    } else
        st = NDP_FAIL(NDP_ENOMEM, "not enough memory to read '%s'", path);
    return ndp_file_end(&file, st);
}

static ndp_status guess_file(const char *path, ndp_data_guess *out) {
    ndp_source_kind kind;
    ndp_mapped file;
    char *text;
    size_t n;
    NDP_TRY(ndp_source_kind_of(path, &kind));
    if (kind == NDP_SOURCE_TEXT || kind == NDP_SOURCE_IDS) {
        out->kind = kind == NDP_SOURCE_TEXT ? "text" : "token ids";
        NDP_TRY(ndp_file_map_as(NDP_FILE_DATA, path, &file));
        return ndp_file_end(&file, NDP_OK);
    }
    NDP_TRY(read_head(path, kind, &text, &n));
    struct json_object *record = first_object(text, n);
    if (record)
        guess_record(record, out);
    else
        out->kind = "records";
    json_object_put(record);
    free(text);
    return NDP_OK;
}

ndp_status ndp_data_guess_of(const char *name, ndp_data_guess *out) {
    NDP_NOT_NULL(name, out);
    ndp_file_list files = {0};
    ndp_slice slice;
    ndp_data_guess g = {.format = "auto"};
    ndp_status st = ndp_file_list_add(&files, name, NULL, &slice);
    if (st == NDP_OK)
        st = guess_file(files.paths.items[0], &g);
    ndp_strings_release(&files.paths);
    if (st == NDP_OK)
        *out = g;
    return st;
}
