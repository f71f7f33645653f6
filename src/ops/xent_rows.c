/* Rows of the head: views of the operands of its products, chunks of a call, and results that need no product. */
#include "ops/xent_rows.h"

#include "ops/shape.h"

ndp_status ndp_xent_check(const ndp_op_call *c, const ndp_view *x, const ndp_view *w, const ndp_view *labels) {
    const char *op = c->op->name;
    int64_t vocab = c->attr->vocab;
    NDP_SHAPE_CHECK(x->cols == w->cols && x->dtype == w->dtype, "%s: x " NDP_SHAPE ", w " NDP_SHAPE, op,
                    NDP_SHAPE_ARGS(*x), NDP_SHAPE_ARGS(*w));
    NDP_SHAPE_CHECK(labels->dtype == NDP_I32 && labels->rows == x->rows, "%s: labels " NDP_SHAPE " for x " NDP_SHAPE,
                    op, NDP_SHAPE_ARGS(*labels), NDP_SHAPE_ARGS(*x));
    NDP_SHAPE_CHECK(vocab >= 0 && vocab <= w->rows, "%s: %lld of the columns of w " NDP_SHAPE " are real", op,
                    (long long)vocab, NDP_SHAPE_ARGS(*w));
    int top = ndp_top_count(c->attr);
    NDP_SHAPE_CHECK(top >= 0 && top <= NDP_MOST_TOP && (top == 0 || !c->attr->values),
                    "%s: a weight by %d largest logits, at most %d, and no values beside it", op, top, NDP_MOST_TOP);
    return NDP_OK;
}

void ndp_xent_shapes(ndp_op_call *c, const ndp_view *x, const ndp_view *w, ndp_dtype dx_type) {
    if (c->attr->values) {
        ndp_shape_set(&c->out[3], x->rows, NDP_XENT_VALUES, ndp_wide(x->dtype));
        return;
    }
    ndp_shape_set(&c->out[1], x->rows, x->cols, dx_type);
    ndp_shape_set(&c->out[2], w->rows, w->cols, ndp_wide(w->dtype));
}

ndp_view ndp_xent_dlogits(const ndp_view *logits, ndp_dtype x_type) {
    ndp_view v = *logits;
    if (x_type == NDP_BF16 && logits->dtype == NDP_F32) {
        v.dtype = NDP_BF16;
        v.ld = 2 * logits->ld;
    }
    return v;
}

bool ndp_xent_any_label(const ndp_view *labels) {
    for (int64_t t = 0; t < labels->rows; t++)
        if (ndp_int_at(labels, t) >= 0)
            return true;
    return false;
}

ndp_xent_operands ndp_xent_operands_of(const ndp_xent_rows *r, ndp_xent_product product) {
    switch (product) {
    case NDP_XENT_LOGITS:
        return (ndp_xent_operands){&r->x, &r->w, &r->logits, false, true};
    case NDP_XENT_DX:
        return (ndp_xent_operands){&r->dlogits, &r->w, &r->dx, false, false};
    default:
        return (ndp_xent_operands){&r->dlogits, &r->x, &r->dw, true, false};
    }
}

/* xent: chunks ---------------------------------------------------------------------------------------------------- */

static ndp_view rows_of(const ndp_view *v, int64_t first, int64_t n) {
    ndp_view part = *v;
    if (part.data)
        part.data = (char *)part.data + (size_t)(first * v->ld) * ndp_dtype_size(v->dtype);
    part.rows = v->rows ? n : 0;
    return part;
}

ndp_xent_rows ndp_xent_chunk(const ndp_op_call *c, int64_t first, int64_t n, ndp_dtype logits_type) {
    int64_t v = c->in[1].rows;
    ndp_xent_rows r = {
        .x = rows_of(&c->in[0], first, n),
        .w = c->in[1],
        .labels = rows_of(&c->in[2], first, n),
        .scale = c->in[3].rows > 1 ? rows_of(&c->in[3], first, n) : c->in[3],
        .logits = {c->scratch, logits_type, n, v, v},
        .nll = rows_of(&c->out[0], first, n),
    };
    if (c->attr->values)
        r.values = rows_of(&c->out[3], first, n);
    r.dlogits = ndp_xent_dlogits(&r.logits, c->in[0].dtype);
    if (c->attr->train) {
        r.dx = rows_of(&c->out[1], first, n);
        r.dw = c->out[2];
    }
    return r;
}

ndp_status ndp_xent_run_chunks(const ndp_op_call *c, int64_t rows, ndp_dtype logits_type,
                               ndp_xent_chunk_kernel kernel) {
    bool accumulate = c->attr->accumulate;
    for (int64_t first = 0; first < c->in[0].rows; first += rows) {
        int64_t n = c->in[0].rows - first < rows ? c->in[0].rows - first : rows;
        ndp_xent_rows r = ndp_xent_chunk(c, first, n, logits_type);
        if (ndp_xent_any_label(&r.labels)) {
            NDP_TRY(kernel(c, &r, accumulate));
            accumulate = true;
            continue;
        }
        ndp_view_clear(&r.nll);
        ndp_view_clear(&r.values);
        ndp_view_clear(&r.dx);
    }
    if (c->attr->train && !accumulate)
        ndp_view_clear(&c->out[2]);
    return NDP_OK;
}

/* xent_logits, xent_grad ------------------------------------------------------------------------------------------ */

ndp_xent_rows ndp_xent_logits_rows(const ndp_op_call *c) {
    return (ndp_xent_rows){.x = c->in[0], .w = c->in[1], .labels = c->in[2], .logits = c->out[0]};
}

ndp_xent_rows ndp_xent_grad_rows(const ndp_op_call *c, bool narrow) {
    ndp_xent_rows r = {.x = c->in[NDP_XENT_G_X],
                       .w = c->in[NDP_XENT_G_W],
                       .labels = c->in[NDP_XENT_G_LABELS],
                       .scale = c->in[NDP_XENT_G_SCALE],
                       .logits = c->in[NDP_XENT_G_LOGITS],
                       .dlogits = c->in[NDP_XENT_G_LOGITS],
                       .nll = c->out[0]};
    if (c->attr->values)
        r.values = c->out[3];
    if (narrow)
        r.dlogits = ndp_xent_dlogits(&r.logits, r.x.dtype);
    if (c->attr->train) {
        r.dx = c->out[1];
        r.dw = c->out[2];
    }
    return r;
}

bool ndp_xent_grad_ignored(const ndp_op_call *c, const ndp_xent_rows *r) {
    if (ndp_xent_any_label(&r->labels))
        return false;
    ndp_view_clear(&r->nll);
    ndp_view_clear(&r->values);
    ndp_view_clear(&r->dx);
    if (!c->attr->accumulate)
        ndp_view_clear(&r->dw);
    return true;
}
