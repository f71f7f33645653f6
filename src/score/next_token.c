/* The token that follows a text, by the largest logit, on any layout: a forward pass in which one row asks for it
 * (NDP_LABEL_BEST). All other rows are empty, so the sum over all ranks is its id. Called by train/. */
#include "checkpoint/agree.h"
#include "score/score.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int32_t *writable(const int32_t *column) { return (int32_t *)(uintptr_t)column; }

/* The text is the first sample of a micro-batch. */
static void put_text(ndp_feed *f, const int32_t *ids, int64_t n) {
    const ndp_micro_batch *b = &f->whole;
    memcpy(writable(b->tokens), ids, (size_t)n * sizeof *ids);
    for (int64_t t = 0; t < n; t++) {
        writable(b->positions)[t] = (int32_t)t;
        writable(b->starts)[t] = 0;
        writable(b->samples)[t] = 0;
    }
    writable(b->labels)[n - 1] = NDP_LABEL_BEST;
    if (b->documents)
        writable(b->documents)[n - 1] = NDP_DOCUMENT_ANSWER; /* of document 0 */
}

static ndp_status load_text(ndp_score *s, const int32_t *ids, int64_t n) {
    ndp_feed *f = &s->rank->feed;
    const ndp_step_opts *step = &ndp_engine_program(s->engine)->opts.step;
    for (int m = 0; m < step->accumulation; m++) {
        for (int64_t j = 0; j < f->shape.micro; j++)
            f->rows[j] = (ndp_feed_row){.of = s->rank->data.dataset, .row = -1, .update = -1};
        NDP_TRY(ndp_feed_load(f));
        if (m == 0 && ndp_mesh_group(&step->mesh, NDP_GROUP_DATA).rank == 0)
            put_text(f, ids, n);
        NDP_TRY(ndp_engine_load(s->engine, m, &f->whole));
    }
    return NDP_OK;
}

/* With a loss of pairs, the score of the first row's answer is minus the id. */
static ndp_status read_answer(ndp_score *s, double *id) {
    bool unused;
    double *room = malloc((size_t)(ndp_score_pass_rows(s) + NDP_SCORE_FLAGS) * sizeof *room);
    if (!s->scores)
        s->scores = calloc(2 * (size_t)s->rank->job.model.documents, sizeof *s->scores);
    ndp_status st =
        ndp_agree(s->rank->world,
                  room && s->scores ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for the scores of a pass"));
    if (st == NDP_OK)
        st = ndp_score_answers(s, room, &unused);
    *id = st == NDP_OK ? -room[0] : 0;
    free(room);
    return st;
}

ndp_status ndp_score_next_token(ndp_score *s, const int32_t *ids, int64_t n, int32_t *id) {
    ndp_step_result result;
    double sum;
    NDP_TRY(ndp_agree(s->rank->world, load_text(s, ids, n)));
    ndp_status st = ndp_engine_step(s->engine, 0, 0, false, &result);
    s->rank->apart |= st != NDP_OK;
    NDP_TRY(st);
    sum = result.loss;
    if (s->rank->job.model.preference.kind != NDP_PREFERENCE_NONE)
        NDP_TRY(read_answer(s, &sum));
    *id = (int32_t)lround(sum);
    return NDP_OK;
}
