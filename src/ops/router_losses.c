/* Losses of a router, beside that of tokens, how often its experts are chosen, and the bias
 * that evens that out without a loss (arXiv:2408.15664). The balance loss (DeepSeek-V3,
 * arXiv:2412.19437, equations 17 to 20, of each sequence by itself) multiplies, for each expert, how often the rows of
 * a sample chose it with its probability in each of them; counts have no gradient, so the loss is linear in
 * probabilities, and each row has its own part of it. The z-loss (ST-MoE, arXiv:2202.08906) is the square of the log of
 * the sum of a row's exponentials. Both are means over all rows of an update that are not padding: no layout, and no
 * cut into micro-batches, changes them. */
#include "ops/router_losses.h"
#include "ops/flow.h"
#include "ops/shape.h"

static bool is_samples(const ndp_view *v, int64_t rows) {
    return v->dtype == NDP_I32 && v->rows == rows && v->cols == 1;
}

/* ---- choice_counts ---- */

static ndp_status counts_shape(ndp_op_call *c) {
    const ndp_view *choices = &c->in[0], *samples = &c->in[1];
    NDP_SHAPE_CHECK(choices->dtype == NDP_I32 && is_samples(samples, choices->rows) && c->attr->parts > 0 &&
                        c->attr->experts > 0,
                    "choice_counts: choices " NDP_SHAPE " of %d experts, samples " NDP_SHAPE " of %d",
                    NDP_SHAPE_ARGS(*choices), c->attr->experts, NDP_SHAPE_ARGS(*samples), c->attr->parts);
    ndp_shape_set(&c->out[0], c->attr->parts, c->attr->experts, NDP_F64);
    return NDP_OK;
}

const ndp_op ndp_op_choice_counts = {
    .id = NDP_OP_choice_counts,
    .name = "choice_counts",
    .n_in = 2,
    .n_out = 1,
    .rows = NDP_ROWS_MIXED,
    .constant = true,
    .shape = counts_shape,
    .flops = 1,
    .reads = NDP_READS_parts | NDP_READS_experts,
    NDP_FLOWS({.in = {NDP_IS(OPERAND, 0, "tK"), NDP_IS(OPERAND, 1, "t1")}, .out = {NDP_IS(RESULT, 0, "..")}}),
};

/* ---- choice_loads: a sum over all runs of the forward, which a recompute leaves as it is ---- */

static ndp_status loads_shape(ndp_op_call *c) {
    NDP_SHAPE_CHECK(c->in[0].dtype == NDP_I32 && c->attr->experts > 0,
                    "choice_loads: choices " NDP_SHAPE " of %d experts", NDP_SHAPE_ARGS(c->in[0]), c->attr->experts);
    ndp_shape_set(&c->out[0], 1, c->attr->experts, NDP_F64);
    return NDP_OK;
}

const ndp_op ndp_op_choice_loads = {
    .id = NDP_OP_choice_loads,
    .name = "choice_loads",
    .n_in = 1,
    .n_out = 1,
    .rows = NDP_ROWS_SUMMED,
    .constant = true,
    .shape = loads_shape,
    .flops = 1,
    .reads = NDP_READS_experts,
    NDP_FLOWS({.in = {NDP_IS(OPERAND, 0, "tK")}, .out = {NDP_IS(COUNT, 0, "1.")}}),
};

/* ---- router_losses ---- */

static ndp_status check(const ndp_op_call *c) {
    const ndp_view *logits = &c->in[0], *counts = &c->in[1], *samples = &c->in[2], *scale = &c->in[3];
    NDP_SHAPE_CHECK(!counts->rows || (counts->dtype == NDP_F64 && counts->cols == logits->cols),
                    "%s: logits " NDP_SHAPE ", counts " NDP_SHAPE, c->op->name, NDP_SHAPE_ARGS(*logits),
                    NDP_SHAPE_ARGS(*counts));
    NDP_SHAPE_CHECK(is_samples(samples, logits->rows) && scale->dtype == NDP_F64 && scale->rows == 1 &&
                        scale->cols == 1 && c->attr->parts > 0,
                    "%s: logits " NDP_SHAPE ", samples " NDP_SHAPE ", scale " NDP_SHAPE ", %d ranks", c->op->name,
                    NDP_SHAPE_ARGS(*logits), NDP_SHAPE_ARGS(*samples), NDP_SHAPE_ARGS(*scale), c->attr->parts);
    return NDP_OK;
}

static ndp_status shape(ndp_op_call *c) {
    ndp_shape_set(&c->out[0], 1, NDP_ROUTER_LOSSES, NDP_F64);
    return check(c);
}

/* The forward makes nothing: a unit that runs its forward twice would add its losses twice. */
static ndp_status backward(ndp_bwd *b) {
    int ins[] = {b->in[0], b->in[1], b->in[2], b->in[3], -1}, made[2];
    if (!b->wants(b, 0))
        return NDP_OK;
    NDP_TRY(b->input_grad(b, &ndp_op_router_losses_dx, b->attr, ins, 5, (int[]){0, -1}, 2, 4, made));
    return b->add_up(b, made[1], 0);
}

const ndp_op ndp_op_router_losses = {
    .id = NDP_OP_router_losses,
    .name = "router_losses",
    .n_in = 4,
    .n_out = 1,
    .optional_in = 1u << 1,
    .rows = NDP_ROWS_SUMMED,
    .shape = shape,
    .backward = backward,
    .reads = NDP_READS_balance | NDP_READS_z_loss | NDP_READS_parts | NDP_READS_train,
};

static ndp_status dx_shape(ndp_op_call *c) {
    const ndp_view *logits = &c->in[0];
    NDP_TRY(check(c));
    ndp_shape_like(&c->out[0], logits);
    ndp_shape_set(&c->out[1], logits->rows, NDP_ROUTER_LOSSES, NDP_F64);
    return ndp_shape_acc(c, 4);
}

/* flops: two exponentials, their sum, a product with counts, a multiply-add. */
const ndp_op ndp_op_router_losses_dx = {
    .id = NDP_OP_router_losses_dx,
    .name = "router_losses_dx",
    .n_in = 5,
    .n_out = 2,
    .optional_in = 1u << 1 | 1u << 4,
    .rows = NDP_ROWS_ALIKE,
    .shape = dx_shape,
    .flops = 26,
    .reads = NDP_READS_balance | NDP_READS_z_loss | NDP_READS_parts,
    NDP_FLOWS({.node = &ndp_op_router_losses,
               .own = NDP_READS_parts,
               .in = {NDP_IS(OPERAND, 0, "tE"), NDP_IS(OPERAND, 1, "..", .name = "counts of choices"),
                      NDP_IS(OPERAND, 2, "t1"), NDP_IS(OPERAND, 3, ".."), NDP_IS(EARLIER, 0, "..")},
               .out = {NDP_IS(D_OPERAND, 0, "tE", .times = NDP_TIMES_PARTS), NDP_IS(LOSSES, 0, "t.")}}),
};

/* ---- router_bias_step: counts are whole numbers, so their sums are exact, and signs those of every layout ---- */

static ndp_status bias_shape(ndp_op_call *c) {
    const ndp_view *bias = &c->in[0], *loads = &c->in[1], *clip = &c->in[2];
    NDP_SHAPE_CHECK(bias->rows == 1 && bias->dtype == ndp_wide(bias->dtype) && loads->rows == 1 &&
                        loads->dtype == NDP_F64 && (clip->rows == 0 || (clip->dtype == NDP_F64 && clip->cols == 1)),
                    "router_bias_step: a bias " NDP_SHAPE ", loads " NDP_SHAPE, NDP_SHAPE_ARGS(*bias),
                    NDP_SHAPE_ARGS(*loads));
    ndp_shape_like(&c->out[0], bias);
    return NDP_OK;
}

const ndp_op ndp_op_router_bias_step = {
    .id = NDP_OP_router_bias_step,
    .name = "router_bias_step",
    .n_in = 3,
    .n_out = 1,
    .optional_in = 1u << 2,
    .in_place = true,
    .rows = NDP_ROWS_MIXED,
    .shape = bias_shape,
    .flops = 2,
    .reads = NDP_READS_scale | NDP_READS_first,
};
