/* What tests of ops share beside op_run.h: operands with padding after each row, and a backward that runs at once: an
 * ndp_bwd whose values are matrices. */
#ifndef NDP_TESTS_OP_TEST_H
#define NDP_TESTS_OP_TEST_H

#include "base/cpu.h"
#include "op_run.h"
#include "shape_rule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <unistd.h>

enum { PAD = 3 };         /* elements after each row, which no kernel may touch */
#define PAD_VALUE 12345.0 /* exact in every type here (bf16 rounds it; see pad_value) */

static inline double pad_value(ndp_dtype t) { return t == NDP_BF16 ? 12352.0 : PAD_VALUE; }

static inline double uniform(uint64_t *state) { /* in (-1, 1); xorshift64* */
    *state ^= *state >> 12, *state ^= *state << 25, *state ^= *state >> 27;
    return (double)((*state * 0x2545F4914F6CDD1Dull) >> 11) / 4503599627370496.0 - 1.0;
}

/* Zeros, with padded rows. */
static inline ndp_view matrix(ndp_dtype t, int64_t rows, int64_t cols) {
    ndp_view v = {.dtype = t, .rows = rows, .cols = cols, .ld = cols + PAD};
    size_t bytes = ((size_t)(rows * v.ld) * ndp_dtype_size(t) + 63) / 64 * 64;
    v.data = aligned_alloc(64, bytes ? bytes : 64);
    memset(v.data, 0, bytes);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = cols; c < v.ld; c++)
            ndp_view_set(&v, r, c, pad_value(t));
    return v;
}

static inline ndp_view random_matrix(ndp_dtype t, int64_t rows, int64_t cols, uint64_t seed) {
    ndp_view v = matrix(t, rows, cols);
    uint64_t state = seed * 0x9E3779B97F4A7C15ull + 1;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            ndp_view_set(&v, r, c, 1.5 * uniform(&state));
    return v;
}

/* Integers in [low, high). */
static inline ndp_view random_ints(int64_t rows, int64_t low, int64_t high, uint64_t seed) {
    ndp_view v = matrix(NDP_I32, rows, 1);
    uint64_t state = seed + 77;
    for (int64_t r = 0; r < rows; r++)
        ndp_view_set(&v, r, 0, (double)low + floor((uniform(&state) + 1) / 2 * (double)(high - low)));
    return v;
}

/* The first row of each row's document: of 1, 63, 64, 65 and 129 rows, again and again. */
static inline ndp_view some_starts(int64_t rows) {
    static const int64_t lengths[] = {1, 63, 64, 65, 129};
    ndp_view v = matrix(NDP_I32, rows, 1);
    for (int64_t t = 0, start = 0, i = 0; t < rows; t++) {
        if (t == start + lengths[i])
            start = t, i = (i + 1) % (int64_t)(sizeof lengths / sizeof *lengths);
        ndp_view_set(&v, t, 0, (double)start);
    }
    return v;
}

static inline ndp_view copy_as(ndp_dtype t, const ndp_view *from) {
    if (!from->data)
        return (ndp_view){0};
    ndp_view v = matrix(from->dtype == NDP_I32 || from->dtype == NDP_I64 ? from->dtype : t, from->rows, from->cols);
    for (int64_t r = 0; r < v.rows; r++)
        for (int64_t c = 0; c < v.cols; c++)
            ndp_view_set(&v, r, c, ndp_view_get(from, r, c));
    return v;
}

static inline void free_matrices(ndp_view *v, int n) {
    for (int i = 0; i < n; i++) {
        for (int64_t r = 0; v[i].data && r < v[i].rows; r++)
            for (int64_t c = v[i].cols; c < v[i].ld; c++)
                if (ndp_view_get(&v[i], r, c) != pad_value(v[i].dtype))
                    fail_msg("padding of matrix %d, row %lld was written", i, (long long)r);
        free(v[i].data);
        v[i].data = NULL;
    }
}

static inline double dot(const ndp_view *a, const ndp_view *b) {
    double sum = 0;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t c = 0; c < a->cols; c++)
            sum += ndp_view_get(a, r, c) * ndp_view_get(b, r, c);
    return sum;
}

/* |a - b| / |b|, where a zero `b` asks for a zero `a`. */
static inline double distance(const ndp_view *a, const ndp_view *b) {
    double diff = 0, norm = 0;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t c = 0; c < a->cols; c++) {
            double x = ndp_view_get(a, r, c), y = ndp_view_get(b, r, c);
            diff += (x - y) * (x - y);
            norm += y * y;
        }
    return norm > 0 ? sqrt(diff / norm) : sqrt(diff);
}

/* Fills the outputs that have no memory yet as the shape rule says; `asked`: bit i for output i. */
static inline void make_outputs(const ndp_op *op, const ndp_op_attr *attr, const ndp_view *in, ndp_view *out,
                                unsigned asked) {
    ndp_view shapes[NDP_OP_MAX_OUT];
    memcpy(shapes, out, sizeof shapes);
    require_ok(apply_shape(op, attr, in, shapes));
    for (int i = 0; i < op->n_out; i++) {
        if (out[i].data) {
            assert_int_equal(out[i].rows, shapes[i].rows);
            assert_int_equal(out[i].cols, shapes[i].cols);
        } else if (i == 0 && op->in_place)
            out[i] = in[0];
        else if (asked >> i & 1)
            out[i] = matrix(shapes[i].dtype, shapes[i].rows, shapes[i].cols);
        else
            out[i] = (ndp_view){0};
    }
}

/* It, and the reference. */
enum { DEVICES = 2 };
static inline const ndp_device *device_at(int i) { return i ? &ndp_device_ref : tested(); }

/* `split`: at which place sums are split; 0: they are not. */
static inline void run_op_split(const ndp_op *op, const ndp_op_attr *attr, const ndp_view *in, const ndp_view *out,
                                const ndp_device *device, int threads, int split) {
    ndp_exec exec = {
        .device = device, .threads = threads, .sums = split ? NDP_SUMS_SPLIT : NDP_SUMS_FAST, .split_place = split};
    const ndp_op_attr given = with_others(op, attr, device == &ndp_device_ref);
    ndp_op_call call = {.op = op, .attr = &given, .exec = &exec};
    memcpy(call.in, in, sizeof(ndp_view) * (size_t)op->n_in);
    memcpy(call.out, out, sizeof(ndp_view) * (size_t)op->n_out);
    run_call(&call);
}

static inline void run_op(const ndp_op *op, const ndp_op_attr *attr, const ndp_view *in, const ndp_view *out,
                          const ndp_device *device, int threads) {
    run_op_split(op, attr, in, out, device, threads, 0);
}

/* A backward that runs at once on ref: value v is values[v]; gradients of input i gather in grads[i]. ----------------
 */

typedef struct eager {
    ndp_bwd b;
    ndp_view values[64];
    int n;
    int in[NDP_OP_MAX_IN], out[NDP_OP_MAX_OUT];
    int arriving[NDP_OP_MAX_OUT]; /* value or -1 */
    int grads[NDP_OP_MAX_IN];     /* value or -1 */
    unsigned wanted;
} eager;

static inline int eager_grad_out(ndp_bwd *b, int i) { return ((eager *)b)->arriving[i]; }
static inline bool eager_wants(ndp_bwd *b, int i) { return ((eager *)b)->wanted >> i & 1; }

/* The value of the last output; those before it have the numbers before. */
static inline int eager_run(eager *e, const ndp_op *op, const ndp_op_attr *attr, const int *ins, int n_in,
                            ndp_view out) {
    ndp_view in[NDP_OP_MAX_IN] = {{0}}, outs[NDP_OP_MAX_OUT] = {out};
    assert_int_equal(n_in, op->n_in);
    for (int i = 0; i < n_in; i++)
        if (ins[i] >= 0)
            in[i] = e->values[ins[i]];
    if (op->in_place)
        in[0] = e->values[e->n++] = copy_as(NDP_F64, &in[0]);
    make_outputs(op, attr, in, outs, ~0u);
    run_op(op, attr, in, outs, &ndp_device_ref, 1);
    for (int o = 0; !op->in_place && o < op->n_out; o++)
        e->values[e->n++] = outs[o];
    return e->n - 1;
}

static inline ndp_status eager_pass_grad(ndp_bwd *b, int i, int value) {
    eager *e = (eager *)b;
    if (e->grads[i] < 0)
        e->grads[i] = value;
    else
        e->grads[i] = eager_run(e, &ndp_op_add, e->b.attr, (int[]){e->grads[i], value}, 2, (ndp_view){0});
    return NDP_OK;
}

/* The first output is the run's; of a second one (norm_by_dx) what the op makes beside it. */
static inline ndp_status eager_input_grad(ndp_bwd *b, const ndp_op *op, const ndp_op_attr *attr, int *ins, int n_in,
                                          const int *outs, int n_out, int acc_slot, int *made) {
    eager *e = (eager *)b;
    if (acc_slot >= 0) {
        ins[acc_slot] = e->grads[outs[0]];
        e->grads[outs[0]] = -1;
    }
    int first = eager_run(e, op, attr, ins, n_in, (ndp_view){0});
    for (int k = 0; k < n_out; k++) {
        int value = first - n_out + 1 + k;
        if (made)
            made[k] = value;
        if (outs[k] >= 0)
            eager_pass_grad(b, outs[k], value);
    }
    return NDP_OK;
}

/* A copy, which has memory of its own to free. */
static inline int eager_columns(ndp_bwd *b, int value, int64_t col, int i) {
    eager *e = (eager *)b;
    ndp_view part = e->values[value];
    part.cols = e->values[e->in[i]].cols;
    part.data = (char *)part.data + (size_t)col * ndp_dtype_size(part.dtype);
    e->values[e->n] = copy_as(NDP_F64, &part);
    return e->n++;
}

static inline ndp_status eager_weight_grad(ndp_bwd *b, const ndp_op *op, const ndp_op_attr *attr, const int *ins,
                                           int n_in, int i) {
    eager *e = (eager *)b;
    const ndp_view *w = &e->values[e->in[i]];
    assert_int_equal(e->grads[i], -1);
    e->grads[i] = eager_run(e, op, attr, ins, n_in, matrix(NDP_F64, w->rows, w->cols));
    return NDP_OK;
}

static inline int eager_value(eager *e, ndp_view v) {
    e->values[e->n] = v;
    return v.data ? e->n++ : -1;
}

#endif
