/* Documents of files, and where a file can be cut between them (source.h). A chunk's ends are found by looking for a
 * border near them, without reading the file from its start, so each record belongs to exactly one chunk however the
 * file is cut. Called by cache/share.c, sample.c and tokenize.c. */
#include "data/corpus/source.h"

#include "base/json_lists.h"
#include "data/corpus/unpack.h"
#include "data/table/table_reader.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char SEPARATOR[] = "<|endoftext|>";
enum { SEPARATOR_LENGTH = sizeof SEPARATOR - 1 };

/* Ignores the suffix of a compressed file. */
static bool ends_with(const char *path, const char *suffix) {
    size_t n = ndp_unpacked_name(path), m = strlen(suffix);
    return n > m && !strncasecmp(path + n - m, suffix, m);
}

bool ndp_source_is_known(const char *path, ndp_source_kind *kind) {
    static const struct {
        const char *ending;
        ndp_source_kind kind;
    } kinds[] = {{".txt", NDP_SOURCE_TEXT},    {".text", NDP_SOURCE_TEXT},    {".md", NDP_SOURCE_TEXT},
                 {".jsonl", NDP_SOURCE_JSONL}, {".ndjson", NDP_SOURCE_JSONL}, {".json", NDP_SOURCE_JSON},
                 {".csv", NDP_SOURCE_TABLE},   {".tsv", NDP_SOURCE_TABLE},    {".parquet", NDP_SOURCE_TABLE},
                 {".arrow", NDP_SOURCE_TABLE}, {".bin", NDP_SOURCE_IDS}};
    *kind = NDP_SOURCE_TEXT;
    for (int i = 0; i < NDP_COUNT(kinds); i++)
        if (ends_with(path, kinds[i].ending)) {
            *kind = kinds[i].kind;
            return true;
        }
    return false;
}

ndp_status ndp_source_kind_of(const char *path, ndp_source_kind *out) {
    static const char *const unbuilt[] = {".bz2", ".zip", ".tar", ".tgz"};
    for (int i = 0; i < NDP_COUNT(unbuilt); i++)
        if (ends_with(path, unbuilt[i]))
            return NDP_FAIL(NDP_ENOTSUP, "%s: %s files are not supported; unpack it, or give .gz, .zst or .xz", path,
                            unbuilt[i]);
    (void)ndp_source_is_known(path, out);
    if (*out == NDP_SOURCE_TABLE && ndp_is_packed(path))
        return NDP_FAIL(NDP_ENOTSUP, "%s: compressed tables are not supported; unpack it", path);
    return NDP_OK;
}

/* ---- text ---- */

/* The first separator line that starts in [from, to) of a text that ends at `end`. Returns the start of the next
 * document (NULL: there is no separator); *begin is where the separator starts, after the line break that belongs to
 * it. */
static const char *find_separator(const char *from, const char *to, const char *contents, const char *end,
                                  const char **begin) {
    const char *hit = from, *last = end - to < SEPARATOR_LENGTH ? end : to + SEPARATOR_LENGTH - 1;
    while (hit < to && (hit = memmem(hit, (size_t)(last - hit), SEPARATOR, SEPARATOR_LENGTH))) {
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

/* `contents`: start of the file, including a byte order mark. */
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
    bool separated = c->begin > 0; /* every chunk but the first starts after a separator */
    int64_t line = c->line;
    if (c->begin == 0 && c->size >= 2 && !from[0] != !from[1])
        return NDP_FAIL(NDP_EFORMAT, "%s: looks like UTF-16; convert the file, for instance with iconv", c->path);
    do {
        next = find_separator(from, end, c->contents, end, &border);
        separated |= next != NULL;
        const char *stop = next ? border : end;
        if (separated)
            stop = without_line_break(from, stop);
        ndp_document d = {.text = from,
                          .n = (size_t)(stop - from),
                          .path = c->path,
                          .line = line,
                          .end = (size_t)((next ? next : end) - c->contents)};
        NDP_TRY(visit_text_document(&d, c->contents - c->mark, visit, user));
        if (next)
            line += count_lines(from, next);
        from = next;
    } while (next);
    return NDP_OK;
}

/* ---- records ---- */

size_t ndp_record_values(const char *text, size_t n) {
    bool quoted = false;
    size_t values = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        bool begins = text[i] == ',' || text[i] == '[' || text[i] == '{',
             ends = text[i + 1] == ']' || text[i + 1] == '}';
        quoted ^= text[i] == '"';
        i += quoted && text[i] == '\\';
        values += !quoted && begins && !ends;
    }
    return values;
}

static ndp_status parse_record(const char *text, size_t n, const char *where, struct json_object **out,
                               ndp_bad_record *bad) {
    *bad = NDP_BAD_SIZE;
    if (n > NDP_RECORD_BYTES)
        return NDP_FAIL(NDP_EFORMAT, "%s: a record of %zu bytes; at most %zu are read", where, n, NDP_RECORD_BYTES);
    size_t values = n > NDP_RECORD_VALUES ? ndp_record_values(text, n) : 0;
    if (values > NDP_RECORD_VALUES)
        return NDP_FAIL(NDP_EFORMAT, "%s: a record of %zu values; at most %zu are read", where, values,
                        NDP_RECORD_VALUES);
    *bad = NDP_BAD_JSON;
    return ndp_json_parse(text, n, where, out);
}

/* `place`: names the record in messages, after the file's name: ":%lld" or ": record %lld". */
static ndp_status visit_record(const char *text, size_t n, const char *place, const ndp_record_format *format,
                               ndp_document *d, ndp_document_visitor *visit, void *user) {
    struct json_object *record = NULL;
    char *where = ndp_format("%s%s%lld", d->path, place, (long long)d->line);
    NDP_CHECK_MEMORY(where, "to read '%s'", d->path);
    ndp_status st = parse_record(text, n, where, &record, &d->bad);
    if (st == NDP_OK)
        st = ndp_record_visit(record, where, format, d, visit, user);
    bool bad = d->bad != NDP_BAD_NONE && (st == NDP_EFORMAT || st == NDP_ENOTSUP);
    if (bad && format->skip && format->tally)
        st = ndp_tally_add(format->tally, NDP_TALLY_SKIPPED, ndp_bad_record_text(d->bad), ndp_error_message());
    else if (bad && d->bad == NDP_BAD_JSON)
        st = NDP_FAIL(st, "%s; correct the record, or leave such records out with data.bad_records: skip",
                      ndp_error_message());
    json_object_put(record);
    free(where);
    return st;
}

/* Also the rows of a table, one a line. */
static ndp_status visit_jsonl(const ndp_source_chunk *c, const ndp_record_format *format, ndp_document_visitor *visit,
                              void *user) {
    const char *place = c->kind == NDP_SOURCE_TABLE ? ": row " : ":";
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
            NDP_TRY(visit_record(text, n, place, format, &d, visit, user));
    }
    return NDP_OK;
}

/* One record at a time, so that a list takes only the memory of its largest record. */
static ndp_status visit_list(const ndp_source_chunk *list, ndp_json_cursor *c, const ndp_record_format *format,
                             ndp_document *d, ndp_document_visitor *visit, void *user) {
    for (bool more;;) {
        if (d->line == list->last)
            return NDP_OK;
        const char *text;
        size_t n;
        NDP_TRY(ndp_json_next_entry(c, ']', d->line == 0, &more));
        if (!more)
            break;
        NDP_TRY(ndp_json_next_value(c, &text, &n));
        if (d->line++ >= list->first)
            NDP_TRY(visit_record(text, n, ": record ", format, d, visit, user));
    }
    return ndp_json_end(c);
}

static ndp_status visit_json(const ndp_source_chunk *c, const ndp_record_format *format, ndp_document_visitor *visit,
                             void *user) {
    ndp_document d = {.path = c->path, .end = c->size};
    ndp_json_cursor list = {.text = c->contents, .what = c->path, .end = c->size};
    if (!ndp_json_accept(&list, '['))
        return NDP_FAIL(NDP_EFORMAT, "%s: not a list of records; one record a line is .jsonl", c->path);
    ndp_status st = visit_list(c, &list, format, &d, visit, user);
    ndp_json_cursor_release(&list);
    return st;
}

/* ---- chunks ---- */

ndp_status ndp_source_begin(const char *path, const char *contents, size_t size, ndp_source_chunk *out) {
    ndp_source_kind kind;
    NDP_TRY(ndp_source_kind_of(path, &kind));
    size_t mark = kind != NDP_SOURCE_IDS && size >= 3 && !memcmp(contents, "\xef\xbb\xbf", 3) ? 3 : 0;
    *out = (ndp_source_chunk){path, contents + mark, size - mark, mark, kind, 0, 0, 1, 0, INT64_MAX};
    return NDP_OK;
}

/* Where the first record that belongs to [from, to) starts; the file's size if there is none. */
static size_t first_record(const ndp_source_chunk *c, size_t from, size_t to) {
    const char *begin = c->contents + from, *end = c->contents + to, *next = NULL, *border;
    if (from == 0 || from >= to)
        return from < to ? 0 : c->size;
    if (c->kind == NDP_SOURCE_IDS) { /* at a multiple of either width */
        size_t at = (from + 3) / 4 * 4;
        return at < c->size ? at : c->size;
    }
    if (c->kind == NDP_SOURCE_TEXT)
        next = find_separator(begin, end, c->contents, c->contents + c->size, &border);
    else if (c->kind != NDP_SOURCE_JSON && (next = memchr(begin - 1, '\n', to - from)))
        next++;
    return next ? (size_t)(next - c->contents) : c->size;
}

bool ndp_source_cut(ndp_source_chunk *c, size_t from, size_t to) {
    to = to < c->size ? to : c->size;
    c->begin = first_record(c, from, to);
    c->end = c->begin < c->size ? first_record(c, to, c->size) : c->size;
    c->line = 1;
    return c->begin < c->end;
}

void ndp_source_count_lines(ndp_source_chunk *c) { c->line = 1 + count_lines(c->contents, c->contents + c->begin); }

ndp_status ndp_source_visit_chunk(const ndp_source_chunk *c, const ndp_record_format *format,
                                  ndp_document_visitor *visit, void *user) {
    switch (c->kind) {
    case NDP_SOURCE_TEXT:
        return visit_text(c, visit, user);
    case NDP_SOURCE_JSONL:
    case NDP_SOURCE_TABLE:
        return visit_jsonl(c, format, visit, user);
    case NDP_SOURCE_JSON:
        return visit_json(c, format, visit, user);
    default:
        return NDP_FAIL(NDP_ENOTSUP,
                        "%s: a .bin file contains ids, but this command reads only texts; a job reads them: name it in "
                        "data.validation_files, and run `evaluate JOB.YAML`",
                        c->path);
    }
}

static ndp_status visit_all(const char *path, const char *contents, size_t size, const ndp_record_format *format,
                            ndp_document_visitor *visit, void *user) {
    ndp_source_chunk c;
    NDP_TRY(ndp_source_begin(path, contents, size, &c));
    return ndp_source_cut(&c, 0, size) ? ndp_source_visit_chunk(&c, format, visit, user) : NDP_OK;
}

ndp_status ndp_source_visit(const char *path, const char *contents, size_t size, const char *text_field,
                            ndp_document_visitor *visit, void *user) {
    const ndp_record_format format = {.kind = NDP_RECORD_TEXT, .text = text_field};
    ndp_source_kind kind;
    char *unpacked;
    bool complete;
    NDP_TRY(ndp_source_kind_of(path, &kind));
    if (kind != NDP_SOURCE_TABLE && !ndp_is_packed(path))
        return visit_all(path, contents, size, &format, visit, user);
    NDP_TRY(kind == NDP_SOURCE_TABLE ? ndp_table_head(path, 0, SIZE_MAX, &unpacked, &size, &complete)
                                     : ndp_unpack(path, contents, size, &unpacked, &size));
    ndp_status st = visit_all(path, unpacked, size, &format, visit, user);
    free(unpacked);
    return st;
}
