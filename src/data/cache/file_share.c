/* Tokenizing a share, on any thread: its documents are encoded one after the other into one list of ids, and where they
 * end and where learning switches is recorded as places in it. Called by parts.c and sample.c. */
#include "data/cache/file_share.h"

#include "data/corpus/encode.h"
#include <stdlib.h>

/* Stops the visitor of documents once a share has as many as wanted. */
static const ndp_status STOPPED = NDP_EINTR;

/* From id `at` on, ids are trained on, or not. */
static ndp_status turn_to(ndp_places *turns, bool trained, int64_t at) {
    bool now = turns->n % 2 == 0;
    if (now == trained)
        return NDP_OK;
    if (turns->n && turns->items[turns->n - 1] == at) { /* the two turns coincide and cancel */
        turns->n--;
        return NDP_OK;
    }
    return ndp_places_add(turns, at);
}

/* A tokenizer may be larger than the model, as long as the data contains no token that the model lacks. */
static ndp_status check_ids(const ndp_file_share *s, int64_t first, const ndp_document *d) {
    int64_t vocab = s->o->vocab;
    for (int64_t i = first; vocab > 0 && i < s->ids.n; i++)
        if (s->ids.items[i] >= vocab)
            return NDP_FAIL(
                NDP_EINVAL,
                "%s:%lld: the text has the token %d, the model's vocabulary ends at %lld: the tokenizer does "
                "not belong to the model",
                d->path, (long long)d->line, s->ids.items[i], (long long)vocab - 1);
    return NDP_OK;
}

static ndp_status add_turns(ndp_file_share *s, const ndp_document *d, const ndp_places *borders, int64_t first) {
    NDP_TRY(turn_to(&s->turns, !d->partly, first));
    for (int64_t i = 0; i < borders->n; i++)
        NDP_TRY(turn_to(&s->turns, i % 2 == 0, borders->items[i]));
    return ndp_places_add(&s->ends, s->ids.n);
}

static ndp_status encode_one(ndp_file_share *s, const ndp_document *d) {
    int64_t first = s->ids.n;
    ndp_places borders = {0};
    ndp_status st = ndp_encode_document(s->o->tokenizer, d, s->o->end_token, &s->ids, &borders, &s->questions);
    st = st == NDP_OK ? check_ids(s, first, d)
                      : NDP_FAIL(NDP_EFORMAT, "%s:%lld: %s", d->path, (long long)d->line, ndp_error_message());
    if (st == NDP_OK && s->ids.n > first)
        st = add_turns(s, d, &borders, first);
    s->texts += !d->rendered;
    free(borders.items);
    return st;
}

/* How much of a share there was before a document. */
typedef struct share_mark {
    int64_t ids, ends, turns, last_turn, questions, texts;
} share_mark;

static share_mark mark(const ndp_file_share *s) {
    return (share_mark){s->ids.n,       s->ends.n, s->turns.n, s->turns.n ? s->turns.items[s->turns.n - 1] : 0,
                        s->questions.n, s->texts};
}

static void back_to(ndp_file_share *s, const share_mark *m) {
    s->ids.n = m->ids, s->ends.n = m->ends, s->turns.n = m->turns, s->questions.n = m->questions, s->texts = m->texts;
    if (m->turns) /* the last one may have been cancelled */
        s->turns.items[m->turns - 1] = m->last_turn;
}

/* Whether one of the first tokens of the newest document that a row has is trained on, other than the first, which
 * nothing predicts. */
static bool has_answer(const ndp_file_share *s, int64_t first, int64_t length) {
    int64_t end = s->ids.n - first < length ? s->ids.n : first + length;
    bool trained = true, any = false;
    for (int64_t k = 0, at = 0; at < end; k++) {
        int64_t stop = k < s->turns.n && s->turns.items[k] < end ? s->turns.items[k] : end;
        any |= trained && stop > first + 1 && stop > at;
        trained = !trained, at = stop;
    }
    return any;
}

static ndp_status encode_answer(ndp_file_share *s, const ndp_document *d, const char *which) {
    int64_t first = s->ids.n, length = s->o->pair_length ? s->o->pair_length : INT64_MAX;
    if (!d->text)
        return ndp_places_add(&s->ends, first);
    NDP_TRY(encode_one(s, d));
    int64_t n = s->ids.n - first;
    if (has_answer(s, first, length))
        return NDP_OK;
    *d->fault = n > length ? NDP_BAD_CUT : NDP_BAD_EMPTY;
    if (n <= length)
        return NDP_FAIL(NDP_EFORMAT, "%s:%lld: the answer of the %s text has no tokens to predict", d->path,
                        (long long)d->line, which);
    return NDP_FAIL(NDP_EFORMAT,
                    "%s:%lld: the %s text has %lld tokens, and its answer begins after the %lld that a row has; raise "
                    "data.sequence_length, or leave such records out with data.bad_records: skip",
                    d->path, (long long)d->line, which, (long long)n, (long long)length);
}

/* Both documents, or none. */
static ndp_status encode_pair(ndp_file_share *s, const ndp_document *d) {
    const share_mark before = mark(s);
    ndp_document rejected = *d->rejected;
    rejected.fault = d->fault;
    ndp_status st = encode_answer(s, d, "chosen");
    if (st == NDP_OK)
        st = encode_answer(s, &rejected, "rejected");
    if (st != NDP_OK)
        back_to(s, &before);
    return st;
}

static ndp_status encode_document(void *user, const ndp_document *d) {
    ndp_file_share *s = user;
    if (s->most && s->ends.n >= s->most) {
        s->stopped = true;
        return STOPPED;
    }
    return d->rejected ? encode_pair(s, d) : d->n || d->ids ? encode_one(s, d) : NDP_OK;
}

static ndp_status encode_bin(ndp_file_share *s) {
    const ndp_source_chunk *c = &s->chunk;
    ndp_bin bin;
    ndp_bin_rule rule = ndp_dataset_bin_rule(s->o);
    NDP_TRY(ndp_bin_open(c->path, c->contents, c->size, s->o->bin_id_bytes ? s->o->bin_id_bytes : 2, &bin));
    int64_t width = bin.id_bytes, header = (int64_t)bin.header;
    int64_t first = ((int64_t)c->begin - header) / width, end = ((int64_t)c->end - header) / width;
    return ndp_bin_read(&bin, first < 0 ? 0 : first, end < 0 ? 0 : end, &rule, &s->ids, &s->ends);
}

static ndp_status encode_chunk(ndp_file_share *s) {
    ndp_record_format format = *s->format;
    format.tally = &s->tally;
    s->ids.n = s->ends.n = s->turns.n = s->questions.n = s->texts = 0;
    ndp_tally_clear(&s->tally);
    s->stopped = false;
    if (format.kind == NDP_RECORD_PREFERENCE && (s->chunk.kind == NDP_SOURCE_IDS || s->chunk.kind == NDP_SOURCE_TEXT))
        return NDP_FAIL(NDP_EINVAL, "%s: a file without records has no pairs, which data.format: preference reads",
                        s->chunk.path);
    ndp_status st = s->chunk.kind == NDP_SOURCE_IDS ? encode_bin(s)
                                                    : ndp_source_visit_chunk(&s->chunk, &format, encode_document, s);
    return s->stopped ? NDP_OK : st;
}

/* Messages name lines, but the lines before the chunk are counted only after a failure: it is then encoded again. */
void ndp_file_share_encode(ndp_file_share *s) {
    ndp_status st = encode_chunk(s);
    if (st != NDP_OK && s->chunk.begin > 0) {
        ndp_source_count_lines(&s->chunk);
        st = encode_chunk(s);
    }
    ndp_file_share_end(s, st);
}

void ndp_file_share_end(ndp_file_share *s, ndp_status st) {
    s->status = st;
    if (st != NDP_OK)
        s->message = ndp_format("%s", ndp_error_message());
}

ndp_status ndp_file_share_check(const ndp_file_share *s) {
    if (s->status == NDP_OK)
        return NDP_OK;
    return NDP_FAIL(s->status, "%s", s->message ? s->message : "not enough memory to tokenize");
}

ndp_status ndp_file_share_append(const ndp_file_share *s, int64_t first, ndp_places *ends, ndp_places *turns,
                                 ndp_places *questions) {
    for (int64_t i = 0; i < s->questions.n; i++)
        NDP_TRY(ndp_places_add(questions, first + s->questions.items[i]));
    for (int64_t i = 0; i < s->ends.n; i++)
        NDP_TRY(ndp_places_add(ends, first + s->ends.items[i]));
    if (s->ids.n > 0)
        NDP_TRY(turn_to(turns, true, first));
    for (int64_t i = 0; i < s->turns.n; i++)
        NDP_TRY(turn_to(turns, i % 2 == 1, first + s->turns.items[i]));
    return NDP_OK;
}

void ndp_file_share_release(ndp_file_share *s) {
    ndp_ids_release(&s->ids);
    free(s->ends.items);
    free(s->turns.items);
    free(s->questions.items);
    ndp_tally_clear(&s->tally);
    free(s->message);
    *s = (ndp_file_share){0};
}
