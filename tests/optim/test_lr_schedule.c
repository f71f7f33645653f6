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
        {{NDP_LR_CONSTANT, 8, 0.5, 0, 4}, {8, 8, 8, 8, 8}},
        {{NDP_LR_CONSTANT, 8, 0.5, 4, 6}, {2, 4, 6, 8, 8, 8, 8}},
        {{NDP_LR_LINEAR, 8, 0, 0, 5}, {8, 6, 4, 2, 0, 0}},
        {{NDP_LR_LINEAR, 8, 0.5, 2, 7}, {4, 8, 8, 7, 6, 5, 4, 4}},
        {{NDP_LR_COSINE, 8, 0, 0, 5}, {8, 4 + 2 * M_SQRT2, 4, 4 - 2 * M_SQRT2, 0, 0}},
        {{NDP_LR_COSINE, 8, 0.5, 2, 5}, {4, 8, 8, 6, 4, 4}},
        {{NDP_LR_COSINE, 8, 0.25, 4, 3}, {2, 4, 6, 8}}, /* the run ends while warming up */
        {{NDP_LR_LINEAR, 8, 0.25, 1, 2}, {8, 2, 2}},    /* one update after warm-up is the last one */
        {{NDP_LR_LINEAR, 8, 1, 1, 4}, {8, 8, 8, 8, 8}}, /* nothing to fall to */
    };
    for (int k = 0; k < NDP_COUNT(cases); k++)
        for (int64_t u = 0; u <= cases[k].s.steps; u++) {
            double lr = ndp_lr_of(&cases[k].s, u);
            if (fabs(lr - cases[k].lr[u]) > 1e-14)
                fail_msg("case %d, update %lld: %.17g, expected %.17g", k, (long long)u, lr, cases[k].lr[u]);
        }
}

static void rate_never_rises_after_warmup(void **state) {
    (void)state;
    for (int kind = NDP_LR_CONSTANT; kind <= NDP_LR_COSINE; kind++) {
        ndp_lr_schedule s = {(ndp_lr_kind)kind, 3e-4, 0.1, 100, 1000};
        double last = 0;
        for (int64_t u = 0; u < 1200; u++) {
            double lr = ndp_lr_of(&s, u);
            assert_true(u < 100 ? lr > last : lr <= last);
            assert_true(u < 100 || lr >= s.lr * s.min_ratio * (1 - 1e-15));
            last = lr;
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(schedules_follow_their_tables),
                                       cmocka_unit_test(rate_never_rises_after_warmup)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
