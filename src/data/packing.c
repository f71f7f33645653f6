/* Rows of a data set, filled from the table of pieces (row_table.c). A row is checked when it is filled, since the
 * cache is mapped and its file may change; filling allocates nothing. Called by train/. */
#include "data/packing.h"

#include <stdlib.h>

struct ndp_dataset {
    ndp_token_cache cache; /* borrowed */
    ndp_token_cache owned; /* the same if it was opened here, otherwise empty */
    ndp_row_table table;
    int64_t row_length;
    bool document_mask;
};

static ndp_status fail_empty(const ndp_token_cache *c, const ndp_row_opts *o, const ndp_row_losses *lost) {
    const char *s = c->n_documents == 1 ? "" : "s";
    int64_t overlong = lost->overlong;
    if (lost->unasked > 0)
        return NDP_FAIL(
            NDP_EINVAL,
            "nothing is left to predict: %lld answer%s no place in a row of %lld tokens with the question; raise "
            "data.sequence_length, or set data.overlong: cut",
            (long long)lost->unasked, lost->unasked == 1 ? " has" : "s have", (long long)o->length);
    if (overlong > 0)
        return NDP_FAIL(NDP_EINVAL,
                        "nothing is left to predict: data.overlong leaves out or truncates %lld of %lld document%s, "
                        "those of more than %lld tokens; raise data.sequence_length%s",
                        (long long)overlong, (long long)c->n_documents, s, (long long)o->length,
                        !o->pairs                              ? ", or set data.overlong: cut"
                        : o->overlong != NDP_OVERLONG_TRUNCATE ? ", or set data.overlong: truncate"
                                                               : "");
    if (lost->scant > 0)
        return NDP_FAIL(NDP_EINVAL,
                        "nothing is left to predict: data.min_tokens leaves out %lld of %lld document%s, those of "
                        "fewer than %lld tokens; lower it",
                        (long long)lost->scant, (long long)c->n_documents, s, (long long)o->least_tokens);
    if (o->validation)
        return NDP_FAIL(
            NDP_EINVAL,
            "the validation set is empty: data.validation_fraction %g of %lld document%s; raise it, or name "
            "data.validation_files",
            o->held_out, (long long)c->n_documents, s);
    return NDP_FAIL(NDP_EINVAL, "nothing to train on: %lld tokens in %lld document%s leave no token to predict",
                    (long long)c->n_tokens, (long long)c->n_documents, s);
}

static ndp_status check_length(const ndp_row_opts *o) {
    NDP_CHECK(o->length >= 1 && o->length <= INT32_MAX, "sequence length %lld: it must be at least 1",
              (long long)o->length);
    return NDP_OK;
}

ndp_status ndp_dataset_create(const ndp_token_cache *cache, const ndp_row_opts *o, ndp_dataset **out) {
    NDP_TRY(check_length(o));
    ndp_dataset *d = calloc(1, sizeof *d);
    NDP_CHECK_MEMORY(d, "for a data set");
    d->cache = *cache;
    d->row_length = o->length;
    d->document_mask = o->document_mask;
    ndp_status st = ndp_row_table_build(&d->cache, o, &d->table);
    if (st == NDP_OK)
        st = ndp_dataset_check(d);
    if (st == NDP_OK && d->table.labels == 0 && !cache->head)
        st = fail_empty(&d->cache, o, &d->table.lost);
    if (st != NDP_OK) {
        ndp_dataset_close(d);
        return st;
    }
    *out = d;
    return NDP_OK;
}

ndp_status ndp_dataset_open(const char *path, const ndp_row_opts *o, ndp_dataset **out) {
    ndp_token_cache cache;
    NDP_TRY(check_length(o));
    NDP_TRY(ndp_token_cache_open(path, &cache));
    ndp_status st = ndp_dataset_create(&cache, o, out);
    if (st == NDP_OK)
        (*out)->owned = cache;
    else
        ndp_token_cache_close(&cache);
    return st;
}

void ndp_dataset_close(ndp_dataset *d) {
    if (!d)
        return;
    ndp_row_table_release(&d->table);
    ndp_token_cache_close(&d->owned);
    free(d);
}

ndp_status ndp_dataset_check(const ndp_dataset *d) { return ndp_file_check(&d->cache.file); }

int64_t ndp_dataset_rows(const ndp_dataset *d) { return d->table.n_rows; }
int64_t ndp_dataset_tokens(const ndp_dataset *d) { return d->table.tokens; }
int64_t ndp_dataset_documents(const ndp_dataset *d) { return d->table.documents; }
ndp_row_losses ndp_dataset_losses(const ndp_dataset *d) { return d->table.lost; }
bool ndp_dataset_has_texts(const ndp_dataset *d) { return d->cache.n_texts > 0; }
int64_t ndp_dataset_labels(const ndp_dataset *d) { return d->table.labels; }

double ndp_dataset_fill(const ndp_dataset *d) {
    if (d->table.n_rows == 0)
        return 0;
    return (double)d->table.tokens / ((double)d->table.n_rows * (double)d->row_length);
}

int ndp_dataset_sources(const ndp_dataset *d) { return d->table.n_sources; }

void ndp_dataset_source(const ndp_dataset *d, int i, int64_t *first, int64_t *n) {
    *first = d->table.sources[i];
    *n = d->table.sources[i + 1] - *first;
}

int64_t ndp_dataset_source_documents(const ndp_dataset *d, int i) { return d->table.source_documents[i]; }

/* The label of the token before token `at` of the cache. */
static int32_t label(const ndp_token_cache *c, int64_t at) {
    return at >= 0 && ndp_token_cache_trained(c, at) ? ndp_token_cache_id(c, at) : -1;
}

/* Ids index tables of the model: a file that changed after the cache was checked must not lead to reads out of bounds.
 */
static ndp_status check_ids(const ndp_token_cache *c, const int32_t *tokens, const int32_t *labels, int64_t n) {
    int32_t low = 0, high = 0;
    for (int64_t t = 0; t < n; t++) {
        low = tokens[t] < low ? tokens[t] : labels[t] < low - 1 ? labels[t] : low;
        high = tokens[t] > high ? tokens[t] : high;
        high = labels[t] > high ? labels[t] : high;
    }
    if (low == 0 && high <= c->largest_id)
        return NDP_OK;
    return NDP_FAIL(NDP_EIO, "'%s' contains the id %d, beyond its largest %d: it was changed while in use",
                    c->file.path ? c->file.path : "the token cache", low ? low : high, c->largest_id);
}

/* What follows the tokens of a row. */
static void pad(const ndp_dataset *d, int32_t t, int32_t *tokens, int32_t *labels, int32_t *positions,
                int32_t *document_start) {
    for (; t < d->row_length; t++) {
        tokens[t] = 0;
        labels[t] = -1;
        positions[t] = 0;
        document_start[t] = t;
    }
}

ndp_status ndp_dataset_row(const ndp_dataset *d, int64_t row, int32_t *tokens, int32_t *labels, int32_t *positions,
                           int32_t *document_start) {
    NDP_CHECK(row >= 0 && row < d->table.n_rows, "row %lld of a data set of %lld", (long long)row,
              (long long)d->table.n_rows);
    const ndp_token_cache *c = &d->cache;
    int32_t t = 0;
    for (int64_t i = d->table.rows[row]; i < d->table.rows[row + 1]; i++) {
        const ndp_row_piece *p = &d->table.pieces[i];
        int32_t start = d->document_mask ? t : 0;
        for (int32_t k = 0; k < p->n; k++, t++) {
            tokens[t] = ndp_token_cache_id(c, p->first + k);
            labels[t] = label(c, k + 1 < p->n ? p->first + k + 1 : p->next);
            positions[t] = t - start;
            document_start[t] = start;
        }
    }
    NDP_TRY(check_ids(c, tokens, labels, t));
    pad(d, t, tokens, labels, positions, document_start);
    return NDP_OK;
}

/* Where the document of a row begins and ends in the cache, and its answer begins. */
typedef struct answered {
    int64_t first, answer, end;
} answered;

static answered answered_row(const ndp_dataset *d, int64_t row) {
    int64_t unused, document = ndp_dataset_document(d, row, &unused);
    answered a = {(int64_t)d->cache.offsets[document], 0, (int64_t)d->cache.offsets[document + 1]};
    for (a.answer = a.first + 1; a.answer < a.end && !ndp_token_cache_trained(&d->cache, a.answer);)
        a.answer++; /* nothing predicts the first token of a document */
    return a;
}

int64_t ndp_dataset_mismatched_tokens(const ndp_dataset *d, int64_t prompt_row, int64_t answer_row) {
    answered p = answered_row(d, prompt_row), a = answered_row(d, answer_row);
    int64_t n = p.answer - p.first + a.end - a.answer;
    return n < d->row_length ? n : d->row_length;
}

ndp_status ndp_dataset_mismatched(const ndp_dataset *d, int64_t prompt_row, int64_t answer_row, int32_t *tokens,
                                  int32_t *labels, int32_t *positions, int32_t *document_start) {
    const ndp_token_cache *c = &d->cache;
    answered p = answered_row(d, prompt_row), a = answered_row(d, answer_row);
    int64_t prompt = p.answer - p.first, n = ndp_dataset_mismatched_tokens(d, prompt_row, answer_row);
    for (int64_t t = 0; t < n; t++) {
        int64_t next = a.answer + t + 1 - prompt; /* of the answer */
        tokens[t] = ndp_token_cache_id(c, t < prompt ? p.first + t : next - 1);
        labels[t] = t + 1 >= prompt && t + 1 < n ? label(c, next) : -1;
        positions[t] = (int32_t)t;
        document_start[t] = 0;
    }
    NDP_TRY(check_ids(c, tokens, labels, n));
    pad(d, (int32_t)n, tokens, labels, positions, document_start);
    return NDP_OK;
}

int64_t ndp_dataset_row_tokens(const ndp_dataset *d, int64_t row) {
    int64_t n = 0;
    for (int64_t i = d->table.rows[row]; i < d->table.rows[row + 1]; i++)
        n += d->table.pieces[i].n;
    return n;
}

void ndp_dataset_visit_pieces(const ndp_dataset *d, void (*each)(void *user, int64_t row, const ndp_row_piece *p),
                              void *user) {
    for (int64_t row = 0; row < d->table.n_rows; row++)
        for (int64_t i = d->table.rows[row]; i < d->table.rows[row + 1]; i++)
            each(user, row, &d->table.pieces[i]);
}

int64_t ndp_dataset_token(const ndp_dataset *d, int64_t row, int64_t position) {
    for (int64_t i = d->table.rows[row]; i < d->table.rows[row + 1]; position -= d->table.pieces[i++].n)
        if (position < d->table.pieces[i].n)
            return d->table.pieces[i].first + position;
    return -1;
}

int64_t ndp_dataset_document_of(const ndp_dataset *d, int64_t token) {
    int64_t low = 0, high = d->cache.n_documents; /* the last one that begins at or before it */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (d->cache.offsets[middle] <= (uint64_t)token)
            low = middle;
        else
            high = middle;
    }
    return low;
}

int64_t ndp_dataset_document(const ndp_dataset *d, int64_t row, int64_t *tokens) {
    const ndp_row_piece *p = &d->table.pieces[d->table.rows[row]];
    *tokens = p->n;
    return ndp_dataset_document_of(d, p->first);
}

ndp_status ndp_dataset_visit_labels(const ndp_dataset *d, int64_t first_row, int64_t n_rows,
                                    ndp_status (*each)(void *user, int32_t id, int64_t place), void *user) {
    for (int64_t i = d->table.rows[first_row]; i < d->table.rows[first_row + n_rows]; i++) {
        const ndp_row_piece *p = &d->table.pieces[i];
        for (int32_t k = 1; k <= p->n; k++) {
            int32_t id = label(&d->cache, k < p->n ? p->first + k : p->next);
            if (id >= 0)
                NDP_TRY(each(user, id, p->begins ? k : -1));
        }
    }
    return NDP_OK;
}
