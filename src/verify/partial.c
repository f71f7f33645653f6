/* The kernels that sum over rows, on some of the rows. A call on a range is the same call with operands that begin
 * later and have fewer rows; its plan and scratch memory are made for it, since those of the program are for all rows.
 */
#include "verify/partial.h"

#include "base/arena.h"
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
    NDP_CHECK_MEMORY(labels, "for %lld labels", (long long)rows);
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
    ndp_status st = NDP_MEMORY(logits, "for %lld logits", (long long)c->attr->vocab);
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
    int group = attr->heads / attr->kv_heads, d = ndp_v_dim(attr);
    for (int h = 0; h < attr->heads; h++)
        for (int64_t t = 0; t < v->rows && h % group * parts / group != part; t++)
            memset((char *)v->data + (size_t)(t * v->ld + h * d) * size, 0, (size_t)d * size);
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
    ndp_status st = NDP_MEMORY(copy && queries, "for gradients of attention");
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

/* ---- routers ---- */

static ndp_other_experts *others_at(const ndp_partial *p, const void *at) {
    for (int i = 0; i < p->n_others; i++)
        if (p->others[i].at == at)
            return &p->others[i];
    return NULL;
}

static void forget(ndp_partial *p, const void *at) {
    ndp_other_experts *o = others_at(p, at);
    if (!o)
        return;
    free(o->rows.data);
    free(o->offsets);
    *o = p->others[--p->n_others];
}

static ndp_status make_rows(ndp_view *v, ndp_dtype type, int64_t rows, int64_t cols) {
    *v = (ndp_view){malloc((size_t)(rows * cols) * ndp_dtype_size(type)), type, rows, cols, cols};
    return NDP_MEMORY(v->data, "for %lld rows of other experts", (long long)rows);
}

static ndp_status keep_taken(ndp_partial *p, const ndp_view *x) {
    free(p->taken.data);
    NDP_TRY(make_rows(&p->taken, x->dtype, x->rows, x->cols));
    for (int64_t t = 0; t < x->rows; t++)
        for (int64_t k = 0; k < x->cols; k++)
            ndp_view_set(&p->taken, t, k, ndp_view_get(x, t, k));
    return NDP_OK;
}

/* Begins to follow what other experts make of the rows of a mixture: its rows, once for each rank. */
static ndp_status run_take_rows(const ndp_op_call *c) {
    ndp_partial *p = partial_of(c);
    const ndp_view *x = &c->in[0];
    ndp_other_experts o = {.at = c->out[0].data};
    NDP_TRY(p->inner->kernels[c->op->id]->run(c));
    if (!p->sums.last_experts)
        return NDP_OK;
    NDP_TRY(keep_taken(p, x));
    forget(p, o.at);
    NDP_TRY(ndp_array_reserve(&p->others, &p->others_capacity, p->n_others + 1, sizeof *p->others));
    NDP_TRY(make_rows(&o.rows, x->dtype, x->rows * p->sums.choice_ranks, x->cols));
    for (int64_t t = 0; t < o.rows.rows; t++)
        for (int64_t k = 0; k < x->cols; k++)
            ndp_view_set(&o.rows, t, k, ndp_view_get(x, t % x->rows, k));
    p->others[p->n_others++] = o;
    return NDP_OK;
}

/* of: where the rows of each expert begin; `last`: where those of o->rows do, of the last expert of each rank. */
static ndp_status read_offsets(const ndp_view *of, int ranks, ndp_other_experts *o, int32_t *last) {
    o->experts = of->rows - 1;
    free(o->offsets);
    o->offsets = malloc((size_t)of->rows * sizeof *o->offsets);
    NDP_CHECK_MEMORY(o->offsets && last, "for the offsets of %lld experts", (long long)o->experts);
    for (int64_t e = 0; e <= o->experts; e++) {
        o->offsets[e] = (int32_t)ndp_view_get(of, e, 0);
        last[e] = (int32_t)(e * ranks / o->experts * (o->rows.rows / ranks));
    }
    return NDP_OK;
}

/* The same op on the rows of others, which are then as far as the results of `c`. */
static ndp_status follow(ndp_partial *p, const ndp_op_call *c, ndp_other_experts *o, int32_t *last) {
    ndp_op_call other = *c;
    ndp_view rows;
    if (c->op->id == NDP_OP_linear_stack) {
        NDP_TRY(read_offsets(&c->in[2], p->sums.choice_ranks, o, last));
        other.in[2] = (ndp_view){last, NDP_I32, c->in[2].rows, 1, 1};
    }
    NDP_TRY(make_rows(&rows, c->out[0].dtype, o->rows.rows, c->out[0].cols));
    other.in[0] = o->rows, other.out[0] = rows;
    ndp_status st = run_unplanned(p, &other);
    ndp_other_experts next = {
        .at = o->weighed ? c->in[0].data : c->out[0].data, .rows = rows, .offsets = o->offsets, .experts = o->experts};
    o->offsets = NULL;
    forget(p, c->in[0].data);
    forget(p, next.at); /* of a layer before this one */
    p->others[p->n_others++] = next;
    return st;
}

/* A product, or an activation, that may be of experts. */
static ndp_status run_of_experts(const ndp_op_call *c) {
    ndp_partial *p = partial_of(c);
    NDP_TRY(p->inner->kernels[c->op->id]->run(c));
    ndp_other_experts *o = p->sums.last_experts ? others_at(p, c->in[0].data) : NULL;
    if (!o || o->rows.cols != c->in[0].cols)
        return NDP_OK;
    bool stack = c->op->id == NDP_OP_linear_stack;
    int32_t *last = stack ? malloc((size_t)c->in[2].rows * sizeof *last) : NULL;
    ndp_status st = follow(p, c, o, last);
    free(last);
    return st;
}

/* Those of others have no weights. */
static ndp_status run_weigh_rows(const ndp_op_call *c) {
    ndp_partial *p = partial_of(c);
    ndp_other_experts *o = p->sums.last_experts ? others_at(p, c->out[0].data) : NULL;
    if (o)
        o->weighed = true;
    return p->inner->kernels[c->op->id]->run(c);
}

/* dx[t] . what the last expert of rank r makes of row t. */
static double product_with(const ndp_view *dx, int64_t t, const ndp_view *rows, int r) {
    double sum = 0;
    for (int64_t k = 0; k < dx->cols; k++)
        sum += ndp_view_get(dx, t, k) * ndp_view_get(rows, r * dx->rows + t, k);
    return sum;
}

/* The gradient of the weights of choices: with that of the last expert of each rank but the choice's own. */
static ndp_status run_weights(const ndp_op_call *c) {
    ndp_partial *p = partial_of(c);
    const ndp_view *dx = &p->taken, *places = &c->in[2], *dw = &c->out[0];
    int ranks = p->sums.choice_ranks;
    NDP_TRY(p->inner->kernels[c->op->id]->run(c));
    const ndp_other_experts *o = p->sums.last_experts ? others_at(p, c->in[1].data) : NULL;
    for (int64_t t = 0; o && o->offsets && t < dx->rows; t++)
        for (int r = 0; r < ranks; r++) {
            double more = product_with(dx, t, &o->rows, r);
            int32_t first = o->offsets[r * o->experts / ranks], end = o->offsets[(r + 1) * o->experts / ranks];
            for (int64_t j = 0; j < places->cols; j++) {
                int32_t place = (int32_t)ndp_view_get(places, t, j);
                if (place >= 0 && (place < first || place >= end))
                    ndp_view_set(dw, t, j, ndp_view_get(dw, t, j) + more);
            }
        }
    return NDP_OK;
}

/* What arrives at the weights of other ranks' choices is zeroed in place: nothing else reads it. */
static ndp_status run_route_dx(const ndp_op_call *c) {
    ndp_partial *p = partial_of(c);
    const ndp_partial_sums *s = &p->sums;
    const ndp_view *dw = &c->in[0], *choices = &c->in[2];
    for (int64_t t = 0; s->choice_rank && t < dw->rows; t++)
        for (int64_t j = 0; j < dw->cols; j++)
            if ((int64_t)ndp_view_get(choices, t, j) * s->choice_ranks / c->in[1].cols != s->choice_rank - 1)
                ndp_view_set(dw, t, j, 0);
    return p->inner->kernels[c->op->id]->run(c);
}

void ndp_partial_init(ndp_partial *p, const ndp_device *inner) {
    static const struct {
        ndp_op_id op;
        ndp_status (*run)(const ndp_op_call *c);
    } sums[] = {
        {NDP_OP_linear_dw, run_sum},           {NDP_OP_linear_db, run_sum},       {NDP_OP_rmsnorm_dw, run_sum},
        {NDP_OP_layernorm_dw, run_sum},        {NDP_OP_embedding_dw, run_sum},    {NDP_OP_xent, run_xent},
        {NDP_OP_attention_bwd, run_attention}, {NDP_OP_take_rows, run_take_rows}, {NDP_OP_linear_stack, run_of_experts},
        {NDP_OP_swiglu, run_of_experts},       {NDP_OP_geglu, run_of_experts},    {NDP_OP_weigh_rows, run_weigh_rows},
        {NDP_OP_weigh_rows_dw, run_weights},   {NDP_OP_route_dx, run_route_dx}};
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
    while (p->n_others)
        forget(p, p->others[0].at);
    free(p->taken.data);
    free(p->others);
    free(p->scratch);
    *p = (ndp_partial){0};
}
