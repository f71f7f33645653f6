/* attention, attention_bwd, attention_dsink: plain loops, a row of one head at a time. The formulas are in
 * ops/attention.c. */
#include "ops/ref/ref_kernels.h"

#include <math.h>

enum { Q, K, V, Q_POS, Q_LOW, K_POS, SINK };
enum { B_DO, B_Q, B_K, B_V, B_O, B_LSE, B_Q_POS, B_Q_LOW, B_K_POS };

/* A row of keys and one of values. */
static size_t scratch(const ndp_op_call *c) {
    return sizeof(double) * (size_t)(c->attr->head_dim + ndp_v_dim(c->attr));
}

/* The operands that decide which key a query sees, and its score. */
typedef struct ref_scores {
    const ndp_op_attr *attr;
    const ndp_view *q, *k, *q_pos, *q_low, *k_pos;
} ref_scores;

static double dot(const ndp_view *a, int64_t row_a, int64_t col_a, const ndp_view *b, int64_t row_b, int64_t col_b,
                  int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += ndp_view_get(a, row_a, col_a + i) * ndp_view_get(b, row_b, col_b + i);
    return sum;
}

static bool sees(const ref_scores *r, int64_t t, int64_t s) {
    double pos = ndp_view_get(r->q_pos, t, 0), low = ndp_view_get(r->q_low, t, 0), key = ndp_view_get(r->k_pos, s, 0);
    if (r->attr->window > 0)
        low = fmax(low, pos - r->attr->window + 1);
    return low <= key && key <= pos;
}

static int kv_head(const ndp_op_attr *a, int h) { return h / (a->heads / a->kv_heads); }

static double score(const ref_scores *r, int64_t t, int h, int64_t s) {
    int d = r->attr->head_dim;
    double x = r->attr->scale * dot(r->q, t, (int64_t)h * d, r->k, s, (int64_t)kv_head(r->attr, h) * d, d);
    return r->attr->cap > 0 ? r->attr->cap * tanh(x / r->attr->cap) : x;
}

static void attention_row(const ndp_op_call *c, const ref_scores *r, int64_t t, int h) {
    int d = ndp_v_dim(c->attr);
    int64_t v_col = (int64_t)kv_head(c->attr, h) * d;
    double sink = c->in[SINK].data ? ndp_view_get(&c->in[SINK], 0, c->attr->first + h) : -INFINITY;
    double *acc = c->scratch, max = sink, sum;
    bool any = sink > -INFINITY;
    for (int i = 0; i < d; i++)
        acc[i] = 0;
    for (int64_t s = 0; s < r->k->rows; s++)
        if (sees(r, t, s)) {
            max = fmax(max, score(r, t, h, s));
            any = true;
        }
    sum = any ? exp(sink - max) : 0;
    for (int64_t s = 0; s < r->k->rows; s++) {
        if (!sees(r, t, s))
            continue;
        double p = exp(score(r, t, h, s) - max);
        sum += p;
        for (int i = 0; i < d; i++)
            acc[i] += p * ndp_view_get(&c->in[V], s, v_col + i);
    }
    for (int i = 0; i < d; i++)
        ndp_view_set(&c->out[0], t, (int64_t)h * d + i, any ? acc[i] / sum : 0);
    if (c->out[1].data)
        ndp_view_set(&c->out[1], t, h, any ? max + log(sum) : -INFINITY);
}

static ndp_status run_attention(const ndp_op_call *c) {
    ref_scores r = {c->attr, &c->in[Q], &c->in[K], &c->in[Q_POS], &c->in[Q_LOW], &c->in[K_POS]};
    for (int64_t t = 0; t < c->in[Q].rows; t++)
        for (int h = 0; h < c->attr->heads; h++)
            attention_row(c, &r, t, h);
    return NDP_OK;
}

const ndp_kernel ndp_ref_attention = {.run = run_attention, .scratch = scratch};

/* p and ds of one pair that sees each other. */
static void pair(const ndp_op_call *c, const ref_scores *r, int64_t t, int h, int64_t s, double *p, double *ds) {
    int d = ndp_v_dim(c->attr);
    int64_t col = (int64_t)h * d, kv_col = (int64_t)kv_head(c->attr, h) * d;
    double delta = dot(&c->in[B_DO], t, col, &c->in[B_O], t, col, d), x = score(r, t, h, s);
    *p = exp(x - ndp_view_get(&c->in[B_LSE], t, h));
    *ds = *p * (dot(&c->in[B_DO], t, col, &c->in[B_V], s, kv_col, d) - delta);
    if (r->attr->cap > 0)
        *ds *= 1 - x / r->attr->cap * (x / r->attr->cap);
}

static void row_dq(const ndp_op_call *c, const ref_scores *r, int64_t t, int h) {
    int d = c->attr->head_dim;
    double *acc = c->scratch, p, ds;
    for (int i = 0; i < d; i++)
        acc[i] = 0;
    for (int64_t s = 0; s < r->k->rows; s++) {
        if (!sees(r, t, s))
            continue;
        pair(c, r, t, h, s, &p, &ds);
        for (int i = 0; i < d; i++)
            acc[i] += ds * ndp_view_get(r->k, s, (int64_t)kv_head(c->attr, h) * d + i);
    }
    for (int i = 0; i < d; i++)
        ndp_view_set(&c->out[0], t, (int64_t)h * d + i, c->attr->scale * acc[i]);
}

static void key_dk_dv(const ndp_op_call *c, const ref_scores *r, int64_t s, int kv) {
    int d = c->attr->head_dim, e = ndp_v_dim(c->attr), group = c->attr->heads / c->attr->kv_heads;
    double *dk = c->scratch, *dv = dk + d, p, ds;
    for (int i = 0; i < d + e; i++)
        dk[i] = 0;
    for (int h = kv * group; h < (kv + 1) * group; h++)
        for (int64_t t = 0; t < r->q->rows; t++) {
            if (!sees(r, t, s))
                continue;
            pair(c, r, t, h, s, &p, &ds);
            for (int i = 0; i < d; i++)
                dk[i] += ds * ndp_view_get(r->q, t, (int64_t)h * d + i);
            for (int i = 0; i < e; i++)
                dv[i] += p * ndp_view_get(&c->in[B_DO], t, (int64_t)h * e + i);
        }
    for (int i = 0; i < d && c->out[1].data; i++)
        ndp_view_set(&c->out[1], s, (int64_t)kv * d + i, c->attr->scale * dk[i]);
    for (int i = 0; i < e && c->out[2].data; i++)
        ndp_view_set(&c->out[2], s, (int64_t)kv * e + i, dv[i]);
}

static ndp_status run_attention_bwd(const ndp_op_call *c) {
    ref_scores r = {c->attr, &c->in[B_Q], &c->in[B_K], &c->in[B_Q_POS], &c->in[B_Q_LOW], &c->in[B_K_POS]};
    if (c->out[0].data)
        for (int64_t t = 0; t < r.q->rows; t++)
            for (int h = 0; h < c->attr->heads; h++)
                row_dq(c, &r, t, h);
    if (c->out[1].data || c->out[2].data)
        for (int64_t s = 0; s < r.k->rows; s++)
            for (int kv = 0; kv < c->attr->kv_heads; kv++)
                key_dk_dv(c, &r, s, kv);
    return NDP_OK;
}

const ndp_kernel ndp_ref_attention_bwd = {.run = run_attention_bwd, .scratch = scratch};

static double attention_dsink(const ndp_op_call *c, int64_t row, int64_t i) {
    int64_t h = i - c->attr->first;
    int d = ndp_v_dim(c->attr);
    double sum = 0;
    for (int64_t t = 0; t < c->in[0].rows && h >= 0 && h < c->attr->heads; t++)
        sum -=
            exp(ndp_ref_in(c, 3, row, i) - ndp_ref_in(c, 2, t, h)) * dot(&c->in[0], t, h * d, &c->in[1], t, h * d, d);
    return sum;
}

NDP_REF_EACH(attention_dsink)
