/* The ops of the gated delta rule: kernels of `cpu`, or of NDP_TEST_DEVICE, against ref, as test_op_kernels does. */
#include "kernel_case.h"
#include "ops/delta_rule.h"

/* Documents of one row and of more, shorter than the taps and longer; and starts at any row, also after it. The
 * gradient of a tap is one number: dy is x, so that its terms do not cancel. Taps of other columns may stand before and
 * behind those of x. */
static void conv_silu_kernels(void **state) {
    (void)state;
    FOR_SIZES(t, c) for (int taps = 1; taps <= NDP_MAX_TAPS; taps *= 2) {
        int64_t more = taps == 2 || taps == 8 ? 3 * c : 0, all = c + more + (taps == 2 ? 5 : 0);
        ndp_op_attr of = {.first = more}, adds = {.first = more, .accumulate = taps > 1 && taps < 8};
        ndp_view starts[] = {some_starts(t), random_ints(t, 0, t, 3), some_starts(t)};
        kernel_case forward = {&ndp_op_conv_silu, of, .in = {some(t, c, 1), some(all, taps, 2), starts[0]}};
        kernel_case dx = {&ndp_op_conv_silu_dx, of,
                          .in = {some(t, c, 1), some(t, c, 2), some(all, taps, 3), starts[1]}};
        kernel_case dw = {&ndp_op_conv_silu_dw, adds,
                          .in = {some(t, c, 2), some(t, c, 2), some(all, taps, 3), starts[2]}};
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

/* Logs of decays: rows keep most of a state; some of every second head forget it. */
static ndp_view some_decays(int64_t rows, int64_t heads) {
    ndp_view v = some(rows, heads, 9);
    for (int64_t t = 0; t < rows; t++)
        for (int64_t h = 0; h < heads; h++) {
            double x = ndp_view_get(&v, t, h);
            ndp_view_set(&v, t, h, h % 2 == 1 && t % 37 == 20 ? -90 : -0.02 * x * x * x * x);
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

/* Rows [first, first + n) of a matrix. */
static ndp_view rows_of(const ndp_view *v, int64_t first, int64_t n) {
    ndp_view part = *v;
    part.data = (char *)v->data + (size_t)(first * v->ld) * ndp_dtype_size(v->dtype);
    part.rows = n;
    return part;
}

/* A document beside others has the bits that it has alone. Operands have a row for each row, but `whole`. */
static void check_alone(const ndp_op *op, const ndp_op_attr *attr, const ndp_view *in, int starts, int whole) {
    ndp_view all[NDP_OP_MAX_OUT] = {{0}};
    int64_t rows = in[0].rows, first = 0;
    make_outputs(op, attr, in, all, ~0u);
    run_op(op, attr, in, all, tested(), 2);
    for (int64_t end = 1; end <= rows; end++) {
        ndp_view alone[NDP_OP_MAX_IN] = {{0}}, out[NDP_OP_MAX_OUT] = {{0}};
        if (end < rows && ndp_view_get(&in[starts], end, 0) == (double)first)
            continue;
        for (int i = 0; i < op->n_in; i++)
            alone[i] = i == whole || !in[i].data ? in[i] : rows_of(&in[i], first, end - first);
        alone[starts] = matrix(NDP_I32, end - first, 1);
        make_outputs(op, attr, alone, out, ~0u);
        run_op(op, attr, alone, out, tested(), 1);
        for (int o = 0; o < op->n_out; o++) {
            ndp_view part = rows_of(&all[o], first, end - first);
            if (!same_bits(&out[o], &part))
                fail_msg("%s: rows %lld to %lld have other bits alone", op->name, (long long)first, (long long)end - 1);
        }
        free_matrices(out, op->n_out);
        free_matrices(&alone[starts], 1);
        first = end;
    }
    free_matrices(all, op->n_out);
}

static void documents_do_not_meet(void **state) {
    (void)state;
    const heads_spec s = {2, 1, 5, 3};
    const ndp_op_attr attr = attr_of(&s);
    int64_t t = 390;
    ndp_view in[1 + NDP_OP_MAX_IN] = {some(t, 6, 5)};
    ndp_view conv[1 + NDP_OP_MAX_IN] = {some(t, 9, 1), some(t, 9, 2), some(9, 4, 3), some_starts(t)};
    fill_operands(&s, t, false, in + 1);
    check_alone(&ndp_op_delta_rule, &attr, in + 1, 5, -1);
    check_alone(&ndp_op_delta_rule_bwd, &attr, in, 6, -1);
    check_alone(&ndp_op_conv_silu, &(ndp_op_attr){0}, conv + 1, 2, 1);
    check_alone(&ndp_op_conv_silu_dx, &(ndp_op_attr){0}, conv, 3, 2);
    free_matrices(in, 7);
    free_matrices(conv, 4);
}

/* ---- texts that are continued ---- */

enum { TEXTS = 3, STRIDE = 160 };

/* Texts of several lengths, a few rows of one of them at a time, with rows of padding behind: `whole` of a text at once
 * gives the same. in: operands of `step` but the first and the last two; `kept`: what a text starts from, which is no
 * zeros. */
static void check_continued(const ndp_op *step, const ndp_op *whole, ndp_op_attr attr, const ndp_view *in, int rowless,
                            ndp_view kept, const ndp_device *device) {
    static const int64_t lengths[TEXTS] = {70, 1, 141}, chunks[] = {1, 7, 64, 2};
    int64_t at = 0, n_in = whole->n_in - 2; /* before the starts, and what pieces have */
    attr.capacity = STRIDE;
    for (int text = 0; text < TEXTS; at += lengths[text++]) {
        ndp_view all[NDP_OP_MAX_IN] = {{0}}, want[NDP_OP_MAX_OUT] = {{0}};
        for (int i = 0; i < n_in; i++)
            all[i] = i == rowless ? in[i] : rows_of(&in[i], at, lengths[text]);
        all[n_in] = matrix(NDP_I32, lengths[text], 1);
        make_outputs(whole, &attr, all, want, 1);
        run_op(whole, &attr, all, want, &ndp_device_ref, 1);
        for (int64_t done = 0, c = 0; done < lengths[text]; done += chunks[c++ % NDP_COUNT(chunks)]) {
            int64_t n = chunks[c % NDP_COUNT(chunks)], real = done + n < lengths[text] ? n : lengths[text] - done;
            ndp_view now[NDP_OP_MAX_IN] = {kept}, out[NDP_OP_MAX_OUT] = {{0}};
            for (int i = 0; i < n_in; i++)
                now[1 + i] = i == rowless ? in[i] : rows_of(&in[i], at + done, n);
            now[1 + n_in] = matrix(NDP_I32, n, 1), now[2 + n_in] = matrix(NDP_I32, n, 1);
            for (int64_t t = 0; t < n; t++) {
                double row = (double)(text * STRIDE + done + t);
                ndp_view_set(&now[2 + n_in], t, 0, row);
                ndp_view_set(&now[1 + n_in], t, 0, t < real ? text * STRIDE : row);
            }
            make_outputs(step, &attr, now, out, 3);
            run_op(step, &attr, now, out, device, 2);
            for (int64_t t = 0; t < n; t++)
                for (int64_t i = 0; i < want[0].cols; i++) {
                    double is = ndp_view_get(&out[1], t, i), must = t < real ? ndp_view_get(&want[0], done + t, i) : 0;
                    if (!(fabs(is - must) < 1e-5))
                        fail_msg("%s on %s: text %d, row %lld: %g, must be %g", step->name, device->name, text,
                                 (long long)(done + t), is, must);
                }
            free_matrices(&now[1 + n_in], 2);
            free_matrices(&out[1], 1);
        }
        free_matrices(&all[n_in], 1);
        free_matrices(want, 1);
    }
}

static void texts_are_continued(void **state) {
    (void)state;
    enum { ROWS = 280 }; /* more than all texts */
    for (int device = 0; device < DEVICES; device++)
        for (int i = 0; i < NDP_COUNT(specs); i++) {
            int64_t taps = i + 1, cols = specs[i].heads * specs[i].e;
            ndp_view rule[6], conv[] = {some(ROWS, cols, 1), some(cols, taps, 2)},
                              state_of = some(TEXTS, cols * specs[i].d, 3),
                              tail = some(TEXTS, ndp_tail_rows(taps) * cols, 4);
            fill_operands(&specs[i], ROWS, true, rule);
            check_continued(&ndp_op_delta_step, &ndp_op_delta_rule, attr_of(&specs[i]), rule, -1, state_of,
                            device_at(device));
            check_continued(&ndp_op_conv_step, &ndp_op_conv_silu, (ndp_op_attr){0}, conv, 1, tail, device_at(device));
            free_matrices(rule, 6);
            free_matrices(conv, 2);
            free_matrices(&state_of, 1);
            free_matrices(&tail, 1);
        }
}

/* The formula with one number for a head and a state: three rows of one document, on both devices. */
static void delta_rule_by_hand(void **state) {
    (void)state;
    enum { ROWS = 3 };
    for (int device = 0; device < DEVICES; device++) {
        ndp_view in[NDP_OP_MAX_IN] = {some(ROWS, 1, 1), some(ROWS, 1, 2), some(ROWS, 1, 3),
                                      some(ROWS, 1, 4), some(ROWS, 1, 5), matrix(NDP_I32, ROWS, 1)};
        ndp_view out[NDP_OP_MAX_OUT] = {{0}};
        ndp_op_attr attr = {.heads = 1, .kv_heads = 1, .head_dim = 1};
        make_outputs(&ndp_op_delta_rule, &attr, in, out, 1);
        double s = 0;
        for (int t = 0; t < ROWS; t++)
            ndp_view_set(&in[3], t, 0, -fabs(ndp_view_get(&in[3], t, 0)));
        run_op(&ndp_op_delta_rule, &attr, in, out, device_at(device), 1);
        for (int t = 0; t < ROWS; t++) {
            double q = ndp_view_get(&in[0], t, 0), k = ndp_view_get(&in[1], t, 0);
            q /= sqrt(q * q + 1e-6), k /= sqrt(k * k + 1e-6), s *= exp(ndp_view_get(&in[3], t, 0));
            s += k * (ndp_view_get(&in[2], t, 0) - s * k) / (1 + exp(-ndp_view_get(&in[4], t, 0)));
            assert_true(fabs(ndp_view_get(&out[0], t, 0) - s * q) < 1e-6);
        }
        free_matrices(in, 6);
        free_matrices(out, 1);
    }
}

/* A decay that is no number reaches all results from its row on, and all gradients. */
static void nan_is_not_hidden(void **state) {
    (void)state;
    enum { ROWS = 70, AT = 33, D = 4 };
    const ndp_op_attr attr = {.heads = 1, .kv_heads = 1, .head_dim = D};
    ndp_view in[1 + NDP_OP_MAX_IN] = {some(ROWS, D, 1),        some(ROWS, D, 2),         some(ROWS, D, 3),
                                      some(ROWS, D, 4),        matrix(NDP_F32, ROWS, 1), some(ROWS, 1, 5),
                                      matrix(NDP_I32, ROWS, 1)};
    ndp_view o[NDP_OP_MAX_OUT] = {{0}}, gradients[NDP_OP_MAX_OUT] = {{0}};
    ndp_view_set(&in[4], AT, 0, NAN);
    make_outputs(&ndp_op_delta_rule, &attr, in + 1, o, 1);
    make_outputs(&ndp_op_delta_rule_bwd, &attr, in, gradients, 31);
    run_op(&ndp_op_delta_rule, &attr, in + 1, o, tested(), 1);
    run_op(&ndp_op_delta_rule_bwd, &attr, in, gradients, tested(), 1);
    for (int64_t t = AT; t < ROWS; t++)
        assert_true(isnan(ndp_view_get(&o[0], t, 0)));
    for (int i = 0; i < 5; i++)
        assert_true(isnan(ndp_view_get(&gradients[i], AT - 1, 0)));
    free_matrices(in, 7);
    free_matrices(o, 1);
    free_matrices(gradients, 5);
}

/* What follows a single 1 are the taps, the last one first. */
static void conv_silu_by_hand(void **state) {
    (void)state;
    enum { TAPS = 4, ROWS = 6 };
    for (int device = 0; device < DEVICES; device++) {
        ndp_view in[NDP_OP_MAX_IN] = {matrix(NDP_F32, ROWS, 1), some(1, TAPS, 1), matrix(NDP_I32, ROWS, 1)};
        ndp_view out[NDP_OP_MAX_OUT] = {{0}};
        ndp_view_set(&in[0], 0, 0, 1);
        make_outputs(&ndp_op_conv_silu, &(ndp_op_attr){0}, in, out, 1);
        run_op(&ndp_op_conv_silu, &(ndp_op_attr){0}, in, out, device_at(device), 1);
        for (int t = 0; t < ROWS; t++) {
            double u = t < TAPS ? ndp_view_get(&in[1], 0, TAPS - 1 - t) : 0;
            assert_true(fabs(ndp_view_get(&out[0], t, 0) - u / (1 + exp(-u))) < 1e-6);
        }
        free_matrices(in, 3);
        free_matrices(out, 1);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv_silu_kernels),     cmocka_unit_test(delta_decay_kernels),
        cmocka_unit_test(gate_by_kernels),       cmocka_unit_test(delta_rule_kernels),
        cmocka_unit_test(documents_do_not_meet), cmocka_unit_test(delta_rule_by_hand),
        cmocka_unit_test(texts_are_continued),   cmocka_unit_test(conv_silu_by_hand),
        cmocka_unit_test(nan_is_not_hidden),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return end_of_ops(cmocka_run_group_tests(tests, NULL, NULL));
}
