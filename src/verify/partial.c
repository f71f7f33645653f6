/* The kernels that sum over rows, on some of the rows. A call on a range is the same call with operands that begin
 * later and have fewer rows; its plan and scratch memory are made for it, since those of the program are for all rows.
 */
#include "verify/partial.h"

#include "ops/xent_rows.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static ndp_partial *partial_of(const ndp_op_call *c) { return (ndp_partial *)c->exec->device->user; }

static ndp_status take_scratch(ndp_partial *p, size_t bytes) {
    if (bytes <= p->scratch_bytes)
        return NDP_OK;
    free(p->scratch);
    p->scratch_bytes = 0;
    if (posix_memalign(&p->scratch, 64, bytes) != 0) {
        p->scratch = NULL;
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for %zu bytes of scratch memory", bytes);
    }
    p->scratch_bytes = bytes;
    return NDP_OK;
}

/* Runs a call that the program did not plan. */
static ndp_status run_unplanned(ndp_partial *p, ndp_op_call *c) {
    const ndp_kernel *k = p->inner->kernels[c->op->id];
    if (k->prepare)
        NDP_TRY(k->prepare(c));
    NDP_TRY(take_scratch(p, k->scratch ? k->scratch(c) : 0));
    c->scratch = p->scratch;
    return k->run(c);
}

static void cut_rows(ndp_view *v, ndp_row_range r) {
    if (!v->data)
        return;
    v->data = (char *)v->data + (size_t)(r.first * v->ld) * ndp_dtype_size(v->dtype);
    v->rows = r.count;
}

/* Columns [first, first + count) of parts of the columns. */
static void cut_columns(ndp_view *v, int64_t first, int64_t count, int64_t parts) {
    int64_t each = v->cols / parts;
    v->data = (char *)v->data + (size_t)(first * each) * ndp_dtype_size(v->dtype);
    v->cols = count * each;
}

/* A norm of heads: rstd has a column for each. */
static void cut_heads(const ndp_partial_sums *s, ndp_op_call *c) {
    int64_t heads = c->in[2].cols, each = heads / s->head_ranks;
    for (int i = 0; i < 3; i++)
        cut_columns(&c->in[i], s->head_rank * each, each, heads);
}

/* A gradient whose operands all have a row for each row of the batch. */
static ndp_status run_sum(const ndp_op_call *c) {
    ndp_partial *p = partial_of(c);
    const ndp_partial_sums *s = &p->sums;
    bool heads =
        s->head_ranks && c->op->id == NDP_OP_rmsnorm_dw && c->in[2].cols > 1 && c->in[2].cols % s->head_ranks == 0;
    if (s->no_embedding && c->op->id == NDP_OP_embedding_dw) {
        if (!c->attr->accumulate)
            ndp_view_clear(&c->out[0]);
        return NDP_OK;
    }
    if (s->n == 0 && !heads)
        return p->inner->kernels[c->op->id]->run(c);
    const ndp_row_range all = {0, c->in[0].rows};
    for (int k = 0; k < (s->n ? s->n : 1); k++) {
        ndp_op_attr attr = *c->attr;
        ndp_op_call part = *c;
        attr.accumulate |= k > 0;
        part.attr = &attr;
        for (int i = 0; i < c->op->n_in; i++)
            cut_rows(&part.in[i], s->n ? s->rows[k] : all);
        if (heads)
            cut_heads(s, &part);
        NDP_TRY(run_unplanned(p, &part));
    }
    return NDP_OK;
}

/* The gradient of the head's weights, where it is summed: labels outside of the ranges count as none. */
static ndp_status run_head_sum(ndp_partial *p, const ndp_op_call *c) {
    ndp_op_call part = *c;
    int64_t rows = c->in[2].rows;
    int32_t *labels = malloc((size_t)rows * sizeof *labels);
    if (!labels)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for %lld labels", (long long)rows);
    for (int64_t t = 0; t < rows; t++) {
        bool inside = false;
        for (int k = 0; k < p->sums.n; k++)
            inside |= t >= p->sums.rows[k].first && t < p->sums.rows[k].first + p->sums.rows[k].count;
        labels[t] = inside ? (int32_t)ndp_view_get(&c->in[2], t, 0) : -1;
    }
    part.in[2] = (ndp_view){labels, NDP_I32, rows, 1, 1};
    part.out[1] = (ndp_view){0};
    ndp_status st = run_unplanned(p, &part);
    free(labels);
    return st;
}

/* In fp64, from what the head reads: its kernel keeps none. */
static ndp_status show_logits(const ndp_partial *p, const ndp_op_call *c) {
    const ndp_view *x = &c->in[0], *w = &c->in[1];
    double *logits = malloc((size_t)c->attr->vocab * sizeof *logits), cap = c->attr->cap;
    ndp_status st =
        logits ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for %lld logits", (long long)c->attr->vocab);
    for (int64_t t = 0; t < x->rows && st == NDP_OK; t++) {
        if (ndp_view_get(&c->in[2], t, 0) < 0)
            continue;
        for (int64_t v = 0; v < c->attr->vocab; v++) {
            double sum = 0;
            for (int64_t k = 0; k < x->cols; k++)
                sum += ndp_view_get(x, t, k) * ndp_view_get(w, v, k);
            logits[v] = cap > 0 ? cap * tanh(sum / cap) : sum;
        }
        st = p->logits(p->user, t, logits, c->attr->vocab);
    }
    free(logits);
    return st;
}

/* The head: the gradient of its weights apart, before the call that makes everything else. */
static ndp_status run_xent(const ndp_op_call *c) {
    ndp_partial *p = partial_of(c);
    const ndp_partial_sums *s = &p->sums;
    if (p->logits)
        NDP_TRY(show_logits(p, c));
    if ((s->n == 0 && !s->no_head) || !c->attr->train || !c->out[2].data)
        return p->inner->kernels[c->op->id]->run(c);
    if (s->no_head && !c->attr->accumulate)
        ndp_view_clear(&c->out[2]);
    if (!s->no_head)
        NDP_TRY(run_head_sum(p, c));
    ndp_op_call rest = *c;
    rest.out[2] = (ndp_view){0};
    return run_unplanned(p, &rest);
}

/* Zeroes the columns of a view [T,H*D], contiguous, but those of part `part` of `parts` of each group of query heads.
 */
static void keep_heads(const ndp_view *v, const ndp_op_attr *attr, int part, int parts) {
    size_t size = ndp_dtype_size(v->dtype);
    int group = attr->heads / attr->kv_heads;
    for (int h = 0; h < attr->heads; h++)
        for (int64_t t = 0; t < v->rows && h % group * parts / group != part; t++)
            memset((char *)v->data + (size_t)(t * v->ld + h * attr->head_dim) * size, 0, (size_t)attr->head_dim * size);
}

/* Everything first; then keys and values again, with zeros as the gradient of the other heads' results, which makes
 * theirs zero; what that gives for queries is thrown away. */
static ndp_status run_attention(const ndp_op_call *c) {
    ndp_partial *p = partial_of(c);
    const ndp_partial_sums *s = &p->sums;
    const ndp_view *from = &c->in[0];
    size_t size = ndp_dtype_size(from->dtype), row = (size_t)from->cols * size;
    NDP_TRY(p->inner->kernels[c->op->id]->run(c));
    if (++p->attentions != s->attention)
        return NDP_OK;
    char *copy = malloc((size_t)from->rows * row);
    char *queries = malloc((size_t)(c->out[0].rows * c->out[0].ld) * ndp_dtype_size(c->out[0].dtype));
    ndp_status st = copy && queries ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for gradients of attention");
    ndp_op_call again = *c;
    again.in[0].data = copy, again.in[0].ld = from->cols;
    again.out[0].data = queries;
    for (int64_t t = 0; t < from->rows && st == NDP_OK; t++)
        memcpy(copy + (size_t)t * row, (const char *)from->data + (size_t)(t * from->ld) * size, row);
    if (st == NDP_OK) {
        keep_heads(&again.in[0], c->attr, s->kv_part, s->kv_parts);
        st = run_unplanned(p, &again);
    }
    free(copy);
    free(queries);
    return st;
}

void ndp_partial_init(ndp_partial *p, const ndp_device *inner) {
    static const struct {
        ndp_op_id op;
        ndp_status (*run)(const ndp_op_call *c);
    } sums[] = {{NDP_OP_linear_dw, run_sum},          {NDP_OP_linear_db, run_sum},    {NDP_OP_rmsnorm_dw, run_sum},
                {NDP_OP_layernorm_dw, run_sum},       {NDP_OP_embedding_dw, run_sum}, {NDP_OP_xent, run_xent},
                {NDP_OP_attention_bwd, run_attention}};
    *p = (ndp_partial){.device = *inner, .inner = inner};
    memcpy(p->kernels, inner->kernels, sizeof p->kernels);
    for (int i = 0; i < NDP_COUNT(sums); i++) {
        p->own[sums[i].op] = *inner->kernels[sums[i].op];
        p->own[sums[i].op].run = sums[i].run;
        p->kernels[sums[i].op] = &p->own[sums[i].op];
    }
    p->device.kernels = p->kernels;
    p->device.user = p;
}

void ndp_partial_release(ndp_partial *p) {
    free(p->scratch);
    *p = (ndp_partial){0};
}
