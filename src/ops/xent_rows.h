/* Some rows of the head, as xent has them for the whole vocabulary, and xent_logits and xent_grad for a slice of it:
 *
 *   logits [R,V] = x w^T -> softmax: nll and dlogits, in the logits' place -> dx = dlogits w, dw (+)= dlogits^T x
 *
 * What their rules and the kernels of all devices share. */
#ifndef NDP_OPS_XENT_ROWS_H
#define NDP_OPS_XENT_ROWS_H

#include "ops/token_weight.h"

enum { NDP_XENT_VALUES = 2 }; /* columns: the entropy, the best id */

/* Of a token's weight. */
#define NDP_READS_WEIGHT (NDP_READS_loss | NDP_READS_choices | NDP_READS_scale | NDP_READS_gamma)

/* Absent gradients, and values, have no rows. */
typedef struct ndp_xent_rows {
    ndp_view x, w, labels, scale, logits, dlogits, nll, values, dx, dw;
} ndp_xent_rows;

typedef enum ndp_xent_product { NDP_XENT_LOGITS, NDP_XENT_DX, NDP_XENT_DW } ndp_xent_product;

/* to = a b, or their transposes; `to` may be absent. */
typedef struct ndp_xent_operands {
    const ndp_view *a, *b, *to;
    bool trans_a, trans_b;
} ndp_xent_operands;
ndp_xent_operands ndp_xent_operands_of(const ndp_xent_rows *r, ndp_xent_product product);

/* x, w, labels and the number of real columns of a call fit. */
ndp_status ndp_xent_check(const ndp_op_call *c, const ndp_view *x, const ndp_view *w, const ndp_view *labels);

/* One number for all rows of x, or one each. */
static inline bool ndp_xent_scale_fits(const ndp_view *scale, const ndp_view *x) {
    return scale->dtype == NDP_F64 && scale->cols == 1 && (scale->rows == 1 || scale->rows == x->rows);
}
/* That of row t. */
static inline double ndp_xent_scale_at(const ndp_view *scale, int64_t t) {
    return ((const double *)scale->data)[scale->rows > 1 ? t * scale->ld : 0];
}

/* Sets the shapes of both gradients, or of values. */
void ndp_xent_shapes(ndp_op_call *c, const ndp_view *x, const ndp_view *w, ndp_dtype dx_type);

/* Where dlogits of bf16 operands are on the cpu: in the fp32 logits, each row at the start of its row. */
ndp_view ndp_xent_dlogits(const ndp_view *logits, ndp_dtype x_type);

/* Rows without labels cost nothing: their results are cleared. */
bool ndp_xent_any_label(const ndp_view *labels);

/* ---- xent: chunks of rows ---- */

/* Rows of a chunk on the cpu. Each chunk reads w twice, and reads and writes dw: the faster the products, the more rows
 * it takes to outweigh that. */
static inline int64_t ndp_xent_chunk_rows(const ndp_op_call *c) { return c->in[0].dtype == NDP_BF16 ? 512 : 256; }

/* Rows first .. first+n-1 of a call to xent, with logits in its scratch memory; gradients only with attr.train. */
ndp_xent_rows ndp_xent_chunk(const ndp_op_call *c, int64_t first, int64_t n, ndp_dtype logits_type);

/* How a device runs a chunk that has labels; `accumulate`: dw is added to. */
typedef ndp_status (*ndp_xent_chunk_kernel)(const ndp_op_call *c, const ndp_xent_rows *r, bool accumulate);
/* Runs a call to xent, `rows` rows at a time. */
ndp_status ndp_xent_run_chunks(const ndp_op_call *c, int64_t rows, ndp_dtype logits_type, ndp_xent_chunk_kernel kernel);

/* ---- xent_logits, xent_grad ---- */

/* Columns of the statistics: maximum, sum, the label's logit; with attr.values also the slice's mean logit and its best
 * id; its largest logits, if a token's weight is made of them. */
enum { NDP_XENT_STATS = 3 }; /* without those */
static inline int ndp_xent_stats(const ndp_op_call *c) {
    return NDP_XENT_STATS + (c->attr->values ? NDP_XENT_VALUES : 0) + ndp_top_count(c->attr);
}

enum { NDP_XENT_G_LOGITS, NDP_XENT_G_STATS, NDP_XENT_G_X, NDP_XENT_G_W, NDP_XENT_G_LABELS, NDP_XENT_G_SCALE };

ndp_xent_rows ndp_xent_logits_rows(const ndp_op_call *c);
/* `narrow`: dlogits as ndp_xent_dlogits says; else they are the logits. */
ndp_xent_rows ndp_xent_grad_rows(const ndp_op_call *c, bool narrow);
/* True when no row has a label: then all results of xent_grad are cleared. */
bool ndp_xent_grad_ignored(const ndp_op_call *c, const ndp_xent_rows *r);

#endif
