/* A kernel of `cpu`, or of NDP_TEST_DEVICE, against ref: fp32 and bf16, odd sizes, padded rows, sums split or not,
 * accumulation, absent operands, outputs that were NaN. `cpu`: 1 to 3 threads with equal bits. Other devices: twice
 * with equal bits, `sim` once in each order. */
#ifndef NDP_TESTS_KERNEL_CASE_H
#define NDP_TESTS_KERNEL_CASE_H

#include "op_test.h"

typedef struct kernel_case {
    const ndp_op *op;
    ndp_op_attr attr;
    ndp_view in[NDP_OP_MAX_IN]; /* fp32 or integers; converted to the type under test */
    unsigned wide;              /* inputs that stay fp32 in bf16: statistics of rows, tables */
    unsigned exact;             /* inputs that stay fp64 */
    unsigned asked;             /* outputs */
    unsigned other;             /* outputs whose destination has the other type: bf16 in fp32, fp32 in bf16 */
    unsigned anything;          /* outputs whose values are not defined */
    int64_t out_rows;           /* of out[0], where the shape rule cannot know them */
} kernel_case;

static inline ndp_dtype type_of(const kernel_case *k, int i, ndp_dtype t) {
    return k->exact >> i & 1 ? NDP_F64 : k->wide >> i & 1 ? NDP_F32 : t;
}

static inline bool adds_to(const kernel_case *k, int output) {
    const ndp_op *op = k->op;
    bool head = op == &ndp_op_xent || op == &ndp_op_xent_grad;
    return k->attr.accumulate &&
           (ndp_op_kinds[op->id] == NDP_KIND_COLUMNS || op == &ndp_op_linear_dw || op == &ndp_op_linear_stack_dw ||
            op == &ndp_op_conv_silu_dw || op == &ndp_op_choice_loads || (head && output == 2));
}

/* Where a kernel adds, both devices start from the same numbers, exact in bf16; so do logits, which may be left as they
 * are. All else was NaN. */
static inline void fill_output(const kernel_case *k, int output, const ndp_view *v) {
    bool adds = adds_to(k, output) || (k->op == &ndp_op_xent_logits && output == 0);
    for (int64_t r = 0; v->data && r < v->rows; r++)
        for (int64_t c = 0; c < v->cols; c++)
            ndp_view_set(v, r, c,
                         adds                                         ? (double)((r * 7 + c * 3) % 9) / 4 - 1
                         : v->dtype == NDP_I32 || v->dtype == NDP_I64 ? 77
                                                                      : NAN);
}

/* Outputs for operands of type t. */
static inline void make_call(const kernel_case *k, ndp_dtype t, const ndp_view *from, ndp_view *in, ndp_view *out) {
    memset(in, 0, sizeof(ndp_view) * NDP_OP_MAX_IN);
    memset(out, 0, sizeof(ndp_view) * NDP_OP_MAX_OUT);
    for (int i = 0; i < k->op->n_in; i++)
        in[i] = copy_as(t == NDP_F64 ? NDP_F64 : type_of(k, i, t), &from[i]);
    out[0].rows = k->out_rows;
    make_outputs(k->op, &k->attr, in, out, k->asked);
    for (int o = 0; o < k->op->n_out; o++)
        if (t != NDP_F64 && k->other >> o & 1) {
            free_matrices(&out[o], 1);
            out[o] = matrix(t == NDP_F32 ? NDP_BF16 : NDP_F32, out[o].rows, out[o].cols);
        }
    for (int o = 0; o < k->op->n_out; o++)
        if (!k->op->in_place || o > 0)
            fill_output(k, o, &out[o]);
}

static inline void free_call(const kernel_case *k, ndp_view *in, ndp_view *out) {
    free_matrices(in, k->op->n_in);
    for (int o = 0; o < k->op->n_out; o++)
        if (!k->op->in_place || o > 0)
            free_matrices(&out[o], 1);
}

static inline void compare(const kernel_case *k, const ndp_view *out, const ndp_view *expected, ndp_dtype t, int run) {
    for (int o = 0; o < k->op->n_out; o++) {
        if (!out[o].data || k->anything >> o & 1)
            continue;
        double far = distance(&out[o], &expected[o]), allowed = out[o].dtype == NDP_BF16 ? 4e-3 : 1e-6;
        if (t == NDP_BF16 && (k->op == &ndp_op_xent || k->op == &ndp_op_xent_grad || k->op == &ndp_op_add_rmsnorm))
            allowed = 4e-3; /* fp32 results of values that are rounded to bf16 on the way */
        if (k->op == &ndp_op_delta_rule_bwd && o == 3)
            allowed = 3e-6; /* dg: sums over rows of products that cancel */
        if (!(far <= allowed))
            fail_msg("%s, output %d, %s, [%lld,%lld], run %d: off by %g", k->op->name, o, ndp_dtype_name(t),
                     (long long)out[o].rows, (long long)out[o].cols, run, far);
    }
}

static inline bool same_bits(const ndp_view *a, const ndp_view *b) {
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t c = 0; c < a->cols; c++)
            if (ndp_view_get(a, r, c) != ndp_view_get(b, r, c))
                return false;
    return true;
}

static inline void check_split(const kernel_case *k, ndp_dtype t, const ndp_view *from, const ndp_view *expected) {
    ndp_view in[NDP_OP_MAX_IN], out[NDP_OP_MAX_OUT];
    make_call(k, t, from, in, out);
    run_op_split(k->op, &k->attr, in, out, tested(), 1, 1);
    compare(k, out, expected, t, 1);
    free_call(k, in, out);
}

/* Runs of a call whose bits are compared: with more threads, or, on another device than `cpu`, in another order. */
static inline int runs_of(const kernel_case *k) {
    return tested() != &ndp_device_cpu || tested()->kernels[k->op->id]->prepare ? 2 : 3;
}

/* `strict`: equal bits from all runs; products of the library promise less. */
static inline void check_runs(const kernel_case *k, ndp_dtype t, const ndp_view *from, const ndp_view *expected,
                              bool strict) {
    ndp_view in[NDP_OP_MAX_IN], out[NDP_OP_MAX_OUT], one_in[NDP_OP_MAX_IN], one[NDP_OP_MAX_OUT];
    for (int run = 1; run <= runs_of(k); run++) {
        make_call(k, t, from, in, out);
        setenv("NDP_SIM_ORDER", run == 1 ? "up" : "down", 1);
        run_op(k->op, &k->attr, in, out, tested(), run);
        compare(k, out, expected, t, run);
        if (run == 1) {
            memcpy(one_in, in, sizeof in);
            memcpy(one, out, sizeof out);
            continue;
        }
        for (int o = 0; strict && o < k->op->n_out; o++)
            if (out[o].data && !(k->anything >> o & 1) && !same_bits(&out[o], &one[o]))
                fail_msg("%s, output %d: %s gives other bits", k->op->name, o,
                         tested() == &ndp_device_cpu ? "another number of threads" : "another order of warps");
        free_call(k, in, out);
    }
    free_call(k, one_in, one);
}

static inline void check_type(const kernel_case *k, ndp_dtype t, bool strict) {
    ndp_view rounded[NDP_OP_MAX_IN] = {{0}}, ref_in[NDP_OP_MAX_IN], ref_out[NDP_OP_MAX_OUT];
    for (int i = 0; i < k->op->n_in; i++)
        rounded[i] = copy_as(type_of(k, i, t), &k->in[i]);
    make_call(k, NDP_F64, rounded, ref_in, ref_out);
    run_op(k->op, &k->attr, ref_in, ref_out, &ndp_device_ref, 1);
    check_runs(k, t, rounded, ref_out, strict);
    check_split(k, t, rounded, ref_out);
    free_call(k, ref_in, ref_out);
    free_matrices(rounded, k->op->n_in);
}

/* An op whose rows are alike: another row 0 of the first operand changes row 0 of the outputs alone. */
static inline void check_rows(const kernel_case *k) {
    ndp_view in[2][NDP_OP_MAX_IN], out[2][NDP_OP_MAX_OUT];
    for (int i = 0; i < 2; i++) {
        make_call(k, NDP_F64, k->in, in[i], out[i]);
        for (int64_t c = 0; i == 1 && c < in[1][0].cols; c++)
            ndp_view_set(&in[1][0], 0, c, ndp_view_get(&in[1][0], 0, c) + 1);
        run_op(k->op, &k->attr, in[i], out[i], &ndp_device_ref, 1);
    }
    for (int o = 0; o < k->op->n_out; o++)
        for (int64_t r = 1; out[0][o].data && !(k->anything >> o & 1) && r < out[0][o].rows; r++)
            for (int64_t c = 0; c < out[0][o].cols; c++)
                if (ndp_view_get(&out[0][o], r, c) != ndp_view_get(&out[1][o], r, c))
                    fail_msg("%s: row %lld of output %d depends on row 0", k->op->name, (long long)r, o);
    free_call(k, in[0], out[0]);
    free_call(k, in[1], out[1]);
}

static inline void check_types(kernel_case *k, bool fp32, bool bf16) {
    const ndp_kernel *kernel = tested()->kernels[k->op->id];
    bool strict = tested() != &ndp_device_cpu || !kernel->prepare || ndp_cpu_has_avx512();
    if (!k->asked)
        k->asked = ~0u;
    if (k->op->rows == NDP_ROWS_ALIKE)
        check_rows(k);
    if (fp32)
        check_type(k, NDP_F32, strict);
    if (bf16)
        check_type(k, NDP_BF16, strict);
    free_matrices(k->in, k->op->n_in);
}

static inline void check_kernel(kernel_case *k) { check_types(k, true, true); }

static const int64_t sizes[] = {1, 3, 17, 64, 129};
static inline int size_count(void) { return small_sizes() ? 2 : NDP_COUNT(sizes); }
#define FOR_SIZES(t, c)                                                                                                \
    for (int ti_ = 0; ti_ < size_count(); ti_++)                                                                       \
        for (int ci_ = 0; ci_ < size_count(); ci_++)                                                                   \
            for (int64_t t = sizes[ti_], c = sizes[ci_], once_ = 1; once_; once_ = 0)

static inline ndp_view some(int64_t rows, int64_t cols, uint64_t seed) {
    return random_matrix(NDP_F32, rows, cols, seed);
}

#endif
