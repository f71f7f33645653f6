/* Sums (and maxima) of the same elements of several ranks, always in rank order: ((r0 + r1) + r2) ... */
#ifndef NDP_COMM_RANK_SUM_H
#define NDP_COMM_RANK_SUM_H

#include "comm/comm.h"

/* True for types that can be reduced: fp32, fp64, i64, and bf16, which is summed in fp32 and rounded once. */
bool ndp_reduce_knows(ndp_dtype type);

/* outs[k][i] = (accumulate ? outs[0][i] : nothing) op in[0][i] op ... in[ranks - 1][i], for every k. An `in` may be one
 * of the `outs`. Large buffers are split over the calling thread's OpenMP threads; the bits do not depend on it. */
void ndp_reduce_ranks(ndp_dtype type, ndp_reduce op, void *const *in, int ranks, void *const *outs, int n_outs,
                      int64_t count, bool accumulate);

/* memcpy, over the calling thread's OpenMP threads if it is large; nothing if to == from. */
void ndp_copy_large(void *to, const void *from, size_t bytes);

#endif
