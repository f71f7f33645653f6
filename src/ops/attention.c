/* attention, attention_bwd, attention_dsink.
 *
 * p[t,s] = exp(scale q[t].k[s] - lse[t]) over the keys that t sees; o = p v. Backward, with delta[t] = do[t].o[t]:
 * ds[t,s] = p[t,s] (do[t].v[s] - delta[t]), dq = scale ds k, dk = scale ds^T q, dv = p^T do.
 * With a cap c a score x becomes c tanh(x / c) before the softmax, and ds gains the slope of that, 1 - (score / c)^2.
 *
 * A sink of a head is a score without a key or a value: one more term of the sum that lse is the log of. All formulas
 * stay as they are, with that lse; its own weight is exp(sink - lse[t]), and dsink = -sum of that times delta[t]. Where
 * keys are attended to in parts, one of them has the sink. */
#include "ops/flow.h"
#include "ops/shape.h"

#include <math.h>

enum { Q, K, V, Q_POS, Q_LOW, K_POS, SINK };
enum { B_DO, B_Q, B_K, B_V, B_O, B_LSE, B_Q_POS, B_Q_LOW, B_K_POS };

static ndp_status check_heads(const ndp_op_call *c, const ndp_view *q, const ndp_view *k, const ndp_view *v) {
    const ndp_op_attr *a = c->attr;
    NDP_SHAPE_CHECK(a->heads > 0 && a->kv_heads > 0 && a->head_dim > 0 && a->v_dim >= 0 &&
                        a->heads % a->kv_heads == 0 && a->window >= 0,
                    "attention: heads %d, kv_heads %d, head_dim %d, v_dim %d, window %d", a->heads, a->kv_heads,
                    a->head_dim, a->v_dim, a->window);
    NDP_SHAPE_CHECK(q->cols == (int64_t)a->heads * a->head_dim && k->cols == (int64_t)a->kv_heads * a->head_dim &&
                        q->dtype == k->dtype,
                    "attention: q " NDP_SHAPE " and k " NDP_SHAPE " with %d and %d heads of %d", NDP_SHAPE_ARGS(*q),
                    NDP_SHAPE_ARGS(*k), a->heads, a->kv_heads, a->head_dim);
    NDP_SHAPE_CHECK(v->rows == k->rows && v->cols == (int64_t)a->kv_heads * ndp_v_dim(a) && v->dtype == k->dtype,
                    "attention: v " NDP_SHAPE " for k " NDP_SHAPE ", with %d heads of %d", NDP_SHAPE_ARGS(*v),
                    NDP_SHAPE_ARGS(*k), a->kv_heads, ndp_v_dim(a));
    return NDP_OK;
}

/* The three that say which keys a query sees. */
static ndp_status check_positions(const ndp_view *pos, int64_t queries, int64_t keys) {
    static const char *const names[] = {"q_pos", "q_low", "k_pos"};
    for (int i = 0; i < NDP_COUNT(names); i++) {
        int64_t rows = i < 2 ? queries : keys;
        NDP_SHAPE_CHECK(pos[i].rows == rows && pos[i].cols == 1 && pos[i].dtype == NDP_I32,
                        "attention: %s is " NDP_SHAPE ", not [%lld,1] int32", names[i], NDP_SHAPE_ARGS(pos[i]),
                        (long long)rows);
    }
    return NDP_OK;
}

/* A number for each head; those here begin at attr.first. */
static ndp_status check_sink(const ndp_op_call *c, const ndp_view *sink, ndp_dtype type) {
    NDP_SHAPE_CHECK(sink->rows == 1 && c->attr->first >= 0 && c->attr->first + c->attr->heads <= sink->cols &&
                        ndp_wide(sink->dtype) == ndp_wide(type),
                    "%s: sink " NDP_SHAPE " for %d heads from %lld on", c->op->name, NDP_SHAPE_ARGS(*sink),
                    c->attr->heads, (long long)c->attr->first);
    return NDP_OK;
}

static ndp_status attention_shape(ndp_op_call *c) {
    const ndp_view *q = &c->in[Q], *k = &c->in[K];
    if (c->in[SINK].rows > 0)
        NDP_TRY(check_sink(c, &c->in[SINK], q->dtype));
    NDP_TRY(check_heads(c, q, k, &c->in[V]));
    NDP_TRY(check_positions(&c->in[Q_POS], q->rows, k->rows));
    ndp_shape_set(&c->out[0], q->rows, (int64_t)c->attr->heads * ndp_v_dim(c->attr), q->dtype);
    ndp_shape_set(&c->out[1], q->rows, c->attr->heads, ndp_wide(q->dtype));
    return NDP_OK;
}

/* A row for each of q's, of its type or wide: o and its gradient. */
static ndp_status check_result(const char *name, const ndp_op_attr *a, const ndp_view *v, const ndp_view *q) {
    NDP_SHAPE_CHECK(v->rows == q->rows && v->cols == (int64_t)a->heads * ndp_v_dim(a) &&
                        (v->dtype == q->dtype || v->dtype == ndp_wide(q->dtype)),
                    "attention_bwd: %s " NDP_SHAPE " for q " NDP_SHAPE " and %d heads of %d", name, NDP_SHAPE_ARGS(*v),
                    NDP_SHAPE_ARGS(*q), a->heads, ndp_v_dim(a));
    return NDP_OK;
}

static ndp_status attention_bwd_shape(ndp_op_call *c) {
    const ndp_view *q = &c->in[B_Q], *k = &c->in[B_K], *lse = &c->in[B_LSE];
    NDP_TRY(check_heads(c, q, k, &c->in[B_V]));
    NDP_TRY(check_positions(&c->in[B_Q_POS], q->rows, k->rows));
    NDP_TRY(check_result("do", c->attr, &c->in[B_DO], q));
    NDP_TRY(check_result("o", c->attr, &c->in[B_O], q));
    NDP_SHAPE_CHECK(lse->rows == q->rows && lse->cols == c->attr->heads && lse->dtype == ndp_wide(q->dtype),
                    "attention_bwd: lse " NDP_SHAPE " for q " NDP_SHAPE, NDP_SHAPE_ARGS(*lse), NDP_SHAPE_ARGS(*q));
    for (int i = 0; i < 3; i++)
        ndp_shape_set(&c->out[i], q[i].rows, q[i].cols, c->attr->wide_grad && i > 0 ? ndp_wide(q->dtype) : q->dtype);
    return NDP_OK;
}

static ndp_status attention_backward(ndp_bwd *b) {
    int d_o = b->grad_out(b, 0), wanted[3], n = 0;
    if (b->grad_out(b, 1) >= 0)
        return NDP_FAIL(NDP_EBUG, "attention: lse is a statistic, no gradient flows through it");
    for (int i = 0; i < 3; i++) {
        wanted[i] = b->wants(b, i) ? i : -1;
        n += wanted[i] >= 0;
    }
    int ins[] = {d_o, b->in[Q], b->in[K], b->in[V], b->out[0], b->out[1], b->in[Q_POS], b->in[Q_LOW], b->in[K_POS]};
    if (d_o < 0)
        return NDP_OK;
    if (n > 0)
        NDP_TRY(b->input_grad(b, &ndp_op_attention_bwd, b->attr, ins, NDP_COUNT(ins), wanted, 3, -1, NULL));
    int sink_ins[] = {d_o, b->out[0], b->out[1], b->in[SINK]};
    return b->wants(b, SINK) ? b->weight_grad(b, &ndp_op_attention_dsink, b->attr, sink_ins, NDP_COUNT(sink_ins), SINK)
                             : NDP_OK;
}

/* Pairs (query, key) of a causal mask with the queries being the last positions, inside the window: what data (document
 * starts, positions) leaves out is not known here. */
static double causal_pairs(int64_t n_q, int64_t n_k, int window) {
    double w = window > 0 && window < n_k ? (double)window : (double)n_k;
    double hi = (double)n_k, lo = n_k > n_q ? (double)(n_k - n_q) : 0;
    /* sum over i in (lo, hi] of min(i, w) */
    double a = fmin(hi, w), b = fmin(lo, w);
    return a * (a + 1) / 2 - b * (b + 1) / 2 + w * (fmax(hi, w) - fmax(lo, w));
}

/* `of_q`, `of_v`: operations for a pair and a column of a head of q, or of v. */
static double count_by(const ndp_op_call *c, const ndp_view *q, const ndp_view *k, double of_q, double of_v) {
    return causal_pairs(q->rows, k->rows, c->attr->window) * c->attr->heads *
           (of_q * c->attr->head_dim + of_v * ndp_v_dim(c->attr));
}

static void attention_cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)bytes;
    *flops = count_by(c, &c->in[Q], &c->in[K], 2, 2);
}
static void attention_bwd_cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)bytes;
    *flops = count_by(c, &c->in[B_Q], &c->in[B_K], 6, 4);
}

const ndp_op ndp_op_attention = {
    NDP_NAMED(attention),
    .n_in = 7,
    .n_out = 2,
    .optional_in = 1u << SINK,
    .rows = NDP_ROWS_MIXED,
    .shape = attention_shape,
    .backward = attention_backward,
    .cost = attention_cost,
    .reads = NDP_READS_heads | NDP_READS_kv_heads | NDP_READS_head_dim | NDP_READS_v_dim | NDP_READS_window |
             NDP_READS_scale | NDP_READS_cap | NDP_READS_wide_grad | NDP_READS_first,
    NDP_FLOWS({.in = {NDP_IS(OPERAND, 0, "tc"), NDP_IS(OPERAND, 1, "sk", .each = NDP_EACH_KV_HEAD),
                      NDP_IS(OPERAND, 2, "sk", .each = NDP_EACH_KV_HEAD), NDP_IS(OPERAND, 3, "t1"),
                      NDP_IS(OPERAND, 4, "t1"), NDP_IS(OPERAND, 5, "s1"), NDP_IS(MAYBE, 6, "1.", .name = "sinks")}}),
};

const ndp_op ndp_op_attention_bwd = {
    NDP_NAMED(attention_bwd),
    .n_in = 9,
    .n_out = 3,
    .rows = NDP_ROWS_MIXED,
    .shape = attention_bwd_shape,
    .cost = attention_bwd_cost,
    .reads = NDP_READS_heads | NDP_READS_kv_heads | NDP_READS_head_dim | NDP_READS_v_dim | NDP_READS_window |
             NDP_READS_scale | NDP_READS_cap | NDP_READS_wide_grad,
    NDP_FLOWS(
        {.node = &ndp_op_attention,
         .in = {NDP_IS(D_RESULT, 0, "th", .each = NDP_EACH_HEAD), NDP_IS(OPERAND, 0, "th", .each = NDP_EACH_HEAD),
                NDP_IS(OPERAND, 1, "sk", .each = NDP_EACH_KV_HEAD), NDP_IS(OPERAND, 2, "sk", .each = NDP_EACH_KV_HEAD),
                NDP_IS(RESULT, 0, "th", .each = NDP_EACH_HEAD), NDP_IS(RESULT, 1, "t."), NDP_IS(OPERAND, 3, "t1"),
                NDP_IS(OPERAND, 4, "t1"), NDP_IS(OPERAND, 5, "s1")}}),
};

/* attention_dsink ------------------------------------------------------------------------------------------------ */

static ndp_status dsink_shape(ndp_op_call *c) {
    const ndp_view *d_o = &c->in[0], *o = &c->in[1], *lse = &c->in[2], *sink = &c->in[3];
    NDP_SHAPE_CHECK(d_o->rows == o->rows && d_o->cols == o->cols && ndp_wide(d_o->dtype) == ndp_wide(o->dtype) &&
                        o->cols == (int64_t)c->attr->heads * ndp_v_dim(c->attr),
                    "attention_dsink: do " NDP_SHAPE ", o " NDP_SHAPE, NDP_SHAPE_ARGS(*d_o), NDP_SHAPE_ARGS(*o));
    NDP_SHAPE_CHECK(lse->rows == o->rows && lse->cols == c->attr->heads && lse->dtype == ndp_wide(o->dtype),
                    "attention_dsink: lse " NDP_SHAPE, NDP_SHAPE_ARGS(*lse));
    NDP_TRY(check_sink(c, sink, o->dtype));
    ndp_shape_set(&c->out[0], 1, sink->cols, ndp_wide(sink->dtype));
    return NDP_OK;
}

static void dsink_cost(const ndp_op_call *c, double *flops, double *bytes) {
    (void)bytes;
    *flops = 2 * ndp_elements(&c->in[0]) + 12 * ndp_elements(&c->in[2]);
}

const ndp_op ndp_op_attention_dsink = {
    NDP_NAMED(attention_dsink),
    .n_in = 4,
    .n_out = 1,
    .rows = NDP_ROWS_SUMMED,
    .shape = dsink_shape,
    .cost = dsink_cost,
    .reads = NDP_READS_heads | NDP_READS_head_dim | NDP_READS_v_dim | NDP_READS_first,
    NDP_FLOWS({.node = &ndp_op_attention,
               .in = {NDP_IS(D_RESULT, 0, "tc"), NDP_IS(RESULT, 0, "tc"), NDP_IS(RESULT, 1, "t."),
                      NDP_IS(OPERAND, 6, "1.", .name = "sinks")}}),
};
