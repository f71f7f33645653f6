/* The number that single answers are compared with: an estimate of the KL divergence from the reference model (KTO,
 * arXiv:2402.01306, equation 7). Of an update with the prompts x and the answers y of its samples, in their order,
 *
 *   point = max(0, mean over i of log p(y_i | x_(i+1)) - log p_reference(y_i | x_(i+1)))
 *
 * the prompt after the last one is the first one. It has no gradient. As all samples of the update have it, it is known
 * before the first of them is loaded: a forward pass over the mismatched rows, with the weights as they are then. So
 * the loss is the same on every layout and for every size of micro-batch. (TRL has the mean of a process's micro-batch;
 * both are equal where that is the update.) Rows that are held out are in one such ring for each source.
 *
 * Samples are numbered across the run, and those of a block of global_batch_size are a ring: after a resumption with
 * another size an update may have parts of two rings. Called by reference.c, held_out.c and train/. */
#include "checkpoint/agree.h"
#include "score/score.h"

#include <stdlib.h>

static bool has_point(const ndp_score *s) {
    return ndp_preference_table[s->rank->job.model.preference.kind].single == NDP_SINGLE_TO_POINT;
}

/* ---- the rows ---- */

static void sampled_row(const void *of, int64_t i, ndp_feed_row *out) {
    const ndp_rank *r = of;
    int64_t ring = r->feed.shape.global, first = i / ring * ring;
    *out = (ndp_feed_row){.of = r->data.dataset,
                          .row = ndp_sampler_row(&r->data.sampler, i),
                          .mismatched = true,
                          .prompt = ndp_sampler_row(&r->data.sampler, first + (i - first + 1) % ring)};
}

static void held_row(const void *of, int64_t i, ndp_feed_row *out) {
    const ndp_rank *r = of;
    int64_t first = 0, n = 0;
    for (int k = 0; i >= first + n; k++)
        ndp_dataset_source(r->data.held, k, &first, &n);
    *out = (ndp_feed_row){.of = r->data.held, .row = i, .mismatched = true, .prompt = first + (i - first + 1) % n};
}

/* ---- under the reference ---- */

/* What the rows, and the order of the samples, follow from; of the held-out rows, the rows alone. */
static ndp_status write_order(const ndp_rank *r, bool held, ndp_str *out) {
    const ndp_sampler *s = &r->data.sampler;
    const ndp_config *c = r->job.config;
    ndp_str_addf(out, " mismatched %s %.17g %lld", held ? "held out" : "samples", c->data.validation_fraction,
                 (long long)c->data.max_documents);
    if (!held)
        ndp_str_addf(out, " %lld %d %lld %lld", (long long)s->rows, s->shuffle, (long long)s->seed,
                     (long long)r->feed.shape.global);
    for (int i = 0; !held && i < s->n_sources; i++)
        ndp_str_addf(out, " %lld %lld %lld", (long long)s->sources[i].first, (long long)s->sources[i].rows,
                     (long long)s->sources[i].taken);
    return NDP_MEMORY(!out->failed, "to name the reference");
}

ndp_status ndp_score_find_mismatched(ndp_score *s) {
    const ndp_rank *r = s->rank;
    const ndp_job_data *d = &r->data;
    if (!has_point(s))
        return NDP_OK;
    bool apart = d->held_tokens.n_documents > 0;
    int64_t samples = d->dataset ? d->steps * r->feed.shape.global : 0;
    samples = d->dataset && r->own_reference > samples ? r->own_reference : samples;
    int64_t held = d->held ? ndp_dataset_rows(d->held) : 0;
    ndp_str order[2] = {{0}, {0}};
    ndp_status st = ndp_agree(r->world, write_order(r, false, &order[0]));
    if (st == NDP_OK)
        st = ndp_agree(r->world, write_order(r, true, &order[1]));
    const ndp_score_lists all[] = {
        {&d->tokens, "mismatched answers", order[0].data, samples, {{sampled_row, r, samples, NULL, true}, {.n = 0}}},
        {apart ? &d->held_tokens : &d->tokens,
         "held-out mismatched answers",
         order[1].data,
         held,
         {{.n = 0}, {held_row, r, held, NULL, false}}}};
    for (int k = 0; k < 2 && st == NDP_OK; k++)
        if (all[k].n > 0)
            st = ndp_score_lists_find(s, &all[k], &s->mismatched[k]);
    ndp_str_release(&order[0]);
    ndp_str_release(&order[1]);
    s->samples = samples;
    return st;
}

/* ---- with the weights of now ---- */

/* Sums rows [at, end) in their order, so that the sum has the same bits on every layout that scores them so. */
static ndp_status sum_ratios(ndp_score *s, ndp_score_row *row, const double *reference, int64_t at, int64_t end,
                             double *sum) {
    int64_t each = ndp_score_pass_rows(s);
    double *scores = malloc((size_t)(each + NDP_SCORE_FLAGS) * sizeof *scores);
    ndp_status st =
        ndp_agree(s->rank->world, scores ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for the scores of a pass"));
    for (*sum = 0; at < end && st == NDP_OK; at += each) {
        int64_t n = end - at < each ? end - at : each;
        ndp_step_result unused;
        bool stop; /* the step that this is a part of ends first */
        st = ndp_score_pass(s, row, s->rank, at, at + n, &unused);
        if (st == NDP_OK)
            st = ndp_score_answers(s, scores, &stop);
        for (int64_t i = 0; i < n && st == NDP_OK; i++)
            *sum += scores[i] - reference[at + i];
    }
    free(scores);
    return st;
}

static ndp_status find_point(ndp_score *s, ndp_score_row *row, const double *reference, int64_t at, int64_t end) {
    double sum;
    NDP_TRY(sum_ratios(s, row, reference, at, end, &sum));
    s->rank->feed.point = sum > 0 ? sum / (double)(end - at) : 0;
    return NDP_OK;
}

ndp_status ndp_score_find_point(ndp_score *s, int64_t first_sample) {
    int64_t end = first_sample + s->rank->feed.shape.global;
    if (!has_point(s) || s->rank->no_data)
        return NDP_OK;
    NDP_CHECK(end <= s->samples, "sample %lld is beyond the %lld of the run's steps, whose reference was scored",
              (long long)end, (long long)s->samples);
    return find_point(s, sampled_row, s->mismatched[0], first_sample, end);
}

ndp_status ndp_score_find_held_point(ndp_score *s, int source, int64_t most) {
    int64_t first, n;
    if (!has_point(s))
        return NDP_OK;
    ndp_dataset_source(s->rank->data.held, source, &first, &n);
    return find_point(s, held_row, s->mismatched[1], first, first + (most > 0 && most < n ? most : n));
}
