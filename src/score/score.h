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
    int64_t samples;       /* of the run, for `mismatched` */
    double *mismatched[2]; /* of a loss of single answers: of all samples of the run, of all held-out rows (point.c) */
    double *scores;
} ndp_score;

/* Builds the engine. It reads the weights of `trained` in place, which must outlive it; NULL: it loads its own. Leaves
 * it NULL if the job holds nothing out, its loss has no reference, and it generates no samples. */
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

/* ---- the number that single answers are compared with (point.c) ---- */

/* A part of ndp_score_find_references: the scores of mismatched answers. */
ndp_status ndp_score_find_mismatched(ndp_score *s);
/* Sets the feed's point for the update that begins with that sample of the run, with the weights as they are now: no
 * step may be pending. Does nothing with another loss. Collective. */
NDP_API ndp_status ndp_score_find_point(ndp_score *s, int64_t first_sample);
/* The same for the held-out rows of one source, or the `most` first ones (0: all). */
ndp_status ndp_score_find_held_point(ndp_score *s, int source, int64_t most);

/* ---- generating (next_token.c) ---- */

/* The id with the largest logit after a text of n tokens, at least 1 and at most a row's; the lowest of equal ones. The
 * same on all ranks. A whole forward pass, without a cache. Collective. */
NDP_API ndp_status ndp_score_next_token(ndp_score *s, const int32_t *ids, int64_t n, int32_t *id);

/* ---- rows of the user's own (own_pass.c) ---- */

/* The rows of this rank that one pass takes. */
int64_t ndp_score_own_rows(const ndp_score *s);
/* What the head says of each token: the nll of its label, the entropy of its distribution, the best id. */
typedef enum ndp_score_number { NDP_TOKEN_NLL, NDP_TOKEN_ENTROPY, NDP_TOKEN_BEST, NDP_TOKEN_NUMBERS } ndp_score_number;
/* Writes them for all tokens of a list, [n, sequence_length] each; NULL, on all ranks: it is not wanted. `passes`, the
 * same on all ranks, are enough for the rank with the most rows. Collective. */
ndp_status ndp_score_own(ndp_score *s, const ndp_own_rows *list, int64_t passes, double *const out[NDP_TOKEN_NUMBERS]);

/* ---- passes (score_pass.c) ---- */

/* A list of rows to score: sets *out to row i of it. */
typedef void ndp_score_row(const void *list, int64_t i, ndp_feed_row *out);
/* The list of all rows of an ndp_dataset. */
void ndp_score_dataset_row(const void *dataset, int64_t i, ndp_feed_row *out);
/* The rows that one pass takes. */
int64_t ndp_score_pass_rows(const ndp_score *s);
/* One pass over rows [at, end) of a list, at most as many as it takes. Collective. */
ndp_status ndp_score_pass(ndp_score *s, ndp_score_row *row, const void *list, int64_t at, int64_t end,
                          ndp_step_result *out);
/* A list of rows, and where the score of each is kept. */
typedef struct ndp_score_list {
    ndp_score_row *row;
    const void *of;                              /* of `row` and `place`; borrowed */
    int64_t n;                                   /* rows; 0: none */
    int64_t (*place)(const void *of, int64_t i); /* of the score of row i; NULL: i */
    bool sampled;                                /* row i is sample i of the run; else it is row i of a data set */
} ndp_score_list;
/* Lists whose scores share a file, beside the token cache that their rows are of. */
typedef struct ndp_score_lists {
    const ndp_token_cache *tokens;
    const char *what;        /* their rows are, for messages: "answers" */
    const char *key;         /* what the rows follow from, other than the tokens */
    int64_t n;               /* scores */
    ndp_score_list lists[2]; /* for training, held out */
} ndp_score_lists;
/* Finds or computes their scores under the initial weights; *out: [n], the caller's; a score of no row is NaN. With
 * `own_reference` only the first ones, without a file. Collective (reference.c). */
ndp_status ndp_score_lists_find(ndp_score *s, const ndp_score_lists *lists, double **out);

enum { NDP_SCORE_FLAGS = 2 };
/* The log-probabilities of the answers of the newest pass, one a row, the same on all ranks. `out` has room for
 * ndp_score_pass_rows() and NDP_SCORE_FLAGS more. *stop: a rank was told to stop. Collective. */
ndp_status ndp_score_answers(ndp_score *s, double *out, bool *stop);
/* Whether this rank has the scores of its micro-batches' answers: it has the head. */
bool ndp_score_has_answers(const ndp_engine *e);

#endif
