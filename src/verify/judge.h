/* The judge of a dump: one rank that computes the sums of gradients over rows that it is given, one row at a time. The
 * rank's batch is a row, so a sum over some rows, or with a weight for each, needs no other program. */
#ifndef NDP_VERIFY_JUDGE_H
#define NDP_VERIFY_JUDGE_H

#include "train/trainer.h"
#include "verify/dump.h"
#include "verify/partial.h"

typedef struct ndp_judge {
    ndp_config config; /* the job's, for one row on one rank */
    ndp_transport *transport;
    ndp_partial *partial; /* its device; NULL: one whose memory the host cannot access */
    ndp_trainer *trainer;
    ndp_tensor_list list; /* of the trained tensors */
    int64_t *first;       /* tensor i is elements first[i] .. first[i + 1] of a sum */
} ndp_judge;

/* A sum over rows: of losses, of gradients. */
typedef struct ndp_judged {
    double loss;
    int64_t tokens;   /* that counted, without weights */
    double *gradient; /* [first[n]], owned */
} ndp_judged;

/* A configuration for one rank that computes `rows` rows of `length` tokens an update, in `compute`. The caller
 * releases it. */
NDP_API ndp_status ndp_judge_config(const ndp_config *job, const ndp_dump *d, int rows, ndp_dtype compute,
                                    ndp_config *out);

/* Opens the rank, with the job's model in `compute`, for `rows` rows an update: 1 for what is below. The caller closes
 * it. */
NDP_API ndp_status ndp_judge_open(const ndp_config *job, const ndp_dump *d, int rows, ndp_dtype compute,
                                  ndp_judge *out);
/* Accepts {0}. */
void ndp_judge_close(ndp_judge *j);

/* NDP_ENOMEM. */
NDP_API ndp_status ndp_judged_init(ndp_judged *s, const ndp_judge *j);
/* Accepts {0}. */
void ndp_judged_release(ndp_judged *s);

/* Adds row `row` to the sum: of every token that it predicts the loss and the gradient, times `weight`. */
NDP_API ndp_status ndp_judge_add(ndp_judge *j, const ndp_dump_rows *rows, int64_t row, double weight, ndp_judged *s);
/* Adds the mean over all tokens of the rows. losses: of each row its part of the loss; may be NULL. NDP_EINVAL: the
 * model's own loss is not finite. */
NDP_API ndp_status ndp_judge_mean(ndp_judge *j, const ndp_dump_rows *rows, ndp_judged *s, double *losses);

/* One update with all rows, of a rank that was opened for so many. */
NDP_API ndp_status ndp_judge_update(ndp_judge *j, const ndp_dump_rows *rows);
/* Adds the trained weights to s->gradient. */
NDP_API ndp_status ndp_judge_weights(ndp_judge *j, ndp_judged *s);

/* The number of tokens that a row predicts. */
int64_t ndp_dump_row_tokens(const ndp_dump_rows *rows, int64_t row);

#endif
