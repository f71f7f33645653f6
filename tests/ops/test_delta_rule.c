/* The ops of the gated delta rule: kernels of `cpu`, or of NDP_TEST_DEVICE, against ref, as test_op_kernels does. */
#include "kernel_case.h"

/* Documents of one row and of more, shorter than the taps and longer; and starts at any row, also after it. The
 * gradient of a tap is one number: dy is x, so that its terms do not cancel. */
static void conv_silu_kernels(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (int taps = 1; taps <= NDP_MAX_TAPS; taps = taps == 1 ? 4 : 2 * taps) {
        ndp_op_attr adds = {.accumulate = taps > 1};
        ndp_view starts[] = {some_starts(t), random_ints(t, 0, t, 3), some_starts(t)};
        kernel_case forward = {&ndp_op_conv_silu, .in = {some(t, c, 1), some(c, taps, 2), starts[0]}};
        kernel_case dx = {&ndp_op_conv_silu_dx, .in = {some(t, c, 1), some(t, c, 2), some(c, taps, 3), starts[1]}};
        kernel_case dw = {&ndp_op_conv_silu_dw, adds,
                          .in = {some(t, c, 2), some(t, c, 2), some(c, taps, 3), starts[2]}};
        dx.in[4] = taps > 1 ? some(t, c, 4) : (ndp_view){0};
        check_kernel(&forward);
        check_kernel(&dx);
        check_kernel(&dw);
    }
}

/* Parameters of the type of a, or wide; numbers beyond 20, where softplus is its operand. */
static void delta_decay_kernels(void **state) {
    (void)state;
    FOR_SIZES(t, h) for (int more = 0; more < 2; more++) {
        ndp_op_attr adds = {.accumulate = more};
        const ndp_op *gradients[] = {&ndp_op_delta_decay_da, &ndp_op_delta_decay_dlog, &ndp_op_delta_decay_ddt};
        kernel_case forward = {&ndp_op_delta_decay, .wide = more ? 6 : 0,
                               .in = {some(t, h, 1), some(1, h, 2), some(1, h, 3)}};
        for (int64_t i = 0; i < t; i += 2)
            ndp_view_set(&forward.in[0], i, h / 2, 22);
        check_kernel(&forward);
        for (int i = 0; i < NDP_COUNT(gradients); i++) {
            kernel_case k = {gradients[i], i ? adds : (ndp_op_attr){0}, .wide = more ? 13 : 1,
                             .in = {some(t, h, 4), some(t, h, 1), some(1, h, 2), some(1, h, 3)}};
            for (int64_t r = 0; r < t; r += 2)
                ndp_view_set(&k.in[1], r, h / 2, 22);
            check_kernel(&k);
        }
    }
}

static void gate_by_kernels(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (int variant = 0; variant < 6; variant++) {
        ndp_op_attr attr = {.sigmoid = variant & 1};
        kernel_case forward = {&ndp_op_gate_by, attr, .in = {some(t, c, 1), some(t, c, 2)}};
        kernel_case backward = {&ndp_op_gate_by_bwd, attr, .in = {some(t, c, 1), some(t, c, 2), some(t, c, 3)},
                                .asked = 1u + (unsigned)variant / 2};
        check_kernel(&forward);
        check_kernel(&backward);
    }
}

/* Logs of decays: most keep a state for long, some hardly; one in 32 forgets it. */
static ndp_view some_decays(int64_t rows, int64_t heads) {
    ndp_view v = some(rows, heads, 9);
    for (int64_t t = 0; t < rows; t++)
        for (int64_t h = 0; h < heads; h++) {
            double x = ndp_view_get(&v, t, h);
            ndp_view_set(&v, t, h, (t + h) % 32 == 31 ? -90 : -0.1 * x * x * x * x);
        }
    return v;
}

/* Value heads of a key head, columns of q and of v that fill no vector, or are no multiple of one. */
typedef struct heads_spec {
    int heads, kv_heads, d, e;
} heads_spec;
static const heads_spec specs[] = {{1, 1, 2, 1}, {2, 1, 16, 16}, {4, 2, 5, 19}, {3, 3, 33, 8}, {4, 1, 40, 64}};

static ndp_op_attr attr_of(const heads_spec *s) {
    return (ndp_op_attr){
        .heads = s->heads, .kv_heads = s->kv_heads, .head_dim = s->d, .v_dim = s->d == s->e ? 0 : s->e};
}

/* Rows of one chunk, of a border and of several; documents of all lengths around a chunk's. */
static const int64_t row_counts[] = {1, 15, 64, 65, 130, 387};
#define FOR_ROWS(t)                                                                                                    \
    for (int ri_ = 0; ri_ < (small_sizes() ? 2 : NDP_COUNT(row_counts)); ri_++)                                        \
        for (int64_t t = row_counts[ri_], once_ = 1; once_; once_ = 0)

static void fill_operands(const heads_spec *s, int64_t t, bool whole, ndp_view *in) {
    const ndp_view operands[] = {some(t, s->kv_heads * s->d, 1), some(t, s->kv_heads * s->d, 2),
                                 some(t, s->heads * s->e, 3),    some_decays(t, s->heads),
                                 some(t, s->heads, 4),           whole ? matrix(NDP_I32, t, 1) : some_starts(t)};
    memcpy(in, operands, sizeof operands);
}

static void delta_rule_kernels(void **state) {
    (void)state;
    for (int i = 0; i < NDP_COUNT(specs); i++)
        FOR_ROWS(t) for (int whole = 0; whole < 2; whole++) {
            kernel_case forward = {&ndp_op_delta_rule, attr_of(&specs[i]), .wide = 8};
            kernel_case backward = {&ndp_op_delta_rule_bwd, attr_of(&specs[i]), .wide = whole ? 17 : 16,
                                    .in = {some(t, specs[i].heads * specs[i].e, 5)}, .asked = t == 15 ? 10 : 0};
            fill_operands(&specs[i], t, whole, forward.in);
            fill_operands(&specs[i], t, whole, backward.in + 1);
            check_kernel(&forward);
            check_kernel(&backward);
        }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv_silu_kernels),
        cmocka_unit_test(delta_decay_kernels),
        cmocka_unit_test(gate_by_kernels),
        cmocka_unit_test(delta_rule_kernels),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return end_of_ops(cmocka_run_group_tests(tests, NULL, NULL));
}
