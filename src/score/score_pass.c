/* One pass of the scoring engine, and gathering what it says of answers. Called by held_out.c and reference.c. */
#include "checkpoint/agree.h"
#include "score/score.h"

#include <string.h>

static const ndp_step_opts *step_of(const ndp_score *s) { return &ndp_engine_program(s->engine)->opts.step; }

int64_t ndp_score_pass_rows(const ndp_score *s) {
    const ndp_batch_shape *b = &s->rank->feed.shape;
    return b->micro * b->data_ranks * step_of(s)->accumulation;
}

void ndp_score_dataset_row(const void *dataset, int64_t i, ndp_feed_row *out) {
    *out = (ndp_feed_row){.of = dataset, .row = i};
}

/* This rank's rows. */
static ndp_status load_pass(ndp_score *s, ndp_score_row *row, const void *list, int64_t at, int64_t end) {
    ndp_feed *f = &s->rank->feed;
    int64_t micro = f->shape.micro, mine = ndp_mesh_group(&step_of(s)->mesh, NDP_GROUP_DATA).rank * micro;
    for (int m = 0; m < step_of(s)->accumulation; m++, at += micro * f->shape.data_ranks) {
        for (int64_t j = 0; j < micro; j++) {
            int64_t i = at + mine + j;
            row(list, i < end ? i : end - 1, &f->rows[j]);
            f->rows[j].row = i < end ? f->rows[j].row : -1;
            f->rows[j].update = -1;
        }
        NDP_TRY(ndp_feed_load(f));
        NDP_TRY(ndp_engine_load(s->engine, m, &f->whole));
    }
    return NDP_OK;
}

/* The ranks agree before the pass, since a file of rows may fail on some of them, and none may wait in it for the
 * others then. */
ndp_status ndp_score_pass(ndp_score *s, ndp_score_row *row, const void *list, int64_t at, int64_t end,
                          ndp_step_result *out) {
    NDP_TRY(ndp_agree(s->rank->world, load_pass(s, row, list, at, end)));
    ndp_status st = ndp_engine_step(s->engine, 0, 0, false, out);
    s->rank->apart |= st != NDP_OK;
    return st;
}

/* ---- answers ---- */

bool ndp_score_has_answers(const ndp_engine *e) {
    const ndp_model *m = ndp_engine_model(e), *whole = ndp_engine_whole(e);
    return m->n_units > 0 && m->units[m->n_units - 1].number == whole->n_units - 1;
}

/* This rank hands in what one rank of each micro-batch has: the first of those that share it. */
static bool hands_in(const ndp_score *s) {
    const int *at = step_of(s)->mesh.coord;
    return ndp_score_has_answers(s->engine) && at[NDP_CP] == 0 && at[NDP_SP] == 0 && at[NDP_TP] == 0;
}

/* Writes the scores that this rank hands in at the places of their rows in the pass. */
static ndp_status take_answers(const ndp_score *s, double *out) {
    const ndp_batch_shape *b = &s->rank->feed.shape;
    int64_t at = ndp_mesh_group(&step_of(s)->mesh, NDP_GROUP_DATA).rank * b->micro;
    int64_t each = s->rank->job.model.documents / b->micro; /* of a row; of a single answer the other one adds 0 */
    for (int m = 0; m < step_of(s)->accumulation && hands_in(s); m++, at += b->micro * b->data_ranks) {
        NDP_TRY(ndp_engine_input(s->engine, m, "scores", s->scores));
        for (int64_t d = 0; d < each * b->micro; d++)
            out[at + d / each] += s->scores[2 * d];
    }
    return NDP_OK;
}

/* What the ranks sum with the scores: how many were told to stop, and how many failed. They are summed in one array. */
ndp_status ndp_score_answers(ndp_score *s, double *out, bool *stop) {
    const ndp_train_opts *o = s->rank->opts;
    int64_t n = ndp_score_pass_rows(s);
    double *flags = out + n;
    memset(out, 0, (size_t)(n + NDP_SCORE_FLAGS) * sizeof *out);
    ndp_status own = take_answers(s, out);
    flags[0] = o && o->stop && *o->stop;
    flags[1] = own != NDP_OK;
    NDP_TRY(ndp_reduce_now(s->rank->world, out, n + NDP_SCORE_FLAGS, NDP_F64, NDP_SUM));
    *stop = flags[0] > 0;
    return flags[1] > 0 ? ndp_agree(s->rank->world, own) : NDP_OK;
}
