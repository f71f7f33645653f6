/* conv_step, delta_step: what conv_silu and delta_rule do, of texts that are continued: what a row needs of the rows
 * before it is kept, a row for each text. Only generation uses them.
 *
 * Text i has rows i R to (i + 1) R - 1 of a cache, R = attr.capacity: start says where the text of a row begins, row
 * which one it is. The first of a text begins with zeros. A row of padding begins at itself, and so at no multiple of
 * R; what is kept stays as it is then, and the result is 0. */
#include "ops/delta_rule.h"
#include "ops/flow.h"

/* Operands s and s + 1: where rows begin, and which they are. */
static ndp_status check_rows(const ndp_op_call *c, int s, int64_t rows) {
    for (int i = s; i < s + 2; i++)
        NDP_SHAPE_CHECK(c->in[i].rows == rows && c->in[i].cols == 1 && c->in[i].dtype == NDP_I32,
                        "%s: operand %d is " NDP_SHAPE ", not [%lld,1] int32", c->op->name, i, NDP_SHAPE_ARGS(c->in[i]),
                        (long long)rows);
    NDP_SHAPE_CHECK(c->attr->capacity > 0, "%s: texts have %lld rows", c->op->name, (long long)c->attr->capacity);
    return NDP_OK;
}

static ndp_status conv_shape(ndp_op_call *c) {
    const ndp_view *tail = &c->in[0], *x = &c->in[1], *w = &c->in[2];
    NDP_SHAPE_CHECK(w->rows == x->cols && w->cols >= 1 && w->cols <= NDP_MAX_TAPS &&
                        tail->cols == ndp_tail_rows(w->cols) * x->cols,
                    "conv_step: tail " NDP_SHAPE ", x " NDP_SHAPE ", w " NDP_SHAPE, NDP_SHAPE_ARGS(*tail),
                    NDP_SHAPE_ARGS(*x), NDP_SHAPE_ARGS(*w));
    NDP_TRY(check_rows(c, 3, x->rows));
    ndp_shape_like(&c->out[0], tail);
    ndp_shape_like(&c->out[1], x);
    return NDP_OK;
}

static void conv_cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)bytes;
    *flops = (2 * (double)c->in[2].cols + 20) * ndp_elements(&c->in[1]);
}

const ndp_op ndp_op_conv_step = {
    NDP_NAMED(conv_step),
    .n_in = 5,
    .n_out = 2,
    .in_place = true,
    .rows = NDP_ROWS_MIXED,
    .shape = conv_shape,
    .cost = conv_cost,
    .reads = NDP_READS_capacity,
    NDP_FLOWS({.in = {NDP_IS(ANY, 0, ".."), NDP_IS(OPERAND, 1, "Tc"), NDP_IS(OPERAND, 2, "cJ"),
                      NDP_IS(OPERAND, 3, "T1"), NDP_IS(OPERAND, 4, "T1")},
               .out = {NDP_IS(RESULT, 0, "..", .times = NDP_TIMES_UNSUMMED), NDP_IS(RESULT, 1, "Tc")}}),
};

static ndp_status delta_shape(ndp_op_call *c) {
    const ndp_op_attr *a = c->attr;
    const ndp_view *state = &c->in[0], *q = &c->in[1], *v = &c->in[3], *g = &c->in[4], *b = &c->in[5];
    NDP_SHAPE_CHECK(a->heads > 0 && a->kv_heads > 0 && a->heads % a->kv_heads == 0 && a->head_dim > 0,
                    "delta_step: heads %d, kv_heads %d, head_dim %d", a->heads, a->kv_heads, a->head_dim);
    NDP_SHAPE_SAME(c, c->in[1], c->in[2]);
    NDP_SHAPE_CHECK(q->cols == (int64_t)a->kv_heads * a->head_dim && v->rows == q->rows &&
                        v->cols == (int64_t)a->heads * ndp_v_dim(a) && g->rows == q->rows && g->cols == a->heads &&
                        b->rows == q->rows && b->cols == a->heads && g->dtype == ndp_wide(q->dtype),
                    "delta_step: q " NDP_SHAPE ", v " NDP_SHAPE ", g " NDP_SHAPE ", b " NDP_SHAPE, NDP_SHAPE_ARGS(*q),
                    NDP_SHAPE_ARGS(*v), NDP_SHAPE_ARGS(*g), NDP_SHAPE_ARGS(*b));
    NDP_SHAPE_CHECK(state->cols == v->cols * a->head_dim && state->dtype == ndp_wide(q->dtype),
                    "delta_step: state " NDP_SHAPE " of %d heads", NDP_SHAPE_ARGS(*state), a->heads);
    NDP_TRY(check_rows(c, 6, q->rows));
    ndp_shape_like(&c->out[0], state);
    ndp_shape_like(&c->out[1], v);
    return NDP_OK;
}

/* A row reads and writes the whole state. */
static void delta_cost(const ndp_op_call *c, double *flops, double *bytes) {
    double of_row = (double)c->in[0].cols;
    *flops = 7 * of_row * (double)c->in[1].rows;
    *bytes = 2 * of_row * (double)c->in[1].rows * (double)ndp_dtype_size(c->in[0].dtype);
}

const ndp_op ndp_op_delta_step = {
    NDP_NAMED(delta_step),
    .n_in = 8,
    .n_out = 2,
    .in_place = true,
    .rows = NDP_ROWS_MIXED,
    .shape = delta_shape,
    .cost = delta_cost,
    .reads = NDP_READS_heads | NDP_READS_kv_heads | NDP_READS_head_dim | NDP_READS_v_dim | NDP_READS_capacity,
    NDP_FLOWS(
        {.in = {NDP_IS(ANY, 0, ".."), NDP_IS(OPERAND, 1, "TC"), NDP_IS(OPERAND, 2, "TC"), NDP_IS(OPERAND, 3, "TE"),
                NDP_IS(OPERAND, 4, "TH"), NDP_IS(OPERAND, 5, "TH"), NDP_IS(OPERAND, 6, "T1"), NDP_IS(OPERAND, 7, "T1")},
         .out = {NDP_IS(RESULT, 0, "..", .times = NDP_TIMES_UNSUMMED), NDP_IS(RESULT, 1, "TE")}}),
};
