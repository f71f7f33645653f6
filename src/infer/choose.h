/* Inside the infer room: the next token from its logits. */
#ifndef NDP_INFER_CHOOSE_H
#define NDP_INFER_CHOOSE_H

#include "base/status.h"

typedef struct ndp_candidate {
    double weight;
    int32_t id;
} ndp_candidate;

typedef struct ndp_choice {
    double temperature; /* 0: the most likely token; the lowest id in a tie */
    double top_p;       /* samples from the most likely tokens that together have this probability */
    uint64_t seed;
    uint64_t number; /* of the text, below 2^32: texts of one seed draw different numbers */
} ndp_choice;

/* Chooses a token. The result depends only on the logits, the seed, the text's number and the position. `room`: space
 * for `vocab` candidates, not used at temperature 0. NDP_EINVAL: the logits are not finite. */
NDP_API ndp_status ndp_choose(const ndp_choice *c, const float *logits, int64_t vocab, int64_t position,
                              ndp_candidate *room, int32_t *id);

#endif
