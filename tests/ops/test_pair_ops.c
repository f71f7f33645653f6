/* Losses of pairs of documents: their formulas by finite differences, what rows get of them, and the kernels of all
 * devices against the reference. */
#include "op_test.h"

#include "ops/preference.h"
#include "ops/shape.h"

static ndp_preference preference(int kind) {
    ndp_preference p = {.kind = (ndp_preference_kind)kind, .beta = 0.8, .gamma = 0.3};
    p.label_smoothing = ndp_preference_table[kind].smoothed ? 0.15 : 0;
    p.desirable_weight = 0.7, p.undesirable_weight = 1.6;
    p.center = ndp_preference_scores(p.kind) ? 0.07 : 0;
    return p;
}

static bool is_single(int kind) { return ndp_preference_table[kind].single; }

/* `alone`: the document of a single answer; the other one is what it is compared with. */
static double loss_of(const ndp_preference *p, const double logp[2], int alone, double *by) {
    ndp_pair_document d[2] = {{logp[0], 3, -4.0}, {logp[1], 5, -6.5}};
    double out[NDP_PAIR_COLUMNS];
    if (is_single((int)p->kind))
        d[!alone] = (ndp_pair_document){0, 0, -2.5};
    ndp_pair_judge(p, &d[0], &d[1], out, &by[0], &by[1]);
    return out[NDP_PAIR_LOSS];
}

/* Near, far, and where exponentials overflow or vanish. */
static void slopes_are_derivatives(void **state) {
    (void)state;
    static const double logps[][2] = {{-4.2, -6.1}, {-9, -2}, {-0.3, -40}, {-2500, -1}, {-1, -2500}, {-0.9, -0.4}};
    for (int kind = 1; kind < NDP_PREFERENCE_KINDS; kind++)
        for (int i = 0; i < NDP_COUNT(logps); i++)
            for (int k = 0; k < 2; k++) {
                ndp_preference p = preference(kind);
                double by[2], unused[2];
                assert_true(isfinite(loss_of(&p, logps[i], k, by)));
                double h = 1e-5, to[2] = {logps[i][0], logps[i][1]}, from[2] = {logps[i][0], logps[i][1]};
                to[k] += h, from[k] -= h;
                double slope = (loss_of(&p, to, k, unused) - loss_of(&p, from, k, unused)) / (2 * h);
                if (!(fabs(slope - by[k]) <= 1e-6 * (1 + fabs(slope)))) /* the loss is a few thousand at most */
                    fail_msg("%s %s, pair %d, document %d: derivative %.12g, differences say %.12g",
                             ndp_preference_table[kind].name, ndp_preference_table[kind].variant, i, k, by[k], slope);
            }
}

/* By hand: 1 - sigmoid(beta (ratio - point)) of an answer that is wanted, 1 - sigmoid(beta (point - ratio)) of others.
 */
static void single_answers(void **state) {
    (void)state;
    ndp_preference p = preference(NDP_PREFERENCE_KTO);
    for (int k = 0; k < 2; k++) {
        double by[2], out[NDP_PAIR_COLUMNS], ratio = -3 - -4.5, x = p.beta * (k ? 2.5 - ratio : ratio - 2.5);
        ndp_pair_document d[2] = {{0, 0, -2.5}, {0, 0, -2.5}};
        d[k] = (ndp_pair_document){-3, 7, -4.5};
        ndp_pair_judge(&p, &d[0], &d[1], out, &by[0], &by[1]);
        assert_true(fabs(out[NDP_PAIR_LOSS] - (k ? 1.6 : 0.7) * (1 - 1 / (1 + exp(-x)))) < 1e-12);
        assert_true(out[NDP_PAIR_ACCURACY] == !k && (k ? by[1] > 0 : by[0] < 0));
        assert_true(out[NDP_PAIR_REWARD_CHOSEN] == (k ? 0 : p.beta * ratio));
        assert_true(out[NDP_PAIR_REWARD_REJECTED] == (k ? p.beta * ratio : 0));
        assert_true(out[NDP_PAIR_LOGP_CHOSEN] == (k ? 0 : -3) && out[NDP_PAIR_LOGP_REJECTED] == (k ? -3 : 0));
    }
}

static void pairs_without_an_answer_count_nothing(void **state) {
    (void)state;
    for (int kind = 0; kind < NDP_PREFERENCE_KINDS; kind++)
        for (int empty = 0; empty < 2; empty++) {
            ndp_preference p = preference(kind);
            ndp_pair_document d[2] = {{-3, 4, -2}, {-5, 4, -2}};
            double out[NDP_PAIR_COLUMNS], by[2];
            if (!is_single(kind)) /* of these, two answers, or none, are no pair */
                d[empty] = (ndp_pair_document){0, 0, -2};
            else if (empty)
                d[0] = d[1] = (ndp_pair_document){0, 0, -2};
            ndp_pair_judge(&p, &d[0], &d[1], out, &by[0], &by[1]);
            assert_true(by[0] == 0 && by[1] == 0);
            for (int j = 0; j < NDP_PAIR_COLUMNS; j++)
                assert_true(out[j] == 0);
        }
}

/* ---- kernels ---- */

enum { ROWS = 300, DOCUMENTS = 6 };

/* Rows of documents in turns, of unequal number; some are of none, or of a prompt. The last document has no answer if
 * `empty`. Of single answers one document of each pair has rows. */
static ndp_view some_documents(bool single, bool empty) {
    ndp_view v = matrix(NDP_I32, ROWS, 1);
    for (int64_t t = 0; t < ROWS; t++) {
        int64_t d = t * t % 13 % DOCUMENTS;
        int marks = t % 5 == 0 ? 0 : NDP_DOCUMENT_ANSWER;
        marks |= d % 2 == 0 && t % 3 ? NDP_DOCUMENT_NLL : 0;
        if (empty && d == DOCUMENTS - 1)
            marks = 0;
        if (single && d % 2 != d / 2 % 2)
            marks = 0;
        ndp_view_set(&v, t, 0, t % 11 == 4 ? -1 : (double)(d << NDP_DOCUMENT_MARKS | marks));
    }
    return v;
}

typedef struct pair_case {
    ndp_preference p;
    bool reference, empty;
} pair_case;

/* Everything that the three ops make. */
typedef struct pair_results {
    ndp_view documents, nll, reference, scale, nll_scale, sums, slopes, pairs, scales, parts;
} pair_results;

static ndp_view one(double x) {
    ndp_view v = matrix(NDP_F64, 1, 1);
    ndp_view_set(&v, 0, 0, x);
    return v;
}

static pair_results run_pairs(const pair_case *k, ndp_dtype type, const ndp_device *device) {
    pair_results r = {.documents = some_documents(is_single((int)k->p.kind), k->empty),
                      .nll = random_matrix(type, ROWS, 1, 5)};
    for (int64_t t = 0; t < ROWS; t++)
        ndp_view_set(&r.nll, t, 0, 0.25 * floor(8 * fabs(ndp_view_get(&r.nll, t, 0)))); /* exact in all types */
    r.scale = one(0.25), r.nll_scale = one(0.01);
    if (k->reference)
        r.reference = random_matrix(NDP_F64, DOCUMENTS, 1, 6);
    ndp_view out[NDP_OP_MAX_OUT] = {{0}}, a[] = {r.nll, r.documents};
    ndp_op_attr count = {.parts = DOCUMENTS}, rows = {.scale = 0.7};
    ndp_op_attr loss = {.loss = (int)k->p.kind, .scale = k->p.beta, .gamma = k->p.gamma};
    loss.label_smoothing = k->p.label_smoothing;
    loss.center = k->p.center;
    loss.desirable_weight = k->p.desirable_weight, loss.undesirable_weight = k->p.undesirable_weight;
    make_outputs(&ndp_op_document_sums, &count, a, out, 1);
    run_op(&ndp_op_document_sums, &count, a, out, device, 2);
    r.sums = out[0];
    memset(out, 0, sizeof out);
    ndp_view b[] = {r.sums, r.reference};
    make_outputs(&ndp_op_pair_loss, &loss, b, out, 3);
    run_op(&ndp_op_pair_loss, &loss, b, out, device, 2);
    r.slopes = out[0], r.pairs = out[1];
    memset(out, 0, sizeof out);
    ndp_view c[] = {r.documents, r.nll, r.sums, r.slopes, r.pairs, r.scale, r.nll_scale};
    make_outputs(&ndp_op_pair_rows, &rows, c, out, 3);
    run_op(&ndp_op_pair_rows, &rows, c, out, device, 2);
    r.scales = out[0], r.parts = out[1];
    return r;
}

static void release(pair_results *r) { free_matrices(&r->documents, sizeof *r / sizeof(ndp_view)); }

static double column_sum(const ndp_view *v, int64_t column) {
    double sum = 0;
    for (int64_t t = 0; t < v->rows; t++)
        sum += ndp_view_get(v, t, column);
    return sum;
}

static pair_case case_of(int kind, bool empty) {
    return (pair_case){preference(kind), ndp_preference_table[kind].reference, empty};
}

/* The parts of all rows add up to the sums over pairs, and to the nll of the rows that count. */
static void parts_add_up(void **state) {
    (void)state;
    for (int kind = 1; kind < NDP_PREFERENCE_KINDS; kind++)
        for (int empty = 0; empty < 2; empty++) {
            pair_case k = case_of(kind, empty);
            pair_results r = run_pairs(&k, NDP_F64, &ndp_device_ref);
            double nll = 0;
            for (int64_t t = 0; t < ROWS; t++)
                if (ndp_document_has(ndp_int_at(&r.documents, t), NDP_DOCUMENT_NLL))
                    nll += ndp_view_get(&r.nll, t, 0);
            for (int j = 0; j < NDP_PAIR_COLUMNS; j++)
                assert_true(fabs(column_sum(&r.parts, j) - column_sum(&r.pairs, j)) < 1e-9);
            assert_true(fabs(column_sum(&r.parts, NDP_PAIR_NLL) - nll) < 1e-9);
            release(&r);
        }
}

/* What a row is scaled by is the derivative of the whole loss by its nll. */
static void scales_are_derivatives(void **state) {
    (void)state;
    for (int kind = 1; kind < NDP_PREFERENCE_KINDS; kind++) {
        pair_case k = case_of(kind, false);
        pair_results r = run_pairs(&k, NDP_F64, &ndp_device_ref);
        for (int64_t t = 0; t < ROWS; t += 7) {
            double loss[2];
            for (int side = 0; side < 2; side++) {
                double by[2], out[NDP_PAIR_COLUMNS], h = side ? 1e-4 : -1e-4;
                int64_t code = ndp_int_at(&r.documents, t), d = ndp_document_of(code);
                bool answer = ndp_document_has(code, NDP_DOCUMENT_ANSWER);
                loss[side] = 0;
                if (ndp_document_has(code, NDP_DOCUMENT_NLL))
                    loss[side] += 0.7 * 0.01 * h;
                for (int64_t i = 0; i < DOCUMENTS / 2; i++) {
                    ndp_pair_document of[2];
                    for (int64_t q = 0; q < 2; q++)
                        of[q] = (ndp_pair_document){ndp_view_get(&r.sums, 2 * i + q, 0) -
                                                        (answer && d == 2 * i + q ? h : 0),
                                                    ndp_view_get(&r.sums, 2 * i + q, 1),
                                                    k.reference ? ndp_view_get(&r.reference, 2 * i + q, 0) : 0};
                    ndp_pair_judge(&k.p, &of[0], &of[1], out, &by[0], &by[1]);
                    loss[side] += 0.25 * out[NDP_PAIR_LOSS];
                }
            }
            double slope = (loss[1] - loss[0]) / 2e-4, scale = ndp_view_get(&r.scales, t, 0);
            if (!(fabs(slope - scale) <= 1e-6 * (1 + fabs(slope))))
                fail_msg("%s, row %lld: scale %.12g, differences say %.12g", ndp_preference_table[kind].name,
                         (long long)t, scale, slope);
        }
        release(&r);
    }
}

static void check_equal(const char *what, int kind, const ndp_view *a, const ndp_view *b) {
    if (!(distance(a, b) <= 1e-13))
        fail_msg("%s %s: %s off by %g", ndp_preference_table[kind].name, ndp_preference_table[kind].variant, what,
                 distance(a, b));
}

static void devices_agree(void **state) {
    (void)state;
    for (int kind = 1; kind < NDP_PREFERENCE_KINDS; kind++)
        for (int empty = 0; empty < 2; empty++) {
            pair_case k = case_of(kind, empty);
            pair_results a = run_pairs(&k, NDP_F32, tested()), b = run_pairs(&k, NDP_F64, &ndp_device_ref);
            check_equal("sums", kind, &a.sums, &b.sums);
            check_equal("slopes", kind, &a.slopes, &b.slopes);
            check_equal("pairs", kind, &a.pairs, &b.pairs);
            check_equal("scales", kind, &a.scales, &b.scales);
            check_equal("parts", kind, &a.parts, &b.parts);
            release(&a);
            release(&b);
        }
}

/* nll of a score, and the derivative of sum(nll * scale) by it. */
static void scores_are_negated(void **state) {
    (void)state;
    for (int d = 0; d < DEVICES; d++)
        for (int train = 0; train < 2; train++) {
            ndp_op_attr attr = {.train = train};
            ndp_view in[NDP_OP_MAX_IN] = {random_matrix(NDP_F32, ROWS, 1, 8)}, out[NDP_OP_MAX_OUT] = {{0}};
            if (train)
                in[1] = random_matrix(NDP_F64, ROWS, 1, 9);
            make_outputs(&ndp_op_row_score, &attr, in, out, 1 | train << 1);
            run_op(&ndp_op_row_score, &attr, in, out, device_at(d), 2);
            for (int64_t t = 0; t < ROWS; t++) {
                assert_true(ndp_view_get(&out[0], t, 0) == -ndp_view_get(&in[0], t, 0));
                assert_true(!train || ndp_view_get(&out[1], t, 0) == (float)-ndp_view_get(&in[1], t, 0));
            }
            free_matrices(in, 2);
            free_matrices(out, 2);
        }
}

/* Several columns in fp64, to what was there. */
static void columns_are_summed(void **state) {
    (void)state;
    for (int d = 0; d < DEVICES; d++)
        for (int add = 0; add < 2; add++) {
            ndp_op_attr attr = {.accumulate = add};
            ndp_view x[NDP_OP_MAX_IN] = {random_matrix(NDP_F64, 2300, NDP_PAIR_SUMS, 3)};
            ndp_view sum[NDP_OP_MAX_OUT] = {random_matrix(NDP_F64, 1, NDP_PAIR_SUMS, 4)};
            double expected[NDP_PAIR_SUMS];
            for (int j = 0; j < NDP_PAIR_SUMS; j++) {
                expected[j] = add ? ndp_view_get(&sum[0], 0, j) : 0;
                for (int64_t t = 0; t < 2300; t++)
                    expected[j] += ndp_view_get(&x[0], t, j);
            }
            run_op(&ndp_op_reduce_sum, &attr, x, sum, device_at(d), 2);
            for (int j = 0; j < NDP_PAIR_SUMS; j++)
                assert_true(ndp_view_get(&sum[0], 0, j) == expected[j]);
            free_matrices(x, 1);
            free_matrices(sum, 1);
        }
}

static void shape_rules_refuse(void **state) {
    (void)state;
    const ndp_view nll = {.dtype = NDP_F32, .rows = 7, .cols = 1}, ids = {.dtype = NDP_I32, .rows = 7, .cols = 1},
                   few = {.dtype = NDP_I32, .rows = 6, .cols = 1}, sums = {.dtype = NDP_F64, .rows = 4, .cols = 2},
                   odd = {.dtype = NDP_F64, .rows = 3, .cols = 2}, slopes = {.dtype = NDP_F64, .rows = 4, .cols = 1},
                   pairs = {.dtype = NDP_F64, .rows = 2, .cols = NDP_PAIR_COLUMNS}, none = {0},
                   single = {.dtype = NDP_F64, .rows = 1, .cols = 1}, scales = {.dtype = NDP_F64, .rows = 7, .cols = 1};
    const struct {
        const ndp_op *op;
        int parts;
        bool fits;
        ndp_view in[NDP_OP_MAX_IN];
    } cases[] = {{&ndp_op_row_score, 0, true, {nll, none}},
                 {&ndp_op_row_score, 0, true, {nll, scales}},
                 {&ndp_op_row_score, 0, false, {nll, slopes}},
                 {&ndp_op_row_score, 0, false, {ids, none}},
                 {&ndp_op_document_sums, 4, true, {nll, ids}},
                 {&ndp_op_document_sums, 3, false, {nll, ids}},
                 {&ndp_op_document_sums, 4, false, {nll, few}},
                 {&ndp_op_pair_loss, 0, true, {sums, none}},
                 {&ndp_op_pair_loss, 0, true, {sums, slopes}},
                 {&ndp_op_pair_loss, 0, false, {odd, none}},
                 {&ndp_op_pair_loss, 0, false, {sums, single}},
                 {&ndp_op_pair_rows, 0, true, {ids, nll, sums, slopes, pairs, single, single}},
                 {&ndp_op_pair_rows, 0, false, {few, nll, sums, slopes, pairs, single, single}},
                 {&ndp_op_pair_rows, 0, false, {ids, nll, sums, slopes, slopes, single, single}}};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_op_attr attr = {.parts = cases[i].parts};
        ndp_view out[NDP_OP_MAX_OUT] = {{0}};
        if (apply_shape(cases[i].op, &attr, cases[i].in, out) != (cases[i].fits ? NDP_OK : NDP_EBUG))
            fail_msg("case %d, %s", i, cases[i].op->name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(slopes_are_derivatives),
                                       cmocka_unit_test(single_answers),
                                       cmocka_unit_test(pairs_without_an_answer_count_nothing),
                                       cmocka_unit_test(parts_add_up),
                                       cmocka_unit_test(scales_are_derivatives),
                                       cmocka_unit_test(devices_agree),
                                       cmocka_unit_test(scores_are_negated),
                                       cmocka_unit_test(columns_are_summed),
                                       cmocka_unit_test(shape_rules_refuse)};
    return end_of_ops(cmocka_run_group_tests(tests, NULL, NULL));
}
