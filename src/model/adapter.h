/* Adapters: small trained factors beside frozen projections, in one of the forms of adapter_form.h.
 *
 *   y = x W^T + scale (x A^T) B^T      W [N,K] frozen, A [r,K], B [N,r], r much smaller than N and K
 *
 * With lengths m [N] of rows y = (m / |W + scale B A|) (x W^T + ...), where the norm |.| has no gradient. */
#ifndef NDP_MODEL_ADAPTER_H
#define NDP_MODEL_ADAPTER_H

#include "base/text.h"
#include "model/adapter_form.h"
#include "tensor/segments.h"

typedef struct ndp_adapter {
    int r; /* 0: there is no adapter */
    ndp_adapter_form form;
    double scale;               /* ndp_adapter_scale */
    double dropout;             /* of A's input in training */
    bool random_b;              /* B starts random too, so that A has a gradient from the first step on */
    const char *const *targets; /* names of projections, patterns (fnmatch) of tensors' names, or "linear"; borrowed */
    int n_targets;
    const char *const *save; /* modules that are trained whole; borrowed */
    int n_save;
} ndp_adapter;

/* Initial values of `count` elements of a factor from `first` on that starts random or 0 (ndp_factor_rules), a function
 * of (seed, name, element); with random_b what starts as 0 is uniform in +- 0.02. */
void ndp_factor_random(const ndp_adapter *a, uint64_t seed, const ndp_segment *s, int64_t first, int64_t count,
                       float *out);

/* The parameter that a stack of experts is in transformers from 5 on: "model.layers.0.mlp.experts.gate_up_proj". */
void ndp_stack_parameter(const ndp_segment *s, char out[NDP_SEGMENT_NAME]);

/* How the experts of a stack have factors, by targets that say "experts"; others, "linear" among them, leave experts
 * out. */
typedef enum ndp_stack_factors {
    NDP_STACK_FACTORS_NONE,
    NDP_STACK_FACTORS_JOINT, /* a target is the end of the name of its parameter, or a pattern of it: gate and up of an
                                expert share a pair, and files have one tensor for all experts */
    NDP_STACK_FACTORS_SINGLE /* targets name all its matrices: each has a pair, with tensors of its own */
} ndp_stack_factors;
ndp_stack_factors ndp_adapter_of_stack(const ndp_adapter *a, const ndp_segment *s);

struct ndp_model;
/* Appends what has factors in a model that is built with an adapter: its targets, with the last words of the names of
 * all projections for "linear"; and of a mixture, whether its experts have none. */
void ndp_adapter_describe(const struct ndp_model *m, ndp_str *out);

#endif
