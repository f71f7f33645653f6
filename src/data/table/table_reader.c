/* The stream of a reader of tables. A line that begins with { is a row and is passed on as it arrives; any other line
 * is the reader's word: "end N" or "error TEXT". A stream without "end N", with another N, or with more after it is an
 * error, so a reader that dies cannot shorten the data. Called by cache/table_files.c, sample.c and source.c. */
#include "data/table/table_reader.h"

#include "base/memory_limit.h"
#include "base/python.h"
#include "data/corpus/source.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CHUNK = 1 << 16, LINE = 2000 };

static const ndp_python_program program = {.what = "the program that reads tables", .source = ndp_python_table};

typedef struct table_stream {
    const char *path;
    const ndp_table_sink *sink;
    int64_t rows;        /* that have ended */
    int64_t bytes, most; /* of all rows: so far, and allowed */
    size_t n;            /* bytes of the current line */
    bool in_row;         /* the current line is a row */
    bool ended;          /* "end N" came, and N is right */
    char line[LINE + 1]; /* of the reader's word */
} table_stream;

static ndp_status fail_garbage(const table_stream *s) {
    return NDP_FAIL(NDP_EIO, "%s: row %lld: its reader wrote '%.60s', which is not a record", s->path,
                    (long long)s->rows + 1, s->line);
}

/* The reader's word is complete. */
static ndp_status take_word(table_stream *s) {
    s->line[s->n < LINE ? s->n : LINE] = '\0';
    char expected[40];
    snprintf(expected, sizeof expected, "end %lld", (long long)s->rows);
    if (strncmp(s->line, "error ", 6) == 0)
        return NDP_FAIL(NDP_EFORMAT, "%s: %s", s->path, s->line + 6);
    s->ended = strcmp(s->line, expected) == 0;
    if (!s->ended && strncmp(s->line, "end ", 4) == 0)
        return NDP_FAIL(NDP_EIO, "%s: its reader wrote %lld rows, but counted %.20s", s->path, (long long)s->rows,
                        s->line + 4);
    return s->ended ? NDP_OK : fail_garbage(s);
}

static ndp_status end_line(table_stream *s) {
    ndp_status st = NDP_OK;
    if (s->in_row) {
        s->rows++;
        st = s->sink->row ? s->sink->row(s->sink->user) : NDP_OK;
    } else
        st = take_word(s);
    s->n = 0;
    s->in_row = false;
    return st;
}

/* A piece of one line, without its end. */
static ndp_status take_piece(table_stream *s, const char *text, size_t n) {
    if (s->n == 0)
        s->in_row = text[0] == '{' && !s->ended;
    if (!s->in_row && s->n < LINE)
        memcpy(s->line + s->n, text, n < LINE - s->n ? n : LINE - s->n);
    s->n += n;
    if (s->in_row && s->n > NDP_RECORD_BYTES)
        return NDP_FAIL(NDP_EFORMAT, "%s: row %lld: a record of more than %zu bytes, the most that is read", s->path,
                        (long long)s->rows + 1, NDP_RECORD_BYTES);
    s->bytes += (int64_t)n;
    if (s->in_row && s->bytes > s->most)
        return NDP_FAIL(
            NDP_EFORMAT,
            "%s: its first %lld rows are more than %lld bytes of text; beyond %lld MiB a table may expand %d "
            "times. If these are really data, write them as .jsonl",
            s->path, (long long)s->rows + 1, (long long)s->most, (long long)NDP_TABLE_ALLOWANCE >> 20, NDP_TABLE_RATIO);
    return s->in_row ? s->sink->put(s->sink->user, text, n) : NDP_OK;
}

static ndp_status take_chunk(table_stream *s, const char *text, size_t n) {
    for (size_t at = 0, length; at < n; at += length) {
        const char *stop = memchr(text + at, '\n', n - at);
        length = stop ? (size_t)(stop - text) - at : n - at;
        if (s->ended)
            return NDP_FAIL(NDP_EIO, "%s: its reader wrote more after the last row", s->path);
        if (length)
            NDP_TRY(take_piece(s, text + at, length));
        if (!stop)
            break;
        if (s->in_row) {
            s->bytes++;
            NDP_TRY(s->sink->put(s->sink->user, "\n", 1));
        }
        NDP_TRY(end_line(s));
        length++;
    }
    return NDP_OK;
}

static ndp_status fail_at_row(const table_stream *s, ndp_status st) {
    return NDP_FAIL(st, "%s: row %lld: %s%s", s->path, (long long)s->rows + 1, ndp_error_message(),
                    s->ended ? "" : ", before it had read all rows");
}

/* Reads to the end of the output. */
static ndp_status read_stream(ndp_python *p, int silence, table_stream *s) {
    char chunk[CHUNK];
    for (size_t n = 1; n > 0;) {
        ndp_status st = ndp_python_receive(p, chunk, sizeof chunk, silence, &n);
        if (st != NDP_OK)
            return fail_at_row(s, st);
        NDP_TRY(take_chunk(s, chunk, n));
    }
    return NDP_OK;
}

/* Says why a reader ended whose output did not fail. */
static ndp_status end_reader(ndp_python *p, const table_stream *s) {
    ndp_status st = ndp_python_end(p);
    if (st != NDP_OK)
        return fail_at_row(s, st);
    return s->ended ? NDP_OK
                    : NDP_FAIL(NDP_EIO, "%s: row %lld: %s (%s) ended before it had read all rows", s->path,
                               (long long)s->rows + 1, program.what, ndp_python_interpreter());
}

/* No memory of a run is allocated while the readers of its tables run, so each may have a share of the available
 * memory.
 */
static int64_t share_of_memory(int readers) {
    int64_t share = ndp_memory_available() / (readers > 1 ? readers : 1);
    return share < NDP_TABLE_LEAST_MEMORY  ? NDP_TABLE_LEAST_MEMORY
           : share > NDP_TABLE_MOST_MEMORY ? NDP_TABLE_MOST_MEMORY
                                           : share;
}

/* How many bytes of text the rows of a file may be. */
static int64_t most_text(const char *path) {
    struct stat info;
    return NDP_TABLE_ALLOWANCE + (stat(path, &info) ? 0 : NDP_TABLE_RATIO * (int64_t)info.st_size);
}

ndp_status ndp_table_read(const char *path, int64_t most, int silence, int readers, const ndp_table_sink *sink,
                          int64_t *rows) {
    char most_rows[32], longest[32], memory[32];
    table_stream s = {.path = path, .sink = sink, .most = most_text(path)};
    ndp_python *p;
    snprintf(most_rows, sizeof most_rows, "%lld", (long long)most);
    snprintf(longest, sizeof longest, "%zu", NDP_RECORD_BYTES);
    snprintf(memory, sizeof memory, "%lld", (long long)share_of_memory(readers));
    *rows = 0;
    NDP_TRY(ndp_python_start(&program, (const char *const[]){path, most_rows, longest, memory, NULL}, &p));
    ndp_status st = read_stream(p, silence, &s);
    if (st == NDP_OK)
        st = end_reader(p, &s);
    else
        ndp_python_kill(p);
    *rows = s.rows;
    return st;
}

/* ---- the head ---- */

typedef struct table_head {
    ndp_str text;
    size_t bytes, checked; /* there is memory for so much text */
    bool full;
} table_head;

/* Stops the reading once there is enough. */
static const ndp_status STOPPED = NDP_EINTR;

static ndp_status put_head(void *user, const char *bytes, size_t n) {
    table_head *h = user;
    if (h->text.length + n > h->checked) { /* growing it takes as much again */
        h->checked = 2 * (h->text.length + n);
        if ((int64_t)h->checked > ndp_memory_available())
            return NDP_FAIL(NDP_ENOMEM, "the rows of a table are more than %zu bytes, which do not fit into memory",
                            h->text.length);
    }
    ndp_str_add_bytes(&h->text, bytes, n);
    return NDP_MEMORY(!h->text.failed, "for the rows of a table");
}

static ndp_status end_row(void *user) {
    table_head *h = user;
    h->full = h->text.length >= h->bytes;
    return h->full ? STOPPED : NDP_OK;
}

ndp_status ndp_table_head(const char *path, int64_t most, size_t bytes, char **out, size_t *n, bool *complete) {
    table_head h = {.bytes = bytes};
    const ndp_table_sink sink = {put_head, end_row, &h};
    int64_t rows;
    ndp_status st = ndp_table_read(path, most ? most + 1 : 0, NDP_TABLE_SILENCE, 1, &sink, &rows);
    if (st == NDP_OK || (st == STOPPED && h.full)) {
        *complete = st == NDP_OK && (most == 0 || rows <= most);
        *n = h.text.length;
        *out = h.text.data ? ndp_str_detach(&h.text) : calloc(1, 1);
        st = NDP_MEMORY(*out, "for the rows of a table");
    }
    ndp_str_release(&h.text);
    return st;
}
