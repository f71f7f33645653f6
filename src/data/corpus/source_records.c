/* Counting the records of a file (source_records.h), without parsing them. Called by cache/windows.c. */
#include "data/corpus/source_records.h"

#include "base/json_lists.h"
#include <string.h>

/* The end of the line at `at`, behind its break. *record: it is not blank. */
static size_t line_end(const ndp_source_chunk *f, size_t at, bool *record) {
    const char *text = f->contents + at, *stop = memchr(text, '\n', f->size - at);
    size_t n = stop ? (size_t)(stop - text) : f->size - at, blank = 0;
    while (blank < n && (text[blank] == ' ' || text[blank] == '\t' || text[blank] == '\r'))
        blank++;
    *record = blank < n;
    return at + n + (stop != NULL);
}

static ndp_status count_list(const ndp_source_chunk *f, int64_t *n) {
    ndp_json_cursor c = {.text = f->contents, .what = f->path, .end = f->size};
    ndp_status st = NDP_OK;
    if (!ndp_json_accept(&c, '['))
        return NDP_FAIL(NDP_EFORMAT, "%s: not a list of records; one record a line is .jsonl", f->path);
    for (bool more = true; st == NDP_OK && more;) {
        const char *text;
        size_t length;
        st = ndp_json_next_entry(&c, ']', *n == 0, &more);
        if (st == NDP_OK && more)
            st = ndp_json_next_value(&c, &text, &length);
        *n += st == NDP_OK && more;
    }
    ndp_json_cursor_release(&c);
    return st;
}

ndp_status ndp_source_count_records(const ndp_source_chunk *f, int64_t *n) {
    *n = 0;
    if (f->kind == NDP_SOURCE_JSON)
        return count_list(f, n);
    NDP_CHECK(f->kind == NDP_SOURCE_JSONL || f->kind == NDP_SOURCE_TABLE,
              "%s: a slice takes records, and this file has none; write them as .jsonl", f->path);
    bool record;
    for (size_t at = 0; at < f->size; *n += record)
        at = line_end(f, at, &record);
    return NDP_OK;
}

void ndp_source_find_records(const ndp_source_chunk *f, int64_t first, int64_t end, size_t *begin, size_t *stop) {
    bool record;
    int64_t n = 0;
    size_t at = 0;
    for (; at < f->size && n < first; n += record)
        at = line_end(f, at, &record);
    *begin = at;
    for (; at < f->size && n < end; n += record)
        at = line_end(f, at, &record);
    *stop = at;
}
