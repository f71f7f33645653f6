/* First fit: a piece goes into the first open row that has space for it. */
#ifndef NDP_DATA_ROW_FIT_H
#define NDP_DATA_ROW_FIT_H

#include "base/status.h"

typedef struct ndp_row_fit {
    int64_t *open; /* [most] the open rows, in ascending order, */
    int32_t *left; /* and what is left of each */
    int n_open, most;
    int32_t length; /* of a row */
    int32_t least;  /* a row of which less is left is full */
    int64_t rows;   /* so far */
} ndp_row_fit;

/* The row for a piece of n tokens, 1 to length. *place (NULL: it is not asked for): where it begins. If there are too
 * many open rows, the fullest one is closed. */
int64_t ndp_row_fit_place(ndp_row_fit *f, int32_t n, int32_t *place);

#endif
