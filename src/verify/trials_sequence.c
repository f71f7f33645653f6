/* Trials of what cuts a row: borders of documents, ranks that have some of its columns, and ranks that have some of the
 * heads or one end of a tied table. */
#include "model/tensors.h"
#include "verify/trials.h"

#include <stdio.h>
#include <string.h>

enum { MOST_CUTS = 4 };

static void begin_trial(ndp_finder *f) {
    f->trial.one_state = false;
    memcpy(f->trial.tokens, f->c->rows->tokens, 4 * (size_t)(f->trial.n * f->trial.length) * sizeof *f->trial.tokens);
}

/* ---- documents ---- */

ndp_status ndp_try_documents(ndp_finder *f) {
    static const char *const words[] = {
        "like layers with a state that go on over documents of a row: not reset where one begins",
        "like attention to other documents of a row: a mask without document borders",
        "like rows that are one document: a mask and positions without document borders"};
    enum { STATES, MASK };
    bool any = false,
         states = ndp_inputs_find(ndp_engine_model(f->c->judge->trainer->engine)->inputs, NDP_INPUT_STATE_STARTS) >= 0;
    int64_t all = f->trial.n * f->trial.length;
    for (int64_t i = 0; i < all; i++)
        any |= f->c->rows->starts[i] > 0;
    for (int lost = states ? STATES : MASK; lost < NDP_COUNT(words) && any && !ndp_found_all(f); lost++) {
        begin_trial(f);
        f->trial.one_state = true;
        for (int64_t i = 0; i < all && lost >= MASK; i++) {
            f->trial.starts[i] = 0;
            if (lost > MASK)
                f->trial.positions[i] = (int32_t)(i % f->trial.length);
        }
        NDP_TRY(ndp_sum_trial(f));
        NDP_TRY(ndp_try_both(f, words[lost]));
    }
    return NDP_OK;
}

/* ---- cuts of the sequence ---- */

/* What rank `rank` of n has of a row: a chunk, or with zig-zag two of 2n. Returns how many ranges. */
static int columns_of_rank(int64_t length, int n, int rank, bool zigzag, ndp_row_range out[2]) {
    int64_t chunk = length / (zigzag ? 2 * n : n);
    out[0] = (ndp_row_range){rank * chunk, chunk};
    out[1] = (ndp_row_range){(2 * n - 1 - rank) * chunk, chunk};
    return zigzag ? 2 : 1;
}

static void columns_text(const ndp_row_range *r, int n, char out[96]) {
    int used =
        snprintf(out, 96, "columns %lld to %lld", (long long)r[0].first, (long long)(r[0].first + r[0].count) - 1);
    if (n > 1)
        snprintf(out + used, 96 - (size_t)used, " and %lld to %lld", (long long)r[1].first,
                 (long long)(r[1].first + r[1].count) - 1);
}

static bool is_inside(const ndp_row_range *r, int n, int64_t column) {
    bool inside = false;
    for (int k = 0; k < n; k++)
        inside |= column >= r[k].first && column < r[k].first + r[k].count;
    return inside;
}

/* Leaves the labels of the trial inside of the ranges alone. */
static void keep_labels(ndp_finder *f, const ndp_row_range *r, int n) {
    begin_trial(f);
    for (int64_t i = 0; i < f->trial.n * f->trial.length; i++)
        if (!is_inside(r, n, i % f->trial.length))
            f->trial.labels[i] = -1;
}

/* The labels whose tokens are in the next chunk. */
static ndp_status try_lost_labels(ndp_finder *f, int n) {
    char words[160];
    int64_t chunk = f->trial.length / n;
    begin_trial(f);
    for (int64_t i = 0; i < f->trial.n * f->trial.length; i++)
        if (i % f->trial.length % chunk == chunk - 1)
            f->trial.labels[i] = -1;
    NDP_TRY(ndp_sum_trial(f));
    snprintf(words, sizeof words,
             "like our step without the last label of each %lld columns: labels are lost where the "
             "sequence is cut into %d",
             (long long)chunk, n);
    return ndp_try_both(f, words);
}

/* Attention that stays inside of the chunks. */
static ndp_status try_closed_chunks(ndp_finder *f, int n, bool restart) {
    char words[160];
    int64_t chunk = f->trial.length / n;
    begin_trial(f);
    for (int64_t i = 0; i < f->trial.n * f->trial.length; i++) {
        int32_t column = (int32_t)(i % f->trial.length), first = (int32_t)(column / chunk * chunk);
        if (f->trial.starts[i] < first)
            f->trial.starts[i] = first;
        if (restart)
            f->trial.positions[i] = column - first;
    }
    NDP_TRY(ndp_sum_trial(f));
    snprintf(words, sizeof words,
             "like attention that stays inside of each %lld columns%s: it does not cross the cuts of "
             "the sequence",
             (long long)chunk, restart ? ", with positions that restart there" : "");
    return ndp_try_both(f, words);
}

/* f->sum becomes a part of ours, with the loss and tokens that it has. */
static ndp_status sum_partly(ndp_finder *f, const ndp_partial_sums *sums) {
    ndp_begin_sum(f);
    f->c->judge->partial->sums = *sums;
    ndp_status st = ndp_add_rows(f, f->c->rows, 0, f->c->rows->n, 1, 1);
    f->c->judge->partial->sums = (ndp_partial_sums){0};
    f->sum.loss = 0; /* it is ours, which differs from that of the dump or needs no cause */
    return st;
}

/* The labels of a rank's columns alone; and all labels, but the gradients of weights summed over its columns alone. In
 * the last layer both are the same, so the one that explains more goes first. */
static ndp_status try_column_part(ndp_finder *f, int n, int rank, bool zigzag) {
    ndp_row_range r[2];
    ndp_reading labels[2], part[2];
    char text[96], words[200];
    int ranges = columns_of_rank(f->trial.length, n, rank, zigzag, r), counts[2] = {0}, n_labels, n_part = 0;
    columns_text(r, ranges, text);
    keep_labels(f, r, ranges);
    NDP_TRY(ndp_sum_trial(f));
    snprintf(words, sizeof words, "like the labels of %s alone", text);
    n_labels = ndp_read_both(f, &f->sum, words, NDP_OF_ALL, labels);
    const ndp_judged swapped = f->sum;
    f->sum = f->other, f->other = swapped;
    if (f->c->judge->partial) {
        NDP_TRY(sum_partly(f, &(ndp_partial_sums){.n = ranges, .rows = {r[0], r[1]}}));
        f->sum.tokens = f->other.tokens;
        snprintf(words, sizeof words, "like the part of %s: a sum over %d ranks that cut the sequence is missing", text,
                 n);
        n_part = ndp_read_both(f, &f->sum, words, "", part);
    }
    NDP_TRY(ndp_count_readings(f, &f->other, labels, n_labels, &counts[0]));
    NDP_TRY(ndp_count_readings(f, &f->sum, part, n_part, &counts[1]));
    for (int turn = 0; turn < 2; turn++)
        NDP_TRY((turn == 0) == (counts[0] >= counts[1]) ? ndp_try_readings(f, &f->other, labels, n_labels, false)
                                                        : ndp_try_readings(f, &f->sum, part, n_part, false));
    return NDP_OK;
}

/* The mean over ranks of the mean over the labels of each. */
static ndp_status try_mean_of_columns(ndp_finder *f, int n, bool zigzag) {
    ndp_reading reading = {1, ""};
    ndp_row_range r[2];
    ndp_begin_sum(f);
    for (int rank = 0; rank < n; rank++) {
        int64_t tokens = 0;
        keep_labels(f, r, columns_of_rank(f->trial.length, n, rank, zigzag, r));
        for (int64_t row = 0; row < f->trial.n; row++)
            tokens += ndp_dump_row_tokens(&f->trial, row);
        if (tokens)
            NDP_TRY(ndp_add_rows(f, &f->trial, 0, f->trial.n, 1, f->tokens / (double)tokens / n));
    }
    f->sum.tokens = 0;
    snprintf(
        reading.words, sizeof reading.words,
        "like the mean over %d parts of the columns%s of the mean over the tokens of each, instead of the mean over "
        "all tokens",
        n, zigzag ? " (zig-zag)" : "");
    return ndp_try_readings(f, &f->sum, &reading, 1, false);
}

ndp_status ndp_try_columns(ndp_finder *f) {
    int64_t length = f->trial.length;
    for (int n = 2; n <= 2 * MOST_CUTS && !ndp_found_all(f); n *= 2)
        if (length % n == 0)
            NDP_TRY(try_lost_labels(f, n));
    for (int n = 2; n <= MOST_CUTS && !ndp_found_all(f); n *= 2)
        for (int restart = 0; restart < 2 && length % n == 0 && !ndp_found_all(f); restart++)
            NDP_TRY(try_closed_chunks(f, n, restart));
    for (int n = 2; n <= MOST_CUTS; n *= 2)
        for (int zigzag = 0; zigzag < 2; zigzag++) {
            if (length % (zigzag ? 2 * n : n) || ndp_found_all(f))
                continue;
            NDP_TRY(try_mean_of_columns(f, n, zigzag));
            for (int rank = 0; rank < n && !ndp_found_all(f); rank++)
                NDP_TRY(try_column_part(f, n, rank, zigzag));
        }
    return NDP_OK;
}

/* ---- parts of a gradient that ranks add up ---- */

static ndp_status try_sums(ndp_finder *f, const ndp_partial_sums *sums, const char *words) {
    ndp_reading r = {1, ""};
    if (ndp_found_all(f) || !f->c->judge->partial)
        return NDP_OK;
    NDP_TRY(sum_partly(f, sums));
    snprintf(r.words, sizeof r.words, "%s", words);
    return ndp_try_readings(f, &f->sum, &r, 1, false);
}

static bool is_of_kv_heads(const ndp_finder *f, const char *name) {
    const ndp_model *m = &f->c->judge->trainer->model;
    bool found = false;
    for (ndp_segment_walk w = {.model = m}; ndp_segment_next(&w);)
        found |= (w.segment->dim[0] == NDP_DIM_KV_HEADS || w.segment->dim[1] == NDP_DIM_KV_HEADS) &&
                 ndp_segment_is_named(w.segment, name);
    return found;
}

static ndp_status try_kv_part(ndp_finder *f, int part, int parts) {
    const ndp_partial *p = f->c->judge->partial;
    char words[160];
    snprintf(words, sizeof words,
             "like part %d of %d of the query heads of a kv head: a sum over ranks with copies of a kv head is missing",
             part, parts);
    for (int k = 1, n = p->attentions; k <= n; k++)
        NDP_TRY(try_sums(f, &(ndp_partial_sums){.attention = k, .kv_part = part, .kv_parts = parts}, words));
    return NDP_OK;
}

/* Copies of kv heads, a layer at a time: only if something is open that has kv heads. */
static ndp_status try_kv_heads(ndp_finder *f) {
    const ndp_layout_facts *l = &f->c->judge->trainer->rank.job.spec.layout;
    bool any = false;
    for (int i = 0; i < f->out->n; i++)
        any |= f->open[i] && is_of_kv_heads(f, f->out->gradients[i].name);
    if (!any || !f->c->judge->partial || l->kv_heads == 0)
        return NDP_OK;
    for (int parts = 2; parts <= MOST_CUTS; parts *= 2)
        for (int part = 0; part < parts && l->heads / l->kv_heads % parts == 0; part++)
            NDP_TRY(try_kv_part(f, part, parts));
    return NDP_OK;
}

ndp_status ndp_try_parts(ndp_finder *f) {
    NDP_TRY(try_sums(f, &(ndp_partial_sums){.no_embedding = true},
                     "like what the head alone gives: the sum with the embedding is missing"));
    NDP_TRY(try_sums(f, &(ndp_partial_sums){.no_head = true},
                     "like what the embedding alone gives: the sum with the head is missing"));
    for (int n = 2; n <= MOST_CUTS; n *= 2)
        for (int rank = 0; rank < n; rank++) {
            char words[160];
            snprintf(words, sizeof words,
                     "like the heads of rank %d of %d: a sum over ranks that cut the heads is missing", rank, n);
            NDP_TRY(try_sums(f, &(ndp_partial_sums){.head_rank = rank, .head_ranks = n}, words));
        }
    return try_kv_heads(f);
}

/* ---- routers ---- */

/* Experts cut over n ranks. Later gradients of a rank's own experts differ by rank, so all have one name. others: also
 * the gradient of an expert that the choice is not of, to which a trainer clamps the numbers of other ranks' experts.
 */
static ndp_status try_expert_ranks(ndp_finder *f, int n, bool others) {
    static const char also[] = "the weights of choices also get the gradient of the last expert of each other rank";
    static const char missing[] = "the gradient of choices made by other ranks is missing";
    char words[240];
    snprintf(words, sizeof words, "like experts on %d ranks: %s", n, also);
    if (others)
        NDP_TRY(try_sums(f, &(ndp_partial_sums){.choice_ranks = n, .last_experts = true}, words));
    snprintf(words, sizeof words, "like experts on %d ranks: %s%s%s", n, others ? also : "", others ? ", and " : "",
             missing);
    for (int rank = 1; rank <= n; rank++)
        NDP_TRY(
            try_sums(f, &(ndp_partial_sums){.choice_rank = rank, .choice_ranks = n, .last_experts = others}, words));
    return NDP_OK;
}

/* These faults leave the loss as it is. */
ndp_status ndp_try_routers(ndp_finder *f) {
    const ndp_mixtures *m = &f->c->judge->trainer->model.inputs->mixtures;
    if (m->n == 0 || f->open_loss || f->open_tokens)
        return NDP_OK;
    f->spreads = true;
    NDP_TRY(try_sums(f, &(ndp_partial_sums){.choice_rank = 2, .choice_ranks = 1},
                     "like routers that get no gradient: they are detached"));
    for (int others = 0; others < 2; others++)
        for (int n = 2; n <= 2 * MOST_CUTS; n++)
            if (m->experts % n == 0)
                NDP_TRY(try_expert_ranks(f, n, others));
    f->spreads = false;
    return NDP_OK;
}
