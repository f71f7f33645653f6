/* Planning the parts of a corpus, and opening their files. */
#include "base/arena.h"
#include "data/cache/parts.h"
#include "data/cache/windows.h"
#include "data/corpus/source.h"
#include "data/corpus/unpack.h"
#include <stdlib.h>
#include <string.h>

static bool can_be_cut(const char *path) {
    ndp_source_kind kind;
    return !ndp_is_packed(path) && ndp_source_kind_of(path, &kind) == NDP_OK && kind != NDP_SOURCE_JSON;
}

static ndp_status add_cut(ndp_parts *p, int64_t file, size_t at, uint64_t bytes) {
    NDP_TRY(ndp_array_reserve(&p->cuts, &p->capacity, p->n + 2, sizeof *p->cuts));
    NDP_TRY(ndp_array_reserve(&p->bytes, &p->bytes_capacity, p->n + 1, sizeof *p->bytes));
    p->bytes[p->n] = bytes;
    p->cuts[++p->n] = (ndp_cut){file, at};
    return NDP_OK;
}

static ndp_status plan(const ndp_corpus *c, uint64_t want, ndp_parts *p) {
    p->source_ends = calloc((size_t)c->n_sources, sizeof *p->source_ends);
    NDP_CHECK_MEMORY(p->source_ends, "for %d files", c->n_sources);
    NDP_TRY(ndp_array_reserve(&p->cuts, &p->capacity, 1, sizeof *p->cuts));
    p->cuts[0] = (ndp_cut){0, 0};
    uint64_t begun = 0; /* bytes in the current part so far */
    for (int64_t f = 0, source = 0; f < c->files.paths.n; f++) {
        const ndp_file_window w = ndp_corpus_window(c, f);
        size_t size = w.stop, at = w.begin;
        if (can_be_cut(c->files.paths.items[f]))
            for (; size - at > want - begun; begun = 0) {
                at += want - begun;
                NDP_TRY(add_cut(p, f, at, want));
            }
        begun += size - at;
        if (begun >= want || f + 1 == c->source_ends[source]) {
            NDP_TRY(add_cut(p, f + 1, 0, begun));
            begun = 0;
        }
        if (f + 1 == c->source_ends[source])
            p->source_ends[source++] = p->n;
    }
    return NDP_OK;
}

ndp_status ndp_parts_plan(const ndp_corpus *c, uint64_t want, ndp_parts *out) {
    ndp_parts p = {0};
    ndp_status st = plan(c, want, &p);
    if (st != NDP_OK)
        ndp_parts_release(&p);
    else
        *out = p;
    return st;
}

int ndp_parts_source(const ndp_parts *parts, int64_t p) {
    int source = 0;
    while (parts->source_ends[source] <= p)
        source++;
    return source;
}

void ndp_parts_release(ndp_parts *p) {
    free(p->cuts);
    free(p->bytes);
    free(p->source_ends);
    *p = (ndp_parts){0};
}

/* ---- files of parts ---- */

ndp_status ndp_part_open(const char *path, int id_bytes, ndp_part_file *out) {
    ndp_part_file p;
    NDP_TRY(ndp_file_map(path, &p.file));
    uint64_t size = p.file.size, ids = 0;
    bool whole = size >= sizeof p.h;
    if (whole) {
        memcpy(&p.h, p.file.data, sizeof p.h);
        ids = (p.h.n_tokens * (uint64_t)id_bytes + 7) / 8 * 8;
        whole = p.h.n_tokens <= size && p.h.n_documents <= size && p.h.n_turns <= size && p.h.n_questions <= size &&
                p.h.tally_bytes <= size &&
                size == sizeof p.h + ids + 8 * (p.h.n_documents + p.h.n_turns + p.h.n_questions) + p.h.tally_bytes;
    }
    if (!whole) {
        ndp_file_unmap(&p.file);
        return NDP_FAIL(NDP_EFORMAT,
                        "%s: the file of another rank is incomplete (%llu bytes): the file system lost data", path,
                        (unsigned long long)size);
    }
    p.ids = p.file.data + sizeof p.h;
    p.ends = (const uint64_t *)(const void *)(p.file.data + sizeof p.h + ids);
    p.turns = p.ends + p.h.n_documents;
    p.questions = p.turns + p.h.n_turns;
    p.tally = (const char *)(p.questions + p.h.n_questions);
    *out = p;
    return NDP_OK;
}

ndp_status ndp_part_close(ndp_part_file *p, ndp_status st) { return ndp_file_end(&p->file, st); }
