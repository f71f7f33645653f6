/* The head with a loss that is a function of logits, which the host runs: row_loss, and row_slopes, which is what is
 * left of it once products are written apart (parallel/tensor.c). */
#include "ops/flow.h"
#include "ops/shape.h"
#include "ops/xent_rows.h"

/* row_loss ------------------------------------------------------------------------------------------------------- */

static ndp_status loss_shape(ndp_op_call *c) {
    const ndp_view *x = &c->in[0], *w = &c->in[1];
    NDP_TRY(ndp_xent_check(c, x, w, &c->in[2]));
    NDP_SHAPE_CHECK(ndp_xent_scale_fits(&c->in[3], x), "row_loss: scale " NDP_SHAPE, NDP_SHAPE_ARGS(c->in[3]));
    ndp_shape_set(&c->out[0], x->rows, 1, ndp_wide(x->dtype));
    ndp_shape_like(&c->out[1], x);
    ndp_shape_set(&c->out[2], w->rows, w->cols, ndp_wide(w->dtype));
    return NDP_OK;
}

const ndp_op ndp_op_row_loss = {
    NDP_NAMED(row_loss),     .n_in = 4,           .n_out = 3,
    .rows = NDP_ROWS_SUMMED, .shape = loss_shape, .reads = NDP_READS_vocab | NDP_READS_cap | NDP_READS_train,
};

/* row_slopes ----------------------------------------------------------------------------------------------------- */

static ndp_status slopes_shape(ndp_op_call *c) {
    const ndp_view *logits = &c->in[0], *all = &c->in[1], *labels = &c->in[2];
    int64_t parts = c->attr->parts, most = (c->attr->vocab + parts - 1) / (parts > 0 ? parts : 1);
    NDP_SHAPE_CHECK(parts >= 1 && (all->rows > 0 || parts == 1) && logits->dtype == ndp_wide(logits->dtype),
                    "row_slopes: logits " NDP_SHAPE " of %lld slices", NDP_SHAPE_ARGS(*logits), (long long)parts);
    NDP_SHAPE_CHECK(!all->rows ||
                        (all->rows == parts * logits->rows && all->cols == most && all->dtype == logits->dtype),
                    "row_slopes: logits " NDP_SHAPE " of all %lld slices of %lld ids, " NDP_SHAPE " of one",
                    NDP_SHAPE_ARGS(*all), (long long)parts, (long long)c->attr->vocab, NDP_SHAPE_ARGS(*logits));
    NDP_SHAPE_CHECK(labels->dtype == NDP_I32 && labels->rows == logits->rows && ndp_xent_scale_fits(&c->in[3], logits),
                    "row_slopes: labels " NDP_SHAPE ", scale " NDP_SHAPE, NDP_SHAPE_ARGS(*labels),
                    NDP_SHAPE_ARGS(c->in[3]));
    ndp_shape_set(&c->out[0], logits->rows, 1, logits->dtype);
    ndp_shape_set(&c->out[1], logits->rows, logits->cols, c->attr->type);
    return NDP_OK;
}

/* The function's own cost is not known: it reads each logit and writes a slope, as cross-entropy does, and the host
 * copies both. */
static void slopes_cost(const ndp_op_call *c, double *flops, double *bytes) {
    double all = c->in[1].rows ? ndp_elements(&c->in[1]) : ndp_elements(&c->in[0]);
    *flops = 14 * all;
    *bytes += 4 * all * (double)ndp_dtype_size(c->in[0].dtype);
}

const ndp_op ndp_op_row_slopes = {
    NDP_NAMED(row_slopes),
    .n_in = 4,
    .n_out = 2,
    .optional_in = 1u << 1,
    .constant = true,
    .rows = NDP_ROWS_ALIKE,
    .shape = slopes_shape,
    .cost = slopes_cost,
    .reads = NDP_READS_vocab | NDP_READS_cap | NDP_READS_parts | NDP_READS_type,
    NDP_FLOWS(
        {.node = &ndp_op_row_loss,
         .in = {NDP_IS(LOGITS, 0, "tn"), NDP_IS(ANY, 0, ".."), NDP_IS(OPERAND, 2, "t1"), NDP_IS(OPERAND, 3, "t1")},
         .out = {NDP_IS(RESULT, 0, "t1", .times = NDP_TIMES_UNSUMMED), NDP_IS(SLOPES, 0, "tn")}}),
};
