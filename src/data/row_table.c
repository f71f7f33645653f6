/* First-fit packing of documents into rows, and the rows of one continuous text.
 *
 * The pieces are listed in the order of the data, each with the row it goes to; make_table then sorts them by row, so
 * that a row's pieces are adjacent. Every rank computes the same table from the same cache. Called by packing.c. */
#include "data/row_table.h"

#include "base/arena.h"
#include "base/rng.h"
#include "data/row_fit.h"
#include "data/seen.h"
#include <stdlib.h>
#include <string.h>

/* Limit on open rows: more of them fill better and take longer to search. */
enum { OPEN_ROWS = 256 };

typedef struct row_builder {
    const ndp_token_cache *cache;
    const ndp_row_opts *o;
    ndp_row_piece *pieces; /* in the order of the data, */
    int64_t *row_of;       /* and the row of each */
    int64_t n, capacity, row_capacity;
    int64_t open[OPEN_ROWS];
    int32_t left[OPEN_ROWS];
    ndp_row_fit fit;  /* in these; its number of rows is that of all */
    int source;       /* of the newest document */
    int64_t question; /* number of the first one in the cache after the newest document's newest turn began */
    int64_t documents, tokens, labels;
    ndp_seen seen;
    ndp_row_losses lost;
} row_builder;

bool ndp_held_out(double part, int64_t document) {
    return ndp_rng_uniform(0, ndp_rng_stream("data.validation"), (uint64_t)document) < part;
}

/* The number of a document in its source, counted from 0. Documents are visited in order. */
static int64_t number_in_source(row_builder *b, int64_t document) {
    const ndp_token_cache *c = b->cache;
    while (b->source + 1 < c->n_sources && c->source_ends[b->source] <= (uint64_t)document)
        b->source++;
    return document - (b->source ? (int64_t)c->source_ends[b->source - 1] : 0);
}

/* A document that is held out and one that is not are never alike: the later one is left out of both. */
static bool is_kept(row_builder *b, int64_t document) {
    int64_t each = b->o->pairs ? 2 : 1, number = number_in_source(b, document) / each, most = b->o->most_documents;
    bool own = ndp_held_out(b->o->held_out, document / each) == b->o->validation, beyond = most > 0 && number >= most;
    bool repeated = b->o->unique && !beyond && !ndp_seen_add(&b->seen, b->cache, document, each);
    b->lost.beyond += own && beyond;
    b->lost.repeated += own && repeated;
    return own && !beyond && !repeated;
}

static ndp_status add_piece(row_builder *b, ndp_row_piece p, int64_t row) {
    NDP_TRY(ndp_array_reserve(&b->pieces, &b->capacity, b->n + 1, sizeof *b->pieces));
    NDP_TRY(ndp_array_reserve(&b->row_of, &b->row_capacity, b->n + 1, sizeof *b->row_of));
    b->pieces[b->n] = p;
    b->row_of[b->n++] = row;
    b->tokens += p.n;
    return NDP_OK;
}

static int64_t count_labels(const ndp_token_cache *c, const ndp_row_piece *p) {
    if (!c->trained)
        return p->n - (p->next < 0);
    int64_t n = p->next >= 0 && ndp_token_cache_trained(c, p->next);
    for (int64_t at = p->first + 1; at < p->first + p->n; at++)
        n += ndp_token_cache_trained(c, at);
    return n;
}

/* ---- documents ---- */

/* The row for a piece of n tokens. */
static int64_t fit(row_builder *b, int32_t n) { return ndp_row_fit_place(&b->fit, n, NULL); }

/* Pieces of S tokens and a remainder. */
static ndp_status add_pieces(row_builder *b, int64_t document, int64_t first, int64_t end) {
    int64_t length = b->o->length;
    for (int64_t at = first; at < end; at += length) {
        int64_t stop = end - at < length ? end : at + length;
        ndp_row_piece p = {at, stop < end ? stop : -1, (int32_t)(stop - at), at == document};
        int64_t labels = count_labels(b->cache, &p);
        if (labels == 0)
            continue;
        b->labels += labels;
        NDP_TRY(add_piece(b, p, fit(b, p.n)));
    }
    return NDP_OK;
}

/* ---- turns: a question and its answers ---- */

/* Whether a document is cut at turns: its beginning is not trained on, so something is asked there. */
static bool has_turns(const row_builder *b, int64_t first) {
    return b->o->overlong == NDP_OVERLONG_AUTO && b->cache->trained && !ndp_token_cache_trained(b->cache, first);
}

/* Where the turn of token `at` ends. *begins: it begins there. */
static int64_t turn_end(row_builder *b, int64_t at, int64_t end, bool *begins) {
    const ndp_token_cache *c = b->cache;
    while (b->question < c->n_questions && c->questions[b->question] <= (uint64_t)at)
        b->question++;
    *begins = b->question > 0 && c->questions[b->question - 1] == (uint64_t)at;
    int64_t next = b->question < c->n_questions ? (int64_t)c->questions[b->question] : end;
    return next < end ? next : end;
}

/* Counts the rest of a turn, from `at` on, which has no place in a row with its question. */
static void leave_out(row_builder *b, int64_t at, int64_t end) {
    int64_t labels = 0;
    for (; at < end; at++)
        labels += ndp_token_cache_trained(b->cache, at);
    b->lost.unasked += labels > 0;
    b->lost.unasked_labels += labels;
}

/* A turn that is longer than a row: its beginning, if that has some of an answer. */
static ndp_status add_long_turn(row_builder *b, int64_t document, int64_t at, int64_t end) {
    int64_t stop = at + b->o->length;
    ndp_row_piece p = {at, stop, (int32_t)(stop - at), at == document};
    int64_t labels = count_labels(b->cache, &p);
    if (labels > 0) {
        b->labels += labels;
        NDP_TRY(add_piece(b, p, fit(b, p.n)));
    }
    leave_out(b, labels > 0 ? stop + 1 : stop, end); /* the token at `stop` is predicted by the one before */
    return NDP_OK;
}

/* Pieces of as many whole turns as a row has room for. */
static ndp_status add_turns(row_builder *b, int64_t document, int64_t end) {
    bool begins;
    b->lost.between_turns++;
    for (int64_t at = document, stop; at < end; at = stop) {
        stop = at;
        for (int64_t next = at; next < end && (next = turn_end(b, next, end, &begins)) - at <= b->o->length;)
            stop = next;
        if (stop > at)
            NDP_TRY(add_pieces(b, document, at, stop));
        else {
            stop = turn_end(b, at, end, &begins);
            NDP_TRY(add_long_turn(b, document, at, stop));
        }
    }
    return NDP_OK;
}

static ndp_status add_document(row_builder *b, int64_t first, int64_t end) {
    int64_t pieces = b->n;
    NDP_TRY(end - first > b->o->length && has_turns(b, first) ? add_turns(b, first, end)
                                                              : add_pieces(b, first, first, end));
    b->documents += b->n > pieces;
    return NDP_OK;
}

/* ---- one text ---- */

/* Adds a document to the text that started at row `first_row` and has `used` tokens so far. */
static ndp_status add_to_text(row_builder *b, int64_t at, int64_t end, int64_t first_row, int64_t *used) {
    int64_t first = at, length = b->o->length;
    bool turns = at < end && has_turns(b, at), begins;
    b->documents += at < end;
    if (*used > 0 && at < end)
        b->pieces[b->n - 1].next = at;
    for (int64_t n; at < end; at += n) {
        int64_t room = length - *used % length, stop;
        if (turns && at > first && room == length && (stop = turn_end(b, at, end, &begins), !begins)) {
            b->lost.between_turns++;
            leave_out(b, at + (b->n > 0 && b->pieces[b->n - 1].next == at), stop); /* its row has no question */
            n = stop - at;
            continue;
        }
        n = end - at < room ? end - at : room;
        NDP_TRY(add_piece(b, (ndp_row_piece){at, at + n < end ? at + n : -1, (int32_t)n, at == first},
                          first_row + *used / length));
        *used += n;
    }
    return NDP_OK;
}

/* Drops the last row if it is a single token, which predicts nothing. */
static void end_text(row_builder *b, int64_t first_piece, int64_t first_row, int64_t used) {
    if (used > 0 && (used - 1) % b->o->length == 0) {
        b->n--;
        b->tokens--;
        used--;
    }
    b->fit.rows = first_row + (used + b->o->length - 1) / b->o->length;
    for (int64_t i = first_piece; i < b->n; i++)
        b->labels += count_labels(b->cache, &b->pieces[i]);
}

/* ---- all ---- */

static ndp_status fail_overlong(row_builder *b, int64_t document, int64_t n) {
    return NDP_FAIL(NDP_EINVAL,
                    "%s: document %lld has %lld tokens, a row has %lld; set data.overlong: %s, or raise "
                    "data.sequence_length",
                    b->o->names ? b->o->names[b->source] : "the data", (long long)number_in_source(b, document) + 1,
                    (long long)n, (long long)b->o->length,
                    b->o->pairs ? "truncate or drop" : "cut to continue it in another row, drop or truncate");
}

/* The tokens of a document that rows take: [*first, *end), none of a document that is dropped. */
static ndp_status kept_tokens(row_builder *b, int64_t document, int64_t *first, int64_t *end) {
    int64_t length = b->o->length;
    *first = (int64_t)b->cache->offsets[document];
    *end = (int64_t)b->cache->offsets[document + 1];
    if (*end > *first && *end - *first < b->o->least_tokens) {
        *end = *first;
        b->lost.scant++;
    }
    if (*end - *first <= length || b->o->overlong <= NDP_OVERLONG_CUT)
        return NDP_OK;
    if (b->o->overlong == NDP_OVERLONG_ERROR)
        return fail_overlong(b, document, *end - *first);
    bool truncated = b->o->overlong == NDP_OVERLONG_TRUNCATE;
    *end = truncated ? *first + length : *first;
    b->lost.overlong++;
    b->lost.emptied += truncated && count_labels(b->cache, &(ndp_row_piece){*first, -1, (int32_t)length, true}) == 0;
    return NDP_OK;
}

/* Both documents, a row each, or none: one that is left out takes the other with it, unless they are apart. */
static ndp_status add_pair(row_builder *b, int64_t document) {
    ndp_row_piece pair[2];
    bool whole = true;
    int64_t labels[2];
    for (int i = 0; i < 2; i++) {
        int64_t from, to;
        NDP_TRY(kept_tokens(b, document + i, &from, &to));
        pair[i] = (ndp_row_piece){from, -1, (int32_t)(to - from), true};
        labels[i] = to > from ? count_labels(b->cache, &pair[i]) : 0;
        whole = whole && labels[i] > 0;
    }
    for (int i = 0; i < 2; i++) {
        if (b->o->apart ? labels[i] == 0 : !whole)
            continue;
        NDP_TRY(add_piece(b, pair[i], b->fit.rows++));
        b->labels += labels[i];
        b->documents++;
    }
    return NDP_OK;
}

static ndp_status add_source(row_builder *b, int64_t first, int64_t end) {
    int64_t first_row = b->fit.rows, first_piece = b->n, used = 0, from, to;
    bool text = !b->o->document_mask && !b->o->single;
    b->fit.n_open = 0;
    for (int64_t d = first; b->o->pairs && d + 1 < end; d += 2)
        if (is_kept(b, d))
            NDP_TRY(add_pair(b, d));
    for (int64_t d = first; !b->o->pairs && d < end; d++) {
        if (!is_kept(b, d))
            continue;
        NDP_TRY(kept_tokens(b, d, &from, &to));
        NDP_TRY(text ? add_to_text(b, from, to, first_row, &used) : add_document(b, from, to));
    }
    if (text)
        end_text(b, first_piece, first_row, used);
    return NDP_OK;
}

/* Sorts the pieces by row; the pieces of a row keep their order. */
static ndp_status make_table(row_builder *b, ndp_row_table *t) {
    t->rows = calloc((size_t)b->fit.rows + 2, sizeof *t->rows);
    t->pieces = malloc((size_t)(b->n + 1) * sizeof *t->pieces);
    NDP_CHECK_MEMORY(t->rows && t->pieces, "for a table of %lld rows", (long long)b->fit.rows);
    int64_t *next = t->rows + 1; /* while filling: index of the row's next piece */
    for (int64_t i = 0; i < b->n; i++)
        if (b->row_of[i] + 1 < b->fit.rows)
            next[b->row_of[i] + 1]++;
    for (int64_t r = 1; r < b->fit.rows; r++)
        next[r] += next[r - 1];
    for (int64_t i = 0; i < b->n; i++)
        t->pieces[next[b->row_of[i]]++] = b->pieces[i];
    t->n_rows = b->fit.rows;
    t->documents = b->documents;
    t->tokens = b->tokens;
    t->labels = b->labels;
    t->lost = b->lost;
    return NDP_OK;
}

static ndp_status add_sources(row_builder *b, ndp_row_table *t) {
    const ndp_token_cache *c = b->cache;
    t->n_sources = b->o->by_source ? c->n_sources : 1;
    t->sources = calloc((size_t)t->n_sources + 1, sizeof *t->sources);
    t->source_documents = calloc((size_t)t->n_sources, sizeof *t->source_documents);
    NDP_CHECK_MEMORY(t->sources && t->source_documents, "for a table of rows");
    for (int i = 0; i < t->n_sources; i++) {
        int64_t before = b->documents, first = b->o->by_source && i ? (int64_t)c->source_ends[i - 1] : 0;
        NDP_TRY(add_source(b, first, b->o->by_source ? (int64_t)c->source_ends[i] : c->n_documents));
        t->sources[i + 1] = b->fit.rows;
        t->source_documents[i] = b->documents - before;
    }
    return make_table(b, t);
}

ndp_status ndp_row_table_build(const ndp_token_cache *c, const ndp_row_opts *o, ndp_row_table *out) {
    row_builder *b = calloc(1, sizeof *b);
    ndp_row_table t = {0};
    NDP_CHECK_MEMORY(b, "for a table of rows");
    b->cache = c;
    b->o = o;
    if (o->unique && ndp_seen_create(c->n_documents, &b->seen) != NDP_OK) {
        free(b);
        return NDP_ENOMEM;
    }
    /* A piece of one token predicts nothing, so a row of which one is left is full. */
    b->fit = (ndp_row_fit){.open = b->open,
                           .left = b->left,
                           .most = OPEN_ROWS,
                           .length = (int32_t)o->length,
                           .least = o->single ? INT32_MAX : 2};
    ndp_status st = add_sources(b, &t);
    ndp_seen_release(&b->seen);
    free(b->pieces);
    free(b->row_of);
    free(b);
    if (st != NDP_OK) {
        ndp_row_table_release(&t);
        return st;
    }
    *out = t;
    return NDP_OK;
}

void ndp_row_table_release(ndp_row_table *t) {
    free(t->pieces);
    free(t->rows);
    free(t->sources);
    free(t->source_documents);
    *t = (ndp_row_table){0};
}
