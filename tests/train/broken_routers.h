/* The reference device with one mistake of a router in it: tests of mixtures must fail on each. */
#ifndef NDP_TESTS_BROKEN_ROUTERS_H
#define NDP_TESTS_BROKEN_ROUTERS_H

#include "ops/devices.h"
#include "ops/op.h"

#include <stdlib.h>
#include <string.h>

static inline ndp_status run_reference(const ndp_op_call *c) { return ndp_device_ref.kernels[c->op->id]->run(c); }

/* Counts of the whole micro-batch in place of each sample's. */
static inline ndp_status counts_of_a_micro_batch(const ndp_op_call *c) {
    const ndp_view *counts = &c->out[0];
    ndp_status st = run_reference(c);
    for (int64_t e = 0; e < counts->cols; e++) {
        double sum = 0;
        for (int64_t s = 0; s < counts->rows; s++)
            sum += ndp_view_get(counts, s, e);
        for (int64_t s = 0; s < counts->rows; s++)
            ndp_view_set(counts, s, e, sum);
    }
    return st;
}

static inline ndp_status not_renormalised(const ndp_op_call *c) {
    ndp_op_attr attr = *c->attr;
    ndp_op_call other = *c;
    attr.renormalise = false;
    other.attr = &attr;
    return run_reference(&other);
}

/* Of products whose weight has as many rows as there are experts: 6, 8 or 9, unlike any other. */
static inline ndp_status no_dx_of_the_router(const ndp_op_call *c) {
    int64_t rows = c->in[1].rows;
    if (rows != 6 && rows != 8 && rows != 9)
        return run_reference(c);
    for (int64_t t = 0; t < c->out[0].rows; t++)
        for (int64_t j = 0; j < c->out[0].cols; j++)
            ndp_view_set(&c->out[0], t, j, c->in[2].data ? ndp_view_get(&c->in[2], t, j) : 0);
    return NDP_OK;
}

/* Memory of groups without rows is left as it may have been. */
static inline ndp_status empty_groups_left(const ndp_op_call *c) {
    const ndp_view *dw = &c->out[0], *offsets = &c->in[2];
    int64_t groups = offsets->rows - 1, rows = dw->rows / groups;
    ndp_status st = run_reference(c);
    for (int64_t g = 0; g < groups && !c->attr->accumulate; g++)
        for (int64_t i = 0; i < rows * dw->cols; i++)
            if (ndp_view_get(offsets, g, 0) == ndp_view_get(offsets, g + 1, 0))
                ndp_view_set(dw, g * rows + i / dw->cols, i % dw->cols, 0.01);
    return st;
}

/* Padding is taken for rows of sample 0: operand `k` of an op. */
static inline ndp_status with_padding(const ndp_op_call *c, int k) {
    ndp_op_call other = *c;
    ndp_view *v = &other.in[k];
    int32_t *samples = malloc((size_t)v->rows * sizeof *samples);
    if (!samples)
        return NDP_ENOMEM;
    for (int64_t t = 0; t < v->rows; t++) {
        int32_t s = ((const int32_t *)c->in[k].data)[t * v->ld];
        samples[t] = s < 0 ? 0 : s;
    }
    v->data = samples, v->ld = 1;
    ndp_status st = run_reference(&other);
    free(samples);
    return st;
}

static inline ndp_status padding_is_routed(const ndp_op_call *c) { return with_padding(c, 1); }
static inline ndp_status padding_has_losses(const ndp_op_call *c) { return with_padding(c, 2); }

typedef struct router_mistake {
    const char *name;
    bool many,
        few; /* it tells where a rank has many rows, of several samples; and where it has 6, some of them padding */
    struct {
        ndp_op_id op;
        ndp_status (*run)(const ndp_op_call *c);
    } instead[3];
} router_mistake;

static const router_mistake router_mistakes[] = {
    {"counts of a micro-batch", true, false, {{NDP_OP_choice_counts, counts_of_a_micro_batch}}},
    {"weights that are not renormalised", true, true, {{NDP_OP_route, not_renormalised}}},
    {"no dX of the router", true, true, {{NDP_OP_linear_dx, no_dx_of_the_router}}},
    {"gradients of empty groups that are not cleared", false, true, {{NDP_OP_linear_stack_dw, empty_groups_left}}},
    {"padding that is counted",
     false,
     true,
     {{NDP_OP_route, padding_is_routed},
      {NDP_OP_choice_counts, padding_is_routed},
      {NDP_OP_router_losses_dx, padding_has_losses}}}};

/* A device with a mistake; NULL: without one. */
typedef struct broken_device {
    ndp_device device;
    const ndp_kernel *kernels[NDP_OP_COUNT];
    ndp_kernel own[3];
} broken_device;

static inline const ndp_device *break_device(broken_device *b, const router_mistake *m) {
    b->device = ndp_device_ref;
    memcpy(b->kernels, ndp_device_ref.kernels, sizeof b->kernels);
    for (int i = 0; m && i < NDP_COUNT(m->instead) && m->instead[i].run; i++) {
        b->own[i] = *b->kernels[m->instead[i].op];
        b->own[i].run = m->instead[i].run;
        b->kernels[m->instead[i].op] = &b->own[i];
    }
    b->device.kernels = b->kernels;
    return &b->device;
}

#endif
