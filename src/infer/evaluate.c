/* The mean negative log-likelihood of documents, in windows of a fixed number of tokens: a document of n tokens is
 * scored in the windows [0, L), [S, S + L), [2 S, 2 S + L), ... up to the first that reaches n. Each predicts those of
 * its tokens that no window before it has, and never its first one. These are the predictions of transformers'
 * perplexity guide.
 *
 * Windows are independent: positions start at 0 and attention does not cross their borders, so many run at once, packed
 * into the rows of one graph. longrope uses other angles for windows beyond its original length; these are scored in
 * separate runs, so that no window affects another. */
#include "data/corpus/source.h"
#include "infer/infer.h"
#include "text/token_bytes.h"

#include <math.h>
#include <stdlib.h>

enum { PACKED_ROWS = 1024 }; /* rows of a run, unless a window is longer: enough for efficient matrix products */

/* A file: documents up to number `end`, and what its predictions sum up to. */
typedef struct evaluation_file {
    const char *path;
    int64_t end;
    double nll;
    int64_t tokens, bytes, divided;
} evaluation_file;

/* All documents of all files in sequence; document i ends at ends[i]. */
typedef struct evaluation_corpus {
    const ndp_infer *infer;
    int64_t length, stride; /* of windows, in tokens */
    ndp_ids ids;
    int64_t *ends;
    int64_t n, capacity;
    evaluation_file *files;
    int n_files;
} evaluation_corpus;

static ndp_status add_document(void *user, const ndp_document *d) {
    evaluation_corpus *c = user;
    if (!d->n)
        return NDP_OK;
    int64_t first = c->ids.n;
    NDP_TRY(ndp_infer_encode(c->infer, d->text, d->n, true, &c->ids));
    c->files[c->n_files].divided += c->ids.n - first > c->length;
    NDP_TRY(ndp_array_reserve(&c->ends, &c->capacity, c->n + 1, sizeof *c->ends));
    c->ends[c->n++] = c->ids.n;
    return NDP_OK;
}

static ndp_status read_file(evaluation_corpus *c, evaluation_file *f, const char *text_field) {
    ndp_mapped file;
    int64_t documents = c->n, tokens = c->ids.n;
    NDP_TRY(ndp_file_map_as(NDP_FILE_DATA, f->path, &file));
    ndp_status st = ndp_source_visit(f->path, (const char *)file.data, file.size, text_field, add_document, c);
    NDP_TRY(ndp_file_end(&file, st));
    NDP_CHECK(c->n > documents, "%s has no document with text", f->path);
    NDP_CHECK(c->ids.n - tokens > c->n - documents,
              "%s: none of its %lld documents has two tokens, so there is nothing to predict", f->path,
              (long long)(c->n - documents));
    f->end = c->n;
    return NDP_OK;
}

static ndp_status read_corpus(evaluation_corpus *c, const ndp_evaluate_opts *o) {
    NDP_CHECK(o->data_count > 0, "no data is given; give a .jsonl file with one text per record, or a text file");
    c->files = calloc((size_t)o->data_count, sizeof *c->files);
    NDP_CHECK_MEMORY(c->files, "for %d files", o->data_count);
    for (; c->n_files < o->data_count; c->n_files++) {
        c->files[c->n_files].path = o->data[c->n_files];
        NDP_TRY(read_file(c, &c->files[c->n_files], o->text_field));
    }
    return NDP_OK;
}

static void release_corpus(evaluation_corpus *c) {
    ndp_ids_release(&c->ids);
    free(c->ends);
    free(c->files);
}

static int64_t document_begin(const evaluation_corpus *c, int64_t i) { return i ? c->ends[i - 1] : 0; }

/* ---- windows ---- */

/* Ids [begin, end) of the corpus, which predict [first, end). */
typedef struct token_window {
    int64_t begin, first, end;
} token_window;

/* The next window of a document, `{0}` before the first one; false after the last. */
static bool next_window(const evaluation_corpus *c, int64_t document, token_window *w) {
    int64_t end = c->ends[document], last = w->end;
    if (last == end)
        return false;
    w->begin = last ? w->begin + c->stride : document_begin(c, document);
    w->first = last > w->begin ? last : w->begin + 1;
    w->end = w->begin + c->length < end ? w->begin + c->length : end;
    return true;
}

/* The last token of a window is only a label and takes no row. A window of one token predicts nothing. */
static int64_t window_rows(const token_window *w) { return w->end - w->begin - 1; }

/* A range of lengths of windows, in tokens, with the same RoPE angles: above `low`, up to `high`. */
typedef struct window_lengths {
    int64_t low, high;
} window_lengths;

/* Of windows that predict something. */
static bool has_length(window_lengths l, const token_window *w) {
    int64_t n = w->end - w->begin;
    return n > 1 && n > l.low && n <= l.high;
}

/* The range above `low`, up to the next original length of a longrope table. */
static window_lengths lengths_above(const ndp_facts *f, int64_t low) {
    window_lengths l = {low, INT64_MAX};
    for (int i = 0; i < f->n_ropes; i++) {
        int64_t original = f->ropes[i].original_positions;
        if (f->ropes[i].scaling == NDP_ROPE_LONG && original > low && original < l.high)
            l.high = original;
    }
    return l;
}

/* *longest: of the windows, in tokens; 0 if no window has such a length. */
static int64_t rows_of_a_run(const evaluation_corpus *c, window_lengths l, int64_t *longest) {
    int64_t sum = 0;
    *longest = 0;
    for (int64_t i = 0; i < c->n; i++)
        for (token_window w = {0}; next_window(c, i, &w);) {
            if (!has_length(l, &w))
                continue;
            sum += window_rows(&w);
            *longest = w.end - w.begin > *longest ? w.end - w.begin : *longest;
        }
    int64_t packed = sum < PACKED_ROWS ? sum : PACKED_ROWS;
    return *longest - 1 > packed ? *longest - 1 : packed;
}

/* ---- runs ---- */

typedef struct corpus_scoring {
    ndp_engine *engine;
    int32_t *arrays; /* of the run being filled: tokens, labels, positions, starts, `rows` each */
    int64_t rows, used;
    evaluation_file *file; /* of the windows in the run */
} corpus_scoring;

static void put_window(corpus_scoring *s, const int32_t *ids, const token_window *w) {
    int32_t *tokens = s->arrays, *labels = tokens + s->rows, *positions = labels + s->rows,
            *starts = positions + s->rows;
    int64_t first = s->used;
    for (int64_t t = w->begin; t + 1 < w->end; t++, s->used++) {
        tokens[s->used] = ids[t];
        labels[s->used] = t + 1 >= w->first ? ids[t + 1] : -1;
        positions[s->used] = (int32_t)(t - w->begin);
        starts[s->used] = (int32_t)first;
    }
}

/* Runs the windows put so far; the remaining rows are padding. */
static ndp_status score_rows(corpus_scoring *s) {
    ndp_micro_batch batch = ndp_micro_batch_of(s->arrays, s->rows);
    ndp_step_result result;
    batch.rows = s->used;
    NDP_TRY(ndp_engine_load(s->engine, 0, &batch));
    NDP_TRY(ndp_engine_step(s->engine, 0, 0, false, &result));
    s->file->nll += result.loss * (double)result.tokens;
    s->file->tokens += result.tokens;
    s->used = 0;
    return NDP_OK;
}

/* Documents of several files are never in the same run: a run returns one mean. */
static ndp_status score_file(const evaluation_corpus *c, int file, window_lengths l, corpus_scoring *s) {
    s->file = &c->files[file];
    for (int64_t i = file ? c->files[file - 1].end : 0; i < s->file->end; i++)
        for (token_window w = {0}; next_window(c, i, &w);) {
            if (!has_length(l, &w))
                continue;
            if (s->used + window_rows(&w) > s->rows)
                NDP_TRY(score_rows(s));
            put_window(s, c->ids.items, &w);
        }
    return s->used ? score_rows(s) : NDP_OK;
}

static ndp_status score_files(const evaluation_corpus *c, window_lengths l, corpus_scoring *s) {
    for (int i = 0; i < c->n_files; i++)
        NDP_TRY(score_file(c, i, l, s));
    return NDP_OK;
}

/* Scores the windows of these lengths; adds to the sums of their files. */
static ndp_status score_lengths(const evaluation_corpus *c, window_lengths l, corpus_scoring *s) {
    ndp_model m;
    int64_t longest;
    s->rows = rows_of_a_run(c, l, &longest);
    if (!longest)
        return NDP_OK;
    ndp_model_opts opts = {.mode = NDP_MODEL_SCORE,
                           .rows = s->rows,
                           .positions = longest,
                           .compute = NDP_F32,
                           .master = NDP_F32,
                           .adapter = c->infer->adapter};
    NDP_TRY(ndp_decoder_build(c->infer->facts, &opts, &m));
    ndp_status st = ndp_infer_check_memory(c->infer, &(const ndp_model *){&m}, 1, 0,
                                           "Use a smaller model, or lower --sequence-length");
    s->arrays = malloc(4 * (size_t)s->rows * sizeof *s->arrays);
    if (st == NDP_OK && !s->arrays)
        st = NDP_FAIL(NDP_ENOMEM, "not enough memory for a run over %lld tokens", (long long)s->rows);
    if (st == NDP_OK)
        st = ndp_infer_engine(c->infer, &m, NULL, &s->engine);
    if (st == NDP_OK)
        st = score_files(c, l, s);
    ndp_engine_destroy(s->engine);
    s->engine = NULL;
    free(s->arrays);
    s->arrays = NULL;
    ndp_model_release(&m);
    return st;
}

/* ---- results ---- */

static ndp_status count_bytes(const evaluation_corpus *c) {
    ndp_token_bytes lengths;
    int64_t first = ndp_tokenizer_prefix(c->infer->tokenizer), n;
    NDP_TRY(ndp_token_bytes_init(&lengths, c->infer->tokenizer));
    ndp_status st = NDP_OK;
    evaluation_file *f = c->files;
    for (int64_t i = 0; i < c->n && st == NDP_OK; i++) {
        f += i == f->end;
        int64_t begin = document_begin(c, i);
        for (token_window w = {0}; next_window(c, i, &w);)
            for (int64_t t = w.first; t < w.end && st == NDP_OK; t++) {
                st = ndp_token_bytes_of(&lengths, c->ids.items[t], t - begin == first, &n);
                f->bytes += st == NDP_OK ? n : 0;
            }
    }
    ndp_token_bytes_release(&lengths);
    return st;
}

ndp_evaluation ndp_evaluation_of(const char *name, double nll, int64_t tokens, int64_t bytes, int64_t documents) {
    return (ndp_evaluation){.name = name,
                            .mean_nll = tokens ? nll / (double)tokens : NAN,
                            .tokens = tokens,
                            .bytes = bytes,
                            .documents = documents};
}

double ndp_bits_per_byte(const ndp_evaluation *e) {
    return e && e->bytes ? e->mean_nll * (double)e->tokens / (M_LN2 * (double)e->bytes) : NAN;
}

static ndp_evaluation result_of(const evaluation_corpus *c, const evaluation_file *f, int64_t documents) {
    ndp_evaluation e = ndp_evaluation_of(f->path, f->nll, f->tokens, f->bytes, documents);
    e.divided = f->divided;
    e.window = (int)c->length;
    e.stride = (int)c->stride;
    return e;
}

static ndp_status report(const evaluation_corpus *c, ndp_evaluation *all, ndp_evaluation *files) {
    evaluation_file sum = {0};
    for (int i = 0; i < c->n_files; i++) {
        const evaluation_file *f = &c->files[i];
        NDP_CHECK(isfinite(f->nll), "%s: the nll of the %lld predictions is not finite: the model's weights overflow",
                  f->path, (long long)f->tokens);
        files[i] = result_of(c, f, f->end - sum.end);
        sum = (evaluation_file){.end = f->end,
                                .nll = sum.nll + f->nll,
                                .tokens = sum.tokens + f->tokens,
                                .bytes = sum.bytes + f->bytes,
                                .divided = sum.divided + f->divided};
    }
    *all = result_of(c, &sum, sum.end);
    return NDP_OK;
}

static ndp_status hand_out(const evaluation_corpus *c, ndp_evaluation *all, ndp_evaluation **files) {
    ndp_evaluation *each = calloc((size_t)c->n_files, sizeof *each);
    NDP_CHECK_MEMORY(each, "for %d results", c->n_files);
    ndp_status st = report(c, all, each);
    if (st == NDP_OK && files)
        *files = each;
    else
        free(each);
    return st;
}

static ndp_status evaluate(const evaluation_corpus *c) {
    corpus_scoring s = {0};
    for (window_lengths l = {0}; l.high < INT64_MAX;) {
        l = lengths_above(c->infer->facts, l.high);
        NDP_TRY(score_lengths(c, l, &s));
    }
    return count_bytes(c);
}

static ndp_status choose_windows(const ndp_evaluate_opts *o, const ndp_infer *f, evaluation_corpus *c) {
    int64_t most = f->facts->max_positions;
    c->length = o->sequence_length ? o->sequence_length : most;
    NDP_CHECK(o->sequence_length >= 0 && o->sequence_length != 1,
              "a sequence length of %d: give 2 or more, or 0 for the model's %lld", o->sequence_length,
              (long long)most);
    NDP_CHECK(c->length <= most,
              "a sequence length of %d is longer than the model's max_position_embeddings %lld (%s); lower it",
              o->sequence_length, (long long)most, f->folder);
    c->stride = o->stride ? o->stride : c->length > 1 ? c->length - 1 : 1;
    NDP_CHECK(c->stride >= 1 && c->stride <= c->length,
              "a stride of %d: windows of %lld tokens need 1 to %lld, or 0 for %lld", o->stride, (long long)c->length,
              (long long)c->length, (long long)c->length - 1);
    return NDP_OK;
}

ndp_status ndp_evaluate(const ndp_evaluate_opts *o, ndp_evaluation *all, ndp_evaluation **files) {
    NDP_NOT_NULL(o, all);
    if (o->data_count)
        NDP_NOT_NULL(o->data);
    ndp_infer infer;
    NDP_TRY(ndp_infer_open(&infer, o->model, o->adapter, o->step, o->device, o->threads));
    infer.force_memory = o->force_memory;
    evaluation_corpus c = {.infer = &infer};
    ndp_status st = choose_windows(o, &infer, &c);
    if (st == NDP_OK)
        st = read_corpus(&c, o);
    if (st == NDP_OK)
        st = evaluate(&c);
    if (st == NDP_OK)
        st = hand_out(&c, all, files);
    release_corpus(&c);
    ndp_infer_release(&infer);
    return st;
}
