/* The optimizers against their formulas in fp64, and against torch; fp32 on the device of NDP_TEST_DEVICE. */
#include "optim/groups.h"

#include "base/rng.h"
#include "check.h"
#include "ops/op_test.h"
#include "ops/pieces.h"
#include <math.h>
#include <stdlib.h>

enum { MOST = 40007, GUARD = 3, MOST_PIECES = 37 };

/* One tensor before and after, with guard elements that must not change on both sides. */
typedef struct arrays {
    double w[MOST + 2 * GUARD], g[MOST + 2 * GUARD], s[2][MOST + 2 * GUARD];
    uint16_t copy[MOST + 2 * GUARD];
} arrays;

/* A step of an optimizer on n elements: the options, and what is constant in an update. */
typedef struct trial {
    ndp_optimizer_opts o;
    double lr;
    int64_t step;   /* 1 for the first */
    ndp_dtype type; /* of weights, gradient and states: fp32 runs on the device under test, fp64 on `ref` */
    int64_t n;
    double clip;
    bool momentum_alone; /* of Muon: the op before its products */
    bool decays, all_decay;
    int threads;
    int pieces; /* that the elements are cut into, some of them empty; 0: one. Every other one decays, or all do */
} trial;

static ndp_view row(const void *data, ndp_dtype type, int64_t n) {
    return data ? (ndp_view){(void *)data, type, 1, n, n} : (ndp_view){0};
}

static int n_pieces(const trial *t) { return t->pieces ? t->pieces : 1; }
static int64_t first_of(const trial *t, int piece) { return t->n * piece / n_pieces(t); }

/* An op that updates, on arrays that begin at the first element. */
static void update_by(const ndp_op *op, int states, const trial *t, void *w, const void *g, void *s0, void *s1,
                      uint16_t *copy) {
    const ndp_exec exec = {.device = t->type == NDP_F64 ? &ndp_device_ref : tested(), .threads = t->threads};
    int64_t pieces[MOST_PIECES][NDP_PIECE_COLUMNS];
    for (int i = 0; i < n_pieces(t); i++) {
        const int64_t piece[] = {first_of(t, i), first_of(t, i + 1) - first_of(t, i),
                                 ndp_piece_facts(1, !(t->decays && (i % 2 == 0 || t->all_decay)))};
        memcpy(pieces[i], piece, sizeof piece);
    }
    double constants[2][NDP_OPTIMIZER_CONSTANTS] = {{0}}; /* with weight decay, and without */
    ndp_optimizer_opts plain = t->o;
    plain.weight_decay = 0;
    ndp_optimizers[t->o.name]->constants(&t->o, t->lr, t->step - 1, constants[0]);
    ndp_optimizers[t->o.name]->constants(&plain, t->lr, t->step - 1, constants[1]);
    ndp_op_call call = {.op = op,
                        .attr = &(ndp_op_attr){0},
                        .exec = &exec,
                        .in = {row(w, t->type, t->n),
                               row(g, t->type, t->n),
                               {pieces, NDP_I64, n_pieces(t), NDP_PIECE_COLUMNS, NDP_PIECE_COLUMNS},
                               {constants, NDP_F64, 2, NDP_OPTIMIZER_CONSTANTS, NDP_OPTIMIZER_CONSTANTS},
                               row(&t->clip, NDP_F64, 1),
                               row(states > 0 ? s0 : NULL, t->type, t->n),
                               row(states > 1 ? s1 : NULL, t->type, t->n)},
                        .out = {row(w, t->type, t->n), row(copy, NDP_BF16, t->n)}};
    ndp_op_call shapes = call;
    CHECK_OK(op->shape(&shapes));
    assert_true(shapes.out[0].cols == t->n && shapes.out[0].dtype == t->type && shapes.out[1].dtype == NDP_BF16);
    run_call(&call);
}

/* The op of the optimizer. */
static void update(const trial *t, void *w, const void *g, void *s0, void *s1, uint16_t *copy) {
    if (t->momentum_alone) {
        update_by(&ndp_op_muon_momentum, 1, t, w, g, s0, s1, copy);
        return;
    }
    int states = ndp_optimizers[t->o.name]->whole.direction ? 0 : ndp_optimizer_states(&t->o);
    update_by(ndp_optimizers[t->o.name]->op, states, t, w, g, s0, s1, copy);
}

/* What the contracts say, one element at a time, in fp64. */
static void expect_adamw(const trial *t, double decay, arrays *a, int64_t i) {
    double g = a->g[i] * t->clip, b1 = t->o.betas[0], b2 = t->o.betas[1];
    a->w[i] *= 1 - t->lr * decay;
    a->s[0][i] = b1 * a->s[0][i] + (1 - b1) * g;
    a->s[1][i] = b2 * a->s[1][i] + (1 - b2) * g * g;
    double bias1 = 1 - pow(b1, (double)t->step), bias2 = 1 - pow(b2, (double)t->step);
    a->w[i] -= t->lr / bias1 * a->s[0][i] / (sqrt(a->s[1][i]) / sqrt(bias2) + t->o.eps);
}

static void expect_sgd(const trial *t, double decay, arrays *a, int64_t i) {
    double d = a->g[i] * t->clip + decay * a->w[i];
    if (t->o.momentum != 0)
        d = a->s[0][i] = t->step == 1 ? d : t->o.momentum * a->s[0][i] + d;
    a->w[i] -= t->lr * d;
}

static void expect_lion(const trial *t, double decay, arrays *a, int64_t i) {
    double g = a->g[i] * t->clip, b1 = t->o.betas[0], b2 = t->o.betas[1];
    double mixed = b1 * a->s[0][i] + (1 - b1) * g;
    a->w[i] = a->w[i] * (1 - t->lr * decay) - t->lr * ((mixed > 0) - (mixed < 0));
    a->s[0][i] = b2 * a->s[0][i] + (1 - b2) * g;
}

/* `g` is a direction, which is not clipped; test_muon.c has the rest of Muon. */
static void expect_muon(const trial *t, double decay, arrays *a, int64_t i) {
    a->w[i] = a->w[i] * (1 - t->lr * decay) - t->lr * a->g[i];
}

/* One a row of the table: an optimizer without its formula here fails every test below. Those whose states are codes
 * are in test_codes.c. */
static void (*const expect[NDP_OPTIMIZER_COUNT])(const trial *, double, arrays *,
                                                 int64_t) = {[NDP_ADAMW] = expect_adamw,
                                                             [NDP_SGD] = expect_sgd,
                                                             [NDP_LION] = expect_lion,
                                                             [NDP_MUON] = expect_muon,
                                                             [NDP_MUON_SPECTRAL] = expect_muon};

static bool has_codes(int name) { return ndp_optimizer_codes((ndp_optimizer_name)name); }

static void expect_of(const trial *t, double decay, arrays *a, int64_t i) {
    if (!expect[t->o.name])
        fail_msg("%s has no formula here: add one to expect[]", ndp_optimizers[t->o.name]->name);
    expect[t->o.name](t, decay, a, i);
}

static void fill(arrays *a, bool state) {
    static float noise[4][MOST + 2 * GUARD];
    for (int k = 0; k < 4; k++)
        ndp_rng_normal(11, (uint64_t)k, 0, MOST + 2 * GUARD, 0.1, noise[k]);
    for (int i = 0; i < MOST + 2 * GUARD; i++) {
        a->w[i] = (double)noise[0][i];
        a->g[i] = i % 7 == 0 ? 0 : (double)noise[1][i];
        a->s[0][i] = state ? (double)noise[2][i] : 0;
        /* as in a real run, no first moment is far above the root of the second */
        a->s[1][i] = state ? (double)(noise[2][i] * noise[2][i] + noise[3][i] * noise[3][i]) : 0;
        a->copy[i] = 0x7777;
    }
}

static void narrow(const double *from, float *to) {
    for (int i = 0; i < MOST + 2 * GUARD; i++)
        to[i] = (float)from[i];
}

static void widen(const float *from, double *to) {
    for (int i = 0; i < MOST + 2 * GUARD; i++)
        to[i] = (double)from[i];
}

/* Makes a step on elements [GUARD, GUARD + n) of `a` in storage `type`. The start is aligned to 4 bytes only. */
static void apply(trial t, arrays *a, bool copied) {
    static float w[MOST + 2 * GUARD], g[MOST + 2 * GUARD], s0[MOST + 2 * GUARD], s1[MOST + 2 * GUARD];
    bool single = t.type == NDP_F32;
    narrow(a->w, w);
    narrow(a->g, g);
    narrow(a->s[0], s0);
    narrow(a->s[1], s1);
    if (single)
        update(&t, w + GUARD, g + GUARD, s0 + GUARD, s1 + GUARD, copied ? a->copy + GUARD : NULL);
    else
        update(&t, a->w + GUARD, a->g + GUARD, a->s[0] + GUARD, a->s[1] + GUARD, copied ? a->copy + GUARD : NULL);
    if (single) {
        widen(w, a->w);
        widen(g, a->g);
        widen(s0, a->s[0]);
        widen(s1, a->s[1]);
    }
}

static arrays before, after, want, other;

static void close_to(double got, double expected, double scale, double relative, const char *of, int64_t i) {
    if (!(fabs(got - expected) <= relative * scale))
        fail_msg("%s[%lld] is %.17g, expected %.17g", of, (long long)i, got, expected);
}

/* State within roundings of itself; weights within roundings of themselves and of one update of size lr. */
static void compare(const trial *t, bool copied) {
    double eps = t->type == NDP_F32 ? 1.2e-7 : 2.3e-16;
    want = before;
    for (int64_t i = GUARD, piece = 0; i < GUARD + t->n; i++) {
        while (i - GUARD >= first_of(t, (int)piece + 1))
            piece++;
        expect_of(t, t->decays && piece % 2 == 0 ? t->o.weight_decay : 0, &want, i);
        close_to(after.s[0][i], want.s[0][i], fabs(before.s[0][i]) + fabs(before.g[i]) + fabs(before.w[i]), 4 * eps,
                 "state 0", i);
        close_to(after.s[1][i], want.s[1][i], fabs(want.s[1][i]), 4 * eps, "state 1", i);
        close_to(after.w[i], want.w[i], 2 * fabs(before.w[i]) + 20 * t->lr, 2 * eps, "weight", i);
        if (copied)
            assert_int_equal(after.copy[i], ndp_f32_to_bf16((float)after.w[i]));
    }
    for (int64_t i = 0; i < MOST + 2 * GUARD; i++) {
        bool inside = i >= GUARD && i < GUARD + t->n;
        if (!inside &&
            (after.w[i] != before.w[i] || after.s[0][i] != before.s[0][i] || after.s[1][i] != before.s[1][i]))
            fail_msg("element %lld outside of [0, %lld) changed", (long long)i - GUARD, (long long)t->n);
        if (!inside || !copied)
            assert_int_equal(after.copy[i], 0x7777);
        assert_true(after.g[i] == before.g[i]);
    }
}

static void try_all(ndp_optimizer_name name, double momentum) {
    static const int64_t sizes[] = {0, 1, 15, 16, 17, 63, 65, 1000, MOST};
    for (int k = 0; k < NDP_COUNT(sizes) * 2 * 2 * 2 * 2; k++) {
        bool copied = k & 1;
        trial t = {
            .o = {.name = name, .betas = {0.9, 0.95}, .eps = 1e-8, .weight_decay = 0.1, .momentum = momentum},
            .lr = 3e-3,
            .step = k & 4 ? 1 : 7,
            .type = k & 2 ? NDP_F64 : NDP_F32,
            .n = sizes[k / 16],
            .clip = 0.75,
            .decays = k & 4,
            .threads = 2,
            .pieces = k & 8 ? MOST_PIECES : 1,
        };
        fill(&before, t.step > 1);
        if (t.type == NDP_F32)
            for (int s = 0; s < 2; s++)
                for (int i = 0; i < MOST + 2 * GUARD; i++)
                    before.s[s][i] = (double)(float)before.s[s][i];
        after = before;
        apply(t, &after, copied);
        compare(&t, copied);
    }
}

static void updates_follow_their_formulas(void **state) {
    (void)state;
    for (int name = 0; name < NDP_OPTIMIZER_COUNT; name++)
        if (!has_codes(name))
            try_all((ndp_optimizer_name)name, 0);
    try_all(NDP_SGD, 0.9);
}

static void threads_change_no_bit(void **state) {
    (void)state;
    for (int k = 0; k < 2 * NDP_OPTIMIZER_COUNT; k++) {
        if (has_codes(k / 2))
            continue;
        trial t = {
            .o = {.name = (ndp_optimizer_name)(k / 2),
                  .betas = {0.9, 0.999},
                  .eps = 1e-8,
                  .weight_decay = 0.1,
                  .momentum = 0.9},
            .lr = 1e-3,
            .step = 4,
            .type = k & 1 ? NDP_F64 : NDP_F32,
            .n = MOST,
            .clip = 0.3,
            .decays = true,
            .threads = 1,
        };
        fill(&after, true);
        apply(t, &after, true);
        for (t.threads = 2; t.threads <= 7; t.threads++) {
            fill(&other, true);
            apply(t, &other, true);
            assert_memory_equal(&after, &other, sizeof after);
        }
    }
}

/* Whatever piece an element is in, and wherever it stands there, it goes through the same arithmetic: a tensor has the
 * bits that it has as a part of a stack. So has Muon's momentum, which writes a direction. */
static void places_in_pieces_change_no_bit(void **state) {
    (void)state;
    static const int64_t sizes[] = {63, 100, 1000, MOST};
    fill(&before, true);
    for (int k = 0; k < 4 * (NDP_OPTIMIZER_COUNT + 1) * NDP_COUNT(sizes); k++) {
        int name = k / 4 % (NDP_OPTIMIZER_COUNT + 1);
        bool momentum_alone = name == NDP_OPTIMIZER_COUNT;
        trial t = {.o = {.name = momentum_alone ? NDP_MUON : (ndp_optimizer_name)name,
                         .betas = {0.9, 0.999},
                         .eps = 1e-8,
                         .weight_decay = k & 1 ? 0.1 : 0,
                         .momentum = 0.95},
                   .lr = 1e-3,
                   .step = 4,
                   .type = k & 2 ? NDP_F64 : NDP_F32,
                   .n = sizes[k / 4 / (NDP_OPTIMIZER_COUNT + 1)],
                   .clip = 0.3,
                   .momentum_alone = momentum_alone,
                   .decays = true,
                   .all_decay = true,
                   .threads = 1};
        if (has_codes(t.o.name))
            continue;
        after = before;
        apply(t, &after, k & 1 && !momentum_alone);
        for (t.pieces = 2; t.pieces <= MOST_PIECES; t.pieces += 7) {
            other = before;
            apply(t, &other, k & 1 && !momentum_alone);
            if (memcmp(&after, &other, sizeof after) != 0)
                fail_msg("%s%s of %lld elements, %s: %d pieces have other bits than one",
                         ndp_optimizers[t.o.name]->name, momentum_alone ? "_momentum" : "", (long long)t.n,
                         ndp_dtype_name(t.type), t.pieces);
        }
    }
}

/* The numbers are torch 2.x's, fp64: w = [1, -2, .5, 0], the three gradients below, then
 * torch.optim.AdamW([w], lr=.1, betas=(.9, .95), eps=1e-8, weight_decay=.1) and
 * torch.optim.SGD([w], lr=.1, momentum=M, weight_decay=.1), M = .9 and 0. */
static void three_steps_are_torchs(void **state) {
    (void)state;
    static const double grads[3][4] = {{0.5, -1, 0, 2}, {0.25, 3, -0.125, -2}, {-1, 0.75, 1e-3, 4}};
    static const double expected[3][4] = {
        {0.7996409924180845, -1.9430185410453, 0.6149442783181035, -0.14200412812210453},
        {0.863524, -2.263548, 0.4957145, -0.55642},
        {0.996544, -2.214588, 0.49742449999999994, -0.39802000000000004},
    };
    for (int k = 0; k < 3; k++) {
        double w[4] = {1, -2, 0.5, 0}, s[2][4] = {{0}};
        for (int step = 1; step <= 3; step++) {
            trial t = {.o = {.name = k == 0 ? NDP_ADAMW : NDP_SGD,
                             .betas = {0.9, 0.95},
                             .eps = 1e-8,
                             .weight_decay = 0.1,
                             .momentum = k == 1 ? 0.9 : 0},
                       .lr = 0.1,
                       .step = step,
                       .type = NDP_F64,
                       .n = 4,
                       .clip = 1,
                       .decays = true,
                       .threads = 1};
            update(&t, w, grads[step - 1], s[0], s[1], NULL);
        }
        for (int i = 0; i < 4; i++)
            close_to(w[i], expected[k][i], 1, 1e-14, "weight", i);
    }
}

/* A gradient that vanished for long leaves moments too small for a normal float: they end at zero, the weight stays. */
static void tiny_moments_end_at_zero(void **state) {
    (void)state;
    float w[40], g[40] = {0}, m[40], v[40];
    for (int i = 0; i < 40; i++) {
        w[i] = 1;
        m[i] = 1e-42f;
        v[i] = 1e-44f;
    }
    trial t = {.o = {.name = NDP_ADAMW, .betas = {0.9, 0.95}, .eps = 1e-8},
               .lr = 0.1,
               .step = 1000000,
               .type = NDP_F32,
               .n = 40,
               .clip = 1,
               .threads = 1};
    update(&t, w, g, m, v, NULL);
    for (int i = 0; i < 40; i++)
        assert_true(w[i] == 1 && m[i] == 0 && v[i] == 0);
}

/* A weight without gradient and momentum stays; a broken gradient breaks the weight, as it does with any optimizer. */
static void lion_takes_signs(void **state) {
    (void)state;
    static const float grads[] = {1e-30f, -3, 0, INFINITY, NAN}, expected[] = {0.875f, 1.125f, 1, 0.875f, NAN};
    for (int64_t n = 5; n <= 80; n += 75) { /* the end of a vector, and whole ones */
        float w[80], g[80], m[80] = {0};
        for (int i = 0; i < 80; i++)
            w[i] = 1, g[i] = grads[i % 5];
        trial t = {.o = {.name = NDP_LION, .betas = {0.9, 0.99}},
                   .lr = 0.125,
                   .step = 1,
                   .type = NDP_F32,
                   .n = n,
                   .clip = 1,
                   .threads = 1};
        update(&t, w, g, m, NULL, NULL);
        for (int i = 0; i < n; i++)
            assert_true(w[i] == expected[i % 5] || (isnan(w[i]) && isnan(expected[i % 5]) && isnan(m[i])));
    }
}

/* A step whose norm or loss is not finite: nothing is written, whatever the gradient is. */
static void a_step_that_is_not_finite_changes_nothing(void **state) {
    (void)state;
    enum { N = 1000 };
    for (int k = 0; k < 2 * (NDP_OPTIMIZER_COUNT + 1); k++) {
        bool direction = k / 2 == NDP_OPTIMIZER_COUNT; /* muon_momentum */
        if (!direction && has_codes(k / 2))
            continue;
        trial t = {.o = {.name = direction ? NDP_MUON : (ndp_optimizer_name)(k / 2), .betas = {0.9, 0.95}, .eps = 1e-8},
                   .lr = 1e-3,
                   .step = 3,
                   .type = k & 1 ? NDP_F64 : NDP_F32,
                   .n = N,
                   .clip = NAN,
                   .decays = true,
                   .threads = 2};
        t.o.momentum = 0.9;
        fill(&before, true);
        before.g[7] = INFINITY;
        want = after = before;
        void *w = after.w, *g = before.g, *s0 = after.s[0], *s1 = after.s[1];
        if (t.type == NDP_F32) { /* the first halves of the arrays: the bits are compared below */
            narrow(want.w, w), narrow(want.s[0], s0), narrow(want.s[1], s1);
            narrow(want.g, g);
        }
        want = after;
        if (direction)
            update_by(ndp_optimizers[NDP_MUON]->whole.direction, 1, &t, w, g, s0, s1, NULL);
        else
            update(&t, w, g, s0, s1, after.copy);
        assert_memory_equal(&after, &want, sizeof after);
    }
}

static void states_are_counted(void **state) {
    (void)state;
    static const struct {
        ndp_optimizer_opts o;
        int states;
    } cases[] = {{{.name = NDP_ADAMW}, 2},
                 {{.name = NDP_ADAMW8BIT}, 2},
                 {{.name = NDP_ADAMW, .momentum = 0.9}, 2},
                 {{.name = NDP_SGD, .momentum = 0.9}, 1},
                 {{.name = NDP_SGD}, 0},
                 {{.name = NDP_LION, .momentum = 0.9}, 1},
                 {{.name = NDP_MUON, .momentum = 0.9}, 1}};
    for (int i = 0; i < NDP_COUNT(cases); i++)
        assert_int_equal(ndp_optimizer_states(&cases[i].o), cases[i].states);
}

/* Checkpoints hold the names: they must not change, and no two states of an optimizer share one. */
static void the_table_is_whole(void **state) {
    (void)state;
    for (int i = 0; i < NDP_OPTIMIZER_COUNT; i++) {
        const ndp_optimizer *o = ndp_optimizers[i];
        assert_non_null(o);
        assert_true(o->name && o->op && o->constants && (expect[i] != NULL) != has_codes(i));
        assert_int_equal(strncmp(o->op->name, o->name, strlen(o->op->name)), 0); /* muon_spectral: muon */
        assert_true(o->bounds.most_lr > 0 || o->bounds.spreads > 0);
        for (int k = 0; k < NDP_OPTIMIZER_STATES && o->state[k]; k++)
            assert_int_equal(strncmp(o->state[k], "optimizer.", 10), 0);
        assert_true(!o->state[0] || !o->state[1] || strcmp(o->state[0], o->state[1]) != 0);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(o->name, ndp_optimizers[k]->name);
    }
    assert_string_equal(ndp_optimizers[NDP_ADAMW]->state[0], "optimizer.m.");
    assert_string_equal(ndp_optimizers[NDP_ADAMW]->state[1], "optimizer.v.");
    assert_string_equal(ndp_optimizers[NDP_SGD]->state[0], "optimizer.momentum.");
    assert_string_equal(ndp_optimizers[NDP_LION]->state[0], "optimizer.m.");
    assert_string_equal(ndp_optimizers[NDP_MUON]->state[0], "optimizer.m.");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(updates_follow_their_formulas),
                                       cmocka_unit_test(threads_change_no_bit),
                                       cmocka_unit_test(places_in_pieces_change_no_bit),
                                       cmocka_unit_test(three_steps_are_torchs),
                                       cmocka_unit_test(tiny_moments_end_at_zero),
                                       cmocka_unit_test(lion_takes_signs),
                                       cmocka_unit_test(a_step_that_is_not_finite_changes_nothing),
                                       cmocka_unit_test(states_are_counted),
                                       cmocka_unit_test(the_table_is_whole)};
    return end_of_ops(cmocka_run_group_tests(tests, NULL, NULL));
}
