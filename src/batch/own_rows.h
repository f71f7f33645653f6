/* Batches of the user's own (ndp_batch) as rows that a feed shows: checked, one after the other. Called by train/. */
#ifndef NDP_BATCH_OWN_ROWS_H
#define NDP_BATCH_OWN_ROWS_H

#include "batch/feed.h"

/* How many samples they have. NDP_EINVAL: a negative number, or batches of which some are global. */
NDP_API ndp_status ndp_own_rows_count(const ndp_batch *batches, int n, int64_t *samples);
/* Writes a row for each sample of the batches to `out`, which has room for them; rows borrow the batches. NDP_EINVAL
 * names the batch, the sample and the token of a value that is out of range. */
NDP_API ndp_status ndp_own_rows_list(const ndp_job *job, const ndp_batch *batches, int n, ndp_own_row *out);
/* Of all that the rows show. */
ndp_hash128 ndp_own_rows_hash(const ndp_own_row *rows, int64_t n);
/* Labels that have a loss, and the sum of their weights in order. */
int64_t ndp_own_row_labels(const ndp_own_row *row, double *weights);

#endif
