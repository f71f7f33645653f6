/* How routers of sigmoids choose, in fp64 on every device: an expert's key is the sigmoid of its logit plus a bias.
 * Equal groups of experts are open, or not, by the sum of their best keys; a row chooses in open ones alone. The bias
 * only chooses: weights are the sigmoids. Source: DeepSeek-V3 (arXiv:2412.19437, 2.1.2), transformers' glm4_moe. */
#ifndef NDP_OPS_ROUTE_H
#define NDP_OPS_ROUTE_H

#include "ops/op.h"

#include <math.h>

/* The first expert of a rank, of `ranks` that have `experts` together; and the rank that has an expert. */
static inline int64_t ndp_expert_first(int64_t experts, int64_t rank, int64_t ranks) { return experts * rank / ranks; }
static inline int64_t ndp_expert_rank(int64_t experts, int64_t expert, int64_t ranks) {
    return (ranks * (expert + 1) - 1) / experts;
}

/* Rounds of route_exchange. The rows that come to a rank count their choices of its experts, in the order of ranks and
 * rows. A row goes in the round that the choices before it fall into, of so many each: its own, at most K, are within
 * the capacity still. So every rank knows from all choices alone what goes when. */
static inline int64_t ndp_round_choices(const ndp_op_attr *a, int64_t k) {
    return a->capacity > 0 ? a->capacity - k + 1 : INT64_MAX;
}
/* The rounds that may follow the first one, of `choices` to one rank; the last of them may be empty. */
static inline int64_t ndp_later_rounds(const ndp_op_attr *a, int64_t k, int64_t choices) {
    return choices > 0 ? (choices - 1) / ndp_round_choices(a, k) : 0;
}

enum { NDP_MOST_GROUPS = 64 }; /* bits of a set of them */
enum { NDP_MOST_BEST = 2 };    /* of attr.group_best */
#define NDP_ROUTE_LEAST 1e-20  /* is added to the sum of a row's sigmoids, which may all be 0 */
#define NDP_ALL_GROUPS (~0ull)

static inline double ndp_route_score(double logit) { return 1 / (1 + exp(-logit)); }

/* What a row's weights are multiplied by. */
static inline double ndp_route_scale(const ndp_op_attr *a) { return a->scale > 0 ? a->scale : 1; }

static inline bool ndp_route_closes(const ndp_op_attr *a) { return a->groups > a->open_groups; }

/* The largest keys of a group. */
typedef struct ndp_route_best {
    double first, second;
} ndp_route_best;

static inline void ndp_route_best_add(ndp_route_best *b, double key) {
    if (key > b->first)
        b->second = b->first, b->first = key;
    else if (key > b->second)
        b->second = key;
}

/* The open groups, by what each counts; the lower one of equal ones. */
static inline uint64_t ndp_route_open(const ndp_op_attr *a, const ndp_route_best *of) {
    uint64_t open = 0;
    for (int n = 0; n < a->open_groups; n++) {
        int best = -1;
        double most = 0;
        for (int g = 0; g < a->groups; g++) {
            double counts = a->group_best == 1 ? of[g].first : of[g].first + of[g].second;
            if (!(open >> g & 1) && (best < 0 || counts > most))
                best = g, most = counts;
        }
        open |= 1ull << best;
    }
    return open;
}

#endif
