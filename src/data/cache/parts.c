/* Tokenizing one part of a corpus: its files are cut into shares of about a megabyte, all threads tokenize a batch of
 * shares, and the results are written in order, so the part does not depend on the number of threads. */
#include "data/cache/parts.h"

#include "data/cache/file_share.h"
#include "data/cache/windows.h"
#include "data/corpus/source_records.h"
#include "data/corpus/unpack.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SHARE_BYTES = 1 << 20,  /* of text per share, */
    LEAST_SHARE = 64 << 10, /* less if the part is small */
    SHARES_PER_THREAD = 4   /* between two writes; more than one, as shares differ in time */
};

typedef struct tokenizing {
    const ndp_dataset_options *o;
    const ndp_record_format *format; /* of the part's source */
    const ndp_part_watch *watch;
    FILE *file;
    int id_bytes, threads;
    ndp_part_header h;
    ndp_places ends, turns, questions; /* of the part, */
    ndp_tally tally;                   /* and this too */
    ndp_file_share *shares;
    uint64_t *done_with; /* [n_shares] bytes of the part up to the end of the share */
    int n_shares, used;
    size_t share_bytes;
    uint64_t done; /* bytes of the part before the current file */
} tokenizing;

ndp_status ndp_part_put(FILE *f, const void *data, size_t n) {
    return n == 0 || fwrite(data, 1, n, f) == n ? NDP_OK : NDP_FAIL(NDP_EIO, "%s", strerror(errno));
}

static ndp_status put_ids(tokenizing *b, const ndp_ids *ids) {
    for (int64_t i = 0; i < ids->n; i++)
        b->h.largest_id = ids->items[i] > b->h.largest_id ? ids->items[i] : b->h.largest_id;
    if (b->id_bytes == 4)
        return ndp_part_put(b->file, ids->items, (size_t)ids->n * 4);
    uint16_t narrow[4096];
    for (int64_t i = 0, n; i < ids->n; i += n) {
        n = ids->n - i < NDP_COUNT(narrow) ? ids->n - i : NDP_COUNT(narrow);
        for (int64_t k = 0; k < n; k++)
            narrow[k] = (uint16_t)ids->items[i + k];
        NDP_TRY(ndp_part_put(b->file, narrow, (size_t)n * 2));
    }
    return NDP_OK;
}

/* ---- shares ---- */

/* The lines before a chunk are counted only where its messages are needed: it is then encoded again. */
static ndp_status put_tally(tokenizing *b, ndp_file_share *s) {
    if (s->chunk.begin > 0 && ndp_tally_names(&b->tally, &s->tally)) {
        ndp_source_count_lines(&s->chunk);
        ndp_file_share_encode(s);
        NDP_TRY(ndp_file_share_check(s));
    }
    return ndp_tally_merge(&b->tally, &s->tally, 0);
}

static ndp_status put_share(tokenizing *b, ndp_file_share *s) {
    int64_t first = (int64_t)b->h.n_tokens;
    NDP_TRY(ndp_file_share_check(s));
    NDP_TRY(put_tally(b, s));
    NDP_TRY(put_ids(b, &s->ids));
    NDP_TRY(ndp_file_share_append(s, first, &b->ends, &b->turns, &b->questions));
    b->h.n_tokens += (uint64_t)s->ids.n;
    b->h.n_texts += (uint64_t)s->texts;
    return NDP_OK;
}

/* Tokenizes the pending shares on all threads and writes them in order. */
static ndp_status put_shares(tokenizing *b) {
    int n = b->used;
    b->used = 0;
    if (n == 0 || b->watch->stopped(b->watch->user))
        return NDP_OK;
#pragma omp parallel for schedule(dynamic, 1) num_threads(b->threads)
    for (int i = 0; i < n; i++)
        ndp_file_share_encode(&b->shares[i]);
    for (int i = 0; i < n; i++)
        NDP_TRY(put_share(b, &b->shares[i]));
    b->watch->done(b->watch->user, b->done_with[n - 1]);
    return NDP_OK;
}

/* ---- files ---- */

/* Bytes [from, to) of a file of `size`, which stand for `on_disk` bytes of the part. `w`: its records, if it is a list.
 */
static ndp_status put_file(tokenizing *b, const char *path, const char *contents, size_t size, size_t from, size_t to,
                           size_t on_disk, const ndp_file_window *w) {
    ndp_source_chunk c;
    NDP_TRY(ndp_source_begin(path, contents, size, &c));
    c.first = w->first;
    c.last = w->end;
    for (size_t at = from, next; at < to; at = next) {
        next = to - at > b->share_bytes ? at + b->share_bytes : to;
        if (!ndp_source_cut(&c, at, next))
            continue;
        size_t end = c.end < next ? next : c.end < to ? c.end : to; /* a long document extends beyond its share */
        b->shares[b->used].chunk = c;
        b->done_with[b->used] = b->done + (uint64_t)((double)(end - from) / (double)(to - from) * (double)on_disk);
        if (++b->used == b->n_shares)
            NDP_TRY(put_shares(b));
    }
    return NDP_OK;
}

/* Only one unpacked file is in memory: its shares are written before the next file is unpacked. */
static ndp_status put_packed(tokenizing *b, const char *path, const ndp_mapped *file, const ndp_file_window *w) {
    char *contents;
    size_t size, from = 0, to;
    ndp_source_chunk c;
    NDP_TRY(ndp_unpack(path, file->data, file->size, &contents, &size));
    to = size;
    ndp_status st = ndp_source_begin(path, contents, size, &c);
    if (st == NDP_OK && w->end < INT64_MAX && c.kind != NDP_SOURCE_JSON) {
        ndp_source_find_records(&c, w->first, w->end, &from, &to);
    }
    if (st == NDP_OK)
        st = put_file(b, path, contents, size, from, to, file->size, w);
    if (st == NDP_OK)
        st = put_shares(b);
    b->used = 0;
    free(contents);
    return st;
}

static ndp_status put_files(tokenizing *b, const ndp_corpus *c, ndp_cut from, ndp_cut to) {
    for (int64_t f = from.file; f < to.file || (f == to.file && to.at > 0); f++) {
        const char *path = c->files.paths.items[f];
        const ndp_mapped *file = &c->mapped[f];
        const ndp_file_window w = ndp_corpus_window(c, f);
        size_t begin = f == from.file && from.at > w.begin ? from.at : w.begin, end = f == to.file ? to.at : w.stop;
        if (w.first >= w.end)
            continue;
        NDP_TRY(ndp_is_packed(path)
                    ? put_packed(b, path, file, &w)
                    : put_file(b, path, (const char *)file->data, file->size, begin, end, end - begin, &w));
        b->done += end - begin;
        if (b->watch->stopped(b->watch->user))
            break;
    }
    return put_shares(b);
}

/* ---- the whole ---- */

/* What follows the ids, then the header. */
static ndp_status put_tables(tokenizing *b, const ndp_str *tally) {
    NDP_CHECK_MEMORY(!tally->failed, "to count records");
    b->h.n_documents = (uint64_t)b->ends.n;
    b->h.n_turns = (uint64_t)b->turns.n;
    b->h.n_questions = (uint64_t)b->questions.n;
    b->h.tally_bytes = tally->length;
    uint64_t ids = b->h.n_tokens * (uint64_t)b->id_bytes;
    NDP_TRY(ndp_part_put(b->file, (const char[8]){0}, (ids + 7) / 8 * 8 - ids));
    NDP_TRY(ndp_part_put(b->file, b->ends.items, 8 * (size_t)b->ends.n));
    NDP_TRY(ndp_part_put(b->file, b->turns.items, 8 * (size_t)b->turns.n));
    NDP_TRY(ndp_part_put(b->file, b->questions.items, 8 * (size_t)b->questions.n));
    NDP_TRY(ndp_part_put(b->file, tally->data, tally->length));
    if (fseek(b->file, 0, SEEK_SET))
        return NDP_FAIL(NDP_EIO, "%s", strerror(errno));
    return ndp_part_put(b->file, &b->h, sizeof b->h);
}

static ndp_status put_part(tokenizing *b, const ndp_corpus *c, ndp_cut from, ndp_cut to) {
    ndp_str tally = {0};
    NDP_TRY(ndp_part_put(b->file, &b->h, sizeof b->h));
    NDP_TRY(put_files(b, c, from, to));
    ndp_tally_write(&b->tally, &tally);
    ndp_status st = put_tables(b, &tally);
    ndp_str_release(&tally);
    return st;
}

static ndp_status take_memory(tokenizing *b) {
    b->n_shares = SHARES_PER_THREAD * b->threads;
    b->shares = calloc((size_t)b->n_shares, sizeof *b->shares);
    b->done_with = calloc((size_t)b->n_shares, sizeof *b->done_with);
    NDP_CHECK_MEMORY(b->shares && b->done_with, "to tokenize");
    for (int i = 0; i < b->n_shares; i++) {
        b->shares[i].o = b->o;
        b->shares[i].format = b->format;
    }
    return NDP_OK;
}

static void release(tokenizing *b) {
    for (int i = 0; b->shares && i < b->n_shares; i++)
        ndp_file_share_release(&b->shares[i]);
    free(b->shares);
    free(b->done_with);
    free(b->ends.items);
    free(b->turns.items);
    free(b->questions.items);
    ndp_tally_clear(&b->tally);
}

ndp_status ndp_part_tokenize(const ndp_dataset_options *o, const ndp_corpus *c, const ndp_parts *parts, int64_t p,
                             const char *path, const ndp_part_watch *watch) {
    tokenizing b = {.o = o,
                    .format = ndp_dataset_format(o, ndp_parts_source(parts, p)),
                    .watch = watch,
                    .id_bytes = ndp_dataset_id_bytes(o),
                    .threads = ndp_dataset_threads(o),
                    .h.largest_id = 0};
    uint64_t want = parts->bytes[p] / (uint64_t)(SHARES_PER_THREAD * b.threads);
    b.share_bytes = want > SHARE_BYTES ? SHARE_BYTES : want < LEAST_SHARE ? LEAST_SHARE : (size_t)want;
    b.file = fopen(path, "wbe");
    ndp_status st = b.file ? take_memory(&b) : NDP_FAIL(NDP_EIO, "%s", strerror(errno));
    if (st == NDP_OK)
        st = put_part(&b, c, parts->cuts[p], parts->cuts[p + 1]);
    st = ndp_corpus_check_read(c, parts->cuts[p].file, parts->cuts[p + 1].file + 1, st);
    if (b.file && fclose(b.file) && st == NDP_OK)
        st = NDP_FAIL(NDP_EIO, "%s", strerror(errno));
    release(&b);
    return st;
}
