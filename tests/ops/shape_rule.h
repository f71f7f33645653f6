/* The shape rule of an op, on arrays of views. */
#ifndef NDP_TESTS_SHAPE_RULE_H
#define NDP_TESTS_SHAPE_RULE_H

#include "ops/op.h"

/* Reads the first n_in views of `in` and writes the first n_out of `out`. */
static inline ndp_status apply_shape(const ndp_op *op, const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    ndp_op_call call = {.op = op, .attr = attr};
    memcpy(call.in, in, sizeof *in * (size_t)op->n_in);
    memcpy(call.out, out, sizeof *out * (size_t)op->n_out);
    ndp_status st = op->shape(&call);
    memcpy(out, call.out, sizeof *out * (size_t)op->n_out);
    return st;
}

#endif
