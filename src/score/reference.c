/* The reference model of preference data: the log-probability of every document's answer under the weights that a run
 * starts from. Computed once, before the first step, by forward passes over all rows, and kept in a file
 * (reference_file.h). A resumed run has the initial weights in its engine until it loads its checkpoint, so it finds
 * the file, or makes it again.
 *
 * A pass takes as many rows as fit, in their order. After each the ranks sum its scores, so all of them have all, and
 * whether one was told to stop. Rank 0 writes the file from time to time, so a run that is stopped or killed loses only
 * the passes since then: what is there is by document, whatever layout scored it, and only passes with a document that
 * is missing are computed. Called by train/. */
#include "base/clock.h"
#include "base/log.h"
#include "checkpoint/agree.h"
#include "rank/working.h"
#include "score/reference_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct scoring {
    ndp_score *score; /* its engine has the weights of the reference: it reads those of the engine that trains in place,
                       * before the first step. With an adapter these are the base and the adapter as it begins: a new
                       * one adds nothing, and one that is continued is the reference of what it becomes, as in TRL */
    ndp_rank *rank;   /* of `score` */
    const ndp_score_lists *of;
    ndp_reference_file file;      /* rank 0; path NULL: none is kept */
    double *values;               /* of->n of them; NaN: it is missing, or in no row */
    double *pass;                 /* of each row of a pass its score */
    int64_t each;                 /* rows of a pass */
    int64_t rows, missing, found; /* of both lists; without a score; of those, scored by this run */
    ndp_working working;
    double written;  /* rank 0: when the file was */
    bool unwritable; /* it was said that it cannot be */
} scoring;

/* ---- what is missing ---- */

static double *value_of(const scoring *s, const ndp_score_list *l, int64_t i) {
    return &s->values[l->place ? l->place(l->of, i) : i];
}

static int64_t count_missing(const scoring *s, const ndp_score_list *l, int64_t at, int64_t end) {
    int64_t n = 0;
    for (int64_t i = at; i < end; i++)
        n += isnan(*value_of(s, l, i));
    return n;
}

/* ---- the file ---- */

/* A file that cannot be written costs the next run its scores. */
static void write_scores(scoring *s) {
    bool written = !s->file.path || ndp_reference_file_write(&s->file, s->values) == NDP_OK;
    if (!written && !s->unwritable)
        ndp_warn(&s->rank->log, "%s; the reference is computed again by the next run", ndp_error_message());
    s->unwritable = !written;
    s->written = ndp_now();
}

/* Every minute, or checkpoint.minutes if that is less. */
static bool is_due(const scoring *s) {
    double minutes = s->rank->job.config->checkpoint.minutes;
    return ndp_now() - s->written >= 60 * (minutes > 0 ? fmin(minutes, 1) : 1);
}

/* ---- a pass ---- */

static ndp_status keep_scores(scoring *s, const ndp_score_list *l, int64_t at, int64_t end) {
    for (int64_t i = at; i < end; i++) {
        double *value = value_of(s, l, i), score = s->pass[i - at];
        if (!isfinite(score))
            return NDP_FAIL(NDP_EINVAL,
                            "the initial model gives an answer no finite log-probability, so there is no reference for "
                            "%s",
                            ndp_preference_table[s->rank->job.model.preference.kind].name);
        s->found += isnan(*value);
        *value = isnan(*value) ? score : *value;
    }
    return NDP_OK;
}

static void say_progress(scoring *s) {
    double seconds;
    char line[160];
    if (!ndp_working_due(&s->working, &seconds))
        return;
    double rate = (double)s->found / seconds;
    snprintf(line, sizeof line, "reference: %lld of %lld %s, %.0f/s, %.0f s left",
             (long long)(s->rows - s->missing + s->found), (long long)s->rows, s->of->what, rate,
             (double)(s->missing - s->found) / rate);
    ndp_working_say(&s->working, line);
}

static ndp_status fail_stopped(const scoring *s) {
    return NDP_FAIL(NDP_EINTR,
                    "stopped while the reference was scored, before any step of this run; %lld of %lld %s are "
                    "kept, and the same command goes on after them",
                    (long long)(s->unwritable ? s->rows - s->missing : s->rows - s->missing + s->found),
                    (long long)s->rows, s->of->what);
}

static ndp_status score_pass(scoring *s, const ndp_score_list *l, int64_t at, int64_t end) {
    ndp_step_result unused;
    bool stop;
    NDP_TRY(ndp_score_pass(s->score, l->row, l->of, at, end, &unused));
    NDP_TRY(ndp_score_answers(s->score, s->pass, &stop));
    NDP_TRY(keep_scores(s, l, at, end));
    stop = stop && s->found < s->missing;
    if (ndp_is_first(s->rank->world) && (stop || s->found == s->missing || is_due(s)))
        write_scores(s);
    say_progress(s);
    return stop ? fail_stopped(s) : NDP_OK;
}

static ndp_status score_list(scoring *s, const ndp_score_list *l) {
    for (int64_t at = 0; at < l->n; at += s->each) {
        int64_t end = at + s->each < l->n ? at + s->each : l->n;
        if (count_missing(s, l, at, end) > 0)
            NDP_TRY(score_pass(s, l, at, end));
    }
    return NDP_OK;
}

/* ---- all ---- */

static void say_begin(const scoring *s) {
    if (s->missing < s->rows)
        ndp_info(&s->rank->log,
                 "reference: scoring %lld of %lld %s with the initial model; the others are kept from an earlier run",
                 (long long)s->missing, (long long)s->rows, s->of->what);
    else
        ndp_info(&s->rank->log, "reference: scoring %lld %s with the initial model", (long long)s->rows, s->of->what);
}

/* Only what a run reads that has no file: the first samples, and the first held-out rows. */
static void want_few(const scoring *s) {
    const ndp_rank *r = s->rank;
    const ndp_score_list *train = &s->of->lists[0], *held = &s->of->lists[1];
    for (int64_t i = 0; i < s->of->n; i++)
        s->values[i] = 0;
    for (int64_t i = 0; train->n && i < r->own_reference; i++)
        *value_of(s, train, train->sampled ? i % train->n : ndp_sampler_row(&r->data.sampler, i)) = NAN;
    for (int k = 0; held->n && k < ndp_dataset_sources(r->data.held); k++) {
        int64_t first, n;
        ndp_dataset_source(r->data.held, k, &first, &n);
        for (int64_t i = 0; i < n && i < r->own_reference; i++)
            *value_of(s, held, first + i) = NAN;
    }
}

/* Rank 0 reads what there is. */
static ndp_status read_scores(scoring *s) {
    const ndp_rank *r = s->rank;
    bool first = ndp_is_first(r->world);
    int64_t n = s->of->n;
    for (int64_t i = 0; i < n; i++)
        s->values[i] = NAN;
    NDP_TRY(ndp_agree(r->world, first ? ndp_reference_file_find(s->score, s->of, &s->file) : NDP_OK));
    if (first)
        (void)ndp_reference_file_read(&s->file, s->values);
    return ndp_share_now(r->world, s->values, (size_t)n * sizeof *s->values, 0);
}

/* Sets the values that are known, and counts. */
static ndp_status begin(scoring *s) {
    if (s->rank->own_reference > 0)
        want_few(s);
    else
        NDP_TRY(read_scores(s));
    for (int k = 0; k < 2; k++) {
        s->missing += count_missing(s, &s->of->lists[k], 0, s->of->lists[k].n);
        s->rows += s->of->lists[k].n;
    }
    s->rows = s->rank->own_reference > 0 ? s->missing : s->rows;
    return NDP_OK;
}

static ndp_status score_missing(scoring *s) {
    NDP_TRY(begin(s));
    if (s->missing == 0)
        return NDP_OK;
    if (ndp_is_first(s->rank->world))
        say_begin(s);
    s->working = ndp_working_begin(s->rank);
    s->written = ndp_now();
    for (int k = 0; k < 2; k++)
        NDP_TRY(score_list(s, &s->of->lists[k]));
    return NDP_OK;
}

static ndp_status take_room(scoring *s) {
    s->each = ndp_score_pass_rows(s->score);
    s->values = malloc(((size_t)s->of->n + 1) * sizeof *s->values);
    s->pass = malloc((size_t)(s->each + NDP_SCORE_FLAGS) * sizeof *s->pass);
    return NDP_MEMORY(s->values && s->pass, "to score %lld %s", (long long)s->of->n, s->of->what);
}

ndp_status ndp_score_lists_find(ndp_score *score, const ndp_score_lists *of, double **out) {
    scoring s = {.score = score, .rank = score->rank, .of = of};
    ndp_status st = ndp_agree(s.rank->world, take_room(&s));
    if (st == NDP_OK)
        st = score_missing(&s);
    if (st == NDP_OK)
        *out = s.values, s.values = NULL;
    ndp_reference_file_release(&s.file);
    free(s.values);
    free(s.pass);
    return st;
}

/* ---- all documents ---- */

static int64_t document_of(const void *dataset, int64_t row) {
    int64_t unused;
    return ndp_dataset_document(dataset, row, &unused);
}

static ndp_score_list documents_of(const ndp_dataset *d) {
    return d ? (ndp_score_list){ndp_score_dataset_row, d, ndp_dataset_rows(d), document_of, false}
             : (ndp_score_list){.n = 0};
}

static ndp_status find_documents(ndp_score *s) {
    const ndp_job_data *d = &s->rank->data;
    bool apart = d->held_tokens.n_documents > 0; /* held-out rows have a cache of their own */
    const ndp_score_lists all[] = {
        {&d->tokens,
         "answers",
         "",
         d->tokens.n_documents,
         {documents_of(d->dataset), documents_of(apart ? NULL : d->held)}},
        {&d->held_tokens, "answers", "", d->held_tokens.n_documents, {{.n = 0}, documents_of(apart ? d->held : NULL)}}};
    for (int k = 0; k < 2; k++) {
        if (all[k].lists[0].n + all[k].lists[1].n > 0)
            NDP_TRY(ndp_score_lists_find(s, &all[k], &s->references[k]));
        s->rank->feed.references[k] = s->references[k];
    }
    return NDP_OK;
}

ndp_status ndp_score_find_references(ndp_score *s) {
    ndp_rank *r = s->rank;
    if (r->no_data || s->scores || !ndp_job_refers(&r->job))
        return NDP_OK;
    s->scores = calloc(2 * (size_t)r->job.model.documents, sizeof *s->scores);
    NDP_TRY(
        ndp_agree(r->world, s->scores ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for the scores of a batch")));
    NDP_TRY(find_documents(s));
    return ndp_score_find_mismatched(s);
}
