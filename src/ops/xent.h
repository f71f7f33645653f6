/* The head, as xent has it for the whole vocabulary and xent_logits and xent_grad for a slice of it:
 *
 *   logits [R,V] = x w^T -> softmax: nll and dlogits, in the logits' place -> dx = dlogits w, dw (+)= dlogits^T x
 *
 * Here are the products, and the softmax on `ref`; that of the cpu is in cpu/rows_softmax.h. */
#ifndef NDP_OPS_XENT_H
#define NDP_OPS_XENT_H

#include "ops/gemm.h"
#include "ops/op.h"

/* Some rows of a head; absent gradients have no rows. */
typedef struct ndp_xent_rows {
    ndp_view x, w, labels, logits, dlogits, nll, dx, dw;
} ndp_xent_rows;

typedef enum ndp_xent_product { NDP_XENT_LOGITS, NDP_XENT_DX, NDP_XENT_DW } ndp_xent_product;

/* x, w, labels and the number of real columns fit; `op` for the message. */
ndp_status ndp_xent_check(const char *op, const ndp_op_attr *attr, const ndp_view *x, const ndp_view *w,
                          const ndp_view *labels);

/* Where dlogits lie: in the logits, and on the cpu those of bf16 in fp32 logits, each row at the start of its row. */
ndp_view ndp_xent_dlogits(const ndp_view *logits, ndp_dtype x_type);

/* Rows without labels cost nothing: their results are cleared. */
bool ndp_xent_any_label(const ndp_view *labels);
void ndp_xent_clear(const ndp_view *v);

/* Makes the plan of a product of some rows of a call, and raises *scratch to what it needs. `accumulate`: for dw. */
ndp_status ndp_xent_plan(const ndp_op_call *c, const ndp_xent_rows *r, ndp_xent_product product, bool accumulate,
                         size_t *scratch);
/* Multiplies by the plan that was made; nothing when the product's output is absent. */
void ndp_xent_multiply(const ndp_op_call *c, const ndp_xent_rows *r, ndp_xent_product product, bool accumulate,
                       void *scratch);
void ndp_xent_multiply_ref(const ndp_xent_rows *r, ndp_xent_product product, bool accumulate, void *scratch);
/* The widest of the three products of some rows. */
size_t ndp_xent_ref_scratch(int64_t rows, const ndp_view *w);

/* Of a row's real columns: the sum is of exp(logit - max); at_label is 0 when the label is in another slice. */
typedef struct ndp_xent_stats {
    double max, sum, at_label;
} ndp_xent_stats;

/* Caps the row's logits first, where attr->cap says so. */
ndp_xent_stats ndp_xent_stats_ref(const ndp_op_attr *attr, const ndp_xent_rows *r, int64_t t);
/* nll, and with attr->train dlogits, of row t by the stats of the whole vocabulary. */
void ndp_xent_finish_ref(const ndp_op_attr *attr, const ndp_xent_rows *r, int64_t t, const ndp_xent_stats *stats,
                         double scale);

#endif
