/* The head on both devices: slices of the vocabulary put together are the whole, and logits far apart. */
#include "op_test.h"
#include "ops/token_weight.h"

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
    ndp_view logits[4], w[4];
    ndp_view stats = matrix(out[0].dtype, s->parts * t, (whole->values ? 5 : 3) + ndp_top_count(whole));
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

/* Of row t, in fp64, by the definitions: logits are sorted. */
static double weight_by_hand(const ndp_op_attr *attr, const ndp_view *in, int64_t t) {
    double logits[97], sum = 0, entropy = 0, label = 0;
    for (int64_t v = 0; v < attr->vocab; v++) {
        double logit = 0;
        for (int64_t c = 0; c < in[0].cols; c++)
            logit += ndp_view_get(&in[0], t, c) * ndp_view_get(&in[1], v, c);
        logit = attr->cap > 0 ? attr->cap * tanh(logit / attr->cap) : logit;
        label = v == (int64_t)ndp_view_get(&in[2], t, 0) ? logit : label;
        int64_t at = v;
        for (; at > 0 && logits[at - 1] < logit; at--)
            logits[at] = logits[at - 1];
        logits[at] = logit;
    }
    int64_t k = attr->loss == NDP_TOKEN_WEIGHT_ENTROPY && attr->choices < attr->vocab ? attr->choices : attr->vocab;
    for (int64_t i = 0; i < k; i++)
        sum += exp(logits[i]);
    for (int64_t i = 0; i < k; i++)
        entropy -= exp(logits[i]) / sum * (logits[i] - log(sum));
    return attr->loss == NDP_TOKEN_WEIGHT_PROBABILITY ? exp(label) / sum : pow(attr->scale * entropy, attr->gamma);
}

/* Results of rows with weights are those without, of rows whose scale is times the weight: whole and in slices, with
 * equal logits and fewer than k, on both devices. */
static void weights_of_tokens(void **state) {
    (void)state;
    static const slicing cases[] = {{1, {97}, {3}}, {3, {40, 1, 56}, {0, 5, 1}}, {4, {50, 0, 30, 17}, {0, 2, 1, 0}}};
    for (int i = 0; i < 18 * NDP_COUNT(cases); i++) {
        ndp_dtype type = (ndp_dtype[]){NDP_F64, NDP_F32, NDP_BF16}[i % 3];
        const ndp_device *device = type == NDP_F64 ? &ndp_device_ref : tested();
        ndp_op_attr attr = {.vocab = 97, .train = true, .cap = i / 3 % 2 ? 3 : 0}, with = attr;
        with.loss = i / 6 % 3 ? NDP_TOKEN_WEIGHT_ENTROPY : NDP_TOKEN_WEIGHT_PROBABILITY;
        with.choices = i / 6 % 3 == 1 ? 20 : NDP_MOST_TOP, with.gamma = i % 2 ? 1 : 0.6, with.scale = 0.3;
        ndp_view in[NDP_OP_MAX_IN] = {random_matrix(type, 70, 19, 1), random_matrix(type, 100, 19, 2),
                                      random_ints(70, -9, 97, 3), matrix(NDP_F64, 70, 1)};
        ndp_view out[3][NDP_OP_MAX_OUT] = {{{0}}}, weights = matrix(NDP_F64, 70, 1);
        for (int64_t v = 0; v < 97; v += 5) /* each of these logits is there twice */
            for (int64_t c = 0; c < 19; c++)
                ndp_view_set(&in[1], (v + 3) % 97, c, ndp_view_get(&in[1], v, c));
        for (int64_t t = 0; t < 70; t++)
            ndp_view_set(&weights, t, 0, weight_by_hand(&with, in, t)), ndp_view_set(&in[3], t, 0, 0.37);
        for (int k = 0; k < 3; k++) {
            make_outputs(&ndp_op_xent, k ? &with : &attr, in, out[k], k == 2 ? 5 : 7);
            if (k == 2)
                out[k][1] = matrix(out[0][0].dtype, 70, 19), xent_in_slices(&cases[i / 18], &with, in, out[k], device);
            else if (k == 1)
                run_op(&ndp_op_xent, &with, in, out[k], device, 2);
        }
        for (int64_t t = 0; t < 70; t++)
            ndp_view_set(&in[3], t, 0, 0.37 * ndp_view_get(&weights, t, 0));
        run_op(&ndp_op_xent, &attr, in, out[0], device, 2);
        for (int64_t t = 0; t < 70; t++)
            ndp_view_set(&out[0][0], t, 0, ndp_view_get(&out[0][0], t, 0) * ndp_view_get(&weights, t, 0));
        double allowed = type == NDP_F64 ? 1e-13 : type == NDP_F32 ? 2e-6 : 4e-3;
        for (int o = 0; o < 6; o++) {
            double far = distance(&out[1 + o / 3][o % 3], &out[0][o % 3]);
            if (!(far <= allowed))
                fail_msg("case %d, slices %d, output %d, %s: off by %g", i, o / 3, o % 3, ndp_dtype_name(type), far);
        }
        for (int k = 0; k < 3; k++)
            free_matrices(out[k], 3);
        free_matrices(in, 4);
        free_matrices(&weights, 1);
    }
}

/* The loss, and squares of its gradient, as axolotl.monkeypatch.loss.eaft has them of the same logits in fp64, with
 * weights that are made in fp32. */
static void weights_are_those_of_axolotl(void **state) {
    (void)state;
    static const struct {
        int k;
        double alpha, loss, squares, element;
    } golden[] = {{20, 1, 11.0586512409, 1.3112215266, 0.00253542554148},
                  {5, 0.5, 5.52140884228, 0.324411978037, 0.00125299864909}};
    enum { T = 6, V = 30 };
    for (int i = 0; i < NDP_COUNT(golden); i++) {
        ndp_op_attr attr = {.vocab = V,
                            .train = true,
                            .loss = NDP_TOKEN_WEIGHT_ENTROPY,
                            .choices = golden[i].k,
                            .gamma = golden[i].alpha,
                            .scale = 1};
        ndp_view in[NDP_OP_MAX_IN] = {matrix(NDP_F64, T, V), matrix(NDP_F64, V, V), random_ints(T, 0, V, 3),
                                      one_double(1.0 / 5)},
                 out[NDP_OP_MAX_OUT] = {{0}};
        for (int64_t v = 0; v < V; v++)
            ndp_view_set(&in[1], v, v, 1);
        for (int64_t t = 0; t < T; t++) {
            ((int32_t *)in[2].data)[t * in[2].ld] = t == 2 ? -100 : (int32_t)(7 * t % V);
            for (int64_t v = 0; v < V; v++)
                ndp_view_set(&in[0], t, v, 3 * sin(1.7 * (double)t + 0.9 * (double)v));
        }
        make_outputs(&ndp_op_xent, &attr, in, out, 7);
        run_op(&ndp_op_xent, &attr, in, out, &ndp_device_ref, 1);
        double loss = 0;
        for (int64_t t = 0; t < T; t++)
            loss += ndp_view_get(&out[0], t, 0) / 5;
        assert_true(fabs(loss / golden[i].loss - 1) < 1e-6);
        assert_true(fabs(dot(&out[1], &out[1]) / golden[i].squares - 1) < 1e-6);
        assert_true(fabs(ndp_view_get(&out[1], 4, 3) / golden[i].element - 1) < 1e-6);
        free_matrices(in, 4);
        free_matrices(out, 3);
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_equal_xent), cmocka_unit_test(the_best_id),
        cmocka_unit_test(weights_of_tokens), cmocka_unit_test(weights_are_those_of_axolotl),
        cmocka_unit_test(values_of_rows),    cmocka_unit_test(xent_of_extreme_logits)};
    return end_of_ops(cmocka_run_group_tests(tests, NULL, NULL));
}
