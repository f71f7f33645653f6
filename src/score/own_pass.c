/* What the model says of rows of the user's own: numbers of each token, by passes of the scoring engine. Called by
 * train/. */
#include "base/text.h"
#include "checkpoint/agree.h"
#include "score/score.h"

#include <stdlib.h>
#include <string.h>

static const ndp_step_opts *step_of(const ndp_score *s) { return &ndp_engine_program(s->engine)->opts.step; }

static int data_rank(const ndp_score *s) { return ndp_mesh_group(&step_of(s)->mesh, NDP_GROUP_DATA).rank; }

/* The number of the row that data rank d has at place j of micro-batch m of a pass. */
static int64_t row_at(const ndp_score *s, bool global, int64_t pass, int m, int d, int64_t j) {
    const ndp_batch_shape *b = &s->rank->feed.shape;
    int64_t own = pass * ndp_score_own_rows(s) + m * b->micro + j;
    return global ? pass * ndp_score_pass_rows(s) + ndp_sample_index(b, 0, m, d, j) : own;
}

/* Empty rows fill up the last pass. */
static ndp_status load_rows(ndp_score *s, const ndp_own_rows *list, int64_t pass) {
    ndp_feed *f = &s->rank->feed;
    for (int m = 0; m < step_of(s)->accumulation; m++) {
        for (int64_t j = 0; j < f->shape.micro; j++) {
            int64_t i = row_at(s, list->global, pass, m, data_rank(s), j);
            f->rows[j] = (ndp_feed_row){.row = -1, .update = -1, .own = i < list->n ? &list->rows[i] : NULL};
        }
        NDP_TRY(ndp_feed_load(f));
        NDP_TRY(ndp_engine_load(s->engine, m, &f->whole));
    }
    return NDP_OK;
}

/* The last stage has the numbers, all ranks of tp the same; of cp and sp each those of its rows. */
static bool hands_in(const ndp_score *s) {
    return ndp_score_has_answers(s->engine) && step_of(s)->mesh.coord[NDP_TP] == 0;
}

/* Hands in this rank's numbers of one kind; `pass`: [data ranks, accumulation, micro, length], the same on all ranks.
 */
static ndp_status gather(ndp_score *s, ndp_score_number k, double *pass, int64_t own) {
    int64_t micro = s->rank->job.model.rows, ranks = s->rank->feed.shape.data_ranks;
    ndp_status st = NDP_OK;
    memset(pass, 0, (size_t)(own * ranks) * sizeof *pass);
    for (int m = 0; m < step_of(s)->accumulation && hands_in(s) && st == NDP_OK; m++)
        st = ndp_engine_rows(s->engine, m, ndp_row_numbers[k > NDP_TOKEN_NLL], k > NDP_TOKEN_NLL ? k - 1 : 0,
                             pass + data_rank(s) * own + m * micro);
    NDP_TRY(ndp_agree(s->rank->world, st));
    return ndp_reduce_now(s->rank->world, pass, own * ranks, NDP_F64, NDP_SUM);
}

/* The numbers of this rank's rows; of a global list, of all. */
static void take(const ndp_score *s, const ndp_own_rows *list, int64_t pass, const double *from, double *out) {
    const ndp_batch_shape *b = &s->rank->feed.shape;
    int64_t length = s->rank->job.config->data.sequence_length, micro = b->micro;
    for (int d = 0; d < b->data_ranks; d++)
        for (int m = 0; m < step_of(s)->accumulation && (list->global || d == data_rank(s)); m++)
            for (int64_t j = 0; j < micro; j++) {
                int64_t i = row_at(s, list->global, pass, m, d, j);
                const double *row = from + ((d * step_of(s)->accumulation + m) * micro + j) * length;
                if (i < list->n)
                    memcpy(out + i * length, row, (size_t)length * sizeof *out);
            }
}

int64_t ndp_score_own_rows(const ndp_score *s) { return s->rank->feed.shape.micro * step_of(s)->accumulation; }

static ndp_status run_pass(ndp_score *s, const ndp_own_rows *list, int64_t pass, double *numbers,
                           double *const out[NDP_TOKEN_NUMBERS]) {
    ndp_step_result unread;
    NDP_TRY(ndp_agree(s->rank->world, load_rows(s, list, pass)));
    ndp_status st = ndp_engine_step(s->engine, 0, 0, false, &unread);
    s->rank->apart |= st != NDP_OK;
    NDP_TRY(st);
    for (int k = 0; k < NDP_TOKEN_NUMBERS; k++)
        if (out[k]) {
            NDP_TRY(gather(s, (ndp_score_number)k, numbers,
                           ndp_score_own_rows(s) * s->rank->job.config->data.sequence_length));
            take(s, list, pass, numbers, out[k]);
        }
    return NDP_OK;
}

ndp_status ndp_score_own(ndp_score *s, const ndp_own_rows *list, int64_t passes, double *const out[NDP_TOKEN_NUMBERS]) {
    int64_t tokens = ndp_score_pass_rows(s) * s->rank->job.config->data.sequence_length;
    double *numbers = malloc((size_t)tokens * sizeof *numbers);
    ndp_status st =
        ndp_agree(s->rank->world,
                  numbers ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for %lld numbers", (long long)tokens));
    for (int64_t p = 0; p < passes && st == NDP_OK; p++)
        st = run_pass(s, list, p, numbers, out);
    free(numbers);
    return st;
}
