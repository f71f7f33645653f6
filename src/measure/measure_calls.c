/* The calls of a shape that is measured. */
#include "measure/measure_calls.h"

#include <math.h>

enum { SMALLEST = 64, SMALLEST_ROWS = 16, FEW_HEADS = 4 };

static ndp_view matrix(int64_t rows, int64_t cols, ndp_dtype type) {
    return (ndp_view){.dtype = type, .rows = rows, .cols = cols, .ld = cols};
}

/* The shape rule sets all but the row stride. */
static ndp_status set_outputs(ndp_op_call *c) {
    NDP_TRY(c->op->shape(c));
    for (int i = 0; i < c->op->n_out; i++)
        c->out[i].ld = c->out[i].cols;
    return NDP_OK;
}

static void set_product(const ndp_timed_shape *s, ndp_op_call *c) {
    ndp_view x = matrix(s->m, s->k, s->type), w = matrix(s->n, s->k, s->type), dy = matrix(s->m, s->n, s->type);
    c->in[0] = s->op->id == NDP_OP_linear ? x : dy;
    c->in[1] = s->op->id == NDP_OP_linear_dw ? x : w;
}

static void set_by_elements(const ndp_timed_shape *s, ndp_op_call *c) {
    for (int i = 0; i < (s->op->id == NDP_OP_add ? 2 : 1); i++)
        c->in[i] = matrix(s->m, s->k, s->type);
}

/* Four heads share one of keys, as far as there are four. */
static int64_t kv_heads(int64_t heads) { return heads >= 4 ? heads / 4 : 1; }

static void set_attention(const ndp_timed_shape *s, ndp_op_call *c) {
    ndp_view q = matrix(s->m, s->n * s->k, s->type), k = matrix(s->m, kv_heads(s->n) * s->k, s->type);
    ndp_view position = matrix(s->m, 1, NDP_I32);
    const ndp_view in[] = {q, k, k, position, position, position};
    memcpy(c->in, in, sizeof in);
}

static ndp_status add_backward(ndp_timed_calls *calls) {
    const ndp_op_call *f = &calls->call[0];
    ndp_op_call *b = &calls->call[calls->n++];
    *b = (ndp_op_call){.op = &ndp_op_attention_bwd, .attr = &calls->attr, .exec = f->exec};
    const ndp_view in[] = {f->in[0], f->in[0], f->in[1], f->in[2], f->out[0], f->out[1], f->in[3], f->in[4], f->in[5]};
    memcpy(b->in, in, sizeof in);
    return set_outputs(b);
}

ndp_status ndp_timed_calls_of(const ndp_timed_shape *s, const ndp_exec *exec, ndp_timed_calls *out) {
    *out = (ndp_timed_calls){.n = 1};
    ndp_op_call *c = &out->call[0];
    *c = (ndp_op_call){.op = s->op, .attr = &out->attr, .exec = exec};
    if (s->kind == NDP_TIMING_ATTENTION) {
        set_attention(s, c);
        out->attr.heads = (int)s->n, out->attr.kv_heads = (int)kv_heads(s->n), out->attr.head_dim = (int)s->k;
        out->attr.scale = 1 / sqrt((double)s->k);
    } else if (s->kind == NDP_TIMING_PRODUCT) {
        set_product(s, c);
    } else {
        set_by_elements(s, c);
        out->attr.type = s->type;
    }
    NDP_TRY(set_outputs(c));
    if (s->kind == NDP_TIMING_ATTENTION)
        NDP_TRY(add_backward(out));
    for (int i = 0; i < out->n; i++) {
        double flops, bytes;
        ndp_op_cost(&out->call[i], &flops, &bytes);
        out->flops += flops, out->bytes += bytes;
    }
    return NDP_OK;
}

static bool halve(int64_t *size, int64_t smallest) {
    bool larger = *size > smallest;
    if (larger)
        *size /= 2;
    return larger;
}

/* In turn, so that a thin matrix stays thin, and a square one nearly square. */
static bool halve_product(ndp_timed_shape *s) {
    int64_t *const sizes[] = {&s->m, &s->n, &s->k};
    bool smaller = false;
    for (int i = 0; i < NDP_COUNT(sizes) && !smaller; i++)
        smaller = halve(sizes[s->halved++ % NDP_COUNT(sizes)], SMALLEST);
    return smaller;
}

bool ndp_timed_halve(ndp_timed_shape *s) {
    switch (s->kind) {
    case NDP_TIMING_PRODUCT:
        return halve_product(s);
    case NDP_TIMING_ATTENTION:
        return halve(&s->n, FEW_HEADS) || halve(&s->m, SMALLEST) || halve(&s->n, 1);
    case NDP_TIMING_MEMORY:
        return halve(&s->m, SMALLEST_ROWS);
    default:
        return false;
    }
}
