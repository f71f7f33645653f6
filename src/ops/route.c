/* The router of a mixture of experts: each row chooses the experts with its largest logits, and weighs what they make
 * by their probabilities. Experts are chosen by logits, not by probabilities: the order is the same, but rounding an
 * exponential makes no ties, so every device chooses alike. Sigmoids with a bias have no such order: every device
 * computes them in fp64 (route.h).
 *
 * Choices may be given instead. Weights are then those of the given experts, whose logits may be any: so exponentials
 * are taken relative to the largest logit that counts in their sum, which is the largest of all, or with renormalise of
 * the chosen. Where experts are chosen here, the two are the same. */
#include "ops/route.h"
#include "ops/flow.h"
#include "ops/shape.h"

/* What sigmoids alone have: a bias, groups by a sum. Groups of a softmax are open by their best logit. */
static ndp_status check_keys(const ndp_op_call *c) {
    const ndp_view *logits = &c->in[0], *bias = &c->in[3];
    const ndp_op_attr *a = c->attr;
    NDP_SHAPE_CHECK(!bias->rows || (a->sigmoid && bias->rows == 1 && bias->cols == logits->cols &&
                                    bias->dtype == ndp_wide(logits->dtype)),
                    "route: bias " NDP_SHAPE " for logits " NDP_SHAPE, NDP_SHAPE_ARGS(*bias), NDP_SHAPE_ARGS(*logits));
    int64_t of = a->groups > 0 ? logits->cols / a->groups : 1;
    NDP_SHAPE_CHECK(a->groups == 0 ||
                        ((a->sigmoid || a->group_best == 1) && a->groups <= NDP_MOST_GROUPS && logits->cols % a->groups == 0 &&
                         a->open_groups > 0 && a->open_groups <= a->groups && a->group_best > 0 &&
                         a->group_best <= NDP_MOST_BEST && a->group_best <= of && a->choices <= a->open_groups * of),
                    "route: %d choices in %d of %d groups, by %d of each, for logits " NDP_SHAPE, a->choices,
                    a->open_groups, a->groups, a->group_best, NDP_SHAPE_ARGS(*logits));
    return NDP_OK;
}

static ndp_status shape(ndp_op_call *c) {
    const ndp_view *logits = &c->in[0], *samples = &c->in[1], *given = &c->in[2];
    NDP_TRY(check_keys(c));
    NDP_SHAPE_CHECK(c->attr->choices > 0 && c->attr->choices <= logits->cols, "route: %d choices of logits " NDP_SHAPE,
                    c->attr->choices, NDP_SHAPE_ARGS(*logits));
    NDP_SHAPE_CHECK(
        !samples->rows || (samples->dtype == NDP_I32 && samples->rows == logits->rows && samples->cols == 1),
        "route: samples " NDP_SHAPE " for logits " NDP_SHAPE, NDP_SHAPE_ARGS(*samples), NDP_SHAPE_ARGS(*logits));
    NDP_SHAPE_CHECK(!given->rows ||
                        (given->dtype == NDP_I32 && given->rows == logits->rows && given->cols == c->attr->choices),
                    "route: %d given choices " NDP_SHAPE " for logits " NDP_SHAPE, c->attr->choices,
                    NDP_SHAPE_ARGS(*given), NDP_SHAPE_ARGS(*logits));
    ndp_shape_set(&c->out[0], logits->rows, c->attr->choices, NDP_I32);
    ndp_shape_set(&c->out[1], logits->rows, c->attr->choices, ndp_wide(logits->dtype));
    ndp_shape_like(&c->out[2], logits);
    return NDP_OK;
}

/* Through the weights alone. */
static ndp_status backward(ndp_bwd *b) {
    int g = b->grad_out(b, 1);
    if (g < 0 || !b->wants(b, 0))
        return NDP_OK;
    return b->input_grad(b, &ndp_op_route_dx, b->attr, (int[]){g, b->in[0], b->out[0], -1}, 4, (int[]){0}, 1, 3, NULL);
}

/* flops: an exponential, its sum, a comparison. */
const ndp_op ndp_op_route = {
    .id = NDP_OP_route,
    .name = "route",
    .n_in = 4,
    .n_out = 3,
    .optional_in = 1u << 1 | 1u << 2 | 1u << 3,
    .rows = NDP_ROWS_ALIKE,
    .shape = shape,
    .backward = backward,
    .flops = 12,
    .reads = NDP_READS_choices | NDP_READS_renormalise | NDP_READS_scale | NDP_READS_sigmoid | NDP_READS_groups |
             NDP_READS_open_groups | NDP_READS_group_best,
    NDP_FLOWS({.in = {NDP_IS(OPERAND, 0, "tE"), NDP_IS(OPERAND, 1, "t1", .name = "what says which rows are padding"),
                      NDP_IS(OPERAND, 2, "t.", .name = "given choices"), NDP_IS(OPERAND, 3, "1E", .name = "the bias")},
               .out = {NDP_IS(RESULT, 0, "tK"), NDP_IS(RESULT, 1, "tK"), NDP_IS(RESULT, 2, "tE")}}),
};

static ndp_status dx_shape(ndp_op_call *c) {
    const ndp_view *dw = &c->in[0], *logits = &c->in[1], *choices = &c->in[2];
    NDP_SHAPE_CHECK(dw->dtype == ndp_wide(logits->dtype) && dw->rows == logits->rows && choices->dtype == NDP_I32 &&
                        choices->rows == dw->rows && choices->cols == dw->cols && choices->cols > 0,
                    "route_dx: dweights " NDP_SHAPE ", logits " NDP_SHAPE ", choices " NDP_SHAPE, NDP_SHAPE_ARGS(*dw),
                    NDP_SHAPE_ARGS(*logits), NDP_SHAPE_ARGS(*choices));
    ndp_shape_like(&c->out[0], logits);
    return ndp_shape_acc(c, 3);
}

/* Of each logit: an exponential, its sum, and a multiply-add. */
static void dx_cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)bytes;
    *flops = 13 * ndp_elements(&c->in[1]);
}

const ndp_op ndp_op_route_dx = {
    .id = NDP_OP_route_dx,
    .name = "route_dx",
    .n_in = 4,
    .n_out = 1,
    .optional_in = 1u << 3,
    .rows = NDP_ROWS_ALIKE,
    .shape = dx_shape,
    .cost = dx_cost,
    .reads = NDP_READS_renormalise | NDP_READS_scale | NDP_READS_sigmoid,
    NDP_FLOWS(
        {.node = &ndp_op_route,
         .in = {NDP_IS(D_RESULT, 1, "tK"), NDP_IS(OPERAND, 0, "tE"), NDP_IS(RESULT, 0, "tK"), NDP_IS(EARLIER, 0, "..")},
         .out = {NDP_IS(D_OPERAND, 0, "tE")}}),
};
