/* Reading what calls wrote (values.h). The executor calls ndp_engine_look after each call. */
#include "step/engine_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- where a call is in the step ---- */

enum { MOST_CALLS = 1 << 20, MOST_UNITS = 1 << 15 };

/* Micro-batches need nothing of each other before their gradients are summed. What the program itself does comes last:
 * it moves what units made. */
static int64_t order_of(const ndp_engine *e, const ndp_instr *in, int index) {
    if (in->code != NDP_DO_RUN)
        return (INT64_C(1) << 60) + e->at.executed;
    bool backward = in->phase >= NDP_RECOMPUTE;
    int64_t unit = e->model.units[in->unit].number, place = backward ? MOST_UNITS - 1 - unit : unit;
    int64_t call = index + (in->phase == NDP_BACKWARD_WEIGHT ? MOST_CALLS / 2 : 0);
    return ((2 * (int64_t)ndp_micro_batch_at(in, &e->at) + backward) * MOST_UNITS + place) * MOST_CALLS + call;
}

/* The row of the micro-batch that row `i` of `rows` ones is; -1: that is not known. */
static int64_t row_at(const ndp_engine *e, int64_t rows, int64_t i) {
    const ndp_mesh *mesh = &e->opts.step.mesh;
    ndp_row_cut cut = ndp_cut_rows(e->model.opts.rows, mesh, &e->opts.step.parallel);
    int64_t row = rows == cut.tokens    ? ndp_row_cut_at(&cut, NDP_EXTENT_TOKENS, i)
                  : rows == cut.slice   ? ndp_row_cut_at(&cut, NDP_EXTENT_TOKENS, mesh->coord[NDP_TP] * cut.slice + i)
                  : rows == cut.queries ? ndp_row_cut_at(&cut, NDP_EXTENT_QUERIES, i)
                                        : -1;
    return row < cut.real ? row : -1;
}

/* ---- names ---- */

/* "NAME[row,column]" of the tensor in files, for an element of a parameter or its gradient. */
static void name_parameter(const ndp_engine *e, const ndp_instr *in, const ndp_value *v, int64_t row, int64_t column,
                           char *out, size_t size) {
    const ndp_buffer *b = &e->model.buffers[e->model.units[in->unit].buffers[v->slot]];
    const ndp_segment *s = &b->segments.items[v->segment], *last = s + v->segments - 1;
    char room[NDP_SEGMENT_NAME];
    for (; s < last && row >= ndp_segment_matrices(s) * s->rows; s++) /* glued ones are one below the other */
        row -= ndp_segment_matrices(s) * s->rows;
    int64_t member = row / s->rows, at[] = {ndp_segment_at(s, 0, row % s->rows), ndp_segment_at(s, 1, column)};
    const char *name = ndp_segment_tensor_name(s, ndp_segment_is_stack(s) ? member : 0, room);
    if (s->ndim == 1)
        snprintf(out, size, "%s[%lld]", name, (long long)at[1]);
    else
        snprintf(out, size, "%s[%lld,%lld]", name, (long long)at[s->transposed], (long long)at[!s->transposed]);
}

static void name_tensor(const ndp_engine *e, const ndp_operand *o, bool written, int64_t row, int64_t column,
                        ndp_found_value *f) {
    const ndp_instr *in = &e->program.instrs[e->at.at];
    const ndp_value *v = NULL;
    if (in->code == NDP_DO_RUN && o->value != NDP_NONE)
        v = &e->model.graphs[e->model.units[in->unit].graph].values[o->value];
    if (v && (v->kind == NDP_VALUE_PARAM || v->kind == NDP_VALUE_PGRAD)) {
        const char *what = v->kind == NDP_VALUE_PARAM ? "weight " : "gradient of ";
        size_t n = (size_t)snprintf(f->tensor, sizeof f->tensor, "%s", what);
        name_parameter(e, in, v, row, column, f->tensor + n, sizeof f->tensor - n);
        return;
    }
    snprintf(f->tensor, sizeof f->tensor, "%s %s[%lld,%lld]", written ? "result" : "operand",
             v && v->name[0] ? v->name : in->what, (long long)row, (long long)column);
}

/* ---- reading ---- */

/* What the host can read of an operand; no data: there is none, or it holds no numbers that are computed with. */
static ndp_status read_back(ndp_engine *e, const ndp_view *v, ndp_view *out) {
    ndp_step_values *s = e->values;
    size_t bytes = (size_t)((v->rows - 1) * v->ld + v->cols) * ndp_dtype_size(v->dtype);
    bool numbers = v->dtype == NDP_F32 || v->dtype == NDP_BF16 || v->dtype == NDP_F64;
    *out = *v;
    out->data = NULL;
    if (!v->data || !numbers || v->rows < 1 || v->cols < 1)
        return NDP_OK;
    if (e->opts.step.exec->device->host_memory) {
        out->data = v->data;
        return NDP_OK;
    }
    if (bytes > s->bytes) {
        free(s->room);
        s->bytes = 0;
        if (!(s->room = malloc(bytes)))
            return NDP_FAIL(NDP_ENOMEM, "not enough memory for %zu bytes of the values of a step", bytes);
        s->bytes = bytes;
    }
    out->data = s->room;
    return ndp_engine_copy(e, s->room, v->data, bytes, true);
}

/* The first element that is not finite, else the one with the largest magnitude. */
static double find(const ndp_view *v, int64_t *row, int64_t *column) {
    double found = 0;
    *row = *column = 0;
    for (int64_t r = 0; r < v->rows; r++)
        for (int64_t c = 0; c < v->cols; c++) {
            double x = ndp_view_get(v, r, c);
            if (isfinite(x) && fabs(x) <= fabs(found))
                continue;
            found = x, *row = r, *column = c;
            if (!isfinite(x))
                return x;
        }
    return found;
}

/* ---- what is kept ---- */

static void keep(const ndp_engine *e, int index, const ndp_call *c, const ndp_operand *o, int64_t row, int64_t column,
                 double value, ndp_found_value *f) {
    const ndp_instr *in = &e->program.instrs[e->at.at];
    bool written = o >= c->out && o < c->out + c->n_out, run = in->code == NDP_DO_RUN;
    *f = (ndp_found_value){.order = order_of(e, in, index),
                           .micro_batch = run ? ndp_micro_batch_at(in, &e->at) : -1,
                           .row = written && run ? row_at(e, o->view.rows, row) : -1,
                           .value = value};
    snprintf(f->where, sizeof f->where, "%s%s%s", in->what, run ? ", " : "", run ? ndp_phase_name(in->phase) : "");
    snprintf(f->op, sizeof f->op, "%s", c->op->name);
    name_tensor(e, o, written, row, column, f);
}

/* Something that a call wrote is not finite: a weight that it read may be why. */
static ndp_status keep_cause(ndp_engine *e, int index, const ndp_call *c, const ndp_op_call *operands) {
    const ndp_instr *in = &e->program.instrs[e->at.at];
    for (int k = 0; k < c->n_in; k++) {
        bool weight = in->code == NDP_DO_RUN && c->in[k].base >= NDP_BASE_PARAM && c->in[k].base < NDP_BASE_PGRAD;
        int64_t row, column, of_row = e->values->bad.row;
        ndp_view v = {0};
        if (weight)
            NDP_TRY(read_back(e, &operands->in[k], &v));
        double x = v.data ? find(&v, &row, &column) : 0;
        if (isfinite(x))
            continue;
        keep(e, index, c, &c->in[k], row, column, x, &e->values->bad);
        e->values->bad.row = of_row;
        return NDP_OK;
    }
    return NDP_OK;
}

static bool is_loss(const ndp_call *c, int k) {
    return k == 0 && (c->op == &ndp_op_xent || c->op == &ndp_op_xent_grad || c->op == &ndp_op_row_slopes);
}

/* The extremes, of activations that the forward makes. */
static void keep_extremes(ndp_engine *e, int index, const ndp_call *c, int k, double x, int64_t row, int64_t column) {
    const ndp_instr *in = &e->program.instrs[e->at.at];
    ndp_step_values *s = e->values;
    bool forward = in->code == NDP_DO_RUN && in->phase <= NDP_FORWARD_DROP;
    if (is_loss(c, k) && fabs(x) > fabs(s->worst.value))
        keep(e, index, c, &c->out[k], row, column, x, &s->worst);
    else if (forward && row_at(e, c->out[k].view.rows, row) >= 0 && c->kind == NDP_CALL_KERNEL &&
             fabs(x) > fabs(s->largest.value))
        keep(e, index, c, &c->out[k], row, column, x, &s->largest);
}

/* The results of attention name rows that see no key by a logarithm of 0. */
static bool may_be_infinite(const ndp_call *c, int k) {
    return k == 1 && (c->op == &ndp_op_attention || c->op == &ndp_op_attention_merge);
}

/* A buffer that is gathered or summed has gaps, which nothing writes. Its elements are looked at where they are made,
 * and their sums in the norm. */
static bool has_gaps(const ndp_instr *in) { return in->code == NDP_DO_CALL && in->buffer != NDP_NONE; }

ndp_status ndp_engine_look(void *user, int index, const ndp_call *c, const ndp_op_call *operands) {
    ndp_engine *e = user;
    const ndp_instr *in = &e->program.instrs[e->at.at];
    int64_t order = order_of(e, in, index);
    for (int k = 0; k < c->n_out && !has_gaps(in) && c->kind != NDP_CALL_BEGIN; k++) {
        ndp_view v;
        int64_t row, column;
        NDP_TRY(read_back(e, &operands->out[k], &v));
        double x = v.data ? find(&v, &row, &column) : 0;
        if (isfinite(x) && v.data)
            keep_extremes(e, index, c, k, x, row, column);
        if (isfinite(x) || order >= e->values->bad.order || (may_be_infinite(c, k) && x < 0))
            continue;
        keep(e, index, c, &c->out[k], row, column, x, &e->values->bad);
        return keep_cause(e, index, c, operands);
    }
    return NDP_OK;
}

void ndp_engine_watch_values(ndp_engine *e, ndp_step_values *values) { e->values = values; }

void ndp_step_values_begin(ndp_step_values *v) {
    v->bad = v->worst = v->largest = (ndp_found_value){.order = INT64_MAX, .micro_batch = -1, .row = -1};
}

void ndp_step_values_release(ndp_step_values *v) {
    free(v->room);
    *v = (ndp_step_values){0};
}
