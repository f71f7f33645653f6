/* Reading a token cache: nothing in it is used before its header is checked against the file's size, and its tables
 * are sorted and within range, since rows are cut by these numbers. Called by cache.c and packing.c. */
#include "data/cache/cache_file.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

uint64_t ndp_cache_header_hash(const ndp_cache_header *h) { return XXH3_64bits(h, offsetof(ndp_cache_header, hash)); }

static bool header_is_sound(const ndp_cache_header *h, size_t file_size) {
    if (memcmp(h->magic, NDP_CACHE_MAGIC, sizeof h->magic) || h->version != NDP_CACHE_VERSION ||
        h->hash != ndp_cache_header_hash(h))
        return false;
    if ((h->id_bytes != 2 && h->id_bytes != 4) || h->n_tokens > file_size || h->n_documents > file_size ||
        h->n_sources > file_size || h->n_questions > file_size || h->tally_bytes > file_size || h->largest_id < 0 ||
        h->largest_id > INT32_MAX)
        return false;
    return file_size == sizeof *h + ndp_cache_payload_bytes(h) + ndp_cache_more_bytes(h);
}

/* Offsets and questions are sorted and within the tokens, source ends within the documents: rows are cut by these
 * numbers. */
static bool tables_are_sound(const ndp_token_cache *c) {
    bool sound = true;
    uint64_t last = 0;
    for (int64_t i = 0; i <= c->n_documents; last = c->offsets[i++])
        sound &= c->offsets[i] >= last && c->offsets[i] <= (uint64_t)c->n_tokens;
    last = 0;
    for (int64_t i = 0; i < c->n_questions; last = c->questions[i++])
        sound &= c->questions[i] >= last && c->questions[i] <= (uint64_t)c->n_tokens;
    last = 0;
    for (int64_t i = 0; i < c->n_sources; last = c->source_ends[i++])
        sound &= c->source_ends[i] >= last && c->source_ends[i] <= (uint64_t)c->n_documents;
    return sound;
}

/* The arrays of a file with a valid header. */
static ndp_token_cache lay_out(const ndp_mapped *file, const ndp_cache_header *h) {
    const unsigned char *ids = file->data + sizeof *h, *offsets = ids + ndp_cache_ids_bytes(h);
    const unsigned char *sources = offsets + 8 * (h->n_documents + 1), *bits = sources + 8 * (size_t)h->n_sources;
    return (ndp_token_cache){.file = *file,
                             .ids = ids,
                             .offsets = (const uint64_t *)(const void *)offsets,
                             .source_ends = (const uint64_t *)(const void *)sources,
                             .questions = (const uint64_t *)(const void *)(bits + ndp_cache_bits_bytes(h)),
                             .trained = h->partly ? bits : NULL,
                             .n_documents = (int64_t)h->n_documents,
                             .n_tokens = (int64_t)h->n_tokens,
                             .n_questions = (int64_t)h->n_questions,
                             .n_texts = (int64_t)h->n_texts,
                             .n_sources = (int)h->n_sources,
                             .id_bytes = (int)h->id_bytes,
                             .largest_id = (int32_t)h->largest_id,
                             .payload = h->payload};
}

ndp_status ndp_token_cache_read(const char *path, const ndp_mapped *file, ndp_token_cache *out) {
    ndp_cache_header h = {0};
    if (file->size >= sizeof h)
        memcpy(&h, file->data, sizeof h);
    if (file->size >= sizeof h && !memcmp(h.magic, NDP_CACHE_MAGIC, sizeof h.magic) && h.version != NDP_CACHE_VERSION)
        return NDP_FAIL(
            NDP_EFORMAT,
            "%s: token cache version %u is not supported; this program reads and writes version %d; remove the file",
            path, h.version, NDP_CACHE_VERSION);
    bool sound = file->size >= sizeof h && header_is_sound(&h, file->size);
    ndp_token_cache c = {0};
    if (sound)
        c = lay_out(file, &h);
    if (!sound || !tables_are_sound(&c))
        return NDP_FAIL(NDP_EFORMAT, "%s: the token cache is damaged or cut short (%zu bytes); remove it", path,
                        file->size);
    const char *tally = (const char *)file->data + sizeof h + ndp_cache_payload_bytes(&h) + 8 * h.n_questions;
    if (ndp_tally_read(tally, h.tally_bytes, c.n_sources, &c.tally) != NDP_OK)
        return NDP_FAIL(NDP_EFORMAT, "%s: %s; remove the token cache", path, ndp_error_message());
    *out = c;
    return NDP_OK;
}

ndp_status ndp_token_cache_open(const char *path, ndp_token_cache *out) {
    ndp_mapped file;
    NDP_TRY(ndp_file_map(path, &file));
    ndp_status st = ndp_token_cache_read(path, &file, out);
    return st == NDP_OK ? NDP_OK : ndp_file_end(&file, st);
}

void ndp_token_cache_close(ndp_token_cache *c) {
    ndp_file_unmap(&c->file);
    free(c->memory);
    ndp_tally_clear(&c->tally);
    *c = (ndp_token_cache){0};
}

ndp_status ndp_cache_fail_writing(const char *path, const char *cause) {
    return NDP_FAIL(NDP_EIO, "cannot write the token cache '%s': %s; data.cache_dir may name another folder", path,
                    cause);
}
