/* Greedy choice, and sampling with temperature and top-p from the counter-based random numbers of a position. */
#include "infer/choose.h"

#include "base/rng.h"
#include <math.h>
#include <stdlib.h>

static int64_t best_of(const float *logits, int64_t vocab) {
    int64_t best = 0;
    for (int64_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

static int by_weight_then_id(const void *a, const void *b) {
    const ndp_candidate *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Sorts the candidates and returns the smallest number of the best whose share is top_p; *total becomes their weight.
 */
static int64_t keep_top_p(const ndp_choice *c, ndp_candidate *room, int64_t n, double *total) {
    if (c->top_p >= 1)
        return n;
    qsort(room, (size_t)n, sizeof *room, by_weight_then_id);
    double sum = 0, enough = c->top_p * *total;
    int64_t kept = 0;
    do
        sum += room[kept++].weight;
    while (kept < n && sum < enough);
    *total = sum;
    return kept;
}

ndp_status ndp_choose(const ndp_choice *c, const float *logits, int64_t vocab, int64_t position, ndp_candidate *room,
                      int32_t *id) {
    int64_t best = best_of(logits, vocab);
    double total = 0;
    NDP_CHECK(isfinite(logits[best]), "the model's logits at position %lld are not finite: its weights overflow",
              (long long)position);
    if (c->temperature == 0) {
        *id = (int32_t)best;
        return NDP_OK;
    }
    for (int64_t i = 0; i < vocab; i++) {
        room[i] = (ndp_candidate){exp(((double)logits[i] - logits[best]) / c->temperature), (int32_t)i};
        total += room[i].weight;
    }
    NDP_CHECK(isfinite(total), "the model's logits at position %lld are not finite: its weights overflow",
              (long long)position);
    int64_t n = keep_top_p(c, room, vocab, &total), pick = 0;
    uint64_t draw = c->number << 32 | (uint64_t)position;
    double at = ndp_rng_uniform(c->seed, ndp_rng_stream("generate"), draw) * total, sum = room[0].weight;
    while (pick < n - 1 && sum <= at)
        sum += room[++pick].weight;
    *id = room[pick].id;
    return NDP_OK;
}
