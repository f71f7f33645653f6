/* Totals and records of a job's data (job_shown.h). A document of the token cache is looked up in the pieces of the
 * rows for training and of those that are held out; a token is trained on if a row predicts it. Called by plan/ and by
 * show_data.c. */
#include "job/job_shown.h"

#include "base/json_write.h"
#include "text/chat/chat_notes.h"
#include <stdlib.h>
#include <string.h>

/* The files of an entry of data.files, or of data.validation_files: their cache, the rows made of it. */
typedef struct shown_set {
    const ndp_token_cache *cache;
    const ndp_dataset *sets[2]; /* rows for training, held-out rows; NULL: none */
    const ndp_strings *names;
} shown_set;

enum { SETS = 2 };

static int sets_of(const ndp_job_data *d, shown_set out[SETS]) {
    const ndp_config *c = d->job->config;
    bool apart = c->data.validation_files.n > 0;
    int n = 0;
    if (d->dataset)
        out[n++] = (shown_set){&d->tokens, {d->dataset, apart ? NULL : d->held}, &c->data.files};
    if (apart && d->held)
        out[n++] = (shown_set){&d->held_tokens, {NULL, d->held}, &c->data.validation_files};
    return n;
}

static int64_t source_begin(const ndp_token_cache *c, int source) {
    return source ? (int64_t)c->source_ends[source - 1] : 0;
}

/* ---- documents in rows ---- */

/* Of documents [first, first + n) of a cache: marks of their tokens, and where each is. */
typedef struct placed {
    const ndp_token_cache *cache;
    int64_t first, n;
    uint8_t *marks;  /* of tokens, from the first document's first one on; NULL: only `row`, `in` and `labels` */
    int64_t *row;    /* of each document, the first one; -1: none */
    int64_t *in;     /* how many of its tokens are in rows, */
    int64_t *labels; /* and how many these predict */
    bool *held;
} placed;

static void place(void *user, int64_t row, const ndp_row_piece *p) {
    placed *x = user;
    const ndp_token_cache *c = x->cache;
    int64_t low = x->first, high = x->first + x->n, origin = (int64_t)c->offsets[x->first];
    if (p->first < origin || p->first >= (int64_t)c->offsets[high])
        return;
    while (high - low > 1) { /* the last document that begins at or before it */
        int64_t middle = low + (high - low) / 2;
        *(c->offsets[middle] <= (uint64_t)p->first ? &low : &high) = middle;
    }
    int64_t i = low - x->first;
    x->row[i] = x->row[i] < 0 ? row : x->row[i];
    x->in[i] += p->n;
    for (int64_t k = 0; k <= p->n; k++) {
        int64_t at = k < p->n ? p->first + k : p->next;
        bool label = k > 0 && at >= 0 && ndp_token_cache_trained(c, at);
        x->labels[i] += label;
        if (x->marks && k < p->n)
            x->marks[at - origin] |= NDP_SHOWN_ROW;
        if (x->marks && label && at < (int64_t)c->offsets[x->first + x->n])
            x->marks[at - origin] |= NDP_SHOWN_TRAINED;
    }
}

static void placed_release(placed *x) {
    free(x->marks);
    free(x->row);
    free(x->in);
    free(x->labels);
    free(x->held);
}

static ndp_status place_all(const shown_set *s, int64_t first, int64_t n, bool marked, placed *out) {
    const ndp_token_cache *c = s->cache;
    size_t tokens = (size_t)(c->offsets[first + n] - c->offsets[first]), room = (size_t)n + 1;
    *out = (placed){c,
                    first,
                    n,
                    marked ? calloc(tokens + 1, 1) : NULL,
                    malloc(room * sizeof *out->row),
                    calloc(room, sizeof *out->in),
                    calloc(room, sizeof *out->labels),
                    calloc(room, sizeof *out->held)};
    NDP_CHECK_MEMORY((!marked || out->marks) && out->row && out->in && out->labels && out->held, "to show %lld records",
                     (long long)n);
    memset(out->row, 0xff, room * sizeof *out->row);
    for (int k = 0; k < 2; k++) {
        if (n > 0 && s->sets[k])
            ndp_dataset_visit_pieces(s->sets[k], place, out);
        for (int64_t i = 0; k == 0 && i < n; i++)
            out->held[i] = out->row[i] < 0; /* until it is found there */
    }
    for (int64_t i = 0; i < n; i++)
        out->held[i] &= out->row[i] >= 0;
    return NDP_OK;
}

/* The empty document beside a single answer. */
static bool is_absent(const ndp_job_data *d, const ndp_token_cache *c, int64_t document) {
    return ndp_preference_table[d->job->model.preference.kind].single &&
           c->offsets[document] == c->offsets[document + 1];
}

/* ---- totals ---- */

typedef struct source_totals {
    int64_t records, tokens, labels, cut, out, held, endless;
} source_totals;

/* Whether a stretch of an answer ends with a special token, but for white space after it. */
static ndp_status is_closed(const ndp_job_data *d, const ndp_token_cache *c, int64_t first, int64_t end, bool *out) {
    ndp_str text = {0};
    ndp_status st = NDP_OK;
    *out = false;
    for (bool blank = true; end > first && blank && !*out && st == NDP_OK; end--) {
        int32_t id = ndp_token_cache_id(c, end - 1);
        *out = ndp_tokenizer_is_special(d->tokenizer, id) || id == d->end_token;
        text.length = 0;
        if (!*out)
            st = ndp_tokenizer_decode(d->tokenizer, &id, 1, false, &text);
        for (size_t i = 0; i < text.length; i++)
            blank &= strchr(" \n\t\r", text.data[i]) && text.data[i];
    }
    ndp_str_release(&text);
    return st;
}

/* Answers of a document that end without a special token; none of one that is trained on as a whole. */
static ndp_status count_endless(const ndp_job_data *d, const ndp_token_cache *c, int64_t document, int64_t *n) {
    int64_t first = (int64_t)c->offsets[document], end = (int64_t)c->offsets[document + 1], begin = first;
    for (int64_t at = first; at < end; at++) {
        bool trained = ndp_token_cache_trained(c, at);
        if (trained && (at == first || !ndp_token_cache_trained(c, at - 1)))
            begin = at;
        bool whole = begin == first && at + 1 == end, closed = true;
        if (trained && !whole && (at + 1 == end || !ndp_token_cache_trained(c, at + 1)))
            NDP_TRY(is_closed(d, c, begin, at + 1, &closed));
        *n += !closed;
    }
    return NDP_OK;
}

static ndp_status total(const ndp_job_data *d, const shown_set *s, int source, source_totals *out) {
    const ndp_token_cache *c = s->cache;
    int64_t first = source_begin(c, source), n = (int64_t)c->source_ends[source] - first;
    placed x;
    *out = (source_totals){.records = n};
    ndp_status st = place_all(s, first, n, false, &x);
    for (int64_t i = 0; i < n && st == NDP_OK; i++) {
        int64_t tokens = (int64_t)(c->offsets[first + i + 1] - c->offsets[first + i]);
        if (is_absent(d, c, first + i)) {
            out->records--;
            continue;
        }
        out->tokens += tokens;
        out->labels += x.labels[i];
        out->out += x.row[i] < 0;
        out->cut += x.row[i] >= 0 && x.in[i] < tokens;
        out->held += x.held[i];
        if (c->trained && !ndp_tokenizer_why_no_texts(d->tokenizer))
            st = count_endless(d, c, first + i, &out->endless);
    }
    placed_release(&x);
    return st;
}

static void add_total(const char *name, const source_totals *t, int width, ndp_str *out) {
    ndp_str_addf(out, "%-*s %9lld %11lld %11lld %8lld %8lld %8lld %8lld\n", width, name, (long long)t->records,
                 (long long)t->tokens, (long long)t->labels, (long long)t->cut, (long long)t->out, (long long)t->held,
                 (long long)t->endless);
}

ndp_status ndp_job_data_add_totals(const ndp_job_data *d, ndp_str *out) {
    shown_set sets[SETS];
    int n = sets_of(d, sets), width = 6;
    for (int k = 0; k < n; k++)
        for (int i = 0; i < sets[k].cache->n_sources; i++)
            width = (int)strlen(sets[k].names->items[i]) > width ? (int)strlen(sets[k].names->items[i]) : width;
    ndp_str_addf(out, "%-*s %9s %11s %11s %8s %8s %8s %8s\n", width, "source",
                 d->job->config->data.format == NDP_RECORD_PREFERENCE ? "texts" : "records", "tokens", "to predict",
                 "cut", "left out", "held out", "no end");
    for (int k = 0; k < n; k++)
        for (int i = 0; i < sets[k].cache->n_sources; i++) {
            source_totals t;
            NDP_TRY(total(d, &sets[k], i, &t));
            add_total(sets[k].names->items[i], &t, width, out);
        }
    if (ndp_job_data_has_conversations(d))
        ndp_chat_add_split_tokens(&d->chat, d->tokenizer, out);
    return NDP_MEMORY(!out->failed, "for the totals of the data");
}

/* ---- records ---- */

/* "chosen " or "rejected " for documents of pairs. */
static const char *part_of(const ndp_job_data *d, int64_t document) {
    bool pairs = d->job->config->data.format == NDP_RECORD_PREFERENCE;
    return !pairs ? "" : document % 2 ? ", rejected" : ", chosen";
}

static void add_head(const ndp_job_data *d, const shown_set *s, int source, int64_t i, const placed *x, ndp_str *out) {
    int64_t each = d->job->config->data.format == NDP_RECORD_PREFERENCE ? 2 : 1;
    int64_t tokens = (int64_t)(x->cache->offsets[x->first + i + 1] - x->cache->offsets[x->first + i]);
    bool single = ndp_preference_table[d->job->model.preference.kind].single;
    ndp_str_addf(out, "%s %lld of %s%s: %lld token%s, ", each == 2 && !single ? "pair" : "record",
                 (long long)(i / each) + 1, s->names->items[source], part_of(d, i), (long long)tokens,
                 tokens == 1 ? "" : "s");
    if (x->row[i] < 0)
        ndp_str_add(out, "in no row\n");
    else
        ndp_str_addf(out, "%lld to predict, %srow %lld\n", (long long)x->labels[i], x->held[i] ? "held out, " : "",
                     (long long)x->row[i]);
}

static int64_t shown_of(const ndp_job_data *d, const ndp_token_cache *c, int source, int64_t records) {
    int64_t each = d->job->config->data.format == NDP_RECORD_PREFERENCE ? 2 : 1;
    int64_t n = (int64_t)c->source_ends[source] - source_begin(c, source);
    return n / each < records ? n : records * each;
}

/* The ids of document i; the caller frees. */
static ndp_status ids_of(const placed *x, int64_t i, int32_t **out, int64_t *n, const uint8_t **marks) {
    const ndp_token_cache *c = x->cache;
    int64_t first = (int64_t)c->offsets[x->first + i];
    *n = (int64_t)c->offsets[x->first + i + 1] - first;
    *marks = x->marks + (first - (int64_t)c->offsets[x->first]);
    *out = malloc(((size_t)*n + 1) * sizeof **out);
    NDP_CHECK_MEMORY(*out, "to show a record of %lld tokens", (long long)*n);
    for (int64_t k = 0; k < *n; k++)
        (*out)[k] = ndp_token_cache_id(c, first + k);
    return NDP_OK;
}

static ndp_status add_record(const ndp_job_data *d, const ndp_job_shown *o, const placed *x, int64_t i, ndp_str *out) {
    int32_t *ids;
    int64_t n;
    const uint8_t *marks;
    NDP_TRY(ids_of(x, i, &ids, &n, &marks));
    int64_t shown = o->most > 0 && o->most < n ? o->most : n;
    ndp_status st = ndp_shown_add(d->tokenizer, ids, marks, shown, o->style, out);
    if (out->length && out->data[out->length - 1] != '\n')
        ndp_str_add(out, "\n");
    if (shown < n)
        ndp_str_addf(out, "... and %lld tokens more\n", (long long)(n - shown));
    free(ids);
    return st;
}

ndp_status ndp_job_data_show(const ndp_job_data *d, const ndp_job_shown *o, ndp_str *out) {
    shown_set sets[SETS];
    ndp_status st = NDP_OK;
    int n = o->records > 0 ? sets_of(d, sets) : 0;
    for (int k = 0; k < (o->first ? n > 0 : n); k++)
        for (int i = 0; i < (o->first ? 1 : sets[k].cache->n_sources) && st == NDP_OK; i++) {
            placed x;
            st = place_all(&sets[k], source_begin(sets[k].cache, i), shown_of(d, sets[k].cache, i, o->records), true,
                           &x);
            for (int64_t r = 0; r < x.n && st == NDP_OK; r++) {
                if (is_absent(d, x.cache, x.first + r))
                    continue;
                add_head(d, &sets[k], i, r, &x, out);
                st = add_record(d, o, &x, r, out);
            }
            placed_release(&x);
        }
    return st;
}

/* ---- JSON ---- */

static ndp_status put_record(const ndp_job_data *d, const shown_set *s, int source, const placed *x, int64_t i,
                             ndp_json_out *out) {
    int64_t each = d->job->config->data.format == NDP_RECORD_PREFERENCE ? 2 : 1, n;
    int32_t *ids;
    const uint8_t *marks;
    NDP_TRY(ids_of(x, i, &ids, &n, &marks));
    ndp_json_open(out, NULL, '{');
    ndp_json_put_text(out, "source", s->names->items[source]);
    ndp_json_put_int(out, "record", i / each + 1);
    if (each == 2)
        ndp_json_put_text(out, "part", i % 2 ? "rejected" : "chosen");
    ndp_json_put_bool(out, "held_out", x->held[i]);
    if (x->row[i] < 0)
        ndp_json_put_null(out, "row");
    else
        ndp_json_put_int(out, "row", x->row[i]);
    ndp_json_open(out, "ids", '[');
    for (int64_t k = 0; k < n; k++)
        ndp_json_put_int(out, NULL, ids[k]);
    ndp_json_close(out, ']');
    ndp_json_open(out, "trained", '[');
    for (int64_t k = 0; k < n; k++)
        ndp_json_put_int(out, NULL, (marks[k] & NDP_SHOWN_TRAINED) != 0);
    ndp_json_close(out, ']');
    ndp_json_close(out, '}');
    free(ids);
    return NDP_OK;
}

static ndp_status put_total(const ndp_job_data *d, const shown_set *s, int source, ndp_json_out *out) {
    source_totals t;
    NDP_TRY(total(d, s, source, &t));
    ndp_json_open(out, NULL, '{');
    ndp_json_put_text(out, "source", s->names->items[source]);
    ndp_json_put_int(out, "records", t.records);
    ndp_json_put_int(out, "tokens", t.tokens);
    ndp_json_put_int(out, "to_predict", t.labels);
    ndp_json_put_int(out, "cut", t.cut);
    ndp_json_put_int(out, "left_out", t.out);
    ndp_json_put_int(out, "held_out", t.held);
    ndp_json_put_int(out, "without_end", t.endless);
    ndp_json_close(out, '}');
    return NDP_OK;
}

ndp_status ndp_job_data_put(const ndp_job_data *d, const ndp_job_shown *o, ndp_json_out *out) {
    shown_set sets[SETS];
    ndp_status st = NDP_OK;
    int n = sets_of(d, sets);
    ndp_json_open(out, "sources", '[');
    for (int k = 0; k < n; k++)
        for (int i = 0; i < sets[k].cache->n_sources; i++)
            NDP_TRY(put_total(d, &sets[k], i, out));
    ndp_json_close(out, ']');
    ndp_json_open(out, "records", '[');
    for (int k = 0; k < n; k++)
        for (int i = 0; i < sets[k].cache->n_sources && st == NDP_OK; i++) {
            placed x;
            st = place_all(&sets[k], source_begin(sets[k].cache, i), shown_of(d, sets[k].cache, i, o->records), true,
                           &x);
            for (int64_t r = 0; r < x.n && st == NDP_OK; r++)
                st = is_absent(d, x.cache, x.first + r) ? NDP_OK : put_record(d, &sets[k], i, &x, r, out);
            placed_release(&x);
        }
    ndp_json_close(out, ']');
    return st;
}
