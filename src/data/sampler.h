/* The order of the samples: a pure function of (seed, sample index), the same on every layout.
 *
 * Samples are numbered through, from 0, over all epochs: sample i is row order(i / rows, i % rows) of the data set,
 * where order(e, .) is a permutation of the rows that belongs to epoch e alone. An update takes the next `global`
 * numbers. So the cursor of a run is one integer, an epoch repeats nothing and drops nothing, and its last batch goes
 * on into the next epoch.
 *
 * A mix takes the parts of a data set unequally often: part p, of n rows, with the weight w gives w n rows to an epoch.
 * Up to w = 1 no row of it comes twice in an epoch (with 0.5 another half of them every time), with w = 2 each comes
 * twice, and always no row comes once more than another before that one has come as often.
 */
#ifndef NDP_DATA_SAMPLER_H
#define NDP_DATA_SAMPLER_H

#include "base/status.h"

/* Rows [first, first + rows) of the data set; an epoch takes `taken` of them. */
typedef struct ndp_mix_part {
    int64_t first, rows, taken;
} ndp_mix_part;

typedef struct ndp_sampler {
    int64_t rows; /* of an epoch, at least 1 */
    uint64_t seed;
    bool shuffle;              /* otherwise every epoch is in order, part after part */
    const ndp_mix_part *parts; /* borrowed; NULL: all rows of the data set, once */
    int n_parts;
} ndp_sampler;

/* Rows that an epoch takes of a part with so many and a weight >= 0; at least one where there are any of both. */
int64_t ndp_mix_taken(int64_t rows, double weight);

/* The row of sample `index` >= 0. O(1), nothing is kept. */
int64_t ndp_sampler_row(const ndp_sampler *s, int64_t index);

/* Which samples a rank reads. Update u takes [u x global, (u + 1) x global), where global = micro x data_ranks x
 * accumulation. They are cut into blocks of `micro`; block m x data_ranks + d is micro-batch m of data rank d. */
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
