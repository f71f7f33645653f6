/* The order of the samples: a pure function of (seed, sample index), the same on every layout.
 *
 * Samples are numbered from 0 across all epochs: sample i is row order(i / rows, i % rows) of the data set, where
 * order(e, .) is the permutation of epoch e. An update takes the next `global` numbers. So the cursor of a run is a
 * single integer, an epoch repeats and drops nothing, and its last batch continues into the next epoch.
 *
 * A mix weights the sources of a data set: a source of n rows with weight w contributes w n rows to an epoch. Up to
 * w = 1 none of its rows repeats within an epoch (with 0.5 each epoch takes another half); with w = 2 each appears
 * twice. A row is never used once more before every other row of its source has been used as often.
 */
#ifndef NDP_DATA_SAMPLER_H
#define NDP_DATA_SAMPLER_H

#include "base/status.h"

/* Rows [first, first + rows) of the data set; an epoch takes `taken` of them. */
typedef struct ndp_mix_source {
    int64_t first, rows, taken;
} ndp_mix_source;

typedef struct ndp_sampler {
    int64_t rows; /* of an epoch, at least 1 */
    uint64_t seed;
    bool shuffle; /* otherwise every epoch is in order, source after source */
    int group;    /* rows k group to (k + 1) group - 1 stay together; 0, 1: each row by itself. All numbers of
                   * rows are multiples of it */
    const ndp_mix_source *sources; /* borrowed; NULL: all rows of the data set, once per epoch */
    int n_sources;
} ndp_sampler;

/* Rows that an epoch takes from a source with this many rows and a weight >= 0; at least one, unless either is 0. */
int64_t ndp_mix_taken(int64_t rows, double weight);

/* The row of sample `index` >= 0. O(1), stateless. */
int64_t ndp_sampler_row(const ndp_sampler *s, int64_t index);

/* Which samples a rank reads. Update u takes samples [u x global, (u + 1) x global), where global = micro x data_ranks
 * x accumulation. They are divided into blocks of `micro`; block m x data_ranks + d is micro-batch m of data rank d. */
typedef struct ndp_batch_shape {
    int64_t global, micro; /* samples */
    int64_t data_ranks;    /* dp_replicate x dp_shard */
} ndp_batch_shape;

/* The number of sample j of micro-batch m of data rank d of update u. The set over (m, d, j) is the same for every
 * layout with this global batch. */
static inline int64_t ndp_sample_index(const ndp_batch_shape *b, int64_t u, int64_t m, int64_t d, int64_t j) {
    return u * b->global + (m * b->data_ranks + d) * b->micro + j;
}

#endif
