/* How rows get to their experts and back. Of the choices [T,K] that a router made, route_order makes a permutation, by
 * expert and, within one, by row: order and places are each other's inverse. A rank that has some of the experts orders
 * the choices of those alone, which may be fewer than all choices. take_rows copies a row of x for each
 * choice into that order; give_rows sums the rows of a token's choices. As maps of rows they are each other's
 * transpose, so each is the other's backward, with the same weights; a weight's own gradient is a dot product in both.
 * weigh_rows multiplies sorted rows by the weights of their choices: before a product with an expert's matrix, whose
 * results then need no weights, and are not kept. */
#include "ops/flow.h"
#include "ops/shape.h"

/* ---- route_order ---- */

static ndp_status order_shape(ndp_op_call *c) {
    const ndp_view *choices = &c->in[0];
    int64_t n = choices->rows * choices->cols,
            capacity = c->attr->capacity > 0 && c->attr->capacity < n ? c->attr->capacity : n;
    NDP_SHAPE_CHECK(choices->dtype == NDP_I32 && c->attr->experts > 0 && n <= INT32_MAX / 2,
                    "route_order: choices " NDP_SHAPE " of %d experts", NDP_SHAPE_ARGS(*choices), c->attr->experts);
    n = capacity;
    ndp_shape_set(&c->out[0], n, 1, NDP_I32);
    ndp_shape_like(&c->out[1], choices);
    ndp_shape_set(&c->out[2], (int64_t)c->attr->experts + 1, 1, NDP_I32);
    return NDP_OK;
}

/* flops: counts, and places each choice. */
const ndp_op ndp_op_route_order = {
    NDP_NAMED(route_order),
    .n_in = 1,
    .n_out = 3,
    .rows = NDP_ROWS_MIXED,
    .constant = true,
    .shape = order_shape,
    .flops = 4,
    .reads = NDP_READS_experts | NDP_READS_first | NDP_READS_capacity,
    NDP_FLOWS({.own = NDP_READS_experts | NDP_READS_capacity,
               .in = {NDP_IS(OPERAND, 0, "tK")},
               .out = {NDP_IS(RESULT, 0, "t1"), NDP_IS(RESULT, 1, "tK"),
                       NDP_IS(RESULT, 2, "..", .times = NDP_TIMES_UNSUMMED)}}),
};

/* ---- route_exchange ---- */

static ndp_status exchange_shape(ndp_op_call *c) {
    const ndp_view *choices = &c->in[0], *index = &c->in[1];
    int64_t ranks = c->attr->ranks, rows = ranks > 0 ? choices->rows / ranks : 0, capacity = c->attr->capacity;
    int64_t most = ranks < choices->cols ? ranks : choices->cols;
    NDP_SHAPE_CHECK(choices->dtype == NDP_I32 && ranks > 0 && rows * ranks == choices->rows &&
                        c->attr->experts >= ranks && c->attr->first >= 0 && c->attr->first < ranks &&
                        choices->rows * choices->cols <= INT32_MAX / 2,
                    "route_exchange: choices " NDP_SHAPE " of %d experts, place %lld of %lld ranks",
                    NDP_SHAPE_ARGS(*choices), c->attr->experts, (long long)c->attr->first, (long long)ranks);
    NDP_SHAPE_CHECK((capacity == 0 || capacity >= choices->cols) &&
                        (!index->rows || (index->dtype == NDP_I64 && index->rows == 1 && index->cols == 1)),
                    "route_exchange: capacity for %lld choices, index " NDP_SHAPE " for choices " NDP_SHAPE,
                    (long long)capacity, NDP_SHAPE_ARGS(*index), NDP_SHAPE_ARGS(*choices));
    ndp_shape_set(&c->out[0], rows * most, 1, NDP_I32);
    ndp_shape_set(&c->out[1], rows, most, NDP_I32);
    ndp_shape_set(&c->out[2], ranks, ranks, NDP_I32);
    ndp_shape_set(&c->out[3], capacity > 0 && capacity < choices->rows ? capacity : choices->rows, choices->cols,
                  NDP_I32);
    ndp_shape_set(&c->out[4], 1, 1, NDP_I64);
    return NDP_OK;
}

/* flops: the rank of each choice, and whether the row goes there for another one. */
const ndp_op ndp_op_route_exchange = {
    .id = NDP_OP_route_exchange,
    .name = "route_exchange",
    .n_in = 2,
    .n_out = 5,
    .optional_in = 1u << 1,
    .rows = NDP_ROWS_MIXED,
    .constant = true,
    .shape = exchange_shape,
    .flops = 8,
    .reads = NDP_READS_experts | NDP_READS_first | NDP_READS_ranks | NDP_READS_capacity,
    NDP_FLOWS({.node = &ndp_op_route_order,
               .own = NDP_READS_capacity,
               .in = {NDP_IS(OPERAND, 0, ".."), NDP_IS(ANY, 0, "..")}}),
};

/* ---- take_rows ---- */

/* The operands after the first one: a permutation of `n` choices of T rows, and weights of them. */
static ndp_status check_order(const ndp_op_call *c, int64_t rows, int64_t n) {
    const ndp_view *order = &c->in[1], *places = &c->in[2], *weights = &c->in[3];
    NDP_SHAPE_CHECK(order->dtype == NDP_I32 && order->rows == n && order->cols == 1 && places->dtype == NDP_I32 &&
                        places->rows == rows && places->rows * places->cols >= n,
                    "%s: " NDP_SHAPE ", order " NDP_SHAPE ", places " NDP_SHAPE, c->op->name, NDP_SHAPE_ARGS(c->in[0]),
                    NDP_SHAPE_ARGS(*order), NDP_SHAPE_ARGS(*places));
    NDP_SHAPE_CHECK(!weights->rows || (weights->rows == places->rows && weights->cols == places->cols &&
                                       weights->dtype == ndp_wide(c->in[0].dtype)),
                    "%s: weights " NDP_SHAPE ", places " NDP_SHAPE, c->op->name, NDP_SHAPE_ARGS(*weights),
                    NDP_SHAPE_ARGS(*places));
    return NDP_OK;
}

static ndp_status take_shape(ndp_op_call *c) {
    const ndp_view *x = &c->in[0];
    int64_t n = c->in[1].rows;
    NDP_TRY(check_order(c, x->rows, n));
    ndp_shape_set(&c->out[0], n, x->cols, x->dtype);
    return NDP_OK;
}

/* The gradient of the weights of in[3]: the dot products of a row and of what its choices made, `dx` and `y`. */
static ndp_status weights_grad(ndp_bwd *b, int dx, int y) {
    if (b->grad_out(b, 0) < 0 || !b->wants(b, 3))
        return NDP_OK;
    return b->input_grad(b, &ndp_op_give_rows_dw, b->attr, (int[]){dx, y, b->in[2]}, 3, (int[]){3}, 1, -1, NULL);
}

/* The sum of parts that are wide is rounded once, with the gradient that was there before. */
static ndp_status round_sum(ndp_bwd *b) {
    int sum, ins[] = {b->grad_out(b, 0), b->in[1], b->in[2], b->in[3], -1};
    if (ins[0] < 0 || !b->wants(b, 0))
        return NDP_OK;
    NDP_TRY(b->intermediate(b, &ndp_op_give_rows, b->attr, ins, 5, &sum));
    return ndp_input_grad(b, &ndp_op_copy, b->attr, (int[]){sum, -1}, 2, 1);
}

static ndp_status take_backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0);
    if (b->attr->wide_grad && ndp_wide(b->attr->type) != b->attr->type)
        return round_sum(b);
    NDP_TRY(ndp_input_grad(b, &ndp_op_give_rows, b->attr, (int[]){g, b->in[1], b->in[2], b->in[3], -1}, 5, 4));
    return weights_grad(b, b->in[0], g);
}

/* A row of x for each choice; places are there for their extents, and for the backward. */
static void take_cost(const ndp_op_call *c, double *flops, double *bytes) {
    const ndp_view *y = &c->out[0];
    *flops = c->in[3].rows ? ndp_elements(y) : 0;
    *bytes = ndp_elements(y) * (double)ndp_dtype_size(c->in[0].dtype) + ndp_view_bytes(y) + ndp_view_bytes(&c->in[1]) +
             ndp_view_bytes(&c->in[3]);
}

const ndp_op ndp_op_take_rows = {
    NDP_NAMED(take_rows),
    .n_in = 4,
    .n_out = 1,
    .optional_in = 1u << 3,
    .rows = NDP_ROWS_MIXED,
    .shape = take_shape,
    .backward = take_backward,
    .cost = take_cost,
    .reads = NDP_READS_wide_grad | NDP_READS_type,
    NDP_FLOWS({.in = {NDP_IS(PART, 0, "tc"), NDP_IS(PART, 1, ".."), NDP_IS(PART, 2, "tK"),
                      NDP_IS(OPERAND, 3, "tK", .name = "weights")},
               .out = {NDP_IS(RESULT, 0, "tc")}},
              {.node = &ndp_op_give_rows,
               .in = {NDP_IS(D_RESULT, 0, "tc"), NDP_IS(PART, 1, ".."), NDP_IS(PART, 2, "tK"),
                      NDP_IS(OPERAND, 3, "tK", .name = "weights")},
               .out = {NDP_IS(D_OPERAND, 0, "tc")}},
              {.node = &ndp_op_route_order, /* on the way to another rank: any rows */
               .own = NDP_READS_type,
               .in = {NDP_IS(ANY, 0, ".."), NDP_IS(ANY, 0, ".."), NDP_IS(ANY, 0, ".."), NDP_IS(NONE, 0, "..")}}),
};

/* ---- give_rows ---- */

static ndp_status give_shape(ndp_op_call *c) {
    const ndp_view *y = &c->in[0], *acc = &c->in[4];
    bool narrower = acc->rows && ndp_wide(acc->dtype) == y->dtype; /* a sum so far, which is not wide */
    NDP_TRY(check_order(c, c->in[2].rows, y->rows));
    ndp_shape_set(&c->out[0], c->in[2].rows, y->cols,
                  narrower             ? acc->dtype
                  : c->attr->wide_grad ? ndp_wide(y->dtype)
                                       : y->dtype);
    return ndp_shape_acc(c, 4);
}

static ndp_status give_backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0);
    NDP_TRY(ndp_input_grad(b, &ndp_op_take_rows, b->attr, (int[]){g, b->in[1], b->in[2], b->in[3]}, 4, -1));
    NDP_TRY(weights_grad(b, g, b->in[0]));
    return ndp_pass_grad(b, 4);
}

/* A row of y for each choice. */
static void give_cost(const ndp_op_call *c, double *flops, double *bytes) {
    *flops = (c->in[3].rows ? 2 : 1) * ndp_elements(&c->in[0]) + ndp_elements(&c->in[4]);
    *bytes -= ndp_view_bytes(&c->in[1]);
}

const ndp_op ndp_op_give_rows = {
    NDP_NAMED(give_rows),
    .n_in = 5,
    .n_out = 1,
    .optional_in = 1u << 3 | 1u << 4,
    .rows = NDP_ROWS_MIXED,
    .shape = give_shape,
    .backward = give_backward,
    .cost = give_cost,
    .reads = NDP_READS_wide_grad,
    NDP_FLOWS({.in = {NDP_IS(PART, 0, "tc"), NDP_IS(PART, 1, ".."), NDP_IS(PART, 2, "tK"),
                      NDP_IS(OPERAND, 3, "tK", .name = "weights"), NDP_IS(ADDED, 4, "tc")},
               .out = {NDP_IS(RESULT, 0, "tc")}},
              {.node = &ndp_op_take_rows,
               .in = {NDP_IS(D_RESULT, 0, "tc"), NDP_IS(PART, 1, ".."), NDP_IS(PART, 2, "tK"),
                      NDP_IS(OPERAND, 3, "tK", .name = "weights"), NDP_IS(EARLIER, 0, "..")},
               .out = {NDP_IS(D_OPERAND, 0, "tc")}},
              {.node = &ndp_op_route_order, /* back from other ranks */
               .in = {NDP_IS(ANY, 0, ".."), NDP_IS(ANY, 0, ".."), NDP_IS(ANY, 0, ".."), NDP_IS(NONE, 0, ".."),
                      NDP_IS(ANY, 0, "..")}}),
};

/* ---- give_rows_dw ---- */

static ndp_status dw_shape(ndp_op_call *c) {
    const ndp_view *dx = &c->in[0], *y = &c->in[1], *places = &c->in[2];
    NDP_SHAPE_CHECK(places->dtype == NDP_I32 && places->rows == dx->rows && y->rows <= places->rows * places->cols &&
                        y->cols == dx->cols && ndp_wide(y->dtype) == ndp_wide(dx->dtype),
                    "give_rows_dw: dx " NDP_SHAPE ", y " NDP_SHAPE ", places " NDP_SHAPE, NDP_SHAPE_ARGS(*dx),
                    NDP_SHAPE_ARGS(*y), NDP_SHAPE_ARGS(*places));
    ndp_shape_set(&c->out[0], places->rows, places->cols, ndp_wide(dx->dtype));
    return NDP_OK;
}

static void dw_cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)bytes;
    *flops = 2 * ndp_elements(&c->in[1]);
}

const ndp_op ndp_op_give_rows_dw = {
    NDP_NAMED(give_rows_dw),
    .n_in = 3,
    .n_out = 1,
    .rows = NDP_ROWS_MIXED,
    .shape = dw_shape,
    .cost = dw_cost,
    NDP_FLOWS({.node = &ndp_op_give_rows,
               .in = {NDP_IS(D_RESULT, 0, "tC"), NDP_IS(PART, 0, "tC"), NDP_IS(PART, 2, "tK")},
               .out = {NDP_IS(D_OPERAND, 3, "tK")}},
              {.node = &ndp_op_take_rows,
               .in = {NDP_IS(PART, 0, "tC"), NDP_IS(D_RESULT, 0, "tC"), NDP_IS(PART, 2, "tK")},
               .out = {NDP_IS(D_OPERAND, 3, "tK")}}),
};

/* ---- weigh_rows ---- */

static ndp_status weigh_shape(ndp_op_call *c) {
    NDP_TRY(check_order(c, c->in[2].rows, c->in[0].rows));
    NDP_SHAPE_CHECK(c->in[3].rows > 0, "weigh_rows: x " NDP_SHAPE " without weights", NDP_SHAPE_ARGS(c->in[0]));
    ndp_shape_like(&c->out[0], &c->in[0]);
    return NDP_OK;
}

/* The gradient of the weights reads that of the rows before it is changed in place. */
static ndp_status weigh_backward(ndp_bwd *b) {
    int g = b->grad_out(b, 0);
    if (g >= 0 && b->wants(b, 3))
        NDP_TRY(b->input_grad(b, &ndp_op_weigh_rows_dw, b->attr, (int[]){g, b->out[0], b->in[2], b->in[3]}, 4,
                              (int[]){3}, 1, -1, NULL));
    return ndp_input_grad(b, &ndp_op_weigh_rows, b->attr, (int[]){g, b->in[1], b->in[2], b->in[3]}, 4, -1);
}

const ndp_op ndp_op_weigh_rows = {
    NDP_NAMED(weigh_rows),
    .n_in = 4,
    .n_out = 1,
    .in_place = true,
    .rows = NDP_ROWS_MIXED,
    .shape = weigh_shape,
    .backward = weigh_backward,
    .flops = 1,
    NDP_FLOWS({.in = {NDP_IS(EITHER, 0, "tc"), NDP_IS(PART, 1, ".."), NDP_IS(PART, 2, "tK"),
                      NDP_IS(OPERAND, 3, "tK", .name = "weights")},
               .out = {NDP_IS(EITHER, 0, "tc")}}),
};

static ndp_status weigh_dw_shape(ndp_op_call *c) {
    const ndp_view *dy = &c->in[0], *places = &c->in[2], *weights = &c->in[3];
    NDP_SHAPE_CHECK(places->dtype == NDP_I32 && dy->rows == c->in[1].rows && dy->cols == c->in[1].cols &&
                        dy->rows <= places->rows * places->cols && weights->rows == places->rows &&
                        weights->cols == places->cols && weights->dtype == ndp_wide(dy->dtype),
                    "weigh_rows_dw: dy " NDP_SHAPE ", y " NDP_SHAPE ", places " NDP_SHAPE ", weights " NDP_SHAPE,
                    NDP_SHAPE_ARGS(*dy), NDP_SHAPE_ARGS(c->in[1]), NDP_SHAPE_ARGS(*places), NDP_SHAPE_ARGS(*weights));
    ndp_shape_like(&c->out[0], weights);
    return NDP_OK;
}

const ndp_op ndp_op_weigh_rows_dw = {
    NDP_NAMED(weigh_rows_dw),
    .n_in = 4,
    .n_out = 1,
    .rows = NDP_ROWS_MIXED,
    .shape = weigh_dw_shape,
    .cost = dw_cost,
    NDP_FLOWS({.node = &ndp_op_weigh_rows,
               .in = {NDP_IS(D_RESULT, 0, "tc"), NDP_IS(RESULT, 0, "tc"), NDP_IS(PART, 2, "tK"),
                      NDP_IS(OPERAND, 3, "tK", .name = "weights")},
               .out = {NDP_IS(D_OPERAND, 3, "tK")}}),
};
