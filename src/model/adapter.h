/* Adapters: small trained factors beside frozen projections (LoRA, Hu et al., arXiv:2106.09685).
 *
 *   y = x W^T + scale (x A^T) B^T      W [N,K] frozen, A [r,K], B [N,r], r much smaller than N and K
 *
 * DoRA (Liu et al., arXiv:2402.09353) also trains the length m [N] of each row: y = (m / |W + scale B A|) (x W^T +
 * ...), where the norm |.| has no gradient. Names in files are those of PEFT. */
#ifndef NDP_MODEL_ADAPTER_H
#define NDP_MODEL_ADAPTER_H

#include "base/text.h"
#include "tensor/segments.h"

typedef struct ndp_adapter {
    int r;          /* 0: there is no adapter */
    double scale;   /* alpha / r, or alpha / sqrt(r) */
    double dropout; /* of A's input in training */
    bool dora;
    bool random_b;              /* B starts random too, so that A has a gradient from the first step on */
    const char *const *targets; /* names of projections, patterns (fnmatch) of tensors' names, or "linear"; borrowed */
    int n_targets;
    const char *const *save; /* modules that are trained whole; borrowed */
    int n_save;
} ndp_adapter;

/* Before the name of a tensor of an adapter: PEFT wraps the model. */
#define NDP_ADAPTER_PREFIX "base_model.model."

/* What an adapter has beside a projection: A, B, the lengths of DoRA. */
typedef enum ndp_factor { NDP_FACTOR_A, NDP_FACTOR_B, NDP_FACTOR_LENGTH, NDP_NO_FACTOR } ndp_factor;
/* Which factor a tensor is, by its name. */
ndp_factor ndp_factor_of(const char *tensor);
/* Initial values of `count` elements of A or B from `first` on, a function of (seed, name, element): A uniform in
 * +- 1 / sqrt(columns), as PEFT's kaiming_uniform with a = sqrt(5); B 0, or with random_b uniform in +- 0.02. */
void ndp_factor_random(const ndp_adapter *a, uint64_t seed, const ndp_segment *s, int64_t first, int64_t count,
                       float *out);

struct ndp_model;
/* Appends what has factors in a model that is built with an adapter: its targets, with the last words of the names of
 * all projections for "linear"; and of a mixture, that its experts have none. */
void ndp_adapter_describe(const struct ndp_model *m, ndp_str *out);

#endif
