/* The experts that the rows of a run go to, in every mixture: read from a file, or recorded by another run. A mixture
 * that is given its choices does not choose, so that two runs of which one would choose otherwise, because two logits
 * lie within rounding, can be compared. */
#ifndef NDP_BATCH_CHOICES_H
#define NDP_BATCH_CHOICES_H

#include "model/model.h"

typedef struct ndp_choices {
    int updates; /* after the last one the first one's follow again */
    ndp_mixtures mixtures;
    int64_t rows;         /* of an update: those of its samples, one after the other */
    int32_t *chosen;      /* [updates][mixtures][rows][choices]; a row of -1 goes nowhere */
    float *probabilities; /* [updates][mixtures][rows][experts], softmax of the router's logits, or the keys of a router
                             of sigmoids; NULL: not known */
} ndp_choices;

/* Room for the choices, and for probabilities if they are to be kept; zeros. NDP_ENOMEM. */
NDP_API ndp_status ndp_choices_init(ndp_choices *c, int updates, const ndp_mixtures *m, int64_t rows,
                                    bool probabilities);
/* Accepts {0}. */
void ndp_choices_release(ndp_choices *c);

/* Bytes of a table with probabilities. */
int64_t ndp_choices_bytes(int updates, const ndp_mixtures *m, int64_t rows);

/* Where a row's choices are, or its probabilities. `update` counts from 0, through all repetitions. */
static inline int64_t ndp_choices_row(const ndp_choices *c, int64_t update, int mixture, int64_t row) {
    return (update % c->updates * c->mixtures.n + mixture) * c->rows + row;
}

/* Reads moe.routes for a model whose updates have so many rows: of each mixture UNIT, such as layers.3, the tensor
 * UNIT.choices, i32 [rows, choices]. NDP_EFORMAT names the file and the tensor, and a row that has an expert twice, one
 * that there is not, or some -1; NDP_EINVAL: the model has no mixtures. */
NDP_API ndp_status ndp_choices_read(const char *path, const ndp_model *m, int64_t rows, ndp_choices *out);

#endif
