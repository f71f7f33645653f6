/* What the model says of rows of the user's own, by forward passes: values of tokens, and losses that are functions of
 * log-probabilities. */
#include "base/text.h"
#include "checkpoint/agree.h"
#include "train/own_batches.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const ndp_mesh *mesh_of(const ndp_trainer *t) { return &ndp_engine_program(t->engine)->opts.step.mesh; }

/* ---- a loss that is a function of log-probabilities ---- */

/* The samples that a function is called with, on this rank: of all data ranks, or of its own. */
typedef struct own_loss {
    ndp_trainer *t;
    ndp_status (*loss)(void *, const double *, int64_t, int64_t, double *, double *);
    void *user;
    ndp_own_rows list;
    double *logp, *slopes; /* [list.n, length] */
} own_loss;

static int64_t length_of(const own_loss *l) { return l->t->rank.job.config->data.sequence_length; }

static bool calls_function(const own_loss *l) {
    return l->list.global ? ndp_is_first(l->t->rank.world) : ndp_trainer_leads(l->t);
}

static ndp_status find_logp(own_loss *l) {
    int64_t tokens = l->list.n * length_of(l), most;
    l->logp = malloc(((size_t)tokens + 1) * sizeof *l->logp);
    l->slopes = calloc((size_t)tokens + 1, sizeof *l->slopes);
    NDP_TRY(ndp_agree(
        l->t->rank.world,
        l->logp && l->slopes
            ? NDP_OK
            : NDP_FAIL(NDP_ENOMEM, "not enough memory for the log-probabilities of %lld tokens", (long long)tokens)));
    NDP_TRY(ndp_own_rows_most(l->t, &l->list, &most));
    int64_t each = l->list.global ? ndp_score_pass_rows(&l->t->score) : ndp_score_own_rows(&l->t->score);
    for (int64_t i = 0; i < l->list.n; i++)
        l->list.rows[i].weights = NULL;
    NDP_TRY(ndp_score_own(&l->t->score, &l->list, (most + each - 1) / each,
                          (double *const[NDP_TOKEN_NUMBERS]){[NDP_TOKEN_NLL] = l->logp}));
    for (int64_t i = 0; i < tokens; i++)
        l->logp[i] = l->logp[i] != 0 ? -l->logp[i] : 0;
    return NDP_OK;
}

/* Calls it, and looks at its answer. */
static ndp_status call_function(own_loss *l, double *loss) {
    int64_t length = length_of(l);
    *loss = 0;
    if (!calls_function(l))
        return NDP_OK;
    ndp_status st = l->loss(l->user, l->logp, l->list.n, length, l->slopes, loss);
    if (st != NDP_OK)
        return NDP_FAIL(st, "the loss function of rank %d returned status %d", ndp_comm_rank(l->t->rank.world),
                        (int)st);
    NDP_CHECK(isfinite(*loss), "the loss function of rank %d returned the loss %g", ndp_comm_rank(l->t->rank.world),
              ndp_plain_nan(*loss));
    for (int64_t i = 0; i < l->list.n * length; i++)
        NDP_CHECK(
            isfinite(l->slopes[i]),
            "the loss function of rank %d: the slope of sample %lld, token %lld is %g (its log-probability is %g)",
            ndp_comm_rank(l->t->rank.world), (long long)(i / length), (long long)(i % length),
            ndp_plain_nan(l->slopes[i]), l->logp[i]);
    return NDP_OK;
}

/* The answers of all functions, to the ranks whose samples they are of: a sum in which each has but one summand. */
static ndp_status share_slopes(own_loss *l) {
    ndp_comm *world = l->t->rank.world;
    const ndp_batch_shape *b = &l->t->rank.feed.shape;
    int64_t own = l->list.n * length_of(l), part = b->global / b->data_ranks * length_of(l);
    if (l->list.global)
        return ndp_reduce_now(world, l->slopes, own, NDP_F64, NDP_SUM);
    double *all = calloc((size_t)(part * b->data_ranks), sizeof *all),
           *mine = all + ndp_mesh_group(mesh_of(l->t), NDP_GROUP_DATA).rank * part;
    ndp_status st = ndp_agree(world, all ? NDP_OK
                                         : NDP_FAIL(NDP_ENOMEM, "not enough memory for the slopes of %lld tokens",
                                                    (long long)(part * b->data_ranks)));
    if (st == NDP_OK && calls_function(l))
        memcpy(mine, l->slopes, (size_t)own * sizeof *all);
    if (st == NDP_OK)
        st = ndp_reduce_now(world, all, part * b->data_ranks, NDP_F64, NDP_SUM);
    if (st == NDP_OK)
        memcpy(l->slopes, mine, (size_t)own * sizeof *all);
    free(all);
    return st;
}

/* The slope by a log-probability is minus the weight of its loss. */
static ndp_status run_with_slopes(own_loss *l, ndp_call_info *info) {
    ndp_own_totals totals;
    double loss, unread;
    NDP_TRY(find_logp(l));
    NDP_TRY(ndp_agree(l->t->rank.world, call_function(l, &loss)));
    NDP_TRY(share_slopes(l));
    NDP_TRY(ndp_reduce_now(l->t->rank.world, &loss, 1, NDP_F64, NDP_SUM));
    for (int64_t i = 0; i < l->list.n; i++) {
        double *slopes = l->slopes + i * length_of(l);
        for (int64_t s = 0; s < length_of(l); s++)
            slopes[s] = slopes[s] != 0 ? -slopes[s] : 0;
        l->list.rows[i].weights = slopes;
    }
    NDP_TRY(ndp_own_rows_totals(l->t, &l->list, &totals));
    NDP_TRY(ndp_own_run_call(l->t, &l->list, NULL, &unread));
    ndp_own_count_call(l->t, &totals);
    l->t->own.loss += loss;
    *info = (ndp_call_info){loss, loss, totals.weights, totals.tokens};
    return NDP_OK;
}

static ndp_status check_with(const ndp_trainer *t) {
    NDP_TRY(ndp_own_check_call(t));
    NDP_CHECK(t->own.opts.divide == NDP_DIVIDE_NUMBER,
              "a loss that is a function of log-probabilities is not divided again: begin the update with a number to "
              "divide by, such as 1");
    if (t->rank.job.model.adapter.dropout > 0)
        return NDP_FAIL(NDP_ENOTSUP,
                        "a loss that is a function of log-probabilities is not supported with "
                        "adapter.dropout %g, which forward passes do not have; set it to 0",
                        t->rank.job.model.adapter.dropout);
    return NDP_OK;
}

ndp_status ndp_trainer_forward_backward_with(ndp_trainer *t, const ndp_batch *batches, int n,
                                             ndp_status (*loss)(void *, const double *, int64_t, int64_t, double *,
                                                                double *),
                                             void *user, ndp_call_info *info) {
    NDP_NOT_NULL(t, loss);
    if (n > 0)
        NDP_NOT_NULL(batches);
    own_loss l = {.t = t, .loss = loss, .user = user};
    ndp_call_info unread;
    ndp_status st = ndp_own_rows_read(t, batches, n, true, check_with(t), &l.list);
    if (st == NDP_OK)
        st = run_with_slopes(&l, info ? info : &unread);
    ndp_own_rows_release(&l.list);
    free(l.logp);
    free(l.slopes);
    return st;
}

/* ---- forward alone ---- */

/* Numbers of rows of sequence_length, in arrays of the batches' own lengths. */
static void spread(const ndp_batch *batches, int n, int64_t length, const double *from, const ndp_own_row *rows,
                   ndp_score_number k, const ndp_token_values *out) {
    int64_t at = 0;
    for (int b = 0; b < n; b++)
        for (int64_t i = 0; i < batches[b].samples; i++, from += length, rows++)
            for (int64_t s = 0; s < batches[b].length; s++, at++) {
                bool padding = s >= length || ndp_own_row_is_padding(rows, s);
                if (k == NDP_TOKEN_NLL)
                    out->logp[at] = padding || from[s] == 0 ? 0 : -from[s];
                else if (k == NDP_TOKEN_ENTROPY)
                    out->entropy[at] = padding ? 0 : from[s];
                else
                    out->best[at] = padding ? -1 : (int32_t)lround(from[s]);
            }
}

static ndp_status run_forward(ndp_trainer *t, const ndp_batch *batches, int n, ndp_own_rows *list,
                              const ndp_token_values *out, double *const numbers[NDP_TOKEN_NUMBERS]) {
    int64_t most, length = t->rank.job.config->data.sequence_length;
    int64_t each = list->global ? ndp_score_pass_rows(&t->score) : ndp_score_own_rows(&t->score);
    NDP_TRY(ndp_own_rows_most(t, list, &most));
    for (int64_t i = 0; i < list->n; i++)
        list->rows[i].weights = NULL, list->rows[i].values = true;
    NDP_TRY(ndp_score_own(&t->score, list, (most + each - 1) / each, numbers));
    for (int k = 0; k < NDP_TOKEN_NUMBERS; k++)
        if (numbers[k])
            spread(batches, n, length, numbers[k], list->rows, (ndp_score_number)k, out);
    return NDP_OK;
}

/* Ranks ask for the same values. */
static ndp_status check_asks(ndp_trainer *t, const ndp_token_values *out) {
    int64_t asks = (out->logp != NULL) | (out->entropy != NULL) << 1 | (out->best != NULL) << 2, most[] = {asks, -asks};
    NDP_TRY(ndp_reduce_now(t->rank.world, most, 2, NDP_I64, NDP_MAX));
    NDP_CHECK(most[0] == -most[1], "ndp_trainer_forward: some ranks ask for other arrays than this one");
    return NDP_OK;
}

ndp_status ndp_trainer_forward(ndp_trainer *t, const ndp_batch *batches, int n, const ndp_token_values *out) {
    NDP_NOT_NULL(t, out);
    if (n > 0)
        NDP_NOT_NULL(batches);
    ndp_own_rows list;
    double *room = NULL, *numbers[NDP_TOKEN_NUMBERS] = {NULL};
    const bool wanted[NDP_TOKEN_NUMBERS] = {out->logp, out->entropy, out->best};
    ndp_status st = ndp_own_rows_read(t, batches, n, false, ndp_own_check(t), &list);
    if (st == NDP_OK)
        st = check_asks(t, out);
    if (st == NDP_OK) {
        int64_t each = list.n * t->rank.job.config->data.sequence_length;
        room = malloc((size_t)(NDP_TOKEN_NUMBERS * each + 1) * sizeof *room);
        st = ndp_agree(t->rank.world, room ? NDP_OK
                                           : NDP_FAIL(NDP_ENOMEM, "not enough memory for the values of %lld samples",
                                                      (long long)list.n));
        for (int k = 0; k < NDP_TOKEN_NUMBERS; k++)
            numbers[k] = wanted[k] ? room + k * each : NULL;
    }
    if (st == NDP_OK)
        st = run_forward(t, batches, n, &list, out, numbers);
    free(room);
    ndp_own_rows_release(&list);
    return st;
}
