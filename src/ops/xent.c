/* The head over the whole vocabulary: logits, softmax and cross-entropy of a chunk of rows at a time, and with
 * attr.train their gradients, made while the chunk's logits are there. */
#include "ops/flow.h"
#include "ops/shape.h"
#include "ops/xent_rows.h"

#include <math.h>

static ndp_status shape(ndp_op_call *c) {
    const ndp_view *x = &c->in[0], *w = &c->in[1], *scale = &c->in[3];
    NDP_TRY(ndp_xent_check(c, x, w, &c->in[2]));
    NDP_SHAPE_CHECK(c->attr->vocab >= 1 && ndp_xent_scale_fits(scale, x), "xent: %lld real columns, scale " NDP_SHAPE,
                    (long long)c->attr->vocab, NDP_SHAPE_ARGS(*scale));
    ndp_shape_set(&c->out[0], x->rows, 1, ndp_wide(x->dtype));
    ndp_xent_shapes(c, x, w, x->dtype);
    return NDP_OK;
}

/* The forward made both gradients; dw went where it belongs. */
static ndp_status backward(ndp_bwd *b) { return b->wants(b, 0) ? b->pass_grad(b, 0, b->out[1]) : NDP_OK; }

static void cost(const ndp_op_call *c, double *flops, double *bytes) {
    double rows = (double)c->in[0].rows, vocab = (double)c->in[1].rows,
           chunks = ceil(rows / (double)ndp_xent_chunk_rows(c));
    double products = 1 + (c->attr->train && c->out[1].rows) + (c->attr->train && c->out[2].rows);
    *flops = rows * vocab * (2 * products * (double)c->in[0].cols + 14);
    *bytes = chunks * products * ndp_view_bytes(&c->in[1]) + rows * vocab * 4 * (2 + products) +
             2 * ndp_view_bytes(&c->in[0]);
}

const ndp_op ndp_op_xent = {
    NDP_NAMED(xent),
    .n_in = 4,
    .n_out = 4,
    .rows = NDP_ROWS_SUMMED,
    .shape = shape,
    .backward = backward,
    .cost = cost,
    .reads = NDP_READS_vocab | NDP_READS_cap | NDP_READS_train | NDP_READS_first | NDP_READS_values | NDP_READS_WEIGHT,
    NDP_FLOWS(
        {.in = {NDP_IS(OPERAND, 0, "tC"), NDP_IS(OPERAND, 1, "VC"), NDP_IS(OPERAND, 2, "t1"), NDP_IS(OPERAND, 3, "t1")},
         .out = {NDP_IS(RESULT, 0, "t1"), NDP_IS(D_OPERAND, 0, "tC"), NDP_IS(D_OPERAND, 1, "VC"),
                 NDP_IS(RESULT, 3, "t.")}}),
};
