/* Building a cache: a crew tokenizes the parts of the corpus, then assembles them.
 *
 *   leader (rank 0 of the crew)                      every other rank
 *   tokenize_parts: claims and tokenizes parts       the same, if it sees the files
 *   waits for all part-P
 *   make_table: counts, creates `tokens`, `table`    waits for `table`
 *   copy_ids of its parts                            copy_ids of its parts, then copied-R
 *   put_tables: offsets, sources, bits, questions               waits for `finished`
 *   waits for all copied-R
 *   put_header; renames `tokens` to the cache
 *   finished
 *
 * Invariants. A part is claimed by creating claim-P exclusively, so exactly one rank tokenizes it. part-P and `table`
 * appear by rename, so they are complete when seen. The header is written last: a cache without it is never opened. The
 * result does not depend on the number of ranks, threads or parts. A rank that fails removes `go`, which ends every
 * wait. cache_build.h lists the files; cache.c calls this. */
#include "data/cache/cache_build.h"

#include "data/cache/cache_file.h"
#include "data/cache/parts.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

typedef struct building {
    const ndp_dataset_options *o;
    const ndp_crew *crew;
    const ndp_corpus *corpus;
    ndp_parts parts;
    int id_bytes;
    /* Only the leader's: */
    uint64_t known, reported; /* bytes of the parts that are done; the number reported last */
    int64_t first_unknown;    /* all parts before this one are known to be done, */
    bool *is_known;           /* [parts.n] and so are these */
    ndp_cache_header h;
    uint64_t *firsts, *documents; /* [parts.n + 1] tokens and documents before each part */
    ndp_tally tally;              /* of all parts */
} building;

static const char *part_name(char out[32], const char *what, int64_t p) {
    snprintf(out, 32, "%s-%lld", what, (long long)p);
    return out;
}

/* ---- progress ---- */

static void know(building *b, int64_t p) {
    if (!b->is_known[p])
        b->known += b->parts.bytes[p];
    b->is_known[p] = true;
}

/* `mine`: bytes done of the part that this rank works on. */
static void report(building *b, uint64_t mine) {
    char name[32];
    if (b->crew->rank != 0 || !b->o->progress)
        return;
    for (int64_t p = b->first_unknown; b->crew->size > 1 && p < b->parts.n; p++)
        if (!b->is_known[p] && ndp_crew_has(b->crew, part_name(name, "part", p)))
            know(b, p);
    while (b->first_unknown < b->parts.n && b->is_known[b->first_unknown])
        b->first_unknown++;
    uint64_t done = b->known + mine, total = b->corpus->bytes;
    if (done > b->reported && (done - b->reported >= 1 << 20 || done == total)) {
        b->reported = done;
        b->o->progress(b->o->progress_user, done, total);
    }
}

static void report_waiting(void *user) { report(user, 0); }
static void report_part(void *user, uint64_t bytes) { report(user, bytes); }
static bool is_stopped(void *user) { return ndp_crew_stopped(((building *)user)->crew); }

/* ---- parts ---- */

static ndp_status tokenize_part(building *b, int64_t p) {
    char name[32], path[NDP_CREW_PATH], beside[NDP_CREW_PATH];
    const ndp_part_watch watch = {report_part, is_stopped, b};
    ndp_crew_path(b->crew, path, "%s", part_name(name, "part", p));
    ndp_crew_path(b->crew, beside, "%s.tmp", name);
    NDP_TRY(ndp_part_tokenize(b->o, b->corpus, &b->parts, p, beside, &watch));
    if (ndp_crew_stopped(b->crew))
        return NDP_OK;
    if (rename(beside, path))
        return NDP_FAIL(NDP_EIO, "%s", strerror(errno));
    if (b->crew->rank == 0) {
        know(b, p);
        report(b, 0);
    }
    return NDP_OK;
}

/* Every rank starts at its own stretch of the parts and then helps the ranks after it. Only the leader tries all parts,
 * so that none is left however many ranks there are. */
static ndp_status tokenize_parts(building *b) {
    enum { TRIES = 1024 };
    int64_t n = b->parts.n, first = n * b->crew->rank / b->crew->size, most = b->crew->rank && n > TRIES ? TRIES : n;
    for (int64_t i = 0; i < most && !ndp_crew_stopped(b->crew); i++) {
        int64_t p = (first + i) % n;
        char name[32];
        bool mine;
        NDP_TRY(ndp_crew_mark(b->crew, part_name(name, "claim", p), &mine));
        if (mine)
            NDP_TRY(tokenize_part(b, p));
    }
    return NDP_OK;
}

static ndp_status open_part(const building *b, int64_t p, ndp_part_file *out) {
    char path[NDP_CREW_PATH];
    return ndp_part_open(ndp_crew_path(b->crew, path, "part-%lld", (long long)p), b->id_bytes, out);
}

/* ---- assembling ---- */

static ndp_status write_at(int fd, const void *data, uint64_t size, uint64_t at) {
    return ndp_write_at(fd, data, size, (int64_t)at) ? NDP_FAIL(NDP_EIO, "%s", strerror(errno)) : NDP_OK;
}

/* Closes a file after writing with the status `st`, durably. */
static ndp_status close_written(int fd, ndp_status st) {
    if (st == NDP_OK && fsync(fd))
        st = NDP_FAIL(NDP_EIO, "%s", strerror(errno));
    if (close(fd) && st == NDP_OK)
        st = NDP_FAIL(NDP_EIO, "%s", strerror(errno));
    return st;
}

/* Copies the ids of this rank's parts into the cache; firsts[p]: tokens before part p, of n. */
static ndp_status copy_ids(const building *b, const uint64_t *firsts, int64_t n) {
    char path[NDP_CREW_PATH];
    int fd = open(ndp_crew_path(b->crew, path, "tokens"), O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return NDP_FAIL(NDP_EIO, "%s", strerror(errno));
    ndp_status st = NDP_OK;
    uint64_t width = (uint64_t)b->id_bytes;
    for (int64_t p = b->crew->rank; st == NDP_OK && p < n; p += b->crew->size) {
        ndp_part_file part;
        st = open_part(b, p, &part);
        if (st != NDP_OK)
            break;
        st = write_at(fd, part.ids, part.h.n_tokens * width, sizeof b->h + firsts[p] * width);
        st = ndp_part_close(&part, st);
    }
    return close_written(fd, st);
}

/* ---- the leader ---- */

/* Adds what part p met. */
static ndp_status add_tally(building *b, int64_t p, const ndp_part_file *part) {
    ndp_tally tally = {0};
    NDP_TRY(ndp_tally_read(part->tally, part->h.tally_bytes, 1, &tally));
    ndp_status st = ndp_tally_merge(&b->tally, &tally, ndp_parts_source(&b->parts, p));
    ndp_tally_clear(&tally);
    return st;
}

/* Adds up the parts. */
static ndp_status count_parts(building *b) {
    ndp_cache_header *h = &b->h;
    b->firsts = calloc((size_t)b->parts.n + 1, sizeof *b->firsts);
    b->documents = calloc((size_t)b->parts.n + 1, sizeof *b->documents);
    NDP_CHECK_MEMORY(b->firsts && b->documents, "for a table of %lld parts", (long long)b->parts.n);
    for (int64_t p = 0; p < b->parts.n; p++) {
        ndp_part_file part;
        NDP_TRY(open_part(b, p, &part));
        h->n_tokens += part.h.n_tokens;
        h->n_documents += part.h.n_documents;
        h->n_texts += part.h.n_texts;
        h->n_questions += part.h.n_questions;
        h->largest_id = part.h.largest_id > h->largest_id ? part.h.largest_id : h->largest_id;
        h->partly |= part.h.n_turns > 0;
        b->firsts[p + 1] = h->n_tokens;
        b->documents[p + 1] = h->n_documents;
        NDP_TRY(ndp_part_close(&part, add_tally(b, p, &part)));
    }
    return h->n_documents ? NDP_OK : ndp_corpus_fail_empty(b->corpus, &b->tally);
}

static ndp_status make_table(building *b) {
    char path[NDP_CREW_PATH];
    NDP_TRY(count_parts(b));
    NDP_TRY(ndp_crew_mark(b->crew, "tokens", NULL));
    return ndp_file_write_atomic(ndp_crew_path(b->crew, path, "table"), b->firsts,
                                 (size_t)(b->parts.n + 1) * sizeof *b->firsts);
}

/* Of all parts, the ends of documents or the beginnings of later questions. */
static ndp_status put_places(const building *b, bool questions, FILE *f) {
    for (int64_t p = 0; p < b->parts.n; p++) {
        ndp_part_file part;
        NDP_TRY(open_part(b, p, &part));
        ndp_status st = NDP_OK;
        uint64_t n = questions ? part.h.n_questions : part.h.n_documents;
        for (uint64_t i = 0; i < n && st == NDP_OK; i++)
            st = ndp_part_put(f, &(uint64_t){b->firsts[p] + (questions ? part.questions : part.ends)[i]}, 8);
        NDP_TRY(ndp_part_close(&part, st));
    }
    return NDP_OK;
}

static ndp_status put_offsets(const building *b, FILE *f) {
    NDP_TRY(ndp_part_put(f, &(uint64_t){0}, 8));
    return put_places(b, false, f);
}

static ndp_status put_source_ends(const building *b, FILE *f) {
    for (int64_t source = 0; source < b->corpus->n_sources; source++)
        NDP_TRY(ndp_part_put(f, &b->documents[b->parts.source_ends[source]], 8));
    return NDP_OK;
}

/* Bits of the tokens that are trained on, byte by byte: a byte may contain bits of several parts. */
static ndp_status put_bits(const building *b, FILE *f) {
    uint64_t at = 0, end = ndp_cache_bits_bytes(&b->h) * 8;
    uint8_t byte = 0;
    for (int64_t p = 0; p < b->parts.n; p++) {
        ndp_part_file part;
        NDP_TRY(open_part(b, p, &part));
        ndp_status st = NDP_OK;
        bool trained = true;
        for (uint64_t i = 0, turn = 0; i < part.h.n_tokens && st == NDP_OK; i++, at++) {
            for (; turn < part.h.n_turns && part.turns[turn] == i; turn++)
                trained = !trained;
            byte |= (uint8_t)(trained << (at & 7));
            if ((at & 7) == 7) {
                st = ndp_part_put(f, &byte, 1);
                byte = 0;
            }
        }
        NDP_TRY(ndp_part_close(&part, st));
    }
    for (; at < end; at++)
        if ((at & 7) == 7) {
            NDP_TRY(ndp_part_put(f, &byte, 1));
            byte = 0;
        }
    return NDP_OK;
}

static ndp_status put_tally(building *b, FILE *f) {
    ndp_str text = {0};
    ndp_tally_write(&b->tally, &text);
    b->h.tally_bytes = text.length;
    ndp_status st = text.failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory to count records")
                                : ndp_part_put(f, text.data, text.length);
    ndp_str_release(&text);
    return st;
}

static ndp_status put_tables(building *b) {
    char path[NDP_CREW_PATH];
    FILE *f = fopen(ndp_crew_path(b->crew, path, "tokens"), "r+be");
    if (!f)
        return NDP_FAIL(NDP_EIO, "%s", strerror(errno));
    ndp_status st = fseeko(f, (off_t)(sizeof b->h + ndp_cache_ids_bytes(&b->h)), SEEK_SET)
                        ? NDP_FAIL(NDP_EIO, "%s", strerror(errno))
                        : put_offsets(b, f);
    if (st == NDP_OK)
        st = put_source_ends(b, f);
    if (st == NDP_OK && b->h.partly)
        st = put_bits(b, f);
    if (st == NDP_OK)
        st = put_places(b, true, f);
    if (st == NDP_OK)
        st = put_tally(b, f);
    if (fclose(f) && st == NDP_OK)
        st = NDP_FAIL(NDP_EIO, "%s", strerror(errno));
    return st;
}

static ndp_status put_header(building *b) {
    char path[NDP_CREW_PATH];
    ndp_mapped all;
    NDP_TRY(ndp_file_map(ndp_crew_path(b->crew, path, "tokens"), &all));
    ndp_status st = ndp_hash_blocks(all.data + sizeof b->h, ndp_cache_payload_bytes(&b->h), ndp_dataset_threads(b->o),
                                    &b->h.payload);
    b->h.more_hash = XXH3_64bits(all.data + sizeof b->h + ndp_cache_payload_bytes(&b->h), ndp_cache_more_bytes(&b->h));
    NDP_TRY(ndp_file_end(&all, st));
    b->h.hash = ndp_cache_header_hash(&b->h);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return NDP_FAIL(NDP_EIO, "%s", strerror(errno));
    return close_written(fd, write_at(fd, &b->h, sizeof b->h, 0));
}

/* False if a rank failed. */
static bool wait_for_all(building *b, const char *what, int64_t first, int64_t n) {
    char name[32];
    for (int64_t i = first; i < n; i++)
        if (!ndp_crew_wait(b->crew, part_name(name, what, i), report_waiting, b))
            return false;
    report_waiting(b);
    return true;
}

static ndp_status lead(building *b, const char *path) {
    char tokens[NDP_CREW_PATH];
    NDP_TRY(tokenize_parts(b));
    if (!wait_for_all(b, "part", 0, b->parts.n))
        return NDP_OK;
    NDP_TRY(make_table(b));
    NDP_TRY(copy_ids(b, b->firsts, b->parts.n));
    NDP_TRY(put_tables(b));
    if (!wait_for_all(b, "copied", 1, b->crew->size))
        return NDP_OK;
    NDP_TRY(ndp_corpus_check_unchanged(b->corpus));
    NDP_TRY(put_header(b));
    if (rename(ndp_crew_path(b->crew, tokens, "tokens"), path))
        return NDP_FAIL(NDP_EIO, "%s", strerror(errno));
    NDP_TRY(ndp_folder_sync(b->crew->folder));
    return ndp_crew_mark(b->crew, "finished", NULL);
}

static ndp_status follow(building *b) {
    char path[NDP_CREW_PATH], name[32];
    ndp_mapped table;
    if (b->corpus)
        NDP_TRY(tokenize_parts(b));
    if (!ndp_crew_wait(b->crew, "table", NULL, NULL))
        return NDP_OK;
    NDP_TRY(ndp_file_map(ndp_crew_path(b->crew, path, "table"), &table));
    ndp_status st = copy_ids(b, (const uint64_t *)(const void *)table.data, (int64_t)(table.size / 8) - 1);
    NDP_TRY(ndp_file_end(&table, st));
    NDP_TRY(ndp_crew_mark(b->crew, part_name(name, "copied", b->crew->rank), NULL));
    (void)ndp_crew_wait(b->crew, "finished", NULL, NULL);
    return NDP_OK;
}

/* ---- the whole ---- */

/* Bytes of a part. One rank needs no parts; several get some each, so that they finish at about the same time. */
static uint64_t part_bytes(const ndp_corpus *c, int ranks) {
    enum { PARTS_PER_RANK = 16 };
    const uint64_t least = 1 << 20, most = (uint64_t)256 << 20;
    uint64_t want = ranks > 1 ? c->bytes / (uint64_t)(ranks * PARTS_PER_RANK) : most;
    return want < least ? least : want > most ? most : want;
}

static ndp_status plan(building *b, ndp_hash128 key) {
    NDP_TRY(ndp_parts_plan(b->corpus, part_bytes(b->corpus, b->crew->size), &b->parts));
    b->h = (ndp_cache_header){.version = NDP_CACHE_VERSION,
                              .id_bytes = (uint32_t)b->id_bytes,
                              .key = key,
                              .n_sources = (uint32_t)b->corpus->n_sources};
    memcpy(b->h.magic, NDP_CACHE_MAGIC, sizeof b->h.magic);
    b->is_known = calloc((size_t)b->parts.n + 1, sizeof *b->is_known);
    return NDP_MEMORY(b->is_known, "to tokenize");
}

ndp_status ndp_cache_build(const ndp_dataset_options *o, const ndp_crew *crew, const ndp_corpus *corpus,
                           ndp_hash128 key, const char *path) {
    building b = {.o = o, .crew = crew, .corpus = corpus, .id_bytes = ndp_dataset_id_bytes(o)};
    ndp_status st = corpus ? plan(&b, key) : NDP_OK;
    if (st == NDP_OK)
        st = crew->rank == 0 ? lead(&b, path) : follow(&b);
    if (st == NDP_EIO && (!corpus || ndp_corpus_check_read(corpus, 0, corpus->files.paths.n, NDP_OK) == NDP_OK))
        st = ndp_cache_fail_writing(path, ndp_error_message());
    ndp_parts_release(&b.parts);
    free(b.is_known);
    free(b.firsts);
    free(b.documents);
    ndp_tally_clear(&b.tally);
    return st;
}
