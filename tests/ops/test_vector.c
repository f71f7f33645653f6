/* Functions of the vector kernels against the system's. */
#include "ops/cpu/cpu_vector.h"

#include "check.h"
#include <math.h>

/* From the smallest normal float to the largest, within 2 ulp; beyond them 0 and infinity. */
static void exponential(void **state) {
    (void)state;
    for (double x = -87.33; x < 88.72; x += 0.00037) {
        double e = exp((double)(float)x), ulp = ldexp(1, ilogb(e) - 23);
        if (!(fabs((double)ndp_vexpf((float)x) - e) <= 2 * ulp))
            fail_msg("exp(%.9g): %.9g, not %.9g", x, (double)ndp_vexpf((float)x), e);
    }
    assert_true(ndp_vexpf(-INFINITY) == 0 && ndp_vexpf(-90) == 0 && ndp_vexpf(0) == 1);
    assert_true(isinf(ndp_vexpf(INFINITY)) && isinf(ndp_vexpf(89)) && isnan(ndp_vexpf(NAN)));
}

/* Near 0, at the seam of its two formulas, and far out, where it is 1. */
static void hyperbolic_tangent(void **state) {
    (void)state;
    for (double x = -12; x < 12; x += 0.00037) {
        double y = tanh((double)(float)x), ulp = ldexp(1, ilogb(y) - 23);
        if (!(fabs((double)ndp_vtanhf((float)x) - y) <= 3 * ulp))
            fail_msg("tanh(%.9g): %.9g, not %.9g", x, (double)ndp_vtanhf((float)x), y);
    }
    assert_true(ndp_vtanhf(0) == 0 && ndp_vtanhf(1e-30f) == 1e-30f);
    assert_true(ndp_vtanhf(INFINITY) == 1 && ndp_vtanhf(-INFINITY) == -1 && isnan(ndp_vtanhf(NAN)));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(exponential), cmocka_unit_test(hyperbolic_tangent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
