/* Losses of the user's own that are functions of logits. The engine calls ours in the middle of a step
 * (step/loss_rows.h), where no rank may leave the others waiting: what is wrong there is kept, and all ranks hear of it
 * after the step. */
#include "train/own_batches.h"

#include "base/text.h"
#include "checkpoint/agree.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct own_logits {
    ndp_trainer *t;
    ndp_status (*loss)(void *, const ndp_logit_rows *);
    void *user;
    ndp_own_rows list;
    int64_t *samples, *tokens; /* [rows of a micro-batch] */
    ndp_hash128 answers;       /* of all calls so far, in order */
    ndp_status status;
    char message[512]; /* of the error */
} own_logits;

static int rank_of(const own_logits *l) { return ndp_comm_rank(l->t->rank.world); }

/* ---- in a step ---- */

static double at(const void *numbers, ndp_dtype type, int64_t i) {
    return type == NDP_F64 ? ((const double *)numbers)[i] : (double)((const float *)numbers)[i];
}

static ndp_status check_answer(const own_logits *l, const ndp_loss_rows *rows) {
    for (int64_t i = 0; i < rows->n; i++) {
        NDP_CHECK(isfinite(rows->losses[i]), "the loss function of rank %d: the loss of sample %lld, token %lld is %g",
                  rank_of(l), (long long)l->samples[i], (long long)l->tokens[i], ndp_plain_nan(rows->losses[i]));
        for (int64_t j = i * rows->vocab; j < (i + 1) * rows->vocab; j++)
            NDP_CHECK(isfinite(at(rows->slopes, rows->type, j)),
                      "the loss function of rank %d: the slope of sample %lld, token %lld by the logit of id %lld is "
                      "%g (the logit is %g)",
                      rank_of(l), (long long)l->samples[i], (long long)l->tokens[i], (long long)(j - i * rows->vocab),
                      ndp_plain_nan(at(rows->slopes, rows->type, j)), at(rows->logits, rows->type, j));
    }
    return NDP_OK;
}

static ndp_status call_function(own_logits *l, const ndp_loss_rows *rows) {
    int64_t length = l->t->rank.job.config->data.sequence_length;
    int d = ndp_mesh_group(&ndp_engine_program(l->t->engine)->opts.step.mesh, NDP_GROUP_DATA).rank;
    bool wide = rows->type == NDP_F64;
    for (int64_t i = 0; i < rows->n; i++) {
        l->samples[i] = ndp_own_rows_at(l->t, l->list.global, rows->micro_batch, d, rows->places[i] / length);
        l->tokens[i] = rows->places[i] % length;
    }
    const ndp_logit_rows given = {.n = rows->n,
                                  .vocabulary = rows->vocab,
                                  .samples = l->samples,
                                  .tokens = l->tokens,
                                  .labels = rows->labels,
                                  .logits = wide ? NULL : rows->logits,
                                  .logits_f64 = wide ? rows->logits : NULL,
                                  .slopes = wide ? NULL : rows->slopes,
                                  .slopes_f64 = wide ? rows->slopes : NULL,
                                  .losses = rows->losses};
    ndp_status st = l->loss(l->user, &given);
    if (st != NDP_OK)
        return NDP_FAIL(st, "the loss function of rank %d returned status %d", rank_of(l), (int)st);
    return check_answer(l, rows);
}

static void run(void *user, const ndp_loss_rows *rows) {
    own_logits *l = user;
    size_t slopes = (size_t)(rows->n * rows->vocab) * ndp_dtype_size(rows->type);
    if (l->status == NDP_OK) {
        l->status = call_function(l, rows);
        if (l->status != NDP_OK)
            snprintf(l->message, sizeof l->message, "%s", ndp_error_message());
    }
    if (l->status != NDP_OK) {
        memset(rows->slopes, 0, slopes);
        memset(rows->losses, 0, (size_t)rows->n * sizeof *rows->losses);
    }
    ndp_hash128 parts[] = {l->answers, ndp_hash128_of(rows->slopes, slopes),
                           ndp_hash128_of(rows->losses, (size_t)rows->n * sizeof *rows->losses)};
    l->answers = ndp_hash128_of(parts, sizeof parts);
}

/* ---- after it ---- */

/* Ranks of a tensor group have the same rows, so the same answers. */
static ndp_status compare(const own_logits *l, const ndp_hash128 *all) {
    const ndp_job *job = &l->t->rank.job;
    for (int r = 0; r < job->world; r++) {
        ndp_mesh mesh;
        NDP_TRY(ndp_mesh_init(&job->layout, r, NDP_NO_MODEL, &mesh));
        ndp_group g = ndp_mesh_group(&mesh, NDP_GROUP_TP);
        int first = r - g.rank * g.stride;
        NDP_CHECK(ndp_hash128_equal(all[r], all[first]),
                  "the loss function gave other losses or slopes on rank %d than on rank %d, which has the same rows "
                  "of logits: it may not depend on the rank, on time, or on numbers of its own",
                  r, first);
    }
    return NDP_OK;
}

static ndp_status check_same(own_logits *l) {
    ndp_comm *world = l->t->rank.world;
    int ranks = l->t->rank.job.world;
    ndp_hash128 *all = calloc((size_t)ranks, sizeof *all);
    ndp_status st = ndp_agree(world, all ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for %d hashes", ranks));
    ndp_work work;
    if (st == NDP_OK)
        st = ndp_all_gather_begin(world, &l->answers, all, sizeof l->answers / sizeof(int32_t), NDP_I32, &work);
    if (st == NDP_OK)
        st = ndp_wait(&work);
    if (st == NDP_OK)
        st = ndp_agree(world, compare(l, all));
    free(all);
    return st;
}

static ndp_status run_call(own_logits *l, ndp_call_info *info) {
    ndp_comm *world = l->t->rank.world;
    int64_t rows = l->t->rank.job.model.rows;
    l->samples = malloc(2 * (size_t)rows * sizeof *l->samples);
    NDP_TRY(ndp_agree(
        world,
        l->samples ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for the places of %lld rows", (long long)rows)));
    l->tokens = l->samples + rows;
    NDP_TRY(ndp_own_run_weighted(l->t, &l->list, &(ndp_loss_function){run, l}, info));
    ndp_status st = ndp_agree(world, l->status == NDP_OK ? NDP_OK : NDP_FAIL(l->status, "%s", l->message));
    if (st == NDP_OK)
        st = check_same(l);
    l->t->own.begun = st == NDP_OK; /* else its gradient is of no loss */
    return st;
}

static ndp_status check_call(const ndp_trainer *t) {
    NDP_TRY(ndp_own_check_call(t));
    NDP_CHECK(t->rank.job.config->train.own_logits,
              "the trainer has planned no memory for a loss of logits; set train.own_logits: true before it is "
              "made");
    return NDP_OK;
}

ndp_status ndp_trainer_forward_backward_logits(ndp_trainer *t, const ndp_batch *batches, int n,
                                               ndp_status (*loss)(void *, const ndp_logit_rows *), void *user,
                                               ndp_call_info *info) {
    NDP_NOT_NULL(t, loss);
    if (n > 0)
        NDP_NOT_NULL(batches);
    own_logits l = {.t = t, .loss = loss, .user = user};
    ndp_call_info unread;
    ndp_status st = ndp_own_rows_read(t, batches, n, true, check_call(t), &l.list);
    if (st == NDP_OK)
        st = run_call(&l, info ? info : &unread);
    ndp_own_rows_release(&l.list);
    free(l.samples);
    return st;
}
