/* What the kernels of delta_rule share (ops/delta_rule.c). */
#ifndef NDP_OPS_DELTA_RULE_H
#define NDP_OPS_DELTA_RULE_H

#include "ops/shape.h"

/* Rows of a chunk, at most: products within it grow with their square, those with the state do not. */
enum { NDP_DELTA_CHUNK = 64 };

/* Added to the sum of squares that q and k are divided by. */
#define NDP_DELTA_EPS 1e-6

/* softplus is x above it, as torch's. */
#define NDP_SOFTPLUS_LINEAR 20

/* Of the value heads, for each key head. */
static inline int ndp_delta_group(const ndp_op_attr *a) { return a->heads / a->kv_heads; }

/* Row t begins a document: the state before it is 0. The first row of a piece may go on with one. */
static inline bool ndp_delta_begins(const ndp_view *start, int64_t t) { return ndp_int_at(start, t) >= t; }

/* Of conv_step: rows of its tail, one that is not used where there is a single tap. */
static inline int64_t ndp_tail_rows(int64_t taps) { return taps > 1 ? taps - 1 : 1; }

/* Of conv_step and delta_step: the text of row t; -1: it is padding. */
static inline int64_t ndp_text_of(const ndp_op_attr *a, const ndp_view *start, int64_t t) {
    int64_t at = ndp_int_at(start, t);
    return at % a->capacity == 0 ? at / a->capacity : -1;
}

#endif
