#include "data/packing.h"

#include <stdlib.h>

struct ndp_dataset {
    ndp_token_cache cache;
    int64_t row_length, rows;
    bool document_mask;
};

ndp_status ndp_dataset_open(const char *path, int64_t sequence_length, bool document_mask, ndp_dataset **out) {
    NDP_CHECK(sequence_length >= 1 && sequence_length <= INT32_MAX, "a sequence length of %lld: it must be 1 or more",
              (long long)sequence_length);
    ndp_dataset *d = calloc(1, sizeof *d);
    if (!d)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for a data set");
    ndp_status st = ndp_token_cache_open(path, &d->cache);
    d->row_length = sequence_length;
    d->document_mask = document_mask;
    int64_t predicting = d->cache.n_tokens - 1; /* the stream's last token predicts nothing */
    d->rows = predicting / sequence_length + (predicting % sequence_length > 0);
    int64_t labels = document_mask ? d->cache.n_tokens - d->cache.n_documents : predicting;
    if (st == NDP_OK && labels < 1)
        st = NDP_FAIL(NDP_EINVAL, "nothing to learn from: %lld tokens in %lld documents leave no token to predict",
                      (long long)d->cache.n_tokens, (long long)d->cache.n_documents);
    if (st != NDP_OK) {
        ndp_dataset_close(d);
        return st;
    }
    *out = d;
    return NDP_OK;
}

void ndp_dataset_close(ndp_dataset *d) {
    if (!d)
        return;
    ndp_token_cache_close(&d->cache);
    free(d);
}

int64_t ndp_dataset_rows(const ndp_dataset *d) { return d->rows; }
int64_t ndp_dataset_tokens(const ndp_dataset *d) { return d->cache.n_tokens; }
int64_t ndp_dataset_documents(const ndp_dataset *d) { return d->cache.n_documents; }
int32_t ndp_dataset_largest_id(const ndp_dataset *d) { return d->cache.largest_id; }

/* The number of document offsets that are at or before `at`: 1 + the document that holds the token `at`. */
static int64_t offsets_up_to(const ndp_dataset *d, int64_t at) {
    int64_t low = 0, high = d->cache.n_documents; /* offsets[low - 1] <= at < offsets[high] */
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (d->cache.offsets[middle] <= (uint64_t)at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

ndp_status ndp_dataset_row(const ndp_dataset *d, int64_t row, int32_t *tokens, int32_t *labels, int32_t *positions,
                           int32_t *starts) {
    NDP_CHECK(row >= 0 && row < d->rows, "row %lld of a data set of %lld", (long long)row, (long long)d->rows);
    const ndp_token_cache *c = &d->cache;
    int64_t first = row * d->row_length, rest = c->n_tokens - first;
    int32_t n = (int32_t)(rest < d->row_length ? rest : d->row_length), start = 0;
    int64_t next = d->document_mask ? offsets_up_to(d, first) : c->n_documents; /* offsets[next] ends the document */
    for (int32_t t = 0; t < n; t++) {
        int64_t at = first + t;
        while (next < c->n_documents && c->offsets[next] <= (uint64_t)at) {
            next++;
            start = t;
        }
        bool ends = at + 1 == c->n_tokens || (d->document_mask && c->offsets[next] == (uint64_t)(at + 1));
        tokens[t] = ndp_token_cache_id(c, at);
        labels[t] = ends ? -1 : ndp_token_cache_id(c, at + 1);
        positions[t] = t - start;
        starts[t] = start;
    }
    for (int32_t t = n; t < d->row_length; t++) {
        tokens[t] = 0;
        labels[t] = -1;
        positions[t] = 0;
        starts[t] = t;
    }
    return NDP_OK;
}

int64_t ndp_dataset_valid(const ndp_dataset *d, int64_t row) {
    if (row < 0 || row >= d->rows)
        return 0;
    int64_t first = row * d->row_length, rest = d->cache.n_tokens - 1 - first;
    int64_t n = rest < d->row_length ? rest : d->row_length;
    /* A document that begins in (first, first + n] takes the label of the token before it. */
    return d->document_mask ? n - (offsets_up_to(d, first + n) - offsets_up_to(d, first)) : n;
}
