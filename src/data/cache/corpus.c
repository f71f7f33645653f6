/* The files of a data set and the key of their cache. The key depends on the files' bytes, kinds and order and on
 * what determines the ids, not on where the files lie; large files are hashed in blocks by several threads. Called
 * by cache.c, cache_build.c and sample.c. */
#include "data/cache/corpus.h"

#include "data/cache/cache_file.h"
#include "data/corpus/source.h"
#include "data/corpus/unpack.h"
#include "data/table/table_reader.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

/* ---- files ---- */

/* Ranks that compute the same stamp see the same files. */
static ndp_status stamp_of(const ndp_file_list *files, uint64_t *out) {
    XXH64_hash_t hash = 0;
    for (int64_t i = 0; i < files->paths.n; i++) {
        struct stat s;
        if (stat(files->paths.items[i], &s))
            return NDP_FAIL(NDP_EIO, "cannot read '%s': %s", files->paths.items[i], strerror(errno));
        const int64_t facts[] = {s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec};
        hash = XXH3_64bits_withSeed(facts, sizeof facts, hash);
    }
    *out = hash;
    return NDP_OK;
}

/* Counts files of ids; all others need a tokenizer. */
static ndp_status check_kind(const ndp_dataset_options *o, const char *path, int64_t *id_files) {
    const char *why = o->tokenizer ? ndp_tokenizer_why_no_texts(o->tokenizer) : NULL;
    ndp_source_kind kind;
    NDP_TRY(ndp_source_kind_of(path, &kind));
    *id_files += kind == NDP_SOURCE_IDS;
    return kind == NDP_SOURCE_IDS || !why ? NDP_OK : NDP_FAIL(NDP_EINVAL, "%s is not a file of ids: %s", path, why);
}

static ndp_status open_files(const ndp_dataset_options *o, ndp_corpus *c) {
    c->source_ends = calloc((size_t)o->n_files, sizeof *c->source_ends);
    c->slices = calloc((size_t)o->n_files, sizeof *c->slices);
    NDP_CHECK_MEMORY(c->source_ends && c->slices, "for %d files", o->n_files);
    for (; c->n_sources < o->n_files; c->n_sources++) {
        NDP_TRY(ndp_file_list_add(&c->files, o->files[c->n_sources], o->splits ? o->splits[c->n_sources] : NULL,
                                  &c->slices[c->n_sources]));
        c->source_ends[c->n_sources] = c->files.paths.n;
    }
    c->mapped = calloc((size_t)c->files.paths.n, sizeof *c->mapped);
    NDP_CHECK_MEMORY(c->mapped, "for %lld files", (long long)c->files.paths.n);
    for (int64_t i = 0; i < c->files.paths.n; i++) {
        NDP_TRY(check_kind(o, c->files.paths.items[i], &c->id_files));
        NDP_TRY(ndp_file_map_as(NDP_FILE_DATA, c->files.paths.items[i], &c->mapped[i]));
        c->bytes += c->mapped[i].size;
    }
    return stamp_of(&c->files, &c->stamp);
}

ndp_status ndp_corpus_open(const ndp_dataset_options *o, ndp_corpus *out) {
    ndp_corpus c = {0};
    ndp_status st = open_files(o, &c);
    if (st != NDP_OK) {
        ndp_corpus_close(&c);
        return st;
    }
    if (o->left_out)
        *o->left_out = c.files.left_out;
    if (o->id_files)
        *o->id_files = c.id_files;
    *out = c;
    return NDP_OK;
}

void ndp_corpus_close(ndp_corpus *c) {
    for (int64_t i = 0; c->mapped && i < c->files.paths.n; i++)
        if (c->mapped[i].data)
            ndp_file_unmap(&c->mapped[i]);
    free(c->mapped);
    free(c->source_ends);
    free(c->slices);
    free(c->windows);
    ndp_strings_release(&c->files.paths);
    *c = (ndp_corpus){0};
}

ndp_status ndp_corpus_check_read(const ndp_corpus *c, int64_t first, int64_t end, ndp_status st) {
    for (int64_t i = first; i < end && i < c->files.paths.n; i++)
        NDP_TRY(ndp_file_check(&c->mapped[i]));
    return st;
}

ndp_status ndp_corpus_check_unchanged(const ndp_corpus *c) {
    uint64_t now;
    if (stamp_of(&c->files, &now) == NDP_OK && now == c->stamp)
        return NDP_OK;
    return NDP_FAIL(NDP_EFORMAT, "a data file changed while it was tokenized (%lld file%s, %s%s); start again",
                    (long long)c->files.paths.n, c->files.paths.n == 1 ? "" : "s", c->files.paths.items[0],
                    c->files.paths.n == 1 ? "" : ", ...");
}

ndp_status ndp_corpus_fail_empty(const ndp_corpus *c, const ndp_tally *tally) {
    int64_t skipped = ndp_tally_count(tally, NDP_TALLY_SKIPPED, -1);
    for (int64_t i = 0; i < tally->n && skipped > 0; i++)
        if (tally->rows[i].kind == NDP_TALLY_SKIPPED)
            return NDP_FAIL(NDP_EINVAL,
                            "the corpus has no record to train on: all %lld were skipped, the first for: %s",
                            (long long)skipped, tally->rows[i].named.n ? tally->rows[i].named.items[0] : "");
    return NDP_FAIL(NDP_EINVAL, "the corpus is empty: %lld file%s (%s%s) without a document",
                    (long long)c->files.paths.n, c->files.paths.n == 1 ? "" : "s", c->files.paths.items[0],
                    c->files.paths.n == 1 ? "" : ", ...");
}

/* ---- key ---- */

ndp_status ndp_hash_blocks(const void *data, size_t size, int threads, ndp_hash128 *out) {
    const size_t block = (size_t)16 << 20;
    int64_t n = (int64_t)((size + block - 1) / block);
    ndp_hash128 one = {0, 0}, *hashes = n > 1 ? malloc((size_t)n * sizeof *hashes) : &one;
    NDP_CHECK_MEMORY(hashes, "to check %zu bytes", size);
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (n > 1)
    for (int64_t i = 0; i < n; i++) {
        size_t at = (size_t)i * block;
        hashes[i] = ndp_hash128_of((const char *)data + at, size - at < block ? size - at : block);
    }
    *out = ndp_hash128_of(hashes, (size_t)n * sizeof *hashes);
    if (n > 1)
        free(hashes);
    return NDP_OK;
}

static const char *or_default(const char *field, const char *name) { return field ? field : name; }

static void add_hash(ndp_str *all, ndp_hash128 h) {
    ndp_str_addf(all, " %016llx%016llx", (unsigned long long)h.high, (unsigned long long)h.low);
}

/* Whether records of files [first, end) may be conversations. What renders those is not asked otherwise, since Jinja's
 * answer takes a start of Python. */
static bool may_have_conversations(const ndp_corpus *c, const ndp_record_format *f, int64_t first, int64_t end) {
    for (int64_t i = first; f->chat && ndp_record_has_conversations(f->kind) && i < end; i++) {
        ndp_source_kind kind;
        if (ndp_source_kind_of(c->files.paths.items[i], &kind) == NDP_OK && kind != NDP_SOURCE_TEXT &&
            kind != NDP_SOURCE_IDS)
            return true;
    }
    return false;
}

/* What the ids of a source, files [first, end), depend on besides the files. Every text ends with a zero byte, since
 * names may contain anything else. */
static ndp_status add_format(const ndp_corpus *c, const ndp_dataset_options *o, const ndp_record_format *f,
                             int64_t first, int64_t end, ndp_str *all) {
    ndp_str_addf(all, "tokens %d", NDP_CACHE_VERSION);
    add_hash(all, ndp_tokenizer_fingerprint(o->tokenizer));
    ndp_str_addf(all, " %d %d %d %d %d %d %d %lld", ndp_tokenizer_bos(o->tokenizer), ndp_tokenizer_eos(o->tokenizer),
                 o->end_token ? *o->end_token : -1, (int)f->kind, f->train_all, f->skip, o->bin_id_bytes,
                 (long long)o->vocab);
    const char *const texts[] = {or_default(f->text, "text"),
                                 or_default(f->messages, "messages"),
                                 or_default(f->prompt, "instruction"),
                                 or_default(f->input, "input"),
                                 or_default(f->response, "response/output"),
                                 or_default(f->role, "role/from"),
                                 or_default(f->content, "content/value"),
                                 or_default(f->train, "train/weight")};
    for (int i = 0; i < NDP_COUNT(texts); i++)
        ndp_str_add_bytes(all, texts[i], strlen(texts[i]) + 1);
    for (int i = 0; f->roles && i < f->roles->n; i++)
        ndp_str_add_bytes(all, f->roles->items[i], strlen(f->roles->items[i]) + 1);
    if (f->kind == NDP_RECORD_PREFERENCE)
        ndp_str_addf(all, "%lld %s %s", (long long)o->pair_length, or_default(f->chosen, ""),
                     or_default(f->rejected, ""));
    if (f->single)
        ndp_str_add(all, " single");
    if (f->drop_system)
        ndp_str_add(all, " no system");
    if (f->train_turn)
        ndp_str_add(all, " turn");
    if (f->separator && strcmp(f->separator, "\n\n") != 0)
        ndp_str_add_bytes(all, f->separator, strlen(f->separator) + 1);
    ndp_str_add_bytes(all, "", 1);
    if (may_have_conversations(c, f, first, end))
        NDP_TRY(ndp_chat_add_key(f->chat, all));
    ndp_str_add_bytes(all, "", 1);
    return NDP_OK;
}

static ndp_status add_formats(const ndp_corpus *c, const ndp_dataset_options *o, ndp_str *all) {
    for (int i = 0; o->formats && i < c->n_sources; i++)
        NDP_TRY(add_format(c, o, &o->formats[i], i ? c->source_ends[i - 1] : 0, c->source_ends[i], all));
    return o->formats ? NDP_OK : add_format(c, o, &o->format, 0, c->files.paths.n, all);
}

static void add_slice(const ndp_slice *s, ndp_str *all) {
    if (s->given)
        ndp_str_addf(all, " [%s%lld%s:%s%lld]", s->has_from ? "" : "start ", (long long)s->from, s->percent ? "%" : "",
                     s->has_to ? "" : "end ", (long long)s->to);
}

static ndp_status add_files(const ndp_corpus *c, int threads, ndp_str *all) {
    for (int i = 0; i < c->n_sources; i++) {
        ndp_str_addf(all, " %lld", (long long)c->source_ends[i]);
        add_slice(&c->slices[i], all);
    }
    for (int64_t i = 0; i < c->files.paths.n; i++) {
        const ndp_mapped *m = &c->mapped[i];
        const char *path = c->files.paths.items[i], *packing = path + ndp_unpacked_name(path);
        ndp_source_kind kind;
        ndp_hash128 h;
        NDP_TRY(ndp_source_kind_of(path, &kind));
        NDP_TRY(ndp_hash_blocks(m->data, m->size, threads, &h));
        ndp_str_addf(all, " %d %zu", (int)kind, m->size);
        if (kind == NDP_SOURCE_TABLE) { /* whose records are what this version of the reader gives */
            ndp_str_addf(all, "%d", NDP_TABLE_VERSION);
            packing = strrchr(path, '.');
        }
        for (; *packing; packing++) /* equal bytes differ as a text and as an archive */
            ndp_str_addf(all, "%c", *packing | 0x20);
        add_hash(all, h);
    }
    return NDP_OK;
}

ndp_status ndp_corpus_key(const ndp_corpus *c, const ndp_dataset_options *o, ndp_hash128 *key, ndp_hash128 *content) {
    ndp_str all = {0};
    ndp_status st = add_formats(c, o, &all);
    size_t format = all.length;
    if (st == NDP_OK)
        st = add_files(c, ndp_dataset_threads(o), &all);
    if (st == NDP_OK && all.failed)
        st = NDP_FAIL(NDP_ENOMEM, "not enough memory to name the token cache");
    if (st == NDP_OK) {
        *key = ndp_hash128_of(all.data, all.length);
        *content = ndp_hash128_of(all.data + format, all.length - format);
    }
    ndp_str_release(&all);
    return st;
}
