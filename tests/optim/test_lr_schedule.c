#include "optim/optim.h"

#include "check.h"
#include <math.h>

/* Tables by hand: lr 8, every value of a run, and the update after it. */
static void schedules_follow_their_tables(void **state) {
    (void)state;
    static const struct {
        ndp_lr_schedule s;
        double lr[9];
    } cases[] = {
        {{NDP_LR_CONSTANT, 8, 0.5, 0, 4, 0, 0, NDP_LR_OWN}, {8, 8, 8, 8, 8}},
        {{NDP_LR_CONSTANT, 8, 0.5, 4, 6, 0, 0, NDP_LR_OWN}, {2, 4, 6, 8, 8, 8, 8}},
        {{NDP_LR_LINEAR, 8, 0, 0, 5, 0, 0, NDP_LR_OWN}, {8, 6, 4, 2, 0, 0}},
        {{NDP_LR_LINEAR, 8, 0.5, 2, 7, 0, 0, NDP_LR_OWN}, {4, 8, 8, 7, 6, 5, 4, 4}},
        {{NDP_LR_COSINE, 8, 0, 0, 5, 0, 0, NDP_LR_OWN}, {8, 4 + 2 * M_SQRT2, 4, 4 - 2 * M_SQRT2, 0, 0}},
        {{NDP_LR_COSINE, 8, 0.5, 2, 5, 0, 0, NDP_LR_OWN}, {4, 8, 8, 6, 4, 4}},
        {{NDP_LR_COSINE, 8, 0.25, 4, 3, 0, 0, NDP_LR_OWN}, {2, 4, 6, 8}}, /* the run ends while warming up */
        {{NDP_LR_LINEAR, 8, 0.25, 1, 2, 0, 0, NDP_LR_OWN}, {8, 2, 2}},    /* one update after warm-up is the last one */
        {{NDP_LR_LINEAR, 8, 1, 1, 4, 0, 0, NDP_LR_OWN}, {8, 8, 8, 8, 8}}, /* nothing to fall to */
        {{NDP_LR_WSD, 8, 0.5, 2, 7, 0.3, 0, NDP_LR_OWN}, {4, 8, 8, 8, 8, 6, 4, 4}},
        {{NDP_LR_WSD, 8, 0, 0, 4, 0.1, 0, NDP_LR_OWN}, {8, 8, 8, 0, 0}},    /* it falls at least once */
        {{NDP_LR_WSD, 8, 0.5, 2, 5, 1, 0, NDP_LR_OWN}, {4, 8, 8, 6, 4, 4}}, /* nothing is stable: a cosine */
        {{NDP_LR_WSD, 8, 0.5, 4, 3, 0.5, 0, NDP_LR_OWN}, {2, 4, 6, 8}},     /* the run ends while warming up */
        {{NDP_LR_INVERSE_SQRT, 8, 0.5, 1, 5, 0, 0, NDP_LR_OWN},
         {8, 8, 4 * M_SQRT2, 8 / 1.7320508075688772, 4, 8 / 2.23606797749979}},
        {{NDP_LR_COSINE_RESTARTS, 8, 0.5, 1, 6, 0, 2, NDP_LR_OWN}, {8, 8, 6, 8, 6, 4, 4}},
        {{NDP_LR_COSINE_RESTARTS, 8, 0.5, 2, 5, 0, 1, NDP_LR_OWN}, {4, 8, 8, 6, 4, 4}},
        /* as transformers counts */
        {{NDP_LR_CONSTANT, 8, 0.5, 4, 6, 0, 0, NDP_LR_LIKE_TRANSFORMERS}, {0, 2, 4, 6, 8, 8, 8}},
        {{NDP_LR_LINEAR, 8, 0, 2, 6, 0, 0, NDP_LR_LIKE_TRANSFORMERS}, {0, 4, 8, 6, 4, 2, 0}},
        {{NDP_LR_WSD, 8, 0.5, 2, 6, 1.0 / 3, 0, NDP_LR_LIKE_TRANSFORMERS}, {4, 6, 8, 8, 8, 6, 4}},
        {{NDP_LR_INVERSE_SQRT, 8, 0.5, 1, 3, 0, 0, NDP_LR_LIKE_TRANSFORMERS},
         {0, 8, 4 * M_SQRT2, 8 / 1.7320508075688772}},
        /* as DeepSpeed does: WarmupLR, WarmupDecayLR, WarmupCosineLR */
        {{NDP_LR_CONSTANT, 8, 0.5, 4, 6, 0, 0, NDP_LR_LIKE_DEEPSPEED}, {0, 0, 2, 4, 6, 8, 8}},
        {{NDP_LR_LINEAR, 8, 0, 2, 6, 0, 0, NDP_LR_LIKE_DEEPSPEED}, {0, 0, 4, 8, 6, 4, 2}},
        {{NDP_LR_COSINE, 8, 0, 2, 6, 0, 0, NDP_LR_LIKE_DEEPSPEED}, {0, 0, 4, 4 + 2 * M_SQRT2, 4, 4 - 2 * M_SQRT2, 0}},
    };
    for (int k = 0; k < NDP_COUNT(cases); k++)
        for (int64_t u = 0; u <= cases[k].s.steps; u++) {
            double lr = ndp_lr_of(&cases[k].s, u);
            if (fabs(lr - cases[k].lr[u]) > 1e-14)
                fail_msg("case %d, update %lld: %.17g, expected %.17g", k, (long long)u, lr, cases[k].lr[u]);
        }
}

/* The formulas of transformers 5 (src/transformers/optimization.py, the lambdas of the schedulers), as they stand
 * there: `step` of `all`, after `warmup`. */
static double of_transformers(ndp_lr_kind kind, double step, double warmup, double all, double least, double decay,
                              double cycles) {
    double progress = (step - warmup) / fmax(1, all - warmup), stable = all - warmup - decay, factor;
    double timescale = warmup > 0 ? warmup : 10000, shift = timescale - warmup;
    switch (kind) {
    case NDP_LR_CONSTANT:
        return 1;
    case NDP_LR_LINEAR: /* with lr_end, as its polynomial schedule of power 1 has it */
        return step > all ? least : (1 - least) * (1 - progress) + least;
    case NDP_LR_COSINE: /* cosine_with_min_lr */
        factor = 0.5 * (1.0 + cos(M_PI * 0.5 * 2.0 * progress));
        return fmax(0, factor * (1 - least) + least);
    case NDP_LR_COSINE_RESTARTS: /* it has no min_lr: that of cosine_with_min_lr around it */
        factor = progress >= 1 ? 0 : fmax(0, 0.5 * (1.0 + cos(M_PI * fmod(cycles * progress, 1.0))));
        return factor * (1 - least) + least;
    case NDP_LR_INVERSE_SQRT:
        return 1.0 / sqrt((step + shift) / timescale);
    case NDP_LR_WSD:
        if (step < warmup + stable)
            return 1;
        if (step >= warmup + stable + decay)
            return least;
        factor = 0.5 * (1.0 + cos(M_PI * 0.5 * 2.0 * (step - warmup - stable) / fmax(1, decay)));
        return fmax(0, factor * (1.0 - least) + least);
    default:
        fail();
        return NAN;
    }
}

/* Theirs ends one update after the last one, ours with it, unless it counts from zero. */
static void schedules_are_those_of_transformers(void **state) {
    (void)state;
    static const struct {
        int64_t warmup, steps;
        double least, decay;
        int cycles;
    } runs[] = {{10, 101, 0.1, 0.2, 3}, {0, 100, 0, 0.1, 1}, {1, 57, 0.5, 0.35, 5}, {250, 20001, 0.01, 1, 40}};
    int compared = 0;
    for (int kind = 0; kind < NDP_LR_KINDS; kind++)
        for (int i = 0; i < 2 * NDP_COUNT(runs); i++) {
            int r = i / 2;
            int64_t warmup = runs[r].warmup, steps = runs[r].steps;
            bool own = i % 2 == 0;
            ndp_lr_schedule s = {(ndp_lr_kind)kind,
                                 3e-4,
                                 runs[r].least,
                                 warmup,
                                 steps,
                                 runs[r].decay,
                                 runs[r].cycles,
                                 own ? NDP_LR_OWN : NDP_LR_LIKE_TRANSFORMERS};
            int64_t end = steps - own;
            double decay = fmin(round(runs[r].decay * (double)steps), (double)(end - warmup));
            for (int64_t u = own ? warmup : 0; u < steps + 20; u++, compared++) {
                double lr = ndp_lr_of(&s, u),
                       wanted = 3e-4 * of_transformers((ndp_lr_kind)kind, (double)u, (double)warmup, (double)end,
                                                       runs[r].least, decay, runs[r].cycles);
                if (u < warmup) /* all of theirs */
                    wanted =
                        3e-4 * (kind == NDP_LR_WSD ? runs[r].least + (1 - runs[r].least) * (double)u / (double)warmup
                                                   : (double)u / (double)warmup);
                if (u >= steps && ndp_lr_has_end((ndp_lr_kind)kind))
                    wanted = 3e-4 * runs[r].least;
                if (fabs(lr - wanted) > 1e-15 * 3e-4 * 8)
                    fail_msg("%d of %d, update %lld: %.17g, transformers has %.17g", r, kind, (long long)u, lr, wanted);
            }
        }
    assert_true(compared > 160000);
}

static void rate_never_rises_after_warmup(void **state) {
    (void)state;
    for (int kind = 0; kind < NDP_LR_KINDS; kind++) {
        ndp_lr_schedule s = {(ndp_lr_kind)kind, 3e-4, 0.1, 100, 1000, 0.25, 1, NDP_LR_OWN};
        double last = 0;
        for (int64_t u = 0; u < 1200; u++) {
            double lr = ndp_lr_of(&s, u);
            assert_true(u < 100 ? lr > last : lr <= last);
            assert_true(u < 100 || lr >= s.lr * s.min_ratio * (1 - 1e-15));
            last = lr;
        }
    }
}

/* The rate is lr again where a cycle starts, as often as there are cycles. */
static void restarts_are_counted(void **state) {
    (void)state;
    for (int cycles = 1; cycles < 8; cycles++) {
        ndp_lr_schedule s = {NDP_LR_COSINE_RESTARTS, 3e-4, 0.1, 100, 1000, .cycles = cycles};
        int rises = 0;
        for (int64_t u = 101; u < 1200; u++)
            rises += ndp_lr_of(&s, u) > ndp_lr_of(&s, u - 1);
        assert_int_equal(rises, cycles - 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_follow_their_tables), cmocka_unit_test(schedules_are_those_of_transformers),
        cmocka_unit_test(rate_never_rises_after_warmup), cmocka_unit_test(restarts_are_counted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
