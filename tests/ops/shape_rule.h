/* The shape rule of an op, on arrays of views, and attributes as an op must be able to take them. */
#ifndef NDP_TESTS_SHAPE_RULE_H
#define NDP_TESTS_SHAPE_RULE_H

#include "ops/op.h"

/* `attr` with other values in all attributes that the op does not list: it must not read them. Two `variant`s, 0 and 1,
 * have no value in common, so a device that reads one differs from a reference that has the other. */
static inline ndp_op_attr with_others(const ndp_op *op, const ndp_op_attr *attr, int variant) {
    ndp_op_attr all = *attr;
#define SET_OTHER(type, name)                                                                                          \
    if (!(op->reads & NDP_READS_##name))                                                                               \
        all.name = (type)(sizeof(type) == sizeof(bool) ? !variant : 3 + variant);
    NDP_OP_ATTRS(SET_OTHER)
#undef SET_OTHER
    return all;
}

/* Reads the first n_in views of `in` and writes the first n_out of `out`. */
static inline ndp_status apply_shape(const ndp_op *op, const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    const ndp_op_attr given = with_others(op, attr, 0);
    ndp_op_call call = {.op = op, .attr = &given};
    memcpy(call.in, in, sizeof *in * (size_t)op->n_in);
    memcpy(call.out, out, sizeof *out * (size_t)op->n_out);
    ndp_status st = op->shape(&call);
    memcpy(out, call.out, sizeof *out * (size_t)op->n_out);
    return st;
}

#endif
