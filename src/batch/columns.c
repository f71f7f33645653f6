/* The columns of a micro-batch: how much of each there is, and how a sample's part is written. Read by feed.c. */
#include "base/rng.h"
#include "batch/feed.h"

#include <stddef.h>
#include <string.h>

static int64_t length_of(const ndp_feed *f) { return f->job->config->data.sequence_length; }
static size_t bytes_of_rows(const ndp_feed *f) { return (size_t)f->job->model.rows * sizeof(int32_t); }

/* The part of a column of i32 rows that sample j has. */
static int32_t *part_of(const ndp_feed *f, const int32_t *column, int64_t j) {
    return (int32_t *)(uintptr_t)(column + j * length_of(f));
}

/* ---- rows of the user's own ---- */

/* The document of token s; below 0: padding. */
static int64_t own_document(const ndp_own_row *own, int64_t s) {
    return s >= own->n ? -1 : own->documents ? own->documents[s] : 0;
}

/* The label of token s; -1: none. What has no weight has no loss. */
static int32_t own_label(const ndp_own_row *own, int64_t s) {
    int64_t document = own_document(own, s);
    if (document < 0)
        return -1;
    if (own->weights && own->weights[s] == 0)
        return -1;
    if (own->labels)
        return own->labels[s] < 0 ? -1 : own->labels[s];
    return own_document(own, s + 1) == document ? own->ids[s + 1] : -1;
}

double ndp_own_row_weight(const ndp_own_row *own, int64_t s) {
    return own_label(own, s) < 0 ? 0 : own->weights ? own->weights[s] : 1;
}

bool ndp_own_row_is_padding(const ndp_own_row *own, int64_t s) { return own_document(own, s) < 0; }

static void fill_own(const ndp_own_row *own, int64_t length, int32_t *tokens, int32_t *labels, int32_t *positions,
                     int32_t *starts) {
    int64_t start = 0;
    for (int64_t s = 0; s < length; s++) {
        int64_t document = own_document(own, s);
        if (s > 0 && document != own_document(own, s - 1))
            start = s;
        tokens[s] = document < 0 ? 0 : own->ids[s];
        labels[s] = own_label(own, s);
        if (labels[s] < 0 && document >= 0 && own->values)
            labels[s] = NDP_LABEL_NONE;
        positions[s] = document < 0 ? 0 : own->positions ? own->positions[s] : (int32_t)(s - start);
        starts[s] = (int32_t)(document < 0 ? s : start);
    }
}

/* ---- tokens, labels, positions, starts ---- */

/* Document starts count from the beginning of the micro-batch, so its samples are separated like documents. */
static ndp_status fill_tokens(ndp_feed *f, int64_t j, const ndp_feed_row *row) {
    const ndp_micro_batch *b = &f->whole;
    int32_t *tokens = part_of(f, b->tokens, j), *labels = part_of(f, b->labels, j);
    int32_t *positions = part_of(f, b->positions, j), *starts = part_of(f, b->starts, j);
    int64_t length = length_of(f);
    if (row->own)
        fill_own(row->own, length, tokens, labels, positions, starts);
    else if (row->row >= 0 && row->mismatched)
        NDP_TRY(ndp_dataset_mismatched(row->of, row->prompt, row->row, tokens, labels, positions, starts));
    else if (row->row >= 0)
        NDP_TRY(ndp_dataset_row(row->of, row->row, tokens, labels, positions, starts));
    for (int64_t s = 0; s < length; s++) {
        if (!row->own && row->row < 0) {
            tokens[s] = positions[s] = 0;
            labels[s] = -1;
            starts[s] = (int32_t)s;
        }
        starts[s] += (int32_t)(j * length);
    }
    return NDP_OK;
}

/* The tokens of a sample. */
static int64_t tokens_of(const ndp_feed_row *row) {
    return row->own          ? row->own->n
           : row->row < 0    ? 0
           : row->mismatched ? ndp_dataset_mismatched_tokens(row->of, row->prompt, row->row)
                             : ndp_dataset_row_tokens(row->of, row->row);
}

static ndp_status fill_samples(ndp_feed *f, int64_t j, const ndp_feed_row *row) {
    int32_t *samples = part_of(f, f->whole.samples, j);
    int64_t tokens = tokens_of(row);
    for (int64_t s = 0; s < length_of(f); s++)
        samples[s] = s < tokens && !(row->own && own_document(row->own, s) < 0) ? (int32_t)j : -1;
    return NDP_OK;
}

/* ---- weights of rows, and what their gradients are multiplied by ---- */

static size_t bytes_of_weights(const ndp_feed *f) {
    return f->job->model.own_rows ? (size_t)f->job->model.rows * sizeof(double) : 0;
}

static ndp_status fill_weights(ndp_feed *f, int64_t j, const ndp_feed_row *row) {
    int64_t length = length_of(f);
    double *weights = (double *)(uintptr_t)f->whole.weights + j * length;
    double *scales = (double *)(uintptr_t)f->whole.scales + j * length;
    for (int64_t s = 0; s < length; s++) {
        weights[s] = row->own ? ndp_own_row_weight(row->own, s) : 0;
        scales[s] = row->own ? weights[s] * row->own->scale : 0;
    }
    return NDP_OK;
}

/* ---- pairs: documents, and the reference of each ---- */

static bool has_pairs(const ndp_feed *f) { return f->job->model.preference.kind != NDP_PREFERENCE_NONE; }
static size_t bytes_of_documents(const ndp_feed *f) { return has_pairs(f) ? bytes_of_rows(f) : 0; }
static size_t bytes_of_references(const ndp_feed *f) {
    return has_pairs(f) ? (size_t)f->job->model.documents * sizeof(double) : 0;
}

static double reference_of(const ndp_feed *f, const ndp_dataset *d, int64_t document) {
    bool apart = d == f->data->held && f->data->held_tokens.n_documents > 0;
    const double *all = f->references[apart];
    return all ? all[document] : 0;
}

/* The row whose score is a document's: that of its last token, if its answer has any. */
static void mark_last(int64_t number, int64_t n, const int32_t *labels, int32_t *documents) {
    int marks = NDP_DOCUMENT_ANSWER | (number % 2 == 0 ? NDP_DOCUMENT_PAIR : 0);
    for (int64_t t = 0; t < n; t++)
        if (labels[t] >= 0)
            documents[n - 1] = (int32_t)(number << NDP_DOCUMENT_MARKS | marks);
}

/* Marks the rows of tokens of a document of the micro-batch, whose answer has labels. Where the loss has the nll of
 * whole chosen documents, those of their prompts get labels too. */
static void mark_document(ndp_feed *f, int64_t j, int64_t number, int64_t n, int32_t *documents) {
    const ndp_preference *p = &f->job->model.preference;
    const ndp_preference_row *loss = &ndp_preference_table[p->kind];
    const int32_t *tokens = part_of(f, f->whole.tokens, j);
    int32_t *labels = part_of(f, f->whole.labels, j);
    if (ndp_preference_scores(p->kind)) {
        mark_last(number, n, labels, documents);
        return;
    }
    bool chosen = number % 2 == 0, nll = chosen && p->sft_weight > 0, counted = !chosen && !loss->single;
    for (int64_t t = 0; t < n; t++) {
        bool answer = labels[t] >= 0, prompt = nll && !answer && t + 1 < n && loss->whole;
        int marks = answer ? NDP_DOCUMENT_ANSWER : 0;
        if (prompt)
            labels[t] = tokens[t + 1];
        if (nll && labels[t] >= 0)
            marks |= NDP_DOCUMENT_NLL;
        if (answer && !counted)
            marks |= NDP_DOCUMENT_PAIR;
        counted |= answer;
        documents[t] = marks ? (int32_t)(number << NDP_DOCUMENT_MARKS | marks) : -1;
    }
}

/* The number of a sample's document in the micro-batch. A single answer is the first document of pair j or the second
 * one, as its document in the cache is of its pair. */
static int64_t number_of(const ndp_feed *f, int64_t j, int64_t document) {
    return ndp_preference_table[f->job->model.preference.kind].single ? 2 * j + document % 2 : j;
}

static ndp_status fill_documents(ndp_feed *f, int64_t j, const ndp_feed_row *row) {
    bool single = ndp_preference_table[f->job->model.preference.kind].single;
    int32_t *documents = part_of(f, f->whole.documents, j);
    double *reference = (double *)(uintptr_t)f->whole.reference;
    int64_t unused, document = row->row >= 0 ? ndp_dataset_document(row->of, row->row, &unused) : 0;
    int64_t number = number_of(f, j, document);
    reference[number] = row->row >= 0 ? reference_of(f, row->of, document) : 0;
    if (single)
        reference[number ^ 1] = -f->point;
    for (int64_t s = 0; s < length_of(f); s++)
        documents[s] = -1;
    mark_document(f, j, number, tokens_of(row), documents);
    return NDP_OK;
}

/* ---- dropout ---- */

static size_t bytes_of_keys(const ndp_feed *f) { return f->job->model.adapter.dropout > 0 ? bytes_of_rows(f) : 0; }

/* Words of (seed, the run's sample, position). */
static ndp_status fill_keys(ndp_feed *f, int64_t j, const ndp_feed_row *row) {
    int64_t length = length_of(f), first = row->index * length;
    uint64_t seed = (uint64_t)f->job->config->train.seed, stream = ndp_rng_stream("adapter dropout");
    int32_t *keys = part_of(f, f->whole.keys, j);
    for (int64_t s = 0; row->update >= 0 && s < length; s++) {
        uint32_t words[4];
        ndp_rng_words(seed, stream, (uint64_t)(first + s), words);
        memcpy(&keys[s], words, sizeof *keys);
    }
    return NDP_OK;
}

/* ---- mixtures that are given their choices ---- */

static size_t bytes_of_choices(const ndp_feed *f) {
    return f->given ? (size_t)(f->given->mixtures.n * f->given->mixtures.choices) * bytes_of_rows(f) : 0;
}

static ndp_status fill_choices(ndp_feed *f, int64_t j, const ndp_feed_row *row) {
    const ndp_choices *g = f->given;
    int64_t length = length_of(f), k = g->mixtures.choices;
    int32_t *choices = (int32_t *)(uintptr_t)f->whole.choices;
    for (int i = 0; row->update >= 0 && i < g->mixtures.n; i++)
        memcpy(choices + (i * f->job->model.rows + j * length) * k,
               g->chosen + ndp_choices_row(g, row->update, i, row->sample * length) * k,
               (size_t)(length * k) * sizeof *choices);
    return NDP_OK;
}

#define COLUMN(field) offsetof(ndp_micro_batch, field)
const ndp_column ndp_columns[] = {
    {COLUMN(tokens), bytes_of_rows, fill_tokens},      {COLUMN(labels), bytes_of_rows, NULL},
    {COLUMN(positions), bytes_of_rows, NULL},          {COLUMN(starts), bytes_of_rows, NULL},
    {COLUMN(samples), bytes_of_rows, fill_samples},    {COLUMN(documents), bytes_of_documents, fill_documents},
    {COLUMN(reference), bytes_of_references, NULL},    {COLUMN(keys), bytes_of_keys, fill_keys},
    {COLUMN(choices), bytes_of_choices, fill_choices}, {COLUMN(weights), bytes_of_weights, fill_weights},
    {COLUMN(scales), bytes_of_weights, NULL},
};
const int ndp_column_count = NDP_COUNT(ndp_columns);
_Static_assert(NDP_COUNT(ndp_columns) <= NDP_FEED_COLUMNS, "a feed has memory for fewer columns");
