/* The vectorised kernels that are not matrix products. Each works on a range of independent pieces of a call: rows, or,
 * where rows are summed into a gradient, blocks of NDP_COLUMN_BLOCK columns. Sums over rows run in row order inside
 * a piece, so that results do not depend on how pieces are spread over threads.
 *
 * rows_impl.h holds them as plain C; it is compiled once for any CPU and once for AVX-512. */
#ifndef NDP_OPS_CPU_ROWS_H
#define NDP_OPS_CPU_ROWS_H

#include "ops/op.h"

enum { NDP_COLUMN_BLOCK = 64 };

/* Pieces first .. last-1. */
typedef void (*ndp_range_kernel)(const ndp_op_call *call, int64_t first, int64_t last);

/* By rows, then by column blocks. Those named softmax_ are pieces of xent, xent_logits and xent_grad (ops/xent.h):
 * softmax_xent  (logits [R,V] fp32, labels~, scale)     -> nll [R,1], dlogits
 * softmax_stats (logits, labels~)                       -> stats [R,3]
 * softmax_grad  (logits, labels~, scale, stats [P*R,3]) -> nll, dlogits
 * dlogits are made with attr.train, fp32 or bf16 in the memory of the logits. */
#define NDP_RANGE_KERNELS(X)                                                                                           \
    X(embedding)                                                                                                       \
    X(rmsnorm)                                                                                                         \
    X(rmsnorm_dx)                                                                                                      \
    X(add_rmsnorm)                                                                                                     \
    X(layernorm)                                                                                                       \
    X(layernorm_dx)                                                                                                    \
    X(mean_squares)                                                                                                    \
    X(mean_squares_dx)                                                                                                 \
    X(norm_by)                                                                                                         \
    X(norm_by_dx)                                                                                                      \
    X(rope)                                                                                                            \
    X(swiglu)                                                                                                          \
    X(swiglu_bwd)                                                                                                      \
    X(geglu)                                                                                                           \
    X(geglu_bwd)                                                                                                       \
    X(gelu)                                                                                                            \
    X(gelu_bwd)                                                                                                        \
    X(scale)                                                                                                           \
    X(cap)                                                                                                             \
    X(add)                                                                                                             \
    X(add_bias)                                                                                                        \
    X(copy_sum)                                                                                                        \
    X(copy)                                                                                                            \
    X(heads_split)                                                                                                     \
    X(heads_merge)                                                                                                     \
    X(attention_merge)                                                                                                 \
    X(softmax_xent)                                                                                                    \
    X(softmax_stats)                                                                                                   \
    X(softmax_grad)                                                                                                    \
    X(embedding_dw)                                                                                                    \
    X(rmsnorm_dw)                                                                                                      \
    X(layernorm_dw)                                                                                                    \
    X(linear_db)

typedef struct ndp_rows {
#define X(name) ndp_range_kernel name;
    NDP_RANGE_KERNELS(X)
#undef X
} ndp_rows;

extern const ndp_rows ndp_rows_generic, ndp_rows_avx512;

/* The table for this CPU. */
const ndp_rows *ndp_rows_best(void);

/* Spreads `pieces` over call->threads threads, each a contiguous range. */
void ndp_rows_run(const ndp_op_call *call, int64_t pieces, ndp_range_kernel kernel);

static inline int64_t ndp_column_blocks(int64_t cols) { return (cols + NDP_COLUMN_BLOCK - 1) / NDP_COLUMN_BLOCK; }

#endif
