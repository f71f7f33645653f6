/* Samples of several lengths as rows of one length (ndp_pack): first fit, in the order of the samples or the longest
 * first, whichever takes fewer rows. Which sample lies where follows from their lengths alone. */
#include "base/text.h"
#include "data/row_fit.h"
#include "ndparallel/loop.h"

#include <stdlib.h>
#include <string.h>

typedef struct sample_packing {
    const ndp_batch *from;
    int64_t length;
    int64_t *rows[2], *places[2], used[2];
    ndp_row_fit fit;
} sample_packing;

static int64_t tokens_of(const ndp_batch *b, int64_t i) { return b->lengths ? b->lengths[i] : b->length; }

static ndp_status check(const ndp_batch *b, int64_t length) {
    NDP_CHECK(length >= 1 && length <= INT32_MAX, "rows of %lld tokens", (long long)length);
    NDP_CHECK(b->samples >= 0 && b->samples < INT32_MAX && b->length >= 0, "a batch of %lld samples of %lld tokens",
              (long long)b->samples, (long long)b->length);
    NDP_CHECK(b->ids || b->samples == 0, "the batch has no ids");
    for (int64_t i = 0; i < b->samples; i++)
        NDP_CHECK(tokens_of(b, i) >= 1 && tokens_of(b, i) <= length && tokens_of(b, i) <= b->length,
                  "sample %lld has %lld tokens, must have 1 to %lld", (long long)i, (long long)tokens_of(b, i),
                  (long long)(length < b->length ? length : b->length));
    return NDP_OK;
}

/* ---- where they go ---- */

typedef struct sized {
    int64_t sample, tokens;
} sized;

static int longest_first(const void *a, const void *b) {
    const sized *x = a, *y = b;
    return x->tokens != y->tokens ? (x->tokens > y->tokens ? -1 : 1)
                                  : (x->sample > y->sample) - (x->sample < y->sample);
}

static void fit_all(sample_packing *p, const sized *samples, int way) {
    p->fit.n_open = 0, p->fit.rows = 0;
    for (int64_t k = 0; k < p->from->samples; k++) {
        int32_t place;
        int64_t i = samples[k].sample;
        p->rows[way][i] = ndp_row_fit_place(&p->fit, (int32_t)samples[k].tokens, &place);
        p->places[way][i] = place;
    }
    p->used[way] = p->fit.rows;
}

/* ---- rows ---- */

/* One array of the batch, at the places of the samples; NULL stays NULL. */
static ndp_status move(const sample_packing *p, const ndp_packed_batch *to, const void *from, size_t size,
                       const void **out) {
    if (!from)
        return NDP_OK;
    char *all = calloc((size_t)(to->batch.samples * p->length) + 1, size);
    NDP_CHECK_MEMORY(all, "for %lld rows", (long long)to->batch.samples);
    for (int64_t i = 0; i < p->from->samples; i++)
        memcpy(all + (size_t)(to->rows[i] * p->length + to->places[i]) * size,
               (const char *)from + (size_t)(i * p->from->length) * size, (size_t)tokens_of(p->from, i) * size);
    *out = all;
    return NDP_OK;
}

/* Each sample is a document, or as many as it has. */
static ndp_status number_documents(const sample_packing *p, ndp_packed_batch *to) {
    int64_t n = to->batch.samples * p->length;
    int32_t *all = malloc((size_t)(n + 1) * sizeof *all), number = 0;
    NDP_CHECK_MEMORY(all, "for %lld rows", (long long)to->batch.samples);
    memset(all, 0xff, (size_t)n * sizeof *all); /* -1: padding */
    to->batch.documents = all;
    for (int64_t i = 0; i < p->from->samples; i++, number++) {
        const int32_t *own = p->from->documents ? p->from->documents + i * p->from->length : NULL;
        for (int64_t s = 0; s < tokens_of(p->from, i); s++) {
            number += own && s > 0 && own[s] != own[s - 1];
            NDP_CHECK(!own || own[s] >= 0, "sample %lld, token %lld is padding; lengths say where a sample ends",
                      (long long)i, (long long)s);
            all[to->rows[i] * p->length + to->places[i] + s] = number;
        }
    }
    return NDP_OK;
}

static ndp_status fill(const sample_packing *p, ndp_packed_batch *to) {
    const ndp_batch *b = p->from;
    NDP_TRY(move(p, to, b->ids, sizeof *b->ids, (const void **)&to->batch.ids));
    NDP_TRY(move(p, to, b->labels, sizeof *b->labels, (const void **)&to->batch.labels));
    NDP_TRY(move(p, to, b->weights, sizeof *b->weights, (const void **)&to->batch.weights));
    NDP_TRY(move(p, to, b->positions, sizeof *b->positions, (const void **)&to->batch.positions));
    return number_documents(p, to);
}

static ndp_status pack(sample_packing *p, ndp_packed_batch *to) {
    size_t n = (size_t)p->from->samples + 1;
    sized *samples = malloc(n * sizeof *samples);
    for (int way = 0; way < 2; way++) {
        p->rows[way] = malloc(n * sizeof *p->rows[way]);
        p->places[way] = malloc(n * sizeof *p->places[way]);
    }
    p->fit = (ndp_row_fit){.open = malloc(n * sizeof *p->fit.open),
                           .left = malloc(n * sizeof *p->fit.left),
                           .most = (int)n,
                           .length = (int32_t)p->length,
                           .least = 1};
    ndp_status st =
        NDP_MEMORY(samples && p->rows[0] && p->rows[1] && p->places[0] && p->places[1] && p->fit.open && p->fit.left,
                   "to pack %lld samples", (long long)p->from->samples);
    for (int64_t i = 0; i < p->from->samples && st == NDP_OK; i++)
        samples[i] = (sized){i, tokens_of(p->from, i)};
    for (int way = 0; way < 2 && st == NDP_OK; way++) {
        fit_all(p, samples, way);
        qsort(samples, n - 1, sizeof *samples, longest_first);
    }
    int way = st == NDP_OK && p->used[1] < p->used[0];
    to->rows = p->rows[way], to->places = p->places[way];
    to->batch = (ndp_batch){.samples = p->used[way], .length = p->length, .global = p->from->global};
    free(p->rows[!way]);
    free(p->places[!way]);
    free(p->fit.open);
    free(p->fit.left);
    free(samples);
    return st == NDP_OK ? fill(p, to) : st;
}

ndp_status ndp_pack(const ndp_batch *samples, int64_t length, ndp_packed_batch *out) {
    NDP_NOT_NULL(samples, out);
    NDP_TRY(check(samples, length));
    sample_packing p = {.from = samples, .length = length};
    ndp_packed_batch packed = {0};
    ndp_status st = pack(&p, &packed);
    if (st != NDP_OK) {
        ndp_packed_batch_release(&packed);
        return st;
    }
    *out = packed;
    return NDP_OK;
}

void ndp_packed_batch_release(ndp_packed_batch *p) {
    if (!p)
        return;
    const void *arrays[] = {p->batch.ids,       p->batch.labels, p->batch.weights, p->batch.positions,
                            p->batch.documents, p->rows,         p->places};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free((void *)arrays[i]);
    *p = (ndp_packed_batch){0};
}
