/* Inside the train room: batches of the user's own as lists of rows, on which all ranks agree. */
#ifndef NDP_TRAIN_OWN_BATCHES_H
#define NDP_TRAIN_OWN_BATCHES_H

#include "batch/own_rows.h"
#include "train/trainer.h"

/* What all ranks know of the batches of a call. */
typedef struct ndp_own_totals {
    int64_t samples;
    int64_t tokens; /* labels whose weight is not 0 */
    double weights; /* their sum, in fp64 and in the global order of samples */
} ndp_own_totals;

/* Reads the batches. The caller releases *list in any case. NDP_EINVAL, on all ranks: a value is out of range, or ranks
 * whose batches should be the same have others. `limited`: to what one call of the
 * training has room for. `before`: what this rank found wrong with the call. Collective. */
NDP_API ndp_status ndp_own_rows_read(ndp_trainer *t, const ndp_batch *batches, int n, bool limited, ndp_status before,
                                     ndp_own_rows *list);
/* Accepts {0}. */
void ndp_own_rows_release(ndp_own_rows *list);
/* Sums over all samples of all ranks. With `limited` lists alone. Collective. */
NDP_API ndp_status ndp_own_rows_totals(ndp_trainer *t, const ndp_own_rows *list, ndp_own_totals *out);
/* The most samples that a rank has. Collective. */
NDP_API ndp_status ndp_own_rows_most(ndp_trainer *t, const ndp_own_rows *list, int64_t *most);
/* The number, in the call, of the sample that data rank d has at place j of micro-batch m; in a list of one rank, its
 * place there. */
static inline int64_t ndp_own_rows_at(const ndp_trainer *t, bool global, int m, int d, int64_t j) {
    const ndp_batch_shape *b = &t->rank.feed.shape;
    return global ? ndp_sample_index(b, 0, m, d, j) : m * b->micro + j;
}

/* ---- own_loop.c ---- */

/* NDP_EINVAL: the trainer draws its own batches; */
NDP_API ndp_status ndp_own_check(const ndp_trainer *t);
/* or the update takes no call now. */
NDP_API ndp_status ndp_own_check_call(const ndp_trainer *t);
/* A call of the update under way on these rows, with a loss that is a function of logits, or that of the job (NULL).
 * *sum: weight x loss of all rows of all ranks. Collective. */
NDP_API ndp_status ndp_own_run_call(ndp_trainer *t, const ndp_own_rows *list, const ndp_loss_function *loss,
                                    double *sum);
/* The same with weights and divisors as the update has them; counts the call. Collective. */
NDP_API ndp_status ndp_own_run_weighted(ndp_trainer *t, const ndp_own_rows *list, const ndp_loss_function *loss,
                                        ndp_call_info *info);
/* Counts what a call has had. */
void ndp_own_count_call(ndp_trainer *t, const ndp_own_totals *totals);

#endif
