/* Counting what reading met (tally.h). There are few rows: one for each reason and known field, and each source. */
#include "data/corpus/tally.h"

#include "base/arena.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static ndp_tally_row *find(const ndp_tally *t, ndp_tally_kind kind, int source, const char *what) {
    for (int64_t i = 0; i < t->n; i++)
        if (t->rows[i].kind == kind && t->rows[i].source == source && strcmp(t->rows[i].what, what) == 0)
            return &t->rows[i];
    return NULL;
}

/* The row, appended if it is new. */
static ndp_status row_of(ndp_tally *t, ndp_tally_kind kind, int source, const char *what, ndp_tally_row **out) {
    *out = find(t, kind, source, what);
    if (*out)
        return NDP_OK;
    NDP_TRY(ndp_array_reserve(&t->rows, &t->capacity, t->n + 1, sizeof *t->rows));
    char *copy = strdup(what);
    NDP_CHECK_MEMORY(copy, "to count records");
    t->rows[t->n] = (ndp_tally_row){.kind = kind, .source = source, .what = copy};
    *out = &t->rows[t->n++];
    return NDP_OK;
}

static ndp_status name(ndp_tally_row *row, const char *message) {
    return row->named.n < NDP_TALLY_NAMED ? ndp_strings_add(&row->named, message) : NDP_OK;
}

ndp_status ndp_tally_add(ndp_tally *t, ndp_tally_kind kind, const char *what, const char *message) {
    ndp_tally_row *row;
    NDP_TRY(row_of(t, kind, 0, what, &row));
    row->n++;
    return message ? name(row, message) : NDP_OK;
}

ndp_status ndp_tally_merge(ndp_tally *t, const ndp_tally *next, int source) {
    for (int64_t i = 0; i < next->n; i++) {
        ndp_tally_row *row;
        NDP_TRY(row_of(t, next->rows[i].kind, source, next->rows[i].what, &row));
        row->n += next->rows[i].n;
        for (int k = 0; k < next->rows[i].named.n; k++)
            NDP_TRY(name(row, next->rows[i].named.items[k]));
    }
    return NDP_OK;
}

bool ndp_tally_names(const ndp_tally *t, const ndp_tally *next) {
    for (int64_t i = 0; i < next->n; i++) {
        const ndp_tally_row *row = find(t, next->rows[i].kind, 0, next->rows[i].what);
        if (next->rows[i].named.n && (!row || row->named.n < NDP_TALLY_NAMED))
            return true;
    }
    return false;
}

int64_t ndp_tally_count(const ndp_tally *t, ndp_tally_kind kind, int source) {
    int64_t n = 0;
    for (int64_t i = 0; i < t->n; i++)
        if (t->rows[i].kind == kind && (source < 0 || t->rows[i].source == source))
            n += t->rows[i].n;
    return n;
}

void ndp_tally_clear(ndp_tally *t) {
    for (int64_t i = 0; i < t->n; i++) {
        free(t->rows[i].what);
        ndp_strings_release(&t->rows[i].named);
    }
    free(t->rows);
    *t = (ndp_tally){0};
}

/* ---- as text ---- */

static void add_line(ndp_str *out, const char *text) {
    for (; *text; text++)
        ndp_str_add_bytes(out, (unsigned char)*text < ' ' || *text == 0x7f ? " " : text, 1);
    ndp_str_add(out, "\n");
}

void ndp_tally_write(const ndp_tally *t, ndp_str *out) {
    for (int64_t i = 0; i < t->n; i++) {
        const ndp_tally_row *row = &t->rows[i];
        ndp_str_addf(out, "%d %d %lld ", (int)row->kind, row->source, (long long)row->n);
        add_line(out, row->what);
        for (int k = 0; k < row->named.n; k++) {
            ndp_str_add(out, "\t");
            add_line(out, row->named.items[k]);
        }
    }
}

/* A number in [0, most] and the space after it. */
static bool take_number(const char **text, int64_t most, int64_t *out) {
    char *end;
    if (**text < '0' || **text > '9')
        return false;
    errno = 0;
    long long n = strtoll(*text, &end, 10);
    *text = end + 1;
    *out = n;
    return !errno && *end == ' ' && n <= most;
}

/* A line without control characters, but for the tab before a message. */
static bool is_plain(const char *line) {
    for (line += *line == '\t'; *line; line++)
        if ((unsigned char)*line < ' ' || *line == 0x7f)
            return false;
    return true;
}

static ndp_status read_line(ndp_tally *t, const char *line, int sources, bool *sound) {
    int64_t kind, source, n;
    ndp_tally_row *row;
    *sound = is_plain(line);
    if (!*sound)
        return NDP_OK;
    if (line[0] == '\t') {
        *sound = t->n > 0 && t->rows[t->n - 1].named.n < NDP_TALLY_NAMED;
        return *sound ? name(&t->rows[t->n - 1], line + 1) : NDP_OK;
    }
    *sound = take_number(&line, NDP_TALLY_KINDS - 1, &kind) && take_number(&line, sources - 1, &source) &&
             take_number(&line, INT64_MAX / 2, &n) && !find(t, (ndp_tally_kind)kind, (int)source, line);
    if (!*sound)
        return NDP_OK;
    NDP_TRY(row_of(t, (ndp_tally_kind)kind, (int)source, line, &row));
    row->n = n;
    return NDP_OK;
}

ndp_status ndp_tally_read(const char *text, size_t n, int sources, ndp_tally *out) {
    ndp_tally t = {0};
    ndp_status st = NDP_OK;
    bool sound = !memchr(text, '\0', n);
    for (size_t at = 0, end; at < n && sound && st == NDP_OK; at = end + 1) {
        const char *stop = memchr(text + at, '\n', n - at);
        sound = stop != NULL;
        end = sound ? (size_t)(stop - text) : n;
        char *line = sound ? strndup(text + at, end - at) : NULL;
        if (sound)
            st = line ? read_line(&t, line, sources, &sound)
                      : NDP_FAIL(NDP_ENOMEM, "not enough memory to count records");
        free(line);
    }
    if (st == NDP_OK && !sound)
        st = NDP_FAIL(NDP_EFORMAT, "the counts of skipped records are damaged");
    if (st == NDP_OK)
        *out = t;
    else
        ndp_tally_clear(&t);
    return st;
}
