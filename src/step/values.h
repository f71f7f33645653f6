/* Watching the values of steps: the host reads what each call wrote, and keeps the first value that is not finite. For
 * a step that is repeated since something was wrong with it; it takes several times as long. */
#ifndef NDP_STEP_VALUES_H
#define NDP_STEP_VALUES_H

#include "step/engine.h"

/* A value that a call wrote, or a weight that it read. */
typedef struct ndp_found_value {
    /* Where in the step. A value can be caused by those of a lower number alone, on this rank and on others: the
     * micro-batch, then the forward before the backward, then the unit. INT64_MAX: nothing was found. */
    int64_t order;
    int micro_batch; /* < 0: of none */
    int64_t row;     /* of the micro-batch, before the axes cut it; < 0: it is of no row, or of several */
    double value;
    char where[96];                     /* "layers.3, backward of inputs" */
    char op[24];                        /* the op */
    char tensor[NDP_SEGMENT_NAME + 64]; /* "weight model.norm.weight[0,7]", "result h", */
} ndp_found_value;

typedef struct ndp_step_values {
    ndp_found_value bad;     /* the first one that is not finite, by its order */
    ndp_found_value worst;   /* of the losses of tokens, the largest */
    ndp_found_value largest; /* of the activations, the one with the largest magnitude */
    void *room;              /* for what the device holds; owned */
    size_t bytes;
} ndp_step_values;

/* From the next step on, or no longer with NULL. Borrows `values`, which the caller empties with
 * ndp_step_values_begin before each step. No step is pending. */
void ndp_engine_watch_values(ndp_engine *e, ndp_step_values *values);
void ndp_step_values_begin(ndp_step_values *v);
void ndp_step_values_release(ndp_step_values *v);

#endif
