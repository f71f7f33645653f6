/* The mean negative log-likelihood of documents. Each document is independent: its positions start at 0 and attention
 * does not cross its borders, so many documents run at once, packed into the rows of one graph. longrope uses other
 * angles for documents beyond its original length; these are scored in separate runs, so that no document affects
 * another. */
#include "data/corpus/source.h"
#include "infer/infer.h"
#include "train/trainer.h"

#include <math.h>
#include <stdlib.h>

enum { PACKED_ROWS = 1024 }; /* rows of a run, unless a document is longer: enough for efficient matrix products */

/* All documents in sequence; document i ends at ends[i]. */
typedef struct evaluation_corpus {
    const ndp_infer *infer;
    int64_t longest; /* tokens kept of a document */
    ndp_ids ids;
    int64_t *ends;
    int64_t n, capacity;
} evaluation_corpus;

static ndp_status add_document(void *user, const ndp_document *d) {
    evaluation_corpus *c = user;
    if (!d->n)
        return NDP_OK;
    int64_t first = c->ids.n;
    NDP_TRY(ndp_infer_encode(c->infer, d->text, d->n, &c->ids));
    if (c->ids.n - first > c->longest)
        c->ids.n = first + c->longest;
    NDP_TRY(ndp_array_reserve(&c->ends, &c->capacity, c->n + 1, sizeof *c->ends));
    c->ends[c->n++] = c->ids.n;
    return NDP_OK;
}

static ndp_status read_corpus(evaluation_corpus *c, const char *path, const char *text_field) {
    ndp_mapped file;
    NDP_CHECK(path, "no data is given; give a .jsonl file with one text per record, or a text file");
    NDP_TRY(ndp_file_map(path, &file));
    ndp_status st = ndp_source_visit(path, (const char *)file.data, file.size, text_field, add_document, c);
    NDP_TRY(ndp_file_end(&file, st));
    NDP_CHECK(c->n > 0, "%s has no document with text", path);
    NDP_CHECK(c->ids.n > c->n, "%s: none of its %lld documents has two tokens, so there is nothing to predict", path,
              (long long)c->n);
    return NDP_OK;
}

static void release_corpus(evaluation_corpus *c) {
    ndp_ids_release(&c->ids);
    free(c->ends);
}

static int64_t document_begin(const evaluation_corpus *c, int64_t i) { return i ? c->ends[i - 1] : 0; }

/* The last token of a document is only a label and takes no row. */
static int64_t document_rows(const evaluation_corpus *c, int64_t i) {
    int64_t n = c->ends[i] - document_begin(c, i);
    return n > 0 ? n - 1 : 0;
}

/* A range of lengths, in rows, with the same RoPE angles: above `low`, up to `high`. */
typedef struct row_lengths {
    int64_t low, high;
} row_lengths;

static bool has_length(row_lengths l, int64_t rows) { return rows > l.low && rows <= l.high; }

/* The range above `low`, up to the next original length of a longrope table. */
static row_lengths lengths_above(const ndp_facts *f, int64_t low) {
    row_lengths l = {low, INT64_MAX};
    for (int i = 0; i < f->n_ropes; i++) {
        int64_t original = f->ropes[i].original_positions;
        if (f->ropes[i].scaling == NDP_ROPE_LONG && original > low && original < l.high)
            l.high = original;
    }
    return l;
}

static int64_t rows_of_a_run(const evaluation_corpus *c, row_lengths l, int64_t *longest) {
    int64_t sum = 0;
    *longest = 0;
    for (int64_t i = 0; i < c->n; i++) {
        int64_t rows = document_rows(c, i);
        if (!has_length(l, rows))
            continue;
        sum += rows;
        *longest = rows > *longest ? rows : *longest;
    }
    int64_t packed = sum < PACKED_ROWS ? sum : PACKED_ROWS;
    return *longest > packed ? *longest : packed;
}

/* ---- runs ---- */

typedef struct corpus_scoring {
    ndp_engine *engine;
    int32_t *arrays; /* of the run being filled: tokens, labels, positions, starts, `rows` each */
    int64_t rows, used;
    double nll;
    int64_t tokens;
} corpus_scoring;

static void put_document(corpus_scoring *s, const int32_t *ids, int64_t n) {
    int32_t *tokens = s->arrays, *labels = tokens + s->rows, *positions = labels + s->rows,
            *starts = positions + s->rows;
    int64_t first = s->used;
    for (int64_t t = 0; t < n; t++, s->used++) {
        tokens[s->used] = ids[t];
        labels[s->used] = ids[t + 1];
        positions[s->used] = (int32_t)t;
        starts[s->used] = (int32_t)first;
    }
}

/* Runs the documents put so far; the remaining rows are padding. */
static ndp_status score_rows(corpus_scoring *s) {
    ndp_micro_batch batch = ndp_micro_batch_of(s->arrays, s->rows);
    ndp_step_result result;
    batch.rows = s->used;
    NDP_TRY(ndp_engine_load(s->engine, 0, &batch));
    NDP_TRY(ndp_engine_step(s->engine, 0, 0, false, &result));
    s->nll += result.loss * (double)result.tokens;
    s->tokens += result.tokens;
    s->used = 0;
    return NDP_OK;
}

static ndp_status score_documents(const evaluation_corpus *c, row_lengths l, corpus_scoring *s) {
    for (int64_t i = 0; i < c->n; i++) {
        int64_t rows = document_rows(c, i);
        if (!has_length(l, rows))
            continue;
        if (s->used + rows > s->rows)
            NDP_TRY(score_rows(s));
        put_document(s, c->ids.items + document_begin(c, i), rows);
    }
    return s->used ? score_rows(s) : NDP_OK;
}

/* Scores the documents of these lengths; adds to s->nll and s->tokens. */
static ndp_status score_lengths(const evaluation_corpus *c, row_lengths l, corpus_scoring *s) {
    ndp_model m;
    int64_t longest;
    s->rows = rows_of_a_run(c, l, &longest);
    if (!longest)
        return NDP_OK;
    ndp_model_opts opts = {
        .mode = NDP_MODEL_SCORE, .rows = s->rows, .positions = longest, .compute = NDP_F32, .master = NDP_F32};
    NDP_TRY(ndp_model_build(&c->infer->facts, &opts, &m));
    ndp_status st = ndp_infer_check_memory(c->infer, &(const ndp_model *){&m}, 1, 0,
                                           "Use a smaller model, or lower --sequence-length");
    s->arrays = malloc(4 * (size_t)s->rows * sizeof *s->arrays);
    if (st == NDP_OK && !s->arrays)
        st = NDP_FAIL(NDP_ENOMEM, "no memory for a run over %lld tokens", (long long)s->rows);
    if (st == NDP_OK)
        st = ndp_infer_engine(c->infer, &m, NULL, &s->engine);
    if (st == NDP_OK)
        st = score_documents(c, l, s);
    ndp_engine_destroy(s->engine);
    s->engine = NULL;
    free(s->arrays);
    s->arrays = NULL;
    ndp_model_release(&m);
    return st;
}

static ndp_status evaluate(const evaluation_corpus *c, ndp_evaluation *out) {
    corpus_scoring s = {0};
    for (row_lengths l = {0}; l.high < INT64_MAX;) {
        l = lengths_above(&c->infer->facts, l.high);
        NDP_TRY(score_lengths(c, l, &s));
    }
    NDP_CHECK(isfinite(s.nll), "the nll of the %lld predictions is not finite: the model's weights overflow",
              (long long)s.tokens);
    *out = (ndp_evaluation){s.nll / (double)s.tokens, s.tokens, c->n};
    return NDP_OK;
}

ndp_status ndp_evaluate(const ndp_evaluate_opts *o, ndp_evaluation *out) {
    ndp_infer infer;
    NDP_TRY(ndp_infer_init(&infer, o->model, o->device, o->threads));
    infer.force_memory = o->force_memory;
    int64_t most = infer.facts.max_positions;
    evaluation_corpus c = {.infer = &infer, .longest = o->sequence_length ? o->sequence_length : most};
    ndp_status st = NDP_OK;
    if (o->sequence_length < 0 || o->sequence_length == 1)
        st = NDP_FAIL(NDP_EINVAL, "a sequence length of %d: give 2 or more, or 0 for the model's %lld",
                      o->sequence_length, (long long)most);
    else if (c.longest > most)
        st = NDP_FAIL(NDP_EINVAL,
                      "a sequence length of %d is longer than the model's max_position_embeddings %lld (%s); lower it",
                      o->sequence_length, (long long)most, infer.folder);
    if (st == NDP_OK)
        st = read_corpus(&c, o->data, o->text_field);
    if (st == NDP_OK)
        st = evaluate(&c, out);
    release_corpus(&c);
    ndp_infer_release(&infer);
    return st;
}

/* ---- the held-out rows of a job ---- */

ndp_status ndp_evaluate_job(const ndp_config *c, ndp_world *w, ndp_evaluation *out) {
    ndp_trainer *t;
    NDP_CHECK(c->model.init != NDP_INIT_RANDOM,
              "the job starts from random weights (model.init: random), so there is no model to evaluate; give the "
              "folder of one, such as %s/model",
              c->train.output_dir);
    NDP_TRY(ndp_trainer_open(c, w, &(ndp_trainer_opts){.forward_only = true}, &t));
    ndp_evaluation e = {.documents = ndp_dataset_documents(t->data.held)};
    ndp_status st = ndp_trainer_evaluate(t, &e.mean_nll, &e.tokens);
    if (st == NDP_OK)
        *out = e;
    ndp_trainer_destroy(t);
    return st;
}
