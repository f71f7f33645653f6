/* Building a cache: shares of the files are tokenized by all threads and written in their order. */
#include "data/cache_file.h"

#include "base/cpu.h"
#include "data/encode.h"
#include "data/source.h"
#include "data/unpack.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    SHARE_BYTES = 1 << 20, /* of text that a thread takes at a time, up to the end of a document */
    SHARES_PER_THREAD = 4  /* between two writes: some take longer than others */
};

/* A stretch of a file, and its documents in tokens: what one thread does at a time. */
typedef struct share {
    ndp_source_chunk chunk;
    uint64_t done; /* bytes of all sources up to its end */
    const struct builder *b;
    ndp_ids ids;
    ndp_places ends; /* of the documents, in ids; of a .bin file the last one may go on in the next share */
    /* Tokens [at[0], at[1]), [at[1], at[2]), ... are not learned, learned, not learned, ...; n 0: all are. */
    ndp_places turns;
    ndp_status status;
    char *message; /* a thread's error is its own: carried over to the one that reports */
} share;

typedef struct builder {
    const ndp_dataset_options *o;
    ndp_bin_rule rule;
    FILE *file;
    XXH3_state_t *hash;
    ndp_cache_header h;
    share *shares;
    int n_shares, used, threads;
    uint64_t *offsets, *source_ends;
    int64_t offsets_capacity;
    uint8_t *bits; /* of learned tokens */
    int64_t bits_capacity;
    uint64_t bytes_total, bytes_done, reported; /* of the sources */
} builder;

static ndp_status put(builder *b, const void *data, size_t n) {
    XXH3_128bits_update(b->hash, data, n);
    return fwrite(data, 1, n, b->file) == n ? NDP_OK : NDP_FAIL(NDP_EIO, "%s", strerror(errno));
}

static ndp_status put_ids(builder *b, const ndp_ids *ids) {
    for (int64_t i = 0; i < ids->n; i++)
        b->h.largest_id = ids->items[i] > b->h.largest_id ? ids->items[i] : b->h.largest_id;
    if (b->h.id_bytes == 4)
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

/* From token `at` on tokens are learned, or not; the share's first are. */
static ndp_status turn_to(share *s, bool learned, int64_t at) {
    bool now = s->turns.n % 2 == 0;
    if (now == learned)
        return NDP_OK;
    if (s->turns.n && s->turns.items[s->turns.n - 1] == at) { /* nothing lay between */
        s->turns.n--;
        return NDP_OK;
    }
    return ndp_places_add(&s->turns, at);
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
    } else if (s->ids.n > before) {
        st = turn_to(s, !d->partly, before);
        for (int64_t i = 0; i < borders.n && st == NDP_OK; i++)
            st = turn_to(s, i % 2 == 0, borders.items[i]);
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

static void encode_share(share *s) {
    s->ids.n = s->ends.n = s->turns.n = 0;
    s->status = s->chunk.kind == NDP_SOURCE_IDS
                    ? encode_bin(s)
                    : ndp_source_visit_chunk(&s->chunk, &s->b->o->format, encode_document, s);
    if (s->status != NDP_OK)
        s->message = ndp_format("%s", ndp_error_message());
}

/* Bits of the share's tokens behind those of the tokens before. */
static ndp_status add_bits(builder *b, const share *s) {
    int64_t first = (int64_t)b->h.n_tokens, n = (first + s->ids.n + 63) / 64 * 8, had = b->bits_capacity;
    NDP_TRY(ndp_array_reserve(&b->bits, &b->bits_capacity, n, 1));
    memset(b->bits + had, 0, (size_t)(b->bits_capacity - had));
    b->h.partly |= s->turns.n > 0;
    bool learned = true;
    for (int64_t i = 0, turn = 0; i < s->ids.n; i++) {
        for (; turn < s->turns.n && s->turns.items[turn] == i; turn++)
            learned = !learned;
        b->bits[(first + i) >> 3] |= (uint8_t)(learned << ((first + i) & 7));
    }
    return NDP_OK;
}

static void report(builder *b, uint64_t done) {
    if (b->o->progress && (done - b->reported >= 1 << 20 || done == b->bytes_total)) {
        b->reported = done;
        b->o->progress(b->o->progress_user, done, b->bytes_total);
    }
}

static ndp_status put_share(builder *b, const share *s) {
    if (s->status != NDP_OK)
        return NDP_FAIL(s->status, "%s", s->message ? s->message : "not enough memory to tokenize");
    NDP_TRY(put_ids(b, &s->ids));
    NDP_TRY(add_bits(b, s));
    int64_t documents = (int64_t)b->h.n_documents + s->ends.n;
    NDP_TRY(ndp_array_reserve(&b->offsets, &b->offsets_capacity, documents + 1, sizeof *b->offsets));
    for (int64_t i = 0; i < s->ends.n; i++)
        b->offsets[++b->h.n_documents] = b->h.n_tokens + (uint64_t)s->ends.items[i];
    b->h.n_tokens += (uint64_t)s->ids.n;
    report(b, s->done);
    return NDP_OK;
}

/* Tokenizes the shares on all threads and writes them in their order. */
static ndp_status put_shares(builder *b) {
    int n = b->used;
    b->used = 0;
#pragma omp parallel for schedule(dynamic, 1) num_threads(b->threads)
    for (int i = 0; i < n; i++)
        encode_share(&b->shares[i]);
    for (int i = 0; i < n; i++)
        NDP_TRY(put_share(b, &b->shares[i]));
    return NDP_OK;
}

/* ---- files ---- */

static ndp_status put_file(builder *b, const char *path, const char *contents, size_t size, size_t on_disk) {
    ndp_source_chunk c;
    NDP_TRY(ndp_source_begin(path, contents, size, &c));
    while (ndp_source_next(&c, SHARE_BYTES)) {
        b->shares[b->used].chunk = c;
        b->shares[b->used].done =
            b->bytes_done + (c.end == size ? on_disk : (uint64_t)((double)c.end / (double)size * (double)on_disk));
        if (++b->used == b->n_shares)
            NDP_TRY(put_shares(b));
    }
    return NDP_OK;
}

/* One at a time in memory: its shares are written before the next is unpacked. */
static ndp_status put_packed(builder *b, const char *path, const ndp_mapped *file) {
    char *contents;
    size_t size;
    NDP_TRY(ndp_unpack(path, file->data, file->size, &contents, &size));
    ndp_status st = put_file(b, path, contents, size, file->size);
    if (st == NDP_OK)
        st = put_shares(b);
    b->used = 0;
    free(contents);
    return st;
}

static ndp_status put_sources(builder *b, const ndp_cache_sources *s) {
    for (int64_t i = 0, source = 0; i < s->files.n; i++) {
        const char *path = s->files.paths[i];
        const ndp_mapped *file = &s->mapped[i];
        NDP_TRY(ndp_is_packed(path) ? put_packed(b, path, file)
                                    : put_file(b, path, (const char *)file->data, file->size, file->size));
        b->bytes_done += file->size;
        if (i + 1 < s->source_ends[source])
            continue;
        NDP_TRY(put_shares(b));
        b->source_ends[source++] = b->h.n_documents;
    }
    return NDP_OK;
}

/* All behind the header, then the header itself. */
static ndp_status put_all(builder *b, const ndp_cache_sources *s) {
    if (fseek(b->file, sizeof b->h, SEEK_SET))
        return NDP_FAIL(NDP_EIO, "%s", strerror(errno));
    NDP_TRY(put_sources(b, s));
    if (!b->h.n_documents)
        return NDP_FAIL(NDP_EINVAL, "the corpus is empty: %lld file%s (%s%s) without a document", (long long)s->files.n,
                        s->files.n == 1 ? "" : "s", s->files.paths[0], s->files.n == 1 ? "" : ", ...");
    NDP_TRY(put(b, (const char[8]){0}, ndp_cache_ids_bytes(&b->h) - b->h.n_tokens * b->h.id_bytes));
    NDP_TRY(put(b, b->offsets, 8 * (b->h.n_documents + 1)));
    NDP_TRY(put(b, b->source_ends, 8 * (size_t)b->h.n_sources));
    NDP_TRY(put(b, b->bits, ndp_cache_bits_bytes(&b->h)));
    XXH128_hash_t hash = XXH3_128bits_digest(b->hash);
    b->h.payload = (ndp_hash128){hash.low64, hash.high64};
    b->h.hash = ndp_cache_header_hash(&b->h);
    if (fseek(b->file, 0, SEEK_SET) || fwrite(&b->h, sizeof b->h, 1, b->file) != 1 || fflush(b->file) ||
        fsync(fileno(b->file)))
        return NDP_FAIL(NDP_EIO, "%s", strerror(errno));
    return NDP_OK;
}

ndp_status ndp_cache_fail_writing(const char *path, const char *cause) {
    char *copy = ndp_format("%s", cause);
    ndp_status st = NDP_FAIL(NDP_EIO, "cannot write the token cache '%s': %s; data.cache_dir may name another folder",
                             path, copy ? copy : "");
    free(copy);
    return st;
}

static ndp_status build_file(builder *b, const ndp_cache_sources *sources, const char *beside, const char *path) {
    b->file = fopen(beside, "wbe");
    if (!b->file)
        return ndp_cache_fail_writing(beside, strerror(errno));
    ndp_status st = put_all(b, sources);
    if (fclose(b->file) && st == NDP_OK)
        st = NDP_FAIL(NDP_EIO, "%s", strerror(errno));
    if (st == NDP_OK && rename(beside, path))
        st = NDP_FAIL(NDP_EIO, "%s", strerror(errno));
    if (st == NDP_OK)
        return NDP_OK;
    unlink(beside);
    return st == NDP_EIO ? ndp_cache_fail_writing(path, ndp_error_message()) : st;
}

/* ---- the whole ---- */

/* GPT-2's token stands between documents also where nobody says so. */
static ndp_bin_rule rule_of(const ndp_dataset_options *o) {
    const ndp_tokenizer *t = o->tokenizer;
    ndp_bin_rule r = {ndp_tokenizer_bos(t), ndp_tokenizer_eos(t), o->vocab ? o->vocab : ndp_tokenizer_vocab_size(t)};
    if (r.bos < 0 && r.eos < 0)
        r.bos = r.eos = ndp_tokenizer_id(t, "<|endoftext|>");
    return r;
}

static void release_builder(builder *b) {
    for (int i = 0; b->shares && i < b->n_shares; i++) {
        ndp_ids_release(&b->shares[i].ids);
        free(b->shares[i].ends.items);
        free(b->shares[i].turns.items);
        free(b->shares[i].message);
    }
    free(b->shares);
    XXH3_freeState(b->hash);
    free(b->offsets);
    free(b->source_ends);
    free(b->bits);
}

static ndp_status take_memory(builder *b) {
    b->n_shares = SHARES_PER_THREAD * b->threads;
    b->shares = calloc((size_t)b->n_shares, sizeof *b->shares);
    b->source_ends = calloc((size_t)b->h.n_sources, sizeof *b->source_ends);
    b->hash = XXH3_createState();
    if (!b->hash || !b->shares || !b->source_ends)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory to tokenize");
    NDP_TRY(ndp_array_reserve(&b->offsets, &b->offsets_capacity, 1, sizeof *b->offsets));
    b->offsets[0] = 0;
    for (int i = 0; i < b->n_shares; i++)
        b->shares[i].b = b;
    XXH3_128bits_reset(b->hash);
    return NDP_OK;
}

ndp_status ndp_cache_build(const ndp_dataset_options *o, const ndp_cache_sources *sources, ndp_hash128 key,
                           const char *path) {
    builder b = {.o = o, .rule = rule_of(o), .threads = o->threads ? o->threads : ndp_cpu_cores()};
    int64_t words = ndp_tokenizer_vocab_size(o->tokenizer), most = words > b.rule.vocab ? words : b.rule.vocab;
    b.h = (ndp_cache_header){
        .version = NDP_CACHE_VERSION, .id_bytes = most <= 65536 ? 2 : 4, .key = key, .n_sources = (uint32_t)o->n_files};
    memcpy(b.h.magic, NDP_CACHE_MAGIC, sizeof b.h.magic);
    for (int64_t i = 0; i < sources->files.n; i++)
        b.bytes_total += sources->mapped[i].size;
    char *beside = ndp_format("%s.tmp-%d-%d", path, (int)getpid(), (int)gettid());
    ndp_status st = beside ? take_memory(&b) : NDP_FAIL(NDP_ENOMEM, "not enough memory to tokenize");
    if (st == NDP_OK)
        st = build_file(&b, sources, beside, path);
    release_builder(&b);
    free(beside);
    return st;
}
