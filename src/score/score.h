/* Passes over rows with a model that is not changed: the loss of held-out rows, and the log-probabilities of answers
 * under a reference model. A pass runs forward only, on the layout of the training, and takes as many rows of a list as
 * there are in its micro-batches; empty rows fill up the last one. */
#ifndef NDP_SCORE_SCORE_H
#define NDP_SCORE_SCORE_H

#include "rank/rank.h"

typedef struct ndp_score {
    ndp_rank *rank; /* borrowed */
    ndp_model model;
    ndp_engine *engine; /* NULL: not built, or there is nothing to score */
    /* Of a loss with a reference model (reference.c): of all documents of data.tokens, of data.held_tokens, which the
     * feed borrows; and room for the scores of a micro-batch. NULL: the loss has none, or they are not found yet. */
    double *references[2];
    double *scores;
} ndp_score;

/* Builds the engine. It reads the weights of `trained` in place, which must outlive it; NULL: it loads its own. Leaves
 * it NULL if the job holds nothing out and its loss has no reference. */
NDP_API ndp_status ndp_score_build(ndp_score *s, ndp_rank *r, const ndp_engine *trained);
/* Accepts {0}. */
void ndp_score_destroy(ndp_score *s);

/* ---- held-out rows (held_out.c) ---- */

/* Adds to *sums what the held-out rows of one source have, or the `most` first ones (0: all): tokens and the sum of
 * their nll, or pairs and their sums. Collective; all ranks return the same status if one cannot read its rows. */
NDP_API ndp_status ndp_score_held_out(ndp_score *s, int source, int64_t most, ndp_step_result *sums);
/* The mean loss of what was counted. */
double ndp_score_loss(const ndp_score *s, const ndp_step_result *sums);

/* ---- the reference (reference.c) ---- */

/* Where the loss has a reference model, finds or computes the log-probabilities of all documents under it, once. Call
 * it while the engine that trains has its initial weights, and rank 0 their hashes. Collective. */
NDP_API ndp_status ndp_score_find_references(ndp_score *s);

/* ---- passes (pass.c) ---- */

/* A list of rows to score: sets *out to row i of it. */
typedef void ndp_score_row(const void *list, int64_t i, ndp_feed_row *out);
/* The list of all rows of an ndp_dataset. */
void ndp_score_dataset_row(const void *dataset, int64_t i, ndp_feed_row *out);
/* The rows that one pass takes. */
int64_t ndp_score_pass_rows(const ndp_score *s);
/* One pass over rows [at, end) of a list, at most as many as it takes. Collective. */
ndp_status ndp_score_pass(ndp_score *s, ndp_score_row *row, const void *list, int64_t at, int64_t end,
                          ndp_step_result *out);
enum { NDP_SCORE_FLAGS = 2 };
/* The log-probabilities of the answers of the newest pass, one a row, the same on all ranks. `out` has room for
 * ndp_score_pass_rows() and NDP_SCORE_FLAGS more. *stop: a rank was told to stop. Collective. */
ndp_status ndp_score_answers(ndp_score *s, double *out, bool *stop);
/* Whether this rank has the scores of its micro-batches' answers: it has the head. */
bool ndp_score_has_answers(const ndp_engine *e);

#endif
