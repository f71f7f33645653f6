/* Inside the infer room: the next token from its logits. */
#ifndef NDP_INFER_CHOOSE_H
#define NDP_INFER_CHOOSE_H

#include "base/status.h"

typedef struct ndp_candidate {
    double weight;
    int32_t id;
} ndp_candidate;

typedef struct ndp_choice {
    double temperature; /* 0: the best; of equals the lowest id */
    double top_p;       /* draws among the best that together have this probability */
    uint64_t seed;
} ndp_choice;

/* A function of the logits, the seed and the position alone. `room`: vocab candidates to work in; not touched at
 * temperature 0. NDP_EINVAL: the logits are not finite. */
NDP_API ndp_status ndp_choose(const ndp_choice *c, const float *logits, int64_t vocab, int64_t position,
                              ndp_candidate *room, int32_t *id);

#endif
