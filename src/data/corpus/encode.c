/* Which tokens of a conversation are trained on.
 *
 * Spans are bytes of the rendered text; training needs token indices. The text is tokenized as a whole (tokens may
 * cross a span's border), and the index of a border is found by tokenizing the text before it separately: the first
 * token at which the two results differ is the first one after the border. Tokenizing from the start of the text would
 * take quadratic time, so find_border tries nearer starts first. Called by share.c. */
#include "data/corpus/encode.h"

#include <string.h>

typedef struct text_place {
    size_t byte;
    int64_t token;
} text_place;

typedef struct span_search {
    const ndp_tokenizer *t;
    const ndp_document *d;
    const int32_t *whole; /* the document's ids */
    int64_t n;
    ndp_ids piece;           /* of a stretch of its text */
    text_place start;        /* of the text, after tokens that the tokenizer puts before it */
    text_place last, anchor; /* the previous border, and the last one that ended a turn */
} span_search;

static ndp_status encode(const ndp_tokenizer *t, const ndp_document *d, size_t from, size_t to, bool special,
                         ndp_ids *ids) {
    return d->rendered ? ndp_tokenizer_encode_rendered(t, d->text + from, to - from, ids)
                       : ndp_tokenizer_encode(t, d->text + from, to - from, special, ids);
}

/* Encodes the text from a border up to `to`. *same: how many of its tokens agree with the document's. */
static ndp_status encode_from(span_search *e, text_place from, size_t to, int64_t *same) {
    int64_t i = 0, most = e->n - from.token;
    e->piece.n = 0;
    NDP_TRY(encode(e->t, e->d, from.byte, to, false, &e->piece));
    while (i < most && i < e->piece.n && e->piece.items[i] == e->whole[from.token + i])
        i++;
    *same = i;
    return NDP_OK;
}

/* The index of the first token after a border. It tries three starts. The previous border mostly gives the same tokens
 * as the whole text. The start of the text always does. Between the two, the last turn: for some tokenizers, words
 * differ at the start of a text, and a turn follows a special token just as the start of a text does. */
static ndp_status find_border(span_search *e, size_t at, int64_t *token) {
    const text_place from[] = {e->last, e->anchor, e->start};
    int64_t same = 0;
    for (int i = 0; i < NDP_COUNT(from); i++) {
        if (i > 0 && from[i].byte == from[i - 1].byte)
            continue;
        NDP_TRY(encode_from(e, from[i], at, &same));
        if (same == e->piece.n || from[i].byte == 0) {
            *token = from[i].token + same;
            break;
        }
    }
    *token = *token < e->last.token ? e->last.token : *token;
    e->last = (text_place){at, *token};
    return NDP_OK;
}

/* Those up to a place, which is searched for next. */
static ndp_status find_questions(span_search *e, size_t upto, int64_t first, int64_t *k, ndp_places *questions) {
    for (int64_t at = 0; questions && *k < e->d->n_questions && e->d->questions[*k] <= upto; ++*k) {
        NDP_TRY(find_border(e, e->d->questions[*k], &at));
        NDP_TRY(ndp_places_add(questions, first + at));
    }
    return NDP_OK;
}

static ndp_status find_spans(span_search *e, int64_t first, ndp_places *borders, ndp_places *questions) {
    int64_t k = 0;
    for (int64_t i = 0; i < e->d->n_spans; i++) {
        int64_t begin = 0, end = 0;
        NDP_TRY(find_questions(e, e->d->spans[i].begin, first, &k, questions));
        NDP_TRY(find_border(e, e->d->spans[i].begin, &begin));
        if (e->d->spans[i].end == e->d->n && !e->d->rendered)
            end = e->n; /* with the tokens after the text */
        else
            NDP_TRY(find_border(e, e->d->spans[i].end, &end));
        e->anchor = e->last;
        NDP_TRY(ndp_places_add(borders, first + begin));
        NDP_TRY(ndp_places_add(borders, first + end));
    }
    return find_questions(e, e->d->n, first, &k, questions);
}

/* ---- end tokens ---- */

/* Whether the text ends with this token. Its own ids are the last `n`; tokens added by the tokenizer may follow them.
 */
static bool ends_with(const ndp_tokenizer *t, const ndp_document *d, const int32_t *ids, int64_t n, int32_t end) {
    ndp_span written = ndp_tokenizer_token(t, end);
    if (written.data && written.n && written.n <= d->n && !memcmp(d->text + d->n - written.n, written.data, written.n))
        return true;
    for (int64_t i = n - 1 - ndp_tokenizer_suffix(t); i < n; i++)
        if (ids[i] == end)
            return true;
    return false;
}

static ndp_status add_end(const ndp_tokenizer *t, const ndp_document *d, int32_t end, int64_t first, ndp_ids *ids) {
    int64_t n = ids->n - first, own = n - ndp_tokenizer_prefix(t) - ndp_tokenizer_suffix(t);
    return own <= 0 || ends_with(t, d, ids->items + first, n, end) ? NDP_OK : ndp_ids_add(ids, end);
}

/* Ids that a record has, and places in them. */
static ndp_status add_ids(const ndp_document *d, ndp_ids *ids, ndp_places *borders) {
    int64_t first = ids->n;
    NDP_TRY(ndp_array_reserve(&ids->items, &ids->capacity, first + d->n_ids, sizeof *ids->items));
    memcpy(ids->items + first, d->ids, (size_t)d->n_ids * sizeof *d->ids);
    ids->n += d->n_ids;
    for (int64_t i = 0; d->partly && i < d->n_spans; i++) {
        NDP_TRY(ndp_places_add(borders, first + (int64_t)d->spans[i].begin));
        NDP_TRY(ndp_places_add(borders, first + (int64_t)d->spans[i].end));
    }
    return NDP_OK;
}

ndp_status ndp_encode_document(const ndp_tokenizer *t, const ndp_document *d, const int32_t *end, ndp_ids *ids,
                               ndp_places *borders, ndp_places *questions) {
    int64_t first = ids->n;
    if (d->ids)
        return add_ids(d, ids, borders);
    NDP_TRY(encode(t, d, 0, d->n, true, ids));
    if (end && !d->rendered)
        NDP_TRY(add_end(t, d, *end, first, ids));
    if (!d->partly)
        return NDP_OK;
    span_search e = {.t = t, .d = d, .whole = ids->items + first, .n = ids->n - first};
    e.start.token = d->rendered ? 0 : ndp_tokenizer_prefix(t);
    e.last = e.anchor = e.start;
    ndp_status st = find_spans(&e, first, borders, questions);
    ndp_ids_release(&e.piece);
    return st;
}
