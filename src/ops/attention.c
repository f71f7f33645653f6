/* attention, attention_bwd.
 *
 * p[t,s] = exp(scale q[t].k[s] - lse[t]) over the keys that t sees; o = p v. Backward, with delta[t] = do[t].o[t]:
 * ds[t,s] = p[t,s] (do[t].v[s] - delta[t]), dq = scale ds k, dk = scale ds^T q, dv = p^T do.
 * With a cap c a score x becomes c tanh(x / c) before the softmax, and ds gains the slope of that, 1 - (score / c)^2.
 */
#include "ops/shape.h"

#include <math.h>

enum { Q, K, V, Q_POS, Q_LOW, K_POS };
enum { B_DO, B_Q, B_K, B_V, B_O, B_LSE, B_Q_POS, B_Q_LOW, B_K_POS };

static ndp_status check_heads(const ndp_op_attr *a, const ndp_view *q, const ndp_view *k, const ndp_view *v) {
    NDP_SHAPE_CHECK(a->heads > 0 && a->kv_heads > 0 && a->head_dim > 0 && a->heads % a->kv_heads == 0 && a->window >= 0,
                    "attention: heads %d, kv_heads %d, head_dim %d, window %d", a->heads, a->kv_heads, a->head_dim,
                    a->window);
    NDP_SHAPE_CHECK(q->cols == (int64_t)a->heads * a->head_dim && k->cols == (int64_t)a->kv_heads * a->head_dim &&
                        q->dtype == k->dtype,
                    "attention: q " NDP_SHAPE " and k " NDP_SHAPE " with %d and %d heads of %d", NDP_SHAPE_ARGS(*q),
                    NDP_SHAPE_ARGS(*k), a->heads, a->kv_heads, a->head_dim);
    NDP_SHAPE_SAME("attention", *k, *v);
    return NDP_OK;
}

static ndp_status check_positions(const ndp_view *pos, int64_t rows, const char *name) {
    NDP_SHAPE_CHECK(pos->rows == rows && pos->cols == 1 && pos->dtype == NDP_I32,
                    "attention: %s is " NDP_SHAPE ", not [%lld,1] int32", name, NDP_SHAPE_ARGS(*pos), (long long)rows);
    return NDP_OK;
}

static ndp_status attention_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    NDP_TRY(check_heads(attr, &in[Q], &in[K], &in[V]));
    NDP_TRY(check_positions(&in[Q_POS], in[Q].rows, "q_pos"));
    NDP_TRY(check_positions(&in[Q_LOW], in[Q].rows, "q_low"));
    NDP_TRY(check_positions(&in[K_POS], in[K].rows, "k_pos"));
    ndp_shape_set(&out[0], in[Q].rows, in[Q].cols, in[Q].dtype);
    ndp_shape_set(&out[1], in[Q].rows, attr->heads, ndp_wide(in[Q].dtype));
    return NDP_OK;
}

/* Of o's shape, and of its type or wide. */
static ndp_status check_like_o(const char *name, const ndp_view *v, const ndp_view *o) {
    NDP_SHAPE_CHECK(v->rows == o->rows && v->cols == o->cols &&
                        (v->dtype == o->dtype || v->dtype == ndp_wide(o->dtype)),
                    "attention_bwd: %s " NDP_SHAPE " against " NDP_SHAPE, name, NDP_SHAPE_ARGS(*v), NDP_SHAPE_ARGS(*o));
    return NDP_OK;
}

static ndp_status attention_bwd_shape(const ndp_op_attr *attr, const ndp_view *in, ndp_view *out) {
    const ndp_view forward[] = {in[B_Q], in[B_K], in[B_V], in[B_Q_POS], in[B_Q_LOW], in[B_K_POS]};
    ndp_view o_lse[2];
    NDP_TRY(attention_shape(attr, forward, o_lse));
    NDP_TRY(check_like_o("do", &in[B_DO], &o_lse[0]));
    NDP_TRY(check_like_o("o", &in[B_O], &o_lse[0]));
    NDP_SHAPE_SAME("attention_bwd: lse", in[B_LSE], o_lse[1]);
    for (int i = 0; i < 3; i++)
        ndp_shape_set(&out[i], in[B_Q + i].rows, in[B_Q + i].cols,
                      attr->wide_grad && i > 0 ? ndp_wide(in[B_Q].dtype) : in[B_Q].dtype);
    return NDP_OK;
}

static ndp_status attention_backward(ndp_bwd *b) {
    int d_o = b->grad_out(b, 0), wanted[3], made[3], n = 0;
    if (b->grad_out(b, 1) >= 0)
        return NDP_FAIL(NDP_EBUG, "attention: lse is a statistic, no gradient flows through it");
    for (int i = 0; i < 3; i++) {
        wanted[i] = b->wants(b, i) ? i : -1;
        n += wanted[i] >= 0;
    }
    if (d_o < 0 || n == 0)
        return NDP_OK;
    int ins[] = {d_o, b->in[Q], b->in[K], b->in[V], b->out[0], b->out[1], b->in[Q_POS], b->in[Q_LOW], b->in[K_POS]};
    return b->input_grad(b, &ndp_op_attention_bwd, b->attr, ins, NDP_COUNT(ins), wanted, 3, -1, made);
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

static void attention_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, ndp_op_attention.n_in, ndp_op_attention.n_out, &c->in[Q], 0, flops, bytes);
    *flops = 4 * causal_pairs(c->in[Q].rows, c->in[K].rows, c->attr->window) * c->attr->heads * c->attr->head_dim;
}

static void attention_bwd_cost(const ndp_op_call *c, double *flops, double *bytes) {
    ndp_cost_stream(c, ndp_op_attention_bwd.n_in, ndp_op_attention_bwd.n_out, &c->in[B_Q], 0, flops, bytes);
    *flops = 10 * causal_pairs(c->in[B_Q].rows, c->in[B_K].rows, c->attr->window) * c->attr->heads * c->attr->head_dim;
}

const ndp_op ndp_op_attention = {
    .id = NDP_OP_attention,
    .name = "attention",
    .n_in = 6,
    .n_out = 2,
    .alias = -1,
    .rows = NDP_ROWS_MIXED,
    .shape = attention_shape,
    .backward = attention_backward,
    .cost = attention_cost,
};

const ndp_op ndp_op_attention_bwd = {
    .id = NDP_OP_attention_bwd,
    .name = "attention_bwd",
    .n_in = 9,
    .n_out = 3,
    .alias = -1,
    .rows = NDP_ROWS_MIXED,
    .shape = attention_bwd_shape,
    .cost = attention_bwd_cost,
};
