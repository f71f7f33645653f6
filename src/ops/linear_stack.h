/* linear_stack, linear_stack_dx and linear_stack_dw as the products of their groups of rows. */
#ifndef NDP_OPS_LINEAR_STACK_H
#define NDP_OPS_LINEAR_STACK_H

#include "ops/linear.h"
#include "ops/shape.h"

/* Operands and addend by their places in the call; a, b, trans_a, trans_b, added. in[2] are the offsets. */
static const ndp_product ndp_product_linear_stack = {0, 1, false, true, -1};
static const ndp_product ndp_product_linear_stack_dx = {0, 1, false, false, 3};
static const ndp_product ndp_product_linear_stack_dw = {0, 1, true, false, -1};

static inline int64_t ndp_stack_groups(const ndp_op_call *c) { return c->in[2].rows - 1; }

/* Group e's part of a call: c (+)= op(a) op(b), or c = added + ... Parts may have no rows. */
typedef struct ndp_stack_part {
    ndp_view a, b, c, added;
} ndp_stack_part;

static inline ndp_view ndp_rows_of(const ndp_view *v, int64_t first, int64_t n) {
    ndp_view part = *v;
    part.rows = n;
    if (v->data)
        part.data = (char *)v->data + (size_t)(first * v->ld) * ndp_dtype_size(v->dtype);
    return part;
}

/* The rows first .. last-1 with matrix e; NULL as the matrix where the rows are of no group. */
static inline ndp_stack_part ndp_stack_rows(const ndp_product *p, const ndp_op_call *c, int64_t e, int64_t first,
                                            int64_t last) {
    int64_t groups = ndp_stack_groups(c), n = last - first;
    const ndp_view *matrices = p->trans_a ? &c->out[0] : &c->in[1];
    ndp_view matrix = ndp_rows_of(matrices, 0, 0);
    ndp_stack_part part;
    matrix.data = NULL;
    if (e < groups)
        matrix = ndp_rows_of(matrices, matrices->rows / groups * e, matrices->rows / groups);
    part.a = ndp_rows_of(&c->in[p->a], first, n);
    part.b = part.c = part.added = matrix;
    part.added.data = NULL;
    if (p->trans_a)
        part.b = ndp_rows_of(&c->in[p->b], first, n);
    else
        part.c = ndp_rows_of(&c->out[0], first, n);
    if (p->added >= 0 && ndp_present(&c->in[p->added]))
        part.added = ndp_rows_of(&c->in[p->added], first, n);
    return part;
}

/* Group e of a call with data; e == groups: the rows of none. */
static inline ndp_stack_part ndp_stack_group(const ndp_product *p, const ndp_op_call *c, int64_t e) {
    int64_t last = e < ndp_stack_groups(c) ? ndp_int_at(&c->in[2], e + 1) : c->in[0].rows;
    return ndp_stack_rows(p, c, e, ndp_int_at(&c->in[2], e), last);
}

#endif
