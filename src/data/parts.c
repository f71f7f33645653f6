/* A part of a corpus: shares of it are tokenized by all threads and written in their order. */
#include "data/parts.h"

#include "base/arena.h"
#include "data/cache_file.h"
#include "data/encode.h"
#include "data/source.h"
#include "data/unpack.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SHARE_BYTES = 1 << 20,  /* of text that a thread takes at a time, */
    LEAST_SHARE = 64 << 10, /* less where the part is small, */
    SHARES_PER_THREAD = 4   /* and between two writes: some take longer than others */
};

/* A stretch of a file, and its documents in tokens: what one thread does at a time. */
typedef struct share {
    ndp_source_chunk chunk;
    uint64_t done; /* bytes of the part up to its end */
    const struct tokenizing *b;
    ndp_ids ids;
    ndp_places ends, turns; /* as in a part's file, counted in `ids` */
    ndp_status status;
    char *message; /* a thread's error is its own: carried over to the one that reports */
} share;

typedef struct tokenizing {
    const ndp_dataset_options *o;
    const ndp_part_watch *watch;
    ndp_bin_rule rule;
    FILE *file;
    int id_bytes, threads;
    ndp_part_header h;
    ndp_places ends, turns; /* of the part */
    share *shares;
    int n_shares, used;
    size_t share_bytes;
    uint64_t done; /* bytes of the part before the file at hand */
} tokenizing;

static ndp_status put(tokenizing *b, const void *data, size_t n) {
    return n == 0 || fwrite(data, 1, n, b->file) == n ? NDP_OK : NDP_FAIL(NDP_EIO, "%s", strerror(errno));
}

static ndp_status put_ids(tokenizing *b, const ndp_ids *ids) {
    for (int64_t i = 0; i < ids->n; i++)
        b->h.largest_id = ids->items[i] > b->h.largest_id ? ids->items[i] : b->h.largest_id;
    if (b->id_bytes == 4)
        return put(b, ids->items, (size_t)ids->n * 4);
    uint16_t narrow[4096];
    for (int64_t i = 0, n; i < ids->n; i += n) {
        n = ids->n - i < NDP_COUNT(narrow) ? ids->n - i : NDP_COUNT(narrow);
        for (int64_t k = 0; k < n; k++)
            narrow[k] = (uint16_t)ids->items[i + k];
        NDP_TRY(put(b, narrow, (size_t)n * 2));
    }
    return NDP_OK;
}

/* ---- shares ---- */

/* From token `at` on tokens are learned, or not; the first are. */
static ndp_status turn_to(ndp_places *turns, bool learned, int64_t at) {
    bool now = turns->n % 2 == 0;
    if (now == learned)
        return NDP_OK;
    if (turns->n && turns->items[turns->n - 1] == at) { /* nothing lay between */
        turns->n--;
        return NDP_OK;
    }
    return ndp_places_add(turns, at);
}

/* A tokenizer may be larger than the model, as long as nothing in the data asks for what the model has not. */
static ndp_status check_ids(const share *s, int64_t first, const ndp_document *d) {
    int64_t vocab = s->b->o->vocab;
    for (int64_t i = first; vocab > 0 && i < s->ids.n; i++)
        if (s->ids.items[i] >= vocab)
            return NDP_FAIL(
                NDP_EINVAL,
                "%s:%lld: the text has the token %d, the model's vocabulary ends at %lld: the tokenizer does "
                "not belong to the model",
                d->path, (long long)d->line, s->ids.items[i], (long long)vocab - 1);
    return NDP_OK;
}

static ndp_status encode_document(void *user, const ndp_document *d) {
    share *s = user;
    int64_t before = s->ids.n;
    ndp_places borders = {0};
    if (!d->n)
        return NDP_OK;
    ndp_status st = ndp_encode_document(s->b->o->tokenizer, d, &s->ids, &borders);
    if (st != NDP_OK) {
        char *cause = ndp_format("%s", ndp_error_message());
        st = NDP_FAIL(NDP_EFORMAT, "%s:%lld: %s", d->path, (long long)d->line, cause ? cause : "not tokenized");
        free(cause);
    } else {
        st = check_ids(s, before, d);
    }
    if (st == NDP_OK && s->ids.n > before) {
        st = turn_to(&s->turns, !d->partly, before);
        for (int64_t i = 0; i < borders.n && st == NDP_OK; i++)
            st = turn_to(&s->turns, i % 2 == 0, borders.items[i]);
        if (st == NDP_OK)
            st = ndp_places_add(&s->ends, s->ids.n);
    }
    free(borders.items);
    return st;
}

static ndp_status encode_bin(share *s) {
    const ndp_source_chunk *c = &s->chunk;
    ndp_bin bin;
    NDP_TRY(ndp_bin_open(c->path, c->contents, c->size, s->b->o->bin_id_bytes ? s->b->o->bin_id_bytes : 2, &bin));
    int64_t width = bin.id_bytes, header = (int64_t)bin.header;
    int64_t first = ((int64_t)c->begin - header) / width, end = ((int64_t)c->end - header) / width;
    return ndp_bin_read(&bin, first < 0 ? 0 : first, end < 0 ? 0 : end, &s->b->rule, &s->ids, &s->ends);
}

static ndp_status encode_chunk(share *s) {
    s->ids.n = s->ends.n = s->turns.n = 0;
    return s->chunk.kind == NDP_SOURCE_IDS ? encode_bin(s)
                                           : ndp_source_visit_chunk(&s->chunk, &s->b->o->format, encode_document, s);
}

/* Messages name lines: those before the share are only counted when there is something to say. */
static void encode_share(share *s) {
    s->status = encode_chunk(s);
    if (s->status != NDP_OK && s->chunk.begin > 0) {
        ndp_source_count_lines(&s->chunk);
        s->status = encode_chunk(s);
    }
    if (s->status != NDP_OK)
        s->message = ndp_format("%s", ndp_error_message());
}

static ndp_status put_share(tokenizing *b, const share *s) {
    int64_t first = (int64_t)b->h.n_tokens;
    if (s->status != NDP_OK)
        return NDP_FAIL(s->status, "%s", s->message ? s->message : "not enough memory to tokenize");
    NDP_TRY(put_ids(b, &s->ids));
    for (int64_t i = 0; i < s->ends.n; i++)
        NDP_TRY(ndp_places_add(&b->ends, first + s->ends.items[i]));
    if (s->ids.n > 0)
        NDP_TRY(turn_to(&b->turns, true, first));
    for (int64_t i = 0; i < s->turns.n; i++)
        NDP_TRY(turn_to(&b->turns, i % 2 == 1, first + s->turns.items[i]));
    b->h.n_tokens += (uint64_t)s->ids.n;
    return NDP_OK;
}

/* Tokenizes the shares on all threads and writes them in their order. */
static ndp_status put_shares(tokenizing *b) {
    int n = b->used;
    b->used = 0;
    if (n == 0 || b->watch->stopped(b->watch->user))
        return NDP_OK;
#pragma omp parallel for schedule(dynamic, 1) num_threads(b->threads)
    for (int i = 0; i < n; i++)
        encode_share(&b->shares[i]);
    for (int i = 0; i < n; i++)
        NDP_TRY(put_share(b, &b->shares[i]));
    b->watch->done(b->watch->user, b->shares[n - 1].done);
    return NDP_OK;
}

/* ---- files ---- */

/* Bytes [from, to) of a file of `size`, which are `on_disk` bytes of the part. */
static ndp_status put_file(tokenizing *b, const char *path, const char *contents, size_t size, size_t from, size_t to,
                           size_t on_disk) {
    ndp_source_chunk c;
    NDP_TRY(ndp_source_begin(path, contents, size, &c));
    for (size_t at = from, next; at < to; at = next) {
        next = to - at > b->share_bytes ? at + b->share_bytes : to;
        if (!ndp_source_cut(&c, at, next))
            continue;
        size_t end = c.end < next ? next : c.end < to ? c.end : to; /* a long document goes on behind its share */
        b->shares[b->used].chunk = c;
        b->shares[b->used].done = b->done + (uint64_t)((double)(end - from) / (double)(to - from) * (double)on_disk);
        if (++b->used == b->n_shares)
            NDP_TRY(put_shares(b));
    }
    return NDP_OK;
}

/* One at a time in memory: its shares are written before the next is unpacked. */
static ndp_status put_packed(tokenizing *b, const char *path, const ndp_mapped *file) {
    char *contents;
    size_t size;
    NDP_TRY(ndp_unpack(path, file->data, file->size, &contents, &size));
    ndp_status st = put_file(b, path, contents, size, 0, size, file->size);
    if (st == NDP_OK)
        st = put_shares(b);
    b->used = 0;
    free(contents);
    return st;
}

static ndp_status put_files(tokenizing *b, const ndp_corpus *c, ndp_cut from, ndp_cut to) {
    for (int64_t f = from.file; f < to.file || (f == to.file && to.at > 0); f++) {
        const char *path = c->files.paths[f];
        const ndp_mapped *file = &c->mapped[f];
        size_t begin = f == from.file ? from.at : 0, end = f == to.file ? to.at : file->size;
        NDP_TRY(ndp_is_packed(path) ? put_packed(b, path, file)
                                    : put_file(b, path, (const char *)file->data, file->size, begin, end, end - begin));
        b->done += end - begin;
        if (b->watch->stopped(b->watch->user))
            break;
    }
    return put_shares(b);
}

/* ---- the whole ---- */

static ndp_status put_part(tokenizing *b, const ndp_corpus *c, ndp_cut from, ndp_cut to) {
    NDP_TRY(put(b, &b->h, sizeof b->h));
    NDP_TRY(put_files(b, c, from, to));
    b->h.n_documents = (uint64_t)b->ends.n;
    b->h.n_turns = (uint64_t)b->turns.n;
    uint64_t ids = b->h.n_tokens * (uint64_t)b->id_bytes;
    NDP_TRY(put(b, (const char[8]){0}, (ids + 7) / 8 * 8 - ids));
    NDP_TRY(put(b, b->ends.items, 8 * (size_t)b->ends.n));
    NDP_TRY(put(b, b->turns.items, 8 * (size_t)b->turns.n));
    if (fseek(b->file, 0, SEEK_SET))
        return NDP_FAIL(NDP_EIO, "%s", strerror(errno));
    return put(b, &b->h, sizeof b->h);
}

static ndp_status take_memory(tokenizing *b) {
    b->n_shares = SHARES_PER_THREAD * b->threads;
    b->shares = calloc((size_t)b->n_shares, sizeof *b->shares);
    if (!b->shares)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory to tokenize");
    for (int i = 0; i < b->n_shares; i++)
        b->shares[i].b = b;
    return NDP_OK;
}

static void release(tokenizing *b) {
    for (int i = 0; b->shares && i < b->n_shares; i++) {
        ndp_ids_release(&b->shares[i].ids);
        free(b->shares[i].ends.items);
        free(b->shares[i].turns.items);
        free(b->shares[i].message);
    }
    free(b->shares);
    free(b->ends.items);
    free(b->turns.items);
}

ndp_status ndp_part_tokenize(const ndp_dataset_options *o, const ndp_corpus *c, const ndp_parts *parts, int64_t p,
                             const char *path, const ndp_part_watch *watch) {
    tokenizing b = {.o = o,
                    .watch = watch,
                    .rule = ndp_cache_bin_rule(o),
                    .id_bytes = ndp_cache_id_bytes(o),
                    .threads = ndp_dataset_threads(o),
                    .h.largest_id = 0};
    uint64_t want = parts->bytes[p] / (uint64_t)(SHARES_PER_THREAD * b.threads);
    b.share_bytes = want > SHARE_BYTES ? SHARE_BYTES : want < LEAST_SHARE ? LEAST_SHARE : (size_t)want;
    b.file = fopen(path, "wbe");
    ndp_status st = b.file ? take_memory(&b) : NDP_FAIL(NDP_EIO, "%s", strerror(errno));
    if (st == NDP_OK)
        st = put_part(&b, c, parts->cuts[p], parts->cuts[p + 1]);
    if (b.file && fclose(b.file) && st == NDP_OK)
        st = NDP_FAIL(NDP_EIO, "%s", strerror(errno));
    release(&b);
    return st;
}
