/* Inside the train room: which evaluation of a run was the best, and FOLDER/best, the model of that step. */
#ifndef NDP_TRAIN_BEST_H
#define NDP_TRAIN_BEST_H

#include "base/status.h"

/* The evaluations of a run so far; `{0}`: there was none. */
typedef struct ndp_best {
    int64_t step; /* of the lowest eval_loss, the first of equal ones; 0: none that is finite */
    double loss;
    int64_t since;  /* evaluations after it */
    int64_t newest; /* the step of the newest one, and its loss */
    double newest_loss;
} ndp_best;

/* The model in FOLDER/best. */
typedef struct ndp_best_model {
    int64_t step; /* 0: there is none */
    double loss;
} ndp_best_model;

/* Counts an evaluation. A loss that is not finite is no better than any. */
void ndp_best_count(ndp_best *b, int64_t step, double loss);

/* Settles what a run that was killed left while it replaced FOLDER/best: puts the newest whole one in its place if
 * there is none, and removes the rest. */
ndp_status ndp_best_clean(const char *folder);

#endif
