/* Checked steps: a step is repeated while the values of each call are watched (step/values.h); what a rank has found
 * becomes that of all, with the record that it was computed from. */
#include "train/trainer.h"

#include "base/clock.h"
#include "checkpoint/agree.h"
#include "data/shown.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the record of a row ---- */

/* The name of a document's source, and its number there, from 1. */
static const char *source_of(const ndp_trainer *t, const ndp_token_cache *c, int64_t *document) {
    const ndp_strings *names = &t->rank.job.config->data.files;
    int i = 0;
    while (i + 1 < c->n_sources && (uint64_t)*document >= c->source_ends[i])
        i++;
    *document += 1 - (i > 0 ? (int64_t)c->source_ends[i - 1] : 0);
    return i < names->n && c->n_sources == names->n ? names->items[i] : "data.files";
}

/* The tokens of a document around one of them, on one line. */
static void add_tokens(const ndp_trainer *t, const ndp_token_cache *c, int64_t document, int64_t token, char *out,
                       size_t size) {
    enum { BEFORE = 12, TOKENS = 24, BYTES = 80 };
    int32_t ids[TOKENS];
    uint8_t marks[TOKENS];
    int64_t begin = (int64_t)c->offsets[document], end = (int64_t)c->offsets[document + 1];
    int64_t first = token - begin > BEFORE ? token - BEFORE : begin, n = end - first < TOKENS ? end - first : TOKENS;
    ndp_str text = {0};
    memset(marks, NDP_SHOWN_ROW, sizeof marks);
    for (int64_t i = 0; i < n; i++)
        ids[i] = ndp_token_cache_id(c, first + i);
    ndp_status st = ndp_shown_add(t->rank.data.tokenizer, ids, marks, n, (ndp_shown_style){0}, &text);
    if (st == NDP_OK && text.data) {
        int length = (int)ndp_utf8_valid_prefix(text.data, text.length < BYTES ? text.length : BYTES);
        for (int i = 0; i < length; i++)
            text.data[i] = strchr("\n\t", text.data[i]) ? ' ' : text.data[i];
        snprintf(out, size, ", in \"%s%.*s%s\"", first > begin ? "..." : "", length, text.data,
                 first + n < end ? "..." : "");
    }
    ndp_str_release(&text);
}

/* The record that a row of a micro-batch of this rank is of, after t->updates updates. */
static void name_record(ndp_trainer *t, const ndp_found_value *v, char *out, size_t size) {
    int64_t length = t->rank.job.config->data.sequence_length, j = v->row / length;
    *out = '\0';
    if (v->micro_batch < 0 || v->row < 0 || j >= t->rank.feed.shape.micro || t->rank.no_data)
        return;
    ndp_trainer_draw_rows(t, v->micro_batch);
    const ndp_feed_row *row = &t->rank.feed.rows[j];
    int64_t token = row->row < 0 || !row->of ? -1 : ndp_dataset_token(row->of, row->row, v->row % length);
    if (token < 0)
        return;
    const ndp_token_cache *c = &t->rank.data.tokens;
    int64_t document = ndp_dataset_document_of(row->of, token), number = document;
    const char *source = source_of(t, c, &number);
    int n = snprintf(out, size, "token %lld of document %lld of %s",
                     (long long)(token - (int64_t)c->offsets[document] + 1), (long long)number, source);
    if (n > 0 && (size_t)n < size)
        add_tokens(t, c, document, token, out + n, size - (size_t)n);
}

/* ---- all ranks ---- */

/* Ordered as the magnitudes of numbers are. */
static int64_t magnitude(double x) {
    int64_t bits;
    x = fabs(x);
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Takes the value of the rank with the largest `key`, the lowest rank of equal ones. */
static ndp_status share(ndp_trainer *t, const ndp_found_value *own, int64_t key, ndp_checked_step *out) {
    int rank = ndp_comm_rank(t->rank.world), world = t->rank.job.world;
    int64_t most = key, holder;
    NDP_TRY(ndp_reduce_now(t->rank.world, &most, 1, NDP_I64, NDP_MAX));
    holder = key == most ? world - rank : 0;
    NDP_TRY(ndp_reduce_now(t->rank.world, &holder, 1, NDP_I64, NDP_MAX));
    *out = (ndp_checked_step){.value = *own, .rank = world - (int)holder};
    if (rank == out->rank && own->order != INT64_MAX)
        name_record(t, own, out->record, sizeof out->record);
    return ndp_share_now(t->rank.world, out, sizeof *out, out->rank);
}

ndp_status ndp_trainer_gather_checks(ndp_trainer *t, int64_t updates, const ndp_step_values *own, ndp_checks *out) {
    const int64_t after = t->updates, samples = t->samples;
    t->updates = updates, t->samples -= (after - updates) * t->rank.feed.shape.global;
    ndp_status st = share(t, &own->bad, INT64_MAX - own->bad.order, &out->bad);
    if (st == NDP_OK)
        st = share(t, &own->worst, magnitude(own->worst.value), &out->worst);
    if (st == NDP_OK)
        st = share(t, &own->largest, magnitude(own->largest.value), &out->largest);
    t->updates = after, t->samples = samples;
    return st;
}

static ndp_status run_watched(ndp_trainer *t, ndp_step_values *own) {
    ndp_step_result unread;
    NDP_TRY(ndp_trainer_prepare_next(t));
    NDP_TRY(ndp_agree(t->rank.world, ndp_trainer_load_next(t)));
    ndp_step_values_begin(own);
    ndp_engine_watch_values(t->engine, own);
    ndp_status st = ndp_engine_step(t->engine, 0, t->updates, false, &unread);
    ndp_engine_watch_values(t->engine, NULL);
    t->rank.apart |= st != NDP_OK;
    return st;
}

ndp_status ndp_trainer_check_step(ndp_trainer *t, int64_t updates, ndp_checks *out) {
    const int64_t after = t->updates, samples = t->samples;
    ndp_step_values own = {0};
    t->updates = updates, t->samples -= (after - updates) * t->rank.feed.shape.global;
    ndp_status st = run_watched(t, &own);
    if (st == NDP_OK)
        st = ndp_trainer_gather_checks(t, updates, &own, out);
    t->updates = after, t->samples = samples;
    /* The time that it took is no step's. */
    t->pending.last = ndp_now();
    t->pending.waits = ndp_engine_profile(t->engine)->begin + ndp_engine_profile(t->engine)->wait;
    ndp_step_values_release(&own);
    return st;
}

/* ---- in words ---- */

static void add_place(const ndp_checked_step *s, ndp_str *out) {
    const ndp_found_value *v = &s->value;
    ndp_str_addf(out, "%s, %s, %s", v->where, v->op, v->tensor);
    if (v->micro_batch >= 0)
        ndp_str_addf(out, ", micro-batch %d", v->micro_batch);
    if (v->row >= 0)
        ndp_str_addf(out, ", row %lld", (long long)v->row);
    if (s->record[0])
        ndp_str_addf(out, " (%s)", s->record);
    ndp_str_addf(out, ", rank %d", s->rank);
}

void ndp_checks_describe(const ndp_checks *c, ndp_str *out) {
    if (c->bad.value.order != INT64_MAX) {
        ndp_str_addf(out, "%g first in ", ndp_plain_nan(c->bad.value.value));
        add_place(&c->bad, out);
        return;
    }
    ndp_str_add(out, "all values are finite");
    if (c->worst.value.order != INT64_MAX) {
        ndp_str_addf(out, "; the largest loss of a token is %.4g", c->worst.value.value);
        if (c->worst.record[0])
            ndp_str_addf(out, ", row %lld of micro-batch %d (%s)", (long long)c->worst.value.row,
                         c->worst.value.micro_batch, c->worst.record);
    }
    if (c->largest.value.order != INT64_MAX) {
        ndp_str_addf(out, "; the largest activation is %.4g in ", c->largest.value.value);
        add_place(&c->largest, out);
    }
}
