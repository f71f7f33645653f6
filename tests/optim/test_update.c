/* AdamW and SGD against the formulas in fp64, and against torch. */
#include "optim/optim.h"

#include "base/rng.h"
#include "check.h"
#include <math.h>
#include <stdlib.h>

enum { MOST = 40007, GUARD = 3 };

/* One tensor before and after, with guard elements that must not change on both sides. */
typedef struct arrays {
    double w[MOST + 2 * GUARD], g[MOST + 2 * GUARD], s[2][MOST + 2 * GUARD];
    uint16_t copy[MOST + 2 * GUARD];
} arrays;

/* What the contract says, one element at a time, in fp64. */
static void expect_adamw(const ndp_optim_call *c, arrays *a, int64_t i) {
    double g = a->g[i] * c->grad_scale;
    a->w[i] *= 1 - c->lr * c->weight_decay;
    a->s[0][i] = c->beta1 * a->s[0][i] + (1 - c->beta1) * g;
    a->s[1][i] = c->beta2 * a->s[1][i] + (1 - c->beta2) * g * g;
    double bias1 = 1 - pow(c->beta1, (double)c->step), bias2 = 1 - pow(c->beta2, (double)c->step);
    a->w[i] -= c->lr / bias1 * a->s[0][i] / (sqrt(a->s[1][i]) / sqrt(bias2) + c->eps);
}

static void expect_sgd(const ndp_optim_call *c, arrays *a, int64_t i) {
    double d = a->g[i] * c->grad_scale + c->weight_decay * a->w[i];
    if (c->momentum != 0)
        d = a->s[0][i] = c->step == 1 ? d : c->momentum * a->s[0][i] + d;
    a->w[i] -= c->lr * d;
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

/* Runs `update` on elements [GUARD, GUARD + n) of `a` in storage `c.type`. The start is aligned to 4 bytes only. */
static void apply(void (*update)(const ndp_optim_call *), ndp_optim_call c, arrays *a, bool copied) {
    static float w[MOST + 2 * GUARD], g[MOST + 2 * GUARD], s0[MOST + 2 * GUARD], s1[MOST + 2 * GUARD];
    bool single = c.type == NDP_F32;
    narrow(a->w, w);
    narrow(a->g, g);
    narrow(a->s[0], s0);
    narrow(a->s[1], s1);
    c.weight = single ? (void *)(w + GUARD) : (void *)(a->w + GUARD);
    c.grad = single ? (const void *)(g + GUARD) : (const void *)(a->g + GUARD);
    c.state[0] = single ? (void *)(s0 + GUARD) : (void *)(a->s[0] + GUARD);
    c.state[1] = single ? (void *)(s1 + GUARD) : (void *)(a->s[1] + GUARD);
    c.copy = copied ? a->copy + GUARD : NULL;
    update(&c);
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
static void compare(const ndp_optim_call *c, bool adamw, bool copied) {
    double eps = c->type == NDP_F32 ? 1.2e-7 : 2.3e-16;
    want = before;
    for (int64_t i = GUARD; i < GUARD + c->n; i++) {
        (adamw ? expect_adamw : expect_sgd)(c, &want, i);
        close_to(after.s[0][i], want.s[0][i], fabs(before.s[0][i]) + fabs(before.g[i]) + fabs(before.w[i]), 4 * eps,
                 "state 0", i);
        close_to(after.s[1][i], want.s[1][i], fabs(want.s[1][i]), 4 * eps, "state 1", i);
        close_to(after.w[i], want.w[i], 2 * fabs(before.w[i]) + 20 * c->lr, 2 * eps, "weight", i);
        if (copied)
            assert_int_equal(after.copy[i], ndp_f32_to_bf16((float)after.w[i]));
    }
    for (int64_t i = 0; i < MOST + 2 * GUARD; i++) {
        bool inside = i >= GUARD && i < GUARD + c->n;
        if (!inside &&
            (after.w[i] != before.w[i] || after.s[0][i] != before.s[0][i] || after.s[1][i] != before.s[1][i]))
            fail_msg("element %lld outside of [0, %lld) changed", (long long)i - GUARD, (long long)c->n);
        if (!inside || !copied)
            assert_int_equal(after.copy[i], 0x7777);
        assert_true(after.g[i] == before.g[i]);
    }
}

static void try_all(bool adamw, double momentum) {
    void (*update)(const ndp_optim_call *) = adamw ? ndp_adamw : ndp_sgd;
    static const int64_t sizes[] = {0, 1, 15, 16, 17, 63, 65, 1000, MOST};
    for (int k = 0; k < NDP_COUNT(sizes) * 2 * 2 * 2; k++) {
        bool copied = k & 1;
        ndp_optim_call c = {.type = k & 2 ? NDP_F64 : NDP_F32,
                            .n = sizes[k / 8],
                            .lr = 3e-3,
                            .beta1 = 0.9,
                            .beta2 = 0.95,
                            .eps = 1e-8,
                            .weight_decay = k & 4 ? 0.1 : 0,
                            .momentum = momentum,
                            .grad_scale = 0.75,
                            .step = k & 4 ? 1 : 7,
                            .threads = 2};
        fill(&before, c.step > 1);
        if (c.type == NDP_F32)
            for (int s = 0; s < 2; s++)
                for (int i = 0; i < MOST + 2 * GUARD; i++)
                    before.s[s][i] = (double)(float)before.s[s][i];
        after = before;
        apply(update, c, &after, copied);
        compare(&c, adamw, copied);
    }
}

static void updates_follow_their_formulas(void **state) {
    (void)state;
    static const char *const isa[] = {"generic", "avx512"};
    for (int i = 0; i < 2; i++) {
        setenv("NDP_ISA", isa[i], 1);
        try_all(true, 0);
        try_all(false, 0);
        try_all(false, 0.9);
    }
    unsetenv("NDP_ISA");
}

static void threads_change_no_bit(void **state) {
    (void)state;
    for (int k = 0; k < 4; k++) {
        void (*update)(const ndp_optim_call *) = k & 1 ? ndp_adamw : ndp_sgd;
        ndp_optim_call c = {.type = k & 2 ? NDP_F64 : NDP_F32,
                            .n = MOST,
                            .lr = 1e-3,
                            .beta1 = 0.9,
                            .beta2 = 0.999,
                            .eps = 1e-8,
                            .weight_decay = 0.1,
                            .momentum = 0.9,
                            .grad_scale = 0.3,
                            .step = 4,
                            .threads = 1};
        fill(&after, true);
        apply(update, c, &after, true);
        for (c.threads = 2; c.threads <= 7; c.threads++) {
            fill(&other, true);
            apply(update, c, &other, true);
            assert_memory_equal(&after, &other, sizeof after);
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
            ndp_optim_call c = {.type = NDP_F64,
                                .weight = w,
                                .grad = grads[step - 1],
                                .state = {s[0], s[1]},
                                .n = 4,
                                .lr = 0.1,
                                .beta1 = 0.9,
                                .beta2 = 0.95,
                                .eps = 1e-8,
                                .weight_decay = 0.1,
                                .momentum = k == 1 ? 0.9 : 0,
                                .grad_scale = 1,
                                .step = step,
                                .threads = 1};
            (k == 0 ? ndp_adamw : ndp_sgd)(&c);
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
    ndp_optim_call c = {.type = NDP_F32,
                        .weight = w,
                        .grad = g,
                        .state = {m, v},
                        .n = 40,
                        .lr = 0.1,
                        .beta1 = 0.9,
                        .beta2 = 0.95,
                        .eps = 1e-8,
                        .grad_scale = 1,
                        .step = 1000000,
                        .threads = 1};
    ndp_adamw(&c);
    for (int i = 0; i < 40; i++)
        assert_true(w[i] == 1 && m[i] == 0 && v[i] == 0);
}

static void states_are_counted(void **state) {
    (void)state;
    assert_int_equal(ndp_optim_states(NDP_OPTIM_ADAMW, 0), 2);
    assert_int_equal(ndp_optim_states(NDP_OPTIM_ADAMW, 0.9), 2);
    assert_int_equal(ndp_optim_states(NDP_OPTIM_SGD, 0.9), 1);
    assert_int_equal(ndp_optim_states(NDP_OPTIM_SGD, 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_follow_their_formulas), cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(three_steps_are_torchs), cmocka_unit_test(tiny_moments_end_at_zero),
        cmocka_unit_test(states_are_counted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
