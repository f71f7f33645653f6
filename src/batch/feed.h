/* Rows of data sets as micro-batches, before the axes cut them: tokens, labels, and whatever else a loss, dropout or a
 * mixture needs of each row. Each of these is a column (columns.c): a row of one list, which has its memory, its place
 * in ndp_micro_batch, and a function that writes a sample's part of it. A column is filled from the numbers of the row
 * and the sample alone, so every layout and every resumed run gets the same. */
#ifndef NDP_BATCH_FEED_H
#define NDP_BATCH_FEED_H

#include "base/hash128.h"
#include "batch/choices.h"
#include "job/job_data.h"
#include "step/engine.h"

/* A sample of the user's own. Arrays of `n` tokens, borrowed; but for ids each may be NULL. */
typedef struct ndp_own_row {
    const int32_t *ids, *labels, *positions, *documents; /* as of ndp_batch */
    const double *weights;
    int64_t n;    /* at most those of a row */
    bool values;  /* of all tokens are wanted, also of those without a label */
    double scale; /* of the gradient: 1 / what the loss is divided by */
} ndp_own_row;

/* Rows of the user's own: of all data ranks, the same on each (global), or of this one's. */
typedef struct ndp_own_rows {
    ndp_own_row *rows;
    int64_t n;
    bool global;
} ndp_own_rows;

/* A sample of a micro-batch: the row that it shows. All samples of a micro-batch are of one data set. */
typedef struct ndp_feed_row {
    const ndp_dataset *of; /* borrowed */
    int64_t row;           /* its number in the data set; below 0: an empty row, nothing to predict */
    /* Of a sample that is trained on: the update, its number in that, and in the run. Update below 0: it is only
     * scored, and has neither dropout nor given choices. */
    int64_t update, sample, index;
    /* With preference data: before the row's answer stands the prompt of row `prompt`. */
    bool mismatched;
    int64_t prompt;
    const ndp_own_row *own; /* shown instead of a row of a data set; NULL: none */
} ndp_feed_row;

enum { NDP_FEED_COLUMNS = 11 }; /* at most */

typedef struct ndp_feed {
    const ndp_job *job;       /* borrowed, as all that follows but what `memory` and `of_file` have */
    const ndp_job_data *data; /* its held-out rows may have a token cache of their own */
    ndp_batch_shape shape;
    const ndp_choices *given; /* of mixtures that are given their choices; NULL: they choose */
    ndp_choices of_file;      /* of moe.routes; owned */
    const double
        *references[2]; /* of all documents of data->tokens, of data->held_tokens: the log-probability of the
                         * answer under the reference model; NULL: the loss has none, or it is being computed */
    double point;       /* of a loss of single answers: the number that they are compared with (score/point.c) */
    ndp_feed_row *rows; /* [shape.micro] of the micro-batch; owned */
    void *memory[NDP_FEED_COLUMNS];
    ndp_micro_batch whole; /* the micro-batch that was loaded last; borrows `memory` */
} ndp_feed;

/* Takes the memory of a micro-batch. `given` may be NULL. On failure the caller releases it all the same. NDP_ENOMEM.
 */
ndp_status ndp_feed_open(ndp_feed *f, const ndp_job *job, const ndp_job_data *data, const ndp_choices *given);
/* Reads moe.routes, and takes memory for the choices of a micro-batch, where the mixtures of a model are given them.
 * NDP_ENOMEM, and the errors of ndp_choices_read. */
NDP_API ndp_status ndp_feed_open_choices(ndp_feed *f, const ndp_model *m);
/* Accepts {0}. */
void ndp_feed_release(ndp_feed *f);

/* Sets f->rows to the samples that data rank d trains on in micro-batch m of an update. */
void ndp_feed_draw(ndp_feed *f, int64_t update, int64_t first_sample, int m, int d);
/* Fills f->whole with f->rows. NDP_EIO: the token cache has changed. */
NDP_API ndp_status ndp_feed_load(ndp_feed *f);
/* Of all columns of the micro-batch. */
ndp_hash128 ndp_feed_hash(const ndp_feed *f);
/* What the loss of token s is multiplied by; 0: it has none, or is padding. */
double ndp_own_row_weight(const ndp_own_row *own, int64_t s);
bool ndp_own_row_is_padding(const ndp_own_row *own, int64_t s);
/* The labels of f->whole, to be changed before they are loaded into an engine. */
int32_t *ndp_feed_labels(const ndp_feed *f);

/* ---- inside this room ---- */

typedef struct ndp_column {
    size_t place;                       /* of its pointer in ndp_micro_batch */
    size_t (*bytes)(const ndp_feed *f); /* of a micro-batch; 0: this job has none */
    /* Writes what sample j has of it; NULL: the column before it writes both. */
    ndp_status (*fill)(ndp_feed *f, int64_t j, const ndp_feed_row *row);
} ndp_column;
extern const ndp_column ndp_columns[];
extern const int ndp_column_count;

#endif
