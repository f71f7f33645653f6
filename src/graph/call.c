/* Running calls: addresses are put into the operands, then the op's kernel runs, or the caller's communicator. */
#include "graph/call.h"

#include <string.h>

static ndp_status copy_operands(ndp_arena *arena, const ndp_operand *from, int n, ndp_operand **out) {
    *out = ndp_arena_alloc(arena, (size_t)(n > 0 ? n : 1) * sizeof **out);
    NDP_CHECK_MEMORY(*out, "for the operands of a call");
    if (n > 0)
        memcpy(*out, from, (size_t)n * sizeof **out);
    return NDP_OK;
}

static void set_cost(ndp_call *c) {
    ndp_op_call shapes = {.op = c->op, .attr = &c->attr};
    for (int k = 0; k < c->n_in; k++)
        shapes.in[k] = c->in[k].view;
    for (int k = 0; k < c->n_out; k++)
        shapes.out[k] = c->out[k].view;
    ndp_op_cost(&shapes, &c->flops, &c->bytes);
}

ndp_status ndp_call_init(ndp_call *c, ndp_arena *arena, const ndp_op *op, const ndp_op_attr *attr,
                         const ndp_operand *in, int n_in, const ndp_operand *out, int n_out) {
    *c = (ndp_call){.kind = ndp_op_kinds[op->id] == NDP_KIND_COLLECTIVE ? NDP_CALL_BEGIN : NDP_CALL_KERNEL,
                    .op = op,
                    .attr = ndp_op_attr_of(op, attr),
                    .of = NDP_NONE,
                    .n_in = n_in,
                    .n_out = n_out,
                    .partner = NDP_NONE,
                    .scratch = NDP_NONE,
                    .pgrad = NDP_NONE};
    c->channel = c->attr.group;
    NDP_TRY(copy_operands(arena, in, n_in, &c->in));
    NDP_TRY(copy_operands(arena, out, n_out, &c->out));
    set_cost(c);
    return NDP_OK;
}

static bool same_shapes(const ndp_operand *a, const ndp_operand *b, int n) {
    bool same = true;
    for (int k = 0; k < n; k++) {
        const ndp_view *x = &a[k].view, *y = &b[k].view;
        same = same && a[k].offset == b[k].offset && x->dtype == y->dtype && x->rows == y->rows && x->cols == y->cols &&
               x->ld == y->ld;
    }
    return same;
}

bool ndp_calls_alike(const ndp_call *a, const ndp_call *b) {
    ndp_op_attr attr = b->attr;
    attr.tag = a->attr.tag;
    return a->kind == b->kind && a->op == b->op && ndp_op_attrs_equal(&a->attr, &attr) && a->n_in == b->n_in &&
           a->n_out == b->n_out && a->channel == b->channel && a->in_place == b->in_place && a->pgrad == b->pgrad &&
           a->scratch_offset == b->scratch_offset && same_shapes(a->in, b->in, a->n_in) &&
           same_shapes(a->out, b->out, a->n_out);
}

ndp_status ndp_call_find_kernel(ndp_call *c, const ndp_device *device) {
    const ndp_kernel *kernel = device->kernels[c->op->id];
    if (c->kind != NDP_CALL_KERNEL || ndp_op_kinds[c->op->id] == NDP_KIND_HOST)
        return NDP_OK;
    if (!kernel)
        return NDP_FAIL(NDP_ENOTSUP, "the device %s has no kernel for %s", device->name, c->op->name);
    c->kernel = kernel;
    return NDP_OK;
}

int64_t ndp_call_elements(const ndp_call *c) {
    const ndp_view *in = &c->in[0].view;
    if (c->op == &ndp_op_all_to_all_rows)
        return in->cols;
    bool parts = c->op->collective == NDP_REDUCE_SCATTER || c->op->collective == NDP_ALL_TO_ALL;
    return in->rows * in->cols / (parts ? c->attr.ranks : 1);
}

static ndp_view resolve(const ndp_operand *o, void *const *bases) {
    if (o->base == NDP_NONE)
        return (ndp_view){0};
    ndp_view v = o->view;
    v.data = (char *)bases[o->base] + o->offset;
    return v;
}

ndp_status ndp_call_drain(const ndp_call_opts *opts) {
    return opts->drain ? opts->drain(opts->user) : opts->exec->device->drain(opts->queue);
}

ndp_status ndp_call_run(const ndp_call *c, int index, const ndp_call_opts *opts) {
    ndp_op_attr attr = c->attr;
    if (c->pgrad != NDP_NONE)
        attr.accumulate = opts->accumulate >> c->pgrad & 1u;
    ndp_op_call call = {.op = c->op,
                        .attr = &attr,
                        .exec = opts->exec,
                        .queue = opts->queue,
                        .plan = c->plan[c->pgrad != NDP_NONE && attr.accumulate]};
    for (int k = 0; k < c->n_in; k++)
        call.in[k] = resolve(&c->in[k], opts->bases);
    for (int k = 0; k < c->n_out; k++)
        call.out[k] = resolve(&c->out[k], opts->bases);
    if (c->scratch != NDP_NONE)
        call.scratch = (char *)opts->bases[c->scratch] + c->scratch_offset;
    if (c->kernel && opts->before)
        NDP_TRY(opts->before(opts->user, index, c));
    NDP_TRY(c->kernel                    ? c->kernel->run(&call)
            : c->kind == NDP_CALL_KERNEL ? opts->host(opts->user, c, &call)
                                         : opts->collective(opts->user, index, c, &call));
    if (opts->after)
        NDP_TRY(opts->after(opts->user, index, c, &call));
    if (!opts->times)
        return NDP_OK;
    if (ndp_op_times_is_full(opts->times))
        NDP_TRY(ndp_call_drain(opts));
    return ndp_op_times_stamp(opts->times, opts->queue, c->op->id);
}
