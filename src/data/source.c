#include "data/source.h"

#include "base/json.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char SEPARATOR[] = "<|endoftext|>";
enum { SEPARATOR_LENGTH = sizeof SEPARATOR - 1 };

static bool ends_with(const char *path, const char *suffix) {
    size_t n = strlen(path), m = strlen(suffix);
    return n > m && !strcasecmp(path + n - m, suffix);
}

ndp_status ndp_source_kind_of(const char *path, ndp_source_kind *out) {
    static const char *const unbuilt[] = {".json", ".parquet", ".arrow", ".bin", ".csv",
                                          ".gz",   ".zst",     ".xz",    ".bz2", ".zip"};
    for (int i = 0; i < NDP_COUNT(unbuilt); i++)
        if (ends_with(path, unbuilt[i]))
            return NDP_FAIL(NDP_ENOTSUP, "%s: reading %s files is not built yet; give plain text or .jsonl", path,
                            unbuilt[i]);
    *out = ends_with(path, ".jsonl") || ends_with(path, ".ndjson") ? NDP_SOURCE_JSONL : NDP_SOURCE_TEXT;
    return NDP_OK;
}

/* ---- text ---- */

/* A separator line at or behind `from`: *begin is where its border begins (with the line break before it), the result
 * where the next document begins. NULL when there is none. */
static const char *find_separator(const char *from, const char *contents, const char *end, const char **begin) {
    const char *hit = from;
    while ((hit = memmem(hit, (size_t)(end - hit), SEPARATOR, SEPARATOR_LENGTH))) {
        const char *after = hit + SEPARATOR_LENGTH;
        if (end - after >= 2 && after[0] == '\r' && after[1] == '\n')
            after++;
        if ((hit == contents || hit[-1] == '\n') && (after == end || *after == '\n')) {
            *begin = hit;
            return after == end ? end : after + 1;
        }
        hit++;
    }
    return NULL;
}

static const char *without_line_break(const char *begin, const char *end) {
    if (end > begin && end[-1] == '\n') {
        end--;
        if (end > begin && end[-1] == '\r')
            end--;
    }
    return end;
}

static int64_t count_lines(const char *from, const char *to) {
    int64_t n = 0;
    for (; from < to && (from = memchr(from, '\n', (size_t)(to - from))); from++)
        n++;
    return n;
}

static ndp_status visit_text_document(const ndp_document *d, const char *contents, ndp_document_visitor *visit,
                                      void *user) {
    size_t valid = ndp_utf8_valid_prefix(d->text, d->n);
    if (valid < d->n)
        return NDP_FAIL(
            NDP_EFORMAT,
            "%s:%lld: byte %zu of the file (0x%02x) is not valid UTF-8; convert the file, for instance with iconv",
            d->path, (long long)(d->line + count_lines(d->text, d->text + valid)), (size_t)(d->text - contents) + valid,
            (unsigned char)d->text[valid]);
    return d->n ? visit(user, d) : NDP_OK;
}

static ndp_status visit_text(const ndp_source_chunk *c, ndp_document_visitor *visit, void *user) {
    const char *end = c->contents + c->end, *from = c->contents + c->begin, *next, *border;
    bool separated = c->begin > 0; /* a chunk but the first begins behind a separator */
    int64_t line = c->line;
    do {
        next = find_separator(from, c->contents, end, &border);
        separated |= next != NULL;
        const char *stop = next ? border : end;
        if (separated)
            stop = without_line_break(from, stop);
        ndp_document d = {from, (size_t)(stop - from), c->path, line, (size_t)((next ? next : end) - c->contents)};
        NDP_TRY(visit_text_document(&d, c->contents, visit, user));
        if (next)
            line += count_lines(from, next);
        from = next;
    } while (next);
    return NDP_OK;
}

/* ---- JSONL ---- */

static ndp_status fail_field(struct json_object *record, const char *where, const char *field) {
    ndp_str keys = {0};
    json_object_object_foreach(record, key, value) {
        (void)value;
        ndp_str_addf(&keys, "%s%s", keys.length ? ", " : "", key);
    }
    ndp_status st = NDP_FAIL(NDP_EFORMAT,
                             "%s: the record has no '%s'; it has: %.400s. data.text_field says which field is the text",
                             where, field, keys.data ? keys.data : "nothing");
    ndp_str_release(&keys);
    return st;
}

static ndp_status visit_record(struct json_object *record, const char *where, const char *field, ndp_document *d,
                               ndp_document_visitor *visit, void *user) {
    struct json_object *text;
    if (!json_object_is_type(record, json_type_object))
        return NDP_FAIL(NDP_EFORMAT, "%s: the record is not an object", where);
    if (!json_object_object_get_ex(record, field, &text))
        return fail_field(record, where, field);
    if (!json_object_is_type(text, json_type_string))
        return NDP_FAIL(NDP_EFORMAT, "%s: '%s' is not a string", where, field);
    d->text = json_object_get_string(text);
    d->n = (size_t)json_object_get_string_len(text);
    return visit(user, d);
}

static ndp_status visit_line(const char *text, size_t n, const char *field, ndp_document *d,
                             ndp_document_visitor *visit, void *user) {
    struct json_object *record = NULL;
    char *where = ndp_format("%s:%lld", d->path, (long long)d->line);
    if (!where)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory to read '%s'", d->path);
    ndp_status st = ndp_json_parse(text, n, where, &record);
    if (st == NDP_OK)
        st = visit_record(record, where, field, d, visit, user);
    json_object_put(record);
    free(where);
    return st;
}

static ndp_status visit_jsonl(const ndp_source_chunk *c, const char *field, ndp_document_visitor *visit, void *user) {
    ndp_document d = {.path = c->path, .line = c->line - 1};
    for (size_t at = c->begin; at < c->end; at = d.end) {
        const char *text = c->contents + at, *stop = memchr(text, '\n', c->end - at);
        size_t n = stop ? (size_t)(stop - text) : c->end - at;
        d.line++;
        d.end = at + n + (stop != NULL);
        size_t blank = 0;
        while (blank < n && strchr(" \t\r", text[blank]) && text[blank])
            blank++;
        if (blank < n)
            NDP_TRY(visit_line(text, n, field, &d, visit, user));
    }
    return NDP_OK;
}

/* ---- chunks ---- */

ndp_status ndp_source_begin(const char *path, const char *contents, size_t size, ndp_source_chunk *out) {
    ndp_source_kind kind;
    NDP_TRY(ndp_source_kind_of(path, &kind));
    *out = (ndp_source_chunk){.path = path, .contents = contents, .size = size, .kind = kind, .line = 1};
    return NDP_OK;
}

bool ndp_source_next(ndp_source_chunk *c, size_t want) {
    if (c->end == c->size)
        return false;
    const char *end = c->contents + c->size, *border;
    c->line += count_lines(c->contents + c->begin, c->contents + c->end);
    c->begin = c->end;
    const char *from = want < c->size - c->begin ? c->contents + c->begin + want : NULL, *next = NULL;
    if (from && c->kind == NDP_SOURCE_TEXT)
        next = find_separator(from, c->contents, end, &border);
    else if (from && (next = memchr(from, '\n', (size_t)(end - from))))
        next++;
    c->end = next ? (size_t)(next - c->contents) : c->size;
    return true;
}

ndp_status ndp_source_visit_chunk(const ndp_source_chunk *c, const char *text_field, ndp_document_visitor *visit,
                                  void *user) {
    return c->kind == NDP_SOURCE_JSONL ? visit_jsonl(c, text_field ? text_field : "text", visit, user)
                                       : visit_text(c, visit, user);
}

ndp_status ndp_source_visit(const char *path, const char *contents, size_t size, const char *text_field,
                            ndp_document_visitor *visit, void *user) {
    ndp_source_chunk c;
    NDP_TRY(ndp_source_begin(path, contents, size, &c));
    return ndp_source_next(&c, size) ? ndp_source_visit_chunk(&c, text_field, visit, user) : NDP_OK;
}
