/* Weights that tokens have in the loss by their own logits, without a gradient through them:
 *
 *   entropy       (H / unit)^alpha, H the entropy of the softmax of the k largest logits (EAFT, as Axolotl and
 *                 LLaMA-Factory have it)
 *   probability   that of the label (DFT, arXiv:2508.05629)
 *
 * Slices of a vocabulary give their k largest logits each; the k largest of those are the whole's. */
#ifndef NDP_OPS_TOKEN_WEIGHT_H
#define NDP_OPS_TOKEN_WEIGHT_H

#include "ops/op.h"

#include <math.h>

#define NDP_TOKEN_WEIGHTS(X)                                                                                           \
    X(NONE, none)                                                                                                      \
    X(ENTROPY, entropy)                                                                                                \
    X(PROBABILITY, probability)
#define NDP_TOKEN_WEIGHT_ENUMERATOR(NAME, name) NDP_TOKEN_WEIGHT_##NAME,
typedef enum ndp_token_weight { NDP_TOKEN_WEIGHTS(NDP_TOKEN_WEIGHT_ENUMERATOR) } ndp_token_weight;
#undef NDP_TOKEN_WEIGHT_ENUMERATOR

/* What the section `loss` says of it. */
typedef struct ndp_token_weighting {
    ndp_token_weight kind;
    int k;              /* largest logits, at most NDP_MOST_TOP */
    double alpha, unit; /* the exponent; the entropy, in nats, of a token with weight 1 */
} ndp_token_weighting;

/* The k largest of some numbers, largest first. */
enum { NDP_MOST_TOP = 64 };
typedef struct ndp_top {
    int k, n; /* n: that are there, at most k */
    double x[NDP_MOST_TOP];
} ndp_top;

/* Those that an op looks for: 0 of an op without such a weight. */
static inline int ndp_top_count(const ndp_op_attr *a) { return a->loss == NDP_TOKEN_WEIGHT_ENTROPY ? a->choices : 0; }

/* k > 0 */
static inline void ndp_top_add(ndp_top *t, double x) {
    if (x == -INFINITY || (t->n == t->k && !(x > t->x[t->n - 1])))
        return;
    int i = t->n < t->k ? t->n++ : t->n - 1;
    for (; i > 0 && t->x[i - 1] < x; i--)
        t->x[i] = t->x[i - 1];
    t->x[i] = x;
}

/* Number i; -INFINITY: there are fewer. */
static inline double ndp_top_at(const ndp_top *t, int i) { return i < t->n ? t->x[i] : -INFINITY; }

/* In nats, of softmax(x). */
static inline double ndp_top_entropy(const ndp_top *t) {
    double sum = 0, mean = 0;
    for (int i = 0; i < t->n; i++) {
        double below = t->x[i] - t->x[0];
        sum += exp(below), mean += exp(below) * below;
    }
    return sum > 0 ? log(sum) - mean / sum : 0;
}

/* The weight of a token with that entropy, and that loss without a weight. */
static inline double ndp_token_weight_of(const ndp_op_attr *a, double entropy, double nll) {
    return a->loss == NDP_TOKEN_WEIGHT_ENTROPY       ? pow(a->scale * fmax(entropy, 0), a->gamma)
           : a->loss == NDP_TOKEN_WEIGHT_PROBABILITY ? exp(-nll)
                                                     : 1;
}

#endif
