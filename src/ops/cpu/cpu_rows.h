/* The vectorised kernels that are not matrix products. Each works on a range of independent pieces of a call: rows, or,
 * where rows are summed into a gradient, blocks of NDP_COLUMN_BLOCK columns, or, in updates of optimizers, blocks of
 * NDP_SEGMENT_ALIGN elements (where states are codes, the blocks of these). Sums over rows run in row order inside a
 * piece, so that results do not depend on how pieces are spread over threads.
 *
 * They are plain C, in rows/, compiled once for any CPU and once for wider vectors, AVX-512 or SVE:
 * ndp_cpu_<op>_generic, ndp_cpu_<op>_avx512 or _sve. A new op by rows is a row of the list (ops/op.h) and a function
 * there. */
#ifndef NDP_OPS_CPU_CPU_ROWS_H
#define NDP_OPS_CPU_CPU_ROWS_H

#include "ops/op.h"

enum { NDP_COLUMN_BLOCK = 64 };

/* Pieces first .. last-1. */
typedef void (*ndp_range_kernel)(const ndp_op_call *call, int64_t first, int64_t last);

/* Pieces of xent, xent_logits and xent_grad (ops/xent_rows.h), by rows:
 * softmax_xent  (logits [R,V] fp32, labels~, scale)     -> nll [R,1], dlogits
 * softmax_stats (logits, labels~)                       -> stats [R,3]
 * softmax_grad  (logits, labels~, scale, stats [P*R,3]) -> nll, dlogits
 * dlogits are made with attr.train, fp32 or bf16 in the memory of the logits. */
#define NDP_SOFTMAX_KERNELS(X)                                                                                         \
    X(softmax_xent)                                                                                                    \
    X(softmax_stats)                                                                                                   \
    X(softmax_grad)

/* Those of the ops by rows, columns and pieces, and the parts of others. square_parts, of square_sum:
 * (grad [1,n] fp32 or bf16, a table of one piece) -> sums of squares of parts first .. last-1 (ops/pieces.h), fp64. */
#define NDP_RANGE_KERNELS(X) NDP_RANGE_OPS(X) NDP_SOFTMAX_KERNELS(X) X(square_parts)

typedef struct ndp_row_kernels {
#define X(name) ndp_range_kernel name;
    NDP_RANGE_KERNELS(X)
#undef X
} ndp_row_kernels;

#define X(name)                                                                                                        \
    void ndp_cpu_##name##_generic(const ndp_op_call *c, int64_t first, int64_t last);                                  \
    void ndp_cpu_##name##_avx512(const ndp_op_call *c, int64_t first, int64_t last);                                   \
    void ndp_cpu_##name##_sve(const ndp_op_call *c, int64_t first, int64_t last);
NDP_RANGE_KERNELS(X)
#undef X

/* Those for this CPU (cpu_choice_x86.c, cpu_choice_arm.c). */
const ndp_row_kernels *ndp_rows_best(void);

/* Spreads `pieces` over the threads of call->exec, each a contiguous range. NDP_OK. */
ndp_status ndp_rows_run(const ndp_op_call *call, int64_t pieces, ndp_range_kernel kernel);

/* Runs the kernel of an op by pieces on one piece of the table after the other. NDP_OK. */
ndp_status ndp_pieces_run(const ndp_op_call *call, ndp_range_kernel kernel);

static inline int64_t ndp_column_blocks(int64_t cols) { return (cols + NDP_COLUMN_BLOCK - 1) / NDP_COLUMN_BLOCK; }

#endif
