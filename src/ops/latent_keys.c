/* latent_keys, latent_keys_bwd: keys and values of heads from one product (arXiv:2405.04434, latent attention).
 *
 * A head of the product has N columns of its key, then E of its value; the last R columns of every key are those of one
 * row that all heads share, so its gradient is the sum of theirs. N = D - R, D = attr.head_dim, R = attr.rotary_dim,
 * E = attr.v_dim. */
#include "ops/flow.h"
#include "ops/shape.h"

/* Both sides: of values, or of their gradients. `shared` may be wide where it is a sum. */
static ndp_status check(const ndp_op_call *c, const ndp_view *kv, const ndp_view *shared, const ndp_view *k,
                        const ndp_view *v) {
    const ndp_op_attr *a = c->attr;
    int64_t h = a->heads, own = a->head_dim - a->rotary_dim;
    NDP_SHAPE_CHECK(h > 0 && own >= 0 && a->rotary_dim > 0 && a->v_dim > 0 && kv->cols == h * (own + a->v_dim) &&
                        shared->cols == a->rotary_dim && k->cols == h * a->head_dim && v->cols == h * a->v_dim &&
                        shared->rows == kv->rows && v->rows == k->rows && v->dtype == k->dtype &&
                        (c->attr->wide_grad || shared->dtype == kv->dtype),
                    "%s: kv " NDP_SHAPE ", shared " NDP_SHAPE ", k " NDP_SHAPE ", v " NDP_SHAPE
                    " with %d heads of %d, %d of which are shared, and %d",
                    c->op->name, NDP_SHAPE_ARGS(*kv), NDP_SHAPE_ARGS(*shared), NDP_SHAPE_ARGS(*k), NDP_SHAPE_ARGS(*v),
                    a->heads, a->head_dim, a->rotary_dim, a->v_dim);
    return NDP_OK;
}

static ndp_status shape(ndp_op_call *c) {
    const ndp_op_attr *a = c->attr;
    const ndp_view *kv = &c->in[0];
    ndp_shape_set(&c->out[0], kv->rows, (int64_t)a->heads * a->head_dim, kv->dtype);
    ndp_shape_set(&c->out[1], kv->rows, (int64_t)a->heads * a->v_dim, kv->dtype);
    return check(c, kv, &c->in[1], &c->out[0], &c->out[1]);
}

static ndp_status backward(ndp_bwd *b) {
    int ins[] = {b->grad_out(b, 0), b->grad_out(b, 1)}, wanted[] = {b->wants(b, 0) ? 0 : -1, b->wants(b, 1) ? 1 : -1};
    if ((ins[0] < 0 && ins[1] < 0) || (wanted[0] < 0 && wanted[1] < 0))
        return NDP_OK;
    if (ins[0] < 0 || ins[1] < 0)
        return NDP_FAIL(NDP_EBUG, "latent_keys: keys or values have a gradient, but not both");
    return b->input_grad(b, &ndp_op_latent_keys_bwd, b->attr, ins, 2, wanted, 2, -1, NULL);
}

static ndp_status bwd_shape(ndp_op_call *c) {
    const ndp_op_attr *a = c->attr;
    const ndp_view *dk = &c->in[0];
    ndp_dtype sum = a->wide_grad ? ndp_wide(dk->dtype) : dk->dtype;
    ndp_shape_set(&c->out[0], dk->rows, (int64_t)a->heads * (a->head_dim - a->rotary_dim + a->v_dim), dk->dtype);
    ndp_shape_set(&c->out[1], dk->rows, a->rotary_dim, sum);
    return check(c, &c->out[0], &c->out[1], dk, &c->in[1]);
}

const ndp_op ndp_op_latent_keys = {
    .id = NDP_OP_latent_keys,
    .name = "latent_keys",
    .n_in = 2,
    .n_out = 2,
    .rows = NDP_ROWS_ALIKE,
    .shape = shape,
    .backward = backward,
    .reads = NDP_READS_heads | NDP_READS_head_dim | NDP_READS_v_dim | NDP_READS_rotary_dim | NDP_READS_wide_grad,
    NDP_FLOWS(
        {.in = {NDP_IS(OPERAND, 0, "th", .each = NDP_EACH_HEAD), NDP_IS(OPERAND, 1, "tC")},
         .out = {NDP_IS(RESULT, 0, "th", .each = NDP_EACH_HEAD), NDP_IS(RESULT, 1, "th", .each = NDP_EACH_HEAD)}}),
};

const ndp_op ndp_op_latent_keys_bwd = {
    .id = NDP_OP_latent_keys_bwd,
    .name = "latent_keys_bwd",
    .n_in = 2,
    .n_out = 2,
    .rows = NDP_ROWS_ALIKE,
    .shape = bwd_shape,
    .flops = 1,
    .reads = NDP_READS_heads | NDP_READS_head_dim | NDP_READS_v_dim | NDP_READS_rotary_dim | NDP_READS_wide_grad,
    NDP_FLOWS(
        {.node = &ndp_op_latent_keys,
         .in = {NDP_IS(D_RESULT, 0, "th", .each = NDP_EACH_HEAD), NDP_IS(D_RESULT, 1, "th", .each = NDP_EACH_HEAD)},
         .out = {NDP_IS(D_OPERAND, 0, "th", .each = NDP_EACH_HEAD), NDP_IS(D_OPERAND, 1, "tC")}}),
};
