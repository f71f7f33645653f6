/* The head on both devices: slices of the vocabulary put together are the whole, and logits far apart. */
#include "op_test.h"

static ndp_view one_double(double x) {
    ndp_view v = matrix(NDP_F64, 1, 1);
    ndp_view_set(&v, 0, 0, x);
    return v;
}

/* Rows first .. first+n-1, as a matrix of their own. */
static ndp_view take_rows(const ndp_view *v, int64_t first, int64_t n) {
    ndp_view part = matrix(v->dtype, n, v->cols);
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < v->cols; c++)
            ndp_view_set(&part, r, c, ndp_view_get(v, first + r, c));
    return part;
}

static void add_into(const ndp_view *sum, const ndp_view *x, int64_t first_row) {
    for (int64_t r = 0; r < x->rows; r++)
        for (int64_t c = 0; c < x->cols; c++)
            ndp_view_set(sum, first_row + r, c, ndp_view_get(sum, first_row + r, c) + ndp_view_get(x, r, c));
}

/* A vocabulary of 97 and 3 columns of padding, in slices whose last `pad` columns are also padding. */
typedef struct slicing {
    int parts;
    int64_t vocab[4], pad[4];
} slicing;

/* xent's outputs for in = {x, w, labels, scale}, by xent_logits and xent_grad. */
static void xent_in_slices(const slicing *s, const ndp_op_attr *whole, const ndp_view *in, const ndp_view *out,
                           const ndp_device *device) {
    int64_t t = in[0].rows;
    ndp_view logits[4], stats = matrix(out[0].dtype, s->parts * t, whole->values ? 5 : 3), w[4];
    ndp_op_attr attr[4];
    for (int64_t p = 0, first = 0; p < s->parts; first += s->vocab[p++]) {
        attr[p] = *whole;
        attr[p].vocab = s->vocab[p], attr[p].first = first, attr[p].parts = s->parts, attr[p].wide_grad = true;
        w[p] = matrix(in[1].dtype, s->vocab[p] + s->pad[p], in[1].cols);
        for (int64_t r = 0; r < s->vocab[p]; r++)
            for (int64_t c = 0; c < in[1].cols; c++)
                ndp_view_set(&w[p], r, c, ndp_view_get(&in[1], first + r, c));
        ndp_view part[NDP_OP_MAX_OUT] = {{0}}, from[] = {in[0], w[p], in[2]};
        make_outputs(&ndp_op_xent_logits, &attr[p], from, part, 3);
        run_op(&ndp_op_xent_logits, &attr[p], from, part, device, 2);
        logits[p] = part[0];
        add_into(&stats, &part[1], p * t);
        free_matrices(&part[1], 1);
    }
    for (int64_t p = 0; p < s->parts; p++) {
        ndp_view from[] = {logits[p], stats, in[0], w[p], in[2], in[3]}, part[NDP_OP_MAX_OUT] = {{0}};
        make_outputs(&ndp_op_xent_grad, &attr[p], from, part, whole->values ? 9 : 7);
        run_op(&ndp_op_xent_grad, &attr[p], from, part, device, 2);
        if (p > 0)
            assert_true(distance(&part[0], &out[0]) == 0);
        else
            add_into(&out[0], &part[0], 0);
        if (whole->values) {
            if (p > 0)
                assert_true(distance(&part[3], &out[3]) == 0);
            else
                add_into(&out[3], &part[3], 0);
            free_matrices(part, 1);
            free_matrices(&part[3], 1);
            free_matrices(&w[p], 1);
            free_matrices(&logits[p], 1);
            continue;
        }
        add_into(&out[1], &part[1], 0);
        ndp_view real = take_rows(&part[2], 0, s->vocab[p]), padding = take_rows(&part[2], s->vocab[p], s->pad[p]);
        assert_true(dot(&padding, &padding) == 0);
        add_into(&out[2], &real, attr[p].first);
        free_matrices((ndp_view[]){real, padding}, 2);
        free_matrices(part, 3);
        free_matrices(&logits[p], 1);
        free_matrices(&w[p], 1);
    }
    free_matrices(&stats, 1);
}

static void slices_equal_xent(void **state) {
    (void)state;
    static const slicing cases[] = {{1, {97}, {3}}, {3, {40, 1, 56}, {0, 5, 1}}, {4, {50, 0, 30, 17}, {0, 2, 1, 0}}};
    for (int i = 0; i < 6 * NDP_COUNT(cases); i++) {
        const slicing *s = &cases[i / 6];
        ndp_dtype type = (ndp_dtype[]){NDP_F64, NDP_F32, NDP_BF16}[i % 3];
        const ndp_device *device = type == NDP_F64 ? &ndp_device_ref : tested();
        double allowed = type == NDP_F64 ? 1e-14 : type == NDP_F32 ? 1e-6 : 4e-3;
        ndp_op_attr attr = {.vocab = 97, .train = true, .cap = i / 3 % 2 ? 3 : 0};
        ndp_view in[NDP_OP_MAX_IN] = {random_matrix(type, 70, 19, 1), random_matrix(type, 100, 19, 2),
                                      random_ints(70, -9, 97, 3), one_double(0.37)};
        ndp_view whole[NDP_OP_MAX_OUT] = {{0}}, sum[NDP_OP_MAX_OUT] = {{0}};
        make_outputs(&ndp_op_xent, &attr, in, whole, 7);
        run_op(&ndp_op_xent, &attr, in, whole, device, 2);
        make_outputs(&ndp_op_xent, &attr, in, sum, 5);
        sum[1] = matrix(whole[0].dtype, 70, 19); /* sums of wide parts */
        xent_in_slices(s, &attr, in, sum, device);
        for (int o = 0; o < 3; o++) {
            double far = distance(&sum[o], &whole[o]), limit = o == 0 ? fmin(allowed, 1e-6) : allowed;
            if (!(far <= limit))
                fail_msg("%d parts, output %d, %s: off by %g", s->parts, o, ndp_dtype_name(type), far);
        }
        free_matrices(in, 4);
        free_matrices(whole, 3);
        free_matrices(sum, 3);
    }
}

/* Labels that ask for the best id, among others: whole and in slices, with equal logits, on both devices. */
static void the_best_id(void **state) {
    (void)state;
    static const slicing cases[] = {{1, {97}, {3}}, {3, {40, 1, 56}, {0, 5, 1}}, {4, {50, 0, 30, 17}, {0, 2, 1, 0}}};
    for (int i = 0; i < 6 * NDP_COUNT(cases); i++) {
        const slicing *s = &cases[i / 6];
        ndp_dtype type = (ndp_dtype[]){NDP_F64, NDP_F32, NDP_BF16}[i % 3];
        const ndp_device *device = type == NDP_F64 ? &ndp_device_ref : tested();
        ndp_op_attr attr = {.vocab = 97, .cap = i / 3 % 2 ? 3 : 0};
        ndp_view in[NDP_OP_MAX_IN] = {random_matrix(type, 70, 19, 1), random_matrix(type, 100, 19, 2),
                                      random_ints(70, -9, 97, 3), one_double(0.37)};
        ndp_view out[NDP_OP_MAX_OUT] = {{0}}, sum[NDP_OP_MAX_OUT] = {{0}};
        for (int64_t c = 0; c < 19; c++) { /* row 41 of the table is row 90 again: their logits are equal */
            ndp_view_set(&in[1], 90, c, ndp_view_get(&in[1], 41, c));
            ndp_view_set(&in[1], 98, c, 100 * ndp_view_get(&in[0], 0, c)); /* padding is never the best */
        }
        for (int64_t t = 0; t < 70; t += 2)
            ((int32_t *)in[2].data)[t * in[2].ld] = NDP_LABEL_BEST;
        for (int64_t c = 0; c < 19; c++)
            ndp_view_set(&in[0], 4, c, 0.3 * ndp_view_get(&in[1], 41, c));
        make_outputs(&ndp_op_xent, &attr, in, out, 7);
        run_op(&ndp_op_xent, &attr, in, out, device, 2);
        make_outputs(&ndp_op_xent, &attr, in, sum, 5);
        sum[1] = matrix(out[0].dtype, 70, 19);
        xent_in_slices(s, &attr, in, sum, device);
        for (int64_t t = 0; t < 70; t += 2) {
            double most = -INFINITY;
            int64_t id = 0;
            for (int64_t v = 0; v < 97; v++) {
                double logit = 0;
                for (int64_t c = 0; c < 19; c++)
                    logit += ndp_view_get(&in[0], t, c) * ndp_view_get(&in[1], v, c);
                if (attr.cap > 0)
                    logit = attr.cap * tanh(logit / attr.cap);
                if (logit > most + 1e-7)
                    most = logit, id = v;
            }
            double whole = ndp_view_get(&out[0], t, 0);
            if (type != NDP_BF16 && whole != (double)id && (type == NDP_F64 || id != 41 || whole != 90))
                fail_msg("row %lld: id %g, expected %lld", (long long)t, whole, (long long)id);
            double sliced = ndp_view_get(&sum[0], t, 0); /* products of other shapes round otherwise */
            if (sliced != whole && (type == NDP_F64 || whole != 41 || sliced != 90))
                fail_msg("row %lld, case %d: id %g of slices, %g of the whole", (long long)t, i, sliced, whole);
        }
        free_matrices(in, 4);
        free_matrices(out, 3);
        free_matrices(sum, 3);
    }
}

/* Entropies and best ids of all rows, with labels, without, and padding: whole and in slices, on both devices, against
 * sums in fp64. The nll is that of a call without values. */
static void values_of_rows(void **state) {
    (void)state;
    static const slicing cases[] = {{1, {97}, {3}}, {3, {40, 1, 56}, {0, 5, 1}}, {4, {50, 0, 30, 17}, {0, 2, 1, 0}}};
    for (int i = 0; i < 6 * NDP_COUNT(cases); i++) {
        ndp_dtype type = (ndp_dtype[]){NDP_F64, NDP_F32, NDP_BF16}[i % 3];
        const ndp_device *device = type == NDP_F64 ? &ndp_device_ref : tested();
        ndp_op_attr attr = {.vocab = 97, .cap = i / 3 % 2 ? 3 : 0}, with = attr;
        ndp_view in[NDP_OP_MAX_IN] = {random_matrix(type, 70, 19, 1), random_matrix(type, 100, 19, 2),
                                      random_ints(70, -9, 97, 3), one_double(0.37)};
        ndp_view out[NDP_OP_MAX_OUT] = {{0}}, sum[NDP_OP_MAX_OUT] = {{0}}, bare[NDP_OP_MAX_OUT] = {{0}};
        int32_t *labels = in[2].data;
        make_outputs(&ndp_op_xent, &attr, in, bare, 1);
        run_op(&ndp_op_xent, &attr, in, bare, device, 2);
        for (int64_t t = 0; t < 70; t += 4)
            labels[t * in[2].ld] = NDP_LABEL_NONE;
        with.values = true;
        make_outputs(&ndp_op_xent, &with, in, out, 9);
        run_op(&ndp_op_xent, &with, in, out, device, 2);
        make_outputs(&ndp_op_xent, &with, in, sum, 9);
        xent_in_slices(&cases[i / 6], &with, in, sum, device);
        for (int64_t t = 0; t < 70; t++) {
            double logits[97], total = 0, entropy = 0, near = type == NDP_F64 ? 1e-12 : type == NDP_F32 ? 2e-5 : 2e-2;
            int32_t label = labels[t * in[2].ld];
            int64_t best = 0;
            for (int64_t v = 0; v < 97; v++) {
                logits[v] = 0;
                for (int64_t c = 0; c < 19; c++)
                    logits[v] += ndp_view_get(&in[0], t, c) * ndp_view_get(&in[1], v, c);
                logits[v] = attr.cap > 0 ? attr.cap * tanh(logits[v] / attr.cap) : logits[v];
                total += exp(logits[v]);
                best = logits[v] > logits[best] ? v : best;
            }
            for (int64_t v = 0; v < 97 && label >= 0; v++)
                entropy -= exp(logits[v]) / total * (logits[v] - log(total));
            for (int k = 0; k < 2; k++) {
                const ndp_view *is = k ? sum : out;
                double nll = ndp_view_get(&is[0], t, 0), is_best = ndp_view_get(&is[3], t, 1);
                bool found = label < 0 ? is_best == 0 : fabs(logits[(int)is_best] - logits[best]) <= near;
                if (!(fabs(ndp_view_get(&is[3], t, 0) - entropy) <= near) || !found ||
                    !(fabs(nll - (label == NDP_LABEL_NONE ? 0 : ndp_view_get(&bare[0], t, 0))) <= (k ? near : 0)))
                    fail_msg("case %d, row %lld, slices %d: entropy %.17g of %.17g, best id %g of %lld, nll %g", i,
                             (long long)t, k, ndp_view_get(&is[3], t, 0), entropy, is_best, (long long)best, nll);
            }
        }
        free_matrices(in, 4);
        free_matrices(bare, 1);
        free_matrices(out, 1), free_matrices(&out[3], 1);
        free_matrices(sum, 1), free_matrices(&sum[3], 1);
    }
}

/* Logits far apart: no overflow, and a loss that is their distance. */
static void xent_of_extreme_logits(void **state) {
    (void)state;
    for (int d = 0; d < DEVICES; d++) {
        ndp_op_attr attr = {.vocab = 3, .train = true};
        ndp_view in[NDP_OP_MAX_IN] = {matrix(NDP_F32, 1, 1), matrix(NDP_F32, 3, 1), random_ints(1, 2, 3, 1),
                                      one_double(1)};
        ndp_view out[NDP_OP_MAX_OUT] = {{0}};
        ndp_view_set(&in[0], 0, 0, 1);
        ndp_view_set(&in[1], 0, 0, 1000);
        ndp_view_set(&in[1], 2, 0, -1000);
        make_outputs(&ndp_op_xent, &attr, in, out, 7);
        run_op(&ndp_op_xent, &attr, in, out, device_at(d), 1);
        assert_true(ndp_view_get(&out[0], 0, 0) == 2000);
        assert_true(ndp_view_get(&out[1], 0, 0) == 2000);
        assert_true(ndp_view_get(&out[2], 0, 0) == 1 && ndp_view_get(&out[2], 1, 0) == 0);
        free_matrices(in, 4);
        free_matrices(out, 3);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(slices_equal_xent), cmocka_unit_test(the_best_id),
                                       cmocka_unit_test(values_of_rows), cmocka_unit_test(xent_of_extreme_logits)};
    return end_of_ops(cmocka_run_group_tests(tests, NULL, NULL));
}
